"""The Upstash Redis REST interface in front of a real Redis: for tests and benches only.

Statuses and bodies are those of the service: 401 for a bad token, 400 for a command that failed alone, 200 with an
error in an item of a pipeline, 400 for a discarded transaction. It speaks Redis's protocol itself, because client
libraries rewrite error texts and types. Set `server.fault` to act out an outage.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKEN, READ_ONLY_TOKEN = "test-token-0123456789", "read-only-token-0123456789"
MAX_REQUEST = 10 * 1024 * 1024
NOT_OVER_REST = frozenset("BLPOP BRPOP WATCH UNWATCH DISCARD MULTI EXEC SELECT AUTH MONITOR SUBSCRIBE QUIT".split())

Fault = tuple[Any, ...]  # ("drop",), ("sleep", seconds), ("status", code, body), ("drop after",)


class RedisError(str):
    """An error reply with its code (ERR, WRONGTYPE, NOPERM …) as Redis sent it."""


class Resp:
    """One connection that speaks RESP2."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", 1 << 16)

    def run(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """The replies to several commands sent at once."""
        out = bytearray()
        for command in commands:
            out += b"*%d\r\n" % len(command)
            for part in command:
                out += b"$%d\r\n%s\r\n" % (len(part), part)
        self._socket.sendall(out)
        return [self._read() for _ in commands]

    def _read(self) -> Any:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            return RedisError(rest.decode())
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        size = int(rest)
        if size < 0:
            return None
        return self._file.read(size + 2)[:-2] if kind == b"$" else [self._read() for _ in range(size)]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def encoded(command: Sequence[object]) -> list[bytes]:
    """A command as Redis takes it. Raises ValueError for what the service refuses."""
    if not isinstance(command, list) or not command or not isinstance(command[0], str):
        raise ValueError("expected a command as a JSON array")
    if command[0].upper() in NOT_OVER_REST:
        raise ValueError(f"Command is not available: '{command[0]}'")
    if not all(isinstance(part, str | int | float) for part in command):
        raise ValueError("command arguments must be strings or numbers")
    return [(part if isinstance(part, str) else json.dumps(part)).encode() for part in command]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    connections = threading.local()
    server: UpstashServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in (TOKEN, READ_ONLY_TOKEN):
            return self._reply(401, {"error": "WRONGPASS invalid or missing auth token"})
        if len(body) > MAX_REQUEST:
            error = f"ERR max request size exceeded. Limit: {MAX_REQUEST} bytes, Actual: {len(body)} bytes"
            return self._reply(400, {"error": error})
        many = self.path in ("/pipeline", "/multi-exec")
        try:
            raw = json.loads(body)
            commands = [encoded(command) for command in (raw if many else [raw])]
        except (ValueError, TypeError) as problem:
            return self._reply(400, {"error": f"ERR {problem}"})
        fault = self.server.count(self.path, commands, len(body))
        if fault[:1] == ("sleep",):
            self.server.released.wait(fault[1])
        elif fault[:1] == ("drop",):
            return self._drop()
        elif fault[:1] == ("status",):
            return self._reply(fault[1], fault[2])
        status, reply = self._execute(commands, token == READ_ONLY_TOKEN)
        if fault[:1] == ("drop after",):
            return self._drop()
        self._reply(status, reply)

    def _execute(self, commands: list[list[bytes]], read_only: bool) -> tuple[int, object]:
        if self.path != "/multi-exec":
            replies = self._redis(commands, read_only)
            if self.path == "/pipeline":
                return 200, [_item(reply) for reply in replies]
            return (400 if isinstance(replies[0], RedisError) else 200), _item(replies[0])
        replies = self._redis([[b"MULTI"], *commands, [b"EXEC"]], read_only)
        refused = next((r for r in (*replies[1:-1], replies[-1]) if isinstance(r, RedisError)), None)
        return (400, {"error": refused}) if refused is not None else (200, [_item(reply) for reply in replies[-1]])

    def _redis(self, commands: list[list[bytes]], read_only: bool) -> list[Any]:
        known = self.connections.__dict__
        key = f"{self.server.redis_port} {read_only}"
        if key not in known:
            known[key] = Resp("127.0.0.1", self.server.redis_port)
            if read_only:
                known[key].run([[b"AUTH", b"reader", b"reader"]])
        replies: list[Any] = known[key].run(commands)
        return replies

    def _reply(self, status: int, body: object) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        self.server.bytes_out += len(raw)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.send_header("Upstash-Sync-Token", f"at{time.time_ns()}")
        self.end_headers()
        self.wfile.write(raw)

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *args: object) -> None:
        """Quiet."""


def _item(reply: Any) -> dict[str, Any]:
    return {"error": str(reply)} if isinstance(reply, RedisError) else {"result": _plain(reply)}


def _plain(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_plain(item) for item in reply]
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply


class UpstashServer(ThreadingHTTPServer):
    """`url` and `TOKEN` reach it. `fault(path, commands)` gives a Fault, or () to answer as usual."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, redis_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.redis_port = redis_port
        self.fault: Callable[[str, list[list[bytes]]], Fault] | None = None
        self.released = threading.Event()  # ends every "sleep"
        self.log: list[tuple[str, list[list[bytes]]]] = []
        self.bytes_in = self.bytes_out = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def commands(self) -> int:
        return sum(len(commands) for _, commands in self.log)

    def count(self, path: str, commands: list[list[bytes]], size: int) -> Fault:
        with self._lock:
            self.log.append((path, commands))
            self.bytes_in += size
        return self.fault(path, commands) if self.fault else ()

    def reset(self) -> None:
        """Forget what was counted; answer as usual again."""
        self.fault, self.log, self.bytes_in, self.bytes_out = None, [], 0, 0

    def run(self, *command: str) -> Any:
        """One command straight at Redis."""
        connection = Resp("127.0.0.1", self.redis_port)
        try:
            return _plain(connection.run([[part.encode() for part in command]])[0])
        finally:
            connection.close()


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """A real Redis on a free port, with nothing on disk; ended by its process. Gives the port."""
    program = shutil.which("redis-server")
    if program is None:
        raise FileNotFoundError("redis-server is not installed (Debian package redis-server)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                Resp("127.0.0.1", port).run([[b"PING"]])
                break
            except OSError:
                time.sleep(0.05)
        else:
            raise RuntimeError("redis-server did not start")
        rights = "on >reader ~* &* +@read +ping +echo -@dangerous -scan"
        Resp("127.0.0.1", port).run([[b"ACL", b"SETUSER", b"reader", *rights.encode().split()]])
        yield port
    finally:
        process.terminate()
        process.wait(timeout=20)


@contextmanager
def upstash_server(folder: Path) -> Iterator[UpstashServer]:
    """The REST interface before a Redis of its own."""
    with redis_server(folder) as port:
        server = UpstashServer(port)
        threading.Thread(target=server.serve_forever, name="upstash", daemon=True).start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            server.server_close()
