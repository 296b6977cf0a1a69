"""Title, author, dates, site and canonical URL, each by a chain of places that state them; nothing is invented."""

from __future__ import annotations

import html as html_entities
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

from m3.extract.dates import date_in_url, first_date, iso_date
from m3.extract.dom import Document, Element
from m3.patterns import lazy_pattern

_SEPARATORS = lazy_pattern(r"\s+[|\-–—·•»:/]+\s+|\s*[|»]\s*")
_BY = lazy_pattern(
    r"^\s*(?:written\s+|posted\s+|reviewed\s+|published\s+)?(?:by|von|par|por|di|door|av|af)\s*:?\s+"
    r"|^\s*(?:(?:автор|авторы|текст|autore?|auteur|text|texto|testo|بقلم)\s*[:：]\s*|بقلم\s+)"
    r"|^\s*(?:作者|記者|记者|文|撰文|著者|筆者)\s*[:：／/]\s*",
    re.I,
)
_NO_AUTHOR = lazy_pattern(

        r"^(?:admin\w*|administrator|editor(?:s|ial)?(?: (?:team|staff|board))?|staff(?: writer)?|guest"
        r"|author|user|team|contributor"
    r""

        r"|(?:view|see|read|more|all|about|about us)\b.*|webmaster|root|wordpress|anonymous|unknown|n/?a"
        r"|none|null|undefined|by)$|https?:|www\.|[@{}<>\[\]]", re.I,
)  # fmt: skip
_BYLINE = lazy_pattern(

        r"(?:^|[\s_-])(?:byline|author|authors|author-?name|byline-?name|post-?author|entry-?author"
        r"|article-?author|writer|p-author)(?=$|[\s_]|--?name|-link)", re.I,
)  # fmt: skip
_BY_NAME = lazy_pattern(
    r"(?:(?:[Ww]ritten|[Pp]osted|[Pp]ublished|[Rr]eviewed|[Ss]tory|[Ww]ords) )?[Bb]y:? "
    r"([A-Z][\w.'’-]+(?: (?:[A-Z][\w.'’-]*|de|van|von|der|la|da)){1,3})(?=$| ?[|,⋅·•—–(-]| [a-z])"
)
# The same in other languages, where the whole line must be it: these words open other lines as well.
_BY_NAME_ALONE = lazy_pattern(
    r"(?:[Vv]on|[Pp]ar|[Pp]or|[Dd]oor|(?:Автор|Текст|Autore?|Auteur|Texto?|Testo|بقلم)\s?:|بقلم) "
    r"((?:[^\W\d_a-z][\w.'’-]+)(?: (?:[^\W\d_a-z][\w.'’-]*|de|van|von|der|la|da|dos|del)){1,3})"
    r"|(?:作者|記者|记者|文|撰文|著者|筆者)\s?[:：／/]\s?([\u3040-\u30ff\u4e00-\u9fff]{2,8})"
)
_POSTER = lazy_pattern(
    r"(?:^|[\s_])(?:username[\w-]*|user-name|postauthor|post-author|poster|poster-name|postername|creator|author|names"
    r"|post_author|author_information|post-username|nickname)(?=$|\s)",
    re.I,
)
_MAX_JSON = 1_000_000
_ARTICLE = lazy_pattern(r"article|posting|report|webpage|qapage|product|recipe|question|event|course|book", re.I)


def read_metadata(document: Document, url: str, kind: str) -> dict[str, str]:
    """The page's title, author, published, modified, site and canonical_url; "" for what it does not say."""
    things = list(structured_things(document))
    site = _site(document, things, url)
    title = _title(document, things, site, url, kind)
    return {
        "title": title,
        "author": _author(document, things, site, kind),
        "published": _published(document, things, url, title, kind),
        "modified": _modified(document, things),
        "site": site,
        "canonical_url": _canonical(document, url),
    }


# --- JSON-LD ---------------------------------------------------------------------------------------------


def structured_things(document: Document) -> Iterator[dict[str, Any]]:
    """Every object of the page's JSON-LD, outermost first; scripts that cannot be read are passed over."""
    for script in document.structured:
        for value in _lenient_json(script[:_MAX_JSON]):
            yield from _objects(value, 0)


def _lenient_json(text: str) -> Iterator[Any]:
    """The value in a script, whatever comment, CDATA mark or semicolon stands around it."""
    starts = [at for at in (text.find("{"), text.find("[{")) if at >= 0]
    if not starts:
        return
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text, min(starts))
    except (ValueError, RecursionError):
        return
    yield value


def _objects(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    if depth > 6:
        return
    if isinstance(value, list):
        for item in value[:200]:
            yield from _objects(item, depth + 1)
    elif isinstance(value, dict):
        yield value
        for key in ("@graph", "mainEntity", "mainEntityOfPage", "hasPart", "article"):
            if isinstance(value.get(key), list | dict):
                yield from _objects(value[key], depth + 1)


def _is_about_page(thing: dict[str, Any]) -> bool:
    kinds = thing.get("@type", "")
    return bool(_ARTICLE.search(" ".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds)))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("name") or value.get("@value") or ""
    if isinstance(value, list):
        value = value[0] if value else ""
        return _text(value) if not isinstance(value, list) else ""
    return _clean(value) if isinstance(value, str) else ""


def _clean(text: str) -> str:
    return " ".join(html_entities.unescape(text).split())


def article_body(document: Document) -> str:
    """The longest `articleBody` in the page's JSON-LD, without tags."""
    best = ""
    for thing in structured_things(document):
        value = thing.get("articleBody") or thing.get("text")
        if isinstance(value, str) and len(value) > len(best) and _is_about_page(thing):
            best = value
    text = re.sub(r"<(?:p|br|div|li|h\d)\b[^>]{0,500}>", "\n", html_entities.unescape(best))
    return "\n".join(filter(None, (" ".join(line.split()) for line in re.sub(r"<[^>]{0,500}>", "", text).split("\n"))))


# --- title -----------------------------------------------------------------------------------------------


def _title(document: Document, things: list[dict[str, Any]], site: str, url: str, kind: str) -> str:
    """An h1 that agrees with `<title>` or og:title, else og:title without the site, else h1, else `<title>`."""
    stated = document.meta("citation_title")
    if stated:
        return _clean(stated)
    og, whole = _clean(document.meta("og:title", "twitter:title")), _clean(document.title)
    og_alone, pieces = _without_site(og, site, url), [_letters(p) for p in _SEPARATORS.split(whole)]
    headings = _headings(document.body, site, url)
    if len(pieces) > 1:  # a heading that is the last part of the title is the site's or the book's name
        headings = [h for h in headings if _letters(h) != pieces[-1] or _letters(h) == _letters(og)]
    for heading in headings:
        words = _letters(heading)
        if words in _letters(whole) or words in _letters(og):
            longer = og_alone if len(words.split()) <= 2 and kind != "documentation" else ""
            return longer if len(longer.split()) >= 4 and words in _letters(longer) else heading
        if og and _letters(og_alone) in words and len(_letters(og)) > 15:
            return heading
    if len(headings) == 1 and _alike(headings[0], og or whole):
        return headings[0]
    headline = next((t for thing in things if _is_about_page(thing) and (t := _text(thing.get("headline")))), "")
    if og_alone or headline:
        return og_alone or headline
    return headings[0] if len(headings) == 1 else _without_site(whole, site, url) or (headings or [""])[0]


def _headings(body: Element, site: str, url: str) -> list[str]:
    """The page's first-level headings, each once, without the site's own name."""
    found: dict[str, None] = {}
    for element in body.descend():
        if element.name == "h1" and 0 < element.chars <= 300 and len(found) < 6:
            text = re.sub(r"\s*[¶#§]\s*$", "", _clean(element.words_in()))
            if _letters(text) and not _same_site(text, site, url):
                found.setdefault(text)
    return list(found)


def _alike(heading: str, title: str) -> bool:
    """True for two wordings of one title: at least two words of some length, and a third of the heading's, agree."""
    a, b = ({w for w in _letters(t).split() if len(w) > 3} for t in (heading, title))
    return len(a & b) >= max(2, len(a) / 3)


def _letters(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _same_site(text: str, site: str, url: str) -> bool:
    name = re.sub(r"\W+", "", text.casefold())
    host = (urlsplit(url).hostname or "") if "://" in url else ""
    domain = re.sub(r"\W+", "", host.removeprefix("www.").rpartition(".")[0])
    return bool(name) and (
        name == re.sub(r"\W+", "", site.casefold())
        or name == domain
        or name == re.sub(r"\W+", "", host.removeprefix("www."))
    )


def _without_site(title: str, site: str, url: str) -> str:
    """A title less the site's name at either end, or less its last short part."""
    pieces = [m.span() for m in _SEPARATORS.finditer(title)]
    if not pieces:
        return title
    first, last = title[: pieces[0][0]], title[pieces[-1][1] :]
    if _same_site(last, site, url) or site and _letters(last) and _letters(last) in _letters(site):
        return title[: pieces[-1][0]].strip()
    if _same_site(first, site, url):
        return title[pieces[0][1] :].strip()
    if len(pieces) >= 1 and not site and len(last) <= 40 and len(title[: pieces[-1][0]]) >= len(last):
        return title[: pieces[-1][0]].strip()
    return title


def _site(document: Document, things: list[dict[str, Any]], url: str) -> str:
    stated = document.meta("og:site_name", "application-name", "citation_journal_title")
    if stated:
        return _clean(stated)
    for thing in things:
        if thing.get("@type") == "WebSite" and _text(thing.get("name")):
            return _text(thing.get("name"))
    for thing in things:
        publisher = thing.get("publisher")
        if isinstance(publisher, dict) and _text(publisher):
            return _text(publisher)
    return ((urlsplit(url).hostname or "").removeprefix("www.")) if "://" in url else ""


# --- author ----------------------------------------------------------------------------------------------


def _author(document: Document, things: list[dict[str, Any]], site: str, kind: str) -> str:
    by_id = {t["@id"]: t for t in things if isinstance(t.get("@id"), str) and t.get("name")}
    for thing in things:
        if _is_about_page(thing):
            names = [
                n for n in _author_names(thing.get("author") or thing.get("creator"), by_id) if _plausible(n, site)
            ]
            if names:
                return ", ".join(dict.fromkeys(names))
    if kind == "forum" and (poster := _poster(document.body)):
        return poster
    cited = (
        document.all_meta("citation_author") or document.all_meta("dc.creator") or document.all_meta("dcterms.creator")
    )
    if cited:
        return ", ".join(dict.fromkeys(map(_clean, cited)))
    for name in ("author", "article:author", "sailthru.author", "parsely-author", "byl", "twitter:data1"):
        if name == "twitter:data1" and not document.meta("twitter:label1").lower().startswith("written"):
            continue
        stated = _tidy_author(document.meta(name))
        if stated and _plausible(stated, site):
            return stated
    return _author_in_body(document.body, site) or _by_line(document.body, site)


def _by_line(body: Element, site: str) -> str:
    """A short line that reads "By Name Name", in any of a few languages."""
    for element in body.descend():
        if element.own_chars and element.chars <= 140 and element.own_chars == element.chars:
            line = element.words_in()
            match = _BY_NAME.match(line) or _BY_NAME_ALONE.fullmatch(line)
            listed = match and any(p.name in ("nav", "header", "li", "button") for p in element.parents)
            name = next(filter(None, match.groups()), "") if match else ""
            if name and not listed and (_plausible(name, site) or len(name) == 2):
                return name
    return ""


def _poster(body: Element) -> str:
    """Who opened a thread: the first name that its markup gives as a poster's."""
    for element in body.descend():
        if element.attrs.get("data-author"):
            return _clean(element.attrs["data-author"])
        if 0 < element.chars <= 40 and _POSTER.search(element.label):
            name = _tidy_author(element.words_in())
            in_form = any(p.name in ("form", "label", "nav", "header") for p in element.parents)
            if 2 < len(name) <= 30 and not _NO_AUTHOR.search(name) and not in_form and element.name != "label":
                return name
    return ""


def _author_names(value: Any, by_id: dict[str, dict[str, Any]]) -> Iterator[str]:
    for item in value[:20] if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            name = _text(item.get("name")) or _text(by_id.get(str(item.get("@id")), {}).get("name"))
        else:
            name = _text(item)
        if name:
            yield _tidy_author(name)


def _tidy_author(text: str) -> str:
    text = _BY.sub("", _clean(text))
    return re.sub(r"\s*(?:\||•|·|,? (?:updated|published|posted|on|staff writer)\b).*$", "", text, flags=re.I).strip(
        " ,;:-–—"
    )


def _plausible(name: str, site: str) -> bool:
    return 2 < len(name) <= 100 and not _NO_AUTHOR.search(name) and name.casefold() != site.casefold()


def _author_in_body(body: Element, site: str) -> str:
    """`rel=author`, `itemprop=author`, then a byline by its class; of a class only two to five words without digits."""
    by_class = ""
    for element in body.descend():
        attributes = element.attrs
        if element.chars == 0 or element.chars > 120:
            continue
        marked = "author" in attributes.get("rel", "").split() or attributes.get("itemprop") in ("author", "creator")
        if marked:
            name = _tidy_author(_named_inside(element))
            if _plausible(name, site) and not any(c.isdigit() for c in name) and len(name.split()) <= 6:
                return name
        elif not by_class and _BYLINE.search(element.label):
            name = _tidy_author(_named_inside(element))
            if _plausible(name, site) and 2 <= len(name.split()) <= 5 and not any(c.isdigit() for c in name):
                by_class = name
    return by_class


def _named_inside(element: Element) -> str:
    for inner in element.descend():
        if inner.attrs.get("itemprop") == "name" or "author" in inner.attrs.get("rel", "").split():
            return str(inner.attrs.get("content") or inner.words_in())
    links = [e.words_in() for e in element.descend() if e.name == "a" and e.chars]
    return links[0] if len(links) == 1 else element.words_in()


# --- dates -----------------------------------------------------------------------------------------------


def _published(document: Document, things: list[dict[str, Any]], url: str, title: str, kind: str) -> str:
    for thing in things:
        if _is_about_page(thing):
            found = iso_date(_text(thing.get("datePublished") or thing.get("dateCreated") or thing.get("uploadDate")))
            if found:
                return found
    found = iso_date(
        document.meta(
            "article:published_time", "og:article:published_time", "datepublished", "citation_publication_date",
            "citation_date", "citation_online_date", "dc.date.issued", "dcterms.created", "dc.date", "dcterms.date",
            "parsely-pub-date", "sailthru.date", "pubdate", "publishdate", "publish-date", "publish_date",
            "published_date", "date", "article.published", "cxenseparse:recs:publishtime", "og:published_time",
        )
    )  # fmt: skip
    return found or date_in_url(url) or first_date(document.body, title, day_first=_writes_day_first(document.language))


def _writes_day_first(language: str) -> bool:
    """Whether 05/03/2024 is the fifth of March, going by the page's own `lang`; without one nothing is known."""
    code, _, region = language.replace("_", "-").partition("-")
    return code not in ("", "en", "zh", "ja", "ko") or code == "en" and region not in ("", "us", "ca", "ph")


def _modified(document: Document, things: list[dict[str, Any]]) -> str:
    for thing in things:
        if _is_about_page(thing):
            found = iso_date(_text(thing.get("dateModified")))
            if found:
                return found
    return iso_date(
        document.meta(
            "article:modified_time", "og:updated_time", "datemodified", "last-modified", "dcterms.modified", "revised"
        )
    )


# --- address ---------------------------------------------------------------------------------------------


def _canonical(document: Document, url: str) -> str:
    """The page's canonical URL; "" where it names another host or the site's front page from a deep page."""
    stated = document.canonical or document.meta("og:url")
    if not stated:
        return ""
    try:
        absolute = urljoin(url, stated)
        parts, own = urlsplit(absolute), urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return ""
        if own.scheme in ("http", "https"):
            if parts.hostname.removeprefix("www.") != (own.hostname or "").removeprefix("www."):
                return ""
            if parts.path.strip("/") == "" and own.path.strip("/") != "":
                return ""
    except ValueError:
        return ""
    return absolute.partition("#")[0]
