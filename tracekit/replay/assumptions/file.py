"""Read a models file: TOML over the built-in one, checked against the sections' types; errors name the line."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

from tracekit.errors import nearest
from tracekit.replay.assumptions.sections import Sections

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.toml_text import TomlText

__all__ = ["Note", "read_notes", "read_sections", "unknown_sections"]

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


def read_sections(built_in: TomlText, user: TomlText | None) -> Sections:
    """Return all sections, the user's keys over the built-in ones.

    Raises
    ------
    UsageError
        A key is unknown, or its value has the wrong type, is out of range or does not fit the others.
    """
    merged = {
        section: {key: value for key, value in data.items() if key not in _NOTE_KEYS}
        for section, data in built_in.data.items()
    }
    read = built_in
    if user is not None:
        read, merged = user, _overlay(Sections, merged, user.data)
    found = read.decode(Sections, merged)
    for section, values in vars(found).items():
        for key, what in values.faults():
            raise read.error((section, *key.split(".")), what)
    return found


def _overlay(kind: Any, own: Any, given: Any) -> Any:
    """Return `own` with the entries of `given` over it, table by table.

    A class with defaults, such as a preset, is replaced as a whole: its forms exclude each other.
    """
    whole = is_dataclass(kind) and any(f.default is not MISSING for f in fields(cast("Any", kind)))
    if not (isinstance(own, dict) and isinstance(given, dict)) or whole:
        return given
    hints = get_type_hints(kind) if is_dataclass(kind) else {}
    inner = get_args(kind)[1] if get_origin(kind) is dict else None
    return own | {
        key: _overlay(hints.get(key, inner), own[key], value) if key in own else value for key, value in given.items()
    }


def unknown_sections(user: TomlText, notes: Mapping[str, Note]) -> None:
    """Refuse sections that do not exist; the error for an id such as M4 names its section.

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
