"""Read the catalog of public traces, catalog.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tracekit.errors import UsageError, nearest


@dataclass(frozen=True)
class RemoteFile:
    """One file of a public trace."""

    name: str
    """Name of the saved file, without folders."""
    urls: tuple[str, ...]
    """URLs in the order to try. A URL that ends in * stands for the parts aa, ab, ... of a split file."""
    bytes: int | None = None
    """Exact size, if known."""
    about_bytes: int | None = None
    """Approximate size, for display only."""
    sha256: str | None = None
    """SHA-256 of the content in hexadecimal, if known."""
    sha256_from: str | None = None
    """Origin of the checksum: 'publisher', 'git-lfs' or 'recorded', explained at the top of catalog.toml."""


@dataclass(frozen=True)
class Dataset:
    """A public trace."""

    name: str
    title: str
    format: str
    """Name of the source format that reads the trace (see 'tracekit formats')."""
    licence: str
    citation: str
    """Study to cite, with authors, title, venue and year."""
    paper: str
    """URL of that study."""
    origin: str
    """The publisher's page."""
    remark: str
    """Note to read before fetching, or ''."""
    files: tuple[RemoteFile, ...]

    @property
    def bytes(self) -> int:
        """Total size of all files, approximate if `size_is_exact` is False."""
        return sum(f.bytes or f.about_bytes or 0 for f in self.files)

    @property
    def size_is_exact(self) -> bool:
        """Whether the size of every file is known exactly."""
        return all(f.bytes is not None for f in self.files)


@cache
def all_datasets() -> dict[str, Dataset]:
    """Return all public traces by name, in catalog order."""
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
        No dataset has that name.
    """
    known = all_datasets()
    if name not in known:
        raise UsageError(f"unknown dataset '{name}'", hint=nearest(name, known))
    return known[name]
