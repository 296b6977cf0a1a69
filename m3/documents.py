"""A folder of documents as a small private web: indexed with SQLite FTS5, searched with BM25, read by name."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from m3.extract import ContentExtractor
from m3.grounding import rank_passages
from m3.plain_text import csv_page, markdown_page
from m3.records import FetchedPage, Page, RunControl, SearchOutcome, SearchResult, page_from_parts
from m3.words import safe_line, terms

SUFFIXES = {".md", ".markdown", ".txt", ".html", ".htm", ".csv"}
MAX_BYTES = 20_000_000  # a larger file is left out and named
INDEX_VERSION = 1
TITLE_WEIGHT, PATH_WEIGHT, BODY_WEIGHT = 4.0, 2.0, 1.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents(id INTEGER PRIMARY KEY, path TEXT UNIQUE, mtime INTEGER, size INTEGER,
    title TEXT, published TEXT);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(title, path, body, tokenize="unicode61 remove_diacritics 0");
"""


class LocalDocuments:
    """The documents below `folder` (or one file), as search results and as pages.

    They are named by their path from the folder's own name on: `papers/raptor.md` for `~/papers/raptor.md`.
    The index lies in `cache_dir` (the user's cache folder by default) and only changed files are read again; where
    that folder cannot be written, it lives in memory. Files stay where they are and are never changed.
    """

    def __init__(self, folder: str | Path, *, engine: str = "local", cache_dir: str | Path | None = None) -> None:
        path = Path(folder).expanduser().resolve()
        self.folder = path if path.is_dir() else path.parent
        self._only = None if path.is_dir() else path
        self.engine = engine
        self._cache_dir = cache_dir
        self._connection: sqlite3.Connection | None = None
        self.skipped: list[str] = []

    # --- names ------------------------------------------------------------------------------------------

    def name_of(self, path: Path) -> str:
        return f"{self.folder.name}/{path.relative_to(self.folder).as_posix()}"

    def path_of(self, name: str) -> Path | None:
        """The file behind a document name, or None. Never leaves the folder, through no link either."""
        prefix, _, inside = name.partition("/")
        if prefix != self.folder.name or not inside or "\0" in inside:
            return None
        path = (self.folder / inside).resolve()
        if not path.is_relative_to(self.folder) or path.suffix.lower() not in SUFFIXES or not path.is_file():
            return None
        return path if self._only in (None, path) else None

    def files(self) -> Iterator[Path]:
        """Every readable document, in a fixed order; hidden files and folders are left out."""
        if self._only is not None:
            yield self._only
            return
        for root, folders, names in os.walk(self.folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = Path(root, name)
                if not name.startswith(".") and path.suffix.lower() in SUFFIXES and path.is_file():
                    yield path

    # --- reading ----------------------------------------------------------------------------------------

    def read(self, name: str) -> FetchedPage | None:
        """The document of that name as a fetched page; None when the name is not one of this folder's."""
        path = self.path_of(name)
        if path is None:
            return None
        try:
            page = self._page(path)
        except OSError as problem:
            return FetchedPage(name, "network", detail="unreadable", error=f"{name}: {problem.strerror}")
        if not page.text.strip():
            return FetchedPage(name, "empty", error=f"{name} holds no text", final_url=name)
        return FetchedPage(name, "ok", page, final_url=name)

    def _page(self, path: Path) -> Page:
        name, raw = self.name_of(path), path.read_bytes()
        suffix = path.suffix.lower()
        if suffix in (".html", ".htm"):
            page = ContentExtractor().extract(raw, name)
            return page if page.title else page_from_parts(name, [], title=path.name)
        text = raw.decode("utf-8-sig", "replace")
        return csv_page(text, name) if suffix == ".csv" else markdown_page(text, name)

    # --- searching --------------------------------------------------------------------------------------

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        """The documents that match any word of `query`, best first. Never raises."""
        wanted = list(dict.fromkeys(terms(query)))
        if not wanted:
            return SearchOutcome(engine=self.engine, status="bad_query", detail="the query holds no word to look for")
        try:
            rows = self._matches(wanted, max_results, control)
        except (sqlite3.Error, OSError) as problem:
            return SearchOutcome(engine=self.engine, status="unavailable", detail=f"index of {self.folder}: {problem}")
        results = tuple(self._result(row, query, rank) for rank, row in enumerate(rows, 1))
        return SearchOutcome(results, self.engine, "ok" if results else "no_results")

    def _matches(self, wanted: list[str], limit: int, control: RunControl | None) -> list[tuple[str, str, str]]:
        """Rank by all words together; in a short query the best document for each word comes early too.

        Without that a document wholly about one word of a name loses to many that touch both words.
        """
        connection = self._index(control)
        ranked = _ranked(connection, wanted, limit)
        if 1 < len(wanted) <= 3:
            ranked[1:1] = [row for term in wanted for row in _ranked(connection, [term], 1)]
        return list(dict.fromkeys(ranked))[:limit]

    def _result(self, row: tuple[str, str, str], query: str, rank: int) -> SearchResult:
        name, title, published = row
        fetched = self.read(name)
        passages = rank_passages(query, fetched.page, 60) if fetched and fetched.page else []
        best = max(passages, key=lambda p: p.score, default=None)
        snippet = safe_line(best.quote, 240) if best else ""
        return SearchResult(title or name, name, snippet, published, self.engine, rank)

    # --- the index --------------------------------------------------------------------------------------

    def _index(self, control: RunControl | None) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._open()
            self._refresh(self._connection, control)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        key = hashlib.sha256(f"{INDEX_VERSION}:{self._only or self.folder}".encode()).hexdigest()[:16]
        base = self._cache_dir or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        try:
            folder = Path(base) / "m3-research-agent"
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = sqlite3.connect(folder / f"documents-{key}.sqlite", timeout=5, check_same_thread=False)
            connection.executescript("PRAGMA journal_mode=WAL;" + _SCHEMA)
        except (OSError, sqlite3.Error, RuntimeError):  # no home, read-only, or a broken file
            connection = sqlite3.connect(":memory:", check_same_thread=False)
            connection.executescript(_SCHEMA)
        return connection

    def _refresh(self, connection: sqlite3.Connection, control: RunControl | None) -> None:
        """Bring the index up to date with the folder, one transaction; ends early at the run's deadline."""
        known = {path: (id_, mtime, size) for id_, path, mtime, size in connection.execute(
            "SELECT id, path, mtime, size FROM documents")}  # fmt: skip
        seen: set[str] = set()
        complete = True
        with connection:
            for path in self.files():
                if control is not None and control.expired:
                    complete = False
                    break
                name, stat = self.name_of(path), path.stat()
                seen.add(name)
                if stat.st_size > MAX_BYTES:
                    self.skipped.append(f"{name}: larger than {MAX_BYTES // 1_000_000} MB")
                    continue
                if name in known and known[name][1:] == (stat.st_mtime_ns, stat.st_size):
                    continue
                self._remove(connection, known.pop(name, None), name)
                self._add(connection, path, name, stat)
            if complete:
                for name in set(known) - seen:
                    self._remove(connection, known[name], name)

    def _add(self, connection: sqlite3.Connection, path: Path, name: str, stat: os.stat_result) -> None:
        try:
            page = self._page(path)
        except OSError as problem:
            self.skipped.append(f"{name}: {problem.strerror}")
            return
        with closing(connection.cursor()) as cursor:
            cursor.execute(
                "INSERT INTO documents(path, mtime, size, title, published) VALUES (?, ?, ?, ?, ?)",
                (name, stat.st_mtime_ns, stat.st_size, page.title, page.published),
            )
            cursor.execute(
                "INSERT INTO words(rowid, title, path, body) VALUES (?, ?, ?, ?)",
                (cursor.lastrowid, _indexed(page.title), _indexed(name), _indexed(page.text)),
            )

    @staticmethod
    def _remove(connection: sqlite3.Connection, known: tuple[int, int, int] | None, name: str) -> None:
        if known is not None:
            connection.execute("DELETE FROM words WHERE rowid = ?", (known[0],))
            connection.execute("DELETE FROM documents WHERE path = ?", (name,))


def _ranked(connection: sqlite3.Connection, wanted: list[str], limit: int) -> list[tuple[str, str, str]]:
    match = " OR ".join('"' + term.replace('"', '""') + '"' for term in wanted)
    return connection.execute(
        "SELECT d.path, d.title, d.published FROM words JOIN documents d ON d.id = words.rowid WHERE words MATCH ?"
        f" ORDER BY bm25(words, {TITLE_WEIGHT}, {PATH_WEIGHT}, {BODY_WEIGHT}), d.path LIMIT ?",
        (match, limit),
    ).fetchall()


def _indexed(text: str) -> str:
    return " ".join(terms(text))
