"""A report without a model: the sentences that answer, copied from the passages, grouped and cited.

The offline mock writes its reports with this, and the driver falls back on it when the model cannot be asked.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from typing import NamedTuple

from m3.comparison import sides_of
from m3.grounding import split_sentences
from m3.patterns import lazy_pattern
from m3.words import terms

MAX_SENTENCES = 9
MIN_CHARACTERS, MAX_CHARACTERS = 30, 420
# A sentence answers when it holds this share of the question's words, rarer words counting more.
MIN_COVERAGE = 0.34
# … and this share of what the best sentence holds: beside one that answers, one that shares a verb with it does not.
MIN_OF_BEST = 0.6
# In a question that asks for nothing but what a document says.
_ANYTHING = """summarise summarize summary overview outline gist abstract main key central important points ideas topic
    topics content contents describe explain tell say says about document documents file files text page pages
    attached uploaded paper report txt md csv html pdf fasse zusammen zusammenfassung zusammenfassen überblick
    wichtigsten hauptpunkte kernaussagen inhalt datei dokument steht darin кратко содержание перескажи главное
    основные мысли файл документ файле документе résumé résume principaux fichier"""

_RECORD = lazy_pattern(r"[^:;|\n]{1,60}: [^;|\n]+(?:; [^:;|\n]{1,60}: [^;|\n]+)+")


@cache  # a stemmer is slow to load, and most questions ask for something
def _anything() -> frozenset[str]:
    return frozenset(terms(_ANYTHING))


def name_terms(side: str) -> frozenset[str]:
    """The terms that tell a side apart from others of its kind: the first of several words ("solar" in "solar power").

    A name in Han or kana is all of its bigrams.
    """
    found = terms(side)
    return frozenset(found[:1] if side.isascii() else found)


def _naming_terms(side: str, candidates: Sequence[_Candidate]) -> frozenset[str]:
    """What a sentence must hold to speak of a side: all its words, or the telling one where few sentences hold all."""
    whole = frozenset(terms(side))
    return whole if sum(whole <= c.terms for c in candidates) >= 3 else name_terms(side)


class Evidence(NamedTuple):
    """What the report may be written from: one source's number, title and passages."""

    number: int
    title: str
    passages: Sequence[str]


@dataclass
class _Candidate:
    """A sentence that the report could copy."""

    text: str
    source: int
    terms: frozenset[str]
    title_terms: frozenset[str]
    heading: str = ""
    order: int = 0
    used: bool = field(default=False)


def extractive_summary(question: str, evidence: Sequence[Evidence], max_sentences: int = MAX_SENTENCES) -> str:
    """A cited Markdown report of whole sentences from the evidence; "" when nothing in it answers.

    A comparison gets a paragraph on both sides, then one section a side; a side of which nothing was found is named
    as such. Deterministic.
    """
    sides, aspect = sides_of(question)
    candidates = _candidates(evidence, terms(" / ".join(sides)))
    weight = _weights(candidates, question)
    if len(sides) < 2:
        told = _told_whole(question, evidence)
        if told:
            return _by_source(_openings([c for c in candidates if c.source in told], max_sentences), evidence)
        chosen = _pick(candidates, frozenset(terms(question)), weight, max_sentences)
        return _by_source(chosen, evidence)
    side_terms = [_naming_terms(side, candidates) for side in sides]
    both = [c for c in candidates if all(one <= c.terms for one in side_terms)]
    lead = _pick(both, frozenset().union(*side_terms), weight, 2)
    sections, silent = [], []
    share = max(3, math.ceil((max_sentences - len(lead)) / len(sides)))
    for side, one in zip(sides, side_terms, strict=True):
        others = [other for other in side_terms if other is not one]
        own = [
            c
            for c in candidates
            if not c.used and one <= c.terms | c.title_terms and not any(other <= c.terms for other in others)
        ]
        picked = _pick(own, one, weight, share, by_title=True, aspect=frozenset(terms(aspect)))
        if picked:
            sections.append(f"## {side}\n\n" + "\n".join(f"- {_cited(c)}" for c in picked))
        elif not lead:
            silent.append(side)
    parts = [" ".join(_cited(c) for c in lead)] if lead else []
    if sections and silent:
        parts.append(f"The sources that were read do not say anything about {' or '.join(silent)}.")
    return "\n\n".join(parts + sections)


def _told_whole(question: str, evidence: Sequence[Evidence]) -> set[int]:
    """The sources that a question names and of which it asks nothing but what they say: "main points of notes.txt"."""
    asked = frozenset(terms(question))
    names = asked - _anything()
    titles = {item.number: frozenset(terms(item.title)) for item in evidence}
    if not asked & _anything() or not names:
        return set()
    return {number for number, title in titles.items() if names <= title}


def _openings(candidates: Sequence[_Candidate], count: int) -> list[_Candidate]:
    """The first sentences of each source, the sources taking turns."""
    by_source: dict[int, list[_Candidate]] = {}
    for candidate in candidates:
        by_source.setdefault(candidate.source, []).append(candidate)
    rounds = zip_longest(*by_source.values())
    first = [candidate for one_each in rounds for candidate in one_each if candidate is not None][:count]
    return sorted(first, key=lambda candidate: candidate.order)


def _candidates(evidence: Sequence[Evidence], names: Sequence[str]) -> list[_Candidate]:
    """The statements of the evidence, each once; where no sides are compared, rows of named columns too.

    names: terms of the sides, which a sentence without spaces may hold. Han and kana are cut into pairs, so that a name
    of one character is no term of a sentence that holds it.
    """
    single = [name for name in names if len(name) == 1 and not name.isascii()]
    found: list[_Candidate] = []
    seen: set[str] = set()
    for item in evidence:
        title = frozenset(terms(item.title))
        for passage in item.passages:
            for start, end in split_sentences(passage):
                text = passage[start:end].strip()
                key = " ".join(text.casefold().split())
                if key in seen or not (_is_statement(text) or (not names and _is_record(text))):
                    continue
                seen.add(key)
                held = frozenset([*terms(text), *(name for name in single if name in text)])
                found.append(_Candidate(text, item.number, held, title, order=len(found)))
    return found


def _is_statement(text: str) -> bool:
    """A whole sentence of prose: not a heading, a table row, a list of links or a question."""
    dense = any("\u3040" <= c <= "\u9fff" for c in text)  # Han and kana say more in fewer characters
    if not (MIN_CHARACTERS // (3 if dense else 1) <= len(text) <= MAX_CHARACTERS):
        return False
    if not re.search(r"""[.!。！]["'”’»)\]」』]*$""", text) or " | " in text or text.startswith(("#", "…", "[")):
        return False
    return dense or text[:1].isupper() or text[:1].isdigit() or not text[:1].isalpha() or not text.isascii()


def _is_record(text: str) -> bool:
    """A row of a table with its columns' names, as CSV files are read: it says something by itself."""
    return len(text) <= MAX_CHARACTERS and _RECORD.fullmatch(text) is not None


def _weights(candidates: Sequence[_Candidate], question: str) -> dict[str, float]:
    """Inverse document frequency of words over the candidate sentences."""
    frequency = Counter(word for c in candidates for word in c.terms)
    known = {*frequency, *terms(question)}
    return {word: math.log(1 + len(candidates) / (1 + frequency[word])) for word in known}


def _pick(
    pool: Sequence[_Candidate],
    wanted: frozenset[str],
    weight: dict[str, float],
    count: int,
    *,
    by_title: bool = False,
    aspect: frozenset[str] = frozenset(),
) -> list[_Candidate]:
    """Up to `count` sentences that answer `wanted`, each adding something the earlier ones do not say.

    by_title: a source's title may name what its sentences speak of; aspect: words that make a sentence fit better.
    """
    total = sum(weight.get(word, 0.0) for word in wanted) or 1.0
    covered = []
    for c in pool:
        hits = wanted & (c.terms | (c.title_terms if by_title else frozenset()))
        coverage = sum(weight.get(word, 0.0) for word in hits) / total
        if coverage >= MIN_COVERAGE:
            covered.append((coverage, c))
    least = MIN_OF_BEST * max((coverage for coverage, _ in covered), default=0.0)
    scored = []
    for coverage, c in covered:
        if coverage < least:
            continue
        in_text = sum(weight.get(word, 0.0) for word in wanted & c.terms) / total
        substance = min(len(c.terms), 16) / 16
        opening = 0.5 if wanted & frozenset(terms(" ".join(c.text.split()[:3]))) else 0.0  # it is what is spoken of
        fit = len(aspect & c.terms) / len(aspect) if aspect else 0.0
        scored.append((coverage + in_text + 0.5 * substance + opening + fit, c))
    chosen: list[_Candidate] = []
    while scored and len(chosen) < count:
        per_source = Counter(c.source for c in chosen)

        def gain(pair: tuple[float, _Candidate], taken: Counter[int] = per_source) -> tuple[float, int]:
            score, c = pair
            overlap = max((len(c.terms & o.terms) / (len(c.terms | o.terms) or 1) for o in chosen), default=0.0)
            return score - 1.2 * overlap - 0.15 * taken[c.source], -c.order

        best = max(scored, key=gain)
        scored.remove(best)
        best[1].used = True
        chosen.append(best[1])
    return chosen


def _cited(candidate: _Candidate) -> str:
    text = re.sub(r"\s*\[Sources?[^\]]*\]", "", candidate.text)
    return f"{text} [Source {candidate.source}]"


def _by_source(chosen: Sequence[_Candidate], evidence: Sequence[Evidence]) -> str:
    """The best two sentences first, then the rest grouped by the source they stand in."""
    if not chosen:
        return ""
    # A row ends in no full stop: only its line ends it.
    between = "\n\n" if any(_is_record(c.text) for c in chosen[:2]) else " "
    parts = [between.join(_cited(c) for c in chosen[:2])]
    titles = {item.number: item.title for item in evidence}
    for number in dict.fromkeys(c.source for c in chosen[2:]):
        lines = [f"- {_cited(c)}" for c in chosen[2:] if c.source == number]
        parts.append(f"## {titles.get(number) or f'Source {number}'}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)
