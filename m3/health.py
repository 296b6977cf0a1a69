"""The container's health server: proof that the port is open, and nothing else.

A Hugging Face Space counts as running once something answers on its port. No request starts a run, and the
reply is one constant text, so that neither question, answer nor key can leave by it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

TEXT = "M3 research agent: there is no page here. The answer stands in the container's log.\n"
READ_SECONDS = 5.0
MOST_CONNECTIONS = 32


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD with 200 on every path. The body of a request is never read."""

    timeout = READ_SECONDS  # a client that sends nothing gives its place back
    server_version, sys_version = "m3", ""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(TEXT)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(TEXT.encode("ascii"))

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: a probe every few seconds would bury the trace, and a path is a stranger's text."""


class HealthServer(ThreadingTCPServer):
    """One thread a connection, at most `MOST_CONNECTIONS` at a time; more are closed at once.

    Not `http.server.HTTPServer`: that one looks up its own host name at the start, which can take seconds in a
    container whose name no resolver knows.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int]) -> None:
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Silent: a client that hangs up in the middle is no fault of the container."""


def main(argv: Sequence[str]) -> int:
    """Serve `0.0.0.0:PORT` (the only argument) until the process is ended; 1 if the port cannot be had."""
    port = int(argv[0])
    try:
        server = HealthServer(("0.0.0.0", port))
    except OSError as problem:
        print(f"cannot listen on port {port}: {problem.strerror}", file=sys.stderr)
        return 1
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
