"""A remembered run as data: what is kept of it, how it is written down, how it is read back."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import config
from m3.untrusted import safe_line
from m3.words import STOP_WORDS, stem, terms, words

SCHEMA_VERSION = 1
MAX_BYTES = 64 * 1024  # of one session as stored
MAX_SUMMARY_BYTES = 16 * 1024
MAX_QUERY, MAX_TITLE, MAX_URL = 2_000, 200, 2_000  # characters
MAX_SOURCES = 50
MAX_TOPICS = 8
CARD_BYTES = 800  # of the short form that recall reads: twenty of them stay below 20 KB
COMPARED_BYTES = 400  # of a question: what recall compares, in every store
CUT = " […]"

_log = logging.getLogger("m3.memory")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # base 32 without letters that look like digits; sorts by value


@dataclass(frozen=True)
class PastSource:
    """A source that an earlier report cited. `sha256` is of its text then, so that a later reader sees a change."""

    number: int
    url: str
    title: str = ""
    sha256: str = ""
    verdicts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PastResearch:
    """An earlier run. `score` is set by recall: how much it shares with the new question, 0 to 1.

    stored_at: ISO 8601 time, UTC. stems: the indexed stems of the question. From recall, `query` and `summary` may be
    only their beginnings and `urls` only the first, without stems; the store's `get` brings all.
    """

    id: str
    query: str
    summary: str
    urls: tuple[str, ...] = ()
    stored_at: str = ""
    score: float = 0.0
    outcome: str = ""
    topics: tuple[str, ...] = ()
    sources: tuple[PastSource, ...] = ()
    stems: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class StoreResult:
    """Whether a run was remembered, and where or why not. `skipped`: it was not to be."""

    stored: bool
    detail: str = ""
    id: str = ""
    skipped: bool = False

    @property
    def fault(self) -> bool:
        """True when the run should have been remembered and was not."""
        return not self.stored and not self.skipped


def new_id(seconds: float) -> str:
    """16 characters that sort by time: 9 of the millisecond, 7 of chance. Needs no counter in the store."""
    value = int(seconds * 1000)
    head = "".join(_ALPHABET[value >> shift & 31] for shift in range(40, -1, -5))
    return head + "".join(secrets.choice(_ALPHABET) for _ in range(7))


def session_of(output: Any, now: float) -> PastResearch:
    """What is kept of a finished run: redacted, bounded, and marked where it was cut.

    output: a FinalOutput. now: seconds since the epoch.
    """
    from m3.questions import question_stems  # not for a run that is not remembered

    query = _text(output.query)
    sources = tuple(_source(s, _verdicts(output)) for s in list(output.sources)[:MAX_SOURCES])
    summary = cut_bytes(_text(output.summary), MAX_SUMMARY_BYTES)
    return PastResearch(
        id=new_id(now),
        query=_cut(query, MAX_QUERY),
        summary=summary,
        urls=tuple(s.url for s in sources),
        stored_at=datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="seconds"),
        outcome=str(getattr(output, "outcome", "")),
        topics=_topics(query, summary, [s.title for s in sources]),
        sources=sources,
        stems=question_stems(query),
    )


def _source(source: Any, verdicts: Mapping[int, Mapping[str, int]]) -> PastSource:
    page = getattr(source, "page", None)
    text = getattr(page, "text", "") or ""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() if text else ""
    return PastSource(
        number=source.number,
        url=_text(source.url)[:MAX_URL],
        title=_cut(_text(source.title), MAX_TITLE),
        sha256=digest,
        verdicts=verdicts.get(source.number, {}),
    )


def _verdicts(output: Any) -> dict[int, dict[str, int]]:
    grounding = getattr(output, "grounding", ())
    counts: dict[int, Counter[str]] = {}
    for check in getattr(grounding, "checks", grounding) or ():
        if check.source is not None:
            counts.setdefault(check.source, Counter())[check.verdict] += 1
    return {number: dict(sorted(c.items())) for number, c in counts.items()}


def _topics(query: str, summary: str, titles: Sequence[str]) -> tuple[str, ...]:
    """The words that the report uses most and the question does not; a title's words count three times."""
    from m3.questions import MAX_STEM

    known, counts, shown = set(terms(query)), Counter[str](), dict[str, str]()
    for text, weight in ((summary, 1), *((title, 3) for title in titles)):
        for word in words(text):
            if word in STOP_WORDS or len(word) < 3 or word.isdigit() or word == "source":
                continue
            key = stem(word)
            if key not in known:
                counts[key] += weight
                shown.setdefault(key, word[:MAX_STEM])
    return tuple(shown[key] for key, _ in counts.most_common(MAX_TOPICS))


def _text(value: object) -> str:
    """Foreign text without secrets and without halves of surrogate pairs, which no store could hold."""
    return config.redact(str(value)).encode("utf-8", "replace").decode("utf-8")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - len(CUT)] + CUT


def cut_bytes(text: str, limit: int) -> str:
    """At most `limit` UTF-8 bytes of a text, cut between characters and marked."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else raw[: limit - len(CUT.encode())].decode("utf-8", "ignore") + CUT


# --- written down ----------------------------------------------------------------------------------------


def to_json(session: PastResearch) -> str:
    """The whole session as compact JSON of at most `MAX_BYTES`; sources are dropped from the end to fit."""
    data: dict[str, Any] = {
        **_head(session),
        "q": session.query,
        "a": session.summary,
        "k": list(session.stems),
        "p": list(session.topics),
        "s": [{"n": s.number, "u": s.url, "t": s.title, "h": s.sha256, "g": dict(s.verdicts)} for s in session.sources],
    }
    text = _dump(data)
    while len(text.encode()) > MAX_BYTES and data["s"]:
        data["s"] = data["s"][: len(data["s"]) * 3 // 4]
        data["cut"] = 1
        text = _dump(data)
    return text


def to_card(session: PastResearch) -> str:
    """The short form that recall reads: question, the beginning of the summary, the first addresses."""
    query = cut_bytes(session.query, COMPARED_BYTES)
    data = {
        **_head(session),
        "q": query,
        "a": cut_bytes(" ".join(session.summary.split()), 200),
        "u": list(session.urls[:5]),
    }
    text = _dump(data)
    while len(text.encode()) > CARD_BYTES and (data["u"] or query):
        if data["u"]:
            data["u"] = data["u"][:-1]
        else:  # control characters, of six bytes each
            data["q"] = query = cut_bytes(query, len(query.encode()) * 3 // 4)
        text = _dump(data)
    return text


def _head(session: PastResearch) -> dict[str, Any]:
    return {"v": SCHEMA_VERSION, "i": session.id, "t": session.stored_at, "o": session.outcome}


def _dump(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def from_json(text: str | None, id: str = "") -> PastResearch | None:
    """A session or a card read back; None, with one logged line, for anything that is not one of ours."""
    try:
        data = json.loads(text or "")
        if data["v"] != SCHEMA_VERSION:
            raise ValueError(f"schema version {data['v']!r} is not known")
        sources = tuple(
            PastSource(int(s["n"]), str(s["u"]), str(s["t"]), str(s.get("h", "")), dict(s.get("g", {})))
            for s in data.get("s", ())
        )
        return PastResearch(
            id=str(data["i"]),
            query=str(data["q"]),
            summary=str(data["a"]),
            urls=tuple(map(str, data["u"])) if "u" in data else tuple(s.url for s in sources),
            stored_at=str(data["t"]),
            outcome=str(data["o"]),
            topics=tuple(map(str, data.get("p", ()))),
            sources=sources,
            stems=tuple(map(str, data.get("k", ()))),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        why = safe_line(f"{type(problem).__name__}: {problem}", 120)
        _log.warning("memory: session %s cannot be read and is left out (%s)", safe_line(id, 40), why)
        return None
