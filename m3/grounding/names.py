"""Names in a claim that a page does not hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from m3.grounding.language import content_words
from m3.patterns import lazy_pattern
from m3.words import without_accents, words

_TOKEN = lazy_pattern(r"[^\W\d_](?:[\w'’.&-]*\w)?")
_CAPITALS = lazy_pattern(r"(?:[A-Z][\w'’-]*(?:\s+(?:of|for|the|and|in|on|de|la|der|und)\s+|\s+|-)?){2,8}")
_NOT_NAMES = frozenset(
    """january february march april may june july august september october november december jan feb mar apr jun jul aug
    sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday i i'm i've source sources""".split()
)
MOST_INITIALS = 12  # of one run of capitalised words: every part of them is a form
LONGEST_ABBREVIATION = 6  # letters that are looked for as initials in a long page
# In German every noun has a capital, so only inner capitals tell a name there.
_CAPITALS_ARE_NO_SIGN = frozenset({"de"})


def fold(text: str) -> str:
    """Without case and accents."""
    return without_accents(text).casefold()


def names_in(claim: str, language: str = "en") -> list[str]:
    """The names of a claim in order: capitalised words that do not open a sentence, or with capitals inside."""
    tokens = list(_TOKEN.finditer(claim))
    if sum(t[0][:1].isupper() for t in tokens) > 0.7 * len(tokens) and len(tokens) > 4:  # a headline in title case
        return []
    found = []
    for number, token in enumerate(tokens):
        word = token[0].strip(".'’-&")
        # Capitals inside or digits tell a name anywhere; a word that opens a sentence may be any word.
        inner = any(c.isupper() for c in word[1:]) or any(c.isdigit() for c in word)
        before = claim[: token.start()].rstrip("\"'“‘«([ \t")
        opens = number == 0 or before[-1:] in (".", "!", "?", ":", ";", "")
        if not inner and (not word[:1].isupper() or opens or language in _CAPITALS_ARE_NO_SIGN):
            continue
        if fold(word) not in _NOT_NAMES and len(word) > 1:
            found.append(re.sub(r"['’]s$", "", word))
    return list(dict.fromkeys(found))


def opening_name(claim: str) -> str:
    """The word that opens a claim, where it may be a name: no function word, adverb, participle or plural; else ""."""
    first = _TOKEN.search(claim)
    word = first[0].strip(".'’-&") if first else ""
    word = re.sub(r"['’]s$", "", word)
    common = len(word) < 4 or not content_words(word) or re.search(r"(?:ly|ing|ed|s|tion|ment|ity|ness)$", word)
    return "" if common or not word[:1].isupper() or not word.isascii() else word


def page_forms(texts: Iterable[str]) -> frozenset[str]:
    """Every form under which a page may know a name: words, stems, dotted abbreviations, initials of long names."""
    forms: set[str] = set()
    for text in texts:
        folded = fold(text)
        forms.update(re.findall(r"\w+", folded))
        forms.update(re.findall(r"(?<=\d)[^\W\d_]+\b", folded))  # the unit of 300mA
        forms.update(m.replace(".", "") for m in re.findall(r"\b(?:[^\W\d_]\.){2,}", folded))
        for run in _CAPITALS.finditer(text):
            letters = "".join(re.findall(r"\b([A-Z])", run[0])[:MOST_INITIALS]).casefold()
            if len(letters) > 1:
                forms.update(letters[i:j] for i in range(len(letters)) for j in range(i + 2, len(letters) + 1))
    return frozenset(forms)


def initials_pattern(form: str) -> re.Pattern[str] | None:
    """What finds an abbreviation written with full stops or made of capitalised words; None where it can be none.

    It finds what `page_forms` makes forms of: `usa` in U.S.A. and in United States of America.
    """
    if not 2 <= len(form) <= LONGEST_ABBREVIATION or not (form.isascii() and form.isalpha()):
        return None
    dotted = r"\.".join(f"[{letter}{letter.upper()}]" for letter in form)
    between = r"[\w'’]{0,40}(?:\s{1,3}(?:(?:of|for|the|and|in|on|de|la|der|und)\s{1,3})?|-)"
    return re.compile(rf"\b(?:{dotted}\.|{between.join(form.upper())})")


def is_known(name: str, has_form: Callable[[str], bool], has_stem: Callable[[str], bool]) -> bool:
    """Whether a page knows a name, by any of its parts' forms or stems."""
    whole = fold(name)
    if any(has_form(form) for form in dict.fromkeys((whole.replace(".", ""), whole.replace("-", "")))):
        return True
    parts = [part for part in re.findall(r"\w+", whole) if len(part) > 1 and not part.isdigit()]
    return all(has_form(part) or any(has_stem(s) for s in content_words(part) or words(part)) for part in parts)


_CJK_RUN = lazy_pattern("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]{2,}")
_CJK_NUMERAL = lazy_pattern("[〇零一二三四五六七八九十百千万萬亿億两兩月日年号]+")


def cjk_holes(claim: str, has_pair: Callable[[str], bool]) -> list[str]:
    """Pieces of two or more Han or kana letters of which the page holds no pair, in a claim that is its wording else.

    Such scripts mark no names, so a name that was put in another's place shows only like this. Where half or more of
    the claim's pairs are missing it is a paraphrase, and coverage says so.
    """
    runs = [m[0] for m in _CJK_RUN.finditer(claim)]
    pairs = [run[i : i + 2] for run in runs for i in range(len(run) - 1)]
    if not pairs or sum(not has_pair(pair) for pair in pairs) >= 0.5 * len(pairs):
        return []
    found = []
    for run in runs:
        known = [False] * len(run)
        for i in range(len(run) - 1):
            if has_pair(run[i : i + 2]):
                known[i] = known[i + 1] = True
        text = "".join(" " if k else char for char, k in zip(run, known, strict=True))
        found += [piece for piece in text.split() if len(piece) > 1 and not _CJK_NUMERAL.fullmatch(piece)]
    return list(dict.fromkeys(found))
