"""Cutting text into sentences, with offsets: pages line by line, Markdown block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator

from m3.grounding.tags import TAG_PATTERN
from m3.patterns import lazy_pattern

# A full stop after these never ends a sentence …
_NEVER = frozenset(
    """mr mrs ms dr prof st rev hon gen col lt sgt capt cmdr gov sen rep pres messrs mme vs v cf approx dept fig figs eq
    eqs vol vols pp p ed eds trans ch sec viz resp incl ca op e.g i.e nos mt ft z.b d.h u.a o.ä bzw vgl abb nr jh hrsg
    geb sog evtl ggf inkl т.е т.к т.н им ул рис стр см гл св напр sr sra dra ud p.ej""".split()
)
# … and after these only when what follows opens one.
_MAYBE = frozenset(
    """al inc ltd co corp llc plc bros etc est no jr sr u.s u.k u.n e.u d.c a.m p.m b.c a.d ph.d m.d b.a m.a b.sc m.sc
    ave blvd rd jan feb mar apr jun jul aug sep sept oct nov dec usw mio mrd г гг тыс млн млрд т.д т.п""".split()
)
_OPENERS = frozenset(
    """the a an in on at it he she they we you i this that these those there here but and or so yet for from by with
    without as if when while although though because since after before during however moreover furthermore meanwhile
    instead also then thus therefore its his her their our my one two some many most both each every all no not what
    which who where why how according despite unlike under over until to of der die das ein eine es er sie wir im am
    und aber doch nach bei mit für auch в на он она они это и но а по при для""".split()
)
_MONTHS_DE = frozenset("januar februar märz april mai juni juli august september oktober november dezember".split())

MOST_CHARACTERS = 2_000  # of one sentence of a page
_LINE = lazy_pattern(r"[^\n]+")
_SENTENCE_ENDS = (". ", "! ", "? ", "。", "！", "？")
_END = lazy_pattern(r"([.!?…]+|[。！？]+)([\"'”’»)\]」』）*_]*)")
_TAGS_AFTER = lazy_pattern(rf"(?:\s*(?:{TAG_PATTERN}))+[.。]?", re.I)
_NEXT = lazy_pattern(r"\s*[\"'“‘«(\[*_「『（]*(\S)")
_WORD_BEFORE = lazy_pattern(r"(\S+)$")


def split_sentences(text: str, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """The sentences of text[start:end] as offsets; every line is its own block.

    What goes on for more than `MOST_CHARACTERS` without an end, as lists and code do, is cut between words.
    """
    found: list[tuple[int, int]] = []
    for line in _LINE.finditer(text, start, len(text) if end is None else end):
        for a, b in split_block(text, line.start(), line.end()):
            found += [(a, b)] if b - a <= MOST_CHARACTERS else cut(text, a, b)
    return found


def cut(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """text[start:end] in pieces of at most `MOST_CHARACTERS`, cut where a line, a sentence or a word ends."""
    while start < end:
        stop = min(end, piece_end(text, start))
        yield start, stop
        start = stop


def piece_end(text: str, start: int) -> int:
    """Where the piece that begins at `start` ends: after a line, a sentence or a word, or at its full length."""
    full = start + MOST_CHARACTERS
    if full >= len(text):
        return len(text)
    least = start + MOST_CHARACTERS // 2
    line = text.rfind("\n", least, full)
    if line >= 0:
        return line + 1
    sentence = max(text.rfind(mark, least, full) + len(mark) for mark in _SENTENCE_ENDS)
    if sentence > least:
        return sentence
    blank = text.rfind(" ", least, full)
    return blank + 1 if blank >= 0 else full


def split_block(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The sentences of text[start:end], which is one block. A source tag stays with the sentence that it closes."""
    found: list[tuple[int, int]] = []
    at = start
    for mark in _END.finditer(text, start, end):
        if mark.start() < at:
            continue
        stop = _boundary(text, at, mark, end)
        if stop is not None:
            found.append((at, stop))
            at = stop
    found.append((at, end))
    return [_trim(text, a, b) for a, b in found if any(c.isalnum() for c in text[a:b])]


def _boundary(text: str, start: int, mark: re.Match[str], end: int) -> int | None:
    """Where the sentence ends that this punctuation mark may close, or None when it goes on."""
    stop = mark.end()
    tags = _TAGS_AFTER.match(text, stop, end)
    if tags:
        stop = tags.end()
    following = _NEXT.match(text, stop, end)
    if mark[1][0] in "。！？" or following is None:
        return stop
    first = following[1]
    if first.islower() or first in ",;:":
        return None
    before = _WORD_BEFORE.search(text, max(start, mark.start() - 30), mark.start())
    raw = before[1].lstrip("(\"'“‘[*_") if before else ""
    if tags:
        return stop
    if not text[stop].isspace():  # only a glued "end.Next" is a boundary, no version, address or initial
        glued = mark[1] == "." and re.search(r"\b[a-zа-я]{3,}$", raw) and not re.search(r"[/@.:]", raw)
        return stop if glued and re.match(r"[A-ZА-Я][a-zа-я]+\b", text[stop : stop + 20]) else None
    if mark[1] != "." or mark[2]:
        return stop
    return stop if _full_stop_ends(text, start, mark.start(), raw, stop, end) else None


def _full_stop_ends(text: str, start: int, at: int, raw: str, stop: int, end: int) -> bool:
    word = raw.casefold()
    following = re.compile(r"\W*(\w+)").match(text, stop, end)
    next_word = following[1].casefold() if following else ""
    opens = next_word in _OPENERS
    if word in _NEVER:
        return False
    if word in _MAYBE:
        return opens and not (word == "no" and next_word[:1].isdigit())
    if re.fullmatch(r"(?:[^\W\d_]\.)+[^\W\d_]", word):  # U.S.A.
        return opens
    if re.fullmatch(r"[A-ZÄÖÜА-Я]", raw):  # an initial, unless it ends a phrase: "Plan B. The …"
        return raw == "I" or (opens and next_word not in ("a", "i"))
    if re.fullmatch(r"[a-zа-я]", raw) and next_word[:1].isdigit():  # c. 1491
        return False
    if re.fullmatch(r"\d{1,2}", word) and next_word in _MONTHS_DE:  # am 3. März
        return False
    # "1. item" at the very beginning is a list mark
    return not (re.fullmatch(r"\d{1,3}|[a-z]|[ivx]{1,4}", word) and not text[start : at - len(raw)].strip())


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
