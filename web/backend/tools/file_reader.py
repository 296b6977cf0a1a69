"""`read_file` and `list_uploaded_files`: uploaded text, Markdown, HTML and CSV, in parts that a prompt can hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from m3.prompts import source_header
from m3.react_parser import Tool
from m3.records import RunControl
from m3.untrusted import foreign_line, neutralise
from tools import ToolSuite, unreadable_line
from web.backend.files import Uploads
from web.backend.tools.pdf_parser import READ_CHARACTERS, read_pdf_pages


def parts_of(text: str, most: int = READ_CHARACTERS) -> list[str]:
    """A text in parts of at most `most` characters, cut at line ends, or at blanks where a line is longer."""
    parts: list[str] = []
    while len(text) > most:
        cut = max(text.rfind("\n", most // 2, most), 0) or max(text.rfind(" ", most // 2, most), 0) or most
        parts.append(text[:cut])
        text = text[cut:].lstrip("\n")
    return [*parts, text]


def file_tools(uploads: Uploads) -> tuple[Tool, Tool]:
    """`read_file` and `list_uploaded_files` over these uploads."""

    def read(args: Mapping[str, Any], suite: ToolSuite, control: RunControl) -> str:
        asked = args["file"]
        name = suite.perform("uploaded file", asked, str, lambda: uploads.find(asked))
        if not name:
            suite.last_ok = False
            return uploads.missing(asked)
        number = max(1, int(args.get("part") or 1))
        if name.lower().endswith(".pdf") or uploads.type_of(name) == "pdf":
            return read_pdf_pages(name, number, suite, control)
        source, fetched = suite.read(name, control)
        if source is None:
            return unreadable_line(fetched)
        parts = parts_of(source.page.text)
        if number > len(parts):
            return f"{source_header(source)}\nThere is no part {number}; the file has {len(parts)}."
        columns = suite.perform("columns of a table", name, str, lambda: uploads.columns(name), control)
        head = f"{source_header(source)}\n{neutralise(columns)}".rstrip()
        ask = json.dumps({"file": foreign_line(name, 120), "part": number + 1}, ensure_ascii=False)
        end = f"(part {number} of {len(parts)}; more: read_file {ask})" if number < len(parts) else "(the end)"
        return f"{head}\n{neutralise(parts[number - 1])}\n{end}"

    def listed(args: Mapping[str, Any], suite: ToolSuite) -> str:
        return uploads.listing()

    reader = Tool(
        "read_file",
        {"file": str, "part": int},
        '{"file": "notes.md", "part": 1}: read an uploaded text, Markdown, HTML or CSV file; becomes a [Source N]',
        aliases={
            **dict.fromkeys("name filename file_name path document url".split(), "file"),
            **dict.fromkeys("page section chunk number".split(), "part"),
        },
        required=(("file",),),
        handler=read,
        plain="file",
        names=("open_file", "read_document", "read_uploaded_file"),
        composed=True,
    )
    lister = Tool(
        "list_uploaded_files",
        {},
        "{}: the names of the files that the user has uploaded",
        handler=listed,
        names=("list_files", "uploaded_files"),
        rules=(
            "When the question refers to a file, a document or an upload, use the uploaded files: list_uploaded_files,"
            " then read_file or extract_pdf_text. search_web finds passages in them too.",
        ),
    )
    return reader, lister
