"""One claim against one page: which sentences bear it out, how much of it they hold, and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from m3.grounding.index import NEIGHBOUR, PageIndex, Rarity
from m3.grounding.language import DECIMAL_COMMA, content_words
from m3.grounding.names import cjk_holes, is_known, names_in, opening_name, page_forms
from m3.grounding.numbers import Number, Numbers, counts_in, numbers_in
from m3.grounding.opposites import is_negated, opposite_words
from m3.grounding.quantities import contradictions, other_months
from m3.grounding.quotations import quotations_in
from m3.records import Verdict


class Thresholds(NamedTuple):
    """What decides a verdict; `bench/grounding.py` prints what these values do on human-labelled claims.

    matched, found: least coverage (0 to 1) for `matched` and for `partly`. Chosen on WiCE dev: below .80 more
    unsupported claims match (.75: 11 %, .80: 8 %), above it no fewer (.82: 7 %) at a seventh fewer supported ones.
    min_page_words: a page with less text is not evidence that something stands nowhere.
    """

    matched: float = 0.80
    found: float = 0.40
    max_passages: int = 3
    min_page_words: int = 40


THRESHOLDS = Thresholds()
NUMBER_WEIGHT = 2.0  # a number counts as two words in the coverage
ABOUT_IT = 0.5  # share of the claim's words that a further passage must hold for its figures to count
FOREIGN_RUN = 5  # words in a row that no passage holds are a part of the sentence of their own
ALSO_SHOWN = 0.5  # a sentence that adds nothing new is shown too when it scores this share of the main one


class ClaimTerms(NamedTuple):
    """What is looked for: the claim's stems, numbers, names and quotations; counts: small numbers in words."""

    text: str
    language: str
    stems: frozenset[str]
    numbers: tuple[Number, ...]
    names: tuple[str, ...]
    quotations: tuple[str, ...]
    negated: bool
    counts: tuple[Number, ...] = ()

    @property
    def weight(self) -> float:
        return len(self.stems) + NUMBER_WEIGHT * len(self.numbers)


def read_claim(text: str, language: str, context: str = "") -> ClaimTerms:
    """Take a claim apart. `context` is the sentence before where the claim is only understood with it."""
    whole = f"{context} {text}".strip()
    numbers = numbers_in(whole, decimal_comma=language in DECIMAL_COMMA)
    wording = whole
    for number in reversed(numbers):  # a number in words is compared by value, not by its words
        wording = f"{wording[: number.start]} {wording[number.end :]}" if number.in_words else wording
    return ClaimTerms(
        text=whole,
        language=language,
        stems=frozenset(content_words(wording)),
        numbers=tuple(numbers),
        names=tuple(names_in(whole, language or "en")),
        quotations=tuple(quotations_in(whole)),
        negated=is_negated(whole, language),
        counts=tuple(counts_in(whole)),
    )


class Support:
    """What a page has for a claim.

    sentences: of the page that cover it, the main one first; also: further ones worth showing; quoted: spans of
    quotations.
    """

    def __init__(self, sentences: Iterable[int] = ()) -> None:
        self.coverage = 0.0
        self.sentences = list(sentences)
        self.also: list[int] = []
        self.quoted: list[tuple[int, int]] = []
        self.covered: frozenset[str] = frozenset()
        self.covered_numbers: frozenset[int] = frozenset()  # positions in claim.numbers
        self.missing_numbers: list[str] = []
        self.missing_names: list[str] = []
        self.missing_words: list[str] = []
        self.missing_quotations: list[str] = []
        self.flags: list[str] = []


def rank_sentences(claim: ClaimTerms, page: PageIndex, rarity: Rarity) -> list[tuple[float, int]]:
    """The page's sentences that share something with the claim, best first, as (score, sentence).

    The score is the summed rarity of what they share, plus a share of the better neighbour's.
    """
    own: dict[int, float] = {}
    for stem in claim.stems:
        for i in page.by_stem.get(stem, ()):
            own[i] = own.get(i, 0.0) + rarity(stem)
    for number in claim.numbers:
        for i in {i for value in number.values for i in page.by_value.get(value, ())}:
            own[i] = own.get(i, 0.0) + rarity.of_a_number
    scored = [(score + NEIGHBOUR * max(own.get(i - 1, 0.0), own.get(i + 1, 0.0)), i) for i, score in own.items()]
    return sorted(((round(score, 9), i) for score, i in scored), key=lambda pair: (-pair[0], pair[1]))


def find_support(claim: ClaimTerms, page: PageIndex, rarity: Rarity, thresholds: Thresholds = THRESHOLDS) -> Support:
    """The passages of a page that cover the claim best, at most `max_passages`, and what they lack."""
    ranked = rank_sentences(claim, page, rarity)
    support = Support(_cover(claim, page, rarity, ranked, thresholds.max_passages))
    chosen = support.sentences
    support.also = _also(ranked, chosen, thresholds.max_passages)
    support.covered = claim.stems & frozenset().union(page.head, *(page.stems[i] for i in chosen))
    near = Numbers([*(n for i in chosen for n in page.numbers[i]), *page.head_numbers])
    support.covered_numbers = frozenset(k for k, n in enumerate(claim.numbers) if near.has(n))
    # A figure stands with the rest of the claim, not in some other sentence that was taken for its sake; a year may
    # well stand apart, in a dateline.
    speaking = [i for i in chosen if i == chosen[0] or len(claim.stems & page.stems[i]) >= ABOUT_IT * len(claim.stems)]
    with_words = Numbers([*(n for i in speaking for n in page.numbers[i]), *page.head_numbers])
    figures = [claim.numbers[k] for k in sorted(support.covered_numbers) if not claim.numbers[k].year]
    apart = [figure.text for figure in figures if not with_words.has(figure)]
    if apart:
        support.flags.append(f"the page has {', '.join(apart)} only with other words")
    for quotation in claim.quotations:
        span = page.find(quotation)
        if span is None:
            support.missing_quotations.append(quotation)
        else:
            support.quoted.append(span)
    if not chosen and not support.quoted:
        support.covered, support.covered_numbers = frozenset(), frozenset()
    _judge(claim, [page], [(page, i) for i in chosen], support)
    return support


def joint_support(claim: ClaimTerms, parts: Sequence[tuple[PageIndex, Support]]) -> Support:
    """Several pages together: what one lacks another may hold."""
    support = Support()
    support.covered = frozenset().union(*(s.covered for _, s in parts))
    support.covered_numbers = frozenset().union(*(s.covered_numbers for _, s in parts))
    missing = [set(s.missing_quotations) for _, s in parts]
    support.missing_quotations = sorted(set.intersection(*missing)) if missing else []
    _judge(claim, [page for page, _ in parts], [(page, i) for page, s in parts for i in s.sentences], support)
    return support


def _cover(
    claim: ClaimTerms, page: PageIndex, rarity: Rarity, ranked: Sequence[tuple[float, int]], most: int
) -> list[int]:
    """Greedy cover: the best sentence first, then whichever adds most that is still uncovered."""
    chosen: list[int] = []
    words: set[str] = set()
    figures: set[int] = set()
    pool = [i for _, i in ranked[:400]]  # what comes later shares next to nothing
    place = {i: rank for rank, i in enumerate(pool)}
    numbers_of = {i: Numbers(page.numbers[i]) for i in pool}
    figures_of = {i: {k for k, n in enumerate(claim.numbers) if numbers_of[i].has(n)} for i in pool}

    def gain(i: int) -> float:
        new = sum(rarity(stem) for stem in (claim.stems & page.stems[i]) - words)
        return new + rarity.of_a_number * len(figures_of[i] - figures)

    while pool and len(chosen) < most:
        best = pool[0] if not chosen else max(pool, key=lambda i: (round(gain(i), 9), -place[i]))
        if gain(best) <= 0:
            break
        pool.remove(best)
        chosen.append(best)
        words.update(claim.stems & page.stems[best])
        figures.update(figures_of[best])
    return chosen


def _also(ranked: Sequence[tuple[float, int]], chosen: Sequence[int], most: int) -> list[int]:
    """Sentences that add nothing new but say nearly as much: shown as well, never counted."""
    if not chosen:
        return []
    also = [i for score, i in ranked if score >= ALSO_SHOWN * ranked[0][0] and i not in chosen]
    return also[: max(0, most - len(chosen))]


def _judge(
    claim: ClaimTerms, pages: Sequence[PageIndex], chosen: Sequence[tuple[PageIndex, int]], support: Support
) -> None:
    """Fill in the coverage and everything that is missing or speaks against the claim."""
    near = Numbers(
        [*(n for page, i in chosen for n in page.numbers[i]), *(n for page in pages for n in page.head_numbers)]
    )
    counted = [count for count in claim.counts if near.has(count)]
    support.covered |= claim.stems & frozenset(content_words(" ".join(count.text for count in counted)))
    weight = claim.weight
    held = len(support.covered) + NUMBER_WEIGHT * len(support.covered_numbers)
    support.coverage = round(held / weight, 3) if weight else 0.0
    support.missing_words = _as_written(claim, claim.stems - support.covered)
    far = []
    for k, number in enumerate(claim.numbers):
        if k in support.covered_numbers:
            continue
        if any(page.has_number(number) for page in pages):
            far.append(number.text)
        else:
            support.missing_numbers.append(number.text)
    support.missing_names = [name for name in claim.names if not any(page.knows(name) for page in pages)]
    if chosen:
        far += _names_elsewhere(claim, pages, chosen, support)
    if far:
        support.flags.append(f"the page has {', '.join(far)} only elsewhere")
    if not chosen:
        return
    passages = " ".join(page.sentence(i) for page, i in chosen)
    main = chosen[0][0].sentence(chosen[0][1])
    if claim.negated != is_negated(main, claim.language):
        where = "claim" if claim.negated else "page"
        support.flags.append(f"only the {where} has a negation")
    opening = opening_name(claim.text)
    if opening and not any(page.knows(opening) for page in pages):
        support.flags.append(f"not on the page: {opening}")
    _beside_numbers(claim, chosen, support)
    holes = cjk_holes(claim.text, lambda pair: any(page.has_stem(pair) for page in pages))
    if holes:
        support.flags.append("not on the page: " + ", ".join(holes[:4]))
    run = _longest_missing_run(claim, support.covered)
    if len(run) >= FOREIGN_RUN:
        support.flags.append("a whole part is not in the passages: " + " ".join(run[:8]))
    forms = frozenset().union(*(page.stems[i] for page, i in chosen))
    opposite = opposite_words(claim.text, passages, claim.stems, forms)
    if opposite:
        support.flags.append("opposite words (claim / page): " + ", ".join(opposite[:3]))


def _beside_numbers(claim: ClaimTerms, chosen: Sequence[tuple[PageIndex, int]], support: Support) -> None:
    """Flag another unit, sign or month than the passages have, and a small number word that they lack."""
    support.flags += contradictions(claim.text, claim.numbers, [(page.text, page.numbers[i]) for page, i in chosen])
    heads = {id(page): page for page, _ in chosen}.values()
    near = Numbers(
        [*(n for page, i in chosen for n in page.numbers[i]), *(n for page in heads for n in page.head_numbers)]
    )
    lacking = [count.text for count in claim.counts if not near.has(count)]
    if lacking:
        support.flags.append("not in the passages: " + ", ".join(lacking))
    passages = " ".join(f"{page.sentence(i)} {page.title}" for page, i in chosen)
    months = other_months(claim.text, passages)
    if months:
        support.flags.append(f"the passages date it otherwise than {', '.join(months)}")


def _names_elsewhere(
    claim: ClaimTerms, pages: Sequence[PageIndex], chosen: Sequence[tuple[PageIndex, int]], support: Support
) -> list[str]:
    """The claim's names that stand on a page but in none of the chosen passages, its title or its address."""
    known = [name for name in claim.names if name not in support.missing_names]
    if not known:
        return []
    forms = page_forms([*(page.sentence(i) for page, i in chosen), *(f"{page.title} {page.address}" for page in pages)])
    stems = frozenset().union(*(page.stems[i] for page, i in chosen), *(page.head for page in pages))
    return [name for name in known if not is_known(name, forms.__contains__, stems.__contains__)]


def _longest_missing_run(claim: ClaimTerms, covered: frozenset[str]) -> list[str]:
    """The longest run of content words of the claim, as written, of which no passage holds one."""
    best: list[str] = []
    run: list[str] = []
    for word in claim.text.split():
        stems = content_words(word)
        if not stems:
            continue
        run = [] if any(stem in covered for stem in stems) else [*run, word]
        best = run if len(run) > len(best) else best
    return best


def _as_written(claim: ClaimTerms, stems: frozenset[str]) -> list[str]:
    found = []
    for word in claim.text.split():
        bare = word.strip(".,;:!?()[]\"'“”‘’«»…")
        if any(stem in stems for stem in content_words(bare)):
            found.append(bare)
    return list(dict.fromkeys(found))


def decide(claim: ClaimTerms, support: Support, page_words: int, thresholds: Thresholds = THRESHOLDS) -> Verdict:
    """The verdict on what was found; see `why_of` for its reason."""
    if support.missing_numbers or len(support.missing_names) >= 2 or support.missing_quotations:
        return "not_found"
    if not claim.weight:
        return "matched" if support.quoted else "unchecked"
    if support.coverage < thresholds.found:
        return "unchecked" if page_words < thresholds.min_page_words else "not_found"
    if support.coverage >= thresholds.matched and not support.missing_names and not support.flags:
        return "matched"
    return "partly"


def why_of(claim: ClaimTerms, support: Support, verdict: Verdict, page_words: int) -> str:
    """What exactly is missing or differs, so that a reader can check it in seconds; "" for a match."""
    if verdict == "matched":
        return ""
    if not claim.weight and not support.missing_quotations:
        return "the sentence has no words that could be compared"
    if verdict == "unchecked":
        return f"the page gave too little text to say so ({page_words} words)"
    parts = []
    if support.missing_numbers:
        parts.append("not on the page: " + ", ".join(support.missing_numbers))
    if support.missing_names:
        kind = "name" if len(support.missing_names) == 1 else "names"
        parts.append(f"{kind} not on the page: " + ", ".join(support.missing_names))
    parts += [f"quotation not on the page: “{text[:80]}”" for text in support.missing_quotations]
    parts += support.flags
    rest = [w for w in support.missing_words if w not in support.missing_names]
    if rest and (not parts or support.coverage < THRESHOLDS.matched):
        parts.append("words not in the passages: " + ", ".join(rest[:8]) + (" …" if len(rest) > 8 else ""))
    return "; ".join(parts)


def passages_of(support: Support, page: PageIndex) -> list[tuple[int, int]]:
    """The spans to show, the main sentence first; a quotation that stands in none of them comes second."""
    spans = [page.spans[i] for i in (*support.sentences, *support.also)]
    apart = [(a, b) for a, b in support.quoted if not any(start <= a and b <= end for start, end in spans)]
    return list(dict.fromkeys([*spans[:1], *apart, *spans[1:]]))
