"""The sample runs are what the current code produces."""

from __future__ import annotations

import pytest

from samples import make_samples
from tests.conftest import ROOT


@pytest.mark.parametrize("name", [make_samples.TRACE, make_samples.REPORT])
def test_the_sample_runs_are_what_the_current_code_produces(name: str) -> None:
    made = dict(make_samples.make())
    stored = (ROOT / "samples" / name).read_text(encoding="utf-8")
    assert made[name] == stored, "the program changed: run make samples and look at the difference"
