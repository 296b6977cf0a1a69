"""JSON as language models write it: strict JSON first, then a tolerant reader that never completes a cut value.

Handled beyond JSON: Python literals, single, curly and triple quotes, backticks, bare keys and values, raw line breaks,
unescaped inner quotes, invalid escapes, comments, missing and trailing commas, missing brackets, a missing closing
quote when the bracket stands at the end of the line, doubled braces, HTML-escaped and backslash-escaped structure.

A text that ends inside a value is reported (`Reading.cut`), not completed: an action run with half a query or half a
URL is worse than none. That is why no repair library stands here. Measured by `bench/parser.py` with json-repair in
place of this reader: 122 of the 123 outputs of the catalogue are right (123 with this one), but of the same replies
cut off at every character 221 prefixes become calls with a piece of a value (0 with this one), because it completes
what is cut without saying so.

Time is linear: regular expressions have bounded look-ahead, nesting is limited, and the tolerant reader draws on a
`Budget` of steps that all readings of one model output share.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NamedTuple

from m3.patterns import lazy_pattern

MAX_DEPTH = 24
MAX_STEPS = 4_000
CHARS_PER_STEP = 64

_Place = Literal["key", "object", "array", "call", "top"]


class Unreadable(ValueError):
    """The text at this place is not JSON, however kindly read."""


class _Cut(Exception):
    """The text ends inside a value."""


class Budget:
    """Steps the tolerant reader may still take. One step is one token, or `CHARS_PER_STEP` characters looked at."""

    def __init__(self) -> None:
        self.steps = MAX_STEPS

    def spend(self, chars: int = 0) -> None:
        self.steps -= 1 + chars // CHARS_PER_STEP
        if self.steps < 0:
            raise Unreadable("too much broken text")


class Reading(NamedTuple):
    """What was read.

    value: a JSON value; None when `cut`. end: offset behind it in the text.
    cut: the text ends inside a value. closed: every bracket and quote was closed. repairs: what had to be mended.
    """

    value: Any
    end: int
    cut: bool = False
    closed: bool = True
    repairs: tuple[str, ...] = ()


class Arguments(NamedTuple):
    """The arguments of a call `tool(…)`: positional and named, with the same report as a `Reading`."""

    positional: list[Any]
    named: dict[str, Any]
    end: int
    cut: bool = False
    closed: bool = True


_STRICT = json.JSONDecoder(strict=False)  # raw line breaks in strings are allowed, as models write them
_HTML_ESCAPED = lazy_pattern(r"[{\[]\s{0,40}&(?:quot|#34|#x22|#39|apos);")
_BACKSLASH_ESCAPED = lazy_pattern(r"[{\[]\s{0,40}(?:\\n\s{0,40})?\\[\"']")


def read_json(text: str, start: int = 0, limit: int | None = None, budget: Budget | None = None) -> Reading:
    """Read one JSON value at `start`.

    A valid value may reach as far as it likes; a broken one is read only up to `limit`, so that it cannot swallow
    what follows it. Raises `Unreadable`.
    """
    try:
        value, end = _STRICT.raw_decode(text, start)
        return Reading(value, end)
    except (ValueError, RecursionError):
        pass
    limit = len(text) if limit is None else limit
    budget = budget or Budget()
    if _HTML_ESCAPED.match(text, start):
        import html

        inner = read_json(html.unescape(text[start:limit]), budget=budget)
        return Reading(inner.value, limit, inner.cut, inner.closed, (*inner.repairs, "HTML escapes"))
    if _BACKSLASH_ESCAPED.match(text, start):
        plain = re.sub(r"\\([\"'\\])|\\n", r"\1", text[start:limit])
        inner = read_json(plain, budget=budget)
        return Reading(inner.value, limit, inner.cut, inner.closed, (*inner.repairs, "escaped structure"))
    reader = _Reader(text[:limit], budget)
    try:
        value, end = reader.value(start, "top", 0)
    except _Cut:
        return Reading(None, limit, cut=True, closed=False)
    return Reading(value, end, closed=reader.closed, repairs=tuple(sorted(reader.repairs)))


def read_members(text: str, start: int = 0, limit: int | None = None, budget: Budget | None = None) -> Reading:
    """Read `key: value, …` as the inside of an object whose opening brace is missing. Raises `Unreadable`."""
    limit = len(text) if limit is None else limit
    reader = _Reader(text[:limit], budget or Budget())
    try:
        value, end = reader.members(start, 0)
    except _Cut:
        return Reading(None, limit, cut=True, closed=False)
    return Reading(value, end, closed=True, repairs=(*sorted(reader.repairs), "missing brace"))


def read_call(text: str, start: int, limit: int | None = None, budget: Budget | None = None) -> Arguments:
    """Read the arguments of a call; `start` is behind the opening parenthesis. Raises `Unreadable`."""
    limit = len(text) if limit is None else limit
    reader = _Reader(text[:limit], budget or Budget())
    try:
        positional, named, end = reader.call(start)
    except _Cut:
        return Arguments([], {}, limit, cut=True, closed=False)
    return Arguments(positional, named, end, closed=reader.closed)


# Quotes by family: a string closes with any quote of the family that opened it. The plain double quote closes only
# itself, so that curly quotes inside a plainly quoted string stay text.
_FAMILIES = {
    '"': '"',
    "'": "'’",
    "`": "`´",
    "‘": "'’‘‛",
    "’": "'’",
    "“": '"”“‟',
    "”": '"”',
    "„": '"“”',
    "«": "»",
    "＂": '＂"',
    "＇": "＇'",
}
_STOPS = {opening: lazy_pattern(f"[{closing}\\\\]") for opening, closing in _FAMILIES.items()}
_KEY_STOPS = lazy_pattern("[\"'`’‘”“»´＂＇\\\\]")
_SPACE = lazy_pattern(r"(?:\s+|//[^\n]*|/\*.{0,2000}?\*/|#[^\n]*)*", re.S)
_PREFIX = lazy_pattern(r"[rRbBuUfF]{1,2}(?=[\"'])")
_BARE_KEY = lazy_pattern(r"[^\W\d][\w$-]{0,60}(?: [\w$-]{1,30}){0,2}")
_PARAMETER = lazy_pattern(r"([^\W\d]\w{0,60})\s{0,20}(?:=(?!=)|:(?!//))")
_SEPARATOR = lazy_pattern(r"[ \t]*[\"'”]?[ \t]*(?:=>|[:：=]{1,2})")
_UNCLOSED_KEY = lazy_pattern(r"[\"'“]([\w-]{1,60})\s{0,4}:\s{0,8}(?=[\"'“\[{])")
_JOIN = lazy_pattern(r"[\"'][ \t]{0,20}(?:\+\s{0,20}|\n\s{0,80})[\"'](?![\s,}\])])")
_NEXT_KEY = r"(?:[\"'“”‘’`][^\W\d][\w -]{0,60}[\"'“”‘’`]|[^\W\d][\w-]{0,60}[\"'“”‘’`]?)[ \t]{0,20}(?:=>|[:：=])(?!//)"
_COMMENT = r"//|/\*|\#"
_OPEN_KEY = r"[\"'“‘`]?[\w -]{0,60}[\"'”’`]?\s{0,20}\Z"  # the text ends inside the next key

# What may stand behind a quote that really closes its string. A bracket counts unless a quote follows it on its line,
# because then the bracket is most likely text.
_AFTER_BRACKET = r"(?:[}\])]|\s){0,60}(?:\Z|[\"'][ \t]{0,20}(?:\Z|\n)|(?<=\n)|[^\"'”’\s}\])])"
_CLOSES: dict[_Place, re.Pattern[str]] = {
    "key": lazy_pattern(r"\s{0,60}(?:=>|[:：=])"),
    "object": lazy_pattern(
        rf"\s{{0,200}}(?:\Z|\}}{_AFTER_BRACKET}|[,，]\s{{0,200}}(?:{_NEXT_KEY}|[}}\],]|{_OPEN_KEY}|{_COMMENT})|{_COMMENT}|[\])][}}\])\s]{{0,20}}\Z)"
        rf"|\s{{0,200}}[\"'“‘`][\w -]{{1,60}}[\"'”’`][ \t]{{0,20}}:"
    ),
    "array": lazy_pattern(
        rf"\s{{0,200}}(?:\Z|[\]}})]{_AFTER_BRACKET}|,\s{{0,200}}(?:[\"'“‘`{{\[\]}}\d]|\Z)|{_COMMENT})"
        r"|[ \t]{1,40}[\"'](?:https?:|R\d)|\s{0,40}\n\s{0,200}[\"']"
    ),
    "call": lazy_pattern(
        rf"\s{{0,200}}(?:\Z|\){_AFTER_BRACKET}|,\s{{0,200}}(?:{_NEXT_KEY}|[\"'“‘`{{\[)\d]|[A-Za-z_]\w{{0,60}}\s?[,)]|\Z))"
    ),
    "top": lazy_pattern(r"\s{0,200}(?:\Z|[`*])|[ \t]{0,20}\n"),
}
# An odd number of quotes inside so far: only the plainest of these ends counts.
_SURELY_CLOSES = lazy_pattern(r"[\s}\])]{0,260}(?:\Z|(?<=\n)|,?\s{0,200}[\"'])")
_SWALLOWED_KEY = lazy_pattern(r"[\"'][\w-]{1,60}[\"'][ \t]{0,20}:")
_LINE_CLOSES: dict[_Place, re.Pattern[str]] = {
    "object": lazy_pattern(r"\}[}\]) \t]{0,40}(?:`{1,3}[ \t]{0,8})?(?:\n|\Z)|\n\s{0,80}\}"),
    "array": lazy_pattern(r"\][}\]) \t]{0,40}(?:`{1,3}[ \t]{0,8})?(?:\n|\Z)|\n\s{0,80}\]"),
    "call": lazy_pattern(r"\)[)\] \t]{0,40}(?:`{1,3}[ \t]{0,8})?(?:\n|\Z)"),
}
_BARE_STOPS: dict[_Place, re.Pattern[str]] = {
    "object": lazy_pattern(rf"\}}|\n|,\s{{0,40}}{_NEXT_KEY}|,\s{{0,40}}\}}|\s//|\s/\*"),
    "array": lazy_pattern(r"[,\]}\n]|\)(?=\s{0,40}(?:[,}\]]|\Z))"),
    "call": lazy_pattern(rf"[()\n]|,\s{{0,40}}{_NEXT_KEY}|,\s{{0,40}}[\"'{{\[]"),
}
_WORDS = {"true": True, "false": False, "null": None, "none": None, "undefined": None, "nil": None, "nan": None}
_NUMBER = lazy_pattern(r"-?\d{1,15}(?:\.\d{1,15})?")
_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_JSON_ESCAPED = "\"'\\/_*"  # and what Markdown escapes inside words
_ESCAPE = lazy_pattern(r"\\(u[0-9a-fA-F]{4}|.)", re.S)
_LITERAL_BACKSLASH = lazy_pattern(r"(?<!\\)(?:\\\\)*\\(?:[^\W_\dnrtbfu]|u(?![0-9a-fA-F]{4}))")


class _Reader:
    """One tolerant pass over a text. Offsets in, offsets out; `closed` and `repairs` say how kind it had to be."""

    def __init__(self, text: str, budget: Budget) -> None:
        self.text = text
        self.budget = budget
        self.closed = True
        self.repairs: set[str] = set()

    def skip(self, i: int) -> int:
        match = _SPACE.match(self.text, i)
        end = match.end() if match else i
        self.budget.spend(end - i)
        return end

    def value(self, i: int, place: _Place, depth: int) -> tuple[Any, int]:
        self.budget.spend()
        i = self.skip(i)
        if i >= len(self.text):
            raise _Cut
        if depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        char = self.text[i]
        if char == "{":
            return self.object(i + 1, depth)
        if char == "[" or (char == "(" and place != "call"):
            return self.array(i + 1, "]" if char == "[" else ")", depth)
        prefix = _PREFIX.match(self.text, i)
        if prefix:
            i, char = prefix.end(), self.text[prefix.end()]
        if char in _FAMILIES:
            return self.string(i, place)
        return self.bare(i, place)

    # --- objects, arrays, calls

    def object(self, i: int, depth: int) -> tuple[Any, int]:
        inside = self.skip(i)
        if self.text.startswith("{", inside):  # {{"query": …}}: the braces of a template
            self.repairs.add("doubled braces")
            value, end = self.value(inside, "object", depth + 1)
            after = self.skip(end)
            return value, after + 1 if self.text.startswith("}", after) else end
        return self.members(i, depth)

    def members(self, i: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            self.budget.spend()
            i = self.skip(i)
            if i >= len(self.text):
                if not found:
                    raise _Cut
                self.closed = False
                return found, i
            char = self.text[i]
            if char == "}":
                return found, i + 1
            if char in ",，])":
                i += 1
                continue
            key, i = self.key(i)
            value, i = self.value(i, "object", depth + 1)
            found[key] = value

    def key(self, i: int) -> tuple[str, int]:
        unclosed = _UNCLOSED_KEY.match(self.text, i)
        if unclosed:
            self.repairs.add("missing quote")
            return unclosed[1], unclosed.end()
        if self.text[i] in _FAMILIES:
            key, i = self.string(i, "key")
        else:
            match = _BARE_KEY.match(self.text, i)
            if not match:
                raise Unreadable("a key is expected")
            self.repairs.add("bare key")
            key, i = match[0], match.end()
        separator = _SEPARATOR.match(self.text, self.skip(i))
        if separator:
            return key, separator.end()
        if self.skip(i) >= len(self.text):
            raise _Cut
        raise Unreadable("a colon is expected")

    def array(self, i: int, close: str, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        comma = False
        while True:
            self.budget.spend()
            i = self.skip(i)
            if i >= len(self.text):
                if comma or not found:
                    raise _Cut  # more was to come
                self.closed = False
                return found, i
            char = self.text[i]
            if char == close:
                return found, i + 1
            if char == "}":  # the bracket is missing, the brace of the object around is there
                self.repairs.add("missing bracket")
                return found, i
            comma = char == ","
            if char in ",)]":
                i += 1
                continue
            value, i = self.value(i, "array", depth + 1)
            found.append(value)

    def call(self, i: int) -> tuple[list[Any], dict[str, Any], int]:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        while True:
            self.budget.spend()
            i = self.skip(i)
            if i >= len(self.text):
                if not positional and not named:
                    raise _Cut
                self.closed = False
                return positional, named, i
            if self.text[i] == ")":
                return positional, named, i + 1
            if self.text[i] in ",]}":
                i += 1
                continue
            key = _PARAMETER.match(self.text, i)
            if key:
                named[key[1]], i = self.value(key.end(), "call", 1)
            else:
                value, i = self.value(i, "call", 1)
                positional.append(value)

    # --- strings and bare words

    def scan(self, pattern: re.Pattern[str], at: int) -> re.Match[str] | None:
        match = pattern.search(self.text, at)
        self.budget.spend((match.end() if match else len(self.text)) - at)
        return match

    def string(self, i: int, place: _Place) -> tuple[str, int]:
        parts: list[str] = []
        while True:
            opening = self.text[i]
            if self.text.startswith(opening * 3, i):
                end = self.text.find(opening * 3, i + 3)
                if end < 0:
                    raise _Cut
                self.repairs.add("triple quotes")
                return self.text[i + 3 : end], end + 3
            stops = _KEY_STOPS if place == "key" else _STOPS[opening]
            part, at, joined = self._string_part(i, stops, place)
            parts.append(part)
            if joined is None:
                return "".join(parts), at
            self.repairs.add("joined strings")
            i = joined

    def _string_part(self, i: int, stops: re.Pattern[str], place: _Place) -> tuple[str, int, int | None]:
        """One quoted string: its text, the offset behind it, and where a string joined to it with `+` opens."""
        at, inner = i + 1, 0
        while True:
            stop = self.scan(stops, at)
            if stop is None:
                return (*self.unclosed(i, place), None)
            at = stop.end()
            if stop[0] == "\\":
                at += 1
                continue
            head = self.text[i + 1 : at - 1]
            closes = _CLOSES[place].match(self.text, at)
            if closes and (inner % 2 == 0 or stop[0] != '"' or _SURELY_CLOSES.match(self.text, at)):
                if at >= len(self.text) and (inner % 2 and stop[0] == '"' or head.endswith(" ")):
                    raise _Cut  # a quotation inside the string opens or ends here, more likely than the string
                return self.unescape(head), at, None
            joined = _JOIN.match(self.text, at - 1)
            if joined:
                return self.unescape(head), at, joined.end() - 1
            if place == "object" and _SWALLOWED_KEY.match(self.text, at - 1) and head.rstrip().endswith(","):
                self.repairs.add("missing quote")
                return self.unescape(head.rstrip()[:-1]), at - 1, None
            inner += 1
            self.repairs.add("inner quotes")

    def unclosed(self, i: int, place: _Place) -> tuple[str, int]:
        """A string without its closing quote: whole if its line ends with the closing bracket, else cut off."""
        ends = _LINE_CLOSES.get(place)
        if place == "key" and "}" in self.text[i:]:
            raise Unreadable("a key is not closed")
        end = self.scan(ends, i + 1) if ends else None
        if end is None or "\n" in self.text[i + 1 : end.start()]:
            raise _Cut
        self.repairs.add("missing quote")
        self.closed = False
        bracket = self.text.index(end[0].strip()[0], end.start())
        content = self.text[i + 1 : end.start()].rstrip()
        opening = {"}": "{", "]": "[", ")": "("}[self.text[bracket]]
        if content.count(opening) > content.count(self.text[bracket]):
            raise _Cut  # the bracket belongs to the text
        if content.endswith('\\"'):  # "C:\dir\"}: the backslash was meant as one
            content = content[:-1]
        return self.unescape(content), bracket

    def unescape(self, content: str) -> str:
        """Resolve escapes; a backslash before a letter that is no JSON escape is a real one (a path, TeX)."""
        if "\\" not in content:
            return content
        literal = _LITERAL_BACKSLASH.search(content) is not None

        def one(match: re.Match[str]) -> str:
            what = match[1]
            if len(what) == 5:
                return chr(int(what[1:], 16))
            if what in _SIMPLE_ESCAPES and not literal:
                return _SIMPLE_ESCAPES[what]
            # Beside a backslash that is real, one before a dot or a bracket is too (a regular expression).
            return match[0] if what.isalnum() or (literal and what not in _JSON_ESCAPED) else what

        text = _ESCAPE.sub(one, content)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def bare(self, i: int, place: _Place) -> tuple[Any, int]:
        stops = _BARE_STOPS.get(place)
        if stops is None:
            raise Unreadable("no value")
        self.repairs.add("bare value")
        at, open_parentheses = i, 0
        while True:
            stop = self.scan(stops, at)
            if stop is None:
                raise _Cut
            if stop[0] == "(":
                open_parentheses += 1
            elif stop[0] == ")" and open_parentheses:
                open_parentheses -= 1
            elif stop[0] == "\n" and place == "call":
                raise _Cut
            else:
                break
            at = stop.end()
        content = self.text[i : stop.start()].strip()
        if content.lower() in _WORDS:
            return _WORDS[content.lower()], stop.start()
        if _NUMBER.fullmatch(content):
            return (float(content) if "." in content else int(content)), stop.start()
        if content and content[-1] in "\"'”’" and content.count(content[-1]) == 1:
            content = content[:-1].rstrip()  # the opening quote is missing
        return (content or None), stop.start()
