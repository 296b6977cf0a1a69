"""Which page is `[Source 3]`: numbers for pages that were read, and the tags of a finished report resolved to them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from m3.grounding.claims import cut_bibliography
from m3.grounding.tags import TAG, accept_bare_numbers, rewrite_tags
from m3.patterns import lazy_pattern
from m3.records import Page, Source
from m3.urls import canonical_key

_IMAGE = lazy_pattern(r"!\[([^\]\n]*)\](?:\([^)\n]*\)|\[[^\]\n]*\])")
_LINK = lazy_pattern(r"(?<!!)\[([^\]\n]+)\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'(][^)\n]*)?\)")
_ADDRESS = lazy_pattern(r"<?\b(?:https?://|www\.)[^\s<>\"'）)\]】]+>?", re.I)
_REFERENCE = lazy_pattern(r"^[ \t]{0,3}\[[^\]\n]+\]:[ \t]*\S+.*\n?", re.M)
UNKNOWN_LINK = "(link removed: it stands on no page that was read)"


class CitationTracker:
    """Gives each page that was read one number and resolves the tags of the finished report to them."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.renumbered: dict[int, int] = {}  # what the last `finalize` did: number before -> number after
        self._by_url: dict[str, Source] = {}

    def register(self, page: Page) -> Source:
        """The source of a page; the same canonical URL gets the same number again."""
        for url in (page.canonical_url, page.url):
            if url and canonical_key(url) in self._by_url:
                return self._by_url[canonical_key(url)]
        source = Source(len(self.sources) + 1, page)
        self.sources.append(source)
        self._remember(source)
        return source

    def get(self, number: int) -> Source | None:
        return self.sources[number - 1] if 1 <= number <= len(self.sources) else None

    @property
    def pages(self) -> dict[int, Page]:
        """The pages read, by the number of their source."""
        return {source.number: source.page for source in self.sources}

    def canonical(self, draft: str) -> str:
        """A model's draft with every tag as `[Source 1, 3]`, and without what only the program may write.

        A closing list of references goes, images go, links become their text, and an address goes unless it stands on
        a page that was read. Tags that name nothing stay, so that they can be reported.
        """
        text = cut_bibliography(_printable(draft)).strip()
        text = accept_bare_numbers(text, {source.number for source in self.sources})
        return rewrite_tags(self._without_foreign_links(text), lambda number: number)

    def finalize(self, summary: str) -> tuple[str, list[Source]]:
        """Resolve the tags of a summary: `(summary with [Source N] renumbered by first appearance, cited sources)`.

        Tags that name nothing are dropped, as `canonical` drops the rest. The tracker takes over the new numbers, the
        uncited sources after the cited ones, so that doing it again changes nothing.
        """
        order: dict[int, int] = {}

        def renumber(number: int) -> int | None:
            return None if self.get(number) is None else order.setdefault(number, len(order) + 1)

        text = rewrite_tags(self.canonical(summary), renumber)
        text = re.sub(r"[ \t]+(?=[.,;:!?](?:\s|$))", "", re.sub(r"(?<=\S)[ \t]{2,}(?=\S)", " ", text)).strip()
        cited = [Source(new, self.sources[old - 1].page) for old, new in order.items()]
        rest = [source for source in self.sources if source.number not in order]
        self.renumbered = order | {source.number: len(cited) + i for i, source in enumerate(rest, 1)}
        self.sources = cited + [Source(self.renumbered[source.number], source.page) for source in rest]
        self._by_url = {}
        for source in self.sources:
            self._remember(source)
        return text, cited

    def _remember(self, source: Source) -> None:
        for url in (source.page.canonical_url, source.page.url):
            if url:
                self._by_url.setdefault(canonical_key(url), source)

    def _without_foreign_links(self, text: str) -> str:
        if "](" not in text and "//" not in text and "www." not in text.lower() and "]:" not in text:
            return text
        known = _known_addresses(source.page for source in self.sources)
        page_text = "\n".join(source.page.text for source in self.sources)

        def address(match: re.Match[str]) -> str:
            url = match[0].lstrip("<").rstrip(".,;:!?*_>")
            rest = match[0].lstrip("<")[len(url) :].lstrip(">")
            return match[0] if canonical_key(url) in known or url in page_text else UNKNOWN_LINK + rest

        text = _REFERENCE.sub("", _IMAGE.sub(lambda m: m[1], text))
        return _ADDRESS.sub(address, _LINK.sub(_link_text, text))


def _link_text(link: re.Match[str]) -> str:
    """What a link reads as; of a tag that was made a link the tag stays."""
    return f"[{link[1]}]" if TAG.fullmatch(f"[{link[1]}]") else link[1]


def _known_addresses(pages: Iterable[Page]) -> set[str]:
    return {
        canonical_key(url)
        for page in pages
        for url in (page.url, page.canonical_url, *page.links)
        if url.startswith("http")
    }


def _printable(text: str) -> str:
    """Without control characters, terminal escapes and marks that turn the writing direction."""
    text = re.sub(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", "", text.replace("\r\n", "\n"))
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]", "", text)
