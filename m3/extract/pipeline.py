"""One page from HTML to blocks: kind first, then the rules of that kind."""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

from m3.extract.blocks import Part, Writer
from m3.extract.container import document_container, main_container, prose_container
from m3.extract.dom import Document, Element, parse
from m3.extract.kind import Kind, page_kind
from m3.extract.measure import weight
from m3.extract.metadata import article_body, read_metadata
from m3.extract.posts import drop_signatures, find_posts
from m3.extract.prune import drop_asides, drop_cards, drop_chrome, drop_link_lists, drop_tails
from m3.extract.trim import trim
from m3.extract.visibility import drop_hidden, unwrap_noscript
from m3.records import Page, page_from_parts

SHORT = (
    250  # characters of text, those of scripts without letters weighted, below which another way of reading is tried
)
MAX_LINKS = 500


def extract_page(html: str, url: str) -> Page:
    """Read one page that is known to be of ordinary size and depth (see `bounded`)."""
    document = parse(html)
    hidden = _visible(document)
    kind = page_kind(document, url)
    meta = read_metadata(document, url, kind)
    parts, container, kind = _content(document, kind, meta)
    notes: list[str] = ["the page was cut: it holds too many elements"] if document.truncated else []
    notes += hidden
    size = sum(weight(part[1]) for part in parts)
    if size < SHORT:
        parts, container, note = _second_reading(html, document, parts, container)
        if note:
            notes.append(note)
    links = _links(container, urljoin(url, document.base) if document.base else url)
    document.release()
    return page_from_parts(url, parts, kind=kind, links=links, notes=tuple(notes), **meta)


def _visible(document: Document) -> tuple[str, ...]:
    """Leave in a page what a reader sees, and measure it; the notes on what was left out."""
    return drop_hidden(document) + unwrap_noscript(document)


def _content(document: Document, kind: Kind, meta: dict[str, str]) -> tuple[list[Part], Element, Kind]:
    """The parts of a page, the element they come from, and its kind where reading it told more."""
    body = document.body
    if kind in ("forum", "page", "article", "listing"):
        posts = _thread(body, kind)
        if posts:
            writer = Writer("post")
            for post in posts:
                drop_signatures(post)
                writer.write(post)
            return writer.parts, body, "forum"
    drop_chrome(body, kind)
    if kind in ("documentation", "repository"):
        container = document_container(body)
    elif kind in ("wiki",):
        container = _wiki(body)
    elif kind == "listing":
        container = main_container(body)
    else:
        container = prose_container(body, meta["title"])
        if _reads_like_article(container, body, kind):
            container = _pruned(body, meta["title"], comments=kind == "forum")
            writer = Writer()
            writer.write(container)
            return trim(writer.parts, meta["title"], meta["author"]), container, "article" if kind == "page" else kind
        container = main_container(body)
    writer = Writer("card" if kind == "listing" else "paragraph")
    writer.write(container)
    return writer.parts, container, kind


def _thread(body: Element, kind: Kind) -> list[Element]:
    """The posts of a thread; nothing where the page is something else with comments below it."""
    posts = find_posts(body)
    size = sum(post.chars for post in posts)
    if kind == "forum":
        return posts if posts and size >= 0.15 * body.prose_chars else []
    return posts if len(posts) >= 3 and size > 0.75 * body.prose_chars and kind != "article" else []


def _reads_like_article(container: Element, body: Element, kind: Kind) -> bool:
    """True when a page has running text that may be pruned of the rest; else all of its main part is kept.

    What the page says of itself weighs: many plain pages call themselves articles, shops seldom have much prose.
    """
    prose = container.prose_chars
    if kind in ("article", "paper"):
        return prose >= 250
    if kind == "product":
        return prose >= 300
    return prose >= 0.6 * container.chars and prose >= max(400, 0.8 * body.prose_chars)


def _pruned(body: Element, title: str, *, comments: bool) -> Element:
    """The container of an article, rid of what stands beside and below it."""
    drop_asides(body, comments=not comments)
    container = prose_container(body, title)
    drop_cards(container)
    drop_link_lists(container)
    drop_tails(container)
    return container


def _wiki(body: Element) -> Element:
    for element in body.descend():
        if "mw-parser-output" in element.attrs.get("class", "").split():
            drop_tails(element, references=True)
            return element
    return document_container(body)


def _second_reading(
    html: str, document: Document, parts: list[Part], container: Element
) -> tuple[list[Part], Element, str]:
    """Where hardly any text was found: what the page's own data say, or all that stands in its body."""
    size = sum(weight(part[1]) for part in parts)
    stated = article_body(document)
    if weight(stated) > size + 100:
        return [("paragraph", line, 0, None) for line in stated.split("\n")], container, "read from the page's JSON-LD"
    whole = parse(html)
    body = whole.body
    _visible(whole)
    drop_chrome(body, "page")
    writer = Writer()
    writer.write(main_container(body))
    again = sum(weight(part[1]) for part in writer.parts)
    if again > 2 * size:
        return writer.parts, body, "hardly any running text: all of the page's text is given"
    return parts, container, ""


def _links(container: Element, base: str) -> tuple[str, ...]:
    """The absolute http(s) URLs that the content links to, each once, in order."""
    found: dict[str, None] = {}
    for element in container.descend():
        href = element.attrs.get("href") if element.name == "a" else None
        if not href or href.startswith(("#", "javascript:", "mailto:", "data:")):
            continue
        try:
            absolute = urljoin(base, re.sub(r"[\s\x00-\x1f]+", "", href))
            if urlsplit(absolute).scheme in ("http", "https"):
                found.setdefault(absolute.partition("#")[0])
        except ValueError:  # a broken IPv6 address and the like
            continue
        if len(found) >= MAX_LINKS:
            break
    return tuple(found)
