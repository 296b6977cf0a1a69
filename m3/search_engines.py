"""Web search engines: Tavily, SerpAPI, SearXNG, DuckDuckGo. Each says what happened and never raises.

Facts on each API stand at its class. None was copied from an SDK: plain HTTP, so that a reply can be read to the end
before it is judged, error bodies included.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, quote_plus, urlsplit

from config import DDGS_PACKAGE, KEYLESS, VERSION
from m3.api_calls import ApiReply, CallFailedError, call_api, run_within
from m3.dates import iso_date
from m3.records import RunControl, SearchOutcome, SearchResult, SearchStatus
from m3.search_filters import Query, SearchFilters, shorten
from m3.untrusted import safe_line
from m3.urls import host_of, is_web_url

ENGINE_SECONDS = 10.0  # for one engine's reply
BACK_OFF_SECONDS = 1.0  # before the one retry, when the server names no time
LONGEST_BACK_OFF = 5.0  # a server that asks for more is left to the next engine
MOST_RESULTS = 20
TITLE_LENGTH, SNIPPET_LENGTH, URL_LENGTH = 200, 400, 2_000
QUERY_LENGTH = 400  # characters; Tavily refuses more, the others do not use them


class EngineFault(Exception):
    """A search that brought nothing because something failed. `retry_in`: seconds; None where it would not help."""

    def __init__(self, status: SearchStatus, detail: str, *, retry_in: float | None = None) -> None:
        super().__init__(detail)
        self.status: SearchStatus = status
        self.detail = detail
        self.retry_in = retry_in


class WebEngine:
    """What all engines share: one retry inside the deadline, cleaned results, one outcome."""

    engine = "web"
    _secrets: tuple[str, ...] = ()  # every form in which a reply might give our key back

    def __init__(self, filters: SearchFilters | None = None, *, contact: str | None = None) -> None:
        self.filters = filters or SearchFilters()
        self._user_agent = f"m3-research-agent/{VERSION}" + (f" (+{contact})" if contact else "")

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        """Ask the engine once, and once more after a 429 or 5xx where the deadline allows. Never raises."""
        control = control or RunControl()
        wanted = max(1, min(max_results, MOST_RESULTS))
        try:
            try:
                results = self._results(query, wanted, control)
            except EngineFault as fault:
                if not self._waited(fault, control):
                    raise
                results = self._results(query, wanted, control)
        except EngineFault as fault:
            detail = safe_line(fault.detail, 400)
            return SearchOutcome((), self.engine, fault.status, detail, retry_after=fault.retry_in)
        return SearchOutcome(tuple(results), self.engine, "ok" if results else "no_results")

    @staticmethod
    def _waited(fault: EngineFault, control: RunControl) -> bool:
        wait = fault.retry_in
        if wait is None or wait > LONGEST_BACK_OFF or wait + 1.0 > control.remaining():
            return False
        return control.sleep(wait)

    def _results(self, query: str, wanted: int, control: RunControl) -> list[SearchResult]:
        raise NotImplementedError

    def _query(self, text: str) -> Query:
        """The query taken apart, its words shortened: a long one is never refused."""
        parts = self.filters.query(text)
        return parts._replace(words=shorten(parts.words, QUERY_LENGTH))

    def _call(self, method: str, url: str, control: RunControl, **parts: Any) -> ApiReply:
        headers = {"User-Agent": self._user_agent, "Accept": "application/json", **parts.pop("headers", {})}
        try:
            reply = call_api(method, url, control=control, seconds=ENGINE_SECONDS, headers=headers, **parts)
        except CallFailedError as fault:
            raise EngineFault("timeout" if fault.timed_out else "unavailable", str(fault)) from None
        # Before anything is quoted from the reply: a key that is cut in the middle could not be found any more.
        body, told = reply.body, dict(reply.headers)
        for secret in self._secrets:
            body = body.replace(secret.encode(), b"[redacted]")
            told = {name: value.replace(secret, "[redacted]") for name, value in told.items()}
        return reply._replace(body=body, headers=told)

    def _cleaned(
        self, items: object, title: str, url: str, snippet: str, published: str, wanted: int
    ) -> list[SearchResult]:
        """The usable results of a reply's list: http(s) addresses, one line of plain text each."""
        found: list[SearchResult] = []
        for item in items if isinstance(items, list) else []:
            address = item.get(url) if isinstance(item, dict) else None
            if not isinstance(address, str) or len(address) > URL_LENGTH or not is_web_url(address):
                continue
            address = address.strip()
            found.append(
                SearchResult(
                    plain_line(item.get(title), TITLE_LENGTH) or host_of(address),
                    address,
                    plain_line(item.get(snippet), SNIPPET_LENGTH),
                    iso_date(item.get(published)),
                    self.engine,
                    len(found) + 1,
                )
            )
        return found[:wanted]


def plain_line(value: object, limit: int) -> str:
    """A field of a reply as one line of plain text: no tags, no entities, no control characters, bounded."""
    if not isinstance(value, str):
        return ""
    import html

    text = re.sub(r"</?[a-zA-Z][^<>]{0,200}>", " ", value[: limit * 8])
    return safe_line(html.unescape(text), limit)


def said(reply: ApiReply) -> str:
    """What an error body says: the message in its JSON, however deep, or the first of its text."""
    body = reply.json()
    start = reply.text[:4_000]
    if body is None:
        return plain_line(re.sub(r"<(script|style)\b.*?</\1>", " ", start, flags=re.S | re.I), 160)
    return _message_in(body) or safe_line(start, 160)


def _message_in(body: object, depth: int = 4) -> str:
    if isinstance(body, str):
        return safe_line(body, 300)
    if isinstance(body, list) and depth:
        return "; ".join(filter(None, (_message_in(item, depth - 1) for item in body[:3])))
    if isinstance(body, dict) and depth:
        for name in ("detail", "error", "message", "msg", "errors"):
            if text := _message_in(body.get(name), depth - 1):
                return text
    return ""


def http_fault(reply: ApiReply, statuses: Mapping[int, SearchStatus]) -> EngineFault:
    """The fault an HTTP error status stands for. 429 and 5xx may be retried once."""
    status: SearchStatus = statuses.get(reply.status, "unavailable")
    retry = reply.status == 429 or reply.status >= 500
    wait = reply.retry_after()
    words = said(reply)
    detail = f"HTTP {reply.status}" + (f": {words}" if words else "")
    if 300 <= reply.status < 400:
        detail += f" (redirected to {safe_line(reply.headers.get('location', ''), 120)})"
    return EngineFault(status, detail, retry_in=(BACK_OFF_SECONDS if wait is None else wait) if retry else None)


def _object(reply: ApiReply, service: str) -> dict[str, Any]:
    body = reply.json()
    if not isinstance(body, dict):
        raise EngineFault("unavailable", f"{service} answered 200 with something that is not its JSON: {said(reply)}")
    return body


# --- Tavily ----------------------------------------------------------------------------------------------


class TavilySearch(WebEngine):
    """Tavily's search, with a key or keyless.

    POST https://api.tavily.com/search with `Authorization: Bearer`, or without a key the header
    `X-Tavily-Access-Mode: keyless`, which has an error envelope of its own (docs.tavily.com, endpoint/search and
    keyless). Queries longer than 400 characters are refused, `site:` finds nothing there: `include_domains` does.
    432 and 433 are used-up plans: only another engine helps.
    """

    URL = "https://api.tavily.com/search"
    MOST_INCLUDED, MOST_EXCLUDED = 300, 150
    STATUSES: ClassVar[Mapping[int, SearchStatus]] = {
        400: "bad_query", 401: "auth", 403: "auth", 422: "bad_query", 429: "throttled", 432: "quota", 433: "quota",
    }  # fmt: skip

    def __init__(self, key: str | None, filters: SearchFilters | None = None, *, contact: str | None = None) -> None:
        super().__init__(filters, contact=contact)
        self.engine = "tavily" if key else KEYLESS
        self._key = key
        self._secrets = (key,) if key else ()

    def _results(self, query: str, wanted: int, control: RunControl) -> list[SearchResult]:
        access = {"Authorization": f"Bearer {self._key}"} if self._key else {"X-Tavily-Access-Mode": "keyless"}
        reply = self._call("POST", self.URL, control, headers=access, body=self._request(query, wanted))
        if reply.status != 200:
            raise self._fault(reply)
        body = _object(reply, "Tavily")
        if not isinstance(body.get("results"), list):
            raise EngineFault("unavailable", f"Tavily answered 200 without a list of results: {said(reply)}")
        return self._cleaned(body["results"], "title", "url", "content", "published_date", wanted)

    def _request(self, query: str, wanted: int) -> dict[str, Any]:
        parts = self._query(query)
        request: dict[str, Any] = {"query": parts.words, "max_results": wanted}
        if parts.sites:
            request["include_domains"] = list(parts.sites[: self.MOST_INCLUDED])
        if parts.excluded:
            request["exclude_domains"] = list(parts.excluded[: self.MOST_EXCLUDED])
        if earliest := self.filters.earliest():
            request["start_date"] = earliest
        return request

    def _fault(self, reply: ApiReply) -> EngineFault:
        fault = http_fault(reply, self.STATUSES)
        body = reply.json()
        envelope = body.get("error") if isinstance(body, dict) else None
        if not isinstance(envelope, dict):
            return fault
        wait, window = envelope.get("retry_after_seconds"), str(envelope.get("window") or "")
        if isinstance(wait, (int, float)) and not isinstance(wait, bool) and wait >= 0 and fault.status == "throttled":
            fault.retry_in = min(float(wait), 86_400.0)
        if window:
            fault.detail += f" (window: {safe_line(window, 40)})"
        if fault.status == "throttled" and window.lower() in ("day", "daily", "month", "monthly"):
            fault.status, fault.retry_in = "quota", None
        return fault


# --- SerpAPI ---------------------------------------------------------------------------------------------


class _KeyFilter(logging.Filter):
    """Takes a key out of urllib3's debug lines, which show the whole path of a request."""

    def __init__(self, forms: tuple[str, ...]) -> None:
        super().__init__()
        self.forms = forms

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if any(form in text for form in self.forms):
            for form in self.forms:
                text = text.replace(form, "[redacted]")
            record.msg, record.args = text, ()
        return True


class SerpApiSearch(WebEngine):
    """Google through SerpAPI: GET https://serpapi.com/search.json (serpapi.com/search-api).

    The key stands in the URL and must appear nowhere else. "No results" is a 200 with an `error`; a failed search is
    `search_metadata.status` Error, with 200 or 503. 429 is the hourly rate or a used-up plan: only its text tells.
    `num` is no longer honoured; a page holds up to ten results.
    """

    engine = "serpapi"
    URL = "https://serpapi.com/search.json"
    STATUSES: ClassVar[Mapping[int, SearchStatus]] = {400: "bad_query", 401: "auth", 403: "auth", 429: "throttled"}
    RANGES: ClassVar[Mapping[str, str]] = {"day": "d", "week": "w", "month": "m", "year": "y"}

    def __init__(self, key: str, filters: SearchFilters | None = None, *, contact: str | None = None) -> None:
        super().__init__(filters, contact=contact)
        self._key = key
        forms = self._secrets = tuple(dict.fromkeys((key, quote(key, safe=""), quote_plus(key))))
        log = logging.getLogger("urllib3.connectionpool")
        if not any(isinstance(f, _KeyFilter) and f.forms == forms for f in log.filters):
            log.addFilter(_KeyFilter(forms))

    def _results(self, query: str, wanted: int, control: RunControl) -> list[SearchResult]:
        text = self._query(query).with_operators()
        params = {"engine": "google", "q": text, "output": "json", "api_key": self._key, **self._time()}
        reply = self._call("GET", self.URL, control, params=params)
        if reply.status != 200:
            fault = http_fault(reply, self.STATUSES)
            if reply.status == 429 and re.search(r"run out|searches left|upgrade|plan", said(reply), re.I):
                fault.status, fault.retry_in = "quota", None
            raise fault
        body = _object(reply, "SerpAPI")
        self._check(body)
        found = self._cleaned(body.get("organic_results"), "title", "link", "snippet", "date", wanted)
        found = found or self._cleaned([body.get("answer_box")], "title", "link", "snippet", "date", wanted)
        if not found and not self._says_empty(body):
            raise EngineFault("unavailable", "SerpAPI answered without results and without saying that there are none")
        return found

    def _time(self) -> dict[str, str]:
        if self.filters.since:
            year, month, day = self.filters.earliest().split("-")
            return {"tbs": f"cdr:1,cd_min:{int(month)}/{int(day)}/{year}"}
        return {"tbs": f"qdr:{self.RANGES[self.filters.recent]}"} if self.filters.recent else {}

    @staticmethod
    def _check(body: Mapping[str, Any]) -> None:
        """Raise for a 200 that is a failure in truth."""
        metadata = body.get("search_metadata")
        state = str(metadata.get("status", "")) if isinstance(metadata, dict) else ""
        error = body.get("error")
        if state.lower() == "error" or (error and not SerpApiSearch._says_empty(body)):
            raise EngineFault("unavailable", f"SerpAPI: {_message_in(error) or 'the search failed'}")

    @staticmethod
    def _says_empty(body: Mapping[str, Any]) -> bool:
        information = body.get("search_information")
        state = str(information.get("organic_results_state", "")) if isinstance(information, dict) else ""
        no_results = re.search(r"hasn.?t returned any results|no results", str(body.get("error") or ""), re.I)
        return bool(no_results) or "empty" in state.lower() or body.get("organic_results") == []


# --- SearXNG ---------------------------------------------------------------------------------------------


class SearxngSearch(WebEngine):
    """A SearXNG instance: GET {base}/search?format=json (docs.searxng.org, search_api).

    The JSON format is off by default (403). The instance's own engines may all be down while it answers 200. Its
    limiter refuses User-Agents of libraries at once and allows four JSON requests an hour.
    """

    engine = "searxng"
    STATUSES: ClassVar[Mapping[int, SearchStatus]] = {400: "bad_query", 401: "auth", 403: "blocked", 429: "throttled"}
    HINTS: ClassVar[Mapping[int, str]] = {
        403: "the instance does not give out JSON; add json to search.formats in its settings.yml",
        404: "there is no SearXNG at this address; SEARXNG_BASE_URL is the address of its start page",
        429: "its limiter refuses this address; set server.limiter: false, or let the address pass in limiter.toml",
    }

    def __init__(self, base_url: str, filters: SearchFilters | None = None, *, contact: str | None = None) -> None:
        super().__init__(filters, contact=contact)
        base = base_url.strip().rstrip("/")
        self._url = base if base.endswith("/search") else f"{base}/search"

    def _results(self, query: str, wanted: int, control: RunControl) -> list[SearchResult]:
        params = {"q": self._query(query).with_operators(), "format": "json"}
        # "week" is unknown to older instances, which answer 400 to it: ask for a month, drop by date afterwards.
        if name := self.filters.range_name():
            params["time_range"] = "month" if name == "week" else name
        try:
            reply = self._call("GET", self._url, control, params=params)
        except EngineFault as fault:
            raise EngineFault(fault.status, self._reach(fault.detail)) from None
        if reply.status != 200:
            refused = http_fault(reply, self.STATUSES)
            if reply.status in self.HINTS:
                refused.detail = f"HTTP {reply.status}: {self.HINTS[reply.status]}"
            raise refused
        body = _object(reply, "SearXNG")
        if not isinstance(body.get("results"), list):
            raise EngineFault("unavailable", "SearXNG answered 200 without a list of results")
        found = self._cleaned(body["results"], "title", "url", "content", "publishedDate", wanted)
        down = _unresponsive(body.get("unresponsive_engines"))
        if not found and down:
            raise EngineFault("unavailable", f"the engines behind SearXNG did not answer: {down}")
        return found

    def _reach(self, detail: str) -> str:
        parts = urlsplit(self._url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        detail = f"SearXNG at {parts.hostname}:{port}: {detail}"
        if port not in (80, 443, 8080):
            detail += "; from a Hugging Face Space only ports 80, 443 and 8080 can be reached"
        return detail


def _unresponsive(engines: object) -> str:
    names = []
    for entry in engines if isinstance(engines, list) else []:
        pair = entry if isinstance(entry, (list, tuple)) else [entry]
        names.append(" ".join(safe_line(str(part), 60) for part in pair[:2]))
    return ", ".join(names[:8])


# --- DuckDuckGo ------------------------------------------------------------------------------------------


class DuckDuckGoSearch(WebEngine):
    """DuckDuckGo's HTML page through the optional package `ddgs`.

    The package reports 202, 403, 429, captcha pages and an honest empty page alike as "No results found.", so an
    empty answer is checked with a query that always has results. `backend="auto"` would ask other sites first.
    It imitates the fingerprints of browsers. Its addresses come decoded: `%26` is lost, spaces are `+`.
    """

    engine = "duckduckgo"
    CHECK_QUERY = "wikipedia"
    RANGES: ClassVar[Mapping[str, str]] = {"day": "d", "week": "w", "month": "m", "year": "y"}

    def _results(self, query: str, wanted: int, control: RunControl) -> list[SearchResult]:
        text = self._query(query).with_operators()
        items = self._ask(text, self.RANGES.get(self.filters.range_name()), wanted, control)
        if not items and not self._ask(self.CHECK_QUERY, None, 1, control):
            raise EngineFault(
                "blocked",
                "no results, even for a query that always has some: DuckDuckGo refuses this address"
                " (as it does with data centres and after many searches), or its page has changed",
            )
        for item in items:
            item["href"] = _repaired(str(item.get("href", "")))
        return self._cleaned(items, "title", "href", "body", "date", wanted)

    def _ask(self, text: str, timelimit: str | None, wanted: int, control: RunControl) -> list[dict[str, Any]]:
        try:
            from ddgs import DDGS
            from ddgs.exceptions import DDGSException, TimeoutException
        except ImportError:
            raise EngineFault("unavailable", f"the package ddgs is missing: pip install '{DDGS_PACKAGE}'") from None
        allowed = control.timeout(ENGINE_SECONDS)

        def work() -> list[dict[str, Any]]:
            # The package's own time-out is for one request, in whole seconds, and it waits for its threads.
            client = DDGS(timeout=max(1, int(allowed)))
            found: list[dict[str, Any]] = client.text(
                text, region="wt-wt", timelimit=timelimit, max_results=wanted, backend="duckduckgo"
            )
            return found

        try:
            return run_within(work, control, allowed)
        except (TimeoutError, TimeoutException):
            raise EngineFault("timeout", f"no answer within {allowed:.0f} s") from None
        except DDGSException as fault:
            if "No results found" in str(fault):
                return []
            said = str(fault)
            why = "its name could not be resolved" if "DNSError" in said else f"ddgs: {safe_line(said, 200)}"
            raise EngineFault("unavailable", why) from None
        except Exception as fault:
            raise EngineFault("unavailable", f"ddgs failed: {type(fault).__name__}") from fault


def _repaired(url: str) -> str:
    """An address from ddgs with what may not stand in a URL escaped; a redirect of DuckDuckGo's own resolved."""
    url = f"https:{url}" if url.startswith("//") else url
    if host_of(url) == "duckduckgo.com" and urlsplit(url).path == "/l/":
        url = next(iter(parse_qs(urlsplit(url).query).get("uddg", [])), url)
    return quote(url, safe="%/:=&?#[]@!$'()*+,;~-._")
