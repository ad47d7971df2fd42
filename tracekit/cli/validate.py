"""tracekit validate."""

from __future__ import annotations

from typing import Annotated

import typer

from tracekit.cli.needs import say_need
from tracekit.cli.options import TraceFolder
from tracekit.settings import Flag, MemoryLimit


def validate(
    trace: TraceFolder,
    deep: Annotated[
        bool,
        Flag("--deep", "Also compare the SHA-256 of each file with the manifest, and read every column of every row."),
    ] = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Check a Trace and print one line per problem with the table, column, number of rows and an example.

    It checks columns and types, keys, references between tables and row counts. Durations, waits, counts and shares
    must be 0 or more. Jobs must start after submission and end after their start, attempts must not overlap, and
    durations must match their times. For every source file, records = kept + rejected. Partitions must match the
    manifest and contain only rows of their cluster and day. The check streams only the columns that it needs, so it
    uses little memory. Only --deep finds a changed byte that leaves a valid value.

    The exit code is 0 if all checks pass, 1 if a check fails or a table cannot be read, and 2 if the folder is not a
    Trace.
    """
    from tracekit.text import visible
    from tracekit.trace import Trace

    opened = Trace.open(trace, check=False)
    say_need(trace, "validate", memory_limit)
    problems = opened.validate(deep=deep, memory_limit=memory_limit)
    for problem in problems:
        typer.echo(visible(problem))
    unsummed = [
        name for name, table in opened.manifest.tables.items() if table.sha256 is None and table.partitions is None
    ]
    if deep and unsummed:
        typer.echo(f"note: no SHA-256 to compare for {', '.join(unsummed)}, which an older tracekit wrote", err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{trace}: valid, {len(opened.tables)} tables, {opened.manifest.records:,} source records accounted for")
