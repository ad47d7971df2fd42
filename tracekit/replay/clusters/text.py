"""The text of a cluster file: its values, and the line of each key for errors."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ClusterText"]

_HEADER = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(?:#.*)?")
_LARGEST = 50_000_000


class ClusterText:
    """A cluster file.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    UsageError
        It cannot be read or is not TOML.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.is_file() and path.stat().st_size > _LARGEST:
                raise UsageError("is too large for a cluster file", where=path, hint="give a TOML file")
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise UsageError(f"cannot read the cluster: {error.strerror or error}", where=path) from error
        except UnicodeDecodeError as error:
            raise UsageError("is not UTF-8 text", where=path, hint="save the cluster as UTF-8") from error
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            what = str(error)
            place = re.search(r" \(at line (\d+), column \d+\)$", what)
            line = int(place[1]) if place else text.count("\n") + 1
            what = what[: place.start()] if place else what.removesuffix(" (at end of document)")
            raise UsageError(f"is not TOML: {what}", where=path, line=line) from error
        self._text = text

    def error(self, place: tuple[str | int, ...], what: str, hint: str | None = None) -> UsageError:
        """Return the error to raise for a key; numbers in its place count the tables of a list from 0."""
        line = self._line(place)
        shown = ""
        for part in place:
            if isinstance(part, int):
                shown += f"[{part + 1}]"
            else:
                shown += ("." if shown else "") + part[:80]
        return UsageError(f"{shown}: {what}" if shown else what, where=self.path, line=line, hint=hint)

    def _line(self, place: tuple[str | int, ...]) -> int | None:
        """Return the line of a key, or of the nearest table around it."""
        known = _lines(self._text)
        for length in range(len(place), 0, -1):
            if place[:length] in known:
                return known[place[:length]]
        return None


def _lines(text: str) -> dict[tuple[str | int, ...], int]:
    """Return the line at which each key and table stands, by its place."""
    known: dict[tuple[str | int, ...], int] = {}
    counts: dict[tuple[str, ...], int] = {}
    table: tuple[str | int, ...] = ()
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r")
        header = _HEADER.fullmatch(line)
        path = _dotted(header[2]) if header is not None else None
        if header is not None and path is not None:
            table = path
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


def _dotted(text: str) -> tuple[str, ...] | None:
    """Return the parts of a dotted key; None where the text is none, such as a line inside a list."""
    try:
        found: Any = tomllib.loads(f"{text} = 0")
    except (ValueError, RecursionError):
        return None
    path: list[str] = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        path.append(name)
    return tuple(path)
