"""What a start costs: CPU seconds and peak memory of `--help`, of `--check` and of one whole offline run.

The best of several runs counts: everything else on the machine only adds. Each runs in an own process with a fresh
home; the offline run is measured with its index of the sample corpus already built, as on every run but the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
QUESTION = "Compare Raptor RAG vs HyDE"
COMMANDS = {
    "help": ["--help"],
    "check": ["--check"],
    "offline_run": ["--quiet", "--no-memory", QUESTION],
}


def measure(arguments: list[str], home: str) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and peak memory in MiB of one run."""
    env = {"PATH": os.environ.get("PATH", ""), "HOME": home, "LANG": "C.UTF-8"}
    started = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, str(ROOT / "m3_react_agent.py"), *arguments],
        cwd=home, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{arguments} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - started, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", action="store_true", help="print one JSON object of named figures as the last line")
    parser.add_argument("--times", type=int, default=7, help="runs of each command; the best counts")
    args = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as home:
        measure(COMMANDS["offline_run"], home)  # builds the index
        for name, arguments in COMMANDS.items():
            runs = [measure(arguments, home) for _ in range(args.times)]
            figures[f"{name}_cpu_s"] = round(min(run[0] for run in runs), 3)
            figures[f"{name}_wall_s"] = round(min(run[1] for run in runs), 3)
            figures[f"{name}_peak_mib"] = round(min(run[2] for run in runs), 1)
    if args.json:
        print(json.dumps(figures))
        return
    print(f"{'command':<12} {'CPU s':>7} {'wall s':>7} {'peak MiB':>9}")
    for name in COMMANDS:
        print(
            f"{name:<12} {figures[f'{name}_cpu_s']:>7} {figures[f'{name}_wall_s']:>7} {figures[f'{name}_peak_mib']:>9}"
        )


if __name__ == "__main__":
    main()
