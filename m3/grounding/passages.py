"""Which parts of a page answer a question: BM25 over its blocks, shown in document order."""

from __future__ import annotations

import math
from collections import Counter

from m3.records import Block, Page, Passage
from m3.words import estimate_tokens, terms

K1, B = 1.2, 0.75  # the usual BM25 constants (Robertson and Zaragoza 2009)


def rank_passages(question: str, page: Page, budget_tokens: int) -> list[Passage]:
    """The blocks of `page` that matter most for `question`, in document order, within `budget_tokens`.

    Each passage satisfies `page.text[start:end] == quote`. A page whose blocks share no word with the question
    yields its first blocks.
    """
    blocks = [b for b in page.blocks if b.kind != "heading"]
    scores = _scores(question, page, blocks)
    chosen: list[tuple[Block, float]] = []
    left = budget_tokens
    for score, block in sorted(zip(scores, blocks, strict=True), key=lambda pair: (-pair[0], pair[1].start)):
        cost = estimate_tokens(block.text) + 2
        if cost > left:
            continue
        left -= cost
        chosen.append((block, score))
    chosen.sort(key=lambda pair: pair[0].start)
    return [Passage(b.start, b.end, b.text, round(score, 4), b.page_number) for b, score in chosen]


def _scores(question: str, page: Page, blocks: list[Block]) -> list[float]:
    wanted = set(terms(question))
    heading = ""
    bags: list[Counter[str]] = []
    wanted_blocks = {id(b) for b in blocks}
    for block in page.blocks:
        if block.kind == "heading":
            heading = block.text
        elif id(block) in wanted_blocks:
            bag = Counter(terms(block.text))
            for word in terms(heading):
                bag[word] += 1
            bags.append(bag)
    count = len(bags)
    average = sum(bag.total() for bag in bags) / count if count else 1.0
    frequency = Counter(word for bag in bags for word in bag if word in wanted)
    scores = []
    for bag in bags:
        score = 0.0
        for word in wanted & bag.keys():
            idf = math.log(1 + (count - frequency[word] + 0.5) / (frequency[word] + 0.5))
            tf = bag[word]
            score += idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * bag.total() / (average or 1.0)))
        scores.append(score)
    return scores


def render_passages(page: Page, passages: list[Passage]) -> str:
    """Passages as the model reads them: in order, with `…` where text was left out between them."""
    lines: list[str] = []
    at = 0
    for passage in passages:
        if page.text[at : passage.start].strip():
            lines.append("…")
        lines.append(passage.quote)
        at = passage.end
    if page.text[at:].strip():
        lines.append("…")
    return "\n".join(lines)
