"""The driver: a hand-written while loop of thought, action and observation, then one report.

from m3_react_agent import run_react_loop
print(run_react_loop("Compare Raptor RAG vs HyDE").to_markdown())
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config import Config, load_config
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
    Passage,
    RunControl,
    Source,
    Step,
    ThoughtEvent,
)
from m3.untrusted import foreign_line, neutralise, safe_line, safe_report

if TYPE_CHECKING:
    from m3.asking import Asking
    from m3.budget import TokenBudget
    from m3.fetch import Fetcher
    from m3.grounding import GroundingReport
    from m3.grounding.repair import Change
    from m3.journal import Journal
    from m3.llm_clients import AnthropicLLMClient, GroqLLMClient, LLMClient, OpenAILLMClient
    from m3.mock_llm import MockLLMClient
    from m3.report import FinalOutput, Outcome
    from m3.search import WebSearchTool
    from memory_integration import PastResearch, ResearchStore, ShortTermMemory
    from tools import ToolSuite

__all__ = [
    "AnthropicLLMClient",
    "FinalOutput",
    "GroqLLMClient",
    "LLMClient",
    "MockLLMClient",
    "OpenAILLMClient",
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
    "AnthropicLLMClient": "m3.llm_clients",
    "FinalOutput": "m3.report",
    "GroqLLMClient": "m3.llm_clients",
    "LLMClient": "m3.llm_clients",
    "MockLLMClient": "m3.mock_llm",
    "OpenAILLMClient": "m3.llm_clients",
}

CORRECTIONS = 2  # re-prompts for one unreadable turn
UNREADABLE_TURNS = 3  # in a row end the loop
RECALL_SECONDS = 2.0  # the most that long-term memory may hold up the start of a run
REPEATS = 3  # the same action this often ends the loop
FAILED_SEARCHES = 3  # in a row, without an engine that answered, end the loop
KEYED = ("groq", "openai", "anthropic")  # providers that are services outside
SHRINKS = 3  # times that one turn's prompt is condensed because it cannot run at the provider
SHRINK_TO = 0.6  # of what fits: condensed in one jump, so that the next turns need not be
REPORT_PROMPT_TOKENS = 4_000  # of passages in the prompt of the report
NO_SOURCES_USED = "no sources used"  # the note of an answer from the conversation alone, which is not remembered
REPORT_PASSAGE_TOKENS = 900  # of them, the most for one source
REPAIR_SECONDS = 5.0  # with less time left no repair call is made


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
    fence: str  # the tag around foreign text, drawn anew for each run so that no page can close it


@dataclass
class RunState:
    """What a run knows so far. The phases take it and give it back."""

    query: str
    memory: ShortTermMemory
    tools: ToolSuite
    budget: TokenBudget
    model: Asking  # through which every call goes
    warnings: list[str]
    steps: list[Step] = field(default_factory=list)
    iterations: int = 0
    step_began: tuple[float, int] = (0.0, 0)  # the clock and the tokens spent when the turn began
    decision: ParsedStep | None = None
    observed: dict[str, tuple[int, str]] = field(default_factory=dict)  # action key -> times asked, observation
    unreadable_turns: int = 0
    failed_searches: int = 0
    stop_reason: str = ""
    draft: str = ""
    changes: tuple[Change, ...] = ()  # what was mended in the draft
    dead_tags: dict[str, tuple[int, ...]] = field(default_factory=dict)  # sentences that cite what was never read
    model_gone: bool = False  # the model failed, and asking it for the report would fail too


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
    journal = _journal(resume, query.strip())
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
    _pass_on_notices(store, run)
    run.emit(FinalEvent(output))
    return _remember(output, store, run)


def _journal(resume: Journal | str | Path | None, query: str) -> Journal:
    from m3.journal import Journal, resumed

    if resume is None:
        return Journal()
    return resume if isinstance(resume, Journal) else resumed(resume, query)


def build_llm_client(config: Config, control: RunControl | None = None) -> LLMClient:
    """The configured model, with those of LLM_FALLBACK behind it. Raises ConfigError when it cannot be used.

    control: bounds the one question that may be asked: which model the server at OPENAI_BASE_URL has.
    """
    from m3.llm_clients import build_client

    return build_client(config, control)


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
    from m3.asking import Asking
    from m3.budget import TokenBudget, time_reserve
    from m3.provenance import Provenance
    from memory_integration import ShortTermMemory, build_memory
    from tools import ToolSuite, build_tools

    if search is None or fetcher is None:
        built_search, built_fetcher = build_tools(config)
        search, fetcher = search or built_search, fetcher or built_fetcher
    store = memory if memory is not None else build_memory(config)
    table = (*TOOLS, *(extra_tools or ()))
    seconds = config.limits.max_wall_clock_seconds
    emit = on_event or _no_event
    control.notice = lambda text: emit(NoticeEvent(text))
    run = Run(
        config=config,
        llm=llm or build_llm_client(config, control),
        control=control,
        loop_control=control.within(seconds - time_reserve(seconds)),
        emit=emit,
        journal=journal,
        today=journal.perform("date", "", str, lambda: date.today().isoformat()),
        fence=journal.perform("fence", "", str, lambda: f"data-{secrets.token_hex(4)}"),
    )
    past = _recalled(query, store, run)
    leads = "\n".join(prompts.lead(p.query, p.stored_at[:10], p.summary, p.urls) for p in past)
    head = [
        {"role": "system", "content": prompts.system_prompt(table, run.today, run.fence, leads)},
        {"role": "user", "content": prompts.question_prompt(query)},
    ]
    budget = TokenBudget(config.limits.max_tokens, max_cost_usd=config.models.max_cost_usd)
    # What the settings warn of is true of this run only if it uses the model they chose.
    warnings = list(config.warnings) if run.llm.provider == config.llm_provider else []
    state = RunState(
        query=query,
        memory=ShortTermMemory(config.memory.short_term_token_budget, head),
        tools=ToolSuite(
            query,
            search,
            fetcher,
            tools=table,
            perform=journal.perform,
            max_sources=config.search.max_sources,
            leads=[url for p in past for url in p.urls],
            provenance=Provenance(allow_unseen=config.fetch.allow_unseen_urls),
        ),
        budget=budget,
        model=Asking(run.llm, config.models, budget, journal, control, run.loop_control, emit, warnings),
        warnings=warnings,
    )
    if past:
        asked = "; ".join(f"{safe_line(p.query, 120)!r} ({p.stored_at[:10]})" for p in past)
        state.warnings.append(f"Earlier research was given to the model as leads, not as evidence: {asked}.")
    return run, state, store


def _recalled(query: str, store: ResearchStore, run: Run) -> list[PastResearch]:
    """Related earlier runs. A caller's own store may raise anything or hang; the run then goes on without."""
    from m3.worker import DeadlineReached
    from memory_integration import PastResearch

    patience = run.loop_control.within(RECALL_SECONDS)

    def recall() -> list[PastResearch]:
        try:
            return list(store.retrieve_related(query, control=patience))
        except Exception as problem:  # noqa: BLE001
            run.emit(NoticeEvent(f"memory: nothing was recalled: {type(problem).__name__}: {problem}"))
            return []

    try:
        return run.journal.perform("recall", query, list[PastResearch], recall, patience)
    except DeadlineReached:
        run.emit(NoticeEvent("memory: nothing was recalled in time"))
        return []


def _remember(output: FinalOutput, store: ResearchStore, run: Run) -> FinalOutput:
    """Store a finished run, once its answer has been shown; a failed save becomes a note of the report."""
    if output.outcome == "failed" or NO_SOURCES_USED in output.warnings:
        return output
    try:
        result = store.store_research(output, control=run.control)
        problem = result.detail if result.fault else ""
    except Exception as fault:  # noqa: BLE001  as above
        problem = f"{type(fault).__name__}: {fault}"
    if not problem:
        return output
    note = f"This run was not remembered: {safe_line(problem)}."
    run.emit(NoticeEvent(note))
    return replace(output, warnings=(*output.warnings, note))


def _pass_on_notices(store: ResearchStore, run: Run) -> None:
    notices: list[str] = getattr(store, "notices", [])
    while notices:
        run.emit(NoticeEvent(f"memory: {notices.pop(0)}"))


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
    return state.model.exhausted(None if before_tool else state.memory.render())


def _ask(
    state: RunState, run: Run, messages: Sequence[Message], *, for_report: bool = False, show: bool = True
) -> Completion:
    """One model call inside the budget. Raises LLMError, whatever the client raises.

    for_report: may use what is reserved for the report; show: its text is the report and is shown as it comes.
    """
    return state.model.ask(messages, for_report=for_report, show=show)


# --- the phases ------------------------------------------------------------------------------------------


def thought_and_action_phase(state: RunState, run: Run) -> RunState:
    """Ask the model for its next decision; re-prompt twice where it cannot be read, then decide for it."""
    _prune(state, run)
    state.iterations += 1
    state.step_began = (run.control.clock(), state.budget.spent)
    try:
        step = _decide(state, run)
    except LLMError as problem:
        return _model_failed(state, run, problem)
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
        state.steps.append(_step(state, run, step, ""))
        state.stop_reason = "agent_finished"
    return state


def _model_failed(state: RunState, run: Run, problem: LLMError) -> RunState:
    """End the loop because the model cannot be asked on: by a bound, a signal, or a fault that is told."""
    if problem.kind in ("max_tokens", "max_cost"):
        state.stop_reason = problem.kind
    elif problem.kind == "interrupted" or run.control.stopped:
        state.stop_reason = "interrupted"
    elif problem.kind == "deadline" or run.loop_control.expired:
        state.stop_reason = "max_wall_clock_time"
    else:
        state.stop_reason = "provider_error"
        state.warnings.append(str(problem))
        # A rate limit may have room for the report later, and a prompt that was too large is not the report's.
        state.model_gone = problem.kind not in ("rate_limit", "prompt_too_large")
        run.emit(LimitEvent(state.stop_reason, str(problem)))
    return state


def _decide(state: RunState, run: Run) -> ParsedStep:
    from m3.prompts import correction

    for attempt in range(CORRECTIONS + 1):
        reply = _ask_for_turn(state, run)
        step = parse_thought_action(reply.text, reply.finish_reason, state.tools.tools)
        if step.tool is not None:
            return step
        run.emit(NoticeEvent(f"the model's turn could not be read: {step.error_detail}"))
        if attempt < CORRECTIONS:
            state.memory.add("(a turn that could not be read)", correction(step, state.tools.tools))
    return step


def _ask_for_turn(state: RunState, run: Run) -> Completion:
    """Ask with the conversation; where the provider can never run so long a prompt, condense it and ask again."""
    for _ in range(SHRINKS):
        try:
            return _ask(state, run, state.memory.render())
        except LLMError as problem:
            if problem.kind != "prompt_too_large" or not _shrink(state, run, problem.fits):
                raise
    return _ask(state, run, state.memory.render())


def _default_action(state: RunState) -> ParsedStep:
    """What is done when the model does not say: search the question, the second time as plain words."""
    import re

    query = state.query
    if state.unreadable_turns > 1:
        query = re.sub(r"\bsite:\S+|[\"“”]", " ", query).strip() or query
    return ParsedStep("(the model gave no readable action)", "search", {"query": query}, notes=("default action",))


def act_and_observe_phase(state: RunState, run: Run) -> RunState:
    """Run the decided action and append what came of it to the conversation."""
    from m3.prompts import observation_prompt
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
    if observation:
        state.observed[key] = (times + 1, observation)
        observation = f"You did this before; the result is the same. Do something else or finish.\n{observation}"
    else:
        failures = state.failed_searches
        observation = _run_tool(state, run, step)
        # An outage is no result: the same search is asked again.
        state.observed[key] = (times + 1, "" if state.failed_searches > failures else observation)
    answer = observation_prompt(observation, run.fence, state.query, _budget_line(state, run))
    state.memory.add(canonical_turn(step), answer)
    state.steps.append(_step(state, run, step, observation))
    run.emit(ObservationEvent(state.iterations, step.tool, observation))
    if state.failed_searches >= FAILED_SEARCHES and not state.tools.tracker.sources:
        state.stop_reason = "search_error"
    return state


def _step(state: RunState, run: Run, step: ParsedStep, observation: str) -> Step:
    """The record of a turn, with the tokens and seconds since it began: its model calls and its action."""
    began, spent = state.step_began
    tokens, seconds = state.budget.spent - spent, run.control.clock() - began
    return Step(state.iterations, step.thought, step.tool, step.args, observation, step.notes, tokens, seconds)


def _run_tool(state: RunState, run: Run, step: ParsedStep) -> str:
    from m3.worker import DeadlineReached

    before = len(state.tools.ledger)
    try:
        observation = state.tools.run(step.tool or "", step.args, run.loop_control)
    except DivergedError:
        raise
    except DeadlineReached:
        observation = "The action was given up: it did not end in the time that this run has for it."
    except Exception as problem:  # noqa: BLE001  tools given by a caller may raise anything
        observation = f"The action failed: {type(problem).__name__}: {foreign_line(str(problem))}"
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
    """Condense old turns when the conversation has grown past its budget, or past what the model's provider runs."""
    prompt = state.memory.render()
    if state.model.prompt_limit and state.budget.counter.likely_most(prompt) > state.model.prompt_limit:
        _shrink(state, run, state.model.prompt_limit)
    elif state.memory.prune_if_needed(*_condensers(state, run)):
        run.emit(NoticeEvent("older turns were condensed into notes"))


def _shrink(state: RunState, run: Run, fits: int) -> bool:
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
            return visible_text(_ask(state, run, condense_messages(state.query, notes, most_words)).text)
        except LLMError as problem:
            run.emit(NoticeEvent(f"the model could not condense the notes: {problem}"))
            return None

    def facts() -> str:
        return "\n".join(source_header(source) for source in state.tools.tracker.sources)

    return condense, facts


def synthesis_phase(state: RunState, run: Run) -> RunState:
    """Write the report from the passages of the pages read: by the model, or by copying where it cannot be asked."""
    from m3.budget import MIN_OUTPUT
    from m3.extractive import Evidence, extractive_summary
    from m3.grounding import rank_passages

    sources = state.tools.tracker.sources
    if not sources:
        return state
    fits = (state.budget.left - MIN_OUTPUT) // 3
    share = max(80, min(REPORT_PASSAGE_TOKENS, min(REPORT_PROMPT_TOKENS, fits) // len(sources)))
    chosen = [(source, rank_passages(state.query, source.page, share)) for source in sources]
    usable = not state.model_gone and state.stop_reason != "interrupted"
    if usable and run.journal.perform("time for a report", "", bool, lambda: not run.control.expired):
        try:
            state.draft = _write_report(state, run, chosen)
        except LLMError as problem:
            state.warnings.append(f"The report was copied from the sources without a model: {problem}")
    if not state.draft.strip():
        evidence = [Evidence(s.number, s.title, [p.quote for p in passages]) for s, passages in chosen]
        state.draft = extractive_summary(state.query, evidence)
    # The report is foreign text too: a model obeys what it reads. Only links to what was read may stay.
    state.draft = safe_report(state.draft, {source.url for source in sources})
    _mend(state, run)
    return state


def _write_report(state: RunState, run: Run, chosen: Sequence[tuple[Source, list[Passage]]]) -> str:
    """The model's report over these passages; over half of them where the provider cannot run so many."""
    from m3.grounding import render_passages
    from m3.prompts import synthesis_messages
    from m3.reply_text import visible_text

    for _ in range(SHRINKS):
        material = [(source, neutralise(render_passages(source.page, passages))) for source, passages in chosen]
        messages = synthesis_messages(state.query, material, run.today, run.fence)
        try:
            return visible_text(_ask(state, run, messages, for_report=True).text)
        except LLMError as problem:
            if problem.kind != "prompt_too_large":
                raise
            last = problem
            chosen = [(source, passages[: (len(passages) + 1) // 2]) for source, passages in chosen]
    raise last


def _mend(state: RunState, run: Run) -> None:
    """Check the draft against its pages and repair it: tags without a model, sentences with at most one call."""
    from m3.grounding import verify
    from m3.grounding.repair import apply_answers, correct_tags, items_to_mend, remove_unsupported
    from m3.prompts import repair_messages
    from m3.reply_text import visible_text

    tracker, mode = state.tools.tracker, run.config.report.repair
    state.draft = tracker.canonical(state.draft)
    pages = tracker.pages
    report = verify(state.draft, pages)
    state.dead_tags = report.dead_tags(pages)
    if mode == "off":
        return
    state.draft, state.changes = correct_tags(state.draft, report, pages)
    if mode == "tags":
        return
    items = items_to_mend(state.draft, verify(state.draft, pages), pages)
    may_ask = items and not state.model_gone and state.stop_reason != "interrupted"
    if may_ask and run.journal.perform("time for a repair", "", bool, lambda: run.control.remaining() > REPAIR_SECONDS):
        try:
            reply = _ask(state, run, repair_messages(items), for_report=True, show=False)
            answers = visible_text(reply.text)
            state.draft, more = apply_answers(state.draft, items, answers, pages, may_drop=mode == "strict")
            state.changes += more
        except LLMError as problem:
            run.emit(NoticeEvent(f"failing sentences could not be repaired: {problem}"))
    if mode == "strict":
        state.draft, more = remove_unsupported(state.draft, verify(state.draft, pages))
        state.changes += more


# --- the result ------------------------------------------------------------------------------------------


def _finish(state: RunState, run: Run, started: float) -> FinalOutput:
    from m3.grounding import verify
    from m3.grounding.independence import disagreements, origins
    from m3.report import FinalOutput
    from tools import services_asked

    tracker = state.tools.tracker
    summary, cited = tracker.finalize(state.draft)
    grounding = verify(summary, tracker.pages).with_dead_tags(state.dead_tags)
    outcome = _outcome(state, grounding)
    if not grounding.supported and not grounding.counts()["unchecked"]:
        summary, cited = _without_claims(state, grounding), []
    elif not grounding.supported:
        state.warnings.append("No citation of this report could be checked; read the sources yourself.")
    if state.stop_reason in ("agent_finished", "no_progress") and outcome == "failed":
        state.stop_reason = "search_error"
    pages = {source.number: source.page for source in cited}
    return FinalOutput(
        query=state.query,
        summary=summary,
        sources=tuple(cited),
        outcome=outcome,
        stop_reason=state.stop_reason,
        iterations_used=state.iterations,
        tokens_consumed=state.budget.spent,
        elapsed_seconds=run.control.clock() - started,
        llm_provider=state.model.asked[0],
        search_provider=run.config.search_provider,
        model=state.model.asked[1],
        warnings=tuple(dict.fromkeys([*state.warnings, *state.model.overruns()])),
        steps=tuple(state.steps),
        ledger=tuple(state.tools.ledger),
        unreadable=tuple(state.tools.unreadable),
        grounding=grounding,
        changes=state.changes,
        renumbered=tracker.renumbered,
        origins=origins(pages),
        disagreements=disagreements(grounding, pages),
        usage=state.budget.usage,
        cost_usd=None if state.budget.unpriced_calls else state.budget.cost_usd,
        failover=tuple(state.model.failover),
        services=tuple(
            dict.fromkeys(
                [*services_asked(run.config, state.tools.asked), *(p for p in state.model.providers if p in KEYED)]
            )
        ),
        engines=tuple(state.tools.engines),
    )


def _outcome(state: RunState, grounding: GroundingReport) -> Outcome:
    # A search that the run's own limit cut short says nothing about the engine.
    cut = "timeout" if state.stop_reason == "max_wall_clock_time" else ""
    searches = [e.status for e in state.tools.ledger if e.kind == "search" and e.status != cut]
    all_failed = bool(searches) and all(status not in ("ok", "no_results") for status in searches)
    nothing_read = not state.tools.tracker.sources
    if state.stop_reason == "interrupted":
        return "partial"
    if nothing_read and (all_failed or state.stop_reason in ("provider_error", "search_error")):
        return "failed"
    if state.stop_reason == "agent_finished":
        return "answered" if grounding.supported else "abstained"
    return "partial"


def _without_claims(state: RunState, grounding: GroundingReport) -> str:
    """The sentence of a run that has nothing to say with a source behind it, and what was tried."""
    read = len(state.tools.tracker.sources)
    if state.stop_reason == "agent_finished" and read:
        text = "Nothing in the sources that were read supports an answer to this question."
    elif read:
        text = "The run ended before a cited answer could be written."
    else:
        text = "No source was read, so there is no answer."
    drafted = len(grounding.statements)
    if drafted:
        what = "The one statement that was drafted is" if drafted == 1 else f"All {drafted} drafted statements are"
        text += f" {what} withheld, since no cited page bears {'it' if drafted == 1 else 'one of them'} out."
    tried = [f"- {e.kind} {e.target!r}: {e.status}" for e in state.tools.ledger]
    return "\n".join([text, *(["", "Tried:", *tried] if tried else [])])


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
            if not self.journal.replaying:
                self.result = _remember(self.result, self.store, self.run)
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

    def build_memory(config: Config) -> Any:
        import memory_integration

        return memory_integration.build_memory(config)

    return cli.main(sys.argv[1:] if argv is None else list(argv), run_react_loop, build_llm_client, build_memory)


if __name__ == "__main__":
    sys.exit(main())
