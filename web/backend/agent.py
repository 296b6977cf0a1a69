"""One question of the chat: the loop in a thread of its own, its events as JSON for whoever listens.

The loop calls one hook, from its own thread; what the page shows is made of the event's data. The stream ends with
exactly one `done`, whatever happens, and a listener that goes away stops the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from config import Config, ConfigError, redact
from m3.ahead import Ahead
from m3.fetch import PageFetchTool
from m3.react_parser import Tool
from m3.records import (
    ActionEvent,
    Event,
    FetchedPage,
    FinalEvent,
    LimitEvent,
    Message,
    NoticeEvent,
    ObservationEvent,
    RunControl,
    Source,
    TextDelta,
    in_words,
)
from m3.report import FinalOutput
from m3.search import WebSearchTool
from m3.sessions import PastResearch, StoreResult
from m3.untrusted import clean_characters, safe_line
from m3_react_agent import ACTION_FAILED, run_react_loop
from memory_integration import ResearchStore, build_memory
from web.backend.files import Uploads
from web.backend.tools.file_reader import file_tools
from web.backend.tools.pdf_parser import pdf_tool
from web.backend.tools.web_search import FETCH_PAGE, FINISH, SEARCH_WEB, ChatSearch, chat_tools

logger = logging.getLogger("m3.chat")

LINE, TITLE, ARGUMENT = 300, 300, 2_000  # characters of a notice, of a title or address, of one argument
QUOTE = 4_000  # of a passage's quote
MOST_WAITING = 2_000  # events that a listener may lag behind before its run is stopped
LONGEST_WORD = 400  # of a draft: a longer run without a blank is not held back any further

JSON = dict[str, Any]


def warm_up(config: Config) -> None:
    """Load what the first question needs while nobody has asked one: SDKs of hundreds of modules, tables, patterns."""

    def load() -> None:
        for name in (config.llm_provider, f"{config.llm_provider}.resources", "m3.asking", "m3.llm_clients"):
            with contextlib.suppress(ImportError):  # the mock is no package, and a missing one is told when it is used
                importlib.import_module(name)

    ahead = Ahead()
    ahead.add_run(web=True)
    ahead.start()
    threading.Thread(target=load, name="m3-warm-up", daemon=True).start()


# --- from the loop's thread to the event loop ------------------------------------------------------------


class Feed:
    """Hands events from the run's thread to one listener in the event loop. Never blocks the run.

    Pieces of text that nobody has taken yet become one, so that a slow listener gets fewer, larger ones.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready = asyncio.Event()
        self._waiting: deque[JSON] = deque()
        self._lock = threading.Lock()
        self._over = False

    def put(self, event: JSON) -> int:
        """Append an event; how many are waiting now. Callable from any thread."""
        with self._lock:
            last = self._waiting[-1] if self._waiting else None
            if event["type"] == "text" and last is not None and last["type"] == "text":
                last["content"] += event["content"]
            else:
                self._waiting.append(event)
            count = len(self._waiting)
        self._wake()
        return count

    def close(self) -> None:
        """Nothing more will come."""
        with self._lock:
            self._over = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the server is gone
            self._loop.call_soon_threadsafe(self._ready.set)

    async def __aiter__(self) -> AsyncIterator[JSON]:
        while True:
            self._ready.clear()
            with self._lock:
                batch, over = list(self._waiting), self._over
                self._waiting.clear()
            for event in batch:
                yield event
            if over:
                return
            if not batch:
                await self._ready.wait()


# --- one run ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """What all runs of a server share: the settings, the uploaded files, the fetcher with its pace, the tool menu."""

    config: Config
    uploads: Uploads
    search: WebSearchTool
    fetcher: PageFetchTool
    menu: tuple[Tool, ...]

    @classmethod
    def build(cls, config: Config, uploads: Uploads) -> Bench:
        search, fetcher = chat_tools(config, uploads.documents)
        reader, lister = file_tools(uploads)
        return cls(
            config, uploads, search, fetcher, (SEARCH_WEB, FETCH_PAGE, reader, pdf_tool(uploads), lister, FINISH)
        )


class _WithoutFiles:
    """A memory of earlier runs that does not keep what was read in uploaded files: deleted means deleted."""

    def __init__(self, store: ResearchStore) -> None:
        self._store = store
        self.notices: list[str] = getattr(store, "notices", [])

    def store_research(self, output: FinalOutput, *, control: RunControl | None = None) -> StoreResult:
        if any("://" not in source.url for source in output.sources):
            return StoreResult(False, "what stands in uploaded files is not remembered", skipped=True)
        return self._store.store_research(output, control=control)

    def retrieve_related(
        self, query: str, limit: int = 3, *, control: RunControl | None = None
    ) -> Sequence[PastResearch]:
        return self._store.retrieve_related(query, limit, control=control)


class Chat:
    """One question being answered. `start` it, iterate `events`, `stop` it when nobody listens any more."""

    def __init__(self, bench: Bench, messages: Sequence[Message], loop: asyncio.AbstractEventLoop) -> None:
        self._bench = bench
        self._question = clean_characters(messages[-1]["content"]).strip()
        self._history = list(messages[:-1])
        self._feed = Feed(loop)
        self._view = View(self._put)
        self.id = secrets.token_hex(8)
        self.control = RunControl()
        self.began = time.monotonic()

    def start(self, at_end: Callable[[], object]) -> None:
        """Begin in a thread; `at_end` is called there when the run is over."""

        def work() -> None:
            try:
                self._run()
            finally:
                self._feed.close()
                at_end()

        threading.Thread(target=work, name="m3-chat", daemon=True).start()

    def stop(self, cause: str) -> None:
        """Ask the run to end; it writes what it has and says `done`."""
        self.control.stop(cause)

    async def events(self) -> AsyncGenerator[JSON, None]:
        """The events of the run as they happen; leaving the iteration early stops the run."""
        try:
            async for event in self._feed:
                yield event
        finally:
            self.control.stop("disconnect")

    def _put(self, event: JSON) -> None:
        if self._feed.put(event) > MOST_WAITING:
            self.control.stop("slow listener")

    def _run(self) -> None:
        for warning in self._bench.config.warnings:
            self._view.notice(warning)
        try:
            run_react_loop(
                self._question,
                config=self._bench.config,
                search=ChatSearch.like(self._bench.search),
                fetcher=self._bench.fetcher,
                memory=_WithoutFiles(build_memory(self._bench.config)),
                history=self._history,
                tools=self._bench.menu,
                on_event=self._view,
                control=self.control,
            )
        except ConfigError as problem:
            self._fail(str(problem))
        except Exception:
            number = secrets.token_hex(4)
            logger.exception("run %s failed", number)
            self._fail(f"The server made a mistake; its log has the details under {number}.")

    def _fail(self, message: str) -> None:
        if self._view.ended:
            return
        config = self._bench.config
        self._view.error(message)
        self._view(
            FinalEvent(
                FinalOutput(
                    self._question, "", outcome="failed", stop_reason="error", llm_provider=config.llm_provider,
                    search_provider=config.search_provider, model=config.model or "",
                    elapsed_seconds=time.monotonic() - self.began,
                )
            )
        )  # fmt: skip


# --- from the loop's events to the page's ----------------------------------------------------------------


@dataclass
class View:
    """The loop's hook: turns its events into the chat's, in the order in which they happen."""

    put: Callable[[JSON], object]
    ended: bool = False
    _calls: int = 0
    _open: str = ""  # the name of the action that has no observation yet
    _sources: int = 0
    _fault: str = ""
    _draft: DraftText = field(default_factory=lambda: DraftText())

    def __call__(self, event: Event) -> None:
        if self.ended:  # what comes after the result, such as a note on remembering it, has nobody who waits for it
            return
        if isinstance(event, ActionEvent):
            self._called(event)
        elif isinstance(event, ObservationEvent):
            self._observed(event)
        elif isinstance(event, TextDelta):
            self._text(self._draft.feed(event.text))
        elif isinstance(event, NoticeEvent):
            self.notice(event.message)
        elif isinstance(event, LimitEvent):
            self._limit(event)
        elif isinstance(event, FinalEvent):
            self._final(event.output)

    def notice(self, text: str) -> None:
        self.put({"type": "notice", "content": shown(text)})

    def error(self, message: str) -> None:
        self.put({"type": "error", "message": shown(message, 600)})

    def _called(self, event: ActionEvent) -> None:
        if event.tool == "finish":
            return
        self._calls += 1
        self._open = event.tool
        self.put(
            {
                "type": "tool_call",
                "id": f"c{self._calls}",
                "name": event.tool,
                "arguments": {key: _argument(value) for key, value in event.args.items()},
            }
        )

    def _observed(self, event: ObservationEvent) -> None:
        self._open = ""
        self.put(
            {
                "type": "observation",
                "id": f"c{self._calls}",
                "name": event.tool,
                "ok": event.ok,
                "content": shown(_logged(event) or observation_line(event)),
                "items": observation_items(event),
            }
        )
        if len(event.sources) != self._sources:
            self._sources = len(event.sources)
            self.put({"type": "sources", "sources": source_entries(event.sources)})

    def _text(self, text: str) -> None:
        if text:
            self.put({"type": "text", "content": text})

    def _limit(self, event: LimitEvent) -> None:
        if event.stop_reason == "provider_error":
            self._fault = event.message  # the report may still be written; an error stands at the end
        else:
            self.notice(_LIMITS.get(event.stop_reason, event.message))

    def _final(self, output: FinalOutput) -> None:
        self._text(self._draft.close())
        if self._open:
            self.put(
                {
                    "type": "observation", "id": f"c{self._calls}", "name": self._open, "ok": False,
                    "content": "not carried out: the run ended", "items": [],
                }
            )  # fmt: skip
        if output.stop_reason in ("provider_error", "search_error"):
            self.error(self._fault or _why_failed(output))
        self.ended = True
        self.put(done_event(output))


_LIMITS = {
    "interrupted": "The run was stopped; the answer is written from what was read.",
    "max_iterations": "No more steps are left; the answer is written from what was read.",
    "max_tokens": "The token budget is used up; the answer is written from what was read.",
    "max_wall_clock_time": "The time is used up; the answer is written from what was read.",
    "max_cost": "The cost limit is reached; the answer is written from what was read.",
}


def _why_failed(output: FinalOutput) -> str:
    failed = [e for e in output.ledger if e.kind == "search" and e.status not in ("ok", "no_results")]
    if output.stop_reason == "search_error" and failed:
        return f"The search failed: {in_words(failed[-1].status)}: {failed[-1].detail}"
    return output.warnings[-1] if output.warnings else "The model could not be asked."


class DraftText:
    """A report on its way to the page: in whole words, so that no key passes in halves, without control characters."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        self._held += text
        cut = max(self._held.rfind(" "), self._held.rfind("\n")) + 1
        if not cut and len(self._held) > LONGEST_WORD:
            cut = len(self._held)
        ready, self._held = self._held[:cut], self._held[cut:]
        return redact(clean_characters(ready))

    def close(self) -> str:
        ready, self._held = self._held, ""
        return redact(clean_characters(ready))


def observation_line(event: ObservationEvent) -> str:
    """What an action brought, in one short line for people."""
    if event.pages:
        read = [page for page in event.pages if page.kind == "ok"]
        noun = "file" if all("://" not in page.url for page in event.pages) else "page"
        failed = len(event.pages) - len(read)
        said = [_count(len(read), noun) + " read"] if read else []
        if failed:
            why = "" if len(event.pages) > 1 else f": {event.pages[0].error}"
            said.append(f"{_count(failed, noun) if not read else failed} could not be read{why}")
        return ", ".join(said)
    if event.results:
        return _count(len(event.results), "result")
    return event.said or event.observation.strip().partition("\n")[0] or "nothing"


def _logged(event: ObservationEvent) -> str:
    """What is shown of a tool that broke: where the log has it, since its words may name files; "" for any other."""
    if event.ok or not event.observation.startswith(ACTION_FAILED):
        return ""
    number = secrets.token_hex(4)
    logger.error("tool %s broke (%s): %s", event.tool, number, event.observation)
    return f"the tool failed; the server's log has the details under {number}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def observation_items(event: ObservationEvent) -> list[JSON]:
    """The results found, or the pages and files that were tried, each with how that went."""
    if event.pages:
        return [_page_item(page) for page in event.pages]
    return [{"title": shown(r.title), "url": shown(r.url, ARGUMENT), "status": "ok"} for r in event.results]


def _page_item(page: FetchedPage) -> JSON:
    status = page.kind if page.kind == "ok" else f"{in_words(page.kind)}: {page.error}"
    return {"title": shown(page.title or page.url), "url": shown(page.url, ARGUMENT), "status": shown(status)}


def shown(text: str, limit: int = LINE) -> str:
    """A foreign string for the page: one line, bounded, without control characters and secrets."""
    return redact(safe_line(text, limit))


def _argument(value: Any) -> Any:
    """One argument of a call, its strings bounded."""
    if isinstance(value, str):
        return shown(value, ARGUMENT)
    if isinstance(value, list):
        return [_argument(item) for item in value[:50]]
    return value if isinstance(value, int | float | bool) or value is None else shown(str(value), ARGUMENT)


def source_entries(sources: Sequence[Source]) -> list[JSON]:
    """Sources as the final result has them, before there is one."""
    return [_source(entry) for entry in FinalOutput("", "", tuple(sources)).to_dict()["sources"]]


def _source(entry: Mapping[str, Any]) -> JSON:
    passages = [_passage(passage) for passage in entry["passages"]]
    found = {
        **entry,
        **{name: shown(str(entry[name] or ""), TITLE) for name in ("title", "author", "published", "domain")},
        "url": shown(entry["url"], ARGUMENT),
        "notes": [shown(note) for note in entry["notes"]],
        "passages": passages,
        "kind": "page" if "://" in entry["url"] else "file",
    }
    if found["kind"] == "file":
        numbers = sorted({p["page_number"] for p in passages if p["page_number"]})
        found["label"] = f"{found['url']}, p. {numbers[0]}" if numbers else found["url"]
    return found


def _passage(passage: Mapping[str, Any]) -> JSON:
    return {**passage, "quote": _clean(passage["quote"], QUOTE), "link": shown(passage["link"], 4_000)}


def _check(check: Mapping[str, Any]) -> JSON:
    passages = [_passage(passage) for passage in check["passages"]]
    return {**check, "claim": _clean(check["claim"], QUOTE), "why": shown(check["why"], 600), "passages": passages}


def _clean(text: str, limit: int) -> str:
    clean = redact(clean_characters(text))
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def done_event(output: FinalOutput) -> JSON:
    """The result of a run as the page's last event."""
    found = output.to_dict()
    kept = (
        "outcome", "stop_reason", "iterations_used", "tokens_consumed", "elapsed_seconds", "llm_provider", "model",
        "search_provider",
    )  # fmt: skip
    return {
        "type": "done",
        **{name: found[name] for name in kept},
        # Offsets of the checks point into this text: it was cleaned when it was written and stays as it is.
        "summary": re.sub("[\ud800-\udfff]", "\ufffd", redact(found["summary"])),
        "sources": [_source(entry) for entry in found["sources"]],
        "checks": [_check(check) for check in found["grounding"]],
        "counts": found["citations"]["counts"],
        "counts_line": found["citations"]["line"],
        "warnings": [shown(warning, 1_000) for warning in [*output.warnings, *output.notes()]],
        "no_sources_used": output.from_conversation,
        "ledger": [
            {key: shown(str(value), ARGUMENT) for key, value in {**entry, "words": in_words(entry["status"])}.items()}
            for entry in found["ledger"]
        ],
    }


# --- all runs of a server --------------------------------------------------------------------------------


@dataclass
class Chats:
    """The runs of a server, so many a client and so many in all. Used from the event loop alone."""

    per_client: int
    in_all: int
    _running: dict[Chat, str] = field(default_factory=dict)

    def fault(self, client: str) -> str:
        """Why no run may be started for a client now; "" when one may."""
        if sum(owner == client for owner in self._running.values()) >= self.per_client:
            return f"{_count(self.per_client, 'question')} of yours are being answered already; wait for one or stop it"
        if len(self._running) >= self.in_all:
            return "the server is busy with other questions; try again in a moment"
        return ""

    def start(self, chat: Chat, client: str) -> None:
        """Start a run; its place is free again when it is over."""
        loop = asyncio.get_running_loop()
        self._running[chat] = client

        def over() -> None:
            with contextlib.suppress(RuntimeError):  # the server is gone
                loop.call_soon_threadsafe(self._running.pop, chat, None)

        chat.start(over)

    def stop(self, run: str, client: str) -> bool:
        """End a run of that client with what it has; False where it has none of that name."""
        chat = next((chat for chat, owner in self._running.items() if chat.id == run and owner == client), None)
        if chat is not None:
            chat.stop("stopped by the reader")
        return chat is not None

    def __len__(self) -> int:
        return len(self._running)

    def stop_all(self, cause: str) -> None:
        """End every run with what it has, as before the server goes. Also called by signal handlers."""
        for chat in list(self._running):
            chat.stop(cause)
