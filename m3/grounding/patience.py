"""How long work on pages that are here already may take; where the clock cut it, a replay cuts it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from m3.records import RunControl

_CHECKS = "checks"


class Patience:
    """What bounds the ranking and checking of pages: a clock, or the record of a run that a clock did cut.

    expired: says that the time is over; None for as long as it takes. recorded: the `cut` of an earlier run, which this
    one repeats without a clock. cut: where this work was cut: a page's address and the characters of it that were
    looked at, or "checks" and the checks that were made; empty where nothing was.
    """

    def __init__(self, expired: Callable[[], bool] | None = None, recorded: Mapping[str, int] | None = None) -> None:
        self.expired = expired
        self.recorded = recorded
        self.cut: dict[str, int] = {}
        self.gave_up = False  # the check that goes on now is not to be relied on: its time was over
        self._checks = 0

    def over(self) -> bool:
        """True once the time is over. Always false where the work is repeated from a record."""
        return self.recorded is None and self.expired is not None and self.expired()

    def reach(self, url: str, length: int) -> int | None:
        """Up to which character a page is looked at, as recorded; None for as far as the clock lets it."""
        return None if self.recorded is None else self.recorded.get(url, length)

    def looked(self, url: str, characters: int, length: int) -> None:
        """Note how much of a page was looked at."""
        if characters < length:
            self.cut[url] = characters

    def give_up(self) -> None:
        """Say that the time was over within a check: what it found is not to be relied on."""
        self.gave_up = True
        self.cut.setdefault(_CHECKS, self._checks - 1)

    def may_check(self) -> bool:
        """True while another claim may be compared with another page; called once for each such check."""
        if self.recorded is not None:
            allowed = self._checks < self.recorded.get(_CHECKS, self._checks + 1)
        else:
            allowed = _CHECKS not in self.cut and not self.over()
        if allowed:
            self._checks += 1
        else:
            self.cut.setdefault(_CHECKS, self._checks)
        return allowed


class Closing:
    """The time for what closes a run: to a moment after its deadline, or some seconds after it was stopped.

    A report is checked then too: the deadline may be exceeded by a second in all, a signal must be answered in eight.
    """

    AFTER_DEADLINE_S, AT_LEAST_S, AFTER_STOP_S = 0.2, 0.1, 3.0

    def __init__(self, control: RunControl) -> None:
        self._control = control
        self._began = control.clock()
        self._stopped: float | None = None

    def over(self) -> bool:
        now = self._control.clock()
        if self._control.stopped:
            self._stopped = now if self._stopped is None else self._stopped
            return now - self._stopped >= self.AFTER_STOP_S
        deadline = self._control.deadline
        return deadline is not None and now >= max(deadline + self.AFTER_DEADLINE_S, self._began + self.AT_LEAST_S)


def unbounded() -> Patience:
    """As much time as the work takes."""
    return Patience()
