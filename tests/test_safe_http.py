"""The guard: what may be connected to. No real connection: a fake resolver, and a connector that counts."""

from __future__ import annotations

import gzip
import ipaddress
import json
import socket
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from m3.address_guard import Refused, is_public, parse_url
from m3.records import RunControl
from m3.safe_http import HttpLimits, HttpResult, SafeClient
from tests.conftest import OWN_CASES

VECTORS = json.loads((OWN_CASES / "ssrf_vectors.json").read_text("utf-8"))
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 22\r\n\r\n<html><p>a page</html>"


class Net:
    """A resolver from the case file and a connector that answers with canned replies over a socket pair."""

    def __init__(self, replies: list[bytes] | None = None) -> None:
        self.lookups: dict[str, int] = {}
        self.connected: list[tuple[str, int]] = []
        self.requests: list[bytes] = []
        self._replies = list(replies or [])

    def resolve(self, host: str, port: int, *args: Any, **kwargs: Any) -> list[tuple[Any, ...]]:
        name = host.rstrip(".").lower()
        turn = self.lookups[name] = self.lookups.get(name, 0) + 1
        if name in VECTORS["rebind"]:
            answers = VECTORS["rebind"][name]
            found = answers[min(turn, len(answers)) - 1]
        elif name in VECTORS["resolver"]:
            found = VECTORS["resolver"][name]
        else:
            # Numbers are read as the C library reads them; names are not looked up.
            return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (a, port, 0, 0))
            if ":" in a
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port))
            for a in found
        ]

    def connect(self, sockaddr: tuple[Any, ...], timeout_s: float) -> socket.socket:
        self.connected.append((sockaddr[0], sockaddr[1]))
        if sockaddr[1] in (443, 8443):
            raise ConnectionRefusedError("no TLS here")  # what was connected to is known; that is all that is asked
        ours, theirs = socket.socketpair()
        reply = self._replies.pop(0) if self._replies else PAGE

        def serve() -> None:
            with theirs:
                self.requests.append(theirs.recv(65_536))
                theirs.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        return ours

    def get(self, url: str, **kwargs: Any) -> HttpResult:
        return SafeClient(resolver=self.resolve, connect=self.connect, **kwargs).get(url, timeout_s=5)

    @property
    def non_public(self) -> list[str]:
        return [a for a, _ in self.connected if not is_public(ipaddress.ip_address(a))]


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda v: f"{v['class']}:{v['why'][:40]}")
def test_no_spelling_of_a_url_reaches_an_address_that_is_not_public(vector: dict[str, str]) -> None:
    net = Net()
    result = net.get(vector["url"])
    assert net.non_public == []
    if vector["must"] == "block":
        assert net.connected == []
        assert result.kind in ("refused", "network"), result
        assert result.kind == "refused" or result.detail == "dns"
        assert result.error
    elif vector["must"] == "allow":
        host = parse_url(vector["url"]).host
        answers = VECTORS["resolver"].get(host, [host])
        assert net.connected and all(address in answers for address, _ in net.connected)
        assert result.kind == "ok" or (vector["url"].lower().startswith("https") and result.detail == "connection")
    assert max(net.lookups.values(), default=0) <= 1  # a second look-up could be answered otherwise


@pytest.mark.parametrize("case", VECTORS["redirects"], ids=lambda c: c["why"])
def test_a_redirect_meets_the_same_guard_as_the_first_url(
    case: dict[str, Any], tls_world: TlsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = f"HTTP/1.1 {case['status']} Moved\r\nLocation: {case['location']}\r\nContent-Length: 0\r\n\r\n".encode()
    net = tls_world.net([reply, PAGE])
    result = net.get(case["start"], ca_file=tls_world.ca_file)
    assert net.non_public == []
    if case["must"] == "allow":
        assert result.kind == "ok", result
        assert len(result.hops) == 2 and len(net.connected) == 2
    elif case["must"] == "block":
        assert len(net.connected) == 1  # the start, nothing else
        assert result.kind == "refused" and result.error


class TlsWorld:
    """A test authority and one certificate for the public names of the case file."""

    def __init__(self, folder: Path) -> None:
        from tests.certificates import Authority

        authority = Authority(folder)
        self.ca_file = str(authority.certificate)
        self._context = authority.server_context("www.example.com", "example.com")

    def net(self, replies: list[bytes]) -> Net:
        context = self._context

        class TlsNet(Net):
            def connect(self, sockaddr: tuple[Any, ...], timeout_s: float) -> socket.socket:
                if sockaddr[1] != 443:
                    return super().connect(sockaddr, timeout_s)
                self.connected.append((sockaddr[0], sockaddr[1]))
                ours, theirs = socket.socketpair()
                reply = self._replies.pop(0)

                def serve() -> None:
                    with context.wrap_socket(theirs, server_side=True) as secure:
                        secure.recv(65_536)
                        secure.sendall(reply)

                threading.Thread(target=serve, daemon=True).start()
                return ours

        return TlsNet(replies)


@pytest.fixture(scope="session")
def tls_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsWorld]:
    yield TlsWorld(tmp_path_factory.mktemp("tls"))


def test_proxies_and_password_files_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine www.example.com login a password secret-of-netrc\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:3128")
    monkeypatch.setenv("no_proxy", "*")
    net = Net()
    assert net.get("http://www.example.com/").kind == "ok"
    assert net.connected == [("93.184.215.14", 80)]
    assert b"authorization" not in net.requests[0].lower()
    assert b"cookie" not in net.requests[0].lower()


def test_nothing_is_carried_from_one_page_to_the_next() -> None:
    first = PAGE.replace(b"Content-Length", b"Set-Cookie: id=1; Path=/\r\nContent-Length")
    net = Net([first, PAGE])
    client = SafeClient(resolver=net.resolve, connect=net.connect)
    for _ in range(2):
        assert client.get("http://www.example.com/", timeout_s=5).kind == "ok"
    assert b"cookie" not in net.requests[1].lower()


@pytest.mark.parametrize(
    ("url", "ok"),
    [
        ("http://wiki.corp.example:8090/page", True),
        ("http://wiki.corp.example/page", False),  # another port was named
        ("http://wiki.corp.example:6379/", False),
        ("http://intranet/", True),
        ("http://intranet:8090/", False),
        ("http://other.corp.example:8090/", False),
        ("http://metadata.google.internal/", False),
        ("http://10.9.8.7/", False),  # the host was named, not its address
        ("http://named-metadata.example/", False),  # link local stays shut even where it is named
    ],
)
def test_an_intranet_is_opened_by_named_hosts_only(url: str, ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"wiki.corp.example": ["10.1.1.1"], "other.corp.example": ["10.1.1.2"],
             "named-metadata.example": ["169.254.169.254"]}  # fmt: skip
    for name, answer in names.items():
        monkeypatch.setitem(VECTORS["resolver"], name, answer)
    net = Net()
    result = net.get(url, private_hosts=("wiki.corp.example:8090", "intranet", "named-metadata.example"))
    assert (result.kind == "ok") is ok
    assert bool(net.connected) is ok
    if not ok:
        assert result.kind == "refused"


@pytest.mark.parametrize("text", ["*", "*.corp.example", "", "corp example", "http://corp.example", "a:b"])
def test_a_wildcard_never_opens_private_space(text: str) -> None:
    with pytest.raises(Refused):
        SafeClient(private_hosts=(text,))


def test_loopback_is_opened_by_the_argument_and_nothing_else_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VECTORS["resolver"], "page.example", ["127.0.0.1"])
    for url, allowed in [
        ("http://127.0.0.1:41234/", True),
        ("http://page.example:41234/", True),
        ("http://[::1]:41234/", True),
        ("http://127.0.0.9:41234/", False),
        ("http://10.0.0.1/", False),
        ("http://www.example.com:41234/", False),  # the port rule is lifted for loopback alone
        ("http://169.254.169.254/", False),
    ]:
        net = Net()
        assert (net.get(url, allow_loopback=True).kind == "ok") is allowed, url
        assert bool(net.connected) is allowed, url
        net = Net()
        assert net.get(url).kind == "refused" and net.connected == [], url


def test_a_zone_in_an_answer_sinks_the_host() -> None:
    def resolve(host: str, port: int, *args: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2606:2800::1", port, 0, 3))]

    net = Net()
    assert SafeClient(resolver=resolve, connect=net.connect).get("http://a.example/").kind == "refused"
    assert net.connected == []


def test_a_domain_rule_is_asked_at_every_hop() -> None:
    reply = b"HTTP/1.1 302 Found\r\nLocation: http://example.com/x\r\n\r\n"
    net = Net([reply])
    result = net.get("http://www.example.com/", permits=lambda host: host == "www.example.com")
    assert (result.kind, result.detail) == ("refused", "domain_denied")
    assert len(net.connected) == 1


def test_the_hundredth_redirect_is_not_followed() -> None:
    replies = [f"HTTP/1.1 302 Found\r\nLocation: /{n}\r\n\r\n".encode() for n in range(100)]
    net = Net(replies)
    result = net.get("http://www.example.com/")
    assert (result.kind, result.detail) == ("refused", "too_many_redirects")
    assert len(net.connected) == HttpLimits().max_hops + 1


def test_a_stopped_run_connects_to_nothing() -> None:
    control = RunControl()
    control.stop("SIGINT")
    net = Net()
    result = SafeClient(resolver=net.resolve, connect=net.connect).get("http://www.example.com/", control=control)
    assert result.kind == "timeout" and net.connected == []


def test_the_address_table_agrees_with_the_registries_on_both_sides_of_each_edge() -> None:
    for text, public in [
        ("9.255.255.255", True), ("10.0.0.0", False), ("10.255.255.255", False), ("11.0.0.0", True),
        ("100.63.255.255", True), ("100.64.0.0", False), ("100.127.255.255", False), ("100.128.0.0", True),
        ("126.255.255.255", True), ("128.0.0.0", True), ("168.63.129.15", True), ("168.63.129.16", False),
        ("172.15.255.255", True), ("172.16.0.0", False), ("172.31.255.255", False), ("172.32.0.0", True),
        ("192.0.1.0", True), ("192.0.2.255", False), ("198.17.255.255", True), ("198.19.255.255", False),
        ("198.20.0.0", True), ("223.255.255.255", True), ("224.0.0.0", False), ("239.1.1.1", False),
        ("::", False), ("::1", False), ("::7f00:1", False), ("::ffff:8.8.8.8", False), ("64:ff9b::808:808", False),
        ("1fff::1", False), ("2000::1", True), ("2001:1ff:ffff::1", False), ("2001:200::1", True),
        ("2001:db7:ffff::1", True), ("2001:db8:1::1", False), ("2001:db9::1", True), ("2002::1", False),
        ("2003::1", True), ("3ffe::1", True), ("3fff:fff::1", False), ("3fff:1000::1", True), ("4000::1", False),
        ("fc00::1", False), ("fe80::1", False), ("fec0::1", False), ("ff02::1", False), ("fe80::1%eth0", False),
    ]:  # fmt: skip
        assert is_public(ipaddress.ip_address(text)) is public, text


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("HTTPS://EXAMPLE.com:443/A%20b?q=ä#top", "https://example.com/A%20b?q=%C3%A4"),
        ("http://bücher.example", "http://xn--bcher-kva.example/"),
        ("http://example.com.:8080/", "http://example.com:8080/"),
        ("http://[2606:2800:0220:0001:0::1]/", "http://[2606:2800:220:1::1]/"),
        ("http://example.com:/", "http://example.com/"),
    ],
)
def test_a_url_has_one_canonical_spelling(url: str, canonical: str) -> None:
    assert parse_url(url).url == canonical


BODY = b"<html><p>a page</p></html>"
OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


def _gz(data: bytes) -> bytes:
    return gzip.compress(data)


@pytest.mark.parametrize(
    ("reply", "kind", "detail"),
    [
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n" + PAGE, "ok", ""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + PAGE, "ok", ""),
        (b"HTTP/1.0 200 OK\r\n\r\n" + BODY, "ok", ""),
        (OK_HEAD + b"Content-Encoding: gzip\r\n\r\n" + _gz(BODY[:9]) + _gz(BODY[9:]), "ok", ""),
        (OK_HEAD + b"Content-Encoding: gzip, deflate\r\n\r\n" + zlib.compress(_gz(BODY)), "ok", ""),
        (OK_HEAD + b"Content-Encoding: identity\r\n\r\n" + BODY, "ok", ""),
        (
            OK_HEAD + b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(BODY * 9)[:-6],
            "unsupported_type",
            "bad_encoding",
        ),
        (OK_HEAD + b"Content-Encoding: gzip\r\n\r\n" + BODY, "unsupported_type", "bad_encoding"),
        (OK_HEAD + b"Content-Encoding: gzip, gzip, gzip, gzip\r\n\r\nx", "unsupported_type", "bad_encoding"),
        (OK_HEAD + b"Content-Encoding: gzip\r\n\r\n" + _gz(b""), "empty", "no_body"),
        (OK_HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "network", "bad_http"),
        (OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc", "network", "bad_http"),
        (OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n", "network", "bad_http"),
        (OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1a\r\n" + BODY + b"\r\n", "network", "incomplete"),
        (OK_HEAD + b"Content-Length: 0\r\n\r\n", "empty", "no_body"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", "network", "bad_http"),
        (b"HTTP/2 preface\r\n\r\n", "network", "bad_http"),
        (b"", "network", "connection"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://www.example.com/\x00x\r\n\r\n", "refused", "bad_url"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n", "refused", "bad_url"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\xfc\xe9 x\r\n\r\n", "ok", ""),
        (b"HTTP/1.1 300 Multiple Choices\r\nLocation: /x\r\n\r\n", "network", "http_status"),
    ],
)
def test_odd_answers_are_read_or_classed(reply: bytes, kind: str, detail: str) -> None:
    result = Net([reply]).get("http://www.example.com/")
    assert (result.kind, result.detail) == (kind, detail), result
    assert kind != "ok" or b"a page" in result.body
    assert kind == "ok" or (result.error and result.error.isprintable())
