"""Hostile and broken input: bounded time and memory, never an exception, and as much text as can be had."""

from __future__ import annotations

import resource
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from m3.extract import ContentExtractor
from m3.extract.bounded import burden
from m3.records import Page

TEXT = "<p>The tea exchange opened higher on Friday and closed at its best level since the spring of 2019.</p>"

MONSTERS = {
    "deep divs": "<div>" * 200_000 + TEXT,
    "deep spans and stray end tags": "<span>" * 60_000 + "</zz>" * 60_000 + TEXT,
    "formatting rebuilt in every paragraph": "".join(f"<b id={i}>" for i in range(3_000)) + "<p>x" * 3_000 + TEXT,
    "nested tables": "<table><tr><td>" * 20_000 + TEXT,
    "nested lists": "<ul><li>" * 20_000 + TEXT,
    "many siblings": TEXT + "<i>x</i>" * 100_000,
    "many attributes": "<p " + " ".join(f"a{i}=1" for i in range(50_000)) + ">" + TEXT,
    "one long word": TEXT + "<p>" + "a" * 3_500_000,
    "unclosed comment": TEXT + "<!--" + "-" * 2_000_000,
    "unclosed script": TEXT + "<script>" + "<" * 1_000_000,
    "less-than signs": "<" * 3_000_000 + TEXT,
    "class bombs": TEXT + "".join(f"<p class='{'a-' * 500}{i}'>x</p>" for i in range(2_000)),
    "white space": TEXT + "<p>" + " \n\t" * 1_000_000,
    "byline bait": "<p class=byline>" + "by " * 300_000 + "</p>" + TEXT,
    "JSON-LD nesting": '<script type="application/ld+json">' + '{"a":' * 50_000 + "</script>" + TEXT,
    "select": "<select>" + "<option>x" * 30_000 + "</select>" + TEXT,
}


@pytest.mark.parametrize("name", MONSTERS)
def test_a_monstrous_page_ends_within_its_bounds_and_keeps_this_process_small(name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    page = ContentExtractor().extract(MONSTERS[name], "https://example.org/")
    assert time.monotonic() - started < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KiB
    assert all(page.text[b.start : b.end] == b.text for b in page.blocks)
    assert "tea exchange" in page.text or page.notes


def test_ordinary_pages_are_read_in_this_process() -> None:
    assert burden("<div><p>x<p>y<br><ul><li>z</ul></div>" * 2_000) == "ordinary"


def test_tags_that_a_script_quotes_do_not_cost_a_page_its_structure() -> None:
    quoted = "<script>var t = '" + "<div>" * 5_000 + "';</script>"
    page = ContentExtractor().extract(f"<nav>Zebra</nav><h2>Tea</h2>{quoted}{TEXT * 3}", "https://example.org/")
    assert "Zebra" not in page.text and page.text.count("tea exchange") == 3 and not page.notes


@pytest.mark.parametrize(
    "raw",
    ["", " ", "<", "\0", b"", b"\xff\xfe", b"\xef\xbb\xbf", b"\x80\x81<p>\xff", "<frameset><frame src=x></frameset>",
     "<html></html>", "plain words only", "<p>a\0b</p>", "<p>\ud800</p>", "<base href='http://['><a href='//[x'>y</a>",
     "<meta charset=utf-7><p>x", "<script type=application/ld+json>[1,{\"@type\":[null]}]</script><p>x"],
)  # fmt: skip
def test_degenerate_input_gives_a_page(raw: bytes | str) -> None:
    page = ContentExtractor().extract(raw, "http://[broken")
    assert isinstance(page, Page)
    assert all(page.text[b.start : b.end] == b.text for b in page.blocks)


_PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            "<div> </div> <p> </p> <table> <tr> <td> </table> <ul> <li> </ul> <pre> </pre> <br> <h1> </h1> <math> <svg>"
            " <article> </article> <main> <nav> <form> <header> <template> <noscript> <select> <option> <a href=x> </a>"
            " <!-- --> <![CDATA[ ]]> &amp &#x110000; <blockquote> <button> <script> </script> <style> \x0c".split(" ")
        ),
        st.text(max_size=12),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(_PIECES)
def test_any_soup_of_tags_gives_a_page_whose_offsets_hold(pieces: list[str]) -> None:
    page = ContentExtractor().extract("".join(pieces), "https://example.org/a")
    assert all(page.text[b.start : b.end] == b.text for b in page.blocks)
    assert not any("could not be read" in note for note in page.notes)
