"""From the requests of one run to its figures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.world.policy import FROM_MEMORY, URL
from bench.world.server import Record


@dataclass(frozen=True)
class Figures:
    """What one run took and sent.

    own_s: wall less every request, overlapping ones counted once. kept: the share of a prompt that stands unchanged
    at the start of the next one of the same conversation (the same first message); kept_all: of the next one
    whichever it is; both None for lack of pairs. cacheable: the share of all prompts that a prefix cache can serve.
    cited_* count the addresses in the answer by what was had of the pages: fetched, seen as a result, neither.
    from_memory: the answer says what the model made up; is_silent: nothing was printed.
    """

    code: int
    wall_s: float
    own_s: float
    cpu_s: float
    peak_mib: float
    calls: int
    prompt_tokens: int
    largest_prompt: int
    schema_tokens: int
    searches: int
    pages: int
    kept: float | None
    kept_all: float | None
    cacheable: float
    cited_fetched: int
    cited_seen: int
    cited_unknown: int
    from_memory: bool
    is_silent: bool


def figures_of(records: Sequence[Record], answer: str, launch: dict[str, float]) -> Figures:
    """launch: what `launch.py` printed."""
    calls = [record for record in records if record.kind == "model"]
    prompts = ["\n".join(call.messages) for call in calls]
    pairs = list(zip(calls, calls[1:], strict=False))
    shared = [os.path.commonprefix([one, other]) for one, other in zip(prompts, prompts[1:], strict=False)]
    same = [(len(s), len("\n".join(one.messages))) for s, (one, other) in zip(shared, pairs, strict=True)
            if one.messages[:1] == other.messages[:1]]  # fmt: skip
    every = [(len(s), len(prompt)) for s, prompt in zip(shared, prompts, strict=False)]
    fetched = {url for record in records if record.kind == "page" for url in record.urls}
    seen = {url for record in records if record.kind == "search" for url in record.urls}
    numbers = {_number(url): url for url in fetched | seen}
    cited = {numbers.get(int(match[1]), match[0]) for match in URL.finditer(answer)}
    wall = launch["ended"] - launch["began"]
    return Figures(
        code=int(launch["code"]),
        wall_s=wall,
        own_s=wall - _union((record.began, record.ended) for record in records),
        cpu_s=launch["cpu_s"],
        peak_mib=launch["peak_mib"],
        calls=len(calls),
        prompt_tokens=sum(call.prompt_tokens for call in calls),
        largest_prompt=max((call.prompt_tokens for call in calls), default=0),
        schema_tokens=sum(call.schema_tokens for call in calls),
        searches=sum(record.kind == "search" for record in records),
        pages=len(fetched),
        kept=_share(same),
        kept_all=_share(every),
        cacheable=sum(map(len, shared)) / max(1, sum(map(len, prompts))),
        cited_fetched=len(cited & fetched),
        cited_seen=len((cited & seen) - fetched),
        cited_unknown=len(cited - seen - fetched),
        from_memory=FROM_MEMORY in " ".join(answer.split()),
        is_silent=not answer.strip(),
    )


def _number(url: str) -> int:
    match = URL.search(url)
    return int(match[1]) if match else -1


def _share(pairs: Sequence[tuple[int, int]]) -> float | None:
    return sum(part for part, _ in pairs) / max(1, sum(whole for _, whole in pairs)) if pairs else None


def _union(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that at least one of the spans covers."""
    total = until = 0.0
    for began, ended in sorted(spans):
        if ended > until:
            total += ended - max(began, until)
            until = ended
    return total
