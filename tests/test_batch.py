"""Many questions in one go."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from config import ConfigError, load_config
from m3.batch import Question, read_questions, run_batch
from m3.records import RunControl
from m3_react_agent import run_react_loop
from tests.scripted import DictWeb, ScriptedLLM
from tests.test_cli import run as run_command
from tests.test_loop import FETCH, FINISH, PAGES, REPORT, SEARCH

QUESTIONS = '{"query": "What is HyDE?", "id": "hyde"}\n"What is RAPTOR?"\nWhat is BM25?\n\n{"query": "=1+1 of RAG?"}\n'


def test_a_batch_writes_a_trace_and_a_report_a_question_and_a_table_and_does_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(QUESTIONS)
    out = tmp_path / "runs"
    first = run_command("--queries", str(tmp_path / "q.jsonl"), "--out-dir", str(out), "--jobs", "2", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [row["query"] for row in rows] == ["What is HyDE?", "What is RAPTOR?", "What is BM25?", "=1+1 of RAG?"]
    assert rows[0]["id"] == "hyde" and rows[0]["outcome"] == "answered" and rows[0]["tokens"] > 0
    for row in rows:
        assert (out / row["report"]).read_text().startswith(f"# {row['query']}")
        assert json.loads((out / row["trace"]).read_text())["result"]["outcome"] == row["outcome"]
    table = list(csv.DictReader((out / "results.csv").open()))
    assert table[3]["query"] == "'=1+1 of RAG?"
    assert not list(out.glob("*.part")) and first.stderr.count("] ") >= 4
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("*.md")}
    again = run_command("--queries", str(tmp_path / "q.jsonl"), "--out-dir", str(out), cwd=tmp_path)
    assert again.returncode == 0 and {p.name: p.stat().st_mtime_ns for p in out.glob("*.md")} == before


def test_one_question_that_breaks_does_not_end_the_others(tmp_path: Path) -> None:
    def run(query: str, **kwargs: Any) -> Any:
        if query == "bad":
            raise RuntimeError("broken")
        web = DictWeb(PAGES)
        kwargs["llm"] = ScriptedLLM(SEARCH, FETCH, FINISH, REPORT)
        return run_react_loop(query, search=web, fetcher=web, **kwargs)  # type: ignore[arg-type]

    questions = [Question("a", "good"), Question("b", "bad"), Question("c", "fine")]
    rows = run_batch(questions, tmp_path / "o", 2, load_config({}), run, ScriptedLLM(REPORT), RunControl())
    assert [row.outcome for row in rows] == ["answered", "failed", "answered"]
    assert "broken" in rows[1].stop_reason


def test_a_stopped_batch_goes_on_from_its_journals(tmp_path: Path) -> None:
    control, calls = RunControl(), []

    def run(query: str, **kwargs: Any) -> Any:
        def say(messages: Any) -> str:
            calls.append(query)
            if len(calls) == 2:
                control.stop("SIGINT")
            return [SEARCH, FETCH, FINISH, REPORT][(len(calls) - 1) % 4]

        web = DictWeb(PAGES)
        kwargs["llm"] = ScriptedLLM(say)
        return run_react_loop(query, search=web, fetcher=web, **kwargs)  # type: ignore[arg-type]

    questions, out = [Question("a", "What is oolong tea?")], tmp_path / "o"
    run_batch(questions, out, 1, load_config({}), run, ScriptedLLM(REPORT), control)
    assert (out / "a.json.part").exists() and not (out / "a.json").exists()
    rows = run_batch(questions, out, 1, load_config({}), run, ScriptedLLM(REPORT), RunControl())
    assert rows[0].outcome == "answered" and len(calls) == 4
    assert (out / "a.json").exists() and not (out / "a.json.part").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no question"),
        ('{"id": "x"}\n', "line 1: no question"),
        ('"fine"\n{"query": 5}\n', "line 2: no question"),
        ('{"query": "q", "id": "../../etc"}\n', "letters, digits"),
        ("same\nsame\n", "two questions have the id"),
    ],
)
def test_a_list_that_cannot_be_used_is_one_line_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_questions(tmp_path / "q.jsonl")
    with pytest.raises(ConfigError, match="cannot read"):
        read_questions(tmp_path / "absent.jsonl")
