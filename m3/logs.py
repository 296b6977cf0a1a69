"""What the program logs, as one safe line a record: no secret, no control character, no forged second line."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from config import redact
from m3.untrusted import safe_line

MAX_LINE = 2_000


class SafeFormatter(logging.Formatter):
    """Redacts before it cuts, on the finished line: the exception's text is part of it."""

    def format(self, record: logging.LogRecord) -> str:
        return safe_line(redact(super().format(record)), MAX_LINE)


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever `sys.stderr` is when a record comes."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def set_up() -> None:
    """Give the root logger one handler with `SafeFormatter`; libraries that print addresses stay at warnings.

    A filter on a logger would miss its children's records, so the form is the handler's. Called by the command line and
    the chat; a program that imports this one has its own handlers and may give them `SafeFormatter`. Calls that carry a
    key are safe there too (m3/private_session.py).
    """
    root = logging.getLogger()
    if not any(isinstance(handler, _Stderr) for handler in root.handlers):
        handler = _Stderr()
        handler.setFormatter(SafeFormatter("%(levelname)s %(name)s: %(message)s"))
        handler.setLevel(logging.WARNING)
        root.addHandler(handler)
    loaded = sys.modules.get("http.client")
    if loaded is not None:  # prints requests to standard output where somebody turned that on
        loaded.HTTPConnection.debuglevel = 0
    for name in ("urllib3", "requests", "http.client", "httpx", "pdfminer"):
        logging.getLogger(name).setLevel(logging.WARNING)
