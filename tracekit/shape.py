"""Turn what a JSON file holds into dataclasses, and refuse any other shape.

Files come from anywhere: a list where a table is expected, a text where a number is, or a number beyond 64 bits has
to end in one sentence that names the place.
"""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["ShapeError", "shaped"]

T = TypeVar("T")

_NAME_LIMIT = 60
_LARGEST = 2**63 - 1
_WORDS = {str: "a text", int: "a whole number from 0", float: "a number", bool: "true or false", NoneType: "null"}


class ShapeError(ValueError):
    """A value of another shape than its place asks for."""


def shaped(kind: type[T], value: object) -> T:
    """Return `value`, as JSON gives it, as an instance of the dataclass `kind`.

    Its fields may be text, whole numbers from 0 to 2**63 - 1, finite numbers, truth values, null, words of a
    Literal, other dataclasses, and lists, pairs and dictionaries of these.

    Raises
    ------
    ShapeError
        A part is missing, is not known, or has another type; the message names the place.
    """
    found: T = _dataclass(kind, value, "")
    return found


def _dataclass(kind: Any, value: object, place: str) -> Any:
    if not isinstance(value, dict):
        raise ShapeError(f"{place or 'it'} is {_called(value)}, not an object")
    parts = _parts(kind)
    for name in value:
        if name not in parts:
            raise ShapeError(f"{place or 'it'} has an unknown part '{name[:_NAME_LIMIT]}'")
    for name, (_, needed) in parts.items():
        if needed and name not in value:
            raise ShapeError(f"{place or 'it'} lacks '{name}'")
    return kind(**{name: _of(parts[name][0], part, _below(place, name)) for name, part in value.items()})


@cache
def _parts(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return type of each field, and whether it has to be there."""
    hints, missing = get_type_hints(kind), dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
    }


def _below(place: str, name: str) -> str:
    return f"{place}.{name[:_NAME_LIMIT]}" if place else name[:_NAME_LIMIT]


def _of(kind: Any, value: Any, place: str) -> Any:
    """Return `value` as the type `kind`."""
    inner = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return None if value is None and NoneType in inner else _of(_known(inner), value, place)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, place)
    if inner and isinstance(value, list | dict):
        return _collection(kind, value, place)
    if not _is_plain(kind, value):
        raise ShapeError(f"{place} is {_called(value)}, not {_asked(kind)}")
    return value


def _known(kinds: tuple[Any, ...]) -> Any:
    return next(kind for kind in kinds if kind is not NoneType)


def _collection(kind: Any, value: Any, place: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list and isinstance(value, list):
        return [_of(inner[0], part, f"{place}[{i}]") for i, part in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {name: _of(inner[1], part, _below(place, name)) for name, part in value.items()}
    if origin is tuple and isinstance(value, list) and len(value) == len(inner):
        return tuple(_of(part, each, f"{place}[{i}]") for i, (part, each) in enumerate(zip(inner, value, strict=True)))
    raise ShapeError(f"{place} is {_called(value)}, not {_asked(kind)}")


def _is_plain(kind: Any, value: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is int:
        return type(value) is int and 0 <= value <= _LARGEST
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is kind


def _asked(kind: Any) -> str:
    origin: Any = get_origin(kind)
    inner = get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    known: dict[Any, str] = {list: "a list", dict: "an object", tuple: f"a list of {len(inner)}"}
    return _WORDS[kind] if origin is None else known[origin]


def _called(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {value:g}"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return _WORDS[type(value)]
