"""PageFetchTool over loopback: what a page is, how sites are asked, what happens in parallel, cache and fallbacks."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from config import ConfigError, describe_settings, load_config
from m3.fetch import fetch_pages
from m3.politeness import HostPacer, Pace, parse_robots, retry_after_s
from m3.records import FetchedPage, RunControl, page_from_parts
from m3.safe_http import SafeClient
from m3.special_sites import candidates, wayback_snapshot
from m3.urls import DomainPolicy
from tests import pdfs
from tools import PageFetchTool, build_tools

LOREM = "The kettle is a vessel for boiling water. " * 12


@dataclass
class Reply:
    body: bytes = b""
    kind: str | None = "text/html; charset=utf-8"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    wait: float = 0.0


Answer = Reply | Callable[[Any], Reply]


class World:
    """A loopback server that plays every host: pages by `host/path`, and a log of what was asked when."""

    def __init__(self) -> None:
        world = self
        self.pages: dict[str, Answer] = {}
        self.log: list[tuple[str, float]] = []
        self.seen_headers: list[dict[str, str]] = []
        self.active: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self._lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                world.answer(self)

            do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client may leave
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, request: Any) -> None:
        host = request.headers.get("Host", "").partition(":")[0]
        with self._lock:
            self.log.append((f"{host}{request.path}", time.monotonic()))
            self.seen_headers.append({k.lower(): v for k, v in request.headers.items()})
            self.active[host] = self.active.get(host, 0) + 1
            self.most[host] = max(self.most.get(host, 0), self.active[host])
        page = self.pages.get(f"{host}{request.path}", Reply(b"no such page", status=404))
        reply = page if isinstance(page, Reply) else page(request)
        time.sleep(reply.wait)
        with self._lock:
            self.active[host] -= 1
        request.send_response(reply.status)
        if reply.kind:
            request.send_header("Content-Type", reply.kind)
        for name, value in reply.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(reply.body)))
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(reply.body)
        request.close_connection = True

    @property
    def asked(self) -> list[str]:
        return [where for where, _ in self.log if not where.endswith("/robots.txt")]

    def connect(self, sockaddr: tuple[Any, ...], timeout_s: float) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout_s)

    def tool(
        self, *, pace: Pace = Pace(2, 0.001), permits: Any = None, agent: str = "test/1", **more: Any
    ) -> PageFetchTool:
        """A fetcher for which every public name leads here. https is spoken without TLS: see `PlainTls`."""
        client = SafeClient(resolver=public, connect=self.connect, permits=permits, user_agent=agent)
        client.tls_context = PlainTls  # type: ignore[method-assign, assignment]
        return PageFetchTool(client=client, pace=pace, **more)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class PlainTls:
    """Stands for the TLS context where the certificate is not what a test is about."""

    def wrap_socket(self, sock: socket.socket, server_hostname: str) -> socket.socket:
        return sock


def public(host: str, port: int, *args: Any) -> list[tuple[Any, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", port))]


@pytest.fixture
def world() -> Any:
    made = World()
    yield made
    made.close()


def html(body: str, head: str = "") -> bytes:
    return f"<!doctype html><html><head><title>T</title>{head}</head><body>{body}</body></html>".encode()


# --- what a page is --------------------------------------------------------------------------------------

ARTICLE = html(f"<p>{LOREM}</p>")
KINDS: list[tuple[str, str | None, bytes, str, str]] = [
    ("/a", "text/html", ARTICLE, "ok", "kettle"),
    ("/plain", "text/plain", LOREM.encode(), "ok", "kettle"),
    ("/read.md", "text/plain", b"# Kettles\n\nThey *boil*.\n", "ok", "They boil."),
    ("/data.json", "application/json", b'{"kettle": {"litres": 1.7}}', "ok", "kettle.litres: 1.7"),
    ("/list", None, b'[{"a": 1}, {"a": "x"}]', "ok", "[1].a: x"),
    ("/t.csv", "text/csv", b"name,litres\nA,1.7\n", "ok", "litres: 1.7"),
    ("/feed", "application/rss+xml", b"<?xml version='1.0'?><rss><channel><title>News</title><item><title>Kettle news"
     b"</title><pubDate>Mon, 02 Nov 2026</pubDate><link>/n</link><description>&lt;p&gt;It boils.&lt;/p&gt;"
     b"</description></item></channel></rss>", "ok", "It boils."),
    ("/atom", "text/xml", b"<feed xmlns='http://www.w3.org/2005/Atom'><title>F</title><entry><title>Entry one</title>"
     b"<link href='/e'/><summary>Short.</summary></entry></feed>", "ok", "Entry one"),
    ("/xxe.xml", "text/xml", b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>before &x; after</a>",
     "ok", "before"),
    ("/x.pdf", "application/pdf", pdfs.pdf([["The kettle paper."], ["Its second page."]]), "ok", "second page"),
    ("/hidden-pdf", "text/html", b"\n" + pdfs.pdf([["The kettle paper."]]), "ok", "kettle paper"),
    ("/looks.pdf", "application/pdf", ARTICLE, "ok", "kettle"),
    ("/photo", "image/png", b"\x89PNG\r\n\x1a\n" + bytes(200), "unsupported_type", ""),
    ("/photo.html", "text/html", b"\x89PNG\r\n\x1a\n" + bytes(200), "unsupported_type", ""),
    ("/doc", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK\x03\x04" + bytes(99),
     "unsupported_type", ""),
    ("/lines.jsonl", "application/x-ndjson", b'{"kettle": 1}\n{"kettle": 2}\n', "ok", '{"kettle": 2}'),
    ("/references", "", b"[1] The kettle. [2] The teapot, a history of it.", "ok", "The teapot"),
    ("/bad.json", "application/json", b"{'a': 1}", "unsupported_type", ""),
    ("/empty", "text/html", html(""), "empty", ""),
    ("/shell", "text/html", html('<div id="root"></div><script src="/app.js"></script>'), "js_required", ""),
    ("/noscript", "text/html", html("<noscript>You need to enable JavaScript to run this app.</noscript>"),
     "js_required", ""),
    ("/says-js", "text/html", html("<p>JavaScript is disabled. Please enable JavaScript to continue.</p>"),
     "js_required", ""),
    ("/wall", "text/html", html("<h1>Verify you are human</h1><div class='g-recaptcha'></div>"), "blocked", ""),
    ("/consent", "text/html", html("<p>We value your privacy. We use cookies.</p><p>Accept all</p>"), "blocked", ""),
    ("/about-cookies", "text/html", html(f"<p>We use cookies; just a moment. Accept all. {LOREM * 4}</p>"),
     "ok", "kettle"),
    ("/about-js", "text/html", html(f"<p>Some sites ask you to enable JavaScript. {LOREM}</p>"), "ok", "kettle"),
    ("/short", "text/html", html("<p>It boils at 100 degrees.</p><script>x</script>"), "ok", "100 degrees"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "kind", "body", "expected", "holds"), KINDS, ids=[case[0] for case in KINDS])
def test_a_page_is_what_its_bytes_are(
    path: str, kind: str | None, body: bytes, expected: str, holds: str, world: World
) -> None:
    world.pages[f"site.example{path}"] = Reply(body, kind)
    fetched = world.tool().fetch(f"http://site.example{path}")
    assert fetched.kind == expected, fetched
    assert holds in fetched.text
    assert "root:" not in fetched.text
    if expected == "ok":
        assert fetched.page is not None and fetched.page.fetched_at
        assert all(fetched.text[b.start : b.end] == b.text for b in fetched.page.blocks)
    else:
        assert fetched.page is None and fetched.error


def test_pdf_pages_keep_their_numbers_through_the_fetch(world: World) -> None:
    world.pages["site.example/x"] = Reply(pdfs.pdf([["First page text."], ["Second page text."]]), "application/pdf")
    page = world.tool().fetch("http://site.example/x").page
    assert page is not None
    assert [b.page_number for b in page.blocks] == [1, 2]


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (404, {}, "not_found"), (410, {}, "not_found"), (401, {}, "blocked"), (403, {}, "blocked"),
        (451, {}, "blocked"),
        (500, {}, "network"), (403, {"cf-mitigated": "challenge"}, "blocked"),
        (503, {"cf-mitigated": "challenge"}, "blocked"), (200, {"cf-mitigated": "challenge"}, "blocked"),
    ],
)  # fmt: skip
def test_a_status_is_a_class(status: int, headers: dict[str, str], kind: str, world: World) -> None:
    world.pages["site.example/"] = Reply(ARTICLE, status=status, headers=headers)
    fetched = world.tool().fetch("http://site.example/")
    assert fetched.kind == kind and fetched.status == status
    assert world.asked == ["site.example/"]  # a challenge is not asked twice


RUSSIAN = "Вода кипит при ста градусах, а чай заваривают горячей водой. " * 6
JAPANESE = "水は百度で沸騰し、お茶は熱い湯で淹れる。" * 12
CHINESE = "水在一百度沸腾，茶要用热水冲泡。" * 14
KOREAN = "물은 백 도에서 끓고 차는 뜨거운 물로 우린다. " * 10
ARABIC = "يغلي الماء عند مئة درجة ويحضر الشاي بالماء الساخن. " * 8
HEBREW = "המים רותחים במאה מעלות ואת התה מכינים במים חמים. " * 8
GERMAN = "Das Wasser kocht bei hundert Grad – „schön heiß“, sagt Jürgen für 3 €. " * 6
GREEK = "Το νερό βράζει στους εκατό βαθμούς και το τσάι θέλει ζεστό νερό. " * 6


@pytest.mark.parametrize("where", ["header", "meta", "neither"])
@pytest.mark.parametrize(
    ("text", "codec", "label"),
    [
        (RUSSIAN, "cp1251", "windows-1251"), (RUSSIAN, "koi8-r", "KOI8-R"), (RUSSIAN, "utf-8", "utf-8"),
        (JAPANESE, "cp932", "Shift_JIS"), (JAPANESE, "euc-jp", "EUC-JP"), (CHINESE, "gb18030", "gb2312"),
        (CHINESE, "big5hkscs", "big5"), (KOREAN, "cp949", "euc-kr"), (ARABIC, "cp1256", "windows-1256"),
        (HEBREW, "cp1255", "windows-1255"), (GERMAN, "cp1252", "iso-8859-1"), (GREEK, "cp1253", "windows-1253"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 15 else "",
)  # fmt: skip
def test_scripts_are_read_as_they_were_written(text: str, codec: str, label: str, where: str, world: World) -> None:
    if codec == "big5hkscs":
        text = text.replace("沸腾", "沸騰").replace("茶要用热水冲泡", "茶要用熱水沖泡")
    meta = f'<meta charset="{label}">' if where == "meta" else ""
    body = f"<html><head>{meta}<title>t</title></head><body><p>{text}</p></body></html>".encode(codec)
    world.pages["site.example/"] = Reply(body, f"text/html; charset={label}" if where == "header" else "text/html")
    fetched = world.tool().fetch("http://site.example/")
    assert fetched.kind == "ok"
    words = text.split()[:6] if " " in text else [text[:10]]
    read = sum(word in fetched.text for word in words)
    assert read == len(words), fetched.text[:120]


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_byte_order_mark_or_wide_characters_decide(codec: str, world: World) -> None:
    world.pages["site.example/"] = Reply(
        f"<html><p>{LOREM} и чай</p></html>".encode(codec), "text/html; charset=latin-1"
    )
    assert "kettle" in world.tool().fetch("http://site.example/").text


@pytest.mark.parametrize(
    "label", ["utf-7", "zlib_codec", "rot13", "idna", "punycode", "utf8mb4", "x-user-defined", "no-such"]
)
def test_a_label_that_no_page_uses_is_not_believed(label: str, world: World) -> None:
    body = html(f"<p>+ADw-script+AD4- Grüße {LOREM}</p>")
    world.pages["site.example/"] = Reply(body, f"text/html; charset={label}")
    text = world.tool().fetch("http://site.example/").text
    assert "+ADw-script+AD4- Grüße" in text


def test_a_pdf_larger_than_the_cap_is_too_large_and_html_is_cut() -> None:
    from m3.page_reading import read_body

    cut = read_body(pdfs.pdf([["x"]]), "pdf", "application/pdf", "https://a.example/x", truncated=True)
    assert cut.kind == "too_large" and cut.error
    page = read_body(ARTICLE, "html", "text/html", "https://a.example/x", truncated=True)
    assert page.kind == "ok" and page.truncated


# --- manners ---------------------------------------------------------------------------------------------


def test_the_user_agent_names_the_program_and_the_contact(world: World) -> None:
    _, tool = build_tools(load_config({"CONTACT": "https://example.org/bot"}))
    assert tool._client.user_agent.startswith("m3-research-agent/")
    assert tool._client.user_agent.endswith("(+https://example.org/bot)")
    world.tool(agent=tool._client.user_agent).fetch("http://site.example/")
    assert world.seen_headers[-1]["user-agent"] == tool._client.user_agent
    with pytest.raises(ConfigError, match="CONTACT"):
        load_config({"CONTACT": "me\r\nX-Evil: 1"})


def test_robots_txt_is_asked_once_and_honoured_unless_the_user_named_the_page(world: World) -> None:
    world.pages["site.example/robots.txt"] = Reply(b"User-agent: *\nDisallow: /private/\n", "text/plain")
    for path in ("/private/x", "/open"):
        world.pages[f"site.example{path}"] = Reply(ARTICLE)
    tool = world.tool()
    refused = tool.fetch("http://site.example/private/x")
    assert (refused.kind, refused.detail) == ("blocked", "robots") and "robots.txt" in refused.error
    assert tool.fetch("http://site.example/open").kind == "ok"
    assert tool.fetch("http://site.example/private/x", user_named=True).kind == "ok"
    assert world.tool(robots=False).fetch("http://site.example/private/x").kind == "ok"
    assert [where for where, _ in world.log].count("site.example/robots.txt") == 1


@pytest.mark.parametrize("reply", [Reply(status=500), Reply(status=403), Reply(ARTICLE), Reply(b"\0\1", "text/plain")])
def test_a_robots_txt_that_cannot_be_had_forbids_nothing(reply: Reply, world: World) -> None:
    world.pages["site.example/robots.txt"] = reply
    world.pages["site.example/x"] = Reply(ARTICLE)
    assert world.tool().fetch("http://site.example/x").kind == "ok"


@pytest.mark.parametrize(
    ("robots", "path", "allowed"),
    [
        ("User-agent: *\nDisallow: /", "/x", False),
        ("User-agent: *\nDisallow:", "/x", True),
        ("User-agent: other\nDisallow: /", "/x", True),
        ("User-agent: m3-research-agent\nDisallow: /a\n\nUser-agent: *\nDisallow: /", "/b", True),
        ("User-agent: M3-Research-Agent/2.0\nDisallow: /a", "/a", False),
        ("User-agent: x\nUser-agent: *\nDisallow: /a", "/a", False),
        ("User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b/c", True),
        ("User-agent: *\nAllow: /p\nDisallow: /p", "/p", True),
        ("User-agent: *\nDisallow: /*.pdf$", "/x/y.pdf", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/x/y.pdf?z", True),
        ("User-agent: *\nDisallow: /a*b*c", "/aXbXc", False),
        ("User-agent: *\nDisallow: /a*b*c", "/aXcXb", True),
        ("User-agent: *\r\nDisallow: /a # why\r\n", "/ab", False),
        ("Disallow: /a", "/a", True),
        ("", "/", True),
    ],
)
def test_robots_rules_as_in_rfc_9309(robots: str, path: str, allowed: bool) -> None:
    assert parse_robots(robots, "m3-research-agent/0.1.0").allows(path) is allowed


def test_a_hostile_robots_txt_costs_no_time() -> None:
    rules = parse_robots("User-agent: *\n" + "Disallow: /" + "a*" * 2_000 + "b\n" * 50, "x")
    started = time.process_time()
    assert rules.allows("/" + "a" * 2_000)
    assert time.process_time() - started < 1


class VirtualTime:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def control(self, seconds: float = 60.0) -> RunControl:
        return RunControl(seconds, clock=lambda: self.now, sleep=self.sleep)


@pytest.mark.parametrize(("host", "pause"), [("site.example", 0.25), ("arxiv.org", 3.0), ("export.arxiv.org", 3.0)])
def test_starts_at_one_host_are_apart(host: str, pause: float) -> None:
    pacer, clock = HostPacer(), VirtualTime()
    for _ in range(3):
        with pacer.turn(host, clock.control()) as mine:
            assert mine
    assert clock.slept == [pause, pause]
    with pacer.turn("another.example", clock.control()) as mine:
        assert mine
    assert len(clock.slept) == 2


def test_no_more_requests_at_a_time_than_the_pace_allows(world: World) -> None:
    for n in range(6):
        world.pages[f"site.example/{n}"] = Reply(ARTICLE, wait=0.1)
    tool = world.tool(robots=False, pace=Pace(2, 0.001))
    pages = fetch_pages(tool, [f"http://site.example/{n}" for n in range(6)], RunControl(30))
    assert [p.kind for p in pages] == ["ok"] * 6
    assert world.most["site.example"] <= 2


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("5", 5.0), ("0", 0.0), ("soon", None), ("", None), ("-3", None), ("86400", 86_400.0), ("1e9", None)],
)
def test_retry_after_is_read_in_all_its_forms(header: str, seconds: float | None) -> None:
    assert retry_after_s(header) == seconds


def test_retry_after_as_a_date() -> None:
    seconds = retry_after_s("Fri, 31 Dec 2099 23:59:59 GMT")
    assert seconds is not None and seconds > 1e9
    assert retry_after_s("Fri, 31 Dec 1999 23:59:59 GMT") == 0.0


@pytest.mark.parametrize(
    ("status", "header", "requests"),
    [(503, "0", 2), (429, "1", 2), (429, "86400", 1), (500, "", 1), (403, "", 1), (404, "", 1)],
)
def test_a_passing_fault_is_tried_a_second_time_and_no_more(
    status: int, header: str, requests: int, world: World
) -> None:
    world.pages["site.example/"] = Reply(b"busy", status=status, headers={"Retry-After": header} if header else {})
    started = time.monotonic()
    fetched = world.tool(robots=False).fetch("http://site.example/")
    assert fetched.kind != "ok" and fetched.status == status
    assert len(world.asked) == requests
    assert time.monotonic() - started < 8


def test_a_second_try_that_succeeds_is_a_page(world: World) -> None:
    replies = [Reply(b"busy", status=503, headers={"Retry-After": "0"}), Reply(ARTICLE)]
    world.pages["site.example/"] = lambda request: replies.pop(0)
    assert world.tool(robots=False).fetch("http://site.example/").kind == "ok"


def test_a_denied_domain_is_not_asked_not_even_through_a_redirect(world: World) -> None:
    world.pages["a.example/"] = Reply(status=302, headers={"Location": "http://b.example/"})
    world.pages["b.example/"] = Reply(ARTICLE)
    tool = world.tool(robots=False, permits=DomainPolicy(deny=("b.example",)).permits)
    for url in ("http://a.example/", "http://b.example/"):
        assert tool.fetch(url).detail == "domain_denied"
    assert world.asked == ["a.example/"]


# --- several at once -------------------------------------------------------------------------------------


def test_twelve_pages_of_twelve_hosts_four_at_a_time_take_well_under_half_the_time(world: World) -> None:
    urls = [f"http://host{n}.example/" for n in range(12)]
    for n in range(12):
        world.pages[f"host{n}.example/"] = Reply(ARTICLE, wait=0.3)
    tool = world.tool(robots=False)
    started = time.monotonic()
    one_by_one = [tool.fetch(url) for url in urls]
    alone = time.monotonic() - started
    started = time.monotonic()
    together = fetch_pages(tool, urls, RunControl(60))
    assert (time.monotonic() - started) / alone <= 0.4
    assert [p.url for p in together] == urls
    assert [p.kind for p in together] == [p.kind for p in one_by_one] == ["ok"] * 12


def test_one_slow_page_does_not_hold_the_others_past_the_deadline(world: World) -> None:
    world.pages["slow.example/"] = Reply(ARTICLE, wait=8)
    world.pages["fast.example/"] = Reply(ARTICLE)
    started = time.monotonic()
    pages = fetch_pages(world.tool(robots=False), ["http://slow.example/", "http://fast.example/"], RunControl(1.5))
    assert time.monotonic() - started < 2.5
    assert [p.kind for p in pages] == ["timeout", "ok"]


def test_a_fetcher_that_raises_or_hangs_costs_its_own_page_only() -> None:
    released = threading.Event()

    class Odd:
        def fetch(self, url: str, *, control: RunControl | None = None) -> FetchedPage:
            if "hang" in url:
                released.wait(30)
            if "raise" in url:
                raise KeyError("x")
            return FetchedPage(url, "ok", page_from_parts(url, [("paragraph", "text")]))

    urls = ["http://raise.example/", "http://good.example/", "http://hang.example/"]
    assert [p.kind for p in fetch_pages(Odd(), urls, RunControl(0.5))] == ["network", "ok", "timeout"]
    released.set()


def test_a_stop_ends_a_fetch_that_waits(world: World) -> None:
    world.pages["slow.example/"] = Reply(ARTICLE, wait=8)
    control = RunControl(30)
    threading.Timer(0.3, control.stop, args=("SIGINT",)).start()
    started = time.monotonic()
    assert world.tool(robots=False).fetch("http://slow.example/", control=control).kind == "timeout"
    assert time.monotonic() - started < 2


# --- cache, archive, Tavily, special sites ---------------------------------------------------------------


def test_a_kept_page_is_used_only_when_the_site_says_unchanged(world: World, tmp_path: Path) -> None:
    version = ["1"]

    def page(request: Any) -> Reply:
        tag = f'"v{version[0]}"'
        if request.headers.get("If-None-Match") == tag:
            return Reply(status=304)
        return Reply(html(f"<p>Version {version[0]}. {LOREM}</p>"), headers={"ETag": tag})

    world.pages["site.example/x"] = page
    for wanted, status in [("1", 200), ("1", 304), ("2", 200), ("2", 304)]:
        version[0] = wanted
        fetched = world.tool(robots=False, cache_dir=tmp_path / "cache").fetch("http://site.example/x")
        assert fetched.kind == "ok" and fetched.status == status
        assert f"Version {wanted}." in fetched.text
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "cache").iterdir())


def test_only_whole_pages_are_kept_and_a_broken_file_is_a_miss(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    world.pages["site.example/wall"] = Reply(html("<h1>Verify you are human</h1>"), headers={"ETag": '"1"'})
    world.tool(robots=False, cache_dir=folder).fetch("http://site.example/wall")
    assert not folder.exists() or not list(folder.iterdir())
    world.pages["site.example/x"] = Reply(ARTICLE, headers={"Last-Modified": "Mon, 02 Nov 2026 10:00:00 GMT"})
    world.tool(robots=False, cache_dir=folder).fetch("http://site.example/x")
    for path in folder.iterdir():
        path.write_text("{broken")
    assert world.tool(robots=False, cache_dir=folder).fetch("http://site.example/x").kind == "ok"
    assert "if-modified-since" not in world.seen_headers[-1]
    world.tool(robots=False, cache_dir=folder).fetch("http://site.example/x")
    assert world.seen_headers[-1]["if-modified-since"] == "Mon, 02 Nov 2026 10:00:00 GMT"


def test_a_folder_that_cannot_be_written_costs_nothing(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    world.pages["site.example/x"] = Reply(ARTICLE, headers={"ETag": '"1"'})
    assert world.tool(cache_dir=tmp_path / "file" / "cache").fetch("http://site.example/x").kind == "ok"


@pytest.mark.parametrize("status", [404, 410, 500])
def test_a_page_that_is_gone_is_read_from_the_archive_and_labelled(status: int, world: World) -> None:
    gone = "https://site.example/old"
    world.pages["site.example/old"] = Reply(b"gone", status=status)
    closest = {"available": True, "status": "200", "timestamp": "20240301120000",
               "url": f"http://web.archive.org/web/20240301120000/{gone}"}  # fmt: skip
    world.pages["archive.org/wayback/available?url=https%3A%2F%2Fsite.example%2Fold"] = Reply(
        json.dumps({"archived_snapshots": {"closest": closest}}).encode(), "application/json"
    )
    world.pages[f"web.archive.org/web/20240301120000id_/{gone}"] = Reply(ARTICLE)
    assert world.tool(robots=False).fetch(gone).kind in ("not_found", "network")
    fetched = world.tool(robots=False, wayback=True).fetch(gone)
    assert fetched.kind == "ok" and fetched.page is not None
    assert fetched.page.url == f"https://web.archive.org/web/20240301120000/{gone}"
    assert "2024-03-01" in fetched.page.notes[-1] and str(status) in fetched.page.notes[-1]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b'{"archived_snapshots": {}}',
        b'{"archived_snapshots": {"closest": 1}}',
        b'{"archived_snapshots": {"closest": {"timestamp": "20240301120000", "url": "http://10.0.0.1/"}}}',
        b"[" * 100_000,
    ],
    ids=["nothing", "a list", "no copy", "a number", "another site", "deep"],
)
def test_an_archive_without_a_copy_is_no_copy(answer: bytes) -> None:
    assert wayback_snapshot(answer) is None


def test_intranet_addresses_are_told_to_no_archive(world: World) -> None:
    client = SafeClient(resolver=public, connect=world.connect, private_hosts=("wiki.corp.example",))
    tool = PageFetchTool(
        client=client, wayback=True, robots=False, tavily_key="tvly-x", tavily_url="http://127.0.0.1:9/"
    )
    assert tool.fetch("http://wiki.corp.example/secret").kind == "not_found"
    assert all("archive.org" not in where for where in world.asked)


def test_tavily_reads_what_was_blocked_where_a_key_is_set(world: World) -> None:
    world.pages["site.example/x"] = Reply(b"no", status=403)
    bodies = []

    def extract(request: Any) -> Reply:
        bodies.append(json.loads(request.rfile.read(int(request.headers["Content-Length"]))))
        found = {"results": [{"url": "http://site.example/x", "raw_content": f"# Kettles\n\n{LOREM}"}]}
        return Reply(json.dumps(found).encode(), "application/json")

    world.pages["127.0.0.1/extract"] = extract
    tool = world.tool(robots=False, tavily_key="tvly-key", tavily_url=f"http://127.0.0.1:{world.port}/extract")
    fetched = tool.fetch("http://site.example/x")
    assert fetched.kind == "ok" and fetched.page is not None and "Tavily" in fetched.page.notes[-1]
    assert bodies == [{"urls": ["http://site.example/x"], "format": "markdown"}]
    assert world.seen_headers[-1]["authorization"] == "Bearer tvly-key"
    world.pages["127.0.0.1/extract"] = Reply(b'{"results": [], "failed_results": [{}]}', "application/json")
    assert tool.fetch("http://site.example/x").kind == "blocked"


def test_an_arxiv_paper_is_one_source_whatever_form_was_asked_for(world: World) -> None:
    world.pages["arxiv.org/html/2401.18059"] = Reply(ARTICLE)
    for form in ("abs", "pdf", "html"):
        page = world.tool(robots=False).fetch(f"https://arxiv.org/{form}/2401.18059").page
        assert page is not None
        assert (page.url, page.canonical_url) == (
            "https://arxiv.org/html/2401.18059",
            "https://arxiv.org/abs/2401.18059",
        )


def test_special_sites_try_better_addresses_first() -> None:
    def tried(url: str) -> list[str]:
        return [c.url for c in candidates(url)]

    paper = [f"https://arxiv.org/{form}/cs/0112017v2" for form in ("html", "pdf", "abs")]
    assert tried("https://arxiv.org/pdf/cs/0112017v2.pdf") == paper
    assert tried("https://arxiv.org/list/cs.AI/recent") == ["https://arxiv.org/list/cs.AI/recent"]
    raw = "https://raw.githubusercontent.com/o/r"
    assert tried("https://github.com/o/r") == [f"{raw}/HEAD/README.md", "https://github.com/o/r"]
    assert tried("https://github.com/o/r/blob/main/a/b.py")[0] == f"{raw}/main/a/b.py"
    for url in (
        "https://github.com/topics/ai",
        "https://github.com/o/r/issues/1",
        "https://github.com.evil.example/o/r",
    ):
        assert tried(url) == [url]


def test_a_repository_is_its_readme_and_the_reader_gets_the_page(world: World) -> None:
    world.pages["raw.githubusercontent.com/o/r/HEAD/README.md"] = Reply(b"# The r project\n\nIt boils.\n", "text/plain")
    fetched = world.tool(robots=False).fetch("https://github.com/o/r")
    assert fetched.page is not None
    assert (fetched.page.url, fetched.title) == ("https://github.com/o/r", "The r project")


# --- the company's network, settings ---------------------------------------------------------------------


def test_a_proxy_of_the_settings_makes_the_connections() -> None:
    asked: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            sock, _ = listener.accept()
            with sock:
                asked.append(sock.recv(65_536))
                if asked[-1].startswith(b"CONNECT"):
                    sock.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                else:
                    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(ARTICLE)}\r\n\r\n"
                    sock.sendall(head.encode() + ARTICLE)

    threading.Thread(target=serve, daemon=True).start()
    port = listener.getsockname()[1]

    def loopback(host: str, port: int, *args: Any) -> list[tuple[Any, ...]]:
        assert host == "proxy.example", "only the proxy's own name is looked up"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    client = SafeClient(resolver=loopback, proxy=f"http://user:p%40ss@proxy.example:{port}")
    assert client.get("http://www.example.com/x?y=1").kind == "ok"
    assert asked[0].startswith(b"GET http://www.example.com/x?y=1 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwQHNz" in asked[0]
    secure = client.get("https://www.example.com/")
    assert (secure.kind, secure.detail) == ("network", "proxy")
    assert asked[1].startswith(b"CONNECT www.example.com:443 HTTP/1.1\r\n")
    assert client.get("http://10.0.0.1/").kind == "refused" and len(asked) == 2


@pytest.mark.parametrize("value", ["*", "*.corp.example", "http://wiki", "wiki:port", "a b"])
def test_private_hosts_are_named_one_by_one(value: str) -> None:
    with pytest.raises(ConfigError, match="ALLOW_PRIVATE_HOSTS"):
        load_config({"ALLOW_PRIVATE_HOSTS": value})


def test_the_check_page_says_who_keeps_private_addresses_out() -> None:
    assert "public addresses only" in describe_settings(load_config({}))
    opened = describe_settings(load_config({"ALLOW_PRIVATE_HOSTS": "wiki.corp.example:8090"}))
    assert "wiki.corp.example:8090" in opened
    text = describe_settings(load_config({"FETCH_PROXY": "http://user:secret-word@proxy.example:3128"}))
    assert "FETCH_PROXY, which looks up names itself" in text and "secret-word" not in text


def test_the_settings_reach_the_fetcher() -> None:
    _, tool = build_tools(load_config({"ALLOW_PRIVATE_HOSTS": "wiki.corp.example:8090", "RESPECT_ROBOTS": "0"}))
    assert tool._client.guard.private_hosts == {("wiki.corp.example", 8090)}
    assert tool._robots is None


HOSTILE_TEXT = ["[[", "![a](", "**a", "`", "_a ", "# " + " " * 500, "| a ", '","', '"\n']


@pytest.mark.parametrize("media", ["markdown", "csv"])
@pytest.mark.parametrize("piece", HOSTILE_TEXT)
def test_no_plain_text_costs_the_square_of_its_length(piece: str, media: Any) -> None:
    from m3.page_reading import read_body

    def seconds(size: int) -> float:
        body = (piece * (size // len(piece))).encode()
        started = time.process_time()
        read_body(body, media, "text/plain; charset=utf-8", "https://a.example/x", control=RunControl(20))
        return time.process_time() - started

    assert seconds(40_000) < 0.5 + 8 * seconds(10_000)


def test_a_tag_of_very_many_attributes_ends_within_the_deadline(world: World) -> None:
    world.pages["site.example/"] = Reply(html("<p " + "a1 " * 60_000 + f">{LOREM}</p>"))
    started = time.monotonic()
    fetched = world.tool(robots=False, timeout_s=4).fetch("http://site.example/")
    assert time.monotonic() - started < 5
    assert fetched.kind == "ok" and "kettle" in fetched.text
