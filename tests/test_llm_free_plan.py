"""A research run on a free plan of 8,000 tokens a minute: server, ledger and run share one virtual clock."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from config import load_config
from m3.journal import Journal
from m3.prompts import CONDENSE_MARK, SYNTHESIS_MARK
from m3.records import Event, FetchedPage, NoticeEvent, RunControl, SearchOutcome, page_from_parts
from m3.report import FinalOutput
from m3.trace import Replay, trace_header
from m3_react_agent import run_react_loop
from tests.provider import Asked, Clock, Play, chat, error, provider
from tests.scripted import DictWeb, action

TPM = 8_000
QUESTION = "How is oolong tea made?"
PARAGRAPH = (
    "Oolong tea is made in county {0} by withering the leaves for {1} hours and bruising them in baskets. "
    "Then the tea is made to oxidise until about {2} percent of each leaf of lot {0} has turned brown. "
    "In garden {0} oolong is made darker by roasting the tea over charcoal for {1} more hours."
)


class LongWeb(DictWeb):
    """Forty pages of paragraphs that all speak of the question, so that every observation is as long as may be."""

    def __init__(self) -> None:
        super().__init__({f"https://tea.example/oolong-{n}": PARAGRAPH.format(n, n % 9, n % 80) for n in range(40)})

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        """Every search finds the next five pages."""
        found = list(self._results())[5 * len(self.searched) :][:5]
        self.searched.append(query)
        return SearchOutcome(tuple(found), self.engine)

    def fetch(self, url: str, *, control: RunControl | None = None) -> FetchedPage:
        n = int(url.rsplit("-", 1)[-1])
        parts = [("paragraph", PARAGRAPH.format(100 * n + k, k % 9 + 2, k % 70 + 10)) for k in range(30)]
        return FetchedPage(url, "ok", page_from_parts(url, parts, title=f"Oolong {n}"), final_url=url)


class FreePlan:
    """The limit as Groq keeps it: prompt and largest completion are reserved before running, and leak away.

    refund: whether the unused part of the reservation is given back afterwards; it is not known which Groq does.
    """

    def __init__(self, clock: Clock, *, refund: bool) -> None:
        self._clock, self._refund = clock, refund
        self._used, self._at = 0.0, clock()
        self.statuses: Counter[int] = Counter()
        self.turns = 0
        self.prompts: list[int] = []

    def __call__(self, asked: Asked) -> Play:
        play = self._answer(asked)
        self.statuses[play.status] += 1
        return play

    def _answer(self, asked: Asked) -> Play:
        prompt = 70 + sum(round(len(m["content"]) / 3.7) + 4 for m in asked.body["messages"])
        need = prompt + asked.body["max_completion_tokens"]
        self._used = max(0.0, self._used - (self._clock() - self._at) * TPM / 60)
        self._at = self._clock()
        where = "for model `openai/gpt-oss-120b` in organization `org_1` service tier `on_demand` on tokens per minute"
        if need > TPM:
            text = f"Request too large {where} (TPM): Limit {TPM}, Requested {need}, please reduce your message size."
            return Play(error(text, "rate_limit_exceeded", "tokens"), 413)
        if self._used + need > TPM:
            wait = (self._used + need - TPM) / TPM * 60
            figures = f"Limit {TPM}, Used {round(self._used)}, Requested {need}"
            text = f"Rate limit reached {where} (TPM): {figures}. Please try again in {wait:.3f}s."
            return Play(error(text, "rate_limit_exceeded", "tokens"), 429, {"retry-after": str(int(wait) + 1)})
        reply = self._write(asked.body["messages"][-1]["content"])
        completion = len(reply) // 4 + 120  # with some reasoning
        self._used += prompt + completion if self._refund else need
        self.prompts.append(prompt)
        left = {
            "x-ratelimit-limit-tokens": str(TPM),
            "x-ratelimit-remaining-tokens": str(int(TPM - self._used)),
            "x-ratelimit-reset-tokens": f"{self._used / TPM * 60:.2f}s",
            "x-ratelimit-limit-requests": "1000",
            "x-ratelimit-remaining-requests": "990",
        }
        return Play(chat(reply, usage={"prompt_tokens": prompt, "completion_tokens": completion}), 200, left)

    def _write(self, last: str) -> str:
        if SYNTHESIS_MARK in last:
            return "Oolong tea is made by withering the leaves and bruising them in baskets. [Source 1]"
        if CONDENSE_MARK in last:
            return "Oolong is partly oxidised [Source 1]; open: how it is roasted."
        self.turns += 1
        search, is_fetch = divmod(self.turns - 1, 2)
        if not is_fetch:
            return action("search", f'{{"query": "how is oolong tea made {search}"}}')
        names = ", ".join(f'"R{n}"' for n in range(5 * search + 1, 5 * search + 5))
        return action("fetch", f'{{"results": [{names}]}}')


@pytest.mark.parametrize("refund", [True, False])
@pytest.mark.parametrize("seconds", [300, 1200])
def test_ten_iterations_on_the_free_plan_end_with_an_answer_and_at_most_one_413(refund: bool, seconds: int) -> None:
    clock = Clock()
    plan = FreePlan(clock, refund=refund)
    notices: list[str] = []
    output = run_on(plan, clock, seconds, notices)
    assert output.summary.startswith("Oolong tea is made") and output.sources
    assert output.outcome == "partial"
    if output.stop_reason == "provider_error":
        assert seconds == 300 and "tokens per minute (TPM): 8,000" in output.warnings[0]
    assert plan.statuses[413] <= 1 and plan.statuses[429] <= 1, plan.statuses
    assert clock.now - 1_000 <= seconds
    if seconds == 1200:
        assert (output.iterations_used, output.stop_reason) == (10, "max_iterations")
    assert any(re.match(r"waiting \d+ s for Groq's limit of tokens per minute \(TPM\): 8,000", n) for n in notices)
    assert max(plan.prompts) <= TPM - 300


def run_on(plan: FreePlan, clock: Clock, seconds: int, notices: list[str], trace: Path | None = None) -> FinalOutput:
    def listen(event: Event) -> None:
        if isinstance(event, NoticeEvent):
            notices.append(event.message)

    web = LongWeb()
    with provider(plan) as server:
        env = {
            "GROQ_API_KEY": "gsk_0123456789abcdef",
            "GROQ_BASE_URL": server.url,
            "MAX_WALL_CLOCK_SECONDS": str(seconds),
            "MAX_TOKENS": "200000",
            "MEMORY_BACKEND": "none",
        }
        config = load_config(env)
        journal = Journal(trace)
        journal.begin(trace_header(QUESTION, config, "openai/gpt-oss-120b"))
        return run_react_loop(
            QUESTION,
            config=config,
            resume=journal,
            search=web,
            fetcher=web,
            on_event=listen,
            control=clock.control(seconds),
        )


def test_a_run_whose_prompts_had_to_shrink_replays_without_the_provider(tmp_path: Path) -> None:
    clock = Clock()
    plan = FreePlan(clock, refund=True)
    first = run_on(plan, clock, 1200, [], tmp_path / "trace.part")
    assert any(new < 0.6 * old for old, new in zip(plan.prompts, plan.prompts[1:], strict=False)), "it shrank once"
    replay = Replay(tmp_path / "trace.part")
    stand_in: Any = replay.llm
    again = run_react_loop(
        replay.query, config=replay.config, llm=stand_in, search=stand_in, fetcher=stand_in, resume=replay.journal
    )
    assert (again.summary, again.stop_reason, again.usage) == (first.summary, first.stop_reason, first.usage)
    assert (again.llm_provider, again.model, again.cost_usd) == (first.llm_provider, first.model, first.cost_usd)
