"""Long-term memory in Upstash Redis: an inverted index that stays fast at 100,000 sessions.

Keys, under `m3:<schema version>:` and an optional namespace:
    ids       sorted set   id -> seconds since the epoch
    s:<id>    string       the whole session
    c:<id>    string       its card: what recall reads
    t:<stem>  sorted set   id -> 1 / sqrt(number of stems)
    df        hash         stem -> number of sessions
Saving is one transaction. Recall is three requests and at most seven commands, however long the question.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from m3.questions import lookup_stems, question_stems
from m3.recall import CANDIDATES, length_weight, ranking_stems, related
from m3.records import RunControl
from m3.sessions import (
    SCHEMA_VERSION,
    PastResearch,
    StoreResult,
    from_json,
    session_of,
    to_card,
    to_json,
)
from m3.upstash import Command, StoreError, UpstashRest, bounded, fault_of_address

RECALL_SECONDS = 2.0
SAVE_SECONDS = 5.0
TRIM_AT_ONCE = 5  # sessions over the bound that one save takes away
RESEND_AT_ONCE = 5  # sessions kept back by an outage that one save sends
BATCH = 50

# Both are idempotent: a save or a forget that is repeated after a time-out counts nothing twice.
_COUNT_ONCE = (
    "if redis.call('ZADD', KEYS[1], 'NX', ARGV[1], ARGV[2]) == 1 then "
    "for i = 3, #ARGV do redis.call('HINCRBY', KEYS[2], ARGV[i], 1) end end return 1"
)
_FORGET = (
    "redis.call('DEL', KEYS[3], KEYS[4]) "
    "local there = redis.call('ZREM', KEYS[1], ARGV[1]) "
    "for i = 5, #KEYS do redis.call('ZREM', KEYS[i], ARGV[1]) "
    "if there == 1 and redis.call('HINCRBY', KEYS[2], ARGV[i - 3], -1) <= 0 then "
    "redis.call('HDEL', KEYS[2], ARGV[i - 3]) end end return there"
)

_log = logging.getLogger("m3.memory")
T = TypeVar("T")


class Outbox(Protocol):
    """Where sessions wait that could not be sent: a `LocalMemory` as a rule."""

    def put(self, *sessions: PastResearch) -> bool: ...

    def recent(self, n: int = 10) -> list[PastResearch]: ...

    def forget(self, id: str) -> bool: ...

    def close(self) -> None: ...


class LongTermMemory:
    """Remembers runs in an Upstash Redis over its REST interface. Unconfigured or unreachable, it does nothing.

    url, token: of the database; both None takes those of the environment. session: a `requests.Session` to send
    with. max_sessions: the oldest above this are forgotten. namespace: parts several users of one database.
    outbox: where runs wait that could not be sent; None loses them. clock: seconds since the epoch.

    No method raises: what went wrong is one logged line, and the result is empty.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        session: Any = None,
        max_sessions: int = 5_000,
        namespace: str = "",
        outbox: Outbox | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.notices: list[str] = []
        self.max_sessions = max_sessions
        self._prefix = f"m3:{SCHEMA_VERSION}:" + (f"{namespace}:" if namespace else "")
        self._outbox, self._clock = outbox, clock
        self._rest: UpstashRest | None = None
        self._why_off = ""
        if url is None and token is None:
            url, token = _configured()
        if url and token:
            self._why_off = fault_of_address(url)
            self._rest = None if self._why_off else UpstashRest(url, token, session=session)
        elif url or token:
            missing = "UPSTASH_REDIS_REST_TOKEN" if url else "UPSTASH_REDIS_REST_URL"
            self._why_off = f"Upstash is only half configured: {missing} is missing"
        if self._why_off:
            _log.warning("memory: %s; nothing is remembered there", self._why_off)
        elif self._rest is None:
            self._why_off = "long-term memory in Upstash is not configured"
            _log.info("memory: %s", self._why_off)

    @property
    def where(self) -> str:
        """Where the sessions lie, for people."""
        return f"Upstash Redis at {self._rest.host}" if self._rest else "nowhere"

    # --- remembering

    def store_research(self, output: Any, *, control: RunControl | None = None) -> StoreResult:
        """Remember a finished run. One request; kept for the next time when the database cannot be reached."""
        if getattr(output, "outcome", "") == "failed":
            return StoreResult(False, "a failed run is not remembered", skipped=True)
        if self._rest is None:
            return StoreResult(False, self._why_off, skipped=True)
        session = session_of(output, self._clock())
        try:
            bounded(lambda part: self._save(session, part), SAVE_SECONDS, control)
        except StoreError as problem:
            return self._keep_back(session, str(problem))
        return StoreResult(True, self.where, session.id)

    def _save(self, session: PastResearch, control: RunControl) -> None:
        assert self._rest is not None
        results = self._rest.multi_exec([*self.save_commands(session), ["ZCARD", self._key("ids")]], control)
        try:  # the run is remembered; the rest may wait
            over = int(results[-1]) - self.max_sessions
            if over > 0:
                self._trim(min(over, TRIM_AT_ONCE), control)
            self._send_kept_back(control)
        except StoreError as problem:
            _log.info("memory: tidying up after a save waits: %s", problem)

    def save_commands(self, session: PastResearch) -> list[Command]:
        """The commands that store a session; repeating them changes nothing."""
        return [["SET", self._key("s", session.id), to_json(session)], *self._index_commands(session)]

    def _index_commands(self, session: PastResearch) -> list[Command]:
        seconds = datetime.fromisoformat(session.stored_at).timestamp()
        stems = list(session.stems)
        weight = round(length_weight(stems), 5)
        postings: list[Command] = [["ZADD", self._key("t", stem), weight, session.id] for stem in stems]
        return [
            ["EVAL", _COUNT_ONCE, 2, self._key("ids"), self._key("df"), seconds, session.id, *stems],
            ["SET", self._key("c", session.id), to_card(session)],
            *postings,
        ]

    def _keep_back(self, session: PastResearch, why: str) -> StoreResult:
        _log.warning("memory: this run was not stored: %s", why)
        if self._outbox is not None and self._outbox.put(session):
            return StoreResult(False, f"{why}; it is kept on this machine and sent next time", session.id)
        return StoreResult(False, why)

    def _send_kept_back(self, control: RunControl) -> None:
        if self._outbox is None or self._rest is None:
            return
        for waiting in self._outbox.recent(RESEND_AT_ONCE):
            self._rest.multi_exec(self.save_commands(waiting), control)
            self._outbox.forget(waiting.id)

    # --- recalling

    def retrieve_related(self, query: str, limit: int = 3, *, control: RunControl | None = None) -> list[PastResearch]:
        """Earlier runs on related questions, best first; empty when none is related, or none can be had in 2 s."""
        return self._quietly(lambda part: self._recall(query, limit, part), [], control)

    def _recall(self, query: str, limit: int, control: RunControl) -> list[PastResearch]:
        assert self._rest is not None
        stems = lookup_stems(query)
        if not stems or limit < 1:
            return []
        total, counts = self._rest.pipeline([["ZCARD", self._key("ids")], ["HMGET", self._key("df"), *stems]], control)
        df = {stem: int(count or 0) for stem, count in zip(stems, counts, strict=True)}
        weights = ranking_stems(stems, df, int(total))
        if not weights:
            return []
        keys = [self._key("t", stem) for stem in weights]
        temporary = self._key("tmp", secrets.token_hex(8))
        _, ids, _ = self._rest.multi_exec(
            [
                ["ZUNIONSTORE", temporary, len(keys), *keys, "WEIGHTS", *weights.values()],
                ["ZREVRANGE", temporary, 0, CANDIDATES - 1],
                ["DEL", temporary],
            ],
            control,
            writes=False,
        )
        if not ids:
            return []
        (cards,) = self._rest.pipeline([["MGET", *(self._key("c", id) for id in ids)]], control)
        self._drop_dead([id for id, card in zip(ids, cards, strict=True) if card is None], keys, control)
        found = [from_json(card, id) for id, card in zip(ids, cards, strict=True) if card is not None]
        return related(query, [f for f in found if f is not None], df, int(total), limit)

    def _drop_dead(self, ids: Sequence[str], keys: Sequence[str], control: RunControl) -> None:
        """Take ids whose session is gone (evicted, expired) out of the sets that still name them."""
        if ids and self._rest is not None:
            _log.warning("memory: %d sessions are named but gone; `reindex` mends the index", len(ids))
            sets = [self._key("ids"), *keys]
            self._rest.pipeline([["ZREM", key, *ids] for key in sets], control, writes=True)

    # --- looking after it

    def recent(self, n: int = 10, *, control: RunControl | None = None) -> list[PastResearch]:
        """The newest sessions, newest first."""
        return self._quietly(lambda part: self._read(self._ids(n, part, newest=True), part), [], control)

    def get(self, id: str, *, control: RunControl | None = None) -> PastResearch | None:
        """One session in full, or None."""
        found: list[PastResearch] = self._quietly(lambda part: self._read([id], part), [], control)
        return found[0] if found else None

    def forget(self, id: str, *, control: RunControl | None = None) -> bool:
        """Take one session and all that names it away. True when it was there."""
        return self._quietly(lambda part: self._forget([id], part) > 0, False, control)

    def forget_all(self, *, control: RunControl | None = None) -> int:
        """Take every session away; how many there were. No key of this store is left."""
        return self._quietly(self._forget_all, 0, control, seconds=600.0)

    def reindex(self, *, control: RunControl | None = None) -> int:
        """Build the index anew from the sessions, as is needed after an eviction; how many were indexed."""
        return self._quietly(self._reindex, 0, control, seconds=600.0)

    def stats(self, *, control: RunControl | None = None) -> dict[str, Any]:
        """`backend`, `configured`, `where`, `sessions` (None when it cannot be asked) and `max_sessions`."""
        found: dict[str, Any] = {
            "backend": "upstash",
            "configured": self._rest is not None,
            "where": self.where,
            "sessions": None,
            "max_sessions": self.max_sessions,
        }
        if self._rest is not None:
            rest = self._rest
            ask: Callable[[RunControl], Any] = lambda part: rest.pipeline([["ZCARD", self._key("ids")]], part)[0]  # noqa: E731
            found["sessions"] = self._quietly(ask, None, control)
        if self._why_off:
            found["detail"] = self._why_off
        return found

    def close(self) -> None:
        """Close what is open; the store may be used again."""
        if self._outbox is not None:
            self._outbox.close()

    # --- parts

    def _key(self, kind: str, name: str = "") -> str:
        return f"{self._prefix}{kind}:{name}" if name else self._prefix + kind

    def _quietly(
        self,
        work: Callable[[RunControl], T],
        otherwise: T,
        control: RunControl | None,
        seconds: float = RECALL_SECONDS,
    ) -> T:
        if self._rest is None:
            return otherwise
        try:
            return bounded(work, seconds, control)
        except StoreError as problem:
            # A store that is switched off has said so already.
            _log.log(logging.DEBUG if self._rest.off else logging.WARNING, "memory: %s", problem)
            return otherwise

    def _ids(self, n: int, control: RunControl, *, newest: bool) -> list[str]:
        assert self._rest is not None
        command: Command = ["ZREVRANGE" if newest else "ZRANGE", self._key("ids"), 0, n - 1]
        return [str(id) for id in self._rest.pipeline([command], control)[0]] if n > 0 else []

    def _read(self, ids: Sequence[str], control: RunControl) -> list[PastResearch]:
        assert self._rest is not None
        found: list[PastResearch] = []
        for batch in _batches(ids, BATCH):
            (texts,) = self._rest.pipeline([["MGET", *(self._key("s", id) for id in batch)]], control)
            read = (from_json(text, id) for id, text in zip(batch, texts, strict=True) if text is not None)
            found += [session for session in read if session is not None]
        return found

    def _forget(self, ids: Sequence[str], control: RunControl) -> int:
        assert self._rest is not None
        if not ids:
            return 0
        stems = {session.id: session.stems for session in self._read(ids, control)}
        commands: list[Command] = []
        for id in ids:
            mine = stems.get(id, ())
            keys = [self._key("ids"), self._key("df"), self._key("s", id), self._key("c", id)]
            keys += [self._key("t", stem) for stem in mine]
            commands.append(["EVAL", _FORGET, len(keys), *keys, id, *mine])
        return sum(int(n) for n in self._rest.multi_exec(commands, control))

    def _trim(self, count: int, control: RunControl) -> None:
        self._forget(self._ids(count, control, newest=False), control)

    def _forget_all(self, control: RunControl) -> int:
        assert self._rest is not None
        gone = 0
        while ids := self._ids(BATCH, control, newest=False):
            gone += self._forget(ids, control)
        keys = list(self._scan("*", control))
        for batch in _batches(keys, 500):
            self._rest.pipeline([["DEL", *batch]], control, writes=True)
        return gone

    def _reindex(self, control: RunControl) -> int:
        assert self._rest is not None
        ids = sorted(key.removeprefix(self._key("s") + ":") for key in self._scan("s:*", control))
        old = [self._key("ids"), self._key("df"), *self._scan("t:*", control)]
        for batch in _batches(old, 500):
            self._rest.pipeline([["DEL", *batch]], control, writes=True)
        done = 0
        for group in _batches(ids, BATCH // 5):
            for session in self._read(group, control):
                anew = replace(session, stems=question_stems(session.query))
                self._rest.multi_exec(self.save_commands(anew), control)
                done += 1
        return done

    def _scan(self, pattern: str, control: RunControl) -> Iterable[str]:
        assert self._rest is not None
        cursor, seen = "0", set[str]()
        while True:
            command: Command = ["SCAN", cursor, "MATCH", _literal(self._prefix) + pattern, "COUNT", 1000]
            cursor, keys = self._rest.pipeline([command], control)[0]
            seen.update(keys)
            if str(cursor) == "0":
                return sorted(seen)


def _configured() -> tuple[str | None, str | None]:
    from config import ConfigError, load_config

    try:
        keys = load_config().keys
    except ConfigError as problem:
        _log.warning("memory: the settings cannot be used: %s", problem)
        return None, None
    return keys.upstash_url, keys.upstash_token


def _batches(items: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _literal(text: str) -> str:
    """A key's prefix as a pattern of SCAN."""
    return "".join("\\" + c if c in "*?[]\\^-" else c for c in text)
