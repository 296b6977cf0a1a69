"""The command line's options, and their faults in one line. Little is loaded with them, so that `--help` is quick."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import config
from config import redact
from m3.untrusted import safe_line

USAGE_ERROR = 2
OUT_DIR, JOBS = "runs", 4  # of --queries, where they are not given
WRITTEN = ("trace_out", "summary_out", "report_out", "bibtex", "csl")  # options that name a file to write
FILE_OPTIONS = (*WRITTEN, "resume", "replay", "verify", "show", "queries", "out_dir")
EXIT_HELP = """exit codes: 0 answered, 3 partial (a limit or a fault ended it), 4 nothing supports an answer,
1 failed with nothing read, 2 wrong arguments or settings or a file that could not be written,
130/143/129 ended by SIGINT/SIGTERM/SIGHUP (a second SIGINT ends at once).
Settings come from the environment and .env; see .env.example, or --check for what is in force."""


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


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="m3_react_agent.py",
        description="Research a question; get a short report in which every cited sentence can be checked.",
        epilog=EXIT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("question", nargs="?", help="the question; - reads it from standard input")
    parser.add_argument("--query", metavar="TEXT", help="the question, as an option")
    parser.add_argument("--trace-out", metavar="FILE", help="write the whole run as JSON")
    parser.add_argument("--summary-out", metavar="FILE", help="write the report as Markdown")
    parser.add_argument("--report-out", metavar="FILE", help="write the report as one HTML file with every passage")
    parser.add_argument("--bibtex", metavar="FILE", help="write the cited sources as BibTeX")
    parser.add_argument("--csl", metavar="FILE", help="write the cited sources as CSL-JSON")
    parser.add_argument("--json", action="store_true", help="print the result as JSON instead of Markdown")
    parser.add_argument("--quiet", action="store_true", help="print no progress, only warnings and the result")
    parser.add_argument("--model", metavar="NAME", help="model of the provider, or provider:model")
    parser.add_argument("--web", action="store_true", help="search the web too when documents are searched")
    parser.add_argument(
        "--memory",
        metavar="COMMAND",
        nargs="+",
        help='earlier runs: list, search "…", show ID, forget ID, forget --all, reindex, stats',
    )
    parser.add_argument("--all", action="store_true", help="with --memory forget: every run")
    parser.add_argument("--no-memory", action="store_true", help="neither recall earlier runs nor remember this one")
    parser.add_argument("--check", action="store_true", help="print every setting and which providers would be used")
    parser.add_argument("--resume", metavar="TRACE", help="go on with a run that was cut off or hit a limit")
    parser.add_argument("--replay", metavar="TRACE", help="play a recorded run again, without network or key")
    parser.add_argument("--verify", metavar="TRACE", help="check the citations of a recorded run again")
    parser.add_argument("--show", metavar="TRACE", help="print a recorded run step by step")
    parser.add_argument("--queries", metavar="FILE", help="research many questions, one JSON line (or plain line) each")
    parser.add_argument("--out-dir", metavar="DIR", help=f"where --queries writes (default: {OUT_DIR})")
    parser.add_argument("--jobs", metavar="N", type=int, help=f"questions of --queries at a time (default: {JOBS})")
    parser.add_argument("--version", action="version", version=f"m3 research agent {config.VERSION}")
    for _, f in config.all_settings():
        if f.metadata["flag"]:
            default = "" if f.default in (None, ()) else f" (default: {config.shown_value(f, f.default)})"
            parser.add_argument(
                f.metadata["flag"],
                metavar=(f.metadata["unit"].replace(" ", "-") or f.name.rpartition("_")[2]).upper(),
                dest=f.metadata["env"],
                action="append" if f.metadata["repeat"] else "store",
                help=f"{f.metadata['meaning']}{default}; {f.metadata['env']}",
            )
    return parser


def print_help(argv: Sequence[str]) -> None:
    """Where the arguments ask for help, print it and end the process; return where they do not after all."""
    prepare_streams()
    build_parser().parse_args(argv)


def prepare_streams() -> None:
    """Standard output and error that can be written to, whatever the caller and the locale made of them."""
    # A stream that the caller closed is None: what would go there goes nowhere, the run is worth its files.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  it lives as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
