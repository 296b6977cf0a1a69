"""The sample runs are what the current code produces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from samples import make_samples
from tests.conftest import ROOT

CHANGED = "the program changed: run make samples and look at the difference"


def stored(name: str) -> str:
    return (ROOT / "samples" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [make_samples.TRACE, make_samples.REPORT])
def test_the_sample_runs_are_what_the_current_code_produces(name: str) -> None:
    made = dict(make_samples.make())
    assert made[name] == stored(name), CHANGED


@pytest.mark.parametrize(
    ("name", "make"),
    [(make_samples.DOCUMENTS, make_samples.make_documents), (make_samples.GROQ, make_samples.make_groq)],
)
def test_the_samples_on_the_python_documentation_are_what_the_current_code_produces(
    name: str, make: Callable[[Sequence[Path]], str]
) -> None:
    pages = make_samples.python_pages()
    if not pages:
        pytest.skip("python3-doc is not installed")
    if make_samples.digest_of(pages) not in stored(name):
        pytest.skip("the sample was made from the documentation of another release of Python")
    assert make(pages) == stored(name), CHANGED
