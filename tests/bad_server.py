"""A loopback server that misbehaves in every way of bad_server.json. The path says how: `/drip_body`.

Run as a program it serves from a process of its own, so that a test can measure the memory of the client alone:
it prints its port and ends when its standard input closes.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator

from tests import pdfs

TEXT = (
    "This is the good page. It speaks of kettles and of water, which boils at one hundred degrees at sea level; "
    "higher up it boils earlier, and tea tastes worse."
)
HTML = f"<!doctype html><html><head><title>Good page</title></head><body><p>{TEXT}</p></body></html>".encode()
Handler = Callable[[socket.socket, str], None]
HANDLERS: dict[str, Handler] = {}


def behaviour(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def head(*lines: str, status: str = "200 OK", kind: str = "text/html; charset=utf-8") -> bytes:
    fields = [f"HTTP/1.1 {status}", *([f"Content-Type: {kind}"] if kind else []), *lines]
    return ("\r\n".join(fields) + "\r\n\r\n").encode("latin-1")


def reply(body: bytes, *lines: str, status: str = "200 OK", kind: str = "text/html; charset=utf-8") -> bytes:
    return head(*lines, f"Content-Length: {len(body)}", status=status, kind=kind) + body


def endless(sock: socket.socket, pieces: Iterator[bytes], pause: float = 0.0) -> None:
    for piece in pieces:
        sock.sendall(piece)
        if pause:
            time.sleep(pause)


def drip(data: bytes) -> Iterator[bytes]:
    return (bytes([b]) for b in data)


# --- control and transport -------------------------------------------------------------------------------


@behaviour("ok_slow_but_fine")
def _slow(sock: socket.socket, host: str) -> None:
    sock.sendall(head(f"Content-Length: {len(HTML)}"))
    size = len(HTML) // 10 + 1
    endless(sock, (HTML[i : i + size] for i in range(0, len(HTML), size)), 0.1)


@behaviour("ok_deflate_raw")
def _deflate_raw(sock: socket.socket, host: str) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    sock.sendall(reply(packer.compress(HTML) + packer.flush(), "Content-Encoding: deflate"))


@behaviour("ok_bare_lf")
def _bare_lf(sock: socket.socket, host: str) -> None:
    sock.sendall(f"HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: {len(HTML)}\n\n".encode() + HTML)


def chunked(body: bytes, size: int) -> bytes:
    return b"".join(
        f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
        for piece in (body[i : i + size] for i in range(0, len(body), size))
    )


CHUNKED = head("Transfer-Encoding: chunked")


@behaviour("drip_headers")
def _drip_headers(sock: socket.socket, host: str) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    endless(sock, drip(b"X-Header: " + b"a" * 10_000), 0.3)


@behaviour("endless_100_continue")
def _endless_100(sock: socket.socket, host: str) -> None:
    endless(sock, itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"), 0.001)


@behaviour("drip_body")
def _drip_body(sock: socket.socket, host: str) -> None:
    sock.sendall(head("Content-Length: 100000"))
    endless(sock, drip(b"<p>" + b"a" * 10_000), 0.3)


@behaviour("drip_body_chunked")
def _drip_chunked(sock: socket.socket, host: str) -> None:
    sock.sendall(CHUNKED)
    endless(sock, itertools.repeat(b"1\r\na\r\n", 10_000), 0.3)


@behaviour("endless_headers")
def _endless_headers(sock: socket.socket, host: str) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    endless(sock, (f"X-{n}: {'a' * 100}\r\n".encode() for n in itertools.count()))


@behaviour("stall_mid_body")
def _stall(sock: socket.socket, host: str) -> None:
    sock.sendall(head(f"Content-Length: {len(HTML)}") + HTML[: len(HTML) // 2])
    time.sleep(20)


@behaviour("silent")
def _silent(sock: socket.socket, host: str) -> None:
    time.sleep(20)


@behaviour("rst_at_once")
def _reset(sock: socket.socket, host: str) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


# --- length ----------------------------------------------------------------------------------------------


@behaviour("endless_trailers")
def _endless_trailers(sock: socket.socket, host: str) -> None:
    sock.sendall(CHUNKED + chunked(HTML, 1_000) + b"0\r\n")
    endless(sock, (f"X-Trailer-{n}: {'a' * 100}\r\n".encode() for n in itertools.count()))


@behaviour("endless_plain")
def _endless_plain(sock: socket.socket, host: str) -> None:
    sock.sendall(head(kind="text/html") + b"<p>")
    endless(sock, itertools.repeat(b"endless text " * 5_000))


@behaviour("chunk_ext_flood")
def _extension_flood(sock: socket.socket, host: str) -> None:
    sock.sendall(CHUNKED + b"5;")
    endless(sock, itertools.repeat(b"a" * 65_536))


# --- coding ----------------------------------------------------------------------------------------------


def gzip_bomb(megabytes: int) -> bytes:
    """Blocks after a full flush stand alone, so that one packed megabyte can be repeated; nobody gets to the CRC."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    first = packer.compress(b"<html>" + b"<p>some text of the bomb</p>" * 50) + packer.flush(zlib.Z_FULL_FLUSH)
    megabyte = packer.compress(b" " * 1_000_000) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + megabyte * megabytes


@behaviour("gzip_bomb_2gb")
def _gzip_bomb(sock: socket.socket, host: str) -> None:
    sock.sendall(reply(gzip_bomb(2_000), "Content-Encoding: gzip"))


@behaviour("gzip_bomb_x2")
def _gzip_twice(sock: socket.socket, host: str) -> None:
    sock.sendall(reply(gzip.compress(gzip_bomb(1_000)), "Content-Encoding: gzip, gzip"))


@behaviour("redirect_bomb_body")
def _redirect_bomb(sock: socket.socket, host: str) -> None:
    sock.sendall(reply(gzip_bomb(500), "Location: /ok", "Content-Encoding: gzip", status="302 Found"))


@behaviour("redirect_endless_body")
def _redirect_endless(sock: socket.socket, host: str) -> None:
    sock.sendall(head("Location: /ok", status="302 Found"))
    endless(sock, itertools.repeat(b"a" * 65_536))


def _brotli_like() -> bytes:
    return b"\x1b\xff\xff\x1f\x00" + bytes(range(256)) * 4


# --- what is one fixed reply -----------------------------------------------------------------------------

REDIRECT = "302 Found"
UTF8 = "text/html; charset=utf-8"
WIDE = HTML.decode().encode("utf-16-le")
CYRILLIC = f"<html><head><title>Чай</title></head><body><p>{'Вода кипит при ста градусах. ' * 9}</p></body></html>"
JAPANESE = f"<html><head>%s<title>茶</title></head><body><p>{'水は百度で沸騰する。' * 20}</p></body></html>"


def page(body: str, title: str = "Page") -> bytes:
    return f"<!doctype html><html><head><title>{title}</title></head><body>{body}</body></html>".encode()


def fixed() -> dict[str, Callable[[str], bytes]]:
    """Behaviours that are one reply, as functions of the Host header."""
    rng = random.Random(7)
    html_pages = {
        "h_decl_open": b"<html><body><p>some text</p>" + b"<!x" * 200_000,
        "h_cdata_open": b"<html><body><p>some text</p>" + b"<![CDATA[" * 100_000,
        "h_comment_open": b"<html><body><p>some text</p>" + b"<!--" * 200_000,
        "h_script_5mb": b"<html><body><script>" + b"var x = 1;" * 490_000 + b"</script><p>" + TEXT.encode() + b"</p>",
        "h_deep_b_20k": b"<html><body><p>some text</p>" + b"<b><i>" * 20_000 + b"deep" + b"</i></b>" * 20_000,
        "h_pi_open": b"<html><body><p>some text</p>" + b"<?" * 300_000,
        "h_attrs_100k": b"<p " + b" ".join(b"a%d" % n for n in range(100_000)) + b">attributes</p>",
        "h_10mb_line": b"<html><body><p>" + b"word " * 2_000_000 + b"</p>",
        "h_entities_500k": b"<html><body><p>" + b"&eacute;" * 500_000 + b"</p>",
        "h_deep_div_100k": b"<html><body><p>some text</p>" + b"<div>" * 100_000 + b"deep" + b"</div>" * 100_000,
        "h_lt_flood": b"<html><body><p>some text</p>" + b"<" * 1_000_000,
        "h_links_100k": b"<html><body>" + b"".join(b'<a href="/%d">link %d</a> ' % (n, n) for n in range(100_000)),
        "h_xxe": b'<?xml version="1.0"?><!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/passwd">]><html><body><p>'
        b"before &x; after</p></body></html>",
        "h_dtd_laughs": b'<?xml version="1.0"?><!DOCTYPE html [<!ENTITY a "lol">'
        + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
        + b"]><html><body><p>before &j; after</p></body></html>",
    }
    json_pages = {
        "j_bom": b'\xef\xbb\xbf{"title": "A document", "n": 1}',
        "j_html_200": b"<html><body>Internal error</body></html>",
        "j_bigint": b'{"n": ' + b"9" * 10_000 + b"}",
        "j_deep": b"[" * 100_000 + b"]" * 100_000,
        "j_wrong_types": b'{"results": "none", "link": null, "title": ["a"]}',
        "j_cut": b'{"title": "A document", "text": "it goes',
        "j_nan": b'{"a": NaN, "b": Infinity, "c": 1e999, "d": "text"}',
        "j_dup": b'{"a": "first", "a": "second", "b": {"a": 1, "a": 2}}',
    }
    pdf_pages = {
        "pdf_ok": pdfs.pdf([["One page of text.", "It has two lines."]]),
        "pdf_page_loop": pdfs.page_loop(),
        "pdf_nest": pdfs.nested(),
        "pdf_encrypted": pdfs.encrypted(),
        "pdf_flate_bomb": pdfs.flate_bomb(),
        "pdf_xref_loop": pdfs.xref_loop(),
        "pdf_cut": pdfs.pdf([["One page of text."]])[:300],
    }
    simple: dict[str, bytes] = {
        "ok": reply(HTML),
        "ok_no_length": head() + HTML,
        "ok_chunked": CHUNKED + chunked(HTML, 100) + b"0\r\n\r\n",
        "garbage": rng.randbytes(5_000),
        "status_line_1mb": b"HTTP/1.1 200 " + b"a" * 1_000_000 + b"\r\n\r\n" + HTML,
        "header_nul": head("X-Odd: a\0b\x1b[31m", f"Content-Length: {len(HTML)}") + HTML,
        "status_999": reply(HTML, status="999 Request denied"),
        "status_word": b"HTTP/1.1 fine OK\r\n\r\n" + HTML,
        "headers_5000": head(*[f"X-{n}: 1" for n in range(5_000)]) + HTML,
        "set_cookie_90": reply(HTML, *[f"Set-Cookie: c{n}={'x' * 4_000}" for n in range(90)]),
        "cl_huge": head("Content-Length: 10000000000000") + HTML[:300],
        "chunk_one_byte": CHUNKED + chunked(HTML + b" " * (300_000 - len(HTML)), 1) + b"0\r\n\r\n",
        "cl_word": head("Content-Length: many") + HTML,
        "cl_two": head(f"Content-Length: {len(HTML)}", "Content-Length: 7") + HTML,
        "cl_too_long": head("Content-Length: 10000") + HTML,
        "chunk_size_huge": CHUNKED + b"FFFFFFFFFFFFFFFF\r\n" + HTML,
        "chunk_size_bad": CHUNKED + b"zz\r\n" + HTML,
        "cl_negative": head("Content-Length: -5") + HTML,
        "coding_unknown": reply(HTML, "Content-Encoding: x-foo"),
        "gzip_tail": reply(gzip.compress(HTML) + b"garbage after the end", "Content-Encoding: gzip"),
        "br_bomb_1gb": reply(_brotli_like(), "Content-Encoding: br"),
        "zstd_bomb_1gb": reply(b"\x28\xb5\x2f\xfd" + bytes(2_000), "Content-Encoding: zstd"),
        "gzip_cut": reply(gzip.compress(HTML * 20 + rng.randbytes(4_000))[:-2_500], "Content-Encoding: gzip"),
        "redirect_ok": reply(b"", "Location: /ok", status=REDIRECT),
        "redirect_file": reply(b"", "Location: file:///etc/passwd", status=REDIRECT),
        "redirect_a": reply(b"", "Location: /redirect_b", status=REDIRECT),
        "redirect_b": reply(b"", "Location: /redirect_a", status=REDIRECT),
        "redirect_self": reply(b"", "Location: /redirect_self", status=REDIRECT),
        "redirect_none": reply(b"", status=REDIRECT),
        "meta_refresh": reply(
            page(
                '<meta http-equiv="refresh" content="0;url=http://127.0.0.1:9/"><script>location.href="http://127.0.0.1"'
                f"</script><p>{TEXT}</p>"
            )
        ),
        "challenge_200": reply(page("<p>Checking your browser before you go on.</p>", "Just a moment...")),
        "s503": reply(HTML, status="503 Service Unavailable"),
        "space_200": reply("<html><body> \u00a0\n \u00a0 </body></html>".encode()),
        "s429_date": reply(HTML, "Retry-After: Fri, 31 Dec 2099 23:59:59 GMT", status="429 Too Many Requests"),
        "s429_day": reply(HTML, "Retry-After: 86400", status="429 Too Many Requests"),
        "s429_bad": reply(HTML, "Retry-After: soon", status="429 Too Many Requests"),
        "s304": head(status="304 Not Modified"),
        "s204": head(status="204 No Content"),
        "s206": reply(HTML, "Content-Range: bytes 0-99/1000", status="206 Partial Content"),
        "s404_page": reply(page(f"<p>{TEXT * 10}</p>"), status="404 Not Found"),
        "ct_garbage": reply(HTML, kind=";;;="),
        "ct_html_pdf": reply(pdf_pages["pdf_ok"], kind="text/html"),
        "ct_zip": reply(b"PK\x03\x04" + bytes(500), kind="application/zip"),
        "ct_missing": reply(HTML, kind=""),
        "ct_attachment": reply(HTML, "Content-Disposition: attachment; filename=../../x"),
        "ct_octet_html": reply(HTML, kind="application/octet-stream"),
        "cs_bad_utf8": reply(page(f"<p>Good \xff\xfe{TEXT}</p>").replace("ÿþ".encode(), b"\xff\xfe")),
        "cs_conflict": reply(
            ('<html><head><meta charset="utf-8"></head><body><p>' + "Grüße aus Köln. " * 20 + "</p>").encode(),
            kind="text/html; charset=iso-8859-1",
        ),
        "cs_surrogate": reply(page(f"<p>a &#xD800; b &#0; c &#x110000; d {TEXT * 2}</p>")),
        "cs_sjis": reply((JAPANESE % '<meta charset="Shift_JIS">').encode("cp932"), kind="text/html"),
        "cs_utf16_nobom": reply(WIDE, kind="text/html; charset=utf-16le"),
        "cs_nul": reply(page(f"<p>a\0b\0c {TEXT * 2}</p>")),
        "cs_utf7": reply(page(f"<p>+ADw-script+AD4- {TEXT * 3}</p>"), kind="text/html; charset=utf-7"),
        **{name: reply(body) for name, body in html_pages.items()},
        **{name: reply(body, kind="application/json") for name, body in json_pages.items()},
        **{name: reply(body, kind="application/pdf") for name, body in pdf_pages.items()},
    }
    made: dict[str, Callable[[str], bytes]] = {name: (lambda host, r=r: r) for name, r in simple.items()}  # type: ignore[misc]
    made["redirect_other_port"] = lambda host: reply(
        b"", f"Location: http://{host.split(':')[0]}:6379/", status=REDIRECT
    )
    made["redirect_private"] = lambda host: reply(
        b"", f"Location: http://127.0.0.9:{host.split(':')[1]}/", status=REDIRECT
    )
    return made


class BadServer:
    """Serves on 127.0.0.1 until closed. `requests` are the paths asked for, in order."""

    def __init__(self) -> None:
        self._fixed = fixed()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.requests: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            with sock:
                sock.settimeout(25)
                request = sock.recv(65_536).decode("latin-1")
                path = request.split(" ")[1] if " " in request else "/"
                self.requests.append(path)
                host = next((x[6:].strip() for x in request.split("\r\n") if x.lower().startswith("host: ")), "")
                self._play(sock, path.strip("/"), host)
        except OSError:
            return  # the client went away, as it should

    def _play(self, sock: socket.socket, name: str, host: str) -> None:
        if name in HANDLERS:
            HANDLERS[name](sock, host)
        elif name in self._fixed:
            sock.sendall(self._fixed[name](host))
            _finish(sock)
        else:
            sock.sendall(reply(b"", status="404 Not Found"))
            _finish(sock)

    def close(self) -> None:
        self._listener.close()


def _finish(sock: socket.socket) -> None:
    """Close so that what was sent arrives: without this, unread input turns the close into a reset."""
    sock.shutdown(socket.SHUT_WR)
    sock.settimeout(1)
    while sock.recv(65_536):
        pass


if __name__ == "__main__":
    server = BadServer()
    print(json.dumps({"port": server.port, "names": sorted({*HANDLERS, *fixed()})}), flush=True)
    sys.stdin.read()
