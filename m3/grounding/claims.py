"""The claims of a Markdown summary: which sentences state something, and which sources each one cites."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from m3.grounding.sentences import split_block
from m3.grounding.tags import TAG, TAG_PATTERN, tag_numbers, without_tags
from m3.patterns import lazy_pattern
from m3.words import terms

_BIBLIOGRAPHY_NAMES = (
    r"sources?(?: cited| used| list)?|references?|bibliography|citations|works cited|further reading|list of sources"
    r"|quellen(?:verzeichnis|angaben)?|literatur(?:verzeichnis)?|fuentes|bibliograf[ií]a|referencias|références"
    r"|bibliographie|источники|литература|список литературы|参考文献|参考资料|參考文獻|来源|來源|資料來源|出典"
)
_BIBLIOGRAPHY_HEAD = lazy_pattern(
    rf"^[ \t]*(?:#{{1,6}}[ \t]*)?(?:\*\*|__)?(?:\d+\.[ \t]*)?(?:{_BIBLIOGRAPHY_NAMES})"
    r"[ \t]*[:：]?(?:\*\*|__)?[ \t]*[:：]?[ \t]*$",
    re.I | re.M,
)
# A line of a bibliography: a number, bullet or tag that begins it, or an address in it.
_BIBLIOGRAPHY_LINE = lazy_pattern(
    rf"^[ \t]*(?:[-*+•][ \t]|\[?\d{{1,3}}[\].):]|{TAG_PATTERN}|.*(?:https?://|www\.)\S)", re.I
)
_ITEM = lazy_pattern(r"[ \t]*(?:[-*+•▪◦–][ \t]+|\d{1,3}[.)][ \t]+)+")
# Sentences about the report or the sources as such; they are not counted as claims unless they cite something.
_META = lazy_pattern(
    r"""^(?: (?:overall,?\ )?(?:this|the)\ (?:summary|report|section|table|overview)\b
    | the\ (?:following|above)\b | see\ also\b | note:
    | (?:the|these|none\ of\ the|no|neither\ of\ the)\ (?:sources?|passages?|pages?|documents?)
      (?:\ that\ were)?(?:\ read|\ found|\ given|\ cited|\ above)?
      \ (?:do(?:es)?\ not|don't|did\ not|says?|states?|mentions?|gives?|answers?|disagree|differ|agree|cover)
    | die\ quellen\b.*\b(?:nicht|widersprechen)\b | quellen\ widersprechen
    | (?:прочитанные\ )?источники\ (?:не|расходятся) | (?:这些|所读)?(?:来源|资料)(?:没有|未|并未|不) )""",
    re.I | re.X,
)
_PRONOUN = lazy_pattern(
    r"(?:it|they|this|these|those|he|she|both|its|their|es|sie|er|dies|diese|это|он|она|они)\b|[它他她这這]", re.I
)

BlockKind = Literal["text", "item", "heading", "row", "header_row", "code"]


class Claim(NamedTuple):
    """One sentence of a summary. `text` has neither tags nor Markdown marks; offsets are the summary's.

    cited: the source numbers as written; is_claim: False for headings, questions and what speaks of the report
    itself; context: the sentence before, where this one is only understood with it, else "".
    """

    text: str
    start: int
    end: int
    cited: tuple[int, ...] = ()
    is_claim: bool = True
    context: str = ""


def cut_bibliography(summary: str) -> str:
    """The summary without a list of references that the model wrote at its end.

    Only a section that is nothing but references goes: a heading of that name with prose under it stays.
    """
    for head in reversed(list(_BIBLIOGRAPHY_HEAD.finditer(summary))):
        lines = [line for line in summary[head.end() :].splitlines() if line.strip()]
        if all(_BIBLIOGRAPHY_LINE.match(line) for line in lines):
            return cut_bibliography(summary[: head.start()].rstrip())
    return re.sub(r"\n+[ \t]*(?:-{3,}|\*{3,}|_{3,})[ \t]*$", "", summary.rstrip())


def split_claims(summary: str) -> list[Claim]:
    """The sentences of a summary in order, whether claims or not; code and a closing bibliography are left out."""
    body = cut_bibliography(summary)
    found: list[Claim] = []
    for kind, start, end in markdown_blocks(body):
        if kind in ("code", "header_row"):
            continue
        before = ""
        spans = [(start, end)] if kind in ("row", "heading") else split_block(body, start, end)
        for a, b in spans:
            claim = _claim(body, a, b, kind, before)
            found.append(claim)
            before = claim.text
    return found


def _claim(body: str, start: int, end: int, kind: BlockKind, before: str) -> Claim:
    raw = body[start:end]
    cited = tuple(dict.fromkeys(n for tag in TAG.finditer(raw) for n in tag_numbers(tag[0])))
    text = plain_text(raw)
    content = terms(text)
    says_nothing = len(set(content)) < 3 and not any(c.isdigit() for c in text)
    other = kind == "heading" or text.endswith(("?", "？", ":", "：")) or bool(_META.match(text)) or says_nothing
    leans = bool(before and _PRONOUN.match(text) and len(set(content)) < 4)
    return Claim(text, start, end, cited, bool(content) and (bool(cited) or not other), before if leans else "")


def plain_text(markdown: str) -> str:
    """One sentence as a reader sees it: no tags, no emphasis, list or table marks, no link targets."""
    text = without_tags(markdown)
    text = re.sub(r"!?\[([^\]\n]*)\]\([^)\s]*\)", r"\1", text)
    text = re.sub(r"\*\*|__|`|(?<![\w*])\*(?=\S)|(?<=\S)\*(?![\w*])|^[ \t]*[>#|]+[ \t]*", "", text)
    text = re.sub(r"\s*\|\s*", ", ", text.strip().strip("|").strip())
    return " ".join(_ITEM.sub("", text, count=1).split() if _ITEM.match(text) else text.split())


def markdown_blocks(text: str) -> Iterator[tuple[BlockKind, int, int]]:
    """The blocks of a Markdown text as (kind, start, end). Wrapped lines of a paragraph are one block."""
    open_start: int | None = None
    open_kind: BlockKind = "text"
    fence = False
    at = 0
    lines = text.split("\n")
    for number, line in enumerate(lines):
        start, end = at, at + len(line)
        at = end + 1
        kind = _line_kind(line, fence)
        fence ^= line.lstrip().startswith(("```", "~~~"))
        if kind == "row" and number + 1 < len(lines) and re.fullmatch(r"[\s|:-]*-[\s|:-]*", lines[number + 1]):
            kind = "header_row"
        if kind != "text" and open_start is not None:
            yield open_kind, open_start, start
            open_start = None
        if kind == "item":
            match = _ITEM.match(line)
            open_start, open_kind = start + (match.end() if match else 0), "item"
        elif kind == "text":
            if open_start is None:
                open_start, open_kind = start, "text"
        elif kind in ("heading", "row", "header_row", "code"):
            yield kind, start, end
    if open_start is not None:
        yield open_kind, open_start, len(text)


def _line_kind(line: str, fence: bool) -> Literal["text", "item", "heading", "row", "header_row", "code", "gap"]:
    stripped = line.strip()
    if fence or stripped.startswith(("```", "~~~")):
        return "code"
    if not stripped or re.fullmatch(r"[\s|:=*_-]+", stripped):
        return "gap"
    if re.match(r"#{1,6}\s", stripped) or re.fullmatch(r"\*\*[^*\n]{1,80}\*\*:?", stripped):
        return "heading"
    if stripped.startswith("|"):
        return "row"
    return "item" if _ITEM.match(line) else "text"
