"""Sentence against passage: what a page says, where, and whether a claim stands there."""

from m3.grounding.passages import rank_passages, render_passages
from m3.grounding.patience import Closing, Patience
from m3.grounding.sentences import split_sentences
from m3.grounding.verify import GroundingReport, Statement, verify

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
