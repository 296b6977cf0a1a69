"""The index of a folder of documents: SQLite FTS5 in the user's cache folder, shared by all processes.

It is a cache and never the truth: a broken file is made anew, one that cannot be used is replaced by an index in
memory. Write transactions are short, so that processes that index the same folder share the work.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from config import cache_folder
from m3.codec import CodecError, from_plain, to_plain
from m3.records import Page, RunControl
from m3.words import terms

BUSY_SECONDS = 2.0  # a lock held longer than this is not waited for
TITLE_WEIGHT, PATH_WEIGHT, BODY_WEIGHT = 4.0, 2.0, 1.0

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS documents(id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, mtime INTEGER NOT NULL,"
    " size INTEGER NOT NULL, read_at INTEGER NOT NULL, title TEXT NOT NULL, published TEXT NOT NULL,"
    " fault TEXT NOT NULL, page BLOB)",
    'CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(title, path, body, tokenize="unicode61 remove_diacritics 0")',
)

T = TypeVar("T")


class IndexLostError(Exception):
    """The index could not be used and was replaced by another one, perhaps an empty one: bring it up to date again."""


@dataclass(frozen=True)
class Stamp:
    """What tells one state of a file from another. read_at: wall-clock nanoseconds just before it was read."""

    mtime: int
    size: int
    read_at: int = 0


@dataclass(frozen=True)
class Entry:
    """One document as it is indexed; `fault` says why it has no page."""

    name: str
    stamp: Stamp
    page: Page | None
    fault: str = ""


@dataclass(frozen=True)
class Hit:
    name: str
    title: str
    published: str


class DocumentIndex:
    """The words, pages and stamps of one folder's documents. Not for several threads at once.

    subject: the folder (or file) it is about. Every method raises IndexLostError when the index had to be replaced;
    the new one is ready for use, and the third is in memory.
    """

    def __init__(self, subject: Path, cache_dir: str | Path | None) -> None:
        self._db: sqlite3.Connection | None = None
        digest = hashlib.sha256(os.fsencode(subject)).hexdigest()[:20]
        folder = Path(cache_dir) if cache_dir else cache_folder()
        self._file = folder / f"documents-{digest}.sqlite"
        self._on_disk = False
        self._replaced = 0

    # --- reading ----------------------------------------------------------------------------------------

    def known(self, control: RunControl) -> dict[str, tuple[Stamp, str]]:
        """Every document's stamp and fault."""
        rows = self._do(
            control, lambda db: db.execute("SELECT path, mtime, size, read_at, fault FROM documents").fetchall()
        )
        return {path: (Stamp(mtime, size, read_at), fault) for path, mtime, size, read_at, fault in rows}

    def page(self, name: str, control: RunControl) -> tuple[Stamp, Page] | None:
        """The stored page of a document and the state of the file it was made from; None when there is none."""
        query = "SELECT mtime, size, read_at, page FROM documents WHERE path = ?"
        row = self._do(control, lambda db: db.execute(query, (name,)).fetchone())
        if row is None or row[3] is None:
            return None
        try:
            page = from_plain(Page, json.loads(zlib.decompress(row[3])))
        except (zlib.error, ValueError, CodecError):
            return None
        return Stamp(row[0], row[1], row[2]), page

    def ranked(self, wanted: Sequence[str], limit: int, control: RunControl) -> list[Hit]:
        """The documents that hold any of the stems, by BM25; the name decides between equals."""
        match = " OR ".join('"' + term.replace('"', '""') + '"' for term in wanted)
        query = (
            "SELECT d.path, d.title, d.published FROM words JOIN documents d ON d.id = words.rowid WHERE words MATCH ?"
            f" ORDER BY bm25(words, {TITLE_WEIGHT}, {PATH_WEIGHT}, {BODY_WEIGHT}), d.path LIMIT ?"
        )
        return [Hit(*row) for row in self._do(control, lambda db: db.execute(query, (match, limit)).fetchall())]

    # --- writing ----------------------------------------------------------------------------------------

    def put(self, entries: Sequence[Entry], control: RunControl) -> None:
        """Add or replace documents, all or none."""
        rows = [(entry, _packed(entry.page)) for entry in entries]  # before the lock is taken

        def work(db: sqlite3.Connection) -> None:
            for entry, blob in rows:
                _remove(db, entry.name)
                page, stamp = entry.page, entry.stamp
                title, published = (page.title, page.published) if page else ("", "")
                cursor = db.execute(
                    "INSERT INTO documents(path, mtime, size, read_at, title, published, fault, page)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (entry.name, stamp.mtime, stamp.size, stamp.read_at, title, published, entry.fault, blob),
                )
                if page is not None:
                    db.execute(
                        "INSERT INTO words(rowid, title, path, body) VALUES (?, ?, ?, ?)",
                        (cursor.lastrowid, _stems(page.title), _stems(entry.name), _stems(page.text)),
                    )

        if rows:
            self._do(control, lambda db: _in_transaction(db, work))

    def remove(self, names: Iterable[str], control: RunControl) -> None:
        """Forget documents, all or none."""
        gone = list(names)

        def work(db: sqlite3.Connection) -> None:
            for name in gone:
                _remove(db, name)

        if gone:
            self._do(control, lambda db: _in_transaction(db, work))

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        if self._db is not None:
            self._db.close()
        self._db = None

    def __del__(self) -> None:
        self.close()  # a connection is part of a reference cycle in CPython 3.11 and would linger

    # --- opening and mending ----------------------------------------------------------------------------

    def _do(self, control: RunControl, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._db is None:
            self._db = self._opened(control)
        try:
            self._db.execute(f"PRAGMA busy_timeout = {int(control.timeout(BUSY_SECONDS) * 1_000)}")
            return work(self._db)
        except sqlite3.Error as problem:
            if not self._on_disk:
                raise
            self._replace(problem, control)
            raise IndexLostError(str(problem)) from problem

    def _opened(self, control: RunControl) -> sqlite3.Connection:
        end = control.clock() + control.timeout(BUSY_SECONDS)
        while True:
            try:
                db = self._open_file(control)
                self._on_disk = True
                return db
            except sqlite3.Error as problem:
                if _is_locked(problem) and control.clock() < end and control.sleep(0.02):
                    continue
                if _is_usable(problem) or self._replaced:
                    return self._in_memory()
                self._replaced += 1
                self._delete_file()
            except OSError:
                return self._in_memory()

    def _open_file(self, control: RunControl) -> sqlite3.Connection:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The index holds the documents' text: nobody else may read it.
        os.close(os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600))
        db = sqlite3.connect(
            self._file, timeout=control.timeout(BUSY_SECONDS), check_same_thread=False, isolation_level=None
        )
        try:
            # The rollback journal, not WAL: home folders may lie on a network, and WAL's shared memory does not.
            db.execute("PRAGMA synchronous = NORMAL")
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
            if not {"documents", "words"} <= tables:
                _in_transaction(db, _create)
            elif db.execute("PRAGMA user_version").fetchone() != (_made_by(),):
                raise sqlite3.DatabaseError("made by another version of the program")
            db.execute("SELECT path, fault, page FROM documents LIMIT 1").fetchone()
            db.execute("SELECT rowid FROM words LIMIT 1").fetchone()
        except BaseException:
            db.close()
            raise
        return db

    def _replace(self, problem: sqlite3.Error, control: RunControl) -> None:
        """Take another index: for a file that is locked or cannot be written its copy in memory, else a new file."""
        old, self._db, self._on_disk = self._db, None, False
        if old is not None and _is_usable(problem):
            self._db = self._in_memory()
            with contextlib.suppress(sqlite3.Error):
                old.backup(self._db)  # a writer that is about to write lets readers in
            _in_transaction(self._db, _create)
            old.close()
            return
        if old is not None:
            old.close()
        self._replaced += 1
        if self._replaced > 1:
            self._db = self._in_memory()
        else:
            self._delete_file()
            self._db = self._opened(control)

    def _in_memory(self) -> sqlite3.Connection:
        self._on_disk = False
        db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        _in_transaction(db, _create)
        return db

    def _delete_file(self) -> None:
        for suffix in ("", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._file}{suffix}")


@lru_cache(maxsize=1)
def _made_by() -> int:
    """A number for the state of this package: pages read and stemmed by other code are not to be relied on."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    states = "\n".join(f"{path.name} {(stat := path.stat()).st_size} {stat.st_mtime_ns}" for path in files)
    return int.from_bytes(hashlib.sha256(states.encode()).digest()[:4], "big") >> 1  # SQLite keeps 31 bits


def _create(db: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {_made_by()}")


def _in_transaction(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], None]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        work(db)
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _remove(db: sqlite3.Connection, name: str) -> None:
    db.execute("DELETE FROM words WHERE rowid = (SELECT id FROM documents WHERE path = ?)", (name,))
    db.execute("DELETE FROM documents WHERE path = ?", (name,))


def _is_locked(problem: sqlite3.Error) -> bool:
    return "locked" in str(problem) or "busy" in str(problem)


def _is_usable(problem: sqlite3.Error) -> bool:
    """True when the file itself is sound, and only cannot be written or waited for."""
    text = str(problem).lower()
    return _is_locked(problem) or any(word in text for word in ("readonly", "full", "unable to open", "i/o"))


def _stems(text: str) -> str:
    return " ".join(terms(text))


def _packed(page: Page | None) -> bytes | None:
    if page is None:
        return None
    return zlib.compress(json.dumps(to_plain(page), ensure_ascii=True).encode(), 3)
