"""Recorded runs are played again to the letter; `make record-traces` records them anew after a deliberate change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from m3.trace import Replay, check_again, show
from m3_react_agent import run_react_loop
from tests.record_traces import RUNS, TRACES, Store, record

FILES = sorted(TRACES.glob("*.json"))
OWN_TIME = ("elapsed_seconds",)  # of each run; all else is the same


def test_every_run_of_the_recorder_has_its_trace() -> None:
    assert [path.stem for path in FILES] == sorted(RUNS)
    outcomes = {json.loads(path.read_text())["result"]["stop_reason"] for path in FILES}
    assert {
        "agent_finished", "max_iterations", "max_tokens", "no_progress", "provider_error", "interrupted"
    } <= outcomes  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_run_is_played_again_to_the_letter(path: Path) -> None:
    replay = Replay(path)
    stand_in: Any = replay.llm
    output = run_react_loop(
        replay.query, config=replay.config, llm=stand_in, search=stand_in, fetcher=stand_in, memory=Store(),
        resume=replay.journal,
    )  # fmt: skip
    recorded, again = json.loads(path.read_text())["result"], json.loads(json.dumps(output.to_dict()))
    for name in OWN_TIME:
        recorded.pop(name), again.pop(name)
    assert again == recorded
    assert not replay.journal.recorded  # nothing of the record was left out


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_run_is_checked_again_and_shown(path: Path) -> None:
    same, lines = check_again(path)
    assert same and lines
    shown = list(show(path))
    assert shown[0] == "Question: What is oolong tea?" and any(line.startswith("Ended: ") for line in shown)


@pytest.mark.parametrize("name", ["answered", "repaired"])
def test_the_recorder_records_what_lies_in_the_folder(name: str) -> None:
    """But for the times and the fence, which each run draws anew."""
    now, then = (
        json.loads(text)["result"]["summary"] for text in (record(name), (TRACES / f"{name}.json").read_text())
    )
    assert now == then
