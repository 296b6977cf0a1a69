# ruff: noqa: E501  (a row a case)
"""What providers do, played over real HTTP to the real SDKs: each behaviour and its right outcome."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import pytest

from m3.llm_clients import AnthropicLLMClient, GroqLLMClient, OpenAILLMClient, ProviderClient
from m3.pacing import ModelFacts
from m3.records import Completion, LLMError, Message, Usage
from tests.provider import Clock, Play, Provider, chat, delta, error, message, provider, text_block

KEY = "gsk_0123456789abcdef"
REACT: list[Message] = [
    {"role": "system", "content": "Each turn you write three lines.\nAction Input: one JSON object"},
    {"role": "user", "content": "Question: What is oolong tea?"},
]
REPORT: list[Message] = [{"role": "system", "content": "Write."}, {"role": "user", "content": "Write the report now."}]
TURN = 'Thought: go\nAction: search\nAction Input: {"query": "tea"}'
HTML = "<!DOCTYPE html><html><body>Just a moment...</body></html>"
TPM = (
    "Rate limit reached for model `openai/gpt-oss-120b` in organization `org_01` service tier `on_demand` on tokens per"
    " minute (TPM): Limit 8000, Used 6437, Requested 3000. Please try again in {0}. Need more tokens? Upgrade."
)
TPD = (
    "Rate limit reached for model `m` in organization `org_01` on tokens per day (TPD): Limit 200000, Used 199000, "
    "Requested 2338. Please try again in 9m38.016s."
)
TOO_LARGE = (
    "Request too large for model `m` in organization `org_01` on tokens per minute (TPM): Limit 8000, Requested {0}, "
    "please reduce your message size and try again."
)
OUTPUT_CAP = (
    "`max_completion_tokens` must be less than or equal to `512`, the maximum value for `max_completion_tokens` is less "
    "than the `context_window` for this model"
)
CALL = '{"name": "search", "arguments": {"query": "tea"}}'
NATIVE = {"id": "t1", "type": "function", "function": {"name": "search", "arguments": '{"query": "tea"}'}}


def make(kind: str, url: str) -> ProviderClient:
    """A client of its own facts and seed, so that no case learns from another."""
    more: dict[str, Any] = {"facts": ModelFacts(), "jitter": random.Random(7)}
    if kind == "groq":
        return GroqLLMClient(KEY, base_url=url, **more)
    if kind == "groq-llama":
        return GroqLLMClient(KEY, "llama-3.3-70b-versatile", base_url=url, **more)
    if kind == "openai":
        client = OpenAILLMClient(KEY, **more)
        client._base_url = f"{url}/v1"  # OpenAI's own address, redirected to loopback
        return client
    if kind == "compatible":
        return OpenAILLMClient(None, "local-model", base_url=f"{url}/v1", **more)
    return AnthropicLLMClient(KEY, base_url=url, **more)


@dataclass
class Case:
    """text or fault: what comes out; asked: requests made; slept: bounds of the whole waiting in virtual seconds."""

    name: str
    client: str
    script: Sequence[Play]
    text: str | None = None
    fault: str = ""  # the kind of the LLMError
    says: Sequence[str] = ()  # parts of its sentence
    asked: int = 1
    slept: tuple[float, float] = (0, 0)
    finish: str = "stop"
    usage: Usage | None = None
    wasted: Usage | None = None
    stream: bool = False
    seconds: float = 300.0
    sent: dict[str, Any] = field(default_factory=dict)  # fields of the last request; None: absent
    output: int = 1_500


OK = Play(chat(TURN))
CASES = [
    # --- plain answers and their accounting
    Case("plain", "groq", [OK], TURN, usage=Usage(100, 10), sent={"reasoning_effort": "low", "stop": None}),
    Case("plain_llama_gets_stop", "groq-llama", [OK], TURN, sent={"stop": ["\nObservation:"], "temperature": 0.2}),
    Case("plain_openai", "openai", [OK], TURN, sent={"max_completion_tokens": 1500, "temperature": None}),
    Case("plain_compatible", "compatible", [OK], TURN, sent={"max_tokens": 1500, "max_completion_tokens": None}),
    Case("no_key_is_needed_there", "compatible", [Play(chat("hi", usage=None))], "hi"),
    Case(
        "usage_details", "groq",
        [Play(chat(usage={
            "prompt_tokens": 4641, "completion_tokens": 90, "prompt_tokens_details": {"cached_tokens": 4608},
            "completion_tokens_details": {"reasoning_tokens": 60}, "queue_time": 0.1,
        }))],
        "fine", usage=Usage(4641, 90, cached=4608, reasoning=60),
    ),
    Case("usage_missing_is_estimated", "compatible", [Play(chat("x" * 40, usage=None))], "x" * 40, usage=Usage(30, 10, estimated=True)),
    Case("usage_partial_is_estimated", "compatible", [Play(chat("x" * 40, usage={"total_tokens": 5}))], "x" * 40, usage=Usage(30, 10, estimated=True)),
    Case("usage_of_nonsense_is_estimated", "compatible", [Play(chat("x" * 40, usage={"prompt_tokens": -5, "completion_tokens": "9"}))], "x" * 40, usage=Usage(30, 10, estimated=True)),
    # --- rate limits
    Case("429_waits_as_the_header_says", "groq", [Play(error("slow down", "rate_limit_exceeded"), 429, {"retry-after": "7"}), OK], TURN, asked=2, slept=(7, 7.3)),
    Case("429_waits_as_the_text_says", "groq", [Play(error(TPM.format("10.775s"), "rate_limit_exceeded", "tokens"), 429), OK], TURN, asked=2, slept=(10.7, 11.2)),
    Case("429_of_ten_minutes_is_obeyed_when_there_is_time", "groq", [Play(error("slow down"), 429, {"retry-after": "600"}), OK], TURN, asked=2, slept=(600, 600.3), seconds=3600),
    Case("429_that_does_not_fit_names_the_limit", "groq", [Play(error(TPD, "rate_limit_exceeded", "tokens"), 429)], fault="rate_limit", says=["TPD", "tokens per day", "200,000", "578 s", "300 s"]),
    Case("429_of_a_day_in_the_header", "anthropic", [Play({"type": "error", "error": {"type": "rate_limit_error", "message": "limit"}}, 429, {"retry-after": "86400"})], fault="rate_limit", says=["86400 s"]),
    Case("429_with_garbage_in_the_header", "groq", [Play(error("slow down"), 429, {"retry-after": "soon"}), OK], TURN, asked=2, slept=(0, 2)),
    Case("429_in_milliseconds", "openai", [Play(error("slow down"), 429, {"retry-after-ms": "1500"}), OK], TURN, asked=2, slept=(1.5, 1.8)),
    Case("429_until_a_date", "compatible", [Play(error("slow down"), 429, {"retry-after": formatdate(time.time() + 40, usegmt=True)}), OK], TURN, asked=2, slept=(0, 41)),
    Case("credit_balance", "anthropic", [Play({"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API."}}, 400)], fault="billing"),
    Case("429_for_ever", "compatible", [Play(error("slow down"), 429, {"retry-after": "2"})], fault="rate_limit", asked=5, slept=(8, 10)),
    Case("quota_is_no_rate_limit", "openai", [Play(error("You exceeded your current quota", "insufficient_quota", "insufficient_quota"), 429)], fault="billing", says=["OPENAI_API_KEY"]),
    # --- too large
    Case("413_is_sent_again_smaller_without_waiting", "groq", [Play(error(TOO_LARGE.format(34041), "rate_limit_exceeded", "tokens"), 413), OK], TURN, asked=2, output=33_000, sent={"max_completion_tokens": 6959}),
    Case("413_of_the_prompt_itself", "groq", [Play(error(TOO_LARGE.format(12000), "rate_limit_exceeded", "tokens"), 413)], fault="prompt_too_large", says=["8,000"]),
    Case("413_without_figures", "anthropic", [Play({"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}, 413)], fault="prompt_too_large"),
    Case("413_as_a_web_page", "compatible", [Play("<html><h1>413 Request Entity Too Large</h1></html>", 413)], fault="prompt_too_large"),
    Case("context_length", "groq", [Play(error("Please reduce the length of the messages or completion.", "context_length_exceeded", param="messages"), 400)], fault="prompt_too_large"),
    Case("context_window_is_learned", "compatible", [Play(error("This model's maximum context length is 1200 tokens. However, you requested 1600 tokens", "context_length_exceeded"), 400), OK], TURN, asked=2, sent={"max_tokens": 1159}),
    Case("cap_of_the_model", "groq", [Play(error("`max_completion_tokens` must be less than or equal to `1024`, the maximum value", None, param="max_completion_tokens"), 400), OK], TURN, asked=2, sent={"max_completion_tokens": 1024}),
    Case("context_with_a_count_of_the_prompt", "compatible", [Play(error("This model's maximum context length is 4096 tokens. However, you requested 4600 tokens (3100 in the messages, 1500 in the completion)."), 400), OK], TURN, asked=2, sent={"max_tokens": 996}),
    Case("context_of_llama_cpp", "compatible", [Play(error("Requested tokens (5000) exceed context window of 1024", "context_length_exceeded"), 400), OK], TURN, asked=2, sent={"max_tokens": 983}),
    Case("context_of_anthropic", "anthropic", [Play({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}}, 400)], fault="prompt_too_large", says=["200,000"]),
    Case("cap_of_anthropic", "anthropic", [Play({"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens: 1500 > 1024, which is the maximum allowed number of output tokens"}}, 400), Play(message(text_block(TURN)))], TURN, asked=2, sent={"max_tokens": 1024}),
    Case("cap_of_openai", "openai", [Play(error("max_completion_tokens is too large: 1500. This model supports at most 1024 completion tokens.", "invalid_value", param="max_completion_tokens"), 400), OK], TURN, asked=2, sent={"max_completion_tokens": 1024}),
    Case("error_in_a_list", "compatible", [Play(b'[{"error": {"code": 400, "message": "bad thing"}}]', 400)], fault="bad_request", says=["bad thing"]),
    Case("detail_instead_of_a_message", "compatible", [Play({"detail": "the engine is dead"}, 500), OK], TURN, asked=2, slept=(0, 1)),
    Case("otpm_caps_the_output", "groq", [Play(error("Request too large for model `m` on output tokens per minute (OTPM): Limit 1000, Requested 1500", "rate_limit_exceeded"), 413), OK], TURN, asked=2, sent={"max_completion_tokens": 1000}),
    # --- faults that only a person mends
    Case("bad_key", "groq", [Play(error("Invalid API Key", "invalid_api_key"), 401)], fault="auth", says=["GROQ_API_KEY", "openai/gpt-oss-120b", "401"]),
    Case("retired_model", "groq-llama", [Play(error("The model `llama-3.3-70b-versatile` does not exist or you do not have access to it.", "model_not_found"), 404)], fault="not_found", says=["llama-3.3-70b-versatile", "GROQ_MODEL", "openai/gpt-oss-120b"]),
    Case("retired_model_in_the_old_way", "groq-llama", [Play(error("The model has been decommissioned", "model_decommissioned"), 400)], fault="not_found", says=["GROQ_MODEL"]),
    Case("forbidden", "openai", [Play(error("Project does not have access to model", "model_access"), 403)], fault="permission", says=["OPENAI_MODEL", "gpt-6-luna"]),
    Case("cloudflare_block", "groq", [Play(HTML, 403)], fault="permission", says=["403", "web page"]),
    Case("payment", "anthropic", [Play({"type": "error", "error": {"type": "billing_error", "message": "Your credit balance is too low"}}, 402)], fault="billing", says=["ANTHROPIC_API_KEY"]),
    Case("bad_request_is_not_repeated", "groq", [Play(error("property 'reasoning_content' is unsupported"), 400)], fault="bad_request", says=["reasoning_content"]),
    Case("unprocessable_is_not_repeated", "compatible", [Play({"detail": [{"msg": "x"}]}, 422)], fault="bad_request"),
    # --- servers that are down
    Case("500", "groq", [Play(error("oops", kind="internal_server_error"), 500), OK], TURN, asked=2, slept=(0, 1)),
    Case("503_over_capacity", "groq", [Play(error("m is currently over capacity. Please try again and back off exponentially.", kind="internal_server_error"), 503)] * 2 + [OK], TURN, asked=3, slept=(0, 3)),
    Case("503_as_a_web_page", "compatible", [Play(HTML, 503), OK], TURN, asked=2, slept=(0, 1)),
    Case("498_flex_capacity", "groq", [Play(error("capacity", "capacity_exceeded"), 498), OK], TURN, asked=2, slept=(0, 1)),
    Case("408", "openai", [Play(error("timeout"), 408), OK], TURN, asked=2, slept=(0, 1)),
    Case("409", "openai", [Play(error("conflict"), 409), OK], TURN, asked=2, slept=(0, 1)),
    Case("529_overloaded", "anthropic", [Play({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529), Play(message(text_block(TURN)))], TURN, asked=2, slept=(0, 1)),
    Case("overloaded_under_another_status", "anthropic", [Play({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 400), Play(message(text_block(TURN)))], TURN, asked=2, slept=(0, 1)),
    Case("500_for_ever", "groq", [Play(error("oops"), 500)], fault="server", asked=5, slept=(0, 16), says=["5 attempts", "500", "oops"]),
    Case("no_time_left_for_another_attempt", "groq", [Play(error("oops"), 503, {"retry-after": "900"})], fault="server", says=["503"]),
    Case("connection_reset", "groq", [Play(deed="reset"), OK], TURN, asked=2, slept=(0, 1)),
    # --- gpt-oss calls tools although none were offered
    Case("tool_use_failed", "groq", [Play(error("Tool choice is none, but model called a tool", "tool_use_failed", failed_generation=CALL), 400)], 'Action: search\nAction Input: {"query": "tea"}'),
    Case("tool_use_failed_with_text", "groq", [Play(error("Failed to parse tool call arguments as JSON", "tool_use_failed", failed_generation=TURN), 400)], TURN),
    Case("tool_use_failed_without_text", "groq", [Play(error("Tool choice is none, but model called a tool", "tool_use_failed", failed_generation=""), 400), OK], TURN, asked=2, slept=(0, 1)),
    Case("json_validate_failed", "groq", [Play(error("Failed to generate JSON", "json_validate_failed", failed_generation=""), 400), OK], TURN, asked=2, slept=(0, 1)),
    Case("tool_use_failed_inside_a_stream", "groq", [Play([{"error": {"message": "Tool choice is none, but model called a tool", "code": "tool_use_failed", "failed_generation": CALL, "status_code": 400}}])], 'Action: search\nAction Input: {"query": "tea"}', stream=True),
    Case("native_tool_call", "groq", [Play(chat(None, "tool_calls", tool_calls=[NATIVE]))], 'Action: search\nAction Input: {"query": "tea"}', finish="tool_calls"),
    Case("native_tool_call_beside_a_thought", "compatible", [Play(chat("Thought: go", "tool_calls", tool_calls=[NATIVE]))], 'Thought: go\nAction: search\nAction Input: {"query": "tea"}', finish="tool_calls"),
    Case("anthropic_tool_use", "anthropic", [Play(message({"type": "tool_use", "id": "t", "name": "search", "input": {"query": "tea"}}, stop="tool_use"))], 'Action: search\nAction Input: {"query": "tea"}', finish="tool_calls"),
    # --- empty and broken replies
    Case("reasoning_ate_the_budget", "groq", [Play(chat("", "length", reasoning="hmm")), OK], TURN, asked=2, sent={"max_completion_tokens": 3000}, wasted=Usage(100, 10)),
    Case("reasoning_eats_every_budget", "groq", [Play(chat("", "length", reasoning="hmm"))], "<think>hmm</think>", asked=2, finish="length"),
    Case("stop_fired_inside_reasoning", "groq-llama", [Play(chat("", "stop")), OK], TURN, asked=2, sent={"stop": None}),
    Case("content_null_with_reasoning_content", "compatible", [Play(chat(None, reasoning_content=TURN))], f"<think>{TURN}</think>", asked=2),
    Case("no_finish_reason", "compatible", [Play(chat(TURN, None)), OK], TURN, asked=2, slept=(0, 1), wasted=Usage(100, 10)),
    Case("finish_reason_error", "compatible", [Play(chat(TURN, "error")), OK], TURN, asked=2, slept=(0, 1)),
    Case("choices_null", "compatible", [Play({"id": "x", "choices": None})], fault="broken_reply", asked=3, slept=(0, 4), says=["choices"]),
    Case("choices_empty", "groq", [Play({"id": "x", "choices": []}), OK], TURN, asked=2, slept=(0, 1)),
    Case("error_inside_a_200", "compatible", [Play({"error": {"code": 429, "message": "upstream is busy"}, "choices": None}), OK], TURN, asked=2, slept=(0, 1)),
    Case("error_without_a_code_inside_a_200", "compatible", [Play({"error": "model runner has stopped"})], fault="broken_reply", asked=3, slept=(0, 4), says=["model runner has stopped"]),
    Case("html_inside_a_200", "compatible", [Play(HTML)], fault="broken_reply", asked=3, slept=(0, 4), says=["web page", "address"]),
    Case("not_json", "groq", [Play("upstream connect error"), OK], TURN, asked=2, slept=(0, 1)),
    Case("a_list_for_a_body", "compatible", [Play(b"[1, 2]"), OK], TURN, asked=2, slept=(0, 1)),
    Case("content_as_parts", "compatible", [Play(chat([{"type": "text", "text": "hi"}]))], fault="broken_reply", asked=3, slept=(0, 4), says=["list of parts"]),
    Case("larger_than_memory", "compatible", [Play(chat("x" * 9_000_000))], fault="broken_reply", asked=3, slept=(0, 4), says=["MB"]),
    Case("a_megabyte_is_cut", "compatible", [Play(chat("x" * 1_000_000))], "x" * 100_000),
    Case("a_stream_without_end_is_cut", "compatible", [Play([delta("x" * 1_000)] * 200, cut=True)], "x" * 100_000, finish="length", stream=True),
    Case("content_filter", "openai", [Play(chat("", "content_filter"))], fault="refusal"),
    Case("refusal_that_ends_with_stop", "openai", [Play(chat(None, "stop", refusal="I cannot help with that."))], fault="refusal"),
    Case("streamed_refusal", "compatible", [Play([delta(delta={"refusal": "I cannot"}), delta(finish="stop")])], fault="refusal", stream=True),
    Case("output_cap_in_the_words_of_groq", "groq", [Play(error(OUTPUT_CAP, param="max_completion_tokens"), 400), OK], TURN, asked=2, sent={"max_completion_tokens": 512}),
    Case("anthropic_refusal", "anthropic", [Play(message(stop="refusal"))], fault="refusal"),
    # --- parameters
    Case("stop_is_dropped", "compatible", [Play(error("Unsupported parameter: 'stop' is not supported with this model.", "unsupported_parameter", param="stop"), 400), OK], TURN, asked=2, sent={"stop": None, "temperature": 0.2}),
    Case("temperature_is_dropped", "compatible", [Play(error("Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.", "unsupported_value", param="temperature"), 400), OK], TURN, asked=2, sent={"temperature": None}),
    Case("max_tokens_becomes_max_completion_tokens", "compatible", [Play(error("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "unsupported_parameter", param="max_tokens"), 400), OK], TURN, asked=2, sent={"max_tokens": None, "max_completion_tokens": 1500}),
    Case("max_completion_tokens_becomes_max_tokens", "openai", [Play(error("Unrecognized request argument supplied: max_completion_tokens", None), 400), OK], TURN, asked=2, sent={"max_tokens": 1500, "max_completion_tokens": None}),
    Case("two_parameters_are_dropped", "compatible", [Play(error("unknown parameter: stop"), 400), Play(error("unknown parameter: temperature"), 400), OK], TURN, asked=3, sent={"stop": None, "temperature": None}),
    Case("the_same_parameter_twice_ends_it", "compatible", [Play(error("unknown parameter: stop"), 400)], fault="parameter", asked=2),
    # --- streams
    Case("stream", "groq", [Play([delta("fi"), delta("ne", "stop"), {"id": "c1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}])], "fine", usage=Usage(9, 2), stream=True),
    Case("stream_with_usage_of_groq", "groq", [Play([delta("fine"), delta(None, "stop", x_groq={"usage": {"prompt_tokens": 9, "completion_tokens": 2}})])], "fine", usage=Usage(9, 2), stream=True),
    Case("cut_stream_is_broken", "compatible", [Play([delta("fi")], cut=True), Play([delta("fine", "stop")])], "fine", asked=2, slept=(0, 1), stream=True),
    Case("stream_without_finish_reason", "openai", [Play([delta("fi")]), Play([delta("fine", "stop")])], "fine", asked=2, slept=(0, 1), stream=True),
    Case("stream_that_ends_in_an_error", "groq", [Play([delta("fi"), {"error": {"message": "over capacity", "code": "503"}}]), Play([delta("fine", "stop")])], "fine", asked=2, slept=(0, 1), stream=True),
    Case("stream_with_x_groq_error", "groq", [Play([delta("fi", x_groq={"error": "overloaded"})]), Play([delta("fine", "stop")])], "fine", asked=2, slept=(0, 1), stream=True),
    Case("stream_asked_for_and_json_given", "compatible", [Play(chat("fine"))], "fine", stream=True),
    Case("stream_options_are_dropped", "compatible", [Play(error("Unknown parameter: 'stream_options'.", None, param="stream_options"), 400), Play([delta("fine", "stop")])], "fine", asked=2, stream=True, sent={"stream_options": None}),
    Case(
        "anthropic_stream", "anthropic",
        [Play([
            {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 30, "cache_read_input_tokens": 70, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "fine"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 12}},
            {"type": "message_stop"},
        ])],
        "fine", usage=Usage(100, 12, cached=70), stream=True,
    ),
    Case("anthropic_stream_error", "anthropic", [Play([{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}]), Play(message(text_block("fine")))], "fine", asked=2, slept=(0, 1), stream=True),
    # --- Anthropic's own form
    Case("anthropic", "anthropic", [Play(message(text_block(TURN)))], TURN, usage=Usage(100, 10), sent={"temperature": None, "cache_control": {"type": "ephemeral"}, "stop_sequences": ["\nObservation:"], "max_tokens": 1500}),
    Case("anthropic_thinking_comes_first", "anthropic", [Play(message({"type": "thinking", "thinking": "hm", "signature": ""}, text_block("fi"), text_block("ne")))], "fine"),
    Case("anthropic_empty_content", "anthropic", [Play(message()), Play(message(text_block("fine")))], "fine", asked=2),
    Case("anthropic_max_tokens", "anthropic", [Play(message(text_block("fi"), stop="max_tokens"))], "fi", finish="length"),
    Case("anthropic_usage_counts_the_cache", "anthropic", [Play(message(text_block("fine"), cache_creation_input_tokens=1000, cache_read_input_tokens=2000))], "fine", usage=Usage(3100, 10, cached=2000, cache_write=1000)),
]  # fmt: skip


def ask(case: Case, client: ProviderClient, clock: Clock) -> Completion | LLMError:
    pieces: list[str] = []
    try:
        return client.complete(
            REPORT if case.stream else REACT,
            max_output_tokens=case.output,
            control=clock.control(case.seconds),
            on_text=pieces.append if case.stream else None,
        )
    except LLMError as problem:
        return problem


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_behaviour_of_a_provider_has_its_right_outcome(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with provider(case.script) as server:
        result = ask(case, make(case.client, server.url), clock)
    check(case, result, server, clock)
    assert capfd.readouterr() == ("", ""), "nothing may be printed, a traceback least of all"


@pytest.mark.parametrize("name", ["groq", "compatible", "anthropic"])
def test_a_connection_that_is_not_made_is_said_in_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with provider([]) as server:
        closed = server.url
    case = Case("", "", [])
    assert str(ask(case, make(name, closed), Clock())).endswith(": no connection: it was refused (5 attempts)")

    def unknown(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    said = str(ask(case, make(name, closed), Clock()))
    assert said.endswith(": no connection: its name could not be resolved (5 attempts)") and "Errno" not in said


def check(case: Case, result: Completion | LLMError, server: Provider, clock: Clock) -> None:
    if isinstance(result, LLMError):
        assert case.fault, f"unexpected error: {result.kind}: {result}"
        assert result.kind == case.fault
        assert all(part in str(result) for part in case.says), str(result)
        assert "\n" not in str(result) and KEY not in str(result) and "org_01" not in str(result), str(result)
        assert result.fatal == (case.fault in ("auth", "permission", "not_found", "billing"))
    else:
        assert (result.text, result.finish_reason) == (case.text, case.finish)
        assert case.usage is None or result.usage == case.usage
        assert case.wasted is None or result.wasted == case.wasted
    assert len(server.asked) == case.asked
    assert case.slept[0] <= sum(clock.sleeps) <= case.slept[1], clock.sleeps
    assert clock.now - 1_000 <= case.seconds
    sent = server.asked[-1].body
    assert {name: sent.get(name) for name in case.sent} == case.sent


def test_there_are_at_least_forty_behaviours_and_no_two_have_one_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 40


def test_what_one_run_learned_of_a_model_the_next_does_not_ask_again() -> None:
    refusal = Play(error("Unsupported parameter: 'stop'", "unsupported_parameter", param="stop"), 400)
    with provider([refusal, OK]) as server:
        for _ in range(2):
            client = OpenAILLMClient(None, "learning-model", base_url=f"{server.url}/v1")
            client.complete(REACT, max_output_tokens=500, control=Clock().control())
    assert [("stop" in asked.body) for asked in server.asked] == [True, False, False]


def test_a_reply_that_broke_off_while_it_was_shown_is_asked_again_in_silence() -> None:
    shown: list[str] = []
    with provider([Play([delta("Oolong "), delta("is")], cut=True), Play(chat("Oolong is a tea."))]) as server:
        client = make("groq", server.url)
        reply = client.complete(REPORT, max_output_tokens=500, control=Clock().control(), on_text=shown.append)
    assert (reply.text, shown) == ("Oolong is a tea.", ["Oolong ", "is"])
    assert reply.wasted.total > 0, "the broken reply may have been billed"


def test_no_attempt_is_made_that_the_tokens_of_the_run_do_not_allow() -> None:
    with provider([Play(chat(TURN, None))]) as server, pytest.raises(LLMError) as caught:
        make("groq", server.url).complete(REACT, max_output_tokens=300, control=Clock().control(), token_allowance=330)
    assert len(server.asked) == 1 and caught.value.usage.total == 110


def test_an_expired_run_asks_nobody() -> None:
    with provider([OK]) as server, pytest.raises(LLMError) as caught:
        make("groq", server.url).complete(REACT, max_output_tokens=300, control=Clock().control(0))
    assert (server.asked, caught.value.kind, caught.value.usage.total) == ([], "deadline", 0)
