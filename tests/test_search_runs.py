"""Whole runs of the program as a user starts it: every engine down; whom a search of documents connects to."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from config import PROGRAM_DIR
from m3.prompts import SYNTHESIS_MARK
from tests.certificates import Authority
from tests.loopback import Reply, Request, http_server, raw_server, silent, tls_proxy
from tests.provider import Asked, Play, chat, provider
from tests.scripted import action

QUESTION = "Why does ice float on water?"
MEMORY = "Ice floats since it is less dense than liquid water. [Source 1]"
HOSTS = ("api.tavily.com", "serpapi.com", "html.duckduckgo.com")


def stubborn(asked: Asked) -> Play:
    """A model that searches in other words each turn, and would answer from memory if it was let."""
    messages = asked.body["messages"]
    turn = sum(m["role"] == "assistant" for m in messages)
    if SYNTHESIS_MARK in messages[-1]["content"]:
        return Play(chat(MEMORY))
    words = ("ice density", "frozen water buoyancy", "hydrogen bonds lattice", "Archimedes principle", "sea icebergs")
    return Play(chat(action("search", json.dumps({"query": words[turn % len(words)]}))))


def resigned(asked: Asked) -> Play:
    """A model that searches once and then ends the research, to write from memory."""
    messages = asked.body["messages"]
    if SYNTHESIS_MARK in messages[-1]["content"]:
        return Play(chat(MEMORY))
    searched = any(m["role"] == "assistant" for m in messages)
    return Play(chat(action("finish") if searched else action("search", '{"query": "ice density"}')))


def refusing(request: Request) -> Reply:
    """Each engine fails in its own way."""
    if "tavily" in request.url:
        return Reply(432, json.dumps({"detail": {"error": "This request exceeds your plan's set usage limit."}}))
    if "serpapi" in request.url:
        return Reply(429, json.dumps({"error": "Your account has run out of searches."}))
    return Reply(202, "<html>anomaly</html>")


def run_program(*arguments: str, env: dict[str, str], folder: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    """The program in a folder and with an environment of its own; the seconds it took."""
    base = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "NO_PROXY": "127.0.0.1"}
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(PROGRAM_DIR / "m3_react_agent.py"), *arguments], cwd=folder, env={**base, **env},
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    return done, time.monotonic() - started


KEYS = {
    "SEARCH_PROVIDER": "tavily,serpapi,searxng,duckduckgo", "TAVILY_API_KEY": "tvly-key-of-a-test",
    "SERPAPI_API_KEY": "serp-key-of-a-test", "OPENAI_API_KEY": "sk-key-of-a-test", "OPENAI_MODEL": "scripted",
}  # fmt: skip


Ended = tuple[subprocess.CompletedProcess[str], float]


@contextmanager
def outage(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    """Settings under which no engine can be used: each refuses; nothing listens; everything accepts and is silent."""
    with ExitStack() as stack:
        env = {**KEYS, "SEARXNG_BASE_URL": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
        if kind == "refusing":
            (folder / "ca").mkdir()
            authority = Authority(folder / "ca")
            env["HTTPS_PROXY"], _ = stack.enter_context(tls_proxy(refusing, authority, *HOSTS))
            env["SSL_CERT_FILE"] = env["REQUESTS_CA_BUNDLE"] = str(authority.certificate)
            env["SEARXNG_BASE_URL"], _ = stack.enter_context(http_server(lambda asked: Reply(403, "<html>no</html>")))
        elif kind == "silent":
            env["HTTPS_PROXY"] = env["SEARXNG_BASE_URL"] = stack.enter_context(raw_server(silent))
        env["DDGS_PROXY"] = env["HTTPS_PROXY"]
        yield env


@pytest.fixture(scope="module", autouse=True)
def outages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Ended]]]:
    """The program under each outage, begun before the other tests here: under the silent one it waits, and does no
    work, for as long as an engine may take."""

    def run(kind: str, folder: Path) -> Ended:
        with outage(kind, folder) as env, provider(stubborn) as model:
            return run_program("--query", QUESTION, env={**env, "OPENAI_BASE_URL": f"{model.url}/v1"}, folder=folder)

    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("silent", "closed", "refusing")}
    with ThreadPoolExecutor(len(folders)) as pool:
        yield {kind: pool.submit(run, kind, folder) for kind, folder in folders.items()}


def test_a_model_that_resigns_after_an_outage_is_not_let_answer_from_memory(tmp_path: Path) -> None:
    closed = "http://127.0.0.1:9"
    env = {**KEYS, "SEARXNG_BASE_URL": closed, "HTTPS_PROXY": closed, "DDGS_PROXY": closed}
    with provider(resigned) as model:
        env["OPENAI_BASE_URL"] = f"{model.url}/v1"
        done, _ = run_program("--query", QUESTION, "--json", env=env, folder=tmp_path)
    result = json.loads(done.stdout)
    assert (done.returncode, result["outcome"], result["stop_reason"]) == (1, "failed", "search_error")
    assert result["sources"] == [] and "less dense" not in done.stdout
    assert {entry["status"] for entry in result["ledger"]} == {"unavailable"}


WATCH = """
import os, socket, sys
real = socket.socket.connect
def connect(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6):
        with open(os.environ["CONNECTIONS"], "a") as log:
            print(address[0], address[1], file=log)
    return real(self, address)
socket.socket.connect = connect
def resolve(host, *args, real=socket.getaddrinfo, **more):
    with open(os.environ["CONNECTIONS"], "a") as log:
        print("resolve", host, file=log)
    return real(host, *args, **more)
socket.getaddrinfo = resolve
"""


def test_documents_and_a_local_model_connect_to_the_model_and_to_nothing_else(tmp_path: Path) -> None:
    notes, hook, log = tmp_path / "notes", tmp_path / "hook", tmp_path / "connections"
    notes.mkdir()
    (notes / "ice.md").write_text("# Ice\n\nIce floats on water because ice is less dense than liquid water.\n")
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(WATCH)
    log.touch()
    turns = [action("search", '{"query": "ice floats"}'), action("fetch", '{"results": ["R1"]}'), action("finish")]

    def model_of(asked: Asked) -> Play:
        messages = asked.body["messages"]
        turn = sum(m["role"] == "assistant" for m in messages)
        return Play(chat(MEMORY if SYNTHESIS_MARK in messages[-1]["content"] else turns[min(turn, 2)]))

    with provider(model_of) as model:
        env = {
            "OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_MODEL": "scripted", "TAVILY_API_KEY": "tvly-key-of-a-test",
            "PYTHONPATH": str(hook), "CONNECTIONS": str(log),
        }  # fmt: skip
        done, _ = run_program("--query", QUESTION, "--docs", str(notes), env=env, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "notes/ice.md" in done.stdout
    port = model.url.rsplit(":", 1)[1]
    assert set(log.read_text().splitlines()) <= {f"127.0.0.1 {port}", "resolve 127.0.0.1"}
    assert f"127.0.0.1 {port}" in log.read_text()


@pytest.mark.parametrize("kind", ["refusing", "closed", "silent"])
def test_with_every_engine_down_the_program_fails_soon_and_lists_what_was_tried(
    kind: str, outages: dict[str, Future[Ended]]
) -> None:
    done, seconds = outages[kind].result(100)
    assert done.returncode == 1, done.stderr
    # 14 s on an idle machine for the program as a whole; a busy one takes longer to start it.
    assert float(re.findall(r"elapsed_seconds: ([\d.]+)", done.stdout)[0]) < 20.0 and seconds < 40.0
    assert "*failed* (search_error)" in done.stdout and "No source was read, so there is no answer." in done.stdout
    assert "less dense" not in done.stdout
    failures = done.stdout.partition("## Searches that failed")[2]
    assert all(f"{engine}: " in failures for engine in ("tavily", "serpapi", "searxng", "duckduckgo"))
    assert "of-a-test" not in done.stdout + done.stderr
