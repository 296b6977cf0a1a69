"""Who may use the chat, over real HTTP: every request of the cases, against a server as it is set up for each."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.chat import (
    Running,
    ask,
    chat_process,
    chat_server,
    edge,
    html,
    of_type,
    post_question,
    read_events,
    scripted,
)
from tests.conftest import OWN_CASES, ROOT
from tests.loopback import Reply, Request
from tests.provider import Asked, Play
from tests.scripted import action
from web.backend.guard import CSP, Rules
from web.backend.main import main

CASES = json.loads((OWN_CASES / "injection" / "server.json").read_text(encoding="utf-8"))["requests"]
TOKEN = "a-token-of-a-test-0123456789"
QUESTION = {"messages": [{"role": "user", "content": "What is oolong?"}]}
FORM = (
    b'--XX\r\nContent-Disposition: form-data; name="file"; filename="x.txt"\r\n\r\nThe harbour of Skagen.\r\n--XX--\r\n'
)
SEARCH, FETCH, FINISH = (
    action("search_web", '{"query": "tea"}'), action("fetch_page", '{"results": ["R1"]}'), action("finish"),
)  # fmt: skip
RESULTS = [{"title": "Oolong", "url": "{web}/oolong", "content": "tea"}]
OOLONG = "Oolong is a tea that is partly oxidised. "


def page(request: Request) -> Reply:
    return html("Oolong", OOLONG * 12)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with chat_server(tmp_path_factory.mktemp("guard"), {"CHAT_RUNS": "50"}) as running:
        yield running


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A chat with a token."""
    with chat_server(tmp_path_factory.mktemp("locked"), {"CHAT_TOKEN": TOKEN}) as running:
        yield running


def request(server: Running, method: str = "GET", path: str = "/health", body: Any = None, **headers: Any) -> Any:
    """One request with exactly these headers (`_` for `-`, None to leave one out); its answer with `.text`."""
    host = server.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=20)
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    given = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if isinstance(body, dict):
        given.setdefault("content-type", "application/json")
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in given.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                connection.putheader(name, one)
    if data is not None:
        connection.putheader("content-length", str(len(data)))
    connection.endheaders(data)
    answer = connection.getresponse()
    answer.text = answer.read().decode()  # type: ignore[attr-defined]
    connection.close()
    return answer


def refused(answer: Any, *statuses: int) -> None:
    assert answer.status in statuses, (answer.status, answer.text)
    said = json.loads(answer.text)
    assert set(said) == {"error"} and said["error"] and "\n" not in said["error"]


def post(server: Running, **headers: Any) -> Any:
    return request(server, "POST", "/chat", QUESTION, **headers)


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/health", "GET, HEAD"), ("/chat", "POST"), ("/upload", "POST"), ("/files", "GET, HEAD"),
        ("/chat/0123456789abcdef", "DELETE"),
        ("/files/kept.txt", "DELETE"), ("/", "GET, HEAD"), ("/assets/page.js", "GET, HEAD"),
    ],
)  # fmt: skip
def test_a_known_path_says_which_methods_it_takes_when_it_is_asked_with_another(
    server: Running, path: str, allow: str
) -> None:
    assets = server.app.state.server.page / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    (assets / "page.js").write_text("1")
    if path == "/files/kept.txt":
        form = FORM.replace(b"x.txt", b"kept.txt")
        assert request(server, "POST", "/upload", form, content_type="multipart/form-data; boundary=XX").status == 201
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "TRACE", "OPTIONS", "BREW", "DELETE"):
        answer = request(server, method, path, None if method in ("GET", "HEAD") else b"")
        if method in allow.split(", "):
            assert answer.status != 405 and (answer.status != 404 or path.startswith("/chat/")), (method, path)
        else:
            assert (answer.status, answer.getheader("Allow")) == (405, allow), (method, path)
            assert method == "HEAD" or set(json.loads(answer.text)) == {"error"}
    for nothing in ("/nothing", "/files/nothing", "/%00", f"/{'x' * 300}"):
        assert request(server, "PUT", nothing, b"").status == request(server, "GET", nothing).status == 404


def test_an_option_of_the_server_that_is_given_twice_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused_it:
        main(["--port", "8001", "--port", "8002"])
    said = capsys.readouterr().err
    assert refused_it.value.code == 2 and "--port is given twice" in said and said.count("\n") == 1


# --- host ------------------------------------------------------------------------------------------------


def host_evil(s: Running, _: Running) -> None:
    for host in ("evil.example:8000", "evil.example", "127.0.0.1.nip.io", "169.254.169.254", "0.0.0.0:8000", "[::]:80"):
        for path in ("/", "/health", "/files", "/nothing"):
            refused(request(s, path=path, host=host), 400, 421)


def host_prefix(s: Running, _: Running) -> None:
    for host in ("127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1@evil.example", "evil.example#127.0.0.1",
                 "127.0.0.12", "xlocalhost", "localhost:80:evil", "localhost:port", "127.0.0.1/evil"):  # fmt: skip
        refused(request(s, host=host), 400)


def host_dot(s: Running, _: Running) -> None:
    assert request(s, host="localhost.").status in (200, 400)


def host_none(s: Running, _: Running) -> None:
    host, port = s.url.removeprefix("http://").split(":")
    for head in ("GET /health HTTP/1.0\r\n\r\n", "GET /health HTTP/1.1\r\n\r\n",
                 "GET /health HTTP/1.1\r\nHost:\r\n\r\n",
                 f"GET /health HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n"):  # fmt: skip
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(head.encode())
            assert connection.recv(100).split(b" ")[1] == b"400", head


def host_userinfo(s: Running, _: Running) -> None:
    for host in ("evil.example:80@localhost", "evil:80@127.0.0.1", "localhost@evil.example"):
        refused(request(s, host=host), 400)


def host_v6(s: Running, _: Running) -> None:
    for host in ("[::1]:8000", "[::1]", "localhost:1", "LOCALHOST", "127.0.0.1"):
        assert request(s, host=host).status == 200


# --- origin ----------------------------------------------------------------------------------------------

STATES = (("POST", "/chat", QUESTION), ("POST", "/upload", FORM), ("DELETE", "/files/x.txt", None))


def no_state(s: Running, **headers: Any) -> None:
    """No request that changes anything passes with these headers, with a cookie of the session or without."""
    cookie = request(s).getheader("set-cookie").split(";")[0]
    for method, path, body in STATES:
        kind = "multipart/form-data; boundary=XX" if path == "/upload" else "application/json"
        for more in ({}, {"cookie": cookie}):
            refused(request(s, method, path, body, content_type=kind, **headers, **more), 403)
    refused(request(s, "GET", "/files", **headers), 403)


def origin_evil(s: Running, _: Running) -> None:
    own = s.url.removeprefix("http://")
    for origin in ("https://evil.example", f"http://{own}.evil.example", f"http://evil.example/{own}", "file://",
                   f"{s.url}/", f"{s.url}@evil.example", f"ftp://{own}", "http://", ""):  # fmt: skip
        no_state(s, origin=origin)


def origin_null(s: Running, _: Running) -> None:
    no_state(s, origin="null")


def origin_port(s: Running, _: Running) -> None:
    for origin in ("http://localhost:9999", "http://127.0.0.1:9999", "http://localhost", "http://127.0.0.1"):
        no_state(s, origin=origin)


def origin_none(s: Running, locked: Running) -> None:
    refused(post(locked), 401)
    assert post(locked, authorization=f"Bearer {TOKEN}").status == 200
    assert post(s, origin=s.url).status == 200  # the page itself


def sfs(s: Running, _: Running) -> None:
    no_state(s, sec_fetch_site="cross-site")
    refused(request(s, sec_fetch_site="cross-site"), 403)
    assert (
        request(s, path="/", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200
    )  # a link to the page
    for site in ("same-origin", "none"):
        assert post(s, sec_fetch_site=site).status == 200


def ct_plain(s: Running, _: Running) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "text/json"):
        refused(post(s, content_type=kind), 415, 422)
    refused(request(s, "POST", "/chat", json.dumps(QUESTION).encode()), 415, 422)
    assert post(s, content_type="application/json; charset=utf-8").status == 200


def upload_cross(s: Running, _: Running) -> None:
    answer = request(
        s, "POST", "/upload", FORM, content_type="multipart/form-data; boundary=XX", origin="https://evil.example"
    )
    refused(answer, 403)
    assert json.loads(request(s, path="/files").text) == {"files": []}


def get_state(s: Running, _: Running) -> None:
    for path in ("/chat", "/chat?q=x", "/run?q=x", "/reset", "/upload", "/files/x.txt", "/stop", "/delete"):
        for method in ("GET", "HEAD"):
            assert request(s, method, path).status in (404, 405)
    routes = {(method, route.path) for route in s.app.routes for method in getattr(route, "methods", None) or ()}
    assert {path for method, path in routes if method == "GET"} == {"/health", "/files", "/"}


def cors_star(s: Running, _: Running) -> None:
    for origin in ("https://evil.example", "null", "http://localhost:9999"):
        for method, path, body in (("GET", "/health", None), ("POST", "/chat", QUESTION), ("GET", "/", None)):
            answer = request(s, method, path, body, origin=origin)
            assert answer.getheader("access-control-allow-origin") is None, path
    dev = request(s, origin="http://localhost:5173")
    assert dev.status == 200 and dev.getheader("access-control-allow-origin") == "http://localhost:5173"


def cors_preflight(s: Running, locked: Running) -> None:
    ask_for = {"access_control_request_method": "POST", "access_control_request_headers": "content-type"}
    for where in (s, locked):
        for origin in ("https://evil.example", "null", f"{where.url}.evil.example"):
            answer = request(where, "OPTIONS", "/chat", origin=origin, **ask_for)
            assert answer.getheader("access-control-allow-origin") is None and answer.status in (400, 403)
    for origin in ("http://localhost:5173", "http://127.0.0.1:5173"):
        answer = request(s, "OPTIONS", "/chat", origin=origin, **ask_for)
        assert answer.status == 200 and answer.getheader("access-control-allow-origin") == origin
        assert request(locked, "OPTIONS", "/chat", origin=origin, **ask_for).status == 403  # no development there


def ws_origin(s: Running, _: Running) -> None:
    answer = request(s, "GET", "/chat", origin="https://evil.example", connection="Upgrade", upgrade="websocket",
                     sec_websocket_version="13", sec_websocket_key="dGhlIHNhbXBsZSBub25jZQ==")  # fmt: skip
    assert answer.status == 403
    own = request(s, "GET", "/", connection="Upgrade", upgrade="websocket", sec_websocket_version="13",
                  sec_websocket_key="dGhlIHNhbXBsZSBub25jZQ==")  # fmt: skip
    assert own.status != 101  # there is no WebSocket


# --- headers ---------------------------------------------------------------------------------------------


def every_answer(s: Running) -> Iterator[Any]:
    for path in ("/", "/health", "/files", "/nothing", "/files/x"):
        yield request(s, path=path)
    yield request(s, host="evil.example")
    yield request(s, "POST", "/chat", b"{", content_type="application/json")
    yield request(s, "POST", "/chat", QUESTION, origin="null")
    yield post(s)


def frame(s: Running, _: Running) -> None:
    for answer in every_answer(s):
        assert answer.getheader("x-frame-options") == "DENY"
        assert "frame-ancestors 'none'" in answer.getheader("content-security-policy")
        assert answer.getheader("x-content-type-options") == "nosniff" and answer.getheader("server") is None


def csp(s: Running, _: Running) -> None:
    for answer in every_answer(s):
        assert answer.getheader("content-security-policy") == CSP
    parts = dict(part.strip().split(" ", 1) for part in CSP.split(";"))
    assert parts["default-src"] == parts["connect-src"] == parts["script-src"] == "'self'"
    assert parts["img-src"] == "'self' data:" and parts["base-uri"] == parts["object-src"] == "'none'"
    assert "unsafe" not in CSP and "*" not in CSP


# --- binding, token --------------------------------------------------------------------------------------


def started(env: dict[str, str], *arguments: str, seconds: float = 20) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "web.backend.main", *arguments], cwd=ROOT, env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def bind(s: Running, _: Running) -> None:
    from config import load_config

    assert load_config({}).chat.host == "127.0.0.1"
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", "0", "127.0.0.1.evil.example", "localhost."):
        assert main(["--host", host, "--port", "1"]) == 2, host
    code, said = started({"HOME": "/nonexistent", "CHAT_HOST": "0.0.0.0"}, "--port", "1")
    assert code == 2 and "CHAT_TOKEN" in said and "Traceback" not in said


def token(_: Running, locked: Running) -> None:
    for given in (None, "", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN,
                  "Bearer \xe9", [f"Bearer {TOKEN[:-1]}", "Bearer x"]):  # fmt: skip
        for method, path, body in (*STATES, ("GET", "/files", None)):
            answer = request(locked, method, path, body, authorization=given)
            refused(answer, 401)
            assert answer.getheader("www-authenticate") == "Bearer" and TOKEN not in answer.text
    assert request(locked, path="/files", authorization=f"Bearer {TOKEN}").status == 200
    assert request(locked, path="/files", authorization=f"bearer  {TOKEN} ").status == 200
    health = request(locked)
    assert health.status == 200 and json.loads(health.text)["token_required"] is True and TOKEN not in health.text
    assert request(locked, path="/").status == 200


def token_url(_: Running, locked: Running) -> None:
    for path in (f"/files?token={TOKEN}", f"/files?access_token={TOKEN}", f"/files?authorization=Bearer%20{TOKEN}"):
        refused(request(locked, path=path), 401)
    refused(request(locked, path="/files", cookie=f"token={TOKEN}; authorization=Bearer {TOKEN}"), 401)


def docs(s: Running, locked: Running) -> None:
    for where in (s, locked):
        for path in ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect", "/metrics", "/debug"):
            assert request(where, path=path).status == 404


# --- how much --------------------------------------------------------------------------------------------


def rate(_: Running, __: Running) -> None:
    def hang(asked: Asked) -> Play:
        return Play(deed="hang")

    with edge(hang, page) as (env, asked, _), chat_server(_tmp(), {**env, "CHAT_RUNS": "8"}) as s:
        answers: list[requests.Response] = []
        threads = [threading.Thread(target=lambda: answers.append(post_question(s, "x"))) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        codes = [answer.status_code for answer in answers]
        assert codes.count(200) == 8 and codes.count(429) == 92
        assert all(a.headers["retry-after"].isdigit() for a in answers if a.status_code == 429)
        assert len(asked) <= 8
        for answer in answers:
            answer.close()


def long_q(s: Running, _: Running) -> None:
    for size in (17_000, 300_000, 1_000_000, 1_048_576, 5_000_000):
        body = {"messages": [{"role": "user", "content": "x" * size}]}
        refused(request(s, "POST", "/chat", body), 413, 422)
    refused(request(s, "POST", "/chat", {"messages": QUESTION["messages"] * 1_000}), 413, 422)
    refused(
        request(s, "POST", "/chat", json.dumps(QUESTION).encode() + b" " * 2_000_000, content_type="application/json"),
        413,
    )


def sid(s: Running, _: Running) -> None:
    for value in ("../x", "*", "x" * 5_000, "", "a b", "%00", "A" * 42, "A" * 44, '"' + "A" * 43):
        answer = post(s, cookie=f"m3_session={value}")
        refused(answer, 400, 404)
        assert "m3_session=" in answer.getheader("set-cookie")  # the next request has a good one
        assert request(s, path="/", cookie=f"m3_session={value}").status == 200
    new = {request(s).getheader("set-cookie") for _ in range(20)}
    assert len(new) == 20
    for cookie in new:
        assert (
            "; HttpOnly" in cookie
            and "; SameSite=Strict" in cookie
            and len(cookie.split(";")[0]) == len("m3_session=") + 43
        )
    known = new.pop().split(";")[0]
    assert request(s, cookie=known).getheader("set-cookie") is None
    assert request(s, cookie=f"other=1; {known}").getheader("set-cookie") is None


def err(s: Running, _: Running) -> None:
    uploads = s.app.state.server.uploads
    records = uploads.records
    secret = "/a/path/of/the/server sk-0123456789abcdefghijkl"

    def broken() -> Any:
        raise RuntimeError(secret)

    uploads.records = broken
    try:
        answer = request(s, path="/files")
    finally:
        uploads.records = records
    refused(answer, 500)
    assert "Traceback" not in answer.text and "path" not in answer.text and "sk-" not in answer.text
    assert answer.getheader("x-frame-options") == "DENY"


# --- streams ---------------------------------------------------------------------------------------------


def sse_gone(_: Running, __: Running) -> None:
    """The client closes while a page is slow: the place is free within the second, and nothing more is asked."""
    at_page, over = threading.Event(), threading.Event()

    def slow(request: Request) -> Reply:
        at_page.set()
        over.wait(5)
        return page(request)

    model = scripted([SEARCH, FETCH, FINISH], "x")
    with edge(model, slow, RESULTS) as (env, asked, _), chat_server(_tmp(), {**env, "CHAT_RUNS": "1"}) as s:
        response = post_question(s, "x")
        assert at_page.wait(10)
        calls = len(asked)
        response.close()
        closed = time.monotonic()
        while len(s.app.state.server.chats):
            assert time.monotonic() - closed < 1.0
            time.sleep(0.01)
        over.set()
        assert len(asked) == calls


def sse_slow(_: Running, __: Running) -> None:
    """One client asks and reads nothing; its run ends all the same, and another client is not kept waiting."""
    long = ("Oolong is a tea that is partly oxidised. [Source 1] " * 30,) * 3
    with (
        edge(scripted([SEARCH, FETCH, FINISH], *long), page, RESULTS) as (env, _, _),
        chat_server(_tmp(), env) as s,
    ):
        host, port = s.url.removeprefix("http://").split(":")
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            lazy.connect((host, int(port)))
            body = json.dumps(QUESTION).encode()
            head = f"POST /chat HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
            lazy.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            assert lazy.recv(1)
            assert ask(s, "What is oolong?")[-1]["outcome"] == "answered"
            began = time.monotonic()
            while len(s.app.state.server.chats):  # nobody reads, and yet the run is over
                assert time.monotonic() - began < 10
                time.sleep(0.01)


def sse_idle(_: Running, __: Running) -> None:
    import web.backend.main as server

    assert server.PING_SECONDS == 15
    before, server.PING_SECONDS = server.PING_SECONDS, 0.2  # type: ignore[assignment]
    try:
        with edge(lambda asked: Play(deed="hang"), page) as (env, _, _), chat_server(_tmp(), env) as s:
            with post_question(s, "x") as response:
                lines = response.iter_lines()
                found = [next(lines) for _ in range(4)]
            assert [line for line in found if line][0].startswith(b": ping")
    finally:
        server.PING_SECONDS = before


def sse_resume(s: Running, _: Running) -> None:
    answer = post(s, last_event_id="7")
    refused(answer, 400)
    assert "again" in answer.text


HOSTILE = [
    "a\nb", "a\rb", "a\r\nb", "a\u2028b", "a\u2029b", "a\x85b", "a\x0bb\x0cc", "data: x",
    "\n\ndata: {\"type\":\"done\"}\n\n",
    "event: evil\ndata: y", ": ping", "id: 1\nretry: 1", "\x00\x1b[2J", "\ufeff", "\ud800 \udfff", "</script><script>",
    "\U000e0041",
]  # fmt: skip


def sse_newline(_: Running, __: Running) -> None:
    """Whatever stands in a page's title, a snippet, arguments or the report: every frame is one line of JSON."""
    text = "".join(HOSTILE).encode("utf-8", "replace").decode()

    def title(request: Request) -> Reply:
        reply = html("T", OOLONG * 12)
        shown = (text + "x" * 1_000_000).replace("<", "&lt;")
        return Reply(200, reply.body.replace("<title>T", f"<title>{shown}"), reply.headers)  # type: ignore[arg-type]

    turns = [action("search_web", json.dumps({"query": f"tea {text}"})), FETCH, FINISH]
    results = [{**RESULTS[0], "title": text, "content": text}]
    report = f"{OOLONG}[Source 1] {text} data: z"
    with (
        edge(scripted(turns, report, *HOSTILE[:14]), title, results) as (env, _, _),
        chat_server(_tmp(), env) as s,
        post_question(s, f"What is oolong? {text}") as response,
    ):
        raw = response.content
    for line in raw.split(b"\n"):
        assert not line or line.startswith((b"data: {", b": ping")), line[:200]
        assert line.isascii() and b"\r" not in line
    events = [json.loads(line[6:]) for line in raw.split(b"\n") if line.startswith(b"data: ")]
    assert [e["type"] for e in events].count("done") == 1 and events[-1]["type"] == "done"
    assert events[-1]["outcome"] == "answered"
    for event in events:
        for value in strings(event):
            assert (
                not set(value) & set("\x00\x1b\r\u2028\u2029\x85\ufeff\U000e0041") and value == value.encode().decode()
            )
            assert len(value) < 30_000
    assert len(raw) < 200_000


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def sse_end(s: Running, _: Running) -> None:
    with post_question(s, "What is HyDE?") as response:
        events = [found.event for found in read_events(response)]
        assert response.headers["cache-control"] == "no-store" and response.headers["x-accel-buffering"] == "no"
    assert [e["type"] for e in events].count("done") == 1 and events[-1]["type"] == "done"


def sig(_: Running, __: Running) -> None:
    """A server with open streams ends within ten seconds of SIGTERM, each stream with its own end."""
    import signal

    hung = threading.Semaphore(0)

    def hang(asked: Asked) -> Play:
        hung.release()
        return Play(deed="hang")

    with edge(hang, page) as (env, _, _), chat_process(_tmp(), env) as s:
        assert s.process is not None
        ends: list[dict[str, Any]] = []
        threads = [threading.Thread(target=lambda: ends.append(ask(s, "x")[-1])) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert hung.acquire(timeout=20)
        began = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(12) is not None and time.monotonic() - began < 10
        for thread in threads:
            thread.join(5)
    assert [(e["type"], e["stop_reason"]) for e in ends] == [("done", "interrupted")] * 3


REQUESTS: dict[str, Callable[[Running, Running], None]] = {
    "host-evil": host_evil, "host-prefix": host_prefix, "host-dot": host_dot, "host-none": host_none,
    "host-userinfo": host_userinfo, "host-v6": host_v6, "origin-evil": origin_evil, "origin-null": origin_null,
    "origin-port": origin_port, "origin-none": origin_none, "sfs": sfs, "ct-plain": ct_plain,
    "upload-cross": upload_cross, "get-state": get_state, "cors-star": cors_star, "cors-preflight": cors_preflight,
    "ws-origin": ws_origin, "frame": frame, "csp": csp, "bind": bind, "token": token, "token-url": token_url,
    "docs": docs, "rate": rate, "long-q": long_q, "sid": sid, "err": err, "sse-gone": sse_gone, "sse-slow": sse_slow,
    "sse-idle": sse_idle, "sse-resume": sse_resume, "sse-newline": sse_newline, "sse-end": sse_end, "sig": sig,
}  # fmt: skip

_folders: list[Path] = []


def _tmp() -> Path:
    return _folders[-1]


@pytest.mark.parametrize("case", [case["id"] for case in CASES])
def test_every_request_of_the_cases_is_answered_as_it_must(
    server: Running, locked: Running, tmp_path: Path, case: str
) -> None:
    _folders.append(tmp_path)
    REQUESTS[case](server, locked)
    assert request(server).status == 200


# --- beyond the cases ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"{", 400), (b"[]", 422), (b"null", 422), (b'"x"', 422), (b"\xff\xfe", 400), (b"[" * 100_000, 400),
        (b'{"messages": []}', 422), (b'{"messages": "x"}', 422), (b'{"messages": [{"role": "user"}]}', 422),
        (b'{"messages": [{"role": "user", "content": 5}]}', 422),
        (b'{"messages": [{"role": "user", "content": ""}]}', 422),
        (b'{"messages": [{"role": "system", "content": "x"}]}', 422),
        (b'{"messages": [{"role": "user", "content": " "}]}', 422),
        (b'{"messages": [{"role": "user", "content": "\\u200b\\u202e"}]}', 422),
        (b'{"messages": [{"role": "assistant", "content": "x"}]}', 422),
        (b'{"messages": {"0": 1}}', 422), (b"NaN", 422),
        (b'{"messages": [{"role": "user", "content": ["x"]}]}', 422), (b'{"messages": [null]}', 422),
    ],
)  # fmt: skip
def test_what_is_no_question_is_refused_in_one_line(server: Running, body: bytes, status: int) -> None:
    refused(request(server, "POST", "/chat", body, content_type="application/json"), status)


def test_a_name_that_the_settings_add_opens_the_chat_and_no_other(tmp_path: Path) -> None:
    with chat_server(tmp_path, {"CHAT_HOSTS": "chat.corp.example, other.example:8443", "CHAT_TOKEN": TOKEN}) as s:
        for host in ("chat.corp.example", "chat.corp.example:443", "other.example:8443", "CHAT.corp.example"):
            assert request(s, host=host).status == 200
        for host in ("other.example", "other.example:80", "x.chat.corp.example", "corp.example"):
            refused(request(s, host=host), 400)
        good = {"host": "chat.corp.example", "authorization": f"Bearer {TOKEN}"}
        assert post(s, origin="https://chat.corp.example", **good).status == 200
        refused(post(s, origin="https://other.example", **good), 403)


def test_development_origins_can_be_turned_off(tmp_path: Path) -> None:
    with chat_server(tmp_path, {"CHAT_CORS_ORIGINS": "none"}) as s:
        refused(post(s, origin="http://localhost:5173"), 403)


@pytest.mark.parametrize(
    "value", ["*", "http://*", "localhost:5173", "null", "http://a/b", "http://a b", "javascript://x"]
)
def test_an_origin_that_would_open_the_chat_to_more_than_one_page_is_no_setting(value: str) -> None:
    from config import ConfigError, load_config

    with pytest.raises(ConfigError, match="CHAT_CORS_ORIGINS"):
        load_config({"CHAT_CORS_ORIGINS": value})


@pytest.mark.parametrize("value", ["short", "x" * 15, "with a blank in it 0123456789", "ключ-0123456789-0123456789"])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_no_setting(value: str) -> None:
    from config import ConfigError, load_config

    with pytest.raises(ConfigError, match="CHAT_TOKEN"):
        load_config({"CHAT_TOKEN": value})


def test_the_token_is_a_secret_like_any_key() -> None:
    from config import describe_settings, load_config, redact

    settings = load_config({"CHAT_TOKEN": "a-secret-token-that-nobody-knows"})
    assert "nobody-knows" not in describe_settings(settings)
    assert "nobody-knows" not in redact("the token is a-secret-token-that-nobody-knows")


def test_without_a_built_page_the_address_says_how_to_build_it_and_with_one_it_is_served(tmp_path: Path) -> None:
    with chat_server(tmp_path) as s:
        plain = request(s, path="/")
        assert plain.status == 200 and plain.getheader("content-type").startswith("text/plain")
        assert "make web" in plain.text and len(plain.text.splitlines()) == 1
        (tmp_path / "dist" / "assets").mkdir(parents=True)
        (tmp_path / "dist" / "index.html").write_text("<!doctype html><title>chat</title>")
        (tmp_path / "dist" / "assets" / "app.js").write_text("let a = 1")
        (tmp_path / "secret.txt").write_text("secret")
        (tmp_path / "dist" / "assets" / "link").symlink_to(tmp_path / "secret.txt")
        assert "<title>chat" in request(s, path="/").text
        script = request(s, path="/assets/app.js")
        assert script.text == "let a = 1" and "javascript" in script.getheader("content-type")
        for path in ("/assets/link", "/assets/../../secret.txt", "/assets/%2e%2e/%2e%2e/secret.txt", "/secret.txt"):
            assert request(s, path=path).status == 404


def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = started({"HOME": "/nonexistent"}, "--port", str(taken.getsockname()[1]))
    assert code == 1 and said.startswith("error: cannot listen on 127.0.0.1 port ")
    assert said.endswith(": Address already in use\n") and said.count("\n") == 1


def test_a_tool_that_breaks_costs_its_action_and_shows_no_path(tmp_path: Path) -> None:
    with (
        edge(scripted([action("list_uploaded_files"), FINISH], "Hello."), page) as (env, _, _),
        chat_server(tmp_path, env) as s,
    ):

        def broken() -> str:
            raise RuntimeError("/a/path/of/the/server")

        s.app.state.server.uploads.listing = broken
        events = ask(s, "Which files are there?")
    observation = of_type(events, "observation")[0]
    assert not observation["ok"] and "path" not in json.dumps(events) and events[-1]["type"] == "done"


def test_the_rules_hold_for_every_spelling_of_a_host() -> None:
    from starlette.datastructures import Headers

    rules = Rules()
    for host in ("127.0.0.1", "localhost:8000", "[::1]:8000"):
        assert rules.host_fault(Headers({"host": host})) == ""
    for host in (
        "",
        " ",
        "localhost\t",
        "loca\u212aost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "[::ffff:127.0.0.1]",
        "ｌocalhost",
    ):
        assert rules.host_fault(Headers(raw=[(b"host", host.encode())])) != "" or host.strip() in ("localhost",)
