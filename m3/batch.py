"""Many questions: one trace and one report each, a table of results, what is done already left alone."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import queue
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import config
from config import Config, ConfigError
from m3.files import write_atomic
from m3.journal import Journal, resumed
from m3.records import RunControl, TraceError
from m3.trace import part_of, trace_header, trace_json
from m3.untrusted import safe_cell

if TYPE_CHECKING:
    from m3.report import FinalOutput


@dataclass(frozen=True)
class Question:
    """One line of the input: `id` names its files."""

    id: str
    query: str


@dataclass(frozen=True)
class Row:
    """One line of the results table. cost_usd is None where no price is known; verified_rate where nothing is cited."""

    id: str
    query: str
    outcome: str
    stop_reason: str
    tokens: int
    cost_usd: float | None
    seconds: float
    verified_rate: float | None
    report: str
    trace: str


def read_questions(path: str | Path) -> list[Question]:
    """The questions of a JSON-lines file: each line a string, or an object with `query` and perhaps `id`.

    Lines that are not JSON are questions as they stand. Raises ConfigError with the line that is wrong.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"cannot read {path}: {getattr(problem, 'strerror', None) or 'not UTF-8 text'}") from None
    found: list[Question] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        item = _parsed(line)
        query = item.get("query") if isinstance(item, dict) else item
        if not isinstance(query, str) or not query.strip():
            raise ConfigError(f'{path}, line {number}: no question; give a string or {{"query": "…"}}')
        name = str(item.get("id") or "") if isinstance(item, dict) else ""
        if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", name):
            raise ConfigError(f"{path}, line {number}: the id {name[:40]!r} may hold letters, digits, . _ - only")
        # The default id holds the question's hash, so that an inserted line does not pass for one done before.
        found.append(Question(name or hashlib.sha256(query.strip().encode()).hexdigest()[:12], query.strip()))
    ids = [question.id for question in found]
    twice = next((id_ for id_ in ids if ids.count(id_) > 1), None)
    if twice:
        raise ConfigError(f"{path}: two questions have the id {twice}; give them different ids, or leave one out")
    if not found:
        raise ConfigError(f"{path} holds no question")
    return found


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def run_batch(
    questions: Sequence[Question],
    folder: Path,
    jobs: int,
    settings: Config,
    run: Callable[..., FinalOutput],
    llm: Any,
    control: RunControl,
    stream: TextIO = sys.stderr,
) -> list[Row]:
    """Run the questions that have no finished trace in `folder` yet, `jobs` at a time, with one shared model client.

    Returns the table of all questions that have a result. Stopping `control` ends every run with what it has; a run
    that was cut off is gone on with from its journal the next time. Raises ConfigError where the folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ConfigError(f"cannot use {folder}: {problem.strerror}") from None
    batch = _Batch(folder, settings, run, llm, control)
    waiting: queue.SimpleQueue[Question] = queue.SimpleQueue()
    rows: dict[str, Row] = {}
    for question in questions:
        done = batch.finished(question)
        if done is not None:
            rows[question.id] = done
        else:
            waiting.put(question)
    bar = _bar(len(questions), len(rows), stream)
    results: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
    workers = [
        threading.Thread(target=batch.work, args=(waiting, results), daemon=True, name=f"batch {i}")
        for i in range(jobs)
    ]
    for worker in workers:
        worker.start()
    active = len(workers)
    while active:
        try:
            row = results.get(timeout=0.2)  # wakes up so that a signal's handler runs
        except queue.Empty:
            continue
        if row is None:
            active -= 1
            continue
        rows[row.id] = row
        bar(row)
        write_table(folder, [rows[q.id] for q in questions if q.id in rows])
    table = [rows[q.id] for q in questions if q.id in rows]
    write_table(folder, table)
    return table


class _Batch:
    def __init__(
        self, folder: Path, settings: Config, run: Callable[..., FinalOutput], llm: Any, control: RunControl
    ) -> None:
        self.folder, self.settings, self._run, self._llm = folder, settings, run, llm
        self.control = control  # only its stop flag is used: each run has its own deadline

    def finished(self, question: Question) -> Row | None:
        """The row of a question whose finished trace lies in the folder."""
        path = self.folder / f"{question.id}.json"
        try:
            trace = json.loads(path.read_text(encoding="utf-8"))
            result = trace["result"]
            if trace["query"] != question.query:
                return None
            return _row(question, result)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def work(self, waiting: queue.SimpleQueue[Question], results: queue.SimpleQueue[Row | None]) -> None:
        """One worker: takes questions until none is left or the batch is stopped."""
        try:
            while not self.control.stopped:
                try:
                    question = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    results.put(self._one(question))
                except Exception as problem:  # noqa: BLE001  one question's fault must not end the others
                    why = config.redact(f"{type(problem).__name__}: {problem}")
                    results.put(Row(question.id, question.query, "failed", why[:200], 0, None, 0.0, None, "", ""))
        finally:
            results.put(None)

    def _one(self, question: Question) -> Row:
        path = self.folder / f"{question.id}.json"
        journal = self._journal(part_of(path), question)
        header = trace_header(question.query, self.settings, getattr(self._llm, "model", "") or "")
        journal.path = part_of(path)
        journal.begin(header)
        control = self.control.within(self.settings.limits.max_wall_clock_seconds)
        output = self._run(question.query, config=self.settings, llm=self._llm, resume=journal, control=control)
        write_atomic(self.folder / f"{question.id}.md", config.redact(output.to_markdown()))
        if output.stop_reason == "interrupted":
            journal.close()  # the journal stays: the next start goes on from it
        else:
            write_atomic(path, trace_json(header, journal, output))
            journal.close(remove=True)
        return _row(question, output.to_dict())

    @staticmethod
    def _journal(part: Path, question: Question) -> Journal:
        if part.exists():
            try:
                return resumed(part, question.query)
            except TraceError:
                return Journal()  # it was cut off before its first whole line, or is another question's
        return Journal()


def _row(question: Question, result: dict[str, Any]) -> Row:
    checks = [c for c in result.get("grounding") or [] if c.get("source") is not None]
    good = sum(c.get("verdict") in ("matched", "partly") for c in checks)
    return Row(
        id=question.id,
        query=question.query,
        outcome=str(result.get("outcome", "")),
        stop_reason=str(result.get("stop_reason", "")),
        tokens=int(result.get("tokens_consumed") or 0),
        cost_usd=result.get("cost_usd"),
        seconds=float(result.get("elapsed_seconds") or 0.0),
        verified_rate=round(good / len(checks), 4) if checks else None,
        report=f"{question.id}.md",
        trace=f"{question.id}.json",
    )


def write_table(folder: Path, rows: Sequence[Row]) -> None:
    """Write `results.jsonl` and `results.csv`, each whole or not at all."""
    lines = [json.dumps(asdict(row), ensure_ascii=False) for row in rows]
    write_atomic(folder / "results.jsonl", config.redact("".join(f"{line}\n" for line in lines)))
    text = io.StringIO()
    writer = csv.writer(text)
    names = [f.name for f in fields(Row)]
    writer.writerow(names)
    for row in rows:
        values = (getattr(row, name) for name in names)
        writer.writerow([safe_cell(config.redact(value)) if isinstance(value, str) else value for value in values])
    write_atomic(folder / "results.csv", config.redact(text.getvalue()))


def _bar(total: int, done: int, stream: TextIO) -> Callable[[Row], None]:
    """Progress: a bar on a terminal where tqdm is installed, else one plain line a question."""
    count = [done]
    if stream.isatty():
        try:
            from tqdm import tqdm

            bar = tqdm(total=total, initial=done, file=stream, unit="question")
            return lambda row: bar.update(1)
        except ImportError:
            pass  # plain lines do as well

    def line(row: Row) -> None:
        count[0] += 1
        print(f"[{count[0]}/{total}] {row.id}: {row.outcome} ({row.stop_reason})", file=stream, flush=True)

    return line
