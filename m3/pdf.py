"""PDF in, a page of typed blocks out, each with the number of the PDF page it stands on.

pypdf runs in a child process: a PDF of 200 KB can hold a content stream of 100 MB, and page trees can be circular.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from statistics import median
from typing import Any

from m3.child import ChildError, ChildLimits, run_child
from m3.patterns import lazy_pattern
from m3.records import FetchedPage, RunControl, page_from_parts

MAX_PAGES = 200
MAX_CHARS = 1_500_000
LIMITS = ChildLimits(seconds=12.0, cpu_s=10, memory_mb=768)
_SOFT_CPU_S = 7.0  # the child stops by itself here and answers with the pages it has read,
_SOFT_SHARE = 0.7  # as it does after this share of the time that it is given, on a machine with other work too

Part = tuple[str, str, int, "int | None"]

_FAULTS = {
    "timeout": ("timeout", "deadline", "the PDF takes too long to read"),
    "memory": ("too_large", "memory", "the PDF needs too much memory to read"),
    "crashed": ("unsupported_type", "bad_pdf", "the PDF is damaged"),
    "bad_pdf": ("unsupported_type", "bad_pdf", "the PDF is damaged"),
    "encrypted": ("unsupported_type", "bad_pdf", "the PDF needs a password"),
    "too_large": ("too_large", "memory", "the PDF holds more data than may be unpacked"),
}


def read_pdf(data: bytes, url: str, *, control: RunControl | None = None, limits: ChildLimits = LIMITS) -> FetchedPage:
    """The text of a PDF as a fetched page. Never raises.

    Kinds: ok; empty (no text, as in scans); unsupported_type (damaged, or needs a password); too_large; timeout.
    The first `MAX_PAGES` pages are read; `truncated` and a note say when there are more.
    """
    started = time.monotonic()
    try:
        given = limits.seconds if control is None else control.timeout(limits.seconds)
        found = run_child("m3.pdf:pages_of", data, {"seconds": given}, limits=limits, control=control)
    except ChildError as problem:
        found = {"fault": problem.code}
    seconds = time.monotonic() - started
    if "fault" in found:
        kind, detail, error = _FAULTS[found["fault"]]
        return FetchedPage(url, kind, detail=detail, error=error, final_url=url, seconds=seconds)  # type: ignore[arg-type]
    parts = list(_parts(found["pages"]))
    notes = []
    read, total = len(found["pages"]), found["total"]
    if found["truncated"]:
        notes.append(f"only the first {read} of {total} pages were read")
    page = page_from_parts(
        url, parts, title=found["title"] or _name_of(url) or _opening(parts), author=found["author"],
        modified=found["date"],
        kind="pdf", notes=tuple(notes),
    )  # fmt: skip
    if not page.text.strip():
        error = f"the PDF ({total} pages) holds no text, as scanned pages do"
        return FetchedPage(url, "empty", detail="no_text", error=error, final_url=url, seconds=seconds)
    return FetchedPage(url, "ok", page, final_url=url, seconds=seconds, truncated=found["truncated"])


MAX_PARTED = 80  # characters of a word that is parted at the end of a line
MAX_OPENING = 100  # characters


def _name_of(url: str) -> str:
    """The file's name for a document of the user's, who knows it by that; "" for one of the web."""
    return "" if "://" in url else url.rsplit("/", 1)[-1]


def _opening(parts: list[Part]) -> str:
    """How the text begins, for a document without a title: its first sentence, cut at a word."""
    first = re.split(r"(?<=[.!?。])\s", parts[0][1], maxsplit=1)[0] if parts else ""
    return first if len(first) <= MAX_OPENING else first[:MAX_OPENING].rsplit(" ", 1)[0] + " …"


# --- the child's side ------------------------------------------------------------------------------------


def pages_of(data: bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    """The lines of text of each page, and what the document says of itself; `{"fault": code}` where it fails."""
    import io
    import logging

    import pypdf
    from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

    ends = time.monotonic() + _SOFT_SHARE * float(options.get("seconds", LIMITS.seconds))
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            return {"fault": "encrypted"}
        total = len(reader.pages)
        pages: list[str] = []
        chars = 0
        for number in range(min(total, MAX_PAGES)):
            # The first page is read whatever the time: killed later, the child brings no less.
            if pages and (time.process_time() > _SOFT_CPU_S or time.monotonic() > ends) or chars > MAX_CHARS:
                break
            text = _clean(_text_of(reader, number))[: MAX_CHARS // 2]
            chars += len(text)
            pages.append(text)
        meta = _metadata(reader)
    except (FileNotDecryptedError, DependencyError):
        return {"fault": "encrypted"}
    except MemoryError:
        raise
    except PyPdfError as problem:
        return {"fault": "too_large" if type(problem).__name__ == "LimitReachedError" else "bad_pdf"}
    except Exception:  # noqa: BLE001  pypdf raises every kind of exception on damaged files
        return {"fault": "bad_pdf"}
    if not total:
        return {"fault": "bad_pdf"}
    return {"pages": pages, "total": total, "truncated": len(pages) < total or chars > MAX_CHARS, **meta}


def _text_of(reader: Any, number: int) -> str:
    """One page's text; a page that is damaged costs itself, not the document, unless it is the only one."""
    try:
        return str(reader.pages[number].extract_text())
    except MemoryError:
        raise
    except Exception:
        if len(reader.pages) == 1:
            raise
        return ""


def _metadata(reader: Any) -> dict[str, str]:
    found = {"title": "", "author": "", "date": ""}
    try:
        info = reader.metadata
        if info is None:
            return found
        title, author = _clean(str(info.title or "")), _clean(str(info.author or ""))
        created = info.creation_date
    except Exception:  # noqa: BLE001  metadata is a courtesy; a broken one is no metadata
        return found
    # Word processors leave file names and "untitled" in the title field.
    if len(title) > 4 and not re.match(r"(?i)untitled|microsoft word|.*\.(docx?|tex|dvi|pdf|indd|qxd)\s*$", title):
        found["title"] = " ".join(title.split())[:300]
    if not re.fullmatch(r"(?i)\W*(?:anonymous|unknown|author|user|admin(?:istrator)?|owner)\W*|\W*", author):
        found["author"] = " ".join(author.split())[:300]
    if isinstance(created, datetime):
        found["date"] = created.date().isoformat()
    return found


_LIGATURES = str.maketrans({
    "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", "\u00ad": "", "\0": "",
    "\u00a0": " ",
})  # fmt: skip


def _clean(text: str) -> str:
    """Ligatures opened (a reader searches for their letters), no NUL, no lone surrogate."""
    return text.translate(_LIGATURES).encode("utf-8", "replace").decode("utf-8")


# --- lines to blocks -------------------------------------------------------------------------------------

_NUMBERED = lazy_pattern(r"(?:\d{1,2}(?:\.\d{1,2}){0,3}\.?|[A-H]\.\d{0,2}|[IVX]{1,5}\.)\s+[A-Z][^\n]{2,80}\Z")
_NAMED = lazy_pattern(
    r"(?:\d{1,2}\.?\s+)?(?:abstract|introduction|background|related work|methods?|results?|discussion|conclusions?"
    r"|references|bibliography|appendix|acknowledge?ments?|summary|contents)\s*\Z",
    re.I,
)
_BULLET = lazy_pattern(r"[•◦▪‣·–—*]\s+(?=\S)")
_SENTENCE_END = lazy_pattern(r"[.!?:;。！？]['\")\]”’]*\Z")


def _parts(pages: list[str]) -> Iterator[Part]:
    repeated = _running_lines(pages)
    for number, text in enumerate(pages, 1):
        lines = [" ".join(line.split()) for line in text.split("\n")]
        for kind, block, level in _blocks([line for line in lines if _key(line) not in repeated]):
            yield kind, block, level, number


def _key(line: str) -> str:
    return re.sub(r"\d+", "0", line.strip().lower())


def _running_lines(pages: list[str]) -> set[str]:
    """Headers, footers and page numbers: lines at the edge of a page that come back on many pages."""
    seen: Counter[str] = Counter()
    for text in pages:
        lines = [line for line in text.split("\n") if line.strip()]
        edge = 0 if len(lines) < 3 else 1 if len(lines) < 8 else 2
        seen.update({_key(line) for line in (*lines[:edge], *lines[len(lines) - edge :]) if len(line) < 150})
    return {key for key, times in seen.items() if times >= 3 and times * 3 >= len(pages)}


def _blocks(lines: list[str]) -> Iterator[tuple[str, str, int]]:
    """Paragraphs joined from lines: a blank line, a heading, a bullet or a short last line ends one."""
    width = median([len(line) for line in lines if line] or [0])
    paragraph: list[str] = []
    kind = "paragraph"

    def flush() -> Iterator[tuple[str, str, int]]:
        nonlocal kind
        if paragraph:
            yield kind, _joined(paragraph), 0
            paragraph.clear()
        kind = "paragraph"

    for line in lines:
        if not line:
            yield from flush()
            continue
        bullet = _BULLET.match(line)
        if bullet:
            yield from flush()
            kind, line = "list_item", line[bullet.end() :]
        elif _is_heading(line) and (not paragraph or _SENTENCE_END.search(paragraph[-1])):
            yield from flush()
            depth = re.match(r"[\dA-H]+((?:\.\d+)*)", line)
            yield "heading", line, min(6, 2 + (depth[1].count(".") if depth else 0))
            continue
        paragraph.append(line)
        if _SENTENCE_END.search(line) and len(line) < 0.75 * width:
            yield from flush()
    yield from flush()


def _is_heading(line: str) -> bool:
    if _NAMED.match(line):
        return True
    return bool(_NUMBERED.match(line)) and len(line.split()) <= 12 and not _SENTENCE_END.search(line)


def _joined(lines: list[str]) -> str:
    """Lines as running text; a word parted at the end of a line is put together again."""
    text = lines[0]
    for line in lines[1:]:
        # Only the end is looked at: a search through all that was joined so far, for each line, is quadratic.
        parted = re.search(r"(\S*)(?<=[^\W\d_])-\Z", text[-MAX_PARTED:]) if text.endswith("-") else None
        if parted and re.match(r"[a-zß-öø-ÿ]", line):
            # A word that has a hyphen already ("state-of-the-art") keeps this one too.
            text = (text if "-" in parted[1] else text[:-1]) + line
        else:
            text += " " + line
    return text
