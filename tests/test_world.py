"""The loopback world of the bench: what this agent does in it with a careless model and without a search engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.world.corpus import Corpus, WebPage, text_of
from bench.world.figures import Figures, figures_of
from bench.world.policy import FROM_MEMORY, Walk
from bench.world.server import MODEL, Latency, World, resolve, running
from config import load_config
from m3.fetch import PageFetchTool
from m3.report import FinalOutput
from m3.safe_http import SafeClient
from m3_react_agent import run_react_loop

QUESTION = "How does the harbour pump drain the northern basin?"
FACTS = (
    "The harbour pump drains the northern basin through two steel pipes in about six hours.",
    "Every second winter the harbour pump of the northern basin is taken apart and cleaned.",
    "The northern basin was dug in 1911, long before the harbour had a pump that could drain it.",
    "A smaller pump serves the southern basin of the harbour and does not drain the other one.",
    "Ships wait outside the harbour while the pump drains the northern basin to the low mark.",
)


def page(number: int, fact: str) -> WebPage:
    html = (
        f"<html><head><title>Harbour pump {number}</title></head><body><h1>Harbour pump</h1><p>{fact}</p></body></html>"
    )
    return WebPage(f"Harbour pump {number}", html.encode(), text_of(html)[1])


@pytest.fixture
def world() -> Iterator[World]:
    corpus = Corpus([page(number, fact) for number, fact in enumerate(FACTS)])
    with running(corpus, question=QUESTION, latency=Latency(0.0, 0.0, 0.0, 0.0)) as started:
        yield started


def research(world: World) -> tuple[FinalOutput, Figures]:
    settings = {
        "GROQ_API_KEY": "gsk_world", "GROQ_BASE_URL": world.address, "GROQ_MODEL": MODEL, "MEMORY_BACKEND": "none",
        "SEARXNG_BASE_URL": world.address + "/named", "MAX_ITERATIONS": "14",
    }  # fmt: skip
    fetcher = PageFetchTool(client=SafeClient(resolver=resolve, allow_loopback=True))
    output = run_react_loop(QUESTION, config=load_config(settings), fetcher=fetcher)
    took = {"code": output.exit_code, "began": 0.0, "ended": 0.0, "cpu_s": 0.0, "peak_mib": 0.0}
    return output, figures_of(world.take_records(), output.to_markdown(), took)


@pytest.mark.parametrize("pages_a_step", [1, 4])
def test_the_agent_walks_as_the_policy_says_and_its_prompts_only_grow(world: World, pages_a_step: int) -> None:
    world.walk = Walk(searches=2, reads=3, pages_a_step=pages_a_step)
    output, figures = research(world)
    assert output.outcome == "answered"
    assert (figures.searches, figures.pages, figures.cited_fetched) == (2, 3, 3)
    assert figures.calls == 2 + (3 if pages_a_step == 1 else 1) + 2  # searches, fetches, finish and report
    assert figures.kept == 1.0


def test_a_careless_model_cites_no_page_that_was_not_fetched(world: World) -> None:
    world.walk = Walk(careless=True)
    output, figures = research(world)
    assert output.outcome == "answered"
    assert (figures.cited_fetched, figures.cited_seen, figures.cited_unknown) == (3, 0, 0)


def test_without_a_search_engine_there_is_a_labelled_failure_and_no_report_from_memory(world: World) -> None:
    world.search_down = True
    output, figures = research(world)
    assert (output.outcome, output.exit_code) == ("failed", 1)
    assert FROM_MEMORY not in output.to_markdown() and not figures.from_memory
