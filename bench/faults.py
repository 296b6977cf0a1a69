"""Faults at every point of a run: what comes of it, as a table.

A clean run shows its points (calls to the outside, writes, lines on the terminal); each is failed in turn with every
fault of its kind (tests/cases/faults.json names them), then pairs at random from a seed. Every killed run is resumed.
The last line of the table counts what must be 0. `--quick` takes one case in ten.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.faults import Bench, FaultPlan, Result, outcome_of, random_pairs, single_faults

PAIRS = 300
COLUMNS = ("answered", "partial", "clean error", "killed", "crash", "over")
MUST_BE_ZERO = ("crashes", "over_a_bound", "corrupt_files", "secrets_out", "changed_by_a_fault_beside", "other")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object of figures as the last line")
    parser.add_argument("--quick", action="store_true", help="one case in ten")
    parser.add_argument("--seed", type=int, default=10, help="of the random pairs (default: 10)")
    args = parser.parse_args()
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_MODEL", "_BASE_URL", "_PROVIDER"))]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HOME": home, "XDG_CACHE_HOME": home, "XDG_DATA_HOME": home}
        rows, figures, problems = measure(10 if args.quick else 1, args.seed)
    for problem in problems:
        print(problem, file=sys.stderr)
    if args.json:
        print(json.dumps(figures))
    else:
        print_table(rows, figures)
    return int(any(figures[name] for name in MUST_BE_ZERO))


def measure(step: int, seed: int) -> tuple[dict[str, list[Result]], dict[str, float], list[str]]:
    """Runs by fault, the figures, and every broken rule with the plan that repeats it."""
    rows: dict[str, list[Result]] = defaultdict(list)
    resumed: list[Result] = []
    with Bench() as bench:
        points = bench.run(FaultPlan()).plan.points
        for point, fault, kind in single_faults(points)[::step]:
            result = bench.run(FaultPlan({point: kind}))
            rows[fault].append(result)
            if result.killed:
                resumed.append(bench.resume(result))
        for plan in random_pairs(points, PAIRS, seed)[::step]:
            rows["two at once"].append(bench.run(FaultPlan(plan)))
    rows["resumed after kill"] = resumed
    every = [result for results in rows.values() for result in results]
    problems = [f"{dict(r.plan.faults)}: {problem}" for r in every for problem in r.problems]
    figures = {"points": len(set(points)), "runs": len(every), "killed_and_resumed": len(resumed)}
    figures |= {"answered_or_partial": sum(outcome_of(r) in ("answered", "partial") for r in every)}
    return rows, {**figures, **_broken(problems), "p95_seconds": _p95(every)}, problems


def _broken(problems: Iterable[str]) -> dict[str, int]:
    """How often each rule was broken."""
    names = {
        ": crash": "crashes",
        ": over": "over_a_bound",
        ": corrupt": "corrupt_files",
        ": secret": "secrets_out",
        ": a fault beside": "changed_by_a_fault_beside",
    }
    counts = Counter(next((n for mark, n in names.items() if mark in p), "other") for p in problems)
    return {name: counts[name] for name in MUST_BE_ZERO}


def _p95(results: list[Result]) -> float:
    seconds = sorted(result.seconds for result in results)
    return round(seconds[int(0.95 * (len(seconds) - 1))], 3) if seconds else 0.0


def print_table(rows: dict[str, list[Result]], figures: dict[str, float]) -> None:
    head = f"{'fault':<20}{'runs':>6}" + "".join(f"{name:>13}" for name in COLUMNS) + f"{'p95 s':>8}"
    print(head)
    for fault, results in rows.items():
        if results:
            counts = Counter(outcome_of(result) for result in results)
            cells = "".join(f"{counts[name]:>13}" for name in COLUMNS)
            print(f"{fault:<20}{len(results):>6}{cells}{_p95(results):>8.2f}")
    print("\n" + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    sys.exit(main())
