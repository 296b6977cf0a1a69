"""A long text cut into windows, and which words stand in which: what decides where it is worth reading closely.

Reading every sentence of a book for its names, numbers and stems takes seconds a megabyte. Its words alone are known
in a twentieth of that, and they tell exactly which windows share anything with a question or a claim.
"""

from __future__ import annotations

import math
import threading
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import lru_cache
from heapq import nlargest
from typing import Any

from m3.grounding.numbers import Number, leading_digits, leading_ranges
from m3.grounding.patience import Patience
from m3.grounding.sentences import piece_end
from m3.patterns import lazy_pattern
from m3.words import distinct_words

LONG = 60_000  # characters; a longer page is looked at through windows, a shorter one whole
WINDOWS_BETWEEN_CLOCKS = 32  # some 5 ms of work
PAGES_KEPT = 24

# Begins with one digit, not with a choice: that is looked for four times as fast.
_NUMERAL = lazy_pattern(r"\d(?:\d{0,2}(?:[ \u00a0\u202f]\d{3})+(?!\d)|\d*(?:[.,'’]\d+)*)")


class PageWords:
    """The windows of one text and the words in each. It grows as far as `read` is let; `looked` says how far.

    spans: (start, end) of each window; they follow each other without gaps, cut at ends of lines or sentences.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans: list[tuple[int, int]] = []
        self.looked = 0
        self._ends: list[int] = []
        self._places: dict[str, list[int]] = {}
        self._numerals: dict[str, list[int]] = {}
        self._alike: dict[str, list[str]] = {}  # words by how they begin
        self._leading: list[tuple[float, str]] = []  # the same by their leading digits
        self._leading_sorted = True
        self._first: dict[str, int] = {}  # where a word, its accents folded, or the unit behind a number stands first
        self._known: dict[tuple[Callable[[str], str], str], list[int]] = {}
        self.closely: dict[int, Any] = {}  # windows that were read closely, by whom it concerns
        self.initials: dict[str, int] = {}  # abbreviations that were looked for, and where they stand
        self._lock = threading.Lock()

    def read(self, url: str, patience: Patience) -> int:
        """Take in the text until its end or until `patience` is over; how many windows may be used now."""
        length = len(self.text)
        reach = patience.reach(url, length)
        with self._lock:
            while self.looked < (length if reach is None else reach):
                if len(self.spans) % WINDOWS_BETWEEN_CLOCKS == 0 and reach is None and patience.over():
                    break
                self._add(self.looked, piece_end(self.text, self.looked))
            looked = self.looked if reach is None else min(self.looked, reach)
        patience.looked(url, looked, length)
        return bisect_left(self._ends, looked) + (looked in self._ends[-1:]) if looked < length else len(self.spans)

    def _add(self, start: int, end: int) -> None:
        number = len(self.spans)
        piece = self.text[start:end]
        for word in distinct_words(piece):
            places = self._places.get(word)
            if places is None:
                places = self._places[word] = []
                self._alike.setdefault(_beginning(word), []).append(word)
                self._first.setdefault(folded(word), number)
                if word[0].isdigit():
                    self._first.setdefault(word.lstrip("0123456789"), number)
            places.append(number)
        for numeral in set(_NUMERAL.findall(piece)):
            places = self._numerals.get(numeral)
            if places is None:
                places = self._numerals[numeral] = []
                self._leading += [(digits, numeral) for digits in leading_digits(numeral)]
                self._leading_sorted = False
            places.append(number)
        self.spans.append((start, end))
        self._ends.append(end)
        self.looked = end
        self._known.clear()

    # --- asking

    def places(self, stem: str, stem_of: Callable[[str], str]) -> list[int]:
        """The windows that hold a word of this stem, in order. stem_of: the function that made the stem."""
        key = (stem_of, stem)
        found = self._known.get(key)
        if found is None:
            begin = folded(stem)[:-1] if len(stem) > 2 else ""
            same = [
                self._places[word]
                for word in self._alike.get(_beginning(stem), ())
                if (word == stem or folded(word).startswith(begin) or len(word) < 6) and stem_of(word) == stem
            ]
            found = same[0] if len(same) == 1 else sorted({place for places in same for place in places})
            self._known[key] = found
        return found

    def places_of_word(self, word: str) -> list[int]:
        """The windows that hold this very word, case-folded as `m3.words.words` gives it."""
        return self._places.get(word, [])

    def count(self, stem: str, stem_of: Callable[[str], str], windows: int) -> int:
        """How many of the first `windows` windows hold a word of this stem."""
        places = self.places(stem, stem_of)
        return len(places) if windows >= len(self.spans) else bisect_left(places, windows)

    def has_form(self, form: str, windows: int) -> bool:
        """Whether one of the first `windows` windows holds this word, written with or without accents."""
        return self._first.get(form, windows) < windows

    def writings(self, number: Number) -> dict[str, list[int]]:
        """What is written in digits and may be this number or begin it, and the windows where it stands."""
        if not number.values:
            return {numeral: places for numeral, places in self._numerals.items() if number.text in numeral}
        if not self._leading_sorted:
            self._leading.sort()
            self._leading_sorted = True
        found = {}
        for low, high in leading_ranges(number):
            for _, numeral in self._leading[
                bisect_left(self._leading, (low, "")) : bisect_left(self._leading, (high, ""))
            ]:
                found[numeral] = self._numerals[numeral]
        return found

    def rarity(self, places: int, windows: int) -> float:
        """How much it tells that a window holds what stands in `places` of `windows` of them (as in BM25)."""
        return math.log(1 + (windows - places + 0.5) / (places + 0.5))

    def best(self, wanted: Iterable[tuple[list[int], float]], windows: int, most: int) -> list[int]:
        """The windows among the first `windows` that hold most of what is wanted, in order; at most `most`.

        wanted: for each thing the windows that hold it, and its weight beside its rarity. After the best windows by the
        sum come, for what none of them holds, the best windows that do.
        """
        scores: dict[int, float] = {}
        asked = []
        for places, weight in wanted:
            if len(self.spans) > windows:
                places = places[: bisect_left(places, windows)]
            if not places:
                continue
            asked.append(places)
            value = weight * self.rarity(len(places), windows)
            for place in places:
                scores[place] = scores.get(place, 0.0) + value
        by_score = nlargest(most, scores, key=lambda place: (scores[place], -place))
        chosen = set(by_score)
        for places in asked:
            if len(places) <= windows // 4 and not any(_holds(places, place) for place in by_score):
                chosen.add(max(places, key=lambda place: (scores[place], -place)))
        return sorted(chosen)


def _holds(places: list[int], place: int) -> bool:
    at = bisect_left(places, place)
    return at < len(places) and places[at] == place


@lru_cache(maxsize=PAGES_KEPT)
def words_of(text: str) -> PageWords:
    """The windows of a text, one object for the same text while it is remembered."""
    return PageWords(text)


@lru_cache(maxsize=65_536)
def folded(word: str) -> str:
    """A word without its accents."""
    if word.isascii():
        return word
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


def _beginning(word: str) -> str:
    """What a word and its stem have in common for certain: two letters, y for i (dying, die)."""
    return folded(word)[:2].replace("y", "i")
