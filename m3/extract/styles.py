"""Style declarations and the rules of a page's style blocks, as far as they can hide text.

Sheets from other files are not fetched and scripts are not run, so this knows what the page itself says: inline
declarations, presentational attributes, and the rules that hold on a wide screen. Lexbor's own matcher decides which
element a selector means. The cascade is the usual one: importance, specificity, order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from m3.patterns import lazy_pattern

MAX_SHEET = 2_000_000  # characters of all style blocks that are read
MAX_RULES = 30_000
MAX_STEPS = 8_000_000  # nodes that are tried against selectors, over all searches of one page; some 2 s
BY_RULE = "@rule"  # a key that no property has

Declarations = Mapping[str, str]

# Everything that `visibility` looks at; other properties are not kept.
PROPERTIES = frozenset(
    "display visibility opacity filter content-visibility position left right top bottom width height max-width "
    "max-height overflow overflow-x overflow-y clip clip-path transform scale translate text-indent margin-left "
    "margin-top font font-size color background background-color background-image background-clip "
    "-webkit-background-clip -webkit-text-fill-color text-shadow inset inset-inline-start inset-block-start".split()
)
_COMMENT = lazy_pattern(r"/\*.*?(?:\*/|\Z)", re.S)
_TOKEN = lazy_pattern(r"[{}]|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|\burl\([^)\"']*\)", re.S)
_NEVER = lazy_pattern(r"::|:(?:before|after|first-(?:line|letter)|hover|focus|active|target|visited|checked)\b", re.I)
_DEAR = lazy_pattern(r":(?:nth|has|first-of|last-of|only-of)|~", re.I)
_SIMPLE = lazy_pattern(r"(?:[a-zA-Z][\w-]*)?(?:[.#](?:[\w-]|\\.|[^\x00-\x7f])+)*")
_ARGUMENTS = lazy_pattern(r"\([^()]*\)|\[[^\]]*\]")
_COMBINATORS = lazy_pattern(r"[\s>+~]+")
_PSEUDO = lazy_pattern(r"(?<!\\):[\w-]+")
_KEY = lazy_pattern(r"#((?:[\w-]|\\.|[^\x00-\x7f])+)|\.((?:[\w-]|\\.|[^\x00-\x7f])+)|^([a-zA-Z][\w-]*)")
_WIDE = lazy_pattern(r"\(\s*min-(?:device-)?width\s*:\s*([\d.]+)(px|em|rem)?\s*\)")
_NARROW = lazy_pattern(r"\(\s*max-(?:device-)?width\s*:\s*([\d.]+)(px|em|rem)?\s*\)")
SCREEN_PX = 1_280.0  # the window that is meant


@lru_cache(maxsize=8_192)
def declarations(text: str) -> Declarations:
    """The kept properties of a declaration list with their values, lower-cased; `!important` wins, then the last."""
    found, important = _parsed(text)
    return {**found, **important}


@lru_cache(maxsize=8_192)
def _parsed(text: str) -> tuple[dict[str, str], dict[str, str]]:
    found: dict[str, str] = {}
    important: dict[str, str] = {}
    for part in _COMMENT.sub(" ", text[:20_000]).split(";"):
        name, colon, value = part.partition(":")
        name = _unescaped(name.strip()).lower()
        if not colon or name not in PROPERTIES:
            continue
        value, mark, _ = value.partition("!")
        (important if mark else found)[name] = " ".join(_unescaped(value).lower().split())
    return found, important


def _unescaped(text: str) -> str:
    """CSS escapes resolved: `d\\69splay` is `display`."""
    if "\\" not in text:
        return text
    return re.sub(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", lambda m: _character(m[1]) if m[1] else m[2], text)


def _character(code: str) -> str:
    number = int(code, 16)
    return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"


@dataclass(frozen=True)
class Rule:
    """One selector with its declarations. `rank` orders rules of equal importance: specificity, then place."""

    selector: str
    plain: Declarations
    important: Declarations
    rank: tuple[int, int]
    simple: frozenset[str] | None  # of one compound of tag, classes and id: the keys an element must have

    @property
    def declared(self) -> Declarations:
        return {**self.plain, **self.important}


@dataclass
class Sheet:
    """The rules of a page, by the rightmost id, class or tag of their selectors, so that few are tried per element."""

    rules: dict[str, list[Rule]] = field(default_factory=dict)
    imports: bool = False  # another sheet is loaded, whose rules are unknown
    root: Any = None  # the Lexbor node in which selectors are looked for,
    nodes: int = 0  # with so many below it
    _found: dict[str, frozenset[int]] = field(default_factory=dict)  # selector -> its nodes
    # (tag, class, id) -> the rules that mean every such element, and those that may mean one; of this sheet alone
    _tried: dict[tuple[str, str, str], tuple[list[Rule], list[Rule]]] = field(default_factory=dict, init=False)
    _left: int = MAX_STEPS

    @classmethod
    def of_texts(cls, texts: list[str]) -> Sheet:
        sheet = cls()
        text = _COMMENT.sub(" ", "\n".join(texts)[:MAX_SHEET])
        sheet.imports = "@import" in text
        for number, (selectors, body) in enumerate(_blocks(text)):
            if number >= MAX_RULES:
                break
            plain, important = _parsed(body)
            if plain or important:
                for selector in _split(selectors):
                    sheet._add(selector, plain, important, number)
        return sheet

    def _add(self, selector: str, plain: Declarations, important: Declarations, number: int) -> None:
        if not selector or _NEVER.search(selector):
            return  # a state or a part of an element, not the element as it stands
        simple = None
        if _SIMPLE.fullmatch(selector):
            bare, keys = selector, _KEY.findall(selector)
            counted = keys
            simple = frozenset(_unescaped(f"#{i}" if i else f".{c}" if c else t.lower()) for i, c, t in keys)
        else:
            bare = _PSEUDO.sub("", _ARGUMENTS.sub("", _ARGUMENTS.sub("", selector)))
            keys = _KEY.findall(_COMBINATORS.split(bare.strip())[-1])
            counted = _KEY.findall(_COMBINATORS.sub("", bare))
        identifier = next((f"#{i}" for i, _, _ in keys if i), "")
        name = next((f".{c}" for _, c, _ in keys if c), "")
        tag = next((t.lower() for _, _, t in keys if t), "")
        specificity = 10_000 * bare.count("#") + 100 * (bare.count(".") + selector.count("[")) + len(counted)
        rule = Rule(selector, plain, important, (specificity, number), simple)
        self.rules.setdefault(_unescaped(identifier or name or tag), []).append(rule)

    def all_rules(self) -> Iterator[Rule]:
        return (rule for rules in self.rules.values() for rule in rules)

    def only(self, wanted: Callable[[Rule], bool]) -> Sheet:
        """A sheet of the rules that are wanted, over the same page."""
        chosen = {key: [rule for rule in rules if wanted(rule)] for key, rules in self.rules.items()}
        return replace(self, rules={key: rules for key, rules in chosen.items() if rules})

    def matching(self, node: Any, tag: str, attributes: Mapping[str, Any]) -> list[Rule]:
        """The rules of this sheet that mean an element."""
        if not self.rules:
            return []
        names = tag, attributes.get("class", ""), attributes.get("id", "")
        if names not in self._tried:
            self._tried[names] = self._candidates(*names)
        sure, others = self._tried[names]
        if not others:
            return sure
        place = node.mem_id
        return sure + [rule for rule in others if place in self._nodes(rule.selector)]

    def _candidates(self, tag: str, classes: str, identifier: str) -> tuple[list[Rule], list[Rule]]:
        """The rules that mean every element of such a tag, class and id, and those that may mean one by its place."""
        keys = [f"#{identifier}"] if identifier else []
        keys += [*(f".{c}" for c in dict.fromkeys(classes.split())), tag]
        own = frozenset(keys)
        rules = [rule for key in (*keys, "") for rule in self.rules.get(key, ())]
        return [r for r in rules if r.simple is not None and r.simple <= own], [r for r in rules if r.simple is None]

    def _nodes(self, selector: str) -> frozenset[int]:
        nodes = self._found.get(selector)
        if nodes is None:
            nodes = self._found[selector] = self._search(selector)
        return nodes

    def _search(self, selector: str) -> frozenset[int]:
        # Counting siblings or looking below for each node costs a power of the nodes.
        self._left -= int(float(self.nodes) ** min(4, 1 + len(_DEAR.findall(selector))))
        if self._left < 0 or self.root is None:
            return frozenset()
        try:
            return frozenset(node.mem_id for node in self.root.css(selector))
        except Exception:  # noqa: BLE001 - selectolax has its own error, for a selector that Lexbor cannot read
            return frozenset()

    def of(self, node: Any, tag: str, attributes: Mapping[str, Any], inline: str) -> Declarations:
        """What holds for an element: its matching rules and its inline style in the order of the cascade.

        `BY_RULE` holds the selector of the rule that decided on `display`, where one did.
        """
        rules = sorted(self.matching(node, tag, attributes), key=lambda r: r.rank)
        plain, important = _parsed(inline) if inline else ({}, {})
        found: dict[str, str] = {}
        layers = [*((r.plain, r.selector) for r in rules), (plain, "")]
        layers += [*((r.important, r.selector) for r in rules), (important, "")]
        for layer, selector in layers:
            found.update(layer)
            if "display" in layer:
                found[BY_RULE] = selector
        return found


def _split(selectors: str) -> list[str]:
    """A selector list cut at its commas, those inside brackets apart."""
    if "(" not in selectors and "[" not in selectors:
        return [s.strip() for s in selectors.split(",")]
    parts, depth, start = [], 0, 0
    for i, character in enumerate(selectors):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth <= 0:
            parts.append(selectors[start:i].strip())
            start = i + 1
    return [*parts, selectors[start:].strip()]


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """(selector list, declarations) of every rule that holds on a wide screen, in order; nested rules opened."""
    heads: list[str] = []
    bodies: list[str] = []
    start = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "{":
            # What stands before the last semicolon belongs to the rule around, or is an @import.
            before, _, head = text[start : match.start()].rpartition(";")
            if heads:
                bodies[-1] += before + ";"
            heads.append(head.strip())
            bodies.append("")
            start = match.end()
        elif token == "}":
            if heads:
                head, body = heads.pop(), bodies.pop() + text[start : match.start()]
                if not head.startswith("@") and all(_holds(h) for h in heads if h.startswith("@")):
                    yield _nested([h for h in heads if not h.startswith("@")], head), body
            start = match.end()


def _nested(above: list[str], selector: str) -> str:
    """A rule that stands inside another one: `&` is the outer selector, and a blank stands for `&` before it."""
    if not above:
        return selector
    outer = f":is({', '.join(_split(above[-1]))})" if len(above) == 1 else above[-1]
    return ", ".join(s.replace("&", outer) if "&" in s else f"{outer} {s}" for s in _split(selector))


def _holds(at_rule: str) -> bool:
    """Whether a grouping rule's content holds for a person at a wide screen."""
    name, _, condition = at_rule.lower().partition(" ")
    if name in ("@layer", "@supports", "@container"):
        return " not " not in f" {condition}"
    if not name.startswith("@media"):
        return False
    condition = (name[6:] + " " + condition).strip()
    return any(_medium_holds(one) for one in condition.split(","))


def _medium_holds(condition: str) -> bool:
    widths = [(_pixels(m), True) for m in _WIDE.finditer(condition)]
    widths += [(_pixels(m), False) for m in _NARROW.finditer(condition)]
    rest = _NARROW.sub(" ", _WIDE.sub(" ", condition))
    if not set(rest.split()) <= {"screen", "all", "only", "and"}:
        return False
    return all(px <= SCREEN_PX if least else px >= SCREEN_PX for px, least in widths)


def _pixels(match: re.Match[str]) -> float:
    return float(match[1].rstrip(".") or 0) * (16 if match[2] in ("em", "rem") else 1)
