"""The tool suite the driver dispatches to, and the tracker that gives each page its number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from config import KEYLESS, PROGRAM_DIR, Config
from m3.citations import CitationTracker
from m3.documents import LocalDocuments
from m3.extract import ContentExtractor
from m3.fetch import Fetcher, PageFetchTool, fetch_pages
from m3.grounding import rank_passages, render_passages
from m3.politeness import Pace
from m3.prompts import source_header
from m3.provenance import Provenance
from m3.react_parser import TOOLS, Tool
from m3.records import FetchedPage, LedgerEntry, RunControl, SearchOutcome, SearchResult, Source
from m3.search import MissingEngine, SearchEngine, WebSearchTool
from m3.words import safe_line

__all__ = ["CitationTracker", "ContentExtractor", "PageFetchTool", "ToolSuite", "WebSearchTool", "build_tools"]

T = TypeVar("T")
PAGES_PER_ACTION = 4
RESULTS_PER_SEARCH = 5
PASSAGE_TOKENS = 400  # of one page in an observation
EXTRACT_TOKENS = 800  # of one page when the model asks for more of it


class Perform(Protocol):
    """How an effect is carried out: `Journal.perform` records it, `directly` does not."""

    def __call__(self, kind: str, request: Any, result_type: type[T], do: Callable[[], T]) -> T: ...


def directly(kind: str, request: Any, result_type: type[T], do: Callable[[], T]) -> T:
    return do()


@dataclass
class ToolSuite:
    """Runs one action and renders its observation. What it learns stays in its fields, all plain data."""

    question: str
    search: WebSearchTool
    fetcher: Fetcher
    tracker: CitationTracker = field(default_factory=CitationTracker)
    tools: Sequence[Tool] = TOOLS
    perform: Perform = directly
    results: list[SearchResult] = field(default_factory=list)
    ledger: list[LedgerEntry] = field(default_factory=list)
    unreadable: list[FetchedPage] = field(default_factory=list)
    engines: list[str] = field(default_factory=list)  # that answered, in order of first answer
    leads: Sequence[str] = ()  # URLs of related past research, which may be fetched like search results
    provenance: Provenance = field(default_factory=Provenance)
    fetched: dict[str, FetchedPage] = field(default_factory=dict)  # by URL: within a run nothing is fetched twice

    def __post_init__(self) -> None:
        self.provenance.add_question(self.question)
        self.provenance.add(self.leads)

    def run(self, name: str, args: Mapping[str, Any], control: RunControl) -> str:
        """The observation of one action. Faults of the outside become observations; nothing is raised."""
        added = next((t for t in self.tools if t.name == name and t.handler), None)
        if added is not None and added.handler is not None:
            handler = added.handler
            return self.perform(f"tool {name}", dict(args), str, lambda: handler(args, self))
        handlers: dict[str, Callable[[Mapping[str, Any], RunControl], str]] = {
            "search": self._search,
            "fetch": self._fetch,
            "extract": self._extract,
        }
        return handlers[name](args, control)

    def _search(self, args: Mapping[str, Any], control: RunControl) -> str:
        query = args["query"]
        outcome = self.perform(
            "search",
            query,
            SearchOutcome,
            lambda: self.search.search(query, max_results=RESULTS_PER_SEARCH, control=control),
        )
        self.ledger.append(LedgerEntry("search", query, outcome.status, outcome.detail))
        if outcome.status == "no_results":
            return f"No results for {query!r}. Try other words, fewer of them, or another side of the question."
        if outcome.status != "ok":
            why = f"{outcome.status}: {safe_line(outcome.detail)}"
            return f"The search failed ({why}). That is not the same as finding nothing."
        if outcome.engine not in self.engines:
            self.engines.append(outcome.engine)
        return "\n".join(self._result_line(result) for result in outcome.results)

    def _result_line(self, result: SearchResult) -> str:
        known = next((i for i, r in enumerate(self.results, 1) if r.url == result.url), None)
        if known is None:
            self.results.append(result)
            self.provenance.add([result.url])
        site = urlsplit(result.url).hostname or result.url
        head = f"R{known or len(self.results)}. {result.title} ({site}, {result.published or 'date unknown'})"
        return f"{head}\n   {result.snippet}" if result.snippet else head

    def _fetch(self, args: Mapping[str, Any], control: RunControl) -> str:
        urls, faults = self._wanted(args)
        parts = [f"{name}: there is no such result; results are R1 to R{len(self.results)}." for name in faults]
        for fetched in self._pages(urls[:PAGES_PER_ACTION], control):
            self.ledger.append(LedgerEntry("fetch", fetched.url, fetched.kind, fetched.error))
            if fetched.kind != "ok" or fetched.page is None:
                self.unreadable.append(fetched)
                parts.append(f"{fetched.url} could not be read ({fetched.kind}): {safe_line(fetched.error)}")
                continue
            source = self.tracker.register(fetched.page)
            parts.append(self._passages(source, self.question, PASSAGE_TOKENS))
        if len(urls) > PAGES_PER_ACTION:
            parts.append(f"Only {PAGES_PER_ACTION} pages are read at once; ask again for the others.")
        return "\n\n".join(parts)

    def _pages(self, urls: Sequence[str], control: RunControl) -> list[FetchedPage]:
        """The pages of one action in order: refused, read before, or fetched now, together."""
        admitted: list[str | FetchedPage] = [self._admit(url) for url in urls]
        asked = dict.fromkeys(item for item in admitted if isinstance(item, str))
        new = [url for url in asked if url not in self.fetched]
        if new:
            named = [url for url in new if self.provenance.is_named(url)]
            pages = self.perform(
                "fetch", new, list[FetchedPage], lambda: fetch_pages(self.fetcher, new, control, user_named=named)
            )
            for url, page in zip(new, pages, strict=True):
                self.fetched[url] = page
                if page.page is not None:
                    self.provenance.add_page(page.page, page.final_url)
        return [self.fetched[item] if isinstance(item, str) else item for item in admitted]

    def _admit(self, url: str) -> str | FetchedPage:
        """What to fetch for a URL the model asks for, or the refusal. A document's name is no URL and passes."""
        ruling = self.provenance.rule(url)
        if ruling.allowed:
            return ruling.url
        if "://" not in url and ruling.detail in ("unseen_url", "bad_host", "bad_scheme", "bad_url"):
            return url
        return FetchedPage(url, "refused", detail=ruling.detail, error=ruling.why)

    def _wanted(self, args: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """The URLs an action asks for, and the result names that mean nothing."""
        urls, faults = [], []
        for name in args.get("results", ()):
            number = re.fullmatch(r"\s*[Rr]?\s*(\d{1,4})\s*", str(name))
            if number and 1 <= int(number[1]) <= len(self.results):
                urls.append(self.results[int(number[1]) - 1].url)
            elif any(r.url == name for r in self.results):
                urls.append(str(name))
            else:
                faults.append(safe_line(str(name), 60))
        urls += [str(url) for url in (args.get("url"), *args.get("urls", ())) if url]
        return list(dict.fromkeys(urls)), faults

    def _passages(self, source: Source, question: str, budget: int) -> str:
        passages = rank_passages(question, source.page, budget)
        return f"{source_header(source)}\n{render_passages(source.page, passages)}"

    def _extract(self, args: Mapping[str, Any], control: RunControl) -> str:
        source = self.tracker.get(args["source"])
        if source is None:
            return f"There is no Source {args['source']}; {len(self.tracker.sources)} pages have been read."
        return self._passages(source, args["question"], EXTRACT_TOKENS)


def action_key(name: str, args: Mapping[str, Any]) -> str:
    """Two actions with the same key ask for the same thing."""
    return f"{name} {json.dumps(args, sort_keys=True, ensure_ascii=False)}".casefold()


def build_tools(config: Config) -> tuple[WebSearchTool, PageFetchTool]:
    """The configured search and fetch tools, sharing the folders of documents."""
    folders = []
    if "local" in config.search_providers and config.search.docs_dir:
        folders.append(LocalDocuments(config.search.docs_dir))
    if "mock" in config.search_providers:
        folders.append(LocalDocuments(PROGRAM_DIR / "sample_corpus", engine="mock"))
    by_name: dict[str, SearchEngine] = {folder.engine: folder for folder in folders}
    engines = [
        by_name.get(name) or MissingEngine(name, "this search engine is not available in this version")
        for name in config.search_providers
    ]
    return WebSearchTool(engines), _page_fetcher(config, folders)


def _page_fetcher(config: Config, folders: Sequence[LocalDocuments]) -> PageFetchTool:
    fetch = config.fetch
    return PageFetchTool(
        documents=folders,
        contact=fetch.contact,
        timeout_s=fetch.timeout_seconds,
        pace=Pace(fetch.per_host, fetch.pace_seconds),
        robots=fetch.respect_robots,
        cache_dir=fetch.cache_dir,
        wayback=fetch.wayback,
        tavily_key=config.keys.tavily_api_key,
        private_hosts=fetch.allow_private_hosts,
        proxy=fetch.proxy,
        ca_file=fetch.ca_file,
    )


def services_asked(config: Config) -> list[str]:
    """Every outside service that receives the question, for the report's header."""
    local = {"local", "mock"}
    names = [KEYLESS if name == KEYLESS else name for name in config.search_providers if name not in local]
    return [*([config.llm_provider] if config.llm_provider != "mock" else []), *names]
