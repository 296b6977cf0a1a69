"""Links that open a page on the words of a quote: URL#:~:text=… (WICG "Scroll to Text Fragment").

The browser compares without case and accents, takes any run of white space for one blank, wants word boundaries at
both ends, and each term within one block of the page. The first match counts, so a term that recurs needs context.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from m3.patterns import lazy_pattern
from m3.records import Block, Page
from m3.words import without_accents

MAX_EXACT = 300  # characters of a term; a longer quote becomes start,end (the polyfill's bound)
MIN_ALONE = 20  # a shorter quote always gets context
MOST_CONTEXT = 6  # words before or after
MAX_DIRECTIVE = 600  # characters once encoded; Cyrillic and Han take nine a letter

_WORD = lazy_pattern(r"\w+")
_CJK = lazy_pattern("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


class TextFragment(NamedTuple):
    """One text directive: `[prefix-,]start[,end][,-suffix]`."""

    start: str
    end: str = ""
    prefix: str = ""
    suffix: str = ""

    def directive(self) -> str:
        """`:~:text=…`, percent-encoded; `-`, `,` and `&` would be read as syntax."""
        parts = [f"{_encode(self.prefix)}-"] if self.prefix else []
        parts.append(_encode(self.start))
        if self.end:
            parts.append(_encode(self.end))
        if self.suffix:
            parts.append(f"-{_encode(self.suffix)}")
        return ":~:text=" + ",".join(parts)


def _encode(term: str) -> str:
    return quote(term, safe="", errors="replace").replace("-", "%2D")


def deep_link(url: str, fragment: TextFragment | None) -> str:
    """The page's address with the directive; an ordinary `#fragment` is kept, an old directive is replaced."""
    base, _, anchor = url.partition("#")
    anchor = anchor.split(":~:", 1)[0]
    if fragment is None:
        return f"{base}#{anchor}" if anchor else base
    return f"{base}#{anchor}{fragment.directive()}"


class Linker:
    """Makes links into one page. `link(start, end)` gives (link or "", PDF page or None) for a span of its text."""

    def __init__(self, page: str | Page) -> None:
        self._page = page if isinstance(page, Page) else Page(url="", text=page)
        self._is_web = urlsplit(self._page.url).scheme in ("http", "https") if _is_address(self._page.url) else False
        self._starts = [block.start for block in self._page.blocks]

    def link(self, start: int, end: int) -> tuple[str, int | None]:
        block = self._block(start)
        number = block.page_number if block else None
        if not self._is_web:
            return "", number
        if number is not None:
            return deep_link(self._page.url.split("#", 1)[0] + f"#page={number}", None), number
        return deep_link(self._page.url, self.fragment(start, end)), number

    def fragment(self, start: int, end: int) -> TextFragment | None:
        """The directive that finds text[start:end] on the page and nothing before it; None when none does."""
        text = self._page.text
        start, end = _to_words(text, start, end)
        block = self._block(start)
        if block is not None and block.kind == "table_row" and end <= block.end:
            return self._cell(text[start:end])
        start = _past_marks(text, start, end)
        pieces = [(m.start() + start, m.end() + start) for m in re.finditer(r"[^\n]+", text[start:end])]
        pieces = [(a, b) for a, b in pieces if _WORD.search(text, a, b)]
        if not pieces:
            return None
        first, last = text[slice(*pieces[0])].strip(), text[slice(*pieces[-1])].strip()
        if len(pieces) == 1 and len(first) <= MAX_EXACT:
            found = self._exact(first, *pieces[0])
            if found is not None and len(found.directive()) <= MAX_DIRECTIVE:
                return found
        return self._start_end(first, last, " ".join(text[start:end].split()))

    # --- kinds of directive

    def _exact(self, term: str, start: int, end: int) -> TextFragment | None:
        """The whole quote as one term; with words of its own block around it where it recurs.

        A whole block that recurs needs none: the first place says the same words. Words of the blocks around are only
        used for a short quote, since the page may show between two blocks what extraction left out.
        """
        text = self._page.text
        if len(term) >= MIN_ALONE and self._count(term) == 1:
            return TextFragment(term)
        before = text[max(0, start - 200) : start]
        after = text[end : end + 200]
        near = self._with_context(term, before.rsplit("\n", 1)[-1], after.split("\n", 1)[0])
        if near is not None:
            return near
        if len(term) >= MIN_ALONE:
            return TextFragment(term)
        return self._with_context(term, before.rstrip().rsplit("\n", 1)[-1], after.lstrip().split("\n", 1)[0])

    def _with_context(self, term: str, before: str, after: str) -> TextFragment | None:
        left, right = _words_of(before), _words_of(after)
        for words in range(1, MOST_CONTEXT + 1):
            prefix, suffix = _last_words(left, words), _first_words(right, words)
            for a, b in ((prefix, ""), ("", suffix), (prefix, suffix)):
                if (a or b) and self._count(term, a, b) == 1:
                    return TextFragment(term, prefix=a, suffix=b)
        return None

    def _start_end(self, first: str, last: str, whole: str) -> TextFragment | None:
        page, wanted = self._page_text(), _normalised(whole)
        head, tail = _words_of(first), _words_of(last)
        for words in range(3, 13):
            start, end = _first_words(head, words), _last_words(tail, words)
            if not start or not end or self._count(start) != 1:
                continue
            at = page.find(_normalised(start))
            stop = page.find(_normalised(end), at + len(_normalised(start)))
            if stop >= 0 and abs(stop + len(_normalised(end)) - at - len(wanted)) <= 3:
                return TextFragment(start, end)
        return None

    def _cell(self, row: str) -> TextFragment | None:
        """Of a table row the longest cell that stands once on the page; the bars between cells stand nowhere."""
        cells = [re.sub(r"^[^:|]{1,40}: ", "", c).strip(" *_`") for c in re.split(r"\s*\|\s*|; ", row)]
        for cell in sorted(cells, key=len, reverse=True):
            if len(cell) >= 4 and re.search(r"[^\W\d]", cell) and self._count(cell) == 1:
                return TextFragment(cell)
        cells = [c for c in cells if _WORD.search(c)]
        for one, other in zip(cells, cells[1:], strict=False):
            if self._count(one, "", other) == 1:
                return TextFragment(one, suffix=other)
        return None

    # --- the page as the browser compares it

    def _page_text(self) -> str:
        return _normalised(self._page.text)

    def _count(self, term: str, prefix: str = "", suffix: str = "") -> int:
        """Whole-word occurrences of a term with its context on the page; 2 stands for more than one."""
        page, wanted = self._page_text(), _normalised(term)
        before, after = _normalised(prefix), _normalised(suffix)
        found, at = 0, -1
        while wanted and found < 2:
            at = page.find(wanted, at + 1)
            if at < 0:
                break
            stop = at + len(wanted)
            whole = _edge(page, at) and _edge(page, stop)
            left = not before or page[max(0, at - len(before) - 20) : at].rstrip().endswith(before)
            right = not after or page[stop : stop + len(after) + 20].lstrip().startswith(after)
            found += whole and left and right
        return found

    def _block(self, start: int) -> Block | None:
        i = bisect_right(self._starts, start) - 1
        return self._page.blocks[i] if i >= 0 and start < self._page.blocks[i].end else None


def _is_address(url: str) -> bool:
    try:
        return bool(urlsplit(url).netloc)
    except ValueError:
        return False


@lru_cache(maxsize=256)
def _normalised(text: str) -> str:
    return " ".join(without_accents(text).casefold().split())


def _edge(page: str, at: int) -> bool:
    """True where a word may begin or end."""
    if at <= 0 or at >= len(page):
        return True
    left, right = page[at - 1], page[at]
    return not (left.isalnum() and right.isalnum()) or bool(_CJK.match(left) or _CJK.match(right))


def _to_words(text: str, start: int, end: int) -> tuple[int, int]:
    """The span widened to whole words, without blanks at its ends."""
    if not _CJK.search(text, start, end):
        while start > 0 and text[start - 1].isalnum() and text[start].isalnum():
            start -= 1
        while 0 < end < len(text) and text[end - 1].isalnum() and text[end].isalnum():
            end += 1
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


_MARKS = lazy_pattern(r"(?:[-*+•▪◦>|#]+\s+|\d{1,3}[.)]\s+|\[[^\]\n]*=[^\]\n]*\]\s*)+")


def _past_marks(text: str, start: int, end: int) -> int:
    """Past list marks and short codes, which stand in the text but not on the page."""
    match = _MARKS.match(text, start, end)
    return match.end() if match else start


class _Words(NamedTuple):
    """A text and where its words stand."""

    text: str
    spans: tuple[tuple[int, int], ...]

    def __bool__(self) -> bool:
        return bool(self.spans)


def _words_of(text: str) -> _Words:
    """The words of a text; of Han and kana every two characters count as one."""
    spans: list[tuple[int, int]] = []
    for match in re.finditer(r"\w+(?:[.,'’]\w+)*", text):  # 51.5 is one word to the browser
        if _CJK.search(match[0]):
            spans += [(i, min(i + 2, match.end())) for i in range(match.start(), match.end(), 2)]
        else:
            spans.append(match.span())
    return _Words(text, tuple(spans))


def _first_words(words: _Words, count: int) -> str:
    if not words:
        return ""
    return words.text[: words.spans[min(count, len(words.spans)) - 1][1]].strip()


def _last_words(words: _Words, count: int) -> str:
    if not words:
        return ""
    return words.text[words.spans[-min(count, len(words.spans))][0] :].strip()


__all__ = ["Linker", "TextFragment", "deep_link"]
