"""Verdicts, passages and offsets, through `verify`."""

from __future__ import annotations

import json
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from m3.grounding import verify
from m3.grounding.language import language_of
from m3.grounding.numbers import numbers_in
from m3.grounding.quotations import NormalText
from m3.records import Page
from tests.conftest import CASES

BATTERY = (
    "Battery report 2024\n"
    "Solid-state cells cycled at 45 C lost 18 percent of nominal capacity after 800 cycles. "
    "Identical cells held at 25 C lost only 6 percent over the same period. "
    "The measurements were made by Maria Keller at the Paul Scherrer Institute.\n"
    "In 2021 the programme cost 3,214 million euros. It did not include lithium-sulfur cells. "
    "Prices of lithium carbonate fell by 80 percent between late 2022 and early 2024.\n"
    "“We were surprised by how little the cold cells aged,” said Keller.\n"
)
OUTLOOK = (
    "Market outlook\nAnalysts expect sodium-ion batteries to take a tenth of the stationary storage market by 2030. "
    "The forecast rests on interviews with forty manufacturers in Europe and in Asia. Costs of a sodium-ion pack are "
    "put at 52 dollars per kilowatt-hour.\n"
)


@pytest.mark.parametrize(
    "claim, verdict, why",
    [
        ("Solid-state cells lost 18 % of nominal capacity after 800 cycles at 45 C.", "matched", ""),
        ("Solid-state cells lost 19 % of nominal capacity after 800 cycles at 45 C.", "not_found", "19"),
        ("In 2021 the programme cost 3.2 billion euros.", "matched", ""),
        ("In 2021 the programme cost 3.4 billion euros.", "not_found", "3.4 billion"),
        ("In 2020 the programme cost 3.2 billion euros.", "not_found", "2020"),
        ("The measurements were made by Maria Keller at the Paul Scherrer Institute.", "matched", ""),
        ("The measurements were made by Jonas Weber at the Paul Scherrer Institute.", "not_found", "Jonas, Weber"),
        ("The measurements were made by Maria Weber at the Paul Scherrer Institute.", "partly", "Weber"),
        ("Prices of lithium carbonate rose by 80 percent between late 2022 and early 2024.", "partly", "rose / fell"),
        ("It included lithium-sulfur cells in the programme cost of 2021.", "partly", "negation"),
        ("Keller said: “We were surprised by how little the cold cells aged.”", "matched", ""),
        ("Keller said: “We were shocked by how quickly every cell caught fire.”", "not_found", "quotation"),
        ("Whales sing complicated songs for many hours every winter.", "not_found", "words not in the passages"),
    ],
)
def test_a_claim_gets_the_verdict_that_its_page_bears_out(claim: str, verdict: str, why: str) -> None:
    check = verify(f"{claim} [Source 1]", {1: BATTERY}).checks[0]
    assert (check.verdict, check.source) == (verdict, 1)
    assert why in check.why
    assert bool(check.why) == (verdict != "matched")
    if verdict in ("matched", "partly"):
        assert 1 <= len(check.passages) <= 3


@pytest.mark.parametrize(
    "claim, page, equal",
    [
        ("3.2 billion", "3,200,000,000", True),
        ("$3.2bn", "3 214 million", True),
        ("3.2 billion", "3.2 million", False),
        ("3.2 billion", "3.4 billion", False),
        ("51.5 %", "51.5 percent", True),
        ("51.5 %", "51.46", True),
        ("51.5 %", "5.15", False),
        ("51.5 %", "52", False),
        ("about 500", "497", True),
        ("500", "450", False),
        ("2021", "2020-21", True),
        ("2021", "2020", False),
        ("twenty-five", "25", True),
        ("25", "twenty-five", True),
        ("25", "2.5", False),
        ("7", "seven", True),
        ("7", "eight", False),
        ("1,200", "1200", True),
        ("3.11.2", "version 3.11.2", True),
        ("3.11.2", "version 3.11.4", False),
        ("120 million", "1.2亿", True),
        ("120 million", "1.3亿", False),
        ("the 1990s", "in 1994", True),
        ("12%", "12 %", True),
        ("5k", "5,000", True),
        ("63 million", "63", False),
    ],
)
def test_numbers_are_compared_by_value(claim: str, page: str, equal: bool) -> None:
    text = f"The inventory of the northern depot counted {page} altogether, said the manager of the depot."
    check = verify(f"The inventory of the northern depot counted {claim} altogether. [Source 1]", {1: text}).checks[0]
    assert (check.verdict == "matched") == equal, check


@pytest.mark.parametrize(
    "claim, page, matched",
    [
        ("Im Jahr 2021 kostete das Programm 3,2 Milliarden Euro.", "3.214 Millionen", True),
        ("Im Jahr 2021 kostete das Programm 3,2 Milliarden Euro.", "3,5 Milliarden", False),
        ("Im Jahr 2021 kostete das Programm 1.500 Euro.", "1500", True),
    ],
)
def test_german_numbers_are_read_with_decimal_commas(claim: str, page: str, matched: bool) -> None:
    text = (
        f"Der Bericht ist aus dem Ministerium. Im Jahr 2021 kostete das Programm {page} Euro. Es wird nicht verlängert."
    )
    check = verify(f"{claim} [Source 1]", {1: text}).checks[0]
    assert (check.verdict == "matched") == matched, check


def test_every_kind_of_sentence_is_counted_once() -> None:
    summary = f"""Solid-state cells lost 18 percent of nominal capacity after 800 cycles. [Source 1]
Sodium-ion batteries are to take a tenth of the stationary storage market by 2030 [Source 2]. The moon is made of old
green cheese, as everybody at the bakery knows. Is that so? A pack costs 52 dollars [Source 7].

## What stays open

- Cells at 25 C lost only 6 percent over the same period [Source 1].
- The sources do not say how cells behave below zero.

| What | Value |
|---|---|
| Cost of a sodium-ion pack | 52 dollars per kilowatt-hour [Source 2] |

```
code is not a claim [Source 1]
```

## References
1. Battery report, https://example.org/battery
2. {OUTLOOK.splitlines()[0]}
"""
    report = verify(summary, {1: BATTERY, 2: OUTLOOK})
    assert report.counts() == {
        "statements": 6, "cited": 5, "matched": 4, "partly": 0, "not_found": 1, "unchecked": 0, "uncited": 1,
    }  # fmt: skip
    assert report.line() == (
        "6 statements, 5 cited; 4 matched to a passage, 0 partly, 1 not found, 0 could not be checked"
    )
    unknown = next(check for check in report.checks if check.source == 7)
    assert (unknown.verdict, unknown.better_source) == ("not_found", 2)
    assert "no such source" in unknown.why
    for check in report.checks:
        assert summary[check.start : check.end].strip()
        assert check.claim.split()[0] in summary[check.start : check.end]


def test_a_sentence_of_two_halves_is_borne_out_by_its_two_sources_together() -> None:
    claim = "Cells at 45 C lost 18 percent of capacity, while a sodium-ion pack is put at 52 dollars per kilowatt-hour"
    report = verify(f"{claim} [Source 1, 2].", {1: BATTERY, 2: OUTLOOK})
    assert [check.verdict for check in report.checks] == ["matched", "matched"]
    assert "together with Source 2" in report.checks[0].why


def test_a_source_that_adds_nothing_is_not_borne_up_by_the_other() -> None:
    report = verify("Cells at 25 C lost only 6 percent over the same period [Source 1, 2].", {1: BATTERY, 2: OUTLOOK})
    assert [check.verdict for check in report.checks] == ["matched", "not_found"]
    assert report.counts()["matched"] == 1


@pytest.mark.parametrize("end", ["\n", "\n \n", " \n", "\r\n"])
def test_the_blank_between_two_lines_stands_where_the_first_line_ends(end: str) -> None:
    first, second = "A title of some length", "The cells caught fire on that morning."
    normal = NormalText(f"{first}{end}{second}")
    for at, letter in enumerate(normal.plain):
        start, stop = normal.span(at, at + 1)
        assert normal.plain[at] == (" " if at == len(first) else letter) and stop == start + 1
        assert start == (at if at <= len(first) else at + len(end) - 1)
    found = normal.find("x" + second)  # with a slip at its beginning
    assert found is not None and found[0] >= len(first)


def test_telling_a_pages_language_does_not_keep_the_page() -> None:
    text = "The cells of the battery were made in the town. " * 1_000
    before = sys.getrefcount(text)
    assert language_of(text) == "en"
    assert sys.getrefcount(text) == before


def test_another_page_that_bears_the_claim_out_is_named() -> None:
    check = verify(
        "A sodium-ion pack is put at 52 dollars per kilowatt-hour [Source 1].", {1: BATTERY, 2: OUTLOOK}
    ).checks[0]
    assert (check.verdict, check.better_source) == ("not_found", 2)
    assert "Source 2 does have it" in check.why


@pytest.mark.parametrize(
    "page, why",
    [
        ("", "no text"),
        ("Loading, please wait. JavaScript is required.", "too little text"),
        ("Bitte warten Sie. Der Artikel über die Wale ist auf der Seite für Nutzer nicht zu sehen. " * 3, "language"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_kept_apart_from_what_was_not_found(page: str, why: str) -> None:
    claim = (
        "Whales are said to sing complicated songs for many hours in the winter, and that is the time of the storms."
    )
    check = verify(f"{claim} [Source 1]", {1: page}).checks[0]
    assert check.verdict == "unchecked"
    assert why in check.why


def test_a_search_snippet_never_gives_more_than_partly() -> None:
    page = Page("https://example.org/", "Identical cells held at 25 C lost only 6 percent.", kind="snippet")
    check = verify("Identical cells held at 25 C lost only 6 percent [Source 1].", {1: page}).checks[0]
    assert (check.verdict, "snippet" in check.why) == ("partly", True)


def test_a_pronoun_is_checked_with_the_sentence_before_it() -> None:
    report = verify("The programme cost 3.2 billion euros in 2021. It was cheap and quick [Source 1].", {1: BATTERY})
    assert report.checks[-1].verdict == "partly"
    assert report.checks[-1].passages[0].quote.startswith("In 2021 the programme")


@pytest.mark.parametrize(
    "tag",
    ["[Source 1]", "[source 1]", "[Sources 1]", "[Source: 1]", "[Source #1]", "(Source 1)", "【1】", "【1†battery】",
     "[Source 1, Source 1]", "[Quelle 1]", "[来源1]", "[Источник 1]"],
)  # fmt: skip
def test_every_form_of_a_tag_is_understood_before_and_after_the_full_stop(tag: str) -> None:
    claim = "Identical cells held at 25 C lost only 6 percent over the same period"
    for text in (f"{claim} {tag}.", f"{claim}. {tag}", f"{claim}.{tag} Whales sing for many hours every winter."):
        check = verify(text, {1: BATTERY}).checks[0]
        assert (check.verdict, check.source, check.claim.rstrip(".")) == ("matched", 1, claim), text


@pytest.mark.parametrize(
    "text, sentences",
    [
        ("Dr. A. Smith of the U.S. Army left. He came back.", 2),
        ("It costs approx. 3.5 million (cf. Fig. 2). See p. 14 for that matter, e.g. the table.", 2),
        ("Version 3.11.2 of node.js was released at example.org/a.b. It runs fast!", 2),
        ('He asked why? Nobody knew. "So be it." They left the room.', 4),
        ("Das war am 3. März 2021 in Bonn. Es kostete z.B. 3,5 Mio. Euro im Jahr.", 2),
        ("模型很小。它很快！真的吗？", 3),
        ("Это было в 1999 г. в Москве. Их было 5 млн. человек.", 2),
        ("The end came quickly.Then it was over for good.", 2),
        ("One fact stands here. [Source 1] Another one follows. [Source 2]", 2),
    ],
)
def test_sentences_are_cut_where_a_reader_would(text: str, sentences: int) -> None:
    from m3.grounding import split_sentences

    spans = split_sentences(text)
    assert len(spans) == sentences, [text[a:b] for a, b in spans]


texts = st.text(
    alphabet=st.sampled_from("abc dé.!?\n|#-*[]()1239,%“”\"'Source 不模型。й\u00a0\u200b\u0301\t🙂ßﬁ"), max_size=200
)


@settings(max_examples=150, deadline=None)
@given(summary=texts, page=texts)
def test_offsets_always_give_the_quote_and_nothing_raises(summary: str, page: str) -> None:
    summary = f"{summary} [Source 1] and “{page[:60]}” [Source 2]."
    first = verify(summary, {1: page, 2: Page("https://example.org/x?y=[", page + BATTERY, title=summary)})
    for check in first.checks:
        text = {1: page, 2: page + BATTERY}.get(check.source or 0, "")
        for passage in check.passages:
            assert text[passage.start : passage.end] == passage.quote
        assert 0 <= check.start <= check.end <= len(summary)
    assert first == verify(summary, {1: page, 2: Page("https://example.org/x?y=[", page + BATTERY, title=summary)})


def test_the_same_input_gives_the_same_bytes() -> None:
    summary = (
        "Cells at 25 C lost 6 percent [Source 1]. Costs of a pack are 52 dollars [Source 2, 1]. Nobody knows more."
    )
    runs = {json.dumps(verify(summary, {1: BATTERY, 2: OUTLOOK}).to_dict(), sort_keys=True) for _ in range(3)}
    assert len(runs) == 1


def test_a_hostile_text_does_not_stall_the_check() -> None:
    started = time.process_time()
    for text in ("a." * 50_000, "[Source " * 20_000, "“" * 50_000, "1,000" * 20_000, "Aa " * 60_000, "((((" * 20_000):
        verify(f"{text[:20_000]} [Source 1].", {1: text})
    assert time.process_time() - started < 30


@pytest.mark.skipif(not (CASES / "citations").is_dir(), reason="no citation cases; set M3_CASES")
def test_thirty_statements_over_twenty_pages_of_thirty_kilobytes_are_checked_quickly() -> None:
    lines = (CASES / "citations" / "wice" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    whole = "\n".join(sentence for case in cases for sentence in case["doc_sentences"])
    pages: dict[int, str | Page] = {i + 1: whole[i * 30_000 : (i + 1) * 30_000] for i in range(20)}
    summary = " ".join(f"{case['claim']} [Source {i % 20 + 1}]" for i, case in enumerate(cases[:30]))
    started = time.process_time()
    assert len(verify(summary, pages).checks) >= 30
    assert time.process_time() - started < 10  # measured: under 3 s


def test_a_copied_sentence_writes_its_numbers_as_its_page_does_whatever_the_summary_is_written_in() -> None:
    german = "Die Lampe wurde im Jahr 1879 von der Firma und von dem Erfinder auf den Markt gebracht und verkauft."
    english = "An LED lamp lasts 15,000 to 25,000 hours."
    summary = f"{german} [Source 1] {english} [Source 2]"
    checks = verify(summary, {1: german, 2: f"LED lamps are lamps. {english}"}).checks
    assert [c.verdict for c in checks] == ["matched", "matched"]
    altered = verify(summary.replace("25,000", "26,500"), {1: german, 2: f"LED lamps are lamps. {english}"}).checks
    assert altered[1].verdict != "matched"


FILLER = (
    " The committee met again in the spring to review the state of the project. Several members had asked for more time"
    " to study the papers. The minutes were published on the website of the office and can be read there by everyone."
)


@pytest.mark.parametrize(
    "claim, page, matched",
    [
        # what stands beside a number
        ("The cable is 120 miles long.", "The cable is 120 kilometres long.", False),
        ("The cable is 120 km long.", "The cable is 120 kilometres (75 miles) long.", True),
        ("The cable is 75 miles long.", "The cable is 120 kilometres (75 miles) long.", True),
        ("The prize is $500.", "The prize is €500.", False),
        ("The sensor draws 300 mA.", "The sensor draws 300mA.", True),
        ("The melting point is -39 °C.", "The melting point is 39 °C.", False),
        ("The melting point is -39 °C.", "The melting point is −39 °C.", True),
        # dates
        ("The law was passed on 3 June 2019.", "The law was passed on 3 May 2019.", False),
        ("The law was passed on 2019-05-03.", "The law was passed on May 3, 2019.", True),
        ("The law was passed on May 3, 2019.", "The law was passed on 03.05.2019.", True),
        # numbers in words
        ("A hundred and fifty people came to the meeting.", "150 people came to the meeting.", True),
        ("Two thousand five hundred people came to it.", "2,500 people came to it.", True),
        ("The survey covered three cities.", "The survey covered 3 cities.", True),
        ("The survey covered seven cities in Norway.", "The survey covered five cities in Norway.", False),
        ("One of the cities in the survey is Bergen.", "Bergen is a city in the survey.", True),
        # quotations
        ("Smith called it ‘a great success for everyone’.", "Smith called it “a great success for everyone”.", True),
        ("Smith called it ‘a great failure for everyone’.", "Smith called it “a great success for everyone”.", False),
        ("Er nannte es »einen großen Erfolg für alle«.", "Er nannte es „einen großen Erfolg für alle“.", True),
        ("Er nannte es »einen großen Fehler für alle«.", "Er nannte es „einen großen Erfolg für alle“.", False),
        (
            "She wrote: “After the long winter the number of wild reindeer on the plateau had clearly grown.”",
            "She wrote: “After the long winter the number of wild reindeer on the plateau had clearly shrunk.”",
            False,
        ),
        # scripts that mark no names
        ("上海是中华人民共和国的首都。", "北京是中华人民共和国的首都。", False),
        ("北京是中华人民共和国的首都。", "北京是中华人民共和国的首都。", True),
        # opposites and negations of other languages
        ("Цены выросли после реформы рынка.", "Цены снизились после реформы рынка.", False),
        ("Las ventas subieron tras la reforma.", "Las ventas bajaron tras la reforma.", False),
        ("The vaccine wasn't effective in children.", "The vaccine was not effective in children.", True),
    ],
)
def test_small_distortions_do_not_match_and_other_spellings_do(claim: str, page: str, matched: bool) -> None:
    (check,) = verify(f"{claim} [Source 1]", {1: page + FILLER}).checks
    assert (check.verdict == "matched") == matched, check.why


def test_a_german_month_is_no_negation() -> None:
    page = (
        "Das Gesetz wurde am 03.05.2019 vom Bundestag verabschiedet. Der Ausschuss hat das Protokoll nach der Sitzung"
        " veröffentlicht, und es kann von allen gelesen werden. Die Mitglieder haben um mehr Zeit gebeten."
    )
    (check,) = verify("Das Gesetz wurde am 3. Mai 2019 vom Bundestag verabschiedet. [Source 1]", {1: page}).checks
    assert "negation" not in check.why
    assert not check.missing


def test_numerals_of_han_are_numbers() -> None:
    (check,) = verify(
        "该市有2100万人口。 [Source 1]", {1: "该市人口为二千一百万。" + "委员会在春天再次开会审查项目。" * 8}
    ).checks
    assert not check.missing


def test_the_time_to_find_numbers_grows_with_the_text_and_not_with_its_square() -> None:
    def seconds(count: int) -> float:
        started = time.process_time()
        assert len(numbers_in(" ".join(f"item {i}" for i in range(count)))) == count
        return time.process_time() - started

    seconds(100)
    assert seconds(16_000) < 10 * seconds(4_000) + 0.1


@pytest.mark.parametrize(
    ("text", "quotation", "stands"),
    [
        ("He\n\n\t said “the whole\u00a0 of  it”\n \tand left.", "the Whole of it", "the whole\u00a0 of  it"),
        ("One\n \r\n  ﬁrst … line\u00ad  \n\u200b \nlast", "first ... line last", "ﬁrst … line\u00ad  \n\u200b \nlast"),
        ("  İ one\u2028two — 数据 ３　x \n", "one two - 数据 3 x", "one\u2028two — 数据 ３　x"),
        ("a soft\u00adhyphen ends\n", "softhyphen ends", "soft\u00adhyphen ends"),
        ("a soft\u00adhyphen ends\n", "hyphen begins", None),
    ],
)
def test_a_quotation_is_found_whatever_its_marks_and_blanks_are(text: str, quotation: str, stands: str | None) -> None:
    span = NormalText(text).find(quotation)
    assert (None if span is None else text[slice(*span)]) == stands
