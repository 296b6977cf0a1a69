"""Searching over real connections: servers that hang, a TLS proxy with the real ddgs package, a real search server."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs

import pytest

from config import load_config
from m3.records import RunControl
from m3.search import WebSearchTool
from m3.search_engines import DuckDuckGoSearch, SearxngSearch, SerpApiSearch, TavilySearch, WebEngine
from m3.search_filters import SearchFilters
from m3.urls import DomainPolicy
from m3_react_agent import run_react_loop
from tests.certificates import Authority
from tests.kiwix import MISSING, build_zim, installed, kiwix_server, searxng_front
from tests.loopback import Reply, Request, http_server, raw_server, silent, tls_proxy, trickling
from tools import build_tools

KEY = "serp-secret-of-a-test"


def hit(number: int) -> dict[str, str]:
    return {"title": f"T{number}", "url": f"https://x.example/{number}", "content": "c"}


# --- deadlines -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("talk", [silent, trickling], ids=["silent", "trickling"])
def test_no_server_can_outlast_the_deadline(talk: Callable[..., None]) -> None:
    with raw_server(talk) as url:
        started = time.monotonic()
        outcome = SearxngSearch(url).search("ice", control=RunControl(0.5))
        assert time.monotonic() - started < 3.0
    assert outcome.status == "timeout" and "no answer within" in outcome.detail


def test_a_stop_ends_a_search_that_hangs() -> None:
    control = RunControl(60.0)
    with raw_server(silent) as url:
        threading.Timer(0.2, control.stop, ["SIGINT"]).start()
        started = time.monotonic()
        outcome = WebSearchTool([SearxngSearch(url), SearxngSearch(url)]).search("ice", control=control)
        assert time.monotonic() - started < 3.0
    assert outcome.status == "timeout" and outcome.detail.count("stopped") == 1


def test_a_hung_engine_is_left_to_the_next_one_within_its_share_and_then_not_asked_again() -> None:
    answer = Reply(body=json.dumps({"results": [hit(1)]}))
    with raw_server(silent) as hung, http_server(lambda request: answer) as (url, log):
        tool = WebSearchTool([_named("hung", SearxngSearch(hung)), SearxngSearch(url)])
        started = time.monotonic()
        first = tool.search("ice", control=RunControl(6.0))
        second = tool.search("snow", control=RunControl(6.0))
        assert time.monotonic() - started < 6.0
    assert first.status == second.status == "ok" and len(log) == 2
    assert "not asked again" in second.failures[0].detail


def _named(name: str, engine: WebEngine) -> WebEngine:
    engine.engine = name
    return engine


def test_one_run_with_retry_is_seen_by_the_server_as_two_requests_with_our_user_agent() -> None:
    replies = iter(
        [Reply(429, "Too Many Requests", {"Retry-After": "0"}), Reply(body=json.dumps({"results": [hit(1)]}))]
    )
    with http_server(lambda request: next(replies)) as (url, log):
        outcome = SearxngSearch(url).search("ice & snow?", control=RunControl(20.0))
    assert outcome.status == "ok"
    assert [r.query["q"] for r in log] == ["ice & snow?"] * 2
    assert all(r.headers["user-agent"].startswith("m3-research-agent/") for r in log)


def test_debug_logging_of_the_http_library_does_not_show_serpapis_key(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_server(lambda request: Reply(500, f"no: {request.url}")) as (url, log):
        monkeypatch.setattr(SerpApiSearch, "URL", f"{url}/search.json")
        with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="urllib3"):
            outcome = SerpApiSearch(KEY).search("ice", control=RunControl(20.0))
    assert log[0].query["api_key"] == KEY
    assert "search.json" in caplog.text and KEY not in caplog.text
    assert outcome.status == "unavailable" and KEY not in outcome.detail and "[redacted]" in outcome.detail


# --- the unmodified program behind a TLS proxy -----------------------------------------------------------

DDG, TAVILY = "https://html.duckduckgo.com/html/", "https://api.tavily.com/search"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def web(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """The program's own settings lead every https connection to the test."""
    here = Web()
    with tls_proxy(here.answer, authority, "html.duckduckgo.com", "api.tavily.com", "serpapi.com") as (url, log):
        here.log = log
        for name in ("HTTPS_PROXY", "https_proxy", "DDGS_PROXY"):
            monkeypatch.setenv(name, url)
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
            monkeypatch.setenv(name, str(authority.certificate))
        monkeypatch.delenv("NO_PROXY", raising=False)
        yield here


class Web:
    """Answers by host; `ddg` and `tavily` may be replaced by a test."""

    def __init__(self) -> None:
        self.log: list[Request] = []
        self.ddg: Callable[[str], Reply] = lambda query: Reply()
        self.tavily = Reply(432, json.dumps({"detail": {"error": "plan's set usage limit"}}))

    def answer(self, request: Request) -> Reply:
        if request.url.startswith(DDG):
            return self.ddg(parse_qs(request.body.decode())["q"][0])
        return self.tavily if request.url.startswith(TAVILY) else Reply(404)

    @property
    def queries(self) -> list[str]:
        return [parse_qs(r.body.decode())["q"][0] for r in self.log if r.url.startswith(DDG)]


def ddg_page(*hits: tuple[str, str, str]) -> Reply:
    items = "".join(
        f'<div class="links body"><h2><a href="{u}">{t}</a></h2><a href="{u}">{b}</a></div>' for t, u, b in hits
    )
    return Reply(body=f"<html><body>{items}</body></html>", headers={"Content-Type": "text/html; charset=utf-8"})


REFUSALS = {
    "202": Reply(202, "<html>anomaly</html>"),
    "403": Reply(403, "no"),
    "429": Reply(429, "slow down"),
    "captcha": Reply(200, "<html><body><div class='anomaly-modal'>Select all ducks</div></body></html>"),
}


def test_duckduckgo_without_a_network_is_an_outage_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    def unresolved(*args: object, **kwargs: object) -> None:
        raise DDGSException("DNSError: DNSError('error sending request for url (https://x/) > error resolving DNS')")

    monkeypatch.setattr(DDGS, "text", unresolved)  # what the package raises where no name is resolved
    outcome = DuckDuckGoSearch().search("glacier flow", control=RunControl(20.0))
    assert (outcome.status, outcome.detail) == ("unavailable", "its name could not be resolved")


@pytest.mark.parametrize("reply", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_refusal_by_duckduckgo_is_an_outage_and_not_an_empty_answer(web: Web, reply: Reply) -> None:
    web.ddg = lambda query: reply
    outcome = DuckDuckGoSearch().search("glacier flow", control=RunControl(20.0))
    assert outcome.status == "blocked" and "refuses this address" in outcome.detail
    assert web.queries == ["glacier flow", DuckDuckGoSearch.CHECK_QUERY]


def test_an_empty_answer_by_duckduckgo_counts_when_another_query_has_results(web: Web) -> None:
    some = ddg_page(("Wikipedia", "https://www.wikipedia.org/", "The free encyclopedia"))
    web.ddg = lambda query: some if query == DuckDuckGoSearch.CHECK_QUERY else ddg_page()
    assert DuckDuckGoSearch().search("qqxqqz", control=RunControl(20.0)).status == "no_results"


def test_duckduckgo_results_come_with_their_addresses_usable(web: Web) -> None:
    redirect = "//duckduckgo.com/l/?uddg=https%3A%2F%2Fc.example%2Fpage%3Fx%3D1&rut=0"
    web.ddg = lambda query: ddg_page(
        ("Glacier C++", "https://a.example/C%2B%2B", "glacier &amp; <b>ice</b>"),
        ("Glacier caf\u00e9", "https://b.example/caf\u00e9", "glacier"),
        ("Glacier redirect", redirect, "glacier"),
        ("Advertisement", "https://duckduckgo.com/y.js?ad=1", "glacier"),
    )
    outcome = DuckDuckGoSearch().search("glacier", max_results=10, control=RunControl(20.0))
    assert outcome.status == "ok"
    assert {r.url for r in outcome.results} >= {"https://a.example/C++", "https://b.example/caf%C3%A9"}
    assert any(r.url.startswith("https://c.example/page") for r in outcome.results)
    assert all("y.js" not in r.url for r in outcome.results)
    assert next(r for r in outcome.results if "C++" in r.title).snippet == "glacier & ice"


def test_duckduckgo_gets_sites_and_time_in_its_own_form(web: Web) -> None:
    web.ddg = lambda query: ddg_page(("Glacier", "https://a.example/1", "glacier"))
    filters = SearchFilters(DomainPolicy(("a.example",)), recent="month")
    assert DuckDuckGoSearch(filters).search("glacier", control=RunControl(20.0)).status == "ok"
    assert web.queries == ["glacier site:a.example"]
    assert parse_qs(web.log[0].body.decode())["df"] == ["m"]


def test_without_a_network_duckduckgo_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDGS_PROXY", "http://127.0.0.1:9")
    outcome = DuckDuckGoSearch().search("glacier", control=RunControl(20.0))
    assert outcome.status == "unavailable"


def test_the_keyless_chain_goes_from_tavily_to_duckduckgo(web: Web) -> None:
    web.tavily = Reply(429, json.dumps({"error": {"code": "limit", "message": "Daily limit.", "window": "day"}}))
    web.ddg = lambda query: ddg_page(("Glacier", "https://a.example/1", "glacier"))
    search, _ = build_tools(load_config({"GROQ_API_KEY": "gsk_key-of-a-test"}))
    outcome = search.search("glacier", control=RunControl(20.0))
    assert (outcome.status, outcome.engine) == ("ok", "duckduckgo")
    assert [(f.engine, f.status) for f in outcome.failures] == [("tavily-keyless", "quota")]
    assert web.log[0].headers["x-tavily-access-mode"] == "keyless"


def test_tavily_is_reached_through_a_proxy_with_an_authority_of_its_own(web: Web) -> None:
    web.tavily = Reply(body=json.dumps({"results": [hit(1)]}))
    outcome = TavilySearch("tvly-key-of-a-test").search("glacier", control=RunControl(20.0))
    assert outcome.status == "ok" and web.log[0].url == TAVILY


def test_an_untrusted_certificate_is_an_outage(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    monkeypatch.delenv("SSL_CERT_FILE")
    outcome = TavilySearch("tvly-key-of-a-test").search("glacier", control=RunControl(20.0))
    assert outcome.status == "unavailable" and "certificate" in outcome.detail and web.log == []


# --- a real search server --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kiwix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not installed():
        pytest.skip(MISSING)
    with kiwix_server(build_zim(tmp_path_factory.mktemp("zim"))) as url:
        yield url


def test_a_question_is_answered_from_a_real_search_server_and_its_pages(kiwix: str) -> None:
    with http_server(lambda request: searxng_front(request, kiwix)) as (front, log):
        config = load_config({"SEARXNG_BASE_URL": front, "ALLOW_PRIVATE_HOSTS": kiwix.removeprefix("http://")})
        search, fetcher = build_tools(config)
        output = run_react_loop("Compare RAPTOR vs HyDE", config=config, search=search, fetcher=fetcher)
    assert output.outcome == "answered" and output.engines == output.services == ("searxng",)
    assert len(log) >= 2 and all(request.query["format"] == "json" for request in log)
    assert len(output.sources) >= 2
    assert all(source.url.startswith(kiwix) for source in output.sources)
    assert {"raptor", "hyde"} <= set(re.findall(r"raptor|hyde", " ".join(s.url for s in output.sources)))
    # kiwix names no charset in its headers
    assert all("café" in source.page.text for source in output.sources)


def test_the_real_server_says_when_it_finds_nothing(kiwix: str) -> None:
    with http_server(lambda request: searxng_front(request, kiwix)) as (front, _):
        outcome = SearxngSearch(front).search("zzyzx qwertzuiop", control=RunControl(20.0))
    assert outcome.status == "no_results"
