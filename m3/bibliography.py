"""The cited sources for a reference manager: BibTeX and CSL-JSON."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from m3.records import Page, Source

# BibTeX's own signs; the rest of Unicode is left as it is, which biber and every reference manager read.
_BIBTEX = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_BIBTEX |= {sign: f"\\{sign}" for sign in "&%$#_"}


def bibtex(sources: Sequence[Source]) -> str:
    """One `@online` entry a source (biblatex; classic styles read it as `@misc`). Ends with a newline; "" for none."""
    entries = []
    taken: set[str] = set()
    for source in sources:
        page, key = source.page, _key(source, taken)
        taken.add(key)
        fields = {
            "title": f"{{{_escaped(source.title)}}}",
            "author": " and ".join(f"{{{_escaped(name)}}}" for name in _authors(page)),
            "organization": _escaped(page.site),
            "date": _date(page.published),
            "url": _address(page.url),
            "urldate": _date(page.fetched_at),
        }
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
        entries.append("\n".join([f"@online{{{key},", *lines, "}"]))
    return "\n\n".join(entries) + ("\n" if entries else "")


def csl_json(sources: Sequence[Source]) -> str:
    """The sources as a CSL-JSON list of `webpage` items (`document` for local files)."""
    taken: set[str] = set()
    items: list[dict[str, Any]] = []
    for source in sources:
        page, key = source.page, _key(source, taken)
        taken.add(key)
        web = page.url.startswith(("http://", "https://"))
        item: dict[str, Any] = {
            "id": key,
            "type": "webpage" if web else "document",
            "title": _plain(source.title),
            "author": [{"literal": name} for name in _authors(page)],
            "container-title": _plain(page.site),
            "issued": _parts(page.published),
            "accessed": _parts(page.fetched_at),
            "URL": page.url if web else "",
            "note": "" if web else _plain(page.url),
        }
        items.append({name: value for name, value in item.items() if value})
    return json.dumps(items, ensure_ascii=False, indent=1) + "\n"


def _key(source: Source, taken: set[str]) -> str:
    """`surname2024word`, made distinct with a letter: ASCII, so that every tool accepts it."""
    page = source.page
    names = _authors(page)
    who = (
        names[0].split()[-1] if names else (urlsplit(page.url).hostname or "source").removeprefix("www.").split(".")[0]
    )
    words = re.findall(r"\w{4,}", _ascii(source.title))
    base = f"{_ascii(who)}{page.published[:4]}{words[0] if words else source.number}".lower()
    base = re.sub(r"[^a-z0-9]", "", base) or f"source{source.number}"
    key, letter = base, "a"
    while key in taken:
        key, letter = base + letter, chr(ord(letter) + 1) if letter < "z" else letter + "a"
    return key


def _authors(page: Page) -> list[str]:
    names = re.split(r"\s*(?:;|\band\b|\bund\b|&)\s*", _plain(page.author))
    if len(names) == 1 and page.author.count(",") > 1:  # "A. Smith, B. Jones, C. Lee"
        names = names[0].split(",")
    return [name.strip() for name in names if name.strip()]


def _plain(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _escaped(text: str) -> str:
    return "".join(_BIBTEX.get(c, c) for c in _plain(text))


def _address(url: str) -> str:
    return quote(_plain(url), safe="!#$%&'()*+,/:;=?@[]~-._") if url.startswith(("http://", "https://")) else ""


def _ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def _date(stamp: str) -> str:
    match = re.match(r"\d{4}(?:-\d\d(?:-\d\d)?)?", stamp)
    return match[0] if match else ""


def _parts(stamp: str) -> dict[str, list[list[int]]]:
    date = _date(stamp)
    return {"date-parts": [[int(part) for part in date.split("-")]]} if date else {}
