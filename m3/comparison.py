"""What a question compares: its sides, and the aspect it compares them in, by its wording alone."""

from __future__ import annotations

import re
from collections.abc import Callable

from m3.patterns import lazy_pattern

MAX_SIDES = 4

_VERSUS = r"\s+(?:vs|versus|gegenüber|против|contra)\s+"
_COMPARED = r"\s+(?:over|(?:as )?compared (?:to|with)|in comparison (?:to|with))\s+"
_OVER, _AGAINST = rf"(?:{_VERSUS}|{_COMPARED})", rf"(?:{_VERSUS}|{_COMPARED}|\s+against\s+)"
_OR = r"\s+(?:or|oder|ou|или)\s+"
_WITH = r"\s+(?:with|to|mit|con|avec|с|со)\s+"
_AND = r"\s+(?:and|or|und|oder|y|et|ou|и|или)\s+|\s*[和与與跟]\s*"

# Better, longer, more …: what makes a question with "or" or "than" a comparison.
_COMPARATIVE = r"(?:better|worse|(?:more|less|fewer)\s+\w+|\w{2,}er|besser|лучше|хуже|\w{2,}ее)"
_ASKING = r"(?:which|what|who|how|why|when|where|is|are|do|does|can|welche\w*|was|wie|wann|warum|что|какой|какая|как)"

_POLITE = lazy_pattern(
    r"^(?:(?:please|bitte|пожалуйста|hi|hello)[\s,]+|(?:can|could|would|will) (?:you|we) (?:please )?"
    r"|i(?: want|'d like| would like| need)(?: you)? to |(?:explain|tell|show|describe|give)(?: to)?(?: me| us)? "
    r"|(?:what|how) about )",
    re.I,
)
# What follows the question proper: "…, which is older?", "…. Answer in two sentences."
_SECOND_QUESTION = lazy_pattern(
    rf"\s*[,;:.?!]\s+(?:and\s+|und\s+)?(?={_ASKING}\b|(?:give|say|use|answer|list)\b)", re.I
)
_TAIL = lazy_pattern(
    r"\s+(?:for|in terms of|regarding|concerning|as to|with (?:regard|respect) to|when|as|für|bezüglich|для|pour|para)"
    r"\s+.*$",
    re.I,
)
_PLACE = lazy_pattern(r"\s+(in|on|by|at|during|under)\s+.*$", re.I)
_ASPECT_OF = lazy_pattern(r"^(?:the\s+)?([a-z]+(?:\s+and\s+[a-z]+)?)\s+of\s+")

_COMPARE = lazy_pattern(
    r"^(?:(?:a |the )?(?:compare|contrast|comparison|vergleich\w*|comparez|compara|сравни(?:те)?|比较|比較|对比)\s*"
    r"(?:and contrast\s+)?(?:(?:of|between|zwischen|von)\s+)?(?:the\s+)?)",
    re.I,
)
_BETWEEN = lazy_pattern(
    r"^(?:(?:what(?:'s|’s| is| are)\s+)?(?:the\s+)?(?:main |key |biggest )?"
    r"(?:differences?|similarities|similarity)(?: (?:and|or) (?:differences?|similarities))? (?:between|of)\s+"
    r"|(?:(?:was ist|worin liegt|worin besteht) )?(?:der )?unterschiede? zwischen\s+"
    r"|(?:в ч[её]м )?(?:разница|отличие) между\s+"
    r"|(?:quelle est )?(?:la )?différence entre\s+|¿?(?:cuál es )?(?:la )?diferencia entre\s+"
    r"|(?:which|what)(?: one)? is (?:better|worse|\w+er)\b[,:]?\s*"
    r"|should (?:i|we|one|you) \w+\s+"
    rf"|is it {_COMPARATIVE} to \w+\s+)",
    re.I,
)
_MERITS = lazy_pattern(
    r"^(?:(?:what are|list)\s+)?(?:the\s+)?(?:pros and cons|(?:dis)?advantages(?: and (?:dis)?advantages)?"
    r"|strengths and weaknesses|vorteile|vor- und nachteile)\s+(?:of|von)\s+",
    re.I,
)
_PAIRS = tuple(
    lazy_pattern(pattern, re.I)
    for pattern in (
        # how A differs from B, what tells A from B
        r"^(?:how|wie)\s+(?:do|does|is|are)\s+(?P<a>.+?)\s+(?:differ|different)\s+from\s+(?P<b>.+)$",
        r"^(?:how|wie)\s+(?:do|does)\s+(?P<list>.+?)\s+differ\b",
        r"^how\s+(?:is|are)\s+(?P<list>.+?)\s+different\b",
        r"^how\s+(?:do|does)\s+(?P<a>.+?)\s+compare\s+(?:to|with|against)\s+(?P<b>.+)$",
        r"^how\s+(?:do|does)\s+(?P<list>.+?)\s+compare$",
        r"^what\s+(?:distinguishes|separates|differentiates|sets)\s+(?P<a>.+?)\s+(?:apart\s+)?(?:from|and)\s+(?P<b>.+)$",
        r"^(?:wie|wodurch|worin)\s+unterscheide\w*\s+sich\s+(?P<a>.+?)\s+(?:von|und)\s+(?P<b>.+)$",
        r"^was\s+unterscheidet\s+(?P<a>.+?)\s+(?:von|und)\s+(?P<b>.+)$",
        r"^чем\s+отличается\s+(?P<a>.+?)\s+от\s+(?P<b>.+)$",
        r"^чем\s+(?P<a>.+?)\s+отлича(?:е|ю)тся\s+от\s+(?P<b>.+)$",
        # which is better, A or B; which of A and B is better; are A or B better
        rf"^(?:which|what|who|welche\w*|was|wer|что|кто|как(?:ой|ая))\b(?:['’]s\b)?(?P<aspect>[^,:]*\b{_COMPARATIVE}\b[^,:]*)[,:]\s*"
        rf"(?P<list>.+(?:{_OR}).+)$",
        rf"^(?:which|welche\w*|what)(?: one)? (?:of|von) (?P<a>.+?)\s+(?:and|or|und|oder)\s+(?P<b>\S+)"
        rf"(?P<aspect>\s.*\b{_COMPARATIVE}\b.*)$",
        rf"^(?:is|are)\s+(?P<a>.+?)\s+or\s+(?P<b>.+?)\s+(?P<aspect>{_COMPARATIVE}\b.*)$",
        # A is better than B; A lasts longer than B
        rf"^(?:why\s+)?(?:is|are|was|were)\s+(?P<a>.+?)\s+(?P<aspect>(?:(?:any|much|far)\s+)?{_COMPARATIVE})\s+than\s+(?P<b>.+)$",
        rf"^(?:why\s+)?(?:do|does|did|can|will)\s+(?P<a>.+?)\s+(?P<aspect>\w+\s+(?:(?:any|much|far)\s+)?{_COMPARATIVE})\s+than\s+"
        r"(?P<b>.+)$",
        r"^(?:ist|sind)\s+(?P<a>.+?)\s+(?P<aspect>\w+er)\s+als\s+(?P<b>.+)$",
        r"^(?P<a>.+?)\s*[和与與跟]\s*(?P<b>.+?)\s*(?:之间|之間)?的?(?:有什么|有何|有哪些|主要)*"
        r"(?:区别|區別|差异|差異|差别|差別|不同|比较|比較)",
        r"^(?P<a>.+?)\s*[和与與跟]\s*(?P<b>.+?)\s*(?:哪个|哪個|哪一个|哪种|哪種)",
        # a bare choice: kayak or canoe for a lake
        rf"^(?!{_ASKING}\b|should\b|did\b|was\b|has\b|have\b)(?P<list>(?:[\w-]+\s+){{1,3}}(?:or|oder|или)(?:\s+[\w-]+){{1,3}}?)"
        r"(?P<aspect>\s+(?:for|on|in|when|für|для)\s.+)?$",
    )
)


def sides_of(question: str) -> tuple[list[str], str]:
    """The things a question compares and the aspect it compares them in; no sides when it compares nothing.

    "Compare Raptor RAG vs HyDE for long documents" -> (["Raptor RAG", "HyDE"], "for long documents").
    """
    text = re.sub(r"\bvs\.", "vs", " ".join(question.split()), flags=re.I).strip(" ¿¡")
    while (shorter := _POLITE.sub("", text, count=1)) != text:
        text = shorter
    text = text.rstrip("?.!？。！ ")
    for read in (_paired, _listed):
        sides, aspect = read(text)
        if len(sides) >= 2:
            return sides[:MAX_SIDES], aspect
    return [], ""


def _paired(text: str) -> tuple[list[str], str]:
    """The sides of a sentence whose form tells where each one stands."""
    for pattern in _PAIRS:
        match = pattern.match(text)
        if not match:
            continue
        found = match.groupdict()
        aspect = (found.get("aspect") or "").strip()
        if found.get("list"):
            sides, more = _split(found["list"], (_VERSUS, _AND))
        else:
            last, more = _without_tail([found["a"], found["b"]])
            sides = [side for side in map(_bare, last) if side]
        return sides, " ".join(part for part in (aspect, more) if part)
    return [], ""


def _listed(text: str) -> tuple[list[str], str]:
    """The sides of a list after "compare", "difference between" and their like, or around a "vs"."""
    openings: tuple[tuple[Callable[[str], re.Match[str] | None], tuple[str, ...]], ...] = (
        (_COMPARE.match, (_AGAINST, _WITH, _AND)),
        (_BETWEEN.match, (_VERSUS, _AND)),
        (_MERITS.match, (_OVER, _AND)),
    )
    for match, separators in openings:
        start = match(text)
        if start:
            return _split(text[start.end() :], separators)
    return _split(text, (_VERSUS,))


def _split(text: str, separators: tuple[str, ...]) -> tuple[list[str], str]:
    """Cut a list at the first separator of these that stands in it, and at commas; the aspect stands around it."""
    second = _SECOND_QUESTION.search(text)
    aspects = []
    if second:
        aspects.append(text[second.end() :])
        text = text[: second.start()]
    before, colon, after = text.partition(":")
    if colon:
        listed_after = re.search(separators[0], f" {after} ", re.I) is not None
        text, aspect = (after, before) if listed_after else (before, after)
        aspects.append(aspect)
    tail = _TAIL.search(text)
    if tail and any(re.search(separator, text[: tail.start()], re.I) for separator in separators):
        aspects.insert(0, tail.group())
        text = text[: tail.start()]
    for separator in separators:
        if not re.search(separator, text, re.I):
            continue
        parts = re.split(rf"{separator}|,\s*(?:(?:and|or|und|oder|et|y|и|или)\s+)?", text, flags=re.I)
        parts, place = _without_tail(parts)
        of = _ASPECT_OF.match(parts[0])
        if of and not any(re.search(r"\sof\s", part) for part in parts[1:]):
            aspects.insert(0, of[1])
            parts[0] = parts[0][of.end() :]
        sides = [side for side in map(_bare, parts) if side]
        return sides, " ".join(part for part in map(str.strip, [place, *aspects]) if part)
    return [], ""


def _without_tail(parts: list[str]) -> tuple[list[str], str]:
    """The sides without what the last ones say of all of them ("on long trips"), and that."""
    for at, part in enumerate(parts[1:], 1):
        for pattern in (_TAIL, _PLACE):
            match = pattern.search(part)
            shared = match and pattern is _PLACE and any(f" {match[1].lower()} " in p.lower() for p in parts[:at])
            if match and not shared:
                rest = [match.group().strip(), *parts[at + 1 :]]
                return [*parts[:at], part[: match.start()]], " ".join(rest)
    return parts, ""


def _bare(text: str) -> str:
    text = text.strip(" \t,.:;?!'\"“”‘’")
    text = re.sub(r"^(?:(?:better|either|using|both)\b[,:]?\s*)+", "", text, flags=re.I)
    return re.sub(r"^(?:the|an?|der|die|das|dem|den|ein(?:e[mnr]?)?|le|la|les|el|los)\s+", "", text, flags=re.I).strip(
        " \t,.:;'\"“”‘’"
    )
