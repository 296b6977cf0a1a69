"""A folder of documents as a small private web: searched with BM25, read by name. Opens no connection."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from m3.document_index import DocumentIndex, Entry, Hit, IndexLostError, Stamp
from m3.extract import ContentExtractor
from m3.grounding import Patience, rank_passages
from m3.pdf import read_pdf
from m3.plain_text import csv_page, markdown_page
from m3.records import FetchedPage, Page, RunControl, SearchOutcome, SearchResult, page_from_parts
from m3.sniff import decode_text, media_kind
from m3.untrusted import safe_line
from m3.words import terms

MAX_BYTES = 20_000_000  # a larger file is left out and named
INDEX_SHARE = 0.5  # of what the run has left may go into reading changed files
BATCH_FILES, BATCH_SECONDS = 32, 1.0  # so much is written at once; what is written is kept when the run ends
SNIFFED_BYTES = 65_536  # enough to tell text from another kind of file
# Two writes of a file within this time may leave the same time stamp (file systems take it from the kernel's tick).
RACY_NANOSECONDS = 20_000_000
ATTEMPTS = 4  # an index may be replaced twice before it lives in memory


# --- kinds of documents ----------------------------------------------------------------------------------


def _read_html(data: bytes, name: str, control: RunControl) -> FetchedPage:
    page = ContentExtractor().extract(data, name)
    if not page.title and not page.text:
        page = page_from_parts(name, [], title=name.rsplit("/", 1)[-1])
    return _fetched(name, page)


def _read_pdf(data: bytes, name: str, control: RunControl) -> FetchedPage:
    return read_pdf(data, name, control=control)


def _fetched(name: str, page: Page) -> FetchedPage:
    if not page.text.strip():
        return FetchedPage(name, "empty", error=f"{name} holds no text", final_url=name)
    return FetchedPage(name, "ok", page, final_url=name)


Reader = Callable[[bytes, str, RunControl], FetchedPage]


def _text_reader(parse: Callable[[str, str], Page]) -> Reader:
    def read(data: bytes, name: str, control: RunControl) -> FetchedPage:
        text = _decoded(data)
        if text is None:
            error = f"{name} is no text: its bytes are those of another kind of file"
            return FetchedPage(name, "unsupported_type", error=error, final_url=name)
        return _fetched(name, parse(text, name))

    return read


def _decoded(data: bytes) -> str | None:
    """Text in Unicode; else in Windows' Western code page, as old notes are, unless it is in another script. None for
    what is no text."""
    if b"\0" not in data:
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode("utf-8-sig")
    if media_kind("", data[:SNIFFED_BYTES]) in ("binary", "pdf"):
        return None
    # Western languages write most letters in ASCII. They are not left to detection: on a few words it errs.
    letters, beyond = (sum(map(len, re.findall(kind, data))) for kind in (rb"[A-Za-z]+", rb"[\x80-\xff]+"))
    if b"\0" in data or data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or beyond > letters:
        return decode_text(data)
    return data.decode("cp1252", "replace")


_read_markdown = _text_reader(markdown_page)
READERS: dict[str, Reader] = {
    ".md": _read_markdown, ".markdown": _read_markdown, ".txt": _read_markdown, ".csv": _text_reader(csv_page),
    ".html": _read_html, ".htm": _read_html, ".xhtml": _read_html, ".pdf": _read_pdf,
}  # fmt: skip


# --- the folder ------------------------------------------------------------------------------------------


@dataclass
class _Survey:
    """What a look through the folder found: files to read, names that are there, what was left out and why."""

    changed: list[tuple[Path, str, Stamp]] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    faults: dict[str, str] = field(default_factory=dict)
    complete: bool = True


class FolderGoneError(OSError):
    """The folder of documents is not there, or cannot be listed."""


class LocalDocuments:
    """The documents below `folder` (or one file), as search results and as pages.

    They are named by their path from the folder's own name on: `papers/raptor.md` for `~/papers/raptor.md`.
    The index lies in `cache_dir` (the user's cache folder by default) and only changed files are read again.
    Files stay where they are and are never changed. Safe to use from several threads.
    """

    def __init__(self, folder: str | Path, *, engine: str = "local", cache_dir: str | Path | None = None) -> None:
        path = Path(folder).expanduser().resolve()
        self._only = path if path.is_file() else None
        self.folder = path.parent if self._only else path
        self.engine = engine
        self.skipped: dict[str, str] = {}  # documents that cannot be searched, and why
        self._unread = 0  # changed files that the time did not suffice for
        self._empty = False  # no file of a kind that is read
        self._index = DocumentIndex(path, cache_dir)
        self._lock = threading.Lock()

    @property
    def max_bytes(self) -> int:
        """A larger file is left out and named."""
        return MAX_BYTES

    # --- names ------------------------------------------------------------------------------------------

    @property
    def _root(self) -> str:
        return self.folder.name or "files"

    def name_of(self, path: Path) -> str:
        return f"{self._root}/{path.relative_to(self.folder).as_posix()}"

    def path_of(self, name: str) -> Path | None:
        """The file behind a document name, or None. Never leaves the folder, through no link either."""
        prefix, _, inside = name.partition("/")
        if prefix != self._root or not inside or "\0" in inside:
            return None
        try:
            path = (self.folder / inside).resolve()
            if not path.is_relative_to(self.folder) or path.suffix.lower() not in READERS or not path.is_file():
                return None
        except (OSError, RuntimeError, ValueError):  # a name that is too long, a loop of links
            return None
        return path if self._only in (None, path) else None

    def holds(self, name: str) -> bool:
        """Whether a document of that name is there."""
        return self.path_of(name) is not None

    def files(self, faults: dict[str, str] | None = None) -> Iterator[Path]:
        """Every document, in a fixed order; hidden files and folders are left out.

        faults: receives the folders that could not be listed. Raises FolderGoneError when it is the whole folder.
        """
        if self._only is not None:
            if not self._only.is_file():
                raise FolderGoneError(f"{self._only} is not there any more")
            yield self._only
            return
        if not self.folder.is_dir():
            raise FolderGoneError(f"the folder {self.folder} is not there any more")

        def unreadable(problem: OSError) -> None:
            if Path(problem.filename or "") == self.folder:
                raise FolderGoneError(f"the folder {self.folder} cannot be listed: {problem.strerror}")
            if faults is not None:
                faults[self.name_of(Path(problem.filename))] = f"cannot be listed ({problem.strerror})"

        for root, folders, names in os.walk(self.folder, onerror=unreadable):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = Path(root, name)
                if not name.startswith(".") and path.suffix.lower() in READERS:
                    yield path

    # --- reading ----------------------------------------------------------------------------------------

    def read(self, name: str, *, control: RunControl | None = None) -> FetchedPage | None:
        """The document of that name as a fetched page; None when the name is not one of this folder's."""
        control = control or RunControl()
        path = self.path_of(name)
        if path is None:
            return None
        # Another thread may be indexing for long; the file can be read without the index.
        if self._lock.acquire(timeout=0.1):
            try:
                stored = self._stored(path, name, control)
            finally:
                self._lock.release()
            if stored is not None:
                return FetchedPage(name, "ok", stored, final_url=name)
        return self._read_file(path, name, control)

    def _stored(self, path: Path, name: str, control: RunControl) -> Page | None:
        try:
            found = self._index.page(name, control)
            return found[1] if found and _unchanged(found[0], stamp_of(path)) else None
        except (IndexLostError, sqlite3.Error, OSError):
            return None

    def _reader(self, path: Path) -> Reader:
        """What reads this file; a folder whose files are named otherwise than by their kind overrides it."""
        return READERS[path.suffix.lower()]

    def _read_file(self, path: Path, name: str, control: RunControl) -> FetchedPage:
        try:
            with path.open("rb") as file:
                data = file.read(self.max_bytes + 1)
            if len(data) > self.max_bytes:
                error = f"{name} is larger than {self.max_bytes // 1_000_000} MB"
                return FetchedPage(name, "too_large", error=error, final_url=name)
            return self._reader(path)(data, name, control)
        except OSError as problem:
            error = f"{name} cannot be read: {problem.strerror}"
            return FetchedPage(name, "network", detail="unreadable", error=error, final_url=name)
        except (ValueError, RecursionError, MemoryError) as problem:
            error = f"{name} cannot be read as {path.suffix}: {type(problem).__name__}"
            return FetchedPage(name, "unsupported_type", error=error, final_url=name)

    # --- searching --------------------------------------------------------------------------------------

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        """The documents that match any word of `query`, best first. Never raises.

        Files that are new or changed are read first, for at most half of the time the run has left; what was not
        reached is said in `detail` and read the next time.
        """
        control = control or RunControl()
        wanted = list(dict.fromkeys(terms(query)))
        if not wanted:
            return SearchOutcome(engine=self.engine, status="bad_query", detail="the query holds no word to look for")
        try:
            with self._lock:
                hits, pages = self._found(wanted, max_results, control)
        except FolderGoneError as problem:
            return SearchOutcome(engine=self.engine, status="unavailable", detail=str(problem))
        except (sqlite3.Error, IndexLostError, OSError) as problem:
            detail = f"the index of {self.folder} cannot be used: {problem}"
            return SearchOutcome(engine=self.engine, status="unavailable", detail=detail)
        results = tuple(
            self._result(hit, page, query, rank, control)
            for rank, (hit, page) in enumerate(zip(hits, pages, strict=True), 1)
        )
        if not results and self._unread:
            return SearchOutcome(engine=self.engine, status="timeout", detail=self._note())
        return SearchOutcome(results, self.engine, "ok" if results else "no_results", self._note())

    def _found(self, wanted: list[str], limit: int, control: RunControl) -> tuple[list[Hit], list[Page | None]]:
        for attempt in range(ATTEMPTS):
            try:
                self._refresh(control)
                hits = self._matches(wanted, limit, control)
                stored = [self._index.page(hit.name, control) for hit in hits]
                return hits, [found[1] if found else None for found in stored]
            except IndexLostError:
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _matches(self, wanted: list[str], limit: int, control: RunControl) -> list[Hit]:
        """Rank by all words together; in a short query the best document for each word comes early too.

        Without that a document wholly about one word of a name loses to many that touch both words.
        """
        ranked = self._index.ranked(wanted, limit, control)
        if 1 < len(wanted) <= 3:
            ranked[1:1] = [hit for term in wanted for hit in self._index.ranked([term], 1, control)]
        return list(dict.fromkeys(ranked))[:limit]

    def _result(self, hit: Hit, page: Page | None, query: str, rank: int, control: RunControl) -> SearchResult:
        patience = Patience(lambda: control.expired)
        passages = rank_passages(query, page, 60, patience=patience) if page else []
        best = max(passages, key=lambda p: p.score, default=None)
        snippet = safe_line(best.quote, 240) if best else ""
        return SearchResult(hit.title or hit.name, hit.name, snippet, hit.published, self.engine, rank)

    def _note(self) -> str:
        """What a search could not cover, for people."""
        notes = []
        if self._empty:
            notes.append(f"{self.folder} holds no document; what is read is {' '.join(READERS)}")
        if self._unread:
            notes.append(f"{self._unread} new or changed documents have not been read yet: the time was too short")
        if self.skipped:
            shown = [f"{safe_line(name, 80)}: {why}" for name, why in sorted(self.skipped.items())[:3]]
            more = f" and {len(self.skipped) - 3} more" if len(self.skipped) > 3 else ""
            what = "1 document" if len(self.skipped) == 1 else f"{len(self.skipped)} documents"
            notes.append(f"{what} cannot be searched ({'; '.join(shown)}{more})")
        return "; ".join(notes)

    # --- keeping the index up to date -------------------------------------------------------------------

    def _refresh(self, control: RunControl) -> None:
        """Read what is new or changed, forget what is gone; batch by batch, so that an early end keeps its work."""
        part = control.within(control.remaining() * INDEX_SHARE) if control.deadline is not None else control
        known = self._index.known(control)
        survey = self._survey({name: stamp for name, (stamp, _) in known.items()}, part)
        if survey.complete:
            self._index.remove(set(known) - survey.present, control)
        self.skipped = {name: fault for name, (_, fault) in known.items() if fault and name in survey.present}
        for _, name, _ in survey.changed:
            self.skipped.pop(name, None)
        self.skipped |= survey.faults
        self._unread = len(survey.changed)
        self._empty = survey.complete and not survey.present and not survey.faults
        batch: list[Entry] = []
        started = part.clock()
        for path, name, stamp in survey.changed:
            if part.expired:
                break
            entry = self._entry(path, name, stamp, part)
            if entry is None:
                continue
            self._unread -= 1
            batch.append(entry)
            if len(batch) >= BATCH_FILES or part.clock() - started > BATCH_SECONDS:
                self._index.put(batch, control)
                batch, started = [], part.clock()
        self._index.put(batch, control)
        if not survey.complete:
            self._unread = max(1, self._unread)

    def _entry(self, path: Path, name: str, stamp: Stamp, control: RunControl) -> Entry | None:
        """What the index shall keep of a file; None when that cannot be said now."""
        fetched = self._read_file(path, name, control)
        if fetched.kind == "timeout" and control.expired:
            return None
        fault = "" if fetched.kind == "ok" else safe_line(fetched.error.removeprefix(name).strip(), 120)
        if fault:
            self.skipped[name] = fault
        if fetched.detail == "unreadable":
            stamp = Stamp(-1, -1)  # rights may change without the file: look again the next time
        return Entry(name, stamp, fetched.page, fault)

    def _survey(self, known: dict[str, Stamp], control: RunControl) -> _Survey:
        found = _Survey()
        for path in self.files(found.faults):
            if control.expired:
                found.complete = False
                break
            name = self.name_of(path)
            try:
                if fault := self._fault_of(path, name):
                    found.faults[_printable(name)] = fault
                    continue
                stamp = stamp_of(path)
            except OSError as problem:
                if not isinstance(problem, FileNotFoundError):  # gone since the folder was listed
                    found.faults[name] = f"cannot be read ({problem.strerror})"
                continue
            found.present.add(name)
            if name not in known or not _unchanged(known[name], stamp):
                found.changed.append((path, name, stamp))
        return found

    def _fault_of(self, path: Path, name: str) -> str:
        """Why a file is not even tried; "" when it is."""
        if _printable(name) != name:
            return "its name is not valid text"
        try:
            if path.is_symlink() and not path.resolve().is_relative_to(self.folder):
                return "a link that leads out of the folder"
        except RuntimeError:  # raised by Python below 3.13 for links in a circle
            return "a link that leads nowhere"
        if not path.is_file():
            return "not a file" if path.exists() else "a link that leads nowhere"
        return ""


def stamp_of(path: Path) -> Stamp:
    """The state of a file now. Raises OSError."""
    now = time.time_ns()
    stat = path.stat()
    return Stamp(stat.st_mtime_ns, stat.st_size, now)


def _unchanged(then: Stamp, now: Stamp) -> bool:
    """True when the file is what it was; one that was written just before it was read may have changed unseen."""
    racy = abs(then.read_at - then.mtime) < RACY_NANOSECONDS
    return not racy and (then.mtime, then.size) == (now.mtime, now.size)


def _printable(name: str) -> str:
    """The name without the stand-ins for bytes that are not UTF-8, which no database takes."""
    return name.encode("utf-8", "replace").decode("utf-8")
