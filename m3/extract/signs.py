"""What class names and ids say about an element.

Names are cut into words at hyphens, underscores and camel humps, and only whole words count: substrings match
layout names such as `overflow-hidden` or `has-sidebar` on the content itself. Which words are safe was measured on
public pages with a known main text: the words below are almost never (under 5 %) in it; those that sound like
boilerplate but often hold content (`sidebar`, `widget`, `tags`, `newsletter`) count as weak signs only.
"""

from __future__ import annotations

import re
from enum import Flag, auto
from functools import lru_cache

from m3.extract.dom import Element
from m3.patterns import lazy_pattern


class Sign(Flag):
    """What an element's names say."""

    NONE = 0
    CHROME = auto()  # navigation, footers, share bars: never content, on any kind of page
    CONSENT = auto()  # boxes about cookies, which may hold more text than the page itself
    ASIDE = auto()  # related stories, newsletters, author boxes, bylines: not content of an article
    WEAK = auto()  # may be either: dropped only where small and poor in prose
    COMMENTS = auto()  # readers' comments: content of a thread, not of an article
    CAPTION = auto()
    CONTENT = auto()  # says that it holds the main text
    CALLOUT = auto()  # a note, tip or warning box of a documentation page


_CHROME_WORDS = frozenset(
    "footer navbar nav navigation topnav subnav sidenav breadcrumb breadcrumbs crumbs submenu megamenu mainmenu menu "
    "menus dropdown flyout hamburger masthead share shares sharing sharedaddy addthis addtoany sociable cookie cookies "
    "popup popmake modal lightbox login signin copyright colophon noprint "
    "offcanvas skiplink skiplinks rodape topbar searchform searchbox searchbar toolbar tooltip headerlink linkro "
    "permalink hashlink anchorjs paywallbar toast snackbar backtotop fusenav".split()
)
_CONSENT_WORDS = frozenset("cookie cookies consent gdpr onetrust cookielaw cookielawinfo cookiebot".split())
_CHROME_NAMES = lazy_pattern(
    r"""(?:^|\s)(?:
        sr-only|visually-?hidden|screen-reader(?:-text)?|skip-(?:link|nav)[\w-]*|skip-to-(?:content|main)[\w-]*
        |u-hidden-visually|assistive-text
       |site-(?:header|footer|nav)|page-footer|global-(?:header|nav|footer)|back-to-top
       |print-only|print-?only|d-print-block|cli-[\w-]+|cmp-(?:modal|banner)|cc-(?:window|banner)
       |social|social-(?!proof)[\w-]*|[\w-]*-social|share-?[\w-]*|[\w-]*-share|follow-?us|mw-editsection
       |catlinks|navbox[\w-]*
       |mw-jump-link|navigation-not-searchable|anchor-?link|header-?anchor|heading-?anchor|copy-?button|clipboard-?copy
       |ad|ads|advert[\w-]*|ad-(?:slot|unit|container|wrapper|banner|block|placeholder)[\w-]*|adsbygoogle
       |dfp[\w-]*|google-ad[\w-]*
       |table-of-contents|toc|on-this-page|page-toc|article-toc
    )(?=\s|$)""",
    re.X,
)
_ASIDE_WORDS = frozenset(
    "related recommended recommendation recommendations recirc recirculation popular mostpopular mostread trending "
    "yarpp outbrain taboola zergnet teaser teasers promo promos newsletter signup subscribe byline dateline bio "
    "hatnote puff mini rating ratings respond pager donate donation advertisement disclaimer upsell crosssell".split()
)
_ASIDE_NAMES = lazy_pattern(
    r"""(?:^|\s)(?:
        more-?(?:on|from|stories|news|articles|posts|reading)[\w-]*|also-like|you-may-[\w-]+|read-?next
        |next-?up|up-?next|readmore[\w-]*
       |latest-(?:news|posts|articles|stories)[\w-]*|recent-(?:posts|articles|news|comments|entries)[\w-]*|recentposts
       |(?:about-(?:the-)?)?author-?(?:bio|box|info|card|profile|details|name|description|content|block)?
       |post-author[\w-]*|article-author[\w-]*
       |(?:post|entry|article|story)-?meta|(?:post|entry|article)-?(?:tags|date|footer|nav|navigation)
       |publish(?:ed)?-?date|timestamp|post-?nav[\w-]*
       |tag-?(?:list|cloud|links)|tagcloud|wp-?tag-?cloud|page-?nav[\w-]*|pagination[\w-]*|categories
       |cat-links|tags-links
       |mc-?embed[\w-]*|mailchimp[\w-]*|email-?capture[\w-]*|sponsor(?:ed)?-(?:content|links|post)[\w-]*
       |navigation-?post|entry-?utility|postmetadata|reading-time|read-time
    )(?=\s|$)""",
    re.X,
)
_WEAK_WORDS = frozenset(
    "sidebar sidebars widget widgets tags banner cta hidden meta ads sponsor sponsored rail toc poll quiz "
    "register account overlay subscription promotion credits publication infobox".split()
)
_COMMENT_WORDS = frozenset("comments comment commentlist disqus replies commenting livefyre coral".split())
_CAPTION_WORDS = frozenset("caption captions figcaption credit slideshow imagecaption photocredit".split())
_CONTENT_NAMES = lazy_pattern(
    r"""(?:^|\s)(?:
        (?:article|entry|post|story|page|blog|main|news|single|node|content|markdown|rich)-*(?:body|content|text|copy)[\w-]*
       |articlebody|storybody|postbody|markdown-body|markdown|mw-parser-output|prose|rich-?text[\w-]*
       |wysiwyg[\w-]*|rte|body-?(?:text|copy)
       |available-content|caas-body|h-?entry|e-content|article-?inner|text-?block
    )(?=\s|$)""",
    re.X,
)
_CALLOUT_WORDS = frozenset("admonition callout note tip warning notice important caution hint alert info".split())

# Prefixes that make a name one of state, layout or theme: they say nothing of what the element holds.
_LAYOUT = lazy_pattern(
    r"^(?:has|no|not|with|without|is|js|overflow|label|field|vc|hs_cos|w|h|sm|md|lg|xl|xs|layout|page|template|single"
    r"|theme|col|wp-block-group|hide|show|display|category|tag|status|type|format|elementor"
    r"|et)(?:[-_:]|$)|[:\[\]/]|[-_](?:enabled?|disabled?|active|open|visible)(?:[-_]|$)"
)
_HUMP = lazy_pattern(r"(?<=[a-z])(?=[A-Z])")


def signs(element: Element) -> Sign:
    """The signs in an element's class and id."""
    attributes = element.attrs
    names = attributes.get("class", ""), attributes.get("id", "")
    return signs_of(names[0], names[1]) if names[0] or names[1] else Sign.NONE


@lru_cache(maxsize=20_000)
def signs_of(classes: str, identifier: str) -> Sign:
    """The signs in one class attribute and one id. Bounded: only the first 400 characters are read."""
    raw = [*classes[:400].split(), identifier[:100]]
    names = [_HUMP.sub("-", name).lower().replace("_", "-") for name in raw if name and not _LAYOUT.search(name)]
    if not names:
        return Sign.NONE
    names = [re.sub("-{2,}", "-", name) for name in names]
    joined = " ".join(names)
    found_words = {word for name in names for word in name.split("-")}
    found = Sign.NONE
    if found_words & _CHROME_WORDS or _CHROME_NAMES.search(joined):
        found |= Sign.CHROME
    if found_words & _CONSENT_WORDS:
        found |= Sign.CONSENT
    if found_words & _ASIDE_WORDS or _ASIDE_NAMES.search(joined):
        found |= Sign.ASIDE
    if found_words & _COMMENT_WORDS:
        found |= Sign.COMMENTS
    if found_words & _WEAK_WORDS:
        found |= Sign.WEAK
    if found_words & _CAPTION_WORDS:
        found |= Sign.CAPTION
    if _CONTENT_NAMES.search(joined):
        found |= Sign.CONTENT
    if found_words & _CALLOUT_WORDS:
        found |= Sign.CALLOUT
    return found
