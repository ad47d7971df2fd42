"""The assumption models of a replay: values that no trace records, from models.toml and the user's file.

Three modules convert them to integers for the engine: `speeds` (rates in ppm of the recorded speed), `costs` (overheads
in ms, power in mW) and `of_jobs` (assumptions about each job).
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

from tracekit.errors import UsageError, nearest
from tracekit.replay.assumptions.sections import Sections
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


# Read a models file: TOML that overrides the built-in file, checked against the types of the sections. Errors name the
# line.

_NOTE_KEYS = ("ids", "title", "says", "sources")


@dataclass(frozen=True)
class Note:
    """The built-in file's description of a section."""

    ids: tuple[str, ...]
    title: str
    says: str
    """Template of the line that a result prints; {key} is a field of the section."""
    sources: tuple[tuple[tuple[str, ...], str, str], ...]
    """For some keys each: the source of their numbers, and the kind of evidence."""


def read_notes(document: TomlText) -> dict[str, Note]:
    """Return the built-in file's description of each of its sections."""
    notes = {}
    for section, data in document.data.items():
        sources = tuple((tuple(s["of"]), s["from"], s["evidence"]) for s in data["sources"])
        notes[section] = Note(tuple(data["ids"]), data["title"], data["says"], sources)
    return notes


def read_sections(built_in: TomlText, user: TomlText | None) -> Sections:
    """Return all sections, with the built-in keys overridden by the user's.

    Raises
    ------
    UsageError
        A key is unknown, or its value has the wrong type, is out of range or contradicts other values.
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
    """Return `own`, overridden by the entries of `given`, table by table.

    A class with defaults, such as a preset, is replaced as a whole: its alternative forms exclude each other.
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
    """Reject sections that do not exist. The error for an id such as M4 names its section.

    Raises
    ------
    UsageError
        A section does not exist.
    """
    by_id = {id_.lower(): name for name, note in notes.items() for id_ in note.ids}
    for section in user.data:
        if section not in notes:
            name = by_id.get(section.lower())
            hint = f"{section} is the section [{name}]" if name else nearest(section[:80], notes)
            raise user.error((section,), "no such section", hint)


_BUILT_IN = Path(__file__).with_name("models.toml")


@dataclass(frozen=True)
class Models(Sections):
    """All assumption models, as made by `load_models`."""

    notes: dict[str, Note]
    """The built-in file's description of each section, by the section's name."""
    file: str = ""
    """Name of the user's file, or '' if there is none."""
    changed: dict[str, tuple[str, ...]] | None = None
    """Keys that the user's file sets, by section."""

    @property
    def ids(self) -> dict[str, str]:
        """Section name of each id, such as M4."""
        return {id_: section for section, note in self.notes.items() for id_ in note.ids}


def load_models(path: Path | None = None) -> Models:
    """Return the built-in models, overridden by the user's file.

    Parameters
    ----------
    path : Path, optional
        A TOML file with any of the keys in models.toml.

    Raises
    ------
    UsageError
        The file cannot be read, or a key or value is invalid. The error names the line.

    Examples
    --------
    >>> load_models().spread.b
    0.3
    """
    if path is None:
        return _built_in()
    built_in, notes = _shipped()
    user = TomlText(Path(path), "models")
    unknown_sections(user, notes)
    sections = vars(read_sections(built_in, user))
    changed = {section: tuple(_leaves(data)) for section, data in user.data.items()}
    return Models(**sections, notes=notes, file=user.path.name, changed=changed)


@cache
def _built_in() -> Models:
    document, notes = _shipped()
    return Models(**vars(read_sections(document, None)), notes=notes)


@cache
def _shipped() -> tuple[TomlText, dict[str, Note]]:
    document = TomlText(_BUILT_IN, "models")
    return document, read_notes(document)


def _leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def used_assumptions(models: Models, names: Iterable[str], overhead: str | None = None) -> dict[str, dict[str, str]]:
    """Return what a result prints about its assumptions.

    Parameters
    ----------
    models : Models
        The models that were used.
    names : iterable of str
        Ids such as 'M4'. Each section gives one entry, under the first of its ids that is named.
    overhead : str, optional
        The policy's overhead preset, shown under M9. By default, the preset in models.toml.

    Returns
    -------
    dict
        Title, value and source by id, each on one line, in the order of models.toml.

    Raises
    ------
    UsageError
        The id or preset does not exist.
    """
    sections_used: dict[str, str] = {}
    for name in names:
        if name not in models.ids:
            raise UsageError(f"no assumption has the name '{name}'", hint=nearest(name, models.ids))
        sections_used.setdefault(models.ids[name], name)
    preset = overhead or models.overhead.default
    if preset not in models.overhead.presets:
        raise UsageError(f"'{preset}' is not an overhead preset", hint=nearest(preset, models.overhead.presets))
    return {
        sections_used[section]: {
            "title": note.title,
            "value": _one_line(_value(models, section, preset)),
            "source": _one_line(_source(models, section, preset)),
        }
        for section, note in models.notes.items()
        if section in sections_used
    }


class _Fields(dict[str, object]):
    """Lets str.format_map read the fields and properties of a section."""

    def __init__(self, section: object) -> None:
        super().__init__()
        self._section = section

    def __missing__(self, key: str) -> object:
        return getattr(self._section, key)


def _value(models: Models, section: str, preset: str) -> str:
    line = models.notes[section].says.format_map(_Fields(getattr(models, section)))
    if section == "overhead":
        return f"{models.overhead.presets[preset]} (the values called '{preset}'); {line}"
    return line


def _source(models: Models, section: str, preset: str) -> str:
    """Describe the sources of the numbers that are in use."""
    chosen = {"presets": preset, "levels": getattr(getattr(models, section), "level", None)}
    parts = []
    changed = (models.changed or {}).get(section)
    if changed:
        parts.append(f"{', '.join(changed)}: the user's own, from {models.file}")
    for of, origin, evidence in models.notes[section].sources:
        keys = [key for key in of if _in_use(key, chosen)]
        if keys or not of:
            parts.append(f"{', '.join(keys)}: {origin} ({evidence})".removeprefix(": "))
    return "; ".join(parts)


def _one_line(text: str) -> str:
    """Escape unprintable characters in a string: the user's names may contain line breaks."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _in_use(key: str, chosen: Mapping[str, str | None]) -> bool:
    table, _, name = key.partition(".")
    return not name or table not in chosen or chosen[table] == name
