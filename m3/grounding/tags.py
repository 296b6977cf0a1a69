"""Source tags: every form in which a model writes `[Source 2]`, in one place."""

from __future__ import annotations

import re
from collections.abc import Callable, Container

from m3.patterns import lazy_pattern

# What models write for "source" when they answer in another language; `#` and `:` are common slips.
_WORD = r"(?:sources?|src|quellen?|fuentes?|fontes?|fonti|fonte|источники?|ист|来源|來源|资料|資料|出典)"
# Every piece takes a character that is no digit, so that a text can be read in one way only: time stays linear.
_BETWEEN = rf"(?:[\s,;:&+/#№、–-]|and\b|und\b|et\b|y\b|и\b|和|与|{_WORD})"
_NUMBERS = rf"\d{{1,18}}(?!\d)(?:{_BETWEEN}{{1,10}}\d{{1,18}}(?!\d))*"
# A page, a section or the title of the source behind its number says nothing that the number does not.
_MORE = r"(?:\s*[,:;|–—-]\s*(?=[^\W\d]|[§“\"'])[^\[\]\n]{1,80})?"
_HEAD = lazy_pattern(rf"\D*({_NUMBERS})", re.I)
TAG_PATTERN = (
    rf"\\?\[\s*{_WORD}[\s_.:#№]*(?:{_NUMBERS}){_MORE}\s*\\?\]"
    rf"|[(（]\s*{_WORD}[\s_.:#№]*(?:{_NUMBERS})\s*[)）]"
    rf"|【\s*(?:{_WORD}[\s_.:#№]*)?(?:{_NUMBERS})(?:†[^】]{{0,60}})?\s*】"
)
TAG = lazy_pattern(TAG_PATTERN, re.I)
_BARE = lazy_pattern(r"(?<![\w\]])(?:\[\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*\])+(?!\()")
MOST_IN_A_RANGE = 10


def tag_numbers(tag: str) -> list[int]:
    """The source numbers of one tag in order, each once; `2-4` is a range when it is short."""
    head = _HEAD.match(tag.split("†", 1)[0])
    body = head[1] if head else ""
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:\s*[-–]\s*(\d+))?", body):
        low, high = int(first), int(last or first)
        found += range(low, high + 1) if low <= high <= low + MOST_IN_A_RANGE else [low, high]
    return list(dict.fromkeys(found))


def rewrite_tags(text: str, new_numbers: Callable[[int], int | None]) -> str:
    """Every tag in the canonical form `[Source 1, 3]` with its numbers mapped; a tag that keeps none is dropped.

    `new_numbers` gives a number's new one, or None for "names nothing". Where a tag goes, so does the blank before it.
    """

    def one(match: re.Match[str]) -> str:
        kept = dict.fromkeys(n for n in map(new_numbers, tag_numbers(match["tag"])) if n is not None)
        return match["space"] + "[Source " + ", ".join(map(str, kept)) + "]" if kept else ""

    return re.sub(rf"(?P<space>[ \t]*)(?P<tag>{TAG_PATTERN})", one, text, flags=re.I)


def accept_bare_numbers(text: str, known: Container[int]) -> str:
    """Read `[2]` as `[Source 2]` in a text without a proper tag that names a source, where every number does.

    In a text that does have proper tags a bare number is more likely a footnote mark copied from a page.
    """
    if any(number in known for tag in TAG.finditer(text) for number in tag_numbers(tag[0])):
        return text

    def one(match: re.Match[str]) -> str:
        numbers = list(dict.fromkeys(n for part in match[0].split("]") for n in tag_numbers(part)))
        if not numbers or any(n not in known for n in numbers):
            return match[0]
        return "[Source " + ", ".join(map(str, numbers)) + "]"

    return _BARE.sub(one, text)


def without_tags(text: str) -> str:
    """The text as it reads without its tags: no blank is left before a punctuation mark."""
    bare = re.sub(rf"[ \t]*(?:{TAG_PATTERN})", "", text, flags=re.I)
    return re.sub(r"[ \t]+(?=[.,;:!?。，；：！？](?:\s|$))", "", bare)
