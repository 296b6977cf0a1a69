"""The command line as a process: what a user types, sees and gets back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from m3.arguments import build_parser

ROOT = Path(__file__).parent.parent
WRITING = ("--trace-out", "--summary-out", "--report-out", "--bibtex", "--csl", "--out-dir")
QUESTION = "Compare Raptor RAG vs HyDE"


def run(*args: str, cwd: Path | None = None, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    return subprocess.run(
        [sys.executable, str(ROOT / "m3_react_agent.py"), *args],
        cwd=cwd or os.environ["HOME"], input=stdin, env={**clean, "MEMORY_BACKEND": "none", **env},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_the_report_is_on_stdout_the_progress_on_stderr_and_the_mock_is_loud_in_both() -> None:
    done = run("--query", QUESTION)
    assert done.returncode == 0
    assert done.stdout.startswith(f"# {QUESTION}\n") and "WARNING: offline mock model" in done.stdout
    assert "- llm_provider: mock\n" in done.stdout and "- search_provider: mock\n" in done.stdout
    assert "WARNING: OFFLINE MOCK MODEL" in done.stderr
    labels = [line.split(":")[0] for line in done.stderr.splitlines()]
    assert labels[2:5] == ["Thought", "Action", "Observation"] and "\x1b" not in done.stderr
    assert "Thought:" not in done.stdout


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_run_passes_the_question_on_as_it_was_typed() -> None:
    question = 'What is "HyDE" at $5, `id` and $(HOME'
    made = ["make", "-o", ".venv/.run", "run", f"PY={sys.executable}", f"QUERY={question}"]
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "MEMORY_BACKEND": "none"}
    done = subprocess.run(made, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith('# What is "HyDE" at $5, \\`id\\` and $(HOME\n'), done.stderr


def test_question_bare_as_option_and_from_stdin_are_the_same() -> None:
    reports = [
        run(QUESTION),
        run("--query", QUESTION),
        run("-", stdin=f"{QUESTION}\n"),
        run("--query", "-", stdin=QUESTION),
    ]
    assert {r.returncode for r in reports} == {0}
    assert len({r.stdout.split("## Run")[0] for r in reports}) == 1


def test_json_is_the_result_and_nothing_else() -> None:
    done = run(QUESTION, "--json", "--quiet")
    result = json.loads(done.stdout)
    assert result["outcome"] == "answered" and result["sources"][0]["number"] == 1
    assert {"grounding", "ledger", "usage", "warnings", "stop_reason"} <= result.keys()
    assert "Thought" not in done.stderr and "WARNING" in done.stderr


def test_files_are_written_whole_private_and_readable_as_what_they_are(tmp_path: Path) -> None:
    summary, trace = tmp_path / "report.md", tmp_path / "trace.json"
    done = run(QUESTION, "--summary-out", str(summary), "--trace-out", str(trace))
    assert summary.read_text() == done.stdout
    record = json.loads(trace.read_text())
    assert [s["tool"] for s in record["steps"]][:2] == ["search", "search"] and record["steps"][-1]["tool"] == "finish"
    assert record["result"]["summary"] in done.stdout
    assert {stat.S_IMODE(p.stat().st_mode) for p in (summary, trace)} == {0o600}
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "home") == ["report.md", "trace.json"]


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        ([], {}, "no question"),
        (["--query", "  "], {}, "the question is empty"),
        (["-"], {}, "the question is empty"),
        (["a", "--query", "b"], {}, "twice"),
        (["q", "--summary-out", "/no/such/dir/x.md"], {}, "/no/such/dir"),
        (["q", "--trace-out", "."], {}, "is a folder"),
        (["q", "--max-tokens", "lots"], {}, "MAX_TOKENS (--max-tokens) is 'lots'"),
        (["q", "--max-seconds", ""], {}, "--max-seconds is empty"),
        (["q"], {"MAX_ITERATIONS": "-1"}, "MAX_ITERATIONS"),
        (["q", "--provider", "groq"], {}, "GROQ_API_KEY"),
        (["q"], {"SEARCH_PROVIDER": "tavily"}, "TAVILY_API_KEY"),
        (["q", "--docs", "/no/such"], {}, "DOCS_DIR (--docs)"),
        (["q", "--model", ""], {}, "--model is empty"),
        (["q", "--model", "llama3"], {}, "the offline mock would answer (no model key is set)"),
        (["q", "--model", "mock:llama3"], {"GROQ_API_KEY": "gsk_x"}, "the offline mock would answer"),
        (["q", "--jobs", "2"], {}, "--queries"),
        (["q", "--out-dir", "runs"], {}, "--queries"),
        (["--check"], {"LLM_PROVIDER": "nobody"}, "LLM_PROVIDER"),
    ],
)
def test_what_is_wrong_before_the_run_is_one_line_and_exit_2(args: list[str], env: dict[str, str], said: str) -> None:
    done = run(*args, **env)
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize("args", [(QUESTION,), ("--memory", "list"), ("--check",)])
def test_a_dotenv_that_cannot_be_read_is_warned_of_whatever_is_done(args: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    done = run(*args, cwd=tmp_path, MEMORY_BACKEND="local", MEMORY_PATH=str(tmp_path / "memory.sqlite"))
    shown = done.stdout if args == ("--check",) else done.stderr
    said = [line for line in shown.splitlines() if ".env" in line]
    assert done.returncode == 0 and len(said) == 1 and said[0].startswith("WARNING: The .env in the working folder")
    assert args[0] != "--memory" or "OFFLINE" not in done.stderr


def test_check_shows_every_setting_the_choice_and_why_without_secrets() -> None:
    done = run("--check", MAX_TOKENS="123", SEARXNG_BASE_URL="http://127.0.0.1:1", TAVILY_API_KEY="tvly-secret-99")
    assert done.returncode == 0
    assert "MAX_TOKENS" in done.stdout and "123 tokens" in done.stdout
    assert "search: tavily: TAVILY_API_KEY is set" in done.stdout
    assert "model:  mock" in done.stdout and "no model key is set" in done.stdout
    assert "tvly-secret-99" not in done.stdout + done.stderr


def test_options_win_over_the_environment() -> None:
    done = run(QUESTION, "--max-iterations", "1", "--json", "--quiet", MAX_ITERATIONS="9")
    assert done.returncode == 3 and json.loads(done.stdout)["iterations_used"] == 1


def test_a_hostile_question_reaches_the_terminal_without_its_control_characters() -> None:
    done = run("What is \x1b[2Jred\x07 HyDE?")
    assert "\x1b" not in done.stderr and "\x07" not in done.stderr


def test_a_non_utf8_terminal_gets_escapes_not_a_traceback() -> None:
    done = run("Was ist HyDE – genau?", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode in (0, 4) and "Traceback" not in done.stderr and "\\u2013" in done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    clean = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "m3_react_agent.py"), QUESTION, "--quiet"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.wait(timeout=30)
    assert b"Traceback" not in errors and b"BrokenPipe" not in errors
    process.stderr.close()


def test_help_and_check_load_no_heavy_library() -> None:
    code = (
        "import sys, runpy; sys.argv = ['m3_react_agent.py', '--help']\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'groq', 'bs4', 'requests', 'lxml', 'sqlite3', 'pypdf', 'openai', 'anthropic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--max-iterations" in done.stdout and "MAX_ITERATIONS" in done.stdout


def test_sigterm_during_a_run_prints_the_partial_report_and_exits_143(tmp_path: Path) -> None:
    """The search blocks until the run is stopped, so the signal always falls into it."""
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, threading; sys.path.insert(0, sys.argv.pop(1))\n"
        "from m3 import documents\n"
        "def search(self, query, *, max_results=5, control=None):\n"
        "    print('searching', file=sys.stderr, flush=True)\n"
        "    control.sleep(60)\n"
        "    return documents.SearchOutcome(engine='mock', status='timeout')\n"
        "documents.LocalDocuments.search = search\n"
        "from m3_react_agent import main\n"
        "sys.exit(main())\n"
    )
    clean = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    process = subprocess.Popen(
        [sys.executable, str(script), str(ROOT), QUESTION],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("searching"):
            break
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=8)
    assert process.returncode == 143
    assert "stop_reason: interrupted" in out and "outcome: partial" in out


def test_a_device_is_written_to_and_stays_a_device(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    done = run(QUESTION, "--quiet", "--summary-out", str(pipe), "--trace-out", "/dev/stdout")
    seen, _ = reader.communicate(timeout=30)
    assert done.returncode == 0, done.stderr
    assert stat.S_ISFIFO(pipe.stat().st_mode) and seen.startswith(f"# {QUESTION}")
    assert '"outcome": "answered"' in done.stdout and not Path("/dev/stdout.part").exists()


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "report.md"
    link.symlink_to(tmp_path / "real" / "report.md")
    assert run(QUESTION, "--quiet", "--summary-out", str(link)).returncode == 0
    assert link.is_symlink() and (tmp_path / "real" / "report.md").read_text().startswith("# ")


@pytest.mark.parametrize(
    "args, words",
    [
        (("--query", "a", "--query", "b"), "--query is given twice"),
        (("x", "--provider", "mock", "--provider", "groq"), "--provider is given twice"),
        (("x", "--jobs", "2", "--jobs=3"), "--jobs is given twice"),
        (("x", "--csl", "a", "--csl", "b"), "--csl is given twice"),
        (("--memory", "list", "--memory", "stats"), "--memory is given twice"),
        *(((option, "-", "x"), f"{option} cannot go to standard output") for option in WRITING),
        (("--foo", "x"), "unrecognized arguments: --foo;"),
        (("--qurey", "x"), "unrecognized arguments: --qurey (did you mean --query?)"),
        (
            ("x", "--max-iteration=3", "--trace-ot=t"),
            "unrecognized arguments: --trace-ot=t (did you mean --trace-out?)",
        ),
        (("what", "is", "HyDE"), "unrecognized arguments: is HyDE (a question of several words needs quotation marks"),
        (("--memory",), "--memory: expected at least one argument"),
        (("--trace-out", "", "x"), "--trace-out is empty"),
        (("--resume", ""), "--resume is empty"),
        (("--trace-out", "one", "--summary-out", "./one", "x"), "--trace-out and --summary-out both name"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(args: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ") and not done.stdout
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize("option", [*WRITING, "--query", "--max-tokens", "--model", "--docs", "--resume", "--queries"])
def test_an_option_that_takes_one_value_refuses_a_second_one(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser()
    with pytest.raises(SystemExit) as refused:
        parser.parse_args([option, "1", f"{option}=2"])
    said = capsys.readouterr().err
    assert refused.value.code == 2 and said.count("\n") == 1 and f"{option} is given twice" in said
    assert parser.parse_args([option, "1", option, "1"])  # the same value again says nothing else


def test_an_option_that_may_be_repeated_keeps_all_values_and_a_parser_can_be_used_again() -> None:
    parser = build_parser()
    for domain in ("c.example", "d.example"):
        args = parser.parse_args(["q", "--allow-domain", "a.example", "--allow-domain", domain, "--query", domain])
        kept = (args.ALLOW_DOMAINS, args.query, args.question)
        assert kept == (["a.example", domain], domain, "q")


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_costs_neither_the_run_nor_the_other_stream(closed: int, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    script = f'exec "$0" "$1" --quiet --summary-out "$2" "{QUESTION}" {closed}>&-'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, str(ROOT / "m3_react_agent.py"), str(report)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "MEMORY_BACKEND": "none"},
    )  # fmt: skip
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert report.read_text().startswith(f"# {QUESTION}")
    assert done.stdout.startswith(f"# {QUESTION}") == (closed != 1)


@pytest.mark.parametrize("sink, code", [("/dev/full", 2), ("| true", 0)])
def test_a_report_that_cannot_be_printed_is_one_line_and_costs_no_file(sink: str, code: int, tmp_path: Path) -> None:
    trace, status = tmp_path / "trace.json", tmp_path / "status"
    program = f'"$0" "$1" --quiet --trace-out "{trace}" "{QUESTION}"'
    where = f"{{ {program}; echo $? >{status}; }} {sink if sink.startswith('|') else '>' + sink}"
    done = subprocess.run(
        ["sh", "-c", where, sys.executable, str(ROOT / "m3_react_agent.py")],
        capture_output=True, text=True, timeout=60, env={**os.environ, "MEMORY_BACKEND": "none"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr and int(status.read_text()) == code
    assert ("cannot write to standard output" in done.stderr) == (code == 2)
    assert json.loads(trace.read_text())["query"] == QUESTION


@pytest.mark.parametrize("option", ["--check", "--version"])
def test_no_option_ends_in_a_traceback_on_a_full_disk(option: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" "$1" {option} >/dev/full', sys.executable, str(ROOT / "m3_react_agent.py")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
