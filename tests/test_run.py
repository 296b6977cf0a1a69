"""The main path, through the public surface."""

from __future__ import annotations

import re

from config import load_config
from m3_react_agent import run_react_loop


def test_the_comparison_of_the_readme_is_answered_with_cited_sentences_on_both_sides() -> None:
    output = run_react_loop("Compare Raptor RAG vs HyDE", config=load_config({}))
    assert output.outcome == "answered"
    assert output.llm_provider == output.search_provider == "mock"
    assert len(re.findall(r"\[Source \d+\]", output.summary)) >= 6
    assert len(output.sources) >= 3
    assert {s.number for s in output.sources} == {int(n) for n in re.findall(r"\[Source (\d+)\]", output.summary)}
    assert "RAPTOR" in output.summary and "HyDE" in output.summary
