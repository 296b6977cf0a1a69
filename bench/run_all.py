"""Run every bench and write what they print into bench/RESULTS.md, with the machine, the date and the versions.

    make bench                                   # all of them: a quarter of an hour, once the peers are installed
    python bench/run_all.py startup parser       # these alone; the others' tables stay as they are

A bench that lacks its data or its tools says so in one line. One that takes longer than its time is ended and said to
have been.
"""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
from datetime import date
from importlib import metadata
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
RESULTS = FOLDER / "RESULTS.md"
SECONDS = 1_200  # for one bench
VERSIONS = (
    "groq",
    "openai",
    "anthropic",
    "requests",
    "beautifulsoup4",
    "lxml",
    "selectolax",
    "snowballstemmer",
    "pypdf",
)


def machine() -> str:
    """The machine, the date and the versions, as a list in Markdown."""
    cpu = platform.processor() or platform.machine()
    memory = ""
    if Path("/proc/cpuinfo").exists():
        names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
        cpu = names[0] if names else cpu
        kib = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.M)
        memory = f", {int(kib[1]) // 2**20} GiB" if kib else ""
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in VERSIONS if _is_installed(name))
    python = f"{platform.platform(terse=True)}, Python {platform.python_version()}"
    return f"- {os.cpu_count()} processors ({cpu}){memory}; {python}\n- {packages}"


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def section(name: str) -> str:
    """Run one bench; its part of RESULTS.md."""
    path = FOLDER / f"{name}.py"
    said = re.match(r'\s*"""(.+)', path.read_text(encoding="utf-8"))
    command = [sys.executable, str(path)]
    load, began = os.getloadavg()[0], time.monotonic()
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = child.communicate(timeout=SECONDS)
        ending = "" if child.returncode == 0 else f"It ended with {child.returncode}."
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # with what it has started
        out, err = child.communicate()
        ending = f"It did not end within {SECONDS} s."
    told = [line for line in err.strip().splitlines() if line.strip()]
    if not out.strip():
        out = "\n".join(told[-1:])  # why it was left out
    elif name == "peers":
        ending = "\n".join([ending, *told]).strip()  # peers that could not be installed
    took = time.monotonic() - began
    about = said[1].removesuffix('"""') if said else ""
    when = f"{date.today().isoformat()}, {took:.0f} s, load average {load:.1f} before"
    head = f"## {name}\n\n{about}\n\n`python bench/{path.name}`, {when}.\n\n"
    body = out.strip() if out.lstrip().startswith("|") else f"```\n{out.strip()}\n```"
    return head + body + "\n" + (f"\n{ending}\n" if ending else "")


def sections_in(text: str) -> dict[str, str]:
    """The parts of RESULTS.md by the name of their bench."""
    return {part.partition("\n")[0]: f"## {part.strip()}\n" for part in re.split(r"^## ", text, flags=re.M)[1:]}


def main() -> int:
    benches = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != Path(__file__).stem)
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(f"{__doc__}\nBenches: {', '.join(benches)}")
        return 0
    wanted = sys.argv[1:] or benches
    if unknown := set(wanted) - set(benches):
        sys.exit(f"there is no bench {', '.join(sorted(unknown))}; there are {', '.join(benches)}")
    known = sections_in(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    failed = 0
    for name in wanted:
        print(f"== {name}", flush=True)
        known[name] = section(name)
        print(known[name], flush=True)
        failed += "\nIt ended with " in known[name]
        introduction = (
            f"# Results\n\nWritten by `make bench`. Each part says when and how it was measured.\n\n{machine()}\n"
        )
        parts = [known[name] for name in benches if name in known]
        RESULTS.write_text("\n".join([introduction, *parts]), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
