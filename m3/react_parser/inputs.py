"""The input of an action whose tool is known: JSON first, then call, member, tag and plain notations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from m3.lenient_json import Budget, Reading, Unreadable, read_call, read_json, read_members
from m3.patterns import lazy_pattern
from m3.react_parser.dialects import Call, call_arguments, named_call, native_call, read_inputs
from m3.react_parser.table import Fault, Tool, is_blank, key_of

_FENCE = lazy_pattern(r"(?:`{3,8}|~{3,8})\$?\w{1,20}(?=[ \t]*(?:\n|\Z)|[ \t]*[{\[])|`{1,8}|~{3,8}")
_GAP = lazy_pattern(r"[\s*]*")
_JSON_WORD = lazy_pattern(r"(?:json|python|dict|tool_code)\s{0,4}(?=[{\[])", re.I)
_STUTTER = lazy_pattern(r"\*{0,2}(?:Action|Tool)[ _]?Input\*{0,2}[ \t]?[:：]\*{0,2}", re.I)
_INLINE_LABEL = lazy_pattern(r"[ \t](?:Observation|Thought|Final Answer|Action)[ \t]?:")
_INLINE_GAP = lazy_pattern(r"[ \t:,\"'`*|-]*")
_URL_LINE = lazy_pattern(r"<?(?:https?://\S+|R\d{1,4}(?:[ ,]+R\d{1,4}){0,8})>?", re.I)
_LISTED = lazy_pattern(r"\s*(?P<bullet>[-*•]\s+|\d{1,2}[.)]\s+)?(?P<item><?https?://[^\s,]+|R\d{1,4})[,\s]*", re.I)
_MEMBER = lazy_pattern(r"(?:- )?[\"'“]?(?P<key>[^\W\d][\w-]{0,40})[\"'”]?[ \t]{0,4}(?:[:=]|=>)(?!//)")
_NEXT_MEMBER = lazy_pattern(r",\s{0,8}([^\W\d]\w{0,40})\s{0,4}[:=]")
_EMPTY_WORDS = frozenset({"", "none", "null", "nil", "n/a", "na"})


def unfenced(text: str, at: int = 0) -> int:
    """The offset behind spaces, emphasis and opening code fences."""
    for _ in range(3):
        gap = _GAP.match(text, at)
        at = gap.end() if gap else at
        fence = _FENCE.match(text, at)
        if not fence:
            return at
        at = fence.end()
    return at


class Inputs:
    """Reads inputs of one reply. cut: the reply ended at its token limit, so what nothing closes may be unfinished."""

    def __init__(self, tools: Sequence[Tool], cut: bool, notes: list[str], budget: Budget) -> None:
        self.tools = tools
        self.cut = cut
        self.notes = notes
        self.budget = budget

    def read(self, tool: Tool, text: str, limit: int | None = None) -> Call:
        """The input that begins `text`. limit: where the next label begins; only valid JSON reaches past it.

        Raises `Fault`.
        """
        if not tool.args:
            return Call(tool, {})
        limit = len(text) if limit is None else limit
        start = self._beginning(text)
        if tool.plain_argument and re.match(r"\[[^\]\n{}\"]{0,300}\]\(", text[start : start + 400]):
            return self.plain(tool, text[start:limit])  # a Markdown link
        if text.startswith("｛", start):
            text = text[:limit].replace("｛", "{").replace("｝", "}")
        if text.startswith(("{", "[", '"{', "'{", "“{"), start):
            return self._json(tool, text, start, limit)
        region = text[start:limit]
        return self._notation(tool, region) or self.plain(tool, region)

    def _beginning(self, text: str) -> int:
        start = unfenced(text)
        while stutter := _STUTTER.match(text, start):
            start = unfenced(text, stutter.end())
        word = _JSON_WORD.match(text, start)
        return word.end() if word else start

    def _notation(self, tool: Tool, region: str) -> Call | None:
        """Notations other than JSON from the first character on."""
        call = re.match(rf"(?:(?:\w{{1,40}}\.)?{re.escape(tool.name)}\s?(?=[(\[{{])|dict(?=\())", region, re.I)
        if call:
            found = read_inputs(region, call.end(), tool, self.budget)
            if found is not None:
                self.closed(tool, found.closed)
                return found
        if region.startswith("<"):
            native = native_call(f"<invoke name={tool.name}>{region}", self.tools, self.budget)
            if native is not None and native.value:
                return native
        if region.startswith("("):
            try:
                arguments = read_call(region, 1, budget=self.budget)
            except Unreadable:
                arguments = None
            if arguments and arguments.cut and region[1:].lstrip()[:1] in ("{", '"', "'"):
                raise _truncated(tool)
            if arguments and not arguments.cut and not region[arguments.end :].strip(" \t\n`*;"):
                self.closed(tool, arguments.closed)
                return call_arguments(tool, arguments)
        member = _MEMBER.match(region)
        if member and _knows(tool, member["key"]):
            return self._members(tool, region)
        return self._embedded(tool, region)

    # --- JSON

    def _json(self, tool: Tool, text: str, start: int, limit: int) -> Call:
        quoted = text[start] not in "{["
        try:
            reading = None
            if quoted:  # a JSON text inside a JSON string; without escapes the quotes around it mean nothing
                try:
                    reading = read_json(text, start, limit, self.budget)
                except Unreadable:
                    reading = None
                if reading is None or reading.cut or '"' not in str(reading.value):
                    reading = None
            reading = reading or read_json(text, start + quoted, limit, self.budget)
        except Unreadable as problem:
            if self.cut:
                raise _truncated(tool) from problem
            raise Fault("bad_args", f"the input is not valid JSON ({problem}); give {tool.line}") from problem
        return self._from_reading(tool, reading, text, limit)

    def _from_reading(self, tool: Tool, reading: Reading, text: str, limit: int) -> Call:
        if reading.cut:
            raise _truncated(tool)
        self.closed(tool, reading.closed)
        if reading.repairs:
            self.notes.append(f"input repaired: {', '.join(reading.repairs)}")
        if reading.end < limit and re.match(r"[\s,;`]{0,20}\{", text[reading.end : reading.end + 40]):
            self.notes.append("only the first of several inputs was used")
        return Call(tool, reading.value)

    def object(self, text: str, start: int, tool: Tool | None = None) -> Call | None:
        """A JSON object that names its tool or, where `tool` is given, holds the arguments."""
        try:
            reading = read_json(text, start, budget=self.budget)
        except Unreadable:
            return None
        if reading.cut:
            raise Fault("truncated", "the action was cut off inside a value; write it again, shorter")
        if tool is not None:
            return self._from_reading(tool, reading, text, len(text))
        named = named_call(reading.value, self.tools)
        if named is None:
            return None
        if isinstance(reading.value, list) and len(reading.value) > 1:
            self.notes.append("only the first of several actions was used")
        self.closed(named[0], reading.closed)
        return Call(named[0], named[1], thought=named[2])

    def _embedded(self, tool: Tool, region: str) -> Call | None:
        """`Here is the input: {…}`: an object at the end of its line, all of whose names the tool knows."""
        start = region.partition("\n")[0].find("{")
        if start <= 0 or region[start - 1] not in ":= \t":
            return None
        try:
            reading = read_json(region, start, budget=self.budget)
        except Unreadable:
            return None
        rest = region[reading.end :].lstrip(" \t`*.")
        if reading.cut or (rest and not rest.startswith("\n")) or not isinstance(reading.value, dict):
            return None
        if not reading.value or not all(_knows(tool, str(key)) for key in reading.value):
            return None
        self.closed(tool, reading.closed)
        return Call(tool, reading.value)

    # --- on and below the line of the action

    def inline(self, tool: Tool, block: str, at: int, line: str) -> Call | None:
        """An input on the action's line: `search("…")`, `search {"query": …}`, `search: words`, `fetch URL`."""
        gap = _INLINE_GAP.match(block, at)
        start = gap.end() if gap else at
        if block.startswith(("{", "[{"), start):
            return self.object(block, start, tool)
        if block.startswith(("(", "["), at):
            if not tool.args:
                return Call(tool, {})
            call = read_inputs(block, at, tool, self.budget)
            return None if call is None or call.value in ({}, [], "") else call
        rest = line[at:].strip()
        if rest.startswith((":", "=")) and rest[1:].strip() and tool.plain_argument:
            return self.plain(tool, rest[1:])
        if rest[:1] in ('"', "'", "“") and len(rest) > 2 and rest[-1] in "\"'”" and tool.plain_argument:
            return Call(tool, rest[1:-1])
        member = _MEMBER.match(rest)
        if member and _knows(tool, member["key"]):
            return self._members(tool, rest)
        if tool.plain_argument and _URL_LINE.fullmatch(rest):
            self._ends_openly(tool, block.strip().endswith(rest))
            return Call(tool, rest)
        return self._embedded(tool, block[at:]) if tool.args else None

    def unlabelled(self, tool: Tool, below: str) -> Call | None:
        """An input without its label on the lines below the action."""
        text = below[unfenced(below) :].strip()
        if text.startswith(("{", "[{")):
            return self.object(text, 0, tool)
        line = text.partition("\n")[0].strip("` \t")
        member = _MEMBER.match(line)
        if member and key_of(member["key"]) in tool.args:
            return self._members(tool, text)
        if tool.plain_argument and (_URL_LINE.fullmatch(line) or re.fullmatch(r"\"[^\"]+\"", line)):
            self._ends_openly(tool, not line.endswith('"') and "\n" not in text)
            return Call(tool, line.strip('"'))
        if re.match(rf"{re.escape(tool.name)}[(\[{{]", line, re.I):
            return read_inputs(text, len(tool.name), tool, self.budget)
        return None

    # --- members and plain text

    def _members(self, tool: Tool, region: str) -> Call:
        """`query="…"`, `query: …` and the lines of a YAML mapping."""
        values: dict[str, Any] = {}
        lines = region.split("\n", 60)[:60]
        last = ""
        for i, line in enumerate(lines):
            member = _MEMBER.match(line.strip())
            item = None if member else re.match(r"\s*-\s+(.+)", line)
            if item and last and not values.get(last):
                values[last] = []
            if item and last and isinstance(values[last], list):
                self._ends_openly(tool, i == len(lines) - 1)
                values[last].append(item[1].strip().strip("\"'`"))
                continue
            if not member or (i and not _knows(tool, member["key"])):
                if i and line.strip():
                    break
                continue
            last = key_of(member["key"])
            rest = line.strip()[member.end() :].strip()
            another = _NEXT_MEMBER.search(rest)
            if rest[:1] in ('"', "'", "“", "[", "{", "`") or (another and _knows(tool, another[1])):
                values |= self._quoted_members(tool, line.strip())
            elif rest in ("|", ">", "|-", ">-") and i + 1 < len(lines):
                values[last] = lines[i + 1].strip()
                self._ends_openly(tool, i + 2 == len(lines))
            else:
                values[last] = rest.rstrip(",`")
                self._ends_openly(tool, i == len(lines) - 1)
        return Call(tool, values)

    def _quoted_members(self, tool: Tool, line: str) -> dict[str, Any]:
        """The members of one line whose values are quoted; with commas or without."""
        member = _MEMBER.match(line)
        try:
            reading = read_members(line.removeprefix("- ") + "\n", budget=self.budget)
            values = reading.value
        except Unreadable:
            try:
                reading = read_json(line, member.end() if member else 0, budget=self.budget)
            except Unreadable as problem:
                raise Fault("bad_args", f"the input is not readable; give {tool.line}") from problem
            values = {member["key"] if member else "": reading.value}
        if reading.cut:
            raise _truncated(tool)
        return {key_of(key): value for key, value in values.items()}

    def plain(self, tool: Tool, region: str) -> Call:
        """An input without structure: its first line is the tool's plain argument."""
        region = region.strip()
        if list in tool.args.values() and tool.plain_argument:
            matches = (_LISTED.fullmatch(line) for line in region.split("\n", 20)[:20])
            listed = [match for match in takewhile(bool, matches) if match]
            if len(listed) > 1 or (listed and listed[0]["bullet"]):
                self._ends_openly(tool, listed[-1].string == region.rsplit("\n", 1)[-1])
                return Call(tool, [match["item"] for match in listed])
        line, more, _ = region.partition("\n")
        inline = _INLINE_LABEL.search(line)
        if inline:
            line = line[: inline.start()]
        closed = bool(more or inline or line.endswith(("`", "**")))
        line = line.strip("` \t")
        while line.startswith("**") and line.endswith("**") and len(line) > 4:
            line = line[2:-2].strip()
        line = self._unquoted(tool, line.removesuffix("**").rstrip(), closed)
        if is_blank(line):
            raise Fault(
                "missing_input" if line.lower() in _EMPTY_WORDS else "bad_args", f"the input is empty; give {tool.line}"
            )
        if tool.plain_argument is None:
            raise Fault("bad_args", f"the input is not a JSON object; give {tool.line}")
        return Call(tool, line)

    def _unquoted(self, tool: Tool, line: str, closed: bool) -> str:
        """A plain input without the one pair of quotes around it; one opening quote alone means that it is cut off."""
        quote = line[:1]
        if quote not in ('"', "'", "“", "‘"):
            self._ends_openly(tool, not closed)
            return line
        closing = {"“": "”", "‘": "’"}.get(quote, quote)
        if closing not in line[1:]:
            raise _truncated(tool)
        self._ends_openly(tool, not closed)
        return line[1:-1] if line.endswith(closing) and closing not in line[1:-1] else line

    # --- endings

    def _ends_openly(self, tool: Tool, at_end: bool) -> None:
        """A value that nothing closes, at the end of a reply that was cut off."""
        if at_end and self.cut:
            raise _truncated(tool)

    def closed(self, tool: Tool, closed: bool) -> None:
        """Refuse or note what was read without its closing bracket or quote."""
        if not closed:
            self._ends_openly(tool, bool(tool.args))
            self.notes.append("a bracket or quote was not closed")


def _knows(tool: Tool, key: str) -> bool:
    return tool.aliases.get(key_of(key), key_of(key)) in tool.args


def _truncated(tool: Tool) -> Fault:
    return Fault("truncated", f"the input was cut off; write it again, shorter: {tool.line}")
