"""Does a 400-token selection hold the answer? A hundred questions with known answer sentences over real pages.

    python bench/passages.py [--json] [--budget 400] [--misses]

Question, page and answer sentence are in tests/cases/passages.json; the pages are those of M3_CASES. Beside
`m3.grounding.rank_passages` stands the figure for the first 400 tokens of each page's text. `extracted` counts the
answers that the extractor kept at all.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from m3.extract import ContentExtractor  # noqa: E402
from m3.grounding import rank_passages, render_passages  # noqa: E402
from m3.words import estimate_tokens  # noqa: E402

CASES = Path(os.environ.get("M3_CASES", ROOT.parent / "shared" / "cases")) / "extraction"
QUESTIONS = ROOT / "tests" / "cases" / "passages.json"


def folded(text: str) -> str:
    """Words only: extraction may place a space or a quotation mark otherwise than the truth does."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def first_tokens(text: str, budget: int) -> str:
    """The longest beginning of a text within a token budget."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate_tokens(text[:middle]) <= budget else (low, middle - 1)
    return text[:low]


def run(budget: int, every: int = 1) -> list[dict[str, Any]]:
    """One row for every so many-th question: whether the page, the selection and the beginning hold the answer."""
    rows = []
    truths: dict[str, Any] = {}
    for case in json.loads(QUESTIONS.read_text("utf-8"))[::every]:
        folder = CASES / case["set"]
        truth = truths.setdefault(case["set"], json.loads((folder / "ground-truth.json").read_text("utf-8")))
        raw = gzip.decompress((folder / "html" / f"{case['page']}.html.gz").read_bytes())
        page = ContentExtractor().extract(raw, truth[case["page"]]["url"])
        shown = render_passages(page, rank_passages(case["question"], page, budget))
        answer = folded(case["answer"])
        rows.append({
            **case,
            "extracted": answer in folded(page.text),
            "selected": answer in folded(shown),
            "first": answer in folded(first_tokens(page.text, budget)),
            "tokens": estimate_tokens(shown),
            "page_tokens": estimate_tokens(page.text),
        })  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--budget", type=int, default=400, help="tokens of the selection (default 400)")
    parser.add_argument("--misses", action="store_true", help="list the questions whose answer was left out")
    args = parser.parse_args()
    if not CASES.exists():
        print(f"bench/passages.py: no pages in {CASES}; set M3_CASES to the folder of cases", file=sys.stderr)
        return 0
    rows = run(args.budget)
    count = len(rows)
    figures = {
        "questions": count,
        "budget_tokens": args.budget,
        "selected": round(sum(r["selected"] for r in rows) / count, 4),
        "first_tokens": round(sum(r["first"] for r in rows) / count, 4),
        "extracted": round(sum(r["extracted"] for r in rows) / count, 4),
        "most_tokens_shown": max(r["tokens"] for r in rows),
        "mean_page_tokens": round(sum(r["page_tokens"] for r in rows) / count),
    }
    if args.misses:
        for row in rows:
            if not row["selected"]:
                print(f"{row['page'][:8]}  {'' if row['extracted'] else '(not extracted) '}{row['question']}")
                print(f"          {row['answer']}")
    if args.json:
        print(json.dumps(figures))
    else:
        for key, value in figures.items():
            print(f"{key:20} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
