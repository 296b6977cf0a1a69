"""One key for every spelling of a page's address; domain rules by whole labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3.urls import DomainPolicy, canonical_key, host_of, is_web_url

SAME_PAGE = [
    ("http://example.org/a", "https://example.org/a"),
    ("https://www.example.org/a", "https://example.org/a"),
    ("https://EXAMPLE.org:443/a/", "https://example.org/a"),
    ("https://example.org", "https://example.org/"),
    ("https://example.org/a/index.html", "https://example.org/a/"),
    ("https://example.org/a#part-2", "https://example.org/a"),
    ("https://example.org/a#:~:text=words", "https://example.org/a"),
    ("https://example.org/a?utm_source=x&utm_medium=y", "https://example.org/a"),
    ("https://example.org/a?id=7&gclid=1&fbclid=2&mc_eid=3", "https://example.org/a?id=7"),
    ("https://example.org/a?b=2&a=1", "https://example.org/a?a=1&b=2"),
    ("https://en.m.wikipedia.org/wiki/Glacier", "https://en.wikipedia.org/wiki/Glacier"),
    ("https://m.example.org/a", "https://www.example.org/a"),
    ("https://mobile.example.co.uk/a", "https://example.co.uk/a"),
    ("https://amp.example.org/a", "https://example.org/a"),
    ("https://example.org/2024/big-story/amp", "https://example.org/2024/big-story"),
    ("https://example.org/amp/big-story", "https://example.org/big-story"),
    ("https://example.org/big-story.amp.html", "https://example.org/big-story.html"),
    ("https://example.org/big-story?amp=1", "https://example.org/big-story"),
    ("https://www.google.com/amp/s/example.org/big-story", "https://example.org/big-story"),
    ("https://example-org.cdn.ampproject.org/c/s/www.example.org/big-story", "https://example.org/big-story"),
    ("https://example.org/%7euser/%63afe", "https://example.org/~user/cafe"),
    ("https://de.wikipedia.org/wiki/Köln", "https://de.wikipedia.org/wiki/K%c3%b6ln"),
    ("https://bücher.example/a", "https://xn--bcher-kva.example/a"),
    ("https://example.org/a/../b/./c", "https://example.org/b/c"),
]
OTHER_PAGE = [
    ("https://example.org/a", "https://example.org/A"),
    ("https://example.org/a", "https://example.org/b"),
    ("https://example.org/a?id=1", "https://example.org/a?id=2"),
    ("https://example.org/a?ref=main", "https://example.org/a?ref=v2"),
    ("https://example.org/a", "https://blog.example.org/a"),
    ("https://example.org:8080/a", "https://example.org/a"),
    ("https://m.co.uk/a", "https://co.uk/a"),
    ("https://example.org/wiki/amp", "https://example.org/wiki"),
    ("https://example.org/a%2Fb", "https://example.org/a/b"),
    ("papers/a.md", "papers/A.md"),
]


@pytest.mark.parametrize(("one", "other"), SAME_PAGE)
def test_two_spellings_of_one_address_have_one_key(one: str, other: str) -> None:
    assert canonical_key(one) == canonical_key(other)


@pytest.mark.parametrize(("one", "other"), OTHER_PAGE)
def test_two_pages_keep_two_keys(one: str, other: str) -> None:
    assert canonical_key(one) != canonical_key(other)


@given(st.text(max_size=80) | st.from_regex(r"\Ahttps?://[^\s]{1,60}\Z"))
def test_no_text_makes_a_key_fail(text: str) -> None:
    assert canonical_key(text) == canonical_key(text)
    assert isinstance(host_of(text), str)


def test_only_plain_web_addresses_count_as_such() -> None:
    assert is_web_url("https://example.org/a")
    for bad in ("javascript:alert(1)", "ftp://example.org", "https://user@example.org/", "http://[::1", "x", "//a/b"):
        assert not is_web_url(bad), bad


@pytest.mark.parametrize(
    ("allow", "deny", "host", "permitted"),
    [
        ((), (), "example.org", True),
        ((), (), "", True),
        (("example.org",), (), "example.org", True),
        (("example.org",), (), "docs.Example.ORG.", True),
        (("example.org",), (), "badexample.org", False),
        (("example.org",), (), "example.org.evil.test", False),
        (("example.org",), (), "", False),
        (("*.example.org", "https://www.python.org/x"), (), "docs.python.org", True),
        (("gov",), (), "data.nasa.gov", True),
        (("bücher.example",), (), "shop.xn--bcher-kva.example", True),
        ((), ("ads.example.org",), "example.org", True),
        ((), ("example.org",), "www.example.org", False),
        (("example.org",), ("ads.example.org",), "x.ads.example.org", False),
        (("0.0.1",), (), "127.0.0.1", False),
        (("127.0.0.1",), (), "127.0.0.1", True),
    ],
)
def test_a_domain_rule_matches_whole_labels_and_deny_wins(
    allow: tuple[str, ...], deny: tuple[str, ...], host: str, permitted: bool
) -> None:
    assert DomainPolicy(allow, deny).permits(host) is permitted
