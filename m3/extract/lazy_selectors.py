"""BeautifulSoup without its CSS selectors until somebody asks for one.

`import bs4` imports soupsieve, whose patterns take 0.04 s to compile: a fifth of what this program imports for a run,
for `Tag.select`, which it never calls. A module that loads itself at the first attribute stands in for it; bs4, and
whatever else this process runs, gets every attribute of the real one. (`importlib.util.LazyLoader` would be loaded by
the import statement already.)
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_NAME = "soupsieve"


class _Later(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME]
        return getattr(importlib.import_module(_NAME), name)


def install() -> None:
    """Put the stand-in where `import soupsieve` will find it, if it is installed and not loaded yet."""
    if _NAME not in sys.modules and "bs4" not in sys.modules and importlib.util.find_spec(_NAME) is not None:
        sys.modules[_NAME] = _Later(_NAME)
