"""Searching: documents and a chain of web engines in one question, one outcome that says what happened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from m3.records import RunControl, SearchOutcome, SearchResult, SearchStatus
from m3.search_filters import SearchFilters
from m3.urls import canonical_key

SEARCH_SECONDS = 12.0  # for one search over the chain of web engines, never more than the run has left
LEAST_SECONDS = 3.0  # of it for one engine, while others wait behind it
RRF_K = 60  # Cormack, Clarke and Büttcher, SIGIR 2009: reciprocal rank fusion
# How long an engine that failed so is left out. A plan or a key does not mend itself during a run.
LEFT_OUT_SECONDS: dict[SearchStatus, float] = {
    "auth": math.inf, "quota": math.inf, "blocked": math.inf, "timeout": 60.0, "throttled": 15.0,
}  # fmt: skip


class SearchEngine(Protocol):
    """One place to search. `engine` is its name in reports."""

    engine: str

    def search(self, query: str, *, max_results: int, control: RunControl | None = None) -> SearchOutcome: ...


class WebSearchTool:
    """Asks the documents and, in order until one answers, the engines. An outage is never "nothing found".

    engines: a fail-over chain. documents: engines that are asked every time and whose results are merged with the
    chain's. filters: the run's limits on sites and dates, applied to every result.
    """

    def __init__(
        self,
        engines: Sequence[SearchEngine],
        *,
        documents: Sequence[SearchEngine] = (),
        filters: SearchFilters | None = None,
    ) -> None:
        self.engines = tuple(engines)
        self.documents = tuple(documents)
        self.filters = filters or SearchFilters()
        self._left_out: dict[str, tuple[float, SearchOutcome]] = {}  # until when, and why

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        """Search once. Never raises.

        Documents and web together: `ok` when either has results; where only the web failed, its failure stands in
        `failures`, and it decides the status when the documents hold nothing.
        """
        control = control or RunControl()
        # Some results fall to the filters and to de-duplication; a longer list costs no web engine more.
        wanted = max_results * 2
        of_documents = wanted if self.filters.earliest() else max_results
        # Documents may have to be read first: they take their own share of the run.
        documents = [self._ask(engine, query, of_documents, control) for engine in self.documents]
        control = control.within(SEARCH_SECONDS)
        forbidden = self.filters.forbidden_site(query)
        if forbidden and self.engines:
            detail = f"the site {forbidden} is not among the domains this run may use"
            chain = [SearchOutcome(engine=self.engines[0].engine, status="bad_query", detail=detail)]
        else:
            chain = self._ask_chain(query, wanted, control)
        return self._one_outcome(documents, chain, max_results)

    def _ask_chain(self, query: str, wanted: int, control: RunControl) -> list[SearchOutcome]:
        outcomes: list[SearchOutcome] = []
        for position, engine in enumerate(self.engines):
            out = self._reason_left_out(engine, control)
            if out is not None:
                outcomes.append(out)
                continue
            behind = len(self.engines) - position - 1
            # The last one takes what is left; an earlier one leaves an equal share to each behind it.
            share = control.remaining() if not behind else max(LEAST_SECONDS, control.remaining() / (behind + 1))
            outcome = self._ask(engine, query, wanted, control.within(share))
            outcomes.append(outcome)
            if _answered(outcome) or control.stopped:
                break
            self._leave_out(engine, outcome, control)
        return outcomes

    def _ask(self, engine: SearchEngine, query: str, wanted: int, control: RunControl) -> SearchOutcome:
        if control.expired:
            return SearchOutcome(engine=engine.engine, status="timeout", detail="no time was left to ask it")
        try:
            return engine.search(query, max_results=wanted, control=control)
        except Exception as problem:  # noqa: BLE001  an engine given by a caller may raise anything
            return SearchOutcome(engine=engine.engine, status="unavailable", detail=f"it broke: {problem!r}"[:200])

    def _reason_left_out(self, engine: SearchEngine, control: RunControl) -> SearchOutcome | None:
        until, outcome = self._left_out.get(engine.engine, (-math.inf, None))
        if outcome is None or control.clock() >= until:
            return None
        return replace(outcome, detail=f"{outcome.detail} (not asked again)")

    def _leave_out(self, engine: SearchEngine, outcome: SearchOutcome, control: RunControl) -> None:
        seconds = LEFT_OUT_SECONDS.get(outcome.status, 0.0)
        if outcome.status == "throttled":
            seconds = max(seconds, outcome.retry_after or 0.0)
        if seconds > 0:
            self._left_out[engine.engine] = (control.clock() + seconds, outcome)

    # --- one outcome out of several ---------------------------------------------------------------------

    def _one_outcome(
        self, documents: Sequence[SearchOutcome], chain: Sequence[SearchOutcome], max_results: int
    ) -> SearchOutcome:
        outcomes = [*documents, *chain]
        if not outcomes:
            return SearchOutcome(status="unavailable", detail="no search engine is configured")
        answers = [o for o in outcomes if _answered(o)]
        failures = tuple(o for o in outcomes if not _answered(o))
        kept, dropped = self._filtered(answers)
        results = fuse(kept)[:max_results]
        names = tuple(dict.fromkeys(o.engine for o in answers))
        notes = [o.detail for o in answers if o.detail]
        if dropped:
            notes.append(f"{dropped} results were left out by the limits on sites and dates")
        # Nothing was found only where everything that was to be searched did answer.
        complete = all(map(_answered, documents)) and (not chain or any(map(_answered, chain)))
        if results or complete:
            status: SearchStatus = "ok" if results else "no_results"
            return SearchOutcome(results, ", ".join(names), status, "; ".join(notes), names, failures)
        first = failures[0]
        detail = "; ".join(f"{f.engine}: {f.status}: {f.detail}" for f in failures)
        if names:
            detail += f"; {', '.join(names)} found nothing"
        return SearchOutcome((), first.engine, first.status, detail, names, failures, first.retry_after)

    def _filtered(self, answers: Sequence[SearchOutcome]) -> tuple[list[list[SearchResult]], int]:
        kept: list[list[SearchResult]] = []
        dropped = 0
        for outcome in answers:
            good = [r for r in outcome.results if not self.filters.why_not(r.url, r.published)]
            dropped += len(outcome.results) - len(good)
            kept.append(good)
        return kept, dropped


def _answered(outcome: SearchOutcome) -> bool:
    return outcome.status in ("ok", "no_results")


def fuse(lists: Iterable[Sequence[SearchResult]]) -> tuple[SearchResult, ...]:
    """Merge ranked lists by reciprocal rank fusion; spellings of one address count as one result.

    The first spelling seen is kept, since that is the one that was offered; `engine` names all that brought it.
    """
    scores: dict[str, float] = {}
    first: dict[str, SearchResult] = {}
    for results in lists:
        counted: set[str] = set()
        for rank, result in enumerate(results, 1):
            key = canonical_key(result.url)
            if key in counted:
                continue
            counted.add(key)
            scores[key] = scores.get(key, 0.0) + 1.0 / (RRF_K + rank)
            known = first.setdefault(key, result)
            if result.engine and result.engine not in known.engine.split(", "):
                first[key] = replace(known, engine=f"{known.engine}, {result.engine}".strip(", "))
    order = {key: position for position, key in enumerate(first)}
    return tuple(first[key] for key in sorted(first, key=lambda key: (-scores[key], order[key])))
