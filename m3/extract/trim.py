"""What is left over at the two ends of an article: its own headline, bylines and dates above, labels below."""

from __future__ import annotations

import re

from m3.extract.blocks import Part
from m3.extract.dates import iso_date
from m3.patterns import lazy_pattern
from m3.words import words

_TOP_WORDS = 14  # a line above the text that is longer than this is a standfirst, not a byline
_TOP_PARTS = 12
_END_WORDS = 8
_BYLINE = lazy_pattern(
    r"^(?:(?:written|posted|published|updated|story|words|photos?) )?by\b|\bmin(?:ute)?s? read\b"
    r"|\bread time\b|^(?:published|posted|updated|last updated|share|listen|save|print|photo|image"
    r"|credit)\b|^(?:von|par|por|di|door|автор|авторы|текст|بقلم)\b:?\s+(?!\d)\w+(?:\s+\S+){0,4}$"
    r"|^(?:作者|记者|記者|文|来源|來源)\s*[:：／/]|^(?:veröffentlicht|aktualisiert|publi[ée]|publicado|опубликовано|发布)\b",
    re.I,
)
_ENDED = lazy_pattern(r"""[.!?…:;"”’')\]。！？]$""")


def trim(parts: list[Part], title: str, author: str) -> list[Part]:
    """An article's parts without its headline (which is the page's title) and without what hangs on at either end."""
    return _trim_end(_trim_top(parts, title, author))


def _trim_top(parts: list[Part], title: str, author: str) -> list[Part]:
    wanted = _letters(title)
    first = next((i for i, p in enumerate(parts) if p[0] != "heading" and _length(p[1]) > _TOP_WORDS), len(parts))
    headline = next((i for i, p in enumerate(parts[: first + 1]) if wanted and _letters(p[1]) == wanted), None)
    kept: list[Part] = []
    for i, part in enumerate(parts):
        if i >= min(first, _TOP_PARTS):
            return kept + parts[i:]
        text = part[1]
        if (
            headline is not None
            and i <= headline
            and part[0] in ("heading", "paragraph")
            and (i == headline or len(text) < 60)
        ):
            continue
        if part[0] == "paragraph" and _is_byline(text, author):
            continue
        kept.append(part)
    return kept


def _is_byline(text: str, author: str) -> bool:
    if _length(text) > _TOP_WORDS:
        return False
    names = _letters(author)
    return (
        bool(_BYLINE.search(text)) or bool(iso_date(text)) or bool(names) and _letters(text) in (names, f"by {names}")
    )


def _trim_end(parts: list[Part]) -> list[Part]:
    end = len(parts)
    while end > 1:
        kind, text = parts[end - 1][0], parts[end - 1][1]
        if kind == "heading" or kind == "paragraph" and _length(text) <= _END_WORDS and not _ENDED.search(text):
            end -= 1
        else:
            break
    # a page that ends in many short lines is made of them
    return parts[:end] if len(parts) - end <= max(4, len(parts) // 4) else parts


def _length(text: str) -> int:
    """Words of a text; scripts without blanks between them count about one a character."""
    return max(len(text.split()), len(words(text)))


def _letters(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
