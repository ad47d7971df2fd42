"""Write a Trace whole or not at all.

The files are written to a hidden folder beside the target; the last step renames it (`tracekit.outputs`).
"""

from __future__ import annotations

import contextlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from tracekit import schema
from tracekit.manifest import Manifest, TableInfo
from tracekit.outputs import StagedFolder, output_errors
from tracekit.tables.parquet import checksum
from tracekit.trace import MANIFEST_NAME, Trace, sql_text

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    import duckdb
    import polars as pl

    from tracekit.schema import Column

__all__ = ["TraceWriter"]

_ROW_GROUP = 131_072

_DISTINCT = frozenset({"job_id", "name", "instance", "raw"})
"""Text columns whose values hardly repeat, so that a dictionary costs time and space."""


class TraceWriter:
    """Append frames to the tables of a new Trace.

    Use it as a context: leaving it without `commit` removes everything.

    With `force` it replaces an existing Trace.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self._staged = StagedFolder(path, force=force, marker=MANIFEST_NAME, kind="a Trace")
        self._parquet: dict[str, Any] = {}
        # A thread for each table compresses while the caller parses; more would only reorder the rows.
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._pending: dict[str, list[Future[None]]] = {}

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
        """Where the Trace will appear."""
        return self._staged.target

    @property
    def scratch(self) -> Path:
        """A folder for intermediate files; it is removed before the Trace appears."""
        path = self._staged.path / "scratch"
        path.mkdir(exist_ok=True)
        return path

    def write(self, table: str, frame: pl.DataFrame) -> None:
        """Append the rows of `frame` to a table, in order; also to one whose file `drain` has closed.

        Raises
        ------
        SchemaError
            The frame does not fit the table.
        OutputError
            The disk is full or the place cannot be written.
        """
        if frame.height == 0:
            return
        conformed = schema.common(table).conform(frame)
        if table not in self._threads:
            self._threads[table] = ThreadPoolExecutor(1, thread_name_prefix=f"tracekit-{table}")
        pending = self._pending.setdefault(table, [])
        # Two frames of a table in flight bound the memory and keep all cores busy.
        while len(pending) >= 2:
            self._wait_one(pending)
        pending.append(self._threads[table].submit(self._append, table, conformed))

    def copy(self, table: str, con: duckdb.DuckDBPyConnection, query: str, target: Path | None = None) -> None:
        """Write a table from a DuckDB query whose columns are some of the table's, by name.

        Parameters
        ----------
        target : Path, optional
            Another file than that of the table, for a query that reads the table itself.

        Raises
        ------
        OutputError
            The disk is full or the place cannot be written.
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
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP})"
            )

    def drain(self) -> None:
        """Wait until every appended row is in its Parquet file, and close the files."""
        for pending in self._pending.values():
            while pending:
                self._wait_one(pending)
        with output_errors(self._staged.target):
            self._close()

    def tables(self) -> dict[str, TableInfo]:
        """Return rows, bytes and columns of each table written; call it after `drain`. `commit` adds the SHA-256."""
        import pyarrow.parquet as pq

        found = {}
        for table in schema.COMMON_TABLES:
            path = self.folder / f"{table}.parquet"
            if path.is_file():
                meta = pq.read_metadata(path)
                found[table] = TableInfo(meta.num_rows, path.stat().st_size, list(schema.common(table).names))
        return found

    def commit(self, manifest: Manifest) -> Trace:
        """Write the manifest, rename the Trace to its final name, and open it.

        Raises
        ------
        OutputError
            The disk is full or the place cannot be written.
        """
        self.drain()
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)
        with output_errors(self._staged.target):
            for table, info in manifest.tables.items():
                # A table that was copied unchanged keeps its checksum.
                if info.sha256 is None:
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
            # What was written before the file was closed goes first.
            closed = path.replace(self.scratch / f"{table}-closed.parquet") if path.is_file() else None
            self._parquet[table] = pq.ParquetWriter(
                path,
                rows.schema,
                store_schema=False,  # plain Parquet types, whatever Arrow types the frames had
                compression="zstd",
                compression_level=1,
                write_statistics=[c.name for c in schema.common(table).columns if c.kind != "string"],
                use_dictionary=[c.name for c in schema.common(table).columns if _repeats(c)],
                column_encoding={c.name: e for c in schema.common(table).columns if (e := _encoding(c)) is not None},
            )
            if closed is not None:
                for batch in pq.ParquetFile(closed).iter_batches(_ROW_GROUP):
                    self._append(table, schema.common(table).conform(pl.DataFrame(pl.from_arrow(batch))))
                closed.unlink()
        self._parquet[table].write_table(rows, row_group_size=_ROW_GROUP)

    def _close(self) -> None:
        for writer in self._parquet.values():
            writer.close()
        self._parquet.clear()


def _encoding(column: Column) -> str | None:
    """Return the Parquet encoding of a column without a dictionary, None for the plain one.

    Times hardly differ from row to row; durations do, and compress best with BYTE_STREAM_SPLIT.
    """
    if column.kind == "datetime":
        return "DELTA_BINARY_PACKED"
    return "BYTE_STREAM_SPLIT" if column.name.endswith("_s") and column.kind == "number" else None


def _repeats(column: Column) -> bool:
    """Return whether a dictionary of the column's values pays."""
    return column.kind != "array" and column.name not in _DISTINCT and _encoding(column) is None
