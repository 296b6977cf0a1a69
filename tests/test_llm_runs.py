"""Whole runs over a provider on loopback: what a fault of the model makes of the result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from config import Config, ConfigError, load_config
from m3.llm_clients import FallbackLLMClient
from m3.prompts import CONDENSE_MARK, SYNTHESIS_MARK, is_react_prompt
from m3.records import Event, LimitEvent, NoticeEvent, RunControl, TextDelta
from m3.report import FinalOutput
from m3_react_agent import build_llm_client, run_react_loop
from tests.provider import Asked, Clock, Play, Script, chat, delta, error, message, provider, text_block
from tests.scripted import DictWeb, action

ROOT = Path(__file__).parent.parent
KEY = "gsk_0123456789abcdef"
PAGES = {
    "https://tea.example/oolong": "Oolong is a tea that is partly oxidised. Oolong comes from Fujian and Taiwan.",
    "https://tea.example/green": "Green tea is not oxidised. Green tea is drunk in Japan and in China.",
}
REPORT = "Oolong is a tea that is partly oxidised. [Source 1]"
TURNS = [
    action("search", '{"query": "oolong tea"}'),
    action("fetch", '{"results": ["R1", "R2"]}'),
    action("finish"),
]


def play_turns(*replies: Play) -> Script:
    """Search, fetch, finish and report, where a reply given here takes the place of the turn with its number."""
    given = dict(enumerate(replies))

    def script(asked: Asked) -> Play:
        number = script.count  # type: ignore[attr-defined]
        script.count += 1  # type: ignore[attr-defined]
        if number in given and given[number].body is not None:
            return given[number]
        return ordinary(asked)

    script.count = 0  # type: ignore[attr-defined]
    return script


def ordinary(asked: Asked) -> Play:
    """What a good model says next, from the prompt alone."""
    messages = asked.body["messages"]
    last = messages[-1]["content"]
    if SYNTHESIS_MARK in last:
        text = REPORT
    elif CONDENSE_MARK in last:
        text = "Oolong is partly oxidised [Source 1]."
    else:
        text = TURNS[min(sum(m["role"] == "assistant" for m in messages), 2)]
    if asked.path.endswith("/v1/messages"):
        return Play(message(text_block(text)))
    return Play(chat(text, usage=counted(asked)))


def counted(asked: Asked, share: float = 1.0) -> dict[str, int]:
    size = sum(len(m["content"]) for m in asked.body["messages"])
    return {"prompt_tokens": int(size / 4 * share), "completion_tokens": 30}


def settings(url: str, **env: str) -> Config:
    return load_config({"GROQ_API_KEY": KEY, "GROQ_BASE_URL": url, **env})


def run(config: Config, on_event: Any = None, control: RunControl | None = None) -> FinalOutput:
    web = DictWeb(PAGES)
    return run_react_loop(
        "What is oolong tea?", config=config, search=web, fetcher=web, on_event=on_event, control=control
    )


# --- a run that goes well --------------------------------------------------------------------------------


def test_a_run_at_groq_is_answered_and_its_report_names_tokens_cost_and_model() -> None:
    with provider(ordinary) as server:
        output = run(settings(server.url))
    assert (output.outcome, output.llm_provider, output.model) == ("answered", "groq", "openai/gpt-oss-120b")
    assert output.summary == REPORT and "groq" in output.services
    figures = output.to_dict()
    prompt, completion = output.usage.prompt, output.usage.completion
    assert figures["tokens_consumed"] == prompt + completion == figures["prompt_tokens"] + figures["completion_tokens"]
    assert figures["cost_usd"] == pytest.approx((prompt * 0.15 + completion * 0.60) / 1e6, abs=1e-6)
    assert f"- cost_usd: {figures['cost_usd']}" in output.to_markdown()
    assert {asked.path for asked in server.asked} == {"/openai/v1/chat/completions"}
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


def test_the_address_with_its_path_is_taken_as_well() -> None:
    with provider(ordinary) as server:
        assert run(settings(f"{server.url}/openai/v1/")).outcome == "answered"


def test_each_prompt_of_the_loop_is_a_prefix_of_the_next_so_that_caches_hit() -> None:
    """Share of a prompt's characters that the prompt before it had already, over the loop's own calls."""
    with provider(play_turns(Play(), Play(chat("no action here")), Play(chat(TURNS[1])))) as server:
        run(settings(server.url))
    prompts = [json.dumps(a.body["messages"])[:-1] for a in server.asked if is_react_prompt(a.body["messages"])]
    assert len(prompts) == 4
    share = [len(os.path.commonprefix([old, new])) / len(old) for old, new in zip(prompts, prompts[1:], strict=False)]
    assert share == [1.0] * 3


def test_a_price_that_nobody_knows_is_called_unknown_and_never_zero() -> None:
    with provider(ordinary) as server:
        output = run(load_config({"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_MODEL": "m", "MAX_COST_USD": "1"}))
    assert output.outcome == "answered" and output.to_dict()["cost_usd"] == "unknown"
    assert any("MAX_COST_USD cannot be kept" in warning for warning in output.warnings)


def test_the_report_is_streamed_without_reasoning_and_ends_as_what_is_stored() -> None:
    thinking = Play([delta("<think>Oolong? Let me"), delta(" see.</think>Oolong is\u202fa tea that is"),
                     delta(" partly oxidised. [Sou"), delta("rce 1]", "stop")])  # fmt: skip
    shown: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta):
            shown.append(event.text)

    with provider(play_turns(Play(), Play(), Play(), thinking)) as server:
        output = run(settings(server.url), listen)
    assert "".join(shown) == REPORT == output.summary


@pytest.mark.parametrize(
    "wrapped", ["```markdown\n{}\n```", "Thought: enough.\nFinal Answer: {}", "<answer>{}</answer>"]
)
def test_a_report_in_a_fence_or_in_the_words_of_the_loop_is_the_report(wrapped: str) -> None:
    with provider(play_turns(Play(), Play(), Play(), Play(chat(wrapped.format(REPORT))))) as server:
        output = run(settings(server.url))
    assert (output.outcome, output.summary) == ("answered", REPORT)


def test_an_action_in_the_place_of_the_report_has_the_report_copied_from_the_sources() -> None:
    with provider(play_turns(Play(), Play(), Play(), Play(chat(TURNS[0])))) as server:
        output = run(settings(server.url))
    assert output.outcome == "answered" and "[Source 1]" in output.summary and "Action" not in output.summary
    assert any("wrote an action instead" in warning for warning in output.warnings)


# --- faults ----------------------------------------------------------------------------------------------


def test_a_retired_model_ends_the_run_at_once_with_its_name_the_variable_and_the_default() -> None:
    gone = error(
        "The model `llama-3.3-70b-versatile` does not exist or you do not have access to it.", "model_not_found"
    )
    told: list[str] = []
    with provider([Play(gone, 404)]) as server:
        output = run(
            settings(server.url, GROQ_MODEL="llama-3.3-70b-versatile"),
            lambda e: told.append(e.message) if isinstance(e, LimitEvent) else None,
        )
    assert (output.outcome, output.stop_reason, output.exit_code) == ("failed", "provider_error", 1)
    assert len(server.asked) == 1
    for text in (output.warnings[0], told[0]):
        assert all(part in text for part in ("llama-3.3-70b-versatile", "GROQ_MODEL", "openai/gpt-oss-120b"))


@pytest.mark.parametrize("status", [401, 403, 404])
def test_the_command_line_says_a_refusal_without_a_traceback(status: int, tmp_path: Path) -> None:
    with provider([Play(error("no"), status)]) as server:
        done = command(tmp_path, {"GROQ_API_KEY": KEY, "GROQ_BASE_URL": server.url})
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout and KEY not in done.stderr + done.stdout
    assert "GROQ_" in done.stderr and str(status) in done.stderr


def command(folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "m3_react_agent.py"), "--query", "What is oolong tea?"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "SEARCH_PROVIDER": "mock", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_provider_that_goes_down_in_the_middle_leaves_a_report_from_what_was_read() -> None:
    clock = Clock()
    down = [Play(error("oops"), 503)] * 20
    with provider(play_turns(Play(), Play(), *down)) as server:
        output = run(settings(server.url), control=clock.control())
    assert (output.outcome, output.stop_reason) == ("partial", "provider_error")
    assert "[Source 1]" in output.summary and "503" in output.warnings[0]
    assert clock.now - 1_000 <= 300


def test_a_rate_limit_that_outlasts_the_run_is_named_and_the_report_still_comes() -> None:
    clock = Clock()
    day = (
        "Rate limit reached for model `m` in organization `o` on tokens per day (TPD): "
        "Limit 200000, Used 199900, Requested 2500. Please try again in 17m16.8s."
    )
    limited = [Play(error(day, "rate_limit_exceeded", "tokens"), 429)] * 20
    with provider(play_turns(Play(), Play(), *limited)) as server:
        output = run(settings(server.url), control=clock.control())
    assert (output.outcome, output.stop_reason) == ("partial", "provider_error")
    assert "tokens per day (TPD): 200,000" in output.warnings[0] and "[Source 1]" in output.summary
    assert len(server.asked) == 3 and clock.sleeps == [], "a limit of the day is asked once and never slept out"


def test_native_tool_calls_and_failed_generations_are_ordinary_turns() -> None:
    native = {"id": "t", "type": "function", "function": {"name": "search", "arguments": '{"query": "oolong tea"}'}}
    failed = error(
        "Tool choice is none, but model called a tool",
        "tool_use_failed",
        failed_generation='{"name": "fetch", "arguments": {"results": ["R1", "R2"]}}',
    )
    with provider(play_turns(Play(chat(None, "tool_calls", tool_calls=[native])), Play(failed, 400))) as server:
        output = run(settings(server.url))
    assert output.outcome == "answered" and output.iterations_used == 3 and len(server.asked) == 4


def test_another_provider_takes_over_with_the_state_kept_and_the_metadata_say_so() -> None:
    clock = Clock()
    with provider(play_turns(Play(), *[Play(error("oops"), 500)] * 9)) as groq, provider(ordinary) as other:
        config = settings(
            groq.url,
            LLM_FALLBACK="anthropic",
            ANTHROPIC_API_KEY="sk-ant-0123456789",
            ANTHROPIC_BASE_URL=other.url,
        )
        output = run(config, control=clock.control())
    assert output.outcome == "answered" and output.iterations_used == 3
    assert (output.llm_provider, output.model) == ("anthropic", "claude-haiku-5-5")
    assert "groq (openai/gpt-oss-120b) could not go on" in output.to_dict()["failover"][0]
    assert "failover" in output.to_markdown()
    assert {"groq", "anthropic"} <= set(output.services)
    first = other.asked[0].body["messages"]
    assert "oolong tea" in json.dumps(first) and [m["role"] for m in first] == ["user", "assistant", "user"]
    assert output.cost_usd is not None and output.cost_usd > 0


def test_when_every_provider_fails_each_of_them_is_named() -> None:
    with provider([Play(error("no"), 401)]) as server:
        config = settings(
            server.url,
            LLM_FALLBACK="openai",
            OPENAI_BASE_URL=f"{server.url}/v1",
            OPENAI_MODEL="small",
            SEARCH_PROVIDER="mock",
        )
        output = run(config, control=Clock().control())
    assert (output.outcome, output.stop_reason) == ("failed", "provider_error") and len(server.asked) == 2
    assert "OPENAI_API_KEY" in output.warnings[-1] and "GROQ_API_KEY" in output.warnings[-1]


def test_a_path_that_is_wrong_is_told_apart_from_a_model_that_is_missing() -> None:
    with provider([Play("<html>404</html>", 404)]) as server:
        output = run(load_config({"OPENAI_BASE_URL": server.url, "OPENAI_MODEL": "small", "SEARCH_PROVIDER": "mock"}))
    assert "OPENAI_BASE_URL" in output.warnings[-1] and "/v1" in output.warnings[-1]


def test_without_another_provider_the_fall_over_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LLM_FALLBACK names 'openai' but OPENAI_API_KEY or OPENAI_BASE_URL"):
        load_config({"GROQ_API_KEY": KEY, "LLM_FALLBACK": "openai"})
    config = load_config({"GROQ_API_KEY": KEY, "OPENAI_API_KEY": "sk-1234567", "LLM_FALLBACK": "openai,groq"})
    client = build_llm_client(config)
    assert isinstance(client, FallbackLLMClient) and client.provider == "groq"


# --- bounds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["hang", "drip", "drip_headers"])
@pytest.mark.parametrize("after", [0, 2], ids=["from the start", "after two turns"])
def test_a_server_that_hangs_or_drips_cannot_hold_a_run_past_its_time(deed: str, after: int) -> None:
    warm_up()
    with provider(play_turns(*[Play()] * after, *[Play("x", deed=deed)] * 9)) as server:
        started = time.monotonic()
        output = run(settings(server.url, MAX_WALL_CLOCK_SECONDS="2"))
        elapsed = time.monotonic() - started
        assert elapsed < 3.0, "one second beyond the bound is the most"
        assert output.stop_reason == "max_wall_clock_time" and output.outcome == "partial"
        assert ("[Source 1]" in output.summary) == (after == 2)
        assert output.usage.estimated
        ended = threading.Event()
        for _ in range(50):
            if not any(t.name == "m3-call" for t in threading.enumerate()):
                break
            ended.wait(0.1)
        else:
            pytest.fail("the abandoned call still reads although its connection was shut")


def warm_up() -> None:
    """Import the SDK once, so that what is measured is the run and not Python reading files."""
    with provider(ordinary) as server:
        run(settings(server.url))


def test_a_hung_server_holds_neither_a_stopped_run_nor_the_end_of_the_process(tmp_path: Path) -> None:
    started = time.monotonic()
    with provider([Play("x", deed="hang")]) as server:
        env = {"GROQ_API_KEY": KEY, "GROQ_BASE_URL": server.url, "MAX_WALL_CLOCK_SECONDS": "3"}
        done = command(tmp_path, env)
    assert done.returncode == 3 and "max_wall_clock_time" in done.stdout
    # Starting Python and reading the corpus take their time on a busy machine; a hung exit would take 60 s.
    assert time.monotonic() - started < 30


def test_a_stop_is_obeyed_while_the_server_is_silent() -> None:
    control = RunControl()
    with provider(lambda asked: control.stop("SIGINT") or Play("x", deed="hang")) as server:  # type: ignore[func-returns-value]
        output = run(settings(server.url), control=control)
    assert (output.outcome, output.stop_reason) == ("partial", "interrupted")
    assert output.elapsed_seconds < 20


def test_a_run_ends_partial_when_its_money_is_spent() -> None:
    def dear(asked: Asked) -> Play:
        play = ordinary(asked)
        play.body["usage"]["completion_tokens"] = asked.body["max_completion_tokens"]
        return play

    with provider(dear) as server:
        output = run(settings(server.url, MAX_COST_USD="0.0024", MAX_TOKENS="1000000"))
    assert (output.outcome, output.stop_reason) == ("partial", "max_cost")
    assert output.cost_usd is not None and 0.002 < output.cost_usd <= 0.0024
    assert "[Source 1]" in output.summary


def test_a_call_is_made_smaller_so_that_it_cannot_pass_the_money() -> None:
    with provider(ordinary) as server:
        run(settings(server.url, MAX_COST_USD="0.001"))
    asked = [a.body["max_completion_tokens"] for a in server.asked]
    assert all(most < 1_500 for most in asked) and max(asked) * 0.60 / 1e6 < 0.001


def test_a_usage_far_above_the_estimate_is_booked_as_reported_and_told() -> None:
    def greedy(asked: Asked) -> Play:
        play = ordinary(asked)
        play.body["usage"] = counted(asked, share=8.0)
        return play

    with provider(greedy) as server:
        output = run(settings(server.url))
    assert any("prompt tokens where about" in warning for warning in output.warnings)
    assert output.tokens_consumed > 8_000


def test_a_count_that_passes_the_bound_ends_the_run_before_the_next_call_and_is_told() -> None:
    def greedy(asked: Asked) -> Play:
        play = ordinary(asked)
        play.body["usage"] = {"prompt_tokens": 9_000, "completion_tokens": 500}
        return play

    with provider(greedy) as server:
        output = run(settings(server.url, MAX_TOKENS="9000"))
    assert (output.outcome, output.stop_reason, output.tokens_consumed) == ("partial", "max_tokens", 9_500)
    assert len(server.asked) == 1 and any("500 tokens more than MAX_TOKENS" in warning for warning in output.warnings)


def test_a_server_that_cuts_prompts_is_told_with_the_setting_that_mends_it() -> None:
    pages = {f"https://tea.example/{n}": f"Oolong tea number {n} is partly oxidised. " * 400 for n in range(4)}

    def ollama(asked: Asked) -> Play:
        play = ordinary(asked)
        usage = counted(asked)
        play.body["usage"] = {**usage, "prompt_tokens": min(usage["prompt_tokens"], 900)}
        return play

    with provider(ollama) as server:
        config = load_config({"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_MODEL": "gpt-oss:20b"})
        web = DictWeb(pages)
        output = run_react_loop("What is oolong " + "tea? " * 2_400, config=config, search=web, fetcher=web)
    assert any("OLLAMA_CONTEXT_LENGTH" in warning for warning in output.warnings)
    assert sum("OLLAMA_CONTEXT_LENGTH" in warning for warning in output.warnings) == 1


# --- which model a server has ----------------------------------------------------------------------------


def models(names: Sequence[str]) -> Play:
    return Play({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


def test_the_only_model_of_a_server_is_taken() -> None:
    def script(asked: Asked) -> Play:
        return models(["smollm2-135m"]) if asked.path == "/v1/models" else ordinary(asked)

    with provider(script) as server:
        output = run(load_config({"OPENAI_BASE_URL": f"{server.url}/v1"}))
    assert (output.outcome, output.llm_provider, output.model) == ("answered", "openai", "smollm2-135m")
    assert server.asked[1].body["model"] == "smollm2-135m"


@pytest.mark.parametrize(
    "play",
    [models(["b", "a"]), models([]), Play("<html>", 200), Play([{"id": "x"}], 200), Play({}, 401), Play(deed="reset")],
)
def test_otherwise_the_variable_and_the_models_are_named(play: Play) -> None:
    with provider([play]) as server, pytest.raises(ConfigError) as caught:
        build_llm_client(load_config({"OPENAI_BASE_URL": f"{server.url}/v1"}))
    text = str(caught.value)
    assert "OPENAI_MODEL" in text and "\n" not in text and "Error" not in text and "none" not in text
    if isinstance(play.body, dict) and play.body.get("data"):
        assert "a, b" in text and "2 models" in text


def test_the_command_line_ends_with_2_where_a_server_has_several_models(tmp_path: Path) -> None:
    with provider([models(["x1", "x2"])]) as server:
        done = command(tmp_path, {"OPENAI_BASE_URL": f"{server.url}/v1"})
    assert done.returncode == 2 and "OPENAI_MODEL" in done.stderr and "x1, x2" in done.stderr


def test_the_command_line_asks_a_server_for_its_models_once(tmp_path: Path) -> None:
    def script(asked: Asked) -> Play:
        return models(["smollm2-135m"]) if asked.path == "/v1/models" else ordinary(asked)

    with provider(script) as server:
        command(tmp_path, {"OPENAI_BASE_URL": f"{server.url}/v1"})
    assert [asked.path for asked in server.asked].count("/v1/models") == 1 < len(server.asked)


def test_a_password_in_the_address_is_not_told() -> None:
    with provider([Play(error("no"), 500)]) as server:
        url = server.url.replace("://", "://me:hunter2@")
        output = run(load_config({"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "m"}), control=Clock().control())
    assert "hunter2" not in output.to_markdown() and "500" in output.warnings[-1]


def test_a_server_that_never_lists_its_models_is_waited_for_only_as_long_as_the_run_lasts() -> None:
    with provider([Play("x", deed="hang")]) as server:
        control = RunControl(0.5)
        started = time.monotonic()
        with pytest.raises(ConfigError, match="does not answer"):
            build_llm_client(load_config({"OPENAI_BASE_URL": f"{server.url}/v1"}), control)
        assert time.monotonic() - started < 10


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "anthropic" else real(name, *a))
    with pytest.raises(ConfigError, match="pip install anthropic"):
        build_llm_client(load_config({"ANTHROPIC_API_KEY": "sk-ant-1234567"}))


@pytest.mark.parametrize("key", ["gsk_abc\u00e9def", "gsk_abc def"])
def test_a_key_that_cannot_be_one_is_refused_before_anything_is_sent(key: str) -> None:
    with pytest.raises(ConfigError, match="GROQ_API_KEY holds characters") as caught:
        build_llm_client(load_config({"GROQ_API_KEY": key}))
    assert key not in str(caught.value)


def test_the_waits_of_a_run_are_told_while_they_last() -> None:
    clock = Clock()
    told: list[str] = []
    limited = Play(error("slow down", "rate_limit_exceeded"), 429, {"retry-after": "25"})
    with provider(play_turns(limited)) as server:
        run(
            settings(server.url),
            lambda e: told.append(e.message) if isinstance(e, NoticeEvent) else None,
            clock.control(),
        )
    assert [text.split(" s ")[0] for text in told if text.startswith("waiting")] == [
        "waiting 25",
        "waiting 15",
        "waiting 5",
    ]
