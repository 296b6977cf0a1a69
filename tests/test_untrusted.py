"""Foreign text in prompts, terminals and reports."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from m3.react_parser import parse_thought_action
from m3.untrusted import clean_characters, neutralise, safe_cell, safe_line, safe_report
from tests.conftest import OWN_CASES
from tools import CitationTracker

CHARACTERS = json.loads((OWN_CASES / "injection" / "characters.json").read_text())
GRAMMAR = json.loads((OWN_CASES / "injection" / "grammar.json").read_text())["items"]
OUTPUT = json.loads((OWN_CASES / "injection" / "output.json").read_text())
SPECIAL = re.compile(r"<[|｜]|[|｜]>|</?(?:think|invoke|function_calls|untrusted_page|page|document|source|tool_result"
                     r"|system|start_of_turn|end_of_turn|sop)\b[^>]*>"
                     r"|\[/?INST\]|<</?SYS>>|\[gMASK\]|```|\"\"\"", re.I)  # fmt: skip


@pytest.mark.parametrize("case", CHARACTERS["strip"], ids=lambda c: c["id"])
def test_what_no_reader_sees_is_taken_out(case: dict[str, str]) -> None:
    cleaned = clean_characters(case["text"])
    if case.get("want") is not None:
        assert cleaned == case["want"]
    else:
        assert len(cleaned) <= 2_000


@pytest.mark.parametrize("case", CHARACTERS["keep"], ids=lambda c: c["id"])
def test_what_a_script_needs_is_kept(case: dict[str, str]) -> None:
    kept = clean_characters(case["text"])
    assert kept == case["text"] or kept.replace(" ", "\xa0") == case["text"].replace(" ", "\xa0")


@pytest.mark.parametrize("case", [c for c in GRAMMAR if "leave" not in c["why"]], ids=lambda c: c["id"])
@pytest.mark.parametrize("frame", ["{}", "Some text before.\n{}\nand after.", "{}{}", "Intro: {}"])
def test_text_that_imitates_the_loop_is_neither_an_action_nor_a_token_nor_a_citation(
    case: dict[str, str], frame: str
) -> None:
    safe = neutralise(frame.replace("{}", case["text"]))
    assert parse_thought_action(safe).tool is None
    assert not SPECIAL.search(safe)
    assert not re.search(r"\[\s*(?:source\s*)?\^?\d+\s*\]", safe, re.I)
    assert not re.search(
        r"^[ \t>*#`_-]*(?:thought|action|observation|final answer|system|user|assistant)\**\s*:", safe, re.I | re.M
    )
    words = re.findall(r"[A-Za-z]{4,}", clean_characters(case["text"]))
    assert all(word in safe for word in words)


def test_percent_encoded_text_and_ordinary_prose_and_code_are_left_alone() -> None:
    for text in (
        "%3C%7Cim_start%7C%3E",
        "The action of the drug: it lowers pressure. Users and systems differ.",
        "if (a < b && c > d) { return x; }",
        "vector<int> v; List<String> names;",
        '{"city": "Rome", "population": 2800000}',
        "Table 1 | Results | 2024",
        "Er sagte: „System und Nutzer“ – 3 < 5.",
    ):
        assert neutralise(text) == text


@given(
    st.text(alphabet=st.sampled_from('Action: Thought\n<|>[]Source 1{}"`’\u200b\uff1aА\U000e0041\u202e'), max_size=120)
)
@settings(max_examples=300, deadline=None)
def test_neutralising_is_idempotent_and_never_yields_an_action(text: str) -> None:
    safe = neutralise(text)
    assert neutralise(safe) == safe
    assert parse_thought_action(safe).tool is None


@pytest.mark.parametrize(
    "text", ["<|" * 200_000, "Action:" * 100_000, "[" * 500_000, "\u200d" * 500_000, '{"' * 250_000]
)
def test_cleaning_takes_linear_time(text: str) -> None:
    started = time.process_time()
    neutralise(text)
    safe_report(text)
    assert time.process_time() - started < 8


@pytest.mark.parametrize("case", OUTPUT["terminal"] + OUTPUT["records"], ids=lambda c: c["id"])
def test_a_foreign_string_is_one_printable_line(case: dict[str, str]) -> None:
    line = safe_line(case["text"])
    assert line.isprintable() and len(line) <= 300
    line.encode("utf-8")


@pytest.mark.parametrize("case", [c for c in OUTPUT["records"] if c["id"].startswith("csv-")], ids=lambda c: c["id"])
def test_no_cell_is_a_formula(case: dict[str, str]) -> None:
    assert not re.match(r"[=+@\t\r＝]|-(?!\d+(\.\d+)?$)", safe_cell(case["text"]))
    assert safe_cell("-12.5") == "-12.5" and safe_cell("plain") == "plain"


@pytest.mark.parametrize("case", OUTPUT["final_answer"], ids=lambda c: c["id"])
def test_the_answer_has_no_image_no_html_and_no_link_outside_its_sources(case: dict[str, str]) -> None:
    safe = safe_report(case["text"], {"https://tea.example/green"})
    assert "![" not in safe and not re.search(r"\]\(|^\[[^\]]+\]:", safe, re.M)
    outside_code = re.sub(r"```.*?```|`[^`]*`", "", safe, flags=re.S)
    assert not re.search(r"<[a-zA-Z!/]|https?://|javascript:|data:", outside_code)
    assert not re.search("[\U000e0000-\U000e0fff]", safe)


def test_a_link_to_a_source_stays_and_text_and_tags_stay() -> None:
    allowed = {"https://tea.example/green"}
    text = "Green tea [is *not* oxidised](https://tea.example/green). [Source 1]\n\nSee https://tea.example/green."
    assert safe_report(text, allowed) == text
    assert safe_report("[a][g] b\n\n[g]: https://tea.example/green", allowed).startswith(
        "[a](https://tea.example/green) b"
    )
    kept = safe_report("3 < 5 and a<b; vector<int> holds; `<div>` is a tag. [Source 2]", allowed)
    assert kept == "3 < 5 and a‹b; vector‹int> holds; `<div>` is a tag. [Source 2]"
    summary, _ = CitationTracker().finalize("Tea is cheap [Source 9].")
    assert "9" not in summary
