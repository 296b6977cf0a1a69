"""Bytes to a BeautifulSoup tree: decoding, a spec-following HTML5 parse, and a tree with room for measures.

The parse is Lexbor's (WHATWG HTML): an unclosed `<header>` does not swallow the page as it does with libxml2,
and broken markup costs no quadratic time as it does with `html.parser`. BeautifulSoup's tags are what the rules work
on. They are made straight from Lexbor's nodes, without what never is text: by way of BeautifulSoup's own builder, which
is made for streams of tags, the same tree takes four times as long, a third of all that a page costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bs4.element import AttributeValueList, NavigableString, Tag
from selectolax.lexbor import LexborHTMLParser, LexborNode

from m3.extract.styles import Sheet

MAX_DEPTH = 120  # deeper elements are dissolved into their ancestor, so that walks over the tree may recurse
MAX_NODES = 60_000  # further nodes are left out and the page is noted as cut

_NEVER_TEXT = frozenset(
    "script style svg iframe frame frameset noframes link template canvas object embed applet audio video source "
    "track map area param base basefont meta head title datalist select option optgroup textarea input progress meter "
    "noembed".split()
)
BLOCK = frozenset(
    "address article aside blockquote body center dd details dialog dir div dl dt fieldset figcaption figure footer "
    "form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu nav ol optgroup p pre section summary table "
    "tbody td tfoot th thead tr ul caption noscript search xmp listing plaintext".split()
)  # tags that begin a line; unknown ones do not, as their CSS default says

_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.I)
_XML_CHARSET = re.compile(rb"""^\s*<\?xml[^>]{0,100}?encoding\s*=\s*["']([\w.:-]{1,40})""", re.I)


# Browsers read these declarations as the wider set (WHATWG Encoding, 4.2).
_WIDER_CHARSETS = {"iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "gb2312": "gb18030"}


def decode(raw: bytes) -> str:
    """Bytes to text: byte-order mark, valid UTF-8, the page's own declaration, Windows-1252."""
    for bom, name in _BOMS:
        if raw.startswith(bom):
            return raw.decode(name, "replace")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        pass
    found = _META_CHARSET.search(raw[:8192]) or _XML_CHARSET.search(raw[:512])
    declared = found[1].decode("ascii", "ignore").lower() if found else "cp1252"
    for candidate in (_WIDER_CHARSETS.get(declared, declared), "cp1252"):
        try:
            return raw.decode(candidate, "replace")
        except (LookupError, UnicodeError):  # unknown, or no text encoding
            continue
    return raw.decode("latin-1")


class Element(Tag):
    """A tag with what the rules measure about it. All lengths in characters of visible text, white space folded.

    `attrs` is a plain dictionary of strings, also for the class attribute: the rules compare whole attributes and cache
    by them. What BeautifulSoup finds, walks and changes it does here too; `parse` alone links new tags into a tree.
    """

    # A third of the memory of a page's tree would be the dictionaries that these would else go into.
    __slots__ = (
        "chars", "link_chars", "prose_chars", "own_chars", "own_link_chars", "dropped", "node", "order", "start", "end",
    )  # fmt: skip

    chars: int  # the element's text
    link_chars: int  # of it inside links
    prose_chars: int  # of it in blocks that read like prose
    own_chars: int  # text that stands in the element itself or in inline children, not in inner blocks
    own_link_chars: int
    dropped: bool  # by itself or with one above it
    order: list[Element]  # every element of the page in document order,
    start: int  # of which those below this one are `order[start:end]`
    end: int
    node: Any  # of Lexbor, where the page has style rules that may mean the element

    # What `Tag.__init__` would give each tag of an HTML page.
    attrs: Any
    parser_class = prefix = namespace = sourceline = sourcepos = None
    cdata_list_attributes = preserve_whitespace_tags = interesting_string_types = None
    _namespaces: dict[str, str] = {}
    known_xml = can_be_empty_element = False
    attribute_value_list_class = AttributeValueList

    def __init__(self, name: str, attributes: dict[str, str], parent: Element | None = None, node: Any = None) -> None:
        self.name, self.attrs, self.parent, self.node = name, attributes, parent, node
        self.contents = []
        self.next_sibling = self.previous_sibling = self.next_element = self.previous_element = None
        self.chars = self.link_chars = self.prose_chars = self.own_chars = self.own_link_chars = 0
        self.dropped = False
        self.order, self.start, self.end = [], 0, 0

    @property
    def elements(self) -> Iterator[Element]:
        """The child elements that were not dropped."""
        return (c for c in self.contents if isinstance(c, Element) and not c.dropped)

    @property
    def label(self) -> str:
        """Class and id as they were written."""
        return f"{self.attrs.get('class', '')} {self.attrs.get('id', '')}"

    def descend(self) -> Iterator[Element]:
        """Every element below this one that was not dropped, in document order; dropping on the way is allowed."""
        return (element for element in self.order[self.start : self.end] if not element.dropped)

    def drop(self) -> None:
        """Take this element out of the page: its measures leave every ancestor."""
        if self.dropped:
            return
        self.dropped = True
        for inner in self.order[self.start : self.end]:
            inner.dropped = True
        above = self.parent
        while isinstance(above, Element):
            above.chars -= self.chars
            above.link_chars -= self.link_chars
            above.prose_chars -= self.prose_chars
            above = above.parent

    @property
    def length(self) -> int:
        """Characters of all text below this element, also of what was dropped, the white space of each text folded."""
        elements = [self, *self.order[self.start : self.end]]
        return sum(len(" ".join(c.split())) for e in elements for c in e.contents if isinstance(c, NavigableString))

    def words_in(self) -> str:
        """The text below this element, white space folded, without what was dropped."""
        if len(self.contents) == 1 and type(self.contents[0]) is not Element:
            return " ".join(str(self.contents[0]).split())  # most elements that are asked hold one text and no more
        found: list[str] = []

        def walk(element: Tag) -> None:
            for child in element.contents:
                if type(child) is Element:
                    if not child.dropped:
                        walk(child)
                        found.append(" " if child.name in BLOCK else "")
                else:
                    found.append(str(child))

        walk(self)
        return " ".join("".join(found).split())


@dataclass
class Document:
    """One parsed page. `metas` are (name, content) pairs in order; `structured` the texts of JSON-LD scripts."""

    body: Element
    title: str = ""
    language: str = ""
    base: str = ""
    canonical: str = ""
    metas: list[tuple[str, str]] = field(default_factory=list)
    structured: list[str] = field(default_factory=list)
    sheet: Sheet = field(default_factory=Sheet)
    external_styles: bool = False  # rules from other files hold too, which are not known
    root: Any = None  # the Lexbor node of `<html>`
    truncated: bool = False

    def meta(self, *names: str) -> str:
        """The first non-empty content of the first of these names that the page has."""
        for wanted in names:
            for name, content in self.metas:
                if name == wanted and content:
                    return content
        return ""

    def all_meta(self, name: str) -> list[str]:
        return [content for found, content in self.metas if found == name and content]

    def release(self) -> None:
        """Take the tree apart, so that its memory is free at once: its nodes point at each other in circles."""
        elements = [self.body, *self.body.order]
        self.body.order.clear()
        for element in elements:
            for child in element.contents:
                child.next_element = child.previous_element = child.next_sibling = child.previous_sibling = None
            element.contents = []


class _Tree:
    """The tags and texts of a page, linked in document order as BeautifulSoup has them."""

    def __init__(self, body: LexborNode | None, keep_nodes: bool) -> None:
        self.body = Element("body", _attributes(body) if body is not None else {})
        self.nodes = 1
        self.truncated = False
        self._order: list[Element] = []
        self.body.order = self._order
        self._last: Tag | NavigableString = self.body
        self._pending: list[str] = []  # texts that nothing stands between but what was left out
        if body is not None:
            if keep_nodes:
                self.body.node = body
            self._fill(body.first_child, keep_nodes)

    def _fill(self, node: LexborNode | None, keep_nodes: bool) -> None:
        """Everything below the body, `node` being the first."""
        into, as_written = self.body, False
        above: list[tuple[LexborNode | None, Element, bool]] = []  # where to go on when the children are done
        while node is not None or above:
            if node is None:
                node, parent, as_written_there = above.pop()
                if parent is not into:
                    self._flush(into, as_written)
                    into.end = len(self._order)
                into, as_written = parent, as_written_there
                continue
            name, following = node.tag or "-", node.next
            if name == "-text":
                self._pending.append(node.text_content or "")
            elif name[0] in "-!" or name in _NEVER_TEXT and not _is_formula(node):  # comments, doctypes
                pass
            elif self.nodes >= MAX_NODES:
                self.truncated = True
                break
            else:
                self.nodes += 1
                above.append((following, into, as_written))
                if len(above) < MAX_DEPTH - 1:
                    self._flush(into, as_written)
                    into = Element(name, _attributes(node), into, node if keep_nodes else None)
                    self._append(into, into.parent)
                    self._order.append(into)
                    into.order, into.start = self._order, len(self._order)
                    as_written = as_written or name == "pre"
                following = node.first_child
            node = following
        self._flush(into, as_written)
        for element in (*(parent for _, parent, _ in above), into, self.body):
            element.end = len(self._order)

    def _flush(self, into: Element, as_written: bool) -> None:
        """The pending texts as one; white space alone is one character of it, unless it stands `as_written`."""
        if not self._pending:
            return
        text = "".join(self._pending)
        self._pending.clear()
        if not as_written and not text.strip(_SPACES):
            text = "\n" if "\n" in text else " "
        string = str.__new__(NavigableString, text)  # its own `__new__` would link it five times to nothing
        string.parent = into
        string.next_element = string.next_sibling = None
        self._append(string, into)

    def _append(self, new: Any, parent: Any) -> None:
        before = parent.contents[-1] if parent.contents else None
        new.previous_sibling, new.previous_element = before, self._last
        if before is not None:
            before.next_sibling = new
        self._last.next_element = new
        self._last = new
        parent.contents.append(new)


_SPACES = " \n\t\f\r"


def _attributes(node: LexborNode) -> dict[str, str]:
    return {key: value or "" for key, value in node.attributes.items()}


def _is_formula(node: LexborNode) -> bool:
    return node.tag == "script" and (node.attributes.get("type") or "")[:9] == "math/tex"


def parse(html: str) -> Document:
    """A page's tree and what its head says. The tree begins at `<body>`; comments and scripts are not in it."""
    parsed = LexborHTMLParser(html.replace("\0", ""))
    sheet = Sheet.of_texts([node.text() for node in parsed.css("style")])
    tree = _Tree(parsed.body, bool(sheet.rules))  # a frameset has no body
    sheet.root, sheet.nodes = parsed.root, tree.nodes
    document = Document(tree.body, sheet=sheet, root=parsed.root, truncated=tree.truncated)
    _read_head(parsed, document)
    return document


def _read_head(parsed: LexborHTMLParser, document: Document) -> None:
    title = parsed.css_first("title")
    document.title = " ".join(title.text().split()) if title else ""
    root = parsed.root
    document.language = ((root.attributes.get("lang") if root is not None else "") or "")[:16].lower()
    for node in parsed.css("meta"):
        name, content = _meta(node)
        if name and content:
            document.metas.append((name, content))
    for node in parsed.css("link[rel]"):
        relations = (node.attributes.get("rel") or "").lower().split()
        if relations == ["canonical"] and not document.canonical:
            document.canonical = (node.attributes.get("href") or "").strip()
        document.external_styles = document.external_styles or "stylesheet" in relations
    base = parsed.css_first("base[href]")
    document.base = (base.attributes.get("href") or "").strip() if base else ""
    for node in parsed.css("script[type]"):
        if "ld+json" in (node.attributes.get("type") or "").lower():
            document.structured.append(node.text())


def _meta(node: LexborNode) -> tuple[str, str]:
    attributes = node.attributes
    name = attributes.get("property") or attributes.get("name") or attributes.get("itemprop") or ""
    return name.strip().lower(), " ".join((attributes.get("content") or "").split())
