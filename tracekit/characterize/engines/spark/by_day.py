"""Process telemetry by day: DuckDB runs in Spark tasks, one day per task, and Spark merges the results.

Facts about all days are computed first and passed to each task as rows: when the samples begin and end, the time that a
sample represents, and the number of GPUs of each node. The SQL stays in DuckDB's dialect and is not translated here.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tracekit import schema
from tracekit.characterize.session import connect_with_views
from tracekit.tables.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import duckdb

    from tracekit.answer import Value
    from tracekit.trace import Trace

TELEMETRY = ("gpu_utilization", "host_utilization")
"""Tables that are split by day; each task reads the other tables in full."""

MOST_MERGED_ROWS = 5_000_000
"""Maximum number of merged rows to pass to the tasks of a later merge. Above it, Spark's SQL does that merge."""

_MEMORY = "1GB"
_BATCH = 10_000
TYPES = {
    "VARCHAR": "STRING",
    "HUGEINT": "DECIMAL(38,0)",
    "INTEGER": "INT",
    "BIGINT[]": "ARRAY<BIGINT>",
    "VARCHAR[]": "ARRAY<STRING>",
}
"""Spark's names for DuckDB types whose names differ."""


def stream_of(table: pa.Table) -> bytes:
    """Return a table as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


@dataclass(frozen=True)
class Part:
    """Data shared by the tasks of one merge; each task takes its days from its input rows."""

    trace: Trace
    empty: tuple[str, ...]
    """Tables that the SQL may read as empty."""
    sql: str
    params: Mapping[str, Value]
    known: Mapping[str, bytes]
    """Merged rows of earlier steps, as Arrow streams, by name in SQL."""
    views: Mapping[str, str]
    """The shared views that read the merged rows, by name, in DuckDB's dialect."""
    columns: tuple[str, ...] = field(default=())
    """The columns to select, cast to types that Spark has."""


def merge_by_day(
    session: Any, con: duckdb.DuckDBPyConnection, trace: Trace, part: Part, ways: Mapping[str, str | None]
) -> Any:
    """Return the rows of `part` for each day of the telemetry, merged, as a Spark DataFrame.

    Parameters
    ----------
    session : SparkSession
        The session that runs the tasks.
    con : DuckDB connection
        A connection on this machine with everything in the part's statement, used only to find types.
    trace : Trace
        The Trace.
    part : Part
        The part, whose columns are determined here.
    ways : mapping
        See `how_merged`.
    """
    from pyspark.sql import functions as f

    described = con.execute(f"DESCRIBE {part.sql}", dict(part.params) or None).fetchall()
    kinds = {row[0]: str(row[1]) for row in described}
    stored = ", ".join(f"`{name}` {TYPES.get(kind, kind)}" for name, kind in kinds.items())
    columns = tuple(f'CAST("{n}" AS DECIMAL(38, 0)) AS "{n}"' if k == "HUGEINT" else f'"{n}"' for n, k in kinds.items())
    sent = session.sparkContext.broadcast(replace(part, columns=columns))

    def work(day: dt.date) -> Iterator[tuple[Any, ...]]:
        from tracekit.characterize.engines.spark.by_day import rows_of_part

        return rows_of_part(sent.value, day)

    days = _days(trace)
    parts = session.createDataFrame(session.sparkContext.parallelize(days, max(1, len(days))).flatMap(work), stored)
    adding = [getattr(f, way)(name).alias(name) for name, way in ways.items() if way is not None]
    keys = [name for name, way in ways.items() if way is None]
    merged = parts.groupBy(*keys).agg(*adding) if adding else parts.dropDuplicates(keys)
    # A sum of integers or decimals keeps its type, because DuckDB's sum is already that wide.
    return merged.selectExpr(*[f"CAST(`{n}` AS {TYPES.get(k, k)}) AS `{n}`" for n, k in kinds.items()])


def rows_of_part(part: Part, day: dt.date) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a part's statement for one day. Runs on an executor."""
    with connect_with_views(part.trace, also=part.empty, memory_limit=_MEMORY) as con:
        con.execute("SET threads = 1")
        since = dt.datetime.combine(day, dt.time())
        for table in TELEMETRY:
            if part.trace.has(table):
                _cut(con, part.trace, table, since)
        for name, rows in part.known.items():
            con.register(name, pa.ipc.open_stream(rows).read_all())
        for name, sql in part.views.items():
            con.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")
        found = con.execute(f"SELECT {', '.join(part.columns)} FROM ({part.sql})", dict(part.params) or None)
        # Spark reads a time without a zone as the machine's local time.
        times = [
            k for k, column in enumerate(found.description or ()) if str(column[1]).upper().startswith("TIMESTAMP")
        ]
        while block := found.fetchmany(_BATCH):
            for row in block:
                yield tuple(v.replace(tzinfo=dt.UTC) if k in times and v is not None else v for k, v in enumerate(row))


def _cut(con: duckdb.DuckDBPyConnection, trace: Trace, table: str, since: dt.datetime) -> None:
    """Restrict the view of a telemetry table to one day."""
    until = since + dt.timedelta(days=1)
    limits = trace.limits
    day = Window(
        since if limits.start is None else max(since, limits.start),
        until if limits.end is None else min(until, limits.end),
        limits.cluster,
    )
    # Only the partitions of the day are opened.
    con.execute(f"CREATE OR REPLACE VIEW {table} AS {replace(trace, limits=day).rows_sql(table)}")


def _days(trace: Trace) -> list[dt.date]:
    """Return the days from the first to the last selected sample, according to the footers of the files."""
    first = last = None
    for table in TELEMETRY:
        if trace.has(table):
            for since, until in _spans(trace, table):
                first = since if first is None else min(first, since)
                last = until if last is None else max(last, until)
    if first is None or last is None:
        return []
    start, end = trace.limits.start, trace.limits.end
    first = first if start is None else max(first, start.date())
    last = last if end is None else min(last, (end - dt.timedelta(microseconds=1)).date())
    return [first + dt.timedelta(days=number) for number in range((last - first).days + 1)]


def _spans(trace: Trace, table: str) -> Iterator[tuple[dt.date, dt.date]]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    place = schema.common(table).names.index("time")
    for path in trace.files(table):
        with pq.ParquetFile(path) as file:
            for number in range(file.metadata.num_row_groups):
                told = file.metadata.row_group(number).column(place).statistics
                if told is not None and told.has_min_max:
                    ends = told.min, told.max
                else:
                    times = file.read_row_group(number, columns=["time"]).column(0)
                    ends = pc.min(times).as_py(), pc.max(times).as_py()
                if ends[0] is not None:
                    yield ends[0].date(), ends[1].date()
