"""Telemetry day by day: DuckDB runs inside Spark's tasks, each over one day, and Spark merges what they give.

What a day needs to know of all days is computed first and handed to each task as rows: when samples begin and end, how
long one stands for, how many GPUs a node shows. SQL stays DuckDB's, so nothing is translated here.
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
"""Tables that are cut by day; the others are read whole by each task."""

MOST_MERGED_ROWS = 5_000_000
"""Most merged rows that the tasks of a later merge are given; where there are more, Spark's SQL does that one."""

_MEMORY = "1GB"
_BATCH = 10_000
TYPES = {"VARCHAR": "STRING", "HUGEINT": "DECIMAL(38,0)", "INTEGER": "INT", "BIGINT[]": "ARRAY<BIGINT>"}
"""What Spark calls types of DuckDB's, where it has another name."""


def stream_of(table: pa.Table) -> bytes:
    """Return a table as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


@dataclass(frozen=True)
class Part:
    """What the tasks of one merge share; each takes its days from the rows that it is given."""

    trace: Trace
    empty: tuple[str, ...]
    """Tables that the SQL may read as empty."""
    sql: str
    params: Mapping[str, Value]
    known: Mapping[str, bytes]
    """Merged rows of earlier steps, as Arrow streams, by the name that SQL has for them."""
    views: Mapping[str, str]
    """The shared views that read them, by name, in DuckDB's dialect."""
    columns: tuple[str, ...] = field(default=())
    """What is selected of the rows, with the types that Spark has."""


def merge_by_day(
    session: Any, con: duckdb.DuckDBPyConnection, trace: Trace, part: Part, ways: Mapping[str, str | None]
) -> Any:
    """Return a frame of Spark's: what `part` gives for each day of the telemetry, merged.

    Parameters
    ----------
    session : SparkSession
        What runs the tasks.
    con : DuckDB connection
        On this machine, with everything that the statement of the part names; only types are asked of it.
    trace : Trace
        What is asked.
    part : Part
        Its statement; the columns are found here.
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
    # A sum of whole numbers or decimal numbers keeps its type: DuckDB's own sum of them is as wide as that.
    return merged.selectExpr(*[f"CAST(`{n}` AS {TYPES.get(k, k)}) AS `{n}`" for n, k in kinds.items()])


def rows_of_part(part: Part, day: dt.date) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that the statement of a part gives for one day; runs on an executor."""
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
        # Spark takes a time without a zone for one of the machine's own.
        times = [
            k for k, column in enumerate(found.description or ()) if str(column[1]).upper().startswith("TIMESTAMP")
        ]
        while block := found.fetchmany(_BATCH):
            for row in block:
                yield tuple(v.replace(tzinfo=dt.UTC) if k in times and v is not None else v for k, v in enumerate(row))


def _cut(con: duckdb.DuckDBPyConnection, trace: Trace, table: str, since: dt.datetime) -> None:
    """Let the view of a table of telemetry show one day alone."""
    until = since + dt.timedelta(days=1)
    limits = trace.limits
    day = Window(
        since if limits.start is None else max(since, limits.start),
        until if limits.end is None else min(until, limits.end),
        limits.cluster,
    )
    # Of partitions only those of the day are opened.
    con.execute(f"CREATE OR REPLACE VIEW {table} AS {replace(trace, limits=day).rows_sql(table)}")


def _days(trace: Trace) -> list[dt.date]:
    """Return the days from the first to the last sample that is asked, by the footers of the files."""
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
