"""Every point of a run fails in turn, then two at once, then anything in any order: no rule is ever broken.

By default a share of the cases, M3_ALL_FAULTS=1 (`make test-faults`) takes all. How a case is repeated: its plan, which
the failure prints, given to `FaultPlan`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.conftest import OWN_CASES
from tests.faults import AT_ONCE, Bench, FaultPlan, Result, faults_of, random_pairs, single_faults

ALL = bool(os.environ.get("M3_ALL_FAULTS"))
SHARE = 1 if ALL else 6


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench() as running:
        yield running


@pytest.fixture(scope="module")
def points(bench: Bench) -> list[str]:
    clean = bench.run(FaultPlan())
    assert not clean.problems and clean.code == 0 and clean.answer["outcome"] == "answered"
    return list(dict.fromkeys(clean.plan.points))


def test_the_clean_run_passes_points_of_every_layer(points: list[str]) -> None:
    assert {layer for layer in AT_ONCE if any(point.startswith(layer) for point in points)} == set(AT_ONCE)


def test_the_faults_of_the_case_file_are_all_known_here_or_tested_elsewhere() -> None:
    """A fault that is added to the case file must find its place."""
    known = {fault for faults in AT_ONCE.values() for fault in faults}
    elsewhere = {
        "fetch-half", "dns-down", "slow-net",  # test_fetch_bad_server.py, test_safe_http.py
        "redis-race",  # test_memory_processes.py
        "kill9-step", "sigterm-twice", "clock-back", "tz", "enc", "notty",  # test_processes.py
        "pid1",  # test_entrypoint.py, test_container.py
        "cancel",  # the web server's own
        "env-missing", "env-file",  # test_config.py
    }  # fmt: skip
    listed = {fault["id"] for fault in json.loads((OWN_CASES / "faults.json").read_text())["faults"]}
    assert listed <= known | elsewhere, listed - known - elsewhere


def told(results: list[Result]) -> list[str]:
    return [f"{dict(result.plan.faults)}: {problem}" for result in results for problem in result.problems]


def test_each_point_of_a_run_may_fail_in_every_way(bench: Bench, points: list[str]) -> None:
    cases = single_faults(points)
    assert len(cases) > 400
    results = [bench.run(FaultPlan({point: kind})) for point, _, kind in cases[::SHARE]]
    assert told(results) == []
    assert all(result.plan.injected for result in results)  # the plan did reach the run


def test_a_run_that_is_killed_at_any_write_is_resumed_and_pays_nothing_twice(bench: Bench, points: list[str]) -> None:
    cases = [(point, kind) for point, _, kind in single_faults(points) if "killed" in kind]
    killed = [bench.run(FaultPlan({point: kind})) for point, kind in cases[:: SHARE // 2 or 1]]
    assert len(killed) > 20 and all(result.killed for result in killed)
    assert told(killed) == []
    assert told([bench.resume(result) for result in killed]) == []


def test_two_points_of_a_run_may_fail_at_once(bench: Bench, points: list[str]) -> None:
    plans = random_pairs(points, 300)
    assert told([bench.run(FaultPlan(plan)) for plan in plans[::SHARE]]) == []


class AnyOrder(RuleBasedStateMachine):
    """Faults gathered in any order and number, runs under them, and restarts after what killed one."""

    bench: Bench
    points: list[str]

    @initialize()
    def begin(self) -> None:
        self.plan: dict[str, str] = {}
        self.killed: Result | None = None
        self.results: list[Result] = []

    @rule(data=st.data())
    def plan_a_fault(self, data: Any) -> None:
        point = data.draw(st.sampled_from(self.points))
        self.plan[point] = data.draw(st.sampled_from([kind for _, kind in faults_of(point)]))

    @precondition(lambda self: self.plan and self.killed is None)
    @rule()
    def run(self) -> None:
        result = self.bench.run(FaultPlan(dict(self.plan)))
        self.results.append(result)
        self.plan = {}
        # A run whose journal could not be kept has nothing to resume from.
        self.killed = result if result.killed and len(result.plan.injected) == 1 else None

    @precondition(lambda self: self.killed is not None)
    @rule()
    def restart(self) -> None:
        assert self.killed is not None
        self.results.append(self.bench.resume(self.killed))
        self.killed = None

    @invariant()
    def no_rule_is_broken(self) -> None:
        assert told(self.results) == []
        self.results = []


def test_any_sequence_of_faults_kills_and_restarts_breaks_no_rule(bench: Bench, points: list[str]) -> None:
    AnyOrder.bench, AnyOrder.points = bench, points
    case = AnyOrder.TestCase
    case.settings = settings(
        max_examples=100 if ALL else 25,
        stateful_step_count=12,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    case("runTest").runTest()
