"""Keeps calls inside a provider's rate limits, and remembers what else was learned about a model.

A provider that limits tokens a minute refuses a request before running it, so the wait is computed beforehand.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from m3.llm_errors import RateLimit, seconds_of

MINUTE = 60.0
TURN_OUTPUT = 1_000  # tokens that a turn of the loop with some reasoning needs; to have more it does not wait


class RateLedger:
    """The token bucket of one model at one provider: it leaks `limit` tokens a minute, and calls fill it.

    Times are seconds of the run's clock. Unknown until a header or a refusal states the limit; then every wait is
    (used + needed - limit) / limit × 60 s, the rule that the reported refusals follow to the millisecond. Safe for
    several threads: the runs of one process share the ledgers of their models.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.limit = 0  # tokens a minute; 0 for unknown
        self._used = 0.0
        self._at = 0.0
        self._blocked_until = 0.0
        self._blocked_by: RateLimit | None = None

    def used(self, now: float) -> float:
        """Tokens in the bucket at `now`."""
        with self._lock:
            return self._used_at(now)

    def _used_at(self, now: float) -> float:
        if not self.limit:
            return 0.0
        return max(0.0, self._used - max(0.0, now - self._at) * self.limit / MINUTE)

    def wait(self, need: int, now: float) -> tuple[float, RateLimit | None]:
        """Seconds until a request of `need` tokens may be sent, and the limit that says so."""
        with self._lock:
            blocked = max(0.0, self._blocked_until - now)
            if not self.limit:
                return blocked, self._blocked_by
            used = self._used_at(now)
            limit = RateLimit("TPM", self.limit, round(used), need)
            missing = used + need - self.limit
            paced = max(0.0, missing / self.limit * MINUTE)
            return (blocked, self._blocked_by) if blocked >= paced and blocked else (paced, limit)

    def reserve(self, tokens: int, now: float) -> None:
        """A request was sent: its prompt and its largest completion count at once."""
        with self._lock:
            self._set(self._used_at(now) + tokens, now)

    def settle(self, reserved: int, billed: int, headers: Mapping[str, str], now: float) -> None:
        """A reply came: what the provider's headers say is the truth; without them, what was billed."""
        limit = _whole(headers.get("x-ratelimit-limit-tokens"))
        remaining = _whole(headers.get("x-ratelimit-remaining-tokens"))
        if limit and limit < billed:
            limit = None  # what was served disproves it
        with self._lock:
            if limit:
                if not self.limit:
                    self._set(0.0, now)
                self.limit = limit
            if limit and remaining is not None:
                self._set(max(0.0, limit - remaining), now)
            else:
                self._set(max(0.0, self._used_at(now) - reserved + billed), now)

    def refused(self, reserved: int, limit: RateLimit | None, wait: float | None, now: float) -> None:
        """A request was refused: it does not count, and the refusal says how full the bucket is."""
        with self._lock:
            self._set(max(0.0, self._used_at(now) - reserved), now)
            if limit and limit.kind == "TPM" and limit.limit:
                self.limit = limit.limit
                if limit.used:
                    self._set(float(limit.used), now)
            if wait:
                self._blocked_until, self._blocked_by = now + wait, limit

    def _set(self, used: float, now: float) -> None:
        self._used, self._at = used, now


def _whole(text: str | None) -> int | None:
    value = seconds_of(text or "")
    return None if value is None else int(value)


class ModelFacts:
    """What was learned about one model at one address: shared by all runs of the process.

    dropped: request fields it refused; output_cap: the most output tokens it accepts; context: its window in
    tokens; both 0 for unknown.
    """

    def __init__(self) -> None:
        self.ledger = RateLedger()
        self.dropped: set[str] = set()
        self.output_cap = 0
        self.context = 0

    def max_prompt_tokens(self) -> int:
        """Tokens a prompt may have so that a turn of ordinary length fits beside it; 0 while no limit is known."""
        bounds = [bound for bound in (self.ledger.limit, self.context) if bound]
        return max(1, min(bounds) - TURN_OUTPUT) if bounds else 0


_known: dict[tuple[str, str, str], ModelFacts] = {}
_known_lock = threading.Lock()


def facts_of(provider: str, base_url: str, model: str) -> ModelFacts:
    """The facts of a model at an address; the same object for everyone in this process."""
    with _known_lock:
        return _known.setdefault((provider, base_url, model), ModelFacts())
