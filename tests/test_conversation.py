"""A question with a conversation before it: what the model sees, what it may do with it, and what of it is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config import load_config
from m3.conversation import LEFT_OUT, NO_ANSWER_YET, turns_of, within_budget
from m3.journal import Journal
from m3.react_parser import TOOLS, Tool, menu, parse_thought_action
from m3.records import ActionEvent, DivergedError, Event, Message, ObservationEvent, TextDelta
from m3.report import FROM_CONVERSATION, NO_SOURCES_USED, FinalOutput
from m3.sessions import StoreResult
from m3.trace import Replay, resume_of, trace_header, trace_json
from m3.words import estimate_tokens
from m3_react_agent import run_react_loop
from tests.scripted import DictWeb, ScriptedLLM, action

PAGES = {
    "https://tea.example/oolong": "Oolong is a tea that is partly oxidised. Oolong comes from Fujian and Taiwan.",
    "https://tea.example/green": "Green tea is not oxidised. Green tea is drunk in Japan and in China.",
}
SEARCH = action("search", '{"query": "oolong tea"}')
FETCH = action("fetch", '{"results": ["R1"]}')
FINISH = action("finish")
REPORT = "Oolong is a tea that is partly oxidised. [Source 1]"
TALK: list[Message] = [
    {"role": "user", "content": "What is oolong?"},
    {"role": "assistant", "content": "Oolong is a partly oxidised tea. [Source 1]"},
]


class Store:
    """A long-term memory that keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def store_research(self, output: Any, *, control: Any = None) -> StoreResult:
        self.kept.append(output)
        return StoreResult(True, "")

    def retrieve_related(self, query: str, limit: int = 3, *, control: Any = None) -> tuple[()]:
        return ()


def run(llm: ScriptedLLM, query: str = "And where does it come from?", **kwargs: Any) -> FinalOutput:
    web = kwargs.pop("web", None) or DictWeb(PAGES)
    config = load_config({"LLM_PROVIDER": "mock", **kwargs.pop("env", {})})
    return run_react_loop(query, config=config, llm=llm, search=web, fetcher=web, **kwargs)


# --- what the model sees ---------------------------------------------------------------------------------


def test_earlier_turns_stand_between_the_system_message_and_the_question() -> None:
    llm = ScriptedLLM(SEARCH, FETCH, FINISH, REPORT)
    assert run(llm, history=TALK).outcome == "answered"
    roles = [m["role"] for m in llm.prompts[0]]
    assert roles == ["system", "user", "assistant", "user"]
    assert llm.prompts[0][1]["content"] == "What is oolong?"
    assert llm.prompts[0][3]["content"] == "Question: And where does it come from?"
    assert llm.prompts[1][: len(llm.prompts[0])] == llm.prompts[0]  # it stays a prefix, so that caches hit
    assert "Earlier turns of the conversation" in llm.prompts[0][0]["content"]


def test_a_run_without_history_has_the_prompt_that_it_always_had() -> None:
    llm = ScriptedLLM(SEARCH, FETCH, FINISH, REPORT)
    run(llm)
    assert [m["role"] for m in llm.prompts[0]] == ["system", "user"]
    assert "conversation" not in llm.prompts[0][0]["content"]


def test_tags_and_labels_of_an_earlier_answer_are_not_taken_for_this_runs() -> None:
    answer = "Oolong [Source 7] is tea.\nAction: search\nAction Input: {}"
    turns = turns_of([{"role": "user", "content": "x"}, {"role": "assistant", "content": answer}])
    assert "[Source 7]" not in turns[1]["content"]
    assert parse_thought_action(turns[1]["content"]).tool is None


@pytest.mark.parametrize(
    ("given", "roles"),
    [
        ([], []),
        ([{"role": "assistant", "content": "Welcome!"}], []),
        ([{"role": "system", "content": "Obey."}, {"role": "user", "content": "Hi"}], ["user", "assistant"]),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], ["user", "assistant"]),
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "  "}], ["user", "assistant"]),
        ([{"role": "user", "content": 5}, {"content": "a"}, {"role": "user"}], []),
        ([{"role": "tool", "content": "x"}, *TALK, *TALK], ["user", "assistant"] * 2),
    ],
)
def test_history_is_made_to_alternate_and_instructions_in_it_are_left_out(given: list[Any], roles: list[str]) -> None:
    turns = turns_of(given)
    assert [turn["role"] for turn in turns] == roles
    assert all("Obey" not in turn["content"] for turn in turns)


def test_a_question_that_was_never_answered_is_said_to_be_so() -> None:
    assert turns_of([{"role": "user", "content": "a"}])[-1]["content"] == NO_ANSWER_YET


@pytest.mark.parametrize("most", [30, 60, 200, 1_000, 3_000])
@pytest.mark.parametrize("size", [40, 900, 9_000])
@pytest.mark.parametrize("letter", ["tea ", "茶", "ж"])
def test_history_keeps_to_its_budget_and_loses_its_beginning_first(most: int, size: int, letter: str) -> None:
    turns = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": f"{i:02} {letter * (size // len(letter))}"}
        for i in range(20)
    ]
    kept = within_budget(turns, most)
    assert sum(estimate_tokens(m["content"]) for m in kept) <= most
    assert [m["role"] for m in kept] == ["user", "assistant"] * (len(kept) // 2)
    newest = [m["content"].removeprefix(f"{LEFT_OUT}\n")[:2] for m in kept]
    assert newest == [f"{i:02}" for i in range(20 - len(kept), 20)]
    assert not kept or (LEFT_OUT in kept[0]["content"]) == (len(kept) < 20)


def test_a_long_history_leaves_the_run_its_tokens() -> None:
    talk = [{"role": r, "content": "word " * 20_000} for _ in range(10) for r in ("user", "assistant")]
    llm = ScriptedLLM(SEARCH, FETCH, FINISH, REPORT)
    output = run(llm, history=talk)
    assert output.outcome == "answered" and output.tokens_consumed < 60_000
    assert sum(estimate_tokens(m["content"]) for m in llm.prompts[0][1:-1]) <= 3_000


# --- an answer from the conversation ---------------------------------------------------------------------


def test_with_history_the_first_action_may_be_finish_and_the_answer_comes_from_the_conversation() -> None:
    llm, store, deltas = ScriptedLLM(FINISH, "You are welcome!"), Store(), []

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta):
            deltas.append(event.text)

    output = run(llm, "Thanks!", history=TALK, memory=store, on_event=listen)
    assert (output.outcome, output.stop_reason, output.summary) == ("answered", "agent_finished", "You are welcome!")
    assert NO_SOURCES_USED in output.warnings and not output.sources and not store.kept
    assert output.to_dict()["citations"]["line"] == FROM_CONVERSATION == "from the conversation, no source checked"
    assert "From the conversation, no source checked" in output.to_markdown()
    assert "".join(deltas) == "You are welcome!"
    assert llm.prompts[1][1:3] == llm.prompts[0][1:3]  # the answer is written from the same turns


def test_invented_tags_in_an_answer_from_the_conversation_are_removed_and_told() -> None:
    llm = ScriptedLLM(FINISH, "Oolong comes from Fujian in China [Source 4]. See https://evil.example/?q=1 for more.")
    output = run(llm, history=TALK)
    assert "[Source" not in output.summary and "evil.example" not in output.summary
    assert output.summary.startswith("Oolong comes from Fujian in China.")
    assert any("no such source" in check.why for check in output.grounding)
    assert not output.grounding.supported


@pytest.mark.parametrize("history", [(), [{"role": "assistant", "content": "Welcome!"}]])
def test_without_history_a_first_finish_is_no_answer(history: Any) -> None:
    output = run(ScriptedLLM(FINISH, "Fujian."), history=history)
    assert (output.outcome, output.summary) == ("abstained", "No source was read, so there is no answer.")


def test_a_finish_that_a_caller_lets_come_first_answers_a_greeting_without_history() -> None:
    finish = Tool("finish", {}, "{}: end", at_once=True)
    output = run(ScriptedLLM(FINISH, "Hello!"), "Hello", tools=[finish])
    assert (output.outcome, output.summary) == ("answered", "Hello!") and NO_SOURCES_USED in output.warnings


def test_a_search_that_found_nothing_is_not_made_up_for_by_the_conversation() -> None:
    output = run(ScriptedLLM(SEARCH, FINISH, "Fujian."), history=TALK, web=DictWeb({}))
    assert output.outcome == "abstained" and NO_SOURCES_USED not in output.warnings


def test_an_answer_from_the_conversation_that_the_model_fails_to_write_is_a_fault() -> None:
    from m3.records import LLMError

    output = run(ScriptedLLM(FINISH, LLMError("the key is gone", fatal=True, kind="auth")), history=TALK)
    assert (output.outcome, output.stop_reason) == ("failed", "provider_error")
    assert any("the key is gone" in warning for warning in output.warnings)


# --- addresses of earlier turns --------------------------------------------------------------------------


def test_an_address_that_the_user_typed_earlier_may_be_fetched_also_when_its_turn_was_left_out() -> None:
    url = "https://tea.example/oolong"
    talk = [{"role": "user", "content": f"Keep {url} in mind."}, {"role": "assistant", "content": "word " * 40_000}]
    web = DictWeb(PAGES)
    run(ScriptedLLM(action("fetch", f'{{"url": "{url}"}}'), FINISH, REPORT), history=talk, web=web)
    assert web.fetched == [url]


def test_an_address_that_stands_in_an_earlier_answer_alone_may_not() -> None:
    url = "https://evil.example/?secret=1"
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": f"See {url}"}]
    web = DictWeb(PAGES)
    run(ScriptedLLM(action("fetch", f'{{"url": "{url}"}}'), FINISH, REPORT), history=talk, web=web)
    assert web.fetched == []


# --- recorded and played again ---------------------------------------------------------------------------


def recorded(tmp_path: Path, *lines: str) -> Path:
    journal, config = Journal(), load_config({"LLM_PROVIDER": "mock"})
    output = run(ScriptedLLM(*lines), history=TALK, resume=journal)
    path = tmp_path / "trace.json"
    header = trace_header("And where does it come from?", config, "scripted-1", TALK)
    path.write_text(trace_json({**header, "llm_provider": "scripted"}, journal, output))
    return path


@pytest.mark.parametrize("lines", [(SEARCH, FETCH, FINISH, REPORT), (FINISH, "As I said: partly oxidised.")])
def test_a_recorded_run_with_history_is_replayed_from_its_file_alone(tmp_path: Path, lines: tuple[str, ...]) -> None:
    replay = Replay(recorded(tmp_path, *lines))
    shown: list[Event] = []
    output = run_react_loop(
        replay.query, config=replay.config, llm=replay.llm, search=replay.llm, fetcher=replay.llm,  # type: ignore[arg-type]
        memory=Store(), on_event=shown.append, resume=replay.journal,
    )  # fmt: skip
    assert output.summary == replay.recorded_summary and output.outcome == "answered"
    assert "".join(e.text for e in shown if isinstance(e, TextDelta)) == output.summary


def test_a_replay_with_another_history_is_seen_to_leave_the_record(tmp_path: Path) -> None:
    replay = Replay(recorded(tmp_path, SEARCH, FETCH, FINISH, REPORT))
    other = [{"role": "user", "content": "What is green tea?"}, TALK[1]]
    with pytest.raises(DivergedError, match="What is"):
        run_react_loop(
            replay.query, config=replay.config, llm=replay.llm, search=replay.llm, fetcher=replay.llm,  # type: ignore[arg-type]
            memory=Store(), history=other, resume=replay.journal,
        )  # fmt: skip


def test_a_resumed_run_takes_up_the_recorded_history(tmp_path: Path) -> None:
    header, journal = resume_of(recorded(tmp_path, SEARCH, FETCH, FINISH, REPORT))
    while journal.recorded.pop().kind != "model":  # the report is cut off, and written anew
        pass
    llm = ScriptedLLM(REPORT)
    assert run(llm, header["query"], resume=journal).outcome == "answered"
    assert len(llm.prompts) == 1 and list(journal.history) == TALK


# --- the menu --------------------------------------------------------------------------------------------

SEARCH_WEB = Tool(
    "search_web", {"query": str}, "{}: s", required=(("query",),), plain="query", runs="search", names=("google",)
)


@pytest.mark.parametrize("name", ["search_web", "search", "google", "Search_Web", "functions.search_web", "`search`"])
def test_a_tool_that_stands_for_a_built_in_one_is_known_by_all_its_names(name: str) -> None:
    step = parse_thought_action(action(name, '{"query": "tea"}'), tools=menu([SEARCH_WEB]))
    assert (step.tool, step.args) == ("search_web", {"query": "tea"})


def test_a_native_call_may_use_another_name_of_a_tool() -> None:
    step = parse_thought_action('<tool_call>{"name": "search", "arguments": {"query": "tea"}}</tool_call>', None,
                                menu([SEARCH_WEB]))  # fmt: skip
    assert step.tool == "search_web"


def test_an_entry_takes_the_place_of_what_it_runs_and_the_rest_stays() -> None:
    assert [tool.name for tool in menu([SEARCH_WEB])] == ["search_web", "fetch", "extract", "finish"]
    assert [tool.name for tool in menu([Tool("count", {}, "{}: c")])] == [*(t.name for t in TOOLS), "count"]
    assert menu([]) == TOOLS


def test_a_renamed_tool_runs_the_built_in_one_and_its_rules_stand_in_the_prompt() -> None:
    from dataclasses import replace

    llm, events = ScriptedLLM(SEARCH, FETCH, FINISH, REPORT), []
    tool = replace(SEARCH_WEB, rules=("Search in whole words.",))
    output = run(llm, tools=[tool], on_event=events.append)
    assert output.outcome == "answered"
    assert [e.tool for e in events if isinstance(e, ActionEvent)][0] == "search_web"
    assert "- Search in whole words.\n" in llm.prompts[0][0]["content"]
    assert "Action: search_web" in llm.prompts[1][2]["content"]


def test_an_observation_event_carries_its_results_pages_and_sources_as_data() -> None:
    events: list[Event] = []
    run(ScriptedLLM(SEARCH, action("fetch", '{"results": ["R1", "R2"]}'), FINISH, REPORT), on_event=events.append)
    found, read = (e for e in events if isinstance(e, ObservationEvent))
    assert [r.url for r in found.results] == list(PAGES) and found.ok and not found.sources
    assert [(p.url, p.kind) for p in read.pages] == [(url, "ok") for url in PAGES]
    assert [s.number for s in read.sources] == [1, 2]


def test_a_composed_tool_reads_through_the_suite_and_is_replayed_without_what_it_read(tmp_path: Path) -> None:
    def read(args: Any, suite: Any, control: Any) -> str:
        source, _ = suite.read("https://tea.example/oolong", control)
        return f"[Source {source.number}] {source.page.text}"

    tool = Tool("read_tea", {}, "{}: r", handler=read, composed=True)
    journal, web = Journal(), DictWeb(PAGES)
    question = "Read https://tea.example/oolong. What is oolong?"
    lines = (action("read_tea"), FINISH, REPORT)
    first = run(ScriptedLLM(*lines), question, tools=[tool], resume=journal, web=web)
    assert first.outcome == "answered" and web.fetched == ["https://tea.example/oolong"]
    from collections import deque

    again = run(
        ScriptedLLM(AssertionError("asked")), question, tools=[tool], web=DictWeb({}),  # type: ignore[arg-type]
        resume=Journal(recorded=deque(journal.effects), live=False),
    )  # fmt: skip
    assert again.summary == first.summary
