"""Small PDFs for tests, written by hand so that each fault is exactly what the test says."""

from __future__ import annotations

import zlib
from collections.abc import Sequence


def pdf(pages: Sequence[Sequence[str]], *, info: str = "", extra: bytes = b"") -> bytes:
    """A PDF with these lines on these pages (Windows-1252 text, one font)."""
    count = len(pages)
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {count} /Kids [{' '.join(f'{4 + 2 * i} 0 R' for i in range(count))}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for i, lines in enumerate(pages):
        shown = "".join(f"({_escaped(line)}) Tj 0 -14 Td\n" for line in lines)
        stream = f"BT /F1 11 Tf 72 760 Td\n{shown}ET".encode("cp1252")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n".encode() + stream + b"\nendstream")
    trailer = ""
    if info:
        objects.append(f"<< {info} >>".encode("latin-1"))
        trailer = f" /Info {len(objects)} 0 R"
    return assemble(objects, trailer) + extra


def assemble(objects: Sequence[bytes], trailer: str = "") -> bytes:
    """Objects, numbered from 1 (the catalog), as a file with a cross-reference table."""
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{offset:010d} 00000 n \n".encode() for offset in offsets)
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R{trailer} >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def flate_bomb(megabytes: int = 109) -> bytes:
    """One page whose content stream unpacks to that many MB of text operators."""
    operator = b"(bomb) Tj 0 -1 Td\n"
    packer = zlib.compressobj(9)
    stream = packer.compress(b"BT /F1 11 Tf 72 760 Td\n")
    block = operator * (1_000_000 // len(operator))
    for _ in range(megabytes):
        stream += packer.compress(block)
    stream += packer.compress(b"ET") + packer.flush()
    return assemble(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(stream)} /Filter /FlateDecode >>\nstream\n".encode() + stream + b"\nendstream",
        ]
    )


def page_loop() -> bytes:
    """A page tree that is its own child."""
    return assemble([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 1 /Kids [2 0 R] >>"])


def nested(depth: int = 50_000) -> bytes:
    """An object of arrays in arrays."""
    good = pdf([["some text"]])
    return good.replace(b"/MediaBox [0 0 612 792]", b"/MediaBox [0 0 612 792] /X " + b"[" * depth + b"]" * depth)


def xref_loop() -> bytes:
    """A cross-reference table that names itself as its predecessor."""
    good = pdf([["some text"]])
    start = good.rindex(b"xref\n0")
    return good.replace(b" /Root 1 0 R", f" /Root 1 0 R /Prev {start}".encode())


def encrypted() -> bytes:
    """A file that says it is encrypted with a password nobody knows (RC4, 40 bit)."""
    good = pdf([["some text"]])
    entry = (
        f" /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{'41' * 32}> /U <{'42' * 32}> >> /ID [<{'00' * 16}>"
        f"<{'00' * 16}>]"
    )
    return good.replace(b" /Root 1 0 R", b" /Root 1 0 R" + entry.encode())
