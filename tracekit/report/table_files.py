"""Write each result to tables/<query>.parquet and tables/<query>.csv.

Parquet holds the values as they are. A CSV file is often opened in a spreadsheet, which runs a cell that
looks like a formula; so in CSV files only, a text that begins like one (`tracekit.text.RUN_BY_SPREADSHEETS`)
gets a single quote in front, and lists are written as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.text import RUN_BY_SPREADSHEETS

if TYPE_CHECKING:
    from pathlib import Path


__all__ = ["csv_safe", "table_names", "write_csv", "write_tables"]


def csv_safe(frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame` with every text that a spreadsheet would run quoted, and every list as JSON text."""
    import orjson

    flat = frame.with_columns(
        pl.Series(
            n, [None if v is None else orjson.dumps(v, default=str).decode() for v in frame[n].to_list()], pl.String
        )
        for n, kind in frame.schema.items()
        if kind.is_nested()
    )
    return flat.with_columns(
        pl.when(pl.col(n).str.contains(RUN_BY_SPREADSHEETS)).then("'" + pl.col(n)).otherwise(pl.col(n)).alias(n)
        for n, kind in flat.schema.items()
        if kind == pl.String
    )


def write_csv(path: Path, frame: pl.DataFrame) -> None:
    """Write a result as CSV for spreadsheets; the folder is made where it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    csv_safe(frame).write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%S%.f")


def write_tables(folder: Path, name: str, frame: pl.DataFrame) -> list[str]:
    """Write a result below `folder` and return the files, relative to the report."""
    parquet, csv = names = table_names(name)
    write_csv(folder / csv, frame)
    frame.write_parquet(folder / parquet, compression="zstd")
    return names


def table_names(name: str) -> list[str]:
    """Return the files of a result, relative to the report."""
    return [f"tables/{name}.parquet", f"tables/{name}.csv"]
