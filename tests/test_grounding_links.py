"""Links that open a page on a quote, and what damaged sentences do to verdicts."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from config import PROGRAM_DIR
from m3.grounding.fragments import Linker, TextFragment, deep_link
from m3.records import Page, page_from_parts
from tests.conftest import CASES

PAGE = page_from_parts(
    "https://example.org/a?x=1#sec",
    [
        ("heading", "The state-of-the-art"),
        ("paragraph", "The state-of-the-art model, A&B, scored 51.5%. It was café style. The end of it came late."),
        ("paragraph", "Another model was slower, they said. The end of it came late."),
        ("list_item", "1. A list item with a number of its own"),
        ("table_row", "Model | Score in points | 12"),
        ("paragraph", "绿茶是不发酵的茶叶，保留了鲜叶的天然物质，深受人们喜爱。"),
        ("paragraph", "A long one. " + "word after word " * 40 + "ends here at last."),
    ],
)


@pytest.mark.parametrize(
    "quote, directive",
    [
        ("model, A&B, scored 51.5%.", ":~:text=model%2C%20A%26B%2C%20scored%2051.5%25."),
        ("It was café style.", ":~:text=51.5%25.-,It%20was%20caf%C3%A9%20style."),
        ("A list item with a number of its own", ":~:text=A%20list%20item%20with%20a%20number%20of%20its%20own"),
        ("1. A list item with a number of its own", ":~:text=A%20list%20item%20with%20a%20number%20of%20its%20own"),
        ("Model | Score in points | 12", ":~:text=Score%20in%20points"),
        ("tate-of-the-art model, A&B, scored", ":~:text=state%2Dof%2Dthe%2Dart%20model%2C%20A%26B%2C%20scored"),
    ],
)  # fmt: skip
def test_a_directive_says_the_quote_in_the_browsers_terms(quote: str, directive: str) -> None:
    start = PAGE.text.index(quote)
    fragment = Linker(PAGE).fragment(start, start + len(quote))
    assert fragment is not None
    assert fragment.directive() == directive


def test_a_quote_that_recurs_is_told_apart_by_the_words_of_its_block() -> None:
    start = PAGE.text.rindex("The end of it came late.")
    fragment = Linker(PAGE).fragment(start, start + len("The end of it came late."))
    assert fragment is not None and "said" in fragment.prefix


def test_a_long_quote_and_one_over_two_blocks_become_start_and_end() -> None:
    linker = Linker(PAGE)
    start = PAGE.text.index("A long one.")
    whole = linker.fragment(start, len(PAGE.text))
    assert whole is not None and whole.start.startswith("A long one") and whole.end.endswith("at last.")
    start = PAGE.text.index("Another model")
    two = linker.fragment(start, PAGE.text.index("绿茶"))
    assert two is None or (two.start and two.end)


def test_links_keep_the_address_and_replace_an_old_directive() -> None:
    fragment = TextFragment("a b")
    assert deep_link("https://x.example/p?q=%20#sec", fragment) == "https://x.example/p?q=%20#sec:~:text=a%20b"
    assert deep_link("https://x.example/p#:~:text=old", fragment) == "https://x.example/p#:~:text=a%20b"
    assert deep_link("https://x.example/p#:~:text=old", None) == "https://x.example/p"


def test_pdf_passages_link_to_their_page_and_local_documents_to_nothing() -> None:
    pdf = page_from_parts("https://x.example/a.pdf", [("paragraph", "A sentence on page seven.", 0, 7)])
    assert Linker(pdf).link(0, 25) == ("https://x.example/a.pdf#page=7", 7)
    assert Linker(Page("docs/a.md", "A sentence.")).link(0, 11) == ("", None)
    assert Linker(Page("javascript:alert(1)", "A sentence.")).link(0, 11) == ("", None)


def bench(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", PROGRAM_DIR / "bench" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not (CASES / "extraction").is_dir(), reason="no extraction cases; set M3_CASES")
def test_a_damaged_sentence_seldom_matches_still() -> None:
    figures = bench("damage").measure(30)  # the bench takes twice as many; the bounds hold for either
    assert figures["matched_undamaged"] >= 150
    bounds = {"digit": 8, "name": 3, "not": 8, "clause": 5, "wrong_page": 1}
    assert {k: v for k, v in bounds.items() if figures[f"{k}_still_matched"] > v} == {}, figures
