"""Uploaded files: every name and body of the cases over real HTTP, the folder on disk, and the tools that read them."""

from __future__ import annotations

import errno
import http.client
import io
import json
import os
import random
import re
import socket
import struct
import threading
import time
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from config import ConfigError
from m3.react_parser import parse_thought_action
from m3.records import RunControl
from m3.search import WebSearchTool
from m3.untrusted import foreign_line
from tests.chat import Running, chat_server
from tests.conftest import OWN_CASES
from tests.pdfs import assemble, pdf
from tools import ToolSuite
from web.backend.files import Uploads, column_summary, display_name
from web.backend.tools.file_reader import file_tools
from web.backend.tools.pdf_parser import READ_CHARACTERS, pdf_tool

CASES = json.loads((OWN_CASES / "injection" / "server.json").read_text(encoding="utf-8"))
TEXT = b"The harbour of Skagen was opened in 1907.\n"
PDF = pdf([["The harbour of Skagen was opened in 1907."]])
LIMIT_MB = 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with chat_server(tmp_path, {"CHAT_UPLOAD_MB": str(LIMIT_MB)}) as running:
        yield running


def form(name: str, data: bytes, field: str = "file", more: bytes = b"") -> tuple[bytes, dict[str, str]]:
    """A form with one file, its name as it is, in UTF-8: no client's escaping."""
    head = f'--XX\r\nContent-Disposition: form-data; name="{field}"; filename="'.encode()
    quoted = name.replace('"', "%22").encode("utf-8", "surrogatepass")
    body = (
        head + quoted + b'"\r\nContent-Type: application/octet-stream\r\n\r\n' + data + b"\r\n" + more + b"--XX--\r\n"
    )
    return body, {"Content-Type": "multipart/form-data; boundary=XX"}


def send(server: Running, name: str, data: bytes, **more: Any) -> requests.Response:
    body, headers = form(name, data, **more)
    return requests.post(f"{server.url}/upload", data=body, headers=headers, timeout=30)


def names(server: Running) -> list[str]:
    return [file["name"] for file in requests.get(f"{server.url}/files", timeout=10).json()["files"]]


def stored(server: Running) -> list[str]:
    return sorted(path.name for path in server.app.state.server.uploads.folder.iterdir() if path.name != ".index")


# --- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES["filenames"], ids=[f"{i}" for i in range(len(CASES["filenames"]))])
def test_every_name_of_the_cases_is_shown_cleaned_or_refused_and_never_becomes_a_path(
    server: Running, case: dict[str, str]
) -> None:
    name, must = case["filename"], case["must"]
    if must == "ok-second-copy":
        assert send(server, name, PDF).status_code == 201
    is_pdf = name.lower().rstrip(". ").endswith((".pdf", ".pdf\u200b")) or must in ("same-as-nfc",)
    answer = send(server, name, PDF if is_pdf else TEXT)
    if must.isdigit() or must == "415-or-text":
        assert answer.status_code == int(must[:3]) or (must == "415-or-text" and answer.status_code == 201), case
        if answer.status_code != 201:
            assert names(server) == [] and stored(server) == []
            assert set(answer.json()) == {"error"} and "\n" not in answer.json()["error"]
            return
    assert answer.status_code == 201, (case, answer.text)
    shown = answer.json()["name"]
    assert names(server)[-1] == shown
    assert len(shown.encode()) <= 255 and shown == unicodedata.normalize("NFC", shown)
    assert (
        not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in shown) and "/" not in shown and "\\" not in shown
    )
    if must.startswith("ok-as-"):
        assert shown == must.removeprefix("ok-as-")
    if must == "ok-cut":
        assert shown.endswith(".txt") and len(shown.encode()) > 240
    if must == "ok-second-copy":
        assert names(server) == ["report.pdf", "report (2).pdf"]
    if must == "same-as-nfc":
        assert shown == "résumé.pdf"
    for file in stored(server):
        assert len(file.removesuffix(".json")) == 32 and set(file.removesuffix(".json")) <= set("0123456789abcdef")
    assert requests.delete(f"{server.url}/files/{requests.utils.quote(shown, safe='')}", timeout=10).status_code == 204


@pytest.mark.parametrize("escaped", ["a%00.txt", "a%0Ab.txt", "a%0d%0ab.txt", "%1B[2Jx.txt", "a%7f.txt"])
def test_a_control_character_that_a_browser_or_client_escaped_is_refused_too(server: Running, escaped: str) -> None:
    assert send(server, escaped, TEXT).status_code == 400 and names(server) == []


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("notes.TXT", "notes.TXT"), ("C:notes.txt", "C:notes.txt"), ("a/b\\c.md", "c.md"), ("  x  y .txt", "x y .txt"),
        ("x.txt...", "x.txt"), ("x.txt. . ", "x.txt"), ("a\u202eb\u200b.txt", "ab.txt"), ("\ufeffx.txt", "x.txt"),
        ("\ud800x.txt", "\ufffdx.txt"), ("v1.2 notes", "v1.2 notes"), ("👩‍👩‍👧.txt", "👩‍👩‍👧.txt"),
    ],
)  # fmt: skip
def test_a_display_name_is_the_last_part_cleaned(sent: str, shown: str) -> None:
    assert display_name(sent) == shown


def test_names_differ_also_where_only_their_capitals_would(server: Running) -> None:
    for name in ("Report.txt", "report.txt", "REPORT.TXT", "report.txt"):
        assert send(server, name, TEXT).status_code == 201
    assert names(server) == ["Report.txt", "report (2).txt", "REPORT (3).TXT", "report (4).txt"]


def test_a_name_in_a_prompt_imitates_neither_a_source_nor_the_loop(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "u")
    for case in CASES["filenames"]:
        if case["must"].startswith("ok") and not case["filename"].lower().endswith(".pdf"):
            uploads.add(case["filename"], TEXT)
    listing = uploads.listing()
    assert len(listing.splitlines()) == len(uploads.records()) > 15
    assert "[Source" not in listing and parse_thought_action(listing).tool is None
    for record in uploads.records():  # and each is found by what the prompt showed
        assert uploads.find(foreign_line(record.name, 300)) == uploads.find(record.name) == record.name


# --- bodies ----------------------------------------------------------------------------------------------


def zipped(members: dict[str, bytes], *, link: bool = False) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if link:
                info.external_attr = 0o120777 << 16
            archive.writestr(info, data)
    return out.getvalue()


def bomb() -> bytes:
    """A page whose content stream unpacks to 100 MB of text operators."""
    stream = zlib.compress(b"BT /F1 11 Tf 72 700 Td " + b"(x) Tj " * 15_000_000 + b"ET", 6)
    return assemble([
        b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R"
        b" /Resources << /Font << /F1 4 0 R >> >> >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Length {len(stream)} /Filter /FlateDecode >>\nstream\n".encode() + stream + b"\nendstream",
    ])  # fmt: skip


def raw(server: Running, head: str, *parts: bytes, pause: float = 0.0, wait: float = 10.0) -> bytes:
    """What the server answers to bytes as they are."""
    host = server.url.removeprefix("http://")
    with socket.create_connection(tuple_of(host), timeout=wait) as connection:
        connection.sendall(f"{head}\r\nHost: {host}\r\n\r\n".encode())
        try:
            for part in parts:
                connection.sendall(part)
                if pause:
                    time.sleep(pause)
        except OSError:
            pass  # the server has heard enough
        answer = b""
        try:
            while data := connection.recv(65_536):
                answer += data
        except OSError:
            pass
        return answer


def tuple_of(host: str) -> tuple[str, int]:
    name, _, port = host.partition(":")
    return name, int(port)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


UPLOAD = "POST /upload HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=XX"
LIMIT = LIMIT_MB * 1_000_000


def chunks(data: bytes, size: int = 65_536) -> list[bytes]:
    return [b"%x\r\n%s\r\n" % (len(p), p) for p in (data[i : i + size] for i in range(0, len(data), size))] + [
        b"0\r\n\r\n"
    ]


def body_empty(s: Running) -> None:
    assert send(s, "x.txt", b"").status_code == 400


def body_big(s: Running) -> None:
    assert send(s, "x.txt", b"x" * (LIMIT + 1)).status_code == 413
    declared = raw(s, f"{UPLOAD}\r\nContent-Length: {LIMIT * 50}", b"--XX\r\n")
    assert status(declared) == 413  # before a byte of the file was sent


def body_big_chunked(s: Running) -> None:
    body, _ = form("x.txt", b"x" * (LIMIT + 300_000))
    assert status(raw(s, f"{UPLOAD}\r\nTransfer-Encoding: chunked", *chunks(body))) == 413


def body_big_lie(s: Running) -> None:
    body, _ = form("x.txt", b"x" * 100_000)
    assert status(raw(s, f"{UPLOAD}\r\nContent-Length: 500", body)) in (400, 413)


def body_slow(s: Running) -> None:
    import web.backend.guard as guard

    before, guard.UPLOAD_SECONDS = guard.UPLOAD_SECONDS, 1.0
    try:
        started = time.monotonic()
        body, _ = form("x.txt", b"a" * 5_000)
        answer = raw(s, f"{UPLOAD}\r\nContent-Length: {len(body)}", body[:200], *[b"a"] * 60, pause=0.05)
        assert status(answer) == 408 and time.monotonic() - started < 8
    finally:
        guard.UPLOAD_SECONDS = before


def body_many_parts(s: Running) -> None:
    part = b'--XX\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n'
    assert send(s, "x.txt", TEXT, more=part * 10_000).status_code in (400, 413)
    file = b'--XX\r\nContent-Disposition: form-data; name="a"; filename="y.txt"\r\n\r\nb\r\n'
    assert send(s, "x.txt", TEXT, more=file * 10).status_code in (400, 413)
    assert send(s, "x.txt", TEXT, more=file).status_code == 400  # two files


def body_huge_headers(s: Running) -> None:
    body, headers = form("x.txt", TEXT)
    big = body.replace(b"\r\nContent-Type:", b"\r\nX-Long: " + b"a" * 1_000_000 + b"\r\nContent-Type:")
    assert requests.post(f"{s.url}/upload", data=big, headers=headers, timeout=30).status_code == 400
    many = body.replace(
        b"\r\nContent-Type:", b"".join(b"\r\nX-%d: a" % i for i in range(50_000)) + b"\r\nContent-Type:"
    )
    assert requests.post(f"{s.url}/upload", data=many, headers=headers, timeout=30).status_code == 400


def body_preamble(s: Running) -> None:
    body, headers = form("x.txt", TEXT)
    answer = requests.post(f"{s.url}/upload", data=b"x" * (LIMIT // 2) + b"\r\n" + body, headers=headers, timeout=30)
    assert answer.status_code in (400, 413)


def body_no_boundary(s: Running) -> None:
    body, _ = form("x.txt", TEXT)
    for kind in (
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary="',
        "multipart/",
    ):
        answer = requests.post(f"{s.url}/upload", data=body, headers={"Content-Type": kind}, timeout=10)
        assert answer.status_code in (400, 415), kind
    assert requests.post(f"{s.url}/upload", data=b"--YY", headers={"Content-Type": "multipart/form-data; boundary=XX"},
                         timeout=10).status_code == 400  # fmt: skip


def body_json_as_form(s: Running) -> None:
    assert requests.post(f"{s.url}/upload", json={"file": "x"}, timeout=10).status_code == 415
    assert requests.post(f"{s.url}/upload", data={"file": "x"}, timeout=10).status_code == 415
    assert send(s, "x.txt", TEXT, field="other").status_code == 400


def body_mime_lie(s: Running) -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"\0" * 200
    for name in ("x.pdf", "x.txt", "x.md", "x.csv", "x.html", "x"):
        assert send(s, name, png).status_code == 415
    assert send(s, "x.txt", PDF).status_code == 415 and send(s, "x.html", PDF).status_code == 415


def body_polyglot(s: Running) -> None:
    assert send(s, "x.pdf", b"<html>" + b" " * 900 + PDF).status_code == 415
    assert send(s, "x.pdf", b"\n" + PDF).status_code == 415


def body_zips(s: Running) -> None:
    bombs = [
        zipped({"word/document.xml": b"0" * 50_000_000}), zipped({"../../x": b"x"}),
        zipped({"x": b"/etc/passwd"}, link=True),
        zipped({"word/document.xml": b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'}),
    ]  # fmt: skip
    for data in bombs:
        for name in ("x.docx", "x.txt", "x.pdf", "x.html", "x"):
            assert send(s, name, data).status_code == 415
    assert stored(s) == []


def body_pdf_bomb(s: Running) -> None:
    answers: list[requests.Response] = []
    sender = threading.Thread(target=lambda: answers.append(send(s, "x.pdf", bomb_bytes)))
    bomb_bytes = bomb()
    started = time.monotonic()
    sender.start()
    while sender.is_alive():  # the server answers others meanwhile
        asked = time.monotonic()
        assert requests.get(f"{s.url}/health", timeout=5).status_code == 200
        assert time.monotonic() - asked < 2
        sender.join(0.3)
    assert time.monotonic() - started < 12 and answers[0].status_code == 422
    assert "PDF" in answers[0].json()["error"]
    assert send(s, "x.pdf", b"%PDF-1.4\nnothing").status_code == 422
    assert send(s, "x.pdf", pdf([[]])).status_code == 422  # a scan: no text


def shown_text(s: Running, name: str) -> str:
    uploads = s.app.state.server.uploads
    page = uploads.documents.read(name)
    assert page is not None and page.kind == "ok", page
    return str(page.text)


def body_utf16(s: Running) -> None:
    for i, codec in enumerate(("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig")):
        text = "Der Hafen von Skagen wurde 1907 eröffnet. Größe: 5 m."
        mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(codec, b"")
        assert send(s, f"x{i}.txt", mark + text.encode(codec)).status_code == 201
        assert shown_text(s, f"x{i}.txt") == text


def body_latin1(s: Running) -> None:
    assert send(s, "x.txt", "Größe und Übermut in Århus, naïve façade.".encode("latin-1")).status_code == 201
    assert "Größe und Übermut" in shown_text(s, "x.txt")


def body_nul(s: Running) -> None:
    assert send(s, "x.txt", b"The har\0bour of\0 Skagen.\0").status_code == 201
    assert shown_text(s, "x.txt") == "The harbour of Skagen."


def body_binary(s: Running) -> None:
    for seed in range(20):
        data = random.Random(seed).randbytes(5_000)
        for name in ("x.txt", "x.csv", "x.md", "x.html", "x"):
            assert send(s, name, data).status_code == 415, seed
    for data in (
        b"\0" * 5_000,
        b"MZ\x90\0\3" + b"\0" * 60,
        b"\x7fELF\2\1\1" + b"\0" * 60,
        struct.pack("<500d", *range(500)),
    ):
        assert send(s, "x.txt", data).status_code in (415, 422)


def body_long_line(s: Running) -> None:
    line = b"a,b,c\n" + b"word,1,2," * (LIMIT // 10)
    assert send(s, "x.csv", line).status_code == 201
    assert send(s, "y.txt", b"w" * (LIMIT - 1_000)).status_code == 201
    assert len(shown_text(s, "x.csv")) <= 400_000 and len(shown_text(s, "y.txt")) <= 400_000


def body_injection(s: Running) -> None:
    grammar = json.loads((OWN_CASES / "injection" / "grammar.json").read_text(encoding="utf-8"))
    text = json.dumps(grammar, ensure_ascii=False).replace("\\n", "\n")
    assert send(s, "x.txt", text.encode("utf-8", "replace")).status_code == 201
    observation = read(s.app.state.server.uploads, "read_file", file="x.txt")
    head, _, rest = observation.partition("\n")
    assert head.startswith("[Source 1] ") and not re.search(r"\[Sources? \d", rest)
    assert parse_thought_action(rest).tool is None


def body_disk_full(s: Running) -> None:
    import web.backend.files as files

    uploads = s.app.state.server.uploads
    real = files.os.fsync

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    files.os.fsync = full
    try:
        answer = send(s, "x.txt", TEXT)
    finally:
        files.os.fsync = real
    assert answer.status_code == 507 and "no room" in answer.json()["error"]
    assert stored(s) == [] and uploads.records() == [] and str(uploads.folder) not in answer.text
    assert send(s, "x.txt", TEXT).status_code == 201


def body_symlink_dir(s: Running) -> None:
    folder: Path = s.app.state.server.uploads.folder
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "link").symlink_to(folder.parent / "elsewhere")
    with pytest.raises(ConfigError, match="is a link"):
        Uploads(folder.parent / "link")


def body_race(s: Running) -> None:
    answers: list[requests.Response] = []
    threads = [threading.Thread(target=lambda: answers.append(send(s, "same.txt", TEXT))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [a.status_code for a in answers] == [201] * 8
    assert len(set(names(s))) == 8 and len([f for f in stored(s) if not f.endswith(".json")]) == 8


def body_disconnect(s: Running) -> None:
    body, _ = form("x.txt", TEXT * 1_000)
    host = s.url.removeprefix("http://")
    with socket.create_connection(tuple_of(host)) as connection:
        connection.sendall(f"{UPLOAD}\r\nContent-Length: {len(body)}\r\nHost: {host}\r\n\r\n".encode() + body[:20_000])
    time.sleep(0.3)
    assert stored(s) == [] and names(s) == []
    assert send(s, "y.txt", TEXT).status_code == 201


def body_get_back(s: Running) -> None:
    (s.app.state.server.uploads.folder.parent / "secret.txt").write_text("secret")
    assert send(s, "x.txt", TEXT).status_code == 201
    ids = stored(s)
    paths = [
        "/files/../../etc/passwd", "/files/%2e%2e/%2e%2e/etc/passwd", "/files/..%2fsecret.txt", "/files/../secret.txt",
        "/files/%2e%2e%5csecret.txt", "/files//etc/passwd", "/files/%00", f"/files/{ids[0]}", "/files/.index",
        "/../secret.txt",
        "/%2e%2e/%2e%2e/web/backend/main.py", "/..%2f..%2fconfig.py", "/web/backend/main.py", "/.env", "//etc/passwd",
    ]  # fmt: skip
    for path in paths:
        for method in ("GET", "DELETE"):
            connection = http.client.HTTPConnection(s.url.removeprefix("http://"), timeout=10)
            connection.putrequest(method, path, skip_accept_encoding=True)
            connection.endheaders()
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status in (404, 405) and b"secret" not in said and b"root:" not in said, (method, path)
            assert answer.status == 404 or method == "DELETE", path
            connection.close()
    assert names(s) == ["x.txt"]


def body_serve(s: Running) -> None:
    """No route gives a file back, so that no page of a stranger's is ever shown from this origin."""
    assert (
        send(
            s, "x.html", b"<!doctype html><title>t</title><p>The harbour of Skagen.<script>alert(1)</script>"
        ).status_code
        == 201
    )
    answer = requests.get(f"{s.url}/files/x.html", timeout=10)
    assert answer.status_code == 405 and answer.headers["x-content-type-options"] == "nosniff"
    assert "<script" not in answer.text and "html" not in answer.headers["content-type"]


BODIES: dict[str, Callable[[Running], None]] = {
    "empty": body_empty, "big": body_big, "big-chunked": body_big_chunked, "big-lie": body_big_lie, "slow": body_slow,
    "many-parts": body_many_parts, "huge-headers": body_huge_headers, "preamble": body_preamble,
    "no-boundary": body_no_boundary, "json-as-form": body_json_as_form, "mime-lie": body_mime_lie,
    "polyglot": body_polyglot, "zip-bomb-docx": body_zips, "zip-slip": body_zips, "zip-symlink": body_zips,
    "docx-xxe": body_zips, "pdf-bomb": body_pdf_bomb, "utf16-txt": body_utf16, "latin1-txt": body_latin1,
    "nul-txt": body_nul, "bin-txt": body_binary, "csv-100mb-line": body_long_line, "injection": body_injection,
    "disk-full": body_disk_full, "symlink-dir": body_symlink_dir, "race": body_race, "disconnect": body_disconnect,
    "get-back": body_get_back, "serve": body_serve,
}  # fmt: skip


@pytest.mark.parametrize("case", [case["id"] for case in CASES["bodies"]])
def test_every_body_of_the_cases_is_taken_or_refused_as_it_must(server: Running, case: str) -> None:
    BODIES[case](server)
    assert requests.get(f"{server.url}/health", timeout=10).json()["status"] == "ok"
    assert not [name for name in stored(server) if name.endswith(".part")]


def test_uploads_that_arrive_slowly_keep_no_other_from_being_taken(server: Running) -> None:
    body, _ = form("x.txt", TEXT * 100)
    host = server.url.removeprefix("http://")
    head = f"{UPLOAD}\r\nContent-Length: {len(body)}\r\nHost: {host}\r\n\r\n".encode()
    slow = [socket.create_connection(tuple_of(host)) for _ in range(5)]
    try:
        for connection in slow:
            connection.sendall(head + body[:500])
        assert send(server, "y.txt", TEXT).status_code == 201
    finally:
        for connection in slow:
            connection.close()
    assert names(server) == ["y.txt"]


# --- the folder ------------------------------------------------------------------------------------------


def test_files_survive_a_restart_and_what_broke_off_does_not(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "u")
    uploads.add("a.txt", TEXT)
    (uploads.folder / ("f" * 32)).write_bytes(b"data without a record")
    (uploads.folder / ("e" * 32 + ".part")).write_bytes(b"half")
    elsewhere = {"id": "../../../etc/passwd", "name": "x", "size": 1, "type": "txt", "uploaded_at": ""}
    (uploads.folder / ("d" * 32 + ".json")).write_text(json.dumps(elsewhere))
    (uploads.folder / ("c" * 32 + ".json")).write_text("not JSON")
    again = Uploads(tmp_path / "u")
    assert [record.name for record in again.records()] == ["a.txt"]
    assert not (uploads.folder / ("f" * 32)).exists() and not list(uploads.folder.glob("*.part"))
    assert again.documents.read("a.txt") is not None


def test_only_this_user_may_read_what_was_uploaded(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "u")
    record = uploads.add("a.txt", TEXT)
    assert uploads.folder.stat().st_mode & 0o777 == 0o700
    assert uploads.path(record).stat().st_mode & 0o777 == 0o600


def test_a_deleted_file_is_found_by_no_search_and_its_words_leave_the_index(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "u")
    uploads.add("skagen.txt", TEXT)
    uploads.add("other.txt", b"Tea comes from China.")
    search = WebSearchTool([], documents=[uploads.documents])
    assert [r.url for r in search.search("Skagen harbour").results] == ["skagen.txt"]
    assert uploads.delete("skagen.txt") and not uploads.delete("skagen.txt")
    assert uploads.documents.read("skagen.txt") is None
    assert search.search("Skagen harbour").status == "no_results"
    assert len(os.listdir(uploads.folder)) == 3  # a file, its record, the index


# --- the tools -------------------------------------------------------------------------------------------


class Nothing:
    """A search and a fetcher over the uploads alone."""

    def __init__(self, uploads: Uploads) -> None:
        self.documents = uploads.documents

    def search(self, query: str, **more: Any) -> Any:
        return self.documents.search(query)

    def fetch(self, url: str, *, control: Any = None) -> Any:
        return self.documents.read(url)


def suite_of(uploads: Uploads) -> ToolSuite:
    tools = (*file_tools(uploads), pdf_tool(uploads))
    return ToolSuite("When was the harbour opened?", Nothing(uploads), Nothing(uploads), tools=tools)  # type: ignore[arg-type]


def read(uploads: Uploads, tool: str, suite: ToolSuite | None = None, **args: Any) -> str:
    return (suite or suite_of(uploads)).run(tool, args, RunControl(60))


def test_a_long_pdf_is_read_in_reads_of_twelve_thousand_characters_with_a_way_to_go_on(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "u")
    words = "harbour boat fish net wind storm rope anchor sail mast captain island lighthouse ferry gull tide".split()
    pick = random.Random(3)
    pages = [[" ".join(pick.choices(words, k=10)).capitalize() + "." for _ in range(40)] for n in range(1, 31)]
    uploads.add("long.pdf", pdf(pages))
    suite, seen, page = suite_of(uploads), [], 1
    while True:
        text = read(uploads, "extract_pdf_text", suite, file="long.pdf", page=page)
        assert len(text) <= READ_CHARACTERS + 500
        numbers = [int(line[6:-1]) for line in text.splitlines() if line.startswith("(page ")]
        seen += numbers
        more = [line for line in text.splitlines() if line.startswith("(more: extract_pdf_text ")]
        if not more:
            break
        page = json.loads(more[0].removeprefix("(more: extract_pdf_text ").removesuffix(")"))["page"]
        assert page == numbers[-1] + 1
    assert seen == list(range(1, 31)) and "(the end of the file)" in text
    assert len(suite.tracker.sources) == 1  # one file is one source, however often it is read
    assert "last page with text is 30" in read(uploads, "extract_pdf_text", suite, file="long.pdf", page=99)


def test_a_long_text_is_read_in_parts_that_together_are_the_whole(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "u")
    text = "\n\n".join(f"Paragraph {i} tells of harbours, boats and the people who came in them." for i in range(700))
    uploads.add("long.md", text.encode())
    suite, got, part = suite_of(uploads), "", 1
    while True:
        shown = read(uploads, "read_file", suite, file="long.md", part=part)
        body = shown.split("\n", 1)[1].rsplit("\n", 1)[0]
        assert len(body) <= READ_CHARACTERS
        got, part = f"{got}\n{body}", part + 1
        if shown.endswith("(the end)"):
            break
    assert [line for line in got.splitlines() if line] == [line for line in text.splitlines() if line]
    assert "There is no part 99" in read(uploads, "read_file", suite, file="long.md", part=99)


def test_a_table_is_read_with_a_summary_of_its_columns(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "u")
    table = 'port,opened,depth m,note\nSkagen,1907,9.5,\nHirtshals,1929,"1,200",big\nHanstholm,1967,10,big\n'
    uploads.add("ports.csv", table.encode())
    text = read(uploads, "read_file", file="ports.csv")
    assert "Table of 3 rows and 4 columns:" in text
    assert "- port: text, 3 different: Skagen, Hirtshals, Hanstholm" in text
    assert "- opened: numbers, 1907 to 1967, mean 1934.33" in text
    assert "- depth m: numbers, 9.5 to 1200" in text and "- note: text, 1 different: big, 1 empty" in text
    assert "port: Skagen; opened: 1907" in text


@pytest.mark.parametrize("text", ["", "a", "a,b\n", '"' * 100, "\n\n\n", "a,b\n1\n", "x" * 300_000])
def test_what_is_no_table_has_no_summary_and_raises_nothing(text: str) -> None:
    assert isinstance(column_summary(text), str)


@pytest.mark.parametrize(
    "asked", ["report.pdf", "REPORT.PDF", "report", "F1", "f1.", '"report.pdf"', "uploads/report.pdf"]
)
def test_a_file_is_found_by_the_ways_in_which_models_name_it(tmp_path: Path, asked: str) -> None:
    uploads = Uploads(tmp_path / "u")
    uploads.add("report.pdf", PDF)
    assert "1907" in read(uploads, "extract_pdf_text", file=asked)
    assert "1907" in read(uploads, "read_file", file=asked)  # which tool reads it is the program's matter


@pytest.mark.parametrize(
    "asked", ["../../etc/passwd", "/etc/passwd", "", ".", "F0", "F2", "https://x.example/a", "*", "a\0b"]
)
def test_a_name_that_no_file_has_is_answered_with_those_that_there_are(tmp_path: Path, asked: str) -> None:
    uploads = Uploads(tmp_path / "u")
    uploads.add("report.pdf", PDF)
    suite = suite_of(uploads)
    text = read(uploads, "read_file", suite, file=asked)
    assert text.startswith("There is no uploaded file") and "F1. report.pdf" in text
    assert not suite.last_ok and not suite.tracker.sources


def test_without_uploads_the_list_says_so(tmp_path: Path) -> None:
    assert read(Uploads(tmp_path / "u"), "list_uploaded_files") == "No files have been uploaded."
