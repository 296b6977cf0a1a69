"""What a reader would not see. This filter runs first, before anything is judged to be content."""

from __future__ import annotations

import re

from m3.extract.dom import Document, Element
from m3.extract.measure import measure

# Declarations that hide an element by themselves, in a style without spaces.
_HIDING_STYLE = re.compile(
    r"display:none|visibility:(?:hidden|collapse)"
    r"|(?<![\w-])opacity:0?\.?0*(?:%|;|!|$)|filter:opacity\(0"
    r"|(?<![\w-])font-size:(?:0|[01]?\.\d+|1)(?:px|pt)?(?:;|!|$)|font-size:0?\.[01]\d*(?:r?em|%)|font-size:0(?:r?em|%)"
    r"|clip:rect\(0|clip:rect\(1px|clip-path:(?:inset\((?:50|100)%|circle\(0)"
    r"|transform:(?:\w+\([^)]{0,40}\))*(?:scale[xy3d]*\(0(?:[,)])|translate[xy3d]*\([^)]{0,20}-\d{4})"
    r"|(?<![\w-])(?:left|right|top|bottom|margin-left|margin-top|text-indent):-\d{4}"
)
# A box of no size hides its text only where what flows over is cut off.
_NO_SIZE = re.compile(r"(?<![\w-])(?:max-)?(?:width|height):[01](?:px|em|rem|%)?(?:;|!|$)")
_CUT_OFF = re.compile(r"overflow(?:-[xy])?:(?:hidden|clip)")
_SHOWN_ANYWAY = 0.5  # pages that keep most of their text hidden show it by script


def drop_hidden(document: Document) -> None:
    """Drop hidden elements, unless they hold most of the page (a script shows them then)."""
    body = document.body
    hidden = [e for e in body.descend() if is_hidden(e) and not _is_formula(e)]
    for element in hidden:
        if element.chars <= _SHOWN_ANYWAY * body.chars and element.prose_chars <= _SHOWN_ANYWAY * body.prose_chars + 60:
            element.drop()


def is_hidden(element: Element) -> bool:
    """True when the element's own attributes hide it."""
    attributes = element.attrs
    if "hidden" in attributes:
        return True
    if attributes.get("aria-hidden") == "true" and not (element.name == "a" and attributes.get("tabindex") == "-1"):
        return True  # such a link repeats another one for the mouse: readers see it
    style = attributes.get("style")
    if not style:
        return False
    style = "".join(style.lower().split())
    return bool(_HIDING_STYLE.search(style) or _NO_SIZE.search(style) and _CUT_OFF.search(style))


def _is_formula(element: Element) -> bool:
    """Formulas hide one of their renderings; `formulas` writes only one of them."""
    return element.name in ("math", "img") or any(e.name == "math" for e in element.elements)


def unwrap_noscript(document: Document) -> None:
    """Drop `<noscript>`, unless it holds more than the rest of the page (a thread shown by script)."""
    body = document.body
    for element in body.descend():
        if element.name == "noscript" and element.chars < max(1_500, 0.5 * body.chars):
            element.drop()
    measure(body)
