"""What stands beside a number: its unit, its sign, the month of a date.

A claim's number that stands on the page with another unit of the same kind, another sign or another month is the
kind of slip that wording does not show: 120 miles for 120 kilometres, $500 for €500, 3 June for 3 May.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from m3.grounding.numbers import Number, same_number
from m3.months import MONTHS
from m3.patterns import lazy_pattern

# One entry a kind; the words of one unit stand together, units are parted by "/". Short ones are read as written.
_KINDS = {
    "length": "mm millimetre millimeter millimetres millimeters/cm centimetre centimeter centimetres"
    " centimeters zentimeter"
    "/m metre meter metres meters mètres metros метр метра метров/km kilometre kilometer kilometres"
    " kilometers kilomètres"
    " kilómetros км километр километра километров 公里 千米/mile miles meilen mi милей 英里/foot feet ft/inch"
    " inches zoll"
    "/yard yards yd/米",
    "mass": "mg milligram milligrams milligramm мг/g gram grams gramme grammes gramm г грамм 克/kg kilogram kilograms"
    " kilogramme kilogramm кг килограмм килограммов 公斤 千克/t tonne tonnes tons ton tonnen тонн 吨/lb lbs pound-mass"
    "/oz ounce ounces",
    "volume": "ml millilitre milliliter millilitres milliliters/l litre liter litres liters литр литров"
    " 升/gallon gallons"
    "/barrel barrels barriles",
    "data": "KB kB kilobyte kilobytes/MB megabyte megabytes/GB gigabyte gigabytes/TB terabyte terabytes/PB petabyte"
    " petabytes/KiB/MiB/GiB/TiB",
    "time": "ms millisecond milliseconds millisekunden/second seconds sekunde sekunden secondes segundos секунд 秒"
    "/minute minutes min minuten minutos минут 分钟/hour hours stunde stunden heures horas часов"
    " 小时/day days tage tagen jours"
    " días дней 天/week weeks wochen semaines semanas недель 周/month months monate monaten mois meses месяцев 个月"
    "/year years jahre jahren ans años лет 年/decade decades",
    "money": "$ dollar dollars usd доллар долларов 美元/€ euro euros eur евро 欧元/£ pound pounds gbp фунтов 英镑/¥"
    " yen jpy"
    "/yuan cny rmb 人民币 元/franc francs franken chf/ruble rubles rouble roubles rubel рублей рубля/rupee rupees"
    " inr ₹",
    "temperature": "°c celsius/°f fahrenheit/kelvin",
    "power": "W watt watts/kW kilowatt kilowatts/MW megawatt megawatts/GW gigawatt gigawatts/Wh/kWh/MWh/GWh/TWh",
    "electric": "mV/V volt volts/kV kilovolt kilovolts/mA/A ampere amperes",
    "frequency": "Hz/kHz/MHz/GHz",
}
_UNITS: dict[str, tuple[str, str]] = {}  # a unit as written -> its kind and its first name
for _kind, _line in _KINDS.items():
    for _words in _line.split("/"):
        for _name in _words.split():
            _UNITS[_name] = (_kind, _words.split()[0])

_AFTER = lazy_pattern(r"[\s\u00a0\u202f-]{0,2}(°\s?[CFcf]\b|[$€£¥₹]|[^\W\d_]+)")
_BEFORE = lazy_pattern(r"([$€£¥₹]|\b(?:USD|EUR|GBP|CHF|INR|JPY|CNY))\s?$")
_MINUS = lazy_pattern(r"(?:(?:^|[\s(|:=])[-−–]|\b(?:minus|минус|moins|menos)\s|零下)\s?$", re.I)
# A sign is compared only where it cannot be a dash: with a unit of temperature or a percent sign behind the number.
_SIGNED = lazy_pattern(r"\s?(?:°|%|percent\b|per cent\b|Prozent\b|degrees\b|Grad\b|градус|процент|度)", re.I)

_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_BY_NAME = lazy_pattern(
    rf"(?<!\w)(?:\d{{1,2}}(?:st|nd|rd|th|\.|er|º)?\s+(?:of\s+|de\s+)?(?P<a>{_MONTH})\b"
    rf"|(?P<b>{_MONTH})\b\.?,?\s+(?:de\s+|del\s+)?\d{{1,4}}(?![\d%]))",
    re.I,
)
_BY_NUMBER = lazy_pattern(
    r"(?<![\d.])(?:(?:1\d|20)\d\d-(?P<a>\d\d)(?:-\d\d)?(?![\d-])|\d{1,2}\.\s?(?P<b>\d{1,2})\.\s?(?:1\d|20)\d\d(?!\d)"
    r"|(?P<c>\d{1,2})/(?P<d>\d{1,2})/(?:1\d|20)\d\d(?!\d)|(?<!\d)(?P<e>\d{1,2})\s?月)"
)


class Quantity(NamedTuple):
    """A number with what stands beside it. unit: (kind, unit) or None; negative: None where no sign could be told."""

    number: Number
    unit: tuple[str, str] | None
    negative: bool | None


def quantity(text: str, number: Number) -> Quantity:
    """Read what stands beside a number of `text`."""
    before, at = text[max(0, number.start - 14) : number.start], number.end
    unit = None
    symbol = _BEFORE.search(before)
    if symbol:
        unit = _unit(symbol[1])
    else:
        match = _AFTER.match(text, at)
        if match is not None:
            word = match[1].replace(" ", "")
            shorter = (word[:2], word[:1]) if not word[:1].isascii() else ()  # no blank parts 120公里长
            unit = next((found for name in (word, *shorter) if (found := _unit(name))), None)
    signed = _SIGNED.match(text, at)
    return Quantity(number, unit, bool(_MINUS.search(before)) if signed else None)


def _unit(word: str) -> tuple[str, str] | None:
    if word in _UNITS:
        return _UNITS[word]
    folded = word.casefold()
    found = _UNITS.get(folded)
    return found if found is not None and (len(word) > 2 or not word.isascii() or word.startswith("°")) else None


def months_in(text: str) -> frozenset[int]:
    """The months of the dates in a text; a name counts only beside a number (`May` alone is a verb as well)."""
    found = {MONTHS[(m["a"] or m["b"]).casefold()] for m in _BY_NAME.finditer(text)}
    for match in _BY_NUMBER.finditer(text):
        found.update(int(part) for part in match.groups() if part and 1 <= int(part) <= 12)
    return frozenset(found)


def contradictions(
    claim: str, numbers: Sequence[Number], passages: Sequence[tuple[str, Sequence[Number]]]
) -> list[str]:
    """What of a claim stands in the passages beside the same number otherwise, in words for a reader.

    passages: (the text that the numbers' offsets speak of, the numbers of one passage).
    """
    theirs = [quantity(text, number) for text, found in passages for number in found]
    flags: list[str] = []
    for number in numbers:
        if number.year:
            continue
        mine = quantity(claim, number)
        same = [other for other in theirs if same_number(number, other.number)]
        flags += _unit_flags(mine, same)
        signs = {other.negative for other in same}
        if mine.negative is not None and signs and signs == {not mine.negative}:
            flags.append(f"the sign of {number.text} differs")
    return list(dict.fromkeys(flags))


def _unit_flags(mine: Quantity, same: Sequence[Quantity]) -> Iterator[str]:
    if mine.unit is None:
        return
    units = [other.unit for other in same if other.unit is not None and other.unit[0] == mine.unit[0]]
    if units and mine.unit not in units:
        yield f"another unit (claim / page): {mine.number.text} {mine.unit[1]} / {units[0][1]}"


def other_months(claim: str, passages: str) -> list[str]:
    """The months of a claim's dates where the passages date things, but never to that month."""
    theirs = months_in(passages)
    if not theirs:
        return []
    missing = months_in(claim) - theirs
    if not missing:
        return []
    return [m[0] for m in (*_BY_NAME.finditer(claim), *_BY_NUMBER.finditer(claim)) if months_in(m[0]) & missing]
