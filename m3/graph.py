"""The run's phases as a LangGraph application, for teams that need durable or distributed execution.

The state of the graph is the journal of the run: plain data. A process that finds a state it did not make itself
rebuilds the run by playing the recorded effects through the same phases, which asks nobody and costs milliseconds,
and goes on from there. langgraph is imported here and nowhere else.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypedDict

from config import ConfigError
from m3.codec import from_plain
from m3.journal import Effect, Journal

KEPT_RUNS = 32  # rebuilt runs that stay in memory


class GraphState(TypedDict, total=False):
    """What a checkpoint holds. `output` is FinalOutput.to_dict() once the run is over."""

    query: str
    effects: list[dict[str, Any]]
    path: list[str]
    next: str
    output: dict[str, Any]


class GraphRun(Protocol):
    """A run as the driver hands it over: its journal, and its phases as steps that name the next one."""

    @property
    def journal(self) -> Journal: ...

    def step(self, node: str) -> str: ...

    def output(self) -> dict[str, Any]: ...


NODES: Mapping[str, tuple[str, ...]] = {
    "thought_and_action": ("act_and_observe", "synthesis"),
    "act_and_observe": ("thought_and_action", "synthesis"),
    "synthesis": ("end",),
}


def build(begin: Callable[[str, Journal], GraphRun], max_iterations: int, checkpointer: Any) -> Any:
    """Compile the graph. `begin` starts a run of a question on a journal. Raises ConfigError without langgraph."""
    try:
        from langchain_core.runnables import RunnableConfig
        from langgraph.graph import END, START, StateGraph
    except ImportError:
        raise ConfigError("the LangGraph application needs langgraph: pip install langgraph") from None

    runs = _Runs(begin)

    def node(name: str) -> Callable[[GraphState, RunnableConfig], GraphState]:
        def step(state: GraphState, config: RunnableConfig) -> GraphState:
            return runs.step(name, state, str(config.get("configurable", {}).get("thread_id", "")))

        # LangGraph decides by the annotation whether a node gets the configuration; here it would be a string.
        step.__annotations__["config"] = RunnableConfig
        return step

    graph: Any = StateGraph(GraphState)
    for name in NODES:
        graph.add_node(name, node(name))
    graph.add_edge(START, "thought_and_action")
    for name, following in NODES.items():
        targets = {other: END if other == "end" else other for other in following}
        graph.add_conditional_edges(name, lambda state: state["next"], targets)
    # Two nodes an iteration, and the report; a loop that ran on would end here and not at LangGraph's 10,007.
    return graph.compile(checkpointer=checkpointer).with_config(recursion_limit=2 * max_iterations + 10)


class _Runs:
    """The runs this process works on, found again by thread and by the length of their journal."""

    def __init__(self, begin: Callable[[str, Journal], GraphRun]) -> None:
        self._begin = begin
        self._kept: OrderedDict[str, tuple[list[str], int, GraphRun]] = OrderedDict()

    def step(self, name: str, state: GraphState, thread: str) -> GraphState:
        path = list(state.get("path", []))
        effects = state.get("effects", [])
        run = self._find(state["query"], path, effects, thread)
        following = run.step(name)
        update: GraphState = {
            "effects": [effect.as_plain() for effect in run.journal.effects],
            "path": [*path, name],
            "next": following,
        }
        if following == "end":
            update["output"] = run.output()
        self._kept[thread] = (update["path"], len(update["effects"]), run)
        while len(self._kept) > KEPT_RUNS:
            self._kept.popitem(last=False)
        return update

    def _find(self, query: str, path: list[str], effects: list[dict[str, Any]], thread: str) -> GraphRun:
        kept = self._kept.pop(thread, None)
        if kept is not None and path and kept[:2] == (path, len(effects)):
            return kept[2]
        run = self._begin(query, Journal(recorded=deque(from_plain(Effect, item) for item in effects)))
        for name in path:
            run.step(name)
        return run
