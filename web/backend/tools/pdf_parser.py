"""`extract_pdf_text`: an uploaded PDF page by page. The text itself comes from the shared child process (m3.pdf)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from m3.prompts import source_header
from m3.react_parser import Tool
from m3.records import Page, RunControl
from m3.untrusted import foreign_line, neutralise
from tools import ToolSuite, unreadable_line
from web.backend.files import Uploads

READ_CHARACTERS = 12_000  # of a file in one read


def numbered_pages(page: Page) -> list[tuple[int, str]]:
    """The pages of a PDF that hold text, each with its number."""
    blocks = (block for block in page.blocks if block.page_number is not None)
    return [
        (number or 0, "\n".join(block.text for block in group))
        for number, group in groupby(blocks, key=lambda block: block.page_number)
    ]


def pages_from(page: Page, first: int) -> tuple[str, int | None]:
    """The text of a PDF from page `first` on, as far as one read goes, and the page to ask for next (None at the end).

    A page that alone is longer than a read is cut, and says so.
    """
    shown: list[str] = []
    room = READ_CHARACTERS
    for number, text in numbered_pages(page):
        if number < first:
            continue
        if shown and len(text) > room:
            return "\n\n".join(shown), number
        body = neutralise(text)
        cut = f"{body[:room]} … (the rest of this page: extract)" if len(body) > room else body
        shown.append(f"(page {number})\n{cut}")
        room -= min(len(body), room)
    return "\n\n".join(shown), None


def pdf_tool(uploads: Uploads) -> Tool:
    def handler(args: Mapping[str, Any], suite: ToolSuite, control: RunControl) -> str:
        name = suite.perform("uploaded file", args["file"], str, lambda: uploads.find(args["file"]))
        if not name:
            suite.last_ok = False
            return uploads.missing(args["file"])
        return read_pdf_pages(name, max(1, int(args.get("page") or 1)), suite, control)

    return Tool(
        "extract_pdf_text",
        {"file": str, "page": int},
        '{"file": "report.pdf", "page": 1}: read an uploaded PDF from that page on; becomes a [Source N]',
        aliases={
            **dict.fromkeys("name filename file_name path pdf document url".split(), "file"),
            **dict.fromkeys("from start start_page from_page page_number".split(), "page"),
        },
        required=(("file",),),
        handler=handler,
        plain="file",
        names=("read_pdf", "pdf_text"),
        composed=True,
    )


def read_pdf_pages(name: str, first: int, suite: ToolSuite, control: RunControl) -> str:
    """The observation of reading an uploaded PDF from page `first` on."""
    source, fetched = suite.read(name, control)
    if source is None:
        return unreadable_line(fetched)
    text, following = pages_from(source.page, first)
    if not text:
        last = next((n for n, _ in reversed(numbered_pages(source.page))), 0)
        return f"{source_header(source)}\nThere is no text from page {first} on; the last page with text is {last}."
    ask = json.dumps({"file": foreign_line(name, 120), "page": following}, ensure_ascii=False)
    more = "\n(the end of the file)" if following is None else f"\n(more: extract_pdf_text {ask})"
    return f"{source_header(source)}\n{text}{more}{_notes(source.page.notes)}"


def _notes(notes: tuple[str, ...]) -> str:
    return "".join(f"\n({foreign_line(note)})" for note in notes)
