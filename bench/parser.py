"""Right, refused and wrong calls of this parser and of two others on the catalogue of real model outputs; and its time.

python bench/parser.py [--json] [--no-peers]

LangChain's and LlamaIndex's ReAct parsers, and json-repair, run in an environment of their own (.venv-bench-parser/).
Each gets what its agent does behind the parser: an unknown tool or a missing argument is a refusal, arguments nobody
asked for are ignored, a plain text is the only argument. Other names for an argument are read by this parser alone.
An expected error counts as right if nothing is called. json-repair is put in the place of this parser's own JSON
reader, everything else stays. `piece_calls`: the catalogue's replies cut at every character, with the finish reason
`length`; counted are calls with a value that the whole reply does not have.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from m3.react_parser import parse_thought_action  # noqa: E402

PACKAGES = ["langchain-classic>=1,<2", "llama-index-core>=0.14,<0.15", "json-repair>=0.50,<1"]
CATALOGUE = ROOT / "tests" / "cases" / "react_outputs.json"
Decision = tuple[str, dict[str, Any]] | None

HOSTILE = {
    "braces": "{",
    "backticks": "`",
    "action_lines": "Action:\n",
    "full_action_lines": "Action: search\n",
    "quotes": "\"'",
    "quotes_in_input": 'Action: search\nAction Input: {"query": "\0"a" ',
}


def ours(text: str, reason: str | None) -> Decision:
    step = parse_thought_action(text, reason)
    return (step.tool, step.args) if step.tool else None


# --- the others; they run inside their own environment


def fitted(tool: str, raw: Any) -> Decision:
    """What the agent behind a parser makes of a tool name and an input."""
    plain, names = {"search": ("query", ["query"]), "fetch": ("url", ["url", "urls", "results"])}.get(tool, ("", []))
    if tool == "finish":
        return "finish", {}
    if not plain:
        return None
    if isinstance(raw, str):
        try:
            decoded = json.loads(raw)
        except ValueError:
            decoded = None if raw.lstrip().startswith(("{", "[")) else raw
        if decoded is None:
            return None  # broken JSON
        raw = decoded if isinstance(decoded, dict) else {plain: raw}
    args = {k: v for k, v in raw.items() if k in names and v and isinstance(v, list if k != plain else str)}
    return (tool, args) if args else None


def langchain(text: str, reason: str | None) -> Decision:
    from langchain_classic.agents.output_parsers import ReActSingleInputOutputParser
    from langchain_core.agents import AgentFinish

    step = ReActSingleInputOutputParser().parse(text)
    return ("finish", {}) if isinstance(step, AgentFinish) else fitted(step.tool, step.tool_input)


def llama_index(text: str, reason: str | None) -> Decision:
    from llama_index.core.agent.react.output_parser import ReActOutputParser

    step = ReActOutputParser().parse(text)
    return ("finish", {}) if step.is_done else fitted(step.action, step.action_input)


def with_json_repair() -> Callable[[str, str | None], Decision]:
    """This parser with json-repair in place of its JSON reader."""
    import json_repair

    import m3.react_parser.dialects
    import m3.react_parser.parse
    import m3.react_parser.table
    from m3.lenient_json import Budget, Reading, Unreadable

    def read_json(text: str, start: int = 0, limit: int | None = None, budget: Budget | None = None) -> Reading:
        limit = len(text) if limit is None else limit
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(text, start)
            return Reading(value, end)
        except (ValueError, RecursionError):
            value = json_repair.repair_json(text[start:limit], return_objects=True)
        if not isinstance(value, (dict, list)):
            raise Unreadable("nothing repaired")
        return Reading(value, limit, repairs=("json-repair",))

    for module in (m3.react_parser.dialects, m3.react_parser.parse, m3.react_parser.table):
        module.read_json = read_json
    return ours


# --- counting


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(CATALOGUE.read_text(encoding="utf-8"))
    return found


def verdict(case: dict[str, Any], decision: Decision) -> str:
    wanted = case["expected"]
    if "error" in wanted:
        return "wrong_call" if decision else "right"
    if decision is None:
        return "refused"
    return "right" if decision == (wanted["tool"], wanted["args"]) else "wrong_call"


def score(parse: Callable[[str, str | None], Decision]) -> dict[str, int]:
    count: Counter[str] = Counter()
    for case in cases():
        try:
            decision = parse(case["text"], case.get("finish_reason"))
        except Exception:  # noqa: BLE001  the others signal every refusal with one exception or another
            decision = None
        count[verdict(case, decision)] += 1
    return {name: count[name] for name in ("right", "refused", "wrong_call")}


def flat(args: dict[str, Any]) -> Iterable[str]:
    for value in args.values():
        yield from map(str, value if isinstance(value, list) else [value])


def piece_calls(parse: Callable[[str, str | None], Decision]) -> int:
    """Calls with a piece of a value, over every prefix of every reply that calls a tool."""
    wrong = 0
    for case in cases():
        whole = set(flat(case["expected"].get("args", {})))
        for end in range(len(case["text"]) if whole else 0):
            decision = parse(case["text"][:end], "length")
            wrong += decision is not None and not set(flat(decision[1])) <= whole
    return wrong


def peers() -> dict[str, int]:
    home = ROOT / ".venv-bench-parser"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    done = subprocess.run([python, __file__, "--inside"], capture_output=True, text=True, check=True)
    figures: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return figures


def inside() -> dict[str, int]:
    """What runs in the others' environment."""
    found: dict[str, int] = {}
    for name, parse in (("langchain", langchain), ("llama_index", llama_index)):
        parse(cases()[0]["text"], None)  # a broken installation must not look like 123 refusals
        found |= {f"{name}_{k}": v for k, v in score(parse).items()}
    repaired = with_json_repair()
    found |= {f"repair_{k}": v for k, v in score(repaired).items()}
    found["repair_piece_calls"] = piece_calls(repaired)
    return found


def seconds(text: str) -> float:
    started = time.process_time()
    parse_thought_action(text)
    return time.process_time() - started


def own() -> dict[str, float]:
    figures: dict[str, float] = {"cases": len(cases()), **score(ours)}
    kinds = [
        (parse_thought_action(c["text"], c.get("finish_reason")).error, c["expected"].get("error")) for c in cases()
    ]
    figures["right_error_kind"] = sum(got == want for got, want in kinds if want)
    figures["error_cases"] = sum(want is not None for _, want in kinds)
    figures["piece_calls"] = piece_calls(ours)
    per_case = sorted(min(seconds(c["text"]) for _ in range(5)) for c in cases())
    figures["median_us"] = round(per_case[len(per_case) // 2] * 1e6)
    figures["slowest_us"] = round(per_case[-1] * 1e6)
    for name, shape in HOSTILE.items():
        head, _, unit = shape.rpartition("\0")
        figures[f"mb_{name}_s"] = round(seconds((head + unit * (1_000_000 // len(unit)))[:1_000_000]), 3)
        figures[f"kb20_{name}_ms"] = round(seconds((head + unit * (20_000 // len(unit)))[:20_000]) * 1e3, 2)
    return figures


def show(figures: dict[str, float]) -> None:
    print(f"{figures['cases']:.0f} outputs{'':<16}right  refused  wrong call")
    for title, prefix in (
        ("this parser", ""),
        ("  with json-repair", "repair_"),
        ("LangChain ReAct", "langchain_"),
        ("LlamaIndex ReAct", "llama_index_"),
    ):
        row = [figures.get(prefix + name) for name in ("right", "refused", "wrong_call")]
        if None not in row:
            print(f"{title:<26} {row[0]:>5}  {row[1]:>7}  {row[2]:>10}")
    print(f"\nerrors named exactly: {figures['right_error_kind']} of {figures['error_cases']}")
    line = f"calls with a piece of a value, replies cut at every character: {figures['piece_calls']}"
    print(line + (f" (with json-repair {figures['repair_piece_calls']})" if "repair_piece_calls" in figures else ""))
    print(f"time of one output: median {figures['median_us']} µs, slowest {figures['slowest_us']} µs")
    for name in HOSTILE:
        print(f"1 MB of {name.replace('_', ' ')}: {figures[f'mb_{name}_s']} s; 20 kB: {figures[f'kb20_{name}_ms']} ms")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true", help="one JSON object of named figures as the last line")
    options.add_argument("--no-peers", action="store_true", help="this parser alone")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.inside:
        print(json.dumps(inside()))
        return
    figures = own() | ({} if chosen.no_peers else peers())
    print(json.dumps(figures)) if chosen.json else show(figures)


if __name__ == "__main__":
    main()
