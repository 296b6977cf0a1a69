"""Text, Markdown and CSV documents as pages: front matter, headings, lists, tables and code kept apart."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from m3.patterns import lazy_pattern
from m3.records import Page, page_from_parts

_FRONT_MATTER = lazy_pattern(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.S)
_HEADING = lazy_pattern(r"^(#{1,6})\s+(\S.*)$")
_ITEM = lazy_pattern(r"^(\s*)(?:[-*+•]|\d{1,3}[.)])\s+(.*)$")


# Every repetition is bounded: a line of 60,000 brackets must not cost 60,000 squared.
_INLINE = lazy_pattern(
    r"!?\[([^\]\n]{0,500})\]\([^)\s]{0,500}(?:\s{1,9}\"[^\"]{0,500}\")?\)"
    r"|(?<!`)(`{1,3})(?!`)(.{1,500}?)(?<!`)\2(?!`)"
    r"|(\*\*|__)(?=\S)(.{1,500}?)(?<=\S)\4"
    r"|(?<![\w*])[*_](?=\S)([^*_\n]{1,500}?)(?<=\S)[*_](?![\w*])"
)


def _plain(text: str) -> str:
    """Markdown's inline marks taken away, so that a quote reads as a reader sees it."""
    return _INLINE.sub(lambda m: m[1] or m[3] or m[5] or m[6] or "", text)


def markdown_page(text: str, url: str) -> Page:
    """A Markdown or plain-text document as a page. Front matter fills title, published and site."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    meta: dict[str, str] = {}
    match = _FRONT_MATTER.match(text)
    if match:
        for line in match[1].splitlines():
            key, colon, value = line.partition(":")
            if colon:
                meta[key.strip().lower()] = value.strip().strip("\"'")
        text = text[match.end() :]
    parts = list(_markdown_parts(text))
    headings = [part[1] for part in parts if part[0] == "heading"]
    title = meta.get("title") or (headings[0] if headings else "") or url.rsplit("/", 1)[-1]
    notes = tuple(f"{key}: {meta[key]}" for key in ("about", "reference") if meta.get(key))
    return page_from_parts(
        url, parts, title=title, published=meta.get("published", ""), author=meta.get("author", ""),
        kind="document", notes=notes,
    )  # fmt: skip


def _markdown_parts(text: str) -> Iterator[tuple[str, str, int, int | None]]:
    paragraph: list[str] = []
    code: list[str] | None = None

    def flush() -> Iterator[tuple[str, str, int, int | None]]:
        if paragraph:
            yield "paragraph", _plain(" ".join(line.strip() for line in paragraph)), 0, None
            paragraph.clear()

    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            if code is None:
                yield from flush()
                code = []
            else:
                yield "code", "\n".join(code), 0, None
                code = None
            continue
        if code is not None:
            code.append(line.rstrip())
            continue
        heading, item = _HEADING.match(line), _ITEM.match(line)
        if heading:
            yield from flush()
            yield "heading", _plain(heading[2].rstrip().rstrip("#").rstrip()), len(heading[1]), None
        elif item:
            yield from flush()
            yield "list_item", _plain(item[2].strip()), len(item[1].expandtabs(4)) // 2, None
        elif line.lstrip().startswith("|"):
            yield from flush()
            if not re.fullmatch(r"[\s|:-]+", line):  # the rule under a table's header says nothing
                yield (
                    "table_row",
                    " | ".join(cell.strip() for cell in line.strip().strip("|").split("|")),
                    0,
                    None,
                )
        elif not line.strip():
            yield from flush()
        else:
            paragraph.append(line)
    yield from flush()
    if code:
        yield "code", "\n".join(code), 0, None


def csv_page(text: str, url: str) -> Page:
    """A CSV table as a page: one row a line, each value labelled with its column so that a row can be quoted."""
    sample = text[:4_096]
    try:
        dialect: type[csv.Dialect] | csv.Dialect = csv.Sniffer().sniff(sample, ",;\t|")
    except csv.Error:
        dialect = csv.excel
    csv.field_size_limit(1_000_000)
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text.removeprefix("\ufeff")), dialect):
            rows.append(row)
    except csv.Error:
        return markdown_page(text, url)
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    header = rows[0] if rows else []
    parts: list[tuple[str, str]] = [("table_row", " | ".join(cell.strip() for cell in header))]
    for row in rows[1:]:
        pairs = [
            f"{header[i].strip()}: {cell.strip()}" if i < len(header) and header[i].strip() else cell.strip()
            for i, cell in enumerate(row)
            if cell.strip()
        ]
        parts.append(("table_row", "; ".join(pairs)))
    return page_from_parts(url, parts, title=url.rsplit("/", 1)[-1], kind="document")
