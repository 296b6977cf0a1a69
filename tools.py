"""The tool suite the driver dispatches to, and the tracker that gives each page its number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from config import KEYLESS, PROGRAM_DIR, Config
from m3.citations import CitationTracker
from m3.prompts import source_header
from m3.provenance import Provenance
from m3.react_parser import TOOLS, Tool
from m3.records import FetchedPage, LedgerEntry, Passage, RunControl, SearchOutcome, SearchResult, Source
from m3.search import SearchEngine, WebSearchTool
from m3.search_filters import SearchFilters
from m3.untrusted import foreign_line, neutralise
from m3.urls import DomainPolicy, canonical_key, host_of
from m3.words import terms

if TYPE_CHECKING:
    from m3.documents import LocalDocuments
    from m3.extract import ContentExtractor
    from m3.fetch import Fetcher, PageFetchTool

__all__ = ["CitationTracker", "ContentExtractor", "PageFetchTool", "ToolSuite", "WebSearchTool", "build_tools"]

T = TypeVar("T")
OUTSIDE_MODELS = ("groq", "openai", "anthropic")  # others are the mock, or a caller's own
PAGES_PER_ACTION = 4
RESULTS_PER_SEARCH = 5
SNIPPET_CHARACTERS = 300  # of one result in an observation
PASSAGE_TOKENS = 400  # of one page in an observation
EXTRACT_TOKENS = 800  # of one page when the model asks for more of it


def __getattr__(name: str) -> Any:
    # What reads pages loads with the first page, while the model is asked; see `m3.ahead`.
    if name == "ContentExtractor":
        from m3.extract import ContentExtractor

        return ContentExtractor
    if name == "PageFetchTool":
        from m3.fetch import PageFetchTool

        return PageFetchTool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Perform(Protocol):
    """How an effect is carried out: `Journal.perform` records it, `directly` does not."""

    def __call__(
        self, kind: str, request: Any, result_type: type[T], do: Callable[[], T], control: RunControl | None = None
    ) -> T: ...


def directly(
    kind: str, request: Any, result_type: type[T], do: Callable[[], T], control: RunControl | None = None
) -> T:
    return do()


class Bounded(Protocol):
    """How work on pages that are here is done: `Journal.bounded` records where the clock cut it, `uncut` does not."""

    def __call__(self, what: str, work: Callable[[Mapping[str, int] | None], tuple[T, Mapping[str, int]]]) -> T: ...


def uncut(what: str, work: Callable[[Mapping[str, int] | None], tuple[T, Mapping[str, int]]]) -> T:
    return work(None)[0]


@dataclass
class ToolSuite:
    """Runs one action and renders its observation. What it learns stays in its fields, all plain data."""

    question: str
    search: WebSearchTool
    fetcher: Fetcher
    tracker: CitationTracker = field(default_factory=CitationTracker)
    tools: Sequence[Tool] = TOOLS
    perform: Perform = directly
    bounded: Bounded = uncut
    results: list[SearchResult] = field(default_factory=list)
    ledger: list[LedgerEntry] = field(default_factory=list)
    unreadable: list[FetchedPage] = field(default_factory=list)
    engines: list[str] = field(default_factory=list)  # that answered, in order of first answer
    asked: list[str] = field(default_factory=list)  # engines that got a query, whether they answered or not
    max_sources: int | None = None  # pages that may be read in the run
    searched: dict[frozenset[str], tuple[str, str]] = field(default_factory=dict)  # words -> query, observation
    found_nothing: set[frozenset[str]] = field(default_factory=set)  # words of searches without a result
    empty_searches: int = 0  # in a row, with no page read between them
    leads: Sequence[str] = ()  # URLs of related past research, which may be fetched like search results
    provenance: Provenance = field(default_factory=Provenance)
    fetched: dict[str, FetchedPage] = field(default_factory=dict)  # by URL: within a run nothing is fetched twice
    last_results: tuple[SearchResult, ...] = ()  # what the last action brought, as data
    last_pages: tuple[FetchedPage, ...] = ()
    last_ok: bool = True
    last_said: str = ""  # what it brought in a line for people, where the observation speaks to the model

    def __post_init__(self) -> None:
        self.provenance.add_question(self.question)
        self.provenance.add(self.leads)

    def run(self, name: str, args: Mapping[str, Any], control: RunControl) -> str:
        """The observation of one action. Faults of the outside become observations; nothing is raised."""
        self.last_results, self.last_pages, self.last_ok, self.last_said = (), (), True, ""
        tool = next((t for t in self.tools if t.name == name), None)
        handler = tool.handler if tool is not None else None
        if handler is not None and tool is not None and tool.composed:
            return handler(args, self, control)
        if handler is not None:
            return neutralise(self.perform(f"tool {name}", dict(args), str, lambda: handler(args, self), control))
        run: Callable[[Mapping[str, Any], RunControl], str] = getattr(self, f"_{self.built_in(name)}")
        return run(args, control)

    def built_in(self, name: str) -> str:
        """The built-in tool that carries out the tool of this name."""
        return next((tool.built_in for tool in self.tools if tool.name == name), name)

    def read(self, name: str, control: RunControl) -> tuple[Source | None, FetchedPage]:
        """One page or document by its address or name, as a source; None where it could not be read, and why."""
        fetched = self._pages([name], control)[0]
        return self._registered(fetched), fetched

    def _registered(self, fetched: FetchedPage) -> Source | None:
        """The source that a page becomes, booked in the ledger; None for one that could not be read."""
        self.ledger.append(LedgerEntry("fetch", fetched.url, fetched.kind, fetched.error))
        self.last_pages += (fetched,)
        self.last_ok = any(page.kind == "ok" for page in self.last_pages)
        if fetched.kind != "ok" or fetched.page is None:
            self.unreadable.append(fetched)
            return None
        self.empty_searches = 0
        return self.tracker.register(fetched.page)

    def _search(self, args: Mapping[str, Any], control: RunControl) -> str:
        query = args["query"]
        key = _query_key(query)
        if key in self.searched:
            self.empty_searches += key in self.found_nothing
            earlier, observation = self.searched[key]
            self.last_said = f"searched before as {earlier!r}; the results are the same"
            return (
                f"This asks the same as your earlier search {earlier!r}; its results were:\n{observation}\n"
                "Read some of them, or search for another side of the question."
            )
        outcome = self.perform(
            "search",
            query,
            SearchOutcome,
            lambda: self.search.search(query, max_results=RESULTS_PER_SEARCH, control=control),
            control,
        )
        failures = outcome.failures or ((outcome,) if outcome.status not in ("ok", "no_results") else ())
        answered = outcome.answered or ((outcome.engine,) if outcome.engine and not failures else ())
        self.asked += [n for n in dict.fromkeys((*(f.engine for f in failures), *answered)) if n not in self.asked]
        self.last_results, self.last_ok = outcome.results, outcome.status in ("ok", "no_results")
        for failed in failures:
            self.ledger.append(LedgerEntry("search", query, failed.status, f"{failed.engine}: {failed.detail}"))
        if outcome.status not in ("ok", "no_results"):
            return self._search_failed(query, outcome)
        self.ledger.append(LedgerEntry("search", query, outcome.status, outcome.detail))
        self.engines += [name for name in answered if name not in self.engines]
        observation = self._search_observation(query, outcome)
        self.empty_searches = 0 if outcome.results else self.empty_searches + 1
        if not outcome.results:
            self.found_nothing.add(key)
        if not failures:  # with an engine missing, the same question may bring more the next time
            self.searched[key] = (query, observation)
        return observation

    @staticmethod
    def _search_failed(query: str, outcome: SearchOutcome) -> str:
        why = foreign_line(outcome.detail, 600)
        if outcome.status == "bad_query":
            return f"The query {foreign_line(query, 120)!r} could not be searched ({why}). Ask in other words."
        return f"The search failed: {outcome.status} ({why}). That is not the same as finding nothing."

    def _search_observation(self, query: str, outcome: SearchOutcome) -> str:
        several = len({result.engine for result in outcome.results}) > 1
        lines = [self._result_line(result, name_engine=several) for result in outcome.results]
        notes = []
        if outcome.detail:
            notes.append(f"(Note: {foreign_line(outcome.detail, 300)})")
        if outcome.failures:
            failed = "; ".join(f"{f.engine}: {f.status}" for f in outcome.failures)
            notes.append(f"(Not everything could be searched: {foreign_line(failed, 200)})")
        if not lines:
            nothing = f"No results for {foreign_line(query, 120)!r}."
            self.last_said = " ".join([nothing, *notes])
            lines = [f"{nothing} Try other words, fewer of them, or another side of the question."]
        return "\n".join([*lines, *notes])

    def _result_line(self, result: SearchResult, *, name_engine: bool) -> str:
        key = canonical_key(result.url)
        known = next((i for i, r in enumerate(self.results, 1) if canonical_key(r.url) == key), None)
        if known is None:
            self.results.append(result)
        self.provenance.add([result.url])
        where = [host_of(result.url) or result.url, result.published or "date unknown"]
        if name_engine:
            where.append(f"found by {result.engine}")
        head = f"R{known or len(self.results)}. {foreign_line(result.title, 200)} ({foreign_line('; '.join(where))})"
        snippet = foreign_line(result.snippet, SNIPPET_CHARACTERS)
        return f"{head}\n   {snippet}" if snippet else head

    def _fetch(self, args: Mapping[str, Any], control: RunControl) -> str:
        urls, faults = self._wanted(args)
        parts = [f"{name}: there is no such result; results are R1 to R{len(self.results)}." for name in faults]
        room = PAGES_PER_ACTION if self.max_sources is None else self.max_sources - len(self.tracker.sources)
        if room <= 0:
            limit = f"{self.max_sources} sources have been read, which is the limit of this run."
            self.last_said = limit
            return f"{limit} Use extract or finish."
        most = min(PAGES_PER_ACTION, room)
        for fetched in self._pages(urls[:most], control):
            source = self._registered(fetched)
            if source is None:
                parts.append(unreadable_line(fetched))
            else:
                parts.append(self._passages(source, self.question, PASSAGE_TOKENS, control))
        if len(urls) > most == PAGES_PER_ACTION:
            parts.append(f"Only {PAGES_PER_ACTION} pages are read at once; ask again for the others.")
        elif len(urls) > most:
            parts.append(f"The others were not read: {self.max_sources} sources are the limit of this run.")
        return "\n\n".join(parts)

    def _pages(self, urls: Sequence[str], control: RunControl) -> list[FetchedPage]:
        """The pages of one action in order: refused, read before, or fetched now, together."""
        admitted: list[str | FetchedPage] = [self._admit(url) for url in urls]
        asked = dict.fromkeys(item for item in admitted if isinstance(item, str))
        new = [url for url in asked if url not in self.fetched]
        if new:
            from m3.fetch import fetch_pages

            named = [url for url in new if self.provenance.is_named(url)]
            pages = self.perform(
                "fetch",
                new,
                list[FetchedPage],
                lambda: fetch_pages(self.fetcher, new, control, user_named=named),
                control,
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
            return url if self._is_document(url) else ruling.url
        if "://" not in url and ruling.detail in ("unseen_url", "bad_host", "bad_scheme", "bad_url"):
            return url
        return FetchedPage(url, "refused", detail=ruling.detail, error=ruling.why)

    def _is_document(self, name: str) -> bool:
        """Whether a name without a scheme is a document's: `report.pdf` in a question reads as a host, too."""
        from m3.fetch import PageFetchTool

        fetcher = self.fetcher
        if "://" in name or not isinstance(fetcher, PageFetchTool):
            return False
        return self.perform("document name", name, bool, lambda: fetcher.has_document(name))

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
                faults.append(foreign_line(str(name), 60))
        urls += [str(url) for url in (args.get("url"), *args.get("urls", ())) if url]
        return list(dict.fromkeys(urls)), faults

    def _passages(self, source: Source, question: str, budget: int, control: RunControl) -> str:
        from m3.grounding import Patience, rank_passages, render_passages

        def ranked(cut: Mapping[str, int] | None) -> tuple[list[Passage], Mapping[str, int]]:
            patience = Patience(lambda: control.expired, cut)
            return rank_passages(question, source.page, budget, patience=patience), patience.cut

        passages = self.bounded(f"passages of Source {source.number}", ranked)
        return f"{source_header(source)}\n{neutralise(render_passages(source.page, passages))}"

    def _extract(self, args: Mapping[str, Any], control: RunControl) -> str:
        source = self.tracker.get(args["source"])
        if source is None:
            self.last_ok = False
            return f"There is no Source {args['source']}; {len(self.tracker.sources)} pages have been read."
        return self._passages(source, args["question"], EXTRACT_TOKENS, control)


def unreadable_line(fetched: FetchedPage) -> str:
    """Why a page could not be read, for a prompt."""
    return f"{foreign_line(fetched.url)} could not be read ({fetched.kind}): {foreign_line(fetched.error)}"


def action_key(name: str, args: Mapping[str, Any]) -> str:
    """Two actions with the same key ask for the same thing."""
    return f"{name} {json.dumps(args, sort_keys=True, ensure_ascii=False)}".casefold()


def _query_key(query: str) -> frozenset[str]:
    """Two queries with the same key ask the same: the same stems without stop words, the same limits on sites."""
    parts = SearchFilters().query(query)
    limits = [f"site:{site}" for site in parts.sites] + [f"-site:{site}" for site in parts.excluded]
    return frozenset([*(terms(parts.words) or [parts.words.casefold()]), *limits])


def build_tools(config: Config, documents: Sequence[LocalDocuments] = ()) -> tuple[WebSearchTool, PageFetchTool]:
    """The configured search and fetch tools, sharing the folders of documents and the rules on domains.

    documents: more folders, searched beside whatever is configured.
    """
    chosen = config.search
    filters = SearchFilters(
        DomainPolicy(chosen.allow_domain, chosen.deny_domain), chosen.since or "", chosen.recent or ""
    )
    folders = _folders(config)
    chain = [
        folders.get(name) or _web_engine(name, config, filters) for name in config.search_providers if name != "local"
    ]
    local = [folders["local"]] if "local" in folders else []
    search = WebSearchTool(chain, documents=[*documents, *local], filters=filters)
    return search, _page_fetcher(config, [*documents, *folders.values()], filters.domains)


def _folders(config: Config) -> dict[str, LocalDocuments]:
    """The folders of documents that the run may search, by provider."""
    places: dict[str, tuple[Path, str]] = {}
    if "local" in config.search_providers and config.search.docs_dir:
        places["local"] = (Path(config.search.docs_dir), "local")
    if "mock" in config.search_providers:
        places["mock"] = (PROGRAM_DIR / "sample_corpus", "mock")
    if not places:
        return {}
    from m3.documents import LocalDocuments

    return {name: LocalDocuments(folder, engine=engine) for name, (folder, engine) in places.items()}


def _page_fetcher(config: Config, folders: Sequence[LocalDocuments], policy: DomainPolicy) -> PageFetchTool:
    from m3.fetch import PageFetchTool
    from m3.politeness import Pace

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
        domains=policy,
        # Whoever searches documents alone has not agreed to a request to anybody, a link in a document included.
        web=config.search_providers != ("local",),
    )


def _web_engine(name: str, config: Config, filters: SearchFilters) -> SearchEngine:
    """The engine of a configured provider; `config` has made sure that its key or address is there."""
    # Imported here: a run over documents alone needs none of it.
    from m3 import search_engines as engines

    keys, contact = config.keys, config.fetch.contact
    if name in ("tavily", KEYLESS):
        return engines.TavilySearch(keys.tavily_api_key if name == "tavily" else None, filters, contact=contact)
    if name == "serpapi":
        return engines.SerpApiSearch(keys.serpapi_api_key or "", filters, contact=contact)
    if name == "searxng":
        return engines.SearxngSearch(config.search.searxng_base_url or "", filters, contact=contact)
    return engines.DuckDuckGoSearch(filters, contact=contact)


def services_asked(config: Config, asked: Sequence[str], providers: Sequence[str]) -> list[str]:
    """Every outside service that received the question, for the report's header.

    asked: the search engines of the run; providers: those whose model answered. A model server of the user's own is
    named by its address.
    """
    models = [name for name in dict.fromkeys([config.llm_provider, *providers]) if name in OUTSIDE_MODELS]
    own = config.models.openai_base_url
    # Without user and password, which may stand in an address too.
    names = [f"the model server at {_host_and_port(own)}" if name == "openai" and own else name for name in models]
    engines = [name for name in asked if name not in ("local", "mock")]
    return list(dict.fromkeys([*names, *engines]))


def _host_and_port(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
