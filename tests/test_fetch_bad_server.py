"""Every behaviour of bad_server.json, played over loopback: the right class, in time, within memory."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from m3.politeness import Pace
from m3.records import FetchedPage
from m3.safe_http import HttpLimits, SafeClient
from tests.certificates import Authority
from tests.conftest import OWN_CASES
from tools import PageFetchTool

ROWS = {row["name"]: row for row in json.loads((OWN_CASES / "bad_server.json").read_text("utf-8"))["behaviours"]}
OVER_HTTP = [name for name, row in ROWS.items() if row["group"] not in ("tls", "dns")]
LIMITS = HttpLimits(connect_s=2, read_s=1.5)

# DESIGN 8: which class each fine code belongs to.
KINDS = {
    "bad_http": "network", "connection": "network", "dns": "network", "tls": "network", "incomplete": "network",
    "deadline": "timeout", "timeout": "timeout", "bad_scheme": "refused", "bad_port": "refused",
    "private_address": "refused", "redirect_loop": "refused", "redirect_without_location": "refused",
    "bad_encoding": "unsupported_type", "unsupported_type": "unsupported_type", "bad_pdf": "unsupported_type",
    "bad_json": "unsupported_type", "empty": "empty", "empty_text": "empty", "blocked_page": "blocked",
    "too_large": "too_large", "not_found": "not_found", "blocked": "blocked", "network": "network",
}  # fmt: skip
STATUS = {"status_999": "blocked", "s503": "network", "s404_page": "not_found", "s304": "empty"}
# A search API's wrong shape is a fault of search; as a page it is sound JSON.
AS_PAGE = {"j_wrong_types": "ok"}


def verdicts(name: str, must: str) -> set[str]:
    """The classes a row accepts; `partial` stands for ok with the flag `truncated`."""
    allowed = set()
    for word in AS_PAGE.get(name, must).split("-or-"):
        code = word.removeprefix("error:")
        if code.startswith("ok") or code == "partial":
            allowed.add("partial" if code == "partial" else "ok")
        elif code == "http_status":
            allowed.add(STATUS.get(name, "blocked"))
        elif code == "error":
            allowed |= set(KINDS.values())
        else:
            allowed.add(KINDS[code])
    return allowed


def judge(name: str, fetched: FetchedPage) -> None:
    allowed = verdicts(name, ROWS[name]["must"])
    if fetched.kind == "ok":
        assert "ok" in allowed or ("partial" in allowed and fetched.truncated), (fetched.kind, fetched.detail, allowed)
        assert fetched.page is not None and fetched.text.strip()
        json.dumps(fetched.text).encode("utf-8")
        fetched.text.encode("utf-8")  # no lone surrogate
        assert "\0" not in fetched.text + fetched.title
    else:
        assert fetched.kind in allowed, (fetched.kind, fetched.detail, fetched.error)
        assert fetched.page is None and fetched.error and fetched.error.isprintable()


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """The port of a bad server in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bad_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    assert process.stdout is not None and process.stdin is not None
    told = json.loads(process.stdout.readline())
    assert set(OVER_HTTP) <= set(told["names"]), set(OVER_HTTP) - set(told["names"])
    yield told["port"]
    process.stdin.close()
    process.wait(timeout=10)


def resolve(host: str, port: int, *args: Any) -> list[tuple[Any, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


def fetcher(timeout_s: float, **client: Any) -> PageFetchTool:
    safe = SafeClient(**{"allow_loopback": True, "limits": LIMITS, "resolver": resolve, **client})
    return PageFetchTool(client=safe, timeout_s=timeout_s, pace=Pace(8, 0.001), robots=False)


def peak_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def timeout_of(name: str) -> float:
    return {"html": 6.0, "pdf": 6.0, "coding": 10.0, "length": 10.0}.get(ROWS[name]["group"], 2.5)


@pytest.mark.parametrize("name", OVER_HTTP)
def test_a_bad_server_gets_its_class_in_time_and_within_memory(name: str, server: int) -> None:
    canary = Canary() if name == "redirect_private" else None
    tool, limit = fetcher(timeout_of(name)), timeout_of(name)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = peak_kb()
    started = time.monotonic()
    fetched = tool.fetch(f"http://127.0.0.1:{server}/{name}")
    seconds = time.monotonic() - started
    grown_mb = (peak_kb() - before) / 1024
    assert seconds < limit + 1
    cap_mb = 20 if ROWS[name]["group"] == "pdf" else 5
    assert grown_mb <= ROWS[name].get("max_rss_mb", 32 + 3 * cap_mb), f"{grown_mb:.0f} MB"
    judge(name, fetched)
    if canary is not None:
        assert canary.connections == 0


class Canary:
    """A listener that no fetch may reach."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.9", 0))
        self.connections = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        self._listener.accept()
        self.connections += 1


# --- TLS -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def tls_listener(play: Any) -> int:
    """A port where each connection is handed to `play` in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=quietly, args=(sock,), daemon=True).start()

    def quietly(sock: socket.socket) -> None:
        try:
            with sock:
                play(sock)
        except OSError:
            return

    threading.Thread(target=accept, daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


def serve_tls(context: Any) -> int:
    from tests.bad_server import HTML, reply

    def play(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as secure:
            secure.recv(65_536)
            secure.sendall(reply(HTML))

    return tls_listener(play)


@pytest.mark.parametrize(
    ("names", "how", "says"),
    [
        (("page.example",), {}, None),
        (("other.example",), {}, "another name"),
        (("page.example",), {"expired": True}, "expired"),
        (("page.example",), {"self_signed": True}, "self-signed"),
    ],
    ids=["good", "wrong name", "expired", "self-signed"],
)
def test_tls_faults_are_refused_each_with_its_own_message(
    names: tuple[str, ...], how: dict[str, bool], says: str | None, authority: Authority
) -> None:
    port = serve_tls(authority.server_context(*names, **how))
    fetched = fetcher(5, ca_file=str(authority.certificate)).fetch(f"https://page.example:{port}/")
    if says is None:
        assert fetched.kind == "ok", fetched
    else:
        assert (fetched.kind, fetched.detail) == ("network", "tls")
        assert says in fetched.error


def test_an_authority_that_is_not_trusted_is_no_authority(authority: Authority) -> None:
    port = serve_tls(authority.server_context("page.example"))
    fetched = fetcher(5).fetch(f"https://page.example:{port}/")
    assert (fetched.kind, fetched.detail) == ("network", "tls") and "not trusted" in fetched.error


@pytest.mark.parametrize("name", ["tls_drip_handshake", "tls_plain_http", "tls_silent"])
def test_a_handshake_that_goes_nowhere_ends(name: str) -> None:
    def play(sock: socket.socket) -> None:
        if name == "tls_plain_http":
            sock.recv(65_536)
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        elif name == "tls_silent":
            time.sleep(10)
        else:
            sock.recv(65_536)
            for byte in b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03" + bytes(200):
                sock.sendall(bytes([byte]))
                time.sleep(0.2)

    started = time.monotonic()
    fetched = fetcher(2.5).fetch(f"https://page.example:{tls_listener(play)}/")
    assert time.monotonic() - started < 3.5
    assert fetched.kind in verdicts(name, ROWS[name]["must"]), fetched


# --- DNS -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dns_empty", "dns_nxdomain", "dns_hang"])
def test_names_that_do_not_resolve_end_in_time(name: str) -> None:
    released = threading.Event()

    def resolver(host: str, port: int, *args: Any) -> list[tuple[Any, ...]]:
        if name == "dns_nxdomain":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if name == "dns_hang":
            released.wait(60)
        return []

    started = time.monotonic()
    fetched = fetcher(2, resolver=resolver).fetch("https://page.example/")
    assert time.monotonic() - started < 3
    released.set()
    assert fetched.kind in verdicts(name, ROWS[name]["must"])
