"""Time and memory stay finite on any input: pages that could be monstrous are read in a process that can be killed.

An ordinary page is read here and now, in some 20 ms. Size, the number of tags and the depth to which open tags could
nest make any HTML parser slow or large (quadratic rebuilding of formatting elements, scans of a deep stack). A large
page is read in a worker with limits on its memory and time. Where the worker fails, or no parser could help, the text
is given as it stands between the tags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from m3.extract.bare import bare_text
from m3.extract.dom import decode
from m3.extract.pipeline import extract_page
from m3.patterns import lazy_pattern
from m3.records import Page, page_from_parts

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

MAX_CHARS = 12_000_000  # the rest of a longer page is cut off
ORDINARY_CHARS = 3_000_000
ORDINARY_TAGS = 60_000
ORDINARY_OPTIONS = 2_000  # Lexbor's time grows with the square of the options of one select
ORDINARY_DEPTH = 400
MAX_DEPTH = 3_000  # real pages stay below 300
MAX_ATTRIBUTES = 2_000  # of one tag
MAX_TAGS = 2_000_000
WORKER_SECONDS = 10.0
WORKER_BYTES = 1_500_000_000  # of address space

Burden: TypeAlias = Literal["ordinary", "large", "hopeless"]

# A quoted value may hold `<` and `>`; however long, it is one piece of the tag.
_LONG_TAG = lazy_pattern(r"""<[a-zA-Z](?:[^<>"']|"[^"]*"|'[^']*'){4000,}""")
_ATTRIBUTE = lazy_pattern(r"""[^\s/=]+(?:\s*=\s*(?:"[^"]*(?:"|$)|'[^']*(?:'|$)|[^\s]*))?|=[^\s]*""")
_TAG = lazy_pattern(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,15})")
# void, or closed by the parser when the next one of its kind opens
_SELF_ENDING = frozenset(
    "area base br col embed hr img input link meta source track wbr p li dt dd tr td th thead tbody tfoot option "
    "optgroup rt rp html head body script style path".split()
)


def extract_bounded(html: bytes | str, url: str, weight: Burden | None = None) -> Page:
    """Read one page, whatever it is. Never raises. weight: what `burden` said, where it was asked before."""
    try:
        text = decode(html) if isinstance(html, bytes) else html
        cut = len(text) > MAX_CHARS
        text = text[:MAX_CHARS]
        weight = weight or burden(text)
        if weight == "hopeless" and burden(_without_scripts(text)) != "hopeless":
            weight = "large"  # scripts may quote any number of tags; only the worker is safe to find out
        if weight == "hopeless":
            page = _bare(text, url, "the page is nested too deeply to be read as HTML: its bare text is given")
        else:
            page = extract_page(text, url) if weight == "ordinary" else _in_worker(text, url)
        return _noted(page, f"the page was cut after {MAX_CHARS:,} characters") if cut else page
    except Exception as problem:  # noqa: BLE001 - the promise is a page, and the note says what went wrong
        return _bare(html, url, f"the page could not be read as HTML ({type(problem).__name__})")


def burden(html: str) -> Burden:
    """How heavy a page is on a parser, told from its tags alone in linear time."""
    if any(_attributes(tag) > MAX_ATTRIBUTES for tag in _LONG_TAG.findall(html)):
        return "hopeless"
    large = len(html) > ORDINARY_CHARS
    open_tags: dict[str, int] = {}
    depth = tags = options = 0
    for match in _TAG.finditer(html):
        tags += 1
        if tags > MAX_TAGS:
            return "hopeless"
        name = match[2].lower()
        if name in _SELF_ENDING:
            options += name == "option"
        elif not match[1]:
            open_tags[name] = open_tags.get(name, 0) + 1
            depth += 1
            if depth > MAX_DEPTH:
                return "hopeless"
            large = large or depth > ORDINARY_DEPTH
        elif open_tags.get(name, 0):
            open_tags[name] -= 1
            depth -= 1
    return "large" if large or tags > ORDINARY_TAGS or options > ORDINARY_OPTIONS else "ordinary"


def _attributes(tag: str) -> int:
    """How many attributes a tag has, bare ones too. The words inside a quoted value are none: forums keep whole threads
    in one attribute."""
    return sum(1 for match in _ATTRIBUTE.finditer(tag) if match[0])


def _without_scripts(html: str) -> str:
    """A page without the contents of its scripts, cut out in linear time."""
    lowered = html.lower()
    kept: list[str] = []
    at = 0
    while (start := lowered.find("<script", at)) >= 0 and (end := lowered.find("</script", start)) >= 0:
        kept.append(html[at:start])
        at = end
    return "".join(kept) + html[at:]


def _in_worker(html: str, url: str) -> Page:
    """Read a page in a process of its own, within `WORKER_SECONDS` and `WORKER_BYTES`."""
    import multiprocessing  # not for ordinary pages

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    worker = context.Process(target=_work, args=(theirs, html, url), daemon=True)
    worker.start()
    theirs.close()
    page: Page | None = None
    try:
        if ours.poll(WORKER_SECONDS):
            page = ours.recv()
    except (EOFError, OSError):  # the worker hit a limit and died
        page = None
    finally:
        worker.kill()
        worker.join(5)
        ours.close()
    return page or _bare(html, url, "the page is too large or too deeply nested to be read as HTML")


def _work(connection: Connection, html: str, url: str) -> None:
    import resource

    seconds = int(WORKER_SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_BYTES, WORKER_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send(extract_page(html, url))
    connection.close()


def _bare(html: bytes | str, url: str, note: str) -> Page:
    """The text between the tags, in linear time and without a parser."""
    text = html[:MAX_CHARS].decode("utf-8", "replace") if isinstance(html, bytes) else html[:MAX_CHARS]
    found = bare_text(text)
    lines = (" ".join(line.split()) for line in found.text.split("\n"))
    parts = [("paragraph", line) for line in lines if line]
    return page_from_parts(url, parts, kind="page", notes=(note, *found.notes))


def _noted(page: Page, note: str) -> Page:
    from dataclasses import replace

    return replace(page, notes=(*page.notes, note))
