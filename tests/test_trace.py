"""A run is a file: it can be resumed, replayed and looked at."""

from __future__ import annotations

import json
import re
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from config import load_config
from m3.codec import CodecError, from_plain, to_plain
from m3.journal import Journal, read_journal
from m3.records import (
    Completion,
    DivergedError,
    FetchedPage,
    LLMError,
    RunControl,
    SearchOutcome,
    SearchResult,
    TraceError,
    Usage,
    page_from_parts,
)
from m3.report import FinalOutput
from m3.trace import Replay, other_services, show, trace_header, trace_json
from m3_react_agent import run_react_loop
from tests.scripted import DictWeb, ScriptedLLM
from tests.test_cli import QUESTION, ROOT
from tests.test_cli import run as run_command
from tests.test_loop import FETCH, FINISH, PAGES, REPORT, SEARCH


def record(tmp_path: Path, llm: ScriptedLLM, web: Any = None, **env: str) -> tuple[Path, FinalOutput]:
    """Run with a journal on disk; the journal stays, as after a crash."""
    config = load_config({"LLM_PROVIDER": "mock", **env})
    journal = Journal(tmp_path / "trace.json.part")
    journal.begin(trace_header("What is oolong tea?", config, llm.model))
    web = web or DictWeb(PAGES)
    output = run_react_loop("What is oolong tea?", config=config, llm=llm, search=web, fetcher=web, resume=journal)
    journal.close()
    assert journal.path is not None
    return journal.path, output


def play(replay: Replay) -> FinalOutput:
    stand_in: Any = replay.llm
    return run_react_loop(
        replay.query, config=replay.config, llm=stand_in, search=stand_in, fetcher=stand_in, resume=replay.journal
    )


def test_each_effect_is_on_disk_as_one_json_line_before_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.part"
    seen: list[int] = []

    def look(messages: Any) -> str:
        seen.append(len(path.read_text().splitlines()))
        return [SEARCH, FETCH, FINISH, REPORT][len(seen) - 1]

    record(tmp_path, ScriptedLLM(look))
    assert seen == sorted(set(seen)) and seen[0] >= 2  # the header and the first effects
    kinds = [json.loads(line).get("kind") for line in path.read_text().splitlines()[1:]]
    assert kinds.count("model") == 4 and "search" in kinds and "fetch" in kinds


def test_a_run_cut_off_after_any_record_is_resumed_without_paying_a_recorded_call_twice(tmp_path: Path) -> None:
    path, whole = record(tmp_path, ScriptedLLM(SEARCH, FETCH, FINISH, REPORT))
    lines = path.read_text().splitlines(keepends=True)
    for kept in range(1, len(lines) + 1):
        cut = tmp_path / f"cut{kept}.part"
        cut.write_text("".join(lines[:kept]) + lines[min(kept, len(lines) - 1)][: kept * 7 % 40])
        paid = sum(json.loads(line).get("kind") == "model" for line in lines[1:kept])
        llm, web = ScriptedLLM(*[SEARCH, FETCH, FINISH, REPORT][paid:], REPORT), DictWeb(PAGES)
        output = run_react_loop(
            "What is oolong tea?", config=load_config({}), llm=llm, search=web, fetcher=web, resume=cut
        )
        assert (output.outcome, output.summary) == ("answered", whole.summary)
        assert len(llm.prompts) == 4 - paid
        assert output.tokens_consumed == whole.tokens_consumed


def test_a_run_that_hit_a_limit_goes_on_under_a_new_one(tmp_path: Path) -> None:
    path, first = record(tmp_path, ScriptedLLM(SEARCH, FETCH, REPORT), MAX_ITERATIONS="2")
    assert first.stop_reason == "max_iterations"
    llm, web = ScriptedLLM(FINISH, REPORT), DictWeb(PAGES)
    second = run_react_loop(
        "What is oolong tea?", config=load_config({}), llm=llm, search=web, fetcher=web, resume=path
    )
    assert (second.outcome, second.iterations_used, web.searched, web.fetched) == ("answered", 3, [], [])


def test_a_replay_asks_nobody_and_gives_the_same_summary(tmp_path: Path) -> None:
    path, output = record(tmp_path, ScriptedLLM(SEARCH, "nonsense", FETCH, FINISH, REPORT))
    replay = Replay(path)
    again = play(replay)
    assert again.summary == output.summary and again.stop_reason == output.stop_reason
    assert [s.url for s in again.sources] == [s.url for s in output.sources]
    assert again.tokens_consumed == output.tokens_consumed


@pytest.mark.parametrize("script", [[SEARCH, FETCH], [SEARCH, FETCH, FINISH]], ids=["in the loop", "in the report"])
@pytest.mark.parametrize("reason", ["max_wall_clock_time", "interrupted"])
def test_a_run_ended_by_clock_or_signal_is_partial_and_replays_to_the_same_end(
    reason: str, script: list[str], tmp_path: Path
) -> None:
    now = [0.0]
    control = RunControl(clock=lambda: now[0])

    def last(messages: Any) -> str:
        if reason == "interrupted":
            control.stop("SIGINT")
        else:
            now[0] += 301
        raise LLMError("the model did not answer in time", kind="deadline")

    config = load_config({})
    journal = Journal(tmp_path / "t.part")
    journal.begin(trace_header("What is oolong tea?", config, "scripted-1"))
    web = DictWeb(PAGES)
    first = run_react_loop(
        "What is oolong tea?", config=config, llm=ScriptedLLM(*script, last, REPORT), search=web, fetcher=web,
        resume=journal, control=control,
    )  # fmt: skip
    journal.close()
    assert (first.outcome, first.stop_reason) == ("partial", reason) and "[Source 1]" in first.summary
    replay = Replay(tmp_path / "t.part")
    again = play(replay)
    assert (again.outcome, again.stop_reason, again.summary) == (first.outcome, first.stop_reason, first.summary)


def test_a_replay_that_asks_for_something_else_says_where_it_left_the_record(tmp_path: Path) -> None:
    path, _ = record(tmp_path, ScriptedLLM(SEARCH, FETCH, FINISH, REPORT))
    text = path.read_text()
    tampered = tmp_path / "tampered.part"
    tampered.write_text(text.replace('{\\"query\\": \\"oolong tea\\"}', '{\\"query\\": \\"green tea\\"}', 1))
    replay = Replay(tampered)
    with pytest.raises(
        DivergedError, match=r'record \d+: recorded was search "oolong tea".*asks for search "green tea"'
    ):
        play(replay)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no trace"),
        ("{}", "no trace"),
        ('{"schema": 99, "query": "x"}\n', "schema 99"),
        ("not json\nat all\n", "line 1: not a JSON record; the file is damaged, or no trace"),
        ('{"schema": 1, "query": "q"}\n{"number": "one"}\n', "must be|is str"),
        ('{"schema": 1, "query": "q", "effects": [5]}', "must be an object"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=said) as caught:
        read_journal(path)
    assert "\n" not in str(caught.value)


def test_going_on_without_the_recorded_model_or_documents_is_said(tmp_path: Path) -> None:
    trace = str(tmp_path / "t.json")
    (tmp_path / "hyde.md").write_bytes((ROOT / "sample_corpus" / "hyde.md").read_bytes())
    run_command(
        "How does HyDE work?", "--quiet", "--max-iterations", "1", "--docs", str(tmp_path), "--trace-out", trace
    )
    said = [line for line in run_command("--quiet", "--resume", trace).stderr.splitlines() if "--resume takes" in line]
    assert len(said) == 2 and "searched local" in said[0] and str(tmp_path) in said[1] and "mock" in said[0]
    again = run_command("--quiet", "--resume", trace, "--docs", str(tmp_path))
    assert again.returncode == 0 and "--resume takes" not in again.stderr
    recorded = json.loads(Path(trace).read_text()) | {"llm_provider": "groq", "model": "m"}
    assert [line for line in other_services(recorded, load_config({"DOCS_DIR": str(tmp_path)})) if "groq (m)" in line]


def test_the_trace_of_the_command_line_resumes_replays_and_shows(tmp_path: Path) -> None:
    trace, cut, more = (str(tmp_path / name) for name in ("t.json", "cut.json", "more.json"))
    first = run_command(QUESTION, "--quiet", "--trace-out", trace)
    assert not Path(trace + ".part").exists()
    assert run_command("--quiet", "--replay", trace).stdout.split("## Run")[0] == first.stdout.split("## Run")[0]
    assert run_command(QUESTION, "--quiet", "--max-iterations", "2", "--trace-out", cut).returncode == 3
    resumed = run_command("--quiet", "--resume", cut, "--trace-out", more)
    assert resumed.returncode == 0 and resumed.stdout.split("## Run")[0] == first.stdout.split("## Run")[0]
    assert "--resume takes" not in resumed.stderr
    shown = run_command("--show", more)
    assert shown.returncode == 0 and "Action: search" in shown.stdout and "Ended: answered" in shown.stdout
    for args in (
        ["--resume", "nope.json"],
        ["--replay", "nope.json"],
        ["--show", "nope.json"],
        ["other", "--resume", cut],
    ):
        done = run_command(*args)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
        assert ("nope.json" in done.stderr) == ("nope.json" in args)


def test_no_secret_is_in_the_trace(tmp_path: Path) -> None:
    secret = "gsk_0123456789abcdef"
    config = load_config({"GROQ_API_KEY": secret, "LLM_PROVIDER": "mock"})
    journal = Journal(tmp_path / "t.part")
    journal.begin(trace_header("q", config, "m"))
    llm = ScriptedLLM(LLMError(f"the key {secret} is wrong"))
    web = DictWeb(PAGES)
    output = run_react_loop(f"what is {secret}?", config=config, llm=llm, search=web, fetcher=web, resume=journal)
    journal.close()
    written = (tmp_path / "t.part").read_text() + trace_json(trace_header("q", config, "m"), journal, output)
    assert secret not in written and "[redacted]" in written


def test_a_disk_that_fills_up_costs_the_journal_not_the_answer(tmp_path: Path) -> None:
    journal = Journal(Path("/dev/full"))
    journal.begin({"query": "q"})
    web = DictWeb(PAGES)
    llm = ScriptedLLM(SEARCH, FETCH, FINISH, REPORT)
    output = run_react_loop(
        "What is oolong tea?", config=load_config({}), llm=llm, search=web, fetcher=web, resume=journal
    )
    assert output.outcome == "answered" and len(journal.faults) == 1 and "/dev/full" in journal.faults[0]


def test_the_codec_gives_back_what_it_was_given_and_refuses_the_rest() -> None:
    page = page_from_parts("https://x.example", [("paragraph", "a"), ("heading", "b", 2, None)], title="T")
    for value in (
        FetchedPage("https://x.example", "ok", page, seconds=1),
        SearchOutcome((SearchResult("t", "u"),), "e", "ok"),
        Completion("text", None, Usage(1, 2, estimated=True)),
    ):
        assert from_plain(type(value), json.loads(json.dumps(to_plain(value)))) == value
    for wrong in ({"url": 5, "kind": "ok"}, {"url": "u", "kind": "fine"}, {"kind": "ok"}, [], None):
        with pytest.raises(CodecError):
            from_plain(FetchedPage, wrong)


def test_show_gives_plain_lines_whatever_the_trace_holds(tmp_path: Path) -> None:
    path, _ = record(tmp_path, ScriptedLLM(SEARCH, "\x1b[2J nonsense \x07", FETCH, FINISH, REPORT))
    assert not re.search(r"[\x00-\x08\x1b\x7f]", "".join(show(path)))


def test_a_changed_prompt_is_shown_at_the_character_where_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = record(tmp_path, ScriptedLLM(SEARCH, FETCH, FINISH, REPORT))
    from m3 import prompts

    real = prompts.question_prompt
    monkeypatch.setattr(prompts, "question_prompt", lambda query: real(query).replace("oolong", "white"))
    with pytest.raises(DivergedError) as caught:
        play(Replay(path))
    said = str(caught.value)
    assert re.search(r"^record \d+: recorded was model ", said)
    assert "they differ at messages[1].content, character 19: recorded " in said
    assert "'Question: What is oolong tea?', now 'Question: What is white tea?'" in said


@pytest.mark.parametrize("cut", range(1, 5))
def test_a_journal_cut_inside_a_character_is_read_up_to_its_last_whole_line(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "t.part"
    head = b'{"schema": 1, "query": "q"}\n'
    path.write_bytes(head + b'{"number": 1, "kind": "date", "digest": "x", "request": "' + "😀".encode()[:cut])
    assert read_journal(path)[1] == []


def test_a_resumed_run_leaves_the_old_journal_until_it_has_something_new_to_say(tmp_path: Path) -> None:
    """Killed again while it plays what it knows, it must not have lost what was paid."""
    path, _ = record(tmp_path, ScriptedLLM(SEARCH, FETCH, FINISH, REPORT))
    before = path.read_text()
    cut = "".join(before.splitlines(keepends=True)[:-2])
    path.write_text(cut)
    _, effects = read_journal(path)
    journal = Journal(path, deque(effects))
    journal.begin({"query": "What is oolong tea?"})
    seen: list[str] = []
    web = DictWeb(PAGES)
    run_react_loop(
        "What is oolong tea?", config=load_config({}), llm=ScriptedLLM(REPORT), search=web, fetcher=web, resume=journal,
        on_event=lambda event: seen.append(path.read_text()),
    )  # fmt: skip
    journal.close()
    assert seen[0] == cut
    assert len(read_journal(path)[1]) >= len(effects) + 1


@pytest.mark.parametrize("fault", [RuntimeError("out of order"), SystemExit(9)])
def test_what_a_callers_part_raised_is_raised_again_in_a_replay(fault: BaseException, tmp_path: Path) -> None:
    class Web(DictWeb):
        def search(self, query: str, **rest: Any) -> SearchOutcome:
            if not self.searched:
                self.searched.append(query)
                raise fault
            return super().search(query, **rest)

    path, output = record(tmp_path, ScriptedLLM(SEARCH, SEARCH, FETCH, FINISH, REPORT), Web(PAGES))
    assert output.outcome == "answered" and "The action failed" in output.steps[0].observation
    again = play(Replay(path))
    assert again.summary == output.summary
    assert [step.observation for step in again.steps] == [step.observation for step in output.steps]


def test_verify_gives_the_verdicts_of_the_run_again_and_sees_a_changed_page_or_sentence(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    assert run_command(QUESTION, "--quiet", "--trace-out", str(trace)).returncode == 0
    done = run_command("--verify", str(trace))
    assert done.returncode == 0 and "matched [Source 1]: " in done.stdout and "cited;" in done.stdout
    record = json.loads(trace.read_text())
    sentence = re.split(r" \[Source", record["result"]["summary"])[0].split(". ")[-1]
    claimed = json.loads(json.dumps(record))
    claimed["result"]["summary"] = claimed["result"]["summary"].replace(sentence, "Elephants invented HyDE in 1742")
    trace.write_text(json.dumps(claimed))
    done = run_command("--verify", str(trace))
    assert "not_found [Source" in done.stdout and "Elephants" in done.stdout and done.returncode == 1
    for effect in record["effects"]:
        for item in effect["result"] if effect["kind"] == "fetch" else []:
            item["page"]["text"] = "Cats sleep. " * 200
    trace.write_text(json.dumps(record))
    done = run_command("--verify", str(trace))
    assert done.returncode == 1 and "its text is not the one that was read" in done.stdout
    assert "(recorded: matched)" in done.stdout
    for text in (
        "{}",
        '{"schema": 1, "query": "q"}',
        '{"schema": 1, "query": "q", "effects": [], "result": {"sources": 5}}',
    ):
        trace.write_text(text)
        done = run_command("--verify", str(trace))
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_a_page_of_the_trace_has_its_hash_and_time(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    run_command(QUESTION, "--quiet", "--trace-out", str(trace))
    pages = json.loads(trace.read_text())["pages"]
    assert len(pages) >= 2 and all(re.fullmatch("[0-9a-f]{64}", page["sha256"]) and page["url"] for page in pages)


def remembered(*args: str, **env: str) -> int:
    """How many runs the local memory holds after a command."""
    assert run_command("--quiet", *args, **env).returncode in (0, 3)
    return len([line for line in run_command("--memory", "list", **env).stdout.splitlines() if QUESTION in line])


def test_a_finished_run_that_is_resumed_is_not_remembered_a_second_time(tmp_path: Path) -> None:
    env = {"MEMORY_BACKEND": "local", "MEMORY_PATH": str(tmp_path / "memory.sqlite")}
    trace, again = str(tmp_path / "trace.json"), str(tmp_path / "again.json")
    assert remembered(QUESTION, "--trace-out", trace, **env) == 1
    assert remembered("--resume", trace, **env) == 1
    assert remembered("--resume", trace, "--trace-out", again, **env) == 1
    assert remembered("--resume", again, **env) == 1


def test_a_run_that_hit_a_limit_is_remembered_again_only_when_it_goes_on(tmp_path: Path) -> None:
    env = {"MEMORY_BACKEND": "local", "MEMORY_PATH": str(tmp_path / "memory.sqlite")}
    trace = str(tmp_path / "trace.json")
    assert remembered(QUESTION, "--max-iterations", "2", "--trace-out", trace, **env) == 1
    assert remembered("--resume", trace, "--max-iterations", "2", **env) == 1
    assert remembered("--resume", trace, "--max-iterations", "9", **env) == 2


@pytest.mark.parametrize("how", ["--no-memory", "a memory that is broken", "cut off before its end"])
def test_a_run_that_is_not_remembered_yet_is_remembered_when_it_is_resumed(how: str, tmp_path: Path) -> None:
    env = {"MEMORY_BACKEND": "local", "MEMORY_PATH": str(tmp_path / "memory.sqlite")}
    trace = tmp_path / "trace.json"
    if how == "--no-memory":
        run_command(QUESTION, "--no-memory", "--trace-out", str(trace), **env)
    else:
        broken = {**env, "MEMORY_PATH": str(tmp_path)}  # a folder is no database
        run_command(QUESTION, "--trace-out", str(trace), **broken)
        if how.startswith("cut"):
            record = json.loads(trace.read_text())
            record["result"] = None
            trace.write_text(json.dumps(record))
        else:
            assert "not remembered" in json.dumps(json.loads(trace.read_text())["result"]["warnings"])
    assert remembered("--resume", str(trace), **env) == 1


def test_a_cut_is_repeated_where_it_was_made_and_not_in_the_work_before_it() -> None:
    made = Journal()
    assert made.bounded("the draft", lambda cut: ("whole", {})) == "whole"
    assert made.bounded("the report", lambda cut: ("part", {"https://example.org/": 7})) == "part"
    again = Journal(recorded=deque(made.effects), live=False)
    assert again.bounded("the draft", lambda cut: (cut, {})) == {}
    assert again.bounded("the report", lambda cut: (cut, {})) == {"https://example.org/": 7}
