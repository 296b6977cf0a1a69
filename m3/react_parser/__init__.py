"""Model text in, one action or one exact fault out; and the table of tools it may name.

The parser itself loads when it is first asked for: the table is all that the first prompt needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from m3.react_parser.table import TOOLS, ParseError, Tool, menu, resolve

if TYPE_CHECKING:
    from m3.react_parser.parse import ParsedStep, canonical_turn, parse_thought_action

__all__ = ["TOOLS", "ParseError", "ParsedStep", "Tool", "canonical_turn", "menu", "parse_thought_action", "resolve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import m3.react_parser.parse as parse

    return getattr(parse, name)
