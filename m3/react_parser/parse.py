"""From a reply to one decision: labels first, native call formats where there are none, and never prose as an end."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

from m3.lenient_json import Budget, Reading, Unreadable, read_call, read_json, read_members
from m3.react_parser.dialects import (
    Call,
    Message,
    by_arguments,
    call_arguments,
    harmony,
    named_call,
    native_call,
    read_inputs,
)
from m3.react_parser.labels import Mark, marks, normalise, plain_thought, rewritten, split_reasoning
from m3.react_parser.table import TOOLS, Fault, Fitter, ParseError, Tool, is_blank, key_of, resolve, unknown

# What providers call an output that ended at its token limit.
_CUT_REASONS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "incomplete"})


@dataclass(frozen=True)
class ParsedStep:
    """One decision. Exactly one of `tool` and `error` is set.

    thought: one line; args: fit the tool's table entry; error_detail: one clause for the model; notes: what was
    mended or dropped on the way, one clause each.
    """

    thought: str = ""
    tool: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    error: ParseError | None = None
    error_detail: str = ""
    notes: tuple[str, ...] = ()


def parse_thought_action(
    text: str | None, finish_reason: str | None = None, tools: Sequence[Tool] = TOOLS
) -> ParsedStep:
    """Turn a model's reply into one action or one precise error. Never raises; linear time.

    finish_reason: the provider's; `length` and its synonyms say that the reply was cut off, which makes an input that
    is not closed `truncated`. tools: the table of this run. The first decision of the reply counts; what the model
    wrote behind it is dropped and named in `notes`.
    """
    reply = _Reply(tools, (finish_reason or "").lower() in _CUT_REASONS)
    try:
        call = reply.decide(normalise(text or ""))
        args = reply.fitter.fit(call.tool, call.value)
    except Fault as fault:
        return ParsedStep(
            plain_thought(reply.thought), error=fault.kind, error_detail=fault.detail, notes=tuple(reply.notes)
        )
    return ParsedStep(plain_thought(call.thought or reply.thought), call.tool.name, args, notes=tuple(reply.notes))


def canonical_turn(step: ParsedStep) -> str:
    """The assistant's turn as it enters the history: the parsed decision, never the raw text."""
    args = json.dumps(step.args, ensure_ascii=False)
    args = _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", args)
    return f"Thought: {step.thought}\nAction: {step.tool}\nAction Input: {args}"


# Characters that normalising would change, escaped so that a canonical turn reads back as it was.
_UNSAFE = re.compile(
    "[\x7f-\xa0\xad\u1680\u2000-\u200f\u2010\u2011\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]|｜"
)
_NOTHING = re.compile(
    r"\W*(?:none|n\s*/\s*a|na|null|nil|nothing|no (?:further |more )?(?:action|tool)s?)\b|\W*\Z", re.I
)
_FINAL_NAME = re.compile(r"\W*final[ _-]?(?:answer|response)\b", re.I)
_STATIC_FILLER = frozenset(
    "a an the use using call calling invoke run execute perform do make i i'll will would should need want to let me "
    "us let's now next please we you can tool action function then my first again".split()
)
_FENCE = re.compile(r"(?:`{3,8}|~{3,8})\$?\w{1,20}(?=[ \t]*\n|[ \t]*[{\[])|`{1,8}|~{3,8}")
_JSON_WORD = re.compile(r"(?:json|python|dict|tool_code)\s{0,4}(?=[{\[])", re.I)
_INPUT_INSIDE = re.compile(
    r"[ \t,;|.]{0,8}\*{0,2}\b(?:(?:Action|Tool)[ _]?Input|(?:with )?(?:Input|Args|Arguments|Parameters))"
    r"\*{0,2}[ \t]?[:=]\*{0,2}",
    re.I,
)
_STUTTER = re.compile(r"\*{0,2}(?:Action|Tool)[ _]?Input\*{0,2}[ \t]?[:：]\*{0,2}", re.I)
_INLINE_LABEL = re.compile(r"[ \t](?:Observation|Thought|Final Answer|Action)[ \t]?:")
_URL_LINE = re.compile(r"<?(?:https?://\S+|R\d{1,4}(?:[ ,]+R\d{1,4}){0,8})>?", re.I)
_LISTED = re.compile(r"\s*(?P<bullet>[-*•]\s+|\d{1,2}[.)]\s+)?(?P<item><?https?://[^\s,]+|R\d{1,4})[,\s]*", re.I)
_MEMBER = re.compile(r"(?:- )?[\"'“]?(?P<key>[^\W\d][\w-]{0,40})[\"'”]?[ \t]{0,4}(?P<separator>[:=]|=>)(?!//)")
_MAX_NOTED = 400  # labels looked at behind the decision, to name what was dropped


class _Reply:
    """One reply on its way to a decision. Carries what every step needs: the tools, the notes, the step budget."""

    def __init__(self, tools: Sequence[Tool], cut: bool) -> None:
        self.tools = tools
        self.cut = cut
        self.notes: list[str] = []
        self.thought = ""
        self.budget = Budget()
        self.fitter = Fitter(self.notes, self.budget)

    # --- the order of things

    def decide(self, text: str) -> Call:
        if not text:
            raise Fault("empty", "the reply was empty")
        messages = harmony(text)
        if messages is not None:
            return self._from_harmony(messages)
        body = split_reasoning(text)
        if body.text:
            if body.reasoning:
                self.notes.append("reasoning dropped")
            return self._from_body(body.text)
        return self._from_reasoning(body.reasoning, body.open)

    def _from_harmony(self, messages: Sequence[Message]) -> Call:
        """The first message with a recipient is a call; the text of the others is read like any text."""
        reasoning: list[str] = []
        for message in messages:
            if message.recipient and message.recipient not in ("assistant", "user"):
                self.thought = " ".join(reasoning)
                tool = resolve(message.recipient, self.tools)
                if tool is None:
                    raise unknown(message.recipient, self.tools)
                if not message.content and tool.args:
                    raise Fault("truncated" if self.cut else "missing_input", f"the input is missing; give {tool.line}")
                return self._input(tool, message.content)
            if message.channel == "analysis":
                reasoning.append(message.content)
            elif message.content:
                if reasoning:
                    self.notes.append("reasoning dropped")
                return self._from_body(message.content)
        return self._from_reasoning("\n".join(reasoning), True)

    def _from_reasoning(self, reasoning: str, unfinished: bool) -> Call:
        """Nothing but reasoning: it counts only if it holds a whole action."""
        try:
            if any(mark.kind == "action" for mark in marks(reasoning)):
                call = self._from_body(reasoning)
                self.fitter.fit(call.tool, call.value)
                if call.tool.args or not unfinished:
                    self.notes.append("the action stood inside the reasoning")
                    return call
        except Fault:
            self.thought = ""
        if self.cut:
            raise Fault("truncated", "the reply was cut off inside the reasoning; reason less and write the action")
        raise Fault("empty", "the reply held only reasoning; write the action after it")

    def _from_body(self, text: str) -> Call:
        opened = self._whole_object(text)
        if opened is not None:
            return opened
        call = self._from_labels(text)
        if call is None:
            changed = rewritten(text)
            call = self._from_labels(changed) if changed else None
        if call is None:
            call = native_call(text, self.tools, self.budget)
            if call is not None:
                self.thought = _thought(text[: call.at], list(islice(marks(text[: call.at]), _MAX_NOTED)))
                self._closed(call.tool, call.closed)
                self.notes.append("native call format")
        if call is None and re.match(r"\s*<(?:final_?)?answer>", text, re.I):
            finish = resolve("finish", self.tools)
            call = Call(finish, {}) if finish else None
        if call is not None:
            return call
        self.thought = self.thought or _thought(text, list(islice(marks(text), _MAX_NOTED)))
        if self.cut:
            raise Fault("truncated", "the reply was cut off before its action; write a shorter thought")
        raise Fault("no_action", "there is no line 'Action: <tool>'")

    def _whole_object(self, text: str) -> Call | None:
        """A reply that is one JSON object from its first character on."""
        start = self._unfenced(text, 0)
        if not text.startswith(("{", "["), start):
            return None
        try:
            reading = read_json(text, start, budget=self.budget)
        except Unreadable:
            return None
        if reading.cut:
            if re.match(
                r"[{\[\s]{1,8}[\"'](?:thought|action|name|tool|function|tool_calls?|type|id)\b", text[start:], re.I
            ):
                raise Fault("truncated", "the reply was cut off inside a value; write it again, shorter")
            return None
        named = named_call(reading.value, self.tools)
        if named is None:
            alone = not text[reading.end :].strip(" \t\n`")
            tool = by_arguments(reading.value, self.tools) if alone else None
            if tool is None:
                return None
            named = (tool, reading.value, "")
        if isinstance(reading.value, list) and len(reading.value) > 1:
            self.notes.append("only the first of several actions was used")
        self._closed(named[0], reading.closed)
        return Call(named[0], named[1], thought=named[2])

    # --- labels

    def _from_labels(self, text: str) -> Call | None:
        seen: list[Mark] = []
        labels = _Labels(text)
        while (mark := labels.next()) is not None:
            seen.append(mark)
            if mark.kind == "final":
                self.thought = _thought(text[: mark.start], seen)
                finish = resolve("finish", self.tools)
                if finish is None:
                    raise unknown("Final Answer", self.tools)
                self._note_rest(labels)
                return Call(finish, {})
            if mark.kind != "action":
                continue
            following = labels.peek()
            end = following.start if following else len(text)
            value = text[mark.end : end]
            stutter = following is not None and following.kind == "action" and len(seen) < _MAX_NOTED
            if stutter and not value.strip(" \t\n*`"):
                continue  # the next label has the value
            self.thought = _thought(text[: mark.start], seen)
            if not value.strip(" \t\n*`"):
                if self.cut:
                    raise Fault("truncated", "the reply was cut off at its action")
                raise Fault("no_action", "the line 'Action:' names no tool")
            if _NOTHING.match(value):
                if following and following.kind == "input":
                    labels.next()
                    following = labels.peek()
                if following and following.kind == "final":
                    continue
                raise Fault("no_action", "the action is 'none'; name a tool, or finish")
            return self._action(text, mark, value, labels, seen)
        return None

    def _action(self, text: str, mark: Mark, value: str, rest: _Labels, seen: Sequence[Mark]) -> Call:
        """The decision at an action label. value: the text up to the next label; rest: the labels from there on."""
        lead = value[: self._unfenced(value, 0)]
        if value[len(lead) :].startswith(("{", "[", "<")):
            lead = ""
        name_line, _, below = value[len(lead) :].partition("\n")
        inside = _INPUT_INSIDE.search(name_line)
        input_at: int | None = None
        name = name_line
        if inside:
            name = name_line[: inside.start()]
            input_at = mark.end + len(lead) + inside.end()
        tool, inline = self._tool(
            name, value[len(lead) :], last=not below.strip() and mark.end + len(value) >= len(text)
        )
        boundary = mark.end + len(value)
        if inline is not None and inline.tool is not tool:
            tool = inline.tool
        if input_at is None:
            while (label := rest.peek()) is not None and label.kind in ("thought", "input"):
                rest.next()
                if label.kind == "input":
                    input_at = label.end
                    break
        if input_at is not None and text[input_at : input_at + 400].strip(" \t\n`*"):
            while (label := rest.peek()) is not None and not (label.strong and label.kind != "other"):
                rest.next()
            end = label.start if label else len(text)
            self._note_rest(rest)
            if end > input_at and text[input_at:end].strip(" \t\n`*"):
                return self._input(tool, text[input_at:], limit=end - input_at)
        self._note_rest(rest)
        if inline is not None:
            self._closed(tool, inline.closed)
            return Call(tool, inline.value)
        if not tool.args:
            return Call(tool, {})
        direct = self._unlabelled(tool, below, boundary - mark.end)
        if direct is not None:
            return direct
        before = self._input_before(text, mark, seen, tool)
        if before is not None:
            return before
        if self.cut:
            raise Fault("truncated", f"the reply was cut off before its input; give {tool.line}")
        raise Fault("missing_input", f"'Action Input:' is missing; give {tool.line}")

    def _tool(self, name: str, block: str, last: bool) -> tuple[Tool, Call | None]:
        """The tool that the value of an action label names, and the input that stands with it, if any."""
        stripped = block.strip()
        start = self._unfenced(stripped, 0)
        if stripped.startswith(("{", "[{"), start):
            call = self._object(stripped, start)
            if call is not None:
                return call.tool, call
        exact = resolve(name, self.tools)
        if exact is not None and re.fullmatch(r"[\W_]*[\w.:/-]+(?:[ -](?:tool|action|function))?[\W_]*", name, re.I):
            return exact, None
        if _FINAL_NAME.match(name):
            finish = resolve("finish", self.tools)
            if finish is not None:
                return finish, None
        head = re.match(r"[\s\"'`*\[]*([^\W\d][\w.:/-]{0,80}?)[\"'`*]*(?=[(\[{]|:?[ \t]|:?$|[,;(])", name)
        tool = resolve(head[1], self.tools) if head else None
        if tool is not None and head is not None:
            inline = self._inline(tool, block, head.end(), name)
            if inline is not None:
                return tool, inline
            rest = name[head.end() :]
            others = {t.name.lower() for t in self.tools} - {tool.name.lower()}
            if others & set(re.findall(r"\w+", rest[:200].lower())):
                raise unknown(name.strip("*` \t"), self.tools)
            if tool.args or self._only_filler(rest):
                return tool, None
        if stripped.startswith("<") or stripped.startswith("```"):
            call = native_call(stripped, self.tools, self.budget)
            if call is not None:
                return call.tool, call
        verbose = self._verbose(name)
        if verbose is not None:
            return verbose, None
        if self.cut and last:
            raise Fault("truncated", "the reply was cut off at its action")
        raise unknown(name.strip("*` \t"), self.tools)

    def _only_filler(self, words: str) -> bool:
        """For a tool without arguments: `finish the research`, `finish (I have enough)`, not `finish reading R2`."""
        if re.match(r"\s*[(\[,.;:–—-]", words):
            return True
        allowed = _STATIC_FILLER | {
            "research",
            "report",
            "task",
            "answer",
            "answering",
            "with",
            "it",
            "here",
            "and",
            "this",
        }
        return all(word in allowed for word in re.findall(r"[\w']+", words.lower()))

    def _verbose(self, name: str) -> Tool | None:
        """`Use the search tool`: the one tool named, if only words of asking stand before its name."""
        words = re.findall(r"[\w']+", name[:200].lower())
        named = [(i, tool) for i, word in enumerate(words) for tool in self.tools if word == tool.name.lower()]
        if len({tool.name for _, tool in named}) != 1:
            return None
        at, tool = named[0]
        if not all(word in _STATIC_FILLER for word in words[:at]):
            return None
        if not tool.args and not all(word in _STATIC_FILLER for word in words[at + 1 :]):
            return None
        return tool

    def _inline(self, tool: Tool, block: str, at: int, name: str) -> Call | None:
        """An input on the line of the action: `search("…")`, `search {"query": …}`, `search: words`, `fetch URL`."""
        gap = re.compile(r"[ \t:,\"'`*|-]*").match(block, at)
        start = gap.end() if gap else at
        if block.startswith(("{", "[{"), start):
            return self._object(block, start, tool)
        if block.startswith(("(", "["), at):
            if not tool.args:
                return Call(tool, {})
            call = read_inputs(block, at, tool, self.budget)
            if call is None or call.value in ({}, [], ""):
                return None
            return call
        rest = name[at:].strip()
        if rest.startswith((":", "=")) and rest[1:].strip() and tool.plain_argument:
            return self._plain(tool, rest[1:].strip(), None)
        if rest[:1] in "\"'“" and len(rest) > 2 and rest[-1] in "\"'”" and tool.plain_argument:
            return Call(tool, rest[1:-1])
        member = _MEMBER.match(rest)
        if member and self._knows(tool, member["key"]):
            return self._members(tool, rest)
        if tool.plain_argument and _URL_LINE.fullmatch(rest):
            return Call(tool, rest)
        return None

    def _unlabelled(self, tool: Tool, below: str, length: int) -> Call | None:
        """An input without its label on the lines below the action."""
        start = self._unfenced(below, 0)
        text = below[start:].strip()
        if text.startswith(("{", "[{")):
            return self._object(text, 0, tool)
        line = text.partition("\n")[0].strip().strip("`").strip()
        member = _MEMBER.match(line)
        if member and key_of(member["key"]) in tool.args:
            return self._members(tool, text)
        if tool.plain_argument and (_URL_LINE.fullmatch(line) or re.fullmatch(r"\"[^\"]+\"", line)):
            return Call(tool, line.strip('"'))
        if re.match(rf"{re.escape(tool.name)}[(\[{{]", line, re.I):
            return read_inputs(text, len(tool.name), tool, self.budget)
        return None

    def _input_before(self, text: str, mark: Mark, seen: Sequence[Mark], tool: Tool) -> Call | None:
        """The input written before its action, if the two stand next to each other."""
        if len(seen) < 2 or seen[-2].kind != "input":
            return None
        content = text[seen[-2].end : mark.start].strip()
        return self._input(tool, content) if content else None

    # --- inputs

    def _input(self, tool: Tool, text: str, limit: int | None = None) -> Call:
        """The input of a named tool. limit: where the next label begins; only a valid JSON value reaches past it."""
        if not tool.args:
            return Call(tool, {})
        limit = len(text) if limit is None else limit
        start = self._unfenced(text, 0)
        stutter = _STUTTER.match(text, start)
        while stutter:
            start = self._unfenced(text, stutter.end())
            stutter = _STUTTER.match(text, start)
        word = _JSON_WORD.match(text, start)
        start = word.end() if word else start
        if tool.plain_argument and re.match(r"\[[^\]\n{}\"]{0,300}\]\(", text[start : start + 400]):
            return self._plain(tool, text[start:limit], start)
        if text.startswith(("{", "[", '"{', "'{", "“{"), start):
            return self._object_or_fault(tool, text, start, limit)
        region = text[start:limit]
        if text.startswith(("&quot;", "&#34;"), start):
            return self._plain(tool, region.replace("&quot;", '"').replace("&#34;", '"'), start)
        call = re.match(rf"(?:[\w]+\.)?{re.escape(tool.name)}\s?(?=[(\[{{])", region, re.I)
        if call:
            found = read_inputs(region, call.end(), tool, self.budget)
            if found is not None:
                self._closed(tool, found.closed)
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
            if arguments and not arguments.cut and not region[arguments.end :].strip(" \t\n`*;"):
                self._closed(tool, arguments.closed)
                return call_arguments(tool, arguments)
        member = _MEMBER.match(region)
        if member and self._knows(tool, member["key"]):
            return self._members(tool, region)
        embedded = self._embedded(tool, region)
        return embedded or self._plain(tool, region, start)

    def _embedded(self, tool: Tool, region: str) -> Call | None:
        """`Here is the input: {…}`: an object at the end of a line, all of whose names the tool knows."""
        line = region.partition("\n")[0]
        start = line.find("{")
        if start <= 0 or not re.search(r"[:=\s]\Z", line[:start]):
            return None
        try:
            reading = read_json(region, start, budget=self.budget)
        except Unreadable:
            return None
        if reading.cut or not isinstance(reading.value, dict) or not reading.value:
            return None
        if region[reading.end :].strip(" \t`*").startswith("\n") or not region[reading.end :].strip(" \t\n`*"):
            return Call(tool, reading.value) if all(self._knows(tool, str(key)) for key in reading.value) else None
        return None

    def _knows(self, tool: Tool, key: str) -> bool:
        return tool.aliases.get(key_of(key), key_of(key)) in tool.args

    def _object_or_fault(self, tool: Tool, text: str, start: int, limit: int) -> Call:
        try:
            opening = 1 if text.startswith(('"{', "'{", "“{"), start) else 0
            if opening:
                try:
                    reading = read_json(text, start, limit, self.budget)  # a JSON text inside a JSON string
                    if not isinstance(reading.value, str) or reading.cut or '"' not in reading.value:
                        raise Unreadable("not a JSON string")
                except Unreadable:
                    reading = read_json(text, start + 1, limit, self.budget)
            else:
                reading = read_json(text, start, limit, self.budget)
        except Unreadable as problem:
            if self.cut:
                raise Fault("truncated", f"the input was cut off; write it again, shorter: {tool.line}") from problem
            raise Fault("bad_args", f"the input is not valid JSON ({problem}); give {tool.line}") from problem
        return self._read(tool, reading, text, limit)

    def _read(self, tool: Tool, reading: Reading, text: str, limit: int) -> Call:
        if reading.cut:
            raise Fault("truncated", f"the input was cut off inside a value; write it again, shorter: {tool.line}")
        self._closed(tool, reading.closed)
        if reading.repairs:
            self.notes.append(f"input repaired: {', '.join(reading.repairs)}")
        if reading.end < limit and re.match(r"[\s,;`]*\{", text[reading.end : limit]):
            self.notes.append("only the first of several inputs was used")
        return Call(tool, reading.value)

    def _object(self, text: str, start: int, tool: Tool | None = None) -> Call | None:
        """A JSON object that names its tool or, where `tool` is given, holds the arguments."""
        try:
            reading = read_json(text, start, budget=self.budget)
        except Unreadable:
            return None
        if reading.cut:
            raise Fault("truncated", "the action was cut off inside a value; write it again, shorter")
        if tool is not None:
            return self._read(tool, reading, text, len(text))
        named = named_call(reading.value, self.tools)
        if named is None:
            return None
        if isinstance(reading.value, list) and len(reading.value) > 1:
            self.notes.append("only the first of several actions was used")
        self._closed(named[0], reading.closed)
        return Call(named[0], named[1])

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
                values[last].append(item[1].strip().strip("\"'`"))
                continue
            if not member or (i and not self._knows(tool, member["key"])):
                if i and line.strip():
                    break
                continue
            last = key_of(member["key"])
            rest = line.strip()[member.end() :].strip()
            another = re.search(r",\s{0,8}([^\W\d]\w{0,40})\s{0,4}[:=]", rest)
            if rest[:1] in ('"', "'", "“", "[", "{", "`") or (another and self._knows(tool, another[1])):
                values |= self._quoted_members(tool, line.strip())
            elif rest in ("|", ">", "|-", ">-") and i + 1 < len(lines):
                values[last] = lines[i + 1].strip()
            else:
                values[last] = rest.rstrip(",`") if rest else ""
                self._ends_openly(tool, i == len(lines) - 1)
        return Call(tool, values)

    def _quoted_members(self, tool: Tool, line: str) -> dict[str, Any]:
        """The members of one line whose values are quoted; with commas or without."""
        try:
            reading = read_members(line.removeprefix("- ") + "\n", budget=self.budget)
        except Unreadable:
            reading = None
        if reading is None:
            member = _MEMBER.match(line)
            try:
                reading = read_json(line, member.end() if member else 0, budget=self.budget)
            except Unreadable as problem:
                raise Fault("bad_args", f"the input is not readable; give {tool.line}") from problem
            if member and not reading.cut:
                return {key_of(member["key"]): reading.value}
        if reading.cut:
            raise Fault("truncated", f"the input was cut off inside a value; write it again, shorter: {tool.line}")
        return {key_of(key): value for key, value in reading.value.items()} if isinstance(reading.value, dict) else {}

    def _plain(self, tool: Tool, region: str, start: int | None) -> Call:
        """An input without structure: its first line is the tool's plain argument."""
        region = region.strip()
        if list in tool.args.values() and tool.plain_argument:
            lines = (_LISTED.fullmatch(line) for line in region.split("\n", 20)[:20])
            listed = [match for match in takewhile(bool, lines) if match]
            if len(listed) > 1 or (listed and listed[0]["bullet"]):
                return Call(tool, [match["item"] for match in listed])
        line, more, _ = region.partition("\n")
        inline = _INLINE_LABEL.search(line)
        if inline:
            line = line[: inline.start()]
        line = line.strip().strip("`").strip()
        while line.startswith("**") and line.endswith("**") and len(line) > 4:
            line = line[2:-2].strip()
        quote = line[:1]
        if quote and quote in "\"'“‘":
            closing = {"“": "”", "‘": "’"}.get(quote, quote)
            if line.count(quote) + (line.count(closing) if closing != quote else 0) == 1 and quote != "'":
                raise Fault("truncated", f"the input was cut off; write it again: {tool.line}")
            if len(line) > 1 and line.endswith(closing) and closing not in line[1:-1]:
                line = line[1:-1]
        elif not more and not inline:
            self._ends_openly(tool, True)
        if line.endswith("**"):
            line = line[:-2].rstrip()
        if is_blank(line):
            raise Fault(
                "missing_input" if line.lower() in _EMPTY_WORDS else "bad_args", f"the input is empty; give {tool.line}"
            )
        if tool.plain_argument is None:
            raise Fault("bad_args", f"the input is not a JSON object; give {tool.line}")
        return Call(tool, line)

    def _ends_openly(self, tool: Tool, at_end: bool) -> None:
        """A value that nothing closes, at the end of a reply that was cut off."""
        if at_end and self.cut:
            raise Fault("truncated", f"the input was cut off; write it again, shorter: {tool.line}")

    def _closed(self, tool: Tool, closed: bool) -> None:
        if not closed:
            self._ends_openly(tool, bool(tool.args))
            self.notes.append("a bracket or quote was not closed")

    # --- small things

    def _unfenced(self, text: str, at: int) -> int:
        """The offset behind spaces, emphasis and an opening code fence."""
        for _ in range(3):
            gap = re.compile(r"[\s*]*").match(text, at)
            at = gap.end() if gap else at
            fence = _FENCE.match(text, at)
            if not fence:
                return at
            at = fence.end()
        return at

    def _note_rest(self, rest: _Labels) -> None:
        """Name what the model wrote behind its decision."""
        kinds = rest.strong_kinds()
        for kind, note in (
            ("observation", "an invented observation was dropped"),
            ("action", "only the first of several actions was used"),
            ("final", "an answer beside the action was dropped"),
        ):
            if kind in kinds:
                self.notes.append(note)


_EMPTY_WORDS = frozenset({"", "none", "null", "nil", "n/a", "na"})


class _Labels:
    """The labels of a text in order, with one label of look-ahead."""

    def __init__(self, text: str) -> None:
        self._marks = marks(text)
        self._ahead: list[Mark] = []

    def peek(self) -> Mark | None:
        if not self._ahead:
            self._ahead = list(islice(self._marks, 1))
        return self._ahead[0] if self._ahead else None

    def next(self) -> Mark | None:
        mark = self.peek()
        self._ahead = []
        return mark

    def strong_kinds(self) -> set[str]:
        """The kinds of the labels to come, as far as it is worth looking."""
        marks_left = [*self._ahead, *islice(self._marks, _MAX_NOTED)]
        return {mark.kind for mark in marks_left if mark.strong}


def _thought(text: str, labels: Sequence[Mark]) -> str:
    """What a reply says before its decision: unlabelled text and thoughts, not what it echoes or invents."""
    known = [mark for mark in labels if mark.end <= len(text)]
    if not known:
        return text
    parts = [text[: known[0].start]]
    for mark, following in zip(known, [*known[1:], None], strict=True):
        if mark.kind == "thought":
            parts.append(text[mark.end : following.start if following else len(text)].lstrip("* "))
    return " ".join(parts)
