"""Write a table of results as the options -f and -o ask."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tracekit.cli.options import TableFormat
from tracekit.cli.streams import print_data
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

__all__ = ["write_frame"]


def write_frame(frame: pl.DataFrame, form: TableFormat, out: Path | None, *, force: bool) -> None:
    """Write a frame to a file, or to standard output.

    Raises
    ------
    UsageError
        A table for the terminal is to go into a file, or Parquet to the terminal.
    OutputError
        The file exists, or cannot be written.
    """
    from tracekit.outputs import StagedFiles, output_errors

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
        print_data(_text(frame, form))
    else:
        with StagedFiles(out, force=force) as staged, output_errors(out):
            # Python opens it, whatever bytes are in its name.
            with staged.part(out).open("wb") as file:
                if form is TableFormat.parquet:
                    frame.write_parquet(file)
                else:
                    file.write(_text(frame, form).encode())
            staged.commit()


def _text(frame: pl.DataFrame, form: TableFormat) -> str:
    import polars as pl

    if form is TableFormat.csv:
        nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
        return frame.with_columns(_as_json(frame[name]) for name in nested).write_csv()
    return frame.with_columns(pl.selectors.decimal().cast(pl.Float64)).write_json() + "\n"


def _as_json(column: pl.Series) -> pl.Series:
    """Return lists and structs as JSON, since a cell of CSV holds text."""
    import polars as pl

    values = (
        None if value is None else json.dumps(value, ensure_ascii=False, default=str) for value in column.to_list()
    )
    return pl.Series(column.name, values, dtype=pl.String)
