"""The program as a process that is killed, signalled, and starved of disk, descriptors and terminals.

By default four of twenty random moments, M3_ALL_FAULTS=1 (`make test-faults`) takes all.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from m3.journal import read_journal
from m3.mock_llm import MockLLMClient
from m3.records import RunControl
from tests.provider import Asked, Play, Provider, chat, delta, provider
from tests.test_cli import QUESTION, ROOT

MOMENTS = range(20 if os.environ.get("M3_ALL_FAULTS") else 4)
SECONDS = 8.0  # from a signal to the end of the process
PATIENCE = 60.0  # for a loaded machine, where no time is promised
KEY = "sk-process-0123456789"


def environment(**more: str) -> dict[str, str]:
    kept = ("PATH", "LANG", "HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
    return {**{k: v for k, v in os.environ.items() if k in kept}, "MEMORY_BACKEND": "none", **more}


def heed_signals() -> None:
    """As on a terminal, also where the tests run in the background of a shell, which ignores these and hands it on."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def start(*args: str, script: Path | None = None, env: dict[str, str] | None = None, **how: Any) -> Any:
    """The program, or a script that changes it first, with both streams as pipes."""
    program = [str(script), str(ROOT)] if script else [str(ROOT / "m3_react_agent.py")]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": os.environ["HOME"], **how}
    options.setdefault("preexec_fn", heed_signals)
    return subprocess.Popen([sys.executable, *program, *args], env=env or environment(), **options)


def until(true: Callable[[], bool], process: Any) -> None:
    """Wait until something holds; the process must not end before."""
    ends = time.monotonic() + PATIENCE
    while not true():
        assert process.poll() is None and time.monotonic() < ends, "the process ended or nothing happened"
        time.sleep(0.002)


def said(process: Any, *starts: str) -> str:
    """Read the process's progress up to a line that begins so."""
    for line in process.stderr:
        if line.startswith(starts):
            return str(line)
    raise AssertionError(f"the process ended without saying {starts}")


class Gate:
    """Holds a model's last call back, so that a run cannot end before the test has struck."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._from: float = math.inf

    @contextlib.contextmanager
    def holding(self, call: int) -> Iterator[None]:
        """Until the end of the block, the `call`-th request of all (from 1) and those after it get no answer."""
        self._opened.clear()
        self._from = call
        try:
            yield
        finally:
            self._from = math.inf
            self._opened.set()

    def wait(self, call: int) -> None:
        if call >= self._from:
            self._opened.wait(PATIENCE)


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def model(gate: Gate) -> Iterator[Provider]:
    """An OpenAI-compatible server that decides as the mock model does, and takes a moment for it."""
    mock = MockLLMClient()

    def play(asked: Asked) -> Play:
        gate.wait(len(server.asked))
        reply = mock.complete(asked.body["messages"], max_output_tokens=1_500, control=RunControl(60))
        server.over.wait(0.03)
        usage = {"prompt_tokens": reply.usage.prompt, "completion_tokens": reply.usage.completion}
        usage["total_tokens"] = sum(usage.values())
        if not asked.body.get("stream"):
            return Play(chat(reply.text, usage=usage))
        last = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}
        return Play([delta(reply.text), delta(None, "stop"), last])

    with provider(play) as server:
        yield server


def with_model(server: Provider, **more: str) -> dict[str, str]:
    return environment(
        LLM_PROVIDER="openai", OPENAI_BASE_URL=f"{server.url}/v1", OPENAI_API_KEY=KEY, OPENAI_MODEL="m",
        SEARCH_PROVIDER="mock", **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(model: Provider, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The undisturbed run: its result, its number of model calls, of records before the last one, and of events."""
    folder = tmp_path_factory.mktemp("whole")
    os.environ["HOME"] = str(folder)
    before = len(model.asked)
    trace = folder / "t.json"
    process = start(QUESTION, "--json", "--trace-out", str(trace), env=with_model(model))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    kinds = [effect["kind"] for effect in json.loads(trace.read_text())["effects"]]
    return {
        "result": json.loads(out),
        "calls": len(model.asked) - before,
        "before_last_call": max(at for at, kind in enumerate(kinds) if kind == "model"),
        "events": sum(line.startswith(("Thought", "Action", "Observation")) for line in err.splitlines()),
    }


# --- kill -9 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_process_is_resumed_to_the_same_report_and_pays_no_recorded_call_twice(
    moment: int, model: Provider, gate: Gate, whole: dict[str, Any], tmp_path: Path
) -> None:
    chance = random.Random(moment)
    trace = tmp_path / "t.json"
    part = Path(f"{trace}.part")
    args = ["--json", "--quiet", "--trace-out", str(trace)]
    record = chance.randrange(1, whole["before_last_call"] + 1)
    with gate.holding(len(model.asked) + whole["calls"]):
        process = start(QUESTION, *args, env=with_model(model))
        until(lambda: part.exists() and part.read_bytes().count(b"\n") > record, process)
        time.sleep(chance.uniform(0, 0.03))  # a moment between two records
        process.kill()
        process.communicate()
    recorded = sum(effect.kind == "model" for effect in read_journal(part)[1])
    before = len(model.asked)
    again = start("--resume", str(part), *args, env=with_model(model))
    out, err = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, err
    result = json.loads(out)
    assert (result["outcome"], result["summary"]) == ("answered", whole["result"]["summary"])
    assert len(model.asked) - before == whole["calls"] - recorded
    assert result["tokens_consumed"] == whole["result"]["tokens_consumed"]
    assert json.loads(trace.read_text())["result"]["outcome"] == "answered" and KEY not in trace.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "t.json"]


# --- signals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", MOMENTS)
def test_sigterm_at_any_moment_brings_the_partial_report_and_the_trace_within_8_seconds(
    moment: int, model: Provider, gate: Gate, whole: dict[str, Any], tmp_path: Path
) -> None:
    chance = random.Random(moment)
    trace = tmp_path / "t.json"
    with gate.holding(len(model.asked) + whole["calls"]):
        process = start(QUESTION, "--json", "--trace-out", str(trace), env=with_model(model))
        for _ in range(chance.randrange(1, whole["events"] + 1)):
            said(process, "Thought", "Action", "Observation")
        time.sleep(chance.uniform(0, 0.03))
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        out, err = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < SECONDS
    assert process.returncode == 143 and "Traceback" not in err
    result = json.loads(out)
    assert (result["outcome"], result["stop_reason"]) == ("partial", "interrupted")
    assert json.loads(trace.read_text())["result"]["summary"] == result["summary"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "t.json"]


CHANGES = {
    "a search that never ends": """
from m3 import documents
def search(self, query, *, max_results=5, control=None):
    tell("searching")
    threading.Event().wait(120)
documents.LocalDocuments.search = search
""",
    "a result that takes long": """
import m3.synthesis
real = m3.synthesis.conclude
def conclude(*args, **kwargs):
    tell("concluding")
    time.sleep(20)
    return real(*args, **kwargs)
m3.synthesis.conclude = conclude
""",
    "slow writing": """
import m3.cli
real = m3.cli._write_files
def write(*args):
    tell("writing")
    ends = time.monotonic() + 1.0
    while time.monotonic() < ends:
        time.sleep(0.01)
    return real(*args)
m3.cli._write_files = write
""",
}


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """A script that is the program with some of the changes above."""

    def write(*names: str) -> Path:
        script = tmp_path / "changed.py"
        script.write_text(
            "import sys, threading, time\nsys.path.insert(0, sys.argv.pop(1))\n"
            "tell = lambda text: print(text, file=sys.stderr, flush=True)\n"
            + "".join(CHANGES[name] for name in names)
            + "from m3.cli import as_program\nfrom m3_react_agent import main\nas_program(main)\n"
        )
        return script

    return write


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_each_signal_ends_a_search_that_hangs_with_a_partial_report(
    name: str, code: int, changed: Callable[..., Path], tmp_path: Path
) -> None:
    trace = tmp_path / "t.json"
    process = start(QUESTION, "--trace-out", str(trace), script=changed("a search that never ends"))
    said(process, "searching")
    process.send_signal(getattr(signal, name))
    began = time.monotonic()
    out, err = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < SECONDS and process.returncode == code, err
    assert "outcome: partial" in out and json.loads(trace.read_text())["result"]["outcome"] == "partial"


def test_the_time_limit_ends_a_search_that_hangs_and_its_thread_does_not_hold_the_exit(
    changed: Callable[..., Path],
) -> None:
    process = start(QUESTION, "--max-seconds", "1.5", script=changed("a search that never ends"))
    said(process, "searching")
    began = time.monotonic()
    out, err = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < SECONDS and process.returncode == 3, err
    assert "max_wall_clock_time" in out


def test_a_second_sigint_ends_the_process_at_once(changed: Callable[..., Path], tmp_path: Path) -> None:
    script = changed("a search that never ends", "a result that takes long")
    process = start(QUESTION, script=script)
    said(process, "searching")
    process.send_signal(signal.SIGINT)
    said(process, "concluding")
    process.send_signal(signal.SIGTERM)  # a second request to end changes nothing
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    out, _ = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 3 and process.returncode == 130 and out == ""


@pytest.mark.parametrize(("second", "code"), [("SIGTERM", 143), ("SIGHUP", 143), ("SIGINT", 130)])
def test_a_second_signal_does_not_cut_the_writing_of_the_partial(
    second: str, code: int, changed: Callable[..., Path], tmp_path: Path
) -> None:
    trace, report = tmp_path / "t.json", tmp_path / "r.md"
    script = changed("a search that never ends", "slow writing")
    process = start(QUESTION, "--trace-out", str(trace), "--summary-out", str(report), script=script)
    said(process, "searching")
    process.send_signal(signal.SIGTERM)
    said(process, "writing")
    process.send_signal(getattr(signal, second))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, err
    assert json.loads(trace.read_text())["result"]["outcome"] == "partial" and report.read_text() == out


def test_under_nohup_a_hangup_changes_nothing() -> None:
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    process = start(QUESTION, preexec_fn=ignore)
    said(process, "Thought")
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "outcome: answered" in out


def test_a_process_that_was_stopped_past_its_limit_ends_when_it_is_woken(changed: Callable[..., Path]) -> None:
    process = start(QUESTION, "--max-seconds", "5", "--json", script=changed("a search that never ends"))
    said(process, "searching")
    process.send_signal(signal.SIGSTOP)
    time.sleep(5.2)
    process.send_signal(signal.SIGCONT)
    began = time.monotonic()
    out, err = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < SECONDS and process.returncode == 3, err
    assert json.loads(out)["stop_reason"] == "max_wall_clock_time"


# --- disks, descriptors, terminals ---------------------------------------------------------------------------


def finished(*args: str, **how: Any) -> tuple[int, str, str]:
    process = start(*args, **how)
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err and "Exception ignored" not in err, err
    return process.returncode, out, err


@pytest.mark.parametrize("most", [0, 1, 300, 5_000, 40_000])
def test_a_file_that_does_not_fit_costs_the_file_and_not_the_answer(most: int, tmp_path: Path) -> None:
    """The bound on a file's size fails a write as a full disk does, at that very byte."""
    trace = tmp_path / "t.json"
    trace.write_text("an earlier trace")
    full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # noqa: E731
    code, out, err = finished(QUESTION, "--json", "--quiet", "--trace-out", str(trace), preexec_fn=full)
    assert code == 2 and json.loads(out)["outcome"] == "answered"
    assert f"error: cannot write {trace}" in err
    assert trace.read_text() == "an earlier trace"
    part = Path(f"{trace}.part")
    if part.exists() and part.stat().st_size:
        read_journal(part)
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


def test_a_folder_that_takes_no_file_is_said_and_the_answer_is_printed_or_nothing_is_started() -> None:
    """As another user than root it is refused before the run; root is told by the write itself."""
    code, out, err = finished(QUESTION, "--quiet", "--trace-out", "/proc/t.json")
    assert code == 2 and "/proc" in err and len(err.strip().splitlines()) <= 5
    assert out == "" or "outcome: answered" in out


@pytest.mark.parametrize("kind", ["folder", "missing folder", "file as folder"])
def test_a_place_where_no_trace_can_be_is_refused_before_the_run(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    where = {"folder": tmp_path, "missing folder": tmp_path / "no" / "t", "file as folder": tmp_path / "file" / "t"}
    code, out, err = finished(QUESTION, "--quiet", "--trace-out", str(where[kind]))
    assert (code, out) == (2, "") and len(err.strip().splitlines()) == 1


def test_a_link_is_followed_and_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    mine, trace = tmp_path / "there" / "mine", tmp_path / "t.json"
    trace.symlink_to(mine)
    assert finished(QUESTION, "--quiet", "--trace-out", str(trace))[0] == 0
    assert trace.is_symlink() and json.loads(mine.read_text())["result"]
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["mine"]


def test_what_a_killed_writer_left_is_removed_by_the_next_one_and_a_living_writers_file_is_not(tmp_path: Path) -> None:
    import fcntl

    dead, living = tmp_path / ".t.json.abc.tmp", tmp_path / ".t.json.def.tmp"
    dead.write_text("half")
    with living.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert finished(QUESTION, "--quiet", "--trace-out", str(tmp_path / "t.json"))[0] == 0
    assert not dead.exists() and living.exists()


def test_a_full_disk_under_standard_output_is_an_error_and_the_trace_is_written(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    with open("/dev/full", "w") as full:
        code, _, err = finished(QUESTION, "--quiet", "--trace-out", str(trace), stdout=full)
    assert code == 2 and "No space left" in err and json.loads(trace.read_text())["result"]
    with open("/dev/full", "w") as full:
        code, _, err = finished("--show", str(trace), stdout=full)
    assert code == 2 and "No space left" in err


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_reader_that_goes_away_costs_neither_the_run_nor_its_files(closed: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    process = start(QUESTION, "--trace-out", str(trace))
    getattr(process, closed).close()
    rest = (process.stderr if closed == "stdout" else process.stdout).read()
    assert process.wait(timeout=PATIENCE) == 0 and "Traceback" not in rest and "BrokenPipe" not in rest
    assert json.loads(trace.read_text())["result"]["outcome"] == "answered"
    for stream in (process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            stream.close()


@pytest.mark.parametrize("most", [8, 12, 16, 24])
def test_too_few_descriptors_end_in_a_result_or_one_clear_line(most: int, tmp_path: Path) -> None:
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # noqa: E731
    code, out, err = finished(QUESTION, "--json", "--quiet", "--trace-out", str(tmp_path / "t.json"), preexec_fn=few)
    assert code in (0, 1, 2, 3, 4) and (out or "error" in err)
    assert not out or json.loads(out)["outcome"]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_json_stays_json_on_a_terminal_that_lacks_the_characters(encoding: str) -> None:
    question = "Was kostet Café 😀 – genau?"
    env = environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0", LC_ALL="C")
    process = start("-", "--json", "--quiet", env=env, text=False, stdin=subprocess.PIPE)
    # Standard input has the encoding too; what it lacks comes as an argument.
    process.communicate(b"x", timeout=PATIENCE)
    process = start(question, "--json", "--quiet", env={**env, "LC_ALL": "C.UTF-8"}, text=False)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 4) and b"Traceback" not in err
    assert json.loads(out.decode(encoding))["query"] == question


def test_times_in_the_trace_are_utc_in_any_time_zone(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    env = environment(TZ="Pacific/Chatham")
    assert finished(QUESTION, "--quiet", "--trace-out", str(trace), env=env)[0] == 0
    record = json.loads(trace.read_text())
    assert record["started_at"].endswith("+00:00")
    assert all(page["fetched_at"].endswith(("Z", "+00:00", "")) for page in record["pages"])


def test_no_escape_goes_to_what_is_no_terminal() -> None:
    code, out, err = finished(QUESTION, env=environment(TERM="dumb", NO_COLOR="1", COLUMNS="20"))
    assert code == 0 and "\x1b" not in out + err


def test_ctrl_c_while_the_program_loads_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("import sys\nprint('loading', flush=True)\nsys.stdin.read()\n")
    process = start("--help", env=environment(PYTHONPATH=str(tmp_path)), stdin=subprocess.PIPE)
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (-signal.SIGINT, "")
