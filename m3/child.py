"""Running a parser over foreign data in a child process that can be killed: CPU, memory and time are bounded.

The child gets no environment of this process (so no keys), its input on standard input, and answers in JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from config import PROGRAM_DIR
from m3.records import RunControl


class ChildError(Exception):
    """The child brought nothing. `code` is `timeout`, `memory` or `crashed`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class ChildLimits(NamedTuple):
    """What one child may use. A child that honours `cpu_s` itself can still answer with what it has."""

    seconds: float = 10.0
    cpu_s: int = 8
    memory_mb: int = 768


def run_child(
    function: str,
    data: bytes,
    options: Mapping[str, Any],
    *,
    limits: ChildLimits = ChildLimits(),
    control: RunControl | None = None,
) -> Any:
    """Call `module:function(data, options)` in a child and return its (JSON) result. Raises ChildError.

    Ends by `limits.seconds` and by the run's deadline or stop, whatever the child does.
    """
    control = (control or RunControl()).within(limits.seconds)
    ends = time.monotonic() + limits.seconds  # real time, also under a test's clock
    if control.expired:
        raise ChildError("timeout")
    command = [sys.executable, "-m", "m3.child", function, str(limits.cpu_s), str(limits.memory_mb)]
    environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONUTF8": "1"}
    head = json.dumps(dict(options)).encode() + b"\n"
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=PROGRAM_DIR,
        env=environment,
    )  # fmt: skip
    # Threads instead of `communicate(timeout=…)`: called again, it forgets the input that is still to be sent.
    answer: list[bytes] = []
    reader = threading.Thread(target=_receive, args=(child, answer), daemon=True)
    try:
        threading.Thread(target=_send, args=(child, head, data), daemon=True).start()
        reader.start()
        while reader.is_alive():
            reader.join(0.1)
            if control.expired or time.monotonic() >= ends:
                break
        if reader.is_alive():
            raise ChildError("timeout")
    finally:
        try:
            child.wait(timeout=0.0 if reader.is_alive() else 1.0)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    return _answer(b"".join(answer), child.returncode)


def _send(child: subprocess.Popen[bytes], *parts: bytes) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin as stream:  # the child may end before it has read all
        for part in parts:
            stream.write(part)


def _receive(child: subprocess.Popen[bytes], answer: list[bytes]) -> None:
    assert child.stdout is not None
    with child.stdout as stream:
        answer.append(stream.read())


def _answer(out: bytes, code: int) -> Any:
    if code == _OUT_OF_MEMORY:
        raise ChildError("memory")
    if code < 0:  # a signal: SIGXCPU and SIGKILL come from the limits
        raise ChildError("timeout" if -code in (9, 24) else "crashed")
    try:
        return json.loads(out)
    except (ValueError, RecursionError):
        raise ChildError("crashed") from None


# --- the child's side ------------------------------------------------------------------------------------

_OUT_OF_MEMORY = 77


def _main(function: str, cpu_s: int, memory_mb: int) -> None:
    _limit(cpu_s, memory_mb)
    answer = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not stand in the answer
    options, _, data = sys.stdin.buffer.read().partition(b"\n")
    module, _, name = function.partition(":")
    try:
        result = getattr(importlib.import_module(module), name)(data, json.loads(options))
        with os.fdopen(answer, "wb") as stream:
            stream.write(json.dumps(result, ensure_ascii=False).encode("utf-8", "replace"))
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)


def _limit(cpu_s: int, memory_mb: int) -> None:
    try:
        import resource
    except ImportError:  # no such limits on this system; the parent's clock remains
        return
    memory = memory_mb * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # a parser writes no files


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
