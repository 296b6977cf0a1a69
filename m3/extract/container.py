"""Which element holds the content."""

from __future__ import annotations

import re

from m3.extract.dom import Element

_HEADLINE_PROSE = 500  # characters of running text that make a text under a headline
_ALL_BUT_LINKS = 0.95
PROSE_SHARE = 0.62  # the container is left for a child that holds at least this part of its prose
_MAIN_IDS = frozenset("main content main-content maincontent page-content primary".split())
_NO_CONTAINER = frozenset("p table tbody thead tr ul ol dl pre blockquote h1 h2 h3 figure li".split())


def prose_container(body: Element, title: str = "") -> Element:
    """The element the prose stands in: from the body down into the child that holds most of it, then up again
    while what is added reads like prose too (bodies cut into sibling containers).

    Where the headline (`title`) stands over other prose than the most, that prose is meant.
    """
    if not body.prose_chars:
        return body
    best = _marked_body(body) or _descend(_under_headline(body, title))
    node = best
    while node is not body and isinstance(node.parent, Element):
        parent = node.parent
        added, links = parent.chars - best.chars, parent.link_chars - best.link_chars
        prose = parent.prose_chars - best.prose_chars
        if prose > 80 and links <= 0.12 * added and prose >= 0.5 * added:
            best = parent
        elif added > 0.5 * best.chars + 200:
            break
        node = parent
    return best


def _under_headline(body: Element, title: str) -> Element:
    """The smallest element around the headline that holds running text."""
    wanted = re.sub(r"\W+", "", title.casefold())
    if not wanted:
        return body
    for element in body.descend():
        if element.name not in ("h1", "h2") or re.sub(r"\W+", "", element.words_in().casefold()) != wanted:
            continue
        for above in element.parents:
            if above is body or not isinstance(above, Element):
                break
            if above.prose_chars >= _HEADLINE_PROSE:
                return above
    return body


def _marked_body(body: Element) -> Element | None:
    """The element that microdata calls the article's body, where it holds the page's prose."""
    for element in body.descend():
        if element.attrs.get("itemprop") == "articleBody" and element.prose_chars > 0.5 * body.prose_chars:
            return element
    return None


def _descend(node: Element) -> Element:
    while True:
        inner = [
            e for e in node.elements if e.name not in _NO_CONTAINER and e.prose_chars >= PROSE_SHARE * node.prose_chars
        ]
        if not inner or not node.prose_chars:
            return node
        node = max(inner, key=lambda e: e.prose_chars)


def main_container(body: Element) -> Element:
    """The element the page itself calls its main part, where that holds a fair share of the text; else the body.

    Pages that are no articles (documentation, shops, lists) have their content in links and short blocks, which
    prose cannot find.
    """
    mains = [e for e in body.descend() if e.name == "main" or e.attrs.get("role") == "main"]
    best = max(mains, key=lambda e: e.chars, default=None)
    if best is None or not _fair(best, body):
        named = [
            e for e in body.descend()
            if e.name in ("div", "section", "article", "td")
            and e.attrs.get("id", "").lower() in _MAIN_IDS
        ]  # fmt: skip
        best = max(named, key=lambda e: e.chars, default=None)
    if best is None or not _fair(best, body):
        best = body
    return best


def document_container(body: Element) -> Element:
    """The documentation page's own text inside its main part: as deep as nearly all text outside links goes along.

    Introductions often stand in an element of their own, so hardly anything may be lost on the way.
    """
    best = main_container(body)
    while True:
        least = _ALL_BUT_LINKS * (best.chars - best.link_chars)
        inner = [e for e in best.elements if e.name not in _NO_CONTAINER and e.chars - e.link_chars >= least > 0]
        if not inner:
            return best
        best = inner[0]


def _fair(element: Element, body: Element) -> bool:
    return element.chars >= 0.4 * body.chars or body.prose_chars > 0 and element.prose_chars >= 0.5 * body.prose_chars
