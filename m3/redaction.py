"""Secrets by value: what any configuration held as a key is taken out of text, and whatever looks like a key."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from m3.patterns import lazy_pattern

SHORTEST = 6  # characters; shorter values are no real keys, and replacing them would mangle ordinary text

_secrets: dict[str, tuple[list[str], re.Pattern[str]]] = {}

# What looks like a key is one, whoever put it there: a page, a server's error, the user's question.
_KEY_SHAPES = lazy_pattern(
    r"\b(?:sk-(?:proj-|ant-)?|gsk_|tvly-|xai-|hf_|ghp_|github_pat_|AKIA)[A-Za-z0-9_\-]{16,}"
    r"|(?<=[?&])(?:api[_-]?key|apikey|access_token|token|key)=[^&\s\"'<>]{6,}"
    r"|(?<=Bearer )[A-Za-z0-9._~+/=\-]{12,}"
)


# What stands in every such key, and where one may begin, counted from there.
_MARKS = {
    **dict.fromkeys(("sk-", "gsk_", "tvly-", "xai-", "hf_", "ghp_", "github_pat_", "AKIA"), range(1)),
    "key=": range(-4, 1),
    "token=": range(-7, 1),
    "Bearer ": range(7, 8),
}


def remember_secret(value: str) -> None:
    """From now on `redact` takes this value out, however it is written."""
    if len(value) >= SHORTEST and value not in _secrets:
        forms = sorted(_forms(value), key=len, reverse=True)
        _secrets[value] = forms, re.compile("|".join(re.escape(form) for form in forms))


def _forms(secret: str) -> set[str]:
    """The ways a secret may be written: plain, percent-encoded, JSON-escaped, reversed, in base64 at any offset."""
    raw = secret.encode()
    forms = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], secret[::-1]}
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + raw).decode()
        # The first and last characters of base64 depend on the neighbours; what lies between is the secret's own.
        own = encoded[(0, 2, 3)[offset] : len(encoded) - (4 if encoded.endswith("=") else 0)]
        if len(own) >= 8:
            forms |= {own, own.translate(str.maketrans("+/", "-_"))}
    return {form for form in forms if len(form) >= SHORTEST}


def redact(text: str) -> str:
    """Replace every secret that any loaded configuration held, in each of its forms, and whatever looks like a key."""
    # Longer secrets first: one that is part of another must not leave the rest of it standing.
    for secret in sorted(_secrets, key=len, reverse=True):
        forms, pattern = _secrets[secret]
        if any(form in text for form in forms):
            text = pattern.sub("[redacted]", text)
    found = sorted(span for mark, starts in _MARKS.items() for span in _shapes(text, mark, starts))
    pieces, at = [], 0
    for start, end in found:
        if start >= at:
            pieces += [text[at:start], "[redacted]"]
            at = end
    return "".join([*pieces, text[at:]])


def _shapes(text: str, mark: str, starts: range) -> Iterator[tuple[int, int]]:
    """Where what looks like a key stands around a mark. To look for the marks first takes a tenth of the time that the
    pattern takes on a trace of many megabytes."""
    at = text.find(mark)
    while at >= 0:
        tried = (_KEY_SHAPES.match(text, at + start) for start in starts if at + start >= 0)
        match = next((m for m in tried if m), None)
        if match:
            yield match.span()
        # The next key begins behind this one, at the latest where its mark allows.
        at = text.find(mark, max(at + 1, match.end() - starts.stop + 1 if match else 0))
