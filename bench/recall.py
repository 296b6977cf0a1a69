"""What recall brings back and what it shows wrongly, as curves over its floor.

    python bench/recall.py [--json] [--queries 500]

Two sets. `subjects` (tests/cases/recall_subjects.json, in English, German, Russian and across them): of every subject
one question is stored; the same question in other words should bring it back, another question on the same subject
should show nothing. Its `tuning` rows served to choose the rules and constants of `m3/recall.py`, its `held` ones did
not; `long` ones, of 15 to 25 words that the other question mostly repeats, show where comparing words ends. `given`
(M3_CASES, left out where absent): questions of 77 topics all about banking; a stored one is right when its topic is the
question's; "wrong" is asked with all sessions of that topic taken away. Everything goes through a real SQLite store;
`floor` is a multiple of the one in use.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from m3 import recall  # noqa: E402
from m3.report import FinalOutput  # noqa: E402
from memory_integration import LocalMemory  # noqa: E402

GIVEN = Path(os.environ.get("M3_CASES", ROOT.parent / "shared" / "cases")) / "recall"
SUBJECTS = ROOT / "tests" / "cases" / "recall_subjects.json"
FLOORS = (0.5, 0.7, 0.85, 1.0, 1.15, 1.3)
IN_USE = recall.FLOOR


def store_of(path: Path, questions: Iterable[str]) -> tuple[LocalMemory, list[str]]:
    store = LocalMemory(path, max_sessions=None)
    return store, [remember(store, question) for question in questions]


def remember(store: LocalMemory, question: str) -> str:
    result = store.store_research(FinalOutput(question, "A report.", (), "answered"))
    if not result.stored:
        raise RuntimeError(result.detail)
    return result.id


def shown(store: LocalMemory, question: str) -> Iterator[tuple[float, list[str]]]:
    """The ids that are shown at each floor."""
    for times in FLOORS:
        recall.FLOOR = times * IN_USE
        yield times, [session.id for session in store.retrieve_related(question, 3)]
    recall.FLOOR = IN_USE


class Curve:
    """Shares of the questions for which a right session came back, and a wrong one was shown, at each floor."""

    def __init__(self) -> None:
        self.right: dict[float, list[bool]] = defaultdict(list)
        self.wrong: dict[float, list[bool]] = defaultdict(list)

    def figures(self) -> dict[str, float]:
        rows = (("right", self.right), ("wrong", self.wrong))
        return {f"{kind}_{at:g}": round(sum(seen) / len(seen), 4) for kind, row in rows for at, seen in row.items()}


def subjects(folder: Path, background: Sequence[str]) -> dict[str, Curve]:
    groups = json.loads(SUBJECTS.read_text(encoding="utf-8"))
    store, ids = store_of(folder / f"subjects{len(background)}.sqlite", [g["stored"] for g in groups])
    for question in background:
        remember(store, question)
    curves: dict[str, Curve] = defaultdict(Curve)
    for row, group in enumerate(groups):
        curve = curves[group["use"]]
        for question in group["same"]:
            for at, found in shown(store, question):
                curve.right[at].append(ids[row] in found)
        for question in group["other"]:
            for at, found in shown(store, question):
                curve.wrong[at].append(bool(found))
    store.close()
    return curves


def given(folder: Path, most: int) -> Curve:
    stored, asked = (json.loads((GIVEN / f"{name}.json").read_text()) for name in ("stored", "queries"))
    store, ids = store_of(folder / "given.sqlite", [row["query"] for row in stored])
    topic_of = dict(zip(ids, (row["topic"] for row in stored), strict=True))
    by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in asked[:: max(1, len(asked) // most)]:
        by_topic[row["topic"]].append(row)
    curve = Curve()
    for topic, rows in by_topic.items():
        for row in rows:
            for at, found in shown(store, row["query"]):
                curve.right[at].append(any(topic_of[id] == topic for id in found))
        away = [session for id in ids if topic_of[id] == topic and (session := store.get(id))]
        for session in away:
            store.forget(session.id)
        for row in rows:
            for at, found in shown(store, row["query"]):
                curve.wrong[at].append(bool(found))
        store.put(*away)
    store.close()
    return curve


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--queries", type=int, default=500, help="about how many questions of the given set are asked")
    args = parser.parse_args()
    figures: dict[str, float] = {}

    def show(name: str, curve: Curve) -> None:
        figures.update({f"{name}_{key}": value for key, value in curve.figures().items()})
        cells = (f"{curve_at(curve.right, at):.2f}/{curve_at(curve.wrong, at):.2f}" for at in FLOORS)
        print(f"{name:<24} " + "  ".join(f"{cell:>9}" for cell in cells), flush=True)

    print(f"{'right/wrong at floor':<24} " + "  ".join(f"{at:>9g}" for at in FLOORS))
    with tempfile.TemporaryDirectory() as folder:
        background = [row["query"] for row in json.loads((GIVEN / "stored.json").read_text())] if GIVEN.is_dir() else []
        for more in [[], background] if background else [[]]:
            for half, curve in subjects(Path(folder), more).items():
                show(f"subjects_{half}" + ("_among_770" if more else ""), curve)
        if background:
            show("given", given(Path(folder), args.queries))
    if args.json:
        print(json.dumps(figures))
    return 0


def curve_at(row: dict[float, list[bool]], at: float) -> float:
    return sum(row[at]) / len(row[at])


if __name__ == "__main__":
    sys.exit(main())
