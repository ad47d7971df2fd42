"""Output of the commands. Results go to stdout or a file, progress and notes to stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Self

import typer

from tracekit.cli.streams import print_data, print_json
from tracekit.errors import UsageError
from tracekit.interruption import register_cleanup, unregister_cleanup
from tracekit.progress import Progress
from tracekit.text import count, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl
    from rich.progress import Progress as RichProgress

    from tracekit.runs.ledger import Ledger

_MOST_TABLE_ROWS = 100_000
"""Maximum number of table rows on the terminal. All cells are kept in memory as strings."""
_PART_ROWS = 50_000
"""Number of rows that are converted to text at a time."""


class TerminalProgress(Progress):
    """Show a progress bar on a terminal. Notes always go to stderr."""

    def __init__(self) -> None:
        self.failed = False
        """Whether a part failed."""
        self._bars: RichProgress | None = None
        self._task: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bars = Bars(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
            self._key = register_cleanup(_clear_line)

    def stage(self, what: str, total: int | None = None) -> None:
        """Begin a step."""
        if self._bars is not None:
            if self._task is not None:
                self._bars.remove_task(self._task)
            from rich.markup import escape

            self._task = self._bars.add_task(escape(what[:80]), total=total)

    def advance(self, amount: int) -> None:
        """Advance the bar."""
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, amount)

    def note(self, text: str) -> None:
        """Print a note."""
        line = printable(text)
        if self._bars is not None:
            self._bars.console.print(f"note: {line}", markup=False, highlight=False)
        else:
            typer.echo(f"note: {line}", err=True)

    def fault(self, text: str, traceback: str) -> None:
        """Print the part that failed and, with --debug, the traceback."""
        self.failed = True
        self.note(text)
        if os.environ.get("TRACEKIT_DEBUG"):
            for line in traceback.splitlines():
                typer.echo(visible(line), err=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the bar."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            unregister_cleanup(self._key)


def _clear_line() -> None:
    """Clear the line and show the cursor again, even while the bar's thread is writing."""
    os.write(2, b"\r\x1b[K\x1b[?25h")


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table with right-aligned numbers and a dash for unknown values."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, name in enumerate(headers):
        numeric = all(isinstance(row[index], int | float) or row[index] is None for row in rows)
        table.add_column(Text(name), justify="right" if numeric and rows else "left", overflow="fold")
    cells = [[_shown(value) for value in row] for row in rows]
    in_pipe = not sys.stdout.isatty()
    if in_pipe and cells:  # if no cell wraps, a column is printed as one multi-line cell, which is faster
        cells = [["\n".join(column) for column in zip(*cells, strict=True)]]
    for row in cells:
        table.add_row(*map(Text, row))
    # A pipe has no width, so wrap and cut nothing.
    Console(width=10_000 if in_pipe else None, highlight=False).print(table)


def print_list(facts: Sequence[object], headers: Sequence[str], rows: Iterable[Sequence[object]], form: str) -> None:
    """Print a list, either all its facts as JSON or its rows as a table."""
    if form == "json":
        print_json(facts)
    else:
        print_table(headers, rows)


def print_rows(rows: Sequence[Mapping[str, object]], form: str) -> None:
    """Print rows with the same keys as a table or as JSON."""
    print_list(rows, list(rows[0]) if rows else [], [list(row.values()) for row in rows], form)


def print_frame(frame: pl.DataFrame) -> None:
    """Print a frame as a table."""
    print_table(frame.columns, frame.iter_rows())


def printable(text: str) -> str:
    """Replace unprintable characters with '?'."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return (
            f"{value:,.0f}"
            if value.is_integer() and abs(value) < 1e15
            else f"{value:,.4g}"
            if abs(value) < 1000
            else f"{value:,.1f}"
        )
    return printable(str(value))


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on stderr, one line each."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def print_assumptions(assumptions: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the assumptions behind the results, one line each."""
    typer.echo("Assumptions used:")
    for key, a in assumptions.items():
        typer.echo(printable(f"  {key}, {a['title']}: {a['value']} ({a['source']})"))


def print_shard(shared: Ledger, what: str) -> None:
    """Print that a shard is done, how many results it computed itself, and what to do next."""
    typer.echo(f"shard {shared.shard}: all {what} are done, {shared.made:,} of them by this shard")
    typer.echo("next: the same command with --collect instead of --shard")


def file_of(out: Path | None, *, force: bool) -> Path | None:
    """Return the file given by -o, or None for standard output. Check that the file is new or may be replaced.

    Raises
    ------
    OutputError
        The file exists, or cannot be written.
    """
    from tracekit.outputs import check_files

    if out is None or str(out) == "-":
        return None
    check_files(out, force=force)
    return out


def write_frame(frame: pl.DataFrame, form: str, out: Path | None, *, force: bool, guard: bool = False) -> None:
    """Write a frame to a file or standard output. With `guard`, CSV is safe for spreadsheets (see `csv_safe`).

    Raises
    ------
    UsageError
        The table format is requested for a file or for too many rows, or Parquet is requested without a file.
    OutputError
        The file exists, or cannot be written.
    """
    from tracekit.outputs import StagedFiles, output_errors

    if form == "table":
        if out is not None:
            raise UsageError(
                "the table format only prints to the terminal",
                where="-f table",
                hint="use csv, json or parquet with -o",
            )
        if frame.height > _MOST_TABLE_ROWS:
            what = f"{count(frame.height)} rows are too many for a table on the terminal"
            raise UsageError(what, where="-f table", hint="use csv, json or parquet, or add a LIMIT to the SQL")
        print_frame(frame)
    elif out is None:
        if form == "parquet":
            raise UsageError("Parquet needs a file", where="-f parquet", hint="add -o FILE")
        for text in _texts(frame, form, guard=guard):
            print_data(text)
    else:
        with StagedFiles(out, force=force) as staged, output_errors(out):
            # Python opens the file, because it accepts any bytes in a name.
            with staged.part(out).open("wb") as file:
                if form == "parquet":
                    frame.write_parquet(file)
                else:
                    file.writelines(text.encode() for text in _texts(frame, form, guard=guard))
            staged.commit()


def _texts(frame: pl.DataFrame, form: str, *, guard: bool) -> Iterator[str]:
    """Yield a frame as text in parts, because the whole text can be much larger than the frame."""
    import polars as pl

    from tracekit.spreadsheets import csv_safe

    parts = frame.iter_slices(_PART_ROWS) if frame.height else iter([frame])
    if form == "csv":
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
    """Return lists and structs as JSON strings, because CSV cells contain strings."""
    import polars as pl

    values = (
        None if value is None else json.dumps(value, ensure_ascii=False, default=str) for value in column.to_list()
    )
    return pl.Series(column.name, values, dtype=pl.String)
