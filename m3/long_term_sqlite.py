"""Long-term memory in one SQLite file: the embedded default, with the same index and the same scoring as Redis.

WAL, a busy time-out and BEGIN IMMEDIATE let several processes save at once: a deferred transaction that reads
before it writes fails at once when another has written, whatever the time-out.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from m3.questions import lookup_stems, question_stems
from m3.recall import CANDIDATES, length_weight, ranking_stems, related
from m3.records import RunControl
from m3.sessions import PastResearch, StoreResult, from_json, session_of, to_json
from m3.untrusted import safe_line

if TYPE_CHECKING:
    import sqlite3

SCHEMA = 1  # PRAGMA user_version
RECALL_SECONDS, SAVE_SECONDS = 2.0, 5.0
LOCK_SECONDS = 5.0  # that another process may hold the file, however long the work itself may take
GRACE_SECONDS = 0.5  # for saving what a stopped or expired run found: a local write takes milliseconds
TRIM_AT_ONCE = 5

_TABLES = """
CREATE TABLE session(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, stored REAL NOT NULL, body TEXT NOT NULL);
CREATE INDEX session_stored ON session(stored);
CREATE TABLE posting(stem TEXT NOT NULL, n INTEGER NOT NULL, weight REAL NOT NULL, PRIMARY KEY(stem, n)) WITHOUT ROWID;
CREATE TABLE frequency(stem TEXT PRIMARY KEY, sessions INTEGER NOT NULL) WITHOUT ROWID;
"""

_log = logging.getLogger("m3.memory")
T = TypeVar("T")


class TroubleError(Exception):
    """The file could not be read or written. `str(error)` is a sentence for the user."""


class LocalMemory:
    """Remembers runs in the SQLite file at `path`, made with its folder on first use, readable by its owner only.

    max_sessions: the oldest above this are forgotten; None keeps all. clock: seconds since the epoch.
    `notices` holds what a person should be told once: that a new store was made, and how to do without.

    No method raises: what went wrong is one logged line, and the result is empty. Safe to use from several
    threads and processes.
    """

    def __init__(
        self, path: str | Path, *, max_sessions: int | None = 5_000, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = Path(path).expanduser()
        self.max_sessions = max_sessions
        self.notices: list[str] = []
        self._clock = clock
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._owner = 0  # the process that opened the connection: one must not be carried over a fork
        if not os.path.exists(self.path):  # unlike Path.exists, false too where the folder may not be entered
            self.notices.append(
                f"runs are remembered on this machine in {self.path}; --no-memory or MEMORY_BACKEND=none turns that off"
            )

    @property
    def where(self) -> str:
        """Where the sessions lie, for people."""
        return str(self.path)

    # --- remembering

    def store_research(self, output: Any, *, control: RunControl | None = None) -> StoreResult:
        """Remember a finished run. One that was stopped still gets half a second for it."""
        if getattr(output, "outcome", "") == "failed":
            return StoreResult(False, "a failed run is not remembered", skipped=True)
        session = session_of(output, self._clock())
        seconds = max(GRACE_SECONDS, (control or RunControl()).timeout(SAVE_SECONDS))
        try:
            self._put(session, seconds)
        except TroubleError as problem:
            _log.warning("memory: this run was not stored: %s", problem)
            return StoreResult(False, str(problem))
        return StoreResult(True, self.where, session.id)

    def put(self, *sessions: PastResearch) -> bool:
        """Store sessions as they are, in one transaction. True when they are there afterwards."""
        try:
            self._work(lambda db: self._insert(db, sessions), max(GRACE_SECONDS, 0.01 * len(sessions)), writing=True)
        except TroubleError as problem:
            _log.warning("memory: %s", problem)
            return False
        return True

    def _put(self, session: PastResearch, seconds: float) -> None:
        def write(db: sqlite3.Connection) -> None:
            self._insert(db, [session])
            self._trim(db)

        self._work(write, seconds, writing=True)

    @staticmethod
    def _insert(db: sqlite3.Connection, sessions: Sequence[PastResearch]) -> None:
        for session in sessions:
            row = db.execute(
                "INSERT INTO session(id, stored, body) VALUES(?, ?, ?) ON CONFLICT(id) DO NOTHING",
                (session.id, datetime.fromisoformat(session.stored_at).timestamp(), to_json(session)),
            )
            if row.rowcount == 1:
                weight = length_weight(session.stems)
                db.executemany(
                    "INSERT INTO posting VALUES(?, ?, ?)", [(stem, row.lastrowid, weight) for stem in session.stems]
                )
                db.executemany(
                    "INSERT INTO frequency VALUES(?, 1) ON CONFLICT(stem) DO UPDATE SET sessions = sessions + 1",
                    [(stem,) for stem in session.stems],
                )

    def _trim(self, db: sqlite3.Connection) -> None:
        if self.max_sessions is None:
            return
        (count,) = db.execute("SELECT count(*) FROM session").fetchone()
        over = min(count - self.max_sessions, TRIM_AT_ONCE)
        if over > 0:
            rows = db.execute("SELECT n FROM session ORDER BY stored, n LIMIT ?", (over,)).fetchall()
            self._delete(db, [n for (n,) in rows])

    @staticmethod
    def _delete(db: sqlite3.Connection, rows: Iterable[int]) -> None:
        for n in rows:
            # Few stems a session, so this walks the index once a session and not the whole table a stem.
            (body,) = db.execute("SELECT body FROM session WHERE n = ?", (n,)).fetchone()
            session = from_json(body)
            if session is not None:
                stems = list(session.stems)
            else:
                stems = [stem for (stem,) in db.execute("SELECT stem FROM posting WHERE n = ?", (n,))]
            db.executemany("DELETE FROM posting WHERE stem = ? AND n = ?", [(s, n) for s in stems])
            db.executemany("UPDATE frequency SET sessions = sessions - 1 WHERE stem = ?", [(s,) for s in stems])
            db.executemany("DELETE FROM frequency WHERE stem = ? AND sessions <= 0", [(s,) for s in stems])
            db.execute("DELETE FROM session WHERE n = ?", (n,))

    # --- recalling

    def retrieve_related(self, query: str, limit: int = 3, *, control: RunControl | None = None) -> list[PastResearch]:
        """Earlier runs on related questions, best first; empty when none is related, or none can be had in 2 s."""
        stems = lookup_stems(query)
        if not stems or limit < 1:
            return []
        return self._read(lambda db: self._recall(db, query, stems, limit), [], control)

    @staticmethod
    def _recall(db: sqlite3.Connection, query: str, stems: tuple[str, ...], limit: int) -> list[PastResearch]:
        (total,) = db.execute("SELECT count(*) FROM session").fetchone()
        df: dict[str, int] = {}
        for at in range(0, len(stems), 500):
            part = stems[at : at + 500]
            marks = ",".join("?" * len(part))
            df.update(db.execute(f"SELECT stem, sessions FROM frequency WHERE stem IN ({marks})", part).fetchall())
        weights = ranking_stems(stems, df, total)
        if not weights:
            return []
        parts = " UNION ALL ".join("SELECT n, weight * ? AS w FROM posting WHERE stem = ?" for _ in weights)
        rows = db.execute(
            "SELECT session.id, body FROM session JOIN "
            f"(SELECT n, sum(w) AS score FROM ({parts}) GROUP BY n ORDER BY score DESC, n DESC LIMIT ?) AS best "
            "ON session.n = best.n ORDER BY best.score DESC, best.n DESC",
            [*(value for stem, weight in weights.items() for value in (weight, stem)), CANDIDATES],
        ).fetchall()
        found = [from_json(body, id) for id, body in rows]
        return related(query, [f for f in found if f is not None], df, total, limit)

    # --- looking after it

    def recent(self, n: int = 10, *, control: RunControl | None = None) -> list[PastResearch]:
        """The newest sessions, newest first."""

        def read(db: sqlite3.Connection) -> list[PastResearch]:
            rows = db.execute("SELECT id, body FROM session ORDER BY stored DESC, n DESC LIMIT ?", (max(0, n),))
            found = [from_json(body, id) for id, body in rows.fetchall()]
            return [session for session in found if session is not None]

        return self._read(read, [], control)

    def get(self, id: str, *, control: RunControl | None = None) -> PastResearch | None:
        """One session in full, or None."""

        def read(db: sqlite3.Connection) -> PastResearch | None:
            row = db.execute("SELECT body FROM session WHERE id = ?", (id,)).fetchone()
            return from_json(row[0], id) if row else None

        return self._read(read, None, control)

    def forget(self, id: str, *, control: RunControl | None = None) -> bool:
        """Take one session and all that names it away. True when it was there."""

        def delete(db: sqlite3.Connection) -> bool:
            rows = db.execute("SELECT n FROM session WHERE id = ?", (id,)).fetchall()
            self._delete(db, [n for (n,) in rows])
            return bool(rows)

        return self._with(delete, SAVE_SECONDS, writing=True, otherwise=False)

    def forget_all(self, *, control: RunControl | None = None) -> int:
        """Take every session away; how many there were."""

        def delete(db: sqlite3.Connection) -> int:
            (count,) = db.execute("SELECT count(*) FROM session").fetchone()
            for table in ("session", "posting", "frequency"):
                db.execute(f"DELETE FROM {table}")
            return int(count)

        count = self._with(delete, SAVE_SECONDS, writing=True, otherwise=0)
        if count:
            self._with(lambda db: db.execute("VACUUM"), SAVE_SECONDS, writing=False, otherwise=None)
        return count

    def reindex(self, *, control: RunControl | None = None) -> int:
        """Build the index anew from the sessions; how many were indexed."""

        def rebuild(db: sqlite3.Connection) -> int:
            db.execute("DELETE FROM posting")
            db.execute("DELETE FROM frequency")
            done = 0
            for n, id, body in db.execute("SELECT n, id, body FROM session").fetchall():
                session = from_json(body, id)
                if session is not None:
                    anew = replace(session, stems=question_stems(session.query))
                    weight = length_weight(anew.stems)
                    db.execute("UPDATE session SET body = ? WHERE n = ?", (to_json(anew), n))
                    db.executemany("INSERT INTO posting VALUES(?, ?, ?)", [(s, n, weight) for s in anew.stems])
                    done += 1
            db.execute("INSERT INTO frequency SELECT stem, count(*) FROM posting GROUP BY stem")
            return done

        return self._with(rebuild, 600.0, writing=True, otherwise=0)

    def stats(self, *, control: RunControl | None = None) -> dict[str, Any]:
        """`backend`, `configured`, `where`, `sessions` (None when the file cannot be read) and `max_sessions`."""
        count = self._read(lambda db: db.execute("SELECT count(*) FROM session").fetchone()[0], None, control)
        return {
            "backend": "local",
            "configured": True,
            "where": self.where,
            "sessions": 0 if count is None and not os.path.exists(self.path) else count,
            "max_sessions": self.max_sessions,
        }

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    # --- parts

    def _read(self, work: Callable[[sqlite3.Connection], T], otherwise: T, control: RunControl | None) -> T:
        seconds = (control or RunControl()).timeout(RECALL_SECONDS)
        if seconds <= 0 or (self._connection is None and not os.path.exists(self.path)):
            return otherwise  # nothing was remembered yet: reading makes no file
        return self._with(work, seconds, writing=False, otherwise=otherwise)

    def _with(self, work: Callable[[sqlite3.Connection], T], seconds: float, *, writing: bool, otherwise: T) -> T:
        try:
            return self._work(work, seconds, writing=writing)
        except TroubleError as problem:
            _log.warning("memory: %s", problem)
            return otherwise

    def _work(self, work: Callable[[sqlite3.Connection], T], seconds: float, *, writing: bool) -> T:
        """Run `work` on the open file within `seconds`. Raises TroubleError."""
        import sqlite3

        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            raise TroubleError("the store is busy")
        try:
            db = self._open(seconds)
            db.execute(f"PRAGMA busy_timeout = {int(min(seconds, LOCK_SECONDS) * 1000)}")
            db.set_progress_handler(lambda: time.monotonic() > deadline, 20_000)  # a true value interrupts
            with _transaction(db) if writing else nullcontext():
                return work(db)
        except (sqlite3.Error, OSError, ValueError) as problem:
            raise TroubleError(f"{self.path.name}: {safe_line(str(problem), 120)}") from problem
        finally:
            self._lock.release()

    def _open(self, seconds: float) -> sqlite3.Connection:
        import sqlite3

        if self._connection is not None and self._owner == os.getpid():
            return self._connection
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        db = sqlite3.connect(self.path, timeout=seconds, isolation_level=None, check_same_thread=False)
        try:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                _log.info("memory: %s stays in %s mode", self.path.name, mode)  # a network file system, as a rule
            db.execute("PRAGMA synchronous = NORMAL")
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._connection, self._owner = db, os.getpid()
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with _transaction(db):  # another process may have been first: look again inside
                if db.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in filter(str.strip, _TABLES.split(";")):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {SCHEMA}")
            (version,) = db.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA:
            raise ValueError(f"the store has schema {version}, this program knows {SCHEMA}; it is left alone")


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
