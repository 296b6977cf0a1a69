"""The trace of a run: one file to resume from, to replay, to look at.

While a run goes on, `trace.json.part` is its journal (m3/journal.py: JSON lines, each synced before the run goes on);
at its end the whole becomes `trace.json`. Schema 1: `schema`, `version`, `query`, `started_at`, `settings` (those
that differ from the defaults, without secrets), `llm_provider`, `model`, `search_providers`, `warnings`, `effects`
(m3.journal.Effect: number, kind, digest, request, result, error, seconds), `steps`, `result`
(FinalOutput.to_dict()).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import config
from config import Config
from m3.codec import to_plain
from m3.journal import SCHEMA_VERSION, Journal, read_journal
from m3.records import Completion, Message, RunControl, SearchOutcome
from m3.report import FinalOutput
from m3.untrusted import safe_line


def part_of(path: str | Path) -> Path:
    """The journal beside a trace file."""
    return Path(f"{path}.part")


def trace_header(query: str, settings: Config, model: str) -> dict[str, Any]:
    """What a trace says before its first effect."""
    return {
        "query": query,
        "started_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "settings": config.chosen_settings(settings),
        "llm_provider": settings.llm_provider,
        "model": model,
        "search_providers": list(settings.search_providers),
        "warnings": list(settings.warnings),
    }


def trace_json(header: dict[str, Any], journal: Journal, output: FinalOutput) -> str:
    """The finished trace as JSON text, without any secret."""
    record = {
        "schema": SCHEMA_VERSION,
        "version": config.VERSION,
        **header,
        "effects": [to_plain(effect) for effect in journal.effects],
        "steps": [asdict(step) for step in output.steps],
        "result": output.to_dict(),
    }
    return config.redact(json.dumps(record, ensure_ascii=False, indent=1)) + "\n"


def open_resume(path: str | Path) -> tuple[str, Journal]:
    """The question of a trace and a journal that goes on from it. Raises TraceError."""
    header, effects = read_journal(path)
    return str(header["query"]), Journal(recorded=deque(effects))


class Replay:
    """A recorded run as the arguments of `run_react_loop`: nothing outside is asked, no key is needed."""

    def __init__(self, path: str | Path) -> None:
        """Raises TraceError."""
        header, effects = read_journal(path)
        self.header = {k: v for k, v in header.items() if k not in ("schema", "version", "steps", "result")}
        self.query = str(header["query"])
        self.recorded_summary = str((header.get("result") or {}).get("summary", ""))
        known = {f.metadata["env"]: f for _, f in config.all_settings()}
        # Folders, providers and keys need not exist where a trace is replayed: only the bounds matter there.
        env = {
            name: str(value)
            for name, value in (header.get("settings") or {}).items()
            if name in known
            and not known[name].metadata["secret"]
            and name not in ("LLM_PROVIDER", "LLM_FALLBACK", "SEARCH_PROVIDER", "DOCS_DIR")
        }
        self.config = replace(
            config.load_config(env),
            llm_provider=str(header.get("llm_provider", "")),
            search_providers=tuple(header.get("search_providers") or ()),
            warnings=tuple(header.get("warnings") or ()),
        )
        self.journal = Journal(recorded=deque(effects), live=False)
        self.llm = _Recorded(str(header.get("llm_provider", "")), str(header.get("model", "")))


class _Recorded:
    """Stands for model, search and fetcher of a replay. It is never asked: the journal answers first."""

    def __init__(self, provider: str, model: str) -> None:
        self.provider, self.model = provider, model

    def complete(
        self, messages: list[Message], *, max_output_tokens: int, control: RunControl, on_text: Any = None
    ) -> Completion:
        raise AssertionError("a replay asked for a model")

    def search(self, query: str, *, max_results: int = 5, control: RunControl | None = None) -> SearchOutcome:
        raise AssertionError("a replay asked for a search")

    def fetch(self, url: str, *, control: RunControl | None = None) -> Any:
        raise AssertionError("a replay asked for a page")


def show(path: str | Path) -> Iterator[str]:
    """The run of a trace step by step, as lines for a terminal. Raises TraceError."""
    header, effects = read_journal(path)
    yield f"Question: {safe_line(str(header['query']), 2_000)}"
    yield f"Started {header.get('started_at', '?')} with {header.get('llm_provider')} ({header.get('model')})"
    for effect in effects:
        line = f"{effect.number:>3} {effect.kind:<12} {effect.seconds:7.2f} s  "
        if effect.error:
            yield line + "FAULT " + safe_line(str(effect.error.get("message", "")))
        elif effect.kind == "model":
            usage = effect.result.get("usage", {})
            yield f"{line}{usage.get('prompt', 0)} + {usage.get('completion', 0)} tokens"
            reply = str(effect.result.get("text", ""))
            yield from (f"      {safe_line(text)}" for text in reply.splitlines() if text.strip())
        elif effect.kind == "search":
            hits = ", ".join(str(r.get("url")) for r in effect.result.get("results", []))
            yield f"{line}{safe_line(str(effect.request))}: {effect.result.get('status')} {safe_line(hits)}"
        elif effect.kind == "fetch":
            yield line + safe_line(", ".join(f"{page.get('url')}: {page.get('kind')}" for page in effect.result))
        else:
            yield line + safe_line(str(effect.result))
    result = header.get("result")
    if result:
        yield f"Ended: {result.get('outcome')} ({result.get('stop_reason')})"
        yield from (safe_line(text, 2_000) for text in str(result.get("summary", "")).splitlines())
    else:
        yield "The run did not end; go on with --resume."
