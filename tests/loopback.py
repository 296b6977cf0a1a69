"""Servers on this machine for tests: plain HTTP, a TLS proxy that answers for any host, and servers that misbehave."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.certificates import Authority


@dataclass(frozen=True)
class Request:
    method: str
    url: str  # path and query as sent; behind a proxy with scheme and host
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.url).query).items()}


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes | str = b""
    headers: dict[str, str] = field(default_factory=dict)


Answer = Callable[[Request], Reply]


def _handler(answer: Answer, log: list[Request], prefix: str = "") -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            names = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, prefix + self.path, names, body)
            log.append(request)
            reply = answer(request)
            data = reply.body.encode() if isinstance(reply.body, str) else reply.body
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = True

        do_GET = do_POST = do_HEAD = _answer

        def log_message(self, *args: object) -> None:
            """Quiet."""

    return Handler


@contextlib.contextmanager
def http_server(answer: Answer) -> Iterator[tuple[str, list[Request]]]:
    """`(base URL, requests so far)` of a server that answers with `answer`."""
    log: list[Request] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answer, log))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", log
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def raw_server(talk: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """Base URL of a server whose connections are handed to `talk(connection, over)`; `over` is set at the end."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)

    def accept() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            talk(connection, over)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        thread.join(2)
        listener.close()


def silent(connection: socket.socket, over: threading.Event) -> None:
    """Reads the request and never answers."""
    connection.recv(65_536)
    over.wait(60)


def trickling(connection: socket.socket, over: threading.Event) -> None:
    """Sends a header line that never ends, a byte at a time: no single read ever takes long."""
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not over.wait(0.05):
        connection.sendall(b"a")


@contextlib.contextmanager
def tls_proxy(answer: Answer, authority: Authority, *hosts: str) -> Iterator[tuple[str, list[Request]]]:
    """`(proxy URL, requests so far)`: a CONNECT proxy that speaks TLS as the host that is asked for."""
    context = authority.server_context(*hosts)
    context.set_alpn_protocols(["http/1.1"])
    log: list[Request] = []

    def talk(connection: socket.socket, over: threading.Event) -> None:
        head = b""
        while b"\r\n\r\n" not in head and (data := connection.recv(4_096)):
            head += data
        host = head.split(b" ")[1].split(b":")[0].decode()
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as secure:
            _handler(answer, log, f"https://{host}")(secure, ("127.0.0.1", 0), None)  # type: ignore[arg-type]

    with raw_server(talk) as url:
        yield url, log
