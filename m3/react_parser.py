"""Model text in, one action or one exact fault out; and the table of tools it may name."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Tool:
    """One entry of the tool table.

    args: argument name to its type (`str`, `int` or `list`); aliases: other names models give an argument;
    line: what the model reads; required: groups of which at least one argument must be present;
    handler: for tools that a caller adds, the function `(args, context) -> observation text`.
    """

    name: str
    args: Mapping[str, type]
    line: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    required: tuple[tuple[str, ...], ...] = ()
    handler: Callable[..., str] | None = None


TOOLS: tuple[Tool, ...] = (
    Tool(
        "search",
        {"query": str},
        '{"query": "…"}: search; returns numbered results R1, R2, …',
        aliases={"q": "query", "search_query": "query", "input": "query", "text": "query"},
        required=(("query",),),
    ),
    Tool(
        "fetch",
        {"results": list, "url": str, "urls": list},
        '{"results": ["R1", "R3"]} or {"url": "…"}: read up to 4 pages; each becomes a [Source N] with its passages',
        aliases={"result": "results", "ids": "results", "id": "results", "link": "url", "links": "urls"},
        required=(("results", "url", "urls"),),
    ),
    Tool(
        "extract",
        {"source": int, "question": str},
        '{"source": 1, "question": "…"}: more passages of a page you have read',
        aliases={"source_number": "source", "query": "question"},
        required=(("source",), ("question",)),
    ),
    Tool("finish", {}, "{}: end the research; the report is then written from the sources"),
)

ParseError = Literal["empty", "no_action", "unknown_tool", "missing_input", "bad_args", "truncated"]


@dataclass(frozen=True)
class ParsedStep:
    """One decision. Exactly one of `tool` and `error` is set; `error_detail` is told to the model."""

    thought: str = ""
    tool: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    error: ParseError | None = None
    error_detail: str = ""
    notes: tuple[str, ...] = ()


_LABEL = re.compile(
    r"^[ \t>*#-]*(?P<label>thought|action[ _]?input|action|observation|final answer)[ \t]*\**[ \t]*:[ \t]*\**[ \t]*",
    re.I | re.M,
)


def parse_thought_action(
    text: str | None, finish_reason: str | None = None, tools: Sequence[Tool] = TOOLS
) -> ParsedStep:
    """Turn a model's output into one action or one precise error. Never raises.

    finish_reason: the provider's; `length` turns an unfinished input into `truncated`.
    """
    clean = (text or "").replace("\r\n", "\n").replace("\ufeff", "").replace("\u00a0", " ").strip()
    if not clean:
        return ParsedStep(error="empty", error_detail="the reply was empty")
    fields = _labelled_fields(clean)
    thought = fields.get("thought", "")
    if "action" not in fields:
        cut = finish_reason == "length"
        return ParsedStep(
            thought,
            error="truncated" if cut else "no_action",
            error_detail="the reply was cut off before its action" if cut else "there is no line 'Action: <tool>'",
        )
    name = fields["action"].strip().strip("`*\"' .").lower()
    tool = next((t for t in tools if t.name == name), None)
    if tool is None:
        known = ", ".join(t.name for t in tools)
        return ParsedStep(
            thought, error="unknown_tool", error_detail=f"there is no tool {name[:60]!r}; use one of {known}"
        )
    if "action input" not in fields and tool.args:
        cut = finish_reason == "length"
        return ParsedStep(
            thought,
            error="truncated" if cut else "missing_input",
            error_detail=f"'Action Input:' is missing; give {tool.line}",
        )
    return _read_args(thought, tool, fields.get("action input", "{}"), finish_reason)


def _labelled_fields(text: str) -> dict[str, str]:
    """The first value of each label, in reading order, up to the first observation or second thought after it."""
    found: dict[str, str] = {}
    marks = list(_LABEL.finditer(text))
    for i, mark in enumerate(marks):
        label = re.sub(r"[ _]?input", " input", mark["label"].lower())
        if label in ("observation", "final answer") or label in found:
            if "action" in found:
                break
            continue
        end = marks[i + 1].start() if i + 1 < len(marks) else len(text)
        found[label] = text[mark.end() : end].strip()
    return found


def _read_args(thought: str, tool: Tool, raw: str, finish_reason: str | None) -> ParsedStep:
    raw = re.sub(r"^```\w*\s*|\s*```$", "", raw.strip()).strip()
    if not tool.args:
        return ParsedStep(thought, tool.name, {})
    value = _loads(raw)
    if not isinstance(value, dict):
        cut = finish_reason == "length" or raw.count("{") > raw.count("}")
        return ParsedStep(
            thought,
            error="truncated" if cut else "bad_args",
            error_detail=f"the Action Input is not one JSON object; give {tool.line}",
        )
    args: dict[str, Any] = {}
    for key, item in value.items():
        name = tool.aliases.get(str(key).lower(), str(key).lower())
        wanted = tool.args.get(name)
        if wanted is list and isinstance(item, str):
            item = [item]
        if wanted is int and isinstance(item, str) and item.strip().isdigit():
            item = int(item)
        if wanted is not None and isinstance(item, wanted) and item not in ("", []):
            args.setdefault(name, item)
    for group in tool.required:
        if not any(name in args for name in group):
            return ParsedStep(
                thought, error="bad_args", error_detail=f"{' or '.join(group)} is missing; give {tool.line}"
            )
    return ParsedStep(thought, tool.name, args)


def _loads(raw: str) -> Any:
    start = raw.find("{")
    if start < 0:
        return None
    try:
        return json.JSONDecoder(strict=False).raw_decode(raw[start:])[0]
    except ValueError:
        pass
    try:
        return ast.literal_eval(raw[start : raw.rfind("}") + 1])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def canonical_turn(step: ParsedStep) -> str:
    """The assistant's turn as it enters the history: the parsed decision, never the raw text."""
    args = json.dumps(step.args, ensure_ascii=False)
    return f"Thought: {step.thought}\nAction: {step.tool}\nAction Input: {args}"
