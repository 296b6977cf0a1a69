"""The command line: arguments in, progress on stderr, the report on stdout, an exit code back."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import config
from config import Config, ConfigError
from m3.arguments import FILE_OPTIONS, JOBS, OUT_DIR, USAGE_ERROR, WRITTEN, build_parser, prepare_streams
from m3.files import is_special, why_not_writable, write_atomic
from m3.logs import set_up as set_up_logging
from m3.records import (
    ActionEvent,
    DivergedError,
    Event,
    FinalEvent,
    LimitEvent,
    NoticeEvent,
    ObservationEvent,
    RunControl,
    ThoughtEvent,
    TraceError,
)
from m3.untrusted import safe_line

if TYPE_CHECKING:
    from m3.journal import Journal
    from m3.report import FinalOutput
    from m3.sessions import StoreResult


def main(
    argv: Sequence[str],
    run: Callable[..., FinalOutput],
    build_llm: Callable[[Config], Any],
    build_memory: Callable[[Config], Any],
) -> int:
    """Run the command line. `run`, `build_llm` and `build_memory` are the driver's; returns the exit code."""
    prepare_streams()
    set_up_logging()
    try:
        code = _main(argv, run, build_llm, build_memory)
        sys.stdout.flush()
        return code
    except ConfigError as problem:
        print(f"error: {config.redact(str(problem))}", file=sys.stderr)
        return USAGE_ERROR
    except (TraceError, DivergedError) as problem:
        complain(f"error: {problem}")
        return USAGE_ERROR if isinstance(problem, TraceError) else 1
    except KeyboardInterrupt:  # before or after the run, which handles it itself
        return 128 + signal.SIGINT
    except OSError as problem:
        if problem.filename is not None:
            complain(f"error: {problem.filename}: {problem.strerror}")
            return 1
        return _output_lost(problem)
    except Exception:  # noqa: BLE001  a traceback tells values, a key among them
        return _program_failed()


def _program_failed() -> int:
    """Print the traceback of a fault of the program itself, without secrets; the exit code."""
    import traceback

    lines = (safe_line(line, 600) for line in config.redact(traceback.format_exc()).splitlines())
    print("\n".join(["error: the program failed; please report this:", *lines]), file=sys.stderr)
    return 1


def _output_lost(problem: OSError) -> int:
    """Standard output cannot be written: quietly when its reader went away, as `| head` does. The exit code."""
    _silence(sys.stdout)
    if isinstance(problem, BrokenPipeError):
        return 0
    complain(f"error: cannot write to standard output: {problem.strerror}")
    return USAGE_ERROR


def complain(text: str) -> None:
    """One line on standard error, where it can be written; a closed terminal is no further fault."""
    with contextlib.suppress(OSError):
        print(config.redact(safe_line(text, 600)), file=sys.stderr)


def _silence(stream: TextIO) -> None:
    """Point a stream that cannot be written to nowhere, so that the interpreter's last flush is quiet too."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def as_program(main: Callable[[], int]) -> NoReturn:
    """Run `main` as what this process is for, and end the process."""
    # A run lives for minutes and makes few circles. Looking for them every 700 objects, the interpreter's default, took
    # a sixth of its CPU; looking rarely costs 2 MiB (`bench/peers.py`).
    gc.set_threshold(150_000, 20, 50)
    _leave(main())


def _leave(code: int) -> NoReturn:
    """End the process at once.

    The interpreter's own ending takes everything apart first: 0.02 s and more, for memory that the system takes back
    anyway. Where calls that were given up still run in threads, it also waits for pools and can crash on a daemon
    thread that wakes up meanwhile.
    """
    if threading.active_count() == 1:
        atexit._run_exitfuncs()
    elif "multiprocessing" in sys.modules:
        import multiprocessing

        for child in multiprocessing.active_children():
            child.kill()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _main(
    argv: Sequence[str],
    run: Callable[..., FinalOutput],
    build_llm: Callable[[Config], Any],
    build_memory: Callable[[Config], Any],
) -> int:
    args = build_parser().parse_args(argv)
    for option in FILE_OPTIONS:
        flag, given = f"--{option.replace('_', '-')}", getattr(args, option)
        if given == "":
            raise ConfigError(f"{flag} is empty; give a value or leave it out")
        if given == "-" and option in (*WRITTEN, "out_dir"):
            raise ConfigError(
                f"{flag} cannot go to standard output, where the report goes; name a file (./- for one named -)"
            )
    if args.show:
        from m3.trace import show

        for line in show(args.show):
            print(config.redact(line))
        return 0
    if args.verify:
        from m3.trace import check_again

        same, lines = check_again(args.verify)
        for line in lines:
            print(config.redact(line))
        return 0 if same else 1
    if args.replay:
        return _replay(args, run)
    if not args.queries and (args.out_dir is not None or args.jobs is not None):
        raise ConfigError("--out-dir and --jobs belong to --queries; give it, or leave them out")
    settings = config.load_config(overrides=_overrides(args), web=args.web)
    if args.model is not None and settings.llm_provider == "mock":
        raise ConfigError(f"--model is {args.model!r}, but the offline mock would answer ({settings.llm_reason})")
    if args.check:
        build_llm(settings)
        print(config.describe_settings(settings))
        return 0
    if args.queries:
        return _batch(args, settings, run, build_llm(settings))
    if args.memory:
        from m3.memory_commands import run_command

        for warning in settings.warnings:
            if not warning.startswith("OFFLINE"):  # neither model nor search is used here
                Progress(sys.stderr).warn(warning)
        return run_command(args.memory, args.all, build_memory(settings), lambda line: print(config.redact(line)))
    query, journal, recorded = _question(args)
    _check_outputs(args)
    llm = build_llm(settings)  # a missing key or package is said before anything is started
    progress = Progress(sys.stderr, quiet=args.quiet)
    for warning in settings.warnings:
        progress.warn(warning)
    if args.resume:
        from m3.trace import other_services

        for warning in other_services(recorded, settings):
            progress.warn(warning)
    header: dict[str, Any] = {}
    if args.trace_out:
        from m3.trace import part_of, trace_header

        header = trace_header(query, settings, llm.model, journal.history)
        journal.path = None if is_special(args.trace_out) else part_of(args.trace_out)
        journal.begin(header)
    control = RunControl()
    with _signals(control) as signals:
        answer = _Answer(args, progress, signals)
        output = run(query, config=settings, llm=llm, on_event=answer, control=control, resume=journal)
        with signals.finishing():
            code = _write_files(output, args, header, journal) or output.exit_code
        if output.outcome == "partial" and args.trace_out and Path(args.trace_out).is_file():
            progress(NoticeEvent(f"to go on with this run: --resume {args.trace_out}"))
    return _signal_code(control) or answer.fault or code


def _batch(args: argparse.Namespace, settings: Config, run: Callable[..., FinalOutput], llm: Any) -> int:
    """Many questions. 0 when none failed, 1 when one did, 128 + its number after a signal."""
    from m3.batch import read_questions, run_batch

    jobs = JOBS if args.jobs is None else args.jobs
    if jobs < 1:
        raise ConfigError(f"--jobs is {jobs}; it must be a whole number of at least 1")
    if args.query is not None or args.question is not None:
        raise ConfigError("--queries takes its questions from a file; leave the other question out")
    questions = read_questions(args.queries)
    for warning in settings.warnings:
        Progress(sys.stderr).warn(warning)
    control = RunControl()
    with _signals(control):
        rows = run_batch(questions, Path(args.out_dir or OUT_DIR), jobs, settings, run, llm, control)
    for row in rows:
        print(
            f"{row.outcome:<10} {row.tokens:>8} tokens {row.seconds:>8.1f} s  {row.report}  {safe_line(row.query, 80)}"
        )
    failed = any(row.outcome == "failed" for row in rows)
    return _signal_code(control) or int(failed)


def _replay(args: argparse.Namespace, run: Callable[..., FinalOutput]) -> int:
    """Play a recorded run again: no network, no key, the same summary or the exact place where it differs."""
    from m3.trace import Replay

    _check_outputs(args)
    replay = Replay(args.replay)
    answer = _Answer(args, Progress(sys.stderr, quiet=args.quiet))
    output = run(
        replay.query, config=replay.config, llm=replay.llm, search=replay.llm, fetcher=replay.llm,
        memory=NoMemory(), on_event=answer, resume=replay.journal,
    )  # fmt: skip
    code = _write_files(output, args, replay.header, replay.journal) or answer.fault or output.exit_code
    if replay.recorded_summary and output.summary != replay.recorded_summary:
        print("error: the replay's summary differs from the recorded one", file=sys.stderr)
        return 1
    return code


class NoMemory:
    """The long-term memory of a replay: it recalls nothing and keeps nothing."""

    def store_research(self, output: FinalOutput, *, control: RunControl | None = None) -> StoreResult:
        from m3.sessions import StoreResult

        return StoreResult(False, "a replay is not remembered", skipped=True)

    def retrieve_related(self, query: str, limit: int = 3, *, control: RunControl | None = None) -> tuple[()]:
        return ()


def _check_outputs(args: argparse.Namespace) -> None:
    seen: dict[str, str] = {}
    for option in WRITTEN:
        path, flag = getattr(args, option), f"--{option.replace('_', '-')}"
        if not path:
            continue
        problem = why_not_writable(path)
        if problem:
            raise ConfigError(f"cannot write {path}: {problem}")
        other = seen.setdefault(os.path.realpath(path), flag)
        if other != flag and not is_special(path):
            raise ConfigError(f"{other} and {flag} both name {path}; give each its own file")


def _overrides(args: argparse.Namespace) -> dict[str, str]:
    """Settings given as options, by environment name. An option that is given empty is a fault, not unset."""
    chosen = {}
    for _, f in config.all_settings():
        given = getattr(args, f.metadata["env"], None)
        if given is not None:
            values = given if isinstance(given, list) else [given]
            if not all(value.strip() for value in values):
                raise ConfigError(f"{f.metadata['flag']} is empty; give a value or leave it out")
            chosen[f.metadata["env"]] = ",".join(values)
    if args.no_memory:
        chosen["MEMORY_BACKEND"] = "none"
    if args.model is not None:
        provider, colon, name = args.model.partition(":")
        if colon and provider in config.LLM_PROVIDERS:
            chosen["LLM_PROVIDER"] = provider
        else:
            name = args.model
        if not name.strip():
            raise ConfigError("--model is empty; give a model's name or leave it out")
        chosen |= {f"{p.upper()}_MODEL": name for p in config.LLM_PROVIDERS if p != "mock"}
    return chosen


def _question(args: argparse.Namespace) -> tuple[str, Journal, dict[str, Any]]:
    """The question, the journal to record into (a new one, or that of the run to go on with), that run's header."""
    from m3.journal import Journal

    if args.query is not None and args.question is not None:
        raise ConfigError("the question is given twice; give it either bare or with --query")
    text = args.query if args.query is not None else args.question
    if args.resume:
        from m3.trace import resume_of

        recorded, journal = resume_of(args.resume)
        query = str(recorded["query"])
        if text is not None and text.strip() != query:
            raise ConfigError(f"--resume goes on with the question of {args.resume}; leave the other one out")
        return query, journal, recorded
    if text == "-":
        text = sys.stdin.read()
    if text is None:
        raise ConfigError('no question; give one: m3_react_agent.py --query "…"')
    if not text.strip():
        raise ConfigError("the question is empty")
    return str(text).strip(), Journal(), {}


class _Answer:
    """Prints the result the moment it is there: what comes after (remembering the run) must not delay it.

    fault: the exit code of a result that could not be printed, else 0; the run and its files go on without.
    """

    def __init__(self, args: argparse.Namespace, progress: Progress, signals: _signals | None = None) -> None:
        self._args, self._progress, self._signals = args, progress, signals
        self.fault = 0

    def __call__(self, event: Event) -> None:
        self._progress(event)
        if isinstance(event, FinalEvent):
            with self._signals.finishing() if self._signals else contextlib.nullcontext():
                self._print(event.output)

    def _print(self, output: FinalOutput) -> None:
        # What an encoding lacks is escaped by the stream, but not as JSON would have it.
        plain = not (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
        text = (
            json.dumps(output.to_dict(), ensure_ascii=plain, indent=1) + "\n"
            if self._args.json
            else output.to_markdown()
        )
        try:
            sys.stdout.write(config.redact(text))
            sys.stdout.flush()
        except OSError as problem:
            self.fault = _output_lost(problem)


def _write_files(output: FinalOutput, args: argparse.Namespace, header: dict[str, Any], journal: Journal) -> int:
    """Write the files that were asked for, once the report has been printed; the exit code of a fault, else 0."""
    code = 0
    if args.summary_out:
        code = _write(args.summary_out, config.redact(output.to_markdown()))
    if args.report_out:
        from m3.report_html import to_html

        code = _write(args.report_out, config.redact(to_html(output))) or code
    if args.bibtex or args.csl:
        from m3.bibliography import bibtex, csl_json

        for path, render in ((args.bibtex, bibtex), (args.csl, csl_json)):
            if path:
                code = _write(path, config.redact(render(output.sources))) or code
    if args.trace_out:
        from m3.trace import trace_json

        fault = _write(args.trace_out, trace_json(header, journal, output))
        # A resumed run that was stopped before it had played all it knew leaves its journal: it holds more.
        journal.close(remove=not fault and not journal.replaying)
        code = fault or code
    for fault_line in journal.faults:
        complain(f"warning: {fault_line}")
    return code


def _write(path: str, text: str) -> int:
    try:
        write_atomic(Path(path), text)
    except OSError as problem:
        complain(f"error: cannot write {path}: {problem.strerror}")
        return USAGE_ERROR
    return 0


class Progress:
    """Prints events as they happen: one plain line each, coloured on a terminal unless NO_COLOR is set."""

    COLOURS = {
        "Thought": "36",
        "Action": "33",
        "Observation": "90",
        "note": "35",
        "limit": "31",
        "fault": "31",
        "WARNING": "1;31",
    }

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream, self._quiet = stream, quiet
        self._colour = stream.isatty() and not os.environ.get("NO_COLOR")

    def __call__(self, event: Event) -> None:
        if self._quiet:
            return
        if isinstance(event, ThoughtEvent):
            self._line("Thought", f"[{event.step}] {event.thought}")
        elif isinstance(event, ActionEvent):
            self._line("Action", f"[{event.step}] {event.tool} {json.dumps(dict(event.args), ensure_ascii=False)}")
        elif isinstance(event, ObservationEvent):
            self._line("Observation", f"[{event.step}] {event.said or event.observation}")
        elif isinstance(event, NoticeEvent):
            self._line("note", event.message)
        elif isinstance(event, LimitEvent):
            self._line("fault" if event.stop_reason == "provider_error" else "limit", event.message)

    def warn(self, text: str) -> None:
        self._line("WARNING", text, limit=1_000)

    def _line(self, label: str, text: str, limit: int = 300) -> None:
        shown = f"\x1b[{self.COLOURS[label]}m{label}:\x1b[0m" if self._colour else f"{label}:"
        # A terminal that was closed must not end the run: its report and files are still wanted.
        with contextlib.suppress(OSError):
            print(f"{shown} {safe_line(text, limit)}", file=self._stream, flush=True)


class _signals:
    """SIGINT, SIGTERM and SIGHUP ask the run to end with what it has. A second SIGINT ends the process at once, but
    for the writing of the result, which gets two seconds; a second SIGTERM or SIGHUP changes nothing."""

    PATIENCE = 2.0  # seconds

    def __init__(self, control: RunControl) -> None:
        self._control = control
        self._old: dict[int, Any] = {}
        self._finishing = False
        self._leave = 0

    def __enter__(self) -> _signals:
        for name in ENDING:
            number = getattr(signal, name, None)
            # What was ignored when the program was started, as `nohup` does with SIGHUP, stays ignored.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: object) -> None:
        if not self._control.stopped:
            self._control.stop(signal.Signals(number).name)
        elif number == signal.SIGINT and not self._finishing:
            os._exit(128 + number)
        elif number == signal.SIGINT and not self._leave:
            self._leave = 128 + number
            timer = threading.Timer(self.PATIENCE, os._exit, (self._leave,))
            timer.daemon = True
            timer.start()

    @contextlib.contextmanager
    def finishing(self) -> Iterator[None]:
        """While the result is written, a signal waits."""
        self._finishing = True
        try:
            yield
        finally:
            self._finishing = False
            if self._leave:
                os._exit(self._leave)

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)


ENDING = ("SIGINT", "SIGTERM", "SIGHUP")


def _signal_code(control: RunControl) -> int:
    """128 + the number of the signal that ended the run, as shells have it; 0 for none."""
    return 128 + getattr(signal, control.stop_cause) if control.stop_cause in ENDING else 0
