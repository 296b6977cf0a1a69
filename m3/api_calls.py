"""One call to a service's HTTP API: bounded in time and size whatever the server does. Not for pages."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from m3.records import RunControl

MAX_REPLY_BYTES = 4_000_000
POLL_SECONDS = 0.05  # how soon a stop is noticed while a call blocks

T = TypeVar("T")


class CallFailedError(Exception):
    """No usable reply came. `timed_out` tells a silent server from one that could not be reached."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class ApiReply(NamedTuple):
    """Status, headers (names in lower case) and body of a reply, whatever the status."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON, or None when it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def retry_after(self) -> float | None:
        """Seconds the server asks to wait (RFC 9110, 10.2.3: seconds or a date); None when it does not say."""
        value = self.headers.get("retry-after", "").strip()
        try:
            if value.isdecimal():
                return float(value[:6])
            from datetime import datetime, timezone
            from email.utils import parsedate_to_datetime

            at = parsedate_to_datetime(value)
            at = at if at.tzinfo else at.replace(tzinfo=timezone.utc)
            return max(0.0, (at - datetime.now(timezone.utc)).total_seconds())
        except (ValueError, TypeError, IndexError):
            return None


def run_within(work: Callable[[], T], control: RunControl, seconds: float) -> T:
    """The value of `work()`, or TimeoutError after `seconds`, at the run's deadline or at its stop.

    The work runs in a thread of its own, which is left alone when it does not end in time: name resolution and
    servers that send a byte now and then cannot be interrupted. Whatever `work` raises is raised here; what is no
    Exception (a panic of a library in Rust) becomes a RuntimeError.
    """
    part = control.within(seconds)
    done = threading.Event()
    values: list[T] = []
    faults: list[BaseException] = []

    def target() -> None:
        try:
            values.append(work())
        except BaseException as fault:  # noqa: BLE001  handed to the caller below
            faults.append(fault)
        finally:
            done.set()

    if part.expired:
        raise TimeoutError
    threading.Thread(target=target, daemon=True, name="m3-call").start()
    while not done.wait(min(POLL_SECONDS, part.remaining())):
        if part.expired:
            raise TimeoutError
    if faults:
        if not isinstance(faults[0], Exception):
            raise RuntimeError(type(faults[0]).__name__) from faults[0]
        raise faults[0]
    return values[0]


def call_api(
    method: str,
    url: str,
    *,
    control: RunControl,
    seconds: float,
    headers: Mapping[str, str],
    params: Mapping[str, str] | None = None,
    body: Any = None,
) -> ApiReply:
    """Send one request (`body` as JSON) and read the reply within `seconds`. Redirects are not followed.

    Raises CallFailedError, whose message names neither the URL nor anything in it: keys stand in some.
    """
    import requests

    from m3.private_session import private_session

    allowed = control.timeout(seconds)
    part = control.within(allowed)

    def work() -> ApiReply:
        with private_session() as session, session.request(
            method, url, params=params, json=body, headers=dict(headers), timeout=max(0.05, allowed),
            stream=True, allow_redirects=False,
        ) as reply:  # fmt: skip
            chunks, size = [], 0
            for chunk in reply.iter_content(65_536):
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_REPLY_BYTES:
                    raise CallFailedError(f"its reply is larger than {MAX_REPLY_BYTES // 1_000_000} MB")
                if part.expired:
                    raise TimeoutError
            names = {name.lower(): value for name, value in reply.headers.items()}
            return ApiReply(reply.status_code, names, b"".join(chunks))

    silent = CallFailedError(f"no answer within {allowed:.0f} s", timed_out=True)
    try:
        return run_within(work, control, allowed)
    except (TimeoutError, requests.Timeout):
        raise (CallFailedError("the run was stopped", timed_out=True) if control.stopped else silent) from None
    except requests.exceptions.ProxyError:
        raise CallFailedError("the proxy refused or could not be reached") from None
    except requests.exceptions.SSLError:
        raise CallFailedError("no trusted TLS connection (certificate or protocol)") from None
    except requests.ConnectionError as fault:
        if "timed out" in str(fault):  # so requests reports a body that stalls
            raise silent from None
        raise CallFailedError(_connection_fault(fault)) from None
    except (requests.RequestException, ValueError, UnicodeError) as fault:
        raise CallFailedError(f"the request failed ({type(fault).__name__})") from None


def _connection_fault(fault: Exception) -> str:
    """What kind of connection fault it was, in words; the text of the exception itself may hold a key."""
    text = str(fault)
    if "NameResolutionError" in text or "Name or service" in text or "getaddrinfo" in text:
        return "its name could not be resolved"
    if "refused" in text:
        return "the connection was refused"
    return "it could not be reached, or it closed the connection"
