"""Memory of one run (short-term, pruned to a budget) and of earlier runs (long-term), and which store is used.

Three stores keep earlier runs, all with the same methods and the same scoring: `LongTermMemory` (Upstash Redis),
`LocalMemory` (one SQLite file, the default) and `NoMemory`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from config import Config, data_folder
from m3.records import RunControl
from m3.sessions import PastResearch, PastSource, StoreResult
from m3.short_term import Entry, ShortTermMemory

if TYPE_CHECKING:
    from m3.long_term_redis import LongTermMemory
    from m3.long_term_sqlite import LocalMemory

__all__ = [
    "Entry",
    "LocalMemory",
    "LongTermMemory",
    "NoMemory",
    "PastResearch",
    "PastSource",
    "ResearchStore",
    "ShortTermMemory",
    "StoreResult",
    "build_memory",
]

_log = logging.getLogger("m3.memory")
_upstash: dict[tuple[str, str, str, str], LongTermMemory] = {}
_upstash_lock = threading.Lock()


def __getattr__(name: str) -> Any:
    # A store loads when it is used; most runs use one, and some none.
    if name == "LongTermMemory":
        from m3.long_term_redis import LongTermMemory

        return LongTermMemory
    if name == "LocalMemory":
        from m3.long_term_sqlite import LocalMemory

        return LocalMemory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class ResearchStore(Protocol):
    """What the driver needs of a long-term memory. `notices` are said to the user once, and emptied."""

    def store_research(self, output: Any, *, control: RunControl | None = None) -> StoreResult: ...

    def retrieve_related(
        self, query: str, limit: int = 3, *, control: RunControl | None = None
    ) -> Sequence[PastResearch]: ...


class NoMemory:
    """Remembers nothing. `why` says who wanted it so."""

    def __init__(self, why: str = "memory is turned off") -> None:
        self.why = why
        self.notices: list[str] = []
        self.where = "nowhere"

    def store_research(self, output: Any, *, control: RunControl | None = None) -> StoreResult:
        return StoreResult(False, self.why, skipped=True)

    def retrieve_related(self, query: str, limit: int = 3, *, control: RunControl | None = None) -> list[PastResearch]:
        return []

    def recent(self, n: int = 10, *, control: RunControl | None = None) -> list[PastResearch]:
        return []

    def get(self, id: str, *, control: RunControl | None = None) -> PastResearch | None:
        return None

    def forget(self, id: str, *, control: RunControl | None = None) -> bool:
        return False

    def forget_all(self, *, control: RunControl | None = None) -> int:
        return 0

    def reindex(self, *, control: RunControl | None = None) -> int:
        return 0

    def stats(self, *, control: RunControl | None = None) -> dict[str, Any]:
        return {"backend": "none", "configured": False, "where": self.where, "sessions": 0, "detail": self.why}

    def close(self) -> None:
        return None


def build_memory(config: Config) -> LongTermMemory | LocalMemory | NoMemory:
    """The configured store: Upstash when both its variables are set, else a file in the user's data folder.

    MEMORY_BACKEND says otherwise. In a Hugging Face Space without Upstash nothing is remembered: its disk is not
    kept, and its visitors are strangers to each other. The same database gives the same object, so that one that
    was switched off stays off for the whole process.
    """
    settings, keys = config.memory, config.keys
    if settings.backend == "none":
        return NoMemory("memory is turned off (MEMORY_BACKEND=none or --no-memory)")
    if settings.backend != "local" and keys.upstash_url and keys.upstash_token:
        from m3.long_term_redis import LongTermMemory

        name = (keys.upstash_url, keys.upstash_token, settings.namespace or "", str(data_folder()))
        with _upstash_lock:
            if name not in _upstash:
                _upstash[name] = LongTermMemory(
                    keys.upstash_url,
                    keys.upstash_token,
                    max_sessions=settings.max_sessions,
                    namespace=settings.namespace or "",
                    outbox=None if settings.space else _outbox(),
                )
            return _upstash[name]
    if settings.space and settings.backend is None:
        why = "nothing is remembered: this is a Space without Upstash (UPSTASH_REDIS_REST_URL and _TOKEN)"
        _log.info("memory: %s", why)
        return NoMemory(why)
    from m3.long_term_sqlite import LocalMemory

    return LocalMemory(settings.path or data_folder() / "memory.sqlite", max_sessions=settings.max_sessions)


def _outbox() -> LocalMemory:
    from m3.long_term_sqlite import LocalMemory

    outbox = LocalMemory(data_folder() / "unsent.sqlite", max_sessions=None)
    outbox.notices.clear()  # it holds runs for a while; what is remembered lies elsewhere
    return outbox
