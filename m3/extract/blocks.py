"""The chosen elements written down as typed blocks: headings, paragraphs, lists, table rows, code, quotes, formulas."""

from __future__ import annotations

from collections.abc import Iterator

from m3.extract.dom import BLOCK, Element
from m3.extract.formulas import formula
from m3.patterns import lazy_pattern

Part = tuple[str, str, int, "int | None"]  # kind, text, level, page number: what m3.records.page_from_parts takes

_HEADINGS = {f"h{n}": n for n in range(1, 7)}
_HEADING_MARKS = lazy_pattern(r"\s*(?:[¶§#🔗\uf0c1]|\[\s*edit\s*\])+\s*$|^\s*[#¶🔗]+\s+")
_INVISIBLE = str.maketrans(dict.fromkeys("\u00ad\u200b\u2060\ufeff", None))
_GUTTER = lazy_pattern(
    r"(?:^|[\s_-])(?:lineno|linenos|linenodiv|line-?numbers?(?!-mode)(?:-rows)?|gutter|hljs-ln-n"
    r"|rouge-gutter|ln|lnt)(?=$|[\s_-])"
)
_LONG_ITEM = 1_500  # a longer list item is a piece of the page's layout
_WIDE_CELL = 400  # mean characters a cell above which a table is a piece of the page's layout


class Writer:
    """Collects parts from elements. `plain` is the kind of ordinary paragraphs: paragraph, post or card."""

    def __init__(self, plain: str = "paragraph") -> None:
        self.parts: list[Part] = []
        self.plain = plain
        self._pending: list[str] = []
        self._kind = plain
        self._level = 0
        self._joined = False  # inside a list item whose inner blocks stand on one line
        self._depth = 0  # of lists

    def write(self, element: Element) -> None:
        """Write down one element and all below it."""
        self._block(element)
        self._flush()

    # --- text ---------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        if not self._pending:
            return
        text = "".join(self._pending).translate(_INVISIBLE)
        self._pending.clear()
        joiner = " " if self._kind in ("heading", "list_item") else "\n"
        lines = [" ".join(line.split()) for line in text.split("\n")]
        for chunk in [joiner.join(filter(None, lines))] if self._joined else _stanzas(lines, joiner):
            if self._kind == "heading":
                chunk = _HEADING_MARKS.sub("", chunk)
            if chunk:
                self.parts.append((self._kind, chunk, self._level, None))

    def _children(self, element: Element) -> None:
        for child in element.contents:
            if isinstance(child, Element):
                if not child.dropped:
                    self._element(child)
            elif child:
                text = str(child)
                self._pending.append(text.replace("\n", " ") if "\n" in text else text)

    def _element(self, element: Element) -> None:
        name = element.name
        if name == "br":
            self._pending.append("\n")
        elif name in ("img", "math", "mjx-container", "script") or "class" in element.attrs:
            tex = formula(element)
            if tex is not None:
                self._pending.append(tex)
            elif name in BLOCK:
                self._block(element)
            elif name not in ("rt", "rp", "button"):
                self._children(element)
        elif name in BLOCK:
            self._block(element)
        elif name not in ("rt", "rp", "button"):
            self._children(element)

    # --- blocks -------------------------------------------------------------------------------------------

    def _block(self, element: Element) -> None:
        name = element.name
        if name in ("pre", "xmp", "listing", "plaintext"):
            self._code(element)
        elif name in ("ul", "ol", "dir", "menu"):
            self._list(element)
        elif self._joined and name not in ("table", "blockquote"):
            self._pending.append(" ")
            self._children(element)
            self._pending.append(" ")
        elif name == "li":
            self._item(element)
        elif name in _HEADINGS:
            self._as(element, "heading", _HEADINGS[name])
        elif name == "table":
            self._table(element)
        elif name == "blockquote":
            self._as(element, "quote")
        elif name == "hr":
            self._flush()
        else:
            self._flush()
            self._children(element)
            self._flush()

    def _as(self, element: Element, kind: str, level: int = 0, joined: bool = False) -> None:
        """Write an element's text as blocks of one kind; what is a block of its own kind inside it stays one."""
        self._flush()
        before = self._kind, self._level, self._joined
        self._kind, self._level, self._joined = kind, level, joined
        self._children(element)
        self._flush()
        self._kind, self._level, self._joined = before

    def _list(self, element: Element) -> None:
        self._flush()
        before = self._kind, self._level, self._joined
        self._kind, self._level, self._joined = self.plain, 0, False
        self._depth += 1
        self._children(element)
        self._flush()
        self._depth -= 1
        self._kind, self._level, self._joined = before

    def _item(self, element: Element) -> None:
        if element.chars > _LONG_ITEM or any(
            e.name in ("table", "pre") or e.name in _HEADINGS for e in element.descend()
        ):
            if element.own_chars:
                self._as(element, "list_item", max(0, self._depth - 1))
            else:
                self._flush()
                self._children(element)
                self._flush()
        else:
            self._as(element, "list_item", max(0, self._depth - 1), joined=True)

    def _code(self, element: Element) -> None:
        self._flush()
        text = code_text(element)
        if text.strip():
            self.parts.append(("code", text, 0, None))

    def _table(self, element: Element) -> None:
        self._flush()
        rows = list(_rows(element))
        if _is_layout(element, rows):
            before = self._kind, self._level, self._joined
            self._kind, self._level, self._joined = self.plain, 0, False
            self._children(element)
            self._flush()
            self._kind, self._level, self._joined = before
            return
        for caption in element.elements:
            if caption.name == "caption":
                self._as(caption, self.plain)
        for row in rows:
            cells = [cell_text(cell) for cell in row]
            if any(cells):
                self.parts.append(("table_row", " | ".join(cells), 0, None))


def _stanzas(lines: list[str], joiner: str) -> Iterator[str]:
    """Lines joined, cut where two line breaks or more follow each other."""
    run: list[str] = []
    for line in lines:
        if line:
            run.append(line)
        elif run:
            yield joiner.join(run)
            run = []
    if run:
        yield joiner.join(run)


def cell_text(cell: Element) -> str:
    """A table cell on one line."""
    writer = Writer()
    writer._joined = True
    writer._children(cell)
    writer._flush()
    return " ".join(text.replace("\n", " ") for _, text, _, _ in writer.parts)


def _rows(table: Element) -> Iterator[list[Element]]:
    """The rows of a table as their cells; not those of tables inside it."""
    for group in table.elements:
        if group.name in ("thead", "tbody", "tfoot"):
            for row in group.elements:
                if row.name == "tr":
                    yield [cell for cell in row.elements if cell.name in ("td", "th")]


def _is_layout(table: Element, rows: list[list[Element]]) -> bool:
    """True for a table that places things on the page rather than relating them."""
    cells = [cell for row in rows for cell in row]
    if not cells or max(len(row) for row in rows) < 2 or table.attrs.get("role") in ("presentation", "none"):
        return True
    if table.chars > _WIDE_CELL * len(cells):
        return True
    inner = {e.name for e in table.descend()}
    if "table" in inner or "pre" in inner and len(cells) <= 4 or len(inner & _HEADINGS.keys()) > 1:
        return True
    return len(rows) == 1 and "th" not in inner and bool(inner & {"div", "p", "ul"})


# --- code ----------------------------------------------------------------------------------------------------


def code_text(element: Element) -> str:
    """Preformatted text as it stands, without line-number gutters; a line break for each `br` and line element."""
    found: list[str] = []
    _collect_code(element, found)
    text = "".join(found)
    if "\n" not in text.strip("\n"):
        lines = _line_elements(element)
        if len(lines) > 1:
            text = "\n".join("".join(str(s) for s in line.strings) for line in lines)
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_INVISIBLE)
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")


def _collect_code(element: Element, found: list[str]) -> None:
    for child in element.contents:
        if not isinstance(child, Element):
            found.append(str(child))
        elif child.name == "br":
            found.append("\n")
        elif not child.dropped and child.name != "button" and not is_gutter(child):
            starts_line = child.name in BLOCK and child.name not in ("td", "tbody", "table")
            if starts_line and found and not "".join(found[-2:]).endswith("\n"):
                found.append("\n")
            _collect_code(child, found)
            if starts_line and found and not found[-1].endswith("\n"):
                found.append("\n")


def is_gutter(element: Element) -> bool:
    """True for the column of line numbers beside code."""
    attributes = element.attrs
    names = attributes.get("class", "")
    return bool(names and _GUTTER.search(names) and element.words_in().replace(" ", "").isdigit()) or (
        "data-line-number" in attributes and element.words_in().replace(" ", "").isdigit()
    )


def _line_elements(element: Element) -> list[Element]:
    """The children of a code block when each is one line without a line break of its own."""
    inner = [e for e in element.elements if e.name == "code"] or [element]
    lines = list(inner[0].elements)
    named = [e for e in lines if "line" in e.attrs.get("class", "").lower().replace("-", " ").split()[:3]]
    return named if len(named) > 1 else []
