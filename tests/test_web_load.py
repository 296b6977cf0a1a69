"""The chat with many questions at once."""

from __future__ import annotations

from pathlib import Path

from tests.chat_load import measure
from tests.conftest import EVERYTHING

CHATS = 20 if EVERYTHING else 8  # `bench/chat.py` measures twenty too


def test_events_of_many_chats_over_slow_pages_arrive_when_they_happen(tmp_path: Path) -> None:
    """95 % within 300 ms, none after more than 1 s. What else this machine does may spoil one measurement, not two."""
    for _ in range(2):
        figures = measure(CHATS, tmp_path)
        assert figures.ended == CHATS and figures.answered >= CHATS // 2 and figures.events > CHATS * 10
        if figures.p95 <= 300 and figures.most <= 1_000 and figures.from_model_most <= 1_000:
            return
    raise AssertionError(figures)
