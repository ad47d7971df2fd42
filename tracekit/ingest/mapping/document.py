"""A TOML document whose every mistake is one line with the file and the key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError, nearest
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Section", "read_document"]


class Section:
    """One table of a TOML document, with typed access to its entries.

    Parameters
    ----------
    data : dict
        The table.
    file : Path
        The document, for messages.
    path : str
        Dotted key of the table, '' for the whole document.
    """

    def __init__(self, data: dict[str, Any], file: Path, path: str = "") -> None:
        self.data = data
        self.file = file
        self.path = path

    def key(self, name: str | None = None) -> str:
        """Return the dotted key of an entry, or of the table itself."""
        return ".".join(part for part in (self.path, name) if part)

    def error(self, what: str, name: str | None = None, hint: str | None = None) -> UsageError:
        """Return the error to raise for an entry."""
        key = self.key(name)
        return UsageError(what, where=f"{self.file}, key {key}" if key else self.file, hint=hint)

    def only(self, allowed: Iterable[str]) -> None:
        """Refuse entries under other names.

        Raises
        ------
        UsageError
            There is an unknown key.
        """
        known = list(allowed)
        for name in self.data:
            if name not in known:
                raise self.error("no such key", name, nearest(name, known))

    def section(self, name: str) -> Section | None:
        """Return the table under a key, None when it is absent."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error("is not a table", name, f"write [{self.key(name)}]")
        return Section(value, self.file, self.key(name))

    def text(self, name: str) -> str | None:
        """Return a text, None when it is absent."""
        value = self.data.get(name)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.error("is not a text", name, 'write it in quotes: "..."')
        return value

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return a list of texts; a single text stands for a list of one."""
        value = self.data.get(name)
        if value is None:
            return None
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(v, str) for v in values):
            raise self.error("is not a text or a list of texts", name, 'write ["...", "..."]')
        return tuple(values)

    def choice(self, name: str, choices: Iterable[str]) -> str | None:
        """Return one of several words, None when it is absent."""
        value = self.text(name)
        if value is not None and value not in choices:
            raise self.error(f"'{value}' is not one of its values", name, nearest(value, choices))
        return value


def read_document(file: Path) -> Section:
    """Read a TOML file.

    Raises
    ------
    UsageError
        The file cannot be read, or is not TOML; the line is told.
    """
    return Section(TomlText(file, "mapping", "see docs/mapping.md").data, file)
