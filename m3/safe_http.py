"""The only door to a URL that a model or a page chose: checked addresses, one deadline, counted bytes.

A client of its own on `http.client` instead of `requests`, because the guarantees lie where libraries look away: the
name is resolved once and the socket goes to the very address that was checked; `requests` reads the whole body of a
redirect and times single reads only; urllib3 cannot tell a compressed page that broke off from a whole one.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from config import VERSION
from m3.address_guard import Address, AddressGuard, Refused, WebTarget, parse_url
from m3.inflate import PIECE, EncodingError, codings_of, inflate
from m3.records import FetchKind, RunControl
from m3.sniff import HEAD_BYTES, MediaKind, media_kind
from m3.untrusted import safe_line
from m3.watchdog import Watchdog

SockAddr: TypeAlias = tuple[Any, ...]
Resolver: TypeAlias = Callable[..., Sequence[tuple[Any, ...]]]
Connector: TypeAlias = Callable[[SockAddr, float], socket.socket]

USER_AGENT = f"m3-research-agent/{VERSION}"
ACCEPT = "text/html,application/xhtml+xml,application/pdf;q=0.9,text/plain;q=0.9,*/*;q=0.5"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
MAX_ADDRESSES = 4  # of one host are tried
_LINE = 65_536


class HttpLimits(NamedTuple):
    """Bounds of one fetch. Seconds and decoded bytes."""

    connect_s: float = 5.0
    read_s: float = 8.0  # of silence
    max_hops: int = 5
    text_bytes: int = 5_000_000  # HTML and all other text; a 2-MB cut loses pages with large inline scripts
    pdf_bytes: int = 20_000_000


class Validators(NamedTuple):
    """What makes a request conditional. Sent only to `url`, not to another hop on the way there."""

    url: str
    etag: str = ""
    last_modified: str = ""


@dataclass(frozen=True)
class HttpResult:
    """The outcome of one GET. `kind` and `detail` as in FetchedPage; `error` is a sentence for people.

    body: decoded bytes, only for kind ok; truncated: it was cut at its cap; headers: lower-case names;
    hops: every URL that was asked, in order; media: what the body is, by its bytes.
    """

    url: str
    kind: FetchKind
    detail: str = ""
    error: str = ""
    status: int = 0
    final_url: str = ""
    content_type: str = ""
    body: bytes = b""
    truncated: bool = False
    media: MediaKind | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hops: tuple[str, ...] = ()
    seconds: float = 0.0


class _Fault(Exception):
    """A fetch that ends without a page: its kind, its fine code, the sentence."""

    def __init__(self, kind: FetchKind, code: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.kind: FetchKind = kind
        self.code, self.status = code, status


class SafeClient:
    """GET for URLs that nobody vouches for. No cookies, no credentials, no environment proxies, no retries.

    resolver: as `socket.getaddrinfo`, called once a hop; connect: `(sockaddr, timeout_s) -> socket`, called only for
    an address that passed the guard; allow_loopback: for tests, opens 127.0.0.1 and ::1 at any port.
    private_hosts: `host` or `host:port` that may be in private space; permits: a domain rule asked at each hop.
    proxy: `http://[user:password@]host:port` that makes all connections; it then owns the address check.
    ca_file: certificates trusted besides the usual ones.
    """

    def __init__(
        self,
        *,
        resolver: Resolver = socket.getaddrinfo,
        connect: Connector | None = None,
        allow_loopback: bool = False,
        limits: HttpLimits = HttpLimits(),
        user_agent: str = USER_AGENT,
        private_hosts: Sequence[str] = (),
        permits: Callable[[str], bool] | None = None,
        proxy: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        self.limits = limits
        self.guard = AddressGuard(frozenset(map(_host_and_port, private_hosts)), allow_loopback)
        self._resolver, self._connect = resolver, connect
        self._user_agent = user_agent
        self._permits = permits
        self._proxy = urlsplit(proxy) if proxy else None
        self._ca_file = ca_file
        self._tls: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    def get(
        self,
        url: str,
        *,
        timeout_s: float = 15.0,
        control: RunControl | None = None,
        validators: Validators | None = None,
    ) -> HttpResult:
        """Fetch one URL, redirects included, in at most `timeout_s` seconds. Never raises."""
        control = (control or RunControl()).within(timeout_s)
        fetch = _Fetch(self, url, control, validators)
        started = time.monotonic()
        with Watchdog(control, timeout_s) as watchdog:
            fetch.watchdog = watchdog
            try:
                result = fetch.run()
            except _Fault as fault:
                result = fetch.failed(fault)
            except Refused as refusal:
                result = fetch.failed(_Fault("refused", refusal.code, str(refusal)))
            except Exception as problem:  # noqa: BLE001  whatever a server provokes ends as a class, not as a crash
                result = fetch.failed(_explain(problem))
            if watchdog.fired and result.kind != "ok":
                result = replace(result, kind="timeout", detail="deadline", error=fetch.too_late())
        return replace(result, seconds=time.monotonic() - started)

    # --- the parts that a fetch uses --------------------------------------------------------------------

    def tls_context(self) -> ssl.SSLContext:
        """Certificates and names are verified, always; there is no way to turn that off."""
        with self._lock:
            if self._tls is None:
                import certifi

                context = ssl.create_default_context(cafile=certifi.where())
                if self._ca_file:
                    context.load_verify_locations(cafile=self._ca_file)
                self._tls = context
            return self._tls

    def check_target(self, target: WebTarget, ports: Sequence[int]) -> None:
        """The gate before any look-up: port, literal address, the caller's domain rule."""
        self.guard.check_target(target, ports=ports)
        if self._permits is not None and not self._permits(target.host):
            raise Refused("domain_denied", f"{target.host} is excluded by the domain settings")

    def lookup(self, host: str, port: int, control: RunControl) -> list[tuple[Address, SockAddr]]:
        """Resolve a name once. `getaddrinfo` cannot be interrupted, so it runs in a thread that may be left."""
        answer: list[Any] = []
        done = threading.Event()

        def ask() -> None:
            try:
                answer.append(self._resolver(host, port, 0, socket.SOCK_STREAM))
            except Exception as problem:  # noqa: BLE001  handed over to the waiting thread
                answer.append(problem)
            done.set()

        threading.Thread(target=ask, daemon=True, name=f"lookup {host}").start()
        while not done.wait(max(0.0, min(0.1, control.remaining()))):
            if control.expired:
                raise _Fault("timeout", "deadline", f"the name {host} was not resolved in time")
        if isinstance(answer[0], Exception):
            raise _Fault("network", "dns", f"the name {host} could not be resolved") from None
        found = []
        for entry in answer[0]:
            sockaddr = entry[4]
            try:
                found.append((_address(sockaddr), sockaddr))
            except ValueError:
                raise Refused("private_address", f"{host} has an address that cannot be read") from None
        if not found:
            raise _Fault("network", "dns", f"the name {host} has no address")
        return found

    def open(self, sockaddr: SockAddr, seconds: float, watchdog: Watchdog) -> socket.socket:
        """Connect to exactly this address and make sure that the peer is it."""
        if self._connect is not None:
            connected = self._connect(sockaddr, seconds)
            watchdog.add(connected)
            return connected
        family = socket.AF_INET6 if ":" in sockaddr[0] else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            watchdog.add(sock)
            sock.settimeout(seconds)
            sock.connect(sockaddr)
            if _address(sock.getpeername()) != _address(sockaddr):
                raise Refused("private_address", "the connection went to another address than the checked one")
        except BaseException:
            sock.close()
            raise
        return sock

    def open_proxy(self, target: WebTarget, control: RunControl, watchdog: Watchdog) -> socket.socket | None:
        """A connection to the proxy of the settings, tunnelled for https; None when there is none for this host."""
        proxy = self._proxy
        if proxy is None or self.guard.is_opened(target) or not proxy.hostname:
            return None
        sock: socket.socket | None = None
        for _, sockaddr in self.lookup(proxy.hostname, proxy.port or 3128, control)[:MAX_ADDRESSES]:
            family = socket.AF_INET6 if ":" in sockaddr[0] else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            watchdog.add(sock)
            sock.settimeout(control.timeout(self.limits.connect_s))
            try:
                sock.connect(sockaddr)
                break
            except OSError:
                sock.close()
                sock = None
        if sock is None:
            raise _Fault("network", "connection", "the proxy of FETCH_PROXY could not be reached")
        if target.scheme == "https":
            sock.settimeout(control.timeout(self.limits.read_s))
            where = f"[{target.host}]" if ":" in target.host else target.host
            head = [f"CONNECT {where}:{target.port} HTTP/1.1", f"Host: {where}:{target.port}"]
            head += [f"{name}: {value}" for name, value in self.proxy_headers().items()]
            sock.sendall(("\r\n".join(head) + "\r\n\r\n").encode("ascii"))
            reply = _Response(sock, method="CONNECT")
            reply.begin()
            if reply.status != 200:
                raise _Fault("network", "proxy", f"the proxy of FETCH_PROXY answered {reply.status}")
        return sock

    def proxy_headers(self) -> dict[str, str]:
        if self._proxy is None or self._proxy.username is None:
            return {}
        import base64
        from urllib.parse import unquote

        pair = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
        return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}

    @property
    def uses_proxy(self) -> bool:
        return self._proxy is not None

    @property
    def user_agent(self) -> str:
        return self._user_agent


class _Response(http.client.HTTPResponse):
    """http.client takes 102 and 103 for the answer itself; here they are skipped like 100."""

    def _read_status(self) -> tuple[str, int, str]:
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not 102 <= status <= 199:
                return version, status, reason
            http.client.parse_headers(self.fp)


class _Fetch:
    """One GET on its way through its hops."""

    watchdog: Watchdog

    def __init__(self, client: SafeClient, url: str, control: RunControl, validators: Validators | None) -> None:
        self._client, self._url, self._control, self._validators = client, url, control, validators
        self._hops: list[str] = []
        self._refreshed = 0.0
        self._status = 0
        self._headers: dict[str, str] = {}

    def run(self) -> HttpResult:
        target = parse_url(self._url)
        asked_port = target.port
        for _ in range(self._client.limits.max_hops + 1):
            # A redirect may not walk over the ports of this machine, not even in a test that opened loopback.
            self._client.check_target(target, (asked_port,) if self._hops else ())
            self._hops.append(target.url)
            connection = self._connection(target, asked_port)
            try:
                response = self._ask(connection, target)
                self._status = response.status
                self._headers = {name.lower(): value for name, value in response.getheaders()}
                if response.status not in REDIRECTS:
                    return self._result(response, target)
            finally:
                connection.close()
            target = self._next(target)
        raise Refused("too_many_redirects", f"more than {self._client.limits.max_hops} redirects")

    def failed(self, fault: _Fault) -> HttpResult:
        kind, code, message = fault.kind, fault.code, str(fault)
        if self._control.expired and kind == "network":
            kind, code, message = "timeout", "deadline", self.too_late()
        return HttpResult(
            self._url, kind, code, message, fault.status or self._status,
            self._hops[-1] if self._hops else "", headers=self._headers, hops=tuple(self._hops),
        )  # fmt: skip

    def too_late(self) -> str:
        return "the run was stopped" if self._control.stopped else "the page did not come within the time allowed"

    # --- connecting -------------------------------------------------------------------------------------

    def _connection(self, target: WebTarget, asked_port: int) -> http.client.HTTPConnection:
        sock = self._socket(target, asked_port)
        if target.scheme == "https":
            sock.settimeout(self._left(self._client.limits.read_s))
            raw = sock
            try:
                sock = self._client.tls_context().wrap_socket(raw, server_hostname=target.host)
            except BaseException:
                raw.close()
                raise
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.set_debuglevel(0)  # whatever the process has: it would print the proxy's key
        connection.response_class = _Response
        connection.auto_open = 0
        connection.sock = sock
        return connection

    def _socket(self, target: WebTarget, asked_port: int) -> socket.socket:
        through_proxy = self._client.open_proxy(target, self._control, self.watchdog)
        if through_proxy is not None:
            return through_proxy
        if target.literal is not None:
            addresses = [(target.literal, _sockaddr(target.literal, target.port))]
        else:
            addresses = self._client.lookup(target.host, target.port, self._control)
        ports = (asked_port,) if len(self._hops) > 1 else ()
        self._client.guard.check_addresses(target, [address for address, _ in addresses], ports=ports)
        problem: OSError | None = None
        for _, sockaddr in addresses[:MAX_ADDRESSES]:
            try:
                return self._client.open(sockaddr, self._left(self._client.limits.connect_s), self.watchdog)
            except OSError as fault:
                problem = fault
        raise problem or OSError("no address")

    def _left(self, at_most: float) -> float:
        seconds = self._control.timeout(at_most)
        if seconds <= 0:
            raise _Fault("timeout", "deadline", self.too_late())
        return seconds

    # --- asking -----------------------------------------------------------------------------------------

    def _ask(self, connection: http.client.HTTPConnection, target: WebTarget) -> http.client.HTTPResponse:
        plain_proxy = self._client.uses_proxy and target.scheme == "http" and not self._client.guard.is_opened(target)
        connection.sock.settimeout(self._left(self._client.limits.read_s))
        connection.putrequest(
            "GET", target.url if plain_proxy else target.path, skip_host=True, skip_accept_encoding=True
        )
        headers = {
            "Host": target.authority,
            "User-Agent": self._client.user_agent,
            "Accept": ACCEPT,
            "Accept-Encoding": "gzip, deflate",
            "Connection": "close",
            **(self._client.proxy_headers() if plain_proxy else {}),
        }
        if self._validators is not None and self._validators.url == target.url:
            if self._validators.etag:
                headers["If-None-Match"] = self._validators.etag
            if self._validators.last_modified:
                headers["If-Modified-Since"] = self._validators.last_modified
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        self._sock = connection.sock
        return connection.getresponse()

    def _next(self, target: WebTarget) -> WebTarget:
        """Where a redirect leads. Its body is never read."""
        location = self._headers.get("location", "").strip()
        if not location:
            raise Refused("redirect_without_location", "the server redirects without saying where to")
        with contextlib.suppress(UnicodeError):  # header bytes come as Latin-1; servers mean UTF-8
            location = location.encode("latin-1").decode("utf-8")
        if re.search(r"[\x00-\x1f\x7f]", location):
            raise Refused("bad_url", "the redirect's address holds a control character")
        try:
            parts = urlsplit(urljoin(target.url, location))
        except ValueError:
            raise Refused("bad_url", "the redirect's address cannot be read") from None
        safe = "!#$%&'()*+,/:;=?@[]~"
        joined = urlunsplit((parts.scheme, parts.netloc, quote(parts.path, safe), quote(parts.query, safe), ""))
        found = parse_url(joined)
        if found.url in self._hops:
            raise Refused("redirect_loop", "the server redirects in a circle")
        return found

    # --- the answer -------------------------------------------------------------------------------------

    def _result(self, response: http.client.HTTPResponse, target: WebTarget) -> HttpResult:
        self._check_status(response.status)
        content_type = safe_line(self._headers.get("content-type", ""), 200)
        try:
            codings = codings_of(self._headers.get("content-encoding", ""))
            pieces = inflate(self._raw_body(response), codings)
            body, media, truncated = self._read(pieces, content_type, target.url)
        except EncodingError as problem:
            raise _Fault("unsupported_type", "bad_encoding", str(problem)) from None
        return HttpResult(
            self._url, "ok", "", "", response.status, target.url, content_type, body, truncated, media,
            self._headers, tuple(self._hops),
        )  # fmt: skip

    def _check_status(self, status: int) -> None:
        if status in (200, 201, 202, 203, 206):
            if self._headers.get("cf-mitigated", "").lower() == "challenge":
                raise _Fault("blocked", "challenge", "the site asks for a browser check", status)
            return
        if status in (204, 205, 304):
            raise _Fault("empty", "http_status", f"the server answered {status}, without a page", status)
        kind: FetchKind = "network"
        if status in (404, 410):
            kind = "not_found"
        elif 400 <= status < 500 or status == 999:  # 999 is LinkedIn's refusal
            kind = "blocked"
        if "challenge" in self._headers.get("cf-mitigated", "").lower():
            raise _Fault("blocked", "challenge", f"the site asks for a browser check (it answered {status})", status)
        raise _Fault(kind, "http_status", f"the server answered {status}", status)

    def _raw_body(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        coding = self._headers.get("transfer-encoding", "").strip().lower()
        lengths = {value.strip() for value in response.headers.get_all("content-length", [])}
        if coding and coding != "chunked":
            raise _Fault("network", "bad_http", "the server used a transfer coding that was not asked for")
        if coding:
            yield from self._chunks(response.fp)
            return
        if len(lengths) > 1:
            raise _Fault("network", "bad_http", "the server gave two lengths for one page")
        length = lengths.pop() if lengths else ""
        if re.fullmatch(r"[0-9]{1,18}", length):
            yield from self._exactly(response.fp, int(length))
            return
        while piece := self._some(response.fp, PIECE):  # no usable length: until the server closes
            yield piece

    def _refresh_timeout(self) -> None:
        """Let the next read wait as long as it may; at most five times a second, for pages of tiny chunks."""
        now = time.monotonic()
        if now - self._refreshed > 0.2:
            self._refreshed = now
            self._sock.settimeout(self._left(self._client.limits.read_s))

    def _some(self, stream: Any, at_most: int) -> bytes:
        self._refresh_timeout()
        piece: bytes = stream.read1(at_most)
        if self.watchdog.fired:
            raise _Fault("timeout", "deadline", self.too_late())
        return piece

    def _exactly(self, stream: Any, length: int) -> Iterator[bytes]:
        while length:
            piece = self._some(stream, min(PIECE, length))
            if not piece:
                raise _Fault("network", "incomplete", "the page broke off before its end")
            length -= len(piece)
            yield piece

    def _chunks(self, stream: Any) -> Iterator[bytes]:
        """Chunked transfer (RFC 9112, 7.1). Trailers are not read: nothing after the last chunk is of use."""
        while True:
            self._refresh_timeout()
            line: bytes = stream.readline(_LINE + 1)
            if self.watchdog.fired:
                raise _Fault("timeout", "deadline", self.too_late())
            if not line:
                raise _Fault("network", "incomplete", "the page broke off before its end")
            digits = line.partition(b";")[0].strip()
            if len(line) > _LINE or not re.fullmatch(rb"[0-9a-fA-F]{1,16}", digits):
                raise _Fault("network", "bad_http", "the server's answer is not valid HTTP")
            size = int(digits, 16)
            if size == 0:
                return
            yield from self._exactly(stream, size)
            if stream.readline(3).strip():
                raise _Fault("network", "bad_http", "the server's answer is not valid HTTP")

    def _read(self, pieces: Iterator[bytes], content_type: str, url: str) -> tuple[bytes, MediaKind, bool]:
        """The body up to the cap of its kind, which its first bytes decide."""
        body = bytearray()
        media: MediaKind | None = None
        cap = 0
        for piece in pieces:
            if self._control.expired:
                raise _Fault("timeout", "deadline", self.too_late())
            body += piece
            if media is None and len(body) >= HEAD_BYTES:
                media, cap = self._media(content_type, body, url)
            if media is not None and len(body) > cap:
                del body[cap:]
                return bytes(body), media, True
        if not body:
            raise _Fault("empty", "no_body", "the server sent an empty page", self._status)
        if media is None:
            media, cap = self._media(content_type, body, url)
        return bytes(body), media, self._status == 206

    def _media(self, content_type: str, body: bytearray, url: str) -> tuple[MediaKind, int]:
        media = media_kind(content_type, bytes(body[:HEAD_BYTES]), url)
        if media == "binary":
            named = content_type.partition(";")[0].strip() or "binary data"
            raise _Fault("unsupported_type", "binary", f"this is {safe_line(named, 60)}, not text", self._status)
        return media, self._client.limits.pdf_bytes if media == "pdf" else self._client.limits.text_bytes


# --- helpers ---------------------------------------------------------------------------------------------


def _address(sockaddr: SockAddr) -> Address:
    """The address in a socket address; an IPv6 zone is kept, so that the guard sees it. Raises ValueError."""
    address = ipaddress.ip_address(sockaddr[0])
    if isinstance(address, ipaddress.IPv6Address) and len(sockaddr) == 4 and sockaddr[3] and address.scope_id is None:
        return ipaddress.IPv6Address(f"{address}%{sockaddr[3]}")
    return address


def _sockaddr(address: Address, port: int) -> SockAddr:
    return (str(address), port) if address.version == 4 else (str(address), port, 0, 0)


def _host_and_port(text: str) -> tuple[str, int | None]:
    """`host` or `host:port` of ALLOW_PRIVATE_HOSTS. Raises ValueError for what is no plain name."""
    if re.search(r"[/?#@]", text):
        raise Refused("bad_host", "give host or host:port, nothing more")
    target = parse_url(f"http://{text}/")
    named = re.search(r":[0-9]+\Z", text) is not None
    return target.host, target.port if named else None


# X509_V_ERR_* of OpenSSL, to what a person can do something with.
_CERTIFICATE = {
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    18: "its certificate is self-signed",
    19: "its certificate is signed by an authority that is not trusted",
    20: "its certificate is signed by an authority that is not trusted",
    21: "its certificate is signed by an authority that is not trusted",
    23: "its certificate was revoked",
    62: "its certificate is for another name",
    64: "its certificate is for another address",
}


def _explain(problem: Exception) -> _Fault:
    """Any exception of the network stack as a kind, a code and a sentence. Foreign text never gets in."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        why = _CERTIFICATE.get(problem.verify_code, "its certificate could not be verified")
        return _Fault("network", "tls", f"the connection is not trustworthy: {why}")
    if isinstance(problem, TimeoutError):
        return _Fault("timeout", "timeout", "the server did not answer in time")
    if isinstance(problem, ssl.SSLError):
        return _Fault(
            "network", "tls", "no secure connection could be made: the server does not speak TLS as it should"
        )
    if isinstance(problem, ConnectionError | http.client.RemoteDisconnected):
        return _Fault("network", "connection", "the connection was refused or broken off")
    if isinstance(problem, http.client.IncompleteRead):
        return _Fault("network", "incomplete", "the page broke off before its end")
    if isinstance(problem, OSError):
        return _Fault("network", "connection", "the server could not be reached")
    if isinstance(problem, http.client.HTTPException | ValueError):
        return _Fault("network", "bad_http", "the server's answer is not valid HTTP")
    return _Fault("network", "bad_http", f"the page could not be fetched ({type(problem).__name__})")
