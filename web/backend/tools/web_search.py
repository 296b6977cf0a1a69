"""`search_web` and `fetch_page`: the loop's own search and fetch under the chat's names and bounds."""

from __future__ import annotations

from dataclasses import replace

from config import Config
from m3.documents import LocalDocuments
from m3.fetch import PageFetchTool
from m3.react_parser import TOOLS, Tool
from m3.records import RunControl, SearchOutcome, SearchStatus
from m3.search import WebSearchTool
from tools import build_tools

RESULTS = 5
SEARCH_SECONDS = 8.0  # for one search with its second try
RETRY_SECONDS = 2.0
PAGE_SECONDS = 6.0
# What a second try may mend. A key, a plan or a query without words stays what it is.
PASSING: frozenset[SearchStatus] = frozenset({"blocked", "throttled", "unavailable", "timeout"})


class ChatSearch(WebSearchTool):
    """`WebSearchTool` within eight seconds, asked once more after two where nothing answered.

    DuckDuckGo's "No results found" may be a refusal, which the engine tells apart by a query that always has results:
    it then comes as `blocked`, and a moment later often passes.
    """

    @classmethod
    def like(cls, tool: WebSearchTool) -> ChatSearch:
        """A new one over the same engines: which of them are left out after a failure is one run's matter."""
        return cls(tool.engines, documents=tool.documents, filters=tool.filters)

    def search(self, query: str, *, max_results: int = RESULTS, control: RunControl | None = None) -> SearchOutcome:
        """Search once or twice. Never raises."""
        control = (control or RunControl()).within(SEARCH_SECONDS)
        outcome = super().search(query, max_results=max_results, control=control)
        wait = max(RETRY_SECONDS, outcome.retry_after or 0.0)
        if outcome.status not in PASSING or wait >= control.remaining() or not control.sleep(wait):
            return outcome
        self._left_out.clear()
        again = super().search(query, max_results=max_results, control=control)
        return outcome if again.status == "timeout" else again


def chat_tools(config: Config, files: LocalDocuments) -> tuple[WebSearchTool, PageFetchTool]:
    """Search and fetch as configured, with the uploaded files among the documents and six seconds a page at most."""
    seconds = min(PAGE_SECONDS, config.fetch.timeout_seconds)
    return build_tools(replace(config, fetch=replace(config.fetch, timeout_seconds=seconds)), [files])


_SEARCH, _FETCH = (next(tool for tool in TOOLS if tool.name == name) for name in ("search", "fetch"))

SEARCH_WEB = replace(
    _SEARCH,
    name="search_web",
    runs="search",
    names=("web_search", "search_internet", "google_search", "search_files"),
    line='{"query": "…"}: search the web and the uploaded files; returns numbered results R1, R2, …',
    rules=(
        "Always search for a factual or current question, also when you believe you know the answer.",
        "Answers need sources: only what was read by a tool can be cited.",
    ),
)
FETCH_PAGE = replace(
    _FETCH,
    name="fetch_page",
    runs="fetch",
    names=("read_page", "open_page", "fetch_pages", "fetch_url", "web_fetch"),
)
FINISH: Tool = replace(next(tool for tool in TOOLS if tool.name == "finish"), at_once=True)
