"""Options and arguments that several commands share."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.settings import IngestSettings

__all__ = [
    "Force",
    "MapFile",
    "MemoryLimit",
    "TableFormat",
    "TextFormat",
    "TraceFolder",
    "pairs",
    "with_map",
]

S = TypeVar("S", bound="IngestSettings")

TraceFolder = Annotated[
    Path, typer.Argument(metavar="TRACE", help="Folder made by 'tracekit ingest'.", show_default=False)
]

MapFile = Annotated[
    Path | None,
    typer.Option(
        "--map",
        metavar="FILE",
        help="Mapping file (TOML) for a log of any other layout; 'tracekit formats --template csv' prints one.",
    ),
]

Force = Annotated[bool, typer.Option("--force", help="Replace an earlier output of the same kind.")]

MemoryLimit = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Most memory for joins before they spill to disk, such as 2GB."),
]


class TableFormat(StrEnum):
    """How a table of results is written."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


class TextFormat(StrEnum):
    """How an overview or a list is written."""

    table = "table"
    json = "json"


def with_map(map_file: Path | None, settings: S) -> S:
    """Return settings that read the log by a mapping file, where one is given.

    Raises
    ------
    UsageError
        A mapping file is given together with another format.
    """
    if map_file is None:
        return settings
    if settings.format_name not in (None, "csv"):
        raise UsageError(
            f"a mapping file does not go with --format {settings.format_name}", where="--map", hint="use --format csv"
        )
    options = {**(settings.options or {}), "map": str(map_file)}
    return replace(settings, format_name="csv", options=options)


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """Return NAME=VALUE words as a dictionary.

    Raises
    ------
    UsageError
        A word has no '=' or no name, or a name is given twice.
    """
    found: dict[str, str] = {}
    for word in given or []:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"'{word}' is not NAME=VALUE", where=option)
        if name in found:
            raise UsageError(f"'{name}' is given twice", where=option)
        found[name] = value
    return found
