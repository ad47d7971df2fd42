"""Find problems of the partitions of a table: each file is checked against the manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import DamagedTraceError
from tracekit.tables.parquet import checksum, footers_fault, read_through, rows_stated
from tracekit.text import counted, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import duckdb

    from tracekit.manifest import Partition

__all__ = ["partition_fault", "partition_problems"]


def partition_fault(folder: Path, partition: Partition, *, deep: bool = False) -> str | None:
    """Return what is wrong with the file of a partition, None when nothing is; with `deep` by its checksum too."""
    path, name = folder / partition.path, f"the partition {partition.path}"
    try:
        if not path.is_file():
            return f"{name} is missing"
        size = path.stat().st_size
        if size != partition.bytes:
            return f"{name} is damaged: it has {counted(size, 'bytes')}, the manifest says {partition.bytes:,}"
        if deep and checksum(path) != partition.sha256:
            return f"{name} is damaged: its SHA-256 is another"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    return None


def partition_problems(
    con: duckdb.DuckDBPyConnection,
    folder: Path,
    table: str,
    partitions: Sequence[Partition],
    version: str,
    *,
    deep: bool,
) -> list[str]:
    """Return what is wrong with the partitions of a table, and with files among them that the manifest does not list.

    With `deep` every column of every row is decoded too.
    """
    found = []
    for partition in partitions:
        path = folder / partition.path
        fault = partition_fault(folder, partition, deep=deep) or footers_fault(con, table, [path], version)[0]
        if fault is None:
            try:
                rows = read_through(table, [path], version) if deep else rows_stated(con, table, path)
            except DamagedTraceError as error:
                fault = error.what
            else:
                if rows != partition.rows:
                    said = f"{partition.rows:,}"
                    fault = f"the partition {partition.path} has {counted(rows, 'rows')}, the manifest says {said}"
        if fault is not None:
            found.append(fault if partition.path in fault else f"the partition {partition.path}: {fault}")
    return found + list(_unlisted(folder, table, {partition.path for partition in partitions}))


def _unlisted(folder: Path, table: str, listed: set[str]) -> Iterator[str]:
    whole = folder / f"{table}.parquet"
    if whole.exists():
        yield f"the file {whole.name} is not in the manifest, which says that {table} is in partitions"
    for path in sorted((folder / table).rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and name not in listed:
            yield f"the file {shorten(name, 200)} is not in the manifest"
