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

from m3.records import Page

# In the order in which a run needs them: a turn is read, the web is asked, pages are read, the report is checked.
_MODULES = (
    "m3.react_parser",
    "requests",
    "m3.extract.bounded",
    "m3.grounding",
    "m3.grounding.verifier",
    "m3.synthesis",
)
_ONLY_FOR_THE_WEB = frozenset({"requests", "m3.extract.bounded"})


class Ahead:
    """A queue of work and at most one thread that works it off. Safe to use from several threads."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._running = False

    def add_modules(self, *, web: bool) -> None:
        """Load what reads and checks; with `web` also what asks search engines and reads HTML."""
        for name in _MODULES:
            if web or name not in _ONLY_FOR_THE_WEB:
                self._work.append(partial(importlib.import_module, name))
        self._work.append(partial(_rehearse, web))

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


_SAMPLE = """<html><head><title>A page</title></head><body><article><h1>A page</h1><p>By Jane Doe, 3 May 2024. In 2023
about 20 of them rose, said “the whole of it”; <a href="/x">others</a> fell.</p></article></body></html>"""


@cache  # once a process
def _rehearse(web: bool) -> None:
    """Read, rank and check a tiny page once: most patterns are compiled at their first use."""
    from m3.extract import ContentExtractor
    from m3.grounding import rank_passages, render_passages, verify
    from m3.records import page_from_parts
    from m3.untrusted import neutralise

    url = "https://example.org/page"
    page = ContentExtractor().extract(_SAMPLE, url) if web else page_from_parts(url, [("paragraph", "It rose by 20.")])
    neutralise(render_passages(page, rank_passages("What rose?", page, 100)))
    verify("In 2023 about 20 of them fell, said “the whole of it”. [Source 1]", {1: page})


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
