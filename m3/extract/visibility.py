"""What a reader would not see. This filter runs first, before anything is judged to be content.

Attributes, inline styles and the page's own style blocks are weighed as a browser would, from the body down: what is
hidden as a box goes with all it holds; what is hidden by an inherited property goes as far as it is inherited. Sheets
from other files, scripts and pictures are beyond it. Kept, and said in the page's notes: closed panels that a reader
can open, and whatever is so much of the page (`MOST`) that a script must be meant to show it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from bs4.element import NavigableString

from m3.extract.colours import WHITE, Colour, contrast, parse_colour
from m3.extract.dom import Document, Element
from m3.extract.measure import measure
from m3.extract.signs import Sign, signs
from m3.extract.styles import BY_RULE, Declarations, Rule, Sheet, declarations
from m3.patterns import lazy_pattern

MOST = 0.4  # of the page's text: hidden text of one kind that is more than this is kept,
MOST_PROSE = 0.5  # as is more than this of its running text,
LONG_PROSE = 800  # where that is so many characters
FAINT = 0.06  # opacity up to which nothing can be read
TINY_PX = 2.0  # font size below which nothing can be read
FAR_PX = 900.0  # to the left of or above the page
FAR_RIGHT_PX = 5_000.0  # a page may scroll to the right
SAME = 1.12  # contrast ratio (WCAG 2) below which text cannot be told from its background
ROOT_PX = 16.0

_LENGTH = lazy_pattern(r"(-?(?:\d+\.?\d*|\.\d+))(px|r?em|ex|ch|pt|pc|in|cm|mm|q|%|v[wh]|v(?:min|max)|)$")
_PX = {"": 1.0, "px": 1.0, "pt": 4 / 3, "pc": 16.0, "in": 96.0, "cm": 37.8, "mm": 3.78, "q": 0.945,
       "vw": 12.8, "vh": 8.0, "vmin": 8.0, "vmax": 12.8, "rem": ROOT_PX}  # fmt: skip
_FONT_WORDS = {"xx-small": 9.0, "x-small": 10.0, "small": 13.0, "medium": 16.0, "large": 18.0, "x-large": 24.0,
               "xx-large": 32.0, "smaller": 13.0, "larger": 19.0, "initial": 16.0}  # fmt: skip
_CALLS = lazy_pattern(r"([\w-]+)\(([^()]*)\)")
_SHAPE_NUMBER = lazy_pattern(r"-?\d*\.?\d+")
_HIDING_NAMES = frozenset(
    "hidden d-none invisible visually-hidden visuallyhidden sr-only screen-reader-text is-hidden u-hidden hide "
    "element-invisible u-visually-hidden".split()
)
_SHOWN_LATER = lazy_pattern(
    r"(?:^|[\s-])(?:sm|md|lg|xl|xxl|2xl)[:-](?:block|flex|grid|inline\S*|table\S*|visible|contents)"
)
_PANEL = lazy_pattern(
    r"(?:^|[\s_-])(?:tab-?pane|tab-?panel|tab-?content|tabs-panel|tabs__content"
    r"|accordion-?(?:body|content|panel|collapse|item|text)?|panel-collapse|collapse|collapsible(?:-content|-body)?"
    r"|expand(?:able|er)-content|faq-?(?:answer|content|body)|toggle-?content)(?=$|[\s_-])",
    re.I,
)
_NO_PANEL = frozenset("dialog alertdialog menu menubar navigation listbox tooltip search banner".split())
# These leave a closed panel's text unseen; off-screen, colourless or tiny text is no panel's.
_CLOSING = frozenset({"hidden", "display", "visibility", "size", "opacity", "aria-hidden", "class"})


# Ways in which whole pages are hidden piece by piece until a script fades the pieces in: judged together.
_BY_SCRIPT = frozenset({"opacity", "visibility", "transform", "clip", "position"})


@dataclass(frozen=True)
class _Style:
    """What an element inherits that decides whether its text can be seen."""

    invisible: bool = False
    font_px: float = ROOT_PX
    colour: Colour | None = None  # None: the browser's, or not known
    why: str = ""  # how text in it is hidden; "" when it can be seen


@dataclass
class _Hidden:
    """One thing to leave out: an element, or (`texts`) only the text that stands in it."""

    element: Element
    why: str
    key: tuple[str, str]  # alike things are judged together
    rule: tuple[str, str] = ("", "")  # what else is kept when this one is
    texts: list[NavigableString] = field(default_factory=list)

    @property
    def chars(self) -> int:
        return sum(len(" ".join(s.split())) for s in self.texts) if self.texts else self.element.length


def drop_hidden(document: Document) -> tuple[str, ...]:
    """Take out of a page what no reader sees, and measure the rest; the notes on how much that was, and on what was
    kept."""
    look = _Look(document)
    measure(document.body)
    total = max(1, document.body.length)
    prose_limit = max(LONG_PROSE, MOST_PROSE * document.body.prose_chars)
    spared: set[tuple[str, str]] = set()
    while True:
        found = look.hidden(spared)
        sizes: Counter[tuple[str, str]] = Counter()
        prose: Counter[tuple[str, str]] = Counter()
        for hidden in found:
            sizes[hidden.key] += hidden.chars
            prose[hidden.key] += 0 if hidden.texts else hidden.element.prose_chars
        too_much = {key for key in sizes if sizes[key] > MOST * total or prose[key] > prose_limit}
        if not too_much:
            break
        spared |= too_much | {h.rule for h in found if h.key in too_much and h.rule[1]}
    for hidden in found:
        if hidden.texts:
            for text in hidden.texts:
                text.replace_with(NavigableString(""))
        else:
            hidden.element.drop()
    if found:
        measure(document.body)
    return tuple(_notes(sum(sizes.values()), sum(h.chars for h in look.panels), spared))


def _notes(stripped: int, panels: int, spared: set[tuple[str, str]]) -> Iterator[str]:
    if stripped:
        yield f"{stripped:,} characters that the page hides from its readers were left out"
    if panels:
        yield f"{panels:,} characters of closed tabs or panels were kept"
    if spared:
        ways = ", ".join(sorted({why for why, _ in spared} - {"rule"}))
        yield f"text that the page's markup hides ({ways}) was kept, since it is much of the page"


class _Look:
    """One look over a page from its body down."""

    def __init__(self, document: Document) -> None:
        self.sheet = document.sheet
        self.body = document.body
        self.root = document.root
        # With sheets from elsewhere, a class or the page itself may have any background.
        self.unknown_styles = document.external_styles or document.sheet.imports
        self.controlled = _controlled(document.body)
        self.panels: list[_Hidden] = []
        self.found: list[_Hidden] = []
        self._backgrounds: dict[int, tuple[Colour | None, bool]] = {}
        self.suspects = _suspects(self.sheet)

    def hidden(self, spared: set[tuple[str, str]]) -> list[_Hidden]:
        """What is hidden, except for the kinds that are spared."""
        self.panels, self.found = [], []
        self._walk(self.body, _Style(), spared)
        return self.found

    def _declared(self, element: Element, fully: bool) -> Declarations:
        """An element's declarations; the rules are tried only where one of those that match could hide it, or fully."""
        inline = element.attrs.get("style", "")
        node = element.node
        if node is not None and (fully or self.suspects.matching(node, element.name, element.attrs)):
            return self.sheet.of(node, element.name, element.attrs, inline)
        return declarations(inline) if inline else {}

    def _walk(self, element: Element, above: _Style, spared: set[tuple[str, str]]) -> None:
        style = self._declared(element, bool(above.why))
        attributes = element.attrs
        if attributes or style or element.name == "dialog":
            why = hiding(element.name, attributes, style, above.font_px)
            key = (why, element.label if why in _BY_SCRIPT else str(id(element)))
            rule = ("rule", style.get(BY_RULE, "")) if why == "display" else key
            seen = not why or key in spared or rule in spared or element is self.body
            if not seen and not _is_formula(element):
                hidden = _Hidden(element, why, key, rule)
                if why not in _CLOSING or not self._is_panel(element):
                    self.found.append(hidden)
                    return
                self.panels.append(hidden)
        own = self._inherit(above, style, element)
        texts: list[NavigableString] = []
        for child in element.contents:
            if isinstance(child, Element):
                if not child.dropped:
                    self._walk(child, own, spared)
            elif own.why and isinstance(child, NavigableString) and child and not child.isspace():
                texts.append(child)
        if texts and element.name not in _FORMULA and (own.why, "inherited") not in spared:
            self.found.append(_Hidden(element, own.why, (own.why, "inherited"), texts=texts))

    def _inherit(self, above: _Style, style: Declarations, element: Element) -> _Style:
        """What the element hands down."""
        if not style and above.colour is None and element.name not in ("font", "body"):
            return above  # without a colour there is none that the element itself could set aside
        invisible, size = above.invisible, above.font_px
        visibility = style.get("visibility")
        if visibility and visibility != "inherit":
            invisible = visibility in ("hidden", "collapse")
        font = style.get("font-size") or _size_of_font(style.get("font", ""))
        if font:
            size = _font_px(font, size)
        colour = self._colour(above.colour, style, element)
        why = "visibility" if invisible else "font-size" if size < TINY_PX else ""
        if not why and colour is not None and self._is_colourless(colour, element):
            why = "colour"
        return _Style(invisible, size, colour, why)

    @staticmethod
    def _colour(above: Colour | None, style: Declarations, element: Element) -> Colour | None:
        if "text" in (style.get("background-clip"), style.get("-webkit-background-clip")) or (
            style.get("text-shadow", "none") != "none"
        ):
            return None  # the background, or the shadow, draws the letters
        value = style.get("-webkit-text-fill-color") or style.get("color")
        if not value and element.name in ("font", "body"):
            value = element.attrs.get("color") or element.attrs.get("text")
        if value:
            return parse_colour(value, above)
        return None if element.name in ("a", "mark", "button") else above  # these have colours of their own

    def _is_colourless(self, colour: Colour, element: Element) -> bool:
        if colour.alpha <= FAINT:
            return True
        background, _ = self._background(element)
        return background is not None and contrast(colour, background) < SAME

    def _background(self, element: Element) -> tuple[Colour | None, bool]:
        """The colour behind an element (None: not known), and whether it is still that of the page as a whole."""
        known = self._backgrounds.get(id(element))
        if known is None:
            known = self._backgrounds[id(element)] = self._own_background(element)
        return known

    def _own_background(self, element: Element) -> tuple[Colour | None, bool]:
        style, attributes = self._declared(element, True), element.attrs
        if "background" in attributes or style.get("background-image", "none") != "none":
            return None, False
        value = style.get("background-color") or style.get("background") or attributes.get("bgcolor")
        colour = _background_colour({"background": value}) if value else None
        if value and colour is None and value not in ("none", "inherit", "initial", "unset"):
            return None, False  # a picture, a gradient, a variable
        if colour is not None and colour.alpha > FAINT:
            return colour if colour.alpha > 1 - FAINT else None, element is self.body
        if element is self.body or not isinstance(element.parent, Element):
            return self._canvas(), True
        background, of_page = self._background(element.parent)
        if of_page and self.unknown_styles and element.label.strip():
            return None, False
        return background, of_page

    def _canvas(self) -> Colour | None:
        if self.root is not None:
            attributes = {k: v or "" for k, v in self.root.attributes.items()}
            style = self.sheet.of(self.root, "html", attributes, attributes.get("style", ""))
            colour = _background_colour(style)
            if colour is not None:
                return colour
            if "background" in style or "background-image" in style:
                return None
        return None if self.unknown_styles else WHITE

    def _is_panel(self, element: Element) -> bool:
        """Whether a reader can open the element: a tab's or an accordion's panel."""
        role = element.attrs.get("role", "")
        if role == "tabpanel":
            return True
        if role in _NO_PANEL or element.name in ("dialog", "nav", "menu") or Sign.CHROME in signs(element):
            return False
        return element.attrs.get("id") in self.controlled or bool(_PANEL.search(element.label[:400]))


_FORMULA = frozenset({"math", "annotation", "script"})


def _is_formula(element: Element) -> bool:
    """Formulas hide one of their renderings; `formulas` writes only one of them."""
    if element.name in ("math", "img"):
        return True
    inner = [e for e in element.elements if e.name == "math"]
    return bool(inner) and sum(_size(e) for e in inner) >= _size(element)


def _size(element: Element) -> int:
    return sum(len("".join(s.split())) for s in element.strings)


def hiding(name: str, attributes: Mapping[str, str], style: Declarations, font_px: float) -> str:
    """How an element's own markup hides it as a box, in one word; "" where it does not."""
    if "hidden" in attributes:
        return "hidden"
    if "inert" in attributes:
        return "inert"
    if attributes.get("aria-hidden") == "true" and not (name == "a" and attributes.get("tabindex") == "-1"):
        return "aria-hidden"  # such a link repeats another one for the mouse: readers see it
    if name == "dialog" and "open" not in attributes or "popover" in attributes:
        return "dialog"
    if name == "marquee" and "0" in (attributes.get("height"), attributes.get("width")):
        return "size"
    why = _hiding_style(style, font_px) if style else ""
    names = attributes.get("class", "")
    if not why and names and not style.get("display") and not _SHOWN_LATER.search(names):
        return "class" if _HIDING_NAMES.intersection(names.split()) else ""
    return why


def _background_colour(style: Declarations) -> Colour | None:
    value = style.get("background-color") or style.get("background")
    if not value or style.get("background-image", "none") != "none" or "url(" in value or "gradient(" in value:
        return None
    return next((c for word in _words(value) if (c := parse_colour(word, None))), None)


def _suspects(sheet: Sheet) -> Sheet:
    """The rules that could hide text: these alone are tried on every element."""
    backgrounds = {c for rule in sheet.all_rules() if (c := _background_colour(rule.declared))} | {WHITE}
    invisible = cache(lambda c: c.alpha <= FAINT or any(contrast(c, back) < SAME for back in backgrounds))
    known: dict[tuple[int, int], bool] = {}  # most blocks of declarations stand in a sheet several times

    def could_hide(rule: Rule) -> bool:
        key = id(rule.plain), id(rule.important)
        if key not in known:
            known[key] = _could_hide(rule.declared, invisible)
        return known[key]

    return sheet.only(could_hide)


def _could_hide(style: Declarations, invisible: Callable[[Colour], bool]) -> bool:
    """Whether these declarations could hide text, whatever other rules add to them."""
    if style.get("visibility") in ("hidden", "collapse"):
        return True
    font = style.get("font-size") or _size_of_font(style.get("font", ""))
    if font and _font_px(font, ROOT_PX) < TINY_PX:
        return True
    value = style.get("-webkit-text-fill-color") or style.get("color")
    colour = parse_colour(value, None) if value else None
    if colour and invisible(colour):
        return True
    return bool(_hiding_style({"position": "absolute", "overflow": "hidden", **style}, ROOT_PX))


def _hiding_style(style: Declarations, font_px: float) -> str:
    display = style.get("display")
    if display == "none":
        return "display"
    if style.get("content-visibility") == "hidden":
        return "content-visibility"
    for way, properties, hides in _WAYS:
        if not properties.isdisjoint(style) and hides(style, font_px):
            return way
    return ""


def _number(value: str) -> float:
    match = re.match(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?", value)
    if not match:
        return 1.0
    return float(match[0]) / (100 if value.endswith("%") else 1)


def _px(value: str, font_px: float, whole: float = 0.0) -> float | None:
    """A CSS length in pixels, None for what is none; `whole` is what 100 % is, 0 for unknown."""
    match = _LENGTH.match(value.strip())
    if not match:
        return None
    number, unit = float(match[1]), match[2]
    if unit == "%":
        return number / 100 * whole if whole or not number else None
    return number * (font_px if unit == "em" else font_px / 2 if unit in ("ex", "ch") else _PX[unit])


def _words(value: str) -> list[str]:
    """A value's words, those with brackets whole."""
    return re.findall(r"[^\s(]+\([^()]*\)|\S+", value)


def _size_of_font(value: str) -> str:
    """The size in the `font` shorthand."""
    for word in _words(value):
        size = word.partition("/")[0]
        if size in _FONT_WORDS or _LENGTH.match(size) and not re.fullmatch(r"[1-9]00", size):
            return size
    return ""


def _font_px(value: str, above: float) -> float:
    if value in _FONT_WORDS:
        return _FONT_WORDS[value]
    px = _px(value, above, above)
    return above if px is None else px


def _transparent(style: Declarations, font_px: float) -> bool:
    calls = _CALLS.findall(style.get("filter", ""))
    values = [style.get("opacity", "1"), *(inner.strip() for name, inner in calls if name == "opacity")]
    return any(_number(value) <= FAINT for value in values)


def _clipped(style: Declarations, font_px: float) -> bool:
    clip = style.get("clip", "")
    if clip.startswith("rect") and style.get("position") in ("absolute", "fixed"):
        edges = [float(n) for n in _SHAPE_NUMBER.findall(clip)]
        if len(edges) == 4 and (abs(edges[2] - edges[0]) <= 1 or abs(edges[1] - edges[3]) <= 1):
            return True
    for name, inner in _CALLS.findall(style.get("clip-path", "")):
        words = inner.split("round")[0].split(" at ")[0].split()
        numbers = [_number(w) for w in words]
        if name == "inset" and any(w.endswith("%") and n >= 0.5 for w, n in zip(words, numbers, strict=True)):
            return True
        if name in ("circle", "ellipse") and words and min(numbers) <= 0.01:
            return True
        if name == "polygon" and len(set(re.split(r"\s*,\s*", inner.strip()))) < 3:
            return True
    return False


def _off_screen(style: Declarations, font_px: float) -> bool:
    indent = _px(style.get("text-indent", ""), font_px, 1_280.0)
    if indent is not None and (indent <= -FAR_PX / 2 or indent >= FAR_RIGHT_PX):
        return True
    if indent is not None and indent >= 1_280 and style.get("overflow") in ("hidden", "clip"):
        return True
    names = ["margin-left", "margin-top"]
    if style.get("position") in ("absolute", "fixed", "relative", "sticky"):
        names += _EDGES
    for name in names:
        for word in style.get(name, "").split():
            px = _px(word, font_px, 1_280.0 if name in ("left", "right") else 0.0)
            if px is not None and (px <= -FAR_PX or px >= FAR_RIGHT_PX):
                return True
    return False


def _shrunk(style: Declarations, font_px: float) -> bool:
    if any(_number(n) == 0 for n in style.get("scale", "").split()):
        return True
    moves = [("translate", style.get("translate", "")), *_CALLS.findall(style.get("transform", ""))]
    for name, inner in moves:
        words = [w for w in re.split(r"[\s,]+", inner) if w]
        if name.startswith("scale") and any(_number(w) == 0 for w in words[: 2 if name == "scale3d" else 3]):
            return True
        if name.startswith("translate"):
            lengths = [_px(w, ROOT_PX) for w in words]
            if any(px is not None and (px <= -FAR_PX or px >= FAR_RIGHT_PX) for px in lengths):
                return True
        if name == "matrix" and len(words) == 6 and _number(words[0]) == _number(words[3]) == 0:
            return _number(words[1]) == 0 or _number(words[2]) == 0
    return False


def _no_room(style: Declarations, font_px: float) -> bool:
    """A box of no width or no height (or one pixel) that cuts off what stands in it."""
    cut = [style.get(name, "") for name in ("overflow", "overflow-x", "overflow-y")]
    if not any(word in ("hidden", "clip", "scroll", "auto") for value in cut for word in value.split()):
        return False
    for name in _SIZES:
        px = _px(style.get(name, ""), font_px)
        if px is not None and px <= 1:
            return True
    return False


_EDGES = ("left", "right", "top", "bottom", "inset", "inset-inline-start", "inset-block-start")
_SIZES = ("width", "height", "max-width", "max-height")
# How a box is hidden, the properties one of which that takes, and the test.
_WAYS: tuple[tuple[str, frozenset[str], Callable[[Declarations, float], bool]], ...] = (
    ("opacity", frozenset({"opacity", "filter"}), _transparent),
    ("clip", frozenset({"clip", "clip-path"}), _clipped),
    ("position", frozenset({"text-indent", "margin-left", "margin-top", *_EDGES}), _off_screen),
    ("transform", frozenset({"scale", "translate", "transform"}), _shrunk),
    ("size", frozenset(_SIZES), _no_room),
)


def _controlled(body: Element) -> frozenset[str]:
    """The ids of what tabs and accordion headings on the page open."""
    found: set[str] = set()
    for element in body.descend():
        attributes = element.attrs
        if not attributes:
            continue
        tab = attributes.get("role") == "tab" or "aria-expanded" in attributes
        toggle = attributes.get("data-bs-toggle") or attributes.get("data-toggle")
        if tab or toggle in ("tab", "pill", "collapse"):
            for name in ("aria-controls", "data-bs-target", "data-target", "href"):
                found.update(word.removeprefix("#") for word in attributes.get(name, "").split()[:5])
    return frozenset(found)


def unwrap_noscript(document: Document) -> tuple[str, ...]:
    """Drop `<noscript>`, unless it holds more text than the rest of the page (a thread shown by script); the note."""
    body = document.body
    kept = ""
    for element in body.descend():
        if element.name == "noscript":
            if element.chars <= 0.5 * body.chars:
                element.drop()
            else:
                kept = "most of the text stands in a part for browsers without scripts"
    return (kept,) if kept else ()
