"""A small client of the Upstash Redis REST protocol: one POST a trip, replies judged by their body.

Protocol: https://upstash.com/docs/redis/features/restapi. Statuses are not enough: a pipeline over quota answers
200 with an error in each item, a bad token answers a pipeline with one object.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from m3.records import RunControl
from m3.untrusted import safe_line

Command: TypeAlias = list[str | int | float]
T = TypeVar("T")

CONNECT_SECONDS, READ_SECONDS = 3.0, 5.0  # of one request, when the operation has that much left
RETRY_WAIT = 0.3  # seconds before the one retry; every write is keyed by id, so repeating it does no harm
OUTAGES, OUTAGE_PAUSE = 2, 60.0  # so many in a row switch the store off for so many seconds
MAX_REQUEST_BYTES = 1_000_000
MAX_REPLY_BYTES = 8_000_000  # fifty sessions of the largest size come to half of it
POLL_SECONDS = 0.05  # how soon a stopped run is noticed while a request is under way

# Substrings of error texts, lower case, and what they mean for the person at the keyboard.
_OFF = {
    "max requests limit exceeded": "the database's monthly number of commands is used up",
    "max daily request limit exceeded": "the database's daily number of commands is used up",
    "has reached current fixed plan limits": "the database's plan is used up",
    "wrongpass": "the token is not accepted; check UPSTASH_REDIS_REST_TOKEN",
    "unauthorized": "the token is not accepted; check UPSTASH_REDIS_REST_TOKEN",
}
_READ_ONLY = {
    "db capacity quota exceeded": "the database is full; nothing more is stored in it",
    "noperm": "the token may only read; nothing is stored with it",
}

_log = logging.getLogger("m3.memory")


class StoreError(Exception):
    """An operation on the store that brought nothing. `str(error)` is a sentence for the user, without secrets."""


class OutageError(StoreError):
    """The store could not be reached, or did not answer as one: may be better in a minute."""


def fault_of_address(url: str) -> str:
    """Why this address of a database cannot be used, in one sentence; "" when it can."""
    try:
        parts = urlsplit(_unquoted(url))
        host = parts.hostname or ""
    except ValueError:
        return "the Upstash address is not a URL"
    if parts.scheme in ("redis", "rediss"):
        return (
            "UPSTASH_REDIS_REST_URL is the redis:// address of the database; the REST address is wanted, "
            "https://….upstash.io"
        )
    if not host or parts.scheme not in ("http", "https"):
        return "UPSTASH_REDIS_REST_URL must be the https:// REST address of the database"
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        return "UPSTASH_REDIS_REST_URL must begin with https://; the token would be sent in the clear"
    return ""


def _unquoted(text: str) -> str:
    return text.strip("\"' \t\r\n")


class UpstashRest:
    """Sends commands. Never raises anything but StoreError, never outlasts the seconds it is given.

    url, token: of the database's REST interface; quotes, spaces and a trailing slash are taken off. session: a
    `requests.Session`, kept open over the calls. clock: monotonic seconds, for the pause after outages.
    """

    def __init__(
        self, url: str, token: str, *, session: Any = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.url = _unquoted(url).rstrip("/")
        self._token = _unquoted(token)
        from m3.private_session import private_session  # here and not in a request, whose seconds are counted

        self._session, self._clock = session or private_session(), clock
        self._sync_token = ""
        self._off = ""  # why nothing is asked any more in this process
        self._read_only = ""  # why nothing is written any more
        self._outages = 0
        self._paused_until = 0.0

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]

    # --- sending

    def pipeline(self, commands: Sequence[Command], control: RunControl, *, writes: bool = False) -> list[Any]:
        """The results of several commands in one trip, in order; not atomic."""
        return self._send("/pipeline", commands, control, writes)

    def multi_exec(self, commands: Sequence[Command], control: RunControl, *, writes: bool = True) -> list[Any]:
        """The results of several commands in one trip, executed as one transaction."""
        return self._send("/multi-exec", commands, control, writes)

    def _send(self, path: str, commands: Sequence[Command], control: RunControl, writes: bool) -> list[Any]:
        self._check_open(writes)
        body = json.dumps(commands, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(body) > MAX_REQUEST_BYTES:
            raise StoreError(f"the request has {len(body)} bytes, more than {MAX_REQUEST_BYTES} are not sent")
        for last_try in (False, True):
            try:
                reply = self._post(path, body, control)
                break
            except OutageError as problem:
                if last_try or not control.sleep(RETRY_WAIT) or control.remaining() < RETRY_WAIT:
                    self._count_outage(str(problem))
                    raise
        self._outages = 0
        if not isinstance(reply, list) or len(reply) != len(commands):
            raise self._judge(str(reply.get("error")) if isinstance(reply, dict) else "a reply of the wrong shape")
        for item in reply:
            if isinstance(item, dict) and item.get("error"):
                raise self._judge(str(item["error"]))
        return [item.get("result") if isinstance(item, dict) else item for item in reply]

    def _post(self, path: str, body: bytes, control: RunControl) -> Any:
        import requests

        left = control.remaining()
        if left <= 0:
            raise StoreError("no time was left")
        headers = {"Content-Type": "application/json"}
        if self._sync_token:
            headers["upstash-sync-token"] = self._sync_token  # this client then reads what it wrote
        try:
            response = self._session.post(
                self.url + path,
                data=body,
                headers=headers,
                auth=self._authorise,
                timeout=(min(CONNECT_SECONDS, left), min(READ_SECONDS, left)),
                allow_redirects=False,
                stream=True,
            )
            raw = self._body(response)
        except requests.RequestException as problem:
            # The text of the exception may hold the address; its type says enough.
            raise OutageError(f"the memory at {self.host} did not answer ({type(problem).__name__})") from None
        self._sync_token = str(response.headers.get("upstash-sync-token") or self._sync_token)
        try:
            reply = json.loads(raw)
        except (ValueError, RecursionError):
            raise OutageError(f"the memory at {self.host} answered {response.status_code} without JSON") from None
        if response.status_code >= 500 or response.status_code == 429:
            text = str(reply.get("error", "")) if isinstance(reply, dict) else ""
            if not _meaning(text, _OFF) and not _meaning(text, _READ_ONLY):
                raise OutageError(f"the memory at {self.host} answered {response.status_code}")
        return reply

    def _body(self, response: Any) -> bytes:
        """The whole body of a reply, unless it is larger than any that is asked for."""
        body = bytearray()
        with response:
            for piece in response.iter_content(1 << 16):
                body += piece
                if len(body) > MAX_REPLY_BYTES:
                    raise StoreError(f"the memory at {self.host} answered with more than {MAX_REPLY_BYTES:,} bytes")
        return bytes(body)

    def _authorise(self, request: Any) -> Any:
        # As an auth hook the header also wins over a .netrc entry for the host.
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    # --- switching off

    def _check_open(self, writes: bool) -> None:
        reason = self._off or (self._read_only if writes else "")
        if reason:
            raise StoreError(reason)
        if self._clock() < self._paused_until:
            raise OutageError(f"the memory at {self.host} did not answer; it is asked again later")

    def _count_outage(self, why: str) -> None:
        self._outages += 1
        if self._outages >= OUTAGES:
            self._outages = 0
            self._paused_until = self._clock() + OUTAGE_PAUSE
            _log.warning("memory: %s; it is left alone for %.0f s", why, OUTAGE_PAUSE)

    def _judge(self, error: str) -> StoreError:
        """The fault that an error text means; some switch the store off, said once."""
        off, read_only = _meaning(error, _OFF), _meaning(error, _READ_ONLY)
        if off and not self._off:
            self._off = off
            _log.warning("memory: switched off until the program is started again: %s", off)
        elif read_only and not self._read_only:
            self._read_only = read_only
            _log.warning("memory: %s", read_only)
        if off or read_only:
            return StoreError(off or read_only)
        if "wrongtype" in error.lower():
            return StoreError("a key of the memory holds something else; another program may use the same prefix")
        return StoreError(f"the memory answered: {safe_line(error, 120)}")

    @property
    def off(self) -> str:
        """Why nothing is asked any more in this process; "" while the store is in use."""
        return self._off


def _meaning(error: str, table: dict[str, str]) -> str:
    lowered = error.lower()
    return next((meaning for text, meaning in table.items() if text in lowered), "")


def bounded(work: Callable[[RunControl], T], seconds: float, control: RunControl | None) -> T:
    """Run `work` for at most `seconds`, or less when the run has less left or is stopped; else OutageError.

    In a thread of its own: neither name resolution nor a server that sends a byte a second obeys the time-outs of
    a socket. What still runs at the end is abandoned; it cannot do harm, for every write is keyed by id.
    """
    control = control or RunControl()
    allowed = control.timeout(seconds)
    if allowed <= 0:
        raise OutageError("no time was left for the memory")
    part = RunControl(allowed)  # real seconds, whatever clock the run has
    result: list[T] = []
    problems: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            result.append(work(part))
        except BaseException as problem:  # noqa: BLE001  handed on to the caller below
            problems.append(problem)
        finally:
            done.set()

    threading.Thread(target=run, name="m3-memory", daemon=True).start()
    while not done.wait(min(POLL_SECONDS, max(0.001, part.remaining()))):
        if part.expired or control.stopped:
            part.stop("abandoned")
            raise OutageError(f"the memory did not answer within {allowed:.1f} s")
    if problems and isinstance(problems[0], (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)):
        # Results of other types than the commands give: another program's keys, or no Redis at all.
        raise StoreError(f"the memory answered what cannot be read ({type(problems[0]).__name__})") from problems[0]
    if problems:
        raise problems[0]
    return result[0]
