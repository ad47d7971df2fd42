"""A Trace in Spark: its tables, what describes it, the shared views, and frames of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tracekit import schema
from tracekit.characterize.engines.spark.crossing import parsed, relations, spark_sql
from tracekit.characterize.views import list_views
from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import duckdb
    import polars as pl

    from tracekit.trace import Trace

__all__ = ["TraceViews", "arrow_of", "frame_of", "naive"]

_TYPES = {"VARCHAR": "STRING", "BIGINT[]": "ARRAY<BIGINT>"}
_DESCRIBING = ("trace_tables", "trace_capabilities", "trace_zone", "trace_nodes", "trace_tenant")


class TraceViews:
    """The names that SQL may use of one Trace, as temporary views of a session of Spark's own.

    Parameters
    ----------
    session : SparkSession
        One that no other Trace uses.
    trace : Trace
        What is asked.
    empty : iterable of str
        Tables that are there without rows.
    con : DuckDB connection
        Has the tables that describe the Trace.
    """

    def __init__(self, session: Any, trace: Trace, empty: Iterable[str], con: duckdb.DuckDBPyConnection) -> None:
        self.session = session
        self._known: set[str] = set()
        self._views = {view.name: view for view in list_views()}
        for table in trace.tables:
            _read(session, trace, table).createOrReplaceTempView(table)
            self._known.add(table)
        for table in empty:
            columns = ", ".join(f"`{c.name}` {_TYPES.get(c.sql, c.sql)}" for c in schema.common(table).columns)
            session.createDataFrame([], columns).createOrReplaceTempView(table)
            self._known.add(table)
        for name in _DESCRIBING:
            self.put(name, con.sql(f"FROM {name}").to_arrow_table())
            self._known.add(name)

    def put(self, name: str, rows: pa.Table | Any) -> None:
        """Give SQL a table by name: rows of this machine, or a frame of Spark's."""
        frame = self.session.createDataFrame(_for_spark(rows)) if isinstance(rows, pa.Table) else rows
        frame.createOrReplaceTempView(name)

    def need(self, names: Iterable[str]) -> None:
        """Make the shared views of these names, and those that they stand on."""
        for name in names:
            view = self._views.get(name)
            if view is None or name in self._known:
                continue
            self.need(relations(parsed(view.sql, view.path)))
            self.session.sql(
                f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS {spark_sql(view.sql, view.path)}"
            )
            self._known.add(name)


def _read(session: Any, trace: Trace, table: str) -> Any:
    spec = schema.common(table)
    have = spec.columns_of(trace.manifest.schema_version)
    stored = ", ".join(f"`{c.name}` {_TYPES.get(c.sql, c.sql)}" for c in spec.columns if c.name in have)
    # Stated, so that Spark need not look into each file.
    frame = session.read.schema(stored).parquet(*[str(file.absolute()) for file in _files(trace, table)])
    columns = [
        f"`{c.name}`" if c.name in have else f"CAST(NULL AS {_TYPES.get(c.sql, c.sql)}) AS `{c.name}`"
        for c in spec.columns
    ]
    if table == "jobs" and trace.tenant_column != INGESTED:
        columns = [f"`{trace.tenant_column}` AS {INGESTED}" if c == f"`{INGESTED}`" else c for c in columns]
    return frame.selectExpr(*columns)


def _files(trace: Trace, table: str) -> list[Path]:
    return [trace.file(table)]


def arrow_of(frame: pl.DataFrame) -> pa.Table:
    """Return a frame as Arrow's oldest types, which Spark and DuckDB read."""
    import polars as pl

    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _for_spark(table: pa.Table) -> pa.Table:
    """Return a table with the types that Spark has: moments of UTC, signed whole numbers, short texts."""
    return table.cast(pa.schema([pa.field(f.name, _spark_type(f.type)) for f in table.schema]))


def _spark_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_spark_type(kind.value_type))
    return kind


def naive(table: pa.Table) -> pa.Table:
    """Return what Spark gave with times of UTC that carry no zone, as everywhere in tracekit."""
    fields = [
        pa.field(f.name, pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in table.schema
    ]
    return table.cast(pa.schema(fields))


def frame_of(table: pa.Table, wanted: pl.Schema) -> pl.DataFrame:
    """Return rows with DuckDB's names and types.

    Raises
    ------
    TypeError
        A column is of another kind: a text for a number, or a number for a time.
    """
    import polars as pl

    frame = pl.DataFrame(pl.from_arrow(naive(table)))
    if len(frame.columns) != len(wanted):
        raise TypeError(f"it gives {len(frame.columns)} columns, DuckDB {len(wanted)}")
    columns = []
    for (name, kind), found in zip(wanted.items(), frame.iter_columns(), strict=True):
        if not _alike(found.dtype, kind):
            raise TypeError(f"the column '{name}' is {found.dtype}, in DuckDB {kind}")
        columns.append(found.cast(kind).alias(name))
    return pl.DataFrame(columns)


def _alike(one: pl.DataType, other: pl.DataType) -> bool:
    import polars as pl

    if one == other or one == pl.Null or (one.is_numeric() and other.is_numeric()):
        return True
    if isinstance(one, pl.List) and isinstance(other, pl.List):
        return _alike(one.inner, other.inner)  # type: ignore[arg-type]  # Polars has classes for types here too
    return False
