"""A run's two objects: what the phases work with, and what they know so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from m3.records import EventHook, RunControl, Source, Step

if TYPE_CHECKING:
    from config import Config
    from m3.ahead import Ahead
    from m3.asking import Asking
    from m3.budget import TokenBudget
    from m3.grounding.repair import Change
    from m3.grounding.verifier import GroundingReport
    from m3.journal import Journal
    from m3.llm_clients import LLMClient
    from m3.react_parser import ParsedStep
    from m3.short_term import ShortTermMemory
    from tools import ToolSuite


@dataclass
class Run:
    """What the phases work with and never change: the settings, the model, the clock, the event hook."""

    config: Config
    llm: LLMClient
    control: RunControl  # the whole run
    loop_control: RunControl  # the loop: ends earlier, so that time is left for the report
    emit: EventHook
    journal: Journal  # through which everything from outside comes
    today: str
    ahead: Ahead  # what is done while the model is waited for
    fence: str  # the tag around foreign text, drawn anew for each run so that no page can close it


@dataclass(frozen=True)
class Checked:
    """The text that was checked last, whole, against which sources, and what was found."""

    summary: str
    sources: tuple[Source, ...]
    report: GroundingReport


@dataclass
class RunState:
    """What a run knows so far. The phases take it and give it back."""

    query: str
    memory: ShortTermMemory
    tools: ToolSuite
    budget: TokenBudget
    model: Asking  # through which every call goes
    warnings: list[str]
    steps: list[Step] = field(default_factory=list)
    iterations: int = 0
    step_began: tuple[float, int] = (0.0, 0)  # the clock and the tokens spent when the turn began
    decision: ParsedStep | None = None
    observed: dict[str, tuple[int, str]] = field(default_factory=dict)  # action key -> times asked, observation
    unreadable_turns: int = 0
    failed_searches: int = 0
    stop_reason: str = ""
    draft: str = ""
    changes: tuple[Change, ...] = ()  # what was mended in the draft
    checked: Checked | None = None
    dead_tags: dict[str, tuple[int, ...]] = field(default_factory=dict)  # sentences that cite what was never read
    conversational: bool = False  # the first action may be `finish`: the conversation may hold the answer
    from_conversation: bool = False  # the draft was written from the conversation alone
    model_gone: bool = False  # the model failed, and asking it for the report would fail too
