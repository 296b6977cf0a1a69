"""Direct quotations: is what stands between quotation marks on the page, word for word?"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from m3.patterns import lazy_pattern

if TYPE_CHECKING:
    from difflib import SequenceMatcher

MIN_CHARACTERS, MAX_CHARACTERS = 12, 400  # shorter ones are scare quotes
MIN_RATIO = 0.92  # of what is quoted, for slips of a letter …
MIN_RUN = 0.85  # … of which this share stands in one piece

_QUOTED = lazy_pattern(
    r"\"([^\"\n]+)\"|“([^“”\n]+)”|„([^„“”\n]+)[“”]|«([^«»\n]+)»|»([^«»\n]+)«|「([^「」\n]+)」|『([^『』\n]+)』"
    r"|(?<!\w)‘((?:[^‘’\n]|’(?=\w))+)’(?!\w)|(?<!\w)‚([^‚‘\n]+)‘"
)
_LINE = lazy_pattern(r"[^\n]+")
_SAME = {
    **dict.fromkeys("“”„«»‟", '"'),
    **dict.fromkeys("‘’‚‛`´", "'"),
    **dict.fromkeys("–—‑‐−―", "-"),
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\ufeff", ""),
    "…": "...",
}


def quotations_in(claim: str) -> list[str]:
    """The direct quotations of a claim that are long enough to be looked up."""
    least = 5 if re.search("[\u3040-\u9fff]", claim) else MIN_CHARACTERS
    found = (next(part for part in match.groups() if part) for match in _QUOTED.finditer(claim))
    return [text for text in found if least <= len(text) <= MAX_CHARACTERS]


def quotation_parts(quotation: str) -> list[str]:
    """A quotation as `NormalText.plain` has it, parted where it has an ellipsis."""
    wanted = re.sub(r" +", " ", "".join(_normal(c) for c in quotation).strip(" .,;:!?"))
    parts = [p.strip(" .,;:") for p in re.split(r"\s*(?:\[\.\.\.\]|\(\.\.\.\)|\.\.\.)\s*", wanted)]
    return [p for p in parts if p]


class NormalText:
    """A text in which quotations can be found: case, white space, quotation marks and dashes made equal.

    `plain` is the text so normalised; `span` says where a part of it stands in the original. Only the lines of that
    part are gone through letter by letter.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: list[tuple[int, int, int]] = []  # where each begins in `plain`, and its span in the text
        found: list[str] = []
        length = 0
        for line in _LINE.finditer(text):
            plain = " ".join(filter(None, line[0].translate(_NORMAL).split(" ")))
            if plain:
                self._lines.append((length, *line.span()))
                found.append(plain)
                length += len(plain) + 1
        ends_blank = bool(found) and text[self._lines[-1][1] :].translate(_NORMAL).endswith(" ")
        self.plain = " ".join(found) + " " * ends_blank

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Original offsets of plain[start:end]."""
        return self._offset(start), self._offset(end - 1) + 1

    def _offset(self, at: int) -> int:
        """Where the letter stands in the original that plain[at] is, or a part of."""
        begun, start, end = self._lines[bisect_right(self._lines, at, key=lambda line: line[0]) - 1]
        left, blank = at - begun, True
        for offset in range(start, end):
            for piece in _normal(self._text[offset]):
                if piece == " " and blank:
                    continue
                if not left:
                    return offset
                left, blank = left - 1, piece == " "
        return end  # the blank that the end of the line is

    def find(self, quotation: str) -> tuple[int, int] | None:
        """Where a quotation stands in the original: exactly, or with a few letters changed; None for nowhere.

        An ellipsis in the quotation parts it; the parts must follow each other.
        """
        parts = quotation_parts(quotation)
        if not parts:
            return None
        at, first = 0, None
        for part in parts:
            place = self.plain.find(part, at)
            if place < 0:
                break
            first = place if first is None else first
            at = place + len(part)
        else:
            return self.span(first or 0, at)
        return self._nearly(parts[0]) if len(parts) == 1 else None

    def _nearly(self, wanted: str) -> tuple[int, int] | None:
        """The best near match around the places where a rare piece of the quotation stands."""
        from difflib import SequenceMatcher  # most quotations are exact, or stand nowhere

        step = max(8, len(wanted) // 4)
        starts: set[int] = set()
        for i in range(0, max(1, len(wanted) - step + 1), max(4, step // 2)):
            piece, at = wanted[i : i + step], -1
            for _ in range(20):
                at = self.plain.find(piece, at + 1)
                if at < 0:
                    break
                starts.add(max(0, at - i))
        for start in sorted(starts):
            window = self.plain[start : start + len(wanted)]
            matcher = SequenceMatcher(None, wanted, window, autojunk=False)
            if matcher.quick_ratio() < MIN_RATIO or matcher.ratio() < MIN_RATIO:
                continue
            if _longest_run(matcher) >= MIN_RUN * len(wanted) - 2 and _same_words(wanted, window):
                return self.span(start, start + len(window))
        return None


def _same_words(wanted: str, window: str) -> bool:
    """True when two texts differ by slips of spelling only: no word more or fewer, no other word, no other figure.

    The window is cut to the quotation's length, so its last word may be cut.
    """
    mine, theirs = re.findall(r"\w+", wanted), re.findall(r"\w+", window)
    if abs(len(mine) - len(theirs)) > 1:
        return False
    return all(_slip(a, b) for a, b in zip(mine, theirs, strict=False))


def _slip(word: str, other: str) -> bool:
    if word == other:
        return True
    if any(c.isdigit() for c in word + other):
        return False
    from difflib import SequenceMatcher

    return SequenceMatcher(None, word, other, autojunk=False).ratio() >= 0.75


def _longest_run(matcher: SequenceMatcher[str]) -> int:
    """Characters that agree with at most one small slip between two pieces."""
    sizes = [b.size for b in matcher.get_matching_blocks()]
    return max(sum(sizes[i : i + 2]) for i in range(len(sizes)))


class _Normal(dict[int, str]):
    """The table for `str.translate` of what each letter is written as in a normalised text, filled as letters come."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        blank = char.isspace()
        self[code] = " " if blank else _SAME[char] if char in _SAME else unicodedata.normalize("NFKC", char).casefold()
        return self[code]


_NORMAL = _Normal()


def _normal(char: str) -> str:
    return _NORMAL[ord(char)]


def index_of(starts: Sequence[int], at: int) -> int:
    """Which of the ascending `starts` an offset belongs to."""
    return max(0, bisect_right(starts, at) - 1)
