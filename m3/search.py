"""Searching: engines in a chain, one outcome that says what happened. Never raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from m3.records import RunControl, SearchOutcome


class SearchEngine(Protocol):
    """One place to search. `engine` is its name in reports."""

    engine: str

    def search(self, query: str, *, max_results: int, control: RunControl | None = None) -> SearchOutcome: ...


class MissingEngine:
    """Stands for a provider that cannot be asked; every search says why."""

    def __init__(self, engine: str, why: str) -> None:
        self.engine, self._why = engine, why

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        return SearchOutcome(engine=self.engine, status="unavailable", detail=self._why)


class WebSearchTool:
    """Asks engines in order until one answers. An outage is never reported as "nothing found"."""

    def __init__(self, engines: Sequence[SearchEngine]) -> None:
        self.engines = tuple(engines)

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        """Search once. Never raises; `status` and `detail` say what failed where nothing could be asked."""
        control = control or RunControl()
        empty: SearchOutcome | None = None
        failures: list[SearchOutcome] = []
        for engine in self.engines:
            outcome = engine.search(query, max_results=max_results, control=control)
            if outcome.status == "ok":
                return outcome
            if outcome.status == "no_results":
                empty = empty or outcome
            else:
                failures.append(outcome)
        if empty is not None:
            return empty
        if not failures:
            return SearchOutcome(status="unavailable", detail="no search engine is configured")
        detail = "; ".join(f"{f.engine}: {f.status} {f.detail}".strip() for f in failures)
        return SearchOutcome(engine=failures[0].engine, status=failures[0].status, detail=detail)
