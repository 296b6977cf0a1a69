"""What a question asks: its words without those of its grammar, their stems, its names, and the aspect asked about.

English, German and Russian are known; in other languages every word counts and only equal words are the same.
"""

from __future__ import annotations

from functools import lru_cache
from threading import Lock

from m3.patterns import lazy_pattern
from m3.stemmers import stemmer
from m3.words import STOP_WORDS, stem, words

MAX_STEMS = 32  # of the question, indexed
MAX_STEM = 64  # characters of one of them
MAX_CHARACTERS = 8_000  # of a question that are read at all
SAME_START = 5  # characters that two forms of one word share …
SAME_SHARE = 0.6  # … and which part of the longer one they are at least

_HIRAGANA = lazy_pattern("[\u3041-\u309f]")
_CYRILLIC = lazy_pattern("[\u0400-\u04ff]")
_TOKEN = lazy_pattern(r"[^\W_][\w.]*")
_UMLAUT = lazy_pattern("[äöüß]")

_GERMAN = frozenset(
    """aber alle allem allen aller alles als also am an andere anderen anderer anderes auch auf aus bei beim bin bis
    bist da dabei damit dann darf das dass dein deine dem den denn der des dessen die dies diese diesem diesen
    dieser dieses doch dort du durch dürfen ein eine einem einen einer eines er es etwas euch euer für gegen gibt
    hab habe haben hat hatte hatten ich ihm ihn ihr ihre ihrem ihren im in ins ist ja jede jedem jeden jeder jedes
    jener kann kein keine keinen können könnte man mein meine meinem meinen meiner mich mir mit muss müssen nach
    nicht noch nun nur ob oder ohne sehr sein seine seinen seit sich sie sind so soll sollen sollte über um und
    uns unser unsere unter viel viele vom von vor wann war waren warum was weil welche welchem welchen welcher
    welches wem wen wenn wer werden weshalb wie wieder wieso will wir wird wirst wo woher wohin woran wurde wurden
    zu zum zur zwischen""".split()
)
_RUSSIAN = frozenset(
    """а без более бы был была были было быть в вам вас весь во вот все всего всех вы где да для до его ее её если
    есть еще ещё же за здесь и из или им их к как какая какие каким каких какого какое каком какой какую ко когда
    кого кто куда ли либо мне можно мой моя мы на над надо нам нас наш не него нее неё нет ни них но о об один
    однако он она они оно от откуда отчего очень по под почему при про с свой свою сколько со так также такой там
    те тем то того тоже той только том ты у уже хотя чего чей чем через что чтобы эта эти этим этих это этого этой
    этом этот я""".split()
)

# Words of many questions that say little about any of them. A store of few sessions cannot know that they are common.
_LIGHT = frozenset(
    """use used work works take make makes made get got have need want happen go going come find know put let keep
    give see look mean matter help live last way thing kind sort type part reason cause process purpose effect
    affect step number amount able possible like long many much big large often good best different new really
    exactly actually still please brauchen brauche braucht machen macht gemacht geben nutzen benutzen gehen geht
    kommen finden funktionieren funktioniert lohnen lohnt halten hält bedeuten grund gründe ursache art weise
    methode lange oft häufig groß hoch gut beste neu richtig möglich sinnvoll wirklich genau работать работает
    делать сделать использовать нужно нужен нужна стоит влияет влияние способ образом причина причины время лучше
    лучший новый нового хорошо такое таким большой много часто правильно""".split()
)

# What is asked about a subject, by the words that ask for it. The longest phrase counts.
_ASPECTS = {
    "number": "how many|number of|count of|wie viele|anzahl|сколько|количество|число",
    "amount": "how much|amount of|wie viel|wieviel|menge|объём|объем",
    "duration": "how long|how many years|how many months|how many weeks|how many days|how many hours|duration|lifetime"
    "|lifespan|wie lange|wie viele jahre|wie viele monate|wie viele tage|dauer|dauert|haltbarkeit|сколько времени"
    "|сколько лет|сколько дней|как долго|длится|срок",
    "frequency": "how often|wie oft|wie häufig|как часто",
    "cause": "why|cause|causes|caused|reason|reasons|what makes|what made|warum|wieso|weshalb|woran|ursache|ursachen"
    "|grund|gründe|почему|отчего|из за|причина|причины|объясняется",
    "price": "cost|costs|price|prices|expensive|cheap|cheaper|fee|fees|kosten|kostet|preis|preise|teuer|billig|gebühr"
    "|gebühren|сколько стоит|стоимость|цена|цены|дорого",
    "time": "when|what date|wann|когда|дата",
    "place": "where|location|wo|woher|wohin|где|куда|откуда",
    "size": "how big|how large|how tall|how high|how deep|how far|size of|wie groß|wie hoch|wie tief|wie weit|größe"
    "|höhe|размер|высота|глубина|расстояние",
    "age": "how old|age of|wie alt|alter|возраст",
    "speed": "how fast|how quickly|speed|wie schnell|geschwindigkeit|как быстро|скорость",
    "risk": "risk|risks|danger|dangers|dangerous|safe|harmful|side effects|gefahr|gefahren|gefährlich|risiko|risiken"
    "|schädlich|nebenwirkungen|опасно|опасен|опасна|вреден|вредно|риск|риски|побочные эффекты",
    "effect": "effect of|effects of|affect|affects|impact|influence|wirkung|auswirkungen|einfluss|wirkt|влияет|влияние"
    "|действует|воздействие",
    "permission": "legal|illegal|allowed|forbidden|erlaubt|verboten|darf|dürfen|законно|законен|запрещено|разрешено",
    "person": "who|whom|whose|author|inventor|founder|wer|wem|wen|autor|erfinder|кто|кого|автор",
}
_ASPECT_OF = {tuple(phrase.split()): name for name, phrases in _ASPECTS.items() for phrase in phrases.split("|")}
_LONGEST = max(map(len, _ASPECT_OF))
# Asked for by so common a word that any other aspect goes before it.
_MANNER = frozenset(
    "how way ways method methods process procedure steps wie methode verfahren как способ способы".split()
)

_stemmer_lock = Lock()


@lru_cache(maxsize=65_536)
def _german_stem(word: str) -> str:
    if not word.isalpha() or _CYRILLIC.match(word):
        return stem(word)
    with _stemmer_lock:  # the stemmer keeps the word it works on in itself
        return str(stemmer("german").stemWord(word))


@lru_cache(maxsize=65_536)
def stems_of(word: str) -> frozenset[str]:
    """A folded word's stems in the languages it may be of: a name in a German question is indexed by its German one."""
    return frozenset((stem(word)[:MAX_STEM], _german_stem(word)[:MAX_STEM]))


@lru_cache(maxsize=4_096)
def content_words(text: str) -> tuple[str, ...]:
    """The distinct folded words that are no grammar, in order of appearance, at most `MAX_STEMS`.

    Character pairs with hiragana are left out where others remain: they are particles and endings.
    """
    found = words(text[:MAX_CHARACTERS])
    grammar = (_GERMAN if _is_german(found) else STOP_WORDS) | _RUSSIAN
    kept = (w for w in found if w not in grammar and (len(w) > 1 or w.isdigit() or not w.isascii()))
    distinct = tuple(dict.fromkeys(w[:MAX_STEM] for w in kept))
    return (tuple(w for w in distinct if not _HIRAGANA.search(w)) or distinct)[:MAX_STEMS]


def question_stems(text: str) -> tuple[str, ...]:
    """The distinct stems by which a question is indexed, each in the question's own language."""
    cut = _german_stem if _is_german(words(text[:MAX_CHARACTERS])) else stem
    return tuple(dict.fromkeys(cut(word)[:MAX_STEM] for word in content_words(text)))


def lookup_stems(text: str) -> tuple[str, ...]:
    """The distinct stems by which a question may have been indexed in any of the languages: what a recall looks up."""
    return tuple(dict.fromkeys(found for word in content_words(text) for found in sorted(stems_of(word))))


def _is_german(found: list[str]) -> bool:
    german = sum((w in _GERMAN and w not in STOP_WORDS) or bool(_UMLAUT.search(w)) for w in found)
    return german > sum(w in STOP_WORDS and w not in _GERMAN for w in found)


@lru_cache(maxsize=4_096)
def function_words(text: str) -> frozenset[str]:
    """The words of grammar in a text."""
    return frozenset(w for w in words(text) if w in STOP_WORDS or w in _GERMAN or w in _RUSSIAN)


@lru_cache(maxsize=1)
def _light_stems() -> frozenset[str]:
    return frozenset().union(*map(stems_of, _LIGHT))


def is_light(word: str) -> bool:
    """True for a word that says little about a question wherever it stands."""
    return not stems_of(word).isdisjoint(_light_stems())


@lru_cache(maxsize=4_096)
def _asked(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The aspects that are asked about, and the words by which they are."""
    found, at, names, used = words(text), 0, set[str](), set[str]()
    while at < len(found):
        for length in range(min(_LONGEST, len(found) - at), 0, -1):
            name = _ASPECT_OF.get(tuple(found[at : at + length]))
            if name:
                names.add(name)
                used.update(found[at : at + length])
                break
        at += length
    return frozenset(names or ({"manner"} if not _MANNER.isdisjoint(found) else ())), frozenset(used)


def aspects(text: str) -> frozenset[str]:
    """What is asked about the subject: `cause`, `price`, `time` …; `manner` for a mere "how"; none when it is not told.

    "How long does a flight to Mars take?" and "What does a flight to Mars cost?" share their subject, not their aspect.
    """
    return _asked(text)[0]


def subject_words(text: str) -> tuple[str, ...]:
    """The content words that do not merely say which aspect is asked about; all of them where no other is left."""
    used = _asked(text)[1]
    return tuple(w for w in content_words(text) if w not in used) or content_words(text)


@lru_cache(maxsize=4_096)
def names(text: str) -> tuple[frozenset[str], ...]:
    """The words of each name of several words, as capital letters and numbers tell it: Raspberry Pi 5, Boeing 737 MAX.

    Each is one thing, whatever the number of its words. Where all words have capitals they tell nothing.
    """
    text = text[:MAX_CHARACTERS]
    tokens = list(_TOKEN.finditer(text))
    if not any(token[0][0].islower() and len(token[0]) > 3 for token in tokens):
        return ()
    runs: list[list[str]] = [[]]
    end = 0
    for token in tokens:
        joined = bool(runs[-1]) and text[end : token.start()] in (" ", "-")
        if not joined:
            runs.append([])
        grammar = bool(function_words(token[0]))
        if (token[0][0].isupper() and not grammar) or (joined and token[0][0].isdigit()):
            runs[-1].append(token[0])
        else:
            runs.append([])
        end = token.end()
    content = frozenset(subject_words(text))
    found = (content.intersection(words(" ".join(run))) for run in runs)
    return tuple(name for name in found if len(name) > 1)


@lru_cache(maxsize=262_144)
def same_word(one: str, other: str) -> bool:
    """True for two forms of one word: the same stem, a long shared beginning, or one a part of the other's compound."""
    if one == other or not stems_of(one).isdisjoint(stems_of(other)):
        return True
    if not (one.isalpha() and other.isalpha()):
        return False
    short, long = sorted((one, other), key=len)
    if len(short) < SAME_START:
        return False
    shared = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if shared >= SAME_START and shared >= SAME_SHARE * len(long):
        return True
    return long.startswith(short) or long.endswith(short)
