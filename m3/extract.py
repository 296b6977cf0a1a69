"""HTML in, a page of typed blocks out."""

from __future__ import annotations

import re
from typing import Any

from m3.records import Page, page_from_parts

_DROPPED = (
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "nav",
    "footer",
    "aside",
    "form",
    "iframe",
    "button",
)
_BLOCKS = {"p": "paragraph", "li": "list_item", "pre": "code", "blockquote": "quote", "tr": "table_row"}
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")


class ContentExtractor:
    """Turns HTML into a `Page`: title, metadata and blocks."""

    def extract(self, html: bytes | str, url: str) -> Page:
        """Read one page. Never raises; a page without text has no blocks."""
        from bs4 import BeautifulSoup

        soup: Any = BeautifulSoup(html, "lxml")
        title = soup.title.get_text(" ", strip=True) if soup.title else ""
        for tag in soup.find_all(_DROPPED):
            tag.decompose()
        root = soup.find("main") or soup.find("article") or soup.find(attrs={"role": "main"}) or soup.body or soup
        parts = list(_parts(root))
        return page_from_parts(url, parts, title=title, published=_published(soup), kind="article")


def _parts(root: Any) -> Any:
    for tag in root.find_all([*_BLOCKS, *_HEADINGS, "dt", "dd"]):
        if tag.find_parent(["pre", "tr"]) or (tag.name != "p" and tag.find(["p", "li", "pre"])):
            continue
        if tag.name in _HEADINGS:
            yield "heading", _clean(tag.get_text(" ")).rstrip("¶ "), int(tag.name[1]), None
        elif tag.name == "pre":
            yield "code", tag.get_text(), 0, None
        elif tag.name == "tr":
            cells = [_clean(cell.get_text(" ")) for cell in tag.find_all(["td", "th"])]
            yield "table_row", " | ".join(cells), 0, None
        else:
            yield _BLOCKS.get(tag.name, "paragraph"), _clean(tag.get_text("")), 0, None


def _published(soup: Any) -> str:
    attrs: dict[str, str]
    for attrs in ({"property": "article:published_time"}, {"name": "date"}, {"itemprop": "datePublished"}):
        tag: Any = soup.find("meta", attrs=attrs)
        if tag and re.match(r"\d{4}-\d\d-\d\d", tag.get("content", "")):
            return str(tag["content"][:10])
    return ""


def _clean(text: str) -> str:
    return " ".join(text.split())
