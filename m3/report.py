"""The result of a run and its renderings as Markdown and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from m3.grounding.independence import Disagreement, origins_line
from m3.grounding.repair import Change, change_line
from m3.grounding.tags import TAG, tag_numbers
from m3.grounding.verifier import NOTE, GroundingReport
from m3.records import Check, FetchedPage, LedgerEntry, Passage, Source, Step, Usage, in_words
from m3.untrusted import safe_line

Outcome: TypeAlias = Literal["answered", "partial", "abstained", "failed"]
NO_SOURCES_USED = "no sources used"  # the warning of an answer from the conversation alone
FROM_CONVERSATION = "from the conversation, no source checked"  # what stands there instead of counts of citations
EXIT_CODES: dict[Outcome, int] = {"answered": 0, "partial": 3, "abstained": 4, "failed": 1}
QUOTE_CHARACTERS = 300  # of a passage that are printed
HEADING_CHARACTERS = 200  # of a question that stand in a heading; a longer one follows it whole
_PROBLEMS = ("not_found", "partly", "unchecked", "uncited")  # in the order in which they are listed
VERDICT_WORDS = {
    "matched": "matched to a passage",
    "partly": "partly matched",
    "not_found": "not found in the cited page",
    "unchecked": "could not be checked",
    "uncited": "no citation",
}


@dataclass(frozen=True)
class FinalOutput:
    """What a run brought: the cited summary and everything that is needed to judge it.

    sources: only those that the summary cites, in the order of their numbers. services: every outside service
    that received the question. ledger: each search and fetch that was tried, and how it went. grounding: the check of
    every claim, in the numbers of `sources`; iterating it gives the checks. changes: what was mended in the draft.
    renumbered: each source's number in the draft with its number here. origins: the sources grouped by origin.
    """

    query: str
    summary: str
    sources: tuple[Source, ...] = ()
    outcome: Outcome = "failed"
    stop_reason: str = ""
    iterations_used: int = 0
    tokens_consumed: int = 0
    elapsed_seconds: float = 0.0
    llm_provider: str = ""
    search_provider: str = ""
    model: str = ""
    warnings: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    unreadable: tuple[FetchedPage, ...] = ()
    grounding: GroundingReport = GroundingReport()
    changes: tuple[Change, ...] = ()
    renumbered: Mapping[int, int] = field(default_factory=dict)
    origins: tuple[tuple[int, ...], ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    usage: Usage = Usage()
    cost_usd: float | None = 0.0  # None: the price of a model that was asked is unknown
    failover: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    def metadata(self) -> dict[str, Any]:
        """The run's figures, in the order of the report's last block."""
        return {
            "outcome": self.outcome,
            "stop_reason": self.stop_reason,
            "iterations_used": self.iterations_used,
            "tokens_consumed": self.tokens_consumed,
            "prompt_tokens": self.usage.prompt,
            "cached_tokens": self.usage.cached,
            "completion_tokens": self.usage.completion,
            "tokens_estimated": self.usage.estimated,
            "cost_usd": "unknown" if self.cost_usd is None else round(self.cost_usd, 6),
            "elapsed_seconds": round(self.elapsed_seconds, 3),
            "llm_provider": self.llm_provider,
            "model": self.model,
            "search_provider": self.search_provider,
            **({"failover": list(self.failover)} if self.failover else {}),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the fields, each source with its passages and verdicts; `citations` sums up."""
        return {
            "query": self.query,
            "summary": self.summary,
            "sources": [self._source_dict(source) for source in self.sources],
            **self.metadata(),
            "warnings": list(self.warnings),
            "grounding": [asdict(check) for check in self.grounding],
            "citations": {
                "counts": self.grounding.counts(),
                "line": self.citations_line(),
                "method": self.grounding.method(),
                "changes": [change._asdict() for change in self.changes],
                "renumbered": {str(old): new for old, new in self.renumbered.items()},
                "origins": [list(group) for group in self.origins],
                "disagreements": [
                    {"claim": one.claim, "figures": [figure._asdict() for figure in one.figures]}
                    for one in self.disagreements
                ],
            },
            "ledger": [asdict(entry) for entry in self.ledger],
            "usage": asdict(self.usage),
            "services": list(self.services),
            "engines": list(self.engines),
        }

    def _source_dict(self, source: Source) -> dict[str, Any]:
        page, checks = source.page, self.checks_of(source.number)
        return {
            "number": source.number,
            "title": source.title,
            "url": page.url,
            "domain": urlsplit(page.url).hostname or "" if "://" in page.url else "",
            "author": page.author,
            "published": page.published,
            "fetched_at": page.fetched_at,
            "notes": list(page.notes),
            "passages": [asdict(passage) for passage in _shown_passages(checks)],
            "verdicts": {verdict: sum(c.verdict == verdict for c in checks) for verdict in VERDICT_WORDS if checks},
        }

    def checks_of(self, number: int) -> list[Check]:
        """The checks of one source, in the order of the summary."""
        return [check for check in self.grounding if check.source == number]

    def to_markdown(self) -> str:
        """The report as a person reads it: summary, sources, checks, what could not be read, figures last."""
        heading, whole = heading_of(self.query)
        parts = [f"# {_inline(heading)}", f"**Question:** {_inline(whole, len(whole))}" if whole else ""]
        parts += [self._header(), self.marked_summary(), self._citations_line()]
        if self.sources:
            parts.append("## Sources\n\n" + "\n".join(self._source_lines(source) for source in self.sources))
        parts += [self._problems(), self._disagreements()]
        if self.unreadable:
            lines = [f"- {_inline(f.url)}: {_inline(f.error)}" for f in self.unreadable]
            parts.append("## Could not be read\n\n" + "\n".join(lines))
        failures = [e for e in self.ledger if e.kind == "search" and e.status not in ("ok", "no_results")]
        if failures:
            lines = [
                f"- {_inline(repr(e.target))}: {in_words(e.status)}" + (f" ({_inline(e.detail)})" if e.detail else "")
                for e in failures
            ]
            parts.append("## Searches that failed\n\n" + "\n".join(lines))
        notes = [*self.warnings, *self.notes()]
        if notes:
            parts.append("## Notes\n\n" + "\n".join(f"- {_inline(note, 1_000)}" for note in notes))
        parts.append("## Run\n\n" + "\n".join(f"- {name}: {value}" for name, value in self.metadata().items()))
        return "\n\n".join(part for part in parts if part) + "\n"

    def notes(self) -> list[str]:
        """What a reader should know beside the warnings: what was mended, removed, and which sources are copies."""
        found = []
        if change_line(self.changes):
            found.append(f"In the draft {change_line(self.changes)}.")
        found += [f"Removed ({c.why}): {c.before}" for c in self.changes if c.kind == "removed"]
        if origins_line(self.origins):
            found.append(f"{origins_line(self.origins)}.")
        searched = (e for e in self.ledger if e.kind == "search" and e.status in ("ok", "no_results") and e.detail)
        return [*found, *dict.fromkeys(f"Search: {e.detail}." for e in searched)]

    def marked_summary(self) -> str:
        """The summary with a mark where something is wrong: `[Source 2 ?]`, `[no source]`; matched ones have none."""
        text = self.summary
        for statement in sorted(self.grounding.statements, key=lambda s: -s.start):
            checks = [c for c in self.grounding if (c.start, c.end) == (statement.start, statement.end)]
            raw = text[statement.start : statement.end]
            bad = {c.source for c in checks if c.verdict == "not_found"}
            lost = any(c.verdict == "uncited" and c.why.startswith("no such source") for c in checks)
            if not raw or not self.sources:
                continue
            if bad and statement.verdict == "not_found":
                raw = TAG.sub(lambda m, bad=bad: _marked_tag(m[0], bad), raw)  # type: ignore[misc]
            elif lost:
                raw = f"{raw} [no source]"
            text = text[: statement.start] + raw + text[statement.end :]
        return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", text)

    def _header(self) -> str:
        asked = ", ".join(self.services) if self.services else "nobody; this run opened no connection to a service"
        lines = [f"*{self.outcome}* ({self.stop_reason}). The question was sent to: {asked}."]
        if self.engines:
            lines[0] += f" Results came from: {', '.join(self.engines)}."
        if self.llm_provider == "mock":
            lines.insert(0, "> **WARNING: offline mock model.** Sentences are copied by a fixed rule, not written.")
        return "\n\n".join(lines)

    @property
    def from_conversation(self) -> bool:
        """True for an answer that no source was read for."""
        return NO_SOURCES_USED in self.warnings

    def citations_line(self) -> str:
        """How the statements fared, in one line; or that nothing was there to check them against."""
        return FROM_CONVERSATION if self.from_conversation else self.grounding.line()

    def _citations_line(self) -> str:
        if self.from_conversation:
            return f"*{FROM_CONVERSATION[0].upper()}{FROM_CONVERSATION[1:]}.*"
        return f"*Citations: {self.grounding.line()}. {NOTE}*" if self.grounding.statements else ""

    def _source_lines(self, source: Source) -> str:
        page = source.page
        passages = _shown_passages(self.checks_of(source.number))
        link = next((p.link for p in passages if p.link), page.url)
        date = f", {_inline(page.published)}" if page.published else ""
        lines = [f"{source.number}. {_inline(source.title)}: {_address(link)}{date}"]
        fetched = f" (as fetched {page.fetched_at[:10]})" if page.fetched_at else ""
        if passages:
            lines.append(f"   > “{_inline(passages[0].quote, QUOTE_CHARACTERS)}”{fetched}")
        lines += [f"   - {_inline(note)}" for note in page.notes]
        return "\n".join(lines)

    def _problems(self) -> str:
        """Every statement that is not matched, worst first, with what exactly is missing and the closest words."""
        if not self.sources:  # then the draft itself is withheld
            return ""
        best = {(s.start, s.end): s.verdict for s in self.grounding.statements}
        found = [c for c in self.grounding if c.verdict != "matched" and best.get((c.start, c.end)) != "matched"]
        lines = []
        for check in sorted(found, key=lambda c: (_PROBLEMS.index(c.verdict), c.start)):
            source = f" [Source {check.source}]" if check.source is not None else ""
            lines.append(f"- **{VERDICT_WORDS[check.verdict]}**: {_inline(check.claim, 400)}{source}")
            if check.why and check.why != "no source is cited":
                lines.append(f"  - {_inline(check.why, 400)}")
            if check.passages:
                lines.append(f"  - closest: “{_inline(check.passages[0].quote, QUOTE_CHARACTERS)}”")
        return "## Check these yourself\n\n" + "\n".join(lines) if lines else ""

    def _disagreements(self) -> str:
        lines = []
        for one in self.disagreements:
            lines.append(f"- {_inline(one.claim, 300)}")
            for figure in one.figures:
                date = _inline(figure.published) or "date unknown"
                quote = _inline(figure.quote, 200)
                lines.append(f"  - Source {figure.source} ({date}): **{_inline(figure.value)}**: “{quote}”")
        return "## Sources give different figures\n\n" + "\n".join(lines) if lines else ""


def heading_of(question: str) -> tuple[str, str]:
    """A question as one line for a heading, and the whole of it on one line where the heading holds only its beginning.

    Both without control characters and secrets; the second is "" for a question that fits.
    """
    line = safe_line(question, 2 * len(question) + HEADING_CHARACTERS)  # what replaces a secret may be longer than it
    if len(line) <= HEADING_CHARACTERS:
        return line, ""
    cut = line.rfind(" ", HEADING_CHARACTERS // 2, HEADING_CHARACTERS)
    return line[: cut if cut > 0 else HEADING_CHARACTERS - 1].rstrip(" ,;:") + "…", line


def _shown_passages(checks: Iterable[Check]) -> list[Passage]:
    """The passages that bear a source's citations out, each once, in the order of the summary."""
    passages = [p for check in checks if check.verdict in ("matched", "partly") for p in check.passages[:1]]
    return list({(p.start, p.end): p for p in passages}.values())


def _marked_tag(tag: str, bad: set[int | None]) -> str:
    numbers = [f"{n} ?" if n in bad else str(n) for n in tag_numbers(tag)]
    return f"[Source {', '.join(numbers)}]"


def _inline(text: str, limit: int = 500) -> str:
    """Foreign text as one line of Markdown that says what it says: no HTML, no links, no emphasis of its own."""
    return re.sub(r"([\\`*\[\]|]|(?<!\w)_|_(?!\w)|<(?=[a-zA-Z/!?]))", r"\\\1", safe_line(text, limit))


def _address(url: str) -> str:
    """An address as Markdown may hold it: nothing in it ends the link or begins another."""
    shown = re.sub(r"[\s<>\"`\\]", lambda m: "".join(f"%{byte:02X}" for byte in m[0].encode()), url)
    return f"<{shown}>" if shown.startswith(("http://", "https://")) else _inline(url)
