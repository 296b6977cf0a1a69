"""Which earlier questions are related to a new one: pure functions on words, shared by every store.

A store brings candidates: the sessions with the highest sum of idf over the rarest stems they share with the
question, divided by the root of their length (what one ZUNIONSTORE computes). Here they are compared exactly, and
those below a floor are dropped: some session always shares a word, and a wrong lead costs more than none.

What has to be told apart is the same question in other words from another question on the same subject. So the
heaviest shared word or name, which is the subject, counts for little; words that say little about any question count
for less; and two questions that ask for different things (a price, a cause, a time …) are hardly the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from m3.questions import aspects, function_words, is_light, names, question_stems, same_word, stems_of, subject_words
from m3.sessions import COMPARED_BYTES, PastResearch, cut_bytes

CANDIDATES = 20
RANKING_STEMS = 9  # of a question, that choose the candidates; the others only re-rank
COMMON_LEAST, COMMON_SHARE = 200, 0.02  # a stem in more sessions than both says little and costs much

# Measured by `bench/recall.py`, which prints what other values would do.
SUBJECT = 0.6  # of the weight of the heaviest shared word, that proves the subject and not the question
LIGHT_WEIGHT = 0.5  # of a content word's
FUNCTION_WORD_WEIGHT = 0.15  # of a content word's: "how" and "why" tell questions about one thing apart
ASPECT_WEIGHT = 0.5  # of a content word's
OTHER_ASPECT = 0.5  # factor where both questions tell what they ask, and it is not the same
# A session is shown from this score on. Where many sessions share the question's words each of these weighs less, and
# the scores of right and wrong leads fall alike: the floor follows, by a power of the words' mean share of sessions.
FLOOR, FLOOR_LEAST, RARE, FALL = 0.28, 0.1, 0.007, 0.63
YOUNG = 100  # sessions added to their number, so that one of few is no large share
ALIKE_PENALTY = 0.5  # of a session that resembles one already chosen: three leads should be three


def idf(df: int, total: int) -> float:
    """Weight of a stem that `df` of `total` sessions contain; the highest for one that none contains."""
    return math.log(1.0 + max(total, 1) / max(df, 0.5))


def ranking_stems(stems: Sequence[str], df: Mapping[str, int], total: int) -> dict[str, float]:
    """The stems that choose the candidates, rarest first, with their weights: known ones, at most nine.

    Those that stand in very many sessions are left out while three rarer ones remain.
    """
    known = sorted((s for s in stems if df.get(s, 0) > 0), key=lambda s: df[s])[:RANKING_STEMS]
    common = max(COMMON_LEAST, COMMON_SHARE * total)
    chosen = [s for place, s in enumerate(known) if place < 3 or df[s] <= common]
    return {s: idf(df[s], total) for s in chosen}


def length_weight(stems: Sequence[str]) -> float:
    """What a posting carries: long questions share words by chance, so each of theirs counts less."""
    return 1.0 / math.sqrt(max(1, len(stems)))


def floor(share: float) -> float:
    """The score from which a session is shown, where the question's words stand in `share` of the sessions each."""
    return max(FLOOR_LEAST, FLOOR * math.pow(RARE / max(share, RARE), FALL))


def related(
    query: str, candidates: Sequence[PastResearch], df: Mapping[str, int], total: int, limit: int
) -> list[PastResearch]:
    """The candidates that are related to the question, best first, at most `limit`, each with its score.

    df: sessions that contain each stem of the question, in any language; total: sessions in all.
    """
    question = Question(query, df, total)
    pool = [c for c in question.scored(candidates) if c.score >= question.floor]
    chosen: list[PastResearch] = []
    while pool and len(chosen) < limit:
        best = max(pool, key=lambda c: c.score * _newness(c, chosen))
        pool.remove(best)
        chosen.append(best)
    return chosen


class Question(NamedTuple):
    """A new question before a store of `total` sessions, of which `df` contain each of its stems."""

    text: str
    df: Mapping[str, int]
    total: int

    @property
    def floor(self) -> float:
        """The score from which a session is related to this question."""
        known = [n for n in map(self._df, self._words) if n]
        share = sum(known) / len(known) / (self.total + YOUNG) if known else 0.0
        return floor(share)

    def scored(self, candidates: Sequence[PastResearch]) -> Iterator[PastResearch]:
        """The candidates with their scores: how much of both questions is shared beyond the subject, 0 to 1.

        Words weigh by the root of their idf, which keeps one rare word from outweighing all others. Those that only
        a session has weigh as the question's do on average: their rarity says nothing about how near the two are.
        """
        plain = {word: math.sqrt(idf(self._df(word), self.total)) for word in self._words}
        if not plain:
            return
        mean = math.fsum(plain.values()) / len(plain)
        heavy = _heaviness(self._compared)
        weight = {word: w * heavy[word] for word, w in plain.items()}
        for candidate in candidates:
            yield replace(candidate, score=round(self._score(_compared(candidate), weight, mean), 4))

    def _score(self, text: str, weight: Mapping[str, float], mean: float) -> float:
        theirs = subject_words(text)
        shared = {word: w for word, w in weight.items() if any(same_word(word, other) for other in theirs)}
        if not shared:
            return 0.0
        heavy = _heaviness(text)
        alone = [heavy[other] for other in theirs if not any(same_word(word, other) for word in weight)]
        both, either = math.fsum(shared.values()), math.fsum(weight.values()) + mean * math.fsum(alone)
        subject = max(
            *shared.values(), *(math.fsum(shared.get(w, 0.0) for w in name) for name in names(self._compared)), 0
        )
        mine, other = aspects(self._compared), aspects(text)
        sets = [(FUNCTION_WORD_WEIGHT, function_words(self._compared), function_words(text))]
        if mine and other:
            sets.append((ASPECT_WEIGHT, mine, other))
        for each, a, b in sets:
            both += each * mean * len(a & b)
            either += each * mean * len(a | b)
        factor = OTHER_ASPECT if mine and other and mine.isdisjoint(other) else 1.0
        return factor * max(0.0, both - SUBJECT * subject) / either

    @property
    def _compared(self) -> str:
        return cut_bytes(self.text, COMPARED_BYTES)

    @property
    def _words(self) -> tuple[str, ...]:
        return subject_words(self._compared)

    def _df(self, word: str) -> int:
        return max(self.df.get(stem, 0) for stem in stems_of(word))


def _compared(candidate: PastResearch) -> str:
    return cut_bytes(candidate.query, COMPARED_BYTES)


def _heaviness(text: str) -> dict[str, float]:
    """How much each word of a question counts, beside its idf."""
    in_name = {word: 1.0 / len(name) for name in names(text) for word in name}
    return {w: in_name.get(w, LIGHT_WEIGHT if is_light(w) else 1.0) for w in subject_words(text)}


def _newness(candidate: PastResearch, chosen: Sequence[PastResearch]) -> float:
    """1 for a session unlike all chosen ones; 0 for the same question again, which comes last."""
    mine = set(question_stems(candidate.query))
    others = (set(question_stems(other.query)) for other in chosen)
    alike = max((len(mine & other) / (len(mine | other) or 1) for other in others), default=0.0)
    return 0.0 if alike == 1.0 else 1.0 - ALIKE_PENALTY * alike
