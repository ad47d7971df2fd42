"""Collect a reader's output: rows, rejects, checks, notes, and each raw file's record counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from tracekit import schema
from tracekit.databases import Database, sql_text
from tracekit.errors import OutputError, UsageError
from tracekit.ingest.files import HashingReader
from tracekit.manifest import Check, FileAccount
from tracekit.outputs import final_place, full_disk, output_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    import duckdb

    from tracekit.ingest.files import SourceFile
    from tracekit.progress import Progress
    from tracekit.trace_writer import TraceWriter
    from tracekit.workers import Workers

_RAW_LIMIT = 65_536
_FLUSH = 10_000
EXAMPLES = 5
"""Maximum number of examples stored for a check."""

_JOIN_MEMORY = "1GB"
"""Default memory for joins. With it, any log is ingested within 2 GiB."""


@contextmanager
def join_errors(out: Path) -> Iterator[None]:
    """Raise one clear error if a join runs out of memory or disk."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        reason = str(error).splitlines()[0]
        raise full_disk(error) or UsageError(
            f"a join ran out of memory: {reason}", hint="use a larger --memory-limit"
        ) from error
    except duckdb.IOException as error:
        reason = str(error).splitlines()[0]
        raise full_disk(error) or OutputError(
            f"a join cannot spill to disk: {reason}", where=final_place(out), hint="free the temporary folder"
        ) from error


def no_rows(table: str) -> str:
    """Return a query for a common table without rows."""
    columns = ", ".join(f'CAST(NULL AS {c.sql}) AS "{c.name}"' for c in schema.common(table).columns)
    return f"SELECT {columns} WHERE false"


class OpenedFile:
    """Counts the records of a raw file while it is read.

    Attributes
    ----------
    stream : HashingReader
        The content.
    account : FileAccount
        The file's entry in the manifest. `kept` is computed from the other two counts when the file is closed.
    sink : Sink
        Receives the file's rows and rejects.
    """

    def __init__(self, stream: HashingReader, account: FileAccount, sink: Sink) -> None:
        self.stream = stream
        self.account = account
        self.sink = sink

    @property
    def path(self) -> str:
        """Path relative to the source."""
        return self.account.path

    def count(self, records: int) -> None:
        """Add `records` records to the count, whether usable or not."""
        self.account.records += records

    def reject(self, line: int, column: str | None, reason: str, raw: bytes) -> None:
        """Reject one of the counted records."""
        self.account.rejected += 1
        self.sink.add_reject(self.path, line, column, reason, raw)


class Sink:
    """Collects a reader's output.

    Parameters
    ----------
    writer : TraceWriter
        The Trace being written.
    options : mapping
        The reader's options, with defaults filled in.
    progress : Progress
        Receives the steps.
    memory_limit : str, optional
        Maximum memory for joins before they spill to disk.
    workers : Workers, optional
        Workers for the files that can be read one by one. By default, this process reads these files.

    Attributes
    ----------
    stated : frozenset of str
        Names of the options that the user gave.
    retries : bool
        Whether the source records every attempt of a job. A reader sets it. If it is False, one attempt is derived from
        the job's times.
    rejected_gpu_s : float
        GPU time of rejected runs whose records contain it [GPU*s]. Readers that know this time add to it.
    distinct_samples : bool
        Whether the reader has shown that no GPU sample repeats, so no search for repeats is needed.
    """

    def __init__(
        self,
        writer: TraceWriter,
        options: Mapping[str, str],
        progress: Progress,
        memory_limit: str | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.writer = writer
        self.workers = workers
        self.memory_limit = memory_limit or _JOIN_MEMORY
        self.options = options
        self.stated: frozenset[str] = frozenset()
        self.progress = progress
        self.retries = False
        self.rejected_gpu_s = 0.0
        self.distinct_samples = False
        self.accounts: list[FileAccount] = []
        self.checks: dict[str, Check] = {}
        self.notes: list[str] = []
        self._rejects: dict[str, list[object]] = {
            name: [] for name in ("source_file", "line", "column", "reason", "raw")
        }

    @property
    def folder(self) -> Path:
        """Folder of the Trace being written. Complete tables can be read from it."""
        return self.writer.folder

    def path(self, table: str) -> Path:
        """Return a common table's file, which exists once the table has a row and is complete."""
        return self.writer.folder / f"{table}.parquet"

    def has(self, *tables: str) -> bool:
        """Return whether all the given tables, which must be complete, have rows."""
        return all(self.path(table).is_file() for table in tables)

    def rows(self, table: str) -> str:
        """Return the SQL relation of a complete table that has rows. `file_row_number` is a row's position."""
        return f"read_parquet({sql_text(self.path(table))}, hive_partitioning = false, file_row_number = true)"

    def attach(self, con: duckdb.DuckDBPyConnection, *tables: str) -> None:
        """Create views of complete tables. The view of a table without rows is empty."""
        for table in tables:
            rows = f"SELECT * FROM read_parquet({sql_text(self.path(table))}, hive_partitioning = false)"
            con.execute(f"CREATE VIEW {table} AS {rows if self.has(table) else no_rows(table)}")

    def rewrite(self, table: str, con: duckdb.DuckDBPyConnection, query: str) -> None:
        """Rewrite a table with the result of a query, which may read the table itself."""
        fresh = self.writer.scratch / f"{table}.parquet"
        self.writer.copy(table, con, query, fresh)
        fresh.replace(self.path(table))

    def database(self) -> Database:
        """Return an empty DuckDB database for joining staged tables, with the memory limit of this ingest."""
        return Database(self.memory_limit, alone=self.memory_limit != _JOIN_MEMORY)

    @contextmanager
    def connect(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a connection to an empty database, for use in a with block."""
        with self.database() as database, database.connect() as con:
            yield con

    @contextmanager
    def opened(self, file: SourceFile) -> Iterator[OpenedFile]:
        """Open a raw file, hash its content while it is read, and record its counts."""
        self.progress.stage(f"reading {file.path}", file.size)
        account = FileAccount(path=file.path)
        with file.open() as stream:
            reader = HashingReader(stream, self.progress.advance)
            yield OpenedFile(reader, account, self)
            account.sha256 = reader.finish()
        account.bytes = reader.bytes
        account.kept = account.records - account.rejected
        self.accounts.append(account)

    def write(self, table: str, frame: pl.DataFrame) -> None:
        """Append rows to a common table."""
        self.writer.write(table, frame)

    def stage(self, name: str, frames: Iterable[pl.DataFrame]) -> Path | None:
        """Write frames with equal columns to a Parquet file for a later join. Return its path, or None for no frames.

        The file is temporary, so it is not compressed.
        """
        path = self.writer.scratch / f"{name}.parquet"
        written = False
        with _StageFile(path) as file, ThreadPoolExecutor(1, thread_name_prefix="tracekit-stage") as thread:
            pending: Future[None] | None = None
            for frame in frames:
                written = True
                with output_errors(self.writer.target):
                    if pending is not None:
                        pending.result()
                pending = thread.submit(file.append, frame)
            with output_errors(self.writer.target):
                if pending is not None:
                    pending.result()
        return path if written else None

    def add_reject(self, path: str, line: int, column: str | None, reason: str, raw: bytes) -> None:
        """Append a row to the rejects table. OpenedFile.reject also counts it."""
        text = raw[:_RAW_LIMIT].decode("utf-8", "backslashreplace")
        if len(raw) > _RAW_LIMIT:
            text += f" [truncated, {len(raw)} bytes in total]"
        self.add_rejected(path, line, column, reason, text)

    def add_rejected(self, path: str, line: int, column: str | None, reason: str, text: str) -> None:
        """Append a row, already in its final form, to the rejects table."""
        for name, value in zip(self._rejects, (path, line, column, reason, text), strict=True):
            self._rejects[name].append(value)
        if len(self._rejects["line"]) >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write the rejects collected so far."""
        types = {"source_file": pl.String, "line": pl.Int64, "column": pl.String, "reason": pl.String, "raw": pl.String}
        self.writer.write("rejects", pl.DataFrame(self._rejects, schema=types))
        for values in self._rejects.values():
            values.clear()

    def check(
        self, name: str, count: int, of: int | None, meaning: str, examples: pl.Series | list[str] | None = None
    ) -> None:
        """Add `count` contradictions in `of` rows to a check.

        Parameters
        ----------
        name : str
            Identifies the check in the manifest.
        count, of : int
            Rows found, and rows checked, or None if the count is not a count of rows.
        meaning : str
            Meaning of a count above zero, in one sentence.
        examples : Series or list of str, optional
            Names by which to find the rows. A few are stored.
        """
        entry = self.checks.setdefault(name, Check(0, None if of is None else 0, meaning))
        entry.count += count
        if of is not None and entry.of is not None:
            entry.of += of
        if examples is not None and len(entry.examples) < EXAMPLES:
            room = EXAMPLES - len(entry.examples)
            entry.examples += [str(e)[:200] for e in list(examples[:room])]

    def check_rows(self, name: str, found: pl.Series, meaning: str, ids: pl.Series, of: int | None = None) -> None:
        """Add masked rows to a check. NULL in the mask does not count as a contradiction.

        Parameters
        ----------
        name, meaning : str
            As in `check`.
        found : Series of Boolean
            Mask of the rows with the contradiction.
        ids : Series
            Names of the rows.
        of : int, optional
            Rows checked. By default, all rows of the mask.
        """
        mask = found.fill_null(value=False)
        self.check(name, int(mask.sum()), len(mask) if of is None else of, meaning, ids.filter(mask))

    def check_flags(
        self, flags: pl.DataFrame, meanings: Mapping[str, str], ids: pl.Series, *, compared: bool = False
    ) -> None:
        """Add one check for each Boolean column of `flags` that has a meaning.

        With `compared`, NULL means that there is nothing to compare, so the row does not count as checked.
        """
        for column in flags:
            if column.name in meanings:
                of = column.count() if compared else None
                self.check_rows(column.name, column, meanings[column.name], ids, of)

    def note(self, text: str) -> None:
        """Record a choice or an assumption, and show it to the user."""
        if text not in self.notes:
            self.notes.append(text)
            self.progress.note(text)


class _StageFile:
    """An uncompressed Parquet file, opened when the first frame arrives."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parquet: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._parquet is not None:
            self._parquet.close()

    def append(self, frame: pl.DataFrame) -> None:
        import pyarrow.parquet as pq

        rows = frame.to_arrow(compat_level=pl.CompatLevel.newest())
        if self._parquet is None:
            # Dictionary encoding pays off for columns with repeated values. The first frame shows which these are.
            repeating = [c.name for c in frame if c.dtype == pl.String and c.n_unique() * 4 < len(c)]
            self._parquet = pq.ParquetWriter(
                self._path, rows.schema, compression="none", use_dictionary=repeating, write_statistics=False
            )
        self._parquet.write_table(rows)
