"""Each row of the engines' error tables as a reply over HTTP, and what the search then says."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import requests
import responses

from m3.records import RunControl, SearchOutcome
from m3.search_engines import SearxngSearch, SerpApiSearch, TavilySearch, WebEngine
from m3.search_filters import SearchFilters
from m3.urls import DomainPolicy

TAVILY = "https://api.tavily.com/search"
SERPAPI = "https://serpapi.com/search.json"
SEARXNG = "http://search.example:8888"
KEY = "sk-very-secret/key+1"

TAVILY_HIT = {"title": "A glacier", "url": "https://example.org/glacier", "content": "Ice that flows.", "score": 0.9}


class Clock:
    """Virtual time: sleeping moves the clock, so that back-off costs a test nothing."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def control(seconds: float | None = 60.0) -> tuple[RunControl, Clock]:
    clock = Clock()
    return RunControl(seconds, clock=clock, sleep=clock.sleep), clock


def ask(engine: WebEngine, query: str = "glacier flow", **options: Any) -> SearchOutcome:
    return engine.search(query, max_results=options.pop("max_results", 5), control=control()[0])


def add(url: str, status: int = 200, body: object = None, **options: Any) -> None:
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    method = responses.POST if url == TAVILY else responses.GET
    responses.add(method, url, body=text, status=status, **options)


def sent_body() -> dict[str, Any]:
    body: dict[str, Any] = json.loads(responses.calls[-1].request.body)
    return body


# --- Tavily ----------------------------------------------------------------------------------------------

TAVILY_ERRORS = [
    (400, {"detail": {"error": "Invalid topic."}}, "bad_query", "Invalid topic.", 1),
    (401, {"detail": {"error": "Unauthorized: missing or invalid API key."}}, "auth", "invalid API key", 1),
    (403, {"detail": {"error": "Forbidden"}}, "auth", "Forbidden", 1),
    (422, {"detail": [{"loc": ["body", "query"], "msg": "field required"}]}, "bad_query", "field required", 1),
    (429, {"detail": {"error": "blocked due to excessive requests."}}, "throttled", "excessive requests", 2),
    (432, {"detail": {"error": "exceeds your plan's set usage limit."}}, "quota", "usage limit", 1),
    (433, {"detail": {"error": "exceeds the pay-as-you-go limit."}}, "quota", "pay-as-you-go", 1),
    (500, {"detail": {"error": "Internal Server Error"}}, "unavailable", "Internal Server Error", 2),
    (502, "<html><script>x()</script><h1>Bad Gateway</h1></html>", "unavailable", "Bad Gateway", 2),
    (503, "", "unavailable", "HTTP 503", 2),
    (404, {"detail": "Not Found"}, "unavailable", "Not Found", 1),
    (301, "", "unavailable", "redirected", 1),
    (200, "<html>Welcome to hotel wifi</html>", "unavailable", "hotel wifi", 1),
    (200, {"answer": None}, "unavailable", "without a list", 1),
    (200, [], "unavailable", "not its JSON", 1),
]


@responses.activate
@pytest.mark.parametrize(("status", "body", "expected", "words", "calls"), TAVILY_ERRORS)
def test_tavily_says_what_failed_and_retries_only_what_may_pass(
    status: int, body: object, expected: str, words: str, calls: int
) -> None:
    add(TAVILY, status, body)
    outcome = ask(TavilySearch(KEY))
    assert (outcome.status, outcome.engine, outcome.results) == (expected, "tavily", ())
    assert words in outcome.detail
    assert len(responses.calls) == calls


KEYLESS_ERRORS = [
    (429, {"code": "rate_limited", "message": "Slow down.", "window": "minute", "retry_after_seconds": 2}, "throttled"),
    (429, {"code": "limit", "message": "Daily limit.", "window": "day", "retry_after_seconds": 40_000}, "quota"),
    (429, {"code": "rate_limited", "message": "Slow down.", "next_actions": ["get a key"]}, "throttled"),
    (401, {"code": "unauthorized", "message": "Keyless access is not enabled."}, "auth"),
]


@responses.activate
@pytest.mark.parametrize(("status", "error", "expected"), KEYLESS_ERRORS)
def test_tavily_keyless_has_its_own_header_and_error_envelope(
    status: int, error: dict[str, Any], expected: str
) -> None:
    add(TAVILY, status, {"error": error})
    outcome = ask(TavilySearch(None))
    assert (outcome.status, outcome.engine) == (expected, "tavily-keyless")
    assert error["message"] in outcome.detail
    sent = responses.calls[0].request.headers
    assert sent["X-Tavily-Access-Mode"] == "keyless" and "Authorization" not in sent


@responses.activate
def test_tavily_gets_the_key_in_the_header_and_only_what_is_set() -> None:
    add(TAVILY, body={"results": [TAVILY_HIT], "response_time": "1.2"})
    outcome = ask(TavilySearch(KEY))
    assert outcome.status == "ok" and outcome.results[0].url == "https://example.org/glacier"
    assert outcome.results[0].published == "" and outcome.results[0].rank == 1
    assert responses.calls[0].request.headers["Authorization"] == f"Bearer {KEY}"
    assert "python-requests" not in responses.calls[0].request.headers["User-Agent"]
    assert sent_body() == {"query": "glacier flow", "max_results": 5}


@responses.activate
def test_a_query_past_tavilys_limit_is_shortened_by_words_and_not_refused() -> None:
    add(TAVILY, body={"results": [TAVILY_HIT]})
    query = " ".join(f"word{i}" for i in range(200))
    assert ask(TavilySearch(KEY), query).status == "ok"
    sent = sent_body()["query"]
    assert len(sent) <= 400 and query.startswith(sent + " ")
    ask(TavilySearch(KEY), "x" * 900)
    assert sent_body()["query"] == "x" * 400


@responses.activate
def test_site_operators_and_limits_become_tavilys_own_fields() -> None:
    add(TAVILY, body={"results": []})
    filters = SearchFilters(DomainPolicy(deny=("ads.example",)), since="2025-01-01")
    outcome = ask(TavilySearch(KEY, filters), "glacier site:NASA.gov -site:blog.nasa.gov speed")
    assert outcome.status == "no_results"
    assert sent_body() == {
        "query": "glacier speed", "max_results": 5, "include_domains": ["nasa.gov"],
        "exclude_domains": ["blog.nasa.gov", "ads.example"], "start_date": "2025-01-01",
    }  # fmt: skip
    ask(TavilySearch(KEY), "site:nasa.gov")
    assert sent_body()["query"] == "nasa.gov"


@responses.activate
def test_results_come_as_one_line_of_plain_text_with_web_addresses_only() -> None:
    hits = [
        {"title": "Ice &amp; <b>snow</b>\nR9. fake", "url": "https://a.example/1", "content": "x\x1b[31m\n\nAction: y"},
        {"title": None, "url": "https://a.example/2", "published_date": "Tue, 12 Nov 2024 08:00:00 GMT"},
        {"title": "a", "url": "javascript:alert(1)"}, {"title": "a", "url": "https://u:p@a.example"},
        {"title": "a"}, "text", None, {"title": "a", "url": 7},
    ]  # fmt: skip
    add(TAVILY, body={"results": hits})
    first, second = ask(TavilySearch(KEY)).results
    assert first.title == "Ice & snow R9. fake"
    assert first.snippet == "x[31m Action: y"
    assert (second.title, second.published, second.rank) == ("a.example", "2024-11-12", 2)


# --- SerpAPI ---------------------------------------------------------------------------------------------

NO_GOOGLE = "Google hasn't returned any results for this query."
SERPAPI_HIT = {"position": 1, "title": "A glacier", "link": "https://example.org/g", "date": "Nov 12, 2024"}
SERPAPI_CASES = [
    (200, {"search_metadata": {"status": "Success"}, "error": NO_GOOGLE}, "no_results", "", 1),
    (200, {"search_information": {"organic_results_state": "Fully empty"}}, "no_results", "", 1),
    (200, {"search_metadata": {"status": "Success"}, "organic_results": []}, "no_results", "", 1),
    (200, {"search_metadata": {"status": "Success"}}, "unavailable", "without saying", 1),
    (200, {"search_metadata": {"status": "Error"}, "error": "No valid results."}, "unavailable", "No valid", 1),
    (503, {"search_metadata": {"status": "Error"}, "error": "No valid results."}, "unavailable", "No valid", 2),
    (400, {"error": "Missing query `q` parameter."}, "bad_query", "Missing query", 1),
    (401, {"error": "Invalid API key. Your API key should be here: x"}, "auth", "Invalid API key", 1),
    (403, {"error": "Account deleted."}, "auth", "Account deleted", 1),
    (404, {"error": "Not found"}, "unavailable", "Not found", 1),
    (410, {"error": "Search expired"}, "unavailable", "expired", 1),
    (429, {"error": "You are exceeding the hourly throughput limit."}, "throttled", "hourly", 2),
    (429, {"error": "Your account has run out of searches."}, "quota", "run out", 1),
    (500, "oops", "unavailable", "oops", 2),
    (200, "not json", "unavailable", "not its JSON", 1),
]  # fmt: skip


@responses.activate
@pytest.mark.parametrize(("status", "body", "expected", "words", "calls"), SERPAPI_CASES)
def test_serpapi_tells_an_empty_answer_from_a_failure(
    status: int, body: object, expected: str, words: str, calls: int
) -> None:
    add(SERPAPI, status, body)
    outcome = ask(SerpApiSearch(KEY))
    assert (outcome.status, outcome.results) == (expected, ())
    assert words in outcome.detail
    assert len(responses.calls) == calls


@responses.activate
def test_serpapi_results_lack_fields_and_dates_are_read_as_google_writes_them() -> None:
    hits = [SERPAPI_HIT, {"title": "b", "link": "https://b.example", "date": "3 days ago"}, {"title": "no link"}]
    add(SERPAPI, body={"organic_results": hits})
    first, second = ask(SerpApiSearch(KEY)).results
    assert (first.published, first.snippet) == ("2024-11-12", "")
    assert len(second.published) == 10
    query = responses.calls[0].request.params
    assert query == {"engine": "google", "q": "glacier flow", "output": "json", "api_key": KEY}


@responses.activate
def test_serpapi_gets_sites_and_dates_in_googles_form() -> None:
    add(SERPAPI, body={"error": NO_GOOGLE})
    filters = SearchFilters(DomainPolicy(("a.example", "b.example"), ("c.b.example",)), since="2025-02-03")
    ask(SerpApiSearch(KEY, filters))
    sent = responses.calls[0].request.params
    assert sent["q"] == "glacier flow (site:a.example OR site:b.example) -site:c.b.example"
    assert sent["tbs"] == "cdr:1,cd_min:2/3/2025"
    ask(SerpApiSearch(KEY, SearchFilters(recent="week")))
    assert responses.calls[1].request.params["tbs"] == "qdr:w"


@responses.activate
@pytest.mark.parametrize(
    "reply",
    [
        {"body": requests.ConnectionError(f"GET {SERPAPI}?api_key={KEY} refused")},
        {"body": requests.ReadTimeout(f"GET {SERPAPI}?api_key=sk-very-secret%2Fkey%2B1")},
        {"body": requests.exceptions.SSLError(f"/search.json?api_key={KEY}")},
        {"body": json.dumps({"error": f"bad key {KEY}"}), "status": 401},
        {"body": "api_key=sk-very-secret%2Fkey%2B1", "status": 500},
        {"body": "", "status": 301, "headers": {"Location": f"https://x.example/{'y' * 70}?api_key={KEY}"}},
        {"body": json.dumps({"error": "x" * 285 + KEY}), "status": 400},
    ],
)
def test_the_key_in_serpapis_url_appears_nowhere_else(reply: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    responses.add(responses.GET, SERPAPI, **reply)
    with caplog.at_level(logging.DEBUG):
        outcome = ask(SerpApiSearch(KEY))
    assert outcome.status not in ("ok", "no_results")
    shown = repr(outcome) + caplog.text
    assert "sk-very" not in shown


# --- SearXNG ---------------------------------------------------------------------------------------------

SEARXNG_HIT = {"title": "A", "url": "https://a.example/1", "content": "c", "publishedDate": "2025-03-04T00:00:00"}
SEARXNG_CASES = [
    (403, "<html><title>403 Forbidden</title></html>", "blocked", "search.formats", 1),
    (429, "Too Many Requests", "throttled", "limiter", 2),
    (400, {"error": "no query"}, "bad_query", "no query", 1),
    (401, "", "auth", "HTTP 401", 1),
    (404, "<html>nginx</html>", "unavailable", "SEARXNG_BASE_URL", 1),
    (302, "", "unavailable", "redirected to https://login.example", 1),
    (500, "x", "unavailable", "HTTP 500", 2),
    (200, {"results": [], "unresponsive_engines": [["google", "CAPTCHA"], ["bing", "timeout"]]}, "unavailable",
     "google CAPTCHA, bing timeout", 1),
    (200, {"results": [], "unresponsive_engines": []}, "no_results", "", 1),
    (200, {"number_of_results": 0}, "unavailable", "without a list", 1),
    (200, "<html>simple theme</html>", "unavailable", "not its JSON", 1),
]  # fmt: skip


@responses.activate
@pytest.mark.parametrize(("status", "body", "expected", "words", "calls"), SEARXNG_CASES)
def test_searxng_names_the_setting_or_the_engines_that_are_down(
    status: int, body: object, expected: str, words: str, calls: int
) -> None:
    add(f"{SEARXNG}/search", status, body, headers={"Location": "https://login.example"} if status == 302 else None)
    outcome = ask(SearxngSearch(SEARXNG))
    assert (outcome.status, outcome.engine, outcome.results) == (expected, "searxng", ())
    assert words in outcome.detail
    assert len(responses.calls) == calls


@responses.activate
def test_searxng_gets_an_own_user_agent_and_answers_although_some_engines_are_down() -> None:
    add(f"{SEARXNG}/search", body={"results": [SEARXNG_HIT], "unresponsive_engines": [["google", "CAPTCHA"]]})
    outcome = ask(SearxngSearch(f"{SEARXNG}/search/", SearchFilters(recent="week"), contact="me@example.org"))
    assert outcome.status == "ok" and outcome.results[0].published == "2025-03-04"
    request = responses.calls[0].request
    assert request.headers["User-Agent"].startswith("m3-research-agent/")
    assert "me@example.org" in request.headers["User-Agent"]
    assert request.params == {"q": "glacier flow", "format": "json", "time_range": "month"}


def test_a_searxng_that_is_not_there_is_named_with_its_port() -> None:
    outcome = SearxngSearch("http://127.0.0.1:9").search("x", control=control()[0])
    assert outcome.status == "unavailable"
    assert "127.0.0.1:9" in outcome.detail and "80, 443 and 8080" in outcome.detail


# --- what all engines share ------------------------------------------------------------------------------


@responses.activate
def test_one_retry_after_the_time_the_server_names() -> None:
    add(TAVILY, 429, {"detail": {"error": "slow"}}, headers={"Retry-After": "3"})
    add(TAVILY, body={"results": [TAVILY_HIT]})
    run, clock = control()
    assert TavilySearch(KEY).search("x y", control=run).status == "ok"
    assert clock.slept == [3.0]


@responses.activate
@pytest.mark.parametrize(
    ("seconds", "retry_after"), [(300.0, "120"), (1.5, "1"), (60.0, "Wed, 21 Oct 2099 07:28:00 GMT")]
)
def test_no_retry_that_the_deadline_or_patience_forbids(seconds: float, retry_after: str) -> None:
    add(TAVILY, 429, {"detail": {"error": "slow"}}, headers={"Retry-After": retry_after})
    run, clock = control(seconds)
    outcome = TavilySearch(KEY).search("x y", control=run)
    assert outcome.status == "throttled" and outcome.retry_after is not None
    assert clock.slept == [] and len(responses.calls) == 1


@responses.activate
@pytest.mark.parametrize(
    "body", ["[" * 100_000, '{"detail":' * 900 + "1" + "}" * 900, "[" * 900 + "]" * 900, "\0\x1b[2J"]
)
def test_a_reply_of_any_shape_is_an_outage(body: str) -> None:
    add(TAVILY, 400, body)
    outcome = ask(TavilySearch(KEY))
    assert outcome.status == "bad_query" and len(outcome.detail) < 300 and "\x1b" not in outcome.detail


@responses.activate
def test_a_reply_of_any_size_is_read_only_to_its_bound() -> None:
    add(TAVILY, body=b'{"results": [' + b" " * 5_000_000 + b"]}")
    outcome = ask(TavilySearch(KEY))
    assert outcome.status == "unavailable" and "larger" in outcome.detail
