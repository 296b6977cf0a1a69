"""Uploaded files: kept under names of the server's own, shown under cleaned ones, searched like any documents.

A file's name, type and text are a stranger's. On disk a file is 32 hexadecimal digits beside a small JSON record; what
a person sees is a display name that never becomes a path; what it is, its bytes say. Nothing is served back.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import mimetypes
import os
import re
import sqlite3
import threading
import unicodedata
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from config import PROGRAM_DIR, ConfigError
from m3.child import ChildLimits
from m3.codec import CodecError, from_plain
from m3.document_index import Entry, IndexLostError, Stamp
from m3.documents import LocalDocuments, Reader, stamp_of
from m3.fetch import now_utc
from m3.files import write_atomic
from m3.page_reading import read_body
from m3.pdf import read_pdf
from m3.records import FetchedPage, RunControl
from m3.sniff import MediaKind, decode_text, media_kind
from m3.untrusted import clean_characters, foreign_line, neutralise

UPLOAD_DIR = PROGRAM_DIR / "web" / "backend" / "uploads"
TYPES: dict[str, MediaKind] = {"txt": "text", "md": "markdown", "csv": "csv", "html": "html", "pdf": "pdf"}
MAX_NAME_BYTES = 255
MAX_FILES = 500
# A PDF has its own process for the whole of it; the answer to an upload is due within ten seconds.
PDF_LIMITS = ChildLimits(seconds=8.5, cpu_s=8, memory_mb=768)
READ_SECONDS = 9.0
MAX_COLUMNS = 40
TABLE_CHARACTERS = 2_000_000  # of a table that are looked at for the summary of its columns
STRANGE_SHARE = 0.02  # of control characters, above which a "text" is none

_ID = re.compile(r"[0-9a-f]{32}")
_EXTENSION = re.compile(r"\.([A-Za-z0-9]{1,10})\Z")
# Python's own table, without what a machine adds to it.
_KNOWN_TYPES = mimetypes.MimeTypes().types_map[True] | mimetypes.MimeTypes().types_map[False]
# What some system runs or shows as a page, and the containers in which such things travel.
_RUN = frozenset(
    "exe dll com scr pif bat cmd msi msp cpl ps1 psm1 vb vbe vbs js jse mjs ws wsf wsh hta lnk url reg inf jar class"
    " app apk deb rpm dmg pkg iso img so dylib sh bash ksh csh zsh fish pl py pyc pyw rb php phtml php3 php5 phar asp"
    " aspx ashx jsp jspx cgi fcgi svg svgz swf xhtml xht htm mht mhtml shtml xml xsl xslt docm xlsm pptm dotm docx"
    " xlsx pptx odt ods rtf epub zip gz tgz bz2 xz 7z rar tar zst sqlite db wasm".split()
)
_STREAM = re.compile(r"::|:\$|\.[A-Za-z0-9]{1,10}:")  # NTFS: the name of a stream behind a file's
_ESCAPED = re.compile(r"%(?:22|0[0-9a-f]|1[0-9a-f]|7f)", re.I)


class UploadError(Exception):
    """A file that is not taken. status: of HTTP; the text is one line for the person who sent it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Record:
    """One uploaded file. type: a key of `TYPES`; size in bytes; uploaded_at: ISO 8601, UTC."""

    id: str
    name: str
    size: int
    type: str
    uploaded_at: str


# --- names -----------------------------------------------------------------------------------------------


def display_name(sent: str) -> str:
    """The name to show for a file that was sent under `sent`: the last part of its path, cleaned. Raises UploadError.

    Refused: nothing, dots alone, hidden files, control characters (also as browsers escape them in a form), NTFS
    streams. Taken away: what no reader sees, dots and blanks at the end. NFC, so that one name has one spelling.
    """
    name = _ESCAPED.sub(lambda m: chr(int(m[0][1:], 16)), sent)
    if any(unicodedata.category(c) == "Cc" for c in name):
        raise UploadError(400, "the file's name holds control characters")
    name = re.split(r"[/\\]", clean_characters(name))[-1]
    name = unicodedata.normalize("NFC", " ".join(name.split()).rstrip(". "))
    if not name.strip("."):
        raise UploadError(400, "the file has no name")
    if name.startswith("."):
        raise UploadError(400, "hidden files are not taken")
    if _STREAM.search(name):
        raise UploadError(400, "the file's name is none that a file can have")
    return _cut(name)


def _cut(name: str, most: int = MAX_NAME_BYTES) -> str:
    """The name within so many bytes of UTF-8, its extension kept."""
    if len(name.encode()) <= most:
        return name
    found = _EXTENSION.search(name)
    end = found[0] if found else ""
    stem = name[: len(name) - len(end)].encode()[: most - len(end)].decode("utf-8", "ignore")
    return stem.rstrip(". ") + end


def type_of_name(name: str) -> str | None:
    """The type that a name claims, None where it claims none and the bytes decide. Raises UploadError.

    The last extension counts. One that names another known type, or what some system would run, is refused; one that
    names nothing known (or that a direction mark had turned around) says nothing.
    """
    found = _EXTENSION.search(name)
    extension = found[1].lower() if found else ""
    if not extension or extension in TYPES:
        return extension or None
    known = _KNOWN_TYPES.get(f".{extension}", "text/plain")
    if known == "text/plain" and extension not in _RUN:
        return None
    raise UploadError(415, f"files of the type .{extension} are not taken; {', '.join('.' + t for t in TYPES)} are")


# --- contents --------------------------------------------------------------------------------------------


def type_of_body(claimed: str | None, data: bytes) -> str:
    """What a file is. The bytes must bear out what its name claims. Raises UploadError."""
    is_pdf = data.startswith(b"%PDF-")
    if claimed == "pdf" and not is_pdf:
        raise UploadError(415, "this is no PDF: it does not begin as one")
    if is_pdf and claimed not in ("pdf", None):
        raise UploadError(415, f"this is a PDF and not a .{claimed} file")
    if is_pdf:
        return "pdf"
    if not _is_text(data):
        raise UploadError(415, "this is no text: its bytes are those of another kind of file")
    return claimed or "txt"


def _is_text(data: bytes) -> bool:
    head = data[:65_536]
    if media_kind("", head.replace(b"\0", b"") if b"\0" in head and not _wide(head) else head) == "binary":
        return False
    text = decode_text(data[:262_144])
    strange = sum(1 for c in text if unicodedata.category(c) in ("Cc", "Cn") and c not in "\n\r\t\f" or c == "\ufffd")
    return strange <= len(text) * STRANGE_SHARE


def _wide(head: bytes) -> bool:
    """Whether NULs belong to the encoding: a mark of UTF-16 or UTF-32, or every other byte of them."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or head[:4] in (b"\0\0\xfe\xff", b"\xff\xfe\0\0"):
        return True
    return max(head[0::2].count(0), head[1::2].count(0)) * 2 >= len(head) // 2 > 8


def read_upload(kind: str, data: bytes, name: str, control: RunControl) -> FetchedPage:
    """An uploaded file as a page, by the reader that fetched pages have: bounded, in a child where it is heavy."""
    if kind == "pdf":
        return read_pdf(data, name, control=control, limits=PDF_LIMITS)
    media = TYPES[kind]
    found = read_body(data, media, f"text/{'plain' if media == 'text' else media}", name, control=control)
    if found.page is not None and found.truncated:
        note = "the file is long: only its beginning was read"
        found = replace(found, page=replace(found.page, notes=(*found.page.notes, note)))
    return found


# --- the folder ------------------------------------------------------------------------------------------


class Uploads:
    """The uploaded files of one server, shared by all its sessions like a folder on a disk. Safe in several threads.

    folder: made if need be, mode 0700. Raises ConfigError where it is a link or cannot be written.
    """

    def __init__(self, folder: str | Path | None = None, *, max_bytes: int = 20_000_000) -> None:
        self.folder = Path(folder) if folder is not None else UPLOAD_DIR
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}  # by id
        self._prepare()
        self.documents = UploadedDocuments(self)

    def _prepare(self) -> None:
        try:
            if self.folder.is_symlink():
                raise ConfigError(f"the folder of uploads {self.folder} is a link; it must be a folder itself")
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            for path in sorted(self.folder.iterdir()):
                self._take_up(path)
        except OSError as problem:
            raise ConfigError(f"the folder of uploads {self.folder} cannot be used: {problem.strerror}") from None

    def _take_up(self, path: Path) -> None:
        """Remember a file of an earlier server by its record; remove what an upload that broke off left behind."""
        name = path.name
        if _ID.fullmatch(name.removesuffix(".json")) and name.endswith(".json"):
            try:
                record = from_plain(Record, json.loads(path.read_text("utf-8")))
            except (ValueError, CodecError, RecursionError):
                return
            data = self.folder / record.id
            if record.id == path.stem and record.type in TYPES and data.is_file() and not data.is_symlink():
                self._records[record.id] = record
        elif name.endswith(".part") or (_ID.fullmatch(name) and not (self.folder / f"{name}.json").exists()):
            path.unlink()

    # --- looking

    def records(self) -> list[Record]:
        """All files, in the order in which they came."""
        with self._lock:
            return sorted(self._records.values(), key=lambda record: record.uploaded_at)

    def record_named(self, name: str) -> Record | None:
        return next((record for record in self.records() if record.name == name), None)

    def find(self, asked: str) -> str:
        """The name of the file that a model means: by its name as it is or as a prompt shows it, or `F2`; "" for none.

        Only names that are on the list are ever found, so that nothing that is asked for becomes a path.
        """
        records = self.records()
        number = re.fullmatch(r"\s*[Ff](\d{1,4})\s*\.?\s*", asked)
        if number and 1 <= int(number[1]) <= len(records):
            return records[int(number[1]) - 1].name
        wanted = re.split(r"[/\\]", asked.strip().strip("\"'`"))[-1].casefold()
        # A whole name comes before one without its extension, on the list as on disk before as it was shown.
        for form in (str, _as_shown, _stem):
            for record in records:
                if wanted and form(record.name).casefold() == wanted:
                    return record.name
        return ""

    def type_of(self, name: str) -> str:
        record = self.record_named(name)
        return record.type if record else ""

    def listing(self) -> str:
        """The files for a prompt, one a line."""
        lines = [
            f"F{i}. {foreign_line(r.name, 300)} ({r.type}, {max(1, r.size // 1000)} kB, uploaded {r.uploaded_at[:10]})"
            for i, r in enumerate(self.records(), 1)
        ]
        return "\n".join(lines) or "No files have been uploaded."

    def missing(self, asked: str) -> str:
        """What a prompt says about a name that no file has."""
        return f"There is no uploaded file {foreign_line(asked, 120)!r}. Uploaded files:\n{neutralise(self.listing())}"

    def columns(self, name: str) -> str:
        """A summary of a table's columns: kind of values, range or examples, how many are empty; "" for other files."""
        record = self.record_named(name)
        if record is None or record.type != "csv":
            return ""
        try:
            return column_summary(decode_text(self.data(record))[:TABLE_CHARACTERS])
        except OSError:
            return ""

    def path(self, record: Record) -> Path:
        return self.folder / record.id

    def data(self, record: Record) -> bytes:
        """A file's bytes. Follows no link. Raises OSError."""
        with os.fdopen(os.open(self.path(record), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
            return file.read(self.max_bytes + 1)

    # --- changing

    def add(self, sent_name: str, data: bytes) -> Record:
        """Store a file, once it was read and found to hold text. Raises UploadError; then nothing of it is left."""
        if len(data) > self.max_bytes:
            raise UploadError(413, f"the file is larger than {self.max_bytes // 1_000_000} MB")
        name = display_name(sent_name)
        claimed = type_of_name(name)
        if not data:
            raise UploadError(400, "the file is empty")
        kind = type_of_body(claimed, data)
        page = read_upload(kind, data, name, RunControl(READ_SECONDS))
        if page.kind != "ok" or page.page is None:
            raise UploadError(422, f"the file cannot be read: {page.error or page.kind}")
        record = Record(uuid.uuid4().hex, name, len(data), kind, now_utc())
        part = self.folder / f"{record.id}.part"
        try:
            self._write(part, data)
            record = self._enter(record, part)
        except OSError as problem:
            full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
            why = "there is no room left on the server's disk" if full else "the server cannot store it"
            raise UploadError(507 if full else 500, f"the file was not stored: {why}") from None
        finally:
            part.unlink(missing_ok=True)
        self.documents.keep(record, page)
        return record

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _enter(self, record: Record, part: Path) -> Record:
        """Give the file its unique name and its record; both files are there, or neither."""
        with self._lock:
            if len(self._records) >= MAX_FILES:
                raise UploadError(413, f"there are {MAX_FILES} files already; delete some")
            record = replace(record, name=self._unique(record.name))
            os.replace(part, self.path(record))
            try:
                write_atomic(self.folder / f"{record.id}.json", json.dumps(asdict(record)) + "\n")
            except BaseException:
                self.path(record).unlink(missing_ok=True)
                raise
            self._records[record.id] = record
            return record

    def _unique(self, name: str) -> str:
        """`report (2).pdf` where there is a `report.pdf`; capitals make no other name."""
        taken = {record.name.casefold() for record in self._records.values()}
        found = _EXTENSION.search(name)
        end = found[0] if found else ""
        stem, number, candidate = name[: len(name) - len(end)], 1, name
        while candidate.casefold() in taken:
            number += 1
            mark = f" ({number})"
            candidate = _cut(stem, MAX_NAME_BYTES - len(mark) - len(end)) + mark + end
        return candidate

    def delete(self, name: str) -> bool:
        """Remove a file, its record and its place in the index. False where there is none of that name."""
        with self._lock:
            record = next((r for r in self._records.values() if r.name == name), None)
            if record is None:
                return False
            del self._records[record.id]
            for path in (self.folder / f"{record.id}.json", self.path(record)):
                path.unlink(missing_ok=True)
        self.documents.forget(record.name)
        return True


# The index is a cache: what could not be written into it is made good by the next search.
_INDEX_FAULTS = (IndexLostError, sqlite3.Error, OSError)


def _as_shown(name: str) -> str:
    return foreign_line(name, 300)


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


class UploadedDocuments(LocalDocuments):
    """The uploaded files as a folder of documents: the same index and readers as `--docs`, under display names."""

    def __init__(self, uploads: Uploads) -> None:
        super().__init__(uploads.folder, engine="files", cache_dir=uploads.folder / ".index")
        self._uploads = uploads

    @property
    def max_bytes(self) -> int:
        return self._uploads.max_bytes

    def files(self, faults: dict[str, str] | None = None) -> Iterator[Path]:
        for record in self._uploads.records():
            yield self.folder / record.id

    def name_of(self, path: Path) -> str:
        record = next((r for r in self._uploads.records() if r.id == path.name), None)
        return record.name if record else path.name

    def path_of(self, name: str) -> Path | None:
        record = self._uploads.record_named(name)
        path = self.folder / record.id if record else None
        return path if path is not None and path.is_file() and not path.is_symlink() else None

    def _reader(self, path: Path) -> Reader:
        kind = next((r.type for r in self._uploads.records() if r.id == path.name), "txt")

        def read(data: bytes, name: str, control: RunControl) -> FetchedPage:
            return read_upload(kind, data, name, control)

        return read

    def keep(self, record: Record, fetched: FetchedPage) -> None:
        """Index a file that has just been read, so that nobody has to wait for it later."""
        page = fetched.page
        if page is not None:
            page = replace(page, url=record.name, title=record.name if page.title == page.url else page.title)
        with contextlib.suppress(*_INDEX_FAULTS), self._lock:
            seen = stamp_of(self.folder / record.id)
            # A file here is never written again, so that no state of it is too fresh to be believed.
            settled = Stamp(seen.mtime, seen.size, seen.mtime + 1_000_000_000)
            self._index.put([Entry(record.name, settled, page)], RunControl(READ_SECONDS))

    def forget(self, name: str) -> None:
        """Take a file that is gone out of the index."""
        with contextlib.suppress(*_INDEX_FAULTS), self._lock:
            self._index.remove([name], RunControl(READ_SECONDS))


# --- tables ----------------------------------------------------------------------------------------------


def column_summary(text: str) -> str:
    """What the columns of a CSV table hold, one line each; "" where there is no table."""
    try:
        dialect: type[csv.Dialect] | csv.Dialect = csv.Sniffer().sniff(text[:4_096], ",;\t|")
    except csv.Error:
        dialect = csv.excel
    try:
        rows = [row for row in csv.reader(io.StringIO(text), dialect) if any(cell.strip() for cell in row)]
    except csv.Error:
        return ""
    if len(rows) < 2:
        return ""
    header, body = rows[0], rows[1:]
    lines = [f"Table of {len(body)} rows and {len(header)} columns:"]
    for i, title in enumerate(header[:MAX_COLUMNS]):
        values = [row[i].strip() for row in body if i < len(row) and row[i].strip()]
        name = foreign_line(title, 80) or f"column {i + 1}"
        lines.append(f"- {name}: {_values_line(values)}{_empty_line(len(body) - len(values))}")
    if len(header) > MAX_COLUMNS:
        lines.append(f"- and {len(header) - MAX_COLUMNS} more columns")
    return "\n".join(lines)


def _values_line(values: list[str]) -> str:
    numbers = [number for number in map(_number, values) if number is not None]
    if values and len(numbers) == len(values):
        mean = sum(numbers) / len(numbers)
        return f"numbers, {min(numbers):g} to {max(numbers):g}, mean {mean:g}"
    distinct = list(dict.fromkeys(values))
    shown = ", ".join(foreign_line(value, 40) for value in distinct[:4])
    return f"text, {len(distinct)} different: {shown}{' …' if len(distinct) > 4 else ''}" if distinct else "no values"


def _number(text: str) -> float | None:
    plain = text.replace(" ", "").replace("\u00a0", "")
    if not re.fullmatch(r"[+-]?\d{1,15}(?:,\d{3})*(?:\.\d{1,15})?%?", plain):
        return None
    return float(plain.rstrip("%").replace(",", ""))


def _empty_line(count: int) -> str:
    return f", {count} empty" if count else ""
