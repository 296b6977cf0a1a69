"""The result of a run and its renderings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from m3.records import Check, FetchedPage, LedgerEntry, Source, Step, Usage

Outcome: TypeAlias = Literal["answered", "partial", "abstained", "failed"]
EXIT_CODES: dict[Outcome, int] = {"answered": 0, "partial": 3, "abstained": 4, "failed": 1}


@dataclass(frozen=True)
class FinalOutput:
    """What a run brought: the cited summary and everything that is needed to judge it.

    sources: only those that the summary cites, in the order of their numbers. services: every outside service
    that received the question. ledger: each search and fetch that was tried, and how it went.
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
    grounding: tuple[Check, ...] = ()
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
        """Plain data for JSON: the fields, with each source as number, title, url, published, fetched_at."""
        return {
            "query": self.query,
            "summary": self.summary,
            "sources": [_source_dict(source) for source in self.sources],
            **self.metadata(),
            "warnings": list(self.warnings),
            "grounding": [asdict(check) for check in self.grounding],
            "ledger": [asdict(entry) for entry in self.ledger],
            "usage": asdict(self.usage),
            "services": list(self.services),
            "engines": list(self.engines),
        }

    def to_markdown(self) -> str:
        """The report as a person reads it: summary, sources, notes, what could not be read, figures last."""
        parts = [f"# {self.query}", self._header(), self.summary]
        if self.sources:
            parts.append("## Sources\n\n" + "\n".join(_source_line(source) for source in self.sources))
        if self.unreadable:
            parts.append("## Could not be read\n\n" + "\n".join(f"- {f.url}: {f.error}" for f in self.unreadable))
        failures = [e for e in self.ledger if e.kind == "search" and e.status not in ("ok", "no_results")]
        if failures:
            lines = [f"- {e.target!r}: {e.status} {e.detail}".rstrip() for e in failures]
            parts.append("## Searches that failed\n\n" + "\n".join(lines))
        if self.warnings:
            parts.append("## Notes\n\n" + "\n".join(f"- {warning}" for warning in self.warnings))
        parts.append("## Run\n\n" + "\n".join(f"- {name}: {value}" for name, value in self.metadata().items()))
        return "\n\n".join(part for part in parts if part) + "\n"

    def _header(self) -> str:
        asked = ", ".join(self.services) if self.services else "nobody; this run opened no connection to a service"
        lines = [f"*{self.outcome}* ({self.stop_reason}). The question was sent to: {asked}."]
        if self.engines:
            lines[0] += f" Results came from: {', '.join(self.engines)}."
        if self.llm_provider == "mock":
            lines.insert(0, "> **WARNING: offline mock model.** Sentences are copied by a fixed rule, not written.")
        return "\n\n".join(lines)


def _source_dict(source: Source) -> dict[str, Any]:
    page = source.page
    return {
        "number": source.number,
        "title": source.title,
        "url": page.url,
        "published": page.published,
        "fetched_at": page.fetched_at,
        "notes": list(page.notes),
    }


def _source_line(source: Source) -> str:
    page = source.page
    date = f", {page.published}" if page.published else ""
    return f"{source.number}. {source.title}: {page.url}{date}" + "".join(f"\n   - {note}" for note in page.notes)
