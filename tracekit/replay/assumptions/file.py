"""Read a models file: TOML over the built-in one, checked against the sections' types; mistakes tell their line."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from tracekit.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.replay.assumptions.sections import Range
    from tracekit.toml_text import TomlText

__all__ = ["Note", "read_notes", "read_section", "unknown_sections"]

_NOTE_KEYS = ("ids", "title", "says", "sources")


@dataclass(frozen=True)
class Note:
    """What the built-in file says about a section."""

    ids: tuple[str, ...]
    title: str
    says: str
    """Template of the line that a result prints; {key} is a field of the section."""
    sources: tuple[tuple[tuple[str, ...], str, str], ...]
    """Keys, where their numbers are from, and the kind of evidence."""


def read_notes(document: TomlText) -> dict[str, Note]:
    """Return what the built-in file says about each of its sections."""
    notes = {}
    for section, data in document.data.items():
        sources = tuple((tuple(s["of"]), s["from"], s["evidence"]) for s in data["sources"])
        notes[section] = Note(tuple(data["ids"]), data["title"], data["says"], sources)
    return notes


def read_section(kind: type, section: str, built_in: TomlText, user: TomlText | None) -> Any:
    """Return one section, the user's keys over the built-in ones.

    Parameters
    ----------
    kind : type
        Class of tracekit.replay.assumptions.sections.
    section : str
        Name of the section.
    built_in, user : TomlText
        The files.

    Raises
    ------
    UsageError
        A key is unknown, or its value has the wrong type, is out of range or does not fit the others.
    """
    own = {key: value for key, value in built_in.data[section].items() if key not in _NOTE_KEYS}
    given = {} if user is None else user.data.get(section, {})
    blame = user if user is not None and section in user.data else built_in
    if not isinstance(given, dict):
        raise blame.error((section,), "is not a table", f"write [{section}]")
    read = _Reader(blame)
    merged = _overlay(kind, own, given)
    found = read.value(kind, merged, (section,))
    for key, what in found.faults():
        raise blame.error((section, *key.split(".")), what)
    return found


def _overlay(kind: Any, own: Any, given: Any) -> Any:
    """Return `own` with the entries of `given` over it, table by table.

    A class with defaults, such as a preset, is replaced as a whole: its forms exclude each other.
    """
    whole = is_dataclass(kind) and any(f.default is not MISSING for f in fields(cast("Any", kind)))
    if not (isinstance(own, dict) and isinstance(given, dict)) or whole:
        return given
    hints = _hints(cast("Any", kind)) if is_dataclass(kind) else {}
    inner = get_args(kind)[1] if get_origin(kind) is dict else None
    return own | {
        key: _overlay(hints.get(key, inner), own[key], value) if key in own else value for key, value in given.items()
    }


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


class _Reader:
    """Turns TOML values into the types of the sections."""

    def __init__(self, document: TomlText) -> None:
        self._document = document

    def value(self, hint: Any, value: Any, path: tuple[str, ...]) -> Any:
        origin = get_origin(hint)
        if origin in (UnionType, Union):
            return self.value(next(arg for arg in get_args(hint) if arg is not NoneType), value, path)
        if is_dataclass(hint) or origin in (dict, tuple):
            return self._several(hint, value, path)
        if origin is Annotated:
            base, bounds = get_args(hint)
            return self._number(base, bounds, value, path)
        return self._word(hint, value, path)

    def _several(self, hint: Any, value: Any, path: tuple[str, ...]) -> Any:
        if is_dataclass(hint):
            return self._record(hint, value, path)
        if get_origin(hint) is dict:
            self._table(value, path)
            return {key: self.value(get_args(hint)[1], item, (*path, key)) for key, item in value.items()}
        if not isinstance(value, list):
            raise self._wrong(path, f"{_shown(value)} is not a list", "write [..., ...]")
        return tuple(self.value(get_args(hint)[0], item, path) for item in value)

    def _word(self, hint: Any, value: Any, path: tuple[str, ...]) -> Any:
        if hint is bool:
            if not isinstance(value, bool):
                raise self._wrong(path, f"{_shown(value)} is neither true nor false")
            return value
        if not isinstance(value, str):
            raise self._wrong(path, f"{_shown(value)} is not a text", 'write it in quotes: "..."')
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise self._wrong(path, f"{_shown(value)} is not one of its values", nearest(value[:80], get_args(hint)))
        return value

    def _record(self, kind: Any, value: Any, path: tuple[str, ...]) -> Any:
        self._table(value, path)
        known = fields(kind)
        names = [f.name for f in known]
        for key in value:
            if key not in names:
                raise self._wrong((*path, key), "no such key", nearest(key[:80], names))
        for f in known:
            if f.name not in value and f.default is MISSING:
                raise self._wrong(path, f"has no {f.name}", f"its keys are: {', '.join(names)}")
        hints = _hints(kind)
        return kind(**{key: self.value(hints[key], item, (*path, key)) for key, item in value.items()})

    def _table(self, value: Any, path: tuple[str, ...]) -> None:
        if not isinstance(value, dict):
            raise self._wrong(path, f"{_shown(value)} is not a table", f"write [{'.'.join(path)[:80]}]")

    def _number(self, base: Any, bounds: Range, value: Any, path: tuple[str, ...]) -> Any:
        if value in bounds.words and isinstance(value, str):
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            if bounds.words and isinstance(value, str):
                raise self._wrong(path, f"{_shown(value)} is not one of its values", nearest(value[:80], bounds.words))
            raise self._wrong(path, f"{_shown(value)} is not a number")
        whole = base is int
        if whole and not isinstance(value, int):
            raise self._wrong(path, f"{_shown(value)} is not a whole number")
        if not bounds.minimum <= value <= bounds.maximum:
            limits = f"from {bounds.minimum:,g} to {bounds.maximum:,g}"
            raise self._wrong(path, f"{_shown(value)} is out of range", f"it may be {limits}")
        return value if whole else float(value)

    def _wrong(self, path: tuple[str, ...], what: str, hint: str | None = None) -> UsageError:
        return self._document.error(path, what, hint)


def _shown(value: object) -> str:
    """Return a value short enough for a message."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**18:
        return "a number of too many digits"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def unknown_sections(user: TomlText, notes: Mapping[str, Note]) -> None:
    """Refuse sections that do not exist; an id such as M4 is told the name of its section.

    Raises
    ------
    UsageError
        There is one.
    """
    by_id = {id_.lower(): name for name, note in notes.items() for id_ in note.ids}
    for section in user.data:
        if section not in notes:
            name = by_id.get(section.lower())
            hint = f"{section} is the section [{name}]" if name else nearest(section[:80], notes)
            raise user.error((section,), "no such section", hint)
