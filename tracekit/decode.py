"""Decode the values of TOML and JSON files into dataclasses, and reject values of any other shape.

The type of a field determines the allowed values: a string, a Boolean, a number (`Annotated` with its `Range`), a date,
one of several words (`Literal`), a list, a table with free keys (`dict`) or fixed keys (a dataclass), or a choice (`|`)
between these if they differ in shape. Files can come from anywhere, so any other value raises a one-sentence error with
its location.
"""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from tracekit.errors import nearest

T = TypeVar("T")

Place = tuple[str | int, ...]
"""Path of a value, made of keys, table names and list indices from 0."""


class MisfitError(ValueError):
    """A value of a shape that its type does not allow. The hint says what to write instead."""

    def __init__(self, place: Place, what: str, hint: str | None = None) -> None:
        self.place, self.what, self.hint = place, what, hint
        super().__init__(f"{dotted(place)}: {what}" if place else what)


@dataclass(frozen=True)
class Range:
    """The range of a number, with both ends included."""

    minimum: float
    maximum: float

    def fault(self, value: Any) -> tuple[str, str] | None:
        """Return the problem with a number and a hint, or None if the number is allowed."""
        if self.minimum <= value <= self.maximum:
            return None
        return (
            f"{abbreviated(value)} is out of range",
            f"it may be from {_plain(self.minimum)} to {_plain(self.maximum)}",
        )


class NonEmpty:
    """A non-empty list, or a non-empty string without a zero byte, which no path can contain."""

    def fault(self, value: Any) -> tuple[str, str] | None:
        """Return the problem with a string or list and a hint, or None if the value is allowed."""
        if isinstance(value, str) and "\0" in value:
            return f"{abbreviated(value)} contains a zero byte", "remove it"
        return None if value else ("is empty", "write something, or leave the key out")


Count = Annotated[int, Range(0, 2**63 - 1)]
Text = Annotated[str, NonEmpty()]

_FORMS: dict[Any, tuple[tuple[type, ...], tuple[str, ...]]] = {
    bool: ((bool,), ("true", "false")),
    int: ((int,), ("a whole number",)),
    float: ((int, float), ("a number",)),
    str: ((str,), ("a text",)),
    dt.date: ((dt.date,), ("a date",)),
    list: ((list,), ("a list",)),
    dict: ((dict,), ("a table",)),
    NoneType: ((NoneType,), ()),
    object: ((object,), ()),
}
"""Python types of each form of value, and the names of the form in messages."""

_WIDEST = {int: Range(-(2**63), 2**63 - 1), float: Range(-sys.float_info.max, sys.float_info.max)}


class _Kind(NamedTuple):
    """One of the types allowed at a location."""

    type: Any
    form: Any
    """Key of the type in `_FORMS`."""
    inner: tuple[Any, ...]
    """Types inside lists and tables, or the allowed words."""
    bounds: tuple[Range | NonEmpty, ...]


def decode(kind: type[T], value: object) -> T:
    """Return `value`, parsed from TOML or JSON, as an instance of the dataclass `kind`.

    If a field's name ends in '_', its key is the name without it.

    Raises
    ------
    MisfitError
        A key is missing or unknown, or a value does not fit its type.
    """
    found: T = _of(kind, value, ())
    return found


def _of(hint: Any, value: Any, place: Place) -> Any:
    kinds = _kinds(hint)
    kind = next((one for one in kinds if _is_form(one.form, value)), None)
    if kind is None:
        raise MisfitError(place, f"{abbreviated(value)} is {_other_than(kinds)}", _advice(kinds[0], place))
    for bound in kind.bounds:
        fault = bound.fault(value)
        if fault is not None:
            raise MisfitError(place, *fault)
    if kind.form is dict:
        if not kind.inner:
            return _record(kind.type, value, place)
        return {key: _of(kind.inner[1], item, (*place, key)) for key, item in value.items()}
    if kind.form is list:
        return get_origin(kind.type)(_entries(kind.inner, value, place))
    if kind.inner and value not in kind.inner:
        hint = nearest(str(value)[:80], map(str, kind.inner))
        raise MisfitError(place, f"{abbreviated(value)} is not an allowed value", hint)
    return float(value) if kind.form is float else value


@cache
def _kinds(hint: Any) -> tuple[_Kind, ...]:
    """Return the types that a field's type `hint` allows."""
    found = []
    for one in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        kind, *bounds = get_args(one) if get_origin(one) is Annotated else (one,)
        origin, inner = get_origin(kind), get_args(kind)
        form = type(inner[0]) if origin is Literal else list if origin is tuple else origin or kind
        form = dict if is_dataclass(form) else form
        widest = (_WIDEST[form],) if form in _WIDEST and not bounds else ()
        found.append(_Kind(kind, form, inner, (*bounds, *widest)))
    return tuple(found)


def _record(kind: Any, value: dict[str, Any], place: Place) -> Any:
    parts = _parts(kind)
    for key in value:
        if key not in parts:
            raise MisfitError((*place, key), "no such key", nearest(key[:80], parts))
    for key, (_, _, needed) in parts.items():
        if needed and key not in value:
            first = sorted(parts, key=lambda one: not parts[one][2])
            raise MisfitError(place, f"has no {key}", f"its keys are: {', '.join(first)}")
    return kind(**{parts[key][0]: _of(parts[key][1], item, (*place, key)) for key, item in value.items()})


@cache
def _parts(kind: Any) -> dict[str, tuple[str, Any, bool]]:
    """Return the name and type of each field, and whether it is required, by key."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        f.name.removesuffix("_"): (f.name, hints[f.name], f.default is MISSING and f.default_factory is MISSING)
        for f in fields(kind)
    }


def _entries(inner: tuple[Any, ...], value: list[Any], place: Place) -> list[Any]:
    if len(inner) == 1 or inner[1] is ...:
        return [_of(inner[0], item, (*place, number)) for number, item in enumerate(value)]
    if len(value) != len(inner):
        raise MisfitError(place, f"is not a list of {len(inner)}")
    return [_of(one, item, (*place, number)) for number, (one, item) in enumerate(zip(inner, value, strict=True))]


def _is_form(form: Any, value: Any) -> bool:
    # In Python, a Boolean is also an integer.
    return isinstance(value, _FORMS[form][0]) and (not isinstance(value, bool) or form in (bool, object))


def _other_than(kinds: tuple[_Kind, ...]) -> str:
    names = [name for kind in kinds for name in _FORMS[kind.form][1]]
    return f"neither {' nor '.join(names)}" if len(names) > 1 else f"not {names[0]}"


def _advice(kind: _Kind, place: Place) -> str | None:
    if kind.form is list:
        return f"write [[{dotted(place)}]]" if is_dataclass(kind.inner[0]) else "write [..., ...]"
    if kind.form is dict and not kind.inner and place and isinstance(place[-1], int):
        return f"write {{{', '.join(f'{key} = ...' for key in _parts(kind.type))}}}"
    return (
        f"write [{dotted(place)}]" if kind.form is dict else 'write it in quotes: "..."' if kind.form is str else None
    )


def _plain(number: float) -> str:
    return f"{int(number):,}" if number == int(number) and abs(number) < 2**64 else f"{number:,g}"


def dotted(place: Place) -> str:
    """Return a location as text for the user, with list indices from 1.

    >>> dotted(("pool", 1, "nodes"))
    'pool[2].nodes'
    """
    text = ""
    for part in place:
        text += f"[{part + 1}]" if isinstance(part, int) else ("." if text else "") + part[:80]
    return text


def abbreviated(value: object) -> str:
    """Return a value short enough for a message."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**18:
        return "a number of too many digits"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
