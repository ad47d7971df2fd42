"""Write each result to tables/<query>.parquet and tables/<query>.csv.

Parquet holds the values as they are; CSV is guarded for spreadsheets (`tracekit.spreadsheets`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.spreadsheets import csv_safe

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

__all__ = ["table_names", "write_csv", "write_tables"]


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
