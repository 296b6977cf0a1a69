"""A model provider on loopback that plays what it is told, and a clock that only moves when somebody waits."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from m3.records import RunControl


class Clock:
    """Virtual seconds. `sleep` moves the time and keeps what was slept."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds

    def control(self, seconds: float = 300.0) -> RunControl:
        return RunControl(seconds, clock=self, sleep=self.sleep)


@dataclass
class Play:
    """One answer: a status, headers and a body; or what the connection does instead.

    body: an object is sent as JSON, bytes or text as they are, a list as a server-sent event stream (its last item
    decides how it ends: `[DONE]` is added unless `cut`). deed: `reset` closes the connection without an answer;
    `hang` accepts and stays silent; `drip` and `drip_headers` send a byte at a time, for ever.
    """

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    deed: str = ""
    cut: bool = False


Script = Sequence[Play] | Callable[["Asked"], Play]


@dataclass
class Asked:
    path: str
    body: dict[str, Any]
    headers: dict[str, str]


class Provider:
    """The running server: its address, and every request it got."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.asked: list[Asked] = []
        self.over = threading.Event()
        self.url = ""

    def next(self, asked: Asked) -> Play:
        self.asked.append(asked)
        if callable(self._script):
            return self._script(asked)
        return self._script[min(len(self.asked), len(self._script)) - 1]


def handler_of(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else the body waits 40 ms for the acknowledgement of the headers

        def do_POST(self) -> None:
            size = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(size) or b"{}")
            self._play(provider.next(Asked(self.path, body, {k.lower(): v for k, v in self.headers.items()})))

        def do_GET(self) -> None:
            self._play(provider.next(Asked(self.path, {}, {k.lower(): v for k, v in self.headers.items()})))

        def _play(self, play: Play) -> None:
            try:
                if play.deed:
                    self._misbehave(play.deed)
                elif isinstance(play.body, list):
                    self._stream(play)
                else:
                    self._answer(play)
            except OSError:
                self.close_connection = True  # the client went away, as it may

        def _answer(self, play: Play) -> None:
            raw = play.body if isinstance(play.body, bytes | str) else json.dumps(play.body)
            data = raw.encode() if isinstance(raw, str) else raw
            self.send_response(play.status)
            kind = "text/html" if data[:1] == b"<" else "application/json"
            for name, value in {"content-type": kind, "content-length": str(len(data)), **play.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, play: Play) -> None:
            self.send_response(play.status)
            self.send_header("content-type", "text/event-stream; charset=utf-8")
            self.send_header("connection", "close")
            for name, value in play.headers.items():
                self.send_header(name, value)
            self.end_headers()
            for item in play.body:
                text = item if isinstance(item, str) else json.dumps(item)
                self.wfile.write(f"data: {text}\n\n".encode())
            if not play.cut:
                self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def _misbehave(self, deed: str) -> None:
            if deed == "drip":
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
            while deed != "reset" and not provider.over.wait(0.05):
                if deed.startswith("drip"):
                    self.wfile.write(b":" if deed == "drip" else b"H")
                    self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: object) -> None:
            """No log on the terminal."""

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True
    # A test ends while a thread may still serve a client that has gone away.
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


@contextmanager
def provider(script: Script) -> Iterator[Provider]:
    """Run a provider on a free port of loopback for the length of the block."""
    running = Provider(script)
    server = Server(("127.0.0.1", 0), handler_of(running))
    running.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.over.set()
        server.shutdown()
        server.server_close()


# --- bodies ----------------------------------------------------------------------------------------------


def chat(content: Any = "fine", finish: Any = "stop", usage: Any = "default", **message: Any) -> dict[str, Any]:
    """A whole chat completion."""
    body: dict[str, Any] = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "served-model",
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
        ],
    }
    if usage == "default":
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    if usage is not None:
        body["usage"] = usage
    return body


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a streamed chat completion."""
    piece = {key: value for key, value in {"content": content, **more.pop("delta", {})}.items() if value is not None}
    choice = {"index": 0, "delta": piece, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "served-model", "choices": [choice], **more}


def error(message: str, code: str | None = None, kind: str = "invalid_request_error", **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code, **more}}


def message(*blocks: dict[str, Any], stop: str | None = "end_turn", **usage: int) -> dict[str, Any]:
    """A whole Anthropic message."""
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "served-model",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 10, **usage},
    }


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
