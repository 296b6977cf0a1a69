"""Regular expressions that are compiled when they are first used.

Compiling is Python code: the three hundred patterns of this program took 0.12 s at every start, and a run uses about
half of them (`bench/peers.py`).
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Pattern:
    """Stands for a compiled pattern. At first use its methods are put on the object: later calls cost nothing more."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(self._source, self._flags)
        for method in ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def lazy_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, at the first use. Not for `re.sub(pattern, …)` and its kin, which want a compiled one."""
    return cast("re.Pattern[AnyStr]", _Pattern(source, flags))
