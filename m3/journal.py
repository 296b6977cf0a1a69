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
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import config
from m3.codec import CodecError, from_plain, to_plain
from m3.records import DivergedError, LLMError, RunControl, TraceError, Usage
from m3.worker import DeadlineReached, guarded

SCHEMA_VERSION = 1
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


@dataclass
class Journal:
    """Records effects to `path` (one JSON line each, written and synced before the loop goes on), or in memory.

    recorded: effects that answer first. live: whether the outside may be asked once they are used up, or once the
    run asks for something else (a resumed run under new limits leaves the recorded path where these let it go on).
    """

    path: Path | None = None
    recorded: deque[Effect] = field(default_factory=deque)
    live: bool = True
    effects: list[Effect] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # of writing; the run goes on without its journal

    def __post_init__(self) -> None:
        self._file: int | None = None

    @property
    def replaying(self) -> bool:
        """True while the next effect is answered from the record."""
        return bool(self.recorded)

    def begin(self, header: dict[str, Any]) -> None:
        """Open the file and write its first line: what the run was asked and with which settings."""
        if self.path is None:
            return
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as problem:
            self.faults.append(f"the journal {self.path} cannot be written: {problem.strerror}")
            return
        self._write({"schema": SCHEMA_VERSION, "version": config.VERSION, **header})

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
        DivergedError where the record holds something else, LLMError where the recorded or real call did, and
        DeadlineReached for a call that was given up.
        """
        digest = _digest(request)
        if self.recorded and not self._matches(kind, digest, request):
            self.recorded.clear()
        if self.recorded:
            return self._recall(result_type)
        if not self.live:
            raise DivergedError(
                f"record {len(self.effects) + 1}: the run asks for {_name(kind, request)}; the record ends here"
            )
        started = time.monotonic()
        number = len(self.effects) + 1
        try:
            result = do() if control is None else guarded(do, control)
        except DeadlineReached:
            self._keep(Effect(number, kind, digest, request, error={"given_up": True}, seconds=_since(started)))
            raise
        except LLMError as problem:
            error = {
                "message": str(problem),
                "fatal": problem.fatal,
                "usage": to_plain(problem.usage),
                "kind": problem.kind,
                "fits": problem.fits,
            }
            self._keep(Effect(number, kind, digest, request, error=error, seconds=_since(started)))
            raise
        self._keep(Effect(number, kind, digest, request, to_plain(result), seconds=_since(started)))
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

    def _matches(self, kind: str, digest: str, request: Any) -> bool:
        effect = self.recorded[0]
        if (effect.kind, effect.digest) == (kind, digest):
            return not (self.live and (effect.error or {}).get("given_up"))  # a resumed run tries it again
        if self.live:
            return False
        raise DivergedError(
            f"record {effect.number}: recorded was {_name(effect.kind, effect.request)},"
            f" the run now asks for {_name(kind, request)}"
        )

    def _recall(self, result_type: type[T]) -> T:
        effect = self.recorded.popleft()
        self._keep(effect)
        if effect.error is not None:
            if effect.error.get("given_up"):
                raise DeadlineReached
            raise LLMError(
                str(effect.error.get("message", "")),
                fatal=bool(effect.error.get("fatal")),
                usage=from_plain(Usage, effect.error.get("usage", {})),
                kind=str(effect.error.get("kind", "")),
                fits=int(effect.error.get("fits", 0)),
            )
        return from_plain(result_type, effect.result)

    def _keep(self, effect: Effect) -> None:
        effect = replace(effect, number=len(self.effects) + 1)
        self.effects.append(effect)
        self._write(to_plain(effect))

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is None:
            return
        line = config.redact(json.dumps(record, ensure_ascii=False)) + "\n"
        try:
            os.write(self._file, line.encode("utf-8", "backslashreplace"))
            os.fsync(self._file)
        except OSError as problem:
            self.faults.append(f"the journal {self.path} cannot be written: {problem.strerror}")
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
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise TraceError(
            f"cannot read {path}: {getattr(problem, 'strerror', None) or 'it is not UTF-8 text'}"
        ) from None
    lines = text.split("\n")
    records: list[Any] = []
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict) and "effects" in whole:
        header = {key: value for key, value in whole.items() if key != "effects"}
        records = whole["effects"]
    else:
        for i, line in enumerate(lines):
            try:
                records.append(json.loads(line) if line.strip() else None)
            except ValueError:
                if i < len(lines) - 1:
                    raise TraceError(f"{path}, line {i + 1}: not a JSON record; the file is damaged") from None
        records = [record for record in records if record is not None]
        header = records.pop(0) if records and isinstance(records[0], dict) and "schema" in records[0] else {}
    if header.get("schema") != SCHEMA_VERSION or "query" not in header:
        raise TraceError(f"{path} is no trace of this program (schema {header.get('schema')!r}, need {SCHEMA_VERSION})")
    try:
        return header, from_plain(_Effects, {"items": records}).items
    except CodecError as problem:
        raise TraceError(f"{path}: {problem}") from None


def resumed(path: str | Path, query: str) -> Journal:
    """A journal in memory that goes on from the trace of a run of `query`. Raises TraceError."""
    header, effects = read_journal(path)
    if header["query"] != query:
        raise TraceError(f"{path} is the trace of another question: {str(header['query'])[:80]!r}")
    return Journal(recorded=deque(effects))


@dataclass(frozen=True)
class _Effects:
    items: list[Effect]


def _digest(request: Any) -> str:
    text = json.dumps(to_plain(request), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _name(kind: str, request: Any) -> str:
    text = json.dumps(to_plain(request), ensure_ascii=False)
    return f"{kind} {text if len(text) <= 160 else '…' + text[-160:]}"


def _since(started: float) -> float:
    return round(time.monotonic() - started, 4)
