"""Write CSV files block by block, and format columns as text that simulators read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.spreadsheets import guarded
from tracekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tracekit.export.choices import ExportLog


def write_csv(path: Path, blocks: Iterable[pl.DataFrame], log: ExportLog, *, guard: bool, header: bool = True) -> None:
    """Write blocks with the same columns as one CSV file.

    Parameters
    ----------
    guard : bool
        Whether text that begins like a formula gets a leading quote.
    header : bool
        Whether the first line names the columns.
    """
    changed = 0
    with path.open("wb") as file:
        for number, block in enumerate(blocks):
            frame, count = guarded(block) if guard else (block, 0)
            changed += count
            frame.write_csv(file, include_header=header and number == 0)
    if changed:
        log.note(f"{changed:,} values that look like formulas got a leading quote (option guard)")


def whole_seconds(column: str) -> pl.Expr:
    """Round seconds to whole seconds, with halves rounded up."""
    return (pl.col(column) + 0.5).floor().cast(pl.Int64)


def local_time(column: str, zone: str) -> pl.Expr:
    """Format a time as YYYY-MM-DD HH:MM:SS in a time zone, truncated to whole seconds."""
    return pl.col(column).dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.strftime("%Y-%m-%d %H:%M:%S")


def printable(text: str, most: int = 200) -> str:
    r"""Return text as a single line, with nonprintable characters escaped and blanks merged.

    Examples
    --------
    >>> printable("a\nb  c")
    'a\\nb c'
    """
    return " ".join(visible(text).split())[:most]
