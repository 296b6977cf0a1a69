"""The text of a page that no parser gets through: between its tags, without what its markup plainly hides.

One pass, linear in time: it follows which tags are open, but builds no tree. Hidden is what stands in a comment, in
elements without text of their own (scripts, styles, templates …), under an attribute or an inline style that hides.
Rules of style blocks are beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from typing import NamedTuple

from m3.extract.styles import declarations
from m3.extract.visibility import MOST, ROOT_PX, hiding
from m3.patterns import lazy_pattern

MAX_TAGS = 500_000  # some three seconds of work; what follows is left out
MAX_TAG = 4_000  # characters of one tag that are read

_MARKUP = lazy_pattern(r"<(?:(/?)([a-zA-Z][a-zA-Z0-9-]{0,30})|!--|[!?/])")
_QUOTE_OR_END = lazy_pattern("[\"'>]")
_ATTRIBUTE = lazy_pattern(
    r"""([a-zA-Z-]+)(?:\s{0,9}=\s{0,9}(?:"([^"]{0,3000})"|'([^']{0,3000})'|([^\s"'>]{1,300})))?"""
)
_TELLING = lazy_pattern(r"hidden|inert|popover|style|class|height|width|dialog", re.I)
_RAW = {name: lazy_pattern(f"</{name}", re.I) for name in (
    "script", "style", "textarea", "title", "noscript", "iframe", "noembed", "noframes", "xmp",
)}  # fmt: skip
_UNSEEN = frozenset("template svg object head select datalist audio video canvas".split())
_VOID = frozenset("area base br col embed hr img input link meta source track wbr param".split())
# An opening tag ends an open element of these at the top of the stack; a block ends an open paragraph.
_ENDS = {
    "li": {"li"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"}, "tr": {"tr", "td", "th"}, "td": {"td", "th"},
    "th": {"td", "th"}, "option": {"option"},
}  # fmt: skip
_BLOCKS = frozenset(
    "p div li br tr h1 h2 h3 h4 h5 h6 section article td th ul ol dl dt dd table blockquote pre header footer main nav "
    "aside figure figcaption form fieldset hr address details summary body center".split()
)
_NO_LINE = frozenset({"td", "th"})


@dataclass
class _Open:
    """One open tag: whether all in it is hidden, and whether its text is, unless an element in it is shown again."""

    name: str
    gone: bool
    invisible: bool


class BareText(NamedTuple):
    """What was read. hidden: characters that were left out; kept: ways of hiding that were not followed, since they
    hide too much of the page; cut: the page has more tags than are looked at."""

    text: str
    hidden: int = 0
    kept: bool = False
    cut: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        notes = []
        if self.hidden:
            notes.append(f"{self.hidden:,} characters that the page hides from its readers were left out")
        if self.kept:
            notes.append("text that the page's markup hides was kept, since it is much of the page")
        if self.cut:
            notes.append(f"what follows the first {MAX_TAGS:,} tags was left out")
        return tuple(notes)


def bare_text(html: str) -> BareText:
    """The text of a page, blocks on lines of their own."""
    pieces, cut = [], False
    for piece in _pieces(html):
        if piece is None:
            cut = True
        else:
            pieces.append(piece)
    hidden = sum(_letters(text) for text, seen in pieces if not seen)
    total = sum(_letters(text) for text, _ in pieces)
    kept = hidden > MOST * total
    text = unescape("".join(text for text, seen in pieces if seen or kept))
    return BareText(text, 0 if kept else hidden, kept, cut)


def _letters(text: str) -> int:
    """Characters but white space. Counted without a list of the words, which would take ten times the text's memory."""
    return len(text) - sum(map(text.count, " \n\t\r\f\v\xa0"))


def _pieces(html: str) -> Iterator[tuple[str, bool] | None]:
    """Stretches of text and whether they can be seen; None where the rest was left out."""
    stack = [_Open("", gone=False, invisible=False)]
    count: dict[str, int] = {}
    at = tags = 0
    while True:
        match = _MARKUP.search(html, at)
        top = stack[-1]
        yield html[at : match.start() if match else None], not (top.gone or top.invisible)
        if match is None:
            return
        tags += 1
        if tags > MAX_TAGS:
            yield None
            return
        name = (match[2] or "").lower()
        if html.startswith("<!--", match.start()):
            end = html.find("-->", match.end())
            if end < 0:
                return
            at = end + 3
            continue
        end = _tag_end(html, match.end())
        if end < 0:
            return
        at = end
        if name in _BLOCKS:
            yield " " if name in _NO_LINE else "\n", True
        if match[1]:
            _close(stack, count, name)
        elif name in _RAW:
            closing = _RAW[name].search(html, at)
            if closing is None:
                return
            at = closing.start()
        elif name and name not in _VOID:
            _open(stack, count, name, html[match.end() : end])


def _tag_end(html: str, at: int) -> int:
    """Where a tag ends, `>` within quotes passed over; -1 for nowhere."""
    first = html.find(">", at)
    if first < 0:
        return -1
    limit, here = at + MAX_TAG, at
    while True:
        mark = _QUOTE_OR_END.search(html, here, limit)
        if mark is None:
            return first + 1
        if mark[0] == ">":
            return mark.end()
        closing = html.find(mark[0], mark.end(), limit)
        if closing < 0:
            return first + 1
        here = closing + 1


def _open(stack: list[_Open], count: dict[str, int], name: str, rest: str) -> None:
    ended = _ENDS.get(name, {"p"} if name in _BLOCKS else frozenset())
    while stack[-1].name in ended:
        count[stack.pop().name] -= 1
    above = stack[-1]
    gone, invisible = above.gone or name in _UNSEEN, above.invisible
    if not gone and (name == "dialog" or _TELLING.search(rest)):
        attributes = {m[1].lower(): m[2] or m[3] or m[4] or "" for m in _ATTRIBUTE.finditer(rest)}
        style = declarations(unescape(attributes.get("style", "")))
        gone = bool(hiding(name, attributes, style, ROOT_PX))
        visibility = style.get("visibility")
        if visibility and visibility != "inherit":
            invisible = visibility in ("hidden", "collapse")
    stack.append(_Open(name, gone, invisible))
    count[name] = count.get(name, 0) + 1


def _close(stack: list[_Open], count: dict[str, int], name: str) -> None:
    if not count.get(name, 0):
        return
    while True:
        closed = stack.pop().name
        count[closed] -= 1
        if closed == name:
            return
