"""Find problems in a table's partitions: check each file against the manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import DamagedTraceError
from tracekit.tables.parquet import checksum, footers_faults, read_through, rows_stated
from tracekit.text import counted, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import duckdb

    from tracekit.manifest import Partition


def partition_fault(folder: Path, partition: Partition, *, deep: bool = False) -> str | None:
    """Return the fault in a partition's file, or None if it is intact. With `deep`, also check its checksum."""
    path, name = folder / partition.path, f"the partition {partition.path}"
    try:
        if not path.is_file():
            return f"{name} is missing"
        size = path.stat().st_size
        if size != partition.bytes:
            return f"{name} is damaged: it has {counted(size, 'bytes')}, but the manifest says {partition.bytes:,}"
        if deep and checksum(path) != partition.sha256:
            return f"{name} is damaged: its SHA-256 differs from the manifest"
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
    """Return the problems in a table's partitions, including files in their folders that the manifest does not list.

    With `deep`, every column of every row is also decoded.
    """
    found = []
    faults = {partition.path: partition_fault(folder, partition, deep=deep) for partition in partitions}
    sound = [folder / path for path, fault in faults.items() if fault is None]
    # Read all footers at once. If one has a fault, read each separately.
    each = footers_faults(con, {table: sound}, version)[table][0] is not None
    stated = {} if each or deep else rows_stated(con, table, sound)
    for partition in partitions:
        path, fault = folder / partition.path, faults[partition.path]
        if fault is None and each:
            fault = footers_faults(con, {table: [path]}, version)[table][0]
        if fault is None:
            try:
                if deep:
                    rows = read_through(table, [path], version)
                else:
                    rows = (rows_stated(con, table, [path]) if each else stated)[str(path)]
            except DamagedTraceError as error:
                fault = error.what
            else:
                if rows != partition.rows:
                    said = f"{partition.rows:,}"
                    fault = f"the partition {partition.path} has {counted(rows, 'rows')}, but the manifest says {said}"
        if fault is not None:
            found.append(fault if partition.path in fault else f"the partition {partition.path}: {fault}")
    return found + list(_unlisted(folder, table, {partition.path for partition in partitions}))


def _unlisted(folder: Path, table: str, listed: set[str]) -> Iterator[str]:
    whole = folder / f"{table}.parquet"
    if whole.exists():
        yield f"the file {whole.name} is not in the manifest, which lists {table} as partitioned"
    for path in sorted((folder / table).rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and name not in listed:
            yield f"the file {shorten(name, 200)} is not in the manifest"
