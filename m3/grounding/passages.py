"""Which parts of a page answer a question: BM25 over its blocks and their surroundings, shown in document order."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache

from m3.grounding.sentences import split_sentences
from m3.patterns import lazy_pattern
from m3.records import Block, Page, Passage
from m3.words import estimate_tokens, stem, stems_like, telling_words, terms, words

K1, B = 1.2, 0.75  # the usual BM25 constants (Robertson and Zaragoza 2009)
UNIT_TOKENS = 70  # a longer block is offered in runs of whole sentences of about this size
HEADING_WEIGHT = 0.5  # of the words in the headings above a unit, as against its own
NEIGHBOUR_WEIGHT = 0.2  # of the words in the units just before and after
NAME_WEIGHT, NUMBER_WEIGHT = 1.5, 1.5  # of the question's names and numbers, as against its other words
PAIR_BONUS = 0.35  # of two words that stand side by side in the question, for standing so in the unit
KIND_BONUS = 0.15  # for a number where the question asks for one, for a name where it asks who
MOST_PAGES = 64  # kept cut at once
_SHOWN_TOGETHER = 2  # tokens that a unit costs beside its text: a line break, an ellipsis

_ASKS_NUMBER = lazy_pattern(
    r"\bhow (?:many|much|long|old|far|big|large|high|often|fast|tall|deep)\b|\bwhen\b|\b(?:percentage|cost|price)\b"
    r"|\bwhat (?:year|date|percent\w*|share|number|rate|size)\b",
    re.I,
)
_ASKS_NAME = lazy_pattern(r"\bwho(?:se|m)?\b|\bwhich (?:company|person|country|city|author)\b|\bwhere\b", re.I)
_NAME = lazy_pattern(r"(?<=[a-z,;] )[A-Z][a-z]+")


@dataclass
class _Unit:
    """A span of one block that is shown or left out as a whole."""

    block: Block
    start: int
    end: int
    text: str
    words: list[str]  # that carry meaning, in order
    above: list[str]  # those of the headings above
    score: float = 0.0  # for the question at hand

    @property
    def cost(self) -> int:
        return estimate_tokens(self.text) + _SHOWN_TOGETHER


def rank_passages(question: str, page: Page, budget_tokens: int) -> list[Passage]:
    """The parts of `page` that matter most for `question`, in document order, within `budget_tokens`.

    Parts are blocks, or runs of whole sentences of long blocks. Each passage satisfies `page.text[start:end] ==
    quote`. A table row brings its table's header. What is left of the budget goes to the surroundings of the best part;
    a page that shares no word with the question yields its beginning.
    """
    units = [replace(unit) for unit in units_of(page)]
    if not units:
        return []
    _score(question, units)
    chosen: set[int] = set()
    left = budget_tokens
    best = max(range(len(units)), key=lambda i: (units[i].score, -i))
    anchor = best if units[best].score else 0  # what says nothing of the question fills up around the best
    for index in sorted(range(len(units)), key=lambda i: (-units[i].score, abs(i - anchor), i)):
        wanted = [i for i in (_header_of(units, index), index) if i is not None and i not in chosen]
        cost = sum(units[i].cost for i in wanted)
        if cost <= left:
            chosen.update(wanted)
            left -= cost
    if not chosen:
        return _cut(units, budget_tokens)
    return _merged(page, [units[i] for i in sorted(chosen)])


def units_of(page: Page) -> tuple[_Unit, ...]:
    """What `rank_passages` chooses from, without scores. The same page is cut once while it is remembered."""
    return _units(page.text, tuple(page.blocks))


@lru_cache(maxsize=MOST_PAGES)
def _units(page_text: str, blocks: tuple[Block, ...]) -> tuple[_Unit, ...]:
    """The page's blocks without its headings, long ones cut between sentences."""
    units: list[_Unit] = []
    headings: dict[int, list[str]] = {}
    for block in blocks:
        if block.kind == "heading":
            level = block.level or 1
            headings = {n: w for n, w in headings.items() if n < level} | {level: telling_words(block.text)}
            continue
        for start, end in _spans(block):
            text = page_text[start:end]
            above = [word for own in headings.values() for word in own]
            units.append(_Unit(block, start, end, text, telling_words(text), above))
    return tuple(units)


def _mix(bag: dict[str, float], found: Collection[str], weight: float) -> None:
    for word in found:
        bag[word] = bag.get(word, 0.0) + weight


def _spans(block: Block) -> list[tuple[int, int]]:
    """A block's offsets, or those of runs of its sentences when it is long; code and rows stay whole."""
    if block.kind in ("code", "table_row") or estimate_tokens(block.text) <= UNIT_TOKENS * 1.5:
        return [(block.start, block.end)]
    spans: list[tuple[int, int]] = []
    for start, end in split_sentences(block.text):
        start, end = block.start + start, block.start + end
        if spans and estimate_tokens(block.text[spans[-1][0] - block.start : end - block.start]) <= UNIT_TOKENS:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans or [(block.start, block.end)]


def _score(question: str, units: list[_Unit]) -> None:
    """Set each unit's score: its own words, and weaker those of the headings above it and of its neighbours."""
    weights = _question_weights(question)
    asked = terms(question)
    pairs = {pair for pair in zip(asked, asked[1:], strict=False) if pair[0] != pair[1]}
    count = len(units)
    average = sum(len(unit.words) for unit in units) / count or 1.0
    stems = [stems_like(unit.words, weights) for unit in units]
    held = [set(own) & weights.keys() for own in stems]
    frequency = Counter(word for words_held in held for word in words_held)
    rarity = {w: math.log(1 + (count - frequency[w] + 0.5) / (frequency[w] + 0.5)) for w in weights}
    numbers, names = _ASKS_NUMBER.search(question), _ASKS_NAME.search(question)
    for i, (unit, own) in enumerate(zip(units, stems, strict=True)):
        bag: dict[str, float] = dict(Counter(word for word in own if word in weights))
        _mix(bag, set(stems_like(unit.above, weights)) & weights.keys(), HEADING_WEIGHT)
        for j in (i - 1, i + 1):
            if 0 <= j < count:
                _mix(bag, held[j], NEIGHBOUR_WEIGHT)
        length = K1 * (1 - B + B * len(unit.words) / average)
        score = sum(weights[w] * rarity[w] * bag[w] * (K1 + 1) / (bag[w] + length) for w in weights if w in bag)
        beside = set(zip(own, own[1:], strict=False)) & pairs
        score += PAIR_BONUS * sum(rarity[a] + rarity[b] for a, b in beside)
        if numbers and any(c.isdigit() for c in unit.text) or names and _NAME.search(unit.text):
            score *= 1 + KIND_BONUS
        unit.score = score


def _question_weights(question: str) -> dict[str, float]:
    """The question's stems, names and numbers weighing more. A capital letter after the first word makes a name."""
    weights = dict.fromkeys(terms(question), 1.0)
    for i, written in enumerate(question.split()):
        for word in words(written):
            key = stem(word)
            if key not in weights:
                continue
            if any(c.isdigit() for c in word):
                weights[key] = NUMBER_WEIGHT
            elif i and written[:1].isupper():
                weights[key] = NAME_WEIGHT
    return weights


def _header_of(units: list[_Unit], index: int) -> int | None:
    """The first row of the table that a row stands in."""
    if units[index].block.kind != "table_row":
        return None
    first = index
    while first and units[first - 1].block.kind == "table_row" and units[first].start - units[first - 1].end <= 1:
        first -= 1
    return first


def _merged(page: Page, units: list[_Unit]) -> list[Passage]:
    """Units as passages; those that follow each other within one block become one."""
    passages: list[Passage] = []
    for before, unit in zip([None, *units], units, strict=False):
        joins = before is not None and before.block is unit.block and not page.text[before.end : unit.start].strip()
        if joins:
            last = passages.pop()
            start, score = last.start, max(last.score, unit.score)
        else:
            start, score = unit.start, unit.score
        passages.append(Passage(start, unit.end, page.text[start : unit.end], round(score, 4), unit.block.page_number))
    return passages


def _cut(units: list[_Unit], budget_tokens: int) -> list[Passage]:
    """Where not even one unit fits: the best one, as far as it fits, cut at a word's end."""
    best = max(units, key=lambda unit: unit.score)
    characters = max(0, (budget_tokens - _SHOWN_TOGETHER) * 4)
    while characters and estimate_tokens(best.text[:characters]) > budget_tokens - _SHOWN_TOGETHER:
        characters = characters * 3 // 4
    quote = best.text[:characters]
    quote = (quote if len(quote) == len(best.text) else quote.rpartition(" ")[0] or quote).rstrip()
    if not quote:
        return []
    return [Passage(best.start, best.start + len(quote), quote, round(best.score, 4), best.block.page_number)]


def render_passages(page: Page, passages: list[Passage]) -> str:
    """Passages as the model reads them: in order, with `…` where text was left out between them."""
    lines: list[str] = []
    at = 0
    for passage in passages:
        if page.text[at : passage.start].strip():
            lines.append("…")
        lines.append(passage.quote)
        at = passage.end
    if page.text[at:].strip():
        lines.append("…")
    return "\n".join(lines)
