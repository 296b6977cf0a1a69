"""Which earlier questions are related to a new one: pure functions on stems, shared by every store.

A store brings candidates: the sessions with the highest sum of idf over the rarest stems they share with the
question, divided by the root of their length (what one ZUNIONSTORE computes). Here they are compared exactly, and
those below a floor are dropped: some session always shares a word, and a wrong lead costs more than none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from m3.sessions import PastResearch, question_stems
from m3.words import STOP_WORDS, words

CANDIDATES = 20
RANKING_STEMS = 9  # of a question, that choose the candidates; the others only re-rank
COMMON_LEAST, COMMON_SHARE = 200, 0.02  # a stem in more sessions than both says little and costs much
# Of the score. On pairs of medical questions with hard negatives (3,043 sessions) plain idf-Jaccard at 0.22 is said to
# reject nine wrong leads in ten and keep four right ones in five; function words lift such scores by about 0.015. The
# more sessions, the more of them resemble a question by chance: by the logarithm of their number.
FLOOR, FLOOR_AT, FLOOR_SLOPE = 0.245, 1_500, 0.12
FLOOR_LEAST, FLOOR_MOST = 0.163, 0.245
FUNCTION_WORD_WEIGHT = 0.15  # of a stem's mean weight: "how" and "why" tell questions about one thing apart
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


def floor(total: int) -> float:
    """The score below which a session is not shown, in a store of `total` sessions."""
    wanted = FLOOR + FLOOR_SLOPE * math.log(max(total, 1) / FLOOR_AT)
    return min(FLOOR_MOST, max(FLOOR_LEAST, wanted))


def related(
    query: str, candidates: Sequence[PastResearch], df: Mapping[str, int], total: int, limit: int
) -> list[PastResearch]:
    """The candidates that are related to the question, best first, at most `limit`, each with its score.

    df: sessions that contain each stem of the question; total: sessions in all. The score is the Jaccard index of the
    two sets of stems, weighted by idf, with function words counted a little. Stems that only a session has weigh as
    the question's do on average: their rarity says nothing about how near the two are.
    """
    stems = question_stems(query)
    if not stems:
        return []
    weight = {stem: idf(df.get(stem, 0), total) for stem in stems}
    mean = math.fsum(weight.values()) / len(weight)
    least = floor(total)
    pool = []
    for candidate in candidates:
        score = round(_resemblance(query, candidate, weight, mean), 4)
        if score >= least:
            pool.append(replace(candidate, score=score))
    chosen: list[PastResearch] = []
    while pool and len(chosen) < limit:
        best = max(pool, key=lambda c: c.score * _newness(c, chosen))
        pool.remove(best)
        chosen.append(best)
    return chosen


def _resemblance(query: str, candidate: PastResearch, weight: Mapping[str, float], mean: float) -> float:
    theirs = set(candidate.stems)
    shared = math.fsum(w for stem, w in weight.items() if stem in theirs)
    if not shared:
        return 0.0
    union = math.fsum(weight.values()) + mean * len(theirs - weight.keys())
    a, b = _function_words(query), _function_words(candidate.query)
    each = FUNCTION_WORD_WEIGHT * mean
    return (shared + each * len(a & b)) / (union + each * len(a | b))


@lru_cache(maxsize=4_096)
def _function_words(text: str) -> frozenset[str]:
    return frozenset(word for word in words(text) if word in STOP_WORDS)


def _newness(candidate: PastResearch, chosen: Sequence[PastResearch]) -> float:
    """1 for a session unlike all chosen ones; 0 for the same question again, which comes last."""
    mine = set(candidate.stems)
    alike = max((len(mine & set(o.stems)) / (len(mine | set(o.stems)) or 1) for o in chosen), default=0.0)
    return 0.0 if alike == 1.0 else 1.0 - ALIKE_PENALTY * alike
