"""The tracker: one number a page, tags resolved, what the model must not write taken out."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3.citations import UNKNOWN_LINK
from m3.records import Page, page_from_parts
from tools import CitationTracker

TEXT = "The paper is at https://example.org/paper and says more."


def tracker(count: int = 3) -> CitationTracker:
    made = CitationTracker()
    for number in range(1, count + 1):
        made.register(
            Page(f"https://example.org/{number}", TEXT, title=f"Page {number}", links=("https://example.org/link",))
        )
    return made


def test_one_page_has_one_number_under_all_its_addresses() -> None:
    made = CitationTracker()
    first = made.register(Page("https://www.example.org/a?utm_source=x", TEXT, canonical_url="https://example.org/a"))
    assert made.register(Page("http://example.org/a/", TEXT)) is first
    assert made.register(Page("https://example.org/b", TEXT)).number == 2
    assert made.register(Page("notes/a.md", TEXT)).number == 3


@pytest.mark.parametrize(
    "draft, text, cited",
    [
        ("A fact [Source 2]. Another [Source 1].", "A fact [Source 1]. Another [Source 2].", [2, 1]),
        ("A fact [Source 3, 1].", "A fact [Source 1, 2].", [3, 1]),
        ("A fact [Sources 1 and 3].", "A fact [Source 1, 2].", [1, 3]),
        ("A fact [Source 1; Source 2].", "A fact [Source 1, 2].", [1, 2]),
        ("A fact [Source 1-3].", "A fact [Source 1, 2, 3].", [1, 2, 3]),
        ("A fact 【2】 and 【1†L1-L4】.", "A fact [Source 1] and [Source 2].", [2, 1]),
        ("A fact (Source 2).", "A fact [Source 1].", [2]),
        ("Eine Tatsache [Quelle 2].", "Eine Tatsache [Source 1].", [2]),
        ("事实[来源 2]。", "事实[Source 1]。", [2]),
        ("A fact \\[Source 2\\].", "A fact [Source 1].", [2]),
        ("A fact [2][3]. More [2].", "A fact [Source 1, 2]. More [Source 1].", [2, 3]),
        ("A fact [2]. More [Source 1].", "A fact [2]. More [Source 1].", [1]),
        ("A fact [Source 99].", "A fact.", []),
        ("A fact [Source 99, 2].", "A fact [Source 1].", [2]),
        ("A fact [Source 1][Source 1].", "A fact [Source 1][Source 1].", [1]),
        ("No citation at all.", "No citation at all.", []),
        ("", "", []),
    ],
)
def test_tags_are_resolved_and_numbered_by_first_appearance(draft: str, text: str, cited: list[int]) -> None:
    summary, sources = tracker().finalize(draft)
    assert summary == text
    assert [source.number for source in sources] == list(range(1, len(cited) + 1))
    assert [source.page.title for source in sources] == [f"Page {number}" for number in cited]


@pytest.mark.parametrize(
    "ending",
    [
        "\n\n## Sources\n\n1. [Page](https://example.org/1)\n2. https://example.org/2",
        "\n\nReferences:\n[1] Page one. https://example.org/1",
        "\n\n**Sources**\n- [Source 1] Page one\n- [Source 2] Page two\n",
        "\n\n---\n\nSources:\n* Page, www.example.org/1",
        "\n\n### Quellen\n1. Seite eins",
        "\n\n参考文献\n1. 页 https://example.org/1",
    ],
)
def test_a_bibliography_that_the_model_wrote_is_cut(ending: str) -> None:
    summary, sources = tracker().finalize("A fact [Source 2]." + ending)
    assert summary == "A fact [Source 1]."
    assert len(sources) == 1


def test_a_section_named_sources_with_prose_in_it_stays() -> None:
    draft = "A river.\n\n## Sources\n\nThe river springs from two lakes in the hills [Source 1]."
    assert tracker().finalize(draft)[0] == draft


@pytest.mark.parametrize(
    "draft, text",
    [
        ("See ![pixel](https://evil.example/?q=secret) here [Source 1].", "See pixel here [Source 1]."),
        ("See [the page](https://evil.example/) here [Source 1].", "See the page here [Source 1]."),
        ("See https://evil.example/x. Fine [Source 1].", f"See {UNKNOWN_LINK}. Fine [Source 1]."),
        ("See https://example.org/paper. Fine [Source 1].", "See https://example.org/paper. Fine [Source 1]."),
        ("See https://example.org/link [Source 1].", "See https://example.org/link [Source 1]."),
        ("\x1b[31mred\x1b[0m \u202efact [Source 1].", "red fact [Source 1]."),
    ],
)  # fmt: skip
def test_addresses_that_no_page_showed_do_not_reach_the_reader(draft: str, text: str) -> None:
    assert tracker().finalize(draft)[0] == text


drafts = st.lists(
    st.sampled_from(
        ["A fact", "more", ".", "\n\n", "- item ", "## Head\n", "[Source 1]", " [Source 3, 2]", "[Source 9]", "【2】",
         "(Source 3)", " [2]", "  ", "“quote”", "\n## Sources\n1. https://example.org/1\n", "![a](b)", "[t](https://x.y/)"]
    )
)  # fmt: skip


@given(drafts.map("".join))
def test_finalizing_twice_changes_nothing(draft: str) -> None:
    made = tracker()
    once = made.finalize(draft)
    assert made.finalize(once[0]) == once


@given(drafts.map("".join))
def test_every_tag_in_the_report_names_a_listed_source_and_every_listed_source_is_cited(draft: str) -> None:
    from m3.grounding.claims import split_claims
    from m3.grounding.tags import TAG, tag_numbers

    summary, sources = tracker().finalize(draft)
    named = {number for match in TAG.finditer(summary) for number in tag_numbers(match[0])}
    assert named == {source.number for source in sources}
    for claim in split_claims(summary):
        assert set(claim.cited) <= named


@pytest.mark.parametrize(
    "tag, numbers",
    [
        ("[Sources: 1, 2, and 3]", (1, 2, 3)),
        ("[Source 2](https://e2.example/p)", (1,)),
        ("[Source 2, p. 4]", (1,)),
        ("[Source 2, Section 3]", (1,)),
        ("[Source 2: its title]", (1,)),
        ("[Sources 2/3]", (1, 2)),
    ],
)
def test_a_tag_with_more_in_it_is_a_tag(tag: str, numbers: tuple[int, ...]) -> None:
    made = CitationTracker()
    for n in range(1, 5):
        made.register(page_from_parts(f"https://e{n}.example/p", [("paragraph", f"Page {n}")]))
    text, sources = made.finalize(f"A fact {tag}.")
    assert text == f"A fact [Source {', '.join(map(str, numbers))}]."
    assert [source.number for source in sources] == list(numbers)


@pytest.mark.parametrize("inside", ["1" * 60, "1" + " 1" * 2_000, "1" + ", " * 2_000, "1" + ",1" * 2_000])
def test_a_tag_that_never_closes_costs_no_time(inside: str) -> None:
    started = time.process_time()
    CitationTracker().finalize(f"A fact [Source {inside}x")
    assert time.process_time() - started < 5  # it took longer than the age of the universe
