"""Records tests/traces/: small runs of every kind that later code must play again to the letter.

`make record-traces` does it anew after a deliberate change of a prompt, the parser or the report. Model, search and
pages are scripted; each run takes a way through the program that the others do not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from config import load_config
from m3.journal import Journal
from m3.prompts import CONDENSE_MARK
from m3.records import LLMError, Message, RunControl, SearchOutcome
from m3.sessions import PastResearch, StoreResult
from m3.trace import trace_header, trace_json
from m3_react_agent import run_react_loop
from tests.scripted import DictWeb, ScriptedLLM, action

TRACES = Path(__file__).parent / "traces"
QUESTION = "What is oolong tea?"
PAGES = {
    "https://tea.example/oolong": "Oolong is a tea that is partly oxidised. Oolong comes from Fujian and Taiwan.",
    "https://tea.example/green": "Green tea is not oxidised. Green tea is drunk in Japan and in China.",
}
SEARCH = action("search", '{"query": "oolong tea"}')
FETCH = action("fetch", '{"results": ["R1", "R2", "R9"]}')
EXTRACT = action("extract", '{"source": 1, "question": "Taiwan"}')
FINISH = action("finish")
REPORT = "Oolong is a tea that is partly oxidised. [Source 1] Green tea is not oxidised. [Source 2]"
WRONG = f"{REPORT} Oolong was first grown on Mars in 1923. [Source 2] It is blue. [Source 7]"


class Store:
    """A long-term memory with one earlier run in it."""

    def retrieve_related(self, query: str, limit: int = 3, *, control: RunControl | None = None) -> list[PastResearch]:
        return [PastResearch("1", "What is tea?", "Tea is a drink.", ("https://tea.example/green",), "2026-01-02")]

    def store_research(self, output: Any, *, control: RunControl | None = None) -> StoreResult:
        return StoreResult(True)


class BrokenOnce(DictWeb):
    """Its first search raises, its second finds nothing."""

    def search(self, query: str, **rest: Any) -> SearchOutcome:
        found = super().search(query, **rest)
        if len(self.searched) == 1:
            raise ConnectionError("the engine hung up")
        return found if len(self.searched) > 2 else SearchOutcome((), self.engine, "no_results")


@dataclass
class Run:
    """One run to record."""

    lines: Sequence[Any]
    env: dict[str, str] = field(default_factory=dict)
    web: type[DictWeb] = DictWeb
    stop_at: int = 0  # the model call during which the run is interrupted


RUNS = {
    "answered": Run([SEARCH, FETCH, EXTRACT, FINISH, REPORT]),
    "unreadable_turns": Run(["Let me think.", action("seerch"), SEARCH, FETCH, "{}", FINISH, REPORT]),
    "repaired": Run([SEARCH, FETCH, FINISH, WRONG, "1: REMOVE"]),
    "iterations": Run([SEARCH, FETCH, REPORT], {"MAX_ITERATIONS": "2"}),
    "tokens": Run([SEARCH, FETCH, EXTRACT, REPORT], {"MAX_TOKENS": "4200"}),
    "no_progress": Run([SEARCH, FETCH, FETCH, FETCH, REPORT]),
    "provider_error": Run([SEARCH, FETCH, LLMError("the server is down", kind="server")]),
    "search_trouble": Run(
        [SEARCH, SEARCH, action("search", '{"query": "oolong from Taiwan"}'), FETCH, FINISH, REPORT], web=BrokenOnce
    ),
    "interrupted": Run([SEARCH, FETCH, EXTRACT, FINISH, REPORT], stop_at=3),
    "condensed": Run(
        [SEARCH, FETCH, EXTRACT, *(action("extract", f'{{"source": 2, "question": "Japan {i}"}}') for i in range(3))]
        + [FINISH, REPORT],
        {"SHORT_TERM_TOKEN_BUDGET": "700"},
    ),
}  # fmt: skip


def record(name: str) -> str:
    """The trace of one run as JSON text."""
    chosen = RUNS[name]
    control = RunControl()

    waiting = list(chosen.lines)

    def line(messages: Sequence[Message]) -> str:
        if CONDENSE_MARK in messages[-1]["content"]:
            return "Oolong and green tea were looked up and read."
        told = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if len(llm.prompts) == chosen.stop_at:
            control.stop("SIGINT")
        if isinstance(told, Exception):
            raise told
        return str(told)

    llm = ScriptedLLM(line)
    settings = load_config({"LLM_PROVIDER": "mock", "MEMORY_BACKEND": "none", **chosen.env})
    header = trace_header(QUESTION, settings, llm.model) | {"llm_provider": llm.provider, "warnings": []}
    journal = Journal()
    web: Any = chosen.web(PAGES)
    output = run_react_loop(
        QUESTION, config=settings, llm=llm, search=web, fetcher=web, memory=Store(), resume=journal, control=control
    )
    return trace_json(header, journal, output)


def main() -> int:
    TRACES.mkdir(exist_ok=True)
    for name in RUNS:
        text = record(name)
        (TRACES / f"{name}.json").write_text(text, encoding="utf-8")
        result = json.loads(text)["result"]
        print(f"{name:<18} {result['outcome']:<10} {result['stop_reason']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
