"""What recall brings back and what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from m3 import recall
from m3.questions import lookup_stems, question_stems
from m3.report import FinalOutput
from m3.sessions import PastResearch
from memory_integration import LocalMemory
from tests.conftest import CASES


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


@pytest.mark.skipif(not (CASES / "recall").is_dir(), reason="the public recall cases are absent (M3_CASES)")
def test_a_right_session_is_among_three_for_four_new_questions_in_five(tmp_path: Path) -> None:
    store = LocalMemory(tmp_path / "m.sqlite")
    topics = {}
    for row in json.loads((CASES / "recall" / "stored.json").read_text()):
        topics[store.store_research(FinalOutput(row["query"], "", (), "answered")).id] = row["topic"]
    asked = json.loads((CASES / "recall" / "queries.json").read_text())
    right = sum(row["topic"] in [topics[p.id] for p in store.retrieve_related(row["query"])] for row in asked)
    assert right / len(asked) >= 0.80
