"""Formulas as TeX, once: pages carry each one as TeX, MathML and rendered glyphs side by side."""

from __future__ import annotations

import re

from m3.extract.dom import Element
from m3.patterns import lazy_pattern

_DISPLAY = lazy_pattern(r"^\{\\(?:display|text)style\s*(.*)\}$", re.S)
_RENDERED = frozenset({"MathJax_Preview", "MathJax", "MathJax_SVG", "MathJax_CHTML", "katex-html"})
_CARRIERS = frozenset({"katex", "mwe-math-element", "mjx-container"})
_ANNOTATIONS = frozenset({"annotation", "annotation-xml"})
_COMMAND = lazy_pattern(r"\\(?:begin|end)\{[^{}]*\}(?:\{[^{}]*\})?|\\[a-zA-Z]+")
_WORD = lazy_pattern(r"[^\W\d_]{4,}")
UNSEEN_WORDS = 3  # of four letters or more


def formula(element: Element) -> str | None:
    """`$TeX$` for an element that shows a formula, "" for a second rendering of one, None for any other element."""
    name, names = element.name, element.attrs.get("class", "").split()
    if name == "math":
        return _marked(_tex_of(element) or _shown(element))
    if name == "script":
        return _marked("".join(str(s) for s in element.contents))
    if name == "img":
        alt = element.attrs.get("alt", "")
        is_tex = alt.startswith("{\\") or any("latex" in n or n == "tex" or "mwe-math" in n for n in names)
        return _marked(alt) if is_tex and alt else None
    if name == "mjx-container" or _CARRIERS.intersection(names):
        for inner in element.descend():
            if inner.name == "math":
                return _marked(_tex_of(inner) or _shown(inner))
            if inner.name == "img" and inner.attrs.get("alt"):
                return _marked(inner.attrs["alt"])
        return None
    if _RENDERED.intersection(names):
        siblings = element.parent.contents if element.parent is not None else []
        return "" if any(isinstance(s, Element) and s.name == "script" for s in siblings) else None
    return None


def _tex_of(math: Element) -> str:
    """The formula's source as it is attached to it, unless that says more than the formula shows."""
    shown = _shown(math)
    for inner in math.descend():
        if inner.name == "annotation" and "tex" in inner.attrs.get("encoding", "").lower():
            return _if_shown("".join(str(s) for s in inner.strings), shown)
    return _if_shown(str(math.attrs.get("alttext", "")), shown)


def _shown(math: Element) -> str:
    """What a reader sees of a formula: the text outside its annotations."""
    strings = (s for s in math.strings if not any(p.name in _ANNOTATIONS for p in s.parents))
    return " ".join("".join(strings).split())


def _if_shown(tex: str, shown: str) -> str:
    """TeX whose words the formula shows; "" for other text, which no reader sees."""
    letters = "".join(shown.split()).casefold()
    unseen = [word for word in _WORD.findall(_COMMAND.sub(" ", tex)) if word.casefold() not in letters]
    return "" if len(unseen) >= UNSEEN_WORDS else tex


def _marked(tex: str) -> str:
    tex = " ".join(tex.split())
    match = _DISPLAY.match(tex)
    tex = (match[1] if match else tex).strip()
    return f"${tex}$" if tex else ""
