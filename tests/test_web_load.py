"""The chat with many questions at once."""

from __future__ import annotations

from pathlib import Path

from tests.chat_load import measure


def test_events_of_twenty_chats_over_slow_pages_arrive_when_they_happen(tmp_path: Path) -> None:
    """95 % within 300 ms, none after more than 1 s. What else this machine does may spoil one measurement, not two."""
    for _ in range(2):
        figures = measure(20, tmp_path)
        assert figures.ended == 20 and figures.answered >= 10 and figures.events > 20 * 10
        if figures.p95 <= 300 and figures.most <= 1_000 and figures.from_model_most <= 1_000:
            return
    raise AssertionError(figures)
