"""Sentence against passage: what a page says, where, and whether a claim stands there.

The parts load when they are first asked for: who only wants to know a text's language need not load the checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from m3.grounding.passages import rank_passages, render_passages
    from m3.grounding.patience import Closing, Patience
    from m3.grounding.sentences import split_sentences
    from m3.grounding.verifier import GroundingReport, Statement, verify

__all__ = [
    "Closing",
    "GroundingReport",
    "Patience",
    "Statement",
    "rank_passages",
    "render_passages",
    "split_sentences",
    "verify",
]

_PARTS = {
    "Closing": "patience",
    "Patience": "patience",
    "rank_passages": "passages",
    "render_passages": "passages",
    "split_sentences": "sentences",
    "GroundingReport": "verifier",
    "Statement": "verifier",
    "verify": "verifier",
}


def __getattr__(name: str) -> Any:
    if name not in _PARTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_PARTS[name]}"), name)
