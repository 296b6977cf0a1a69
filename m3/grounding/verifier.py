"""Every claim of a summary against every page it cites. Pure, deterministic, without a model; it never raises.

It compares wording, numbers, names, negation and quotations. It does not understand meaning: a paraphrase may be
"not found", and two names exchanged within a sentence may be "matched".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from m3.grounding.claims import Claim, split_claims
from m3.grounding.fragments import Linker
from m3.grounding.index import PageIndex, PageView, Rarity
from m3.grounding.language import DECIMAL_COMMA, content_words, language_of
from m3.grounding.long_pages import open_page
from m3.grounding.patience import Patience, unbounded
from m3.grounding.sentences import MOST_CHARACTERS
from m3.grounding.support import (
    THRESHOLDS,
    ClaimTerms,
    Support,
    Thresholds,
    decide,
    find_support,
    joint_support,
    passages_of,
    read_claim,
    why_of,
)
from m3.records import Check, Page, Passage, Verdict

METHOD = "lexical/1"
MOST_NUMBERS = 60  # of one claim
NO_TIME = "the run's time was over before this could be checked"
ADDS_LITTLE = 0.10  # a source whose absence lowers the joint coverage by less bears nothing out
NOTE = "Matched by wording, numbers and names, not by meaning."
_ORDER: dict[Verdict, int] = {"matched": 4, "partly": 3, "unchecked": 2, "not_found": 1, "uncited": 0}


class Statement(NamedTuple):
    """One claim sentence with the best verdict that any of its sources brings."""

    text: str
    start: int
    end: int
    cited: tuple[int, ...]
    verdict: Verdict


@dataclass(frozen=True)
class GroundingReport:
    """What verification found. Iterating gives the checks, in the order of the summary."""

    checks: tuple[Check, ...] = ()
    statements: tuple[Statement, ...] = ()
    thresholds: Thresholds = THRESHOLDS

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    def counts(self) -> dict[str, int]:
        """Statements by verdict: statements, cited, matched, partly, not_found, unchecked, uncited."""
        found = Counter(s.verdict for s in self.statements)
        total = len(self.statements)
        names: tuple[Verdict, ...] = ("matched", "partly", "not_found", "unchecked", "uncited")
        return {"statements": total, "cited": total - found["uncited"], **{name: found[name] for name in names}}

    def line(self) -> str:
        """The honest line of counts, in whole numbers."""
        n = self.counts()
        if not n["statements"]:
            return "No statements to check."
        plural = "statement" if n["statements"] == 1 else "statements"
        return (
            f"{n['statements']} {plural}, {n['cited']} cited; {n['matched']} matched to a passage,"
            f" {n['partly']} partly, {n['not_found']} not found, {n['unchecked']} could not be checked"
        )

    @property
    def supported(self) -> bool:
        """True when at least one citation is borne out by its page, wholly or partly."""
        return any(check.verdict in ("matched", "partly") for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        return {"method": self.method(), "counts": self.counts(), "checks": [asdict(check) for check in self.checks]}

    def dead_tags(self, pages: Mapping[int, str | Page]) -> dict[str, tuple[int, ...]]:
        """The statements whose tags name nothing that was read, with those numbers."""
        found = {s.text: tuple(n for n in s.cited if n not in pages) for s in self.statements}
        return {text: numbers for text, numbers in found.items() if numbers}

    def with_dead_tags(self, dead: Mapping[str, tuple[int, ...]]) -> GroundingReport:
        """The same report, saying of sentences that are uncited now which tags they lost."""

        def reason(check: Check) -> Check:
            if check.verdict != "uncited" or check.claim not in dead:
                return check
            named = ", ".join(map(str, dead[check.claim]))
            return replace(check, why=f"no such source: nothing read is Source {named}")

        return replace(self, checks=tuple(reason(check) for check in self.checks))

    def method(self) -> dict[str, Any]:
        """How the verdicts came about: the rule's version and its thresholds."""
        return {"name": METHOD, **self.thresholds._asdict()}


def verify(
    summary: str,
    pages: Mapping[int, str | Page],
    *,
    thresholds: Thresholds = THRESHOLDS,
    patience: Patience | None = None,
) -> GroundingReport:
    """Check every claim of `summary` against each page it cites. `pages` maps source numbers to pages read.

    One check a citation, `uncited` claims one with `source=None`. Every passage satisfies
    `page.text[start:end] == quote`. Never raises: what goes wrong with one claim makes it `unchecked`, and so does
    what `patience` leaves no time for.
    """
    verifier = Verifier(summary, pages, thresholds, patience)
    checks: list[Check] = []
    statements: list[Statement] = []
    for claim in split_claims(summary):
        if not claim.is_claim:
            continue
        try:
            found = verifier.check(claim)
        except Exception as problem:  # noqa: BLE001  a fault of the checker must not cost the report
            why = f"the check failed: {type(problem).__name__}: {problem}"
            found = [_check(claim, n, "unchecked", why) for n in claim.cited] or [_check(claim, None, "uncited", why)]
        checks += found
        best = max((c.verdict for c in found), key=lambda verdict: _ORDER[verdict])
        statements.append(Statement(claim.text, claim.start, claim.end, claim.cited, best))
    return GroundingReport(tuple(checks), tuple(statements), thresholds)


def _check(claim: Claim, source: int | None, verdict: Verdict, why: str = "", **more: Any) -> Check:
    return Check(claim.text, source, verdict, why, start=claim.start, end=claim.end, **more)


class _Found(NamedTuple):
    """What one page has for a claim: where it was looked, what was found, and the verdict of that page alone."""

    page: PageIndex
    support: Support
    check: Check


class Verifier:
    """The pages of a run, ready to be asked about single claims."""

    def __init__(
        self,
        summary: str,
        pages: Mapping[int, str | Page],
        thresholds: Thresholds = THRESHOLDS,
        patience: Patience | None = None,
    ) -> None:
        self._pages = dict(pages)
        self._patience = patience or unbounded()
        opened = ((n, open_page(pages[n], self._patience)) for n in sorted(pages))
        self._index: dict[int, PageView] = {n: page for n, page in opened if page is not None}
        self._rarity = Rarity(self._index[n] for n in sorted(self._index))
        self._language = language_of(" ".join(c.text for c in split_claims(summary)))
        # A short summary does not tell its language; its numbers are then read as those of the pages are.
        spoken = Counter(self._index[n].language for n in sorted(self._index))
        self._reads_as = self._language or (spoken.most_common(1)[0][0] if spoken else "")
        self._thresholds = thresholds
        self._linkers: dict[int, Linker] = {}

    def check(self, claim: Claim) -> list[Check]:
        """One check for each cited source: alone, then, where none matches alone, all together."""
        terms = self.read(claim)
        if len(terms.numbers) > MOST_NUMBERS or len(claim.text) > MOST_CHARACTERS:
            why = "the sentence is too long to be compared"
            return [_check(claim, n, "unchecked", why) for n in claim.cited] or [_check(claim, None, "uncited", why)]
        if not claim.cited:
            better = self.better_source(terms, ())
            why = "no source is cited" + (f"; Source {better} does have it" if better is not None else "")
            return [_check(claim, None, "uncited", why, better_source=better)]
        known = [n for n in claim.cited if n in self._pages]
        found: dict[int, _Found] = {}
        checks: dict[int, Check] = {}
        for number in known:
            one = self._find(terms, claim, number)
            if one is not None:
                found[number] = one
            checks[number] = one.check if one is not None else _check(claim, number, "unchecked", NO_TIME)
        if len(found) > 1 and not any(check.verdict == "matched" for check in checks.values()):
            checks |= self._together(terms, found)
        for number in claim.cited:
            if number not in self._pages:
                checks[number] = _check(claim, number, "not_found", f"no such source: nothing read is Source {number}")
        best = max(checks.values(), key=lambda c: _ORDER[c.verdict])
        if best.verdict not in ("matched", "unchecked"):
            better = self.better_source(terms, claim.cited)
            if better is not None:
                for number, check in checks.items():
                    why = f"{check.why}; Source {better} does have it".removeprefix("; ")
                    checks[number] = replace(check, better_source=better, why=why)
        return [checks[number] for number in claim.cited]

    def _read_as_copied(self, claim: Claim, number: int) -> ClaimTerms | None:
        """A sentence copied from a page writes its numbers as that page does, whatever the summary's language."""
        page = self._index[number]
        same_comma = page.decimal_comma == (self._reads_as in DECIMAL_COMMA)
        if same_comma or not page.holds(" ".join(claim.text.split())):
            return None
        return read_claim(claim.text, page.language, claim.context)

    def read(self, claim: Claim) -> ClaimTerms:
        return read_claim(claim.text, self._reads_as, claim.context)

    def better_source(self, terms: ClaimTerms, cited: tuple[int, ...]) -> int | None:
        """Another page of the run that matches the claim, the one that covers most; None for none."""
        best: tuple[float, int] | None = None
        for number in sorted(self._index):
            page = self._index[number]
            if number in cited or self._foreign(page) or self._is_snippet(number) or not self._may_match(terms, page):
                continue
            if not self._patience.may_check():
                break
            support = find_support(terms, page.about(terms), self._rarity, self._thresholds)
            if self._patience.gave_up:
                break
            if decide(terms, support, page.word_count, self._thresholds) == "matched":
                best = max(best or (-1.0, 0), (support.coverage, -number))
        return None if best is None else -best[1]

    def _may_match(self, terms: ClaimTerms, page: PageView) -> bool:
        """False where the page holds too few of the claim's words anywhere."""
        in_words = frozenset(content_words(" ".join(count.text for count in terms.counts)))  # the page may have 7
        lacking = sum(not page.has_stem(stem) for stem in terms.stems - in_words)
        return terms.weight - lacking >= (self._thresholds.matched - 0.001) * terms.weight

    def best_passages(self, terms: ClaimTerms, most: int) -> list[tuple[int, Passage]]:
        """The passages of all pages that come closest to a claim, as (source, passage), best first."""
        found = []
        for number in sorted(self._index):
            if not self._patience.may_check():
                break
            page = self._index[number].about(terms)
            support = find_support(terms, page, self._rarity, self._thresholds)
            if self._patience.gave_up:
                break
            found += [(support.coverage, -number, p) for p in self._passages(number, page, support)[:2]]
        found.sort(key=lambda item: (-item[0], -item[1], item[2].start))
        return [(-number, passage) for _, number, passage in found[:most]]

    # --- one source

    def _find(self, terms: ClaimTerms, claim: Claim, number: int) -> _Found | None:
        """What one page has for a claim, and the verdict of that page alone; None where the time is over."""
        if number not in self._index or not self._patience.may_check():
            return None
        here = self._read_as_copied(claim, number) or terms
        page = self._index[number].about(here)
        support = find_support(here, page, self._rarity, self._thresholds)
        if self._patience.gave_up:
            return None
        return _Found(page, support, self._alone(claim, here, number, page, support))

    def _alone(self, claim: Claim, terms: ClaimTerms, number: int, page: PageIndex, support: Support) -> Check:
        verdict = decide(terms, support, page.word_count, self._thresholds)
        why = why_of(terms, support, verdict, page.word_count)
        if not page.text.strip():
            verdict, why = "unchecked", "the page gave no text"
        elif verdict in ("partly", "not_found") and self._foreign(page):
            verdict, why = self._foreign_verdict(page, support)
        if verdict in ("partly", "not_found") and not page.complete:
            verdict, why = "unchecked", f"the page is too long to be looked at whole: {page.looked_at()}"
        if verdict == "matched" and self._is_snippet(number):
            verdict, why = "partly", "only the search engine's snippet was read, not the page"
        passages = self._passages(number, page, support) if verdict != "unchecked" else ()
        missing = (*support.missing_numbers, *support.missing_names, *support.missing_quotations)
        return _check(
            claim,
            number,
            verdict,
            why,
            passages=passages,
            coverage=support.coverage,
            missing=missing if verdict != "unchecked" else (),
            flags=tuple(support.flags) if verdict != "unchecked" else (),
        )

    def _foreign(self, page: PageView) -> bool:
        return bool(page.language and self._language and page.language != self._language)

    def _foreign_verdict(self, page: PageView, support: Support) -> tuple[Verdict, str]:
        """Words of two languages cannot be compared, but figures and quotations can."""
        missing = support.missing_numbers + [f"“{text[:80]}”" for text in support.missing_quotations]
        language = page.language if len(page.language) == 2 else page.language.capitalize()
        if missing:
            return (
                "not_found",
                f"not on the page: {', '.join(missing)} (its words, in another language, cannot be compared)",
            )
        return "unchecked", f"the page is in another language ({language}); its words cannot be compared"

    def _is_snippet(self, number: int) -> bool:
        page = self._pages[number]
        return isinstance(page, Page) and page.kind == "snippet"

    def _passages(self, number: int, page: PageIndex, support: Support) -> tuple[Passage, ...]:
        if number not in self._linkers:
            self._linkers[number] = Linker(self._pages[number])
        found = []
        for start, end in passages_of(support, page)[: self._thresholds.max_passages]:
            link, page_number = self._linkers[number].link(start, end)
            found.append(Passage(start, end, page.text[start:end], support.coverage, page_number, link))
        return tuple(found)

    # --- several sources

    def _together(self, terms: ClaimTerms, found: Mapping[int, _Found]) -> dict[int, Check]:
        """The checks of the sources that bear a claim out together where none does alone."""
        parts = {n: (one.page, one.support) for n, one in found.items()}
        joint = joint_support(terms, list(parts.values()))
        words = sum(page.word_count for page, _ in parts.values())
        verdict = decide(terms, joint, words, self._thresholds)
        if verdict not in ("matched", "partly"):
            return {}
        if any(self._is_snippet(n) for n in parts):
            verdict = "partly"
        changed = {}
        for number, check in ((n, one.check) for n, one in found.items()):
            rest = [part for n, part in parts.items() if n != number]
            without = joint_support(terms, rest)
            adds = joint.coverage - without.coverage >= ADDS_LITTLE or len(without.missing_numbers) > len(
                joint.missing_numbers
            )
            if not adds:
                if _ORDER[check.verdict] < _ORDER["partly"]:
                    why = f"{check.why}; it adds nothing to the other sources".removeprefix("; ")
                    changed[number] = replace(check, why=why)
                continue
            if _ORDER[verdict] > _ORDER[check.verdict]:
                others = ", ".join(str(n) for n in parts if n != number)
                why = f"together with Source {others}"
                if verdict == "partly":
                    why += ": " + why_of(terms, joint, verdict, words)
                missing = (*joint.missing_numbers, *joint.missing_names, *joint.missing_quotations)
                changed[number] = replace(
                    check, verdict=verdict, why=why.removesuffix(": "), missing=missing, flags=tuple(joint.flags)
                )
        return changed
