"""From a reply to one decision: labels first, native call formats where there are none, and never prose as an end."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from m3.lenient_json import Budget, Unreadable, read_json
from m3.patterns import lazy_pattern
from m3.react_parser.dialects import Call, Message, by_arguments, harmony, named_call, native_call
from m3.react_parser.inputs import Inputs, unfenced
from m3.react_parser.labels import Mark, marks, normalise, plain_thought, rewritten, split_reasoning
from m3.react_parser.table import TOOLS, Fault, Fitter, ParseError, Tool, resolve, unknown

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
_UNSAFE = lazy_pattern(
    "[\x7f-\xa0\xad\u1680\u2000-\u200f\u2010\u2011\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]|｜"
)
_NOTHING = lazy_pattern(
    r"\W*(?:none|n\s*/\s*a|na|null|nil|nothing|no (?:further |more )?(?:action|tool)s?)\b|\W*\Z", re.I
)
_ANSWER_TAG = lazy_pattern(r"\s*<(?:final_?)?answer>", re.I)
_ANSWER_TAG_END = lazy_pattern(r"</(?:final_?)?answer>\s*\Z", re.I)
_FINAL_NAME = lazy_pattern(r"\W*final[ _-]?(?:answer|response)\b", re.I)
_PLAIN_NAME = lazy_pattern(r"[\W_]*[\w.:/-]+(?:[ -](?:tool|action|function))?[\W_]*", re.I)
_LEADING_NAME = lazy_pattern(r"[\s\"'`*\[]*([^\W\d][\w.:/-]{0,80}?)[\"'`*]*(?=[(\[{]|:?[ \t]|:?$|[,;(])")
_LIST_ITEM = lazy_pattern(r"[\s`*]{0,8}(?:\d{1,2}[.)]|(?:tool|name)\s?[:=])\s{1,4}", re.I)
_FILLER = frozenset(
    "a an the use using call calling invoke run execute perform do make i i'll will would should need want to let me "
    "us let's now next please we you can tool action function then my first again".split()
)
_FINISH_FILLER = _FILLER | set("research report task answer answering with it here and this".split())
_INPUT_INSIDE = lazy_pattern(
    r"[ \t,;|.]{0,8}\*{0,2}\b(?:(?:Action|Tool)[ _]?Input|(?:with )?(?:Input|Args|Arguments|Parameters))"
    r"\*{0,2}[ \t]?[:=]\*{0,2}",
    re.I,
)
_OPEN_CALL = lazy_pattern(r"[{\[\s]{1,8}[\"'](?:thought|action|name|tool|function|tool_calls?|type|id)\b", re.I)
_NO_INPUT = lazy_pattern(r"[\s`*]*(?:\{\s*\}|\(\s*\)|none|null|n/a)?[\s`*]*\Z", re.I)
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
        self.inputs = Inputs(tools, cut, self.notes, self.budget)

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
        for i, message in enumerate(messages):
            if message.recipient and message.recipient not in ("assistant", "user"):
                self.thought = " ".join(reasoning)
                tool = resolve(message.recipient, self.tools)
                if tool is None:
                    raise unknown(message.recipient, self.tools)
                if not message.content and tool.args:
                    raise Fault("truncated" if self.cut else "missing_input", f"the input is missing; give {tool.line}")
                return self.inputs.read(tool, message.content)
            if message.channel == "analysis":
                reasoning.append(message.content)
            elif message.content:
                try:
                    return self._from_body(message.content)
                except Fault as fault:
                    if fault.kind != "no_action" or message.channel != "commentary" or i + 1 == len(messages):
                        raise
                    reasoning.append(message.content)  # said before a call that follows
        return self._from_reasoning("\n".join(reasoning), True)

    def _from_reasoning(self, reasoning: str, unfinished: bool) -> Call:
        """Nothing but reasoning: it counts only if it holds a whole action."""
        try:
            if any(mark.kind == "action" for mark in marks(reasoning)):
                call = self._from_body(reasoning)
                self.fitter.fit(call.tool, call.value)
                if call.tool.args or not (unfinished or self.cut):
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
                self.inputs.closed(call.tool, call.closed)
                self.notes.append("native call format")
        answer = _ANSWER_TAG.match(text) if call is None else None
        if answer:  # what stands in the tag is the answer, or the turn that a template wants there
            call = self._from_labels(_ANSWER_TAG_END.sub("", text[answer.end() :]))
            finish = resolve("finish", self.tools)
            call = call or (Call(finish, {}) if finish else None)
        if call is not None:
            return call
        self.thought = self.thought or _thought(text, list(islice(marks(text), _MAX_NOTED)))
        if self.cut:
            raise Fault("truncated", "the reply was cut off before its action; write a shorter thought")
        raise Fault("no_action", "there is no line 'Action: <tool>'")

    def _whole_object(self, text: str) -> Call | None:
        """A reply that is one JSON object from its first character on."""
        start = unfenced(text, 0)
        if not text.startswith(("{", "["), start):
            return None
        try:
            reading = read_json(text, start, budget=self.budget)
        except Unreadable:
            return None
        if reading.cut:
            if _OPEN_CALL.match(text, start):
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
        self.inputs.closed(named[0], reading.closed)
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
        lead = value[: unfenced(value, 0)]
        if value[len(lead) :].startswith(("{", "[", "<")):
            lead = ""
        name_line, _, below = value[len(lead) :].partition("\n")
        inside = _INPUT_INSIDE.search(name_line)
        input_at: int | None = None
        name = name_line
        if inside:
            name = name_line[: inside.start()]
            input_at = mark.end + len(lead) + inside.end()
        last = not below.strip() and mark.end + len(value) >= len(text)
        tool, inline = self._tool(name, value[len(lead) :], last)
        tool = inline.tool if inline else tool
        if input_at is None:
            input_at = self._labelled_input(rest)
        if input_at is not None:
            while (label := rest.peek()) is not None and not (label.strong and label.kind != "other"):
                rest.next()
            end = label.start if label else len(text)
            if not _NO_INPUT.match(text[input_at:end]) or (inline is None and text[input_at:end].strip(" \t\n`*")):
                self._note_rest(rest)
                return self.inputs.read(tool, text[input_at:], limit=end - input_at)
        self._note_rest(rest)
        if inline is not None:
            self.inputs.closed(tool, inline.closed)
            return Call(tool, inline.value)
        if not tool.args:
            return Call(tool, {})
        found = self.inputs.unlabelled(tool, below) or self._input_before(text, mark, seen, tool)
        if found is not None:
            return found
        if self.cut:
            raise Fault("truncated", f"the reply was cut off before its input; give {tool.line}")
        raise Fault("missing_input", f"'Action Input:' is missing; give {tool.line}")

    @staticmethod
    def _labelled_input(rest: _Labels) -> int | None:
        """Where the input that belongs to the action begins: behind the next input label, thoughts passed over."""
        while (label := rest.peek()) is not None and label.kind in ("thought", "input"):
            rest.next()
            if label.kind == "input":
                return label.end
        return None

    def _tool(self, name: str, block: str, last: bool) -> tuple[Tool, Call | None]:
        """The tool that the value of an action label names, and the input that stands with it, if any."""
        stripped = block.strip()
        start = unfenced(stripped, 0)
        if stripped.startswith(("{", "[{"), start):
            call = self.inputs.object(stripped, start)
            if call is not None:
                return call.tool, call
        item = _LIST_ITEM.match(name)
        if item:
            name, block = name[item.end() :], block[item.end() :]
        exact = resolve(name, self.tools)
        if exact is not None and _PLAIN_NAME.fullmatch(name):
            return exact, None
        if _FINAL_NAME.match(name):
            finish = resolve("finish", self.tools)
            if finish is not None:
                return finish, None
        head = _LEADING_NAME.match(name)
        tool = resolve(head[1], self.tools) if head else None
        if tool is not None and head is not None:
            inline = self.inputs.inline(tool, block, head.end(), name)
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
        return all(word in _FINISH_FILLER for word in re.findall(r"[\w']+", words.lower()))

    def _verbose(self, name: str) -> Tool | None:
        """`Use the search tool`: the one tool named, if only words of asking stand before its name."""
        words = re.findall(r"[\w']+", name[:200].lower())
        named = [(i, tool) for i, word in enumerate(words) for tool in self.tools if word == tool.name.lower()]
        if len({tool.name for _, tool in named}) != 1:
            return None
        at, tool = named[0]
        if not all(word in _FILLER for word in words[:at]):
            return None
        if not tool.args and not all(word in _FILLER for word in words[at + 1 :]):
            return None
        return tool

    def _input_before(self, text: str, mark: Mark, seen: Sequence[Mark], tool: Tool) -> Call | None:
        """The input written before its action, if the two stand next to each other."""
        if len(seen) < 2 or seen[-2].kind != "input":
            return None
        content = text[seen[-2].end : mark.start].strip()
        return self.inputs.read(tool, content) if content else None

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
    """What a reply thinks before its decision: its labelled thoughts or, without any, the text before its labels."""
    known = [mark for mark in labels if mark.end <= len(text)]
    if not known:
        return text
    parts = []
    for mark, following in zip(known, [*known[1:], None], strict=True):
        if mark.kind == "thought":
            parts.append(text[mark.end : following.start if following else len(text)].lstrip("* "))
    return " ".join(parts) or text[: known[0].start]
