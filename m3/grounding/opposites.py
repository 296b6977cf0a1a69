"""Cheap signs that a passage says the opposite: a negation that one of the two lacks, or words of opposite meaning."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from m3.grounding.language import content_words
from m3.patterns import lazy_pattern
from m3.words import words

# By language, since one's negation is another's everyday word: German Mai, Portuguese no, English sin.
_NEGATIONS = {
    "en": "not no never none neither nor nobody nothing nowhere cannot without n't hardly fails failed",
    "de": "nicht kein keine keinen keiner keines keinem nie niemals ohne weder",
    "fr": "pas jamais aucun aucune sans",
    "es": "no nunca jamás sin ningún ninguno ninguna tampoco",
    "it": "non mai nessun nessuno nessuna senza",
    "pt": "não nunca sem nenhum nenhuma jamais",
    "nl": "niet geen nooit zonder",
    "Cyrillic": "не нет ни без никогда немає",
    "ARABIC": "لا ليس ليست لم لن غير دون بدون",
}
_NEGATION_WORDS = {language: frozenset(text.split()) for language, text in _NEGATIONS.items()}
_UNMISTAKABLE = frozenset().union(*_NEGATION_WORDS.values()) - frozenset("no non mai sin pas sans sem".split())
_HAN_NEGATION = lazy_pattern(
    r"不(?![同仅僅断斷过過但管论論如久错錯])|没有|沒有|未(?![来來])|无(?![论線线])|無(?![論線])|并非|並非"
)

# Adversative pairs that reports of facts turn on; words that are often both true of one thing are left out.
_PAIRS = """
increase/decrease increase/decline increase/reduce increased/fell rise/fall rose/fell rising/falling rose/dropped
rises/falls grew/shrank grow/shrink growth/decline gain/loss gained/lost up/down higher/lower high/low more/fewer
more/less most/least majority/minority maximum/minimum larger/smaller largest/smallest bigger/smaller big/small
longer/shorter longest/shortest long/short faster/slower fast/slow quick/slow stronger/weaker strong/weak older/younger
oldest/youngest old/young new/old early/late earlier/later before/after first/last first/final begin/end began/ended
start/end started/ended start/stop opened/closed open/close open/closed won/lost win/lose winner/loser victory/defeat
success/failure successful/unsuccessful succeeded/failed succeed/fail positive/negative better/worse best/worst
improve/worsen improved/worsened cheap/expensive cheaper/costlier rich/poor easy/difficult easy/hard simple/complex
north/south northern/southern east/west eastern/western left/right upper/lower top/bottom above/below inside/outside
indoor/outdoor internal/external domestic/foreign public/private male/female man/woman men/women boy/girl son/daughter
brother/sister father/mother husband/wife king/queen alive/dead born/died life/death day/night morning/evening
summer/winter hot/cold warm/cold warmer/colder wet/dry war/peace ally/enemy friend/enemy love/hate
support/oppose supported/opposed supporter/opponent agree/disagree agreed/disagreed accept/reject accepted/rejected
approve/reject approved/rejected allow/ban allow/forbid allowed/banned permit/prohibit legal/illegal guilty/innocent
convicted/acquitted include/exclude included/excluded add/remove added/removed create/destroy built/demolished
appear/disappear arrive/depart arrived/departed enter/leave entered/left join/leave joined/left buy/sell bought/sold
import/export profit/loss lend/borrow teacher/student buyer/seller advantage/disadvantage benefit/harm safe/dangerous
safe/unsafe stable/unstable common/rare frequent/rare frequently/rarely always/never often/rarely full/empty
heavy/light thick/thin wide/narrow deep/shallow true/false correct/incorrect right/wrong known/unknown real/fake
able/unable possible/impossible likely/unlikely necessary/unnecessary sufficient/insufficient
rose/cut raise/cut raised/cut raise/lower raised/lowered climbed/slumped climbed/fell upheld/overturned
confirmed/denied praised/criticised praised/criticized
strengthened/weakened widened/narrowed hired/fired
steigt/sinkt stieg/sank stiegen/sanken gestiegen/gesunken gestiegen/gefallen stieg/fiel steigen/fallen
erhöht/gesenkt erhöhte/senkte wuchs/schrumpfte höher/niedriger größer/kleiner mehr/weniger stärker/schwächer
schneller/langsamer
gewann/verlor vorteil/nachteil zunahme/abnahme erlaubt/verboten
вырос/упал выше/ниже больше/меньше рост/снижение увеличил/уменьшил быстрее/медленнее
вырос/снизился выросли/упали выросли/снизились выросла/снизилась выросла/упала повысил/снизил увеличился/уменьшился
увеличилось/уменьшилось выиграл/проиграл разрешил/запретил
aumentó/disminuyó aumentaron/disminuyeron subió/bajó subieron/bajaron creció/cayó aumento/disminución mayor/menor
ganó/perdió permitió/prohibió mejor/peor augmenté/diminué augmente/diminue augmentation/diminution hausse/baisse
supérieur/inférieur gagné/perdu autorisé/interdit aumentato/diminuito aumento/diminuzione maggiore/minore
vinto/perso aumentou/diminuiu subiu/caiu maior/menor gestegen/gedaald toename/afname hoger/lager
"""


@cache
def opposites() -> dict[str, frozenset[str]]:
    """Each word with its opposites, in the form in which `_forms` gives words."""
    found: dict[str, set[str]] = {}
    for pair in _PAIRS.split():
        one, other = (_form(word) for word in pair.split("/"))
        if one != other:
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in found.items()}


def _form(word: str) -> str:
    return next(iter(content_words(word)), word)


def is_negated(text: str, language: str = "") -> bool:
    """Whether a text holds a negation at all. `language` as `language_of` gives it; "" reads it as English."""
    negations = _NEGATION_WORDS.get(language or "en", frozenset()) | _UNMISTAKABLE
    found = words(text)
    return any(w in negations or w.endswith("n't") for w in found) or bool(_HAN_NEGATION.search(text))


def opposite_words(
    claim: str, passages: str, claim_forms: Collection[str], passage_forms: Collection[str]
) -> list[str]:
    """`rose / fell` for each word of the claim whose opposite, and not itself, stands in the passages.

    A pair of which one text holds both words says nothing. The forms are the texts' stems.
    """
    mine = {*claim_forms, *words(claim)}
    theirs = {*passage_forms, *words(passages)}
    known = opposites()
    found = []
    for word in sorted(mine & known.keys() - theirs):
        for other in sorted(known[word] & theirs - mine):
            found.append(f"{word} / {other}")
    return found
