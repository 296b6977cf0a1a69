"""Which URLs the model may fetch: those it was shown. A URL that it made up could carry data out of the run.

Seen is what stood in the question, in a search result, in recalled leads or in a page that was fetched. Allowed is a
seen URL as it stands, without its query, or a parent of its path. The rule follows what Anthropic and OpenAI describe
for their own fetch tools; the residual channel (a page that offers one link for each letter of a secret) is bounded by
a number of fetches for each registrable domain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote

from m3.address_guard import DEFAULT_PORTS, Refused, WebTarget, parse_url
from m3.patterns import lazy_pattern
from m3.records import Page

LINK_FETCHES = 5  # of one registrable domain and run, for URLs known only from links inside pages
SEARCH_FOR_IT = "this URL was not in the question, in a search result or on a page that was read; search for it instead"

_URL = lazy_pattern(r"https?://[^\s<>\"'`“”«»{}|\\^]+", re.I)
_BARE = lazy_pattern(
    r"(?<![\w@./:-])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,24}(?:/[^\s<>\"'`“”«»{}|\\^]*)?(?![\w@])", re.I
)
# Second-level labels under which two-letter countries register names. The public suffix list is longer; a suffix that
# is missing here only makes the bound stricter.
_REGISTRY_LABELS = frozenset("ac co com edu gob gov go mil ne net nom or org sch".split())


def urls_in(text: str) -> list[str]:
    """The URLs that stand in a text, `https://` added to bare names; closing punctuation is not part of them."""
    found = [_trimmed(match[0]) for match in _URL.finditer(text)]
    rest = _URL.sub(" ", text)
    found += ["https://" + _trimmed(match[0]) for match in _BARE.finditer(rest)]
    return list(dict.fromkeys(found))


def _trimmed(url: str) -> str:
    while url and (url[-1] in ".,;:!?*_)]…。，）】" or url.endswith("'s")):
        if url[-1] == ")" and url.count("(") >= url.count(")"):
            break  # Wikipedia's parentheses
        url = url[:-1]
    return url


def registrable_domain(host: str) -> str:
    """The part of a host name that someone registered: `example.co.uk` of `a.b.example.co.uk`."""
    labels = host.split(".")
    if labels[-1].isdigit() or ":" in host:
        return host
    deep = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _REGISTRY_LABELS
    return ".".join(labels[-3:] if deep else labels[-2:])


class Ruling(NamedTuple):
    """Whether a URL may be fetched. `url` is what to fetch (the seen spelling's scheme); `why` a sentence."""

    allowed: bool
    url: str
    why: str = ""
    detail: str = ""


class Provenance:
    """What a run has seen, and what may be fetched because of it.

    allow_unseen: turns the rule off (ALLOW_UNSEEN_URLS=1); user info in a URL stays refused.
    """

    def __init__(self, allow_unseen: bool = False) -> None:
        self.allow_unseen = allow_unseen
        self.named: set[str] = set()  # keys that stood in the question itself
        self._seen: dict[str, str] = {}  # key -> scheme, from question, results and leads
        self._linked: dict[str, str] = {}  # key -> scheme, from links inside pages
        self._unsorted: list[str] = []  # links that nobody has asked about yet: most never are
        self._fetched_links: Counter[str] = Counter()
        self._ruled: dict[str, Ruling] = {}

    def add_question(self, text: str) -> None:
        """URLs that the user wrote; robots.txt is not asked for them."""
        for url in urls_in(text):
            self._add(url, self._seen)
            target = _target(url)
            if target is not None:
                self.named.add(_key(target))

    def add(self, urls: Iterable[str]) -> None:
        """URLs that a search engine or the memory brought."""
        for url in urls:
            self._add(url, self._seen)

    def add_page(self, page: Page, final_url: str = "") -> None:
        """A page that was fetched: its own address (chosen by the site, not by the model) and its links."""
        self._unsorted += [page.url, page.canonical_url, final_url, *page.links]

    def is_named(self, url: str) -> bool:
        """True when the user wrote this very URL."""
        target = _target(url)
        return target is not None and _key(target) in self.named

    def rule(self, url: str) -> Ruling:
        """Judge a URL that the model asks for, and count it where it is known from links alone."""
        target = _target(url) or (_target(f"https://{url}") if "://" not in url else None)
        if target is None:
            return self._unreadable(url)
        key = _key(target)
        if key in self._ruled:
            return self._ruled[key]
        scheme = self._scheme(key, self._seen)
        if scheme or self.allow_unseen:
            ruling = Ruling(True, _with_scheme(target, scheme or target.scheme))
        else:
            ruling = self._rule_link(target, key)
        if ruling.allowed:
            self._ruled[key] = ruling
        return ruling

    def _rule_link(self, target: WebTarget, key: str) -> Ruling:
        for url in self._unsorted:
            self._add(url, self._linked)
        self._unsorted.clear()
        scheme = self._scheme(key, self._linked)
        if not scheme:
            return Ruling(False, target.url, SEARCH_FOR_IT, "unseen_url")
        domain = registrable_domain(target.host)
        if self._fetched_links[domain] >= LINK_FETCHES:
            why = f"{LINK_FETCHES} pages of {domain} were fetched from links already; search for what you need"
            return Ruling(False, target.url, why, "too_many_links")
        self._fetched_links[domain] += 1
        return Ruling(True, _with_scheme(target, scheme))

    def _unreadable(self, url: str) -> Ruling:
        try:
            parse_url(_spelt(url))
        except Refused as refusal:
            return Ruling(False, url, str(refusal), refusal.code)
        return Ruling(False, url, SEARCH_FOR_IT, "unseen_url")

    @staticmethod
    def _add(url: str, where: dict[str, str]) -> None:
        target = _target(url)
        if target is None:
            return
        path, question, _ = target.path.partition("?")
        keys = [_key(target)]
        if question:
            keys.append(_key(target, path))
        while path != "/":
            # Both spellings of a parent folder: with its slash and without.
            path = path.rstrip("/").rpartition("/")[0]
            keys += [_key(target, path + "/")] + ([_key(target, path)] if path else [])
            path = path or "/"
        for key in keys:
            if where.get(key) != "https":
                where[key] = target.scheme

    @staticmethod
    def _scheme(key: str, where: dict[str, str]) -> str:
        return where.get(key, "")


def _target(url: str) -> WebTarget | None:
    try:
        return parse_url(_spelt(url))
    except Refused:
        return None


def _spelt(url: str) -> str:
    """Spaces in a path as `%20`: people and pages write them, the gate refuses them."""
    url = url.strip()
    head, slashes, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{head}{slashes}{host}{slash}{path.replace(' ', '%20')}" if slash else url


def _key(target: WebTarget, path: str | None = None) -> str:
    """Host, port and path in one spelling; http and https are the same page (RFC 3986, 6.2.2, for the path)."""
    port = "" if target.port in DEFAULT_PORTS.values() else f":{target.port}"
    return f"{target.host}{port}{_normal(target.path if path is None else path)}"


def _normal(path: str) -> str:
    def decode(match: re.Match[str]) -> str:
        character = chr(int(match[1], 16))
        return character if re.fullmatch(r"[A-Za-z0-9._~-]", character, re.ASCII) else match[0].upper()

    decoded = re.sub(r"%([0-9A-Fa-f]{2})", decode, path)
    return quote(decoded, safe="!#$%&'()*+,/:;=?@[]~")


def _with_scheme(target: WebTarget, scheme: str) -> str:
    if scheme == target.scheme or target.port not in DEFAULT_PORTS.values():
        return target.url
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{scheme}://{host}{target.path}"
