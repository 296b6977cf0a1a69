"""What README.md shows is what there is: its commands run, its options, settings, files and targets exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import config
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
INLINE = [text for text in re.findall(r"`([^`\n]+)`", README) if "…" not in text or text.startswith("--")]
PROGRAM = re.compile(r"(\S*/)?python3? (m3_react_agent\.py .*)")
QUESTION = "Compare Raptor RAG vs HyDE"
# Upper-case names of the README that are other programs' settings.
OF_OTHERS = {"OLLAMA_CONTEXT_LENGTH"}


def commands() -> list[str]:
    """The lines of the blocks without a language and the inline texts that begin like a command, comments cut off."""
    lines = [line for kind, block in BLOCKS if not kind for line in block.splitlines()]
    lines = [part.split("  #")[0].strip() for line in [*lines, *INLINE] for part in line.split(" && ")]
    begins = re.compile(r"(make|docker|cd|ssh|pip|python3?|[\w./]+/(python3?|pip)) ")
    return list(dict.fromkeys(line for line in lines if begins.match(line)))


# Those that need an engine, a network, or more time than a test may take: what can be checked of them is below.
ELSEWHERE = re.compile(r"(docker|cd|ssh|pip|make|\S*/pip) |\S*python3? (-m (venv|pytest)|-c|bench/)|cd /app|/opt/")
OFFLINE = [command for command in commands() if PROGRAM.fullmatch(command) and not ELSEWHERE.match(command)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new user's folder: a home with papers, a list of questions, a recorded run."""
    desk = tmp_path_factory.mktemp("desk")
    (desk / "home" / "papers").mkdir(parents=True)
    shutil.copy(ROOT / "sample_corpus" / "hyde.md", desk / "home" / "papers")
    (desk / "questions.jsonl").write_text(f'{{"query": "{QUESTION}"}}\n')
    done = run(f'm3_react_agent.py --query "{QUESTION}" --trace-out trace.json', desk)
    assert done.returncode == 0, done.stderr
    shutil.copy(desk / "trace.json", desk / "trace.json.part")
    return desk


def run(arguments: str, desk: Path) -> subprocess.CompletedProcess[str]:
    """The program as a new user would call it, offline: no key is set and nothing is remembered."""
    home = str(desk / "home")
    words = [w.replace("~", home, 1) if w.startswith("~/") else w for w in shlex.split(arguments)]
    words = ["How does HyDE work?" if w == "…" else w for w in words[1:]]
    env = {"PATH": os.environ["PATH"], "HOME": home, "MEMORY_BACKEND": "none", "LANG": "C.UTF-8"}
    program = [sys.executable, str(ROOT / "m3_react_agent.py"), *words]
    return subprocess.run(program, cwd=desk, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_each_command_is_run_here_or_known_to_need_more() -> None:
    assert len(OFFLINE) >= 8
    assert not [c for c in commands() if c not in OFFLINE and not ELSEWHERE.match(c)]


@pytest.mark.parametrize("command", OFFLINE)
def test_the_commands_that_need_no_network_or_key_run(command: str, desk: Path) -> None:
    shown = PROGRAM.fullmatch(command)
    assert shown
    done = run(shown[2], desk)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and "Traceback" not in done.stderr


@pytest.mark.parametrize("snippet", [block for kind, block in BLOCKS if kind == "python"])
def test_the_snippets_run(snippet: str, desk: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(desk / "home"), "MEMORY_BACKEND": "none", "PYTHONPATH": str(ROOT)}
    script = [sys.executable, "-c", snippet]
    done = subprocess.run(script, cwd=desk, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "[Source 1]" in done.stdout


def test_every_option_of_the_readme_is_one_of_the_program(desk: Path) -> None:
    known = set(re.findall(r"--[a-z][a-z-]+", run("m3_react_agent.py --help", desk).stdout))
    known |= {"--memory", "--rm", "--app-dir", "--port"}
    shown = {option for c in [*OFFLINE, *INLINE] for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", c)}
    assert shown and not shown - known


def test_every_setting_stands_in_the_table_and_every_name_of_the_readme_is_a_setting() -> None:
    assert config.settings_table() in README
    names = {n for _, f in config.all_settings() for n in (f.metadata["env"], *f.metadata["also"])}
    shown = {n for text in INLINE for n in re.findall(r"^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*(?==|$)", text)}
    assert not {n for n in shown if "_" in n or n in names} - names - OF_OTHERS


def test_every_file_target_and_package_list_of_the_readme_exists() -> None:
    path = re.compile(r"(?:\.?[\w-]+/)*[\w.*-]+\.(?:py|md|txt|sh|json|example)|(?:[\w-]+/)+")
    made = {"trace.json", "report.html", "results.jsonl", "results.csv", "questions.jsonl", "summary.md"}
    shown = {text for text in INLINE if path.fullmatch(text)} - made
    shown |= {text for c in commands() for text in re.findall(r"(?:bench/\w+\.py|requirements[\w-]*\.txt)", c)}
    assert len(shown) > 15 and not [text for text in shown if not list(ROOT.glob(text.rstrip("/")))]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {c.split()[1] for c in [*commands(), *INLINE] if re.match(r"make [a-z]", c)}
    assert called and not called - targets


def test_the_report_shown_is_that_of_the_sample_run() -> None:
    [shown] = [block for kind, block in BLOCKS if kind == "markdown"]
    sample = (ROOT / "samples" / "sample_run_raptor_vs_hyde.md").read_text(encoding="utf-8")
    assert all(line in sample.splitlines() for line in shown.splitlines())
