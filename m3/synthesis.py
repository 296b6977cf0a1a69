"""From the pages read to the result: the report written, mended where no source bears it out, judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from config import redact
from m3.budget import MIN_OUTPUT
from m3.draft import report_in
from m3.extractive import Evidence, extractive_summary
from m3.grounding import Closing, GroundingReport, Patience, rank_passages, render_passages, verify
from m3.grounding.independence import Disagreement, disagreements, origins
from m3.grounding.repair import Change, Item, apply_answers, correct_tags, items_to_mend, remove_unsupported
from m3.prompts import conversation_messages, repair_messages, synthesis_messages
from m3.records import LLMError, Message, NoticeEvent, Passage, Source, in_words
from m3.reply_text import visible_text
from m3.report import NO_SOURCES_USED, FinalOutput, Outcome
from m3.run_state import Checked
from m3.untrusted import neutralise, safe_report

if TYPE_CHECKING:
    from m3.run_state import Run, RunState

Cut: TypeAlias = Mapping[str, int]  # where the clock cut work on pages, as `Journal.bounded` records it
SHRINKS = 3  # times that the report's passages are halved because its prompt cannot run at the provider
REPORT_PROMPT_TOKENS = 4_000  # of passages in the prompt of the report
REPORT_PASSAGE_TOKENS = 900  # of them, the most for one source
REPAIR_SECONDS = 5.0  # with less time left no repair call is made


def write_and_mend(state: RunState, run: Run) -> None:
    """Write the report from the passages of the pages read: by the model, or by copying where it cannot be asked."""
    written = True
    if state.tools.tracker.sources:
        closing = Closing(run.control)
        written = _draft(state, run, closing)
        _mend(state, run, closing)
    elif state.conversational and state.stop_reason == "agent_finished" and not state.tools.ledger:
        _answer_from_conversation(state, run)
    state.stop_reason = run.journal.decide_limit(lambda: _cut_by(run, written)) or state.stop_reason


def _draft(state: RunState, run: Run, closing: Closing) -> bool:
    """Put the report into `state.draft`. False where it had to be copied from the passages."""
    sources = state.tools.tracker.sources
    fits = (state.budget.left - MIN_OUTPUT) // 3
    share = max(80, min(REPORT_PASSAGE_TOKENS, min(REPORT_PROMPT_TOKENS, fits) // len(sources)))
    chosen = _chosen(state, run, closing, share)
    usable = not state.model_gone and state.stop_reason != "interrupted"
    if usable and run.journal.perform("time for a report", "", bool, lambda: not run.control.expired):
        try:
            run.ahead.add_comparison(state.tools.tracker.pages)
            state.draft = _write_report(state, run, chosen)
        except LLMError as problem:
            state.warnings.append(f"The report was copied from the sources without a model: {problem}")
    written = bool(state.draft.strip())
    if not written:
        evidence = [Evidence(s.number, s.title, [p.quote for p in passages]) for s, passages in chosen]
        state.draft = extractive_summary(state.query, evidence)
    # The report is foreign text too: a model obeys what it reads. Only links to what was read may stay.
    state.draft = safe_report(redact(state.draft), {source.url for source in sources})
    return written


def _cut_by(run: Run, written: bool) -> str:
    """What ended the run before its report was done, though the loop had ended by itself; "" for nothing."""
    if run.control.stopped:
        return "interrupted"
    return "max_wall_clock_time" if run.control.expired and not written else ""


def _chosen(state: RunState, run: Run, closing: Closing, share: int) -> list[tuple[Source, list[Passage]]]:
    """Each source with the passages of it that the report may be written from."""

    def ranked(cut: Cut | None) -> tuple[list[tuple[Source, list[Passage]]], Cut]:
        patience = Patience(closing.over, cut)
        sources = state.tools.tracker.sources
        return [(s, rank_passages(state.query, s.page, share, patience=patience)) for s in sources], patience.cut

    return run.journal.bounded("passages for the report", ranked)


def _verified(state: RunState, run: Run, closing: Closing, what: str, summary: str) -> GroundingReport:
    """The citations of a text checked; what was checked whole already is not checked again."""

    def verified(cut: Cut | None) -> tuple[GroundingReport, Cut]:
        tracker, done = state.tools.tracker, state.checked
        if done and not cut and (done.summary, done.sources) == (summary, tuple(tracker.sources)):
            return done.report, {}
        patience = Patience(closing.over, cut)
        report = verify(summary, tracker.pages, patience=patience)
        if not patience.cut:
            state.checked = Checked(summary, tuple(tracker.sources), report)
        return report, patience.cut

    return run.journal.bounded(what, verified)


def _write_report(state: RunState, run: Run, chosen: Sequence[tuple[Source, list[Passage]]]) -> str:
    """The model's report over these passages; over half of them where the provider cannot run so many."""

    for _ in range(SHRINKS):
        material = [(source, neutralise(render_passages(source.page, passages))) for source, passages in chosen]
        messages = synthesis_messages(state.query, material, run.today, run.fence)
        try:
            reply = _asked(state, messages)
            report = report_in(reply, state.tools.tools)
            if reply.strip() and not report:
                state.warnings.append("The report was copied from the sources: the model wrote an action instead.")
            return report
        except LLMError as problem:
            if problem.kind != "prompt_too_large":
                raise
            last = problem
            chosen = [(source, passages[: (len(passages) + 1) // 2]) for source, passages in chosen]
    raise last


def _asked(state: RunState, messages: Sequence[Message]) -> str:
    """What the model writes as the report. One that it could not finish is kept, and the reader is told."""
    reply = state.model.ask(messages, for_report=True)
    if reply.finish_reason == "length":
        state.warnings.append("The report breaks off: it reached the most tokens that one answer may have.")
    return reply.text


def _answer_from_conversation(state: RunState, run: Run) -> None:
    """Write the answer of a run that asked nothing outside, from what was said; without sources there is no mending."""
    messages = conversation_messages(state.query, state.memory.render(), run.fence)
    try:
        text = report_in(_asked(state, messages), state.tools.tools)
    except LLMError as problem:
        state.stop_reason = stop_reason_of(problem, run)
        state.warnings.append(str(problem))
        return
    tracker = state.tools.tracker
    state.draft = tracker.canonical(safe_report(redact(text)))
    state.dead_tags = verify(state.draft, {}).dead_tags({})
    state.from_conversation = bool(state.draft.strip())


def stop_reason_of(problem: LLMError, run: Run) -> str:
    """Which bound, signal or fault ended a run whose model could not be asked."""

    def cut_by() -> str:
        if problem.kind == "interrupted" or run.control.stopped:
            return "interrupted"
        return "max_wall_clock_time" if problem.kind == "deadline" or run.loop_control.expired else ""

    if problem.kind in ("max_tokens", "max_cost"):
        return problem.kind
    return run.journal.decide_limit(cut_by) or "provider_error"


def _mend(state: RunState, run: Run, closing: Closing) -> None:
    """Check the draft against its pages and repair it: tags without a model, sentences with at most one call."""

    tracker, mode = state.tools.tracker, run.config.report.repair
    state.draft = tracker.canonical(state.draft)
    pages = tracker.pages
    report = _verified(state, run, closing, "the draft", state.draft)
    state.dead_tags = report.dead_tags(pages)
    if mode == "off":
        return
    checked = state.draft
    state.draft, state.changes = correct_tags(state.draft, report, pages)
    if mode == "tags":
        return
    if state.draft != checked:
        report = _verified(state, run, closing, "the draft with its tags corrected", state.draft)

    def failing(cut: Cut | None) -> tuple[list[Item], Cut]:
        patience = Patience(closing.over, cut)
        return items_to_mend(state.draft, report, pages, patience=patience), patience.cut

    items = run.journal.bounded("what is to be mended", failing)
    may_ask = items and not state.model_gone and state.stop_reason != "interrupted"
    if may_ask and run.journal.perform("time for a repair", "", bool, lambda: run.control.remaining() > REPAIR_SECONDS):
        try:
            reply = state.model.ask(repair_messages(items), for_report=True, show=False)
            state.draft, more = _rewritten(state, run, closing, items, visible_text(reply.text))
            state.changes += more
        except LLMError as problem:
            run.emit(NoticeEvent(f"failing sentences could not be repaired: {problem}"))
    if mode == "strict":
        report = _verified(state, run, closing, "the mended draft", state.draft)
        state.draft, more = remove_unsupported(state.draft, report)
        state.changes += more


def _rewritten(
    state: RunState, run: Run, closing: Closing, items: Sequence[Item], answers: str
) -> tuple[str, tuple[Change, ...]]:
    """The draft with those of the model's sentences that are better borne out."""
    pages, strict = state.tools.tracker.pages, run.config.report.repair == "strict"

    def applied(cut: Cut | None) -> tuple[tuple[str, tuple[Change, ...]], Cut]:
        patience = Patience(closing.over, cut)
        return apply_answers(state.draft, items, answers, pages, may_drop=strict, patience=patience), patience.cut

    return run.journal.bounded("the rewritten sentences", applied)


def conclude(state: RunState, run: Run, started: float, services: Sequence[str]) -> FinalOutput:
    """The result of a run: tags resolved, every citation judged, the outcome named. services: who got the question."""

    tracker = state.tools.tracker
    summary, cited = tracker.finalize(state.draft)
    closing = Closing(run.control)
    grounding = _verified(state, run, closing, "the report", summary).with_dead_tags(state.dead_tags)
    outcome = _outcome(state, grounding)
    if state.from_conversation:
        state.warnings.append(NO_SOURCES_USED)
    elif not grounding.supported and not grounding.counts()["unchecked"]:
        summary, cited = _without_claims(state, grounding), []
    elif not grounding.supported:
        state.warnings.append("No citation of this report could be checked; read the sources yourself.")
    if state.stop_reason in ("agent_finished", "no_progress") and outcome == "failed":
        state.stop_reason = "search_error"
    pages = {source.number: source.page for source in cited}

    def compared(cut: Cut | None) -> tuple[tuple[tuple[tuple[int, ...], ...], tuple[Disagreement, ...]], Cut]:
        patience = Patience(closing.over, cut)
        groups = origins(pages, patience=patience)
        return (groups, disagreements(grounding, pages, patience=patience)), patience.cut

    groups, differing = run.journal.bounded("the sources with each other", compared)
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
        origins=groups,
        disagreements=differing,
        usage=state.budget.usage,
        cost_usd=None if state.budget.unpriced_calls else state.budget.cost_usd,
        failover=tuple(state.model.failover),
        services=tuple(services),
        engines=tuple(state.tools.engines),
    )


def _outcome(state: RunState, grounding: GroundingReport) -> Outcome:
    # A search that the run's own limit cut short says nothing about the engine.
    cut = "timeout" if state.stop_reason == "max_wall_clock_time" else ""
    searches = [e.status for e in state.tools.ledger if e.kind == "search" and e.status != cut]
    all_failed = bool(searches) and all(status not in ("ok", "no_results", "bad_query") for status in searches)
    nothing_read = not state.tools.tracker.sources
    if state.stop_reason == "interrupted":
        return "partial"
    if state.from_conversation:
        return "answered"
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
    tried = [f"- {e.kind} {e.target!r}: {in_words(e.status)}" for e in state.tools.ledger]
    return "\n".join([text, *(["", "Tried:", *tried] if tried else [])])
