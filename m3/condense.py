"""Making the notes of a run shorter without a model: the fallback of every condensation."""

from __future__ import annotations

from m3.words import estimate_tokens

BYTES_A_WORD = 6
_KEPT = ("[Source", "Action:", "Action Input", "Earlier", "Thought:")


def notes_by_rule(notes: str, most_words: int) -> str:
    """The lines that say what was decided and what was read, up to about `most_words`; "" when there are none."""
    lines = [line for line in notes.splitlines() if line.startswith(_KEPT)]
    return clipped("\n".join(lines), most_words * BYTES_A_WORD // 4)


def clipped(text: str, most_tokens: int) -> str:
    """The text when it fits, else its beginning and its end: the newest notes stand last, the first findings first."""
    if estimate_tokens(text) <= most_tokens:
        return text
    size = len(text) * most_tokens // max(1, estimate_tokens(text))
    head, tail = size * 2 // 3, size // 3
    return f"{text[:head]}\n…\n{text[len(text) - tail :]}" if size > 0 else ""
