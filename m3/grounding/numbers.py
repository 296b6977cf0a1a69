"""Numbers in text, by value: 3.2 billion = 3,200,000,000 = 3,2 Milliarden = 32 亿.

A claim's number stands on a page when some number there equals it after rounding to the digits that the claim
gives, within five per cent; years never round. Measured on held-out sets: of claims with a number that stands
nowhere on the cited page, 94 % are not fully supported.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from m3.patterns import lazy_pattern

_SCALE: dict[str, float] = {}
for _factor, _names in (
    (1e2, "hundred hundert сто 百"),
    (1e3, "thousand thousands tausend mille mil тысяча тысячи тысяч тыс k 千"),
    (1e4, "万 萬"),
    (1e5, "lakh"),
    (1e6, "million millions millionen mio millón millones milhões milioni миллион миллиона миллионов млн mn mln 百万"),
    (1e7, "crore 千万"),
    (1e8, "亿 億"),
    (1e9, "billion billions bn milliarde milliarden mrd milliard milliards миллиард миллиарда миллиардов млрд 十亿"),
    (1e12, "trillion trillions tn billionen триллион триллиона триллионов трлн 万亿 兆"),
    (12, "dozen dutzend"),
):
    _SCALE |= dict.fromkeys(_names.split(), _factor)
_GLUED = {"k": 1e3, "m": 1e6, "b": 1e9, "bn": 1e9, "mn": 1e6, "tn": 1e12}
_AMBIGUOUS_GLUE = frozenset({"m", "b"})  # 100m is metres as well, 70b parameters or bytes

_UNITS = dict(zip(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen".split(), range(20), strict=True))  # fmt: skip
_ROUND = frozenset(("hundred", "thousand", "million", "billion"))
_TENS = {
    name: value
    for value, name in zip(
        range(20, 100, 10), "twenty thirty forty fifty sixty seventy eighty ninety".split(), strict=True
    )
}
_NUMBER_WORDS = _UNITS.keys() | _TENS.keys() | _ROUND
# Read on pages only, so that a claim's 3 is found where the page writes it out.
_SMALL = {
    name: value
    for value, names in enumerate(
        (
            "", "first once eins ersten erste один первый", "second twice zwei zweite два две второй",
            "third drei dritte три третий", "fourth vier vierte четыре", "fifth fünf fünfte пять",
            "sixth sechs шесть", "seventh sieben семь", "eighth acht восемь", "ninth neun девять",
            "tenth zehn десять", "eleventh elf", "twelfth zwölf dozen dutzend douzaine docena дюжина",
        )
    )
    for name in names.split()
}  # fmt: skip
_NOT_COUNTED = frozenset(
    "zero one first once eins ersten erste один первый second twice zweite второй third dritte третий fourth vierte"
    " fifth fünfte sixth seventh eighth ninth tenth twelfth".split()
)
_HAN = dict(zip("一二三四五六七八九十", range(1, 11), strict=True)) | {"两": 2, "兩": 2}

_CORE = r"\d{1,3}(?:[,.'’ \u00a0\u202f]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:\.\d+){2,}|\d+(?:[.,]\d+)?"
_DIGITS = lazy_pattern(
    rf"(?<![\w.,])(?<!\d['’])(?P<money>[$€£¥]\s?)?(?P<apo>['’])?(?P<core>{_CORE})(?P<tail>[^\W\d_]*)"
)
_AFTER_CJK = lazy_pattern(rf"(?P<money>[$€£¥])?(?P<apo>['’])?(?P<core>{_CORE})(?P<tail>[^\W\d_]*)")
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = lazy_pattern(r"[^\W\d_]+(?:-[^\W\d_]+)?")
# A date in figures: its year and day are numbers, its month is compared as a month (quantities.py).
_DATE = lazy_pattern(
    r"(?<![\d.-])(?P<y1>1\d{3}|20\d\d)-\d\d-(?P<d1>\d\d)(?![\d-])"
    r"|(?<![\d.])(?P<d2>\d{1,2})\.\s?\d{1,2}\.\s?(?P<y2>1\d{3}|20\d\d)(?!\d|\.\d)"
    r"|(?<![\d/])(?P<d3>\d{1,2})/(?P<d4>\d{1,2})/(?P<y3>1\d{3}|20\d\d)(?![\d/])"
)
_HAN_VALUES = dict(zip("〇零一二三四五六七八九", (0, *range(10)), strict=True)) | {"两": 2, "兩": 2}
_HAN_FACTORS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "萬": 10_000, "亿": 10**8, "億": 10**8}
_HAN_NUMERAL = lazy_pattern("[〇零一二三四五六七八九两兩十百千万萬亿億]{2,60}")
MOST_DIGITS = 60  # what is longer is a key or a row of noughts: compared as text
_RANGE_BEFORE = lazy_pattern(r"(\d{4})\s?[-–—/]\s?$")
_ROUND_TO = 0.05


class Number(NamedTuple):
    """One number of a text. `values`: its readings, more than one where the writing is ambiguous.

    unit: the place of its last significant digit, which is how far a page's number may differ by rounding;
    year: true for what reads as a year; decade: `1990s`; text: as written; for a version such as 3.11.2 `values`
    is empty and the text itself is compared. start, end: where it stands.
    """

    text: str
    start: int
    end: int
    values: tuple[float, ...]
    unit: float = 1.0
    year: bool = False
    decade: bool = False

    def moved(self, by: int) -> Number:
        """The same number in a text that has so many characters before this one."""
        return self._replace(start=self.start + by, end=self.end + by)

    @property
    def in_words(self) -> bool:
        """True for `twenty-five` or 二千, false for what is written with digits."""
        return not any(c.isdigit() and c.isdecimal() for c in self.text)


def numbers_in(text: str, *, decimal_comma: bool = False, small_words: bool = False) -> list[Number]:
    """The numbers of a text in order: digits with scale words, and English number words above ten.

    decimal_comma: read 3,2 as three and a fifth and 1.200 as twelve hundred. small_words: also read one to ten,
    ordinals and their like in other languages (for pages; a claim's "one of the" is no figure).
    """
    dates = list(_DATE.finditer(text))
    begins = [date.start() for date in dates]

    def in_date(at: int) -> bool:
        i = bisect_right(begins, at) - 1
        return i >= 0 and at < dates[i].end()

    found = [number for number in _digit_numbers(text, decimal_comma) if not in_date(number.start)]
    found += [number for date in dates for number in _date_numbers(date)]
    found += [*_word_numbers(text, small_words), *_han_numerals(text)]
    if small_words:
        found += [Number(char, at, at + 1, (float(_HAN[char]),)) for at, char in enumerate(text) if char in _HAN]
    return sorted(found, key=lambda n: (n.start, n.end))


def _date_numbers(date: re.Match[str]) -> Iterator[Number]:
    """Year and day of a date in figures; 3/5/2019 may be the third or the fifth."""
    year = next(name for name in ("y1", "y2", "y3") if date[name])
    days = [name for name in ("d1", "d2", "d3", "d4") if date[name]]
    yield Number(date[year], *date.span(year), (float(date[year]),), year=True)
    start, end = date.span(days[0])
    yield Number(date[days[0]], start, end, tuple(dict.fromkeys(float(date[name]) for name in days)))


def _han_numerals(text: str) -> Iterator[Number]:
    """Numbers above ten in Han numerals: 二千一百万 is 21,000,000; a row of bare digits is a year or a code."""
    for match in _HAN_NUMERAL.finditer(text):
        value = _han_value(match[0])
        if value > 10:
            plain = all(char in _HAN_VALUES for char in match[0])
            year = plain and len(match[0]) == 4 and 1000 <= value <= 2100
            yield Number(match[0], match.start(), match.end(), (float(value),), _unit(str(value), ""), year=year)


def _han_value(numeral: str) -> int:
    if all(char in _HAN_VALUES for char in numeral):
        return int("".join(str(_HAN_VALUES[char]) for char in numeral))
    total = section = digit = 0
    for char in numeral:
        if char in _HAN_VALUES:
            digit = _HAN_VALUES[char]
        elif _HAN_FACTORS[char] < 10_000:
            section += (digit or 1) * _HAN_FACTORS[char]
            digit = 0
        else:
            total += (section + digit or 1) * _HAN_FACTORS[char]
            section = digit = 0
    return total + section + digit


def counts_in(text: str) -> list[Number]:
    """The small counts written as words, two to twelve: `seven cities`, `drei Kirchen`; no ordinals, no "one"."""
    larger = {n.start for n in numbers_in(text)}
    small = (n for n in numbers_in(text, small_words=True) if n.start not in larger and n.text not in _HAN)
    return [n for n in small if n.values > (1.0,) and n.text.casefold() not in _NOT_COUNTED]


_CJK_THEN_DIGIT = lazy_pattern(rf"(?<=[{_CJK}])(?=\d)")


def _digit_numbers(text: str, decimal_comma: bool) -> Iterator[Number]:
    at = 0
    cjk = _CJK_THEN_DIGIT.search(text)  # looked for once ahead: anew for each number it would take quadratic time
    while True:
        match = _DIGITS.search(text, at)
        if cjk is not None and cjk.start() < at:
            cjk = _CJK_THEN_DIGIT.search(text, at)
        if cjk is not None and (match is None or cjk.start() < match.start()):
            match = _AFTER_CJK.match(text, cjk.start())
        if match is None:
            return
        at = max(match.end("core"), match.start() + 1)
        yield _read(text, match, decimal_comma)


def _read(text: str, match: re.Match[str], decimal_comma: bool) -> Number:
    core, tail = match["core"], match["tail"].casefold()
    start, end = match.start("core"), match.end("core")
    if len(core) > MOST_DIGITS:
        return Number(core, start, end, ())
    if re.fullmatch(r"\d+(?:\.\d+){2,}", core) and not re.fullmatch(r"\d{1,3}(?:\.\d{3})+", core):
        return Number(core, start, end, ())
    value, unit, grouped = _plain_value(core, decimal_comma)
    plain_year = not grouped and re.fullmatch(r"1\d{3}|20\d\d|2100", core) is not None and not match["money"]
    scale, extra, end = _scale_after(text, match, tail, end)
    after = text[end : end + 2].lstrip()[:1]
    if plain_year and tail == "s":
        return Number(text[start : end + 1], start, end, (value,), 10.0, year=True, decade=True)
    if plain_year and scale == 1 and after not in ("%", "°") and not tail.startswith(("k", "m", "g", "t", "h")):
        return Number(core, start, end, (value,), 1.0, year=True)
    if scale == 1 and not extra and len(core) == 2 and core.isdigit():
        before = _RANGE_BEFORE.search(text, max(0, start - 8), start)
        if before:  # 2018-19
            century = int(before[1]) // 100 * 100
            return Number(core, start, end, (value, century + value), 1.0)
        if match["apo"]:  # '63
            return Number(core, start, end, (value, 1900 + value, 2000 + value), 1.0)
    values = (value * scale, *((value * e) for e in extra))
    return Number(text[start:end], start, end, tuple(dict.fromkeys(values)), unit * scale)


def _plain_value(core: str, decimal_comma: bool) -> tuple[float, float, bool]:
    """Value, place of the last significant digit, and whether the digits are grouped in thousands."""
    decimal, group = (",", ".") if decimal_comma else (".", ",")
    if re.fullmatch(rf"\d{{1,3}}(?:[{re.escape(group)}'’ \u00a0\u202f]\d{{3}})+(?:{re.escape(decimal)}\d+)?", core):
        whole, _, rest = re.sub(rf"[{re.escape(group)}'’ \u00a0\u202f]", "", core).partition(decimal)
        return float(f"{whole}.{rest or 0}"), _unit(whole, rest), True
    separator = next((c for c in ".," if c in core), "")
    if separator and not re.fullmatch(rf"\d+{re.escape(separator)}\d+", core):
        whole = re.sub(r"\D", "", core)
        return float(whole), _unit(whole, ""), True
    whole, _, rest = core.partition(separator) if separator else (core, "", "")
    return float(f"{whole}.{rest or 0}"), _unit(whole, rest), False


def _unit(whole: str, rest: str) -> float:
    if rest:
        return float(10.0 ** -len(rest))
    zeros = len(whole) - len(whole.rstrip("0"))
    return float(10.0 ** min(zeros, len(whole) - 1))


def _scale_after(text: str, match: re.Match[str], tail: str, end: int) -> tuple[float, tuple[float, ...], int]:
    """The factor a number is written with (`3.2 million`, `5k`, `32 亿`), other readings of it, and where it ends."""
    if tail:
        for length in (2, 1):  # 亿 and the like are glued to the digits and followed by more
            if tail[:length] in _SCALE and not tail[:1].isascii():
                return _SCALE[tail[:length]], (), end + length
        if tail in _GLUED:
            factor = _GLUED[tail]
            return (1.0, (factor,), end) if tail in _AMBIGUOUS_GLUE else (factor, (), match.end("tail"))
        if tail in _SCALE:
            return _SCALE[tail], (), match.end("tail")
        return 1.0, (), end
    word = re.compile(r"[\s\u00a0-]{1,2}([^\W\d_]+)").match(text, end)
    if word:
        name = word[1].casefold()
        for candidate in (name, name[:2], name[:1]):
            if candidate in _SCALE and (candidate == name or not candidate.isascii() and len(candidate) <= 2):
                if candidate == "mil" or (candidate == "k" and word[1] != "K"):
                    break
                return _SCALE[candidate], (), word.start(1) + len(candidate)
    return 1.0, (), end


def _word_numbers(text: str, small_words: bool) -> Iterator[Number]:
    """`twenty-five`, `three hundred million`; alone standing one to ten only with `small_words`."""
    run: list[re.Match[str]] = []
    found = list(_WORD.finditer(text))
    for match in [*found, None]:
        if match is not None and not run and match[0].casefold().partition("-")[0] not in _NUMBER_WORDS:
            continue  # nearly every word of a page
        if match is not None and run and match[0] == "and" and run[-1][0].casefold() in _ROUND:
            continue  # a hundred and fifty
        if match is not None and _is_number_word(match[0].casefold(), bool(run)):
            gap = text[run[-1].end() : match.start()] if run else ""
            if not gap.strip(" -\u00a0") or run[-1][0].casefold() in _ROUND and gap.split() == ["and"]:
                run.append(match)
                continue
        if run:
            yield from _number_of(text, run, small_words)
        run = [match] if match is not None and _is_number_word(match[0].casefold(), _after_article(text, match)) else []
    if small_words:
        for match in found:
            value = _SMALL.get(match[0].casefold())
            if value:
                yield Number(match[0], match.start(), match.end(), (float(value),))


def _after_article(text: str, match: re.Match[str]) -> bool:
    """`a hundred`, where `hundreds of` and `hundred` alone say no number."""
    return re.search(r"(?<!half )\b(?:a|an)\s$", text[max(0, match.start() - 8) : match.start()], re.I) is not None


def _is_number_word(word: str, inside: bool) -> bool:
    first, _, second = word.partition("-")
    if second:
        return first in _TENS and second in _UNITS
    return first in _UNITS or first in _TENS or (inside and first in _ROUND)


def _number_of(text: str, run: Sequence[re.Match[str]], small_words: bool) -> Iterator[Number]:
    total, group = 0.0, 0.0
    for match in run:
        for part in match[0].casefold().split("-"):
            if part in _UNITS or part in _TENS:
                group += _UNITS.get(part, 0) or _TENS.get(part, 0)
            elif part == "hundred":
                group = (group or 1) * 100
            else:
                total += (group or 1) * _SCALE[part]
                group = 0.0
    value = total + group
    if 10 < value < 1e60 or value <= 10 and small_words:
        start, end = run[0].start(), run[-1].end()
        yield Number(text[start:end], start, end, (value,), _unit(f"{value:.0f}", ""))


class Numbers:
    """The numbers of a page or a passage, among which a claim's number is found without comparing it with each."""

    def __init__(self, numbers: Iterable[Number]) -> None:
        found = list(numbers)
        self._texts = {n.text for n in found if not n.values}
        self._values = sorted({value for n in found for value in n.values})
        self._years = sorted({value for n in found if n.year for value in n.values})

    def has(self, number: Number) -> bool:
        """True when one of them equals the claim's `number` by value, rounded to the claim's digits (`same_number`)."""
        if not number.values:
            return number.text in self._texts
        return any(self._has(number, value) for value in number.values)

    def _has(self, claim: Number, a: float) -> bool:
        at = bisect_left(self._values, a)
        if at < len(self._values) and self._values[at] == a:
            return True
        if claim.decade:
            year = bisect_left(self._years, a)
            return year < len(self._years) and self._years[year] < a + 10
        if claim.year:
            return False
        return any(_rounds_to(claim, a, b) for b in self._values[max(0, at - 1) : at + 1])


def same_number(claim: Number, page: Number) -> bool:
    if not claim.values or not page.values:
        return bool(not claim.values and not page.values and claim.text == page.text)
    return any(_equal(claim, a, page, b) for a in claim.values for b in page.values)


def _equal(claim: Number, a: float, page: Number, b: float) -> bool:
    if a == b:
        return True
    if claim.decade:
        return a <= b < a + 10 and page.year
    if claim.year:
        return False
    return _rounds_to(claim, a, b)


def _rounds_to(claim: Number, a: float, b: float) -> bool:
    difference = abs(a - b)
    return difference <= claim.unit / 2 * 1.000001 and difference <= _ROUND_TO * abs(a)


# --- where a number may stand, before it is read ----------------------------------------------------------

_GROUPED = lazy_pattern(r"\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?")
_LEADING: dict[int, frozenset[str]] = {
    digit: frozenset(
        [word for words in (_UNITS, _TENS, _SMALL) for word, value in words.items() if str(value)[0] == str(digit)]
        + [char for char, value in (*_HAN.items(), *_HAN_VALUES.items()) if str(value)[0] == str(digit)]
        + (["hundred", *_HAN_FACTORS] if digit == 1 else [])
    )
    for digit in range(1, 10)
}


def leading_digits(numeral: str) -> set[float]:
    """What is written in digits as fractions (0.1 to 1, or 0): of its digits, and where it may be several numbers, of
    those of each part."""
    parts = {numeral} if _GROUPED.fullmatch(numeral) else {numeral, *re.split(r"\D+", numeral)}
    if not numeral.isascii() or " " in numeral:
        parts.update(numeral.split())
    digits = (re.sub(r"\D", "", part).lstrip("0")[:15] for part in parts)
    return {float(f"0.{found or 0}") for found in digits}


def leading_ranges(number: Number) -> list[tuple[float, float]]:
    """Between which `leading_digits` a writing of `number` in digits begins, whatever scale word follows it.

    Nothing that `same_number` accepts is left out; much of what lies between them is another number.
    """
    found = []
    for value in number.values:
        for begun in (value, value / 12):  # dozens
            low, high = _leading_range(number, begun) if begun else (0.0, 0.0)
            found += [(low, high)] if low <= high else [(low, 1.0), (0.1, high)]
        if number.year:  # '63, 2018-19
            short = _fraction(value % 100) if value % 100 else 0.0
            found.append((short, short))
    return [(low - 1e-9, high + 1e-9) for low, high in found]


def number_words(number: Number) -> list[str]:
    """The number words, one of which stands where `number` is written in words."""
    digits: set[int] = set()
    for value in number.values:
        low, high = _leading_range(number, value) if value else (0.0, 0.0)
        first, last = int(low * 10), int(high * 10)
        digits.update(range(first, last + 1) if first <= last else [*range(first, 10), *range(1, last + 1)])
    return sorted(word for digit in digits - {0} for word in _LEADING[min(digit, 9)])


def _leading_range(number: Number, value: float) -> tuple[float, float]:
    """Between which fractions (0.1 to 1) the leading digits of an equal number lie; the first is the larger where they
    pass a power of ten."""
    far = 10.0 if number.decade else 0.0 if number.year else min(number.unit / 2, _ROUND_TO * abs(value))
    return _fraction(abs(value) - (0.0 if number.decade else far)), _fraction(abs(value) + far)


def _fraction(value: float) -> float:
    """The digits of a positive number behind "0.": 0.32 of 3,200,000."""
    mantissa, _, _ = f"{value:.12e}".partition("e")
    return abs(float(mantissa)) / 10
