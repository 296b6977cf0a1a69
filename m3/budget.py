"""The token budget of a run: what was spent, what a call may cost at most, what is kept for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from m3.records import Message, Usage

SAFETY = 1.35  # a calibrated count is low by more than this in no measured case of mixed prompts
RESERVE_SHARE, RESERVE_MOST = 0.15, 6_000  # tokens kept for the report
TIME_RESERVE_SHARE, TIME_RESERVE_MOST = 0.20, 45.0  # seconds kept for the report
MESSAGE_OVERHEAD = 16  # bytes a message costs beyond its text (roles and separators)


@dataclass
class TokenBudget:
    """Counts tokens against one hard bound. Plain data, so that a run can be resumed from it."""

    max_tokens: int
    usage: Usage = Usage()
    tokens_per_byte: float | None = None  # from the last reply; None before the first

    @property
    def spent(self) -> int:
        return self.usage.total

    @property
    def left(self) -> int:
        return max(0, self.max_tokens - self.spent)

    @property
    def reserve(self) -> int:
        return min(RESERVE_MOST, int(self.max_tokens * RESERVE_SHARE))

    def upper_estimate(self, messages: Sequence[Message]) -> int:
        """The most a prompt may cost: calibrated bytes × 1.35, or bytes / 2 before the first reply."""
        size = prompt_bytes(messages)
        return size // 2 if self.tokens_per_byte is None else int(size * self.tokens_per_byte * SAFETY) + 1

    def book(self, messages: Sequence[Message], usage: Usage) -> None:
        """Count a call that was made, and calibrate the estimate by what the server reported for its prompt."""
        self.usage = self.usage + usage
        size = prompt_bytes(messages)
        if usage.prompt and size:
            self.tokens_per_byte = usage.prompt / size


def prompt_bytes(messages: Sequence[Message]) -> int:
    return sum(len(m["content"].encode("utf-8", "replace")) + MESSAGE_OVERHEAD for m in messages)


def time_reserve(max_seconds: float) -> float:
    return min(TIME_RESERVE_MOST, max_seconds * TIME_RESERVE_SHARE)
