"""The chat on loopback for tests: the real server, and beside it a scripted model and the pages it reads."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from config import load_config
from tests.conftest import ROOT
from tests.loopback import Reply, Request, http_server
from tests.provider import Asked, Play, chat, delta, provider
from web.backend.main import DEFAULTS, Server, create_app, options_for


@dataclass
class Running:
    """A running chat. process: where it has one of its own; log: what that printed, once it has ended."""

    url: str
    process: subprocess.Popen[str] | None = None
    log: str = ""
    app: Any = None


def settings_for(folder: Path, env: Mapping[str, str] | None) -> dict[str, str]:
    return {"CHAT_UPLOAD_DIR": str(folder / "uploads"), "MEMORY_BACKEND": "none", **(env or {})}


@contextlib.contextmanager
def chat_server(folder: Path, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """The chat under a real uvicorn on a free port of 127.0.0.1, in a thread; its uploads lie in `folder`/uploads."""
    app = create_app(load_config(settings_for(folder, env), defaults=DEFAULTS), page=folder / "dist")
    server = Server(options_for(app))
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", app=app)
        finally:
            app.state.server.chats.stop_all("test")
            server.should_exit = True
            thread.join(10)


@contextlib.contextmanager
def chat_process(folder: Path, env: Mapping[str, str] | None = None, *arguments: str) -> Iterator[Running]:
    """The same as a program, in a process of its own."""
    system = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "web.backend.main", "--port", str(free_port()), *arguments],
        cwd=folder, env={**system, **settings_for(folder, env), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    running = Running("", process)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+(?=/\s*$)", line)
        assert found, (line, process.stderr.read())
        running.url = found[0]
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            out, err = process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        running.log = out + err


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- asking ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrived:
    """One event and when it arrived (monotonic seconds)."""

    event: dict[str, Any]
    at: float


def read_events(response: requests.Response) -> Iterator[Arrived]:
    """The events of a stream, by the rules of server-sent events: fields, comments, blank lines; any line end."""
    data: list[str] = []
    for line in _lines(response.iter_content(None)):
        if line.startswith(b":"):
            continue
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" ").decode())
        elif not line and data:
            yield Arrived(json.loads("\n".join(data)), time.monotonic())
            data = []


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    held = b""
    for chunk in chunks:
        held += chunk
        while found := re.search(rb"\r\n|\n|\r(?!\Z)", held):
            line, held = held[: found.start()], held[found.end() :]
            yield line


def ask(
    server: Running, question: str | Sequence[Mapping[str, str]], session: requests.Session | None = None, **more: Any
) -> list[dict[str, Any]]:
    """The events of one question, from its first to `done`. A status other than 200 fails."""
    with post_question(server, question, session, **more) as response:
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return [arrived.event for arrived in read_events(response)]


def post_question(
    server: Running, question: str | Sequence[Mapping[str, str]], session: requests.Session | None = None, **more: Any
) -> requests.Response:
    messages = [{"role": "user", "content": question}] if isinstance(question, str) else list(question)
    post = (session or requests).post
    return post(f"{server.url}/chat", json={"messages": messages}, stream=True, timeout=60, **more)


def of_type(events: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


# --- what stands at the outer edge -----------------------------------------------------------------------


def streamed(*pieces: str) -> Play:
    """An answer of the model in these pieces."""
    return Play([*(delta(piece) for piece in pieces), delta(finish="stop")])


def is_turn(asked: Asked) -> bool:
    """Whether a request asks for a turn of the loop, and not for a report."""
    return "\nAction Input:" in asked.body["messages"][0]["content"]


def turn_number(asked: Asked) -> int:
    """How many observations the prompt holds: which turn of its run this is, whoever else is asking."""
    return sum("Observation:" in m["content"] for m in asked.body["messages"] if m["role"] == "user")


def scripted(turns: Sequence[str], *report: str) -> Callable[[Asked], Play]:
    """A model that takes these turns in order in every run and then streams the report in these pieces."""

    def answer(asked: Asked) -> Play:
        if not is_turn(asked):
            return streamed(*report)
        text = turns[min(turn_number(asked), len(turns) - 1)]
        return streamed(text) if asked.body.get("stream") else Play(chat(text))

    return answer


@contextlib.contextmanager
def edge(
    script: Callable[[Asked], Play], pages: Callable[[Request], Reply], results: Sequence[Mapping[str, str]] = ()
) -> Iterator[tuple[dict[str, str], list[Asked], list[Request]]]:
    """A model and a web on loopback, and the settings that lead a server there.

    results: what the search finds, with `{web}` for the address of the web in their URLs.
    """
    where: list[str] = []

    def answer(request: Request) -> Reply:
        if request.path == "/search":
            found = [{**r, "url": r["url"].format(web=where[0]), "engine": "x"} for r in results]
            return Reply(200, json.dumps({"query": "q", "results": found}), {"Content-Type": "application/json"})
        return pages(request)

    with http_server(answer) as (base, requests_seen), provider(script) as model:
        where.append(base)
        env = {
            "OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_MODEL": "m", "LLM_PROVIDER": "openai",
            "SEARXNG_BASE_URL": base, "SEARCH_PROVIDER": "searxng", "RESPECT_ROBOTS": "0", "WAYBACK": "0",
            "ALLOW_PRIVATE_HOSTS": base.removeprefix("http://"),
        }  # fmt: skip
        yield env, model.asked, requests_seen


def html(title: str, *paragraphs: str) -> Reply:
    body = "".join(f"<p>{text}</p>" for text in paragraphs)
    page = f"<!doctype html><html><head><title>{title}</title></head><body><article><h1>{title}</h1>{body}</article>"
    return Reply(200, f"{page}</body></html>", {"Content-Type": "text/html; charset=utf-8"})
