"""Manners towards a site: few requests at a time, a pause between them, its robots.txt, its Retry-After."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from m3.records import RunControl

LONGEST_WAIT_S = 20.0  # for a Retry-After
ROBOTS_SECONDS = 4.0
ROBOTS_BYTES = 512_000  # RFC 9309 asks for at least 500 KiB
ROBOTS_KEPT_S = 3_600.0


class Pace(NamedTuple):
    """How often one host is asked: requests at a time, seconds between two starts."""

    at_once: int = 2
    pause_s: float = 0.25


# arXiv's terms of use ask for one connection and one request in three seconds.
_SLOW_HOSTS = {"arxiv.org": Pace(1, 3.0)}


class _Lane:
    """The requests to one host: how many run, and when the next may begin."""

    def __init__(self) -> None:
        self.active = 0
        self.next_start = 0.0


class HostPacer:
    """Hands out turns for each host. Safe to use from several threads; waits end with the run."""

    def __init__(self, pace: Pace = Pace()) -> None:
        self._pace = pace
        self._lanes: dict[str, _Lane] = {}
        self._condition = threading.Condition()

    @contextmanager
    def turn(self, host: str, control: RunControl) -> Iterator[bool]:
        """Wait for a turn at `host`; yields False when the run's time was over first."""
        name, pace = self._lane_of(host)
        if not self._enter(name, pace, control):
            yield False
            return
        try:
            yield True
        finally:
            with self._condition:
                self._lanes[name].active -= 1
                self._condition.notify_all()

    def _lane_of(self, host: str) -> tuple[str, Pace]:
        for slow, pace in _SLOW_HOSTS.items():
            if host == slow or host.endswith("." + slow):
                return slow, Pace(1, max(pace.pause_s, self._pace.pause_s))
        return host, self._pace

    def _enter(self, name: str, pace: Pace, control: RunControl) -> bool:
        with self._condition:
            self._forget_idle(control.clock())
            lane = self._lanes.setdefault(name, _Lane())
            while lane.active >= pace.at_once:
                if control.expired:
                    return False
                self._condition.wait(0.1)
            lane.active += 1
            starts = max(control.clock(), lane.next_start)
            lane.next_start = starts + pace.pause_s
        wait = starts - control.clock()
        if wait <= 0 or control.sleep(wait):
            return True
        with self._condition:
            lane.active -= 1
            self._condition.notify_all()
        return False

    def _forget_idle(self, now: float) -> None:
        if len(self._lanes) > 1_000:
            self._lanes = {name: lane for name, lane in self._lanes.items() if lane.active or lane.next_start > now}


def retry_after_s(header: str, now: datetime | None = None) -> float | None:
    """Seconds that a Retry-After header asks for (a number or an HTTP date); None for none or nonsense."""
    header = header.strip()
    if re.fullmatch(r"[0-9]{1,9}", header):
        return float(header)
    try:
        when = parsedate_to_datetime(header)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return max(0.0, (when - (now or datetime.now(timezone.utc))).total_seconds())


# --- robots.txt (RFC 9309) -------------------------------------------------------------------------------


class RobotsRules(NamedTuple):
    """The rules for one user agent: `(allow, pattern)` in no particular order; the longest match decides."""

    rules: tuple[tuple[bool, str], ...] = ()

    def allows(self, path: str) -> bool:
        """True when `path` (with its query) may be fetched. On a tie of lengths, allow wins."""
        best, verdict = -1, True
        for allow, pattern in self.rules:
            if len(pattern) >= best and _matches(pattern, path) and (len(pattern) > best or allow):
                best, verdict = len(pattern), allow
        return verdict


def parse_robots(text: str, agent: str) -> RobotsRules:
    """The rules that a robots.txt holds for `agent`, else those for `*`, else none."""
    groups: dict[str, list[tuple[bool, str]]] = {}
    names: list[str] = []
    in_rules = False
    for line in text[:ROBOTS_BYTES].removeprefix("\ufeff").splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon:
            continue
        if key == "user-agent":
            names = [] if in_rules else names
            in_rules = False
            token = re.match(r"\*|[a-z0-9_-]*", value.lower())
            names.append(token[0] if token else "")
            groups.setdefault(names[-1], [])
        elif key in ("allow", "disallow"):
            in_rules = True
            for name in names:
                if value:
                    groups[name].append((key == "allow", value))
    product = agent.lower().partition("/")[0]
    return RobotsRules(tuple(groups.get(product, groups.get("*", []))))


def _matches(pattern: str, path: str) -> bool:
    """Prefix match with `*` for any run of characters and `$` for the end; linear in both."""
    anchored = pattern.endswith("$")
    first, *pieces = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at = len(first)
    for i, piece in enumerate(pieces):
        if anchored and i == len(pieces) - 1:
            return len(path) - len(piece) >= at and path.endswith(piece)
        found = path.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return not anchored or at == len(path)


class _Known:
    """What is known of one robots.txt, and until when."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.rules = RobotsRules()
        self.until = 0.0


class Robots:
    """robots.txt of each site, asked once. A site whose file cannot be had forbids nothing.

    That is laxer than RFC 9309, which calls a server error a complete ban, because a page here is read once for a
    person who asked; a site that is down answers the page itself no better.
    """

    def __init__(self, agent: str, load: Callable[[str, RunControl], str | None]) -> None:
        """load: fetches the text of a robots.txt URL, None where there is none."""
        self._agent, self._load = agent, load
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def allows(self, site: str, path: str, control: RunControl) -> bool:
        """site: `scheme://host[:port]`; path: with its query. Takes at most a third of what the run has left."""
        with self._lock:
            known = self._known.get(site)
            mine = known is None or (known.ready.is_set() and control.clock() >= known.until)
            if mine:
                known = self._known[site] = _Known()
        assert known is not None
        if mine:
            share = min(ROBOTS_SECONDS, control.remaining() / 3)
            try:
                text = self._load(f"{site}/robots.txt", control.within(share))
                known.rules = parse_robots(text or "", self._agent)
            finally:
                known.until = control.clock() + ROBOTS_KEPT_S
                known.ready.set()
        while not known.ready.wait(0.1):
            if control.expired:
                break
        return known.rules.allows(path)
