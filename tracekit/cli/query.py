"""tracekit query."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.options import MemoryLimit, TableFormat, TraceFolder, pairs
from tracekit.errors import OutputError, UsageError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(query)


def query(
    trace: TraceFolder,
    name: Annotated[
        str,
        typer.Argument(help="A query's name, such as queuing/run_time, or an SQL file of yours.", show_default=False),
    ],
    form: Annotated[
        TableFormat, typer.Option("-f", "--output-format", help="How to write the result.")
    ] = TableFormat.table,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file; '-' is stdout.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="Parameter of the query; may be repeated.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file that -o names.")] = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Answer one question about a Trace.

    Example: tracekit query my-trace queuing/run_time -f csv -o run_time.csv
    """
    from tracekit.characterize import answer_query
    from tracekit.trace import Trace

    file = None if out is None or str(out) == "-" else out
    if file is not None and file.exists() and not force:
        raise OutputError("exists already", where=file, hint="choose another -o, or add --force to replace it")
    answer = answer_query(Trace.open(trace), name, memory_limit=memory_limit, **pairs(param, "--param"))
    _write(answer.frame, form, file)
    for note in answer.notes:
        typer.echo(f"note: {note}", err=True)


def _write(frame: pl.DataFrame, form: TableFormat, out: Path | None) -> None:
    from tracekit.trace_writer import output_errors

    if form is TableFormat.table:
        if out is not None:
            raise UsageError(
                "a table is for reading on the terminal", where="-f table", hint="use csv, json or parquet with -o"
            )
        from tracekit.cli.display import print_frame

        print_frame(frame)
    elif out is None:
        if form is TableFormat.parquet:
            raise UsageError("Parquet needs a file", where="-f parquet", hint="add -o FILE")
        typer.echo(_text(frame, form), nl=False)
    else:
        part = out.with_name(f".{out.name[:200]}.partial-{os.getpid()}")
        try:
            with output_errors(out):
                if form is TableFormat.parquet:
                    frame.write_parquet(part)
                else:
                    part.write_text(_text(frame, form), encoding="utf-8")
                part.replace(out)
        finally:
            part.unlink(missing_ok=True)


def _text(frame: pl.DataFrame, form: TableFormat) -> str:
    return frame.write_csv() if form is TableFormat.csv else frame.write_json() + "\n"
