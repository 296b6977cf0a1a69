"""Direct quotations: is what stands between quotation marks on the page, word for word?"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from m3.patterns import lazy_pattern

MIN_CHARACTERS, MAX_CHARACTERS = 12, 400  # shorter ones are scare quotes
MIN_RATIO = 0.92  # of what is quoted, for slips of a letter …
MIN_RUN = 0.85  # … of which this share stands in one piece

_QUOTED = lazy_pattern(
    r"\"([^\"\n]+)\"|“([^“”\n]+)”|„([^„“”\n]+)[“”]|«([^«»\n]+)»|»([^«»\n]+)«|「([^「」\n]+)」|『([^『』\n]+)』"
    r"|(?<!\w)‘((?:[^‘’\n]|’(?=\w))+)’(?!\w)|(?<!\w)‚([^‚‘\n]+)‘"
)
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

    `plain` is the text so normalised; `offset(i)` says where its i-th character stands in the original.
    """

    def __init__(self, text: str) -> None:
        out: list[str] = []
        offsets: list[int] = []
        blank = True
        for at, char in enumerate(text):
            for piece in _normal(char):
                if piece == " ":
                    if blank:
                        continue
                    blank = True
                else:
                    blank = False
                out.append(piece)
                offsets.append(at)
        self.plain = "".join(out)
        self._offsets = offsets

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Original offsets of plain[start:end]."""
        return self._offsets[start], self._offsets[end - 1] + 1

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
    return SequenceMatcher(None, word, other, autojunk=False).ratio() >= 0.75


def _longest_run(matcher: SequenceMatcher[str]) -> int:
    """Characters that agree with at most one small slip between two pieces."""
    sizes = [b.size for b in matcher.get_matching_blocks()]
    return max(sum(sizes[i : i + 2]) for i in range(len(sizes)))


@lru_cache(maxsize=4_096)
def _normal(char: str) -> str:
    if char.isspace():
        return " "
    same = _SAME.get(char)
    if same is not None:
        return same
    return " " if char.isspace() else unicodedata.normalize("NFKC", char).casefold()


def index_of(starts: Sequence[int], at: int) -> int:
    """Which of the ascending `starts` an offset belongs to."""
    return max(0, bisect_right(starts, at) - 1)
