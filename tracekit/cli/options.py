"""Options and arguments that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tracekit.errors import UsageError

__all__ = [
    "Force",
    "FormatName",
    "FormatOptions",
    "MapFile",
    "MaxInflation",
    "MaxRejectShare",
    "MemoryLimit",
    "TableFormat",
    "TextFormat",
    "TraceFolder",
    "pairs",
    "with_map",
]

TraceFolder = Annotated[
    Path, typer.Argument(metavar="TRACE", help="Folder made by 'tracekit ingest'.", show_default=False)
]

FormatName = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="Source format; detected when left out. See 'tracekit formats'."),
]

FormatOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="Option of the source format; may be repeated. See 'tracekit formats'."
    ),
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

MaxRejectShare = Annotated[
    float,
    typer.Option(min=0, max=1, help="Refuse a file when more than this share of its records is unusable."),
]

MaxInflation = Annotated[
    float,
    typer.Option(metavar="N", min=1, help="Most bytes that one byte of a compressed file may become."),
]

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
    """How an overview is written."""

    table = "table"
    json = "json"


def with_map(
    map_file: Path | None, format_name: str | None, options: dict[str, str]
) -> tuple[str | None, dict[str, str]]:
    """Return the format and its options when a mapping file may be given.

    Raises
    ------
    UsageError
        A mapping file is given together with another format.
    """
    if map_file is None:
        return format_name, options
    if format_name not in (None, "csv"):
        raise UsageError(
            f"a mapping file does not go with --format {format_name}", where="--map", hint="use --format csv"
        )
    return "csv", {**options, "map": str(map_file)}


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
