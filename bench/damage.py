"""Does a sentence that was true stop matching once it is damaged? Sentences of stored pages, damaged on purpose.

python bench/damage.py [--json] [--pages N]

Prints, for each kind of damage, how many per cent of the sentences that matched before still match after. Two names
exchanged is the known hole of comparing words: the figure is there to be read, not to be proud of.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
CASES = Path(os.environ.get("M3_CASES", ROOT.parent / "shared" / "cases"))

from m3.extract import ContentExtractor  # noqa: E402
from m3.grounding import split_sentences, verify  # noqa: E402
from m3.grounding.language import language_of  # noqa: E402
from m3.grounding.names import names_in  # noqa: E402
from m3.records import Page  # noqa: E402

SEED = 11
SENTENCES_PER_PAGE = 6
AUXILIARY = re.compile(r"\b(is|are|was|were|will|would|can|could|should|has|have|had|does|did)\b(?! not)")
NAMES = ("Brandvold", "Okonjo", "Tessaly", "Quimbaya", "Marwick", "Szeged", "Lindqvist", "Abernethy")
CLAUSES = (
    "and the harbour ferry was repainted in green over the winter",
    "while most volcanoes of the northern chain stayed quiet for decades",
    "although the choir had already rehearsed the second cantata twice",
    "and beekeepers reported heavier combs near the lavender fields",
    "because the glacier tongue retreated behind the old customs house",
)


def stored(count: int) -> list[Page]:
    """English pages of the extraction cases in a shuffled fixed order."""
    files = sorted((CASES / "extraction").glob("*/html/*.html.gz"))
    random.Random(SEED).shuffle(files)
    found: list[Page] = []
    for file in files:
        page = ContentExtractor().extract(gzip.decompress(file.read_bytes()), f"https://{file.name[:8]}.example/")
        if 2_000 <= len(page.text) <= 60_000 and language_of(page.text) == "en":
            found.append(page)
        if len(found) == count:
            break
    return found


def sentences_of(page: Page, chance: random.Random) -> list[str]:
    """Statements of 9 to 40 words in running prose, at most a few a page."""
    found = []
    for start, end in split_sentences(page.text):
        text = page.text[start:end]
        size = len(text.split())
        prose = sum(word.islower() for word in text.split()) >= 0.5 * size and not re.search(r"[|:]", text)
        if 9 <= size <= 40 and text[:1].isupper() and text.endswith(".") and prose:
            found.append(text)
    return chance.sample(found, min(SENTENCES_PER_PAGE, len(found)))


# --- damages: each gives the damaged sentence, or "" where it does not apply ------------------------------


def digit(text: str, chance: random.Random) -> str:
    places = [m.start() for m in re.finditer(r"(?<![\w.,-])\d|(?<=\d)\d", text)]
    if not places:
        return ""
    at = chance.choice(places)
    return text[:at] + chance.choice([d for d in "123456789" if d != text[at]]) + text[at + 1 :]


def name(text: str, chance: random.Random) -> str:
    names = names_in(text)
    return text.replace(chance.choice(names), chance.choice(NAMES), 1) if names else ""


def negation(text: str, chance: random.Random) -> str:
    match = AUXILIARY.search(text)
    return (
        f"{text[: match.end()]} not{text[match.end() :]}" if match and not re.search(r"\bnot?\b|n[’']t", text) else ""
    )


def clause(text: str, chance: random.Random) -> str:
    return f"{text.rstrip('.')}, {chance.choice(CLAUSES)}."


def exchange(text: str, chance: random.Random) -> str:
    names = [n for n in dict.fromkeys(names_in(text)) if text.count(n) == 1 and len(n) > 2]
    if len(names) < 2:
        return ""
    a, b = chance.sample(names, 2)
    return text.replace(a, "\0").replace(b, a).replace("\0", b)


DAMAGES: dict[str, Callable[[str, random.Random], str]] = {
    "digit": digit, "name": name, "not": negation, "clause": clause, "exchanged_names": exchange,
}  # fmt: skip


def measure(pages: int = 60) -> dict[str, float]:
    """`<damage>_n` and `<damage>_still_matched` (per cent), over the sentences that matched undamaged."""
    chance = random.Random(SEED)
    found = stored(pages)
    hits = {kind: [0, 0] for kind in (*DAMAGES, "wrong_page")}
    matched = total = 0
    for number, page in enumerate(found):
        other = found[(number + 7) % len(found)]
        for sentence in sentences_of(page, chance):
            total += 1
            if not is_matched(sentence, page):
                continue
            matched += 1
            for kind, damage in DAMAGES.items():
                worse = damage(sentence, chance)
                if worse and worse != sentence:
                    hits[kind][0] += 1
                    hits[kind][1] += is_matched(worse, page)
            hits["wrong_page"][0] += 1
            hits["wrong_page"][1] += is_matched(sentence, other)
    figures: dict[str, float] = {"sentences": total, "matched_undamaged": matched}
    for kind, (count, still) in hits.items():
        figures[f"{kind}_n"] = count
        figures[f"{kind}_still_matched"] = round(100 * still / count, 1) if count else 0.0
    return figures


def is_matched(sentence: str, page: Page) -> bool:
    report = verify(f"{sentence} [Source 1]", {1: page})
    cited = [s for s in report.statements if s.cited]
    return bool(cited) and all(s.verdict == "matched" for s in cited)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pages", type=int, default=60)
    args = parser.parse_args()
    if not (CASES / "extraction").is_dir():
        print(f"skipped: no cases at {CASES / 'extraction'}; set M3_CASES")
        return 0
    figures = measure(args.pages)
    if args.json:
        print(json.dumps(figures))
    else:
        for key, value in figures.items():
            print(f"{key:<32} {value:>7}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
