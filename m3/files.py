"""Writing files so that a crash never leaves half of one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def write_atomic(path: str | Path, text: str) -> None:
    """Write `text` to `path` whole or not at all: temporary file, fsync, rename, fsync of the folder. Mode 0600.

    A link is followed; what is no ordinary file (a device, a pipe, /dev/stdout) is written to, never replaced.
    Raises OSError; the old file, if any, is then untouched.
    """
    os.close(replace_open(path, text))


def replace_open(path: str | Path, text: str) -> int:
    """`write_atomic`, but the new file stays open for appending; returns its descriptor."""
    if is_special(path):  # asked of the path as given: /dev/stdout may lead to a pipe without a name
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            write_all(handle, text)
        except OSError:
            os.close(handle)
            raise
        return handle
    target = Path(os.path.realpath(path))
    handle, temporary = _temporary(target)
    try:
        write_all(handle, text)
        os.fsync(handle)
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except BaseException:
        os.close(handle)
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return handle


def write_all(handle: int, text: str) -> None:
    """Write every byte: one `os.write` may take only a part, as on a disk that is nearly full. Raises OSError."""
    data = memoryview(text.encode("utf-8", "backslashreplace"))
    while data:
        data = data[os.write(handle, data) :]


def _temporary(target: Path) -> tuple[int, str]:
    """A new locked file beside `target`. What writers that died left there is removed first."""
    import tempfile  # and random with it, and OpenSSL with that, for which --help has no use

    for stray in _strays(target):
        _remove_if_dead(stray)
    while True:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
        _lock(handle, wait=True)
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)  # another writer took it for a dead one's, between its making and its lock


def _strays(target: Path) -> Iterator[Path]:
    try:
        names = os.listdir(target.parent)
    except OSError:
        return  # a folder that can be written but not listed
    for name in names:
        if name.startswith(f".{target.name}.") and name.endswith(".tmp"):
            yield target.parent / name


def _remove_if_dead(stray: Path) -> None:
    """Remove a temporary file that no process holds locked any more."""
    with contextlib.suppress(OSError):
        handle = os.open(stray, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        try:
            if _lock(handle, wait=False):
                os.unlink(stray)
        finally:
            os.close(handle)


def _lock(handle: int, *, wait: bool) -> bool:
    """Lock a file until its process ends or closes it; False where another process holds it, or none can."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Make a rename outlast a power cut. Not every file system can; the file itself is whole either way."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
