"""Which URLs and which addresses a page fetch may go to: a syntax gate and an explicit table of non-public space.

The table is the IANA special-purpose registries (IPv4 and IPv6, read 2025-10) with the deprecated forms that embed an
IPv4 address, and Azure's wire server. `ipaddress.is_global` is not used: several patch releases of Python call
6to4, NAT64, IPv4-compatible and site-local addresses global.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from m3.patterns import lazy_pattern

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

WEB_PORTS = frozenset({80, 443, 8080, 8443})
MAX_URL = 2_048
DEFAULT_PORTS = {"http": 80, "https": 443}

_DENIED_4 = [
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's wire server, in public space
        "169.254.0.0/16",  # link local; the clouds' metadata
        "172.16.0.0/12",
        "192.0.0.0/24",  # IETF assignments; Oracle's metadata
        "192.0.2.0/24",
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]
# Only 2000::/3 is handed out as global unicast. All that embeds an IPv4 address (::/96, ::ffff:0:0/96,
# ::ffff:0:0:0/96, 64:ff9b::/96, 64:ff9b:1::/48), unique local, link local and multicast lie outside it.
_GLOBAL_6 = ipaddress.ip_network("2000::/3")
_DENIED_6 = [
    ipaddress.ip_network(network)
    for network in (
        "2001::/23",  # IETF assignments, with Teredo and ORCHID
        "2001:db8::/32",
        "2002::/16",  # 6to4: embeds any IPv4 address
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation (RFC 9637)
    )
]
# What a host named in ALLOW_PRIVATE_HOSTS may resolve to besides public space. Link local stays out: cloud
# metadata lives there and no intranet page does.
_PRIVATE = [
    ipaddress.ip_network(network)
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "fc00::/7", "::1")
]
_LOOPBACK = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))


class Refused(ValueError):
    """A URL or an address that may not be fetched. `code` is the fine code, the message a sentence for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def is_public(address: Address) -> bool:
    """True for an address of the public Internet, by the explicit table."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _DENIED_4)
    if address.scope_id is not None:
        return False
    return address in _GLOBAL_6 and not any(address in network for network in _DENIED_6)


def is_loopback(address: Address) -> bool:
    """True for 127.0.0.1 and ::1 exactly: what tests may open, not the rest of 127.0.0.0/8."""
    return address in _LOOPBACK


def is_private(address: Address) -> bool:
    """True for space that an intranet uses: what a host in ALLOW_PRIVATE_HOSTS may resolve to."""
    return any(address in network for network in _PRIVATE)


class WebTarget(NamedTuple):
    """A URL that passed the gate, taken apart. `url` is its canonical spelling without the fragment."""

    url: str
    scheme: str
    host: str  # ASCII, lower case, without a trailing dot; an IPv6 literal without brackets
    port: int
    path: str  # with the query, as it goes on the wire
    literal: Address | None = None

    @property
    def authority(self) -> str:
        """The Host header: the name, and the port where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


_BAD_CHARACTER = lazy_pattern(r"[\x00-\x20\x7f-\xa0\\]")
_LABEL = lazy_pattern(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_NUMBER = lazy_pattern(r"(?:0x[0-9a-f]*|[0-9]+)\Z")
# Kept as they stand in paths and queries; all else that is not ASCII graphic is percent-encoded (RFC 3986).
_PATH_SAFE = "!#$%&'()*+,/:;=?@[]~"


def parse_url(url: str) -> WebTarget:
    """Pass a URL through the syntax gate. Ports and addresses are judged later, when the answers are known.

    Raises Refused: not http(s), user info, control characters, spaces, backslash, a host that is no plain name,
    a number spelt as anything but a dotted quad (WHATWG "ends in a number"), a port that is no number.
    """
    if len(url) > MAX_URL:
        raise Refused("url_too_long", f"the URL is longer than {MAX_URL} characters")
    if _BAD_CHARACTER.search(url):
        raise Refused("bad_url", "the URL holds a space, a control character or a backslash")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise Refused("bad_url", "the URL cannot be read") from None
    scheme = parts.scheme.lower()
    if scheme not in DEFAULT_PORTS:
        raise Refused("bad_scheme", f"only http and https are fetched, not {scheme[:20] or 'this'}")
    if "@" in parts.netloc:
        raise Refused("userinfo", "a URL with a user name or password is not fetched")
    host, port = _host_and_port(parts.netloc, scheme)
    literal = _literal(host)
    path = quote(parts.path or "/", safe=_PATH_SAFE)
    if parts.query:
        path += "?" + quote(parts.query, safe=_PATH_SAFE)
    target = WebTarget("", scheme, host, port, path, literal)
    return WebTarget(f"{scheme}://{target.authority}{path}", scheme, host, port, path, literal)


def _host_and_port(netloc: str, scheme: str) -> tuple[str, int]:
    if netloc.startswith("["):
        host, bracket, rest = netloc[1:].partition("]")
        try:
            host = str(ipaddress.IPv6Address(host)) if bracket and "%" not in host else ""
        except ValueError:
            host = ""
        if not host or (rest and not rest.startswith(":")):
            raise Refused("bad_host", "what stands in brackets is not an IPv6 address")
        port_text = rest[1:]
    else:
        host, _, port_text = netloc.partition(":")
        host = _name(host)
    if port_text and not re.fullmatch(r"[0-9]{1,5}", port_text, re.ASCII):
        raise Refused("bad_port", "the port is not a number")
    port = int(port_text) if port_text else DEFAULT_PORTS[scheme]
    if port > 65_535:
        raise Refused("bad_port", f"there is no port {port}")
    return host, port


def _name(host: str) -> str:
    """A host name in its ASCII form, or Refused."""
    if any(unicodedata.category(c) in ("Cf", "Cc", "Zs", "Zl", "Zp", "Cs", "Co", "Cn") for c in host):
        raise Refused("bad_host", "the host name holds an invisible character")
    if not host.isascii():
        import idna

        try:
            # UTS 46 folds what browsers fold: full-width and enclosed letters, ideographic full stops.
            host = idna.encode(host, uts46=True).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            raise Refused("bad_host", "the host name is not a valid internationalised name") from None
    host = host.lower().removesuffix(".")
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.match(label) for label in labels):
        raise Refused("bad_host", "there is no valid host name in the URL")
    return host


def _literal(host: str) -> Address | None:
    if ":" in host:
        return ipaddress.IPv6Address(host)
    if not _NUMBER.match(host.rsplit(".", 1)[-1]):
        return None
    try:
        address = ipaddress.IPv4Address(host)
    except ValueError:
        raise Refused("bad_host", "the host is a number that is no plain dotted IPv4 address") from None
    if str(address) != host:
        raise Refused("bad_host", "the host is an IPv4 address in an odd spelling")
    return address


class AddressGuard(NamedTuple):
    """Decides over a target and the addresses its name resolved to.

    private_hosts: `(host, port)` pairs that the user opened by name; port None stands for 80 and 443.
    allow_loopback: for tests; opens 127.0.0.1 and ::1, at any port, nothing else.
    """

    private_hosts: frozenset[tuple[str, int | None]] = frozenset()
    allow_loopback: bool = False

    def is_opened(self, target: WebTarget) -> bool:
        """True when the user named this very host and port in ALLOW_PRIVATE_HOSTS."""
        if (target.host, target.port) in self.private_hosts:
            return True
        return target.port in (80, 443) and (target.host, None) in self.private_hosts

    def check_target(self, target: WebTarget, *, ports: Iterable[int] = ()) -> None:
        """Refuse what needs no look-up: a non-public literal, a forbidden port, a bare name.

        ports: further ports that loopback may use; empty means any, where loopback is allowed at all.
        """
        if self.is_opened(target):
            return
        if target.literal is not None:
            self.check_addresses(target, [target.literal], ports=ports)
            return
        if target.port not in WEB_PORTS and not self.allow_loopback:
            raise Refused("bad_port", f"port {target.port} is not a port of the web")
        if "." not in target.host and not self.allow_loopback:
            raise Refused("private_address", f"{target.host} is not a name of the public Internet")

    def check_addresses(self, target: WebTarget, addresses: Iterable[Address], *, ports: Iterable[int] = ()) -> None:
        """Refuse the host if any of its addresses is one it may not have. Raises Refused."""
        found = list(addresses)
        if self.is_opened(target):
            bad = [a for a in found if not (is_public(a) or is_private(a))]
        else:
            bad = [a for a in found if not (is_public(a) or (self.allow_loopback and is_loopback(a)))]
        if bad:
            raise Refused("private_address", f"{target.host} is at {bad[0]}, which is not a public address")
        if self.is_opened(target) or target.port in WEB_PORTS:
            return
        allowed = set(ports)
        if not (self.allow_loopback and all(map(is_loopback, found)) and (not allowed or target.port in allowed)):
            raise Refused("bad_port", f"port {target.port} is not a port of the web")
