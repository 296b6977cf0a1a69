"""Do several sources speak for themselves? Copies of one text are one origin; differing figures stand side by side."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from m3.grounding.index import PageIndex, index_page
from m3.grounding.long_pages import open_page
from m3.grounding.numbers import Number, same_number
from m3.grounding.patience import Patience, unbounded
from m3.grounding.support import read_claim
from m3.grounding.verifier import GroundingReport
from m3.grounding.windows import LONG
from m3.records import Page
from m3.words import words

SHINGLE = 5  # words
MOST_PAGES = 16  # whose shingles are kept, some 0.5 MB each
COPY_SHARE = 0.5  # of the shorter page's shingles that stand in the other: what two own texts on one event never reach
LEAST_SHINGLES = 30  # a shorter text is too little to call a copy
SAME_THING = 0.7  # share of a sentence's words that the claim must have, which itself must be there whole


def origins(pages: Mapping[int, str | Page], *, patience: Patience | None = None) -> tuple[tuple[int, ...], ...]:
    """The sources grouped by origin: pages that are copies of one another stand together. Ordered by number.

    What `patience` leaves no time for counts as an origin of its own.
    """
    patience = patience or unbounded()
    texts = {number: page if isinstance(page, str) else page.text for number, page in pages.items()}
    known: dict[tuple[int, int], frozenset[int]] = {}

    def shingles(number: int, one_in: int) -> frozenset[int]:
        if (number, one_in) not in known:
            known[number, one_in] = _shingles(texts[number], one_in) if patience.may_check() else frozenset()
        return known[number, one_in]

    group = {number: number for number in pages}
    numbers = sorted(pages)
    for i, one in enumerate(numbers):
        for other in numbers[i + 1 :]:
            one_in = max(_thinning(texts[one]), _thinning(texts[other]))
            if _are_copies(shingles(one, one_in), shingles(other, one_in)):
                old, new = group[other], group[one]
                group = {n: new if g == old else g for n, g in group.items()}
    found: dict[int, list[int]] = {}
    for number in numbers:
        found.setdefault(group[number], []).append(number)
    return tuple(tuple(members) for members in found.values())


def _thinning(text: str) -> int:
    """Of how many lines of a text one is compared: of some `LONG` characters all, of more so many fewer."""
    return 1 << (len(text) // LONG).bit_length() if len(text) > LONG else 1


@lru_cache(maxsize=MOST_PAGES)
def _shingles(text: str, one_in: int) -> frozenset[int]:
    """Runs of `SHINGLE` words of one line in so many: of the same line in every text, so that copies stay copies."""
    if one_in > 1:
        lines = (line.encode("utf-8", "replace") for line in text.split("\n"))
        text = b"\n".join(line for line in lines if not zlib.crc32(line) % one_in).decode("utf-8", "replace")
    found = words(text[: 2 * LONG])
    return frozenset(hash(tuple(found[i : i + SHINGLE])) for i in range(len(found) - SHINGLE + 1))


def _are_copies(one: frozenset[int], other: frozenset[int]) -> bool:
    shorter = min(len(one), len(other))
    return shorter >= LEAST_SHINGLES and len(one & other) >= COPY_SHARE * shorter


class Figure(NamedTuple):
    """What one source gives for a thing: the figure as written, and the sentence and date it stands with."""

    source: int
    value: str
    quote: str
    published: str


class Disagreement(NamedTuple):
    """Cited sources that give different figures for what reads like the same thing."""

    claim: str
    figures: tuple[Figure, ...]


def disagreements(
    report: GroundingReport, pages: Mapping[int, str | Page], *, patience: Patience | None = None
) -> tuple[Disagreement, ...]:
    """Figures of the report's matched statements for which another cited page has a different one.

    Only where a single sentence there holds all the claim's words and a figure of the same unit, and the
    claim's figure stands nowhere on that page: better to miss a disagreement than to invent one.
    """
    cited = sorted({c.source for c in report.checks if c.source is not None and c.source in pages})
    patience = patience or unbounded()
    found: list[Disagreement] = []
    seen: set[frozenset[tuple[int, str]]] = set()
    for check in report.checks:
        if check.verdict != "matched" or check.source not in pages or not check.passages:
            continue
        own = _figures_of(check.passages[0].quote)
        wanted = frozenset(index_page(check.claim).by_stem)
        for number in [n for n in _figures_of(check.claim) if any(same_number(n, m) for m in own)]:
            others = [
                figure
                for n in cited
                if n != check.source and patience.may_check()
                for figure in _other_figure(n, pages[n], check.claim, wanted, number, patience)
            ]
            if others:
                mine = Figure(
                    check.source or 0,
                    _shown(check.claim, number),
                    check.passages[0].quote,
                    _date(pages[check.source or 0]),
                )
                pair = frozenset((f.source, f.value) for f in (mine, *others))
                if pair not in seen:
                    found.append(Disagreement(check.claim, (mine, *others)))
                seen.add(pair)
                break
    return tuple(found)


def _figures_of(text: str) -> list[Number]:
    return [
        n for numbers in index_page(text).numbers for n in numbers if n.values and not n.year and n.text[:1].isdigit()
    ]


def _other_figure(
    source: int, page: str | Page, claim: str, wanted: frozenset[str], number: Number, patience: Patience
) -> Sequence[Figure]:
    opened = open_page(page, patience) if len(wanted) >= 3 else None
    if opened is None or not all(opened.has_stem(stem) for stem in wanted):
        return ()
    index = opened.about(read_claim(claim, opened.language))
    if index.has_number(number) or not index.complete or patience.gave_up:
        return ()
    unit = _unit_after(claim, number)
    years = {v for n in _years(index_page(claim)) for v in n.values}
    for i, stems in enumerate(index.stems):
        if not wanted <= stems or len(wanted) < SAME_THING * len(stems):
            continue
        start, _ = index.spans[i]
        theirs = {v for n in index.numbers[i] if n.year for v in n.values}
        if years and theirs and not years & theirs:
            continue  # two points in time are no disagreement
        for other in index.numbers[i]:
            if other.values and not other.year and other.text[:1].isdigit() and _unit_after(index.text, other) == unit:
                return (Figure(source, _shown(index.text, other), index.sentence(i), _date(page)),)
    return ()


def _years(index: PageIndex) -> list[Number]:
    return [n for numbers in index.numbers for n in numbers if n.year]


def _unit_after(text: str, number: Number) -> str:
    match = re.compile(r"\s?(%|°\s?[CF]?|[^\W\d_]+)").match(text, number.end)
    unit = match[1].casefold() if match else ""
    return {"percent": "%", "prozent": "%", "процентов": "%"}.get(unit, unit)


def _shown(text: str, number: Number) -> str:
    match = re.compile(r"\s?(?:%|[^\W\d_]+)").match(text, number.end)
    return text[number.start : number.end] + (match[0] if match else "")


def _date(page: str | Page) -> str:
    return page.published if isinstance(page, Page) else ""


def origins_line(groups: Sequence[Sequence[int]]) -> str:
    """`3 sources, 2 origins (Source 1 and 3 are copies of one text)`; "" when every source is its own."""
    copies = [g for g in groups if len(g) > 1]
    if not copies:
        return ""
    count = sum(len(g) for g in groups)
    said = "; ".join("Source " + ", ".join(map(str, g[:-1])) + f" and {g[-1]} are copies of one text" for g in copies)
    return f"{count} sources, {len(groups)} origin{'s' if len(groups) != 1 else ''}: {said}"
