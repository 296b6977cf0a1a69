"""What sort of page this is: the rules for choosing content depend on it."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from m3.extract.dom import Document, Element
from m3.patterns import lazy_pattern

Kind: TypeAlias = Literal[
    "article", "documentation", "forum", "listing", "product", "wiki", "paper", "repository", "page"
]

_FORUM_TYPES = frozenset({"discussionforumposting", "qapage"})
_ARTICLE_TYPE = lazy_pattern(
    r'"@type"\s*:\s*(?:\[[^\]]{0,80})?"(?:[A-Za-z]{0,20}Article|BlogPosting|Report|ScholarlyArticle)"'
)
_TYPE = lazy_pattern(r'"@type"\s*:\s*\[?\s*"(\w{1,40})"')
_FORUM_GENERATOR = lazy_pattern(
    r"discourse|phpbb|vbulletin|xenforo|mybb|flarum|nodebb|invision|vanilla|simple machines|lemmy", re.I
)
_DOC_GENERATOR = lazy_pattern(
    r"sphinx|docusaurus|mkdocs|vitepress|vuepress|gitbook|docsify|mdbook|starlight|antora|doxygen"
    r"|javadoc|rustdoc|docutils|readme\.io|nextra",
    re.I,
)
_DOC_HOST = lazy_pattern(
    r"^(?:docs?|developers?|devdocs|api|help|support|learn|manual|kb|wiki)\.|\.readthedocs\."
    r"|\.gitbook\.|(?:^|\.)docs\.rs$|^man\d?\."
)
_DOC_PATH = lazy_pattern(
    r"/(?:docs?|documentation|reference|manual|api|apidocs?|javadoc|man\d?|handbook|sdk)(?:/|$)", re.I
)
_FORUM_HOST = lazy_pattern(
    r"^(?:forums?|boards?|bbs|community|discuss|talk|answers|ask)\.|stackexchange\.com$"
    r"|^(?:\w\w\.)?(?:stackoverflow|serverfault|superuser|askubuntu|mathoverflow)\."
)
_FORUM_PATH = lazy_pattern(
    r"/(?:threads?|topic|viewtopic\.php|showthread\.php|discussions?|forums?|t)[/.?-]|/questions/\d"
    r"|/comments/|thread-\d",
    re.I,
)
_LISTING_TYPES = frozenset({"itemlist", "collectionpage", "searchresultspage"})


def page_kind(document: Document, url: str) -> Kind:
    """The kind of a page by its own statements, its address and its markup, most telling first."""
    parts = urlsplit(url) if "://" in url else urlsplit("")
    host, path = (parts.hostname or "").removeprefix("www."), parts.path
    generator = document.meta("generator")
    if document.meta("citation_title") and document.meta("citation_author", "citation_authors", "citation_pdf_url"):
        return "paper"
    if "mediawiki" in generator.lower() or _has(document.body, "div", "mw-parser-output"):
        return "wiki"
    if host in ("github.com", "gitlab.com") and _has(document.body, "article", "markdown-body"):
        return "repository"
    types = structured_types(document)
    if types & _FORUM_TYPES or _FORUM_GENERATOR.search(generator) or _FORUM_HOST.search(host):
        return "forum"
    og_type = document.meta("og:type").lower()
    if _DOC_GENERATOR.search(generator) or _DOC_HOST.search(host) or _DOC_PATH.search(path):
        return "documentation"
    if (
        og_type.startswith("product")
        or "product" in types
        and not any(_ARTICLE_TYPE.search(s) for s in document.structured)
    ):
        return "product"
    if any(_ARTICLE_TYPE.search(s) for s in document.structured):
        return "article"
    if _FORUM_PATH.search(path):
        return "forum"
    if types & _LISTING_TYPES and og_type != "article":
        return "listing"
    return "article" if og_type == "article" else "page"


def structured_types(document: Document) -> set[str]:
    """The lower-cased `@type`s of the page's JSON-LD."""
    return {name.lower() for script in document.structured for name in _TYPE.findall(script[:500_000])}


def _has(root: Element, tag: str, class_name: str) -> bool:
    return any(e.name == tag and class_name in e.attrs.get("class", "").split() for e in root.descend())
