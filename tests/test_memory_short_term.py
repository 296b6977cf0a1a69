"""Short-term memory: what survives when the conversation outgrows its budget."""

from __future__ import annotations

import re
from typing import Any

import pytest

from config import load_config
from m3.records import Message
from m3.words import estimate_tokens
from m3_react_agent import run_react_loop
from memory_integration import ShortTermMemory
from tests.scripted import DictWeb, ScriptedLLM, action

HEAD = [{"role": "system", "content": "rules " * 300}, {"role": "user", "content": "Question: what is tea?"}]
BUDGET = 12_000


class Research:
    """A conversation of fetches, each of which reads one new source."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.memory = ShortTermMemory(budget, list(HEAD))
        self.read = 0
        self.asked: list[str] = []
        self.reply: Any = lambda notes: "The pages say much [Source 1, 999]. Open: the price."

    def step(self, tokens: int = 2_000) -> None:
        self.read += 1
        turn = f'Thought: read on\nAction: fetch\nAction Input: {{"results": ["R{self.read}"]}}'
        text = f"[Source {self.read}] Title {self.read} (site.example, 2024-05-01)\n" + "fact " * int(tokens * 0.8)
        self.memory.add(turn, f"Observation: {text}\n[step {self.read}/40]")

    def condense(self, notes: str, most_words: int) -> str | None:
        self.asked.append(notes)
        reply: str | None = self.reply(notes)
        return reply

    def facts(self) -> str:
        return "\n".join(f"[Source {n}] Title {n} (site.example, 2024-05-01)" for n in range(1, self.read + 1))

    def prune(self) -> bool:
        return self.memory.prune_if_needed(self.condense, self.facts)

    @property
    def text(self) -> str:
        return "\n".join(m["content"] for m in self.memory.render())

    def numbers(self) -> set[int]:
        return {int(n) for n in re.findall(r"\[Source (\d+)", self.text)}


def shared(before: list[Message], after: list[Message]) -> bool:
    return after[: len(before)] == before


def test_forty_long_steps_stay_in_the_budget_with_few_model_calls_and_every_source() -> None:
    research = Research()
    sizes, jumps = [], 0
    for _ in range(40):
        before = research.memory.render()
        pruned = research.prune()
        if not pruned:
            assert shared(before, research.memory.render())
        jumps += pruned
        sizes.append(research.memory.tokens)
        assert sum(estimate_tokens(m["content"]) for m in research.memory.render()) <= BUDGET
        assert research.numbers() == set(range(1, research.read + 1))
        assert sum(e.kind == "condensed" for e in research.memory.entries) <= 1
        last = research.memory.render()
        research.step()
        assert shared(last, research.memory.render())
    assert 1 <= len(research.asked) == research.memory.condensations <= 6
    assert jumps <= 16 and min(sizes[8:]) <= BUDGET * 0.45


def test_the_next_condensation_takes_the_earlier_notes_as_labelled_input_and_stays_bounded() -> None:
    research = Research()
    research.reply = lambda notes: f"round {len(research.asked)} " + "word " * 3_000
    while len(research.asked) < 3:
        research.step()
        research.prune()
    first, second, third = research.asked
    assert "Earlier notes:" not in first and "fact fact" in first
    assert second.count("Earlier notes:") == third.count("Earlier notes:") == 1
    assert "round 1" in second and "round 2" in third and "round 1" not in third
    assert all(estimate_tokens(notes) <= BUDGET * 0.6 for notes in research.asked)
    (entry,) = [e for e in research.memory.entries if e.kind == "condensed"]
    assert entry is research.memory.entries[0] and entry.tokens <= 1_220


@pytest.mark.parametrize("reply", [None, "", "   ", "x" * 100_000])
def test_a_failed_condensation_loses_no_turn_and_no_source(reply: str | None) -> None:
    research = Research(budget=3_000)
    research.reply = lambda notes: reply
    for _ in range(30):
        research.step(tokens=200)
        research.prune()
        assert research.numbers() == set(range(1, research.read + 1))
    assert research.asked
    turns = [m["content"] for m in research.memory.render() if m["role"] == "assistant"]
    if not (reply or "").strip():
        assert len(turns) == 30 and not research.memory.condensations


def test_old_observations_become_stubs_that_lead_back_to_what_they_said() -> None:
    research = Research()
    memory = research.memory
    search = "Thought: a\nAction: search\nAction Input: {}"
    memory.add(search, "Observation: R1. Tea\n   text " + "x" * 9_000 + "\nR5. Last")
    memory.add(search, "Observation: No results for 'tee'. Try other words. " + "y " * 4_000)
    for _ in range(3):
        research.step()
    assert research.prune() and not research.asked
    assert [e.kind for e in memory.entries] == ["stub", "stub", "stub", "turn", "turn"]
    assert "results R1 to R5" in memory.entries[0].user
    assert memory.entries[1].user.startswith("Observation: No results for 'tee'")
    assert memory.entries[2].user.startswith("Observation: [Source 1] Title 1 (site.example, 2024-05-01)\n")
    assert "fact fact" in memory.entries[2].raw and "fact" not in memory.entries[2].user


def test_below_three_quarters_of_the_budget_nothing_changes() -> None:
    research = Research()
    for _ in range(4):
        research.step()
    before = research.memory.render()
    assert research.memory.tokens < BUDGET * 0.75
    assert not research.prune() and research.memory.render() == before


def test_one_observation_larger_than_the_budget_is_cut_in_its_middle() -> None:
    research = Research(budget=4_000)
    research.step(tokens=30_000)
    assert research.prune() and research.memory.tokens <= 4_000
    assert "cut to fit" in research.text and "[step 1/40]" in research.text and research.numbers() == {1}


def test_a_provider_with_a_small_window_gets_a_prompt_that_fits() -> None:
    research = Research()
    for _ in range(4):
        research.step()
    assert not research.memory.prune_to(20_000, research.condense, research.facts)
    for window in (6_000, 3_500, 2_000):
        assert research.memory.prune_to(window, research.condense, research.facts)
        assert research.memory.tokens <= window and research.numbers() == {1, 2, 3, 4}
    assert not research.memory.prune_to(100, research.condense, research.facts)


def test_a_long_run_condenses_reports_and_keeps_the_raw_turns_in_its_steps() -> None:
    leaves = " ".join(f"Tea leaf {i} is dried in the sun." for i in range(36))
    pages = {f"https://a.example/{n}": f"Tea number {n} is green. {leaves}" for n in range(20)}
    web = DictWeb(pages)
    condensed: list[str] = []

    def turn(messages: Any) -> str:
        if "Condense the research so far" in messages[-1]["content"]:
            condensed.append(messages[-1]["content"])
            return "Teas are dried in the sun [Source 1]."
        if "Write the report now" in messages[-1]["content"]:
            return "Tea number 0 is green. [Source 1]"
        n = len(web.fetched)
        return action("fetch", f'{{"urls": ["https://a.example/{n}"]}}') if n < 20 else action("finish")

    llm = ScriptedLLM(turn)
    config = load_config(
        {"SHORT_TERM_TOKEN_BUDGET": "2400", "MAX_ITERATIONS": "30", "MAX_TOKENS": "200000", "ALLOW_UNSEEN_URLS": "1"}
    )
    output = run_react_loop("What is tea?", config=config, llm=llm, search=web, fetcher=web)
    assert output.outcome == "answered" and len(output.steps) == 21
    others = ("Condense the research", "Write the report")
    prompts = [p for p in llm.prompts if not any(mark in p[-1]["content"] for mark in others)]
    assert condensed
    assert max(sum(estimate_tokens(m["content"]) for m in p) for p in prompts) <= 2_400
    assert all("dried in the sun" in step.observation for step in output.steps[:-1])
    last = "\n".join(m["content"] for m in prompts[-1])
    assert {int(n) for n in re.findall(r"\[Source (\d+)\]", last)} == set(range(1, 21))
