"""Long-term memory: what a recall and a save cost at 1,000, 10,000 and 100,000 sessions, and what recall finds.

    python bench/memory.py [--json] [--sizes 1000,10000,100000] [--recalls 30] [--stores redis,sqlite]

Redis is a real one behind the REST interface of the tests; sessions are loaded straight into it, and into the tables
of SQLite. Beside the index stands the naive way, one list read whole and compared here, measured up to 10,000 sessions
(at 100,000 it moves 230 MB a recall). Milliseconds are medians of wall time on this machine, loopback included;
requests, commands and bytes are counts. Recall quality needs the public cases (M3_CASES) and is left out where they are
absent; `bench/recall.py` says more of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from m3.questions import question_stems  # noqa: E402
from m3.recall import length_weight  # noqa: E402
from m3.report import FinalOutput  # noqa: E402
from m3.sessions import PastResearch, PastSource, new_id, to_json  # noqa: E402
from memory_integration import LocalMemory, LongTermMemory  # noqa: E402
from tests.upstash_server import TOKEN, Resp, UpstashServer, encoded, upstash_server  # noqa: E402

CASES = Path(os.environ.get("M3_CASES", ROOT.parent / "shared" / "cases"))
NAIVE_MOST = 10_000
START = 1_780_000_000


def make_sessions(count: int) -> Iterator[PastResearch]:
    """Sessions of about 2.3 KB whose questions draw 6 to 10 words from 30,000 by Zipf's law; always the same ones."""
    chance = random.Random(1)
    ranks = range(1, 30_001)
    weights = list(itertools.accumulate(1.0 / rank for rank in ranks))
    for n in range(count):
        query = " ".join(f"w{w}x" for w in chance.choices(ranks, cum_weights=weights, k=chance.randrange(6, 11)))
        sources = tuple(
            PastSource(i, f"https://site{i}.example/{n}", f"Title {i} of {n}", "0" * 64) for i in range(1, 6)
        )
        yield PastResearch(
            id=new_id(START + n),
            query=query,
            summary=f"Report {n}. " + "It says something of note. " * 45,
            urls=tuple(s.url for s in sources),
            stored_at=datetime.fromtimestamp(START + n, timezone.utc).isoformat(timespec="seconds"),
            outcome="answered",
            sources=sources,
            stems=question_stems(query),
        )


def load_redis(store: LongTermMemory, port: int, count: int) -> None:
    """The commands of a save, many at a time and straight at Redis; beside them the naive list."""
    connection = Resp("127.0.0.1", port)
    for batch in in_batches(make_sessions(count), 200):
        commands = []
        for session in batch:
            commands += [encoded(command) for command in store.save_commands(session)]
            if count <= NAIVE_MOST:
                commands.append(encoded(["LPUSH", "naive", to_json(session)]))
        connection.run(commands)
    connection.close()


def load_sqlite(path: Path, count: int) -> None:
    """What as many saves would leave in the file, in one transaction and in the order of each table."""
    store = LocalMemory(path)
    store.put()  # makes the tables
    store.close()
    postings: list[tuple[str, int, float]] = []

    def rows() -> Iterator[tuple[int, str, float, str]]:
        for n, session in enumerate(make_sessions(count), 1):
            postings.extend((stem, n, length_weight(session.stems)) for stem in session.stems)
            yield n, session.id, datetime.fromisoformat(session.stored_at).timestamp(), to_json(session)

    with sqlite3.connect(path) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.executemany("INSERT INTO session(n, id, stored, body) VALUES(?, ?, ?, ?)", rows())
        db.executemany("INSERT INTO posting VALUES(?, ?, ?)", sorted(postings))
        db.execute("INSERT INTO frequency SELECT stem, count(*) FROM posting GROUP BY stem")
    db.close()


def in_batches(sessions: Iterator[PastResearch], size: int) -> Iterator[list[PastResearch]]:
    while batch := list(itertools.islice(sessions, size)):
        yield batch


def timed(work: Callable[[str], object], queries: Sequence[str]) -> float:
    """Median milliseconds."""
    took = []
    for query in queries:
        started = time.perf_counter()
        work(query)
        took.append((time.perf_counter() - started) * 1000)
    return round(statistics.median(took), 2)


def naive_recall(server: UpstashServer, query: str) -> list[str]:
    """One list read whole over REST, compared by shared words."""
    import requests

    reply = requests.post(
        server.url, json=["LRANGE", "naive", 0, -1], headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120
    ).json()["result"]
    wanted = set(query.split())
    rows = ((len(wanted & set(json.loads(text)["q"].split())), text) for text in reply)
    return [text for _, text in sorted(rows, reverse=True)[:3]]


def measure_redis(server: UpstashServer, count: int, queries: Sequence[str]) -> dict[str, Any]:
    server.run("FLUSHALL")
    store = LongTermMemory(server.url, TOKEN, max_sessions=10**9)
    load_redis(store, server.redis_port, count)
    requests, commands, down = [], [], []
    for query in queries:
        server.reset()
        store.retrieve_related(query)
        requests.append(len(server.log))
        commands.append(server.commands)
        down.append(server.bytes_out)
    found: dict[str, Any] = {
        "requests_most": max(requests),
        "commands_most": max(commands),
        "bytes_down_median": int(statistics.median(down)),
        "bytes_down_most": max(down),
        "recall_ms": timed(store.retrieve_related, queries),
    }
    server.reset()
    outputs = [
        FinalOutput(f"{query} saved", "It says something of note. " * 60, (), "answered") for query in queries[:10]
    ]
    found["save_ms"] = timed(lambda query: store.store_research(outputs[queries.index(query)]), queries[:10])
    found["save_requests"] = len(server.log) // 10
    found["save_commands"] = server.commands // 10
    found["save_bytes_up"] = server.bytes_in // 10
    if count <= NAIVE_MOST:
        server.reset()
        found["naive_ms"] = timed(lambda query: naive_recall(server, query), queries[:3])
        found["naive_bytes_down"] = server.bytes_out // 3
    return found


def measure_sqlite(path: Path, count: int, queries: Sequence[str]) -> dict[str, Any]:
    load_sqlite(path, count)
    store = LocalMemory(path, max_sessions=None)
    started = time.process_time()
    found: dict[str, Any] = {"recall_ms": timed(store.retrieve_related, queries)}
    found["recall_cpu_ms"] = round((time.process_time() - started) * 1000 / len(queries), 2)
    outputs = [
        FinalOutput(f"{query} saved", "It says something of note. " * 60, (), "answered") for query in queries[:10]
    ]
    found["save_ms"] = timed(lambda query: store.store_research(outputs[queries.index(query)]), queries[:10])
    found["sessions"] = store.stats()["sessions"]
    store.close()
    found["file_bytes_a_session"] = path.stat().st_size // count
    return found


def recall_quality(folder: Path) -> dict[str, float]:
    """Share of the questions of the public cases with a session of the same topic among the three that are shown."""
    stored = json.loads((CASES / "recall" / "stored.json").read_text())
    asked = json.loads((CASES / "recall" / "queries.json").read_text())
    store = LocalMemory(folder / "quality.sqlite", max_sessions=None)
    topics = {}
    for row in stored:
        topics[store.store_research(FinalOutput(row["query"], "A report.", (), "answered")).id] = row["topic"]
    found = [[topics[p.id] for p in store.retrieve_related(row["query"], 3)] for row in asked]
    pairs = list(zip(found, asked, strict=True))
    return {
        "recall_at_1": round(sum(row["topic"] in shown[:1] for shown, row in pairs) / len(pairs), 4),
        "recall_at_3": round(sum(row["topic"] in shown for shown, row in pairs) / len(pairs), 4),
        "something_shown": round(sum(bool(shown) for shown in found) / len(pairs), 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of sessions, comma-separated")
    parser.add_argument("--recalls", type=int, default=30, help="questions asked of each store")
    parser.add_argument("--stores", default="redis,sqlite", help="which stores, comma-separated")
    args = parser.parse_args()
    stores = args.stores.split(",")
    figures: dict[str, Any] = {}

    def show(name: str, row: dict[str, Any]) -> None:
        figures.update({f"{name}_{key}": value for key, value in row.items()})
        print(f"{name:<14} " + "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        if (CASES / "recall").is_dir():
            show("quality", recall_quality(Path(folder)))
        with upstash_server(Path(folder)) as server:
            for size in map(int, args.sizes.split(",")):
                every = max(1, size // args.recalls)
                picked = [s.query for s in itertools.islice(make_sessions(size), 0, None, every)][: args.recalls]
                # A part of each question's words, and a long one that no store may answer with more commands.
                queries = [" ".join(query.split()[: 2 + n % 5]) for n, query in enumerate(picked)]
                queries.append(" ".join(picked[:6]))
                if "redis" in stores:
                    show(f"redis_{size}", measure_redis(server, size, queries))
                if "sqlite" in stores:
                    show(f"sqlite_{size}", measure_sqlite(Path(folder) / f"{size}.sqlite", size, queries))
    if args.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
