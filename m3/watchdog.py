"""Ending a blocked socket from outside: at a deadline, or when the run is stopped."""

from __future__ import annotations

import socket
import threading
import time

from m3.records import RunControl


class Watchdog:
    """Ends a fetch from outside: at the deadline or the stop it shuts the sockets, so that a blocked read returns.

    It works on duplicates of the descriptors: `wrap_socket` detaches the original object, the duplicate stays.
    A read time-out that falls on the same moment gets a tenth of a second to be reported as what it is.
    """

    GRACE = 0.1

    def __init__(self, control: RunControl, seconds: float) -> None:
        self._control = control
        self._ends = time.monotonic() + seconds  # real time, also where the run's clock is a test's
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._done = threading.Event()
        self.fired = False

    def __enter__(self) -> Watchdog:
        threading.Thread(target=self._watch, daemon=True, name="fetch watchdog").start()
        return self

    def add(self, sock: socket.socket) -> None:
        with self._lock:
            if not self.fired:
                self._sockets.append(sock.dup())
                return
        raise TimeoutError("the fetch is over")

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            if self._control.stopped or self._control.expired or time.monotonic() >= self._ends:
                if not self._control.stopped and self._done.wait(self.GRACE):
                    return
                self._fire()
                return

    def _fire(self) -> None:
        with self._lock:
            self.fired = True
            for sock in self._sockets:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # not connected, or closed by the other side already

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        with self._lock:
            for sock in self._sockets:
                sock.close()
            self._sockets.clear()
