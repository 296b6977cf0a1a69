"""Pages kept on disk between runs, used only after the server has said that they are unchanged."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from m3.files import write_atomic

MAX_BYTES = 200_000_000  # of the whole folder; the oldest files go first
_VERSION = 1


class CachedBody(NamedTuple):
    """A body as it was received, with what makes the next request for it conditional."""

    url: str
    final_url: str
    content_type: str
    media: str
    etag: str
    last_modified: str
    body: bytes


class PageCache:
    """A folder of bodies, one file for each URL. A file that cannot be read or written is a miss, never an error."""

    def __init__(self, folder: str | Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._folder = Path(folder).expanduser()
        self._max_bytes = max_bytes

    def get(self, url: str) -> CachedBody | None:
        try:
            fields = json.loads(self._path(url).read_text("utf-8"))
            if fields.pop("version") != _VERSION or fields["url"] != url:
                return None
            return CachedBody(**{**fields, "body": base64.b64decode(fields["body"], validate=True)})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, entry: CachedBody) -> None:
        """Keep a body that has a validator; without one it could never be asked about again."""
        if not (entry.etag or entry.last_modified):
            return
        fields = {**entry._asdict(), "body": base64.b64encode(entry.body).decode("ascii"), "version": _VERSION}
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomic(self._path(entry.url), json.dumps(fields))
            self._shrink()

    def _path(self, url: str) -> Path:
        return self._folder / f"page-{hashlib.sha256(url.encode('utf-8', 'replace')).hexdigest()}.json"

    def _shrink(self) -> None:
        files = sorted(((path.stat(), path) for path in self._folder.glob("page-*.json")), key=lambda f: f[0].st_mtime)
        total = sum(stat.st_size for stat, _ in files)
        for stat, path in files:
            if total <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= stat.st_size
