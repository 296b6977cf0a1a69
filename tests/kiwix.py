"""A real search server and a small real web on this machine: kiwix-serve over a ZIM made from the sample corpus."""

from __future__ import annotations

import contextlib
import html
import json
import shutil
import socket
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen
from xml.etree import ElementTree

from config import PROGRAM_DIR
from m3.plain_text import markdown_page
from tests.loopback import Reply, Request

BOOK = "corpus"
MISSING = "kiwix-tools and zim-tools are not installed"


def installed() -> bool:
    return bool(shutil.which("kiwix-serve") and shutil.which("zimwriterfs"))


def build_zim(folder: Path) -> Path:
    """A ZIM of the sample corpus as HTML pages, with the full-text index that zimwriterfs makes."""
    site = folder / "site"
    site.mkdir()
    links = []
    for path in sorted((PROGRAM_DIR / "sample_corpus").glob("*.md")):
        page = markdown_page(path.read_text(encoding="utf-8"), path.name)
        body = "".join(f"<p>{html.escape(block.text)}</p>" for block in page.blocks if block.kind != "heading")
        # No <meta charset>, and kiwix sends none either: the reader must find out that this is UTF-8.
        title = html.escape(page.title)
        text = (
            f"<html><head><title>{title}</title></head><body><h1>{title}</h1>{body}<p>Read in a café.</p></body></html>"
        )
        (site / f"{path.stem}.html").write_text(text, encoding="utf-8")
        links.append(f'<a href="{path.stem}.html">{html.escape(page.title)}</a>')
    (site / "index.html").write_text(f"<html><head><title>All</title></head><body>{''.join(links)}</body></html>")
    (site / "icon.png").write_bytes(_png(48))
    zim = folder / f"{BOOK}.zim"
    options = "--welcome=index.html --illustration=icon.png --language=eng --title=T --description=D --creator=c"
    command = ["zimwriterfs", *options.split(), "--publisher=p", f"--name={BOOK}", str(site), str(zim)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return zim


def _png(size: int) -> bytes:
    """A white square; a ZIM must have an illustration."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff" * size * 3) * size
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@contextlib.contextmanager
def kiwix_server(zim: Path) -> Iterator[str]:
    """Base URL of kiwix-serve over `zim`."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = ["kiwix-serve", "--address=127.0.0.1", f"--port={port}", "--nosearchbar", str(zim)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def searxng_front(request: Request, kiwix: str) -> Reply:
    """SearXNG's JSON protocol over kiwix's own search: only the form of the reply is made here."""
    query = urlencode({"pattern": request.query["q"], "content": BOOK, "format": "xml", "pageLength": 10})
    with urlopen(f"{kiwix}/search?{query}", timeout=10) as reply:
        items = ElementTree.fromstring(reply.read()).iter("item")
    results = [
        {
            "title": item.findtext("title"),
            "url": kiwix + (item.findtext("link") or ""),
            "content": _inner_text(item.find("description")),
            "engine": "kiwix",
            "publishedDate": None,
        }
        for item in items
    ]
    return Reply(body=json.dumps({"query": request.query["q"], "results": results, "unresponsive_engines": []}))


def _inner_text(element: ElementTree.Element | None) -> str:
    return "" if element is None else ElementTree.tostring(element, encoding="unicode")
