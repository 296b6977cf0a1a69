"""Words, stems and token estimates: one way to cut text for search, ranking, memory and budgets."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from threading import Lock

from m3.patterns import lazy_pattern
from m3.stemmers import stemmer

STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being below between both
    but by can could did do does doing down during each few for from further had has have having he her here hers
    him his how i if in into is it its itself just me more most my no nor not of off on once only or other our ours
    out over own same she should so some such than that the their theirs them then there these they this those
    through to too under until up very was we were what when where which while who whom why will with would you
    your yours tell explain describe give please compare versus vs difference differences differ between""".split()
)

# Han, kana and Hangul carry no spaces between words that a regular expression could use.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = lazy_pattern(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:['’][^\W_{_CJK}]+)*")
_IS_CJK = lazy_pattern(f"[{_CJK}]")
_OTHER_LETTER = lazy_pattern(r"[^\W\x00-\x7f]")
_ASCII_WORD = lazy_pattern(r"[a-z0-9]+(?:'[a-z0-9]+)*")  # as _WORD where no other letter is, in a fifth of the time

_NOT_ASCII = lazy_pattern(r"[^\x00-\x7f]")

_stemmer_lock = Lock()


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The Snowball stem of a lower-case word, English for ASCII letters, Russian for Cyrillic; others stay."""
    if not word.isalpha() or not (word.isascii() or "\u0400" <= word[0] <= "\u04ff"):
        return word
    with _stemmer_lock:  # the stemmer keeps the word it works on in itself
        return str(stemmer("english" if word.isascii() else "russian").stemWord(word))


def words(text: str) -> list[str]:
    """Case-folded words in order; a run of Han, kana or Hangul counts as its character bigrams."""
    plain = _folded(text)
    if _has_other_letters(plain):
        return [word for run in _WORD.findall(plain) for word in _words_of(run)]
    plain = plain.replace("’", "'")
    found: list[str] = _ASCII_WORD.findall(plain)
    return [word.removesuffix("'s") for word in found] if "'" in plain else found


def distinct_words(text: str) -> set[str]:
    """The same words without order, each once: a third of the time for a long text."""
    plain = _folded(text)
    if not _has_other_letters(plain):
        plain = plain.replace("’", "'")
        found = set(_ASCII_WORD.findall(plain))
        return {word.removesuffix("'s") for word in found} if "'" in plain else found
    found = set(_WORD.findall(plain))
    other = {run for run in found if not run.isascii() or "'" in run}
    return (found - other).union(*map(_words_of, other))


def _has_other_letters(plain: str) -> bool:
    """Whether a text has letters or figures beyond ASCII; other marks, as curly quotes, do not count."""
    return not plain.isascii() and _OTHER_LETTER.search(plain) is not None


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _words_of(run: str) -> Sequence[str]:
    if run.isascii():
        return (run.removesuffix("'s"),)
    if _IS_CJK.match(run):
        return [run[i : i + 2] for i in range(len(run) - 1)] or (run,)
    return (run.replace("’", "'").removesuffix("'s"),)


def telling_words(text: str) -> list[str]:
    """The words that carry meaning, as they are written: no stop words, no single letters, numbers kept."""
    return [
        word
        for word in words(text)
        if word not in STOP_WORDS and (len(word) > 1 or word.isdigit() or not word.isascii())
    ]


def terms(text: str) -> list[str]:
    """The stems of the words that carry meaning."""
    return [stem(word) for word in telling_words(text)]


def stems_among(found: Iterable[str], wanted: Collection[str]) -> dict[str, str]:
    """Of these words those whose stem is one of the `wanted` ones, with their stems.

    A stemmer is slow, and hardly any word of a page stands in a question. It changes a word only behind what all but
    the last two letters of the stem are, and behind its first two letters; but for *lying* and its like in English and
    ё in Russian, which becomes е.
    """
    beginnings = tuple({known[: max(2, len(known) - 2)].replace("ё", "е") for known in wanted})
    like = (word for word in found if word.replace("ё", "е").startswith(beginnings) or word[1:] == "ying")
    return {word: key for word in like if (key := stem(word)) in wanted}


def without_accents(text: str) -> str:
    """The text in its compatible form (NFKD) without combining marks."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return _NOT_ASCII.sub(lambda c: "" if unicodedata.combining(c[0]) else c[0], decomposed)


def estimate_tokens(text: str) -> int:
    """Tokens of a text before a server has counted any: UTF-8 bytes / 4, more for scripts of many bytes.

    Characters / 4 is right within about 25 % for Latin prose but half of the truth for Chinese; three bytes a
    Han character bring the estimate to 0.75 a character, which is what tokenizers need.
    """
    return (len(text.encode("utf-8", "replace")) + 3) // 4
