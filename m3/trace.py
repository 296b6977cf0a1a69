"""The trace of a run: one file to resume from, to replay, to look at.

While a run goes on, `trace.json.part` is its journal (m3/journal.py: JSON lines, each synced before the run goes on);
at its end the whole becomes `trace.json`. Schema 1: `schema`, `version`, `query`, `history` (earlier
turns of a conversation, where there were any), `started_at`, `settings` (those
that differ from the defaults, without secrets), `llm_provider`, `model`, `search_providers`, `warnings`, `effects`
(m3.journal.Effect: number, kind, digest, request, result, error, seconds), `pages` (of each page read: `url`,
`final_url`, `fetched_at`, `sha256` of its text), `steps`, `result` (FinalOutput.to_dict()).
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import config
from config import Config
from m3.codec import CodecError, from_plain
from m3.journal import SCHEMA_VERSION, Effect, Journal, history_of, journal_of, read_journal
from m3.records import Completion, Message, Page, RunControl, SearchOutcome, TraceError
from m3.report import FinalOutput
from m3.untrusted import safe_line


def part_of(path: str | Path) -> Path:
    """The journal beside a trace file."""
    return Path(f"{path}.part")


def trace_header(query: str, settings: Config, model: str, history: Sequence[Message] = ()) -> dict[str, Any]:
    """What a trace says before its first effect. history: earlier turns of a conversation, if there were any."""
    return {
        "query": query,
        **({"history": list(history)} if history else {}),
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
        "effects": [effect.as_plain() for effect in journal.effects],
        "pages": [
            {
                "url": fetched["url"],
                "final_url": fetched["final_url"],
                "fetched_at": fetched["page"]["fetched_at"],
                "sha256": _hash(config.redact(fetched["page"]["text"])),
            }
            for fetched in _fetched(journal.effects)
        ],
        "steps": [asdict(step) for step in output.steps],
        "result": output.to_dict(),
    }
    return config.redact(json.dumps(record, ensure_ascii=False, indent=1)) + "\n"


def resume_of(path: str | Path) -> tuple[dict[str, Any], Journal]:
    """The header of a trace and a journal that goes on from it. Raises TraceError."""
    header, effects = read_journal(path)
    return header, journal_of(header, effects)


def other_services(header: Mapping[str, Any], settings: Config) -> list[str]:
    """What goes on with another model or search than was recorded, one line each: a key or option left out, perhaps."""
    found = []
    before, now = header.get("llm_provider"), settings.llm_provider
    if before not in (None, now):
        found.append(f"the recorded run asked {before} ({header.get('model')}), from here on it is {now}")
    searched, searches = header.get("search_providers"), list(settings.search_providers)
    if searched not in (None, searches):
        found.append(f"the recorded run searched {', '.join(searched)}, from here on it is {', '.join(searches)}")
    documents, folder = header.get("settings", {}).get("DOCS_DIR"), settings.search.docs_dir
    if documents != (None if folder is None else str(folder)):
        found.append(f"the recorded run had --docs {documents or '(none)'}, from here on it is {folder or '(none)'}")
    return [f"--resume takes the settings of now: {text}" for text in found]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def _fetched(effects: Iterable[Effect]) -> Iterator[dict[str, Any]]:
    """The pages that were read (FetchedPage with a page), as plain data."""
    for effect in effects:
        if effect.kind == "fetch" and effect.error is None:
            yield from (item for item in effect.result or [] if item["page"])


class Replay:
    """A recorded run as the arguments of `run_react_loop`: nothing outside is asked, no key is needed."""

    def __init__(self, path: str | Path) -> None:
        """Raises TraceError."""
        header, effects = read_journal(path)
        self.header = {k: v for k, v in header.items() if k not in ("schema", "version", "pages", "steps", "result")}
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
        self.journal = Journal(recorded=deque(effects), live=False, history=history_of(header))
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


def check_again(path: str | Path) -> tuple[bool, list[str]]:
    """The citation check of a finished run once more, over the pages in its trace.

    Returns whether every verdict is as recorded and no page was changed since, and the lines to print. Raises
    TraceError.
    """
    from m3.grounding import verify

    header, effects = read_journal(path)
    result = header.get("result")
    if not isinstance(result, dict):
        raise TraceError(f"{path} holds no result to check; the run did not end")
    try:
        read = [from_plain(Page, fetched["page"]) for fetched in _fetched(effects)]
        pages = {page.url: page for page in read}
        cited, missing = _cited(result, pages)
        recorded = [(c["claim"], c["source"], c["verdict"]) for c in result.get("grounding", [])]
        hashes = {entry["url"]: entry["sha256"] for entry in header.get("pages", [])}
        report = verify(str(result.get("summary", "")), cited)
    except (CodecError, KeyError, TypeError) as problem:
        raise TraceError(f"{path}: the result does not have the shape of one: {problem}") from None
    lines = [f"[Source {number}] {safe_line(url)}: its page is not in the trace" for number, url in missing]
    changed = [f["url"] for f in _fetched(effects) if hashes.get(f["url"], "") not in ("", _hash(f["page"]["text"]))]
    lines += [f"{safe_line(url)}: its text is not the one that was read" for url in changed]
    found = [(check.claim, check.source, check.verdict) for check in report]
    # What the run itself took back (dead tags, a whole draft that nothing bears out) is no sentence of the summary.
    known = {(claim, source): verdict for claim, source, verdict in recorded}
    differing = 0
    for claim, source, verdict in found:
        # Of a draft that was withheld the checks stay, while the summary says another thing.
        before = known.get((claim, source), "no such statement" if cited else verdict)
        differing += before != verdict
        tag = "" if source is None else f" [Source {source}]"
        was = "" if before == verdict else f" (recorded: {before})"
        lines.append(f"{verdict}{tag}{was}: {safe_line(claim, 300)}")
    lines.append(report.line())
    return not (missing or changed or differing), lines


def _cited(result: dict[str, Any], pages: dict[str, Page]) -> tuple[dict[int, Page], list[tuple[int, str]]]:
    """The pages of a result by source number, and the sources whose page is not there."""
    sources = {int(source["number"]): str(source["url"]) for source in result.get("sources", [])}
    found = {number: pages[url] for number, url in sources.items() if url in pages}
    return found, [(number, url) for number, url in sources.items() if url not in pages]


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
