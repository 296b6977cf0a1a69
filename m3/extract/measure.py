"""How much text each element holds, how much of it in links, how much of it reads like prose."""

from __future__ import annotations

from m3.extract.dom import BLOCK, Element
from m3.patterns import lazy_pattern

PROSE_CHARS = 60  # a block of at least so many characters of its own, outside links, reads like prose
PROSE_LINK_SHARE = 0.4
# One Han or kana character says about as much as three Latin letters: the same news in Chinese is a third as long.
CJK_WEIGHT = 2.0
_CJK = lazy_pattern("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


def weight(text: str) -> int:
    """Characters with white space folded; those of scripts without letters count more."""
    if text.isspace():
        return 0
    folded = len(text) if len(text) < 2 else len(" ".join(text.split()))
    return folded if text.isascii() else folded + int(CJK_WEIGHT * len(_CJK.findall(text)))


def measure(element: Element, in_link: bool = False) -> None:
    """Fill the measures of an element and of all below it."""
    in_link = in_link or element.name == "a"
    chars = link = prose = own = own_link = 0
    for child in element.contents:
        if type(child) is Element:
            if child.dropped:
                continue
            measure(child, in_link)
            chars += child.chars
            link += child.link_chars
            prose += child.prose_chars
            if child.name not in BLOCK:
                own += child.own_chars
                own_link += child.own_link_chars
        elif isinstance(child, str):
            size = weight(child)
            chars += size
            own += size
            if in_link:
                link += size
                own_link += size
    element.chars, element.link_chars, element.own_chars, element.own_link_chars = chars, link, own, own_link
    if element.name in BLOCK or element.name == "body":
        long_enough = own >= PROSE_CHARS and own_link <= PROSE_LINK_SHARE * own
        if long_enough or (element.name == "pre" and chars >= 30):
            prose += own
    element.prose_chars = prose


def link_share(element: Element) -> float:
    """The part of an element's text that stands in links, 0 to 1."""
    return element.link_chars / element.chars if element.chars else 0.0
