"""What the commands show: tables on stdout, progress and notes on stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Self

import typer

from tracekit.cli.options import TextFormat
from tracekit.cli.streams import print_json
from tracekit.interruption import register_cleanup, unregister_cleanup
from tracekit.progress import Progress
from tracekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl
    from rich.progress import Progress as RichProgress

__all__ = ["TerminalProgress", "print_frame", "print_rows", "print_table"]


class TerminalProgress(Progress):
    """Shows a bar on a terminal; notes always reach stderr."""

    def __init__(self) -> None:
        self.failed = False
        """Whether a part could not be made."""
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
        """Move the bar."""
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, amount)

    def note(self, text: str) -> None:
        """Print a choice or a finding."""
        line = "".join(c if c.isprintable() else "?" for c in text)
        if self._bars is not None:
            self._bars.console.print(f"note: {line}", markup=False, highlight=False)
        else:
            typer.echo(f"note: {line}", err=True)

    def fault(self, text: str, traceback: str) -> None:
        """Print what could not be made, and with --debug where the error came from."""
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
    """Restore the terminal, whatever the bar's own thread is doing: an empty line, the cursor shown."""
    os.write(2, b"\r\x1b[K\x1b[?25h")


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table; numbers are aligned right, unknown values are shown as a dash."""
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
    if in_pipe and cells:  # where no cell is wrapped, a column is drawn as one cell of many lines, which is faster
        cells = [["\n".join(column) for column in zip(*cells, strict=True)]]
    for row in cells:
        table.add_row(*map(Text, row))
    # In a pipe there is no width to respect: nothing is wrapped or cut.
    Console(width=10_000 if in_pipe else None, highlight=False).print(table)


def print_rows(rows: Sequence[Mapping[str, object]], form: TextFormat) -> None:
    """Print rows, which have the same keys, as a table or as JSON."""
    if form is TextFormat.json:
        print_json(rows)
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])


def print_frame(frame: pl.DataFrame) -> None:
    """Print a frame as a table."""
    print_table(frame.columns, frame.iter_rows())


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
    return "".join(c if c.isprintable() else "?" for c in str(value))
