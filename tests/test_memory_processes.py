"""Several processes at one memory, and processes that die while they write."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from memory_integration import LocalMemory, LongTermMemory
from tests.upstash_server import TOKEN, upstash_server

ROOT = Path(__file__).parent.parent
WRITER = """
import sys
from m3.report import FinalOutput
from memory_integration import LocalMemory, LongTermMemory
where, token, name, count = sys.argv[1:]
store = LongTermMemory(where, token) if token else LocalMemory(where)
for n in range(int(count)):
    result = store.store_research(FinalOutput(f"Writer {name} asks number{n} of tea", "Long. " * 300, (), "answered"))
    print(result.stored and result.id, flush=True)
"""


def writer(where: str, token: str, name: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, where, token, str(name), str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("backend", ["local", "upstash"])
def test_eight_processes_that_save_at_once_lose_nothing(backend: str, tmp_path: Path) -> None:
    if backend == "local":
        path = str(tmp_path / "memory.sqlite")
        check_eight(path, "", LocalMemory(path))
    elif shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (Debian package redis-server)")
    else:
        with upstash_server(tmp_path) as server:
            check_eight(server.url, TOKEN, LongTermMemory(server.url, TOKEN))
            assert int(server.run("HGET", "m3:1:df", "tea")) == server.run("ZCARD", "m3:1:t:tea") == 120


def check_eight(where: str, token: str, store: LocalMemory | LongTermMemory) -> None:
    writers = [writer(where, token, name, 15) for name in range(8)]
    told = [line for process in writers for line in process.communicate(timeout=120)[0].split()]
    assert len(set(told)) == 120 and "False" not in told
    assert {session.id for session in store.recent(500)} == set(told)
    assert store.stats()["sessions"] == 120
    assert [p.query for p in store.retrieve_related("Writer 3 asks number7 of tea", 1)] == [
        "Writer 3 asks number7 of tea"
    ]


def test_fifteen_kills_in_mid_write_leave_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    chance = random.Random(7)
    told: set[str] = set()
    for name in range(15):
        process = writer(str(path), "", name, 100_000)
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 25)):
            told.add(process.stdout.readline().strip())
        os.kill(process.pid, signal.SIGKILL)
        told |= set(process.communicate()[0].split())
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        (rows,) = db.execute("SELECT count(*) FROM session").fetchone()
        (indexed,) = db.execute("SELECT count(DISTINCT n) FROM posting").fetchone()
        counted = dict(db.execute("SELECT stem, sessions FROM frequency"))
        assert counted == dict(db.execute("SELECT stem, count(*) FROM posting GROUP BY stem"))
    store = LocalMemory(path)
    kept = {session.id for session in store.recent(100_000)}
    assert rows == indexed == len(kept) and {id for id in told if len(id) == 16} <= kept
    assert store.retrieve_related("Which number5 of tea does writer 3 ask?")
