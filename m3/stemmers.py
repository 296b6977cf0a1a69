"""Snowball stemmers, one language at a time.

`import snowballstemmer` loads the tables of all its 36 languages, 0.015 s of every start; a run stems one or two. So
this module is a package of the same files without the library's `__init__`: `m3.stemmers.english_stemmer` is the
library's module and loads alone. Whoever else in the process imports snowballstemmer gets all of it.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from typing import Any

_library = importlib.util.find_spec("snowballstemmer")
__path__ = list(_library.submodule_search_locations or ()) if _library else []  # a module with a path is a package


@cache
def stemmer(language: str) -> Any:
    """The stemmer of a language by its name in snowballstemmer; its `stemWord` is not for two threads at once."""
    try:
        module = importlib.import_module(f"{__name__}.{language}_stemmer")
        return getattr(module, f"{language.capitalize()}Stemmer")()
    except (ImportError, AttributeError):  # the library is not laid out so
        import snowballstemmer

        return snowballstemmer.stemmer(language)
