"""The data of a run: pages, sources, steps, usage, events, and the one object that can stop it.

Prompts, traces, the terminal, the web front and the reports are all renderings of these records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from m3.untrusted import clean_characters, clean_page

Message: TypeAlias = dict[str, str]
"""One chat message: `{"role": "system" | "user" | "assistant", "content": text}`."""

# --- stopping --------------------------------------------------------------------------------------------


class RunControl:
    """The deadline and the stop flag of one run. Every blocking call takes it and ends by its deadline.

    clock: monotonic seconds; sleep: replaces waiting in tests. Both injectable, so that a test can run on
    virtual time. Safe to use from several threads and from a signal handler (`stop` takes no lock that the
    interrupted code can hold: it only sets attributes and an event).
    """

    def __init__(
        self,
        max_seconds: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.clock = clock
        self._sleep = sleep
        self._stop = threading.Event()
        self.stop_cause = ""
        self.notice: Callable[[str], object] | None = None  # set by the run: tells people of a wait or a retry
        self.idle: Callable[[], object] | None = None  # set by the run: starts work that can be done while one waits
        self.deadline: float | None = None
        if max_seconds is not None:
            self.start(max_seconds)

    def start(self, max_seconds: float) -> None:
        """Set the deadline to `max_seconds` from now, or keep an earlier one."""
        end = self.clock() + max_seconds
        self.deadline = end if self.deadline is None else min(self.deadline, end)

    def remaining(self) -> float:
        """Seconds to the deadline, never negative; infinity before `start`; 0 once stopped."""
        if self.stopped:
            return 0.0
        return float("inf") if self.deadline is None else max(0.0, self.deadline - self.clock())

    def timeout(self, at_most: float) -> float:
        """The time-out for one blocking call: `at_most` seconds, or less when the run has less left."""
        return min(at_most, self.remaining())

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def expired(self) -> bool:
        """True once nothing more may be started: stopped, or past the deadline."""
        return self.remaining() <= 0.0

    def stop(self, cause: str) -> None:
        """Ask the run to end: `cause` is a word for the report, such as `SIGINT` or `disconnect`."""
        self.stop_cause = self.stop_cause or cause
        self._stop.set()

    def sleep(self, seconds: float) -> bool:
        """Wait, but no longer than the run lasts. True when the whole time passed without a stop."""
        allowed = self.timeout(seconds)
        if self._sleep is not None:
            self._sleep(allowed)
        else:
            self._stop.wait(allowed)
        return allowed >= seconds and not self.stopped

    def tell(self, message: str) -> None:
        """Say to whoever watches the run what a blocking call waits for; nothing where nobody watches."""
        if self.notice is not None:
            self.notice(message)

    def waiting(self) -> None:
        """Say that a request has gone out whose answer will take a while."""
        if self.idle is not None:
            self.idle()

    def within(self, max_seconds: float) -> RunControl:
        """A control for a part of this run: the same stop flag and clock, an earlier deadline."""
        part = RunControl(clock=self.clock, sleep=self._sleep)
        part._stop = self._stop
        part.notice, part.idle = self.notice, self.idle
        part.deadline = self.deadline
        part.start(max_seconds)
        return part


# --- pages and sources -----------------------------------------------------------------------------------

FetchKind: TypeAlias = Literal[
    "ok", "empty", "js_required", "blocked", "not_found", "too_large", "unsupported_type", "timeout", "network",
    "refused",
]  # fmt: skip


@dataclass(frozen=True)
class Block:
    """One piece of a page's text. `page.text[start:end] == text`, always.

    kind: heading, paragraph, list_item, table_row, code, quote, post or card; level: 1 to 6 for headings,
    nesting depth for list items; page_number: of a PDF, from 1.
    """

    kind: str
    text: str
    start: int
    end: int
    level: int = 0
    page_number: int | None = None


@dataclass(frozen=True)
class Page:
    """What a URL or a document said. `text` is the blocks' text joined by blank lines or newlines."""

    url: str
    text: str = ""
    title: str = ""
    author: str = ""
    published: str = ""  # ISO 8601 date, or "" when the page does not say
    modified: str = ""
    site: str = ""
    canonical_url: str = ""
    kind: str = "article"
    blocks: tuple[Block, ...] = ()
    links: tuple[str, ...] = ()  # absolute URLs that stand in the page
    fetched_at: str = ""  # ISO 8601 time, UTC
    notes: tuple[str, ...] = ()


def page_from_parts(url: str, parts: Iterable[tuple[str, str] | tuple[str, str, int, int | None]], **meta: Any) -> Page:
    """Build a page from `(kind, text[, level, page_number])` parts, setting text and offsets together.

    Characters that no reader sees are taken out here, so that quotes, offsets and prompts speak of one text; words stay
    as they are (what imitates the loop is defused only where text enters a prompt). Neighbouring list items and table
    rows stand on neighbouring lines, all else is parted by a blank line.
    """
    blocks: list[Block] = []
    chunks: list[str] = []
    at = 0
    for part in parts:
        kind, text = part[0], clean_page(part[1]).strip("\n")
        if not text.strip():
            continue
        level, number = (part[2], part[3]) if len(part) == 4 else (0, None)
        if blocks:
            same_group = kind == blocks[-1].kind and kind in ("list_item", "table_row")
            chunks.append("\n" if same_group else "\n\n")
            at += len(chunks[-1])
        blocks.append(Block(kind, text, at, at + len(text), level, number))
        chunks.append(text)
        at += len(text)
    for name in ("title", "author", "site"):
        if meta.get(name):
            meta[name] = " ".join(clean_characters(meta[name]).split())
    return Page(url=url, text="".join(chunks), blocks=tuple(blocks), **meta)


@dataclass(frozen=True)
class FetchedPage:
    """The outcome of one fetch. Only kind `ok` carries a page; `error` is the sentence a user should read."""

    url: str
    kind: FetchKind
    page: Page | None = None
    detail: str = ""
    error: str = ""
    final_url: str = ""
    seconds: float = 0.0
    status: int = 0  # of HTTP; 0 where none was received
    truncated: bool = False  # the page is longer than what was read

    @property
    def title(self) -> str:
        return self.page.title if self.page else ""

    @property
    def text(self) -> str:
        return self.page.text if self.page else ""


@dataclass(frozen=True)
class Passage:
    """A span of a page's text: `page.text[start:end] == quote`, always. `score` is comparable within a page.

    link: the page's address with a text fragment that opens it on these words; "" where there is none.
    """

    start: int
    end: int
    quote: str
    score: float = 0.0
    page_number: int | None = None
    link: str = ""


@dataclass(frozen=True)
class Source:
    """A page that was really read, with its number in the report: `[Source number]`."""

    number: int
    page: Page

    @property
    def url(self) -> str:
        return self.page.url

    @property
    def title(self) -> str:
        return self.page.title or self.page.url


Verdict: TypeAlias = Literal["matched", "partly", "not_found", "unchecked", "uncited"]


@dataclass(frozen=True)
class Check:
    """One claim sentence against one source. `source` is None for an uncited sentence.

    claim: the sentence without tags and Markdown marks; start, end: where it stands in the summary. passages: the
    main one first; under `not_found` they are the closest the page has. coverage: share of the claim's words and
    numbers that the passages hold, 0 to 1. better_source: another page that was read and does bear the claim out.
    missing: numbers, names and quotations of the claim that stand nowhere on the page; flags: other signs against it.
    """

    claim: str
    source: int | None
    verdict: Verdict
    why: str = ""
    passages: tuple[Passage, ...] = ()
    start: int = 0
    end: int = 0
    coverage: float = 0.0
    better_source: int | None = None
    missing: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


# --- search ----------------------------------------------------------------------------------------------

SearchStatus: TypeAlias = Literal[
    "ok", "no_results", "throttled", "quota", "auth", "blocked", "unavailable", "timeout", "bad_query"
]

# Each outcome of a fetch or a search as people read it.
STATUS_WORDS: Mapping[str, str] = {
    "ok": "ok",
    "empty": "no text",
    "js_required": "needs JavaScript",
    "blocked": "access denied",
    "not_found": "not found",
    "too_large": "too large",
    "unsupported_type": "not a file that can be read",
    "timeout": "no answer in time",
    "network": "connection failed",
    "refused": "not allowed here",
    "no_results": "no results",
    "throttled": "too many requests",
    "quota": "quota used up",
    "auth": "key not accepted",
    "unavailable": "not available",
    "bad_query": "query not accepted",
}


def in_words(status: str) -> str:
    """A status for people. A caller's own search or fetcher may bring one that is not in the table."""
    return STATUS_WORDS.get(status, status.replace("_", " "))


@dataclass(frozen=True)
class SearchResult:
    """One hit. `published` is an ISO date or "" for unknown; `rank` counts from 1 within its engine."""

    title: str
    url: str
    snippet: str = ""
    published: str = ""
    engine: str = ""
    rank: int = 0


@dataclass(frozen=True)
class SearchOutcome:
    """What a search brought. `detail` says, for people, what failed when status is neither ok nor no_results.

    engine: who answered, or failed. answered: the engines that answered, where several were asked. failures: the
    engines that failed, each with its own outcome, also when another one answered. retry_after: seconds to wait
    before the engine may be asked again; None where waiting would not help.
    """

    results: tuple[SearchResult, ...] = ()
    engine: str = ""
    status: SearchStatus = "ok"
    detail: str = ""
    answered: tuple[str, ...] = ()
    failures: tuple[SearchOutcome, ...] = ()
    retry_after: float | None = None


# --- the model -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usage:
    """Tokens of one or more calls. `prompt` includes `cached` (read from a prefix cache) and `cache_write`
    (written to it), `completion` includes `reasoning`; `estimated`: the server did not count some of it."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False
    cache_write: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True)
class Completion:
    """A model's reply. `finish_reason` is `stop` or `length` as a rule; None means the reply broke off.

    usage: of the attempt that brought the text; wasted: of attempts before it that were billed and unusable; model and
    provider: which ones were asked; prompt_limit: tokens a prompt may have there, 0 for unknown; notes: what a person
    should know of this call, such as that another provider took over.
    """

    text: str
    finish_reason: str | None = "stop"
    usage: Usage = Usage()
    model: str = ""
    wasted: Usage = Usage()
    provider: str = ""
    prompt_limit: int = 0
    notes: tuple[str, ...] = ()


class LLMError(Exception):
    """A model call that brought nothing usable. `str(error)` is the sentence a user should read.

    fatal: no other call to this model can succeed either (bad key, unknown model); usage: what the failed call
    cost; kind: one word for what went wrong (`rate_limit`, `prompt_too_large`, `deadline`, `auth` …); fits: for
    `prompt_too_large`, the tokens that a prompt may have.
    """

    def __init__(
        self, message: str, *, fatal: bool = False, usage: Usage = Usage(), kind: str = "", fits: int = 0
    ) -> None:
        super().__init__(message)
        self.fatal = fatal
        self.usage = usage
        self.kind = kind
        self.fits = fits


class DivergedError(Exception):
    """A replayed run asked for something else than was recorded, or for something that was not. Says where."""


class TraceError(ValueError):
    """A trace file that cannot be read. One sentence: which file, what is wrong."""


# --- the loop --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One turn of the loop. `tool` is None while the model's output could not be read."""

    number: int
    thought: str = ""
    tool: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    observation: str = ""
    notes: tuple[str, ...] = ()
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class LedgerEntry:
    """Something that was tried outside: a search or a fetch, and how it went."""

    kind: Literal["search", "fetch"]
    target: str
    status: str
    detail: str = ""


# --- events: the one hook on which terminal, web front and trace hang -------------------------------------


@dataclass(frozen=True)
class ThoughtEvent:
    """What the model says it thinks, before its action."""

    step: int
    thought: str


@dataclass(frozen=True)
class ActionEvent:
    """Sent before the tool runs."""

    step: int
    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class ObservationEvent:
    """What an action brought: as the model reads it, and as data.

    ok: whether it brought what it was for; results: found by it, pages: read by it or tried, each with its kind;
    sources: all that the run has read so far, with their provisional numbers. said: the same as one short line for
    people, where the observation tells the model what to do next; "" where it can be shown as it is.
    """

    step: int
    tool: str
    observation: str
    ok: bool = True
    results: tuple[SearchResult, ...] = ()
    pages: tuple[FetchedPage, ...] = ()
    sources: tuple[Source, ...] = ()
    said: str = ""


@dataclass(frozen=True)
class TextDelta:
    """A piece of the report as it is written; a draft whose source numbers are provisional."""

    text: str


@dataclass(frozen=True)
class NoticeEvent:
    """Something a person should know while the run goes on: a wait, a fault that was mended, a condensation."""

    message: str


@dataclass(frozen=True)
class LimitEvent:
    """The loop ends before the model wants it to, and why."""

    stop_reason: str
    message: str


@dataclass(frozen=True)
class FinalEvent:
    """The run is over; `output` is its FinalOutput."""

    output: Any


Event: TypeAlias = ThoughtEvent | ActionEvent | ObservationEvent | TextDelta | NoticeEvent | LimitEvent | FinalEvent
EventHook: TypeAlias = Callable[[Event], None]
