"""Fakes for the outer edge: a model that says what it is told, a search and a fetcher over a dictionary of pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from m3.records import (
    Completion,
    FetchedPage,
    Message,
    RunControl,
    SearchOutcome,
    SearchResult,
    Usage,
    page_from_parts,
)
from m3.words import estimate_tokens


class ScriptedLLM:
    """Says its lines in order and the last one for ever; keeps every prompt it was given.

    A line may be an exception, which is raised, or a function of the messages.
    """

    provider = "scripted"
    model = "scripted-1"

    def __init__(self, *lines: str | Exception | Callable[[Sequence[Message]], str]) -> None:
        self._lines = lines
        self.prompts: list[list[Message]] = []

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_output_tokens: int,
        control: RunControl,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        self.prompts.append([dict(m) for m in messages])
        line = self._lines[min(len(self.prompts), len(self._lines)) - 1]
        if isinstance(line, Exception):
            raise line
        text = line if isinstance(line, str) else line(messages)
        prompt = sum(estimate_tokens(m["content"]) for m in messages)
        return Completion(text, "stop", Usage(prompt, estimate_tokens(text)), self.model)


def action(tool: str, args: str = "{}", thought: str = "next") -> str:
    return f"Thought: {thought}\nAction: {tool}\nAction Input: {args}"


class DictWeb:
    """A search engine and a fetcher over `{url: text}`; every search finds every page."""

    engine = "dict"

    def __init__(self, pages: dict[str, str]) -> None:
        self.pages = pages
        self.searched: list[str] = []
        self.fetched: list[str] = []

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        self.searched.append(query)
        results = tuple(self._results())[:max_results]
        return SearchOutcome(results, self.engine, "ok" if results else "no_results")

    def _results(self) -> Iterator[SearchResult]:
        for rank, (url, text) in enumerate(self.pages.items(), 1):
            yield SearchResult(url.rsplit("/", 1)[-1], url, text[:80], "", self.engine, rank)

    def fetch(self, url: str, *, control: RunControl | None = None) -> FetchedPage:
        self.fetched.append(url)
        if url not in self.pages:
            return FetchedPage(url, "not_found", error=f"{url} answered 404")
        page = page_from_parts(url, [("paragraph", self.pages[url])], title=url.rsplit("/", 1)[-1])
        return FetchedPage(url, "ok", page, final_url=url)


class FailingSearch:
    """A search engine that is down."""

    def __init__(self, status: str = "unavailable") -> None:
        self.status = status
        self.searched: list[str] = []

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        self.searched.append(query)
        return SearchOutcome(engine="down", status=self.status, detail="the engine is down")  # type: ignore[arg-type]
