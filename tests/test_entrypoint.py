"""The container's main process, run as a process: no container engine is needed for what it promises."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import config

ROOT = Path(__file__).parent.parent
QUESTION = "Compare Raptor RAG vs HyDE"
PATIENCE = 30.0  # seconds for a loaded machine; the promised times are asserted apart
REPORT = re.compile(r"^=+ REPORT =+$\n(.*?)^=+ END OF REPORT =+$", re.M | re.S)

# The real driver; only the mock model is replaced at its fourth turn, when sources have been read: it says so and
# then waits, as every client must, until the run is stopped.
WAITING_DRIVER = """
import sys
import m3_react_agent as driver
from m3.records import LLMError
from m3_react_agent import MockLLMClient
answer, turns = MockLLMClient.complete, []
def complete(self, messages, *, control, **others):
    turns.append(1)
    if len(turns) == 4:
        print("the model is waiting", file=sys.stderr, flush=True)
        control.sleep(600)
        raise LLMError("stopped while waiting")
    return answer(self, messages, control=control, **others)
MockLLMClient.complete = complete
sys.exit(driver.main())
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Container:
    """One start of entrypoint.sh with nothing in its environment but what is given; its log is kept by line."""

    def __init__(self, app: Path, home: Path, *, terminal: int | None = None, **settings: str) -> None:
        self.port = int(settings.setdefault("PORT", str(free_port())))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [*(["setsid", "--ctty"] if terminal is not None else []), str(app / "entrypoint.sh")],
            stdin=terminal,
            env={"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=terminal is None,
        )
        self._log = b""
        self._grown = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while chunk := self.process.stdout.read1(65_536):  # type: ignore[attr-defined]
            with self._grown:
                self._log += chunk
                self._grown.notify_all()
        with self._grown:
            self._ended = True
            self._grown.notify_all()

    @property
    def raw_log(self) -> bytes:
        with self._grown:
            return self._log

    @property
    def log(self) -> str:
        return self.raw_log.decode()

    def until(self, words: str) -> str:
        """The log once it holds `words`; fails when the process ends, or time runs out, without them."""
        with self._grown:
            self._grown.wait_for(lambda: words.encode() in self._log or self._ended, PATIENCE)
            assert words.encode() in self._log, f"{words!r} is not in the log:\n{self._log.decode()}"
            return self._log.decode()

    def end(self) -> int:
        """Wait for the process to end by itself: its exit code. Nothing may have gone to standard error."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stderr is not None
        assert self.process.stderr.read() == b""
        return code

    def reports(self) -> list[str]:
        return REPORT.findall(self.log)

    def ask(self, path: str = "/", method: str = "GET", data: bytes | None = None) -> tuple[int, bytes]:
        """One request to the health server, tried again while the port is not open yet."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, method=method)
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                    return reply.status, reply.read()
            except urllib.error.HTTPError:
                raise
            except OSError:
                if time.monotonic() > limit or self.process.poll() is not None:
                    raise
                time.sleep(0.02)  # between two knocks at a port that is not open yet

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal to the main process alone, as `docker stop` does: exit code, seconds until the end."""
        sent = time.monotonic()
        self.process.send_signal(number)
        return self.end(), time.monotonic() - sent

    def survivors(self) -> list[str]:
        """What still runs of the container's processes: pid and command line, by their session."""
        listed = subprocess.run(
            ["ps", "-o", "stat=,pid=,args=", "-s", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        rows = [line.split(None, 1) for line in listed.stdout.splitlines()]
        return [rest for state, rest in rows if not state.startswith("Z")]

    def close(self) -> None:
        for line in self.survivors():
            os.kill(int(line.split()[0]), signal.SIGKILL)
        self.process.wait(PATIENCE)


Start = Callable[..., Container]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts entrypoint.sh with the given settings; `app` is the folder that stands for /app."""
    running: list[Container] = []

    def begin(app: Path = ROOT, *, terminal: int | None = None, **settings: str) -> Container:
        running.append(Container(app, tmp_path / "home", terminal=terminal, **settings))
        return running[-1]

    yield begin
    for container in running:
        container.close()


def app_with_driver(folder: Path, driver: str) -> Path:
    """A copy of the program's folder in which `driver` is run in place of the command line."""
    folder.mkdir()
    shutil.copy(ROOT / "entrypoint.sh", folder)
    (folder / "m3").symlink_to(ROOT / "m3")
    (folder / "m3_react_agent.py").write_text(f"import sys\nsys.path[0] = {str(ROOT)!r}\n{driver}", encoding="utf-8")
    return folder


# --- one run


def test_the_question_is_run_once_and_the_report_stands_last_between_fences(start: Start) -> None:
    container = start(QUERY=QUESTION)
    assert container.end() == 0
    reports = container.reports()
    assert len(reports) == 1
    assert "RAPTOR" in reports[0] and "HyDE" in reports[0] and "[Source 1]" in reports[0]
    assert container.log.count("Thought: [1]") == 1
    assert container.log.index("Action: [1]") < container.log.index(reports[0])
    after = container.log.partition("END OF REPORT ==========")[2]
    assert after.split("\n", 1)[1].strip() == "[m3] The agent ended with exit code 0 (answered)."
    assert container.survivors() == []


def test_the_log_has_no_carriage_return_and_no_escape_sequence(start: Start) -> None:
    container = start(QUERY=QUESTION)
    container.end()
    assert re.findall(rb"[\x00-\x08\x0b-\x1f\x7f]", container.raw_log) == []


def test_control_characters_and_false_fences_in_a_report_do_not_reach_the_log(start: Start, tmp_path: Path) -> None:
    fake = "print('one\\r\\x1b[2Jtwo caf\\u00e9\\n========== END OF REPORT ==========\\nthree')"
    container = start(app_with_driver(tmp_path / "app", fake), QUERY=QUESTION)
    assert container.end() == 0
    assert container.reports() == ["\none[2Jtwo café\n ========== END OF REPORT ==========\nthree\n\n"]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_outside_a_space_the_container_ends_with_the_agents_code(start: Start, tmp_path: Path, code: int) -> None:
    container = start(app_with_driver(tmp_path / "app", f"sys.exit({code})"), QUERY=QUESTION)
    assert container.end() == code
    assert f"exit code {code} (" in container.log
    assert container.reports() == []


def test_a_read_only_folder_for_temporary_files_does_not_cost_the_report(start: Start) -> None:
    container = start(QUERY=QUESTION, TMPDIR="/proc/none")
    assert (container.end(), len(container.reports())) == (0, 1)


def test_two_starts_are_two_runs(start: Start) -> None:
    for _ in range(2):
        container = start(QUERY=QUESTION)
        assert container.end() == 0
        assert len(container.reports()) == 1


@pytest.mark.parametrize(
    "question",
    ["-", "--help", "$(touch {tmp}/made)", "`touch {tmp}/made`; 'a' \"b\" \\ *", "What is RAPTOR?\nAnd HyDE?"],
)
def test_any_text_is_a_question_and_never_an_option_or_a_command(start: Start, tmp_path: Path, question: str) -> None:
    question = question.replace("{tmp}", str(tmp_path))
    show = "print('asked', ascii(sys.argv[1:]), 'stdin', sys.stdin.read())"
    container = start(app_with_driver(tmp_path / "app", show), QUERY=f"  {question}\n ")
    assert container.end() == 0
    assert container.reports() == [f"\nasked {ascii(['--query=' + question])} stdin \n\n"]
    assert not (tmp_path / "made").exists()


# --- the health server


def test_health_answers_within_a_second_of_the_start(start: Start) -> None:
    taken = []
    for _ in range(3):  # the best of three: the machine may be busy with something else
        container = start(SPACE_ID="someone/m3")
        assert container.ask()[0] == 200
        taken.append(time.monotonic() - container.started)
    assert min(taken) < 1.0


def test_health_answers_while_the_agent_works(start: Start, tmp_path: Path) -> None:
    container = start(app_with_driver(tmp_path / "app", WAITING_DRIVER), QUERY=QUESTION)
    container.until("the model is waiting")
    assert container.ask()[0] == 200


def test_no_request_starts_a_run_or_shows_question_key_or_answer(start: Start) -> None:
    key = "gsk_" + "x7" * 20
    container = start(SPACE_ID="someone/m3", QUERY=QUESTION, TAVILY_API_KEY=key, SEARCH_PROVIDER="mock")
    container.until("Idle.")
    before = container.log
    bodies = set()
    for method in ("GET", "HEAD"):
        for path in ("/", "/run", "/healthz", f"/?QUERY={'x' * 500}", "/../config.py", "//etc/passwd"):
            status, body = container.ask(path, method)
            assert status == 200
            bodies.add((method, body))
    assert len(bodies) == 2 and ("HEAD", b"") in bodies
    for secret in ("raptor", "hyde", key, "source 1"):
        assert secret.lower() not in repr(bodies).lower()
    with pytest.raises(urllib.error.HTTPError) as refused:
        container.ask("/", "POST", b"QUERY=x")
    assert refused.value.code == 501
    assert container.log == before
    assert key not in container.log


def test_silent_clients_cannot_close_the_health_server(start: Start) -> None:
    container = start(SPACE_ID="someone/m3")
    container.until("Idle.")
    silent = [socket.create_connection(("127.0.0.1", container.port)) for _ in range(20)]
    assert container.ask()[0] == 200
    for connection in silent:
        connection.close()


def test_a_health_server_that_dies_is_started_again_and_nothing_else_is(start: Start) -> None:
    container = start(SPACE_ID="someone/m3", QUERY=QUESTION)
    container.until("Idle.")
    (health,) = [line for line in container.survivors() if "m3.health" in line]
    os.kill(int(health.split()[0]), signal.SIGKILL)
    assert container.ask()[0] == 200
    assert health not in container.survivors()
    assert len(container.reports()) == 1


def test_a_port_that_is_taken_costs_the_health_server_but_not_the_run(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        container = start(QUERY=QUESTION, PORT=str(taken.getsockname()[1]))
        assert container.end() == 0
    assert "cannot listen on port" in container.log
    assert len(container.reports()) == 1


# --- staying and ending


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_space_idles_whatever_the_agents_code_and_does_not_run_again(start: Start, tmp_path: Path, code: int) -> None:
    app = app_with_driver(tmp_path / "app", f"open('ran', 'a').write('x'); print('report'); sys.exit({code})")
    container = start(app, SPACE_ID="someone/m3", QUERY=QUESTION)
    container.until("Idle.")
    assert f"exit code {code} (" in container.log
    assert container.ask()[0] == 200
    assert container.process.poll() is None
    assert container.stop()[0] == 143
    assert (app / "ran").read_text() == "x"


@pytest.mark.parametrize("text", ["1", "0", " TRUE ", "On", "no", " "])
def test_keep_alive_is_read_as_config_reads_it(start: Start, text: str) -> None:
    container = start(QUERY=QUESTION, KEEP_ALIVE=text)
    if config.load_config({"KEEP_ALIVE": text}).container.keep_alive:
        container.until("Idle.")
        assert container.stop()[0] == 143
    else:
        assert container.end() == 0


@pytest.mark.parametrize("query", [None, " \n\t "])
@pytest.mark.parametrize("in_space", [False, True])
def test_without_a_question_it_says_what_to_set(start: Start, query: str | None, in_space: bool) -> None:
    settings = {} if query is None else {"QUERY": query}
    container = start(**settings, **({"SPACE_ID": "someone/m3"} if in_space else {}))
    container.until("QUERY is not set")
    if in_space:
        container.until("Idle.")
        assert container.ask()[0] == 200
        assert container.stop()[0] == 143
    else:
        assert container.end() == 2
    assert "Thought" not in container.log and container.reports() == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_in_the_middle_of_a_run_brings_the_partial_report_in_time(
    start: Start, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    container = start(app_with_driver(tmp_path / "app", WAITING_DRIVER), QUERY=QUESTION)
    container.until("the model is waiting")
    ended, seconds = container.stop(number)
    assert ended == code
    assert seconds < 8.0
    (report,) = container.reports()
    assert "partial" in report and "interrupted" in report and "[Source 1]" in report
    assert f"exit code {code} (stopped by a signal)" in container.log
    assert container.survivors() == []


def test_control_c_at_a_terminal_reaches_the_agent_once_so_that_it_can_still_report(
    start: Start, tmp_path: Path
) -> None:
    terminal, inner = os.openpty()
    app = app_with_driver(tmp_path / "app", WAITING_DRIVER)
    container = start(app, QUERY=QUESTION, terminal=inner)
    os.close(inner)
    container.until("the model is waiting")
    os.write(terminal, b"\x03")
    assert container.end() == 130
    os.close(terminal)
    (report,) = container.reports()
    assert "interrupted" in report


def test_a_space_that_is_told_to_stop_ends_after_its_partial_report(start: Start, tmp_path: Path) -> None:
    app = app_with_driver(tmp_path / "app", WAITING_DRIVER)
    container = start(app, QUERY=QUESTION, SPACE_ID="someone/m3")
    container.until("the model is waiting")
    code, seconds = container.stop()
    assert (code, len(container.reports())) == (143, 1)
    assert seconds < 8.0
    assert "Idle." not in container.log


def test_an_agent_that_does_not_heed_the_signal_is_killed_in_time(start: Start, tmp_path: Path) -> None:
    deaf = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', file=sys.stderr, flush=True)\ntime.sleep(600)"
    )
    container = start(app_with_driver(tmp_path / "app", deaf), QUERY=QUESTION)
    container.until("deaf")
    code, seconds = container.stop()
    assert code == 143
    assert seconds < 8.0
    assert container.reports() == []
    assert container.survivors() == []


def test_a_model_server_that_never_answers_cannot_hold_the_end_nor_bring_the_key_into_the_log(start: Start) -> None:
    key = "sk-" + "secret0" * 5
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        container = start(QUERY=QUESTION, OPENAI_BASE_URL=address, OPENAI_MODEL="some-model", OPENAI_API_KEY=key)
        server.settimeout(PATIENCE)
        connection, _ = server.accept()
        with connection:
            asked = connection.recv(65_536)
            code, seconds = container.stop()
    assert key.encode() in asked
    assert code == 143
    assert seconds < 8.0
    assert key not in container.log
    assert "OFFLINE MOCK" not in container.log and "No model key" not in container.log
    (report,) = container.reports()
    assert "interrupted" in report


# --- keys, settings, ports


def test_without_a_model_key_the_log_warns_and_names_the_secret(start: Start) -> None:
    container = start(QUERY=QUESTION, SPACE_ID="someone/m3", GROQ_API_KEY=" ", ANTHROPIC_API_KEY="")
    container.until("Idle.")
    assert "Set the secret GROQ_API_KEY" in container.log
    assert "WARNING: OFFLINE MOCK MODEL" in container.log
    assert "offline mock" in container.reports()[0]


def test_every_setting_given_empty_counts_as_unset(start: Start) -> None:
    names = [name for _, f in config.all_settings() for name in (f.metadata["env"], *f.metadata["also"])]
    empty = {name: " " for name in names if name not in ("QUERY", "PORT")}
    container = start(QUERY=QUESTION, **empty)
    assert container.end() == 0
    assert len(container.reports()) == 1


def test_the_settings_of_the_container_are_those_of_config() -> None:
    script = (ROOT / "entrypoint.sh").read_text(encoding="utf-8")
    read = set(re.findall(r"\$\{([A-Z_]+):-\}", script))
    known = {name for _, f in config.all_settings() for name in (f.metadata["env"], *f.metadata["also"])}
    assert read <= known
    own = {f.metadata["env"] for f in config.settings_of(config.ContainerSettings)}
    assert own <= read


def test_readme_dockerfile_and_settings_name_the_same_port() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if not readme.startswith("---\n"):
        pytest.skip("README.md has no Space metadata at its top")
    metadata = dict(re.findall(r"^(\w+): *(.+)$", readme.split("---\n")[1], re.M))
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    port = str(config.ContainerSettings().port)
    assert metadata["sdk"] == "docker"
    assert metadata["app_port"] == port
    assert re.search(rf"^EXPOSE {port}$", dockerfile, re.M) and f"${{PORT:-{port}}}" in dockerfile
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}  # what Spaces accept
    assert {metadata["colorFrom"], metadata["colorTo"]} <= colours
    assert len(metadata["short_description"]) <= 60


@pytest.mark.parametrize("port", ["abc", "0", "65536", "80 80"])
def test_a_port_that_is_none_is_named_by_the_agent(start: Start, tmp_path: Path, port: str) -> None:
    with pytest.raises(config.ConfigError, match="PORT"):
        config.load_config({"PORT": port})
    check = subprocess.run(
        [sys.executable, str(ROOT / "m3_react_agent.py"), "--query", QUESTION],
        env={"PORT": port, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 2 and "PORT" in check.stderr


@pytest.mark.parametrize(
    ("address", "warned"),
    [
        ("http://example.org:8888", True),
        ("http://example.org:11434/v1", True),
        ("https://example.org", False),
        ("https://example.org:443/v1", False),
        ("http://example.org:8080", False),
        ("https://example.org/a:99/", False),
    ],
)
def test_a_space_is_warned_of_ports_it_cannot_reach(start: Start, tmp_path: Path, address: str, warned: bool) -> None:
    app = app_with_driver(tmp_path / "app", "")
    container = start(app, QUERY=QUESTION, SPACE_ID="someone/m3", SEARXNG_BASE_URL=address)
    assert ("WARNING: SEARXNG_BASE_URL names port" in container.until("Idle.")) is warned


# --- one run for each question, where that is asked for


def test_a_noted_question_is_not_run_again_unless_it_changes_or_is_forced(start: Start, tmp_path: Path) -> None:
    state = {"RUN_STATE_DIR": str(tmp_path / "new" / "state")}
    first = start(QUERY=QUESTION, **state)
    assert (first.end(), len(first.reports())) == (0, 1)
    assert "RUN_ALWAYS=1" in first.log

    again = start(QUERY=f" {QUESTION} ", **state)
    assert (again.end(), again.reports()) == (0, [])
    assert "already run" in again.log and "RUN_ALWAYS=1" in again.log and "Thought" not in again.log

    in_space = start(QUERY=QUESTION, SPACE_ID="someone/m3", **state)
    in_space.until("Idle.")
    assert in_space.reports() == []

    other = start(QUERY="What is HyDE?", **state)
    assert (other.end(), len(other.reports())) == (0, 1)
    forced = start(QUERY=QUESTION, RUN_ALWAYS="1", **state)
    assert (forced.end(), len(forced.reports())) == (0, 1)
    assert not any(b"Raptor" in path.read_bytes() for path in (tmp_path / "new" / "state").iterdir())


def test_the_mark_is_there_before_the_run_so_that_a_killed_run_is_not_repeated(start: Start, tmp_path: Path) -> None:
    app = app_with_driver(tmp_path / "app", WAITING_DRIVER)
    killed = start(app, QUERY=QUESTION, RUN_STATE_DIR=str(tmp_path / "state"))
    killed.until("the model is waiting")
    killed.close()
    again = start(QUERY=QUESTION, RUN_STATE_DIR=str(tmp_path / "state"))
    assert (again.end(), again.reports()) == (0, [])


def test_wrong_settings_are_no_run_and_leave_no_mark(start: Start, tmp_path: Path) -> None:
    wrong = start(QUERY=QUESTION, RUN_STATE_DIR=str(tmp_path), MAX_ITERATIONS="many")
    assert wrong.end() == 2
    assert "MAX_ITERATIONS" in wrong.log
    mended = start(QUERY=QUESTION, RUN_STATE_DIR=str(tmp_path))
    assert (mended.end(), len(mended.reports())) == (0, 1)


def test_of_containers_that_share_the_folder_one_runs(start: Start, tmp_path: Path) -> None:
    containers = [start(QUERY=QUESTION, RUN_STATE_DIR=str(tmp_path / "state")) for _ in range(4)]
    assert [container.end() for container in containers] == [0] * 4
    assert sum(len(container.reports()) for container in containers) == 1


def test_a_folder_that_cannot_be_written_starts_no_run(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    container = start(QUERY=QUESTION, RUN_STATE_DIR=str(tmp_path / "file" / "state"))
    assert (container.end(), container.reports()) == (2, [])
    assert "cannot be written" in container.log
    forced = start(QUERY=QUESTION, RUN_STATE_DIR=str(tmp_path / "file" / "state"), RUN_ALWAYS="1")
    assert (forced.end(), len(forced.reports())) == (0, 1)
