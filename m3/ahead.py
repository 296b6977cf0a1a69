"""Work that a run will need, done while it waits for the model: modules loaded, the pages just read indexed.

A model takes a second or more for each turn, in which this process has nothing to do. What is done here would be done
later all the same, on demand; nothing depends on its having been done.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache, partial

from m3.records import Page, page_from_parts


class Ahead:
    """A queue of work and at most one thread that works it off. Safe to use from several threads."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._running = False

    def add_run(self, *, web: bool) -> None:
        """Load and try out what a run needs, in the order in which it does: a turn is read, pages, the report checked.

        web: also what asks search engines and reads HTML.
        """
        self._work.append(_rehearse_turn)
        if web:
            for name in ("requests", "m3.special_sites", "m3.page_reading", "m3.extract.bounded"):
                self._work.append(partial(importlib.import_module, name))
        self._work.append(partial(_rehearse_page, web))
        for name in ("m3.grounding.verifier", "m3.synthesis"):
            self._work.append(partial(importlib.import_module, name))
        self._work.append(partial(_rehearse_report, web))

    def add_page(self, page: Page) -> None:
        """Index a page that was read: the report's sentences will be compared with it."""
        self._work.append(partial(_index, page))

    def add_comparison(self, pages: Mapping[int, Page]) -> None:
        """Compare the pages with each other: a report says which are copies of one text."""
        self._work.append(partial(_compare, pages))

    def start(self) -> None:
        """Begin, in a thread that ends when nothing is left to do."""
        with self._lock:
            if self._running or not self._work:
                return
            self._running = True
        threading.Thread(target=self._run, name="m3-ahead", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._running = False
                    return
                work = self._work.popleft()
            # Whatever fails here fails again where it is needed, and is told there.
            with contextlib.suppress(Exception):
                work()


# Most patterns are compiled at their first use: each rehearsal goes the way of the real thing with a tiny sample.

_TURN = 'Thought: The pages are of 2024.\nAction: fetch\nAction Input: {"results": ["R1", "R2"]}'
_HTML = """<html><head><title>A page</title>
<style>@media (min-width: 9px) and (max-width: 9999px) { p.note { width: 9px } }</style></head>
<body class="page"><article class="post" style="width: 9px"><h1>A page</h1>
<p class="note">By Jane Doe, 3 May 2024. In 2023 about 20 of them rose, said “the whole of it”; <a href="/x">others</a>
fell.</p></article></body></html>"""
_DRAFT = """In 2023 about -20 of them fell [1], said “the whole of it” [[Source 1]](https://example.org/page).

The `rest` rose by <b>5 %</b>. [Source 1]"""


@cache  # once a process, as the others
def _rehearse_turn() -> None:
    from m3.react_parser import canonical_turn, parse_thought_action
    from m3.untrusted import foreign_line
    from m3.urls import canonical_key
    from m3.words import terms

    turn = parse_thought_action(_TURN)
    canonical_turn(turn)
    terms(turn.thought)
    canonical_key(foreign_line("https://example.org/a/index.html"))


@cache
def _page(web: bool) -> Page:
    """The tiny page, read from HTML where the run reads HTML."""
    url = "https://example.org/page"
    if not web:
        return page_from_parts(url, [("paragraph", "In 2023 about 20 of them rose, said “the whole of it”.")])
    from m3.extract import ContentExtractor

    return ContentExtractor().extract(_HTML, url)


@cache
def _rehearse_page(web: bool) -> None:
    from m3.grounding import rank_passages, render_passages
    from m3.grounding.patience import unbounded
    from m3.grounding.windows import PageWords
    from m3.untrusted import neutralise

    page = _page(web)
    neutralise(render_passages(page, rank_passages("What rose?", page, 100)))
    PageWords(page.text).read(page.url, unbounded())


@cache
def _rehearse_report(web: bool) -> None:
    from m3.citations import CitationTracker
    from m3.draft import report_in
    from m3.grounding import verify
    from m3.report import FinalOutput
    from m3.untrusted import safe_report

    tracker = CitationTracker()
    tracker.register(_page(web))
    summary, cited = tracker.finalize(safe_report(report_in(_DRAFT)))
    report = verify(summary, tracker.pages)
    FinalOutput("What rose?", summary, tuple(cited), grounding=report).to_markdown()


def _index(page: Page) -> None:
    from m3.grounding.long_pages import open_page
    from m3.grounding.patience import unbounded
    from m3.grounding.windows import LONG, words_of

    # Of a long page the run's clock may have let only a part be taken in; then there is no time for work ahead either.
    if len(page.text) <= LONG or words_of(page.text).looked == len(page.text):
        opened = open_page(page, unbounded())
        if opened is not None:
            opened.prepare()


def _compare(pages: Mapping[int, Page]) -> None:
    from m3.grounding.independence import origins

    origins(pages)
