"""Reading pages: documents of a local folder by name, the web by URL. Never raises."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Protocol

from config import VERSION
from m3.extract import ContentExtractor
from m3.plain_text import markdown_page
from m3.records import FetchedPage, FetchKind, Page, RunControl

FETCH_SECONDS = 15.0  # for one page, never more than the run has left
MAX_BYTES = 5_000_000


class DocumentReader(Protocol):
    """A folder of documents that can be read by name."""

    def read(self, name: str) -> FetchedPage | None: ...


class Fetcher(Protocol):
    """What the loop needs of a page fetcher."""

    def fetch(self, url: str, *, control: RunControl | None = None) -> FetchedPage: ...


class PageFetchTool:
    """Fetches one page at a time: a local document by its name, or an http(s) URL."""

    def __init__(self, *, documents: Sequence[DocumentReader] = (), contact: str | None = None) -> None:
        self._documents = documents
        suffix = f" (+{contact})" if contact else ""
        self._user_agent = f"m3-research-agent/{VERSION}{suffix}"

    def fetch(self, url: str, *, control: RunControl | None = None) -> FetchedPage:
        """Read one page. Never raises: what went wrong is in `.kind`, `.detail` and `.error`."""
        control = (control or RunControl()).within(FETCH_SECONDS)
        for folder in self._documents:
            found = folder.read(url)
            if found is not None:
                return found
        if not url.startswith(("http://", "https://")):
            return FetchedPage(
                url, "refused", detail="bad_scheme", error=f"{url} is neither a document nor a web address"
            )
        return self._fetch_web(url, control)

    def _fetch_web(self, url: str, control: RunControl) -> FetchedPage:
        import requests

        started = control.clock()
        try:
            with requests.get(
                url, stream=True, timeout=control.timeout(FETCH_SECONDS), headers={"User-Agent": self._user_agent}
            ) as reply:
                body = b""
                for chunk in reply.iter_content(65_536):
                    body += chunk
                    if control.expired:
                        return FetchedPage(url, "timeout", error=f"{url} took longer than {FETCH_SECONDS:.0f} s")
                    if len(body) > MAX_BYTES:
                        break
        except requests.Timeout:
            return FetchedPage(url, "timeout", error=f"{url} did not answer in time")
        except requests.RequestException as problem:
            return FetchedPage(url, "network", detail=type(problem).__name__, error=f"{url} could not be reached")
        kind = _kind_of(reply.status_code)
        if kind != "ok":
            return FetchedPage(url, kind, detail=str(reply.status_code), error=f"{url} answered {reply.status_code}")
        page = self._page(body, reply.headers.get("content-type", ""), reply.url)
        if not page.text.strip():
            return FetchedPage(url, "empty", error=f"{url} holds no text", final_url=reply.url)
        return FetchedPage(url, "ok", page, final_url=reply.url, seconds=control.clock() - started)

    @staticmethod
    def _page(body: bytes, content_type: str, url: str) -> Page:
        if "html" in content_type or body.lstrip()[:1] == b"<":
            return ContentExtractor().extract(body, url)
        return markdown_page(body.decode("utf-8", "replace"), url)


def _kind_of(status: int) -> FetchKind:
    if status in (404, 410):
        return "not_found"
    if 400 <= status < 500:
        return "blocked"
    return "ok" if 200 <= status < 300 else "network"


def fetch_pages(fetcher: Fetcher, urls: Sequence[str], control: RunControl) -> list[FetchedPage]:
    """Fetch the pages of one action, in the order asked."""
    return [fetcher.fetch(url, control=control) for url in urls]


def now_utc() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
