"""What is known of the public traces: catalog.toml as objects."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tracekit.errors import UsageError, nearest

__all__ = ["Dataset", "RemoteFile", "all_datasets", "find_dataset"]


@dataclass(frozen=True)
class RemoteFile:
    """One file of a public trace."""

    name: str
    """Name under which it is saved, without folders."""
    urls: tuple[str, ...]
    """Where it is, in the order to try; one that ends in * names the parts aa, ab, ... of a split file."""
    bytes: int | None = None
    """Exact size, where it is known."""
    about_bytes: int | None = None
    """Size as a rough figure, only to be shown."""
    sha256: str | None = None
    """SHA-256 of the content, in hexadecimal, where it is known."""
    sha256_from: str | None = None
    """'publisher', 'git-lfs' or 'recorded'; the head of catalog.toml tells what they mean."""


@dataclass(frozen=True)
class Dataset:
    """A public trace."""

    name: str
    title: str
    format: str
    """The source format that reads it, as in 'tracekit formats'."""
    licence: str
    citation: str
    """The study to cite: authors, title, venue and year."""
    paper: str
    """Address of that study."""
    origin: str
    """Page of the publisher."""
    remark: str
    """What to know before fetching it, '' for nothing."""
    files: tuple[RemoteFile, ...]

    @property
    def bytes(self) -> int:
        """Size of all files; rough where `size_is_exact` says so."""
        return sum(f.bytes or f.about_bytes or 0 for f in self.files)

    @property
    def size_is_exact(self) -> bool:
        """Whether the size of every file is known exactly."""
        return all(f.bytes is not None for f in self.files)


@cache
def all_datasets() -> dict[str, Dataset]:
    """Return every public trace by name, in the order of the catalog."""
    with Path(__file__).with_name("catalog.toml").open("rb") as file:
        entries = tomllib.load(file)["dataset"]
    return {entry["name"]: _dataset(entry) for entry in entries}


def _dataset(entry: dict[str, Any]) -> Dataset:
    files = tuple(RemoteFile(**{**f, "urls": tuple(f["urls"])}) for f in entry["file"])
    facts = {key: value for key, value in entry.items() if key != "file"}
    return Dataset(files=files, **facts)


def find_dataset(name: str) -> Dataset:
    """Return the public trace called `name`.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    known = all_datasets()
    if name not in known:
        raise UsageError(f"unknown dataset '{name}'", hint=nearest(name, known))
    return known[name]
