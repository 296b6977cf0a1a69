"""The Dockerfile, really built and run: `make test-container`. Takes about two minutes, root and a Debian machine.

No image registry is asked. debootstrap makes a base image out of Debian's packages, buildah builds the Dockerfile
on it. The published base has a newer Python than Debian 12's; the program supports both.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STORE = ROOT / ".container"  # the base image is kept here between two runs
BUILDAH = ["buildah", "--root", f"{STORE}/storage", "--runroot", f"{STORE}/run", "--storage-driver", "vfs"]
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
BASE, IMAGE = "localhost/m3-base", "localhost/m3"
SECRET = "gsk_" + "never_in_an_image_" * 2
MOST_MEGABYTES = 250

pytestmark = pytest.mark.skipif(
    not os.environ.get("M3_TEST_CONTAINER"), reason="builds the image, which takes minutes: make test-container"
)


def call(*command: str, timeout: float = 600.0) -> str:
    """Run a command to its end: its standard output. A failure shows both streams."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def buildah(*arguments: str) -> str:
    return call(*BUILDAH, *arguments).strip()


def make_base(folder: Path) -> None:
    """A minimal Debian with Python, as an image. It trusts the certificate authorities of this machine."""
    mirror = call("sh", "-c", "apt-get indextargets --format '$(REPO_URI)' | sort -u | grep -v security | head -1")
    release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(encoding="utf-8"), re.M)
    assert release, "not a Debian machine"
    packages = "ca-certificates,python3,python3-venv,python3-pip"
    call("debootstrap", "--variant=minbase", f"--include={packages}", release[1], str(folder), mirror.strip())
    call("chroot", str(folder), "apt-get", "clean")
    shutil.rmtree(folder / "var/lib/apt/lists")
    (folder / "var/lib/apt/lists").mkdir()
    shutil.copy(CERTIFICATES, folder / CERTIFICATES.lstrip("/"))
    container = buildah("from", "scratch")
    buildah("add", "-q", container, str(folder), "/")
    for name in ("PIP_CERT", "SSL_CERT_FILE"):
        buildah("config", "--env", f"{name}={CERTIFICATES}", container)
    buildah("commit", "-q", container, BASE)
    buildah("rm", container)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image, built from what git knows of plus what must stay out of it: `.env`, `.git` and the tests."""
    if any(shutil.which(tool) is None for tool in ("buildah", "debootstrap")) or os.geteuid() != 0:
        pytest.fail("this needs root and: apt-get install buildah debootstrap")
    scratch = tmp_path_factory.mktemp("container")
    if BASE not in buildah("images", "--format", "{{.Name}}").split():
        make_base(scratch / "base")
    context = scratch / "context"
    for name in call("git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard").splitlines():
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, context / name)
    for folder in (context, context / "m3", context / "sample_corpus"):
        (folder / ".env").write_text(f"GROQ_API_KEY={SECRET}\n", encoding="utf-8")
    (context / ".git").mkdir()
    (context / ".git" / "config").write_text(SECRET, encoding="utf-8")
    assert (context / "tests" / "test_container.py").exists()
    isolation = ("--isolation", "chroot", "--network", "host")
    buildah("bud", "-q", "--format", "docker", *isolation, "--build-arg", f"BASE={BASE}", "-t", IMAGE, str(context))
    yield IMAGE
    buildah("rmi", "--force", IMAGE)


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[str]:
    name = buildah("from", image)
    yield name
    buildah("rm", name)


@pytest.fixture(scope="module")
def settings(image: str) -> dict[str, object]:
    """What the image tells an engine: user, command, environment, health check."""
    config: dict[str, object] = json.loads(buildah("inspect", "--type", "image", image))["Docker"]["config"]
    return config


def inside(container: str, script: str) -> str:
    return buildah("run", "--isolation", "chroot", container, "--", "sh", "-c", script)


def test_the_process_is_uid_1000_and_owns_its_folder(container: str, settings: dict[str, object]) -> None:
    assert settings["User"] == "1000"
    assert settings["WorkingDir"] == "/app"
    assert inside(container, "id -u") == "1000"
    assert inside(container, "stat -c %u /app") == "1000"
    assert inside(container, "find /app ! -user 1000") == ""
    assert inside(container, "touch /app/made ~/made && rm /app/made ~/made && echo writable") == "writable"


def test_the_image_says_how_it_is_started_watched_and_reached(settings: dict[str, object]) -> None:
    assert settings["Cmd"] == ["./entrypoint.sh"]
    assert not settings.get("Entrypoint")  # Dev Mode starts the command as a child of its own
    assert "7860/tcp" in dict(settings["ExposedPorts"])  # type: ignore[call-overload]
    assert "curl" in json.dumps(settings["Healthcheck"])
    assert "PYTHONUNBUFFERED=1" in settings["Env"]  # type: ignore[operator]


def test_what_dev_mode_needs_is_there(container: str) -> None:
    for tool in ("bash", "curl", "wget", "ps", "git", "git-lfs"):
        assert inside(container, f"command -v {tool}"), tool
    assert inside(container, "bash -lc 'command -v python3'") == "/opt/venv/bin/python3"


def test_every_provider_is_there_and_nothing_of_the_tests_is(container: str) -> None:
    run = {"groq", "openai", "anthropic", "ddgs", "requests", "bs4", "lxml", "pypdf"}
    test = {"pytest", "hypothesis", "responses", "mypy", "ruff"}
    look = f"import importlib.util as u; print(*(n for n in {sorted(run | test)} if u.find_spec(n)))"
    assert set(inside(container, f'python3 -c "{look}"').split()) == run
    listed = inside(container, "ls -A /app").split()
    assert {"config.py", "m3", "m3_react_agent.py", "sample_corpus", "tools.py"} <= set(listed)
    assert not {"tests", "bench", "web", ".git", ".ci", "requirements-dev.txt"} & set(listed)


def test_no_secret_and_no_leftover_is_in_any_layer(container: str, image: str) -> None:
    root = buildah("mount", container)
    assert call("find", root, "-xdev", "(", "-name", ".env*", "-o", "-name", ".git", ")") == ""
    hits = subprocess.run(
        ["grep", "-rlI", SECRET, f"{root}/app", f"{root}/tmp", f"{root}/home", f"{root}/root", f"{root}/opt"],
        capture_output=True,
        check=False,
    )
    assert (hits.returncode, hits.stdout) == (1, b"")
    assert os.listdir(f"{root}/tmp") == [] and os.listdir(f"{root}/var/lib/apt/lists") == []
    assert SECRET not in buildah("inspect", "--type", "image", image)


def test_the_image_adds_no_more_than_its_share_to_the_base(container: str) -> None:
    base = buildah("from", BASE)
    sizes = [
        int(call("du", "-sx", "--apparent-size", "-B1", buildah("mount", c)).split()[0]) for c in (container, base)
    ]
    buildah("rm", base)
    added = (sizes[0] - sizes[1]) / 1e6
    print(f"\nthe image adds {added:.0f} MB to the base's {sizes[1] / 1e6:.0f} MB")
    assert added <= MOST_MEGABYTES


@pytest.mark.parametrize("in_space", [False, True])
def test_its_command_researches_the_question_while_health_answers(
    container: str, settings: dict[str, object], in_space: bool
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = {
        "QUERY": "Compare Raptor RAG vs HyDE",
        "PORT": str(port),
        **({"SPACE_ID": "someone/m3"} if in_space else {}),
    }
    options = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
    command = [str(word) for word in settings["Cmd"]]  # type: ignore[attr-defined]
    process = subprocess.Popen(
        [*BUILDAH, "run", "--isolation", "chroot", *options, container, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    guard = threading.Timer(120, process.kill)
    guard.start()
    assert process.stdout is not None
    log, health = "", 0
    for line in process.stdout:
        log += line
        if "Health server on port" in line:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as reply:
                health = reply.status
        if "Idle." in line:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as reply:
                health += reply.status
            stop_main_process(process.pid)
    code = process.wait(60)
    guard.cancel()
    report = log.partition("= REPORT =")[2].partition("= END OF REPORT =")[0]
    assert "RAPTOR" in report and "HyDE" in report and "[Source 1]" in report, log
    assert log.count("= REPORT =") == 1
    assert "The agent ended with exit code 0 (answered)." in log
    assert (health, code) == ((400, 143) if in_space else (200, 0))


def stop_main_process(ancestor: int) -> None:
    """Send SIGTERM to the entrypoint below `ancestor`, as an engine does to a container's first process."""
    rows = [line.split(None, 2) for line in call("ps", "-eo", "pid=,ppid=,args=").splitlines()]
    family = {ancestor}
    for _ in rows:
        family |= {int(pid) for pid, parent, _args in rows if int(parent) in family}
    (main,) = [
        int(pid) for pid, parent, args in rows if int(pid) in family and re.match(r"bash \./entrypoint\.sh$", args)
    ]
    os.kill(main, signal.SIGTERM)
