"""The offline mock: a fixed research policy behind the model protocol, without a key and without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from m3.comparison import sides_of
from m3.extractive import Evidence, extractive_summary, name_terms
from m3.prompts import CONDENSE_MARK, NO_ANSWER, REPAIR_MARK, SYNTHESIS_MARK
from m3.react_parser import TOOLS, ParsedStep, canonical_turn, parse_thought_action
from m3.records import Completion, Message, RunControl, Usage
from m3.words import estimate_tokens, terms

_OTHER_NAMES = {"search": ("search_web",), "fetch": ("fetch_page",)}
# In a run whose menu has other names for them, the turns bear those names.
_KNOWN = (*TOOLS, *(replace(t, name=name, runs=t.name) for t in TOOLS for name in _OTHER_NAMES.get(t.name, ())))


class _Turn(NamedTuple):
    """One earlier turn as the mock finds it in its prompt."""

    step: ParsedStep
    observation: str


class MockLLMClient:
    """A deterministic research policy over the ordinary prompts: search each side, read the best, refine, finish.

    It reads nothing but the messages, as a model would, and knows no question and no corpus. Its report copies
    sentences. It is there so that everything around the model can be used and tested without one.
    """

    provider = "mock"
    model = "mock-extractive"
    PAGES_A_SIDE = 2

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_output_tokens: int,
        control: RunControl,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Answer one prompt. Usage is estimated and says so."""
        last = messages[-1]["content"]
        if SYNTHESIS_MARK in last:
            text = self._report(last)
        elif CONDENSE_MARK in last:
            text = self._condense(last)
        elif messages[0]["content"].startswith(REPAIR_MARK):
            text = "[]"  # what is copied it cannot put better
        else:
            text = canonical_turn(self._decide(messages))
        if on_text is not None:
            on_text(text)
        prompt = sum(estimate_tokens(m["content"]) + 4 for m in messages)
        return Completion(text, "stop", Usage(prompt, estimate_tokens(text), estimated=True), self.model)

    # --- one turn of the loop

    def _decide(self, messages: Sequence[Message]) -> ParsedStep:
        asked = [i for i, m in enumerate(messages) if m["role"] == "user" and m["content"].startswith("Question:")]
        question = messages[asked[-1]]["content"].removeprefix("Question:").strip() if asked else ""
        sides, aspect = sides_of(question)
        queries = [f"{side} {aspect}".strip() for side in sides] or [question]
        turns = _turns(messages[asked[-1] + 1 :] if asked else ())  # before it stands an earlier conversation
        searched = [str(turn.step.args.get("query", "")) for turn in turns if turn.step.tool == "search"]
        if len(searched) < len(queries):
            query = queries[len(searched)]
            return _action(f"I need sources on {query}.", "search", {"query": query})
        wanted = self._unread(turns, sides or [question])
        if wanted and turns[-1].step.tool == "search":
            return _action("I read the most relevant results.", "fetch", {"results": wanted})
        gap = _gap(turns, sides or [question], is_comparison=bool(sides))
        if gap and len(searched) < 2 * len(queries) and gap not in searched:
            return _action(f"What I read says too little on {gap}; I search again.", "search", {"query": gap})
        read = any(turn.step.tool in ("fetch", "extract") for turn in turns)
        why = (
            "The sources read cover the question as far as it can be." if read else "No search brought a page to read."
        )
        return _action(why, "finish", {})

    def _unread(self, turns: Sequence[_Turn], sides: Sequence[str]) -> list[str]:
        """The next results to read: what compares the sides first, then the best of each search in turn, none twice."""
        read = {name for turn in turns if turn.step.tool == "fetch" for name in turn.step.args.get("results", ())}
        lists = [_best_first(turn) for turn in turns if turn.step.tool == "search"]
        lists = lists[-1:] if read else lists
        most = 4 if len(sides) > 1 and not read else 3
        chosen = [name for name in _comparing(turns, sides) if name not in read][:1]
        for rank in range(max(map(len, lists), default=0)):
            for names in lists:
                if rank < len(names) and names[rank] not in read and names[rank] not in chosen and len(chosen) < most:
                    chosen.append(names[rank])
        return chosen

    # --- the report and the condensation

    @staticmethod
    def _report(prompt: str) -> str:
        question = _question_of(prompt)
        body = prompt.partition("The passages:\n")[2].rpartition(f"\n\nQuestion: {question}")[0]
        evidence = []
        for block in re.split(r"^(?=\[Source \d+\] )", body, flags=re.M):
            head, _, passages = block.strip().partition("\n")
            match = re.match(r"\[Source (\d+)\] (.*?)(?: \([^()]*\))?$", head)
            if match:
                evidence.append(Evidence(int(match[1]), match[2], passages.split("\n")))
        return extractive_summary(question, evidence) or NO_ANSWER

    @staticmethod
    def _condense(prompt: str) -> str:
        notes = prompt.partition("Notes:\n")[2].rpartition(f"\n\n{CONDENSE_MARK}")[0]
        lines = [line for line in notes.splitlines() if line.startswith(("[Source", "Action Input", "Earlier"))]
        return "\n".join(lines)[:4_000] or "Nothing was found so far."


def _question_of(prompt: str) -> str:
    return prompt.partition("Question: ")[2].partition("\n")[0].strip()


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    found = []
    for message, answer in zip(messages, messages[1:], strict=False):
        if message["role"] == "assistant":
            step = parse_thought_action(message["content"], tools=_KNOWN)
            if step.tool:
                step = replace(step, tool=next(t.built_in for t in _KNOWN if t.name == step.tool))
                found.append(_Turn(step, _inside_fence(answer["content"])))
    return found


def _comparing(turns: Sequence[_Turn], sides: Sequence[str]) -> list[str]:
    """The names of results whose title speaks of two sides or more."""
    found = [pair for turn in turns if turn.step.tool == "search" for pair in _titles(turn)]
    named = [name_terms(side) for side in sides]
    return [name for name, title in found if sum(one <= set(terms(title)) for one in named if one) > 1]


def _titles(search: _Turn) -> list[tuple[str, str]]:
    return re.findall(r"^(R\d+)\. (.*)$", search.observation, re.M)


def _best_first(search: _Turn) -> list[str]:
    """The names of a search's results, those whose title speaks of what was searched for first."""
    query = str(search.step.args.get("query", ""))
    telling, all_terms = name_terms(query), set(terms(query))
    found = _titles(search)

    def fit(pair: tuple[str, str]) -> tuple[bool, int]:
        title = set(terms(pair[1]))
        return not telling & title, -len(all_terms & title)

    return [name for name, _ in sorted(found, key=fit)]


def _inside_fence(observation: str) -> str:
    """What an action brought, without the program's own lines around it."""
    found = re.search(r"<(data-\w+)>\n(.*)\n</\1>", observation, re.S)
    return found[2] if found else observation.removeprefix("Observation:").strip()


def _gap(turns: Sequence[_Turn], sides: Sequence[str], *, is_comparison: bool) -> str:
    """What the pages read say nothing about: a whole side, or the question's words that stand in none of them."""
    text = "\n".join(turn.observation for turn in turns if turn.step.tool in ("fetch", "extract"))
    known = set(terms(text))
    for side in sides:
        words = terms(side)
        missing = [word for word in words if word not in known]
        enough = 0.5 if is_comparison else 0.25  # a side is a name; of a question some words are only its wording
        if words and len(missing) > enough * len(words):
            return side if is_comparison else " ".join(w for w in side.split() if set(terms(w)) & set(missing))
    return ""


def _action(thought: str, tool: str, args: dict[str, object]) -> ParsedStep:
    return ParsedStep(thought, tool, json.loads(json.dumps(args)))
