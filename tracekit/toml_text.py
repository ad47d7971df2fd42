"""Read the user's TOML files, with the line of each key for error messages."""

from __future__ import annotations

import re
import tomllib
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tracekit.decode import MisfitError, decode, dotted
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.decode import Place


T = TypeVar("T")

_HEADER = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(?:#.*)?")
_LARGEST = 50_000_000


class TomlText:
    """A TOML file.

    Parameters
    ----------
    path : Path
        The file.
    subject : str
        What the file describes, such as 'cluster', for error messages.
    hint : str, optional
        What to do if the file is not TOML or cannot be read.

    Raises
    ------
    UsageError
        The file cannot be read, is too large, or is not TOML. The error gives the line.
    """

    def __init__(self, path: Path, subject: str, hint: str | None = None) -> None:
        self.path = path
        try:
            if path.is_file() and path.stat().st_size > _LARGEST:
                raise UsageError(f"is too large to describe the {subject}", where=path, hint="give a TOML file")
            self._text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            what = f"cannot read the {subject}: {error.strerror or error}"
            raise UsageError(what, where=path, hint=hint) from error
        except UnicodeDecodeError as error:
            raise UsageError("is not UTF-8 text", where=path, hint=f"save the {subject} as UTF-8") from error
        try:
            self.data: dict[str, Any] = tomllib.loads(self._text)
        except (ValueError, RecursionError) as error:
            what = str(error)
            place = re.search(r" \(at line (\d+), column \d+\)$", what)
            line = int(place[1]) if place else self._text.count("\n") + 1
            what = what[: place.start()] if place else what.removesuffix(" (at end of document)")
            raise UsageError(f"is not TOML: {what}", where=path, line=line, hint=hint) from error

    def decode(self, kind: type[T], data: dict[str, Any] | None = None) -> T:
        """Return the file, or `data` from it, as a dataclass (see `tracekit.decode`).

        Raises
        ------
        UsageError
            A key is missing or unknown, or its value is invalid. The error gives the file, line and key.
        """
        try:
            return decode(kind, self.data if data is None else data)
        except MisfitError as error:
            raise self.error(error.place, error.what, error.hint) from None

    def error(self, place: Place, what: str, hint: str | None = None) -> UsageError:
        """Return the error to raise for a key."""
        key = dotted(place)
        return UsageError(f"{key}: {what}" if key else what, where=self.path, line=self.line(place), hint=hint)

    def line(self, place: Place) -> int | None:
        """Return the line of a key or, if it is missing, of the nearest table around it, or None if neither exists."""
        for length in range(len(place), 0, -1):
            if place[:length] in self._lines:
                return self._lines[place[:length]]
        return None

    @cached_property
    def _lines(self) -> dict[Place, int]:
        """Line of each key and table, except keys of inline tables."""
        known: dict[Place, int] = {}
        counts: dict[tuple[str, ...], int] = {}
        table: Place = ()
        for number, raw in enumerate(self._text.split("\n"), 1):
            line = raw.rstrip("\r")
            header = _HEADER.fullmatch(line)
            path = _dotted(header[2]) if header is not None else None
            if header is not None and path is not None and self._has_table(path):
                table = path
                for length in range(1, len(path)):
                    known.setdefault(path[:length], number)
                if header[1] == "[[":
                    counts[path] = counts.get(path, -1) + 1
                    known.setdefault(table, number)
                    table = (*path, counts[path])
                known.setdefault(table, number)
            elif "=" in line:
                path = _dotted(line.partition("=")[0])
                for length in range(1, len(path or ()) + 1):
                    known.setdefault(table + (path or ())[:length], number)
        return known

    def _has_table(self, path: tuple[str, ...]) -> bool:
        """Return whether `path` is a table. A line such as ["a"] inside a list only looks like a header."""
        found: Any = self.data
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
            while isinstance(found, list) and found:
                found = found[-1]
        return isinstance(found, dict)


def _dotted(text: str) -> tuple[str, ...] | None:
    """Return the parts of a dotted key, or None for other lines, such as a line inside a list."""
    try:
        found: Any = tomllib.loads(f"{text} = 0")
    except (ValueError, RecursionError):
        return None
    path: list[str] = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        path.append(name)
    return tuple(path)
