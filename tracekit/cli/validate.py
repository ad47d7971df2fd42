"""tracekit validate."""

from __future__ import annotations

from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_validation
from tracekit.cli.options import MemoryLimit, TraceFolder

__all__ = ["validate"]


def validate(
    trace: TraceFolder,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Compare the SHA-256 of each file with the manifest too, and read every column of every row.",
        ),
    ] = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Check a Trace, and print each problem as a line: table, column, number of rows, and one of them.

    Checked are columns and types; that no duration, wait, count or share is below 0; that no job starts before its
    submission or ends before its start, and no attempt starts before the previous one ended; that durations are the
    differences of their times; keys, references between tables, row counts; records = kept + rejected of every source
    file; and that partitions are those of the manifest, and rows lie in the one of their cluster and day. Only the
    columns concerned are read, as a stream, so that a large Trace takes little memory. A changed byte that leaves a
    lawful value shows with --deep only.

    Exit code 0 when all holds, 1 when something does not or a table cannot be read, 2 when the folder is no Trace.
    """
    from tracekit.text import visible
    from tracekit.trace import Trace

    opened = Trace.open(trace, check=False)
    say_need_of_validation(trace, memory_limit)
    problems = opened.validate(deep=deep, memory_limit=memory_limit)
    for problem in problems:
        typer.echo(visible(problem))
    unsummed = [
        name for name, table in opened.manifest.tables.items() if table.sha256 is None and table.partitions is None
    ]
    if deep and unsummed:
        typer.echo(
            f"note: no SHA-256 to compare with for {', '.join(unsummed)}: an older tracekit wrote them", err=True
        )
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{trace}: valid, {len(opened.tables)} tables, {opened.manifest.records:,} source records accounted for")
