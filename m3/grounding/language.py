"""Which language a text is in, as far as comparing wording needs to know: by script, then by its commonest words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

from m3.words import stem, without_accents, words

_COMMON = {
    "en": "the of and to in is that for it with as was on are by this be from which have has not were an at",
    "de": "der die das und ist nicht mit von den ein eine auf für des dem im zu sich als auch es wird sind wurde",
    "fr": "le la les des et est une que dans pour qui sur par plus pas au avec sont ce du il ne se",
    "es": "el la los las y en que es una por con para del se no su al lo como más fue son un",
    "it": "il di che è la per una con del non sono della le nel si da gli alla anche ha dei",
    "pt": "o que não uma para com os é do da em por mais as dos como foi ao na são um se",
    "nl": "de het een van en is dat op te zijn voor met niet aan er ook als door bij naar wordt",
}
_COMMON_WORDS = {code: frozenset(text.split()) for code, text in _COMMON.items()}
# Languages that write 3,2 for three and a fifth.
DECIMAL_COMMA = frozenset({"de", "fr", "es", "it", "pt", "nl", "Cyrillic"})
_SCRIPTS = {"CJK": "Han", "HIRAGANA": "Han", "KATAKANA": "Han"}
_WEIGHT = {"Han": 3, "HANGUL": 2}  # letters of these say more each


def language_of(text: str) -> str:
    """A script's name (`Han`, `Cyrillic`, `ARABIC` …), or for Latin letters a code such as `en`; "" for unknown."""
    middle = len(text) // 2
    return _language_of(text if len(text) <= 8_000 else text[:4_000] + text[middle : middle + 4_000])


@lru_cache(maxsize=64)  # of samples: it would keep whole pages alive, megabytes each
def _language_of(sample: str) -> str:
    scripts: Counter[str] = Counter()
    for char, count in Counter(sample).items():
        if char.isalpha():
            name = "LATIN" if char.isascii() else unicodedata.name(char, "?").split(" ", 1)[0].split("-", 1)[0]
            name = _SCRIPTS.get(name, name)
            scripts[name] += count * _WEIGHT.get(name, 1)
    if not scripts:
        return ""
    script = max(scripts, key=lambda name: (scripts[name], name))
    if script != "LATIN":
        return "Cyrillic" if script == "CYRILLIC" else script
    found = Counter(re.findall(r"[^\W\d_]+", sample.casefold()))
    shares = {code: sum(found[w] for w in common) for code, common in _COMMON_WORDS.items()}
    first, second = sorted(shares, key=lambda code: (-shares[code], code))[:2]
    sure = shares[first] >= 3 and shares[first] >= 1.5 * shares[second]
    return first if sure else ""


# --- content words --------------------------------------------------------------------------------------

# English function words are left out by m3.words; these are the same for the other languages of DESIGN's tests.
_FUNCTION_WORDS = frozenset(
    """der die das den dem des ein eine einer eines einem einen und oder ist sind war waren wird werden wurde wurden
    nicht mit von vom zum zur auf für als auch es sich im in ins am an bei aus nach über durch dass daß wie so nur noch
    sie er wir ihr ihre sein seine hat haben hatte kann können man bis um aber diese dieser dieses
    le la les un une du de et est sont dans pour qui que sur par pas au aux avec ce cette il elle ne se sa son ses
    el los las uno una y en es por con para del no su al lo como más fue ser
    и в во на не с со что как это по из к у за от для его её их он она они был была было были же но а о об при до или
    который которая которые также""".split()
)


def content_stem(word: str) -> str:
    """The word's stem as `content_words` gives it, after its accents are folded where its letters are Latin."""
    if word.isascii() or "\u0400" <= word[0] <= "\u04ff":
        return stem(word)
    return word if word[0] >= "\u1100" else stem(_folded(word))  # folding would turn が into か


@lru_cache(maxsize=65_536)
def _folded(word: str) -> str:
    return without_accents(word)


# Fewer than m3.words leaves out: in a claim "most", "between" or "no" carry nothing, "compare" and "difference" do.
_STOP = frozenset(
    """a about above after again against all also although am an and any are as at be because been before being below
    between both but by can could did do does doing down during each few for from further had has have having he her
    hers here him his how however i if in into is it its itself just may me might more most must my no nor not of off on
    once one only onto or other our out over own per same shall she should since so some such than that the their them
    then there these they this those through thus to too under until up upon us very via was we were what when where
    whether which while who whom whose why will with within without would yet you your said say says
    according""".split()
)


# Numbers are compared by value, however they are written.
_NUMBER_WORDS = frozenset(
    """eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty
    seventy eighty ninety hundred thousand thousands million millions billion billions trillion trillions bn mn mio mrd
    millionen milliarden milliarde tausend тысяч тысяча тысячи млн млрд миллион миллионов миллиард миллиардов percent
    prozent""".split()
)


def content_words(text: str) -> list[str]:
    """The stems that carry meaning, accents folded, numbers left out (they are compared by value)."""
    found = []
    for word in words(text):
        if word in _STOP or word in _FUNCTION_WORDS or word in _NUMBER_WORDS or word[0].isdigit():
            continue
        if word.endswith("n't"):  # a negation, which is compared as such
            continue
        if len(word) > 1 or not word.isascii():
            found.append(content_stem(word))
    return found
