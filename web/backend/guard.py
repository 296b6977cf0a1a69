"""What stands before every route: who may ask, from where, how much and how slowly; and the headers of every answer.

Host first: it is the one check that stops DNS rebinding. Then the origin: a form or an image of any page can reach
this machine without a preflight. Then the token, where one is set. Session cookies only tell clients apart.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
SESSION_COOKIE = "m3_session"
BODY_SECONDS, BODY_BYTES = 20.0, 512_000  # for the whole body of a request
UPLOAD_SECONDS, UPLOAD_OVERHEAD = 120.0, 100_000  # and of an upload, with so many bytes of a form around its file
LINGER_SECONDS = 2.0  # that a refused body may go on arriving
API_PATHS = ("/chat", "/upload", "/files", "/health")
CSP = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9](?:[a-z0-9._-]{0,252}))(?::(?P<port>[0-9]{1,5}))?")
_SESSION = re.compile(r"[A-Za-z0-9_-]{43}")
_COOKIE = re.compile(rf"(?:\A|;)\s*{SESSION_COOKIE}=([^;]*)")
TOO_LARGE = "the request is larger than is taken here"


@dataclass(frozen=True)
class Rules:
    """Who may use the chat. hosts: names (with or without port) it may be opened under; origins: other pages that may
    use it; token: what a request must bear, None for nothing; upload_bytes: of a file."""

    hosts: frozenset[str] = LOOPBACK_NAMES
    origins: frozenset[str] = frozenset()
    token: str | None = None
    upload_bytes: int = 20_000_000

    def body_bytes(self, path: str) -> int:
        """The most that the body of a request to `path` may have."""
        return self.upload_bytes + UPLOAD_OVERHEAD if path == "/upload" else BODY_BYTES

    def host_fault(self, headers: Headers) -> str:
        """Why the Host header is refused; "" when it may stay."""
        given = headers.getlist("host")
        match = _HOST.fullmatch(given[0].strip().lower()) if len(given) == 1 else None
        if match is None:
            return "the Host header is missing or none that a browser sends"
        if match["name"] not in self.hosts and match[0] not in self.hosts:
            return "this server is not known under that host name (CHAT_HOSTS can add it)"
        return ""

    def origin_fault(self, headers: Headers) -> str:
        """Why a request is taken for one of another page; "" when it may stay.

        An absent Origin is no browser's POST. One that is present must be this server's own or one of `origins`,
        exactly; `null` (a sandboxed frame, a file) is neither.
        """
        origin = headers.get("origin")
        if origin is not None:
            own = headers.get("host", "").strip().lower()
            allowed = {f"http://{own}", f"https://{own}"} | self.origins
            return "" if origin in allowed else "requests from other pages are refused"
        if headers.get("sec-fetch-site", "none").lower() == "cross-site":
            return "requests from other sites are refused"
        return ""

    def knows(self, headers: Headers) -> bool:
        """Whether a request bears the token, where there is one. It is never taken from the address."""
        if self.token is None:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode())


class Guard:
    """The outermost ASGI layer: applies `Rules`, gives each client its session cookie and bounds the time of bodies.

    The session id of a request stands in `scope["state"]["session"]`.
    """

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self.app = app
        self.rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        session, is_new, broken = _session(headers)
        scope.setdefault("state", {})["session"] = session

        seconds = UPLOAD_SECONDS if scope["path"] == "/upload" else BODY_SECONDS
        body = _Body(receive, seconds, self.rules.body_bytes(scope["path"]))
        failed = False

        async def send_guarded(message: Message) -> None:
            nonlocal failed
            if message["type"] == "http.response.start":
                failed = message["status"] >= 400
                answer = MutableHeaders(scope=message)
                if failed and not body.complete:
                    answer["Connection"] = "close"
                for name, value in SECURITY_HEADERS.items():
                    answer[name] = value
                if is_new and (scope["path"] == "/" or _is_api(scope["path"])):
                    answer.append("Set-Cookie", f"{SESSION_COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict")
            elif failed and not body.complete and not message.get("more_body", False):
                # A connection that is closed while its client still sends is reset, and the answer is lost with it.
                await send({**message, "more_body": True})
                await body.discard()
                message = {"type": "http.response.body"}
            await send(message)

        refusal = self._refusal(scope, headers, broken)
        body.complete = scope["method"] in ("GET", "HEAD", "OPTIONS")
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        await self.app(scope, body.receive, send_guarded)

    def _refusal(self, scope: Scope, headers: Headers, broken: bool) -> Response | None:
        path = scope["path"]
        fault = self.rules.host_fault(headers)
        if fault:
            return refused(400, fault)
        changes = scope["method"] not in ("GET", "HEAD", "OPTIONS")
        if changes or _is_api(path):
            fault = self.rules.origin_fault(headers)
            if fault:
                return refused(403, fault)
        if _is_api(path) and path != "/health" and scope["method"] != "OPTIONS":
            if not self.rules.knows(headers):
                answer = refused(401, "this chat asks for its token (CHAT_TOKEN)")
                answer.headers["WWW-Authenticate"] = "Bearer"
                return answer
            if broken:
                return refused(400, "the session cookie is none of this server's; it was replaced, try again")
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared[:18]) > self.rules.body_bytes(path):
            return refused(413, TOO_LARGE)
        return None


def refused(status: int, message: str) -> JSONResponse:
    """An answer before a run starts: one line as `{"error": …}`."""
    return JSONResponse({"error": message}, status_code=status)


def _is_api(path: str) -> bool:
    return any(path == own or path.startswith(f"{own}/") for own in API_PATHS)


def _session(headers: Headers) -> tuple[str, bool, bool]:
    """The session id, whether it is new, and whether the one that was sent could not be any of this server's."""
    found = _COOKIE.search(headers.get("cookie", ""))
    if found is not None and _SESSION.fullmatch(found[1].strip()):
        return found[1].strip(), False, False
    return secrets.token_urlsafe(32), True, found is not None


class _Body:
    """The body of a request on its way in: at most `most` bytes within `seconds`. complete: all of it has come."""

    def __init__(self, receive: Receive, seconds: float, most: int) -> None:
        self.complete = False
        self._receive, self._most, self._size = receive, most, 0
        self._ends = time.monotonic() + seconds

    async def receive(self) -> Message:
        """The next message. Raises HTTPException 413 or 408 beyond the bounds."""
        if self.complete:
            return await self._receive()
        message = await self._next(self._ends)
        if message is None:
            raise HTTPException(408, "the request took too long to arrive")
        self._size += len(message.get("body", b""))
        if self._size > self._most:
            raise HTTPException(413, TOO_LARGE)
        return message

    async def discard(self) -> None:
        """Take in the rest for a moment, so that its sender can hear the answer; nothing of it is kept."""
        ends = time.monotonic() + LINGER_SECONDS
        while not self.complete and await self._next(ends) is not None:
            continue

    async def _next(self, ends: float) -> Message | None:
        try:
            message = await asyncio.wait_for(self._receive(), max(0.001, ends - time.monotonic()))
        except (TimeoutError, asyncio.TimeoutError):
            return None
        self.complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message
