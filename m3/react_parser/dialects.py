"""Calls in the native formats of model families: harmony, JSON objects, XML-like tags, tool(arguments).

They are looked at only where a reply holds no Action or Final Answer label. Sources of the formats: the chat templates
of the families and the bug reports named in tests/cases/react_outputs.json.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from m3.lenient_json import Arguments, Budget, Unreadable, read_call, read_json
from m3.patterns import lazy_pattern
from m3.react_parser.labels import marks
from m3.react_parser.table import Fault, Tool, key_of, resolve, unknown

MAX_CANDIDATES = 16


class Call(NamedTuple):
    """A call before its arguments are fitted. at: offset of the call in the text; closed: see `Reading`."""

    tool: Tool
    value: Any
    at: int = 0
    closed: bool = True
    thought: str = ""


# --- harmony (gpt-oss)

_HARMONY = lazy_pattern(
    r"<\|(?:channel|start|message)\|>|\Aanalysis(?=[A-Z\s])|\A(?:assistant)?(?:commentary|final)[ \t]"
    r"|\Ato=functions\.|assistantcommentary[ \t]{1,4}to="
)
_HARMONY_MESSAGE = lazy_pattern(r"<\|message\|>")
_HARMONY_END = lazy_pattern(r"<\|(?:end|call|return|start)\|>")
_RECIPIENT = lazy_pattern(r"\bto=([\w.:-]{1,80})")
_BARE_TURN = lazy_pattern(r"(?:\A|assistant)(analysis|commentary|final)(?=[A-Z\s{<\"'*#-]|\Z)")


class Message(NamedTuple):
    """One message of a reply that is written as several."""

    channel: str
    recipient: str
    content: str


def harmony(text: str) -> list[Message] | None:
    """The messages of a harmony reply, with or without its special tokens; None if it is none."""
    first = _HARMONY.search(text)
    if first is None:
        return None
    if any(mark.kind in ("action", "final") for mark in marks(text[: first.start()])):
        return None  # a token behind the decision is text
    if "<|" in text:
        return list(_with_tokens(text))
    return list(_without_tokens(text))


def _with_tokens(text: str) -> Iterator[Message]:
    """Split at the message tokens; the header before each names channel and recipient."""
    at = 0
    for mark in _HARMONY_MESSAGE.finditer(text):
        if mark.start() < at:
            continue
        header = text[at : mark.start()]
        end = _HARMONY_END.search(text, mark.end())
        content = text[mark.end() : end.start() if end else len(text)]
        at = end.start() if end else len(text)
        recipient = _RECIPIENT.search(header)
        channel = re.search(r"<\|channel\|>\s*(\w+)", header)
        yield Message(channel[1] if channel else "", recipient[1] if recipient else "", content.strip())
    if at == 0:  # a header without a message token
        rest = re.sub(r"<\|\w{1,20}\|>(?:analysis|commentary|final)?", " ", text)
        yield Message("final", "", rest.strip())


def _without_tokens(text: str) -> Iterator[Message]:
    """`analysis…assistantcommentary to=functions.search json{…}`: what is left when a server drops the tokens."""
    text = f"commentary {text}" if text.startswith("to=") else text
    turns = list(_BARE_TURN.finditer(text))
    for i, turn in enumerate(turns):
        content = text[turn.end() : turns[i + 1].start() if i + 1 < len(turns) else len(text)]
        recipient = re.match(r"\s*to=([\w.:-]{1,80})\s*(?:code|json)?\s*", content)
        body = content[recipient.end() :] if recipient else content
        yield Message(turn[1], recipient[1] if recipient else "", body.strip())


# --- objects that name a tool

_NAMES = (
    "name",
    "tool",
    "tool_name",
    "toolname",
    "action",
    "action_name",
    "function",
    "function_name",
    "recipient_name",
)
_INPUTS = (
    "arguments args parameters params input action_input actioninput tool_input toolinput tool_args tool_arguments "
    "action_args action_parameters function_args function_arguments kwargs inputs"
).split()
_CONTAINERS = (
    "tool_calls tool_call toolcall function_call functioncall calls actions action next_action next_step function "
    "tool_uses tool_use content message output result response"
).split()
_SIDE_KEYS = {
    "thought",
    "thoughts",
    "reasoning",
    "id",
    "type",
    "index",
    "tool_call_id",
    "call_id",
    "explanation",
    "step",
}
_FINAL_KEYS = ("final_answer", "finalanswer", "answer", "final_response")
_NOTHING = {"", "none", "null", "n/a", "na", "no action", "nothing"}


def named_call(value: Any, tools: Sequence[Tool], depth: int = 0) -> tuple[Tool, Any, str] | None:
    """`(tool, its raw arguments, thought)` of an object that names a tool, None if it names none.

    Raises `Fault` when it names a tool that does not exist.
    """
    if isinstance(value, list):
        return named_call(value[0], tools, depth) if value else None
    if not isinstance(value, dict) or depth > 6:
        return None
    keys = {key_of(key): item for key, item in value.items()}
    thought = next((keys[k] for k in ("thought", "thoughts", "reasoning") if isinstance(keys.get(k), str)), "")
    for key in _NAMES:
        name = keys.get(key)
        if not isinstance(name, str):
            continue
        if name.strip().lower() in _NOTHING:
            raise Fault("no_action", "the action is empty; name a tool")
        inputs = next((keys[k] for k in _INPUTS if k in keys), None)
        if inputs is None:
            inputs = {k: v for k, v in keys.items() if k not in _SIDE_KEYS and k != key}
            if key in ("name", "function") and not inputs and len(keys) == 1 and resolve(name, tools) is None:
                return None  # {"name": "Ada"} is data
        tool = resolve(name, tools)
        if (
            tool is None
            and isinstance(inputs, dict)
            and set(map(key_of, inputs)) & {"tool_uses", "tool_calls", "calls"}
        ):
            nested = named_call(inputs, tools, depth + 1)  # a call that only bundles calls
            if nested:
                return nested
        if tool is None:
            raise unknown(name, tools)
        return tool, inputs, thought
    for key in _CONTAINERS:
        item = keys.get(key)
        if isinstance(item, (dict, list)):
            found = named_call(item, tools, depth + 1)
            if found:
                return found[0], found[1], found[2] or thought
    for key, item in keys.items():
        tool = resolve(key, tools) if isinstance(item, (dict, str)) and key not in _SIDE_KEYS else None
        if tool is not None and set(keys) - _SIDE_KEYS == {key}:
            return tool, item, thought
    if any(isinstance(keys.get(key), str) and keys[key].strip() for key in _FINAL_KEYS):
        finish = resolve("finish", tools)
        return (finish, {}, thought) if finish else None
    return None


def by_arguments(value: Any, tools: Sequence[Tool]) -> Tool | None:
    """The only tool that takes exactly these argument names, for arguments that came without a tool's name."""
    if not isinstance(value, dict) or not value:
        return None
    keys = {key_of(key) for key in value}
    fitting = [
        tool
        for tool in tools
        if tool.args and keys <= set(tool.args) and all(keys & set(group) for group in tool.required)
    ]
    return fitting[0] if len(fitting) == 1 else None


# --- tags, markers, calls

_NAME = r"[\"'`]?(?P<name>[^\W\d][\w.:/-]{0,80})[\"'`]?"
_TAGGED = lazy_pattern(
    r"<\|?(?:\w{1,20}[|:]){0,2}(?:function|invoke|tool|tool_call|call)"
    rf"(?:\s{{0,4}}=\s{{0,4}}|\s{{1,8}}(?:name|tool)\s{{0,4}}=\s{{0,4}}|\(|/){_NAME}"
)
_MARKED = lazy_pattern(
    r"(?:\[TOOL_CALLS\]|<\|tool_call_begin\|>|<\|tool_call(?:_start)?\|?>|<(?:\w{1,12}:)?tool_call>|<\|tool_sep\|>"
    r"|<\|python_tag\|>|<start_function_call>|✿FUNCTION✿:|<tool_name>|<tool>|\bcommentary\s+to=)\s{0,8}"
    rf"(?:call:|function<\|tool_sep\|>)?{_NAME}"
)
_OBJECT = lazy_pattern(
    r"(?:^[ \t]{0,8}|[>\]`][ \t]{0,8}|<\|[\w|]{1,30}\|?>\s{0,8}|functools|(?:^|\s)json\s{0,4})"
    r"(?=[{\[]\s{0,40}(?:\{|\\?[\"'“‘\w]|&quot;))",
    re.M,
)


@lru_cache(maxsize=64)
def _patterns(names: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A statement or element that begins with the name of a known tool."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    known = rf"(?P<name>(?:[^\W\d][\w-]{{0,40}}[./:]){{0,3}}(?:{known}))"
    statement = re.compile(
        rf"^[ \t>*-]{{0,12}}`{{0,3}}(?:[^\W\d]\w{{0,30}}[ \t]?=[ \t]?)?(?:print\(|\[|await |return )?{known}"
        r"(?=[({\[]|>\s{0,4}\{|[ \t]{0,4}\n\s{0,8}(?:`{3}\w{0,12}\s{0,8})?\{)",
        re.M | re.I,
    )
    element = re.compile(rf"<{known}(?P<attributes>\s[^<>]{{0,500}}?)?(?P<empty>/?)>", re.I)
    return statement, element


def native_call(text: str, tools: Sequence[Tool], budget: Budget) -> Call | None:
    """The first call that a text without labels makes, or None. Raises `Fault` for a call that cannot be used."""
    if '<|"' in text or "<escape>" in text:  # Gemma's quotes
        text = re.sub(r"<(?:\|\"?|e|es|esc|esca|escap|escape)?\Z", "", text)
        text = text.replace('<|"|>', '"').replace("<escape>", '"')
    statement, element = _patterns(tuple(name for tool in tools for name in tool.all_names))
    found: list[tuple[int, int, re.Match[str]]] = []
    signs = ("<", "[<✿=", "<", "({[", "{[")  # what a text must hold for a pattern to be worth a pass
    for rank, pattern in enumerate((_TAGGED, _MARKED, element, statement, _OBJECT)):
        if any(sign in text for sign in signs[rank]):
            found += [(match.start(), rank, match) for match in islice(pattern.finditer(text), MAX_CANDIDATES)]
    found.sort(key=lambda entry: entry[:2])
    for at, rank, match in found[:MAX_CANDIDATES]:
        if rank == 4:
            call = _from_object(text, match, tools, budget)
        elif rank == 3:
            call = _from_statement(text, match, tools, budget)
        else:
            call = _from_tag(text, match, rank == 2, tools, budget)
        if call is not None:
            return Call(call.tool, call.value, at, call.closed, call.thought)
    return None


def _from_object(text: str, match: re.Match[str], tools: Sequence[Tool], budget: Budget) -> Call | None:
    start = match.end()
    try:
        reading = read_json(text, start, budget=budget)
    except Unreadable:
        return None
    if reading.cut:
        if re.search(
            r"[\"'](?:name|tool|action|function|arguments|tool_calls)[\"']\s{0,4}:", text[start : start + 400]
        ):
            raise Fault("truncated", "the call was cut off inside a value; write it again, shorter")
        return None
    named = named_call(reading.value, tools)
    if named is None:
        alone = not text[: match.start()].strip(" \t\n`") and not text[reading.end :].strip(" \t\n`")
        tool = by_arguments(reading.value, tools) if alone else None
        return Call(tool, reading.value, closed=reading.closed) if tool else None
    return Call(named[0], named[1], closed=reading.closed, thought=named[2])


def _from_statement(text: str, match: re.Match[str], tools: Sequence[Tool], budget: Budget) -> Call | None:
    """`search(query="…")` as a statement. In a longer piece of code it is code, not a call."""
    tool = resolve(match["name"], tools)
    if tool is None:
        return None
    inputs = read_inputs(text, match.end(), tool, budget)
    if inputs is None:
        return None
    rest = text[inputs.at :].split("```", 1)[0].strip(" \t\n)];`>")
    others = [line for line in rest.split("\n", 40) if line.strip()]
    if text[match.end()] in "([" and any(
        not re.match(r"[ \t)\]]*(?:\w+\s*=\s*)?(?:print\(|</?\w|<\||[\w.]+[(\[])", o) for o in others
    ):
        return None
    return inputs


def _from_tag(text: str, match: re.Match[str], element: bool, tools: Sequence[Tool], budget: Budget) -> Call | None:
    name = match["name"]
    after = match.end()
    if name.lower() in ("call", "function", "tool", "tool_call") and not element:
        return None
    tool = resolve(name, tools)
    if tool is None:
        raise unknown(name, tools)
    if element:
        attributes = dict(re.findall(r"([\w-]{1,40})\s{0,4}=\s{0,4}[\"']([^\"'<>]*)[\"']", match["attributes"] or ""))
        if any(tool.aliases.get(key_of(key), key_of(key)) in tool.args for key in attributes):
            return Call(tool, {k: html.unescape(v) for k, v in attributes.items()})
        close = re.search(rf"</{re.escape(name)}\s{{0,4}}>", text[after:], re.I)
        inputs = read_inputs(text, after, tool, budget)
        if inputs is not None:
            return inputs
        if close is None:
            return None if tool.args else Call(tool, {})
        content = html.unescape(text[after : after + close.start()].strip())
        return Call(tool, content) if content or not tool.args else None
    inputs = read_inputs(text, after, tool, budget)
    return inputs or (Call(tool, {}) if not tool.args else Call(tool, None))


# --- the arguments behind a name

_BETWEEN = lazy_pattern(
    r"(?:[\s>:,=)\"'`]|\]\s{0,4}(?=\s|[<{(])|\[ARGS\]|\[CALL_ID\][\w-]{0,40}|<\|[\w|]{1,40}\|?>|</tool_name>|</tool>"
    r"|<(?:arguments|args|parameters|params|input|tool_input)>|✿ARGS✿:?|(?:json|python|arguments?|args|parameters)(?=\s{0,4}[{:\n]))*"
)
_PARAMETER = lazy_pattern(
    r"<\|?(?:\w{1,20}[|:]){0,2}(?:parameter|param|arg|argument)(?:\s{0,4}=\s{0,4}|\s{1,8}name\s{0,4}=\s{0,4})"
    r"[\"']?(?P<key>[\w-]{1,60})[\"']?[^<>\n]{0,80}>(?P<value>[^<]*(?:<(?!/|\|?\w{0,20}[|:]?(?:parameter|param|arg)\b)[^<]*)*)(?P<close><?)"
)
_KEY_VALUE = lazy_pattern(
    r"<arg_key>\s{0,8}(?P<key>[^<>]{1,60}?)\s{0,8}</arg_key>\s{0,8}<arg_value>(?P<value>[^<]*)(?P<close><?)"
)
_CHILD = lazy_pattern(r"<(?P<key>[^\W\d][\w-]{0,40})>(?P<value>[^<]*)(?P<close><?)")


def read_inputs(text: str, at: int, tool: Tool, budget: Budget) -> Call | None:
    """The arguments that follow a tool's name at `at`, in whatever notation; None if none follow.

    `Call.at` is the offset behind them. Raises `Fault` (`truncated`).
    """
    gap = _BETWEEN.match(text, at)
    start = gap.end() if gap else at
    try:
        if text.startswith(("{", "[{", '["', "['"), start):
            reading = read_json(text, start, budget=budget)
            if reading.cut:
                raise _truncated(tool)
            return Call(tool, reading.value, reading.end, reading.closed)
        if text.startswith("(", start):
            return call_arguments(tool, read_call(text, start + 1, budget=budget))
        if start == at and text.startswith("[", at):
            return _bracketed(text, at + 1, tool, budget)
    except Unreadable:
        return None
    values: dict[str, Any] = {}
    patterns = (_PARAMETER, _KEY_VALUE) if not text.startswith("<", start) else (_PARAMETER, _KEY_VALUE, _CHILD)
    for pattern in patterns:
        if pattern is _CHILD and not _CHILD.match(text, start):
            continue
        for match in islice(pattern.finditer(text, start), MAX_CANDIDATES):
            if pattern is _CHILD and tool.aliases.get(key_of(match["key"]), key_of(match["key"])) not in tool.args:
                continue
            if not match["close"]:
                raise _truncated(tool)
            value: Any = html.unescape(match["value"].strip())
            key = key_of(match["key"])
            if key in values:
                break  # the next call begins
            values[key] = value
        if values:
            return Call(tool, values, len(text))
    return None


def call_arguments(tool: Tool, arguments: Arguments) -> Call:
    """The arguments of `tool(…)` as an object: positional ones take the tool's argument names in order."""
    if arguments.cut and tool.args:
        raise _truncated(tool)
    named: Any = dict(arguments.named)
    positional = arguments.positional
    if positional and not named and len(positional) == 1:
        named = positional[0]
    elif positional and tool.plain_argument and list in tool.args.values():
        named.setdefault(tool.plain_argument, positional)
    else:
        free = [name for name in tool.args if name not in named]
        named |= dict(zip(free, positional, strict=False))
    return Call(tool, named, arguments.end, arguments.closed)


def _bracketed(text: str, at: int, tool: Tool, budget: Budget) -> Call:
    """`Search[ozone layer]`, the notation of the first ReAct prompts."""
    line_end = text.find("\n", at)
    line_end = len(text) if line_end < 0 else line_end
    end = text.rfind("]", at, line_end)
    if end < 0:
        if tool.args:
            raise _truncated(tool)
        end = line_end
    content = text[at:end].strip()
    if re.match(r"\w{1,40}\s?=\s?[\"'\[]", content):
        return call_arguments(tool, read_call(content + ")", 0, budget=budget))
    if len(content) > 1 and content[0] in "\"'" and content[-1] == content[0]:
        content = content[1:-1]
    return Call(tool, content, end + 1)


def _truncated(tool: Tool) -> Fault:
    return Fault("truncated", f"the input was cut off; write it again, shorter: {tool.line}")
