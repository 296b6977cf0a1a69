"""What models cost. A model that is not in the table has an unknown price, which is never shown as 0."""

from __future__ import annotations

from typing import NamedTuple

from m3.records import Usage

PRICES_AS_OF = "2026-11-30"


class Price(NamedTuple):
    """US dollars for one million tokens. cached: prompt tokens read from a prefix cache; cache_write: written to it.

    prompt_limit: the price holds for prompts up to so many tokens; a call with a longer one has no known price.
    """

    prompt: float
    cached: float
    completion: float
    cache_write: float
    prompt_limit: int = 1_000_000_000

    def of(self, usage: Usage) -> float:
        fresh = max(0, usage.prompt - usage.cached - usage.cache_write)
        parts = (
            fresh * self.prompt,
            usage.cached * self.cached,
            usage.cache_write * self.cache_write,
            usage.completion * self.completion,
        )
        return sum(parts) / 1e6


# Published list prices of the default models (and Groq's smaller one), standard tier, as of PRICES_AS_OF.
PRICES: dict[tuple[str, str], Price] = {
    ("groq", "openai/gpt-oss-120b"): Price(0.15, 0.075, 0.60, 0.15),
    ("groq", "openai/gpt-oss-20b"): Price(0.075, 0.0375, 0.30, 0.075),
    ("openai", "gpt-6-luna"): Price(0.10, 0.01, 0.50, 0.125, prompt_limit=272_000),
    ("anthropic", "claude-haiku-5-5"): Price(0.10, 0.01, 0.50, 0.125, prompt_limit=100_000),
    ("mock", "mock-extractive"): Price(0, 0, 0, 0),  # nobody is asked, so nothing is billed
}


def price_of(provider: str, model: str) -> Price | None:
    """The price of a provider's model; None where it is unknown, as on every server of one's own."""
    return PRICES.get((provider, model))


def cost_of(provider: str, model: str, usage: Usage) -> float | None:
    """US dollars that a call cost, or None where the price is unknown."""
    price = price_of(provider, model)
    return None if price is None or usage.prompt > price.prompt_limit else price.of(usage)
