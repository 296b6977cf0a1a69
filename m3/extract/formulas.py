"""Formulas as TeX, once: pages carry each one as TeX, MathML and rendered glyphs side by side."""

from __future__ import annotations

import re

from m3.extract.dom import Element

_DISPLAY = re.compile(r"^\{\\(?:display|text)style\s*(.*)\}$", re.S)
_RENDERED = frozenset({"MathJax_Preview", "MathJax", "MathJax_SVG", "MathJax_CHTML", "katex-html"})
_CARRIERS = frozenset({"katex", "mwe-math-element", "mjx-container"})


def formula(element: Element) -> str | None:
    """`$TeX$` for an element that shows a formula, "" for a second rendering of one, None for any other element."""
    name, names = element.name, element.attrs.get("class", "").split()
    if name == "math":
        return _marked(_tex_of(element) or element.words_in())
    if name == "script":
        return _marked("".join(str(s) for s in element.contents))
    if name == "img":
        alt = element.attrs.get("alt", "")
        is_tex = alt.startswith("{\\") or any("latex" in n or n == "tex" or "mwe-math" in n for n in names)
        return _marked(alt) if is_tex and alt else None
    if name == "mjx-container" or _CARRIERS.intersection(names):
        for inner in element.descend():
            if inner.name == "math":
                return _marked(_tex_of(inner) or inner.words_in())
            if inner.name == "img" and inner.attrs.get("alt"):
                return _marked(inner.attrs["alt"])
        return None
    if _RENDERED.intersection(names):
        siblings = element.parent.contents if element.parent is not None else []
        return "" if any(isinstance(s, Element) and s.name == "script" for s in siblings) else None
    return None


def _tex_of(math: Element) -> str:
    for inner in math.descend():
        if inner.name == "annotation" and "tex" in inner.attrs.get("encoding", "").lower():
            return "".join(str(s) for s in inner.strings)
    return str(math.attrs.get("alttext", ""))


def _marked(tex: str) -> str:
    tex = " ".join(tex.split())
    match = _DISPLAY.match(tex)
    tex = (match[1] if match else tex).strip()
    return f"${tex}$" if tex else ""
