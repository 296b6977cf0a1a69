"""One page, cut and indexed once for every claim that cites it."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property, lru_cache
from threading import Lock

from m3.grounding.language import DECIMAL_COMMA, content_words, language_of
from m3.grounding.names import page_forms
from m3.grounding.numbers import Number, numbers_in
from m3.grounding.quotations import NormalText, index_of
from m3.grounding.sentences import split_sentences
from m3.records import Page

NEIGHBOUR = 0.3  # a sentence gains this share of its better neighbour's score: +0.7 points of hit@1 on WiCE dev
MOST_PAGES = 64  # kept indexed at once


class PageIndex:
    """The sentences of a page with their stems and numbers. `spans[i]` are offsets into `text`."""

    def __init__(self, text: str, title: str = "", url: str = "") -> None:
        self.text, self.title, self.url = text, title, url
        self.spans = split_sentences(text)
        self.starts = [start for start, _ in self.spans]
        self.language = language_of(text)
        self.stems = [frozenset(content_words(text[a:b])) for a, b in self.spans]
        self.by_stem: defaultdict[str, list[int]] = defaultdict(list)
        for i, stems in enumerate(self.stems):
            for stem in stems:
                self.by_stem[stem].append(i)
        self.numbers: list[list[Number]] = [[] for _ in self.spans]
        for number in numbers_in(text, decimal_comma=self.language in DECIMAL_COMMA, small_words=True):
            if self.spans:
                self.numbers[index_of(self.starts, number.start)].append(number)
        self.by_value: defaultdict[float, list[int]] = defaultdict(list)
        for i, numbers in enumerate(self.numbers):
            for value in {v for n in numbers for v in n.values}:
                self.by_value[value].append(i)
        self.address = re.sub(r"[\W_]+", " ", url.split("//", 1)[-1])
        self.head = frozenset(content_words(f"{title} {self.address}"))
        self.head_numbers = numbers_in(f"{title} {self.address}")

    @cached_property
    def word_count(self) -> int:
        """Words of the text; a Han or kana character counts as half a word."""
        return len(re.findall(r"[^\W\u3040-\u9fff]+", self.text)) + len(re.findall("[\u3040-\u9fff]", self.text)) // 2

    @cached_property
    def forms(self) -> frozenset[str]:
        return page_forms((self.text, self.title, self.address))

    @cached_property
    def all_stems(self) -> frozenset[str]:
        return frozenset(self.by_stem) | self.head

    @cached_property
    def normal(self) -> NormalText:
        return NormalText(self.text)

    @cached_property
    def all_numbers(self) -> list[Number]:
        return [n for numbers in self.numbers for n in numbers] + self.head_numbers

    def prepare(self) -> None:
        """Reckon now what is otherwise reckoned when the first claim is compared."""
        _ = self.word_count, self.forms, self.all_stems, self.all_numbers

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

    def __init__(self, pages: Iterable[PageIndex]) -> None:
        self._frequency: Counter[str] = Counter()
        self._sentences = 0
        for page in pages:
            self._sentences += len(page.spans)
            for stem, places in page.by_stem.items():
                self._frequency[stem] += len(places)
        self._known: dict[str, float] = {}

    def __call__(self, stem: str) -> float:
        if stem not in self._known:
            self._known[stem] = math.log(1 + (self._sentences + 0.5) / (self._frequency[stem] + 0.5))
        return self._known[stem]

    @property
    def of_a_number(self) -> float:
        """Numbers are looked up by value; each counts as much as a word that stands in two sentences."""
        return math.log(1 + (self._sentences + 0.5) / 2.5)
