"""Which earlier questions are related to a new one: pure functions on stems, shared by every store.

A store brings candidates: the sessions with the highest sum of idf over the rarest stems they share with the
question, divided by the root of their length (what one ZUNIONSTORE computes). Here they are compared exactly, and
those below a floor are dropped: some session always shares a word, and a wrong lead costs more than none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from m3.sessions import PastResearch

CANDIDATES = 12
RANKING_STEMS = 9  # of a question, that choose the candidates; the others only re-rank
COMMON_LEAST, COMMON_SHARE = 200, 0.02  # a stem in more sessions than both says little and costs much
FLOOR = 0.22  # of the score: rejects nine wrong leads in ten, keeps four right ones in five
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


def related(
    stems: Sequence[str], candidates: Sequence[PastResearch], df: Mapping[str, int], total: int, limit: int
) -> list[PastResearch]:
    """The candidates that are related to the question, best first, at most `limit`, each with its score.

    The score is the Jaccard index of the two sets of stems, weighted by idf. Stems that only the session has
    weigh as the question's do on average: their rarity says nothing about how near the two are.
    """
    weight = {s: idf(df.get(s, 0), total) for s in stems}
    if not weight:
        return []
    mean = sum(weight.values()) / len(weight)
    scored = []
    for place, candidate in enumerate(candidates):
        theirs = set(candidate.stems)
        shared = sum(w for s, w in weight.items() if s in theirs)
        union = sum(weight.values()) + mean * len(theirs - weight.keys())
        score = shared / union
        if score >= FLOOR:
            scored.append((score, -place, replace(candidate, score=round(score, 4))))
    pool = [c for _, _, c in sorted(scored, key=lambda item: item[:2], reverse=True)]
    chosen: list[PastResearch] = []
    while pool and len(chosen) < limit:
        best = max(pool, key=lambda c: c.score * (1.0 - ALIKE_PENALTY * _most_alike(c, chosen)))
        pool.remove(best)
        chosen.append(best)
    return chosen


def _most_alike(candidate: PastResearch, others: Sequence[PastResearch]) -> float:
    mine = set(candidate.stems)
    return max((len(mine & set(o.stems)) / len(mine | set(o.stems)) for o in others), default=0.0)
