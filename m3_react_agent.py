"""The driver: a hand-written while loop of thought, action and observation, then one report.

from m3_react_agent import run_react_loop
print(run_react_loop("Compare Raptor RAG vs HyDE").to_markdown())
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config import Config, ConfigError, load_config
from m3.react_parser import TOOLS, ParsedStep, Tool, parse_thought_action
from m3.records import (
    ActionEvent,
    Completion,
    DivergedError,
    Event,
    EventHook,
    FinalEvent,
    LimitEvent,
    LLMError,
    Message,
    NoticeEvent,
    ObservationEvent,
    RunControl,
    Step,
    TextDelta,
    ThoughtEvent,
)

if TYPE_CHECKING:
    from m3.budget import TokenBudget
    from m3.fetch import Fetcher
    from m3.journal import Journal
    from m3.llm_clients import LLMClient, MockLLMClient
    from m3.report import FinalOutput, Outcome
    from m3.search import WebSearchTool
    from memory_integration import ResearchStore, ShortTermMemory
    from tools import ToolSuite

__all__ = [
    "FinalOutput",
    "LLMClient",
    "MockLLMClient",
    "act_and_observe_phase",
    "build_langgraph_app",
    "build_llm_client",
    "check_limits",
    "main",
    "parse_thought_action",
    "run_react_loop",
    "synthesis_phase",
    "thought_and_action_phase",
]

# Re-exported on first use, so that `--help` and `--check` load none of what stands behind them.
_LAZY = {
    "FinalOutput": "m3.report",
    "LLMClient": "m3.llm_clients",
    "MockLLMClient": "m3.llm_clients",
}

CORRECTIONS = 2  # re-prompts for one unreadable turn
UNREADABLE_TURNS = 3  # in a row end the loop
REPEATS = 3  # the same action this often ends the loop
FAILED_SEARCHES = 3  # in a row, without an engine that answered, end the loop
MIN_OUTPUT_TOKENS = 200  # a call that could not even write this much is not made
REPORT_PROMPT_TOKENS = 4_000  # of passages in the prompt of the report
REPORT_PASSAGE_TOKENS = 900  # of them, the most for one source


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# --- the run ---------------------------------------------------------------------------------------------


@dataclass
class Run:
    """What the phases work with and never change: the settings, the model, the clock, the event hook."""

    config: Config
    llm: LLMClient
    control: RunControl  # the whole run
    loop_control: RunControl  # the loop: ends earlier, so that time is left for the report
    emit: EventHook
    journal: Journal  # through which everything from outside comes
    today: str


@dataclass
class RunState:
    """What a run knows so far. The phases take it and give it back."""

    query: str
    memory: ShortTermMemory
    tools: ToolSuite
    budget: TokenBudget
    steps: list[Step] = field(default_factory=list)
    iterations: int = 0
    decision: ParsedStep | None = None
    observed: dict[str, tuple[int, str]] = field(default_factory=dict)  # action key -> times asked, observation
    unreadable_turns: int = 0
    failed_searches: int = 0
    stop_reason: str = ""
    draft: str = ""
    last_prompt: list[Message] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def run_react_loop(
    query: str,
    *,
    config: Config | None = None,
    llm: LLMClient | None = None,
    search: WebSearchTool | None = None,
    fetcher: Fetcher | None = None,
    memory: ResearchStore | None = None,
    tools: Sequence[Tool] | None = None,
    resume: Journal | str | Path | None = None,
    on_event: EventHook | None = None,
    control: RunControl | None = None,
) -> FinalOutput:
    """Research one question and return the cited report, whatever fails on the way.

    config: None reads the environment. llm, search, fetcher, memory: None takes the configured ones. tools:
    entries added to the tool table for this run. resume: the trace (or its `.part`) of a run of the same question to
    go on from, or a `Journal` to record into; what it already holds is not asked for again. on_event: called with
    every event. control: to stop the run from outside, or to inject a clock; its deadline is set from
    `config.limits`.

    Raises ConfigError for settings that cannot be used, ValueError for an empty question, TraceError for a trace that
    cannot be read and DivergedError where a replay leaves its record; nothing else.
    """
    if not query.strip():
        raise ValueError("the question is empty")
    config = config or load_config()
    control = control or RunControl()
    started = control.clock()
    control.start(config.limits.max_wall_clock_seconds)
    journal = _journal(resume)
    run, state, store = _begin(query.strip(), config, llm, search, fetcher, memory, tools, on_event, control, journal)
    while True:
        state.stop_reason = check_limits(state, run)
        if state.stop_reason:
            break
        state = thought_and_action_phase(state, run)
        if state.stop_reason:
            break
        state = act_and_observe_phase(state, run)
        if state.stop_reason:
            break
    state = synthesis_phase(state, run)
    output = _finish(state, run, started)
    run.emit(FinalEvent(output))
    if output.outcome != "failed":
        store.store_research(output, control=control)
    return output


def _journal(resume: Journal | str | Path | None) -> Journal:
    from m3.journal import Journal, resumed

    if resume is None:
        return Journal()
    return resume if isinstance(resume, Journal) else resumed(resume)


def build_llm_client(config: Config) -> LLMClient:
    """The configured model. Raises ConfigError when it cannot be used."""
    if config.llm_provider == "mock":
        from m3.llm_clients import MockLLMClient

        return MockLLMClient()
    raise ConfigError(f"LLM_PROVIDER {config.llm_provider!r} is not available in this version; use mock")


def _begin(
    query: str,
    config: Config,
    llm: LLMClient | None,
    search: WebSearchTool | None,
    fetcher: Fetcher | None,
    memory: ResearchStore | None,
    extra_tools: Sequence[Tool] | None,
    on_event: EventHook | None,
    control: RunControl,
    journal: Journal,
) -> tuple[Run, RunState, ResearchStore]:
    from m3 import prompts
    from m3.budget import TokenBudget, time_reserve
    from memory_integration import LongTermMemory, PastResearch, ShortTermMemory
    from tools import ToolSuite, build_tools

    if search is None or fetcher is None:
        built_search, built_fetcher = build_tools(config)
        search, fetcher = search or built_search, fetcher or built_fetcher
    store = memory or LongTermMemory(config.keys.upstash_url, config.keys.upstash_token)
    table = (*TOOLS, *(extra_tools or ()))
    seconds = config.limits.max_wall_clock_seconds
    run = Run(
        config=config,
        llm=llm or build_llm_client(config),
        control=control,
        loop_control=control.within(seconds - time_reserve(seconds)),
        emit=on_event or _no_event,
        journal=journal,
        today=journal.perform("date", "", str, lambda: date.today().isoformat()),
    )
    past = journal.perform(
        "recall", query, list[PastResearch], lambda: list(store.retrieve_related(query, control=control))
    )
    leads = "\n".join(f"- {p.query} ({p.stored_at}): {', '.join(p.urls)}" for p in past)
    head = [
        {"role": "system", "content": prompts.system_prompt(table, run.today, leads)},
        {"role": "user", "content": prompts.question_prompt(query)},
    ]
    state = RunState(
        query=query,
        memory=ShortTermMemory(config.memory.short_term_token_budget, head),
        tools=ToolSuite(
            query, search, fetcher, tools=table, perform=journal.perform, max_sources=config.search.max_sources
        ),
        budget=TokenBudget(config.limits.max_tokens),
        # What the settings warn of is true of this run only if it uses the model they chose.
        warnings=list(config.warnings) if run.llm.provider == config.llm_provider else [],
    )
    return run, state, store


def _no_event(event: Event) -> None:
    """The hook of a run that nobody watches."""


# --- the limits ------------------------------------------------------------------------------------------


def check_limits(state: RunState, run: Run, *, before_tool: bool = False) -> str:
    """The stop reason that forbids another iteration (or, `before_tool`, another action); "" for none."""
    reason = run.journal.decide_limit(lambda: _limit_hit(state, run, before_tool))
    if reason:
        run.emit(LimitEvent(reason, f"the run ends: {reason}"))
    return reason


def _limit_hit(state: RunState, run: Run, before_tool: bool) -> str:
    if run.control.stopped:
        return "interrupted"
    if run.loop_control.expired:
        return "max_wall_clock_time"
    if not before_tool and state.iterations >= run.config.limits.max_iterations:
        return "max_iterations"
    out_of_tokens = not before_tool and _output_room(state, state.memory.render()) < MIN_OUTPUT_TOKENS
    return "max_tokens" if out_of_tokens or state.budget.left <= state.budget.reserve else ""


def _output_room(state: RunState, messages: Sequence[Message], *, for_report: bool = False) -> int:
    """Tokens that a reply to these messages may take without the run passing its bound."""
    reserve = 0 if for_report else state.budget.reserve
    return state.budget.left - reserve - state.budget.upper_estimate(messages)


def _ask(state: RunState, run: Run, messages: Sequence[Message], *, for_report: bool = False) -> tuple[str, str | None]:
    """One model call inside the budget: `(text, finish_reason)`. Raises LLMError, whatever the client raises."""
    room = _output_room(state, messages, for_report=for_report)
    if room < MIN_OUTPUT_TOKENS:
        raise OutOfTokensError("no call fits into what is left of the tokens")
    max_output_tokens = min(run.config.models.max_output_tokens, room)
    shared = _shared_prefix(state.last_prompt, messages)
    request = {"after": shared, "messages": list(messages[shared:])}
    state.last_prompt = list(messages)
    try:
        reply = run.journal.perform(
            "model", request, Completion, lambda: _complete(run, messages, max_output_tokens, for_report)
        )
    except LLMError as problem:
        state.budget.book(messages, problem.usage)
        raise
    state.budget.book(messages, reply.usage)
    return reply.text, reply.finish_reason


def _complete(run: Run, messages: Sequence[Message], max_output_tokens: int, for_report: bool) -> Completion:
    try:
        return run.llm.complete(
            messages,
            max_output_tokens=max_output_tokens,
            control=run.control if for_report else run.loop_control,
            on_text=(lambda text: run.emit(TextDelta(text))) if for_report else None,
        )
    except LLMError:
        raise
    except Exception as problem:  # a caller's own client may raise anything; the run must still end well
        raise LLMError(f"the model call failed: {type(problem).__name__}: {problem}") from problem


def _shared_prefix(earlier: Sequence[Message], messages: Sequence[Message]) -> int:
    """How many messages the prompt has in common with the one before: the trace keeps only the rest."""
    count = 0
    for old, new in zip(earlier, messages, strict=False):
        if old != new:
            break
        count += 1
    return count


class OutOfTokensError(LLMError):
    """The call was not made: it could have passed the token bound."""


# --- the phases ------------------------------------------------------------------------------------------


def thought_and_action_phase(state: RunState, run: Run) -> RunState:
    """Ask the model for its next decision; re-prompt twice where it cannot be read, then decide for it."""
    _prune(state, run)
    state.iterations += 1
    try:
        step = _decide(state, run)
    except OutOfTokensError:
        state.stop_reason = "max_tokens"
        return state
    except LLMError as problem:
        state.stop_reason = "interrupted" if run.control.stopped else _fault_reason(run)
        if state.stop_reason == "provider_error":
            state.warnings.append(str(problem))
        return state
    if step.tool is None:
        state.unreadable_turns += 1
        if state.unreadable_turns >= UNREADABLE_TURNS:
            state.stop_reason = "no_progress"
            return state
        step = _default_action(state)
    else:
        state.unreadable_turns = 0
    state.decision = step
    run.emit(ThoughtEvent(state.iterations, step.thought))
    run.emit(ActionEvent(state.iterations, step.tool or "", step.args))
    if step.tool == "finish":
        state.steps.append(Step(state.iterations, step.thought, "finish", {}, "", step.notes))
        state.stop_reason = "agent_finished"
    return state


def _fault_reason(run: Run) -> str:
    return "max_wall_clock_time" if run.loop_control.expired else "provider_error"


def _decide(state: RunState, run: Run) -> ParsedStep:
    from m3.prompts import correction

    for attempt in range(CORRECTIONS + 1):
        text, finish_reason = _ask(state, run, state.memory.render())
        step = parse_thought_action(text, finish_reason, state.tools.tools)
        if step.tool is not None:
            return step
        run.emit(NoticeEvent(f"the model's turn could not be read: {step.error_detail}"))
        if attempt < CORRECTIONS:
            state.memory.add("(a turn that could not be read)", correction(step, state.tools.tools))
    return step


def _default_action(state: RunState) -> ParsedStep:
    """What is done when the model does not say: search the question, the second time as plain words."""
    import re

    query = state.query
    if state.unreadable_turns > 1:
        query = re.sub(r"\bsite:\S+|[\"“”]", " ", query).strip() or query
    return ParsedStep("(the model gave no readable action)", "search", {"query": query}, notes=("default action",))


def act_and_observe_phase(state: RunState, run: Run) -> RunState:
    """Run the decided action and append what came of it to the conversation."""
    from m3.react_parser import canonical_turn
    from tools import action_key

    step = state.decision
    if step is None or step.tool is None:
        return state
    state.stop_reason = check_limits(state, run, before_tool=True)
    if state.stop_reason:
        return state
    key = action_key(step.tool, step.args)
    times, observation = state.observed.get(key, (0, ""))
    if times + 1 >= REPEATS:
        state.stop_reason = "no_progress"
        return state
    started = run.control.clock()
    if observation:
        state.observed[key] = (times + 1, observation)
        observation = f"You did this before; the result is the same. Do something else or finish.\n{observation}"
    else:
        failures = state.failed_searches
        observation = _run_tool(state, run, step)
        # An outage is no result: the same search is asked again.
        state.observed[key] = (times + 1, "" if state.failed_searches > failures else observation)
    state.memory.add(canonical_turn(step), f"Observation: {observation}\n{_budget_line(state, run)}")
    seconds = run.control.clock() - started
    state.steps.append(
        Step(state.iterations, step.thought, step.tool, step.args, observation, step.notes, seconds=seconds)
    )
    run.emit(ObservationEvent(state.iterations, step.tool, observation))
    if state.failed_searches >= FAILED_SEARCHES and not state.tools.tracker.sources:
        state.stop_reason = "search_error"
    return state


def _run_tool(state: RunState, run: Run, step: ParsedStep) -> str:
    before = len(state.tools.ledger)
    try:
        observation = state.tools.run(step.tool or "", step.args, run.loop_control)
    except DivergedError:
        raise
    except Exception as problem:  # noqa: BLE001  tools given by a caller may raise anything
        observation = f"The action failed: {type(problem).__name__}: {problem}"
        if step.tool == "search":
            state.failed_searches += 1
    # One search may leave several entries: each engine that failed before another one answered.
    searches = [entry.status for entry in state.tools.ledger[before:] if entry.kind == "search"]
    if searches:
        answered = any(status in ("ok", "no_results") for status in searches)
        state.failed_searches = 0 if answered else state.failed_searches + 1
    return observation


def _budget_line(state: RunState, run: Run) -> str:
    """The line that ends each observation; recorded, since it holds a reading of the clock."""
    return run.journal.perform("budget_line", state.iterations, str, lambda: _budget_text(state, run))


def _budget_text(state: RunState, run: Run) -> str:
    tokens = max(0, state.budget.left - state.budget.reserve)
    seconds = min(run.loop_control.remaining(), run.config.limits.max_wall_clock_seconds)
    return f"[step {state.iterations}/{run.config.limits.max_iterations} · {tokens} tokens left · {seconds:.0f} s left]"


def _prune(state: RunState, run: Run) -> None:
    """Condense old turns when the conversation has grown past its budget."""
    from m3.prompts import condense_messages, source_header

    def condense(notes: str, most_words: int) -> str | None:
        try:
            return _ask(state, run, condense_messages(state.query, notes, most_words))[0]
        except LLMError as problem:
            run.emit(NoticeEvent(f"the notes could not be condensed: {problem}"))
            return None

    def facts() -> str:
        return "\n".join(source_header(source) for source in state.tools.tracker.sources)

    if state.memory.prune_if_needed(condense, facts):
        run.emit(NoticeEvent("older turns were condensed into notes"))


def synthesis_phase(state: RunState, run: Run) -> RunState:
    """Write the report from the passages of the pages read: by the model, or by copying where it cannot be asked."""
    from m3.extractive import Evidence, extractive_summary
    from m3.grounding import rank_passages, render_passages
    from m3.prompts import synthesis_messages

    sources = state.tools.tracker.sources
    if not sources:
        return state
    fits = (state.budget.left - MIN_OUTPUT_TOKENS) // 3
    share = max(80, min(REPORT_PASSAGE_TOKENS, min(REPORT_PROMPT_TOKENS, fits) // len(sources)))
    chosen = [(source, rank_passages(state.query, source.page, share)) for source in sources]
    usable = state.stop_reason not in ("provider_error", "interrupted")
    if usable and run.journal.perform("time for a report", "", bool, lambda: not run.control.expired):
        material = [(source, render_passages(source.page, passages)) for source, passages in chosen]
        try:
            state.draft = _ask(state, run, synthesis_messages(state.query, material, run.today), for_report=True)[0]
        except LLMError as problem:
            state.warnings.append(f"The report was copied from the sources without a model: {problem}")
    if not state.draft.strip():
        evidence = [Evidence(s.number, s.title, [p.quote for p in passages]) for s, passages in chosen]
        state.draft = extractive_summary(state.query, evidence)
    return state


# --- the result ------------------------------------------------------------------------------------------


def _finish(state: RunState, run: Run, started: float) -> FinalOutput:
    from m3.report import FinalOutput
    from tools import services_asked

    read = len(state.tools.tracker.sources)
    summary, cited = state.tools.tracker.finalize(state.draft)
    outcome = _outcome(state, bool(cited))
    if not cited:
        summary = _without_claims(state, read)
    if state.stop_reason in ("agent_finished", "no_progress") and outcome == "failed":
        state.stop_reason = "search_error"
    return FinalOutput(
        query=state.query,
        summary=summary,
        sources=tuple(cited),
        outcome=outcome,
        stop_reason=state.stop_reason,
        iterations_used=state.iterations,
        tokens_consumed=state.budget.spent,
        elapsed_seconds=run.control.clock() - started,
        llm_provider=getattr(run.llm, "provider", "custom"),
        search_provider=run.config.search_provider,
        model=getattr(run.llm, "model", "") or "",
        warnings=tuple(dict.fromkeys(state.warnings)),
        steps=tuple(state.steps),
        ledger=tuple(state.tools.ledger),
        unreadable=tuple(state.tools.unreadable),
        usage=state.budget.usage,
        services=tuple(services_asked(run.config, state.tools.asked)),
        engines=tuple(state.tools.engines),
    )


def _outcome(state: RunState, cited: bool) -> Outcome:
    searches = [e for e in state.tools.ledger if e.kind == "search"]
    all_failed = bool(searches) and all(e.status not in ("ok", "no_results") for e in searches)
    nothing_read = not state.tools.tracker.sources
    if state.stop_reason == "interrupted":
        return "partial"
    if nothing_read and (all_failed or state.stop_reason in ("provider_error", "search_error")):
        return "failed"
    if state.stop_reason == "agent_finished":
        return "answered" if cited else "abstained"
    return "partial"


def _without_claims(state: RunState, read: int) -> str:
    """The one sentence of a run that has nothing to cite, and what was tried."""
    if state.stop_reason == "agent_finished" and read:
        first = "Nothing in the sources that were read supports an answer to this question."
    elif read:
        first = "The run ended before a cited answer could be written."
    else:
        first = "No source was read, so there is no answer."
    tried = [f"- {e.kind} {e.target!r}: {e.status}" for e in state.tools.ledger]
    return "\n".join([first, *(["", "Tried:", *tried] if tried else [])])


# --- the same phases under LangGraph ---------------------------------------------------------------------


def build_langgraph_app(
    config: Config | None = None,
    llm: LLMClient | None = None,
    *,
    search: WebSearchTool | None = None,
    fetcher: Fetcher | None = None,
    memory: ResearchStore | None = None,
    control: RunControl | None = None,
    checkpointer: Any = None,
) -> Any:
    """The three phases as a compiled LangGraph `StateGraph`: `app.invoke({"query": "…"})["output"]`.

    The arguments are those of `run_react_loop`. With a checkpointer a killed process goes on from its last finished
    phase: `app.invoke(None, {"configurable": {"thread_id": "…"}}, durability="sync")`; its time is counted anew.
    Raises ConfigError where langgraph is not installed.
    """
    from m3.graph import build

    config = config or load_config()

    def begin(query: str, journal: Journal) -> _GraphRun:
        own = control or RunControl()
        started = own.clock()
        own.start(config.limits.max_wall_clock_seconds)
        run, state, store = _begin(query, config, llm, search, fetcher, memory, None, None, own, journal)
        return _GraphRun(run, state, store, started)

    return build(begin, config.limits.max_iterations, checkpointer)


@dataclass
class _GraphRun:
    """One run whose phases are called by the graph instead of by the loop."""

    run: Run
    state: RunState
    store: ResearchStore
    started: float
    result: FinalOutput | None = None

    @property
    def journal(self) -> Journal:
        return self.run.journal

    def step(self, node: str) -> str:
        """Carry out one phase; the name of the next."""
        if node == "synthesis":
            self.state = synthesis_phase(self.state, self.run)
            self.result = _finish(self.state, self.run, self.started)
            if self.result.outcome != "failed" and not self.journal.replaying:
                self.store.store_research(self.result, control=self.run.control)
            return "end"
        if node == "thought_and_action":
            self.state.stop_reason = check_limits(self.state, self.run)
            if not self.state.stop_reason:
                self.state = thought_and_action_phase(self.state, self.run)
            return "synthesis" if self.state.stop_reason else "act_and_observe"
        self.state = act_and_observe_phase(self.state, self.run)
        return "synthesis" if self.state.stop_reason else "thought_and_action"

    def output(self) -> dict[str, Any]:
        return self.result.to_dict() if self.result else {}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    from m3 import cli

    return cli.main(sys.argv[1:] if argv is None else list(argv), run_react_loop, build_llm_client)


if __name__ == "__main__":
    sys.exit(main())
