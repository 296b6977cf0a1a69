"""Twenty chats at once over slow pages: how long after it happens does each event reach its reader.

Three processes: this one reads, the server runs as a program that stamps each event when the run hands it over
(`python -m tests.chat_load server …`), and the model and the web answer from a third (`… edge`).
The clock is the machine's monotonic one, which all of them share.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.chat import Running, edge, free_port, html, is_turn, post_question, read_events, settings_for, turn_number
from tests.conftest import ROOT
from tests.loopback import Reply, Request
from tests.provider import Asked, Play, chat, delta
from tests.scripted import action

PAGE_SECONDS = (0.8, 2.4)  # a page answers after a time between these
PIECE_SECONDS = 0.05  # between two pieces of a report
PIECES = 40
PAGES = 4
# All pages come from one address here, and would wait for their turn at it.
OPEN = {"FETCH_PER_HOST": "100", "FETCH_PACE": "0.001"}
TOPICS = ("harbour", "lighthouse", "ferry", "museum")
TURNS = (
    action("search_web", '{"query": "harbour of Skagen"}'),
    action("fetch_page", '{"results": ["R1", "R2", "R3", "R4"]}'),
    action("extract", '{"source": 1, "question": "When was the harbour opened?"}'),
    action("finish"),
)


@dataclass(frozen=True)
class Figures:
    """Lateness in milliseconds, over all events of all chats: from the run's handing an event over to its arrival.

    ended: chats that said `done`; answered: of them, with an answer (a machine that is busy may miss a page's six
    seconds). from_model: of tool calls, from the model's last byte to the arrival, so with the reading of the turn.
    """

    chats: int
    events: int
    ended: int
    answered: int
    median: float
    p95: float
    most: float
    from_model_p95: float
    from_model_most: float
    seconds: float

    def as_dict(self) -> dict[str, float]:
        return {name: round(value, 1) for name, value in self.__dict__.items()}


def measure(chats: int = 20, folder: Path | None = None) -> Figures:
    """Ask `chats` questions at once and read all their streams to the end."""
    with _edge() as (env, told), _server(folder or Path.cwd(), {**env, **OPEN, "CHAT_RUNS": str(chats)}) as server:
        arrived: list[tuple[int, dict[str, Any], float]] = []
        lock = threading.Lock()
        ready = threading.Barrier(chats)

        def one(number: int) -> None:
            with requests.Session() as session:
                session.get(f"{server.url}/health", timeout=30)
                ready.wait(60)
                with post_question(server, f"Chat {number}: when was the harbour opened?", session) as response:
                    assert response.status_code == 200, response.text
                    for found in read_events(response):
                        with lock:
                            arrived.append((number, found.event, found.at))

        threads = [threading.Thread(target=one, args=(number,)) for number in range(chats)]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        seconds = time.monotonic() - started
        model_spoke = told()
    late = sorted(1_000 * (at - event["at"]) for _, event, at in arrived)
    calls: dict[int, int] = {}
    from_model = []
    for number, event, at in arrived:
        if event["type"] == "tool_call":
            turn = calls.get(number, 0)
            calls[number] = turn + 1
            from_model.append(1_000 * (at - model_spoke[f"{number}/{turn}"]))
    ends = [event["outcome"] for _, event, _ in arrived if event["type"] == "done"]
    return Figures(
        chats, len(late), len(ends), ends.count("answered"), statistics.median(late), _share(late, 0.95), late[-1],
        _share(sorted(from_model), 0.95), max(from_model), seconds,
    )  # fmt: skip


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


# --- the edge --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _edge() -> Iterator[tuple[dict[str, str], Any]]:
    """The settings that lead to the model and the web, and a function that says when the model spoke each turn."""
    command = [sys.executable, "-m", "tests.chat_load", "edge"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        env = json.loads(process.stdout.readline())

        def told() -> dict[str, float]:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            return dict(json.loads(process.stdout.readline()))

        try:
            yield env, told
        finally:
            process.stdin.close()
            process.wait(10)


def _serve_edge() -> None:
    spoke: dict[str, float] = {}

    def model(asked: Asked) -> Play:
        text = " ".join(m["content"] for m in asked.body["messages"])
        number = re.search(r"Chat (\d+):", text)
        if not is_turn(asked):
            return Play(_Slowly(_report()))
        turn = turn_number(asked)
        spoke[f"{number[1] if number else '?'}/{turn}"] = time.monotonic()
        return Play(chat(TURNS[min(turn, len(TURNS) - 1)]))

    def page(request: Request) -> Reply:
        number = int(re.sub(r"\D", "", request.path) or 0)
        low, high = PAGE_SECONDS
        time.sleep(low + (high - low) * number / PAGES)  # the page's own slowness
        topic = TOPICS[number % len(TOPICS)]
        text = f"The {topic} of Skagen was opened in {1900 + number} by the king. It lies in the north of the town. "
        filler = "Many people come in summer, when the days are long, the trains are full and the sea is warm. "
        return html(f"The {topic}", *[text + filler * 4 for _ in range(80)])

    results = [{"title": f"The {t}", "url": f"{{web}}/page{i}", "content": t} for i, t in enumerate(TOPICS)]
    with edge(model, page, results) as (env, _, _):
        print(json.dumps(env), flush=True)
        for _ in sys.stdin:
            print(json.dumps(spoke), flush=True)


def _report() -> list[str]:
    sentence = "The harbour of Skagen was opened in 1900 by the king. [Source 1] "
    return [sentence] * PIECES


class _Slowly(list):  # type: ignore[type-arg]
    """A streamed reply with a pause before each piece."""

    def __init__(self, pieces: list[str]) -> None:
        super().__init__([*(delta(piece) for piece in pieces), delta(finish="stop")])

    def __iter__(self) -> Iterator[Any]:
        for item in list.__iter__(self):
            time.sleep(PIECE_SECONDS)
            yield item


# --- the server ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _server(folder: Path, env: dict[str, str]) -> Iterator[Running]:
    system = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "tests.chat_load", "server", "--port", str(free_port())]
    settings = {**system, **settings_for(folder, env), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=folder, env=settings, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+(?=/\s*$)", process.stdout.readline())
        assert found
        yield Running(found[0], process)
    finally:
        process.terminate()
        process.communicate(timeout=20)


def _serve_chat(arguments: list[str]) -> int:
    """The real server, but that each event carries the time at which its run handed it over."""
    from web.backend import agent, main

    put = agent.Feed.put

    def stamped(feed: agent.Feed, event: dict[str, Any]) -> int:
        return put(feed, {**event, "at": time.monotonic()})

    agent.Feed.put = stamped  # type: ignore[method-assign]
    return main.main(arguments)


if __name__ == "__main__":
    if sys.argv[1] == "edge":
        _serve_edge()
    else:
        sys.exit(_serve_chat(sys.argv[2:]))
