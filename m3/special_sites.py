"""Sites whose text is better had from another address of theirs than from the page that was asked for."""

from __future__ import annotations

import json
import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from m3.patterns import lazy_pattern

WAYBACK_API = "https://archive.org/wayback/available?url="


class Candidate(NamedTuple):
    """One address to try. `shown` is the address that a reader is given; "" for the one that answered."""

    url: str
    shown: str = ""
    canonical: str = ""


_ARXIV = lazy_pattern(
    r"/(?:abs|pdf|html|format)/((?:\d{4}\.\d{4,5}|[a-z-]+(?:\.[A-Z]{2})?/\d{7})(?:v\d{1,2})?)(?:\.pdf)?/?\Z"
)
# First path segments of github.com that are no account.
_GITHUB_PAGES = frozenset(
    "about apps collections contact customer-stories enterprise events explore features issues join login marketplace"
    " new notifications orgs pricing pulls readme search security sessions settings signup site sponsors topics"
    " trending users".split()
)


def candidates(url: str) -> list[Candidate]:
    """The addresses to try for a URL, in order; the URL itself alone for most sites."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removeprefix("www.")
    if host in ("arxiv.org", "export.arxiv.org"):
        return _arxiv(parts.path) or [Candidate(url)]
    if host == "github.com":
        return [*_github(url, parts.path), Candidate(url)]
    return [Candidate(url)]


def _arxiv(path: str) -> list[Candidate]:
    """A paper as HTML, else as PDF, else its abstract: all are one source, named by the abstract page."""
    match = _ARXIV.match(path)
    if match is None:
        return []
    canonical = f"https://arxiv.org/abs/{match[1]}"
    return [Candidate(f"https://arxiv.org/{form}/{match[1]}", canonical=canonical) for form in ("html", "pdf", "abs")]


def _github(url: str, path: str) -> list[Candidate]:
    """The README of a repository, the raw file of a blob page. The reader gets the page, which shows the same text."""
    names = [name for name in path.split("/") if name]
    if len(names) < 2 or names[0] in _GITHUB_PAGES:
        return []
    owner, repository = names[0], names[1].removesuffix(".git")
    raw = f"https://raw.githubusercontent.com/{owner}/{repository}"
    if len(names) == 2:
        return [Candidate(f"{raw}/HEAD/README.md", shown=url)]
    if len(names) > 4 and names[2] in ("blob", "raw"):
        return [Candidate(f"{raw}/{'/'.join(names[3:])}", shown=url)]
    return []


class Snapshot(NamedTuple):
    """A page as the Wayback Machine keeps it. `raw_url` gives it as it was captured, `url` is for readers."""

    url: str
    raw_url: str
    date: str  # ISO


def wayback_query(url: str) -> str:
    return WAYBACK_API + quote(url, safe="")


def wayback_snapshot(answer: bytes) -> Snapshot | None:
    """The closest snapshot in an answer of the availability API; None for none, or for what is no such answer."""
    try:
        closest = json.loads(answer)["archived_snapshots"]["closest"]
        stamp, where, status = str(closest["timestamp"]), str(closest["url"]), str(closest.get("status", "200"))
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return None
    match = re.fullmatch(r"https?://web\.archive\.org/web/(\d{14})/(https?:?/.+)", where)
    if match is None or match[1] != stamp or status != "200" or not closest.get("available", True):
        return None
    date = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}"
    base = "https://web.archive.org/web/"
    return Snapshot(f"{base}{stamp}/{match[2]}", f"{base}{stamp}id_/{match[2]}", date)
