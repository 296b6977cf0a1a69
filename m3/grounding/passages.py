"""Which parts of a page answer a question: BM25 over its blocks and their surroundings, shown in document order."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from m3.grounding.patience import Patience, unbounded
from m3.grounding.sentences import MOST_CHARACTERS, cut, split_sentences
from m3.grounding.windows import LONG, words_of
from m3.patterns import lazy_pattern
from m3.records import Block, Page, Passage
from m3.words import estimate_tokens, stem, stems_among, telling_words, terms, words

K1, B = 1.2, 0.75  # the usual BM25 constants (Robertson and Zaragoza 2009)
UNIT_TOKENS = 70  # a longer block is offered in runs of whole sentences of about this size
HEADING_WEIGHT = 0.5  # of the words in the headings above a unit, as against its own
NEIGHBOUR_WEIGHT = 0.2  # of the words in the units just before and after
NAME_WEIGHT, NUMBER_WEIGHT = 1.5, 1.5  # of the question's names and numbers, as against its other words
PAIR_BONUS = 0.35  # of two words that stand side by side in the question, for standing so in the unit
KIND_BONUS = 0.15  # for a number where the question asks for one, for a name where it asks who
MOST_PAGES = 64  # kept cut at once
MOST_WINDOWS = 40  # of a long page, in which its passages are chosen
_SHOWN_TOGETHER = 2  # tokens that a unit costs beside its text: a line break, an ellipsis

_ASKS_NUMBER = lazy_pattern(
    r"\bhow (?:many|much|long|old|far|big|large|high|often|fast|tall|deep)\b|\bwhen\b|\b(?:percentage|cost|price)\b"
    r"|\bwhat (?:year|date|percent\w*|share|number|rate|size)\b",
    re.I,
)
_ASKS_NAME = lazy_pattern(r"\bwho(?:se|m)?\b|\bwhich (?:company|person|country|city|author)\b|\bwhere\b", re.I)
_NAME = lazy_pattern(r"(?<=[a-z,;] )[A-Z][a-z]+")


class _Unit(NamedTuple):
    """A span of one block that is shown or left out as a whole."""

    block: Block
    start: int
    end: int
    text: str
    header: int | None  # of a table row: which unit its table's first row is

    @property
    def cost(self) -> int:
        return estimate_tokens(self.text) + _SHOWN_TOGETHER


class _Words(NamedTuple):
    """The words that speak for a unit, those that carry meaning: its own in order, and of the headings above it."""

    own: tuple[str, ...]
    above: tuple[str, ...]


_Spans: TypeAlias = Sequence[tuple[int, int]]
_Units: TypeAlias = Sequence[tuple[_Unit, _Words]]


def rank_passages(question: str, page: Page, budget_tokens: int, *, patience: Patience | None = None) -> list[Passage]:
    """The parts of `page` that matter most for `question`, in document order, within `budget_tokens`.

    Parts are blocks, or runs of whole sentences of long blocks. Each passage satisfies `page.text[start:end] ==
    quote`. A table row brings its table's header. What is left of the budget goes to the surroundings of the best part;
    a page that shares no word with the question yields its beginning. A long page is looked at through windows, as far
    as `patience` lets it.
    """
    if len(page.text) <= LONG:
        units, scores = _scored_whole(question, page.text, tuple(page.blocks))
    else:  # what would be remembered of it holds all its blocks
        spans, frequency = _promising(question, page, patience or unbounded())
        units, scores = _scored(question, _units(page.text, page.blocks, spans), frequency)
    if not units:
        return []
    chosen: set[int] = set()
    left = budget_tokens
    best = max(range(len(units)), key=lambda i: (scores[i], -i))
    anchor = best if scores[best] else 0  # what says nothing of the question fills up around the best
    for index in sorted(range(len(units)), key=lambda i: (-scores[i], abs(i - anchor), i)):
        if left <= _SHOWN_TOGETHER:
            break
        wanted = [i for i in (units[index].header, index) if i is not None and i not in chosen]
        cost = sum(units[i].cost for i in wanted)
        if cost <= left:
            chosen.update(wanted)
            left -= cost
    if not chosen:
        return _cut(units[best], scores[best], budget_tokens)
    return _merged(page, [(units[i], scores[i]) for i in sorted(chosen)])


_Scored: TypeAlias = tuple[tuple[_Unit, ...], tuple[float, ...]]


@lru_cache(maxsize=MOST_PAGES)
def _scored_whole(question: str, page_text: str, blocks: tuple[Block, ...]) -> _Scored:
    """The same of a whole page, once: it is asked for an observation, and for the report again."""
    return _scored(question, _units_of_whole(page_text, blocks), None)


def _scored(question: str, units: _Units, frequency: _Frequency | None) -> _Scored:
    """The units and how much each says of a question."""
    return tuple(unit for unit, _ in units), _scores(question, units, frequency)


@lru_cache(maxsize=MOST_PAGES)
def _units_of_whole(page_text: str, blocks: tuple[Block, ...]) -> _Units:
    return _units(page_text, blocks, [(0, len(page_text))])


def _promising(question: str, page: Page, patience: Patience) -> tuple[_Spans, _Frequency]:
    """The stretches of a long page that hold most of the question's words, and how common these are in the page."""
    in_page = words_of(page.text)
    windows = in_page.read(page.url, patience)
    weights = _question_weights(question)
    best = in_page.best(
        [(in_page.places(word, stem), weight) for word, weight in weights.items()], windows, MOST_WINDOWS
    )
    # What stands just beside may hold a sentence's other half, or fill up around the best.
    near = {n for window in best or [0] for n in (window - 1, window, window + 1) if 0 <= n < windows}
    spans: list[tuple[int, int]] = []
    for start, end in [in_page.spans[n] for n in sorted(near)] or [(0, MOST_CHARACTERS)]:
        if spans and spans[-1][1] == start:
            start = spans.pop()[0]
        spans.append((start, end))
    return spans, _Frequency(max(1, windows), {word: in_page.count(word, stem, windows) for word in weights})


class _Outline:
    """Of a page's blocks: where they stand, under which headings, and in which table."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._starts = [block.start for block in blocks]
        self._headings: list[int] = []
        self._parent: dict[int, int] = {}
        self._table: dict[int, int] = {}
        self._words: dict[int, tuple[str, ...]] = {}
        open_headings: list[int] = []
        for n, block in enumerate(blocks):
            if block.kind == "heading":
                while open_headings and (blocks[open_headings[-1]].level or 1) >= (block.level or 1):
                    open_headings.pop()
                self._parent[n] = open_headings[-1] if open_headings else -1
                open_headings.append(n)
                self._headings.append(n)
            elif block.kind == "table_row":
                goes_on = n - 1 in self._table and block.start - blocks[n - 1].end <= 1
                self._table[n] = self._table[n - 1] if goes_on else n

    def within(self, start: int, end: int) -> range:
        """The numbers of the blocks that stand in text[start:end], also in part."""
        return range(max(0, bisect_right(self._starts, start) - 1), bisect_left(self._starts, end))

    def above(self, number: int) -> tuple[str, ...]:
        """The telling words of the headings above a block."""
        at = bisect_left(self._headings, number) - 1
        return self._words_from(self._headings[at] if at >= 0 else -1)

    def _words_from(self, heading: int) -> tuple[str, ...]:
        """The telling words of a heading and of those above it."""
        if heading < 0:
            return ()
        if heading not in self._words:
            own = telling_words(self._blocks[heading].text)
            self._words[heading] = (*own, *self._words_from(self._parent[heading]))
        return self._words[heading]

    def header_of(self, number: int) -> int | None:
        """The number of the first row of the table that a row stands in; None for what is no row."""
        return self._table.get(number)


def _units(page_text: str, blocks: Sequence[Block], spans: _Spans) -> _Units:
    """What stands in `spans` of the page's blocks but its headings, long blocks cut between sentences.

    A table row comes with its table's first row.
    """
    outline = _Outline(blocks)
    pieces: dict[tuple[int, int], int] = {}  # (block, start) -> end
    for start, end in spans:
        for n in outline.within(start, end):
            block = blocks[n]
            if block.kind != "heading" and block.start < end and start < block.end:
                pieces[n, max(start, block.start)] = min(end, block.end)
                header = outline.header_of(n)
                if header is not None:
                    pieces.setdefault((header, blocks[header].start), blocks[header].end)
    units: list[tuple[_Unit, _Words]] = []
    first: dict[int, int] = {}
    for (n, start), end in sorted(pieces.items()):
        above, row_header = outline.above(n), outline.header_of(n)
        first.setdefault(n, len(units))
        for a, b in _spans(page_text, blocks[n].kind, start, end):
            text = page_text[a:b]
            header = None if row_header is None else first.get(row_header)
            units.append((_Unit(blocks[n], a, b, text, header), _Words(tuple(telling_words(text)), above)))
    return units


def _mix(bag: dict[str, float], found: Iterable[str], weight: float) -> None:
    for word in found:
        bag[word] = bag.get(word, 0.0) + weight


def _spans(text: str, kind: str, start: int, end: int) -> list[tuple[int, int]]:
    """text[start:end], a block, as itself or as runs of its sentences when it is long; code and rows stay whole."""
    if kind in ("code", "table_row"):
        return [(start, end)] if end - start <= MOST_CHARACTERS else list(cut(text, start, end))
    if estimate_tokens(text[start:end]) <= UNIT_TOKENS * 1.5:
        return [(start, end)]
    spans: list[tuple[int, int]] = []
    for a, b in split_sentences(text, start, end):
        if spans and estimate_tokens(text[spans[-1][0] : b]) <= UNIT_TOKENS:
            spans[-1] = (spans[-1][0], b)
        else:
            spans.append((a, b))
    return spans or [(start, end)]


class _Frequency(NamedTuple):
    """In how many of so many parts of a page each word stands."""

    parts: int
    of: Mapping[str, int]


def _scores(question: str, units: _Units, frequency: _Frequency | None) -> tuple[float, ...]:
    """Each unit's score: its own words, and weaker those of the headings above it and of its neighbours.

    frequency: of a page of which the units are only a part; None counts the units.
    """
    if not units:
        return ()
    weights = _question_weights(question)
    asked = terms(question)
    pairs = [pair for pair in dict.fromkeys(zip(asked, asked[1:], strict=False)) if pair[0] != pair[1]]
    average = sum(len(words.own) for _, words in units) / len(units) or 1.0
    stems = stems_among({word for _, words in units for word in (*words.own, *words.above)}, weights)
    # Of each unit the question's stems where they stand, None for every other word; nothing where there is none.
    stands = [() if stems.keys().isdisjoint(w.own) else tuple(map(stems.get, w.own)) for _, w in units]
    counts = [Counter(word for word in own if word) for own in stands]
    if frequency is None:
        frequency = _Frequency(len(units), Counter(word for bag in counts for word in bag))
    count, found = frequency.parts, frequency.of
    rarity = {w: math.log(1 + (count - found.get(w, 0) + 0.5) / (found.get(w, 0) + 0.5)) for w in weights}
    numbers, names = _ASKS_NUMBER.search(question), _ASKS_NAME.search(question)
    scores: list[float] = []
    for i, (unit, unit_words) in enumerate(units):
        bag: dict[str, float] = dict(counts[i])
        _mix(bag, {stems[word] for word in unit_words.above if word in stems}, HEADING_WEIGHT)
        for j in (i - 1, i + 1):
            if 0 <= j < len(units):
                _mix(bag, counts[j], NEIGHBOUR_WEIGHT)
        length = K1 * (1 - B + B * len(unit_words.own) / average)
        score = sum(weights[w] * rarity[w] * bag[w] * (K1 + 1) / (bag[w] + length) for w in weights if w in bag)
        beside = set(zip(stands[i], stands[i][1:], strict=False))
        score += PAIR_BONUS * sum(rarity[a] + rarity[b] for a, b in pairs if (a, b) in beside)
        if score and (numbers and any(c.isdigit() for c in unit.text) or names and _NAME.search(unit.text)):
            score *= 1 + KIND_BONUS
        scores.append(score)
    return tuple(scores)


@lru_cache(maxsize=MOST_PAGES)
def _question_weights(question: str) -> Mapping[str, float]:
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


def _merged(page: Page, units: Sequence[tuple[_Unit, float]]) -> list[Passage]:
    """Units with their scores as passages; those that follow each other within one block become one."""
    passages: list[Passage] = []
    before: _Unit | None = None
    for unit, score in units:
        start = unit.start
        if before is not None and before.block is unit.block and not page.text[before.end : unit.start].strip():
            last = passages.pop()
            start, score = last.start, max(last.score, score)
        passages.append(Passage(start, unit.end, page.text[start : unit.end], round(score, 4), unit.block.page_number))
        before = unit
    return passages


def _cut(unit: _Unit, score: float, budget_tokens: int) -> list[Passage]:
    """Where not even one unit fits: the best one, as far as it fits, cut at a word's end."""
    characters = max(0, (budget_tokens - _SHOWN_TOGETHER) * 4)
    while characters and estimate_tokens(unit.text[:characters]) > budget_tokens - _SHOWN_TOGETHER:
        characters = characters * 3 // 4
    quote = unit.text[:characters]
    quote = (quote if len(quote) == len(unit.text) else quote.rpartition(" ")[0] or quote).rstrip()
    if not quote:
        return []
    return [Passage(unit.start, unit.start + len(quote), quote, round(score, 4), unit.block.page_number)]


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
