"""What a body is, by its bytes first and the server's word second, and how its text is to be decoded."""

from __future__ import annotations

import codecs
import re
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from m3.patterns import lazy_pattern

MediaKind: TypeAlias = Literal["html", "text", "markdown", "json", "csv", "xml", "pdf", "binary"]

HEAD_BYTES = 1_024  # enough to tell what a body is
_META_BYTES = 4_096  # WHATWG reads 1,024; pages with long comments in front put it later
_DETECT_BYTES = 65_536

_MAGIC = (
    b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"RIFF", b"\x7fELF", b"MZ\x90",
    b"Rar!", b"7z\xbc\xaf", b"OggS", b"ID3", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\xd0\xcf\x11\xe0", b"wOFF",
    b"wOF2", b"\x00\x00\x01\x00", b"\xca\xfe\xba\xbe", b"\x1aE\xdf\xa3", b"SQLite format 3",
)  # fmt: skip
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark begins it
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY_TYPES = ("image/", "audio/", "video/", "font/", "model/", "multipart/")
_BINARY_APPLICATIONS = lazy_pattern(
    r"application/(?:zip|gzip|x-(?:tar|gzip|bzip2|7z|rar|shockwave|msdownload|executable|iso)|java-archive|wasm"
    r"|vnd\.(?:ms-|openxmlformats|oasis|android|apple)|msword|rtf|epub|postscript|javascript|x-javascript)"
)
_HTML_START = lazy_pattern(
    rb"(?:\s|<!--(?:(?!-->).){0,2000}-->|<\?xml[^>]{0,200}\?>)*"
    rb"<(?:!doctype\s+html|html|head|body|title|meta|link|script|style|div|p|h[1-6]|table|section|article|main|span|ul"
    rb"|ol|b|i|a|br|center|font|form|header|nav|noscript|base)[\s>/]",
    re.I | re.S,
)
_XML_START = lazy_pattern(rb"\s*<(?:\?xml|rss|feed|rdf:rdf|urlset|sitemapindex|opml)[\s>?]", re.I)


def media_kind(content_type: str, head: bytes, url: str = "") -> MediaKind:
    """What a body that begins with `head` is. `content_type` is the header's value, parameters and all."""
    declared = content_type.partition(";")[0].strip().lower()
    if b"%PDF-" in head[:HEAD_BYTES]:
        return "pdf"
    wide = _bom(head) not in (None, "utf-8") or _declared_charset(content_type).startswith("utf-16") or _wide(head)
    if head.startswith(_MAGIC) or (not wide and _is_binary(head)):
        return "binary"
    if declared.startswith(_BINARY_TYPES) and declared != "image/svg+xml":
        return "binary"
    if declared == "application/json" or declared.endswith("+json"):
        return "json"
    plain = _narrowed(head) if wide else head.removeprefix(codecs.BOM_UTF8)
    if declared in ("text/html", "application/xhtml+xml"):
        return "html"
    if _HTML_START.match(plain) and (declared != "text/plain" or b"<!doctype html" in plain[:200].lower()):
        return "html"
    if declared.endswith(("/xml", "+xml")) or _XML_START.match(plain):
        return "html" if b"<html" in plain.lower() else "xml"
    if _BINARY_APPLICATIONS.match(declared) or declared in ("text/javascript", "text/css"):
        return "binary"
    return _kind_of_text(declared, plain, url)


def _kind_of_text(declared: str, plain: bytes, url: str) -> MediaKind:
    path = urlsplit(url).path.lower()
    if declared in ("text/markdown", "text/x-markdown") or path.endswith((".md", ".markdown")):
        return "markdown"
    if declared in ("text/csv", "application/csv") or (path.endswith(".csv") and not declared.startswith("text/html")):
        return "csv"
    if not declared.startswith("text/") and plain.lstrip()[:1] in (b"{", b"["):
        return "json"
    return "text"


def _bom(data: bytes) -> str | None:
    return next((name for mark, name in _BOMS if data.startswith(mark)), None)


def _wide(head: bytes) -> bool:
    """UTF-16 of a Latin page without a mark: every other byte is NUL, and hardly any of the rest."""
    pairs = len(head) // 2
    if pairs < 8:
        return False
    odd, even = head[1 : 2 * pairs : 2].count(0), head[0 : 2 * pairs : 2].count(0)
    return min(odd, even) * 20 <= pairs and max(odd, even) * 2 >= pairs


def _narrowed(head: bytes) -> bytes:
    return head.replace(b"\0", b"").lstrip(b"\xff\xfe")


def _is_binary(head: bytes) -> bool:
    """NULs, or control characters that no text has, in more than a stray number."""
    if not head:
        return False
    strange = sum(head.count(byte) for byte in (*range(9), *range(14, 27), *range(28, 32)))
    return strange * 16 > len(head)


# --- charsets --------------------------------------------------------------------------------------------

# Labels that pages use, to Python codecs: the WHATWG encoding table in short. A server's word never reaches
# codecs.lookup, where `zlib`, `rot13`, `idna` and `utf-7` would be found as well.
_CODECS = {
    "utf-8": "utf-8", "utf8": "utf-8", "unicode-1-1-utf-8": "utf-8", "utf8mb4": "utf-8",
    "utf-16": "utf-16-le", "utf-16le": "utf-16-le", "utf-16be": "utf-16-be", "unicode": "utf-16-le",
    "us-ascii": "cp1252", "ascii": "cp1252", "iso-8859-1": "cp1252", "iso8859-1": "cp1252", "latin1": "cp1252",
    "latin-1": "cp1252", "l1": "cp1252", "windows-1252": "cp1252", "cp1252": "cp1252", "x-cp1252": "cp1252",
    "iso-8859-2": "iso8859-2", "latin2": "iso8859-2", "windows-1250": "cp1250", "cp1250": "cp1250",
    "iso-8859-3": "iso8859-3", "iso-8859-4": "iso8859-4",
    "iso-8859-5": "iso8859-5", "windows-1251": "cp1251", "cp1251": "cp1251", "x-cp1251": "cp1251",
    "koi8-r": "koi8-r", "koi8": "koi8-r", "koi8-u": "koi8-u", "ibm866": "cp866", "cp866": "cp866",
    "x-mac-cyrillic": "mac-cyrillic", "macintosh": "mac-roman", "x-mac-roman": "mac-roman",
    "iso-8859-6": "iso8859-6", "windows-1256": "cp1256", "cp1256": "cp1256",
    "iso-8859-7": "iso8859-7", "windows-1253": "cp1253", "cp1253": "cp1253",
    "iso-8859-8": "iso8859-8", "iso-8859-8-i": "iso8859-8", "windows-1255": "cp1255", "cp1255": "cp1255",
    "iso-8859-9": "cp1254", "latin5": "cp1254", "windows-1254": "cp1254", "cp1254": "cp1254",
    "iso-8859-10": "iso8859-10", "iso-8859-13": "iso8859-13", "windows-1257": "cp1257", "cp1257": "cp1257",
    "iso-8859-14": "iso8859-14", "iso-8859-15": "iso8859-15", "latin9": "iso8859-15", "iso-8859-16": "iso8859-16",
    "tis-620": "cp874", "iso-8859-11": "cp874", "windows-874": "cp874",
    "windows-1258": "cp1258", "cp1258": "cp1258",
    "gb2312": "gb18030", "gbk": "gb18030", "x-gbk": "gb18030", "gb18030": "gb18030", "cp936": "gb18030",
    "big5": "big5hkscs", "big5-hkscs": "big5hkscs", "x-x-big5": "big5hkscs",
    "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "x-sjis": "cp932", "windows-31j": "cp932",
    "ms_kanji": "cp932", "cp932": "cp932", "euc-jp": "euc-jp", "x-euc-jp": "euc-jp", "iso-2022-jp": "iso2022-jp",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "ksc5601": "cp949", "windows-949": "cp949", "cp949": "cp949",
}  # fmt: skip
_SINGLE_BYTE = frozenset(
    name for name in _CODECS.values() if name.startswith(("cp12", "cp8", "iso8859", "koi8", "mac-"))
)
_META_CHARSET = lazy_pattern(rb"<meta\s[^>]{0,300}?charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.I)
_XML_CHARSET = lazy_pattern(rb"\s*<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{2,40})", re.I)
_HEADER_CHARSET = lazy_pattern(r"charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.I)
_XML_DECLARATION = lazy_pattern(r"\s*<\?xml\s[^>]{0,200}\?>")


def decode_text(body: bytes, content_type: str = "") -> str:
    """The text of a body: mark, header, `<meta>` or XML declaration, detection, in this order; else UTF-8.

    A label is believed only from a fixed list and only when the bytes bear it out: bytes that are valid UTF-8 beyond
    ASCII are UTF-8 whatever a header claims. What cannot be decoded becomes U+FFFD; NUL is
    dropped, and so is an XML declaration, which would contradict text that is decoded already.
    """
    text = _decoded(body, content_type).replace("\0", "")
    return _XML_DECLARATION.sub("", text, count=1) if text[:200].lstrip().startswith("<?xml") else text


def _decoded(body: bytes, content_type: str) -> str:
    marked = _bom(body)
    if marked:
        return body.decode(marked, "replace").removeprefix("\ufeff")
    utf8 = _is_utf8(body)
    for label in (_declared_charset(content_type), _written_charset(body)):
        codec = _CODECS.get(label)
        if codec is None or _contradicted(body, codec, utf8):
            continue
        text = _decode_whole(body, codec)
        if text is not None:
            return text
    if utf8 or body.isascii():
        return body.decode("utf-8", "replace")
    return body.decode(_detected(body), "replace")


def _contradicted(body: bytes, codec: str, utf8: bool) -> bool:
    """True when the bytes say that a label is wrong: UTF-8 under another name, or UTF-16 without a single NUL."""
    if codec.startswith("utf-16"):
        return b"\0" not in body and (utf8 or body.isascii())
    if not utf8 or codec == "utf-8":
        return False
    # A few pairs of a double-byte charset can be valid UTF-8 by chance, a dozen bytes cannot.
    return codec in _SINGLE_BYTE or sum(byte > 127 for byte in body[:_DETECT_BYTES]) >= 12


def _declared_charset(content_type: str) -> str:
    match = _HEADER_CHARSET.search(content_type)
    return match[1].lower() if match else ""


def _written_charset(body: bytes) -> str:
    """What the document says of itself. A `<meta>` that was read as ASCII cannot be UTF-16 (WHATWG: it is UTF-8)."""
    if _wide(body[:HEAD_BYTES]):
        return "utf-16be" if body[:1] == b"\0" else "utf-16le"
    match = _XML_CHARSET.match(body[:300]) or _META_CHARSET.search(body[:_META_BYTES])
    label = match[1].decode("ascii", "replace").lower() if match else ""
    return "utf-8" if label.startswith("utf-16") else label


def _is_utf8(body: bytes) -> bool:
    """True for valid UTF-8 that uses more than ASCII; a sequence cut at the very end is forgiven."""
    if body.isascii():
        return False
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(body, final=False)
    except UnicodeDecodeError:
        return False
    return True


def _decode_whole(body: bytes, codec: str) -> str | None:
    """The body in that charset, or None when so much of it is no such text that the label must be wrong."""
    text = body.decode(codec, "replace")
    wrong = text.count("\ufffd")
    # A few bad bytes are damage; more than one in fifty of what is beyond ASCII is another charset.
    beyond = sum(map(len, re.findall(r"[^\x00-\x7f]+", text))) if wrong else 0
    return None if wrong > 3 and wrong * 50 > beyond else text


def _detected(body: bytes) -> str:
    """A charset guessed from the bytes, among those that pages use."""
    from charset_normalizer import from_bytes

    allowed = sorted({*_CODECS.values()} - {"utf-16-le", "utf-16-be"})
    sample = body[:_DETECT_BYTES]
    japanese = next((codec for codec in ("cp932", "euc-jp") if _has_hiragana(sample, codec)), None)
    if japanese:
        return japanese
    best = from_bytes(sample, cp_isolation=allowed, enable_fallback=False).best()
    return best.encoding if best is not None else "utf-8"


def _has_hiragana(sample: bytes, codec: str) -> bool:
    """True when the bytes are sound in that codec and a tenth of what is not ASCII is hiragana.

    The detector takes Shift_JIS for Korean: any of its pairs is some rare syllable there. No other charset's text
    turns into hiragana by chance.
    """
    try:
        text = codecs.getincrementaldecoder(codec)("strict").decode(sample, final=False)
    except UnicodeDecodeError:
        return False
    beyond = sum(not c.isascii() for c in text)
    return beyond > 0 and 10 * sum("\u3041" <= c <= "\u309f" for c in text) >= beyond
