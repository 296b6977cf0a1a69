"""Documents and pages of any length: what a question or a claim needs of them is found, and no clock is overrun."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from config import load_config
from m3.grounding import Patience, rank_passages, verify
from m3.grounding import long_pages as long_pages_module
from m3.grounding.independence import disagreements, origins
from m3.grounding.numbers import Number, leading_digits, leading_ranges, numbers_in, same_number
from m3.grounding.windows import LONG
from m3.journal import Journal
from m3.plain_text import markdown_page
from m3.records import Message, Page, RunControl, page_from_parts
from m3.trace import trace_header
from m3_react_agent import run_react_loop
from tests.scripted import DictWeb, ScriptedLLM, action
from tests.test_trace import Replay, play

FACT = "The lighthouse of Marbeck has 214 steps and was built in 1911 by Ada Quill."
QUESTION = "How many steps does the lighthouse of Marbeck have?"


def prose(characters: int, seed: int = 1, fact_at: Sequence[float] = ()) -> str:
    """Paragraphs of made-up words with some figures, and FACT at these shares of the length."""
    chance = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(8_000)]
    parts: list[str] = []
    length, facts = 0, sorted(fact_at)
    while length < characters:
        sentences = []
        for _ in range(5):
            words = chance.choices(vocabulary, k=chance.randint(6, 20))
            figure = f" in {chance.randint(1800, 2020)} with {chance.randint(1, 99_999)} items"
            sentences.append(" ".join(words).capitalize() + (figure if chance.random() < 0.3 else "") + ".")
        if facts and length >= facts[0] * characters:
            sentences.insert(2, FACT)
            facts.pop(0)
        parts.append(" ".join(sentences))
        length += len(parts[-1]) + 2
    return "\n\n".join(parts)


def document(text: str, url: str = "notes/long.md") -> Page:
    return markdown_page(text, url)


# --- what is found ----------------------------------------------------------------------------------------


def test_the_passage_that_answers_is_found_in_the_depth_of_a_long_document() -> None:
    page = document(prose(1_500_000, fact_at=[0.7]))
    found = rank_passages(QUESTION, page, 200)
    assert any(FACT in passage.quote for passage in found)
    assert all(page.text[p.start : p.end] == p.quote for p in found)
    assert [p.start for p in found] == sorted(p.start for p in found)


def test_a_row_in_the_depth_of_a_long_table_comes_with_its_header() -> None:
    rows = [("table_row", "Town | Bridges")] + [("table_row", f"Place{n} | {n % 7}") for n in range(20_000)]
    rows[15_000] = ("table_row", "Marbeck | 214")
    quotes = [p.quote for p in rank_passages("How many bridges has Marbeck?", page_from_parts("t.csv", rows), 60)]
    assert "Town | Bridges" in quotes and "Marbeck | 214" in quotes


def test_a_long_page_is_judged_as_if_it_were_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = prose(400_000, fact_at=[0.9]) + "\n\nThe United Harbour Board said: “no ship shall ever pass here again”."
    chance = random.Random(4)
    sentences = [s for s in text.replace("\n\n", " ").split(". ") if 60 < len(s) < 200 and "“" not in s]
    claims = chance.sample(sentences, 8)
    damaged = [
        " ".join([*c.split()[:-2], "Zanzibar", str(4_000 + n)]) for n, c in enumerate(chance.sample(sentences, 6))
    ]
    others = [
        FACT[:-1],
        FACT[:-1].replace("214", "215"),
        FACT[:-1].replace("Ada Quill", "Bob Marley and Otto Hahn"),
        "The UHB said “no ship shall ever pass here again”",
        "The UHB said “no ship shall ever be allowed to pass here”",
        "The CERN said nothing of 77 oranges",
    ]
    summary = "\n".join(f"- {claim} [Source 1]." for claim in [*claims, *damaged, *others])
    pages = {1: document(text)}
    windows = verify(summary, pages)
    monkeypatch.setattr(long_pages_module, "LONG", 10**9)
    whole = verify(summary, pages)
    assert {c.verdict for c in whole.checks} >= {"matched", "not_found"} and len(whole.checks) == 20
    for seen, true in zip(windows.checks, whole.checks, strict=True):
        assert (seen.verdict, seen.missing, seen.flags) == (true.verdict, true.missing, true.flags), seen.claim
        assert all(pages[1].text[p.start : p.end] == p.quote for p in seen.passages)


def test_whatever_equals_a_number_is_among_what_may_be_its_writing() -> None:
    chance = random.Random(7)
    written = ["3.2 billion", "3,200,000,000", "3 200 000 000", "'63", "2018-19", "1990s", "two dozen", "24", "0.05",
               "5 %", "12,5", "1.200", "70b", "32 亿", "5.3.2019", "1,2,3", "12 345", "7"]  # fmt: skip
    written += [f"{chance.uniform(0, 10 ** chance.randint(0, 9)):,.{chance.randint(0, 2)}f}" for _ in range(300)]
    read: list[tuple[str, Number]] = [(w, n) for w in written for n in numbers_in(f"about {w} of it")]
    digits = {w: {d for part in w.split("-") for d in leading_digits(part)} for w in written}
    pairs = 0
    for _, claim in read:
        ranges = leading_ranges(claim)
        for w, other in read:
            if claim.values and same_number(claim, other) and any(c.isdigit() for c in other.text):
                pairs += 1
                assert any(low <= d <= high for low, high in ranges for d in digits[w]), (claim, w)
    assert pairs > 300


def test_long_copies_of_one_text_are_one_origin_and_long_different_texts_are_not() -> None:
    one, other = prose(300_000, 1), prose(300_000, 2)
    assert origins({1: one, 2: other, 3: "Preface\n\n" + one, 4: other[:100]}) == ((1, 3), (2,), (4,))


# --- what the clock leaves no time for --------------------------------------------------------------------


class StepClock:
    """A clock of which every reading takes a little time, and which a test can put forward."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 1_000.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_what_there_was_no_time_to_look_at_is_unchecked_with_the_reason_never_not_found() -> None:
    readings = iter([False] * 2 + [True] * 99)
    patience = Patience(lambda: next(readings))
    page = document(prose(900_000, fact_at=[0.01, 0.95]))
    claims = f"{FACT[:-1]} [Source 1]. The mayor of Zanzibar bought 4711 red umbrellas in Trieste [Source 1]."
    first, second = verify(claims, {1: page}, patience=patience).checks
    assert (first.verdict, second.verdict) == ("unchecked", "unchecked")
    assert "time" in first.why and "time" in second.why and patience.cut


def test_what_was_looked_at_in_time_still_bears_a_claim_out() -> None:
    page = document(prose(900_000, fact_at=[0.01]))
    readings = iter([False] * 4 + [True])
    half = Patience(lambda: next(readings, False))
    claims = f"{FACT[:-1]} [Source 1]. The mayor of Zanzibar bought 4711 red umbrellas in Trieste [Source 1]."
    found, missing = verify(claims, {1: page}, patience=half).checks
    assert half.cut and found.verdict == "matched"
    assert missing.verdict == "unchecked" and "characters" in missing.why


def cut_run(tmp_path: Path) -> tuple[Path, Any]:
    """A run whose model answers when the deadline has passed, over pages that take longer to check than is left."""
    clock = StepClock(0.06)
    control = RunControl(clock=clock)

    def late(messages: Sequence[Message]) -> str:
        clock.now, clock.step = (control.deadline or 0.0) + 0.2, 0.2
        return f"{FACT[:-1]} [Source 1]. It is 4711 years old [Source 2]."

    web = DictWeb({f"https://example.org/{n}": prose(2_000_000, n, fact_at=[0.5]) for n in (1, 2)})
    llm = ScriptedLLM(
        action("search", '{"query": "x"}'), action("fetch", '{"results": ["R1", "R2"]}'), action("finish"), late
    )
    config = load_config({"LLM_PROVIDER": "mock", "REPAIR": "tags"})
    journal = Journal(tmp_path / "trace.json.part")
    journal.begin(trace_header(QUESTION, config, llm.model))
    output = run_react_loop(QUESTION, config=config, llm=llm, search=web, fetcher=web, resume=journal, control=control)
    journal.close()
    assert journal.path is not None
    return journal.path, output


def test_a_run_that_the_clock_cut_is_replayed_to_the_same_verdicts(tmp_path: Path) -> None:
    path, output = cut_run(tmp_path)
    assert "unchecked" in {c.verdict for c in output.grounding.checks}
    assert '"kind": "cut"' in path.read_text("utf-8")
    again = play(Replay(path))
    assert again.summary == output.summary
    assert [(c.verdict, c.why) for c in again.grounding.checks] == [(c.verdict, c.why) for c in output.grounding.checks]


SHAPES: dict[str, Callable[[], str]] = {
    "prose of 3 MB": lambda: prose(3_000_000, fact_at=[0.5]),
    "one line": lambda: prose(2_000_000, fact_at=[0.5]).replace("\n\n", " "),
    "no blank at all": lambda: "abcdefghij" * 200_000,
    "figures": lambda: " ".join(str(n * 7919 % 99_991) for n in range(300_000)),
    "capitals and hyphens": lambda: "A-" * 500_000,
    "dates": lambda: "1/2/2019 " * 100_000,
    "one digit for ever": lambda: "0" * 1_000_000,
    "Han": lambda: "价格上涨百分之三十，灯塔有二百一十四级台阶。" * 40_000,
    "rows": lambda: "\n".join(f"| town{n} | {n} |" for n in range(60_000)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_document_holds_a_run_past_its_time(shape: str) -> None:
    """A fetcher that brings the document at once: all the time goes into ranking, extracting, writing and checking."""
    page = document(SHAPES[shape]())
    pages = {f"{n}.md": page.text + f"\n\n{n}" for n in range(4)}
    web = DictWeb(pages)
    claims = " ".join(
        f"Bob Marley of NATO counted {n}15 lighthouses in May {1900 + n},"
        f" not “a long quotation number {n}” [Source {n % 4 + 1}]."
        for n in range(12)
    )
    llm = ScriptedLLM(
        action("search", '{"query": "lighthouse"}'),
        action("fetch", '{"results": ["R1", "R2", "R3", "R4"]}'),
        *(action("extract", f'{{"source": {n}, "question": "{QUESTION} {n}"}}') for n in (1, 2, 3)),
        action("finish"),
        f"{FACT[:-1]} [Source 1]. {claims}",
    )
    config = load_config({"LLM_PROVIDER": "mock", "MAX_WALL_CLOCK_SECONDS": "2"})
    clock = time.process_time  # the work is all computing, and other programs on the machine shall not count
    started = clock()
    output = run_react_loop(QUESTION, config=config, llm=llm, search=web, fetcher=web, control=RunControl(clock=clock))
    assert clock() - started <= 3.0
    assert output.elapsed_seconds <= 3.0


def test_comparing_sources_ends_by_the_clock_too() -> None:
    page = document(prose(700_000, fact_at=[0.2]))
    report = verify(f"{FACT[:-1]} [Source 1].", {1: page, 2: document(prose(700_000, 2), "b.md")})
    over = Patience(lambda: True)
    assert disagreements(report, {1: page, 2: page}, patience=over) == ()
    assert origins({1: page, 2: page}, patience=over) == ((1,), (2,)) and over.cut


def test_a_page_just_above_the_bound_is_no_other_than_one_just_below() -> None:
    below = document(prose(LONG - 2_000, fact_at=[0.4]))
    above = document(prose(LONG - 2_000, fact_at=[0.4]) + "\n\n" + prose(5_000, 9))
    assert len(below.text) <= LONG < len(above.text)
    assert [rank_passages(QUESTION, p, 120)[0].quote for p in (below, above)][0].count("Marbeck") == 1
    assert all(any(FACT in q.quote for q in rank_passages(QUESTION, p, 120)) for p in (below, above))
