"""Dates as search engines write them, as ISO 8601 dates."""

from __future__ import annotations

import re
from datetime import date, timedelta
from email.utils import parsedate_to_datetime

from m3.patterns import lazy_pattern

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ISO = lazy_pattern(r"\s*(\d{4})-(\d\d)-(\d\d)(?!\d)")
_AGO = lazy_pattern(r"(\d{1,4}|an?)\s+(second|minute|min|hour|day|week|month|year)s?\s+ago", re.I)
_NAMED = lazy_pattern(
    r"(?:(?P<d1>\d{1,2})(?:st|nd|rd|th)?\.?\s+)?(?P<month>[A-Za-z]{3,9})\.?\s+(?:(?P<d2>\d{1,2})(?:st|nd|rd|th)?,?\s+)?(?P<year>\d{4})"
)
_DAYS = {
    "second": 0.0,
    "minute": 0.0,
    "min": 0.0,
    "hour": 1 / 24,
    "day": 1.0,
    "week": 7.0,
    "month": 30.4,
    "year": 365.2,
}

RECENT_DAYS = {"day": 1, "week": 7, "month": 31, "year": 366}


def iso_date(text: object, today: date | None = None) -> str:
    """The date of a result as `YYYY-MM-DD`; "" for none, for one that is incomplete, ambiguous or lies ahead.

    Read are ISO 8601, RFC 2822, `Nov 12, 2024`, `12 November 2024`, `3 days ago` and `yesterday`; `03/04/2024` is
    not, since nothing tells its day from its month.
    """
    if not isinstance(text, str) or not text.strip():
        return ""
    today = today or date.today()
    found = _read(text.strip()[:80], today)
    # One day ahead is a time zone; more is a mistake or a lie.
    return found.isoformat() if found and date(1900, 1, 1) <= found <= today + timedelta(days=1) else ""


def _read(text: str, today: date) -> date | None:
    try:
        if iso := _ISO.match(text):
            return date(int(iso[1]), int(iso[2]), int(iso[3]))
        if ago := _AGO.search(text):
            count = 1 if ago[1].lower().startswith("a") else int(ago[1])
            return today - timedelta(days=round(count * _DAYS[ago[2].lower()]))
        if text.lower() in ("yesterday", "today"):
            return today - timedelta(days=text.lower() == "yesterday")
        if (named := _NAMED.search(text)) and named["month"][:3].lower() in _MONTHS:
            day = named["d1"] or named["d2"]
            return date(int(named["year"]), _MONTHS.index(named["month"][:3].lower()) + 1, int(day)) if day else None
        return parsedate_to_datetime(text).date()
    except (ValueError, TypeError, OverflowError):
        return None
