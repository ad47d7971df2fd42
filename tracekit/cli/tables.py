"""Write a table of results as the options -f and -o ask."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tracekit.cli.options import TableFormat
from tracekit.cli.streams import print_data
from tracekit.errors import UsageError
from tracekit.text import count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl

__all__ = ["write_frame"]

_MOST_TABLE_ROWS = 100_000
"""Most rows of a table on the terminal, where all cells are in memory as text."""
_PART_ROWS = 50_000
"""Rows of which the text is made at a time."""


def write_frame(frame: pl.DataFrame, form: TableFormat, out: Path | None, *, force: bool, guard: bool = False) -> None:
    """Write a frame to a file, or to standard output; with `guard`, CSV is for spreadsheets (`csv_safe`).

    Raises
    ------
    UsageError
        A table for the terminal is to go into a file or has too many rows, or Parquet is to go to the terminal.
    OutputError
        The file exists, or cannot be written.
    """
    from tracekit.outputs import StagedFiles, output_errors

    if form is TableFormat.table:
        if out is not None:
            raise UsageError(
                "the format table only prints to the terminal",
                where="-f table",
                hint="use csv, json or parquet with -o",
            )
        from tracekit.cli.display import print_frame

        if frame.height > _MOST_TABLE_ROWS:
            what = f"{count(frame.height)} rows are too many for a table on the terminal"
            raise UsageError(what, where="-f table", hint="use csv, json or parquet, or add a LIMIT to the SQL")
        print_frame(frame)
    elif out is None:
        if form is TableFormat.parquet:
            raise UsageError("Parquet needs a file", where="-f parquet", hint="add -o FILE")
        for text in _texts(frame, form, guard=guard):
            print_data(text)
    else:
        with StagedFiles(out, force=force) as staged, output_errors(out):
            # Python opens it, whatever bytes are in its name.
            with staged.part(out).open("wb") as file:
                if form is TableFormat.parquet:
                    frame.write_parquet(file)
                else:
                    file.writelines(text.encode() for text in _texts(frame, form, guard=guard))
            staged.commit()


def _texts(frame: pl.DataFrame, form: TableFormat, *, guard: bool) -> Iterator[str]:
    """Return the text of a frame in parts, because all of it can be much larger than the frame."""
    import polars as pl

    from tracekit.spreadsheets import csv_safe

    parts = frame.iter_slices(_PART_ROWS) if frame.height else iter([frame])
    if form is TableFormat.csv:
        nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
        for number, part in enumerate(parts):
            flat = csv_safe(part) if guard else part.with_columns(_as_json(part[name]) for name in nested)
            yield flat.write_csv(include_header=not number)
        return
    yield "["
    for number, part in enumerate(parts):
        rows = part.with_columns(pl.selectors.decimal().cast(pl.Float64)).write_json()[1:-1]
        yield f",{rows}" if number else rows
    yield "]\n"


def _as_json(column: pl.Series) -> pl.Series:
    """Return lists and structs as JSON, since a cell of CSV holds text."""
    import polars as pl

    values = (
        None if value is None else json.dumps(value, ensure_ascii=False, default=str) for value in column.to_list()
    )
    return pl.Series(column.name, values, dtype=pl.String)
