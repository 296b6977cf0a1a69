"""Records to plain JSON data and back, by their type hints; nothing but the named classes is ever built."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class CodecError(ValueError):
    """Plain data that does not have the shape of the record it should become."""


_SCALARS = frozenset({str, int, float, bool, type(None)})


@lru_cache(maxsize=256)
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def to_plain(value: Any) -> Any:
    """Dataclasses become dictionaries, tuples lists; everything must end in JSON's own types."""
    if is_dataclass(value) and not isinstance(value, type):
        plain = {name: getattr(value, name) for name in _names(type(value))}
        # A long page has some hundred thousand values, nearly all of them of JSON's own types.
        return {name: item if type(item) in _SCALARS else to_plain(item) for name, item in plain.items()}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise CodecError(f"{type(value).__name__} cannot be stored")


def from_plain(kind: type[T], data: Any) -> T:
    """Rebuild a record of `kind`. Unknown keys are ignored, missing ones take the field's default.

    Raises CodecError where the data does not fit.
    """
    return _decode(kind, data, kind.__name__)  # type: ignore[no-any-return]


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode(hint: Any, data: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return data
    if isinstance(hint, type) and is_dataclass(hint):
        return _decode_record(hint, data, where)
    if origin in (Union, types.UnionType):
        return _decode_union(args, data, where)
    if origin is Literal:
        if data not in args:
            raise CodecError(f"{where} is {data!r:.60}, not one of {args}")
        return data
    if origin in (tuple, list, Sequence):
        if not isinstance(data, list):
            raise CodecError(f"{where} must be a list")
        if origin is tuple and args and args[-1] is not Ellipsis:
            if len(data) != len(args):
                raise CodecError(f"{where} must have {len(args)} items")
            pairs = enumerate(zip(args, data, strict=True))
            return tuple(_decode(arg, item, f"{where}[{i}]") for i, (arg, item) in pairs)
        inner = args[0] if args else Any
        items = [_decode(inner, item, f"{where}[{i}]") for i, item in enumerate(data)]
        return tuple(items) if origin is tuple else items
    if origin in (dict, Mapping) or hint in (dict, Mapping):
        if not isinstance(data, dict):
            raise CodecError(f"{where} must be an object")
        inner = args[1] if args else Any
        return {key: _decode(inner, item, f"{where}.{key}") for key, item in data.items()}
    return _decode_scalar(hint, data, where)


def _decode_record(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise CodecError(f"{where} must be an object")
    hints = _hints(kind)
    given = {
        name: data[name] if type(data[name]) is hints[name] else _decode(hints[name], data[name], f"{where}.{name}")
        for name in _names(kind)
        if name in data
    }
    try:
        return kind(**given)
    except TypeError as problem:
        raise CodecError(f"{where}: {problem}") from None


def _decode_union(args: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in args:
        return None
    problems = []
    for arg in args:
        if arg is not type(None):
            try:
                return _decode(arg, data, where)
            except CodecError as problem:
                problems.append(str(problem))
    raise CodecError(problems[0] if problems else f"{where} does not fit")


def _decode_scalar(hint: Any, data: Any, where: str) -> Any:
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if isinstance(hint, type) and isinstance(data, hint) and not (hint is int and isinstance(data, bool)):
        return data
    raise CodecError(f"{where} is {type(data).__name__}, not {getattr(hint, '__name__', hint)}")
