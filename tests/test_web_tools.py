"""The chat's parts by themselves: the second search, the queue to the page, the draft, what is shown of events."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import config
from config import load_config
from m3.records import (
    ActionEvent,
    FetchedPage,
    FinalEvent,
    LimitEvent,
    NoticeEvent,
    ObservationEvent,
    RunControl,
    SearchOutcome,
    SearchResult,
    TextDelta,
)
from m3.report import FinalOutput
from m3.search import WebSearchTool
from tests.provider import Clock
from web.backend.agent import DraftText, Feed, View
from web.backend.files import Uploads
from web.backend.tools.file_reader import parts_of
from web.backend.tools.web_search import RETRY_SECONDS, SEARCH_SECONDS, ChatSearch, chat_tools

BLOCKED = FetchedPage("https://b.example", "blocked", error="no")
FOUND = SearchOutcome((SearchResult("Tea", "https://tea.example/"),), "x", "ok")


class Engine:
    """A search engine that answers with these outcomes in turn, each after so many virtual seconds."""

    engine = "x"

    def __init__(self, clock: Clock, *outcomes: SearchOutcome, seconds: float = 0.5) -> None:
        self.clock, self.outcomes, self.seconds = clock, list(outcomes), seconds
        self.asked: list[float] = []

    def search(self, query: str, *, max_results: int, control: RunControl | None = None) -> SearchOutcome:
        self.asked.append(self.clock.now)
        self.clock.now += self.seconds
        return self.outcomes.pop(0)


def fault(status: str, **more: Any) -> SearchOutcome:
    return SearchOutcome(engine="x", status=status, detail="no", **more)  # type: ignore[arg-type]


# --- searching -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["blocked", "throttled", "unavailable", "timeout"])
def test_a_refusal_that_may_pass_is_asked_once_more_after_two_seconds(status: str) -> None:
    clock = Clock()
    engine = Engine(clock, fault(status), FOUND)
    outcome = ChatSearch([engine]).search("tea", control=clock.control())
    assert outcome.status == "ok" and len(engine.asked) == 2
    assert engine.asked[1] - engine.asked[0] == RETRY_SECONDS + 0.5


@pytest.mark.parametrize("status", ["auth", "quota", "bad_query"])
def test_what_a_moment_does_not_mend_is_not_asked_again(status: str) -> None:
    clock = Clock()
    engine = Engine(clock, fault(status), FOUND)
    assert ChatSearch([engine]).search("tea", control=clock.control()).status == status and len(engine.asked) == 1


def test_no_results_of_an_engine_that_answered_are_taken_at_its_word() -> None:
    clock = Clock()
    engine = Engine(clock, SearchOutcome(engine="x", status="no_results"), FOUND)
    assert ChatSearch([engine]).search("tea", control=clock.control()).status == "no_results"


def test_a_search_and_its_second_try_keep_within_eight_seconds() -> None:
    clock = Clock()
    began = clock.now
    engine = Engine(clock, fault("unavailable"), fault("unavailable"), seconds=6.5)
    assert ChatSearch([engine]).search("tea", control=clock.control()).status == "unavailable"
    assert len(engine.asked) == 1 and clock.now - began <= SEARCH_SECONDS
    patient = Engine(clock, fault("throttled", retry_after=30.0), FOUND)
    assert ChatSearch([patient]).search("tea", control=clock.control()).status == "throttled"
    assert len(patient.asked) == 1


def test_what_one_run_found_broken_is_no_matter_of_the_next() -> None:
    clock = Clock()
    engine = Engine(clock, fault("auth"), FOUND)
    shared = WebSearchTool([engine])
    assert ChatSearch.like(shared).search("tea", control=clock.control()).status == "auth"
    assert ChatSearch.like(shared).search("tea", control=clock.control()).status == "ok"


def test_a_page_has_six_seconds_or_less_where_the_settings_say_so(tmp_path: Path) -> None:
    documents = Uploads(tmp_path / "u").documents
    for env, seconds in (({}, 6.0), ({"FETCH_TIMEOUT": "2"}, 2.0), ({"FETCH_TIMEOUT": "60"}, 6.0)):
        search, fetcher = chat_tools(load_config(env), documents)
        assert fetcher._timeout_s == seconds and documents in search.documents


def test_ddgs_is_part_of_what_the_chat_installs() -> None:
    wanted = (Path(config.PROGRAM_DIR) / "web" / "requirements.txt").read_text().split("\n")
    assert config.DDGS_PACKAGE in wanted
    assert {line.split(">")[0] for line in wanted if line and line[0] != "#"} == {
        "fastapi", "uvicorn", "sse-starlette", "python-multipart", "ddgs",
    }  # fmt: skip


# --- from the thread to the page -------------------------------------------------------------------------


def test_the_queue_keeps_order_between_threads_and_joins_text_that_nobody_took() -> None:
    async def listen() -> list[dict[str, Any]]:
        feed = Feed(asyncio.get_running_loop())

        def work() -> None:
            for i in range(500):
                feed.put({"type": "text", "content": f"{i} "})
                if i % 100 == 99:
                    feed.put({"type": "notice", "content": str(i)})
            feed.close()

        thread = threading.Thread(target=work)
        thread.start()
        found = [event async for event in feed]
        thread.join()
        return found

    events = asyncio.run(asyncio.wait_for(listen(), 20))
    assert "".join(e["content"] for e in events if e["type"] == "text") == "".join(f"{i} " for i in range(500))
    assert [e["content"] for e in events if e["type"] == "notice"] == ["99", "199", "299", "399", "499"]


def test_a_queue_without_a_listener_holds_one_piece_of_text_and_never_blocks() -> None:
    async def fill() -> int:
        feed = Feed(asyncio.get_running_loop())
        return max(feed.put({"type": "text", "content": "x" * 100}) for _ in range(10_000))

    assert asyncio.run(fill()) == 1


@pytest.mark.parametrize("size", [1, 3, 7, 50, 400])
def test_a_key_in_a_draft_is_never_shown_in_halves(size: int) -> None:
    secret = "sk-proj-0123456789abcdefghijklmnop"
    text = f"The key is {secret} and that is\nall. {secret}"
    draft = DraftText()
    shown = "".join(draft.feed(text[i : i + size]) for i in range(0, len(text), size)) + draft.close()
    assert shown == "The key is [redacted] and that is\nall. [redacted]"


def test_a_draft_without_blanks_is_shown_all_the_same() -> None:
    draft = DraftText()
    shown = "".join(draft.feed("茶" * 50) for _ in range(20))
    assert len(shown) >= 500 and shown + draft.close() == "茶" * 1_000


def viewed(*events: Any) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    view = View(shown.append)
    for event in events:
        view(event)
    return shown


def test_a_call_that_the_end_of_the_run_left_open_is_closed_before_done() -> None:
    shown = viewed(ActionEvent(1, "search_web", {"query": "tea"}), FinalEvent(FinalOutput("q", "", outcome="partial")))
    assert [e["type"] for e in shown] == ["tool_call", "observation", "done"]
    assert shown[1]["id"] == shown[0]["id"] == "c1" and not shown[1]["ok"]


def test_finish_is_no_tool_call_and_a_limit_is_a_sentence() -> None:
    shown = viewed(
        ActionEvent(1, "finish", {}), LimitEvent("max_tokens", "the run ends: max_tokens"), NoticeEvent("hm")
    )
    assert [e["type"] for e in shown] == ["notice", "notice"] and "token budget" in shown[0]["content"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (ObservationEvent(1, "search_web", "R1. x", results=(FOUND.results[0],)), "1 result"),
        (ObservationEvent(1, "search_web", "R1. x", results=FOUND.results * 5), "5 results"),
        (ObservationEvent(1, "search_web", "No results for 'x'. Try"), "No results for 'x'. Try"),
        (ObservationEvent(1, "fetch_page", "", pages=(FetchedPage("https://a.example", "ok"),)), "1 page read"),
        (ObservationEvent(1, "read_file", "", pages=(FetchedPage("a.txt", "ok"),)), "1 file read"),
        (
            ObservationEvent(1, "fetch_page", "", pages=(FetchedPage("https://a.example", "ok"),) * 2
                             + (BLOCKED,)),
            "2 pages read, 1 could not be read",
        ),
        (
            ObservationEvent(1, "fetch_page", "", False, pages=(BLOCKED,)),
            "1 page could not be read: no",
        ),
    ],
)  # fmt: skip
def test_what_an_action_brought_is_one_short_line(event: ObservationEvent, line: str) -> None:
    assert viewed(event)[0]["content"] == line


def test_nothing_that_is_shown_holds_a_key_a_control_character_or_a_megabyte() -> None:
    nasty = "sk-proj-0123456789abcdefghijklmnop \x1b[31m\u2028\ud800" + "x" * 1_000_000
    page = FetchedPage(nasty, "network", error=nasty)
    shown = viewed(
        ActionEvent(1, "fetch_page", {"url": nasty, "urls": [nasty] * 3, "n": 1, "o": {"a": nasty}}),
        ObservationEvent(1, "fetch_page", nasty, False, pages=(page,)),
        ObservationEvent(1, "search_web", nasty, results=(SearchResult(nasty, nasty, nasty),)),
        NoticeEvent(nasty),
        TextDelta("a \x1b\ud800 b "),
        FinalEvent(replace(FinalOutput("q", "s"), warnings=(nasty,), stop_reason="provider_error")),
    )
    text = json.dumps(shown, ensure_ascii=False)
    assert "sk-proj" not in text and "\x1b" not in text and "\u2028" not in text and len(text) < 60_000
    text.encode("utf-8")


@pytest.mark.parametrize("text", ["", "a", "a" * 50_000, "a\n" * 20_000, "wort " * 9_000, "茶" * 30_000])
def test_parts_of_a_text_are_bounded_and_lose_nothing_but_line_ends(text: str) -> None:
    parts = parts_of(text, 1_000)
    assert all(len(part) <= 1_000 for part in parts)
    assert "".join(parts).replace("\n", "") == text.replace("\n", "")
