"""Mending what verification found: first without a model, then with the answers of at most one model call.

Sentences that match are never touched, and the text outside mended sentences stays byte for byte as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from m3.grounding.claims import Claim, split_claims
from m3.grounding.patience import Patience
from m3.grounding.tags import TAG, TAG_PATTERN
from m3.grounding.verifier import GroundingReport, Statement, Verifier, verify
from m3.records import Check, Page, Verdict

MOST_ITEMS = 20  # sentences in one repair call
PASSAGES_PER_ITEM = 4
UNCITED_COVERAGE = 0.6  # an uncited sentence is offered for repair when some page covers this much of it
_RANK: dict[Verdict, int] = {"uncited": 0, "not_found": 0, "unchecked": 1, "partly": 2, "matched": 3}


class Change(NamedTuple):
    """One thing that was changed in the draft, and why. `after` is "" for a sentence that was removed."""

    kind: Literal["tag", "rewritten", "removed"]
    before: str
    after: str
    why: str


class Item(NamedTuple):
    """A sentence for the model to mend: what is wrong with it, and what the pages say instead."""

    number: int
    text: str
    why: str
    passages: tuple[tuple[int, str], ...]  # (source, quote)
    start: int
    end: int
    verdict: Verdict


def correct_tags(
    summary: str, report: GroundingReport, pages: Mapping[int, str | Page]
) -> tuple[str, tuple[Change, ...]]:
    """Without a model: tags that name nothing go, and a source that bears a sentence out replaces one that does not.

    A sentence without any tag is left alone: adding a source afterwards would claim that the writer used it.
    """
    edits: list[tuple[int, int, str]] = []
    changes: list[Change] = []
    for statement in report.statements:
        if not statement.cited or statement.verdict in ("matched", "unchecked"):
            continue
        checks = [c for c in report.checks if (c.start, c.end) == (statement.start, statement.end)]
        better = next((c.better_source for c in checks if c.better_source is not None), None)
        kept = [n for n in statement.cited if n in pages]
        if better is not None:
            kept = [c.source for c in checks if c.source in kept and c.verdict == "partly" and c.source] + [better]
        if tuple(kept) == statement.cited:
            continue
        raw = summary[statement.start : statement.end]
        new = with_tag(raw, kept)
        edits.append((statement.start, statement.end, new))
        dead = [n for n in statement.cited if n not in pages]
        why = f"Source {', '.join(map(str, dead))} does not exist" if dead else "the cited page does not have it"
        changes.append(Change("tag", raw, new, f"{why}; Source {better} does" if better is not None else why))
    return _apply(summary, edits), tuple(changes)


def with_tag(sentence: str, sources: Sequence[int]) -> str:
    """The sentence with one tag, where its first one stood, naming `sources`; without any for no sources."""
    tag = "[Source " + ", ".join(map(str, dict.fromkeys(sources))) + "]" if sources else ""
    first = TAG.search(sentence)
    if first is None:
        body = sentence.rstrip()
        stop = re.search(r"[.!?。！？]+[\"'”’»)*_]*$", body)
        at = stop.start() if stop else len(body)
        return f"{body[:at]} {tag}{body[at:]}" if tag else sentence
    head, tail = sentence[: first.start()], sentence[first.end() :]
    tail = re.sub(rf"[ \t]*(?:{TAG_PATTERN})", "", tail, flags=re.I)
    return head + tag + tail if tag else head.rstrip() + tail


def items_to_mend(
    summary: str, report: GroundingReport, pages: Mapping[int, str | Page], *, patience: Patience | None = None
) -> list[Item]:
    """The sentences worth a model call: not found or only partly, and uncited ones that some page nearly has."""
    failing = [statement for statement in report.statements if statement.verdict not in ("matched", "unchecked")]
    if not failing:
        return []
    verifier = Verifier(summary, pages, patience=patience)
    claims = {(claim.start, claim.end): claim for claim in split_claims(summary)}
    found: list[Item] = []
    for statement in failing:
        if len(found) == MOST_ITEMS:
            break
        claim = claims.get((statement.start, statement.end)) or Claim(statement.text, statement.start, statement.end)
        passages = verifier.best_passages(verifier.read(claim), PASSAGES_PER_ITEM)
        if not passages or (statement.verdict == "uncited" and passages[0][1].score < UNCITED_COVERAGE):
            continue
        why = "; ".join(
            dict.fromkeys(
                c.why for c in report.checks if (c.start, c.end) == (statement.start, statement.end) and c.why
            )
        )
        found.append(
            Item(
                len(found) + 1,
                summary[statement.start : statement.end],
                why,
                tuple((number, passage.quote) for number, passage in passages),
                statement.start,
                statement.end,
                statement.verdict,
            )
        )
    return found


def apply_answers(
    summary: str,
    items: Sequence[Item],
    reply: str,
    pages: Mapping[int, str | Page],
    *,
    may_drop: bool = False,
    patience: Patience | None = None,
) -> tuple[str, tuple[Change, ...]]:
    """Take over the model's rewritten sentences, each only if the same rule finds it better borne out than before.

    reply: the model's JSON list of `{"id", "action": "keep" | "rewrite" | "drop", "text", "sources"}`. What cannot be
    read changes nothing. A rewritten sentence may lack nothing that it names: no number, name or quotation.
    """
    by_number = {item.number: item for item in items}
    edits: list[tuple[int, int, str]] = []
    changes: list[Change] = []
    for answer in _answers(reply):
        number = answer.get("id")
        item = by_number.pop(number, None) if isinstance(number, int) else None
        if item is None:
            continue
        if answer.get("action") == "drop" and may_drop:
            edits.append((item.start, item.end, ""))
            changes.append(Change("removed", item.text, "", item.why))
        elif answer.get("action") == "rewrite":
            new = _rewritten(item, answer, pages, patience)
            if new is not None:
                edits.append((item.start, item.end, new))
                changes.append(Change("rewritten", item.text, new, item.why))
    return _apply(summary, edits), tuple(changes)


def remove_unsupported(summary: str, report: GroundingReport) -> tuple[str, tuple[Change, ...]]:
    """Without every sentence whose cited page does not have it (`--repair strict`)."""
    gone = [s for s in report.statements if s.verdict == "not_found"]
    changes = tuple(Change("removed", summary[s.start : s.end], "", _why(report, s)) for s in gone)
    return _apply(summary, [(s.start, s.end, "") for s in gone]), changes


def change_line(changes: Sequence[Change]) -> str:
    """What was changed, in one sentence; "" for nothing."""
    parts = []
    for kind, one, many in (
        ("rewritten", "1 sentence was rewritten", "{} sentences were rewritten"),
        ("tag", "the source tag of 1 sentence was corrected", "the source tags of {} sentences were corrected"),
        ("removed", "1 sentence was removed", "{} sentences were removed"),
    ):
        count = sum(change.kind == kind for change in changes)
        if count:
            parts.append(one if count == 1 else many.format(count))
    return ", ".join(parts)


def _why(report: GroundingReport, statement: Statement) -> str:
    checks: list[Check] = [c for c in report.checks if (c.start, c.end) == (statement.start, statement.end)]
    return "; ".join(dict.fromkeys(c.why for c in checks if c.why))


def _rewritten(
    item: Item, answer: Mapping[str, Any], pages: Mapping[int, str | Page], patience: Patience | None
) -> str | None:
    text = answer.get("text")
    if not isinstance(text, str) or not text.strip() or len(text) > 3 * len(item.text) + 200:
        return None
    text = " ".join(text.split())
    cited = [n for n in _whole_numbers(answer.get("sources")) if n in pages]
    if cited and not TAG.search(text):
        text = with_tag(text, cited)
    report = verify(text, pages, patience=patience)
    if len(report.statements) != 1 or re.search(r"https?://|www\.|!\[|\]\(", text):
        return None
    verdict = report.statements[0].verdict
    known = all(n in pages for n in report.statements[0].cited)
    better = _RANK[verdict] > _RANK[item.verdict] and verdict in ("matched", "partly")
    complete = verdict == "matched" or not any(c.missing or c.flags for c in report.checks if c.verdict == "partly")
    return text if better and known and complete else None


def _whole_numbers(value: object) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, int) and not isinstance(v, bool)]


def _answers(reply: str) -> list[dict[str, Any]]:
    """The JSON objects of a reply, wherever the list stands in it; [] where there is none."""
    for opening, closing in (("[", "]"), ("{", "}")):
        start, end = reply.find(opening), reply.rfind(closing)
        if 0 <= start < end:
            try:
                found = json.loads(reply[start : end + 1])
            except (ValueError, RecursionError):
                continue
            rows = found if isinstance(found, list) else [found]
            return [row for row in rows if isinstance(row, dict)]
    return []


def _apply(summary: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Replace spans, from the last to the first; a removed sentence takes its blank, and an empty list mark, along."""
    text = summary
    for start, end, new in sorted(edits, reverse=True):
        if new:
            text = text[:start] + new + text[end:]
            continue
        before, after = text[:start], text[end:]
        line = before[before.rfind("\n") + 1 :]
        if re.fullmatch(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])?[ \t]*", line) and after[:1] in ("", "\n"):
            text = before[: len(before) - len(line)] + after[1:]
        else:
            text = (
                before + after.lstrip(" \t") if line.endswith((" ", "\t")) or not line else before.rstrip(" \t") + after
            )
    return text


__all__ = [
    "Change",
    "Item",
    "apply_answers",
    "change_line",
    "correct_tags",
    "items_to_mend",
    "remove_unsupported",
    "with_tag",
]
