"""What a search may bring: sites, dates; and the parts of a query that are limits rather than words."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import NamedTuple

from m3.dates import RECENT_DAYS
from m3.patterns import lazy_pattern
from m3.urls import DomainPolicy, domain_rule, host_of

_SITE = lazy_pattern(r"(?<![^\s(])(?P<minus>-?)site:\s*(?P<site>[^\s()\"']+)", re.I)
_SCHEME = lazy_pattern(r"[a-z][a-z0-9+.-]*:", re.I)


class Query(NamedTuple):
    """A query taken apart: its words, and the sites it is limited to (`site:`) or excludes (`-site:`)."""

    words: str
    sites: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def with_operators(self, *, most_sites: int = 8) -> str:
        """The query for engines that understand `site:`; alternatives are joined by OR."""
        sites = [f"site:{site}" for site in self.sites[:most_sites]]
        alternatives = f"({' OR '.join(sites)})" if len(sites) > 1 else "".join(sites)
        excluded = [f"-site:{site}" for site in self.excluded[:most_sites]]
        return " ".join(part for part in (self.words, alternatives, *excluded) if part)


class SearchFilters(NamedTuple):
    """Limits of the whole run. since: ISO date or ""; recent: `day`, `week`, `month`, `year` or ""."""

    domains: DomainPolicy = DomainPolicy()
    since: str = ""
    recent: str = ""

    def earliest(self, today: date | None = None) -> str:
        """The first date a result may have, as ISO date; "" for any. Both limits together: the later date."""
        today = today or date.today()
        recent = (today - timedelta(days=RECENT_DAYS[self.recent])).isoformat() if self.recent else ""
        return max(self.since, recent)

    def range_name(self, today: date | None = None) -> str:
        """The shortest of day, week, month, year that reaches back to the earliest date; "" where none does."""
        earliest = self.earliest(today)
        if not earliest:
            return ""
        age = ((today or date.today()) - date.fromisoformat(earliest)).days
        return next((name for name, days in RECENT_DAYS.items() if age <= days), "")

    def query(self, text: str) -> Query:
        """Take a query apart and add the run's own limits. A site the run does not permit is left out."""
        found = [(m["minus"], domain_rule(m["site"])) for m in _SITE.finditer(text)]
        asked = [site for minus, site in found if site and not minus and self.domains.permits(site)]
        sites = tuple(dict.fromkeys(asked)) or self.domains.allow
        excluded = tuple(dict.fromkeys([site for minus, site in found if site and minus] + list(self.domains.deny)))
        bare = re.sub(r"\0(?:\s*(?:OR|AND|\|)?\s*\0)*", "\0", _SITE.sub("\0", text.replace("\0", " ")))
        words = " ".join(re.sub(r"\(\s*\0\s*\)|\0", " ", bare).split())
        return Query(words or " ".join(sites), sites, excluded)

    def forbidden_site(self, text: str) -> str:
        """The site a query is limited to although the run does not permit any of the sites it names; "" for none."""
        named = [domain_rule(m["site"]) for m in _SITE.finditer(text) if not m["minus"]]
        return "" if not named or any(self.domains.permits(site) for site in named) else named[0]

    def why_not(self, url: str, published: str, today: date | None = None) -> str:
        """Why a result is left out: `address`, `site` or `date`; "" when it may stay.

        Names without a scheme are documents of a folder: no site rule is about them. A result of unknown date stays.
        """
        host = host_of(url)
        if not host and _SCHEME.match(url):
            return "address"
        if host and not self.domains.permits(host):
            return "site"
        earliest = self.earliest(today)
        return "date" if earliest and published and published < earliest else ""


def shorten(text: str, limit: int) -> str:
    """The words from the start of `text` that fit into `limit` characters; at least a piece of the first."""
    text = " ".join(text.split())
    if len(text) <= limit:
        return text
    cut = text[: limit + 1].rpartition(" ")[0]
    return cut or text[:limit]
