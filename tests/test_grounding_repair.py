"""What happens to sentences that their sources do not bear out: from the draft to the printed report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from config import load_config
from m3.grounding import verify
from m3.grounding.independence import disagreements, origins
from m3.grounding.repair import correct_tags, with_tag
from m3.records import Message, Page
from m3.report import FinalOutput
from m3_react_agent import run_react_loop
from tests.scripted import DictWeb, ScriptedLLM, action

PAGES = {
    "https://example.org/oolong": (
        "Oolong is a partly oxidised tea from Fujian and Taiwan. Its leaves are oxidised to between 8 and 85 percent. "
        "In 2019 Taiwan produced 14,800 tonnes of tea, most of it oolong. The leaves are rolled and roasted by hand in "
        "small workshops, and the best of them come from the hills around Anxi."
    ),
    "https://example.org/green": (
        "Green tea is not oxidised at all. The leaves are steamed in Japan and fired in pans in China. "
        "Japan exported 5,108 tonnes of green tea in 2018, mostly to the United States. Steaming keeps the colour of "
        "the leaf, while the pan gives it a nutty taste that many drinkers prefer."
    ),
}
GOOD = "Oolong is a partly oxidised tea from Fujian and Taiwan [Source 1]."
WRONG_SOURCE = "Japan exported 5,108 tonnes of green tea in 2018 [Source 1]."
INVENTED = "In 2019 Taiwan produced 19,800 tonnes of tea [Source 1]."
NO_SUCH = "The leaves of oolong cure every known disease of cattle [Source 99]."
MISQUOTED = "The growers say “we roast every leaf seven times over” [Source 1]."
UNCITED = "Everybody loves a strong cup in the afternoon anyway."
BIBLIOGRAPHY = "\n\n## References\n\n1. Smith, J. (2020). Tea. https://tea.example/smith"
DRAFT = " ".join([GOOD, WRONG_SOURCE, INVENTED, NO_SUCH, MISQUOTED, UNCITED]) + BIBLIOGRAPHY


def research(report: str, *, answers: str | None = None, mode: str = "rewrite") -> tuple[FinalOutput, ScriptedLLM]:
    """A run that searches, reads both pages and writes `report`; `answers` is the reply to the repair call."""
    lines: list[Any] = [
        action("search", '{"query": "tea"}'),
        action("fetch", '{"results": ["R1", "R2"]}'),
        action("finish"),
    ]
    llm = ScriptedLLM(*lines, report, *([answers] if answers is not None else []))
    web: Any = DictWeb(PAGES)
    config = load_config({"CITATION_REPAIR": mode})
    return run_react_loop("What is oolong tea?", config=config, llm=llm, search=web, fetcher=web), llm


def verdict_of(output: FinalOutput, words: str) -> str:
    return next(check.verdict for check in output.grounding if words in check.claim)


def test_every_sentence_of_a_dishonest_model_is_mended_or_marked_and_the_counts_are_true() -> None:
    output, _ = research(DRAFT)
    assert output.outcome == "answered"
    assert "References" not in output.summary and "tea.example" not in output.to_markdown()
    assert "Source 99" not in output.summary
    verdicts = [statement.verdict for statement in output.grounding.statements]
    assert verdicts == ["matched", "matched", "not_found", "uncited", "not_found", "uncited"]
    assert output.grounding.line() == (
        "6 statements, 4 cited; 2 matched to a passage, 0 partly, 2 not found, 0 could not be checked"
    )
    markdown = output.to_markdown()
    assert "19,800 tonnes of tea [Source 1 ?]" in markdown
    assert "seven times over” [Source 1 ?]" in markdown
    assert "disease of cattle. [no source]" in markdown
    assert output.grounding.line() in markdown
    assert "not on the page: 19,800" in markdown
    assert "nothing read is Source 99" in markdown
    japan = next(check for check in output.grounding if "5,108" in check.claim)
    assert output.sources[(japan.source or 0) - 1].url == "https://example.org/green"
    for source in output.sources:
        for check in output.checks_of(source.number):
            for passage in check.passages:
                assert source.page.text[passage.start : passage.end] == passage.quote


def test_the_repair_call_sees_only_failing_sentences_and_only_better_ones_are_taken() -> None:
    def answer(messages: Sequence[Message]) -> str:
        text = messages[-1]["content"]
        assert "19,800" in text and "14,800" in text
        assert GOOD not in text and "5,108 tonnes of green tea in 2018 [Source" not in text
        number = {key: int(re.search(rf"id (\d+)\nsentence: [^\n]*{key}", text)[1]) for key in ("19,800", "seven")}  # type: ignore[index]
        rows = [
            {
                "id": number["19,800"],
                "action": "rewrite",
                "text": "In 2019 Taiwan produced 14,800 tonnes of tea.",
                "sources": [1],
            },
            {
                "id": number["seven"],
                "action": "rewrite",
                "text": "The growers roast it 777 times [Source 1].",
                "sources": [1],
            },
            {"id": 4_000, "action": "rewrite", "text": "Nonsense [Source 1]."},
        ]
        return f"Here you are:\n```json\n{json.dumps(rows)}\n```"

    output, llm = research(DRAFT, answers=answer)  # type: ignore[arg-type]
    assert len(llm.prompts) == 5
    assert "In 2019 Taiwan produced 14,800 tonnes of tea [Source 1]." in output.summary
    assert verdict_of(output, "14,800") == "matched"
    assert "777" not in output.summary and "seven times over" in output.summary
    assert output.summary.startswith(GOOD)
    assert "1 sentence was rewritten, the source tags of 2 sentences were corrected" in output.to_markdown()


@pytest.mark.parametrize(
    "answers", ["no JSON at all", "[]", '[{"id": "x"}]', "[" * 5_000, '{"id": 1, "action": "drop"}', "null"]
)
def test_a_useless_answer_to_the_repair_call_changes_nothing(answers: str) -> None:
    assert research(DRAFT, answers=answers)[0].summary == research(DRAFT, mode="tags")[0].summary


def test_repair_off_changes_no_sentence_and_strict_leaves_nothing_unfound() -> None:
    off, llm = research(DRAFT, mode="off")
    assert len(llm.prompts) == 4
    assert verdict_of(off, "5,108") == "not_found"
    assert WRONG_SOURCE in off.summary
    strict, _ = research(DRAFT, mode="strict")
    assert not [s for s in strict.grounding.statements if s.verdict == "not_found"]
    assert "19,800" not in strict.summary
    assert "19,800" in strict.to_markdown()  # removed, but said so


def test_a_report_that_matches_is_left_byte_for_byte_and_costs_no_further_call() -> None:
    report = (
        f"{GOOD}\n\n## Trade\n\n- Japan exported 5,108 tonnes of green tea in 2018 [Source 2].\n- Fine  points: none?"
    )
    output, llm = research(report)
    assert output.summary.replace("  ", " ") == report.replace("  ", " ")
    assert len(llm.prompts) == 4


@pytest.mark.parametrize("report", [INVENTED, NO_SUCH, UNCITED, "The sources read do not answer the question."])
def test_a_run_whose_citations_are_all_unfounded_abstains(report: str) -> None:
    output, _ = research(report)
    assert (output.outcome, output.exit_code, output.sources) == ("abstained", 4, ())
    assert output.summary.startswith("Nothing in the sources that were read supports an answer")


def test_a_report_on_pages_in_another_language_is_shown_but_not_called_answered() -> None:
    web: Any = DictWeb({"https://example.org/ru": "Улун это полуферментированный чай из Фуцзяни. " * 12})
    llm = ScriptedLLM(
        action("search", '{"query": "tea"}'), action("fetch", '{"results": ["R1"]}'), action("finish"),
        "Oolong is the tea that is partly oxidised and it comes from the hills of the south [Source 1].",
    )  # fmt: skip
    output = run_react_loop("What is oolong tea?", config=load_config({}), llm=llm, search=web, fetcher=web)
    assert output.outcome == "abstained"
    assert "partly oxidised" in output.summary and len(output.sources) == 1
    assert "could be checked" in " ".join(output.warnings)


def test_a_wrong_tag_is_replaced_only_where_another_page_bears_the_sentence_out() -> None:
    pages = dict(enumerate(PAGES.values(), 1))
    summary = f"- {WRONG_SOURCE}\n- {INVENTED}\n- {GOOD}"
    mended, changes = correct_tags(summary, verify(summary, pages), pages)
    assert mended == summary.replace(WRONG_SOURCE, WRONG_SOURCE.replace("Source 1", "Source 2"))
    assert [change.kind for change in changes] == ["tag"]


@pytest.mark.parametrize(
    "sentence, sources, expected",
    [
        ("A fact [Source 1].", [2], "A fact [Source 2]."),
        ("A fact. [Source 1]", [2, 3], "A fact. [Source 2, 3]"),
        ("A fact [Source 1].", [], "A fact."),
        ("A [Source 1] fact [Source 3].", [2], "A [Source 2] fact."),
        ("A fact.", [2], "A fact [Source 2]."),
        ("A fact", [2], "A fact [Source 2]"),
    ],
)
def test_a_sentence_gets_one_tag(sentence: str, sources: list[int], expected: str) -> None:
    assert with_tag(sentence, sources) == expected


def test_copies_of_one_text_are_one_origin() -> None:
    one = PAGES["https://example.org/oolong"]
    copy = "Reprinted with permission. " + one + " Copyright of the agency."
    assert origins({1: one, 2: PAGES["https://example.org/green"], 3: copy}) == ((1, 3), (2,))
    assert origins({1: one, 2: "too short"}) == ((1,), (2,))


def test_different_figures_for_one_thing_are_put_side_by_side_with_their_dates() -> None:
    pages: dict[int, str | Page] = {
        1: Page("https://a.example/", "In 2019 Taiwan produced 14,800 tonnes of tea.", published="2020-01-01"),
        2: Page("https://b.example/", "Taiwan produced 15,200 tonnes of tea in 2019.", published="2021-01-01"),
        3: Page("https://c.example/", "Taiwan produced 13,000 tonnes of tea in 2012.", published="2013-01-01"),
    }
    summary = "In 2019 Taiwan produced 14,800 tonnes of tea [Source 1]. More on tea in Taiwan [Source 2, 3]."
    (found,) = disagreements(verify(summary, pages), pages)
    assert [(f.source, f.value, f.published) for f in found.figures] == [
        (1, "14,800 tonnes", "2020-01-01"),
        (2, "15,200 tonnes", "2021-01-01"),
    ]
