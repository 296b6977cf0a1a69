"""Short-term memory: the conversation of one run, from which every prompt is rendered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from m3.records import Message
from m3.words import estimate_tokens

CONDENSED_SHARE = 0.2  # of the budget, the most that the condensed entry may take
KEEP_SHARE = 0.4  # of the budget, what the newest raw turns may keep when older ones are folded


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


@dataclass(frozen=True)
class PastResearch:
    """An earlier run that resembles the question."""

    id: str
    query: str
    summary: str
    urls: tuple[str, ...] = ()
