"""The layout of the raw files of a mapped table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """The layout of the raw files of one table."""

    files: tuple[str, ...] = ("*",)
    """Name patterns such as jobs*.csv."""
    type: str | None = None
    """csv, jsonl or parquet; from the file's name by default."""
    delimiter: str | None = None
    """By default a tab for .tsv files, else a comma."""
    header: tuple[str, ...] = ()
    """Column names of files without header line."""
    comment: str | None = None
    """What a line begins with that is not read."""
    records: str | None = None
    """Where the records stand in a JSON document: a dotted path, or '.' for the document itself."""
    time_format: str = "iso8601"
    missing: tuple[str, ...] = ()
    """Spellings of an unknown value, besides nothing at all."""
    doubled_hour: str = "bounded"
    timezone: str = "UTC"
