"""HTML in, a page of typed blocks out.

`visibility` and `signs` say what an element is, `kind` what sort of page it stands in, `container`, `prune` and
`posts` choose what is content, `blocks` writes it down, `metadata` reads title, author and dates, `bounded` keeps
time and memory finite. The heavy modules load with the first page, not with the program.
"""

from __future__ import annotations

from m3.extract import lazy_selectors
from m3.records import Page

__all__ = ["ContentExtractor"]

lazy_selectors.install()


class ContentExtractor:
    """Turns HTML into a `Page`: title, author, dates, site, canonical URL, kind, blocks and links."""

    def extract(self, html: bytes | str, url: str) -> Page:
        """Read one page. Never raises; a page without text has no blocks.

        html: bytes as they were fetched (the encoding is found out here) or text. url: where they came from, an
        absolute URL or the name of a local document; relative links are resolved against it. What could not be
        read as it should have been is said in `Page.notes`.
        """
        from m3.extract.bounded import extract_bounded

        return extract_bounded(html, url)
