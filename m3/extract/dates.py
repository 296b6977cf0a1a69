"""Dates as pages write them, in tags, in addresses and in visible text near the headline."""

from __future__ import annotations

import datetime as dt
import re
from urllib.parse import urlsplit

from m3.extract.dom import Element
from m3.months import MONTHS
from m3.patterns import lazy_pattern

_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_ISO = lazy_pattern(r"(?<!\d)((?:19|20)\d\d)[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_COMPACT = lazy_pattern(r"^\s*((?:19|20)\d\d)(\d\d)(\d\d)(?:[T\s]?\d{4,6})?\w?\s*$")
_CJK_DATE = lazy_pattern(r"((?:19|20)\d\d)\s*年\s*(\d{1,2})\s*月\s*(\d{1,2})\s*日")
_DAY_FIRST = lazy_pattern(
    rf"(?<!\d)(\d{{1,2}})(?:st|nd|rd|th|\.|er|º)?\s*(?:of\s+"
    rf"|de\s+)?({_MONTH})\b\.?,?\s*(?:de\s+)?((?:19|20)\d\d)(?!\d)",
    re.I,
)
_MONTH_FIRST = lazy_pattern(rf"\b({_MONTH})\b\.?\s*(\d{{1,2}})(?:st|nd|rd|th)?\s*,?\s+((?:19|20)\d\d)(?!\d)", re.I)
_DOTTED = lazy_pattern(r"(?<![\d.])(\d{1,2})\.\s?(\d{1,2})\.\s?((?:19|20)\d\d)(?!\d)")
_SLASHED = lazy_pattern(r"(?<![\d/])(\d{1,2})/(\d{1,2})/((?:19|20)\d\d)(?!\d)")
_YEAR_FIRST = lazy_pattern(rf"(?<!\d)((?:19|20)\d\d)\s+({_MONTH})\b\.?\s+(\d{{1,2}})(?!\d)", re.I)  # medical journals
_IN_PATH = lazy_pattern(r"/((?:19|20)\d\d)[/-](\d{1,2}|[a-z]{3,9})[/-](\d{1,2})(?=[/_.+-]|$)", re.I)
_DATE_NAMES = lazy_pattern(
    r"(?:^|[\s_-])(?:date|dates|datetime|time|timestamp|published|pubdate|posted|dateline"
    r"|updated)(?=$|[\s_-])|-?[dD]ate$|^date",
    re.I,
)
# Lines whose date is not that of the publication: of a change, or of a forum member's joining.
_UPDATED = lazy_pattern(
    r"updated|modified|revised|last (?:edited|reviewed)|aktualisiert|mis à jour|mise à jour|actualizad|aggiornat"
    r"|atualizad|bijgewerkt|обновлен|изменен|更新|تحديث|joined|member since|registered|registriert"
    r"|mitglied seit|dabei seit"
    r"|inscrit|membre depuis|registrado|miembro desde|iscritto|зарегистрирован|регистрация|注册|註冊|加入",
    re.I,
)


def _day(year: str | int, month: str | int, day: str | int) -> str:
    try:
        date = dt.date(int(year), int(month), int(day))
    except ValueError:
        return ""
    latest = dt.date.today() + dt.timedelta(days=2)
    return date.isoformat() if dt.date(1990, 1, 1) <= date <= latest else ""


def iso_date(text: str, *, day_first: bool = False) -> str:
    """The first date written in a text as an ISO 8601 day, or "" for none that can be real (1990 to tomorrow).

    day_first: read 05/03/2024 as the fifth of March; either way the other reading is taken where one is impossible.
    """
    text = text[:300]
    compact = _COMPACT.match(text)
    if compact:
        return _day(*compact.groups())
    for pattern in (_ISO, _CJK_DATE):
        for match in pattern.finditer(text):
            if found := _day(match[1], match[2], match[3]):
                return found
    for match in _MONTH_FIRST.finditer(text):
        if found := _day(match[3], MONTHS[match[1].lower()], match[2]):
            return found
    for match in _DAY_FIRST.finditer(text):
        if found := _day(match[3], MONTHS[match[2].lower()], match[1]):
            return found
    for match in _YEAR_FIRST.finditer(text):
        if found := _day(match[1], MONTHS[match[2].lower()], match[3]):
            return found
    for match in _DOTTED.finditer(text):
        if found := _day(match[3], match[2], match[1]):
            return found
    for match in _SLASHED.finditer(text):
        readings = [_day(match[3], match[1], match[2]), _day(match[3], match[2], match[1])]
        if found := next(filter(None, reversed(readings) if day_first else readings), ""):
            return found
    return ""


def date_in_url(url: str) -> str:
    """The day in an address such as `/2023/12/22/name`, or ""."""
    match = _IN_PATH.search(urlsplit(url).path if "://" in url else url)
    if match is None:
        return ""
    return _day(match[1], MONTHS.get(match[2].lower(), match[2]), match[3])


def first_date(body: Element, title: str, *, day_first: bool = False) -> str:
    """The date nearest the headline: a `<time>`, an element named for dates, or a short line that holds one.

    Looked for from the headline on and just above it; lines that say "updated" count only when nothing else is there.
    """
    candidates: list[tuple[int, str]] = []  # (distance from the headline, date)
    position = headline = 0
    wanted = re.sub(r"\W+", "", title.casefold())
    for element in body.descend():
        position += 1
        if not headline and element.name in ("h1", "h2") and wanted:
            headline = position if re.sub(r"\W+", "", element.words_in().casefold()) == wanted else 0
        if not (0 < element.chars <= 120) and element.name not in ("time", "meta"):
            continue
        found = _date_of(element, day_first)
        if found:
            candidates.append((position, found))
        if len(candidates) > 200:
            break
    if not candidates:
        return ""
    near = [c for c in candidates if -40 <= c[0] - headline <= 80] if headline else []
    if near or not headline:
        return (near or candidates)[0][1]
    return candidates[0][1] if len({date for _, date in candidates}) == 1 else ""  # the only date of the page


def _date_of(element: Element, day_first: bool) -> str:
    attributes = element.attrs
    if element.name == "time":
        return iso_date(attributes.get("datetime", "")) or iso_date(element.words_in(), day_first=day_first)
    if attributes.get("itemprop") in ("datePublished", "dateCreated"):
        return iso_date(attributes.get("content") or attributes.get("datetime") or element.words_in())
    if element.own_chars != element.chars or not element.chars:
        return ""
    text = element.words_in()
    if not any(map(str.isdigit, text)) or _UPDATED.search(text):
        return ""
    if _DATE_NAMES.search(element.label) or element.chars <= 60:
        return iso_date(text, day_first=day_first)
    return ""
