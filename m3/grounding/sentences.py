"""Cutting text into sentences, with offsets."""

from __future__ import annotations

import re

_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|st|vs|v|cf|al|approx|fig|figs|eq|vol|pp|p|ed|eds|ch|sec|no|ca|e\.g|i\.e|etc|resp|incl)"
    r"|\b[A-Z]|(?:[a-z]\.)+[a-z])\.$",
    re.I,
)
_END = re.compile(
    r"""[.!?…]+["'”’»)\]]*(?:\s*\[Sources?[^\]]{1,40}\])*(?=\s|$)|[。！？]["”’」』）]*(?:\s*\[Sources?[^\]]{1,40}\])*"""
)


def split_sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of a text as (start, end) offsets; every line is its own block."""
    found = []
    for line in re.finditer(r"[^\n]+", text):
        start = line.start()
        for end in _END.finditer(text, line.start(), line.end()):
            body = text[start : end.end()]
            if _ABBREVIATION.search(body.rstrip("\"'”’»)]")) and end.end() < line.end():
                continue
            following = text[end.end() : line.end()].lstrip()
            if following[:1].islower():
                continue
            found.append((start, end.end()))
            start = end.end()
        if text[start : line.end()].strip():
            found.append((start, line.end()))
    return [_trim(text, start, end) for start, end in found if text[start:end].strip()]


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
