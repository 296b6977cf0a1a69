"""The tool table: what the model may name, with which arguments, and how raw arguments become the canonical ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from m3.lenient_json import Budget, Unreadable, read_json
from m3.patterns import lazy_pattern

ParseError = Literal["empty", "no_action", "unknown_tool", "missing_input", "bad_args", "truncated"]


class Fault(Exception):
    """Why a reply holds no usable action; `detail` is one clause that the model can act on."""

    def __init__(self, kind: ParseError, detail: str) -> None:
        super().__init__(detail)
        self.kind: ParseError = kind
        self.detail = detail


@dataclass(frozen=True)
class Tool:
    """One entry of the tool table. To add a tool: one entry here, one function that runs it.

    args: argument name to its type (`str`, `int`, `float`, `bool`, `list` of strings, `dict`), in the order of a
    positional call; line: what the model reads; aliases: other names that models give an argument; required: groups of
    which at least one argument must be present; handler: for tools that a caller adds, the function
    `(args, context) -> observation text`; one_line: arguments in which line breaks are noise and become a space;
    plain: the argument that an input without JSON fills (by default the only one, if it is a string);
    tidy: `(raw arguments, notes) -> arguments` for a tool whose values need more than their type; it must be
    idempotent, so that a canonical turn parses back to itself.

    names: other names that models may call it by; runs: the built-in tool that this entry stands for under a name of
    its own (`search_web` for `search`): it takes that tool's place, and the built-in's name becomes one of its names;
    rules: lines that the system prompt says of its use; composed: the handler is `(args, suite, control) -> text`,
    reaches the outside only through the suite's recorded operations and neutralises what it shows, so that a replay
    runs it again instead of recalling its text; at_once: of `finish`, that it may be the first action of any run,
    whose answer is then written from the conversation alone.
    """

    name: str
    args: Mapping[str, type]
    line: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    required: tuple[tuple[str, ...], ...] = ()
    handler: Callable[..., str] | None = None
    one_line: frozenset[str] = frozenset()
    plain: str | None = None
    tidy: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    names: tuple[str, ...] = ()
    runs: str = ""
    rules: tuple[str, ...] = ()
    composed: bool = False
    at_once: bool = False

    @property
    def built_in(self) -> str:
        """The name of the built-in tool that an entry without a handler is carried out by."""
        return self.runs or self.name

    @property
    def all_names(self) -> tuple[str, ...]:
        """Every name that a model may call it by, its own first."""
        return tuple(dict.fromkeys(name for name in (self.name, self.runs, *self.names) if name))

    @property
    def plain_argument(self) -> str | None:
        if self.plain is None and len(self.args) == 1 and next(iter(self.args.values())) is str:
            return next(iter(self.args))
        return self.plain


# --- what fetch accepts

_SCHEME = lazy_pattern(r"[a-z][a-z0-9+.-]{1,15}://\S*\w", re.I)
_RESULT = lazy_pattern(r"[\[(]?\s*(?:results?\s*|R)#?\s*(\d{1,4})\s*[\])]?", re.I)
_NUMBER = lazy_pattern(r"\[?\s*#?(\d{1,4})\s*\]?")
_LINK = lazy_pattern(r"\[[^\]\n]{0,300}\]\(\s*<?([^\s()<>]+(?:\([^\s()<>]*\)[^\s()<>]*)*)>?(?:\s+\"[^\"\n]*\")?\s*\)")
_SPLIT = lazy_pattern(r"(?:\s*[,;|]\s*|\s+(?:and\s+|&\s+)?)(?=<?\[?(?:https?://|R\d{1,4}\b))", re.I)
_FILE = lazy_pattern(
    r"[^\n<>{}\"]{1,200}\.(?:md|txt|html?|pdf|rst|csv|json|docx?)", re.I
)  # a document of a local folder, spaces allowed
_ADDRESS = lazy_pattern(r"[^\s<>{}\[\]\"'`,;]{1,2000}")


def _address(text: str) -> str | None:
    """The URL or document name that a string is, freed of Markdown, or None. Whether it may be read is not asked."""
    text = " ".join(text.split()).strip("`'\"")
    link = _LINK.fullmatch(text)
    text = (link[1] if link else text.removeprefix("<").removesuffix(">")).strip()
    if text.endswith(("...", "…")):  # shortened on the way: no address any more
        return None
    if _SCHEME.match(text):
        return text if not re.search(r"[\s<>{}\"`]", text) else None
    if _ADDRESS.fullmatch(text) and re.search(r"\w[./:]\w", text):
        return text
    return text if _FILE.fullmatch(text) and "://" not in text else None


def _tidy_fetch(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Sort results (`R1`), one URL and several URLs into their arguments, under whatever name they were given."""
    results: list[str] = []
    links: list[str] = []
    many = False
    for key, value in raw.items():
        many = many or (isinstance(value, list) and key != "results")
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                item = next((item[k] for k in ("url", "link", "href", "result", "id") if k in item), None)
            if isinstance(item, int) and not isinstance(item, bool) and key == "results":
                item = f"R{item}"
            parts = _SPLIT.split(item) if isinstance(item, str) else []
            if key == "results" and isinstance(item, str) and re.fullmatch(r"[\d\s,;]+", item):
                parts = re.findall(r"\d+", item)
            for part in (p.strip() for p in parts):
                named = _RESULT.fullmatch(part) or (_NUMBER.fullmatch(part) if key == "results" else None)
                url = None if named else _address(part)
                if named and int(named[1]):
                    results.append(f"R{int(named[1])}")
                elif url:
                    links.append(url)
    results, links = list(dict.fromkeys(results)), list(dict.fromkeys(links))
    found: dict[str, Any] = {"results": results} if results else {}
    if links:
        found |= {"urls": links} if many or len(links) > 1 else {"url": links[0]}
    return found


TOOLS: tuple[Tool, ...] = (
    Tool(
        "search",
        {"query": str},
        '{"query": "…"}: search; returns numbered results R1, R2, …',
        aliases=dict.fromkeys(
            "q question queries search search_query search_term search_terms search_text search_string "
            "searchquery query_string querystring query_text user_query keywords keyword term terms text topic "
            "input prompt".split(),
            "query",
        ),
        required=(("query",),),
        one_line=frozenset({"query"}),
        plain="query",
    ),
    Tool(
        "fetch",
        {"results": list, "url": str, "urls": list},
        '{"results": ["R1", "R3"]} or {"url": "…"}: read up to 4 pages; each becomes a [Source N] with its passages',
        aliases={
            **dict.fromkeys("result ids id result_id result_ids numbers".split(), "results"),
            **dict.fromkeys(
                "link links uri uris href address page pages page_url web_page webpage website site site_url "
                "source_url target path document documents file filename input q query text".split(),
                "url",
            ),
        },
        required=(("results", "url", "urls"),),
        plain="url",
        tidy=_tidy_fetch,
    ),
    Tool(
        "extract",
        {"source": int, "question": str},
        '{"source": 1, "question": "…"}: more passages of a page you have read',
        aliases={
            **dict.fromkeys("source_number source_id sources number n s page id".split(), "source"),
            **dict.fromkeys("query q topic text about search focus".split(), "question"),
        },
        required=(("source",), ("question",)),
        one_line=frozenset({"question"}),
    ),
    Tool("finish", {}, "{}: end the research; the report is then written from the sources"),
)


def menu(added: Sequence[Tool], tools: Sequence[Tool] = TOOLS) -> tuple[Tool, ...]:
    """The tool table of one run: `tools`, then what a caller adds.

    An added entry that has the name of a tool, or runs it, stands in that tool's place.
    """
    places = {entry.built_in: entry for entry in added}
    first = tuple(places.get(tool.name, tool) for tool in tools)
    return (*first, *(entry for entry in added if entry not in first))


# --- names

# Other names of `finish` that stand for nothing else: the older ReAct formats end with them.
_FINISH_NAMES = frozenset({"finalanswer", "finalresponse"})
_METHODS = frozenset({"call", "run", "invoke", "execute"})


def resolve(name: str, tools: Sequence[Tool]) -> Tool | None:
    """The tool of a name as models write it: any case, quoted, with a namespace or a call id; None if unknown."""
    name = re.split(r"<\|", name, maxsplit=1)[0].strip().strip("`*\"'“”‘’[]()<>{} \t.:,;_").lower()
    name = re.sub(r":\d{1,4}$", "", name)
    parts = [part for part in re.split(r"[./:]|__", name) if part]
    if len(parts) > 1 and parts[-1] in _METHODS:
        parts.pop()
    last = re.sub(r"[_ -]?(?:tool|function|action)$", "", parts[-1]) if parts else ""
    known = {other.lower(): tool for tool in tools for other in tool.all_names}
    known |= {tool.name.lower(): tool for tool in tools}
    if name in known:
        return known[name]
    if parts and not any(part in known for part in parts[:-1]):  # search/fetch names two
        tool = known.get(parts[-1]) or known.get(last)
        if tool is not None:
            return tool
    if re.sub(r"[ _-]", "", name) in _FINISH_NAMES:
        return next((tool for tool in tools if tool.name == "finish"), None)
    return None


def unknown(name: str, tools: Sequence[Tool]) -> Fault:
    known = ", ".join(tool.name for tool in tools)
    shown = " ".join(name.split())[:60]
    return Fault("unknown_tool", f"there is no tool {shown!r}; use one of {known}")


# --- arguments

_WRAPPERS = frozenset(
    "arguments args parameters params input inputs action_input actioninput tool_input toolinput kwargs data payload "
    "json body function_args".split()
)
_NAME_KEYS = frozenset("name tool tool_name action action_name function function_name".split())
_PLACEHOLDERS = frozenset(
    "string|str|text|none|null|nil|n/a|na|undefined|url|query|input|your query|your query here|search query|"
    "the input to the action|the input to the tool".split("|")
)


_NO_VALUE = lazy_pattern(r"<[\w -]{1,40}>|\(?(?:no (?:input|arguments?|parameters?)(?: \w{1,12})?|empty)\)?", re.I)


def key_of(key: object) -> str:
    """A key in the form in which keys are compared."""
    return re.sub(r"[\s-]+", "_", str(key).replace("\\", "").strip().strip("\"'`*“”:").strip().lower())


def is_blank(text: str) -> bool:
    """True for what stands where a value should: nothing, dots, `<query>`, the word for nothing."""
    text = text.strip().strip("\"'`")
    if not re.search(r"[^\W_]", text):
        return True
    return text.lower() in _PLACEHOLDERS or _NO_VALUE.fullmatch(text) is not None


class Fitter:
    """Fits raw arguments to a tool: wrappers opened, aliases mapped, types coerced, unknown keys dropped."""

    def __init__(self, notes: list[str], budget: Budget) -> None:
        self.notes = notes
        self.budget = budget

    def fit(self, tool: Tool, value: Any, depth: int = 0) -> dict[str, Any]:
        """The canonical arguments. Raises `Fault`."""
        if not tool.args:
            return {}
        if depth > 8:
            raise Fault("bad_args", f"the input is wrapped too deeply; give {tool.line}")
        if isinstance(value, str):
            return self._fit_text(tool, value, depth)
        if isinstance(value, list):
            return self._fit_list(tool, value, depth)
        if isinstance(value, dict):
            return self._fit_object(tool, value, depth)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and tool.plain_argument:
            return self._finish(tool, {tool.plain_argument: value}, {})
        raise Fault("bad_args", f"the input is not a JSON object; give {tool.line}")

    def _fit_text(self, tool: Tool, text: str, depth: int) -> dict[str, Any]:
        stripped = text.strip()
        if stripped[:1] in ("{", "["):
            inner = self._decoded(stripped)
            if inner is not None:
                return self.fit(tool, inner, depth + 1)
        if stripped.startswith("{"):
            raise Fault("bad_args", f"the input is not one whole JSON object; give {tool.line}")
        if tool.plain_argument is None:
            raise Fault("bad_args", f"the input is not a JSON object; give {tool.line}")
        return self._finish(tool, {tool.plain_argument: text}, {tool.plain_argument: text})

    def _decoded(self, text: str) -> Any:
        """The JSON object or list that a string holds, or None."""
        try:
            reading = read_json(text, budget=self.budget)
        except Unreadable:
            return None
        if reading.cut or text[reading.end :].strip():
            return None
        return reading.value if isinstance(reading.value, (dict, list)) else None

    def _fit_list(self, tool: Tool, items: list[Any], depth: int) -> dict[str, Any]:
        if not items:
            raise Fault("bad_args", f"the input is an empty list; give {tool.line}")
        if tool.plain_argument and list in tool.args.values() and not isinstance(items[0], dict):
            return self._finish(tool, {tool.plain_argument: items}, {})
        if len(items) > 1:
            self.notes.append("only the first of several inputs was used")
        return self.fit(tool, items[0], depth + 1)

    def _fit_object(self, tool: Tool, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        if isinstance(value.get("properties"), dict) and "type" in value:
            raise Fault("bad_args", f"the input repeats the schema instead of giving values; give {tool.line}")
        keys = {key_of(key): item for key, item in value.items()}
        found: dict[str, Any] = {}
        unknown_keys = []
        for key, item in keys.items():  # a canonical name comes before an alias of it
            if key in tool.args:
                found[key] = item
        for key, item in keys.items():
            name = tool.aliases.get(key)
            if name is None and key not in tool.args:
                unknown_keys.append(key)
            elif name is not None and name not in found and not isinstance(item, dict):
                found[name] = item
            elif name is not None and name not in found and key in _WRAPPERS | {"query"}:
                return self.fit(tool, item, depth + 1)
        opened = self._opened(tool, keys, found, depth)
        if opened is not None:
            return opened
        if unknown_keys and found:
            self.notes.append(f"unknown keys dropped: {', '.join(k[:30] for k in unknown_keys[:5])}")
        return self._finish(tool, found, found)

    def _opened(self, tool: Tool, keys: dict[str, Any], found: dict[str, Any], depth: int) -> dict[str, Any] | None:
        """The arguments inside a wrapper: `{"arguments": {…}}`, `{"name": "search", "arguments": {…}}`,
        `{"search": {…}}`, `{"query": {"query": …}}`."""
        inner = [key for key in keys if key in _WRAPPERS or key == tool.name.lower()]
        if not found and inner:
            names = [keys[key] for key in keys if key in _NAME_KEYS and isinstance(keys[key], str)]
            if names and resolve(names[0], (tool,)) is None:
                raise Fault("bad_args", f"the input names another tool than the action; give {tool.line}")
            return self.fit(tool, keys[inner[0]], depth + 1)
        if len(found) == 1:
            item = next(iter(found.values()))
            text = item.strip() if isinstance(item, str) else ""
            if text.startswith("{") and text.endswith("}"):
                item = self._decoded(text)
            if isinstance(item, dict) and any(tool.aliases.get(key_of(k), key_of(k)) in tool.args for k in item):
                return self.fit(tool, item, depth + 1)
        return None

    def _finish(self, tool: Tool, found: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        if list in tool.args.values():
            found = {name: self._listed(item) for name, item in found.items()}
        if tool.tidy is not None:
            args = tool.tidy(found)
        else:
            args = {name: self._coerce(tool, name, found[name]) for name in tool.args if name in found}
            args = {name: item for name, item in args.items() if item is not None}
        for group in tool.required:
            if not any(name in args for name in group):
                what = " or ".join(group)
                why = "has no usable value" if any(name in given for name in group) else "is missing"
                raise Fault("bad_args", f"{what} {why}; give {tool.line}")
        return args

    def _listed(self, item: Any) -> Any:
        """A list that came as its text."""
        if isinstance(item, str) and item.strip().startswith("[") and item.strip().endswith("]"):
            inner = self._decoded(item.strip())
            return inner if isinstance(inner, list) else item
        return item

    def _coerce(self, tool: Tool, name: str, item: Any) -> Any:
        """An item in the type its argument has, or None if it holds no usable value."""
        wanted = tool.args[name]
        if wanted is not list and isinstance(item, list):
            if len(item) > 1:
                self.notes.append(f"only the first of several values of {name} was used")
            item = item[0] if item else None
        if wanted is str:
            return _text(item, name in tool.one_line)
        if wanted is int:
            return _whole(item)
        if wanted is bool:
            return item if isinstance(item, bool) else _BOOLEANS.get(str(item).strip().lower())
        if wanted is float:
            return _number(item)
        if wanted is list:
            items = item if isinstance(item, list) else [item]
            return [text for text in (_text(entry, True) for entry in items) if text is not None] or None
        return item if isinstance(item, wanted) else None


_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}


def _text(item: Any, one_line: bool) -> str | None:
    if isinstance(item, bool) or not isinstance(item, (str, int, float)):
        return None
    text = str(item).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if one_line:
        text = " ".join(re.sub(r"[\x00-\x1f\x7f\u200b\ufeff]", " ", text).split())
    return None if is_blank(text) else text


def _whole(item: Any) -> int | None:
    if isinstance(item, bool):
        return None
    if isinstance(item, str):
        match = re.fullmatch(r"\s*[\[(]?\s*(?:source\s*|s)?#?\s*(-?\d{1,9})\s*[\])]?\s*", item, re.I)
        return int(match[1]) if match else None
    if isinstance(item, float):
        return int(item) if item.is_integer() and abs(item) < 1e9 else None
    return item if isinstance(item, int) and abs(item) < 10**9 else None


def _number(item: Any) -> float | None:
    try:
        number = float(item) if isinstance(item, (str, int, float)) and not isinstance(item, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
