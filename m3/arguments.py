"""Command line arguments whose faults are one line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from config import redact
from m3.untrusted import safe_line

USAGE_ERROR = 2


class Parser(argparse.ArgumentParser):
    """An argument parser that says a fault in one line, and takes no two values for an option that has one."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        for name in (None, "store"):  # what `add_argument` makes of an option whose action is not named
            self.register("action", name, _Once)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{self._advice(rest)}")
        return found

    def _advice(self, rest: Sequence[str]) -> str:
        """What was probably meant by arguments that nothing takes."""
        typed = next((argument.partition("=")[0] for argument in rest if argument.startswith("-")), "")
        if not typed:
            return " (a question of several words needs quotation marks around it)"
        from difflib import get_close_matches

        near = get_close_matches(typed, self._option_string_actions, 1, 0.75)
        return f" (did you mean {near[0]}?)" if near else ""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"error: {redact(safe_line(message, 600))}; --help lists the options\n")


class _Once(argparse.Action):
    """Stores a value. Another one for the same option is a fault: argparse itself silently takes the last."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        given: set[str] = namespace.__dict__.setdefault("_given", set())
        if option_string and self.dest in given and getattr(namespace, self.dest) != values:
            parser.error(f"{option_string} is given twice with different values; give it once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)
