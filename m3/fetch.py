"""Reading pages: documents of a local folder by name, the web by URL. Never raises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from m3.address_guard import Refused, WebTarget, parse_url
from m3.politeness import LONGEST_WAIT_S, HostPacer, Pace, Robots, retry_after_s
from m3.records import FetchedPage, RunControl
from m3.safe_http import USER_AGENT, HttpResult, SafeClient, Validators

if TYPE_CHECKING:
    from m3.page_cache import CachedBody
    from m3.special_sites import Candidate

FETCH_SECONDS = 15.0  # for one page, never more than the run has left
PAGES_AT_ONCE = 4
RETRIED_STATUS = frozenset({429, 502, 503, 504})
FIRST_WAIT_S = 1.0  # before a second try, where the server does not say
TAVILY_EXTRACT = "https://api.tavily.com/extract"


class DocumentReader(Protocol):
    """A folder of documents that can be read by name."""

    def holds(self, name: str) -> bool: ...

    def read(self, name: str) -> FetchedPage | None: ...


class Fetcher(Protocol):
    """What the loop needs of a page fetcher."""

    def fetch(self, url: str, *, control: RunControl | None = None) -> FetchedPage: ...


class HostRule(Protocol):
    """Which hosts may be fetched: `m3.urls.DomainPolicy`, or anything like it."""

    def permits(self, host: str) -> bool: ...


def user_agent(contact: str | None) -> str:
    """`<name>/<version> (+contact)`: what Wikipedia and arXiv ask programs to send."""
    return f"{USER_AGENT} (+{contact})" if contact else USER_AGENT


class PageFetchTool:
    """Fetches one page at a time: a local document by its name, or an http(s) URL.

    client: the guarded client; by default one made of `private_hosts`, `domains`, `proxy` and `ca_file`.
    pace: for one host; robots: ask robots.txt for URLs that the user did not name; cache_dir: keep pages there.
    wayback: look for an archived copy once when a page is gone or its server is broken; tavily_key: let Tavily read
    what could not be read here. Both send the URL to that service. web: False reads documents alone.
    """

    def __init__(
        self,
        *,
        documents: Sequence[DocumentReader] = (),
        client: SafeClient | None = None,
        contact: str | None = None,
        timeout_s: float = FETCH_SECONDS,
        pace: Pace = Pace(),
        robots: bool = True,
        cache_dir: str | Path | None = None,
        wayback: bool = False,
        tavily_key: str | None = None,
        tavily_url: str = TAVILY_EXTRACT,
        domains: HostRule | None = None,
        private_hosts: Sequence[str] = (),
        proxy: str | None = None,
        ca_file: str | None = None,
        web: bool = True,
    ) -> None:
        self._documents = documents
        self._web = web
        self._client = client or SafeClient(
            user_agent=user_agent(contact),
            private_hosts=private_hosts,
            permits=domains.permits if domains is not None else None,
            proxy=proxy,
            ca_file=ca_file,
        )
        self._timeout_s = timeout_s
        self._pacer = HostPacer(pace)
        self._robots = Robots(USER_AGENT, self._load_robots) if robots else None
        self._cache = None
        if cache_dir:
            from m3.page_cache import PageCache

            self._cache = PageCache(cache_dir)
        self._wayback, self._tavily_key, self._tavily_url = wayback, tavily_key, tavily_url

    def fetch(self, url: str, *, control: RunControl | None = None, user_named: bool = False) -> FetchedPage:
        """Read one page. Never raises: what went wrong is in `.kind`, `.detail` and `.error`.

        user_named: the user wrote this very URL, so robots.txt, which is for programs that choose, is not asked.
        """
        started = time.monotonic()
        control = (control or RunControl()).within(self._timeout_s)
        try:
            page = self._fetch(url, control, user_named)
        except Exception as problem:  # noqa: BLE001  the loop gets an observation, whatever a page provokes
            page = FetchedPage(url, "network", detail="fault", error=f"the page could not be read ({_name(problem)})")
        return replace(page, url=url, seconds=time.monotonic() - started)

    def has_document(self, name: str) -> bool:
        """Whether a document of that very name can be read here."""
        return any(folder.holds(name) for folder in self._documents)

    def _fetch(self, url: str, control: RunControl, user_named: bool) -> FetchedPage:
        from m3.special_sites import candidates  # loaded while the model is asked, as what reads pages; see `m3.ahead`

        for folder in self._documents:
            found = folder.read(url)
            if found is not None:
                return found
        try:
            target = parse_url(url)
        except Refused as refusal:
            if "://" not in url:
                return _refused(url, "bad_scheme", f"{url[:200]} is neither a document nor a web address")
            return _refused(url, refusal.code, str(refusal))
        if not self._web:
            return _refused(url, "no_web", "this run reads documents alone; --web lets it read the web too")
        page = _refused(url, "bad_url", "there is no address to try")
        for candidate in candidates(target.url):
            page = self._candidate(candidate, control, user_named)
            if page.kind == "ok" or control.expired:
                return page
        # The last address tried is the one that was asked for; its failure is the one to be told.
        return self._from_elsewhere(target, page, control)

    # --- one address ------------------------------------------------------------------------------------

    def _candidate(self, candidate: Candidate, control: RunControl, user_named: bool) -> FetchedPage:
        page = self._read(candidate.url, control, user_named)
        if page.page is None or page.kind != "ok":
            return page
        shown = candidate.shown or page.page.url
        canonical = candidate.canonical or candidate.shown or page.page.canonical_url
        return replace(page, page=replace(page.page, url=shown, canonical_url=canonical))

    def _read(self, url: str, control: RunControl, user_named: bool) -> FetchedPage:
        from m3.page_reading import read_body

        target = parse_url(url)
        if self._robots is not None and not user_named and not self._allowed(target, control):
            why = "the site's robots.txt asks programs not to read this page"
            return FetchedPage(url, "blocked", detail="robots", error=why, final_url=target.url)
        kept = self._cache.get(target.url) if self._cache is not None else None
        result = self._get_twice(target, control, kept)
        if result.status == 304 and kept is not None:
            body, media, content_type, final = kept.body, kept.media, kept.content_type, kept.final_url
        elif result.kind != "ok" or result.media is None:
            return FetchedPage(
                url, result.kind, detail=result.detail, error=result.error, final_url=result.final_url,
                status=result.status,
            )  # fmt: skip
        else:
            body, media, content_type, final = result.body, result.media, result.content_type, result.final_url
        truncated, status = result.truncated, result.status
        entry = self._entry(target.url, result) if result.kind == "ok" else None
        result = replace(result, body=b"")
        page = read_body(body, media, content_type, final, truncated=truncated, control=control)  # type: ignore[arg-type]
        if page.kind == "ok" and page.page is not None:
            page = replace(page, page=replace(page.page, fetched_at=page.page.fetched_at or now_utc()))
            if entry is not None and self._cache is not None:
                self._cache.put(entry)
        return replace(page, status=status)

    def _entry(self, url: str, result: HttpResult) -> CachedBody | None:
        if self._cache is None or result.truncated:
            return None
        from m3.page_cache import CachedBody

        return CachedBody(
            url, result.final_url, result.content_type, str(result.media), result.headers.get("etag", ""),
            result.headers.get("last-modified", ""), result.body,
        )  # fmt: skip

    def _get_twice(self, target: WebTarget, control: RunControl, kept: CachedBody | None) -> HttpResult:
        """One request, and a second where the first got nothing for a reason that passes."""
        validators = Validators(kept.final_url, kept.etag, kept.last_modified) if kept is not None else None
        result = self._get(target, control, validators)
        wait = self._wait_before_retry(result, control)
        if wait is None or not control.sleep(wait):
            return result
        second = self._get(target, control, validators)
        return result if second.kind == "timeout" else second

    def _get(self, target: WebTarget, control: RunControl, validators: Validators | None = None) -> HttpResult:
        with self._pacer.turn(target.host, control) as mine:
            if not mine:
                return HttpResult(target.url, "timeout", "deadline", "the time was over before the host's turn came")
            return self._client.get(target.url, timeout_s=self._timeout_s, control=control, validators=validators)

    @staticmethod
    def _wait_before_retry(result: HttpResult, control: RunControl) -> float | None:
        """Seconds to wait before a second try; None where there is none. Retry-After is obeyed or the try dropped."""
        if result.kind == "network" and result.detail == "connection" and not result.status:
            return 0.0
        if result.status not in RETRIED_STATUS or result.detail == "challenge":
            return None
        asked = retry_after_s(result.headers.get("retry-after", ""))
        wait = FIRST_WAIT_S if asked is None else asked
        return wait if wait <= min(LONGEST_WAIT_S, control.remaining() / 2) else None

    # --- robots.txt -------------------------------------------------------------------------------------

    def _allowed(self, target: WebTarget, control: RunControl) -> bool:
        assert self._robots is not None
        return self._robots.allows(f"{target.scheme}://{target.authority}", target.path, control)

    def _load_robots(self, url: str, control: RunControl) -> str | None:
        result = self._client.get(url, timeout_s=self._timeout_s, control=control)
        if result.kind != "ok" or result.media == "html":  # many sites answer any path with their start page
            return None
        return result.body.decode("utf-8", "replace")

    # --- when the page itself cannot be had ---------------------------------------------------------------

    def _from_elsewhere(self, target: WebTarget, failed: FetchedPage, control: RunControl) -> FetchedPage:
        """An archived copy, or Tavily's reading; else the failure as it is. Intranet URLs are told to nobody."""
        guard = self._client.guard
        if control.expired or target.literal is not None or guard.is_opened(target) or failed.detail == "robots":
            return failed
        if self._wayback and (failed.kind == "not_found" or failed.status >= 500):
            archived = self._archived(target, failed, control)
            if archived is not None:
                return archived
        readable = failed.kind in ("blocked", "js_required") or (failed.kind == "network" and failed.status >= 500)
        if self._tavily_key and readable:
            return self._by_tavily(target.url, control) or failed
        return failed

    def _archived(self, target: WebTarget, failed: FetchedPage, control: RunControl) -> FetchedPage | None:
        from m3.special_sites import wayback_query, wayback_snapshot

        answer = self._get(parse_url(wayback_query(target.url)), control)
        snapshot = wayback_snapshot(answer.body) if answer.kind == "ok" else None
        if snapshot is None:
            return None
        page = self._read(snapshot.raw_url, control, user_named=True)
        if page.kind != "ok" or page.page is None:
            return None
        note = f"archived copy of {snapshot.date} (Wayback Machine); the page itself answered {failed.status}"
        read = replace(page.page, url=snapshot.url, canonical_url=target.url, notes=(*page.page.notes, note))
        return replace(page, page=read, detail=f"archived {snapshot.date}", final_url=snapshot.url)

    def _by_tavily(self, url: str, control: RunControl) -> FetchedPage | None:
        """The page as Tavily Extract read it; None where it could not either."""
        from m3.page_reading import read_body

        text = _before_deadline(lambda: self._ask_tavily(url, control.timeout(self._timeout_s)), control) or ""
        page = read_body(
            text.encode("utf-8", "replace"), "markdown", "text/markdown; charset=utf-8", url, control=control
        )
        if page.kind != "ok" or page.page is None:
            return None
        notes = (*page.page.notes, "read by Tavily Extract, not directly")
        return replace(page, page=replace(page.page, notes=notes, fetched_at=now_utc()), detail="tavily")

    def _ask_tavily(self, url: str, seconds: float) -> str:
        """The text that Tavily has for a URL, or "". Its address comes from the settings, so it needs no guard."""
        import requests

        from m3.private_session import private_session

        try:
            with private_session() as session:
                session.trust_env = False
                reply = session.post(
                    self._tavily_url,
                    json={"urls": [url], "format": "markdown"},
                    headers={"Authorization": f"Bearer {self._tavily_key}"},
                    timeout=max(0.1, seconds),
                )
                results = reply.json()["results"] if reply.status_code == 200 else []
                return next((str(r["raw_content"]) for r in results if r.get("raw_content")), "")
        except (requests.RequestException, ValueError, KeyError, TypeError, AttributeError):
            return ""


def _before_deadline(ask: Callable[[], str], control: RunControl) -> str | None:
    """What `ask` returns, or None when the run's time is over first: the time-outs of requests are for single reads."""
    answer: list[str] = []
    thread = threading.Thread(target=lambda: answer.append(ask()), daemon=True, name="tavily extract")
    thread.start()
    while thread.is_alive() and not control.expired:
        thread.join(0.05)
    return answer[0] if answer else None


def _refused(url: str, code: str, why: str) -> FetchedPage:
    return FetchedPage(url, "refused", detail=code, error=why)


def _name(problem: BaseException) -> str:
    return type(problem).__name__


# --- several pages at once -------------------------------------------------------------------------------


def fetch_pages(
    fetcher: Fetcher, urls: Sequence[str], control: RunControl, *, user_named: Collection[str] = ()
) -> list[FetchedPage]:
    """Fetch the pages of one action, `PAGES_AT_ONCE` at a time, and return them in the order asked.

    Ends by the run's deadline: a page that is not there by then is a `timeout`, the others are returned.
    Threads are daemons, so that a fetcher that hangs cannot keep the program alive.
    """
    found: list[FetchedPage | None] = [None] * len(urls)
    waiting = iter(range(len(urls)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                i = next(waiting, None)
            if i is None or control.expired:
                return
            found[i] = _fetch_one(fetcher, urls[i], control, urls[i] in user_named)

    threads = [threading.Thread(target=work, daemon=True, name="fetch") for _ in range(min(PAGES_AT_ONCE, len(urls)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.05)
            if control.expired:
                # What is at its end may still say how it ended.
                thread.join(0.3)
                break
    late = "the run's time was over before the page came"
    return [
        page or FetchedPage(url, "timeout", detail="deadline", error=late)
        for url, page in zip(urls, found, strict=True)
    ]


def _fetch_one(fetcher: Fetcher, url: str, control: RunControl, user_named: bool) -> FetchedPage:
    fetch: Callable[..., Any] = fetcher.fetch
    more = {"user_named": True} if user_named and isinstance(fetcher, PageFetchTool) else {}
    try:
        page: FetchedPage = fetch(url, control=control, **more)
    except BaseException as problem:  # noqa: BLE001  a caller's own fetcher may raise anything; this is its thread
        return FetchedPage(url, "network", detail="fault", error=f"the fetcher failed ({_name(problem)})")
    return page


def now_utc() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
