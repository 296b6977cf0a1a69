"""`--memory …`: look at what is remembered, search it, take it away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from config import ConfigError
from m3.sessions import PastResearch
from m3.untrusted import safe_line
from m3.words import terms

USAGE = '--memory takes: list | search "…" | show ID | forget ID | forget --all | reindex | stats'
LISTED, FOUND = 50, 10
SEARCHED = 500  # of the newest runs, for words


class Store(Protocol):
    """What the commands need of a store."""

    def recent(self, n: int = 10) -> list[PastResearch]: ...

    def retrieve_related(self, query: str, limit: int = 3) -> list[PastResearch]: ...

    def get(self, id: str) -> PastResearch | None: ...

    def forget(self, id: str) -> bool: ...

    def forget_all(self) -> int: ...

    def reindex(self) -> int: ...

    def stats(self) -> dict[str, Any]: ...


def run_command(words: Sequence[str], forget_all: bool, store: Store, say: Callable[[str], object]) -> int:
    """Run one command and say what came of it; the exit code. Raises ConfigError for what is not a command."""
    name, rest = words[0], list(words[1:])
    if name == "list" and not rest:
        return _lines(store.recent(LISTED), say, f"nothing is remembered in {store.stats()['where']}")
    if name == "search" and rest:
        return _lines(_search(store, " ".join(rest)), say, "nothing remembered is related to that")
    if name == "show" and len(rest) == 1:
        return _show(store.get(rest[0]), rest[0], say)
    if name == "forget" and forget_all and not rest:
        say(f"{store.forget_all()} runs forgotten")
        return 0
    if name == "forget" and len(rest) == 1 and not forget_all:
        gone = store.forget(rest[0])
        say(f"forgotten: {rest[0]}" if gone else f"nothing is remembered under {safe_line(rest[0], 40)}")
        return 0 if gone else 1
    if name == "reindex" and not rest:
        say(f"{store.reindex()} runs indexed")
        return 0
    if name == "stats" and not rest:
        for key, value in store.stats().items():
            say(f"{key}: {value}")
        return 0
    raise ConfigError(USAGE)


def _search(store: Store, text: str) -> list[PastResearch]:
    """Runs whose question is related, the best first; then those of the newest that name all the words asked for.

    Recall wants a question, a person may look for a word.
    """
    related = store.retrieve_related(text, FOUND)
    wanted, known = set(terms(text)), {session.id for session in related}
    naming = [
        session
        for session in (store.recent(SEARCHED) if wanted and len(related) < FOUND else ())
        if session.id not in known and wanted <= set(terms(f"{session.query} {' '.join(session.topics)}"))
    ]
    return (related + naming)[:FOUND]


def _lines(found: Sequence[PastResearch], say: Callable[[str], object], nothing: str) -> int:
    for session in found:
        score = f" {session.score:.2f}" if session.score else ""
        say(f"{session.id} {session.stored_at[:16]} {session.outcome:<9}{score} {safe_line(session.query, 100)}")
    if not found:
        say(nothing)
    return 0


def _show(session: PastResearch | None, id: str, say: Callable[[str], object]) -> int:
    if session is None:
        say(f"nothing is remembered under {safe_line(id, 40)}")
        return 1
    say(f"# {safe_line(session.query, 2_000)}")
    say(f"{session.stored_at} {session.outcome}; topics: {safe_line(', '.join(session.topics))}")
    for line in session.summary.splitlines():
        say(safe_line(line, 4_000))
    for source in session.sources:
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in source.verdicts.items())
        say(
            f"[{source.number}] {safe_line(source.title)}: {safe_line(source.url, 2_000)} ({verdicts or 'not checked'})"
        )
    return 0
