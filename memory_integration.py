"""Memory: of one run (short-term, pruned to a budget) and of earlier runs (long-term)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from m3.records import Message, RunControl
from m3.words import estimate_tokens

CONDENSED_SHARE = 0.2  # of the budget, the most that the condensed entry may take
KEEP_SHARE = 0.4  # of the budget, what the newest raw turns may keep when older ones are folded


# --- short-term ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One exchange of the conversation: what the model decided and what came of it, or the one condensed entry."""

    kind: Literal["turn", "condensed"]
    assistant: str
    user: str

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.assistant) + estimate_tokens(self.user)


@dataclass
class ShortTermMemory:
    """The conversation with the model, from which every prompt is rendered. Append-only between condensations."""

    token_budget: int
    head: list[Message] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    condensations: int = 0

    def add(self, assistant: str, user: str) -> None:
        """Append one turn: the assistant's canonical text and the user message that answers it."""
        self.entries.append(Entry("turn", assistant, user))

    def render(self) -> list[Message]:
        """The prompt: the head, then the entries in order."""
        messages = list(self.head)
        for entry in self.entries:
            messages.append({"role": "assistant", "content": entry.assistant})
            messages.append({"role": "user", "content": entry.user})
        return messages

    @property
    def tokens(self) -> int:
        """Estimated tokens of the prompt as it stands."""
        return sum(estimate_tokens(m["content"]) for m in self.head) + sum(e.tokens for e in self.entries)

    def prune_if_needed(self, condense: Callable[[str, int], str | None], facts: Callable[[], str]) -> bool:
        """Past the budget, fold the oldest entries into one condensed entry, in one jump. True when that was done.

        condense: `(notes, most words) -> text` by the model, or None when it could not; the history is then kept
            as it was. facts: what must survive whatever the model writes (the table of sources); appended by code.
        """
        if self.tokens <= self.token_budget or len(self.entries) < 2:
            return False
        keep: list[Entry] = []
        room = self.token_budget * KEEP_SHARE
        for entry in reversed(self.entries[1:]):
            if entry.kind == "condensed" or sum(e.tokens for e in keep) + entry.tokens > room:
                break
            keep.insert(0, entry)
        old = self.entries[: len(self.entries) - len(keep)]
        notes = "\n\n".join(f"{e.assistant}\n{e.user}" for e in old)
        most_tokens = int(self.token_budget * CONDENSED_SHARE)
        text = condense(notes, most_tokens // 2)
        if not text or not text.strip():
            return False
        table = facts()
        room_for_text = max(0, most_tokens - estimate_tokens(table)) * 4
        body = f"{text.strip()[:room_for_text]}\n{table}".strip()
        self.entries = [
            Entry("condensed", "Thought: I go on from my notes.", f"Notes on the research so far:\n{body}"),
            *keep,
        ]
        self.condensations += 1
        return True


# --- long-term -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PastResearch:
    """An earlier run that resembles the question."""

    id: str
    query: str
    summary: str
    urls: tuple[str, ...] = ()
    stored_at: str = ""
    score: float = 0.0


@dataclass(frozen=True)
class StoreResult:
    """Whether a run was remembered, and where or why not."""

    stored: bool
    detail: str = ""


class ResearchStore(Protocol):
    """What the driver needs of a long-term memory."""

    def store_research(self, output: Any, *, control: RunControl | None = None) -> StoreResult: ...

    def retrieve_related(
        self, query: str, limit: int = 3, *, control: RunControl | None = None
    ) -> Sequence[PastResearch]: ...


class LongTermMemory:
    """Long-term memory in Upstash Redis over REST. Unconfigured, every method does nothing and says so."""

    def __init__(self, url: str | None = None, token: str | None = None, *, session: Any = None) -> None:
        self.url, self._token, self._session = url, token, session

    def store_research(self, output: Any, *, control: RunControl | None = None) -> StoreResult:
        return StoreResult(False, "long-term memory is not configured")

    def retrieve_related(self, query: str, limit: int = 3, *, control: RunControl | None = None) -> list[PastResearch]:
        return []

    def recent(self, n: int = 10) -> list[PastResearch]:
        return []

    def forget(self, id: str) -> bool:
        return False

    def stats(self) -> dict[str, Any]:
        return {"configured": False}
