"""Documents nobody here wrote: the HTML pages of Debian's python3-doc."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from config import load_config
from m3_react_agent import run_react_loop

HOWTO = Path("/usr/share/doc/python3-doc/html/howto")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One index for the module's questions, as a user would have it."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.skipif(not HOWTO.is_dir(), reason="needs Debian's python3-doc: apt-get install python3-doc")
@pytest.mark.parametrize(
    ("question", "page", "said"),
    [
        ("What does the key parameter of sorted do?", "sorting.html", "key"),
        ("Compare the logging module's handlers and formatters", "logging.html", "handler"),
        ("Compare iterators and generators", "functional.html", "generator"),
    ],
)
def test_a_question_is_answered_from_pages_nobody_here_wrote(
    question: str, page: str, said: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    output = run_react_loop(question, config=load_config({"DOCS_DIR": str(HOWTO)}))
    assert output.outcome == "answered" and output.services == ()
    assert any(source.url == f"howto/{page}" for source in output.sources)
    assert said in output.summary.lower()
    pages = {source.number: " ".join(source.page.text.split()) for source in output.sources}
    for sentence, number in re.findall(r"(?:^- |(?<=\]) |^)([^\n\[]*?)\s*\[Source (\d+)\]", output.summary, re.M):
        assert " ".join(sentence.split()) in pages[int(number)]
