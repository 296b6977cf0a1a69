"""Where the loop meets memory: earlier runs recalled and this one kept, old turns condensed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from m3.codec import from_plain, to_plain
from m3.journal import NOT_REMEMBERED
from m3.records import LLMError, NoticeEvent, RunControl
from m3.sessions import PastResearch
from m3.untrusted import safe_line
from m3.worker import DeadlineReached, guarded

if TYPE_CHECKING:
    from m3.report import FinalOutput
    from m3.run_state import Run, RunState

RECALL_SECONDS = 2.0  # the most that long-term memory may hold up the start of a run
SHRINK_TO = 0.6  # of what fits: condensed in one jump, so that the next turns need not be


class Store(Protocol):
    """What the driver needs of a long-term memory."""

    def store_research(self, output: Any, *, control: RunControl | None = None) -> Any: ...

    def retrieve_related(self, query: str, limit: int = 3, *, control: RunControl | None = None) -> Any: ...


def recalled(query: str, store: Store, run: Run) -> list[PastResearch]:
    """Related earlier runs. A caller's own store may raise, hang or bring anything; the run then goes on without."""
    patience = run.loop_control.within(RECALL_SECONDS)
    problems: list[str] = []  # said from here: the hook need not stand a call from another thread

    def recall() -> list[PastResearch]:
        try:
            return from_plain(list[PastResearch], to_plain(list(store.retrieve_related(query, control=patience))))
        except BaseException as problem:  # noqa: BLE001  in a thread of its own, which is all that SystemExit may end
            problems.append(f"memory: nothing was recalled: {type(problem).__name__}: {problem}")
            return []

    try:
        found = run.journal.perform("recall", query, list[PastResearch], recall, patience)
    except DeadlineReached:
        found, problems = [], ["memory: nothing was recalled in time"]
    for problem in problems:
        run.emit(NoticeEvent(problem))
    return found


def remember(output: FinalOutput, store: Store, run: Run) -> FinalOutput:
    """Store a finished run, once its answer has been shown; a failed save becomes a note of the report.

    A run that was only played again from its finished trace is not stored a second time.
    """
    from m3.report import NO_SOURCES_USED  # with the whole checker: not before the model is asked

    if run.journal.adds_nothing or output.outcome == "failed" or NO_SOURCES_USED in output.warnings:
        return output
    try:
        result = guarded(lambda: store.store_research(output, control=run.control), run.control)
        problem = str(result.detail) if getattr(result, "fault", False) else ""
    except DeadlineReached:
        problem = "the memory did not answer in time"
    except Exception as fault:  # noqa: BLE001  as above
        problem = f"{type(fault).__name__}: {fault}"
    if not problem:
        return output
    note = f"{NOT_REMEMBERED}: {safe_line(problem)}."
    run.emit(NoticeEvent(note))
    return replace(output, warnings=(*output.warnings, note))


def pass_on_notices(store: Store, run: Run) -> None:
    notices: list[str] = getattr(store, "notices", [])
    while notices:
        run.emit(NoticeEvent(f"memory: {notices.pop(0)}"))


def prune(state: RunState, run: Run) -> None:
    """Condense old turns when the conversation has grown past its budget, or past what the model's provider runs."""
    prompt = state.memory.render()
    if state.model.prompt_limit and state.budget.counter.likely_most(prompt) > state.model.prompt_limit:
        shrink(state, run, state.model.prompt_limit)
    elif state.memory.prune_if_needed(*_condensers(state, run)):
        run.emit(NoticeEvent("older turns were condensed into notes"))


def shrink(state: RunState, run: Run, fits: int) -> bool:
    """Condense harder than the memory's own budget asks, so that a prompt of `fits` tokens results. True when done."""
    memory = state.memory
    before = memory.tokens
    # The memory counts in its own estimate; the provider's count differs by this ratio.
    ratio = max(0.25, state.budget.counter.expected(memory.render()) / max(1, before))
    run.emit(NoticeEvent(f"the prompt must shrink to {fits:,} tokens: older turns are condensed"))
    memory.prune_to(int(fits * SHRINK_TO / ratio), *_condensers(state, run))
    return memory.tokens < before


def _condensers(state: RunState, run: Run) -> tuple[Callable[[str, int], str | None], Callable[[], str]]:
    """The two functions that memory prunes with: `condense(notes, most words)`, None on failure, and `facts()`."""
    from m3.prompts import condense_messages, source_header
    from m3.reply_text import visible_text

    def condense(notes: str, most_words: int) -> str | None:
        try:
            return visible_text(state.model.ask(condense_messages(state.query, notes, most_words)).text)
        except LLMError as problem:
            run.emit(NoticeEvent(f"the model could not condense the notes: {problem}"))
            return None

    def facts() -> str:
        return "\n".join(source_header(source) for source in state.tools.tracker.sources)

    return condense, facts
