"""What is taken out of a page before and after its container is chosen; limits of size protect the content."""

from __future__ import annotations

import re

from m3.extract.blocks import is_gutter
from m3.extract.dom import Element
from m3.extract.measure import link_share
from m3.extract.signs import Sign, signs
from m3.patterns import lazy_pattern

_ROLES = frozenset(
    "navigation banner contentinfo complementary search dialog alertdialog menu menubar toolbar tablist alert".split()
)
_CONTROL_ROLES = frozenset("menu menubar toolbar tablist alert".split())  # misused for panels of text
_NOT_BY_CLASS = frozenset("body main article h1 pre code table tbody tr td th math".split())
_TOO_MUCH = 0.4  # nothing that holds more of the page's running text is taken out by its name
_FORM_TOO_MUCH = 0.3
_LINKY = 0.6  # above this share of links a navigation may be of any size
_CAPTION_TAGS = frozenset("div p span li ul section small em".split())
_EMBEDS = lazy_pattern(r"twitter|instagram|bluesky|mastodon")

_TAIL = lazy_pattern(
    r"""^\W*(?:related(?:\ (?:articles?|posts?|stories|content|reading|topics|news|links|products|resources|items))?
    |you\ (?:may|might)(?:\ also)?\ (?:like|enjoy|be\ interested).*|(?:customers|people)\ also\ .*
    |more\ (?:from|on|in|stories|news|articles|posts|like\ this)\b.*
    |recommended(?:\ (?:for\ you|reading|articles|stories))?
    |read\ (?:more|next|also)|see\ also|also\ read|also\ on\ .*|most\ (?:read|popular|viewed|recent)|trending(?:\ now)?
    |(?:latest|recent|popular|featured)\ (?:news|posts|articles|stories|videos|comments)|leave\ a\ (?:reply|comment).*
    |(?:\d+\ )?comments?(?:\ \(\d+\))?
    |share\ (?:this|on|via)\b.*|about\ the\ authors?|follow\ us.*|subscribe.*|sign\ up.*
    |(?:join\ our\ )?newsletters?|sponsored.*|advertisement
    |tags?|filed\ under.*|continue\ reading.*|keep\ reading|up\ next|what\ to\ read\ next|don['’]t\ miss.*
    |das\ k[öo]nnte\ (?:sie|dich)\ (?:auch\ )?interessieren.*|mehr\ (?:zum\ thema|zu|aus|von)\b.*
    |lesen\ sie\ (?:auch|mehr).*|auch\ interessant
    |(?:ähnliche|weitere|verwandte|passende|meistgelesene|neueste)\ (?:artikel|beiträge|themen|meldungen|nachrichten)
    |kommentare?(?:\ \(\d+\))?|schreibe?\ einen\ kommentar.*|kommentar\ (?:schreiben|verfassen|hinterlassen)
    |teilen|schlagw[oö]rter
    |(?:articles?|sujets)\ (?:similaires|liés|connexes)|à\ lire\ aussi.*|lire\ aussi.*|commentaires?
    |laisser\ un\ commentaire
    |(?:artículos|noticias|entradas)\ relacionad[oa]s|te\ puede\ interesar.*|comentarios
    |deja\ (?:un\ comentario|una\ respuesta)
    |leggi\ anche.*|articoli\ correlati|potrebbe\ interessarti.*|gerelateerde\ artikelen|lees\ ook.*|reacties
    |veja\ também.*|leia\ (?:mais|também).*|notícias\ relacionadas
    |читайте\ также.*|по\ теме|похожие\ (?:статьи|записи|материалы|новости)|другие\ новости|комментари[ии]й?.*
    |相关(?:阅读|文章|新闻|推荐|链接)|相關(?:閱讀|文章|新聞)|延伸閱讀|推荐阅读|热门(?:文章|新闻)|评论|評論|網友評論|网友评论
    |関連(?:記事|ニュース|リンク)|人気記事|コメント|あわせて読みたい|関連する記事
    |اقرأ\ أيضا.*|اقرأ\ أيضًا.*|مواضيع\ ذات\ صلة|مقالات\ ذات\ صلة|التعليقات|관련\ ?(?:기사|뉴스)|댓글
    |references|external\ links|further\ reading|bibliography|footnotes|notes|citations)\W*$""",
    re.I | re.X,
)
_REFERENCE_TAIL = lazy_pattern(
    r"references|external links|further reading|bibliography|footnotes|notes|citations|see also", re.I
)


def drop_chrome(body: Element, kind: str) -> None:
    """Take out what is content on no page: navigation, headers, footers, forms, overlays, share bars, gutters."""
    total = max(1, body.chars)
    for element in body.descend():
        name = element.name
        if name in ("pre", "math"):
            continue
        if _is_chrome(element, kind, total):
            element.drop()


def _is_chrome(element: Element, kind: str, total: int) -> bool:
    name, size = element.name, element.chars
    fits = size <= _TOO_MUCH * total
    if name in ("nav", "dialog", "menu"):
        return fits or link_share(element) > _LINKY
    if name == "footer":
        return (fits or link_share(element) > _LINKY) and not _inside(element, "blockquote", "figure")
    if name == "aside":
        return (fits or link_share(element) > _LINKY) and Sign.CALLOUT not in signs(element)
    if name == "button":
        return size < 200
    if name == "form":
        return size <= _FORM_TOO_MUCH * total
    if name == "header":
        return size <= _FORM_TOO_MUCH * total and (
            kind == "article" or not _inside(element, "main", "article", "section")
        )
    if element.attrs.get("role") in _ROLES:
        holds_prose = element.attrs["role"] in _CONTROL_ROLES and element.prose_chars > 0.3 * size
        return fits and not holds_prose and Sign.CALLOUT not in signs(element)
    if name == "td" and is_gutter(element):
        return True
    if name in _NOT_BY_CLASS:
        return False
    found = signs(element)
    if Sign.CONSENT in found and size <= 0.9 * total and not _inside(element, "main", "article"):
        return True
    if not found or Sign.CHROME not in found or _is_code(element):
        return False
    if kind in ("product", "page", "listing") and "modal" in element.label and _inside(element, "main"):
        return False  # shops put details into boxes that open
    return fits and not (Sign.CONTENT in found and element.prose_chars > 200)


def _inside(element: Element, *names: str) -> bool:
    return any(p.name in names for p in element.parents)


def _is_code(element: Element) -> bool:
    return any(p.name in ("pre", "code") for p in element.parents)


def drop_asides(body: Element, *, comments: bool = True) -> None:
    """Take out of an article's page what stands beside it: related stories, newsletters, captions, bylines.

    comments: also readers' comments, which are the content of a thread.
    """
    total = max(1, body.chars)
    for element in body.descend():
        if _is_aside(element, total, comments):
            element.drop()


def _is_aside(element: Element, total: int, comments: bool) -> bool:
    name, size = element.name, element.chars
    if name == "figcaption":
        return True
    if name in _NOT_BY_CLASS or name == "blockquote" or "class" not in element.attrs and "id" not in element.attrs:
        return False
    found = signs(element)
    if not found or element.attrs.get("itemprop") in ("articleBody", "text") or _is_code(element):
        return False
    if _EMBEDS.search(element.label) or Sign.CONTENT in found and Sign.COMMENTS not in found:
        return False
    poor = element.prose_chars < 0.3 * size or link_share(element) > 0.3
    if Sign.COMMENTS in found:
        return comments and size <= 0.85 * total
    if Sign.ASIDE in found:  # a text of some length without links is rather misnamed than beside the point
        return size <= _TOO_MUCH * total and (size <= 0.08 * total or poor)
    if Sign.CAPTION in found:
        return size <= 0.25 * total and name in _CAPTION_TAGS
    return Sign.WEAK in found and size <= 0.25 * total and poor


def drop_link_lists(container: Element) -> None:
    """Take out blocks that are mostly links and hold no prose."""
    for element in container.descend():
        name, size = element.name, element.chars
        if not size or name not in _LINKABLE or element.prose_chars >= 120:
            continue
        limit = 0.9 if name in ("p", "li", "h2", "h3", "h4") else 0.6
        if element.link_chars > limit * size and not (name == "li" and size > 200):
            element.drop()


_LINKABLE = frozenset("ul ol div section table dl p li article h2 h3 h4".split())


def drop_cards(container: Element, keep_chars: int = 700) -> None:
    """Take out groups of three or more alike siblings that each have a link and a heading or picture (teasers)."""
    for parent in [container, *container.descend()]:
        if parent.dropped or parent.name in ("table", "tbody", "tr", "p", "pre"):
            continue
        groups: dict[tuple[str, str], list[Element]] = {}
        for child in parent.elements:
            if child.name in ("article", "li", "div", "section", "a"):
                key = (child.name, child.attrs.get("class", "").split(" ")[0])
                groups.setdefault(key, []).append(child)
        for group in groups.values():
            if len(group) < 3 or sum(map(_is_card, group)) < 0.7 * len(group):
                continue
            if container.chars - sum(e.chars for e in group) >= keep_chars:
                for element in group:
                    element.drop()


def _is_card(element: Element) -> bool:
    if element.link_chars <= 0.08 * element.chars:
        return False
    names = {e.name for e in element.descend()}
    return (element.name == "a" or "a" in names) and (
        element.name == "article" or bool(names & {"h2", "h3", "h4", "h5", "img"})
    )


def drop_tails(container: Element, *, references: bool = False) -> None:
    """Take out sections whose heading says that they are not the text: related stories, comments, sign-ups.

    references: also lists of references and notes (of papers and encyclopedias).
    """
    total = max(1, container.chars)
    for element in container.descend():
        if element.name in ("h2", "h3", "h4", "h5", "h6"):
            words = element.words_in()
            if len(words) > 60 or not _TAIL.match(words) or _REFERENCE_TAIL.fullmatch(words.strip()) and not references:
                continue
            following = [s for s in element.next_siblings if isinstance(s, Element) and not s.dropped]
            section = following
            for i, sibling in enumerate(following):
                if sibling.name in ("h1", "h2", "h3", "h4") and sibling.name <= element.name:
                    section = following[:i]
                    break
            if sum(s.chars for s in section) < 0.3 * total:
                for sibling in section:
                    sibling.drop()
                element.drop()
        elif element.name in ("p", "strong") and 0 < element.chars <= 60 and element.chars == element.own_chars:
            words = element.words_in()
            if _TAIL.match(words) and not _REFERENCE_TAIL.fullmatch(words.strip(" :")):
                element.drop()
