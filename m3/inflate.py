"""Undoing Content-Encoding piece by piece, so that no input can make more than one piece of output at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

PIECE = 65_536
DECODABLE = frozenset({"gzip", "x-gzip", "deflate", "identity"})
MAX_CODINGS = 3  # more than one is rare, more than three is an attack


class EncodingError(ValueError):
    """A coding that is not known, or a stream that is not what its coding says."""


def codings_of(header: str) -> list[str]:
    """The codings of a Content-Encoding header in the order they were applied. Raises EncodingError."""
    codings = [coding for part in header.split(",") if (coding := part.strip().lower())]
    unknown = [coding for coding in codings if coding not in DECODABLE]
    if unknown:
        raise EncodingError(f"the server used the coding {unknown[0][:20]!r}, which was not asked for")
    if len(codings) > MAX_CODINGS:
        raise EncodingError("the server stacked more codings than any page needs")
    return [coding for coding in codings if coding != "identity"]


def inflate(pieces: Iterable[bytes], codings: Iterable[str]) -> Iterator[bytes]:
    """Decode a body: yields decoded pieces of at most `PIECE` bytes. Raises EncodingError.

    A stream that ends before its own end mark raises too: a cut page must not pass for a whole one.
    """
    stream = iter(pieces)
    for coding in reversed(list(codings)):
        stream = _deflated(stream) if coding == "deflate" else _gzipped(stream)
    return stream


def _gzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Members one after another (RFC 1952); what follows the last is ignored, as browsers do."""
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
    ended = False  # at least one member is whole and none is open
    for piece in pieces:
        data = piece
        while data:
            if ended:
                if not data.startswith(b"\x1f"):
                    return
                decoder, ended = zlib.decompressobj(zlib.MAX_WBITS | 16), False
            yield from _drain(decoder, data)
            if not decoder.eof:
                break
            ended, data = True, decoder.unused_data
    if not ended:
        raise EncodingError("the compressed page broke off")


def _deflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """With the zlib wrapper (RFC 9110) or, as some servers send it, without."""
    decoder = None
    head = b""
    for piece in pieces:
        head += piece
        if decoder is None and len(head) < 2:
            continue
        if decoder is None:
            decoder = zlib.decompressobj(zlib.MAX_WBITS if _has_zlib_header(head) else -zlib.MAX_WBITS)
        yield from _drain(decoder, head)
        head = b""
        if decoder.eof:
            return
    raise EncodingError("the compressed page broke off")


def _has_zlib_header(data: bytes) -> bool:
    """RFC 1950: method 8 in the low bits of the first byte; both bytes together a multiple of 31."""
    return len(data) >= 2 and data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0


def _drain(decoder: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    out = b""
    # A full piece means that more output may wait inside the decoder although all input was taken.
    while data or len(out) == PIECE:
        try:
            out = decoder.decompress(data, PIECE)
        except zlib.error:
            raise EncodingError("the compressed page is damaged") from None
        data = decoder.unconsumed_tail
        # Empty output is passed on as well: it gives the reader its turn to look at the clock.
        yield out
        if decoder.eof:
            return
