"""The offline mock on subjects that nobody prepared it for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from config import load_config
from m3.comparison import sides_of
from m3.grounding.repair import Item
from m3.mock_llm import MockLLMClient
from m3.prompts import repair_messages
from m3.records import RunControl
from m3.report import FinalOutput
from m3_react_agent import run_react_loop

HEATING = {
    "heat-pumps.md": """# Heat pumps

A heat pump moves heat from the outside air, the ground or water into a building. It uses electricity.

## Efficiency

Heat pumps deliver about three units of heat for each unit of electricity in mild weather. The efficiency of a heat
pump falls when the outside air gets colder. A heat pump works best with underfloor heating or large radiators.

## Cost

The installation of a heat pump costs more than the installation of a gas boiler.
""",
    "gas-boilers.txt": """Gas boilers

A gas boiler burns natural gas to heat water for radiators and taps. Condensing gas boilers recover heat from the
exhaust gas. Modern gas boilers reach efficiencies above 90 per cent.

Gas boilers are cheap to install where a gas connection exists. Burning gas releases carbon dioxide.
""",
    "costs.csv": "system,installation,service\nheat pump,high,low\ngas boiler,low,medium\n",
    "sub/insulation.html": "<html><head><title>Insulation first</title></head><body><nav>Home</nav><main>"
    "<h1>Insulation first</h1><p>In a well insulated house a heat pump runs at low temperatures and a gas boiler can "
    "be smaller.</p></main></body></html>",
}
GERMAN = {
    "faultier.md": "# Faultier\n\nDas Faultier lebt in den Bäumen Südamerikas. Das Faultier schläft viele Stunden am "
    "Tag. Das Faultier frisst Blätter.\n",
    "biber.md": "# Biber\n\nDer Biber lebt an Flüssen und Seen. Der Biber baut Dämme aus Ästen. Anders als das "
    "Faultier ist der Biber ein guter Baumeister. Der Biber frisst Rinde.\n",
}


def ask(folder: Path, documents: dict[str, str], question: str) -> FinalOutput:
    root = folder / "documents"
    for name, text in documents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return run_react_loop(question, config=load_config({"DOCS_DIR": str(root)}))


def cited_sentences(summary: str) -> list[str]:
    return re.findall(r"[^\n]*?\S[^\n]*?\[Source \d+\]", summary)


@pytest.mark.parametrize(
    "question",
    [
        "Compare heat pumps and gas boilers for old houses",
        "heat pump vs gas boiler",
        "What are the differences between a heat pump and a gas boiler?",
        "How do heat pumps differ from gas boilers?",
        "Which is better: heat pumps or gas boilers?",
        "Is a heat pump cheaper than a gas boiler?",
        "Should I buy a heat pump or a gas boiler?",
    ],
)
def test_a_comparison_in_any_wording_has_both_sides_and_only_sentences_that_stand_in_the_documents(
    question: str, tmp_path: Path
) -> None:
    output = ask(tmp_path, HEATING, question)
    assert output.outcome == "answered" and output.iterations_used >= 4
    assert [step.tool for step in output.steps][:3] == ["search", "search", "fetch"]
    headings = re.findall(r"^## (.+)$", output.summary, re.M)
    assert len(headings) == 2 and "heat pump" in headings[0] and "gas boiler" in headings[1]
    sentences = cited_sentences(output.summary)
    assert len(sentences) >= 6 and len(output.sources) >= 3
    known = " ".join(" ".join(HEATING.values()).split())
    for sentence in sentences:
        bare = re.sub(r"^\s*-\s*|\s*\[Source \d+\]$", "", sentence).strip()
        assert bare in known, bare


def test_asked_to_correct_sentences_it_corrects_none_and_searches_nothing() -> None:
    item = Item(
        1, "The tower is 9 m high. [Source 1]", "not on the page: 9", ((1, "The tower is 8 m."),), 0, 33, "not_found"
    )
    reply = MockLLMClient().complete(repair_messages([item]), max_output_tokens=500, control=RunControl())
    assert reply.text == "[]"


def test_where_nothing_was_read_no_sources_are_said_to_be(tmp_path: Path) -> None:
    output = ask(tmp_path, HEATING, "Quasar luminosity?")
    assert output.outcome == "abstained" and not output.sources
    assert output.steps[-1].thought == "No search brought a page to read."


def test_a_row_of_a_table_is_an_answer_and_keeps_apart_from_what_stands_beside_it(tmp_path: Path) -> None:
    documents = {
        "sales.csv": "Month;Revenue;Customers\nJanuary;12.400;31\nFebruary;15.750;44\nMarch;9.800;27\n",
        "notes.md": "# Notes\n\nThe revenue of February was the highest since the shop on the market was opened.\n",
    }
    output = ask(tmp_path, documents, "What was the revenue in February?")
    assert output.outcome == "answered"
    lines = output.summary.split("\n\n")
    assert "Month: February; Revenue: 15.750; Customers: 44 [Source" in output.summary and len(lines) == 2
    assert [check.verdict for check in output.grounding] == ["matched", "matched"]
    assert "January" not in output.summary


def test_a_question_in_another_language_is_answered_from_documents_in_it(tmp_path: Path) -> None:
    output = ask(tmp_path, GERMAN, "Was ist der Unterschied zwischen Faultier und Biber?")
    assert output.outcome == "answered" and len(output.sources) == 2
    assert "## Faultier" in output.summary and "## Biber" in output.summary


def test_a_side_of_a_question_left_open_is_searched_again_by_its_own_words(tmp_path: Path) -> None:
    documents = {f"tea{i}.md": f"# Tea {i}\n\nTea number {i} is made from leaves of the tea plant.\n" for i in range(8)}
    documents["saucer.md"] = "# Porcelain\n\nKaolin is fired into porcelain at high temperature.\n"
    output = ask(
        tmp_path, documents, "How is tea made from the leaves of the tea plant, and what is kaolin fired into?"
    )
    queries = [step.args["query"] for step in output.steps if step.tool == "search"]
    assert len(queries) == 1 or "kaolin" in queries[1].lower()
    assert "Kaolin is fired into porcelain" in output.summary


def test_sides_whose_name_is_one_character_have_their_sentences(tmp_path: Path) -> None:
    documents = {"a.md": "# 猫\n\n猫是一种喜欢睡觉的小动物。\n", "b.md": "# 狗\n\n狗喜欢在户外奔跑和玩耍。\n"}
    output = ask(tmp_path, documents, "猫和狗有什么区别？")
    assert re.findall(r"^## (.+)$", output.summary, re.M) == ["猫", "狗"]


def test_a_side_that_no_document_speaks_of_is_named_as_missing(tmp_path: Path) -> None:
    output = ask(tmp_path, HEATING, "Compare heat pumps and submarines")
    assert output.outcome == "answered" and "## heat pumps" in output.summary
    assert "do not say anything about submarines" in output.summary
    assert output.grounding is not None and not output.grounding.counts()["uncited"]


def test_a_sentence_that_shares_only_a_verb_with_the_question_is_left_out(tmp_path: Path) -> None:
    documents = {
        "fish.md": "# Zebrafish\n\nThe zebrafish has a striped body and lives in South Asia.\n",
        "quokka.md": "# Quokka\n\nThe quokka is a small wallaby that lives on Rottnest Island.\n",
    }
    output = ask(tmp_path, documents, "Where does the zebrafish live?")
    assert "South Asia" in output.summary and "quokka" not in output.summary


@pytest.mark.parametrize(
    "question",
    ["What are the main points of gas-boilers.txt?", "Summarise gas-boilers.txt", "What does gas-boilers.txt say?"],
)
def test_a_document_that_is_named_is_told_from_its_beginning(question: str, tmp_path: Path) -> None:
    output = ask(tmp_path, HEATING, question)
    assert output.outcome == "answered"
    assert "A gas boiler burns natural gas to heat water for radiators and taps. [Source" in output.summary


def test_what_no_document_says_is_not_answered(tmp_path: Path) -> None:
    output = ask(tmp_path, HEATING, "Who won the football world cup of 1998?")
    assert (output.outcome, output.exit_code) == ("abstained", 4) and not output.sources


def test_the_same_question_gives_the_same_report(tmp_path: Path) -> None:
    first, second = (ask(tmp_path, HEATING, "heat pump vs gas boiler") for _ in range(2))
    assert first.summary == second.summary and first.tokens_consumed == second.tokens_consumed


@pytest.mark.parametrize(
    ("question", "sides"),
    [
        ("Compare Raptor RAG vs HyDE", ["Raptor RAG", "HyDE"]),
        ("compare the bicycle with the car", ["bicycle", "car"]),
        ("PostgreSQL versus MySQL versus SQLite?", ["PostgreSQL", "MySQL", "SQLite"]),
        ("Difference between TCP and UDP", ["TCP", "UDP"]),
        ("Vergleiche Gas mit Strom", ["Gas", "Strom"]),
        ("猫和狗的区别", ["猫", "狗"]),
        ("Чем отличается чай от кофе?", ["чай", "кофе"]),
        ("Чем кошка отличается от собаки?", ["кошка", "собаки"]),
        ("What is the difference between Gouda, Brie and Parmesan?", ["Gouda", "Brie", "Parmesan"]),
        ("Pros and cons of canoes compared to kayaks", ["canoes", "kayaks"]),
        ("Advantages of LED lamps over fluorescent lamps", ["LED lamps", "fluorescent lamps"]),
        ("How does Rust compare to Go?", ["Rust", "Go"]),
        ("What distinguishes cats from dogs?", ["cats", "dogs"]),
        ("Can you explain the difference between TCP and UDP, and when is each used?", ["TCP", "UDP"]),
        ("Which ripens longer, Brie or Gouda?", ["Brie", "Gouda"]),
        ("Which of Brie and Gouda ripens longer?", ["Brie", "Gouda"]),
        ("What is better in white water, a raft or a canoe?", ["raft", "canoe"]),
        ("Do LED lamps last longer than incandescent bulbs?", ["LED lamps", "incandescent bulbs"]),
        ("Compare the efficiency of boilers and heat pumps", ["boilers", "heat pumps"]),
        ("Compare kayaks and canoes on speed and load", ["kayaks", "canoes"]),
        ("Compare bread and butter with salt and pepper", ["bread and butter", "salt and pepper"]),
        ("Compare schools in Finland and schools in Sweden", ["schools in Finland", "schools in Sweden"]),
        ("St. Louis vs. Denver", ["St. Louis", "Denver"]),
        ("Kayak or canoe for a lake?", ["Kayak", "canoe"]),
        ("Wie unterscheidet sich ein Faultier von einem Biber?", ["Faultier", "Biber"]),
        ("Was ist besser: Kajak oder Kanu?", ["Kajak", "Kanu"]),
        ("Quelle est la différence entre le thé et le café ?", ["thé", "café"]),
        ("白炽灯和LED灯有什么区别？", ["白炽灯", "LED灯"]),
        ("What are the advantages of vaccines against measles?", []),
        ("Is there a cure or treatment for malaria?", []),
        ("List the pros and cons of rafts", []),
        ("How did more people come to own cars, bikes and boats?", []),
        ("What is HyDE?", []),
        ("Who are the friends and enemies of Rome?", []),
        ("How do I compare two files?", []),
        ("", []),
    ],
)
def test_the_sides_of_a_comparison_are_found_and_nothing_else_is_one(question: str, sides: list[str]) -> None:
    assert sides_of(question)[0] == sides


def test_documents_alone_open_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a run over documents tried to open a connection")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    output = ask(tmp_path, HEATING, "heat pump vs gas boiler")
    assert output.outcome == "answered" and output.services == ()
    assert "sent to: nobody" in output.to_markdown()
