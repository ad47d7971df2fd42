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
    "MaxRejectShare",
    "MemoryLimit",
    "TableFormat",
    "TextFormat",
    "TraceFolder",
    "pairs",
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

Force = Annotated[bool, typer.Option("--force", help="Replace an earlier output of the same kind.")]

MaxRejectShare = Annotated[
    float,
    typer.Option(min=0, max=1, help="Refuse a file when more than this share of its records is unusable."),
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
