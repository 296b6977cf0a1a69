"""Writing files so that a crash never leaves half of one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomic(path: str | Path, text: str) -> None:
    """Write `text` to `path` whole or not at all: temporary file, fsync, rename. Mode 0600.

    A link is followed; what is no ordinary file (a device, a pipe, /dev/stdout) is written to, never replaced.
    Raises OSError; the old file, if any, is then untouched.
    """
    if is_special(path):
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
            stream.write(text)
        return
    target = Path(os.path.realpath(path))
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def is_special(path: str | Path) -> bool:
    """True for what is there but neither a file nor a folder: a device, a pipe, a socket."""
    target = Path(path)
    return target.exists() and not target.is_file() and not target.is_dir()


def why_not_writable(path: str | Path) -> str | None:
    """One sentence that says why a file could not be written there, or None. Leaves no trace."""
    if is_special(path):
        return None if os.access(path, os.W_OK) else f"{path} is not writable"
    target = Path(os.path.realpath(path))
    if target.is_dir():
        return f"{target} is a folder; name a file"
    if not target.parent.is_dir():
        return f"the folder {target.parent} does not exist; create it first"
    if not os.access(target.parent, os.W_OK):
        return f"the folder {target.parent} is not writable"
    return None
