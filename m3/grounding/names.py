"""Names in a claim that a page does not hold."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from m3.grounding.language import content_words
from m3.words import words

_TOKEN = re.compile(r"[^\W\d_](?:[\w'’.&-]*\w)?")
_CAPITALS = re.compile(r"(?:[A-Z][\w'’-]*(?:\s+(?:of|for|the|and|in|on|de|la|der|und)\s+|\s+|-)?){2,8}")
_NOT_NAMES = frozenset(
    """january february march april may june july august september october november december jan feb mar apr jun jul aug
    sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday i i'm i've source sources""".split()
)
# In German every noun has a capital, so only inner capitals tell a name there.
_CAPITALS_ARE_NO_SIGN = frozenset({"de"})


def fold(text: str) -> str:
    """Without case and accents."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


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
        forms.update(m.replace(".", "") for m in re.findall(r"\b(?:[^\W\d_]\.){2,}", folded))
        for run in _CAPITALS.finditer(text):
            letters = "".join(re.findall(r"\b([A-Z])", run[0])).casefold()
            if len(letters) > 1:
                forms.update(letters[i:j] for i in range(len(letters)) for j in range(i + 2, len(letters) + 1))
    return frozenset(forms)


def is_known(name: str, forms: frozenset[str], stems: frozenset[str]) -> bool:
    """Whether a page knows a name, by any of its parts' forms or stems."""
    whole = fold(name)
    if whole.replace(".", "") in forms or whole.replace("-", "") in forms:
        return True
    parts = [part for part in re.findall(r"\w+", whole) if len(part) > 1 and not part.isdigit()]
    return all(part in forms or any(s in stems for s in content_words(part) or words(part)) for part in parts)
