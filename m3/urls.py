"""URLs as names of pages: one key for all spellings of an address, and which sites may be used at all."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit

from m3.patterns import lazy_pattern

# Parameters that name a campaign, a click or a share and never the page. Parameters that are ambiguous
# (ref, source, from, si) stay: on code forges and video sites they choose the content.
_TRACKING = frozenset(
    """gclid gclsrc gbraid wbraid dclid srsltid _ga _gl fbclid msclkid yclid ysclid twclid ttclid li_fat_id igshid igsh
    mc_cid mc_eid mkt_tok _hsenc _hsmi hsctatracking vero_id vero_conv oly_anon_id oly_enc_id wickedid _openstat s_cid
    ref_src ref_url spm scm cmpid ncid sr_share guccounter guce_referrer guce_referrer_sig at_medium at_campaign trk
    trkcampaign rb_clickid __s""".split()
)
_TRACKING_PREFIXES = ("utm_", "pk_", "mtm_", "piwik_", "matomo_", "hsa_", "itm_")
_DEFAULT_PAGES = lazy_pattern(r"/(?:index|default)\.(?:html?|php|aspx?|jsp)$", re.I)
_MOBILE_LABELS = ("m", "mobile", "amp")
# Second-level labels under which names are registered: `m.co.uk` is a site, not the mobile twin of `co.uk`.
_REGISTRY_LABELS = ("co", "com", "org", "net", "ac", "gov", "edu", "or", "ne", "go")
_AMP_CACHE = lazy_pattern(r"^/(?:amp|[a-z]{1,2})/(?:s/)?(?P<host>[^/]+\.[^/]+)(?P<path>/.*)?$")
_UNRESERVED = lazy_pattern(r"%([0-9A-Fa-f]{2})")


def host_of(url: str) -> str:
    """The host of an http(s) URL in lower case and ASCII (IDNA), without port; "" when there is none."""
    parts = _split(url)
    return _ascii_host(parts.hostname or "") if parts else ""


def is_web_url(url: str) -> bool:
    """True for an http(s) URL with a host and without a user name or password in it."""
    parts = _split(url)
    return parts is not None and bool(parts.hostname) and "@" not in parts.netloc


def canonical_key(url: str) -> str:
    """A key that is the same for all usual spellings of one page's address; never a URL to be fetched.

    Taken away: http/https, `www.`, mobile and AMP twins (host label, path, AMP caches), default ports, default
    page names, trailing slashes, fragments (a server never sees them), tracking parameters, the order of the rest
    and needless percent-encoding (RFC 3986, 6.2.2). Names that are not http(s) URLs stay as they are.
    """
    parts = _split(url)
    if parts is None or not parts.hostname:
        return url.strip()
    host, path, query = _ascii_host(parts.hostname), parts.path, parts.query
    if host.endswith(".cdn.ampproject.org") or (host in ("www.google.com", "google.com") and path.startswith("/amp/")):
        cached = _AMP_CACHE.match(path)
        if cached:
            host, path = _ascii_host(cached["host"]), cached["path"] or ""
    port = f":{parts.port}" if parts.port not in (None, 80, 443) else ""
    path = _plain_path(_normal_encoding(path))
    kept = sorted(_normal_encoding(p) for p in query.split("&") if p and not _is_tracking(p))
    return f"{_plain_host(host)}{port}{path}" + (f"?{'&'.join(kept)}" if kept else "")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url.strip())
        _ = parts.port  # a bad port is only noticed when it is asked for
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") else None


def _ascii_host(host: str) -> str:
    host = host.strip().strip("[]").rstrip(".").lower()
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


def _plain_host(host: str) -> str:
    if _is_address(host):
        return host
    labels = host.split(".")
    if labels[0] == "www" and len(labels) > 2:
        labels = labels[1:]
    if labels[0] in _MOBILE_LABELS and len(labels) > 2 and not (len(labels) == 3 and labels[1] in _REGISTRY_LABELS):
        labels = labels[1:]
    elif len(labels) > 3 and labels[1] == "m":  # de.m.wikipedia.org
        labels = [labels[0], *labels[2:]]
    return ".".join(labels)


def _plain_path(path: str) -> str:
    path = _without_dots(path)
    path = re.sub(r"\.amp(?=\.html?$|$)", "", path)
    if path.startswith("/amp/") and len(path) > 5:
        path = path[4:]
    # A last segment `amp` is taken for a twin only behind what looks like an article, not in `/wiki/amp`.
    path = re.sub(r"(/[^/]*(?:-|\.html?|\d{4})[^/]*)/amp/?$", r"\1", path)
    return _DEFAULT_PAGES.sub("", path).rstrip("/")


def _without_dots(path: str) -> str:
    """RFC 3986, 5.2.4."""
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            kept[1:] = kept[1:-1]
        elif segment != ".":
            kept.append(segment)
    return "/".join(kept) + ("/" if segments[-1] in (".", "..") else "")


def _normal_encoding(text: str) -> str:
    """Escapes of letters, digits and `-._~` decoded, the others in upper case, what must be escaped escaped."""

    def decode(match: re.Match[str]) -> str:
        character = chr(int(match[1], 16))
        return character if character.isascii() and (character.isalnum() or character in "-._~") else match[0].upper()

    return quote(_UNRESERVED.sub(decode, text), safe="%/:=&?@!$'()*+,;~-._")


def _is_tracking(parameter: str) -> bool:
    name, _, value = parameter.lower().partition("=")
    if name in _TRACKING or name.startswith(_TRACKING_PREFIXES):
        return True
    return (name == "amp" and value in ("", "1", "true")) or (name == "outputtype" and value == "amp")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# --- which sites may be used -----------------------------------------------------------------------------


def domain_rule(text: str) -> str:
    """A domain as a user may write it (`*.Example.org`, `https://www.example.org/x`) as `example.org`; "" for none."""
    text = text.strip().lower()
    host = (urlsplit(text).hostname or "") if "://" in text else text.split("/")[0]
    if host.count(":") == 1:
        host = host.split(":")[0]
    return _ascii_host(host.removeprefix("*").lstrip(".")).removeprefix("www.")


@dataclass(frozen=True)
class DomainPolicy:
    """Which hosts may be searched, fetched and redirected to.

    allow: when not empty, only these domains and their subdomains; deny: never these and their subdomains; deny
    wins. A rule matches whole labels from the right: `example.org` is not `badexample.org`. `gov` allows a whole
    top-level domain. IP addresses match only themselves.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("allow", "deny"):
            rules = dict.fromkeys(domain_rule(text) for text in getattr(self, name))
            object.__setattr__(self, name, tuple(rule for rule in rules if rule))

    @property
    def active(self) -> bool:
        return bool(self.allow or self.deny)

    def permits(self, host: str) -> bool:
        """True when the host may be used. An unknown host ("") is permitted only where nothing is restricted."""
        host = _ascii_host(host)
        if not host:
            return not self.active
        if any(_matches(host, rule) for rule in self.deny):
            return False
        return not self.allow or any(_matches(host, rule) for rule in self.allow)


def _matches(host: str, rule: str) -> bool:
    return host == rule or (host.endswith(f".{rule}") and not _is_address(host))
