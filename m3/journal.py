"""The journal of a run: every effect from outside, in order, so that the run can go on or be played again.

The loop is deterministic but for what comes from outside: model replies, search results, pages, clock readings.
Each of these passes through `Journal.perform`, which writes it down before the loop sees it. A journal that is
opened with earlier records answers from them first: when they run out, `resume` goes on for real, `replay` stops.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import config
from m3.codec import CodecError, from_plain, to_plain
from m3.files import replace_open, write_all
from m3.records import DivergedError, LLMError, Message, RunControl, TraceError, Usage
from m3.worker import DeadlineReached, guarded

SCHEMA_VERSION = 1
NOT_REMEMBERED = "This run was not remembered"  # how the note on a save that failed begins
T = TypeVar("T")


@dataclass(frozen=True)
class Effect:
    """One recorded answer of the outside. `request` says what was asked, `digest` tells requests apart."""

    number: int
    kind: str
    digest: str
    request: Any
    result: Any = None
    error: dict[str, Any] | None = None
    seconds: float = 0.0

    def as_plain(self) -> dict[str, Any]:
        """The record as it is written. The result is plain data already, and large where it holds pages."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass
class Journal:
    """Records effects to `path` (one JSON line each, written and synced before the loop goes on), or in memory.

    While it answers from `recorded` it writes nothing: the file of the earlier run stays as it is until the first new
    effect, and is then replaced at once by one that holds all effects so far.

    recorded: effects that answer first. live: whether the outside may be asked once they are used up, or once the
    run asks for something else (a resumed run under new limits leaves the recorded path where these let it go on).
    """

    path: Path | None = None
    recorded: deque[Effect] = field(default_factory=deque)
    live: bool = True
    effects: list[Effect] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # of writing; the run goes on without its journal
    history: Sequence[Message] = ()  # earlier turns of the conversation that the recorded run was part of
    remembered: bool = False  # the recorded run ended and lies in long-term memory

    def __post_init__(self) -> None:
        self._file: int | None = None
        self._header: dict[str, Any] | None = None
        self._asked = False  # something that was not recorded

    @property
    def adds_nothing(self) -> bool:
        """True when the run is one that is remembered already: all it asked for was answered from the record."""
        return self.remembered and not self._asked

    @property
    def replaying(self) -> bool:
        """True while the next effect is answered from the record."""
        return bool(self.recorded)

    def begin(self, header: dict[str, Any]) -> None:
        """Say what the run was asked and with which settings: the first line of the file."""
        if self.path is None:
            return
        self._header = {"schema": SCHEMA_VERSION, "version": config.VERSION, **header}
        if not self.recorded:
            self._open()

    def _open(self) -> None:
        """Put a file with the header and all effects so far in the place of the old one."""
        lines = [_line(record) for record in (self._header, *(effect.as_plain() for effect in self.effects))]
        self._header = None
        try:
            self._file = replace_open(self.path or "", "".join(lines))
        except OSError as problem:
            self._fault(problem)

    def _fault(self, problem: OSError) -> None:
        self.faults.append(f"the journal {self.path} cannot be written: {problem.strerror}")

    def perform(
        self,
        kind: str,
        request: Any,
        result_type: type[T],
        do: Callable[[], T],
        control: RunControl | None = None,
    ) -> T:
        """The answer of the outside to `request`: from the record while there is one, else by `do`.

        With `control`, `do` is left behind when the control has expired and it does not end by itself. Raises
        DivergedError where the record holds something else, what the recorded or real call did (an LLMError; of
        other errors a recorded one has the name and the words only), and DeadlineReached for a call that was given up.
        """
        request = to_plain(request)
        digest = _digest(request)
        if self.recorded and not self._matches(kind, digest, request):
            self.recorded.clear()
        if self.recorded:
            return self._recall(result_type)
        if not self.live:
            raise DivergedError(
                f"record {len(self.effects) + 1}: the run asks for {_name(kind, request)}; the record ends here"
            )
        self._asked = True
        started = time.monotonic()
        number = len(self.effects) + 1
        try:
            result = do() if control is None else guarded(do, control)
            plain = to_plain(result)
        except Exception as problem:
            self._keep(Effect(number, kind, digest, request, error=_as_record(problem), seconds=_since(started)))
            raise
        self._keep(Effect(number, kind, digest, request, plain, seconds=_since(started)))
        return result

    def decide_limit(self, compute: Callable[[], str]) -> str:
        """The stop reason that ends the loop here, or "". Replayed, it is what the record says, whatever the clock;
        resumed, it is computed anew, since a run is resumed to get past a limit."""
        if self.recorded and not self.live:
            return str(self.perform("limit", "", str, str)) if self.recorded[0].kind == "limit" else ""
        if self.recorded and self.recorded[0].kind == "limit":
            self.recorded.popleft()
        reason = compute()
        if reason:
            self._keep(Effect(len(self.effects) + 1, "limit", _digest(""), "", reason))
        return reason

    def bounded(self, what: str, work: Callable[[Mapping[str, int] | None], tuple[T, Mapping[str, int]]]) -> T:
        """Work on what is here already, which the clock may cut: `work(cut)` gives its result and where it was cut.

        It is given None where the clock counts, and else where the recorded run was cut (nowhere: an empty mapping), so
        that a replay cuts at the same place. Only a cut is recorded. A resumed run has its own time, but it repeats
        a cut that a later model call was asked after, lest that call be paid again.
        """
        # The next cut may be that of later work: what is known already is not done again, however late it is.
        cut_next = bool(self.recorded) and (self.recorded[0].kind, self.recorded[0].request) == ("cut", what)
        if not self.live or any(effect.kind == "model" for effect in self.recorded):
            return work(self.perform("cut", what, dict[str, int], dict) if cut_next else {})[0]
        if cut_next:
            self.recorded.popleft()
        result, cut = work(None)
        if cut:
            self._keep(Effect(len(self.effects) + 1, "cut", _digest(what), what, dict(cut)))
        return result

    def _matches(self, kind: str, digest: str, request: Any) -> bool:
        effect = self.recorded[0]
        if (effect.kind, effect.digest) == (kind, digest):
            return not (self.live and (effect.error or {}).get("given_up"))  # a resumed run tries it again
        if self.live:
            return False
        raise DivergedError(
            f"record {effect.number}: recorded was {_name(effect.kind, effect.request)},"
            f" the run now asks for {_name(kind, request)}{_where(effect.request, request)}"
        )

    def _recall(self, result_type: type[T]) -> T:
        effect = self.recorded.popleft()
        self._keep(effect)
        if effect.error is not None:
            if effect.error.get("given_up"):
                raise DeadlineReached
            raise _from_record(effect.error)
        return from_plain(result_type, effect.result)

    def _keep(self, effect: Effect) -> None:
        effect = replace(effect, number=len(self.effects) + 1)
        self.effects.append(effect)
        if self.recorded:
            return
        if self._header is not None:
            self._open()
        elif self._file is not None:
            try:
                write_all(self._file, _line(effect.as_plain()))
                os.fsync(self._file)
            except OSError as problem:
                self._fault(problem)
                os.close(self._file)
                self._file = None

    def close(self, *, remove: bool = False) -> None:
        """Close the file; `remove` it once the finished trace has taken its place."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if remove and self.path is not None and self.path.exists():
            self.path.unlink()


def read_journal(path: str | Path) -> tuple[dict[str, Any], list[Effect]]:
    """Header and effects of a journal (`.part`) or of a finished trace. A half last line is ignored.

    Raises TraceError.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as problem:
        raise TraceError(f"cannot read {path}: {problem.strerror}") from None
    whole = _parsed(data)
    if isinstance(whole, dict) and isinstance(whole.get("effects"), list):
        header = {key: value for key, value in whole.items() if key != "effects"}
        records = whole["effects"]
    else:
        records = _lines(path, data)
        header = records.pop(0) if records and isinstance(records[0], dict) and "schema" in records[0] else {}
    if header.get("schema") != SCHEMA_VERSION or "query" not in header:
        raise TraceError(f"{path} is no trace of this program (schema {header.get('schema')!r}, need {SCHEMA_VERSION})")
    try:
        return header, from_plain(list[Effect], records)
    except CodecError as problem:
        raise TraceError(f"{path}: {problem}") from None


def _lines(path: str | Path, data: bytes) -> list[Any]:
    """The records of a journal. Its last line may be cut off anywhere, also inside a character."""
    lines = data.split(b"\n")
    records = []
    for i, line in enumerate(lines):
        record = _parsed(line) if line.strip() else None
        if record is not None:
            records.append(record)
        elif line.strip() and i < len(lines) - 1:
            raise TraceError(f"{path}, line {i + 1}: not a JSON record; the file is damaged, or no trace")
    return records


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def resumed(path: str | Path, query: str) -> Journal:
    """A journal in memory that goes on from the trace of a run of `query`. Raises TraceError."""
    header, effects = read_journal(path)
    if header["query"] != query:
        raise TraceError(f"{path} is the trace of another question: {str(header['query'])[:80]!r}")
    return journal_of(header, effects)


def journal_of(header: Mapping[str, Any], effects: Sequence[Effect]) -> Journal:
    """A journal that goes on from a record. Raises TraceError."""
    return Journal(recorded=deque(effects), history=history_of(header), remembered=_is_remembered(header))


def _is_remembered(header: Mapping[str, Any]) -> bool:
    """Whether a record is of a run that was stored when it ended: a trace is written after that, a journal before."""
    result, settings = header.get("result"), header.get("settings")
    if not isinstance(result, dict) or (isinstance(settings, dict) and settings.get("MEMORY_BACKEND") == "none"):
        return False
    return not any(str(warning).startswith(NOT_REMEMBERED) for warning in result.get("warnings") or ())


def history_of(header: Mapping[str, Any]) -> list[Message]:
    """The earlier turns that stand in a trace's header. Raises TraceError."""
    try:
        return from_plain(list[Message], header.get("history", []))
    except CodecError as problem:
        raise TraceError(f"the history of the trace cannot be read: {problem}") from None


def _line(record: Any) -> str:
    return config.redact(json.dumps(record, ensure_ascii=False)) + "\n"


def _digest(request: Any) -> str:
    # Of the redacted text: the record holds no other, and what was asked because of it must be found again.
    text = config.redact(json.dumps(request, sort_keys=True, ensure_ascii=False))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _as_record(problem: Exception) -> dict[str, Any]:
    """An error as plain data."""
    if isinstance(problem, DeadlineReached):
        return {"given_up": True}
    if isinstance(problem, LLMError):
        return {
            "message": str(problem),
            "fatal": problem.fatal,
            "usage": to_plain(problem.usage),
            "kind": problem.kind,
            "fits": problem.fits,
        }
    return {"raised": type(problem).__name__, "message": str(problem)}


def _from_record(error: dict[str, Any]) -> Exception:
    """The error that `_as_record` wrote down; one that is no LLMError comes back as a class of the same name."""
    message = str(error.get("message", ""))
    if error.get("given_up"):
        return DeadlineReached()
    if error.get("raised"):
        named: Exception = type(str(error["raised"]), (_RecordedError,), {})(message)
        return named
    return LLMError(
        message,
        fatal=bool(error.get("fatal")),
        usage=from_plain(Usage, error.get("usage", {})),
        kind=str(error.get("kind", "")),
        fits=int(error.get("fits", 0)),
    )


class _RecordedError(Exception):
    """An error of a recorded run."""


def _name(kind: str, request: Any) -> str:
    text = json.dumps(request, ensure_ascii=False)
    return f"{kind} {text if len(text) <= 160 else '…' + text[-160:]}"


def _where(recorded: Any, now: Any, path: str = "") -> str:
    """The first place where two requests differ, with the words on both sides; "" where it would say nothing new."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        keys = [key for key in {**recorded, **now} if recorded.get(key) != now.get(key)]
        return _where(recorded.get(keys[0]), now.get(keys[0]), f"{path}.{keys[0]}".lstrip(".")) if keys else ""
    if isinstance(recorded, list) and isinstance(now, list):
        pairs = enumerate(zip(recorded, now, strict=False))
        i = next((i for i, (a, b) in pairs if a != b), min(len(recorded), len(now)))
        if i < min(len(recorded), len(now)):
            return _where(recorded[i], now[i], f"{path}[{i}]")
        return f"; {path} has {len(recorded)} items in the record and {len(now)} now"
    if isinstance(recorded, str) and isinstance(now, str) and path and recorded != now:
        at = len(os.path.commonprefix([recorded, now]))
        start = max(0, at - 20)
        return (
            f"; they differ at {path}, character {at + 1}: recorded {recorded[start : at + 40]!r},"
            f" now {now[start : at + 40]!r}"
        )
    return f"; {path} was {recorded!r:.60} and is {now!r:.60}" if path and recorded != now else ""


def _since(started: float) -> float:
    return round(time.monotonic() - started, 4)
