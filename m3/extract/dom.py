"""Bytes to a BeautifulSoup tree: decoding, a spec-following HTML5 parse, and a tree with room for measures.

The parse is Lexbor's (WHATWG HTML): an unclosed `<header>` does not swallow the page as it does with libxml2,
and broken markup costs no quadratic time as it does with `html.parser`. BeautifulSoup is the tree that the rules
work on; its builder below walks Lexbor's nodes and leaves out what never is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bs4 import BeautifulSoup
from bs4.builder import HTMLTreeBuilder
from bs4.element import NavigableString, Tag
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
    name = {"iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "gb2312": "gb18030"}.get(
        declared, declared
    )
    for candidate in (name, "cp1252"):
        try:
            return raw.decode(candidate, "replace")
        except (LookupError, UnicodeError):  # unknown, or no text encoding
            continue
    return raw.decode("latin-1")


class Element(Tag):
    """A tag with what the rules measure about it. All lengths in characters of visible text, white space folded."""

    # A third of the memory of a page's tree would be the dictionaries that these would else go into.
    __slots__ = ("chars", "link_chars", "prose_chars", "own_chars", "own_link_chars", "dropped", "node")

    attrs: dict[str, Any]  # of strings only: see the builder
    chars: int  # the element's text
    link_chars: int  # of it inside links
    prose_chars: int  # of it in blocks that read like prose
    own_chars: int  # text that stands in the element itself or in inline children, not in inner blocks
    own_link_chars: int
    dropped: bool
    node: Any  # of Lexbor, where the page has style rules that may mean the element

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.chars = self.link_chars = self.prose_chars = self.own_chars = self.own_link_chars = 0
        self.dropped = False
        self.node = None

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
        # Every rule walks the tree so; a comprehension and an exact type cost half of a generator and isinstance.
        stack = [c for c in reversed(self.contents) if type(c) is Element]
        while stack:
            element = stack.pop()
            if element.dropped:
                continue
            yield element
            if not element.dropped and element.contents:
                stack += [c for c in reversed(element.contents) if type(c) is Element]

    def drop(self) -> None:
        """Take this element out of the page: its measures leave every ancestor."""
        if self.dropped:
            return
        self.dropped = True
        above = self.parent
        while isinstance(above, Element):
            above.chars -= self.chars
            above.link_chars -= self.link_chars
            above.prose_chars -= self.prose_chars
            above = above.parent

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
        stack: list[Any] = [self.body.parent or self.body]
        while stack:
            node = stack.pop()
            if isinstance(node, Tag):
                stack += node.contents
                node.contents = []
            node.parent = node.next_element = node.previous_element = None
            node.next_sibling = node.previous_sibling = None


class _LexborTreeBuilder(HTMLTreeBuilder):
    """Feeds BeautifulSoup from a Lexbor tree."""

    NAME = "lexbor"
    features = [NAME, "html"]
    is_xml = False
    picklable = False
    truncated = False
    nodes = 0

    def __init__(self, parsed: LexborHTMLParser, keep_nodes: bool) -> None:
        # one string per class attribute: the rules compare whole attributes and cache by them
        super().__init__(multi_valued_attributes={}, string_containers={})
        self._parsed = parsed
        self._keep_nodes = keep_nodes

    def prepare_markup(
        self,
        markup: Any,
        user_specified_encoding: Any = None,
        document_declared_encoding: Any = None,
        exclude_encodings: Any = None,
    ) -> Iterable[tuple[Any, None, None, bool]]:
        yield markup, None, None, False

    def feed(self, markup: Any) -> None:
        soup: Any = self.soup
        root = self._parsed.body
        if root is None:
            return
        start, end, data = soup.handle_starttag, soup.handle_endtag, soup.handle_data
        # (node, depth) opens a node, (name, -1) closes an element
        stack: list[tuple[Any, int]] = [(root, 1)]
        nodes = 0
        while stack:
            node, depth = stack.pop()
            if depth < 0:
                end(node)
                continue
            name = node.tag
            if name == "-text":
                data(node.text_content)
                continue
            if not name or name[0] in "-!":  # comment, doctype
                continue
            attributes = node.attributes
            if name in _NEVER_TEXT and not (name == "script" and (attributes.get("type") or "")[:9] == "math/tex"):
                continue
            nodes += 1
            if nodes > MAX_NODES:
                self.truncated = True
                break
            self.nodes = nodes
            if depth < MAX_DEPTH:
                element = start(name, None, None, {key: value or "" for key, value in attributes.items()})
                if self._keep_nodes and element is not None:
                    element.node = node
                stack.append((name, -1))
            child = node.last_child
            while child is not None:
                stack.append((child, depth + 1))
                child = child.prev

    def test_fragment_to_document(self, fragment: str) -> str:
        return fragment


def parse(html: str) -> Document:
    """A page's tree and what its head says. The tree begins at `<body>`; comments and scripts are not in it."""
    parsed = LexborHTMLParser(html.replace("\0", ""))
    sheet = Sheet.of_texts([node.text() for node in parsed.css("style")])
    builder = _LexborTreeBuilder(parsed, bool(sheet.rules))
    soup = BeautifulSoup("", builder=builder, element_classes={Tag: Element})
    body = soup.find("body")
    if not isinstance(body, Element):  # a frameset has none
        body = Element(name="body", builder=builder)
    sheet.root, sheet.nodes = parsed.root, builder.nodes
    document = Document(body, sheet=sheet, root=parsed.root, truncated=builder.truncated)
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


def strings(element: Tag) -> Iterator[NavigableString]:
    """The text nodes that stand directly in an element."""
    return (c for c in element.contents if isinstance(c, NavigableString))
