"""Runs a call that cannot be interrupted so that nobody has to wait for it longer than the run lasts."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from m3.records import RunControl

T = TypeVar("T")
SLICE = 0.1  # seconds after which a stop is noticed while the call is silent


GRACE = 0.5  # seconds that a call gets beyond the deadline to end by itself, as it should


class DeadlineReached(Exception):
    """The call was given up: the run's deadline came, or the run was stopped."""


def guarded(do: Callable[[], T], control: RunControl) -> T:
    """`do()`, or DeadlineReached a moment after `control` expires: the last net under calls that should end by
    themselves. Whatever hangs is left behind in a daemon thread."""
    return call_within(lambda put_text: do(), control, abort=_nothing, grace=GRACE)


def _nothing() -> None:
    """There is nothing to close."""


def call_within(
    function: Callable[[Callable[[str], None]], T],
    control: RunControl,
    *,
    abort: Callable[[], None],
    on_text: Callable[[str], None] | None = None,
    grace: float = 0.0,
) -> T:
    """Run `function(put_text)` in a daemon thread and return its result, or raise what it raised.

    Raises DeadlineReached when `control` has expired and `grace` seconds have passed; the thread is then left behind,
    after `abort` has closed what it waits for. It holds neither the run nor the interpreter's exit. Text that the
    function puts is handed to `on_text` here, in the caller's thread, so that hooks need not be thread-safe and never
    hear a given-up call.
    """
    results: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put(("done", function(lambda text: results.put(("text", text)))))
        except BaseException as problem:  # noqa: BLE001  handed to the caller, who raises it
            results.put(("error", problem))

    threading.Thread(target=work, name="m3-call", daemon=True).start()
    finished = False
    ends: float | None = None
    try:
        while True:
            if control.expired:
                # Real time, also where the run's clock is a test's.
                ends = time.monotonic() + grace if ends is None else ends
                if time.monotonic() >= ends:
                    raise DeadlineReached
            try:
                kind, value = results.get(timeout=max(0.001, min(SLICE, control.remaining() or SLICE)))
            except queue.Empty:
                continue
            if kind == "text":
                if on_text is not None:
                    on_text(value)
                continue
            finished = True
            if kind == "error":
                # What ends a worker, such as SystemExit, must not end the program.
                raise value if isinstance(value, Exception) else RuntimeError(f"{type(value).__name__}: {value}")
            return value  # type: ignore[no-any-return]
    finally:
        if not finished:
            abort()
