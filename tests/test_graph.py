"""The same phases under LangGraph: the same result, and a killed process goes on."""

from __future__ import annotations

import builtins
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from config import ConfigError, load_config
from m3_react_agent import build_langgraph_app, run_react_loop
from tests.scripted import DictWeb, ScriptedLLM
from tests.test_loop import FETCH, FINISH, PAGES, REPORT, SEARCH

pytest.importorskip("langgraph")
ROOT = Path(__file__).parent.parent
QUERY = "What is oolong tea?"


def without_times(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != "elapsed_seconds"}


@pytest.mark.parametrize(
    "lines",
    [
        (SEARCH, FETCH, FINISH, REPORT),
        (SEARCH, "garbage", FETCH, FETCH, FETCH, REPORT),
        (SEARCH, FINISH),
        ("garbage",),
        (RuntimeError("boom"),),
    ],
)
def test_graph_and_loop_give_the_same_result(lines: tuple[Any, ...]) -> None:
    config = load_config({"MAX_ITERATIONS": "6"})
    web, llm = DictWeb(PAGES), ScriptedLLM(*lines)
    loop = run_react_loop(QUERY, config=config, llm=ScriptedLLM(*lines), search=DictWeb(PAGES), fetcher=web)  # type: ignore[arg-type]
    app = build_langgraph_app(config, llm, search=DictWeb(PAGES), fetcher=web)  # type: ignore[arg-type]
    output = app.invoke({"query": QUERY})["output"]
    assert without_times(output) == without_times(loop.to_dict())


def test_the_offline_mock_gives_the_same_report_in_both() -> None:
    question = "Compare Raptor RAG vs HyDE"
    app = build_langgraph_app(load_config({}))
    output = app.invoke({"query": question})["output"]
    assert output["summary"] == run_react_loop(question, config=load_config({})).summary


CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from langgraph.checkpoint.sqlite import SqliteSaver
from config import load_config
from m3_react_agent import build_langgraph_app
from tests.scripted import DictWeb, ScriptedLLM
from tests.test_loop import FETCH, FINISH, PAGES, REPORT, SEARCH
import json

database, log, die_at = sys.argv[2], sys.argv[3], int(sys.argv[4])
lines = [SEARCH, FETCH, FINISH, REPORT]

def say(messages):
    with open(log, "a+") as file:
        file.seek(0)
        turn = len(file.read().split())
        if turn == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        file.write("model\\n")
    return lines[turn]

web = DictWeb(PAGES)
with SqliteSaver.from_conn_string(database) as saver:
    app = build_langgraph_app(load_config({}), ScriptedLLM(say), search=web, fetcher=web, checkpointer=saver)
    thread = {"configurable": {"thread_id": "t1"}}
    given = None if app.get_state(thread).values else {"query": "What is oolong tea?"}
    print(json.dumps(app.invoke(given, thread, durability="sync")["output"]))
"""


def test_a_process_killed_in_each_phase_goes_on_from_its_last_one_without_paying_twice(tmp_path: Path) -> None:
    """Killed before the second, third and fourth call of the model, one life after the other."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)

    def child(kill: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), str(ROOT), str(tmp_path / "runs.db"), str(tmp_path / "log"), str(kill)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    for die_at in (1, 2, 3):
        assert child(die_at).returncode == -signal.SIGKILL
        assert (tmp_path / "log").read_text().split() == ["model"] * die_at
    last = child(-1)
    assert last.returncode == 0, last.stderr
    output = json.loads(last.stdout)
    assert output["outcome"] == "answered" and output["summary"] == REPORT
    assert (tmp_path / "log").read_text().split() == ["model"] * 4


def test_without_langgraph_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith(("langgraph", "langchain")):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match="pip install langgraph"):
        build_langgraph_app(load_config({}))
