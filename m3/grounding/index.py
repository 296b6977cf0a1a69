"""One page, cut and indexed once for every claim that cites it."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property, lru_cache
from threading import Lock
from typing import TYPE_CHECKING

from m3.grounding.language import DECIMAL_COMMA, content_words, language_of
from m3.grounding.names import is_known, page_forms
from m3.grounding.numbers import Number, Numbers, numbers_in
from m3.grounding.quotations import NormalText, index_of
from m3.grounding.sentences import split_sentences
from m3.records import Page

if TYPE_CHECKING:
    from m3.grounding.support import ClaimTerms

NEIGHBOUR = 0.3  # a sentence gains this share of its better neighbour's score: +0.7 points of hit@1 on WiCE dev
MOST_PAGES = 64  # kept indexed at once


class PageView:
    """What a page's title and address say, and what a claim may ask of its text.

    complete: what is not found here stands nowhere on the page; size: sentences, or windows of a long page;
    word_count: words of the text.
    """

    complete: bool = True
    size: int
    word_count: int

    def __init__(self, text: str, title: str, url: str, language: str) -> None:
        self.text, self.title, self.url, self.language = text, title, url, language
        self.decimal_comma = language in DECIMAL_COMMA
        self.address = re.sub(r"[\W_]+", " ", url.split("//", 1)[-1])
        self.head = frozenset(content_words(f"{title} {self.address}"))
        self.head_numbers = numbers_in(f"{title} {self.address}")

    def looked_at(self) -> str:
        """How much of the text could be looked at."""
        return "all of it was"

    def about(self, claim: ClaimTerms) -> PageIndex:
        """The sentences that a claim may be compared with."""
        raise NotImplementedError

    def frequency(self, stem: str) -> int:
        """How many of the page's `size` parts hold a stem."""
        raise NotImplementedError

    def has_stem(self, stem: str) -> bool:
        raise NotImplementedError

    def has_form(self, form: str) -> bool:
        """Whether the page has a name's form (`m3.grounding.names.page_forms`)."""
        return form in self._head_forms

    def has_number(self, number: Number) -> bool:
        """Whether a number stands on the page, by value."""
        raise NotImplementedError

    def find(self, quotation: str) -> tuple[int, int] | None:
        """Where a quotation stands in the text, letter for letter but for slips of spelling; None for nowhere."""
        raise NotImplementedError

    def holds(self, text: str) -> bool:
        """Whether a text stands on the page exactly, but for white space."""
        raise NotImplementedError

    def knows(self, name: str) -> bool:
        return is_known(name, self.has_form, self.has_stem)

    @cached_property
    def _head_forms(self) -> frozenset[str]:
        return page_forms((self.title, self.address))


class PageIndex(PageView):
    """The sentences of a page with their stems and numbers. `spans[i]` are offsets into `text`."""

    def __init__(self, text: str, title: str = "", url: str = "") -> None:
        super().__init__(text, title, url, language_of(text))
        self.spans = split_sentences(text)
        self.starts = [start for start, _ in self.spans]
        self.stems = [frozenset(content_words(text[a:b])) for a, b in self.spans]
        self.by_stem: defaultdict[str, list[int]] = defaultdict(list)
        for i, stems in enumerate(self.stems):
            for stem in stems:
                self.by_stem[stem].append(i)
        self.numbers: list[list[Number]] = [[] for _ in self.spans]
        for number in numbers_in(text, decimal_comma=self.decimal_comma, small_words=True):
            if self.spans:
                self.numbers[index_of(self.starts, number.start)].append(number)
        self._index_values()
        self.size = len(self.spans)
        # A Han or kana character counts as half a word.
        self.word_count = len(re.findall(r"[^\W\u3040-\u9fff]+", text)) + len(re.findall("[\u3040-\u9fff]", text)) // 2

    def _index_values(self) -> None:
        self.by_value: defaultdict[float, list[int]] = defaultdict(list)
        for i, numbers in enumerate(self.numbers):
            for value in {v for n in numbers for v in n.values}:
                self.by_value[value].append(i)

    def about(self, claim: ClaimTerms) -> PageIndex:
        return self

    def frequency(self, stem: str) -> int:
        return len(self.by_stem.get(stem, ()))

    def has_stem(self, stem: str) -> bool:
        return stem in self.by_stem or stem in self.head

    def has_form(self, form: str) -> bool:
        return form in self._forms

    def has_number(self, number: Number) -> bool:
        return self._all_numbers.has(number)

    def find(self, quotation: str) -> tuple[int, int] | None:
        return self._normal.find(quotation)

    def holds(self, text: str) -> bool:
        return text in self._flat

    @cached_property
    def _forms(self) -> frozenset[str]:
        return page_forms((self.text, self.title, self.address))

    @cached_property
    def _normal(self) -> NormalText:
        return NormalText(self.text)

    @cached_property
    def _flat(self) -> str:
        return " ".join(self.text.split())

    @cached_property
    def _all_numbers(self) -> Numbers:
        return Numbers([*(n for numbers in self.numbers for n in numbers), *self.head_numbers])

    def prepare(self) -> None:
        """Reckon now what is otherwise reckoned when the first claim is compared."""
        _ = self._forms, self._all_numbers, self._normal

    def sentence(self, i: int) -> str:
        start, end = self.spans[i]
        return self.text[start:end]


_building = Lock()


@lru_cache(maxsize=MOST_PAGES)
def _index(text: str, title: str, url: str) -> PageIndex:
    return PageIndex(text, title, url)


def index_page(page: str | Page) -> PageIndex:
    """The index of a page or of a bare text. The same text is indexed once while it is remembered."""
    key = (page, "", "") if isinstance(page, str) else (page.text, page.title, page.url)
    with _building:  # who needs a page that another thread is indexing waits for it instead of doing it again
        return _index(*key)


class Rarity:
    """How much a word tells: inverse document frequency over the sentences of all pages of a run."""

    def __init__(self, pages: Iterable[PageView]) -> None:
        self._pages = list(pages)
        self._sentences = sum(page.size for page in self._pages)
        self._known: dict[str, float] = {}

    def __call__(self, stem: str) -> float:
        if stem not in self._known:
            frequency = sum(page.frequency(stem) for page in self._pages)
            self._known[stem] = math.log(1 + (self._sentences + 0.5) / (frequency + 0.5))
        return self._known[stem]

    @property
    def of_a_number(self) -> float:
        """Numbers are looked up by value; each counts as much as a word that stands in two sentences."""
        return math.log(1 + (self._sentences + 0.5) / 2.5)
