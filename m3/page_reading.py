"""From a received body to a page: by its kind, bounded in time and memory, and honest about what is no page.

Large or tag-heavy bodies are parsed in a child process, so that a hostile page costs a child and not the run.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from m3.child import ChildError, ChildLimits, run_child
from m3.patterns import lazy_pattern
from m3.records import Block, FetchedPage, FetchKind, Page, RunControl, page_from_parts
from m3.sniff import MediaKind, decode_text

MAX_CHARS = 300_000  # of extracted text, some 75,000 tokens: ranking and checking it must cost little beside the clock
MAX_BLOCKS = 20_000
MAX_LINKS = 500
MAX_LEAVES = 20_000  # values of a JSON document
HEAVY_CHARS = 150_000  # text, JSON and CSV of this size are parsed in a child,
HEAVY_MARKUP = 300_000  # and HTML and XML of this size, or with so many tags, or so many attributes in one tag
HEAVY_TAGS = 15_000
HEAVY_ATTRIBUTES = 500
_LONG_TAG = lazy_pattern(r"<[a-zA-Z][^<>]{1000,}")
CHILD_LIMITS = ChildLimits(seconds=10.0, cpu_s=8, memory_mb=768)
CHILD_SHARE = 0.7  # of the time that is left; the rest is for the simple reading where the child does not end

Part = tuple[str, str, int, "int | None"]


def read_body(
    body: bytes,
    media: MediaKind,
    content_type: str,
    url: str,
    *,
    truncated: bool = False,
    control: RunControl | None = None,
) -> FetchedPage:
    """Read one body. Never raises; `kind` is ok only where there is text that a person would call the page's."""
    control = control or RunControl()
    if media == "pdf":
        if truncated:
            return FetchedPage(
                url, "too_large", detail="pdf", error="the PDF is larger than what is read", final_url=url
            )
        from m3.pdf import read_pdf

        return read_pdf(body, url, control=control)
    text = decode_text(body, content_type)
    del body
    try:
        try:
            page, cut = _page(text, media, url, control)
        except _NotReadable:
            if media != "json" or _declares_json(content_type):
                raise
            page, cut = _page(text, "text", url, control)  # JSON lines, a log, a list of references in brackets
    except _NotReadable as problem:
        return FetchedPage(url, "unsupported_type", detail=problem.code, error=str(problem), final_url=url)
    if media == "html":
        if not page.links:
            page = replace(page, links=_links(text, url))
        fault = page_fault(page, text)
        if fault is not None:
            return FetchedPage(url, fault.kind, detail=fault.detail, error=fault.error, final_url=url)
    if not page.text.strip():
        return FetchedPage(url, "empty", detail="no_text", error="the page holds no text", final_url=url)
    return FetchedPage(url, "ok", page, final_url=url, truncated=truncated or cut)


def _declares_json(content_type: str) -> bool:
    declared = content_type.partition(";")[0].strip().lower()
    return declared == "application/json" or declared.endswith("+json")


class _NotReadable(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _page(text: str, media: MediaKind, url: str, control: RunControl) -> tuple[Page, bool]:
    """The page and whether it is less than the text held."""
    if not _is_heavy(text, media):
        if media != "html":
            return _parse(text, media, url), False
        from m3.extract.bounded import burden, extract_bounded

        weight = burden(text)
        # What it calls large the extractor would read in a worker of its own, which knows nothing of the deadline.
        if weight != "large":
            return extract_bounded(text, url, weight), False
    limits = CHILD_LIMITS._replace(seconds=min(CHILD_LIMITS.seconds, control.remaining() * CHILD_SHARE))
    try:
        found = run_child(
            "m3.page_reading:parse_in_child",
            text.encode("utf-8", "replace"),
            {"media": media, "url": url},
            limits=limits,
            control=control,
        )
    except ChildError:
        return _simple_page(text, media, url), True
    if "fault" in found:
        raise _NotReadable(found["fault"], found["error"])
    return _unpacked(found["page"]), found["cut"]


def _is_heavy(text: str, media: MediaKind) -> bool:
    """True for what could take longer, or more memory, than a page may in this process.

    Parsers hold the interpreter's lock: what hangs in one here would stop the whole run, its deadline included.
    """
    if media not in ("html", "xml"):
        return len(text) >= HEAVY_CHARS
    if len(text) >= HEAVY_MARKUP or text.count("<") >= HEAVY_TAGS:
        return True
    return any(len(tag.split()) > HEAVY_ATTRIBUTES for tag in _LONG_TAG.findall(text))


def _parse(text: str, media: MediaKind, url: str) -> Page:
    if media == "json":
        return json_page(text, url)
    if media == "xml":
        return xml_page(text, url)
    from m3.plain_text import csv_page, markdown_page

    page = csv_page(text, url) if media == "csv" else markdown_page(text, url)
    return replace(page, links=tuple(re.findall(r"https?://[^\s<>\"')\]]+", text[:500_000])[:MAX_LINKS]))


# --- the child's side ------------------------------------------------------------------------------------


def parse_in_child(data: bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    """`{"page": …, "cut": bool}` or `{"fault": code, "error": sentence}`."""
    text, media, url = data.decode("utf-8"), options["media"], options["url"]
    try:
        page = _parse_large_html(text, url) if media == "html" else _parse(text, media, url)
    except _NotReadable as problem:
        return {"fault": problem.code, "error": str(problem)}
    packed, cut = _packed(page)
    return {"page": packed, "cut": cut}


def _parse_large_html(text: str, url: str) -> Page:
    """The extractor without a worker of its own: this process has limits already."""
    from m3.extract.bounded import burden, extract_bounded
    from m3.extract.pipeline import extract_page

    weight = burden(text)
    return extract_page(text, url) if weight == "large" else extract_bounded(text, url, weight)


def _packed(page: Page) -> tuple[dict[str, Any], bool]:
    """A page as JSON without the text of its blocks, which stands in its own text already."""
    blocks = [b for b in page.blocks[:MAX_BLOCKS] if b.end <= MAX_CHARS]
    cut = len(blocks) < len(page.blocks)
    if cut and not blocks:  # one block that is too long by itself
        first = page.blocks[0]
        blocks = [Block(first.kind, page.text[first.start : MAX_CHARS], first.start, MAX_CHARS, first.level)]
    text = page.text[: blocks[-1].end if cut else None]
    spans = [(b.kind, b.start, b.end, b.level, b.page_number) for b in blocks]
    return {**asdict(replace(page, text=text, blocks=())), "blocks": spans}, cut


def _unpacked(packed: dict[str, Any]) -> Page:
    text = packed["text"]
    blocks = tuple(Block(k, text[start:end], start, end, level, n) for k, start, end, level, n in packed["blocks"])
    lists = {name: tuple(packed[name]) for name in ("links", "notes")}
    return Page(**{**packed, **lists, "blocks": blocks})


# --- when parsing did not end ----------------------------------------------------------------------------


def _simple_page(text: str, media: MediaKind, url: str) -> Page:
    """The text of a page that no parser got through: without its tags, at most half of the cap."""
    plain, notes = text, tuple[str, ...]()
    if media == "html":
        from m3.extract.bare import bare_text

        bare = bare_text(text)
        plain, notes = bare.text, bare.notes
    paragraphs = [" ".join(part.split()) for part in plain[: MAX_CHARS // 2].split("\n")]
    parts = [("paragraph", part) for part in paragraphs if part]
    note = "the page is too complex to be parsed; this is its text without structure"
    return page_from_parts(url, parts, title=urlsplit(url).netloc, notes=(note, *notes))


# --- JSON and XML ----------------------------------------------------------------------------------------


def json_page(text: str, url: str) -> Page:
    """A JSON document as one line for each value, `path: value`, so that a value can be quoted with its name."""
    try:
        document = json.loads(text)
        lines = list(_leaves(document))
    except (ValueError, RecursionError):
        raise _NotReadable("bad_json", "the server calls this JSON, but it is not valid JSON") from None
    title = document.get("title") or document.get("name") if isinstance(document, dict) else None
    shown = title if isinstance(title, str) and title.strip() else url.rsplit("/", 1)[-1] or url
    return page_from_parts(url, [("table_row", line) for line in lines], title=shown[:300], kind="data")


def _leaves(document: Any) -> Iterator[str]:
    """Depth first, without recursion."""
    stack: list[tuple[str, Any]] = [("", document)]
    count = 0
    while stack and count < MAX_LEAVES:
        path, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{path}.{key}" if path else str(key), v) for key, v in reversed(value.items())]
        elif isinstance(value, list):
            stack += [(f"{path}[{i}]", v) for i, v in reversed(list(enumerate(value)))]
        elif value is not None and value != "":
            count += 1
            shown = " ".join(value.split()) if isinstance(value, str) else json.dumps(value)
            yield f"{path}: {shown}" if path else shown


def xml_page(text: str, url: str) -> Page:
    """RSS and Atom as dated entries, other XML as the text of its elements. No entity is expanded, nothing loaded."""
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, recover=True, encoding="utf-8"
    )
    try:
        root = etree.fromstring(text.encode("utf-8", "replace"), parser)
    except (etree.XMLSyntaxError, ValueError):
        root = None
    if root is None:
        raise _NotReadable("bad_xml", "the server calls this XML, but it is not")
    entries = [e for e in root.iter() if _name(e) in ("item", "entry")]
    parts: list[Part] = []
    links: list[str] = []
    if not entries:
        parts = [("paragraph", " ".join(t.split()), 0, None) for t in _texts(root) if t.strip()]
        return page_from_parts(url, parts, title=_child_text(root, "title") or url.rsplit("/", 1)[-1], kind="data")
    for entry in entries:
        title, link = _child_text(entry, "title"), _entry_link(entry)
        date = _child_text(entry, "pubdate") or _child_text(entry, "published") or _child_text(entry, "updated")
        parts.append(("heading", f"{title} ({date})" if date else title, 2, None))
        body = _child_text(entry, "encoded") or _child_text(entry, "description") or _child_text(entry, "content")
        parts.append(("paragraph", _markup_away(body or _child_text(entry, "summary")), 0, None))
        if link:
            links.append(urljoin(url, link))
            parts.append(("paragraph", links[-1], 0, None))
    channel = next((e for e in root.iter() if _name(e) == "channel"), root)
    title = _child_text(channel, "title")
    return page_from_parts(url, parts, title=title, kind="feed", links=tuple(links[:MAX_LINKS]))


def _name(element: Any) -> str:
    return element.tag.rpartition("}")[2].lower() if isinstance(element.tag, str) else ""


def _texts(root: Any) -> Iterator[str]:
    for element in root.iter():
        if isinstance(element.tag, str):
            yield element.text or ""
        yield element.tail or ""


def _child_text(element: Any, name: str) -> str:
    child = next((c for c in element if _name(c) == name), None)
    return " ".join("".join(_texts(child)).split()) if child is not None else ""


def _entry_link(entry: Any) -> str:
    for child in entry:
        if _name(child) == "link" and child.get("rel", "alternate") == "alternate":
            return str(child.get("href") or child.text or "").strip()
    return ""


def _markup_away(text: str) -> str:
    if "<" not in text:
        return text
    from m3.extract.bare import bare_text

    return " ".join(bare_text(text).text.split())


# --- links -------------------------------------------------------------------------------------------------

_HREF = lazy_pattern(
    r"<a\s(?:[^<>]{0,300}?\s)?href\s*=\s*(?:\"([^\"<>]{1,2000})\"|'([^'<>]{1,2000})'|([^\s\"'<>]{1,2000}))", re.I
)


def _links(text: str, url: str) -> tuple[str, ...]:
    """The web addresses that a page links to, absolute, without fragments, in order."""
    found: dict[str, None] = {}
    for match in _HREF.finditer(text):
        if len(found) >= MAX_LINKS:
            break
        try:
            link = urljoin(url, html.unescape(match[1] or match[2] or match[3]).strip()).partition("#")[0]
        except ValueError:
            continue
        if link.startswith(("http://", "https://")):
            found[link] = None
    return tuple(found)


# --- what is no page -------------------------------------------------------------------------------------


class PageFault(NamedTuple):
    """Why a body is no page to be cited."""

    kind: FetchKind
    detail: str
    error: str


SHORT = 1_200  # characters; a page with more text is judged by its text, whatever phrases it holds
SHELL = 200

_CHALLENGE = lazy_pattern(
    r"just a moment\b|checking (?:your browser|if the site connection)|verif(?:y|ying) (?:that )?you are (?:a )?human"
    r"|attention required! *\| *cloudflare|pardon our interruption|are you a robot|unusual traffic from your"
    r"|please complete the (?:security check|captcha)|press (?:&|and) hold to confirm"
    r"|access to this page has been denied"
    r"|ddos protection by|one more step before you proceed|please enable cookies and (?:reload|refresh)"
    r"|request unsuccessful\. incapsula|enable javascript and cookies to continue|bot verification"
    r"|you have been blocked",
    re.I,
)
_CHALLENGE_CODE = lazy_pattern(
    r"_cf_chl_opt|cf-browser-verification|_Incapsula_Resource|px-captcha|captcha-delivery\.com|g-recaptcha|h-captcha"
    r"|/_sec/cp_challenge|aws-waf-token|challenge-form",
    re.I,
)
_CONSENT = lazy_pattern(
    r"before you continue to|bevor (?:sie|du) .{0,40}(?:fortf|weiter)|avant d.acc[ée]der|antes de (?:ir a|continuar)"
    r"|prima di continuare|we (?:value|care about) your privacy|we use cookies|use of cookies|accept all( cookies)?"
    r"|alle (?:cookies )?akzeptieren|tout accepter|aceptar todo|accetta tutt|yahoo is part of the yahoo family",
    re.I,
)
_CONSENT_HOSTS = lazy_pattern(r"(?:^|\.)(?:consent\.(?:google|youtube|yahoo)\.[a-z.]+|guce\.[a-z.]+)\Z")
_NEEDS_SCRIPT = lazy_pattern(
    r"(?:enable|requires?|turn on|activate|need|without|disabled?)\W+(?:\w+\W+){0,4}javascript"
    r"|javascript (?:is|must be|has been|seems to be|appears to be) (?:\w+ ){0,2}(?:disabled|enabled|required|off)"
    r"|javascript (?:aktivieren|deaktiviert)|activer javascript|activez javascript|habilit\w+ javascript"
    r"|javascriptを有効|включите javascript|启用 ?javascript",
    re.I,
)
_SHELL_ROOT = lazy_pattern(
    r"<(div|main|app-root)\s[^>]{0,200}?id=[\"']?(?:root|app|__next|__nuxt|___gatsby|svelte|application|main-app)[\"'\s>]"
    r"[^>]{0,200}>?\s*</\1>|<app-root\s*>\s*</app-root>",
    re.I,
)


def page_fault(page: Page, source: str) -> PageFault | None:
    """Why a page that came with status 200 is not evidence: a bot wall, a consent wall, an empty app shell.

    Judged only where little text was found, so that an article about cookies stays an article.
    """
    text = " ".join(page.text.split())
    if len(text) > SHORT:
        return None
    seen = f"{page.title} {text}"
    if _CHALLENGE.search(seen) or (len(text) < 600 and _CHALLENGE_CODE.search(source)):
        return PageFault("blocked", "blocked_page", "the site asks for a browser check instead of showing the page")
    host = urlsplit(page.url).hostname or ""
    if _CONSENT_HOSTS.search(host) or (len(text) < 600 and len(_CONSENT.findall(seen)) >= 2):
        return PageFault("blocked", "consent", "the site shows a consent wall instead of the page")
    if len(text) >= SHELL:
        return None
    unscripted = " ".join(re.findall(r"<noscript[^>]{0,99}>(.{0,300}?)</noscript", source[:200_000], re.I | re.S))[
        :5_000
    ]
    if _NEEDS_SCRIPT.search(f"{seen} {unscripted}") or _SHELL_ROOT.search(source):
        return PageFault("js_required", "js_required", "the page shows its text only to a browser that runs JavaScript")
    if not text and re.search(r"<script[\s>]", source[:500_000], re.I):
        return PageFault("js_required", "js_required", "the page has scripts but no text of its own")
    return None
