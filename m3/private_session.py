"""HTTP sessions for calls that carry a key: whatever debugging the process has turned on, none of it prints the key.

`http.client` prints whole requests where its `debuglevel` is set, and urllib3 logs addresses, which hold the key of
some services. Both are switches of the whole process, and a program that imports this one may need them: they are left
as they are, and only the calls made through these sessions keep their secrets.
"""

from __future__ import annotations

import logging
import threading
from functools import lru_cache
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from config import redact

_sending = threading.local()  # .private: true while this thread sends something through a private session


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        super().init_poolmanager(*args, **more)
        _make_private(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **more: Any) -> Any:
        manager = super().proxy_manager_for(*args, **more)
        _make_private(manager)
        return manager

    def send(self, *args: Any, **more: Any) -> requests.Response:
        _sending.private = True
        try:
            return super().send(*args, **more)
        finally:
            _sending.private = False


def _make_private(manager: Any) -> None:
    """Give urllib3's manager connections that print nothing."""
    pools = manager.pool_classes_by_scheme
    manager.pool_classes_by_scheme = {scheme: _private(pool) for scheme, pool in pools.items()}


@lru_cache
def _private(pool: Any) -> Any:
    """A class of connection pool whose connections have a `debuglevel` of their own, which hides the common one."""
    if pool.__name__ == "PrivatePool":
        return pool  # the manager of a proxy is asked for again
    connection = type("PrivateConnection", (pool.ConnectionCls,), {"debuglevel": 0})
    return type("PrivatePool", (pool,), {"ConnectionCls": connection})


class _Redacting(logging.Filter):
    """Takes secrets out of what urllib3 says about a private session; every other record passes as it is."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(_sending, "private", False):
            record.msg, record.args = redact(record.getMessage()), ()
        return True


def private_session() -> requests.Session:
    """A session of `requests` that behaves as any other but prints and logs no secret."""
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter())
    for name in ("urllib3.connectionpool", "urllib3.connection", "urllib3.util.retry"):
        logger = logging.getLogger(name)
        if not any(isinstance(one, _Redacting) for one in logger.filters):
            logger.addFilter(_Redacting())
    return session
