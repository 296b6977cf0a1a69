"""What recall brings back and what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from m3 import questions, recall
from m3.questions import lookup_stems, question_stems
from m3.report import FinalOutput
from m3.sessions import PastResearch
from memory_integration import LocalMemory
from tests.conftest import CASES, OWN_CASES


def session(query: str) -> PastResearch:
    return PastResearch(query[:16], query, "", stems=question_stems(query))


def shown(query: str, *stored: str, total: int = 50, df: dict[str, int] | None = None) -> list[str]:
    counts = df or {s: sum(s in question_stems(q) for q in stored) for s in lookup_stems(query)}
    return [p.query for p in recall.related(query, [session(q) for q in stored], counts, total, 3)]


@pytest.mark.parametrize(
    ("query", "stored", "related"),
    [
        ("Compare RAPTOR and HyDE for retrieval", "How does HyDE retrieval work?", True),
        ("How do I reset my router?", "resetting a router", True),
        ("best laptop for students in 2026", "best running shoes for flat feet", False),
        ("Was kostet eine Wärmepumpe?", "Kosten der Wärmepumpe im Altbau, was kostet sie", True),
        ("緑茶の作り方", "緑茶はどう作られますか", True),
        ("What is oolong tea?", "What is the speed of light?", False),
        ("5G against 4G", "How fast is 5G?", False),
        ("How fast is 5G?", "5G speed: how fast is it?", True),
        ("How much does a flight to Mars cost?", "How long does a flight to Mars take?", False),
        ("What does a flight to Mars cost?", "How much does a flight to Mars cost?", True),
        ("Wie laut ist eine Wärmepumpe?", "Lohnt sich eine Wärmepumpe im Altbau?", False),
        ("Wann lohnen sich Wärmepumpen in Altbauten?", "Lohnt sich eine Wärmepumpe im Altbau?", True),
        ("В каких продуктах есть витамин D?", "Сколько витамина D нужно взрослому в день?", False),
        ("Как настроить автовакуум в PostgreSQL?", "Настройка автовакуума PostgreSQL", True),
        ("Wie setzt man in Docker ein Limit?", "Docker limit", True),
    ],
)
def test_a_lead_is_shown_when_the_rare_words_agree(query: str, stored: str, related: bool) -> None:
    assert shown(query, stored) == ([stored] if related else [])


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    df = {"batteri": 400, "recycl": 3, "work": 500}
    found = shown("battery recycling works", "recycling of batteries", "battery works", df=df, total=1_000)
    assert found[0] == "recycling of batteries"


def test_three_leads_are_not_the_same_one_three_times() -> None:
    same = ["how is green tea made", "How is green tea made?", "tell me how green tea is made"]
    found = shown("how is green tea made", *same, "how is black tea made")
    assert found[0] in same and "how is black tea made" in found


def test_the_floor_falls_as_the_words_of_the_question_become_common_in_the_store() -> None:
    floors = [recall.floor(share) for share in (0.0, 0.001, recall.RARE, 0.02, 0.1, 1.0)]
    assert floors == sorted(floors, reverse=True) and floors[:3] == [recall.FLOOR] * 3 and 0 < floors[-1] < floors[3]


def test_nine_stems_choose_the_candidates_and_very_common_ones_do_not_while_three_rarer_remain() -> None:
    df = {f"s{n}": n for n in range(1, 30)} | {"everywhere": 900}
    chosen = recall.ranking_stems([*df, "unknown"], df, 1_000)
    assert list(chosen) == [f"s{n}" for n in range(1, 10)]
    assert list(recall.ranking_stems(["everywhere"], df, 1_000)) == ["everywhere"]
    rare = {"a": 1, "b": 2, "c": 3, "everywhere": 900}
    assert list(recall.ranking_stems(list(rare), rare, 1_000)) == ["a", "b", "c"]


def test_a_subject_on_which_much_was_researched_is_no_reason_to_show_any_of_it(tmp_path: Path) -> None:
    store = LocalMemory(tmp_path / "m.sqlite")
    for thing in "memory persistence clustering replication eviction pipelining transactions streams scripting".split():
        store.store_research(FinalOutput(f"How does {thing} work in Redis?", "", (), "answered"))
    assert store.retrieve_related("Which licence has Redis?") == []
    assert [p.query for p in store.retrieve_related("Redis replication")] == ["How does replication work in Redis?"]


@pytest.mark.parametrize("folded", [True, False])
def test_a_name_of_several_words_is_one_shared_word(folded: bool) -> None:
    query, stored = "Raspberry Pi 5 power consumption", "How much does a Raspberry Pi 5 cost?"
    assert shown(query, stored) == []
    same = "What is the power consumption of the Raspberry Pi 5?"
    assert shown(query.lower() if folded else query, same) == [same]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("How much does a Raspberry Pi 5 cost?", ["5 pi raspberry"]),
        ("Is Python 3.13 out, and what about the Boeing 737 MAX?", ["13 3 python", "737 boeing max"]),
        ("Wie groß ist der Kofferraum des Tesla Model Y?", ["model tesla"]),
        ("In 2024 Apple sold 5 phones", []),
        ("HOW MUCH DOES A RASPBERRY PI 5 COST", []),
        ("How Much Does A Raspberry Pi 5 Cost", []),
        ("한국 전통 차는 어떻게 만드나요", []),
        ("raspberry pi 5", []),
        ("", []),
    ],
)
def test_names_of_several_words(text: str, found: list[str]) -> None:
    assert [" ".join(sorted(name)) for name in questions.names(text)] == found


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("How long does a flight to Mars take?", {"duration"}),
        ("Was kostet ein Flug zum Mars?", {"price"}),
        ("Сколько стоит Raspberry Pi 5", {"price"}),
        ("Сколько времени лететь до Марса?", {"duration"}),
        ("Из-за чего затонул Титаник?", {"cause"}),
        ("How many people live where?", {"number", "place"}),
        ("How does it work?", {"manner"}),
        ("Memory footprint of Redis", set()),
        ("", set()),
    ],
)
def test_what_is_asked_about_a_subject(text: str, asked: set[str]) -> None:
    assert questions.aspects(text) == asked


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("bleached", "bleaching", True),
        ("sauerteig", "sauerteigbrot", True),
        ("wildbienen", "bienen", True),
        ("аккумулятор", "аккумулятора", True),
        ("docker", "dock", True),  # one of them as a German stem
        ("5", "50", False),
        ("2024", "20245", False),
        ("rust", "trust", False),
        ("price", "prime", False),
        ("緑茶", "緑色", False),
    ],
)
def test_forms_of_one_word(one: str, other: str, same: bool) -> None:
    assert questions.same_word(one, other) == questions.same_word(other, one) == same


def test_the_same_question_in_other_words_comes_back_and_another_one_on_its_subject_does_not(tmp_path: Path) -> None:
    """By the rows of the cases that served for no choice of a rule or constant."""
    groups = json.loads((OWN_CASES / "recall_subjects.json").read_text(encoding="utf-8"))
    store = LocalMemory(tmp_path / "m.sqlite")
    ids = [store.store_research(FinalOutput(group["stored"], "", (), "answered")).id for group in groups]
    right, wrong = [], []
    for id, group in zip(ids, groups, strict=True):
        if group["use"] == "held":
            right += [id in [p.id for p in store.retrieve_related(query)] for query in group["same"]]
            wrong += [bool(store.retrieve_related(query)) for query in group["other"]]
    assert len(right) == len(wrong) == 72
    assert sum(right) / len(right) >= 0.75 and sum(wrong) / len(wrong) <= 0.10


@pytest.mark.skipif(not (CASES / "recall").is_dir(), reason="the public recall cases are absent (M3_CASES)")
def test_a_right_session_is_among_three_for_four_new_questions_in_five(tmp_path: Path) -> None:
    store = LocalMemory(tmp_path / "m.sqlite")
    topics = {}
    for row in json.loads((CASES / "recall" / "stored.json").read_text()):
        topics[store.store_research(FinalOutput(row["query"], "", (), "answered")).id] = row["topic"]
    asked = json.loads((CASES / "recall" / "queries.json").read_text())
    right = sum(row["topic"] in [topics[p.id] for p in store.retrieve_related(row["query"])] for row in asked)
    assert right / len(asked) >= 0.80
