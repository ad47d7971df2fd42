"""Options and arguments that several commands share."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tracekit.errors import UsageError
from tracekit.options import REPEATED
from tracekit.settings import BY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.settings import IngestSettings, PartSettings
    from tracekit.trace import Trace

__all__ = [
    "Anonymize",
    "Collect",
    "EngineName",
    "Force",
    "MapFile",
    "Master",
    "MemoryLimit",
    "SaltFile",
    "Shard",
    "TableFormat",
    "TenantColumn",
    "TextFormat",
    "TraceFolder",
    "opened_part",
    "pairs",
    "with_map",
]

S = TypeVar("S", bound="IngestSettings")

TraceFolder = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        help="Folder made by 'tracekit ingest', also in a bucket (docs/buckets.md).",
        show_default=False,
        path_type=str,
    ),
]
"""Text and no Path, which would change the address of a Trace in a store."""

MapFile = Annotated[
    Path | None,
    typer.Option(
        "--map",
        metavar="FILE",
        help=(
            "Mapping file (TOML) for any other log layout; with --format NAME, for files that add to that log. "
            "'tracekit formats --template csv' prints an example."
        ),
    ),
]

Force = Annotated[bool, typer.Option("--force", help="Replace an earlier output of the same kind.")]

MemoryLimit = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory limit for joins, which use the disk beyond it, such as 2GB."),
]

Anonymize = Annotated[
    bool, typer.Option("--anonymize", help="Show pseudonyms for users, accounts, jobs, nodes and all other names.")
]

SaltFile = Annotated[
    Path | None,
    typer.Option(
        "--salt-file",
        metavar="FILE",
        help="File with the salt of the pseudonyms; created if missing. The same salt gives the same names.",
    ),
]


TenantColumn = Annotated[
    str | None,
    typer.Option("--by", metavar="COLUMN", help=f"{BY}.", show_default=False),
]

Shard = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Run part I of N (see docs/howto/shards.md).",
    ),
]

Collect = Annotated[
    bool,
    typer.Option("--collect", help="Merge the results of the shards; fail if any are missing."),
]

EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Engine that runs the SQL: duckdb (this process) or spark (docs/reference/spark.md).",
    ),
]

Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Spark's master, such as spark://host:7077, yarn or local[4] (this machine, by default).",
        show_default=False,
    ),
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
    """Return settings that read the log by a mapping file: alone, or beside the format that is given."""
    if map_file is None:
        return settings
    options = {**(settings.options or {}), "map": str(map_file)}
    return replace(settings, format_name=settings.format_name or "csv", options=options)


def opened_part(folder: str | Path, part: PartSettings, where: Mapping[str, str] | None = None) -> Trace:
    """Return the Trace in a folder, or the part of it that is asked."""
    from tracekit.tables.window import Window, chosen_jobs, utc
    from tracekit.trace import Trace

    limits = Window(utc(part.start), utc(part.end), part.cluster, chosen_jobs(where))
    return Trace.open(folder, limits=limits, allow_missing=part.allow_missing)


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """Return NAME=VALUE words as a dictionary.

    Raises
    ------
    UsageError
        A word has no '=' or no name, or a name is given twice that is none of REPEATED.
    """
    found: dict[str, str] = {}
    for word in given or []:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"'{word}' is not NAME=VALUE", where=option)
        if name in found and name not in REPEATED:
            raise UsageError(f"'{name}' is given twice", where=option)
        found[name] = f"{found[name]},{value}" if name in found else value
    return found
