"""Which URLs the model may fetch: the rule over the case file, and the rule at work in the tool suite."""

from __future__ import annotations

import json
from typing import Any

import pytest

from m3.provenance import LINK_FETCHES, Provenance, registrable_domain, urls_in
from m3.records import FetchedPage, Page, RunControl, SearchOutcome, SearchResult, page_from_parts
from m3.search import WebSearchTool
from tests.conftest import OWN_CASES
from tools import ToolSuite

CASES = json.loads((OWN_CASES / "injection" / "url_provenance.json").read_text("utf-8"))


def seen_world() -> Provenance:
    seen = CASES["seen"]
    provenance = Provenance()
    provenance.add_question(seen["user_query"])
    provenance.add(seen["search"])
    for url, links in seen["page_links"].items():
        provenance.add_page(Page(url=url, links=tuple(links)))
    return provenance


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda c: c["why"])
def test_only_what_was_shown_may_be_fetched(case: dict[str, str]) -> None:
    ruling = seen_world().rule(case["url"])
    if case["must"] in ("allow", "deny"):
        assert ruling.allowed is (case["must"] == "allow"), ruling
    assert ruling.allowed or ruling.why
    assert "#" not in ruling.url or not ruling.allowed


def test_the_scheme_that_was_seen_is_kept() -> None:
    assert seen_world().rule("http://en.wikipedia.org/wiki/Tea").url == "https://en.wikipedia.org/wiki/Tea"


def test_a_page_cannot_spell_out_a_secret_with_one_link_for_each_letter() -> None:
    provenance = Provenance()
    letters = "abcdefghijklmnopqrstuvwxyz"
    hosts = [f"https://{letter}.evil.example/{letter}" for letter in letters]
    provenance.add_page(Page(url="https://page.example/", links=tuple(hosts)))
    rulings = [provenance.rule(url) for url in hosts]
    assert sum(r.allowed for r in rulings) == LINK_FETCHES
    assert provenance.rule(hosts[0]).allowed  # asked again, it is not fetched again and not counted again
    assert "search" in rulings[-1].why
    provenance.add(hosts)  # what a search engine brings is not bounded
    assert all(provenance.rule(url).allowed for url in hosts)


def test_the_switch_allows_unseen_addresses_but_no_user_info() -> None:
    provenance = Provenance(allow_unseen=True)
    assert provenance.rule("https://anything.example/x?y=z").allowed
    assert not provenance.rule("https://user:secret@anything.example/").allowed
    assert not provenance.rule("file:///etc/passwd").allowed


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("See https://a.example/x, and (https://b.example/y).", ["https://a.example/x", "https://b.example/y"]),
        ("https://en.wikipedia.org/wiki/Tea_(drink)?", ["https://en.wikipedia.org/wiki/Tea_(drink)"]),
        ("«https://a.example/z»", ["https://a.example/z"]),
        ("compare docs.python.org/3/library with it", ["https://docs.python.org/3/library"]),
        ("mail me at someone@example.org", []),
        ("version 3.11 of it, e.g.", []),
        ("请看 https://a.example/页。", ["https://a.example/页"]),
    ],
)
def test_urls_are_found_in_a_question_as_people_write_them(text: str, urls: list[str]) -> None:
    assert urls_in(text) == urls


@pytest.mark.parametrize(
    ("host", "domain"),
    [("a.b.example.com", "example.com"), ("example.com", "example.com"), ("x.example.co.uk", "example.co.uk"),
     ("co.uk", "co.uk"), ("10.0.0.1", "10.0.0.1"), ("a.example.de", "example.de")],
)  # fmt: skip
def test_registrable_domains(host: str, domain: str) -> None:
    assert registrable_domain(host) == domain


class Web:
    """A fetcher over a dictionary that counts."""

    def __init__(self, pages: dict[str, tuple[str, ...]]) -> None:
        self.pages, self.asked = pages, list[str]()

    def fetch(self, url: str, *, control: RunControl | None = None) -> FetchedPage:
        self.asked.append(url)
        if url not in self.pages:
            return FetchedPage(url, "not_found", error=f"{url} is not there")
        page = page_from_parts(url, [("paragraph", f"The text of {url}.")], title=url, links=self.pages[url])
        return FetchedPage(url, "ok", page, final_url=url)


class Engine:
    engine = "fake"

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        return SearchOutcome((SearchResult("A", "https://a.example/start"),), "fake")


def suite(web: Web, question: str = "What is tea?", **more: Any) -> ToolSuite:
    return ToolSuite(question, WebSearchTool([Engine()]), web, **more)


def test_the_suite_refuses_a_made_up_address_and_says_what_to_do() -> None:
    web = Web({"https://a.example/start": ("https://b.example/next",), "https://b.example/next": ()})
    tools = suite(web)
    control = RunControl(10)
    observation = tools.run("fetch", {"url": "https://b.example/next"}, control)
    assert "refused" in observation and "search for it" in observation and web.asked == []
    tools.run("search", {"query": "tea"}, control)
    tools.run("fetch", {"results": ["R1"]}, control)
    assert "The text of https://b.example/next" in tools.run("fetch", {"url": "https://b.example/next"}, control)
    refused = tools.run("fetch", {"url": "https://b.example/next?q=the+question"}, control)
    assert "refused" in refused
    assert web.asked == ["https://a.example/start", "https://b.example/next"]
    assert [e.status for e in tools.ledger if e.kind == "fetch"] == ["refused", "ok", "ok", "refused"]


def test_within_a_run_no_address_is_fetched_twice_in_any_spelling() -> None:
    web = Web({"https://a.example/x": ()})
    tools = suite(web, "Read https://a.example/x and https://a.example/gone")
    for url in ("https://a.example/x", "HTTPS://A.example:443/x#top", "http://a.example/%78"):
        assert "The text of" in tools.run("fetch", {"url": url}, RunControl(10))
    for _ in range(2):
        assert "not_found" in tools.run("fetch", {"url": "https://a.example/gone"}, RunControl(10))
    assert web.asked == ["https://a.example/x", "https://a.example/gone"]


def test_recalled_leads_may_be_fetched() -> None:
    web = Web({"https://lead.example/p": ()})
    tools = suite(web, leads=["https://lead.example/p"])
    assert "The text of" in tools.run("fetch", {"url": "https://lead.example/p"}, RunControl(10))
