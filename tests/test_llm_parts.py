"""The parts of the model clients that can be shown without a server: buckets, estimates, refusals, visible text."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import config
from m3.budget import PromptCounter, TokenBudget, oddity
from m3.llm_errors import RateLimit, classify, seconds_of
from m3.pacing import ModelFacts, RateLedger, facts_of
from m3.pricing import PRICES, cost_of
from m3.records import Message, Usage
from m3.reply_text import VisibleStream, visible_text


def said(*texts: str) -> list[Message]:
    return [{"role": "user", "content": text} for text in texts]


# --- limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "limit", "used", "requested", "wait"),
    [
        ("TPM", 12_000, 4_437, 9_854, 11.455),  # the waits are those of publicly reported refusals
        ("TPD", 200_000, 199_000, 2_338, 578.016),
    ],
)
def test_the_wait_of_a_leaky_bucket_is_the_one_that_providers_state(
    kind: str, limit: int, used: int, requested: int, wait: float
) -> None:
    assert RateLimit(kind, limit, used, requested).wait() == pytest.approx(wait, abs=0.01)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("9m38.016s", 578.016), ("2m59.56s", 179.56), ("20ms", 0.02), ("7", 7.0), ("1h2m", 3720.0), ("1d", 86_400.0),
     ("", None), ("soon", None), ("-5", None), ("nan", None), ("inf", None), ("5 apples", None), ("1.2.3s", None)],
)  # fmt: skip
def test_durations_of_every_form_are_read_and_no_other_text_is(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == (None if seconds is None else pytest.approx(seconds))


def test_a_ledger_knows_nothing_until_told_and_then_leaks() -> None:
    ledger = RateLedger()
    ledger.reserve(5_000, 0.0)
    assert ledger.wait(100_000, 0.0) == (0.0, None)
    ledger.settle(5_000, 2_000, {"x-ratelimit-limit-tokens": "8000", "x-ratelimit-remaining-tokens": "6000"}, 0.0)
    assert ledger.used(0.0) == 2_000
    assert ledger.used(7.5) == 1_000 and ledger.used(60.0) == 0
    wait, limit = ledger.wait(7_000, 0.0)
    assert wait == pytest.approx(7.5) and str(limit) == "tokens per minute (TPM): 8,000"
    assert ledger.wait(7_000, 7.5)[0] == pytest.approx(0.0)


def test_a_refusal_does_not_count_and_says_how_full_the_bucket_is() -> None:
    ledger = RateLedger()
    ledger.reserve(3_000, 0.0)
    ledger.refused(3_000, RateLimit("TPM", 8_000, 6_437, 3_000), 10.8, 0.0)
    assert ledger.used(0.0) == 6_437
    assert ledger.wait(100, 0.0)[0] == pytest.approx(10.8), "what the provider asked for is kept to"
    assert ledger.wait(3_000, 10.8)[0] == pytest.approx(0.0, abs=0.05)


def test_a_limit_of_the_day_blocks_but_does_not_become_the_limit_of_the_minute() -> None:
    ledger = RateLedger()
    ledger.refused(0, RateLimit("TPD", 200_000, 199_900, 2_500), 1_036.8, 0.0)
    wait, limit = ledger.wait(10, 100.0)
    assert wait == pytest.approx(936.8) and limit is not None and limit.kind == "TPD" and ledger.limit == 0


def test_the_runs_of_one_process_share_what_is_known_of_a_model() -> None:
    first, second = (facts_of("groq", "http://127.0.0.1:1", "m") for _ in range(2))
    first.ledger.settle(0, 100, {"x-ratelimit-limit-tokens": "8000", "x-ratelimit-remaining-tokens": "1000"}, 0.0)
    assert second.ledger.used(0.0) == 7_000 and facts_of("groq", "http://127.0.0.1:1", "n").ledger.limit == 0


def test_a_limit_that_a_served_request_disproves_is_not_believed() -> None:
    ledger = RateLedger()
    ledger.settle(0, 5_000, {"x-ratelimit-limit-tokens": "60", "x-ratelimit-remaining-tokens": "59"}, 0.0)
    assert ledger.limit == 0


def test_without_headers_what_was_billed_counts() -> None:
    ledger = RateLedger()
    ledger.limit = 8_000
    ledger.reserve(5_000, 0.0)
    ledger.settle(5_000, 1_200, {}, 0.0)
    assert ledger.used(0.0) == 1_200


def test_the_room_of_a_prompt_follows_from_the_smaller_limit() -> None:
    facts = ModelFacts()
    assert facts.max_prompt_tokens() == 0
    facts.ledger.limit, facts.context = 8_000, 4_096
    assert facts.max_prompt_tokens() == 3_096


# --- estimates -------------------------------------------------------------------------------------------


def test_a_prompt_that_grew_costs_its_last_exact_count_and_its_new_bytes() -> None:
    counter = PromptCounter()
    first = said("x" * 4_000)
    assert counter.expected(first) == 1_004 and counter.upper(first) == 2_008
    counter.learn(first, 900)
    assert counter.expected(first) == counter.upper(first) == 900
    grown = [*first, *said("y" * 400)]
    assert counter.expected(grown) == 900 + int(416 * 0.25)
    assert counter.upper(grown) == 900 + int(416 * 0.25 * 1.35)
    other = said("z" * 4_000)
    assert counter.upper(other) == int(4_016 * (900 / 4_016) * 1.35) + 1


@given(st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=5), st.text(min_size=1, max_size=300))
def test_the_upper_estimate_is_never_below_the_likely_one_and_grows_with_the_prompt(old: list[str], new: str) -> None:
    counter = PromptCounter()
    for _ in range(2):
        before, after = said(*old), said(*old, new)
        assert counter.expected(before) <= counter.upper(before)
        assert counter.upper(before) < counter.upper(after)
        counter.learn(before, 40)


def test_a_count_of_a_part_of_the_prompt_is_told_and_one_that_nobody_made_is_not() -> None:
    counter = PromptCounter()
    prompt = said("word " * 4_000)
    cut = oddity(counter, prompt, Usage(2_048, 10))
    assert cut is not None and cut.window == 2_048 and "OLLAMA_CONTEXT_LENGTH" in cut.warning
    assert oddity(counter, prompt, Usage(2_048, 10, estimated=True)) is None
    assert oddity(counter, prompt, Usage(4_500, 10)) is None
    large = oddity(counter, prompt, Usage(40_000, 10))
    assert large is not None and not large.window and "40,000" in large.warning


def test_money_is_a_lower_bound_as_soon_as_one_price_is_unknown() -> None:
    budget = TokenBudget(10_000, max_cost_usd=1.0)
    budget.book(said("a"), Usage(1_000, 100), 0.25)
    assert (budget.cost_usd, budget.unpriced_calls, budget.cost_left) == (0.25, 0, 0.75)
    budget.add(Usage(10, 0), None)
    assert (budget.cost_usd, budget.unpriced_calls) == (0.25, 1)


def test_cached_tokens_cost_what_cached_tokens_cost() -> None:
    usage = Usage(10_000, 1_000, cached=8_000, cache_write=1_000)
    assert cost_of("anthropic", "claude-haiku-5-5", usage) == pytest.approx(
        (1_000 * 0.10 + 8_000 * 0.01 + 1_000 * 0.125 + 1_000 * 0.50) / 1e6
    )
    assert cost_of("openai", "llama3", usage) is None
    assert cost_of("anthropic", "claude-haiku-5-5", Usage(150_000, 1)) is None, "longer prompts have another price"


def test_every_default_model_has_a_price() -> None:
    assert all((provider, model) in PRICES for provider, model in config.DEFAULT_MODELS.items())


def test_the_default_models_stand_in_the_lists_of_the_installed_packages() -> None:
    """Fails after an update of an SDK that no longer names a default: then the table needs a look."""
    import inspect

    from anthropic._data import DEPRECATED_MODELS
    from anthropic.types import model as anthropic_model
    from groq.types.chat import completion_create_params
    from openai.types.shared import chat_model

    ending = inspect.getsource(chat_model).partition("Deprecated values")[2]
    assert f'"{config.DEFAULT_MODELS["openai"]}"' in inspect.getsource(chat_model).partition("Deprecated values")[0]
    assert f'"{config.DEFAULT_MODELS["openai"]}"' not in ending
    assert config.DEFAULT_MODELS["anthropic"] in inspect.getsource(anthropic_model)
    assert config.DEFAULT_MODELS["anthropic"] not in DEPRECATED_MODELS
    assert config.DEFAULT_MODELS["groq"] in inspect.getsource(completion_create_params)


# --- refusals --------------------------------------------------------------------------------------------


@given(
    st.integers(100, 999),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=40),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "param", "x"]), inner, max_size=4)
        ),
        max_leaves=12,
    ),
)
def test_any_body_under_any_status_is_some_fault_on_one_line(status: int, body: object) -> None:
    fault = classify(status, body, {"retry-after": "x"})
    assert "\n" not in str(fault) and len(str(fault)) <= 300
    assert fault.wait is None or fault.wait >= 0


# --- text for people -------------------------------------------------------------------------------------

REPLIES = {
    "<think>hm</think>Oolong is a tea.": "Oolong is a tea.",
    "hm</think>\n\nOolong is a tea.": "Oolong is a tea.",
    "<think>never ends": "",
    "<thinking>a</thinking> b <think>c</think> d": "b  d",
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Oolong.<|return|>": "Oolong.",
    "<|channel|>commentary<|message|>{}<|end|>Oolong.": "Oolong.",
    "analysisWe need…assistantfinalOolong.": "Oolong.",
    "Oolong\u202fis\u00a0partly\u2011oxidised.": "Oolong is partly-oxidised.",
    "plain text, 5 < 6 and a <b>": "plain text, 5 < 6 and a <b>",
}


@pytest.mark.parametrize(("raw", "visible"), REPLIES.items())
def test_a_reader_sees_neither_reasoning_nor_marks(raw: str, visible: str) -> None:
    assert visible_text(raw) == visible


@pytest.mark.parametrize(
    "raw", [raw for raw in REPLIES if not raw.startswith("<thinking>") and "hm</think>\n" not in raw]
)
@given(cuts=st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_a_stream_shows_the_same_however_it_is_cut(raw: str, cuts: list[int]) -> None:
    stream, shown, rest = VisibleStream(), "", raw
    for size in itertools.cycle(cuts):
        if not rest:
            break
        shown += stream.feed(rest[:size])
        rest = rest[size:]
    shown += stream.close()
    assert shown == visible_text(raw)


def test_long_text_is_shown_while_it_comes() -> None:
    stream = VisibleStream()
    shown = [stream.feed("Oolong is a tea. ") for _ in range(20)]
    assert sum(map(len, shown)) > 250 and "".join(shown) + stream.close() == visible_text("Oolong is a tea. " * 20)


def test_the_packages_of_the_providers_are_not_loaded_before_a_model_is_asked() -> None:
    code = """
import sys
from config import load_config
from m3_react_agent import build_llm_client
build_llm_client(load_config({"GROQ_API_KEY": "gsk_1234567", "LLM_FALLBACK": "openai", "OPENAI_API_KEY": "sk-1234567"}))
sys.exit(sum(name in sys.modules for name in ("groq", "openai", "anthropic", "httpx", "httpx2")))
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(config.__file__).parent, check=False).returncode == 0
