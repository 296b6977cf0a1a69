"""The loop under models, tools and limits that misbehave: always a labelled, honest result."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Sequence
from typing import Any, get_args

import pytest

from config import load_config
from m3.cli import Progress
from m3.grounding import GroundingReport, verify
from m3.react_parser import Tool
from m3.records import (
    STATUS_WORDS,
    Event,
    FetchedPage,
    FetchKind,
    LLMError,
    Message,
    ObservationEvent,
    RunControl,
    SearchOutcome,
    SearchStatus,
    in_words,
)
from m3.report import FinalOutput
from m3_react_agent import run_react_loop
from tests.scripted import DictWeb, FailingSearch, ScriptedLLM, action
from web.backend.agent import done_event, observation_items, observation_line

PAGES = {
    "https://tea.example/oolong": "Oolong is a tea that is partly oxidised. Oolong comes from Fujian and Taiwan.",
    "https://tea.example/green": "Green tea is not oxidised. Green tea is drunk in Japan and in China.",
}
SEARCH = action("search", '{"query": "oolong tea"}')
FETCH = action("fetch", '{"results": ["R1", "R2"]}')
FINISH = action("finish")
REPORT = "Oolong is a tea that is partly oxidised. [Source 1] Green tea is not oxidised. [Source 2]"


def run(llm: ScriptedLLM, web: Any = None, query: str = "What is oolong tea?", **kwargs: Any) -> FinalOutput:
    web = web or DictWeb(PAGES)
    env = {"LLM_PROVIDER": "mock", **kwargs.pop("env", {})}
    return run_react_loop(query, config=load_config(env), llm=llm, search=web, fetcher=web, **kwargs)


def test_search_fetch_finish_ends_answered_with_the_models_report() -> None:
    output = run(ScriptedLLM(SEARCH, FETCH, FINISH, REPORT))
    assert (output.outcome, output.stop_reason, output.iterations_used) == ("answered", "agent_finished", 3)
    assert [s.url for s in output.sources] == list(PAGES)
    assert output.summary == REPORT
    assert output.exit_code == 0


def test_a_report_that_stays_as_it_was_drafted_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def counted(summary: str, *more: Any, **named: Any) -> GroundingReport:
        checked.append(summary)
        return verify(summary, *more, **named)

    monkeypatch.setattr("m3.synthesis.verify", counted)
    assert run(ScriptedLLM(SEARCH, FETCH, FINISH, REPORT)).summary == REPORT and checked == [REPORT]
    checked.clear()
    swapped = REPORT.replace("Source 1", "Source 3").replace("Source 2", "Source 1").replace("Source 3", "Source 2")
    output = run(ScriptedLLM(SEARCH, FETCH, FINISH, swapped))
    assert len(checked) == len(set(checked)) > 1  # its tags were corrected, and the sources numbered anew
    assert output.grounding.counts()["matched"] == 2


def test_the_prompt_of_a_run_only_grows_and_holds_canonical_turns_and_budget_lines() -> None:
    llm = ScriptedLLM(
        "Sure!\n**Thought:** go\n**Action:** search\n**Action Input:** {'query': 'oolong'}", FETCH, FINISH, REPORT
    )
    run(llm)
    first, second, third, _ = llm.prompts
    assert second[: len(first)] == first and third[: len(second)] == second
    assert first[0]["role"] == "system" and first[1] == {"role": "user", "content": "Question: What is oolong tea?"}
    assert second[2]["content"] == 'Thought: go\nAction: search\nAction Input: {"query": "oolong"}'
    observation = second[3]["content"]
    assert re.match(r"Observation:\n<(data-[0-9a-f]{8})>\nR1\. oolong[^<]*</\1>\nThe question is still: ", observation)
    assert re.search(r"\[step 1/10 · \d+ tokens left · \d+ s left\]$", second[3]["content"])
    assert "[Source 1] oolong" in third[-1]["content"]


def test_a_turn_that_cannot_be_read_is_asked_again_with_its_exact_fault_and_costs_no_iteration() -> None:
    llm = ScriptedLLM("I would search now.", action("seerch", '{"query": "x"}'), SEARCH, FETCH, FINISH, REPORT)
    output = run(llm)
    assert output.outcome == "answered" and output.iterations_used == 3
    assert "there is no line 'Action: <tool>'" in llm.prompts[1][-1]["content"]
    assert "seerch" in llm.prompts[2][-1]["content"]
    assert "I would search now." not in str(llm.prompts[1:])


def test_garbage_for_ever_searches_the_question_twice_and_then_ends_with_no_progress() -> None:
    web = DictWeb(PAGES)
    output = run(ScriptedLLM("garbage"), web, query='What is "oolong" site:tea.example?')
    assert (output.outcome, output.stop_reason, output.exit_code) == ("partial", "no_progress", 3)
    assert web.searched == ['What is "oolong" site:tea.example?', "What is  oolong"] or len(web.searched) == 2
    assert "site:" not in web.searched[1] and '"' not in web.searched[1]
    assert output.summary.startswith("No source was read")


@pytest.mark.parametrize("fault", [LLMError("the key is wrong", fatal=True), RuntimeError("boom"), TimeoutError()])
def test_a_model_that_raises_on_every_call_ends_failed_and_says_why(fault: Exception) -> None:
    output = run(ScriptedLLM(fault))
    assert (output.outcome, output.stop_reason, output.exit_code) == ("failed", "provider_error", 1)
    assert any((str(fault) or type(fault).__name__) in warning for warning in output.warnings)


def test_a_model_that_breaks_after_reading_gives_a_partial_report_from_what_was_read() -> None:
    output = run(ScriptedLLM(SEARCH, FETCH, LLMError("gone")))
    assert (output.outcome, output.stop_reason) == ("partial", "provider_error")
    assert "Oolong is a tea that is partly oxidised. [Source 1]" in output.summary


def test_a_report_call_that_fails_is_replaced_by_sentences_copied_from_the_pages() -> None:
    output = run(ScriptedLLM(SEARCH, FETCH, FINISH, LLMError("overloaded")))
    assert output.outcome == "answered"
    assert "Oolong is a tea that is partly oxidised. [Source 1]" in output.summary
    assert any("without a model" in warning for warning in output.warnings)


def test_a_report_without_a_citation_is_withheld() -> None:
    output = run(ScriptedLLM(SEARCH, FETCH, FINISH, "Oolong was invented on the moon."))
    assert (output.outcome, output.exit_code) == ("abstained", 4)
    assert "moon" not in output.to_markdown()


def test_finishing_without_reading_abstains_and_asks_for_no_report() -> None:
    llm = ScriptedLLM(SEARCH, FINISH, REPORT)
    output = run(llm)
    assert output.outcome == "abstained" and len(llm.prompts) == 2
    assert not output.sources and "[Source" not in output.summary


def test_when_search_is_down_the_run_fails_early_and_lists_what_was_tried() -> None:
    web = FailingSearch()
    llm = ScriptedLLM(*(action("search", f'{{"query": "try {i}"}}') for i in range(20)))
    output = run(llm, web, env={"MAX_ITERATIONS": "15"})
    assert (output.outcome, output.stop_reason, output.exit_code) == ("failed", "search_error", 1)
    assert len(web.searched) == 3
    assert "the engine is down" in output.to_markdown()


def test_a_model_that_gives_up_on_a_broken_search_is_failed_not_abstained() -> None:
    output = run(ScriptedLLM(SEARCH, FINISH), FailingSearch("timeout"))
    assert (output.outcome, output.stop_reason) == ("failed", "search_error")


def test_the_same_action_is_answered_from_memory_once_and_ends_the_loop_the_third_time() -> None:
    web = DictWeb(PAGES)
    llm = ScriptedLLM(SEARCH, FETCH, FETCH, FETCH, REPORT)
    output = run(llm, web)
    assert web.fetched == list(PAGES)
    assert "You did this before" in llm.prompts[3][-1]["content"]
    assert (output.outcome, output.stop_reason) == ("partial", "no_progress")
    assert output.summary == REPORT


@pytest.mark.parametrize(
    ("turns", "pages", "told", "said"),
    [
        ((SEARCH, FETCH, FETCH), PAGES, "You did this before", "done before; the result is the same"),
        (
            (SEARCH, action("search", '{"query": "tea, oolong"}')), PAGES, "Read some of them",
            "searched before as 'oolong tea'; the results are the same",
        ),
        ((SEARCH,), {}, "Try other words", "No results for 'oolong tea'."),
        (
            (SEARCH, action("fetch", '{"results": ["R1"]}'), action("fetch", '{"results": ["R2"]}')), PAGES,
            "Use extract or finish", "1 sources have been read, which is the limit of this run.",
        ),
    ],
    ids=["the same action", "the same search in other words", "nothing found", "no more sources"],
)  # fmt: skip
def test_what_tells_the_model_to_do_something_else_is_a_plain_line_for_people(
    turns: Sequence[str], pages: dict[str, str], told: str, said: str
) -> None:
    seen: list[Event] = []
    terminal = io.StringIO()
    llm = ScriptedLLM(*turns, FINISH, REPORT)
    run(llm, DictWeb(pages), env={"MAX_SOURCES": "1"} if "sources" in said else {}, on_event=seen.append)
    assert told in llm.prompts[len(turns)][-1]["content"]  # the model is told as before
    last = [event for event in seen if isinstance(event, ObservationEvent)][-1]
    Progress(terminal)(last)
    assert terminal.getvalue() == f"Observation: [{last.step}] {said}\n"
    assert observation_line(last) == said


def test_three_searches_in_a_row_that_find_nothing_end_the_loop_with_no_progress() -> None:
    web = DictWeb({})
    output = run(ScriptedLLM(*(action("search", f'{{"query": "try {i}"}}') for i in range(9))), web)
    assert (output.outcome, output.stop_reason, output.iterations_used) == ("partial", "no_progress", 3)
    assert len(web.searched) == 3 and "- search 'try 0': no results\n" in output.summary


def test_every_outcome_of_a_search_or_a_fetch_has_its_words() -> None:
    assert set(STATUS_WORDS) == {*get_args(FetchKind), *get_args(SearchStatus)}


@pytest.mark.parametrize("status", [*get_args(SearchStatus), "odd_one"])
def test_what_was_tried_and_failed_is_told_in_words(status: str) -> None:
    output = run(ScriptedLLM(SEARCH, FINISH), FailingSearch(status))
    shown = [output.summary, output.to_markdown(), *(entry["words"] for entry in done_event(output)["ledger"])]
    assert output.to_dict()["ledger"][0]["status"] == status  # the data keep the code
    assert "- search 'oolong tea': " in shown[0] and all(shown[2:])
    for text in shown:
        assert not re.search(r"\b(?:no_results|bad_query|odd_one|auth|throttled)\b", text), text


@pytest.mark.parametrize("kind", [kind for kind in get_args(FetchKind) if kind != "ok"])
def test_a_page_that_could_not_be_read_is_told_in_words(kind: FetchKind) -> None:
    class Web(DictWeb):
        def fetch(self, url: str, *, control: RunControl | None = None) -> FetchedPage:
            return FetchedPage(url, kind, error="why")

    seen: list[Event] = []
    output = run(ScriptedLLM(SEARCH, FETCH, FINISH), Web(PAGES), on_event=seen.append)
    assert f"- fetch 'https://tea.example/oolong': {in_words(kind)}\n" in output.summary
    pill = observation_items([event for event in seen if isinstance(event, ObservationEvent)][-1])
    for text in [output.summary, pill[0]["status"]]:
        assert in_words(kind) in text and "_" not in text and not re.search(r"\brefused\b", text)


def test_a_search_that_only_repeats_an_empty_one_in_other_words_counts_as_empty() -> None:
    turns = [action("search", f'{{"query": "{query}"}}') for query in ("red teas", "the red tea", "red tea")]
    web = DictWeb({})
    output = run(ScriptedLLM(*turns), web)
    assert (output.stop_reason, output.iterations_used, len(web.searched)) == ("no_progress", 3, 1)


def test_an_empty_search_among_others_that_find_or_read_something_ends_nothing() -> None:
    class Web(DictWeb):
        def search(self, query: str, **rest: Any) -> SearchOutcome:
            return super().search(query, **rest) if "oolong" in query else SearchOutcome((), "dict", "no_results")

    empty = [action("search", f'{{"query": "nothing {i}"}}') for i in range(4)]
    output = run(ScriptedLLM(*empty[:2], SEARCH, empty[2], FETCH, empty[3], FINISH, REPORT), Web(PAGES))
    assert (output.outcome, output.iterations_used) == ("answered", 7)


def test_a_model_that_brings_no_text_at_all_is_a_provider_fault() -> None:
    class Mute(ScriptedLLM):
        def complete(self, messages: Sequence[Message], **rest: Any) -> Any:
            return None

    output = run(Mute(FINISH))
    assert (output.outcome, output.stop_reason) == ("failed", "provider_error")
    assert any("no text" in warning for warning in output.warnings)


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("MAX_ITERATIONS", "3", "max_iterations"),
        ("MAX_TOKENS", "500", "max_tokens"),
        ("MAX_WALL_CLOCK_SECONDS", "0.01", "max_wall_clock_time"),
    ],
)
def test_each_limit_alone_ends_the_offline_run_at_once_with_what_it_has(setting: str, value: str, reason: str) -> None:
    config = load_config({setting: value})
    output = run_react_loop("Compare Raptor RAG vs HyDE", config=config)
    assert (output.outcome, output.stop_reason, output.exit_code) == ("partial", reason, 3)
    assert output.iterations_used <= 3 and output.tokens_consumed <= config.limits.max_tokens
    assert output.elapsed_seconds < config.limits.max_wall_clock_seconds + 1
    assert reason in output.to_markdown() and output.summary


def test_iterations_are_cut_but_the_pages_read_still_become_a_report() -> None:
    output = run(ScriptedLLM(SEARCH, FETCH, REPORT), env={"MAX_ITERATIONS": "2"})
    assert (output.outcome, output.stop_reason, output.iterations_used) == ("partial", "max_iterations", 2)
    assert output.summary == REPORT


@pytest.mark.parametrize("tokens", [2_500, 4_000, 6_000, 9_000, 14_000])
def test_a_greedy_model_never_passes_the_token_bound(tokens: int) -> None:
    class Greedy(ScriptedLLM):
        def complete(self, messages: Sequence[Message], *, max_output_tokens: int, **rest: Any) -> Any:
            reply = super().complete(messages, max_output_tokens=max_output_tokens, **rest)
            usage = type(reply.usage)(reply.usage.prompt, max_output_tokens)  # writes as much as it may
            return type(reply)(reply.text, "stop", usage, reply.model)

    turns = [action("search", f'{{"query": "oolong {i}"}}') for i in range(20)]
    output = run(Greedy(SEARCH, FETCH, *turns), env={"MAX_TOKENS": str(tokens), "MAX_ITERATIONS": "30"})
    assert output.stop_reason == "max_tokens"
    assert 0 <= output.tokens_consumed <= tokens


def test_a_stopped_run_ends_interrupted_with_what_was_read() -> None:
    control = RunControl()

    def stop_after_fetch(event: Event) -> None:
        if isinstance(event, ObservationEvent) and event.tool == "fetch":
            control.stop("SIGINT")

    llm = ScriptedLLM(SEARCH, FETCH, FINISH, REPORT)
    output = run(llm, on_event=stop_after_fetch, control=control)
    assert (output.outcome, output.stop_reason) == ("partial", "interrupted")
    assert len(llm.prompts) == 2 and "[Source 1]" in output.summary


def test_time_is_measured_on_the_given_clock_and_a_share_is_left_for_the_report() -> None:
    now = [0.0]
    control = RunControl(clock=lambda: now[0])

    def slow(messages: Sequence[Message]) -> str:
        now[0] += 30.0
        return action("search", f'{{"query": "oolong {now[0]}"}}')

    llm = ScriptedLLM(slow)
    output = run(llm, control=control, env={"MAX_WALL_CLOCK_SECONDS": "100", "MAX_ITERATIONS": "50"})
    assert output.stop_reason == "max_wall_clock_time"
    assert len(llm.prompts) == 3  # at 90 s only the report's share of 20 s is left


def test_events_come_in_order_and_the_action_is_told_before_it_runs() -> None:
    web = DictWeb(PAGES)
    seen: list[tuple[str, int]] = []
    run(
        ScriptedLLM(SEARCH, FETCH, FINISH, REPORT),
        web,
        on_event=lambda e: seen.append((type(e).__name__, len(web.fetched))),
    )
    names = [name for name, _ in seen]
    assert names[:3] == ["ThoughtEvent", "ActionEvent", "ObservationEvent"] and names[-1] == "FinalEvent"
    assert seen[4] == ("ActionEvent", 0) and seen[5] == ("ObservationEvent", 2)


def test_a_tool_added_by_the_caller_is_in_the_prompt_and_is_run() -> None:
    clock = Tool(
        "clock",
        {"zone": str},
        '{"zone": "…"}: the time',
        required=(("zone",),),
        handler=lambda args, _: f"noon in {args['zone']}",
    )
    llm = ScriptedLLM(action("clock", '{"zone": "UTC"}'), FINISH)
    run(llm, tools=[clock])
    assert '- clock {"zone": "…"}: the time' in llm.prompts[0][0]["content"]
    assert "noon in UTC" in llm.prompts[1][-1]["content"]


def test_a_tool_that_raises_becomes_an_observation() -> None:
    def broken(args: Any, suite: Any) -> str:
        raise KeyError("zone")

    llm = ScriptedLLM(action("broken", "{}"), SEARCH, FETCH, FINISH, REPORT)
    output = run(llm, tools=[Tool("broken", {}, "{}: breaks", handler=broken)])
    assert output.outcome == "answered" and "The action failed: KeyError" in llm.prompts[1][-1]["content"]


def test_pages_that_cannot_be_read_are_listed_and_never_cited() -> None:
    llm = ScriptedLLM(
        SEARCH, action("fetch", '{"results": ["R1", "R7"], "url": "https://gone.example/x"}'), FINISH, REPORT
    )
    output = run(llm, query="What is in https://gone.example/x?")
    assert "R7: there is no such result" in llm.prompts[2][-1]["content"]
    assert [f.kind for f in output.unreadable] == ["not_found"]
    assert "https://gone.example/x answered 404" in output.to_markdown()
    assert "[Source 2]" not in output.summary


@pytest.mark.parametrize("query", ["", "  \n ", None, 7])
def test_an_empty_question_is_refused_before_anything_is_started(query: Any) -> None:
    llm = ScriptedLLM(FINISH)
    with pytest.raises(ValueError, match="empty|no text"):
        run(llm, query=query)
    assert not llm.prompts


@pytest.mark.parametrize("hangs", ["model", "report", "search", "fetch", "tool", "recall"])
@pytest.mark.parametrize("ended_by", ["clock", "stop"])
def test_nothing_that_hangs_for_ever_holds_the_run_past_its_time(hangs: str, ended_by: str) -> None:
    """Whatever a caller's own parts do: they may ignore the control, the run does not."""
    never = threading.Event()
    control = RunControl()

    def hang(*args: Any, **kwargs: Any) -> Any:
        if ended_by == "stop":
            control.stop("SIGTERM")
        never.wait(30)

    class Web(DictWeb):
        search = hang if hangs == "search" else DictWeb.search
        fetch = hang if hangs == "fetch" else DictWeb.fetch

    class Store:
        retrieve_related = hang if hangs == "recall" else staticmethod(lambda *a, **k: [])
        store_research = staticmethod(lambda *a, **k: None)

    turns: list[Any] = [SEARCH, FETCH, FINISH, REPORT]
    if hangs == "model":
        turns[1] = hang
    if hangs == "report":
        turns[3] = hang
    if hangs == "tool":
        turns.insert(0, action("hang"))
    seconds = 1.5 if ended_by == "clock" else 60.0
    started = time.monotonic()
    output = run(
        ScriptedLLM(*turns),
        Web(PAGES),
        control=control,
        memory=Store(),
        tools=[Tool("hang", {}, "{}: hangs", handler=hang)],
        env={"MAX_WALL_CLOCK_SECONDS": str(seconds)},
    )
    assert time.monotonic() - started < (seconds + 1 if ended_by == "clock" else 3)
    assert output.outcome in ("partial", "answered") and output.summary
    if hangs == "report":
        assert "[Source 1]" in output.summary  # copied without the model
    never.set()


def test_a_question_without_a_word_to_search_for_is_no_outage() -> None:
    output = run_react_loop("C?", config=load_config({"MEMORY_BACKEND": "none"}))
    assert (output.outcome, output.exit_code) == ("abstained", 4)
