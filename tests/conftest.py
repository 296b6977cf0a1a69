"""What every test shares: no environment of the developer's, no cache of the user's, no way to the network."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import config
import memory_integration

ROOT = Path(__file__).parent.parent
CASES = Path(os.environ.get("M3_CASES", Path(__file__).parent.parent.parent / "shared" / "cases"))
OWN_CASES = Path(__file__).parent / "cases"
EVERYTHING = bool(os.environ.get("M3_ALL_FAULTS"))  # `make test-faults`: all cases, where else a share of them is taken


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No setting of this machine reaches a test, and nothing a test does reaches the user's folders."""
    for _, f in config.all_settings():
        for name in (f.metadata["env"], *f.metadata["also"]):
            monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    yield


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of one test is no lead for the next run of it. Tests of the memory override this fixture."""
    real = memory_integration.build_memory

    def build(settings: config.Config) -> object:
        return real(settings) if settings.memory.backend else memory_integration.NoMemory()

    monkeypatch.setattr(memory_integration, "build_memory", build)


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to anything but this machine fails the test that opened it."""
    real_connect = socket.socket.connect

    def connect(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        if self.family in (socket.AF_INET, socket.AF_INET6) and not str(host).startswith(("127.", "::1", "localhost")):
            raise AssertionError(f"a test tried to connect to {address!r}")
        real_connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", connect)
