"""Choosing the passages of a page that answer a question."""

from __future__ import annotations

import gc
import json
import weakref

import pytest

from bench import passages as bench
from m3.grounding import rank_passages, render_passages
from m3.grounding.windows import LONG
from m3.records import Page, page_from_parts
from m3.words import estimate_tokens
from tests.conftest import CASES, OWN_CASES

FILLER = [
    ("paragraph", f"Paragraph {n} speaks of weather, roads and the price of bread in the town.") for n in range(40)
]


def page(*parts: tuple[str, str] | tuple[str, str, int, None]) -> Page:
    return page_from_parts("https://example.org/a", parts)


def shown(question: str, of: Page, budget: int = 100) -> str:
    return render_passages(of, rank_passages(question, of, budget))


def test_the_block_that_answers_is_chosen_from_the_middle_of_a_long_page() -> None:
    answer = ("paragraph", "The bridge over the Aller was opened in 1911 by the mayor.")
    text = shown("When was the Aller bridge opened?", page(*FILLER, answer, *FILLER))
    assert answer[1] in text and text.startswith("…") and text.endswith("…")


def test_passages_stand_in_document_order_and_are_the_text_at_their_offsets() -> None:
    of = page(*FILLER[:3], ("paragraph", "Bread is dear."), *FILLER[3:9], ("paragraph", "Bread was cheap in 1900."))
    found = rank_passages("What does bread cost?", of, 60)
    assert [p.start for p in found] == sorted(p.start for p in found)
    assert all(of.text[p.start : p.end] == p.quote for p in found)


@pytest.mark.parametrize("budget", [1, 5, 20, 60, 400, 5_000])
def test_a_selection_never_exceeds_its_budget(budget: int) -> None:
    of = page(*FILLER, ("paragraph", "word " * 3_000), ("paragraph", "価格" * 900))
    found = rank_passages("What is the price of a word?", of, budget)
    assert sum(estimate_tokens(p.quote) for p in found) <= budget
    assert estimate_tokens(render_passages(of, found)) <= budget + 2


def test_a_long_block_gives_the_sentences_that_matter_not_all_of_it() -> None:
    long = " ".join(f"Sentence {n} is about the harbour and its cranes." for n in range(80))
    of = page(("paragraph", f"{long} The lighthouse has 214 steps. {long}"))
    text = shown("How many steps does the lighthouse have?", of, 120)
    assert "The lighthouse has 214 steps." in text


def test_the_heading_above_speaks_for_a_block_that_does_not_name_its_subject() -> None:
    of = page(
        ("heading", "Sardinia", 2, None), ("paragraph", "The island has 1.6 million inhabitants."),
        ("heading", "Corsica", 2, None), ("paragraph", "The island has 350,000 inhabitants."),
    )  # fmt: skip
    assert (
        shown("How many inhabitants does Corsica have?", of, 14).strip("…\n") == "The island has 350,000 inhabitants."
    )


def test_a_table_row_brings_its_header() -> None:
    rows = [("table_row", "City | Height | Year")] + [("table_row", f"Town {n} | {n} m | 19{n:02}") for n in range(60)]
    text = shown("How high is Town 47?", page(*FILLER[:2], *rows, *FILLER[2:]), 40)
    assert text.index("City | Height | Year") < text.index("Town 47 | 47 m | 1947")


def test_names_and_numbers_of_the_question_weigh_more_than_its_other_words() -> None:
    of = page(
        ("paragraph", "Annual report: the annual profit of the report year rose in the annual comparison of profit."),
        ("paragraph", "Contoso earned less in 2021."),
    )
    assert "Contoso" in shown("What annual profit did Contoso report for 2021?", of, 12)


def test_a_page_without_a_word_of_the_question_gives_its_beginning() -> None:
    assert shown("quantum chromodynamics", page(*FILLER), 40).startswith(FILLER[0][1])


def test_a_long_page_that_was_ranked_can_be_forgotten() -> None:
    long = page(*[("paragraph", f"{n} {text}") for n in range(60) for _, text in FILLER])
    assert len(long.text) > LONG and rank_passages("What does bread cost?", long, 100)
    block = weakref.ref(long.blocks[0])
    del long
    gc.collect()
    assert block() is None


def test_a_page_without_text_gives_nothing() -> None:
    assert rank_passages("anything", Page("https://example.org/"), 100) == []
    assert rank_passages("", page(*FILLER), 100)


def test_the_answers_to_known_questions_are_in_four_hundred_tokens() -> None:
    if not (CASES / "extraction").exists():
        pytest.skip(f"{CASES / 'extraction'} is not here")
    cases = json.loads((OWN_CASES / "passages.json").read_text("utf-8"))
    rows = bench.run(400, every=4)  # the bench asks them all
    assert len(cases) == 100
    assert all(row["tokens"] <= 402 for row in rows)
    selected, first = (sum(row[key] for row in rows) for key in ("selected", "first"))
    assert selected >= 0.9 * len(rows) and selected > 2 * first
