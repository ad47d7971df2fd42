"""The raw tables of PAI as DuckDB views, and helpers of the modules that join them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.errors import SourceError
from tracekit.ingest.cells import LAST_SECOND, limited
from tracekit.ingest.csv_table import header_columns, read_table
from tracekit.ingest.record_times import RecordTimes, TimeColumns, clipped_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import duckdb

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import FoundFiles
    from tracekit.ingest.sink import Sink
    from tracekit.schema import TableSchema

__all__ = ["PaiTables", "instant", "keep_one"]

_LARGEST = dict.fromkeys(("inst_num", "plan_cpu", "plan_mem", "plan_gpu"), 1e9)
_OF_SAMPLES = dict.fromkeys(("start_time", "end_time"), LAST_SECOND)
_SUBMITTED = {"start_time": "submit_time", "end_time": "end_time"}
_RUN = {"start_time": "start_time", "end_time": "end_time"}
_TIMES = {"pai_job_table": _SUBMITTED, "pai_task_table": _SUBMITTED, "pai_instance_table": _RUN}
"""Columns of the Trace that the times of a table become."""
_READ = {
    "pai_instance_table": (
        "job_name",
        "task_name",
        "inst_name",
        "worker_name",
        "status",
        "start_time",
        "end_time",
        "machine",
    ),
    "pai_sensor_table": (
        "job_name",
        "task_name",
        "worker_name",
        "machine",
        "cpu_usage",
        "gpu_wrk_util",
        "avg_mem",
        "avg_gpu_wrk_mem",
    ),
    "pai_machine_metric": ("machine", "start_time", "end_time", "machine_cpu"),
}
"""Columns with a place in the Trace, for tables where not all have one."""


class PaiTables:
    """The raw tables of one source, read once each.

    Raises
    ------
    SourceError
        Two files hold the same table, or a .header file lacks a column.
    """

    def __init__(self, found: FoundFiles, sink: Sink) -> None:
        self._found = found
        self._sink = sink
        self._orders = dict(self._header(file) for file in found.get("header"))

    def _header(self, file: SourceFile) -> tuple[str, list[str]]:
        with self._sink.opened(file) as opened:
            line = opened.stream.read(65_536).partition(b"\n")[0]
        return file.name.removesuffix(".header"), header_columns(line)

    def has(self, key: str) -> bool:
        """Return whether the source holds the table."""
        return bool(self._found.get(key))

    def rows(self, key: str) -> Iterator[pl.DataFrame]:
        """Yield the usable rows of a table, as `read_table` does; nothing when the source lacks it."""
        files = self._found.get(key)
        if len(files) > 1:
            raise SourceError(
                f"several files hold the table {key}: {files[0].path}, {files[1].path}", hint="keep one of them"
            )
        whole = schema.source("alibaba-pai", key)
        order = self._orders.get(key) or list(whole.names)
        spec = _narrowed(whole)
        for file in files:
            frames = read_table(self._sink, file, spec, columns=order)
            if key not in _TIMES:
                yield from frames
                continue
            times = RecordTimes(self._sink, file.path)
            for frame in frames:
                yield _possible(frame, times, _TIMES[key], by_task=self._sink.options["unit"] == "task")

    def stage(self, con: duckdb.DuckDBPyConnection, view: str, key: str) -> Path | None:
        """Read one table into a view of its columns and `line`, and return the file behind it.

        A table that is absent gives an empty view, and no file.
        """
        path = self._sink.stage(key, self.rows(key))
        if path is None:
            spec = _narrowed(schema.source("alibaba-pai", key))
            columns = ", ".join(f'NULL::{c.sql} AS "{c.name}"' for c in spec.columns)
            con.execute(f"CREATE VIEW {view} AS SELECT {columns}, NULL::BIGINT AS line WHERE false")
        else:
            con.execute(f"CREATE VIEW {view} AS SELECT * FROM read_parquet({sql_text(path)})")
        return path


def _narrowed(spec: TableSchema) -> TableSchema:
    read = _READ.get(spec.name, spec.names)
    largest = _LARGEST if spec.name in _TIMES else _LARGEST | _OF_SAMPLES
    return limited(replace(spec, columns=tuple(c for c in spec.columns if c.name in read)), largest)


def _possible(rows: pl.DataFrame, times: RecordTimes, columns: dict[str, str], *, by_task: bool) -> pl.DataFrame:
    """Return the rows with impossible times NULL, still in seconds; 0 means unknown in the release."""
    known = rows.with_columns(pl.when(pl.col(name) != 0).then(name).alias(name) for name in columns)
    name = (
        pl.format("{}/{}", "job_name", "task_name") if by_task and "task_name" in rows.columns else pl.col("job_name")
    )
    dated = known.select(name.alias("job_id"), "line", *(clipped_seconds(pl.col(c)) for c in columns))
    found = times.possible(dated, TimeColumns(columns)).select(list(columns))
    return known.with_columns(known[c].set(found[c].is_null(), None) for c in columns)


def keep_one(con: duckdb.DuckDBPyConnection, view: str, rows: str, key: str, order: str) -> None:
    """Define `view` as the rows of `rows` with one row for each key: the first by `order`.

    The others, with their key, are the table `<view>_superseded`. Few keys have several rows, so only rows that share
    a hash are ranked.
    """
    con.execute(
        f"""CREATE TABLE {view}_superseded AS
        WITH hashed AS (SELECT *, hash({key}) AS hash FROM {rows}),
        repeated AS (SELECT hash FROM (SELECT hash({key}) AS hash FROM {rows}) GROUP BY hash HAVING count(*) > 1)
        SELECT line, {key} FROM hashed SEMI JOIN repeated USING (hash)
        QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {order}) > 1"""
    )
    con.execute(f"CREATE VIEW {view} AS SELECT * FROM {rows} ANTI JOIN {view}_superseded USING (line)")


def instant(seconds: str) -> str:
    """Return SQL for seconds as times from 1970-01-01 on."""
    return f"make_timestamp(({seconds} * 1000000)::BIGINT)"
