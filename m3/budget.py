"""The budget of a run: what was spent, what a call may cost at most, what is kept for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from m3.records import Message, Usage

SAFETY = 1.35  # a calibrated count is low by more than this in no measured case of mixed prompts
TOKENS_PER_BYTE = 0.25  # of new text beside a counted prompt, the least that is assumed
RESERVE_SHARE, RESERVE_MOST = 0.15, 6_000  # tokens kept for the report
TIME_RESERVE_SHARE, TIME_RESERVE_MOST = 0.20, 45.0  # seconds kept for the report
ODD_FACTOR = 4  # a count above this multiple of the estimate is told
CUT_SHARE, CUT_LEAST = 0.6, 2_500  # a count below this share of an estimate of at least so many tokens is told
MIN_OUTPUT = 200  # tokens; a call that could not even write this much is not made
MESSAGE_OVERHEAD = 16  # bytes a message costs beyond its text (roles and separators)


class PromptCounter:
    """Estimates a prompt's tokens from what the server counted before.

    A prompt that begins with the one counted last costs that exact count plus its new bytes; any other is its bytes
    times the last known ratio; before the first count there are only bytes.
    """

    def __init__(self) -> None:
        self.tokens_per_byte: float | None = None
        self.counted: tuple[Message, ...] = ()
        self.exact = 0

    def expected(self, messages: Sequence[Message]) -> int:
        """The likely count, as a server would report it."""
        return self._estimate(messages, 1.0, TOKENS_PER_BYTE)

    def upper(self, messages: Sequence[Message]) -> int:
        """The most it may be: × 1.35 on what is not counted, bytes / 2 before the first count."""
        return self._estimate(messages, SAFETY, 0.5)

    def likely_most(self, messages: Sequence[Message]) -> int:
        """As `upper`, but without its doubt before the first count: for limits that a refusal would teach anyway."""
        return self._estimate(messages, SAFETY, TOKENS_PER_BYTE * SAFETY)

    def _estimate(self, messages: Sequence[Message], factor: float, uncalibrated: float) -> int:
        size = prompt_bytes(messages)
        if self.tokens_per_byte is None:
            return int(size * uncalibrated)
        if self.counted and tuple(messages[: len(self.counted)]) == self.counted:
            new = prompt_bytes(messages[len(self.counted) :])
            return self.exact + int(new * max(self.tokens_per_byte, TOKENS_PER_BYTE) * factor)
        return int(size * self.tokens_per_byte * factor) + 1

    def learn(self, messages: Sequence[Message], exact: int) -> None:
        """Take over a server's count of these messages."""
        size = prompt_bytes(messages)
        if exact > 0 and size:
            self.tokens_per_byte = exact / size
            self.counted, self.exact = tuple(messages), exact


@dataclass
class TokenBudget:
    """Counts tokens and money against their bounds. Plain data, so that a run can be resumed from it.

    cost_usd: of the calls whose price is known; unpriced_calls: of the others, which makes the cost a lower bound.
    """

    max_tokens: int
    usage: Usage = Usage()
    counter: PromptCounter = field(default_factory=PromptCounter)
    max_cost_usd: float | None = None
    cost_usd: float = 0.0
    unpriced_calls: int = 0

    @property
    def spent(self) -> int:
        return self.usage.total

    @property
    def left(self) -> int:
        return max(0, self.max_tokens - self.spent)

    @property
    def reserve(self) -> int:
        return min(RESERVE_MOST, int(self.max_tokens * RESERVE_SHARE))

    @property
    def cost_left(self) -> float:
        """US dollars; infinity without a bound."""
        return float("inf") if self.max_cost_usd is None else max(0.0, self.max_cost_usd - self.cost_usd)

    @property
    def cost_reserve(self) -> float:
        return 0.0 if self.max_cost_usd is None else self.max_cost_usd * RESERVE_SHARE

    def upper_estimate(self, messages: Sequence[Message]) -> int:
        """The most a prompt may cost, in tokens."""
        return self.counter.upper(messages)

    def book(self, messages: Sequence[Message], usage: Usage, cost: float | None = None) -> None:
        """Count a call that was made, and calibrate the estimate by what the server reported for its prompt."""
        self.add(usage, cost)
        if usage.prompt:
            self.counter.learn(messages, usage.prompt)

    def add(self, usage: Usage, cost: float | None = None) -> None:
        """Count tokens without learning from them: attempts that failed, or a count that cannot be true."""
        self.usage = self.usage + usage
        if usage.total and cost is None:
            self.unpriced_calls += 1
        self.cost_usd += cost or 0.0


class Oddity(NamedTuple):
    """A reported usage that cannot be what it seems. window: tokens to which the server seems to cut, or 0."""

    warning: str
    window: int = 0


def oddity(counter: PromptCounter, messages: Sequence[Message], usage: Usage) -> Oddity | None:
    """What is wrong with a reported count of a prompt, None when it is plausible or nobody counted.

    Far more than expected is booked as reported. Far less means that the server read only a part: Ollama cuts prompts
    to a window of 4,096 tokens without a word, and no request field changes that.
    """
    expected = counter.expected(messages)
    if usage.estimated or not usage.prompt or not expected:
        return None
    if usage.prompt > ODD_FACTOR * expected:
        return Oddity(
            f"The server counted {usage.prompt:,} prompt tokens where about {expected:,} were expected; "
            "they are booked as reported."
        )
    if expected >= CUT_LEAST and usage.prompt < CUT_SHARE * expected:
        return Oddity(
            f"The server read only {usage.prompt:,} of about {expected:,} prompt tokens: it seems to cut long prompts. "
            "At Ollama, set OLLAMA_CONTEXT_LENGTH to 16384 or more.",
            window=usage.prompt,
        )
    return None


def prompt_bytes(messages: Sequence[Message]) -> int:
    return sum(len(m["content"].encode("utf-8", "replace")) + MESSAGE_OVERHEAD for m in messages)


def time_reserve(max_seconds: float) -> float:
    return min(TIME_RESERVE_MOST, max_seconds * TIME_RESERVE_SHARE)
