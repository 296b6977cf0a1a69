"""Earlier turns of a conversation, as a run may take them over: alternating, bounded, and not to be cited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from m3.grounding.tags import TAG
from m3.records import Message
from m3.untrusted import clean_characters, neutralise
from m3.words import estimate_tokens

HISTORY_SHARE = 0.25  # of the prompt's budget: every turn of the run pays for it again
HISTORY_TOKEN_SHARE = 0.05  # of the whole run's tokens, for the same reason
NEWEST_SHARE = 0.6  # of what history may take: the most for the newest message, and so for each older one of the rest
MOST_CHARACTERS = 50_000  # of one message that are looked at; no budget shows so much of it
LEAST_TOKENS = 24  # less of a message says nothing
LEFT_OUT = "(earlier turns are left out)"
NO_ANSWER_YET = "(this was not answered)"


def turns_of(history: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of a conversation, user and assistant in turn, a user's first and an assistant's last.

    Neighbours of one role are joined, a question without an answer is given a line that says so. Other roles are left
    out: whoever sends a history does not give instructions. An answer loses its `[Source N]` tags, whose numbers mean
    nothing in another run, and whatever imitates the loop: it was made of pages.
    """
    turns: list[Message] = []
    for message in history:
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant") or not isinstance(content, str):
            continue
        content = content[:MOST_CHARACTERS]
        text = clean_characters(content) if role == "user" else neutralise(TAG.sub("", content))
        if not text.strip():
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += f"\n\n{text.strip()}"
        elif turns or role == "user":
            turns.append({"role": role, "content": text.strip()})
    if turns and turns[-1]["role"] == "user":
        turns.append({"role": "assistant", "content": NO_ANSWER_YET})
    return turns


def history_budget(short_term_tokens: int, max_tokens: int) -> int:
    """Tokens that earlier turns may take in every prompt of a run."""
    return int(min(short_term_tokens * HISTORY_SHARE, max_tokens * HISTORY_TOKEN_SHARE))


def within_budget(turns: Sequence[Message], most_tokens: int) -> list[Message]:
    """The newest of `turns` (see `turns_of`) in `most_tokens` by estimate: long messages shortened, old ones left out.

    From the newest to the oldest each message may take `NEWEST_SHARE` of what is left, so that the last answer stays
    nearly whole and the beginning goes first. What was left out is said.
    """
    kept: list[Message] = []
    left = most_tokens - estimate_tokens(LEFT_OUT)
    for message in reversed(turns):
        room = left if estimate_tokens(message["content"]) <= left // 2 else int(left * NEWEST_SHARE)
        text = _shortened(message["content"], room)
        if room < LEAST_TOKENS or not text:
            break
        kept.append({"role": message["role"], "content": text})
        left -= estimate_tokens(text)
    kept.reverse()
    if kept and kept[0]["role"] == "assistant":
        del kept[0]
    if kept and len(kept) < len(turns):
        kept[0] = {**kept[0], "content": f"{LEFT_OUT}\n{kept[0]['content']}"}
    return kept


def _shortened(text: str, most_tokens: int) -> str:
    """The beginning of a text within `most_tokens`, cut at a blank."""
    if estimate_tokens(text) <= most_tokens:
        return text
    size = max(0, most_tokens * 4 - 8)
    while size > 0:
        part = text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")
        part = (part[: part.rfind(" ")] if " " in part[len(part) // 2 :] else part) + " …"
        if estimate_tokens(part) <= most_tokens:
            return part
        size = size * 3 // 4
    return ""


def asked_before(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the user wrote in earlier turns, whole: URLs that stand there were named by the user."""
    return [str(m["content"]) for m in history if m.get("role") == "user" and isinstance(m.get("content"), str)]
