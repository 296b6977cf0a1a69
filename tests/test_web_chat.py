"""The chat over real HTTP: a question as a stream of events, from a scripted model and pages on loopback."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.chat import (
    Arrived,
    Running,
    ask,
    chat_process,
    chat_server,
    edge,
    html,
    is_turn,
    of_type,
    post_question,
    read_events,
    scripted,
    streamed,
)
from tests.loopback import Reply, Request
from tests.pdfs import pdf
from tests.provider import Asked, Play, delta
from tests.scripted import action

OOLONG = "Oolong is a tea that is partly oxidised. Oolong comes from Fujian and from Taiwan."
GREEN = "Green tea is not oxidised at all. Green tea is drunk in Japan and in China every day."
RESULTS = [
    {"title": "Oolong", "url": "{web}/oolong", "content": "About oolong."},
    {"title": "Green tea", "url": "{web}/green", "content": "About green tea."},
]
SEARCH = action("search_web", '{"query": "oolong tea"}')
FETCH = action("fetch_page", '{"results": ["R1", "R2"]}')
FINISH = action("finish")
REPORT = ("Oolong is a tea that is ", "partly oxidised. [Source 1] Green tea is not ", "oxidised at all. [Source 2]")


def pages(request: Request) -> Reply:
    known = {"/oolong": ("Oolong", OOLONG), "/green": ("Green tea", GREEN)}
    if request.path not in known:
        return Reply(404, "gone")
    title, text = known[request.path]
    return html(title, *[text] * 3, "The tea plant is grown in many countries of the world. " * 8)


@pytest.fixture(scope="module")
def tea(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A chat whose model searches, reads two pages and writes a report, whatever is asked."""
    with (
        edge(scripted([SEARCH, FETCH, FINISH], *REPORT), pages, RESULTS) as (env, _, _),
        chat_server(tmp_path_factory.mktemp("tea"), {**env, "CHAT_RUNS": "30"}) as server,
    ):
        yield server


# --- one question ----------------------------------------------------------------------------------------


def test_a_question_brings_calls_observations_sources_text_and_one_done_in_this_order(tea: Running) -> None:
    events = ask(tea, "What is oolong?")
    kinds = [event["type"] for event in events]
    assert kinds[:5] == ["tool_call", "observation", "tool_call", "observation", "sources"]
    assert set(kinds[5:-1]) == {"text"} and kinds[-1] == "done"
    search, fetch = of_type(events, "tool_call")
    assert search == {"type": "tool_call", "id": "c1", "name": "search_web", "arguments": {"query": "oolong tea"}}
    assert fetch["name"] == "fetch_page" and fetch["id"] == "c2"
    found, read = of_type(events, "observation")
    assert (found["id"], found["ok"], found["content"]) == ("c1", True, "2 results")
    assert [item["title"] for item in found["items"]] == ["Oolong", "Green tea"]
    assert read["content"] == "2 pages read" and {item["status"] for item in read["items"]} == {"ok"}
    assert "".join(e["content"] for e in of_type(events, "text")) == "".join(REPORT)


def test_done_holds_the_checked_answer_its_sources_with_passages_and_the_figures(tea: Running) -> None:
    done = ask(tea, "What is oolong?")[-1]
    assert (done["outcome"], done["stop_reason"], done["no_sources_used"]) == ("answered", "agent_finished", False)
    assert done["summary"] == "".join(REPORT)
    first = done["sources"][0]
    assert (first["number"], first["title"], first["kind"]) == (1, "Oolong", "page")
    assert first["verdicts"]["matched"] == 1 and first["passages"][0]["link"].startswith(first["url"])
    check = done["checks"][0]
    assert (
        done["summary"][check["start"] : check["end"]].startswith("Oolong is a tea") and check["verdict"] == "matched"
    )
    assert done["counts"]["matched"] == 2 and done["counts_line"].startswith("2 statements, 2 cited; 2 matched")
    assert (done["llm_provider"], done["model"], done["search_provider"]) == ("openai", "m", "searxng")
    assert [entry["kind"] for entry in done["ledger"]] == ["search", "fetch", "fetch"]
    assert done["iterations_used"] == 3 and done["tokens_consumed"] > 0 and done["elapsed_seconds"] > 0


def test_a_tool_call_is_sent_before_the_tool_runs_and_text_while_it_is_written(tmp_path: Path) -> None:
    """The page is held back until the call was seen, the rest of the report until its beginning was."""
    seen_call, seen_text = threading.Event(), threading.Event()

    def slow_page(request: Request) -> Reply:
        assert seen_call.wait(20)
        return pages(request)

    def model(asked: Asked) -> Play:
        return scripted([SEARCH, FETCH, FINISH])(asked) if is_turn(asked) else Play(_held(seen_text))

    with edge(model, slow_page, RESULTS) as (env, _, _), chat_server(tmp_path, env) as server:
        with post_question(server, "What is oolong?") as response:
            for arrived in read_events(response):
                if arrived.event["type"] == "tool_call" and arrived.event["name"] == "fetch_page":
                    seen_call.set()
                if arrived.event["type"] == "text":
                    seen_text.set()
        assert arrived.event["outcome"] == "answered"


class _held(list):  # type: ignore[type-arg]
    """A streamed report whose second half waits until the first was seen."""

    def __init__(self, seen: threading.Event) -> None:
        first = "Oolong is a tea that is partly oxidised, as the page on oolong says in its first sentence. "
        super().__init__(streamed(first * 2, "Oolong is a tea that is partly oxidised. [Source 1]").body)
        self._seen = seen

    def __iter__(self) -> Iterator[Any]:
        for i, item in enumerate(list.__iter__(self)):
            assert i != 1 or self._seen.wait(20)
            yield item


class _held_after(list):  # type: ignore[type-arg]
    """A streamed report that hangs after its first piece until it is let go."""

    def __init__(self, go: threading.Event, first: str) -> None:
        super().__init__(streamed(first, "And so on.").body)
        self._go = go

    def __iter__(self) -> Iterator[Any]:
        for i, item in enumerate(list.__iter__(self)):
            assert i != 1 or self._go.wait(30)
            yield item


@pytest.mark.parametrize("names", [("search", "fetch"), ("search_web", "fetch_page"), ("web_search", "read_page")])
def test_the_loops_own_names_are_aliases_and_the_page_sees_the_menus(tmp_path: Path, names: tuple[str, str]) -> None:
    turns = [action(names[0], '{"query": "tea"}'), action(names[1], '{"results": ["R1", "R2"]}'), FINISH]
    with edge(scripted(turns, *REPORT), pages, RESULTS) as (env, _, _), chat_server(tmp_path, env) as server:
        events = ask(server, "What is oolong?")
    assert [e["name"] for e in of_type(events, "tool_call")] == ["search_web", "fetch_page"]
    assert events[-1]["outcome"] == "answered"


def test_a_wrong_citation_of_the_draft_is_corrected_in_done(tmp_path: Path) -> None:
    wrong = "Green tea is not oxidised at all. [Source 1] Oolong comes from Fujian and from Taiwan. [Source 7]"
    with (
        edge(scripted([SEARCH, FETCH, FINISH], wrong), pages, RESULTS) as (env, _, _),
        chat_server(tmp_path, {**env, "CITATION_REPAIR": "tags"}) as server,
    ):
        events = ask(server, "What is green tea?")
    assert "".join(e["content"] for e in of_type(events, "text")) == wrong
    done = events[-1]
    assert "[Source 7]" not in done["summary"]
    green = next(s for s in done["sources"] if s["title"] == "Green tea")
    cited = re.match(r"Green tea is not oxidised at all\. \[Source ([\d, ]+)\]", done["summary"])
    assert cited and str(green["number"]) in cited[1].split(", ") and green["verdicts"]["matched"] == 1
    assert done["counts"]["matched"] == 2


def test_a_report_that_reached_the_most_tokens_of_an_answer_is_said_to_break_off(tmp_path: Path) -> None:
    begun = "Oolong is a tea that is partly oxidised. [Source 1] Green tea is not oxi"

    def model(asked: Asked) -> Play:
        if is_turn(asked):
            return scripted([SEARCH, FETCH, FINISH])(asked)
        return Play([delta(begun), delta(finish="length")])

    with edge(model, pages, RESULTS) as (env, _, _), chat_server(tmp_path, env) as server:
        done = ask(server, "What is oolong?")[-1]
    assert done["summary"].endswith("not oxi")
    assert any("breaks off" in warning for warning in done["warnings"])


def test_a_failing_provider_is_a_friendly_error_and_then_done(tmp_path: Path) -> None:
    key = "sk-test-0123456789abcdefghij"

    def refuse(asked: Asked) -> Play:
        return Play({"error": {"message": f"Incorrect API key provided: {key}", "code": "invalid_api_key"}}, 401)

    with edge(refuse, pages) as (env, _, _), chat_process(tmp_path, {**env, "OPENAI_API_KEY": key}) as server:
        events = ask(server, "What is oolong?")
    assert [e["type"] for e in events[-2:]] == ["error", "done"]
    assert "OPENAI_API_KEY" in events[-2]["message"] and "\n" not in events[-2]["message"]
    assert (events[-1]["outcome"], events[-1]["stop_reason"]) == ("failed", "provider_error")
    assert key not in json.dumps(events) and key not in server.log


def test_a_failing_search_is_told_and_the_run_says_so(tmp_path: Path) -> None:
    def broken(request: Request) -> Reply:
        return Reply(503, "no")

    turns = [action("search_web", f'{{"query": "tea {n}"}}') for n in range(4)]
    with edge(scripted(turns), broken) as (env, _, _):
        env = {**env, "SEARXNG_BASE_URL": "http://127.0.0.1:9", "MAX_WALL_CLOCK_SECONDS": "60"}
        with chat_server(tmp_path, env) as server:
            events = ask(server, "What is oolong?")
    assert not of_type(events, "observation")[0]["ok"]
    assert [e["type"] for e in events[-2:]] == ["error", "done"] and events[-1]["outcome"] == "failed"


def test_without_a_key_the_offline_mock_answers_and_warns(tmp_path: Path) -> None:
    with chat_server(tmp_path) as server:
        health = requests.get(f"{server.url}/health", timeout=10).json()
        events = ask(server, "Compare Raptor RAG vs HyDE")
    assert health["llm"] == {"provider": "mock", "model": "mock-extractive", "configured": False, "mock": True}
    assert any("OFFLINE MOCK MODEL" in warning for warning in health["warnings"])
    assert "OFFLINE MOCK MODEL" in of_type(events, "notice")[0]["content"]
    assert events[-1]["outcome"] == "answered" and any("OFFLINE MOCK" in w for w in events[-1]["warnings"])


# --- conversations ---------------------------------------------------------------------------------------


def test_a_greeting_is_answered_at_once_and_labelled_as_unsourced(tmp_path: Path) -> None:
    with (
        edge(scripted([FINISH], "Hello! What would you like to know?"), pages) as (env, asked, _),
        chat_server(tmp_path, env) as server,
    ):
        events = ask(server, "Hello")
    assert [e["type"] for e in events if e["type"] != "text"] == ["done"]
    done = events[-1]
    assert (done["outcome"], done["no_sources_used"]) == ("answered", True)
    assert done["summary"] == "Hello! What would you like to know?" and not done["sources"]
    assert done["counts_line"] == "from the conversation, no source checked" and "no sources used" in done["warnings"]
    assert len(asked) == 2


def test_a_follow_up_question_carries_the_conversation_to_the_model(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "What is oolong?"},
        {"role": "assistant", "content": "A partly oxidised tea. [Source 1]"},
        {"role": "user", "content": "Where does it come from?"},
    ]
    with (
        edge(scripted([SEARCH, FETCH, FINISH], *REPORT), pages, RESULTS) as (env, asked, _),
        chat_server(tmp_path, env) as server,
    ):
        assert ask(server, talk)[-1]["outcome"] == "answered"
    messages = asked[0].body["messages"]
    assert [m["content"] for m in messages[1:]] == [
        "What is oolong?", "A partly oxidised tea.", "Question: Where does it come from?",
    ]  # fmt: skip


def test_the_rendered_prompt_says_when_to_search_and_when_to_use_the_files(tmp_path: Path) -> None:
    with edge(scripted([FINISH], "Hello!"), pages) as (env, asked, _), chat_server(tmp_path, env) as server:
        ask(server, "Hello")
    prompt = asked[0].body["messages"][0]["content"]
    names = re.search(r"Action: one of (.*)", prompt)
    assert names and names[1] == (
        "search_web, fetch_page, extract, finish, read_file, extract_pdf_text, list_uploaded_files"
    )
    assert "Always search for a factual or current question, also when you believe you know the answer." in prompt
    assert "When the question refers to a file, a document or an upload, use the uploaded files" in prompt
    assert "Use finish as the first action only if the conversation itself holds the answer: a greeting" in prompt
    assert "Read (fetch_page) pages before you rely on them" in prompt
    assert "- fetch " not in prompt and "- search " not in prompt


@pytest.mark.parametrize(("env", "most"), [({}, 8), ({"MAX_ITERATIONS": "3"}, 3), ({"MAX_ITERATIONS": "10"}, 10)])
def test_eight_iterations_unless_the_setting_says_otherwise(tmp_path: Path, env: dict[str, str], most: int) -> None:
    with chat_server(tmp_path, env) as server:
        assert requests.get(f"{server.url}/health", timeout=10).json()["limits"]["max_iterations"] == most


# --- files -----------------------------------------------------------------------------------------------

PDF = pdf([["The harbour of Skagen"], ["is closed."], ["It was opened in 1907 by King Frederik VIII."]])


def upload(server: Running, name: str, data: bytes, **more: Any) -> requests.Response:
    return requests.post(f"{server.url}/upload", files={"file": (name, data)}, timeout=30, **more)


def test_a_pdf_is_uploaded_asked_about_cited_by_page_and_deleted(tmp_path: Path) -> None:
    turns = [action("list_uploaded_files"), action("extract_pdf_text", '{"file": "report.pdf"}'), FINISH]
    report = "The harbour was opened in 1907 by King Frederik VIII. [Source 1]"
    with edge(scripted(turns, report), pages) as (env, asked, _), chat_server(tmp_path, env) as server:
        answer = upload(server, "report.pdf", PDF)
        assert (answer.status_code, answer.json()) == (201, {"name": "report.pdf", "size": len(PDF), "type": "pdf"})
        events = ask(server, "When was the harbour opened, says my report?")
        assert requests.delete(f"{server.url}/files/report.pdf", timeout=10).status_code == 204
        assert requests.get(f"{server.url}/files", timeout=10).json() == {"files": []}
        assert requests.delete(f"{server.url}/files/report.pdf", timeout=10).status_code == 404
    listed, read = of_type(events, "observation")
    assert listed["content"].startswith("F1. report.pdf") and read["content"] == "1 file read"
    source = events[-1]["sources"][0]
    assert (source["kind"], source["label"], source["domain"]) == ("file", "report.pdf, p. 3", "")
    assert source["passages"][0]["page_number"] == 3 and source["passages"][0]["link"] == ""
    assert "(page 1)\nThe harbour of Skagen" in asked[2].body["messages"][-1]["content"]


@pytest.mark.parametrize(
    "turns",
    [
        [action("extract_pdf_text", '{"file": "report.pdf"}')],
        [action("fetch_page", '{"url": "report.pdf"}')],
        [action("search_web", '{"query": "Skagen harbour"}'), action("fetch_page", '{"results": ["R1"]}')],
    ],
)
def test_a_file_that_the_question_names_is_read_and_not_taken_for_a_host(tmp_path: Path, turns: list[str]) -> None:
    report = "The harbour was opened in 1907 by King Frederik VIII. [Source 1]"
    with edge(scripted([*turns, FINISH], report), pages) as (env, _, _), chat_server(tmp_path, env) as server:
        upload(server, "report.pdf", PDF)
        events = ask(server, "When was the harbour opened, says report.pdf?")
    assert of_type(events, "observation")[-1]["content"] == "1 file read"
    assert events[-1]["sources"][0]["label"] == "report.pdf, p. 3"


def test_what_stands_in_an_uploaded_file_is_not_remembered(tmp_path: Path) -> None:
    report = "The harbour was opened in 1907 by King Frederik VIII. [Source 1]"
    turns = scripted([action("extract_pdf_text", '{"file": "report.pdf"}'), FINISH], report)
    kept = tmp_path / "memory.sqlite"
    with edge(turns, pages) as (env, asked, _):
        env |= {"MEMORY_BACKEND": "local", "MEMORY_PATH": str(kept)}
        with chat_server(tmp_path, env) as server:
            upload(server, "report.pdf", PDF)
            assert "1907" in ask(server, "When was the harbour of Skagen opened?")[-1]["summary"]
            assert requests.delete(f"{server.url}/files/report.pdf", timeout=10).status_code == 204
            again = ask(server, "When was the harbour of Skagen opened?")[-1]
    assert not [warning for warning in again["warnings"] if "Earlier research" in warning]
    assert not any("1907" in message["content"] for message in asked[-2].body["messages"][:2])
    assert not kept.exists() or b"Frederik" not in kept.read_bytes()


def test_search_finds_passages_in_uploaded_files_beside_the_web(tmp_path: Path) -> None:
    turns = [action("search_web", '{"query": "Skagen harbour"}'), action("fetch_page", '{"results": ["R1"]}'), FINISH]
    report = "The harbour was opened in 1907 by King Frederik VIII. [Source 1]"
    with edge(scripted(turns, report), pages, RESULTS) as (env, _, _), chat_server(tmp_path, env) as server:
        assert upload(server, "Skagen notes.pdf", PDF).status_code == 201
        events = ask(server, "When was the harbour of Skagen opened?")
    assert {"Skagen notes.pdf", "Oolong"} <= {item["title"] or item["url"] for item in
                                              [*of_type(events, "observation")[0]["items"]]} | {
        item["url"] for item in of_type(events, "observation")[0]["items"]}  # fmt: skip
    assert events[-1]["sources"][0]["label"] == "Skagen notes.pdf, p. 3"


# --- ending ----------------------------------------------------------------------------------------------


def wait_until(true: Any, seconds: float = 10.0) -> float:
    """Seconds until `true()`, looked at every 10 ms; fails after `seconds`."""
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < seconds, "it did not happen"
        time.sleep(0.01)
    return time.monotonic() - started


def test_a_closed_tab_cancels_the_run_within_a_second(tmp_path: Path) -> None:
    """The model hangs; the place of the run is free again within a second of the client's going."""
    hanging = threading.Event()

    def model(asked: Asked) -> Play:
        hanging.set()
        return Play(deed="hang")

    with edge(model, pages) as (env, asked, _), chat_server(tmp_path, {**env, "CHAT_RUNS": "1"}) as server:
        response = post_question(server, "What is oolong?")
        assert hanging.wait(10) and post_question(server, "And now?").status_code == 429
        response.close()

        def free() -> bool:
            with post_question(server, "And now?") as again:
                return again.status_code == 200

        assert wait_until(free) < 1.0
        time.sleep(0.3)
        assert len(asked) <= 2  # nothing more was asked for the run that was given up


def test_a_run_that_is_told_to_stop_ends_its_stream_with_a_checked_partial_report(tmp_path: Path) -> None:
    """Stopped while the report is written: the draft breaks off, and what stands in its place was checked."""
    wrong = "Oolong is a tea that was brought from the moon by 17 astronauts. [Source 1] "
    held = threading.Event()

    def model(asked: Asked) -> Play:
        if is_turn(asked):
            return scripted([SEARCH, FETCH, FINISH])(asked)
        return Play(_held_after(held, wrong * 3))

    with edge(model, pages, RESULTS) as (env, _, _), chat_server(tmp_path, {**env, "CHAT_RUNS": "1"}) as server:
        me, other = requests.Session(), requests.Session()
        for session in (me, other):
            session.get(f"{server.url}/health", timeout=10)
        events = []
        try:
            with post_question(server, "What is oolong?", me) as response:
                run = f"{server.url}/chat/{response.headers['X-Run']}"
                for arrived in read_events(response):
                    events.append(arrived.event)
                    if arrived.event["type"] == "text" and len(of_type(events, "text")) == 1:
                        assert other.delete(run, timeout=10).status_code == 404  # only who asked may stop it
                        assert me.delete(run, timeout=10).status_code == 204
        finally:
            held.set()
        done = events[-1]
        wait_until(lambda: me.delete(run, timeout=10).status_code == 404)  # it is over
    assert "moon" in "".join(e["content"] for e in of_type(events, "text"))
    assert [e["type"] for e in events].count("done") == 1
    assert (done["type"], done["outcome"], done["stop_reason"]) == ("done", "partial", "interrupted")
    assert "moon" not in done["summary"] and "Oolong is a tea" in done["summary"]
    cited = [check for check in done["checks"] if check["source"] is not None]
    assert cited and {check["verdict"] for check in cited} == {"matched"}


def test_a_run_that_is_told_to_stop_before_anything_was_read_says_so(tmp_path: Path) -> None:
    hanging = threading.Event()

    def model(asked: Asked) -> Play:
        hanging.set()
        return Play(deed="hang")

    with edge(model, pages) as (env, _, _), chat_server(tmp_path, env) as server:
        me = requests.Session()
        me.get(f"{server.url}/health", timeout=10)
        with post_question(server, "What is oolong?", me) as response:
            assert hanging.wait(10)
            assert me.delete(f"{server.url}/chat/{response.headers['X-Run']}", timeout=10).status_code == 204
            done = [arrived.event for arrived in read_events(response)][-1]
    assert (done["outcome"], done["stop_reason"], done["sources"]) == ("partial", "interrupted", [])
    assert done["summary"].startswith("No source was read")


def test_at_sigterm_each_open_stream_gets_its_partial_and_the_server_ends(tmp_path: Path) -> None:
    calls = threading.Semaphore(0)

    def model(asked: Asked) -> Play:
        if "Observation:" in asked.body["messages"][-1]["content"] and "Oolong" in str(asked.body):
            calls.release()
            return Play(deed="hang")
        return scripted([SEARCH, FETCH])(asked)

    with edge(model, pages, RESULTS) as (env, _, _), chat_process(tmp_path, env) as server:
        assert server.process is not None
        ends: list[Arrived] = []

        def listen() -> None:
            with post_question(server, "What is oolong?") as response:
                ends.extend(list(read_events(response))[-1:])

        threads = [threading.Thread(target=listen) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert calls.acquire(timeout=20)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(10)
        assert server.process.wait(10) is not None and time.monotonic() - started < 10
    assert [(e.event["type"], e.event["stop_reason"], e.event["outcome"]) for e in ends] == [
        ("done", "interrupted", "partial")
    ] * 3


def test_ctrl_c_ends_the_server_without_a_traceback(tmp_path: Path) -> None:
    with chat_process(tmp_path) as server:
        assert server.process is not None
        assert requests.get(f"{server.url}/health", timeout=10).status_code == 200  # it is not starting any more
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(15) == 0
    assert "Traceback" not in server.log and "KeyboardInterrupt" not in server.log


def test_more_runs_than_allowed_are_refused_with_a_time_to_try_again(tmp_path: Path) -> None:
    def model(asked: Asked) -> Play:
        return Play(deed="hang")

    with edge(model, pages) as (env, _, _), chat_server(tmp_path, {**env, "CHAT_RUNS": "3"}) as server:
        mine = requests.Session()
        mine.get(f"{server.url}/health", timeout=10)  # brings the cookie
        running = [post_question(server, "x", mine) for _ in range(2)]
        third = post_question(server, "x", mine)
        assert third.status_code == 429 and "yours" in third.json()["error"] and third.headers["retry-after"]
        running.append(post_question(server, "x"))
        other = post_question(server, "x")
        assert other.status_code == 429 and "busy" in other.json()["error"]
        assert [r.status_code for r in running] == [200] * 3
        for response in running:
            response.close()
