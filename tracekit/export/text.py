"""CSV files written block by block, and columns as the text that simulators read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.text import RUN_BY_SPREADSHEETS, visible

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tracekit.export.choices import ExportLog


_FORMULA = rf"^'|{RUN_BY_SPREADSHEETS}"
"""How a text begins that a spreadsheet runs as a formula, or that begins with a quote: both get a quote in front."""


def guarded(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return `frame` with a single quote before every text that begins like a formula, and how many there are.

    Taking one leading quote away gives every text back, since texts that begin with a quote get another one.
    """
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    if not texts:
        return frame, 0
    risky = {name: pl.col(name).str.contains(_FORMULA) for name in texts}
    count = sum(frame.select(test.sum() for test in risky.values()).row(0), 0)
    if not count:
        return frame, 0
    return frame.with_columns(
        pl.when(test).then("'" + pl.col(name)).otherwise(pl.col(name)).alias(name) for name, test in risky.items()
    ), int(count)


def write_csv(path: Path, blocks: Iterable[pl.DataFrame], log: ExportLog, *, guard: bool, header: bool = True) -> None:
    """Write blocks with the same columns as one CSV file.

    Parameters
    ----------
    guard : bool
        Whether texts that begin like a formula get a quote in front.
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
        log.note(f"{changed:,} texts that look like formulas got a leading quote (option guard)")


def whole_seconds(column: str) -> pl.Expr:
    """Return seconds as whole ones, halves up."""
    return (pl.col(column) + 0.5).floor().cast(pl.Int64)


def local_time(column: str, zone: str) -> pl.Expr:
    """Return a time as YYYY-MM-DD HH:MM:SS on the clocks of a zone, parts of a second cut off."""
    return pl.col(column).dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.strftime("%Y-%m-%d %H:%M:%S")


def printable(text: str, most: int = 200) -> str:
    r"""Return a text for a single line: characters that do not print are spelled out, blanks are merged.

    Examples
    --------
    >>> printable("a\nb  c")
    'a\\nb c'
    """
    return " ".join(visible(text).split())[:most]
