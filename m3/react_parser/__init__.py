"""Model text in, one action or one exact fault out; and the table of tools it may name."""

from m3.react_parser.parse import ParsedStep, canonical_turn, parse_thought_action
from m3.react_parser.table import TOOLS, ParseError, Tool, menu, resolve

__all__ = ["TOOLS", "ParseError", "ParsedStep", "Tool", "canonical_turn", "menu", "parse_thought_action", "resolve"]
