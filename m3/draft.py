"""The report inside a model's reply: without the fence, the tag or the turn that models wrap it in.

Models that were in a ReAct loop a moment ago go on in its format when they are asked for the report, and models that
write Markdown put it into a code fence, where no sentence would be read as a statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from m3.lenient_json import Unreadable, read_json
from m3.patterns import lazy_pattern
from m3.react_parser import TOOLS, Tool, parse_thought_action
from m3.react_parser.labels import marks
from m3.reply_text import visible_text

_FENCE = lazy_pattern(r"(?:[^\n`]{1,120}:[ \t]*\n+)?(`{3,}|~{3,})[ \t]*(?:markdown|md|text|txt)?[ \t]*\n", re.I)
_TAG = lazy_pattern(r"\s*<(?P<tag>answer|final_?answer|report|summary|output)>", re.I)
_ANSWER_KEYS = ("answer", "final_answer", "report", "summary", "response", "output", "text", "result")
_TURN = ("thought", "action", "final")
_CITES = lazy_pattern(r"\[Sources? \d|【\d", re.I)


def report_in(reply: str, tools: Sequence[Tool] = TOOLS) -> str:
    """The report that a reply holds, "" where it holds an action of the loop instead of one. tools: the run's table."""
    text = _unfenced(visible_text(reply))
    tag = _TAG.match(text)
    if tag:
        text = re.sub(rf"</{tag['tag']}>\s*\Z", "", text[tag.end() :], flags=re.I).strip()
    first = next(marks(text), None)
    if first is not None and first.strong and not text[: first.start].strip() and first.kind in _TURN:
        return _unfenced(_behind_labels(text, tools))
    if _CITES.search(text):
        return text
    return "" if parse_thought_action(text, tools=tools).tool not in (None, "finish") else text


def _unfenced(text: str) -> str:
    """The inside of the one fence that a whole text stands in; a line that announces it is dropped with it."""
    opening = _FENCE.match(text)
    if not opening:
        return text
    inside = text[opening.end() :].rstrip()
    closed = inside.endswith(opening[1])
    inside = inside[: -len(opening[1])] if closed else inside
    return text if opening[1] in inside else inside.strip()


def _behind_labels(text: str, tools: Sequence[Tool]) -> str:
    """The report in a text that begins as a turn: behind `Final Answer:`, in or behind a `finish`, else the thought."""
    labels = list(marks(text))
    final = next((mark for mark in labels if mark.kind == "final"), None)
    if final is not None:
        return text[final.end :].lstrip("* \t").strip()
    step = parse_thought_action(text, tools=tools)
    if step.tool is not None and step.tool != "finish":
        return ""
    last = labels[-1]
    if last.kind == "input":
        return _in_input(text, last.end)
    if last.kind == "action":
        return text[last.end :].partition("\n")[2].strip()
    thought, _, below = text[last.end :].partition("\n\n")
    if last.kind != "thought" or not _CITES.search(text[last.end :]):
        return ""
    return below.strip() if not _CITES.search(thought) else text[last.end :].strip()


def _in_input(text: str, at: int) -> str:
    """What `finish` was given as its answer, and what stands behind the input."""
    start = at + len(text[at:]) - len(text[at:].lstrip())
    try:
        reading = read_json(text, start)
    except Unreadable:
        return text[at:].strip()
    if reading.cut or not isinstance(reading.value, dict):
        return str(reading.value or "").strip()
    given = (reading.value[key] for key in _ANSWER_KEYS if isinstance(reading.value.get(key), str))
    return next(given, text[reading.end :]).strip()
