"""How one setting is declared: its variable, default, unit and meaning, and the reading of its text.

Each reader raises ValueError with what is accepted, as the end of the sentence "it must be …".
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import Field, field, fields
from datetime import date
from pathlib import Path
from typing import Any


def setting(
    env: str,
    default: Any,
    meaning: str,
    parse: Callable[[str], Any] = str,
    *,
    unit: str = "",
    flag: str = "",
    secret: bool = False,
    also: tuple[str, ...] = (),
    repeat: bool = False,
) -> Any:
    """Declare a field that is read from the environment variable `env`.

    `parse` turns the text into the value and raises ValueError with what is accepted; `flag` is the command
    line's name for it; `also` lists other variables that are read when `env` is unset; `repeat`: the flag may be
    given several times, its values joined by commas.
    """
    meta = {
        "env": env,
        "meaning": meaning,
        "parse": parse,
        "unit": unit,
        "flag": flag,
        "secret": secret,
        "also": also,
        "repeat": repeat,
    }
    return field(default=default, metadata=meta)


def whole_number(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise ValueError("a whole number of at least 1")
    return value


def port_number(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= 65_535):
        raise ValueError("a port, 1 to 65535")
    return int(text)


def positive_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError("a number greater than 0")
    return value


def switch(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError("1 or 0 (also true/false, yes/no, on/off)")


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return text.lower()

    return parse


def several_of(*choices: str) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
        if not names or any(name not in choices for name in names):
            raise ValueError("one or more of " + ", ".join(choices) + ", comma-separated")
        return names

    return parse


def web_address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("an address that begins with http:// or https://")
    return text.rstrip("/")


def rest_address(text: str) -> str:
    """The REST address of an Upstash database; it is often pasted with quotes, or confused with the redis:// one."""
    text = text.strip("\"' ").rstrip("/")
    if not text.startswith(("http://", "https://")):
        raise ValueError("the REST address of the database, https://….upstash.io, not its redis:// address")
    return text


def unquoted(text: str) -> str:
    return text.strip("\"' ")


def domains(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names or any(not re.fullmatch(r"(?:https?://)?[\w*.:\[\]-]*\w[\w.:\[\]-]*(?:/\S*)?", n) for n in names):
        raise ValueError("a domain such as example.org; several are comma-separated")
    return names


def past_date(text: str) -> str:
    try:
        value = date.fromisoformat(text)
    except ValueError:
        value = date.max
    if value > date.today() or len(text) != 10:
        raise ValueError("a date that is not ahead, such as 2025-01-31")
    return text


def readable_path(text: str) -> str:
    path = Path(os.path.expanduser(text))
    if not os.path.exists(path):  # unlike Path.exists, false too where the folder above may not be entered
        raise ValueError("a folder or file that exists and may be read")
    return str(path.resolve())


def contact_line(text: str) -> str:
    if not (text.isascii() and text.isprintable()) or len(text) > 200 or "(" in text or ")" in text:
        raise ValueError("a mail address or a URL, in plain ASCII")
    return text


def named_hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    for host in hosts:
        name, colon, port = host.partition(":")
        if not re.fullmatch(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?", name) or (
            colon and not re.fullmatch("[0-9]{1,5}", port)
        ):
            raise ValueError("names of hosts, each host or host:port, comma-separated; no wildcards")
    return hosts


def access_token(text: str) -> str:
    if len(text) < 16 or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("at least 16 ASCII characters without blanks")
    return text


def origins(text: str) -> tuple[str, ...]:
    if text.lower() == "none":
        return ()
    found = tuple(dict.fromkeys(part.strip().lower().rstrip("/") for part in text.split(",") if part.strip()))
    if not found or any(not re.fullmatch(r"https?://[a-z0-9.-]+(?::[0-9]{1,5})?", origin) for origin in found):
        raise ValueError("origins such as http://localhost:5173, comma-separated, or none; no wildcards")
    return found


def proxy_address(text: str) -> str:
    if not re.fullmatch(r"http://(?:[^\s@/]+@)?[A-Za-z0-9._-]+(?::[0-9]{1,5})?/?", text):
        raise ValueError("an address such as http://proxy.example:3128 (user:password@ before the host if it asks)")
    return text


def settings_of(group: Any) -> Iterator[Field[Any]]:
    """The fields of a settings group (class or instance) that are read from the environment, in order."""
    return (f for f in fields(group) if "env" in f.metadata)
