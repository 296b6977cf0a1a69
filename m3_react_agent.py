"""The driver: a hand-written while loop of thought, action and observation, then one report.

from m3_react_agent import run_react_loop
print(run_react_loop("Compare Raptor RAG vs HyDE").to_markdown())
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # from here on Ctrl-C ends the process without a traceback; a run takes it over
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if {"-h", "--help"} & set(sys.argv[1:]):  # which needs nothing of the rest
        from m3.arguments import print_help

        print_help(sys.argv[1:])

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config import Config, load_config
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
    ThoughtEvent,
)
from m3.untrusted import foreign_line, safe_line

if TYPE_CHECKING:
    from m3.fetch import Fetcher
    from m3.journal import Journal
    from m3.llm_clients import AnthropicLLMClient, GroqLLMClient, LLMClient, OpenAILLMClient
    from m3.mock_llm import MockLLMClient
    from m3.react_parser import ParsedStep, Tool, parse_thought_action
    from m3.report import FinalOutput
    from m3.run_state import Run, RunState
    from m3.search import WebSearchTool
    from memory_integration import ResearchStore

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
    "parse_thought_action": "m3.react_parser",
}

CORRECTIONS = 2  # re-prompts for one unreadable turn
UNREADABLE_TURNS = 3  # in a row end the loop
REPEATS = 3  # the same action this often ends the loop
FAILED_SEARCHES = 3  # in a row, without an engine that answered, end the loop
EMPTY_SEARCHES = 3  # in a row, with nothing read between them, end the loop
REPEATED = "done before; the result is the same"  # what people read of an action that was not carried out again
ACTION_FAILED = "The action failed"  # how the observation of a tool that raised begins
SHRINKS = 3  # times that one turn's prompt is condensed because it cannot run at the provider


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# --- the run ---------------------------------------------------------------------------------------------


def run_react_loop(
    query: str,
    *,
    config: Config | None = None,
    llm: LLMClient | None = None,
    search: WebSearchTool | None = None,
    fetcher: Fetcher | None = None,
    memory: ResearchStore | None = None,
    history: Sequence[Message] = (),
    tools: Sequence[Tool] | None = None,
    resume: Journal | str | Path | None = None,
    on_event: EventHook | None = None,
    control: RunControl | None = None,
) -> FinalOutput:
    """Research one question and return the cited report, whatever fails on the way.

    config: None reads the environment. llm, search, fetcher, memory: None takes the configured ones. history: earlier
    turns of a conversation, `{"role": "user" | "assistant", "content": text}` each, the oldest first; the newest are
    shown to the model as far as the token budget allows, and with them the first action may be `finish`, whose answer
    then comes from the conversation alone (warning `no sources used`, not remembered); a resumed or replayed run has
    the recorded one where none is given. tools: entries added to the tool table for this run, or taking the place of
    one (`m3.react_parser.menu`). resume: the trace (or its `.part`) of a run of the same question to go on from, or a
    `Journal` to record into; what it already holds is not asked for again. on_event: called with every event. control:
    to stop the run from outside, or to inject a clock; its deadline is set from `config.limits`.

    Raises ConfigError for settings that cannot be used, ValueError for an empty question, TraceError for a trace that
    cannot be read and DivergedError where a replay leaves its record; nothing else.
    """
    if not isinstance(query, str) or not query.strip():
        raise ValueError("the question is empty" if isinstance(query, str) else "the question is no text")
    config = config or load_config()
    control = control or RunControl()
    started = control.clock()
    control.start(config.limits.max_wall_clock_seconds)
    from m3.run_memory import pass_on_notices, remember

    journal = _journal(resume, query.strip())
    run, state, store = _begin(
        query.strip(),
        config,
        llm,
        search,
        fetcher,
        memory,
        history or journal.history,
        tools,
        on_event,
        control,
        journal,
    )
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
    output = _conclude(state, run, started)
    pass_on_notices(store, run)
    run.emit(FinalEvent(output))
    return remember(output, store, run)


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
    history: Sequence[Message],
    extra_tools: Sequence[Tool] | None,
    on_event: EventHook | None,
    control: RunControl,
    journal: Journal,
) -> tuple[Run, RunState, ResearchStore]:
    from m3 import prompts
    from m3.asking import Asking
    from m3.budget import TokenBudget
    from m3.conversation import asked_before, history_budget, turns_of, within_budget
    from m3.provenance import Provenance
    from m3.react_parser import menu
    from m3.run_memory import recalled
    from m3.run_state import RunState
    from memory_integration import ShortTermMemory, build_memory
    from tools import ToolSuite, build_tools

    if search is None or fetcher is None:
        built_search, built_fetcher = build_tools(config)
        search, fetcher = search or built_search, fetcher or built_fetcher
    store = memory if memory is not None else build_memory(config)
    table = menu(extra_tools or ())
    run = _run(config, llm, on_event or _no_event, control, journal)
    past = recalled(query, store, run)
    leads = "\n".join(prompts.lead(p.query, p.stored_at[:10], p.summary, p.urls) for p in past)
    turns = turns_of(history)
    turns = within_budget(turns, history_budget(config.memory.short_term_token_budget, config.limits.max_tokens))
    head = [
        {"role": "system", "content": prompts.system_prompt(table, run.today, run.fence, leads, history=bool(turns))},
        *turns,
        {"role": "user", "content": prompts.question_prompt(query)},
    ]
    provenance = Provenance(allow_unseen=config.fetch.allow_unseen_urls)
    for earlier in asked_before(history):
        provenance.add_question(earlier)
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
            bounded=journal.bounded,
            max_sources=config.search.max_sources,
            leads=[url for p in past for url in p.urls],
            provenance=provenance,
        ),
        budget=budget,
        model=Asking(run.llm, config.models, budget, journal, control, run.loop_control, run.emit, warnings),
        warnings=warnings,
        conversational=bool(turns) or any(tool.at_once for tool in table),
    )
    if past:
        asked = "; ".join(f"{safe_line(p.query, 120)!r} ({p.stored_at[:10]})" for p in past)
        state.warnings.append(f"Earlier research was given to the model as leads, not as evidence: {asked}.")
    return run, state, store


def _run(config: Config, llm: LLMClient | None, emit: EventHook, control: RunControl, journal: Journal) -> Run:
    """What the phases work with. The control tells people of waits from now on, and uses them for work ahead."""
    import secrets

    from m3.ahead import Ahead
    from m3.budget import time_reserve
    from m3.run_state import Run

    seconds = config.limits.max_wall_clock_seconds
    control.notice = lambda text: emit(NoticeEvent(text))
    ahead = Ahead()
    ahead.add_run(web=set(config.search_providers) - {"local", "mock"} != set())
    control.idle = ahead.start
    return Run(
        config=config,
        llm=llm or build_llm_client(config, control),
        control=control,
        loop_control=control.within(seconds - time_reserve(seconds)),
        emit=emit,
        journal=journal,
        ahead=ahead,
        today=journal.perform("date", "", str, lambda: date.today().isoformat()),
        fence=journal.perform("fence", "", str, lambda: f"data-{secrets.token_hex(4)}"),
    )


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


# --- the phases ------------------------------------------------------------------------------------------


def thought_and_action_phase(state: RunState, run: Run) -> RunState:
    """Ask the model for its next decision; re-prompt twice where it cannot be read, then decide for it."""
    from m3.run_memory import prune

    prune(state, run)
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
    from m3.synthesis import stop_reason_of

    state.stop_reason = stop_reason_of(problem, run)
    if state.stop_reason == "provider_error":
        state.warnings.append(str(problem))
        # A rate limit may have room for the report later, and a prompt that was too large is not the report's.
        state.model_gone = problem.kind not in ("rate_limit", "prompt_too_large")
        run.emit(LimitEvent(state.stop_reason, str(problem)))
    return state


def _decide(state: RunState, run: Run) -> ParsedStep:
    from m3.prompts import correction

    for attempt in range(CORRECTIONS + 1):
        reply = _ask_for_turn(state, run)
        from m3.react_parser import parse_thought_action  # loaded while the model is asked; see `m3.ahead`

        step = parse_thought_action(reply.text, reply.finish_reason, state.tools.tools)
        if step.tool is not None:
            return step
        run.emit(NoticeEvent(f"the model's turn could not be read: {step.error_detail}"))
        if attempt < CORRECTIONS:
            state.memory.add("(a turn that could not be read)", correction(step, state.tools.tools))
    return step


def _ask_for_turn(state: RunState, run: Run) -> Completion:
    """Ask with the conversation; where the provider can never run so long a prompt, condense it and ask again."""
    from m3.run_memory import shrink

    for _ in range(SHRINKS):
        try:
            return state.model.ask(state.memory.render())
        except LLMError as problem:
            if problem.kind != "prompt_too_large" or not shrink(state, run, problem.fits):
                raise
    return state.model.ask(state.memory.render())


def _default_action(state: RunState) -> ParsedStep:
    """What is done when the model does not say: search the question, the second time as plain words."""
    import re

    from m3.react_parser import ParsedStep, resolve

    query, search = state.query, resolve("search", state.tools.tools)
    if state.unreadable_turns > 1:
        query = re.sub(r"\bsite:\S+|[\"“”]", " ", query).strip() or query
    name = search.name if search else "search"
    return ParsedStep("(the model gave no readable action)", name, {"query": query}, notes=("default action",))


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
    repeated = bool(observation)
    if repeated:
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
    run.emit(_observed(state, step.tool, observation, repeated=repeated))
    if state.failed_searches >= FAILED_SEARCHES and not state.tools.tracker.sources:
        state.stop_reason = "search_error"
    elif state.tools.empty_searches >= EMPTY_SEARCHES:
        state.stop_reason = "no_progress"
    return state


def _observed(state: RunState, tool: str, observation: str, *, repeated: bool) -> ObservationEvent:
    """What an action brought, for those who watch. repeated: no tool ran, what it left is of another action."""
    tools = state.tools
    event = ObservationEvent(state.iterations, tool, observation, sources=tuple(tools.tracker.sources))
    if repeated:
        return replace(event, said=REPEATED)
    found, pages = tools.last_results, tools.last_pages
    return replace(event, ok=tools.last_ok, results=found, pages=pages, said=tools.last_said)


def _step(state: RunState, run: Run, step: ParsedStep, observation: str) -> Step:
    """The record of a turn, with the tokens and seconds since it began: its model calls and its action."""
    began, spent = state.step_began
    tokens, seconds = state.budget.spent - spent, run.control.clock() - began
    return Step(state.iterations, step.thought, step.tool, step.args, observation, step.notes, tokens, seconds)


def _run_tool(state: RunState, run: Run, step: ParsedStep) -> str:
    from m3.worker import DeadlineReached

    before, read = len(state.tools.ledger), len(state.tools.tracker.sources)
    try:
        observation = state.tools.run(step.tool or "", step.args, run.loop_control)
    except DivergedError:
        raise
    except DeadlineReached:
        observation = "The action was given up: it did not end in the time that this run has for it."
        state.tools.last_ok = False
    except Exception as problem:  # noqa: BLE001  tools given by a caller may raise anything
        observation = f"{ACTION_FAILED}: {type(problem).__name__}: {foreign_line(str(problem))}"
        state.tools.last_ok = False
        if state.tools.built_in(step.tool or "") == "search":
            state.failed_searches += 1
    for source in state.tools.tracker.sources[read:]:
        run.ahead.add_page(source.page)
    # One search may leave several entries: each engine that failed before another one answered.
    searches = [entry.status for entry in state.tools.ledger[before:] if entry.kind == "search"]
    if searches:
        answered = any(status in ("ok", "no_results", "bad_query") for status in searches)
        state.failed_searches = 0 if answered else state.failed_searches + 1
    return observation


def _budget_line(state: RunState, run: Run) -> str:
    """The line that ends each observation; recorded, since it holds a reading of the clock."""
    return run.journal.perform("budget_line", state.iterations, str, lambda: _budget_text(state, run))


def _budget_text(state: RunState, run: Run) -> str:
    tokens = max(0, state.budget.left - state.budget.reserve)
    seconds = min(run.loop_control.remaining(), run.config.limits.max_wall_clock_seconds)
    return f"[step {state.iterations}/{run.config.limits.max_iterations} · {tokens} tokens left · {seconds:.0f} s left]"


def synthesis_phase(state: RunState, run: Run) -> RunState:
    """Write the report from the passages of the pages read: by the model, or by copying where it cannot be asked."""
    from m3.synthesis import write_and_mend

    write_and_mend(state, run)
    return state


def _conclude(state: RunState, run: Run, started: float) -> FinalOutput:
    from m3.synthesis import conclude
    from tools import services_asked

    return conclude(state, run, started, services_asked(run.config, state.tools.asked, state.model.providers))


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
        run, state, store = _begin(query, config, llm, search, fetcher, memory, (), None, None, own, journal)
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
            self.result = _conclude(self.state, self.run, self.started)
            if not self.journal.replaying:
                from m3.run_memory import remember

                self.result = remember(self.result, self.store, self.run)
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
    from m3.cli import as_program

    as_program(main)
