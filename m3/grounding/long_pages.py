"""A long page as a claim sees it: read closely where its words stand, looked up as a whole for what stands nowhere.

The verdicts are those of a page that is read whole: the sentences that bear a claim out lie in the windows that hold
its words, and a number, a name or a quotation is looked for in all that was taken in of the page.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from m3.grounding.index import PageIndex, PageView, index_page
from m3.grounding.language import content_stem, content_words, language_of
from m3.grounding.names import initials_pattern
from m3.grounding.numbers import Number, number_words, numbers_in, same_number
from m3.grounding.patience import Patience
from m3.grounding.quotations import NormalText, quotation_parts
from m3.grounding.sentences import split_sentences
from m3.grounding.windows import LONG, words_of
from m3.records import Page
from m3.words import words

if TYPE_CHECKING:
    from m3.grounding.support import ClaimTerms

CLOSELY = 10  # windows that are read closely for one claim
PREPARED = 40  # windows that are read closely before there is a claim: some 80,000 characters
QUOTATION_WINDOWS = 6  # in which a quotation is looked for
MOST_LOOKED_UP = 800  # places at which one number may be looked for
PLACES_BETWEEN_CLOCKS = 50
AROUND = 60  # characters beside a numeral that tell its value: a scale, a range, a unit
WORDS_IN_TEXT = 6  # characters of text a word, for an estimate


class LongPage(PageView):
    """A page of more than `LONG` characters, or the part of it that `patience` let be looked at."""

    def __init__(self, text: str, title: str, url: str, patience: Patience) -> None:
        super().__init__(text, title, url, language_of(text))
        self._patience = patience
        self._words = words_of(text)
        self._windows = self._words.read(url, patience)
        self._end = self._words.spans[self._windows - 1][1] if self._windows else 0
        self._unsure = False  # something was not looked for everywhere, for the claim that is checked now
        self.size = self._windows
        self.word_count = len(text) // WORDS_IN_TEXT

    @property
    def complete(self) -> bool:  # type: ignore[override]
        return self._end >= len(self.text) and not self._unsure

    def looked_at(self) -> str:
        if self._end < len(self.text):
            return f"the run's time sufficed for its first {self._end:,} of {len(self.text):,} characters"
        return "what is missing may stand in too many places"

    def about(self, claim: ClaimTerms) -> PartIndex:
        """The windows that matter for a claim, read closely."""
        self._unsure = False
        wanted = [(self._words.places(stem, content_stem), 1.0) for stem in sorted(claim.stems)]
        wanted += [(self._places_of(number), 1.0) for number in claim.numbers]
        chosen = self._words.best(wanted, self._windows, CLOSELY)
        return PartIndex(self, [self._closely(number) for number in chosen if not self._is_over()])

    def prepare(self) -> None:
        """Read closely now what the first claims would: all windows, unless there are many."""
        for window in range(min(self._windows, PREPARED)):
            self._closely(window)

    def _closely(self, window: int) -> Closely:
        kept: dict[int, Closely] = self._words.closely
        if window not in kept:
            kept[window] = Closely(self.text, *self._words.spans[window], decimal_comma=self.decimal_comma)
        return kept[window]

    # --- what stands anywhere in what was taken in

    def frequency(self, stem: str) -> int:
        return self._words.count(stem, content_stem, self._windows)

    def has_stem(self, stem: str) -> bool:
        return stem in self.head or self.frequency(stem) > 0

    def has_form(self, form: str) -> bool:
        return self._words.has_form(form, self._windows) or super().has_form(form) or self._abbreviates(form)

    def _abbreviates(self, form: str) -> bool:
        """Whether the page writes an abbreviation with full stops, or only the names that it is made of."""
        pattern = initials_pattern(form)
        if pattern is None:
            return False
        known = self._words.initials
        if form not in known:
            found = (m.start() for part in self._stretches() if (m := pattern.search(self.text, *part)))
            start = next(found, -1)
            if start < 0 and (self._patience.gave_up or self._end < len(self.text)):
                return False
            known[form] = start
        return 0 <= known[form] < self._end

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """What was taken in, a few windows at a time, until the time is over."""
        for start in range(0, self._end, 100_000):
            if self._is_over():
                return
            yield max(0, start - 200), min(self._end, start + 100_000)

    def _is_over(self) -> bool:
        """Whether the time is over; the check that goes on now is then not to be relied on."""
        if self._patience.over():
            self._patience.give_up()
        return self._patience.gave_up

    def has_number(self, number: Number) -> bool:
        """Whether a number stands on the page, by value; looked for where anything is written that may be it."""
        if any(same_number(number, other) for other in self.head_numbers):
            return True
        for looked, (start, end) in enumerate(self._writings(number)):
            if looked >= MOST_LOOKED_UP:
                self._unsure = True
                return False
            if looked % PLACES_BETWEEN_CLOCKS == 0 and self._is_over():
                return False
            left = max(0, start - AROUND)
            around = self.text[left : end + AROUND]
            found = numbers_in(around, decimal_comma=self.decimal_comma, small_words=True)
            if any(n.start <= start - left < n.end and same_number(number, n) for n in found):
                return True
        return False

    def _places_of(self, number: Number) -> list[int]:
        """The windows that hold something written in digits that may be a number."""
        return sorted({place for places in self._words.writings(number).values() for place in places})

    def _writings(self, number: Number) -> Iterator[tuple[int, int]]:
        """Every place of what may be a number, written in digits or begun in words."""
        for numeral, places in self._words.writings(number).items():
            yield from self._places_in_text(re.compile(re.escape(numeral)), places)
        for word in number_words(number):
            everywhere = len(word) == 1 and not word.isascii()  # Han and kana are indexed in pairs
            windows: Sequence[int] = range(self._windows) if everywhere else self._words.places_of_word(word)
            yield from self._places_in_text(re.compile(re.escape(word), re.I), windows)

    def _places_in_text(self, pattern: re.Pattern[str], windows: Sequence[int]) -> Iterator[tuple[int, int]]:
        for window in windows:
            if window >= self._windows:
                return
            for match in pattern.finditer(self.text, *self._words.spans[window]):
                yield match.span()

    def find(self, quotation: str) -> tuple[int, int] | None:
        """Where a quotation stands; of one with an ellipsis the first part, where each part stands somewhere."""
        found = [self._find(part) for part in quotation_parts(quotation)]
        return found[0] if found and all(found) else None

    def _find(self, quotation: str) -> tuple[int, int] | None:
        wanted = [(self._words.places_of_word(word), 1.0) for word in dict.fromkeys(words(quotation))]
        for window in self._words.best(wanted, self._windows, QUOTATION_WINDOWS):
            start = self._words.spans[max(0, window - 1)][0]
            end = self._words.spans[min(self._windows - 1, window + 1)][1]
            span = NormalText(self.text[start:end]).find(quotation)
            if span is not None:
                return start + span[0], start + span[1]
        return None

    def holds(self, text: str) -> bool:
        wanted = [(self._words.places_of_word(word), 1.0) for word in dict.fromkeys(words(text))]
        best = self._words.best(wanted, self._windows, 2)
        return any(text in " ".join(self.text[slice(*self._words.spans[window])].split()) for window in best)


class Closely:
    """The sentences of one window with their stems and numbers."""

    def __init__(self, text: str, start: int, end: int, *, decimal_comma: bool) -> None:
        self.spans = split_sentences(text, start, end)
        self.stems = [frozenset(content_words(text[a:b])) for a, b in self.spans]
        self.numbers = [
            [n.moved(a) for n in numbers_in(text[a:b], decimal_comma=decimal_comma, small_words=True)]
            for a, b in self.spans
        ]


class PartIndex(PageIndex):
    """Some windows of a long page, as if they were the page; for what stands nowhere the page itself is asked."""

    def __init__(self, page: LongPage, windows: list[Closely]) -> None:
        PageView.__init__(self, page.text, page.title, page.url, page.language)
        self._page = page
        self.spans = [span for window in windows for span in window.spans]
        self.starts = [start for start, _ in self.spans]
        self.stems = [stems for window in windows for stems in window.stems]
        self.numbers = [numbers for window in windows for numbers in window.numbers]
        self.by_stem = defaultdict(list)
        for i, stems in enumerate(self.stems):
            for stem in stems:
                self.by_stem[stem].append(i)
        self._index_values()
        self.size = page.size
        self.word_count = page.word_count

    @property
    def complete(self) -> bool:  # type: ignore[override]
        return self._page.complete

    def looked_at(self) -> str:
        return self._page.looked_at()

    def frequency(self, stem: str) -> int:
        return self._page.frequency(stem)

    def has_stem(self, stem: str) -> bool:
        return self._page.has_stem(stem)

    def has_form(self, form: str) -> bool:
        return self._page.has_form(form)

    def has_number(self, number: Number) -> bool:
        return self._page.has_number(number)

    def find(self, quotation: str) -> tuple[int, int] | None:
        return self._page.find(quotation)


def open_page(page: str | Page, patience: Patience) -> PageIndex | LongPage | None:
    """A page for claims to be compared with: whole, or through windows where it is long. None once time is over."""
    text, title, url = (page, "", "") if isinstance(page, str) else (page.text, page.title, page.url)
    if patience.reach(url, len(text) or 1) == 0 or patience.over():
        patience.looked(url, 0, len(text))
        return None
    return index_page(page) if len(text) <= LONG else LongPage(text, title, url, patience)


__all__ = ["LongPage", "PartIndex", "open_page"]
