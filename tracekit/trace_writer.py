"""Write a Trace completely or not at all.

The files are written to a hidden folder next to the target, which the last step renames (see `tracekit.outputs`).
"""

from __future__ import annotations

import contextlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.manifest import Manifest, Partition, TableInfo
from tracekit.outputs import StagedFolder, link_or_copy, output_errors
from tracekit.tables.parquet import checksum
from tracekit.tables.partitions import in_order, table_files
from tracekit.tables.writing import ROW_GROUP, cut_table, parquet_writer
from tracekit.trace import MANIFEST_NAME, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    import duckdb
    import polars as pl

    Cutter = Callable[[duckdb.DuckDBPyConnection, str, Sequence[Path], Path], list[Partition]]


class TraceWriter:
    """Appends frames to the tables of a new Trace.

    Use it as a context manager. Leaving the block without `commit` removes everything.

    With `force`, it replaces an existing Trace.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self._staged = StagedFolder(path, force=force, marker=MANIFEST_NAME, kind="a Trace")
        self._parquet: dict[str, Any] = {}
        # One thread per table compresses while the caller parses. More threads would reorder the rows.
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._pending: dict[str, list[Future[None]]] = {}
        self._partitions: dict[str, list[Partition]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for thread in self._threads.values():
            thread.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(Exception):
            self._close()
        self._staged.discard()

    @property
    def folder(self) -> Path:
        """Folder of the tables while the Trace is being written."""
        return self._staged.path

    @property
    def target(self) -> Path:
        """Final folder of the Trace."""
        return self._staged.target

    @property
    def scratch(self) -> Path:
        """A folder for intermediate files, which is removed before the Trace appears."""
        path = self._staged.path / "scratch"
        path.mkdir(exist_ok=True)
        return path

    def write(self, table: str, frame: pl.DataFrame) -> None:
        """Append the rows of `frame` to a table, in order, even after `drain` has closed its file.

        Raises
        ------
        SchemaError
            The frame does not fit the table.
        OutputError
            The disk is full, or the folder cannot be written.
        """
        if frame.height == 0:
            return
        conformed = schema.common(table).conform(frame)
        if table not in self._threads:
            self._threads[table] = ThreadPoolExecutor(1, thread_name_prefix=f"tracekit-{table}")
        pending = self._pending.setdefault(table, [])
        # Two frames in flight per table bound the memory and keep all cores busy.
        while len(pending) >= 2:
            self._wait_one(pending)
        pending.append(self._threads[table].submit(self._append, table, conformed))

    def copy(self, table: str, con: duckdb.DuckDBPyConnection, query: str, target: Path | None = None) -> None:
        """Write a table from a DuckDB query, matching the columns by name. Columns missing from the query are NULL.

        Parameters
        ----------
        target : Path, optional
            Another file to write to if the query reads the table itself.

        Raises
        ------
        OutputError
            The disk is full, or the folder cannot be written.
        """
        spec = schema.common(table)
        have = {str(row[0]) for row in con.execute(f"DESCRIBE {query}").fetchall()}
        quoted = {c.name: f'"{c.name}"' for c in spec.columns}
        columns = ", ".join(
            f"CAST({quoted[c.name] if c.name in have else 'NULL'} AS {c.sql}) AS {quoted[c.name]}" for c in spec.columns
        )
        target = target or self.folder / f"{table}.parquet"
        with output_errors(self._staged.target):
            con.execute(
                f"COPY (SELECT {columns} FROM ({query})) TO {sql_text(target)} "
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP})"
            )

    def files(self, table: str) -> tuple[Path, ...]:
        """Return a table's complete files in order, or none if it has no rows. Call this after `drain`."""
        if table in self._partitions:
            return table_files(self.folder, table, self._partitions[table])
        path = self.folder / f"{table}.parquet"
        return (path,) if path.is_file() else ()

    def cut(self, con: duckdb.DuckDBPyConnection, tables: Iterable[str], by: Cutter | None = None) -> None:
        """Split single-file tables into partitions, in addition to those from `adopt`. Call this after `drain`.

        Parameters
        ----------
        con : DuckDBPyConnection
            Connection in which `jobs` has all jobs of the rows, and `nodes` the machines.
        by : function, optional
            Function to use instead of `cut_table`, with the same interface.

        Raises
        ------
        OutputError
            The disk is full, or the folder cannot be written.
        """
        # The view may read the jobs file.
        for table in sorted(tables, key=lambda name: name == "jobs"):
            path = self.folder / f"{table}.parquet"
            if path.is_file():
                with output_errors(self._staged.target):
                    whole = path.replace(self.scratch / f"{table}-whole.parquet") if table != "jobs" else path
                    found = (by or cut_table)(con, table, [whole], self.folder)
                    whole.unlink()
                self._partitions[table] = in_order([*self._partitions.get(table, ()), *found])

    def adopt(self, table: str, partitions: Sequence[Partition], source: Path) -> None:
        """Link partitions from the Trace in the folder `source`, or copy them if links are not supported.

        Raises
        ------
        OutputError
            The folder cannot be written.
        """
        with output_errors(self._staged.target):
            for partition in partitions:
                path = self.folder / partition.path
                path.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(source / partition.path, path)
        if partitions:
            self._partitions[table] = in_order([*self._partitions.get(table, ()), *partitions])

    def drain(self) -> None:
        """Wait until all appended rows are in their Parquet files, and close the files."""
        for pending in self._pending.values():
            while pending:
                self._wait_one(pending)
        with output_errors(self._staged.target):
            self._close()

    def tables(self) -> dict[str, TableInfo]:
        """Return each written table's rows, bytes and columns. Call this after `drain`; `commit` adds the SHA-256."""
        import pyarrow.parquet as pq

        found = {}
        for table in schema.COMMON_TABLES:
            path = self.folder / f"{table}.parquet"
            names = list(schema.common(table).names)
            if parts := self._partitions.get(table):
                rows, size = sum(p.rows for p in parts), sum(p.bytes for p in parts)
                found[table] = TableInfo(rows, size, names, partitions=parts)
            elif path.is_file():
                found[table] = TableInfo(pq.read_metadata(path).num_rows, path.stat().st_size, names)
        return found

    def commit(self, manifest: Manifest) -> Trace:
        """Write the manifest, rename the Trace to its final name, and open it.

        Raises
        ------
        OutputError
            The disk is full, or the folder cannot be written.
        """
        self.drain()
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)
        with output_errors(self._staged.target):
            if any(info.partitions is not None for info in manifest.tables.values()):
                manifest.schema_version = schema.PARTITIONED_VERSION
            elif manifest.schema_version == schema.PARTITIONED_VERSION:
                manifest.schema_version = schema.SCHEMA_VERSION
            for table, info in manifest.tables.items():
                # A table that was copied unchanged keeps its checksum.
                if info.sha256 is None and info.partitions is None:
                    info.sha256 = checksum(self.folder / f"{table}.parquet")
            (self.folder / MANIFEST_NAME).write_bytes(manifest.to_json())
        self._staged.commit()
        return Trace.open(self._staged.target)

    def _wait_one(self, pending: list[Future[None]]) -> None:
        with output_errors(self._staged.target):
            pending.pop(0).result()

    def _append(self, table: str, frame: pl.DataFrame) -> None:
        import polars as pl
        import pyarrow.parquet as pq

        rows = frame.to_arrow(compat_level=pl.CompatLevel.newest())
        if table not in self._parquet:
            path = self.folder / f"{table}.parquet"
            # Rows from before the file was closed come first.
            closed = path.replace(self.scratch / f"{table}-closed.parquet") if path.is_file() else None
            self._parquet[table] = parquet_writer(table, path, rows.schema)
            if closed is not None:
                for batch in pq.ParquetFile(closed).iter_batches(ROW_GROUP):
                    self._append(table, schema.common(table).conform(pl.DataFrame(pl.from_arrow(batch))))
                closed.unlink()
        self._parquet[table].write_table(rows, row_group_size=ROW_GROUP)

    def _close(self) -> None:
        for writer in self._parquet.values():
            writer.close()
        self._parquet.clear()
