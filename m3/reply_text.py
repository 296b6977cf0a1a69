"""What of a model's text a reader may see: no reasoning, no channel tokens, ordinary spaces and hyphens.

Turns of the loop go to the parser as they came; this is for the texts that no parser reads, the report above all.
"""

from __future__ import annotations

import re

from m3.patterns import lazy_pattern

_THINK_OPEN, _THINK_CLOSE = lazy_pattern(r"<think(?:ing)?>", re.I), lazy_pattern(r"</think(?:ing)?>", re.I)
_FINAL = lazy_pattern(r"<\|channel\|>\s*final\s*(?:<\|constrain\|>\w*)?\s*<\|message\|>", re.I)
_CHANNEL = lazy_pattern(r"<\|channel\|>\s*(?:analysis|commentary)\b.*?(?:<\|end\|>|<\|return\|>|\Z)", re.I | re.S)
_TOKEN = lazy_pattern(r"<\|[a-z_]{1,20}\|>", re.I)
_LEAKED_FINAL = lazy_pattern(r"^\s*analysis.*?assistantfinal", re.I | re.S)
# gpt-oss writes these in ordinary text; they break labels, addresses and word comparison.
_CHARACTERS = {0x202F: " ", 0x00A0: " ", 0x2007: " ", 0x2011: "-", 0x2010: "-", 0x200B: "", 0x2060: "", 0xFEFF: ""}
HOLD = 40  # characters held back while streaming, so that no mark is shown in halves
STEP = 64  # new characters after which a stream is looked at again: each look reads it from its beginning


def plain_characters(text: str) -> str:
    """Narrow and no-break spaces become spaces, no-break hyphens hyphens, zero-width characters nothing."""
    return text.translate(_CHARACTERS)


def visible_text(text: str) -> str:
    """The part of a complete reply that is meant for the reader."""
    return plain_characters(_without_reasoning(text)).strip()


def _without_reasoning(text: str) -> str:
    final = list(_FINAL.finditer(text))
    if final:
        text = text[final[-1].end() :]
    text = _LEAKED_FINAL.sub("", _CHANNEL.sub("", text))
    closes = list(_THINK_CLOSE.finditer(text))
    opens = list(_THINK_OPEN.finditer(text))
    if closes and (not opens or closes[0].start() < opens[0].start()):
        text = text[closes[0].end() :]  # the opening mark stood in the prompt's template
    text = re.sub(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", "", text, flags=re.I | re.S)
    return _TOKEN.sub("", text)


class VisibleStream:
    """Turns the pieces of a streamed reply into the pieces a reader may see.

    Text is let through only as far as it can no longer change: what was shown is always a prefix of what
    `visible_text` makes of the whole, as long as the reply does not open a reasoning block in its middle.
    """

    def __init__(self) -> None:
        self._raw = ""
        self._looked_at = 0
        self._shown = 0

    def feed(self, piece: str) -> str:
        """Take the next piece; return what may now be shown, often nothing."""
        self._raw += piece
        if len(self._raw) - self._looked_at < STEP:
            return ""
        self._looked_at = len(self._raw)
        return self._release(HOLD)

    def close(self) -> str:
        """What was still held back at the end."""
        return self._release(0)

    def _release(self, hold: int) -> str:
        if self._undecided(hold):
            return ""
        visible = plain_characters(_without_reasoning(self._raw)).lstrip()
        ready = visible[self._shown : len(visible) - hold] if hold else visible[self._shown :].rstrip()
        self._shown += len(ready)
        return ready

    def _undecided(self, hold: int) -> bool:
        """Harmony text is shown only from its final channel on; `analysis…` without marks likewise."""
        head = self._raw.lstrip()[:40].lower()
        opened = head.startswith(("<|", "analysis")) and hold > 0
        return opened and not (_FINAL.search(self._raw) or "assistantfinal" in self._raw.lower())
