"""A Trace: a folder of Parquet tables in the common schema, and the manifest that tells where they come from.

trace = Trace.open("my-trace")
trace.scan("jobs").filter(pl.col("gpu_count") > 0).collect()
with trace.connect() as con:
    con.sql("SELECT status, count(*) FROM jobs GROUP BY ALL").pl()
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.errors import MissingTableError, TraceError, UsageError, nearest
from tracekit.interruption import remember_once
from tracekit.manifest import Capability, Manifest
from tracekit.outputs import recover
from tracekit.text import is_text

if TYPE_CHECKING:
    import duckdb
    import polars as pl

__all__ = ["MANIFEST_NAME", "Trace", "connect_duckdb", "is_trace", "sql_text"]

MANIFEST_NAME = "manifest.json"
_REPORT = "report.json"
"""What tells the folder of a report, which holds a Trace too."""


@dataclass(frozen=True)
class Trace:
    """A Trace on disk.

    Attributes
    ----------
    path : Path
        The folder.
    manifest : Manifest
        Origin, accounting, checks and capabilities.
    """

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path) -> Trace:
        """Open the Trace in the folder `path`.

        Raises
        ------
        TraceError
            The folder is not a Trace, was written by an incompatible version, or lacks a table that its
            manifest lists.
        """
        folder = Path(path)
        if not is_trace(folder):
            what = "is not a Trace: it has no manifest.json" if folder.is_dir() else "no such Trace"
            raise TraceError(what, where=folder, hint="make one with 'tracekit ingest SRC -o TRACE'")
        if not is_text(str(folder)):
            what = "its path is not UTF-8, which readers of Parquet need"
            raise TraceError(what, where=folder, hint="give the folder another name")
        manifest = Manifest.read(folder / MANIFEST_NAME)
        if manifest.schema_version != schema.SCHEMA_VERSION:
            raise TraceError(
                f"has schema version {manifest.schema_version}, this tracekit reads {schema.SCHEMA_VERSION}",
                where=folder,
                hint="ingest the source again",
            )
        for table in manifest.tables:
            if not (folder / f"{table}.parquet").is_file():
                raise TraceError(f"the table {table} is missing", where=folder, hint="ingest the source again")
        return cls(folder, manifest)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that this Trace has."""
        return tuple(t for t in schema.COMMON_TABLES if t in self.manifest.tables)

    @property
    def capabilities(self) -> dict[str, Capability]:
        """What this Trace can answer, by name, with coverage."""
        return self.manifest.capabilities

    @property
    def timezone(self) -> str:
        """Zone in which hours of the day are read."""
        return self.manifest.timezone

    def has(self, table: str) -> bool:
        """Return whether the Trace has the table."""
        return table in self.manifest.tables

    def file(self, table: str) -> Path:
        """Return the Parquet file of a table.

        Raises
        ------
        MissingTableError
            The Trace has no such table.
        """
        if not self.has(table):
            raise MissingTableError(
                f"the Trace has no table '{table}'", where=self.path, hint=nearest(table, self.tables)
            )
        return self.path / f"{table}.parquet"

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a table as a lazy frame with the columns of `schema.common(table)`.

        Raises
        ------
        MissingTableError
            The Trace has no such table.
        """
        import polars as pl

        return pl.scan_parquet(self.file(table))

    def connect(self, memory_limit: str | None = None) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB connection in which every table of the Trace is a view of its own name.

        Parameters
        ----------
        memory_limit : str, optional
            Most memory DuckDB may use before it spills to disk, such as '2GB'.

        Raises
        ------
        TraceError
            A table's file is damaged.
        """
        import duckdb

        con = connect_duckdb(memory_limit)
        for table in self.tables:
            try:
                con.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet({sql_text(self.file(table))})")
            except duckdb.Error as error:
                con.close()
                raise TraceError(
                    f"the table {table} cannot be read: {str(error).splitlines()[0]}",
                    where=self.path,
                    hint="'tracekit validate TRACE' tells more; ingest the source again",
                ) from error
        return con

    def validate(self) -> list[str]:
        """Return what is wrong with this Trace, one sentence a problem; empty when nothing is.

        Every table is compared with its schema and with the row count of the manifest, keys and references
        included, and the accounting law (records = kept + rejected) is checked for every source file.
        """
        problems: list[str] = []
        for table in self.tables:
            frame = self.scan(table)
            problems += _readable(table, frame) or schema.common(table).problems(frame)
        problems += [] if problems else self._broken_counts() + self._broken_references()
        return problems

    def _broken_counts(self) -> list[str]:
        import polars as pl

        problems = []
        for table, info in self.manifest.tables.items():
            rows = self.scan(table).select(pl.len()).collect().item()
            if rows != info.rows:
                problems.append(f"{table} has {rows} rows, the manifest says {info.rows}")
        by_file: dict[str, int] = {}
        if self.has("rejects"):
            by_file = dict(self.scan("rejects").group_by("source_file").len().collect().iter_rows())
        for f in self.manifest.files:
            if f.records != f.kept + f.rejected:
                problems.append(f"{f.path}: {f.records} records, but {f.kept} kept + {f.rejected} rejected")
            if f.rejected != by_file.get(f.path, 0):
                problems.append(f"{f.path}: {f.rejected} rejected, but {by_file.get(f.path, 0)} rows in rejects")
        return problems

    def _broken_references(self) -> list[str]:
        import polars as pl

        problems = []
        for child in ("attempts", "placements", "job_usage", "failures"):
            if self.has(child) and self.has("jobs"):
                orphans = self.scan(child).join(self.scan("jobs"), on="job_id", how="anti").select(pl.len())
                count = orphans.collect(engine="streaming").item()
                if count:
                    problems.append(f"{child} has {count} rows whose job_id is not in jobs")
        return problems


def _readable(table: str, frame: pl.LazyFrame) -> list[str]:
    import polars as pl

    try:
        frame.collect_schema()
        frame.select(pl.len()).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        return [f"{table} cannot be read: {str(error).splitlines()[0]}"]
    return []


def is_trace(path: Path) -> bool:
    """Return whether `path` is a folder with a manifest.json; what a killed run set aside is put back before."""
    recover(path, MANIFEST_NAME, _REPORT)
    if not path.parent.exists():
        recover(path.parent, _REPORT)
    return (path / MANIFEST_NAME).is_file()


def sql_text(value: str | Path) -> str:
    """Return `value` as an SQL string literal."""
    return "'" + str(value).replace("'", "''") + "'"


def connect_duckdb(memory_limit: str | None = None) -> duckdb.DuckDBPyConnection:
    """Return a fresh in-memory DuckDB connection with tracekit's settings.

    Parameters
    ----------
    memory_limit : str, optional
        Most memory before DuckDB spills to disk, such as '2GB'; DuckDB's own default otherwise.

    Raises
    ------
    UsageError
        `memory_limit` is not a size.
    """
    import duckdb

    con = duckdb.connect()
    spill = Path(tempfile.gettempdir()) / f"tracekit-spill-{os.getpid()}"
    remember_once(spill)
    con.execute(f"SET temp_directory = {sql_text(spill)}")
    # Nothing in a query may reach the network, and stored times carry no zone.
    con.execute("SET autoinstall_known_extensions = false")
    con.execute("SET TimeZone = 'UTC'")
    con.execute("SET enable_progress_bar = false")
    if memory_limit is not None:
        try:
            con.execute(f"SET memory_limit = {sql_text(memory_limit)}")
        except duckdb.Error as error:
            raise UsageError(f"'{memory_limit}' is not a memory size", hint="write it like '2GB'") from error
    return con
