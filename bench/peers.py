"""This agent beside its peers: the same question, the same model, the same search results, the same pages.

    python bench/peers.py [--peers m3,plain,smolagents-tools,…] [--json]

All run against the loopback world of `bench/world/` (200 pages of Debian's documentation packages, fixed latencies).
Its model is a fixed policy: two searches, three pages, an answer of sentences that stand in its prompt. So calls,
tokens and times can be compared; the quality of answers cannot. Each peer is installed into `.venv-bench-NAME`, by the
Python named in its entry where that is here, else by this one.

Times are the best of several runs, since everything else on the machine only adds; the load average stands beside
them. "own" is wall time less every request to the world, overlapping ones counted once. Peak memory is that of the
largest process. A "careless" model cites, besides what it read, a page that it only saw in a search result and one
that nobody showed it; with the search engine down, the model answers from memory all the same.

Where this agent's time and memory went, found with `-X importtime`, cProfile and VmHWM at each event, and what was done
(CPU seconds on the same two busy cores, before -> after):

- importing: compiling 320 regular expressions 0.16, of which a run uses half -> at first use (`m3/patterns.py`); bs4
  imports soupsieve for selectors that nobody calls, 0.04 -> at first use (`m3/extract/lazy_selectors.py`); stems of 240
  pairs of opposites 0.015 -> when the first claim is compared; `import m3.prompts` loaded the whole checker for one
  type; all 36 languages of snowballstemmer, 0.015 -> those that are stemmed (`m3/stemmers.py`); 111 dataclasses, half a
  millisecond each -> 55, small values inside the program are named tuples, an eighth of a millisecond;
  difflib and multiprocessing, 0.005 -> when they are used. What is left is requests, urllib3 and their
  charset tables (0.05), bs4 with lxml (0.03), the public dataclasses (0.03), reading a hundred modules (0.03).
- looking for garbage: a sixth of a run's CPU at the interpreter's default -> rarely (`m3.cli.as_program`), 2 MiB more.
- ending: the interpreter looked for garbage three times over all that a run had made, 0.22, and took everything apart,
  0.02 -> it ends at once (`m3.cli.as_program`).
- waiting: nothing was done while the model was asked -> modules load, patterns compile, pages are indexed and compared
  then (`m3/ahead.py`), some 0.4 s of a run; not before the request is out, which that had delayed by 0.03.
- starting: what reads a turn or a page and the stores of memory were imported before the first request, 0.02 -> after.
- an HTML page of 295 kB went to a child process although the bound is 300 kB: 0.48 s of wall, half of it the child's
  own imports -> read here, in 0.26, of which Lexbor takes 0.003. BeautifulSoup's own builder 0.10 -> its tags made
  straight from Lexbor's nodes, 0.03; a dozen walks over the tree with a stack 0.06 -> over one list of its elements;
  measured and weighed twice -> once: 0.12 in all.
- ranking stemmed every word of a page, 0.1 ms each -> only words that begin like a word of the question, each once a
  page; it was done again for the report, 0.023 -> the scores are kept.
- checking the report 0.06, and again, unchanged, 0.015 -> once, 0.02: long pages are read closely in waits.
- memory: 7,000 dictionaries of measures on the tree's elements -> slots, 10 MiB less; the tree, a knot of circles,
  stayed until the collector came -> taken apart at once, 5 MiB less. Of the 84 MiB at the end the Groq SDK has 41.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.world.corpus import Corpus, missing  # noqa: E402
from bench.world.figures import Figures, figures_of  # noqa: E402
from bench.world.policy import QUESTION, Walk  # noqa: E402
from bench.world.server import MODEL, World, running  # noqa: E402

WORLD = ROOT / "bench" / "world"
RUN_SECONDS = 120
INSTALL_SECONDS = 900
IMPORTS_A_TRY = 3


@dataclass(frozen=True)
class Peer:
    """One agent: its environment and what pip installs there, its script, what it imports, its package's name.

    pages_a_step: how many pages the model asks for at once where the agent takes several. python: the interpreter
    that a peer's newest version needs.
    """

    environment: str
    packages: tuple[str, ...]
    script: str
    imports: str
    package: str
    pages_a_step: int = 4
    python: str = ""


_SMOLAGENTS = ("smolagents", ("smolagents[toolkit,openai]",))
_M3 = ("m3", ("-r", str(ROOT / "requirements.txt")))
PEERS = {
    "m3": Peer(*_M3, "m3_agent.py", "", ""),
    "m3-page-by-page": Peer(*_M3, "m3_agent.py", "", "", pages_a_step=1),
    "plain": Peer("plain", ("requests", "beautifulsoup4"), "plain_loop.py", "import requests, bs4", ""),
    "smolagents-tools": Peer(
        *_SMOLAGENTS, "smolagents_tools.py",
        "from smolagents import ToolCallingAgent, OpenAIModel, ApiWebSearchTool, VisitWebpageTool", "smolagents",
    ),
    "smolagents-code": Peer(
        *_SMOLAGENTS, "smolagents_code.py",
        "from smolagents import CodeAgent, OpenAIModel, ApiWebSearchTool, VisitWebpageTool", "smolagents",
    ),
    "langchain": Peer(
        "langchain", ("langchain", "langchain-openai", "langchain-tavily", "requests"), "langchain_agent.py",
        "from langchain.agents import create_agent; from langchain_openai import ChatOpenAI; "
        "from langchain_tavily import TavilySearch", "langchain",
    ),
    "gpt-researcher": Peer(
        "gpt-researcher", ("gpt-researcher",), "gpt_researcher_report.py", "from gpt_researcher import GPTResearcher",
        "gpt-researcher", python="python3.12",
    ),
}  # fmt: skip
SDK_ALONE = "import groq; groq.Groq(api_key='x').chat.completions"
OFFLINE_RUN = (
    "import sys; sys.path.insert(0, {root!r}); from config import load_config; "
    "from m3_react_agent import run_react_loop; "
    "run_react_loop('Compare Raptor RAG vs HyDE', config=load_config({{'MEMORY_BACKEND': 'none'}})).to_markdown(); "
    "open({seen!r}, 'w').write(chr(10).join(n for n in sys.modules if not n.startswith('_')))"
)


# --- environments ---------------------------------------------------------------------------------------


Found = dict[str, "float | str | None"]


class NotInstalledError(Exception):
    """A peer that cannot be had here; the message is one line."""


def install(peer: Peer) -> Path:
    """The interpreter of the peer's environment, made and filled where it is missing. Raises NotInstalledError."""
    folder = ROOT / f".venv-bench-{peer.environment}"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        other = shutil.which(peer.python) if peer.python else None
        if other and subprocess.run([other, "-c", ""], capture_output=True).returncode == 0:
            subprocess.run([other, "-m", "venv", "--clear", str(folder)], check=True)
        else:
            venv.create(folder, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            raise NotInstalledError(f"its installation took longer than {INSTALL_SECONDS} s") from None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise NotInstalledError(said[0] if said else f"pip ended with {done.returncode}")
        (folder / ".ready").touch()
    return python


def installed(python: Path) -> tuple[int, float, dict[str, str]]:
    """Distributions without pip and setuptools, MB on disk with the interpreter's own part, and the versions."""
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    versions = {item["name"].lower(): item["version"] for item in json.loads(listed.stdout)}
    used = sum(path.lstat().st_blocks * 512 for path in python.parent.parent.rglob("*"))
    return len(versions.keys() - {"pip", "setuptools"}), used / 2**20, versions


# --- runs -----------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """The running world and the folder that is each run's home."""

    world: World
    home: Path

    def launch(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> tuple[dict[str, float], str]:
        """Run a command in the small launcher: what it took, and what it printed."""
        output = self.home / "output"
        base = {"PATH": os.defpath, "HOME": str(self.home), "LANG": "C.UTF-8"}
        done = subprocess.run(
            [sys.executable, "-S", str(WORLD / "launch.py"), str(RUN_SECONDS), str(output), *command],
            check=True, capture_output=True, text=True, cwd=self.home, env={**base, **(env or {})},
        )  # fmt: skip
        return json.loads(done.stdout), output.read_text(encoding="utf-8", errors="replace")

    def run(self, peer: Peer, walk: Walk, *, search_down: bool = False, modules: Path | None = None) -> Figures:
        """One run of a peer."""
        world = self.world
        world.walk, world.search_down = walk, search_down
        world.take_records()
        python = install(peer)
        encodings = next(python.parent.parent.glob("lib/*/site-packages/litellm/litellm_core_utils/tokenizers"), None)
        env = {
            "WORLD": world.address, "MODEL": MODEL, "OPENAI_BASE_URL": world.address + "/v1",
            "OPENAI_API_KEY": "sk-world", "TAVILY_API_KEY": "tvly-world", "NO_PROXY": "127.0.0.1",
            "LANGSMITH_TRACING": "false", "ANONYMIZED_TELEMETRY": "false", "HF_HUB_OFFLINE": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONWARNINGS": "ignore",
            **({"TIKTOKEN_CACHE_DIR": str(encodings)} if encodings else {}),
            **({"M3_BENCH_MODULES": str(modules)} if modules else {}),
        }  # fmt: skip
        took, answer = self.launch([str(python), str(WORLD / "peers" / peer.script), QUESTION], env)
        return figures_of(world.take_records(), answer, took)

    def cpu(self, command: Sequence[str]) -> float:
        """CPU seconds of a command."""
        took, _out = self.launch(command)
        if took["code"]:
            raise SystemExit(f"{command} ended with {took['code']}: {(self.home / 'output.err').read_text()}")
        return took["cpu_s"]

    def modules(self, name: str) -> Path:
        """Where the walk of a peer writes what it has imported."""
        return self.home / f"modules-{PEERS[name].environment}"


def _importing(seen: Path) -> str:
    """Code that imports what a run had imported at its end, in the same order."""
    return (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        f"from importlib import import_module as load\n"
        f"for name in open({str(seen)!r}).read().split():\n"
        f"    try: load(name)\n"
        f"    except ImportError: pass"
    )


def repeat(
    bench: Bench, names: Sequence[str], tries: int
) -> tuple[dict[str, list[Figures]], dict[str, dict[str, float]]]:
    """The usual walk of each peer so many times, and the least CPU seconds of each one's imports.

    All in turn and spread over the whole time, so that a busy moment of the machine meets all alike: a neighbour can
    halve a processor's speed for a minute.
    """
    found: dict[str, list[Figures]] = {name: [] for name in names}
    best: dict[str, dict[str, float]] = {name: {} for name in names}
    for _ in range(tries):
        for name in names:
            usual = Walk(pages_a_step=PEERS[name].pages_a_step)
            found[name].append(bench.run(PEERS[name], usual, modules=bench.modules(name)))
        for name in names * IMPORTS_A_TRY:
            for key, command in imports(bench, name).items():
                best[name][key] = min(best[name].get(key, float("inf")), bench.cpu(command))
    return found, best


def imports(bench: Bench, name: str) -> dict[str, list[str]]:
    """The commands whose CPU seconds are taken, by the name of the figure."""
    peer, python = PEERS[name], str(install(PEERS[name]))
    commands = {"import_cpu_s": [python, "-c", peer.imports or _importing(bench.modules(name))]}
    if name == "m3":
        offline = bench.home / "modules-offline"
        if not offline.exists():
            bench.launch([python, "-c", OFFLINE_RUN.format(root=str(ROOT), seen=str(offline))])
        commands |= {
            "offline_import_cpu_s": [python, "-c", _importing(offline)],
            "sdk_import_cpu_s": [python, "-c", SDK_ALONE],
            "help_cpu_s": [python, str(ROOT / "m3_react_agent.py"), "--help"],
        }
    return commands


def measure(bench: Bench, name: str, runs: Sequence[Figures], cpus: Mapping[str, float]) -> Found:
    """All figures of one peer, with those of its usual walks and of its imports."""
    peer = PEERS[name]
    python = install(peer)
    usual = Walk(pages_a_step=peer.pages_a_step)
    eight = bench.run(peer, Walk(reads=8, pages_a_step=peer.pages_a_step))
    careless = bench.run(peer, Walk(pages_a_step=peer.pages_a_step, careless=True))
    down = bench.run(peer, usual, search_down=True)
    one = runs[-1]
    distributions, megabytes, versions = installed(python)
    found: Found = {
        "version": versions.get(peer.package, ""),
        "wall_s": round(min(run.wall_s for run in runs), 2),
        "own_s": round(min(run.own_s for run in runs), 2),
        "cpu_s": round(min(run.cpu_s for run in runs), 2),
        "peak_mib": round(min(run.peak_mib for run in runs), 1),
        "calls": one.calls,
        "prompt_tokens": one.prompt_tokens,
        "largest_prompt": one.largest_prompt,
        "schema_tokens": one.schema_tokens,
        "searches": one.searches,
        "pages": one.pages,
        "prefix_kept": None if one.kept is None else round(one.kept, 3),
        "prefix_kept_all": None if one.kept_all is None else round(one.kept_all, 3),
        "cacheable": round(one.cacheable, 3),
        "cited_fetched": one.cited_fetched,
        "cited_seen": one.cited_seen,
        "cited_unknown": one.cited_unknown,
        "prompt_tokens_8": eight.prompt_tokens,
        "pages_8": eight.pages,
        "calls_8": eight.calls,
        "prefix_kept_8": None if eight.kept is None else round(eight.kept, 3),
        "careless_fetched": careless.cited_fetched,
        "careless_seen": careless.cited_seen,
        "careless_unknown": careless.cited_unknown,
        "down": _down(down),
        "distributions": distributions,
        "mib_installed": round(megabytes),
    }
    return {**found, **{key: round(seconds, 3) for key, seconds in cpus.items()}}


def _down(run: Figures) -> str:
    if run.from_memory:
        return f"a report from nothing, exit {run.code}"
    if run.is_silent:
        return f"an exception, exit {run.code}"
    return f"a labelled failure, exit {run.code}" if run.code else "says that it found nothing, exit 0"


# --- tables ---------------------------------------------------------------------------------------------


def targets(found: Mapping[str, Found]) -> list[tuple[str, float, float]]:
    """`(what, figure, most it may be)` for this agent; shares are given as what they lack."""
    if "m3" not in found:
        return []
    own = {key: float(value) for key, value in found["m3"].items() if isinstance(value, int | float)}
    rows = [
        ("CPU s of --help", own["help_cpu_s"], 0.10),
        ("CPU s of import for a run, above the SDK alone", own["import_cpu_s"] - own["sdk_import_cpu_s"], 0.20),
        ("CPU s of import for an offline run", own["offline_import_cpu_s"], 0.32),
        ("prompt tokens, 3 pages", own["prompt_tokens"], 10_000),
        ("prompt tokens, 8 pages", own["prompt_tokens_8"], 30_000),
        ("prefix lost between the loop's prompts, 3 pages", 1 - own["prefix_kept"], 0.0),
        ("prefix lost between the loop's prompts, 8 pages", 1 - own["prefix_kept_8"], 0.0),
        ("peak memory in MiB", own["peak_mib"], 90),
        ("careless model: citations of pages not fetched", own["careless_seen"] + own["careless_unknown"], 0),
        ("distributions installed", own["distributions"], 30),
        ("MiB installed", own["mib_installed"], 80),
    ]
    if "plain" in found:
        plain = {key: float(value) for key, value in found["plain"].items() if isinstance(value, int | float)}
        rows[3:3] = [
            ("own s", own["own_s"], round(1.2 * plain["own_s"] + own["sdk_import_cpu_s"], 2)),
            ("wall s, all pages in one step", own["wall_s"], plain["wall_s"]),
        ]
    return [(what, round(figure, 3), most) for what, figure, most in rows]


TIMES = ("wall_s", "own_s", "cpu_s", "peak_mib", "import_cpu_s", "distributions", "mib_installed")
PROMPTS = ("calls", "prompt_tokens", "largest_prompt", "schema_tokens", "prefix_kept", "cacheable", "calls_8",
           "prompt_tokens_8")  # fmt: skip
CITATIONS = ("searches", "pages", "cited_fetched", "cited_seen", "cited_unknown", "careless_fetched", "careless_seen",
             "careless_unknown", "down")  # fmt: skip


def table(found: Mapping[str, Found], columns: Sequence[str]) -> str:
    """One table in Markdown, a row a peer."""
    lines = ["| peer | " + " | ".join(column.replace("_", " ") for column in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for name, figures in found.items():
        cells = ["–" if figures.get(column) is None else f"{figures[column]}" for column in columns]
        lines.append(f"| {name} {figures['version']}".rstrip() + " | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def target_table(found: Mapping[str, Found]) -> str:
    lines = ["| this agent | figure | at most | |", "|---|---|---|---|"]
    lines += [
        f"| {what} | {figure:g} | {most:g} | {'kept' if figure <= most else 'MISSED'} |"
        for what, figure, most in targets(found)
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--peers", default=",".join(PEERS), help="which, of: " + ", ".join(PEERS))
    parser.add_argument("--tries", type=int, default=4, help="runs of the usual walk; the best times count")
    parser.add_argument("--json", action="store_true", help="print one JSON object of named figures as the last line")
    args = parser.parse_args()
    if not (WORLD / "corpus" / "index.jsonl").exists() and (fault := missing()):
        print(f"bench/peers.py: no pages to serve; {fault}", file=sys.stderr)
        return 0
    found: dict[str, Found] = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as home, running(Corpus.load()) as world:
        bench = Bench(world, Path(home))
        names = []
        for name in args.peers.split(","):
            if name not in PEERS:
                parser.error(f"there is no peer {name!r}; there are {', '.join(PEERS)}")
            try:
                install(PEERS[name])
                names.append(name)
            except NotInstalledError as problem:
                print(f"{name}: not installed here: {problem}", file=sys.stderr)
        walks, cpus = repeat(bench, names, args.tries)
        for name in names:
            found[name] = measure(bench, name, walks[name], cpus[name])
    if args.json:
        figures = {f"{name}.{key}": value for name, own in found.items() for key, value in own.items()}
        print(json.dumps({**figures, "load_before": round(load, 2), "load_after": round(os.getloadavg()[0], 2)}))
        return 0
    for columns in (TIMES, PROMPTS, CITATIONS):
        print(table(found, columns) + "\n")
    if "m3" in found:
        print(target_table(found) + "\n")
    print(f"Load average {load:.1f} before, {os.getloadavg()[0]:.1f} after; best of {args.tries} runs.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
