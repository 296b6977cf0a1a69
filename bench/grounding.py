"""How well verdicts and passages agree with people: WiCE dev, FoolMeTwice dev, damaged sentences, and the cost.

python bench/grounding.py [--json] [--no-peers] [--limit N]

hit@1, hit@3: an annotated supporting sentence is the main passage, or among the three. Beside it rapidfuzz's
partial_ratio (in an environment of its own) and plain token overlap as rankers of the same sentences.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
CASES = Path(os.environ.get("M3_CASES", ROOT.parent / "shared" / "cases"))

from m3.grounding import verify  # noqa: E402
from m3.records import Page  # noqa: E402
from m3.words import terms  # noqa: E402

SETS = ("wice", "fm2")
PEER = """
import json, sys
from rapidfuzz import fuzz
for line in sys.stdin:
    claim, sentences = json.loads(line)
    scores = [fuzz.partial_ratio(claim, s) for s in sentences]
    print(json.dumps(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:3]))
"""


def load(name: str, limit: int | None) -> list[dict[str, Any]]:
    path = CASES / "citations" / name / "dev.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][:limit]


def page_of(case: dict[str, Any]) -> tuple[Page, list[int]]:
    """The case's sentences as a page, one a line, and where each begins.

    WiCE's `title` is the article that the claim stands in, not the page's; only FoolMeTwice gives the page's own.
    """
    starts, at = [], 0
    lines = [" ".join(s.split()) for s in case["doc_sentences"]]
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    return Page(
        "https://example.org/", "\n".join(lines), title=(case["title"] or "") if case["id"].startswith("fm2") else ""
    ), starts


def places(passages: Sequence[Any], starts: Sequence[int]) -> list[int]:
    """Which sentence of the case each passage begins in."""
    return [max(i for i, start in enumerate(starts) if start <= p.start) for p in passages]


def by_overlap(case: dict[str, Any]) -> list[int]:
    wanted = set(terms(case["claim"]))
    shares = [len(wanted & set(terms(s))) for s in case["doc_sentences"]]
    return sorted(range(len(shares)), key=lambda i: (-shares[i], i))[:3]


def by_partial_ratio(cases: Sequence[dict[str, Any]]) -> list[list[int]]:
    home = ROOT / ".venv-bench-grounding"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "rapidfuzz>=3,<4"], check=True)
    lines = "\n".join(json.dumps([c["claim"], c["doc_sentences"]]) for c in cases)
    done = subprocess.run([python, "-c", PEER], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def hits(ranked: Sequence[Sequence[int]], cases: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """hit@1 and hit@3 in per cent over the cases that have annotated support (WiCE: at least partly supported)."""
    pairs = [
        (r, {i for s in c["support"] for i in s})
        for r, c in zip(ranked, cases, strict=True)
        if c["support"] and (c["label"] != "not" or c.get("gold_all_in_pool"))
    ]
    one = sum(bool(set(r[:1]) & gold) for r, gold in pairs)
    three = sum(bool(set(r[:3]) & gold) for r, gold in pairs)
    return 100 * one / len(pairs), 100 * three / len(pairs)


def measure(name: str, limit: int | None, peers: bool) -> dict[str, float]:
    """The figures of one set, each named `<set>_…`, in per cent."""
    cases = load(name, limit)
    ranked, verdicts = [], []
    for case in cases:
        page, starts = page_of(case)
        check = verify(f"{case['claim']} [Source 1]", {1: page}).checks[0]
        ranked.append(places(check.passages, starts))
        verdicts.append(check.verdict)
    figures: dict[str, float] = {f"{name}_claims": len(cases)}
    figures[f"{name}_hit1"], figures[f"{name}_hit3"] = hits(ranked, cases)
    overlap = [by_overlap(case) for case in cases]
    figures[f"{name}_overlap_hit1"], figures[f"{name}_overlap_hit3"] = hits(overlap, cases)
    if peers:
        ratio = by_partial_ratio(cases)
        figures[f"{name}_partial_ratio_hit1"], figures[f"{name}_partial_ratio_hit3"] = hits(ratio, cases)
    is_supported = [case["label"] == "supported" for case in cases]
    at_least_partly = [case["label"] in ("supported", "partially_supported", "partially") for case in cases]
    count = Counter(verdicts)
    for verdict in ("matched", "partly", "not_found", "unchecked"):
        chosen = [i for i, v in enumerate(verdicts) if v == verdict]
        figures[f"{name}_{verdict}_share"] = 100 * count[verdict] / len(cases)
        if chosen and verdict != "unchecked":
            supported = sum(is_supported[i] for i in chosen)
            right = len(chosen) - supported if verdict == "not_found" else supported
            figures[f"{name}_{verdict}_right"] = 100 * right / len(chosen)
            if verdict == "matched":
                figures[f"{name}_matched_at_least_partly"] = 100 * sum(at_least_partly[i] for i in chosen) / len(chosen)
    good = [i for i, s in enumerate(is_supported) if s]
    bad = [i for i, s in enumerate(is_supported) if not s]
    figures[f"{name}_supported_not_found"] = 100 * sum(verdicts[i] == "not_found" for i in good) / len(good)
    figures[f"{name}_supported_matched"] = 100 * sum(verdicts[i] == "matched" for i in good) / len(good)
    figures[f"{name}_unsupported_matched"] = 100 * sum(verdicts[i] == "matched" for i in bad) / len(bad)
    figures[f"{name}_unsupported_not_found"] = 100 * sum(verdicts[i] == "not_found" for i in bad) / len(bad)
    return figures


def cost() -> dict[str, float]:
    """CPU seconds to verify 30 statements over 20 pages of 30 kB, each statement citing two of them, cold."""
    cases = load("wice", None)
    texts, text = [], ""
    for case in cases:
        text += "\n".join(case["doc_sentences"]) + "\n"
        if len(text) > 30_000:
            texts.append(text[:30_000])
            text = ""
        if len(texts) == 20:
            break
    pages: dict[int, str | Page] = {
        i: Page(f"https://example.org/{i}", t, title=f"Page {i}") for i, t in enumerate(texts, 1)
    }
    summary = " ".join(f"{c['claim']} [Source {i % 20 + 1}, {(i + 7) % 20 + 1}]" for i, c in enumerate(cases[:30]))
    started = time.process_time()
    report = verify(summary, pages)
    return {"cost_cpu_seconds": time.process_time() - started, "cost_checks": len(report.checks)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-peers", action="store_true", help="do not install and run rapidfuzz")
    parser.add_argument("--limit", type=int, help="only the first N claims of each set")
    args = parser.parse_args()
    if not (CASES / "citations").is_dir():
        print(f"skipped: no cases at {CASES / 'citations'}; set M3_CASES")
        return 0
    figures: dict[str, float] = {}
    for name in SETS:
        figures |= measure(name, args.limit, not args.no_peers)
    figures |= cost()
    figures = {name: round(value, 2) for name, value in figures.items()}
    if args.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:<36} {value:>8}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
