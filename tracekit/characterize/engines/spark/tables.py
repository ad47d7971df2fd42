"""A Trace in Spark: its tables, its description, the shared views, and frames on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tracekit import schema
from tracekit.characterize.engines.spark.by_day import MOST_MERGED_ROWS, TELEMETRY, TYPES, Part, merge_by_day, stream_of
from tracekit.characterize.engines.spark.crossing import parsed, relations, to_spark
from tracekit.characterize.engines.spark.merging import head, how_merged, merged_name, read_again, tail, with_merged
from tracekit.characterize.session import list_views
from tracekit.errors import UsageError
from tracekit.places import is_remote
from tracekit.tenant import INGESTED
from tracekit.trace import WITH_POOL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import duckdb
    import polars as pl
    from sqlglot import exp

    from tracekit.answer import Value
    from tracekit.characterize.query import Query
    from tracekit.trace import Trace

_DESCRIBING = (
    "trace_tables",
    "trace_capabilities",
    "trace_zone",
    "trace_nodes",
    "trace_tenant",
    "trace_pools",
    "gpu_parts",
)


class TraceViews:
    """The names that SQL may use for one Trace, as temporary views in their own Spark session.

    Parameters
    ----------
    session : SparkSession
        A session that no other Trace uses.
    trace : Trace
        The Trace.
    empty : iterable of str
        Tables that exist without rows.
    con : DuckDB connection
        A connection with the tables that describe the Trace.
    large_rows : int
        From this number of rows in a table, percentiles are computed from value counts (`percentiles.by_counts`).
    """

    def __init__(
        self, session: Any, trace: Trace, empty: Iterable[str], con: duckdb.DuckDBPyConnection, large_rows: int
    ) -> None:
        self.large_rows = large_rows
        self.session, self._trace, self._empty, self.con = session, trace, tuple(sorted(empty)), con
        self._known: set[str] = set()
        self._merged: dict[str, dict[str, str]] = {}
        self._rows: dict[str, pa.Table] = {}
        self._frames: dict[str, Any] = {}
        self._views = {view.name: view for view in list_views()}
        for table in trace.tables:
            _read(session, trace, table).createOrReplaceTempView(table)
            self._known.add(table)
        for table in self._empty:
            columns = ", ".join(f"`{c.name}` {TYPES.get(c.sql, c.sql)}" for c in schema.common(table).columns)
            session.createDataFrame([], columns).createOrReplaceTempView(table)
            self._known.add(table)
        for name in _DESCRIBING:
            self.put(name, con.sql(f"FROM {name}").to_arrow_table())
            self._known.add(name)

    def use(self, con: duckdb.DuckDBPyConnection) -> None:
        """Switch to another connection on this machine, which receives the rows merged so far."""
        self.con = con
        for name, rows in self._rows.items():
            con.register(name, rows)

    def put(self, name: str, rows: pa.Table | Any) -> None:
        """Register a table by name, either rows on this machine or a Spark DataFrame."""
        frame = self.session.createDataFrame(_for_spark(rows)) if isinstance(rows, pa.Table) else rows
        frame.createOrReplaceTempView(name)

    def need(self, names: Iterable[str]) -> None:
        """Create the shared views with these names, and the views that they depend on."""
        for name in names:
            view = self._views.get(name)
            if view is None or name in self._known:
                continue
            tree = self.merged(view, {})
            self.need(relations(tree))
            sql = to_spark(tree, view.path, large=self._large(relations(tree)))
            self.session.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS {sql}")
            self._known.add(name)

    def merged(self, query: Query, values: Mapping[str, Value]) -> exp.Expr:
        """Compute the telemetry tables of a query or view by day, merge them, and return the statement.

        The statement reads the merged tables by name. If the Trace has no such telemetry, or a later step needs more
        merged rows than can be passed to its tasks, the statement is returned unchanged, and Spark runs all of it.
        """
        known: dict[str, str] = {}
        for table in query.merge:
            name = merged_name(query.name, table)
            sql = head(query, table, known)
            tree = parsed(sql, query.path)
            names = self._views_below(relations(tree))
            if not any(self._trace.has(t) for t in TELEMETRY if t in self._tables_below(names | relations(tree))):
                break
            if not self._all_handed(names):
                break
            self._merge(name, query, table, sql, values, names)
            known[table] = name
            if name not in self._rows and table != query.merge[-1]:
                break
        self._merged[query.name] = known
        return tail(query, known)

    def _merge(
        self, name: str, query: Query, table: str, sql: str, values: Mapping[str, Value], views: set[str]
    ) -> None:
        """Compute a common table by day, and make its rows available to Spark, to later tasks, and on this machine."""
        rewritten = {
            view.name: tail(view, self._merged[view.name]).sql(dialect="duckdb")
            for view in list_views()
            if view.name in views and self._merged.get(view.name)
        }
        used = parameters_of(sql)
        params = {n: v for n, v in values.items() if n in used}
        known = {
            n: stream_of(rows)
            for n, rows in self._rows.items()
            if any(n in text for text in (sql, *rewritten.values()))
        }
        part = Part(self._trace, self._empty, sql, params, known, rewritten)
        self._rows.pop(name, None)  # from the same query with other parameters
        if name in self._frames:
            self._frames.pop(name).unpersist()
        frame = self._frames[name] = merge_by_day(
            self.session, self.con, self._trace, part, how_merged(query, table)
        ).cache()
        frame.createOrReplaceTempView(name)
        if frame.count() <= MOST_MERGED_ROWS:
            rows = naive(frame.toArrow())
            self.con.register(name, rows)
            self._rows[name] = rows

    def rows(self, tree: exp.Expr, values: Mapping[str, Value], where: Path) -> pa.Table:
        """Run a statement on Spark and return its rows.

        A common table that is read in several places is computed once, as in DuckDB. Spark would recompute it each
        time.
        """
        self.need(relations(tree))
        arguments = dict(values) or None
        large = self._large(relations(tree))
        kept: dict[str, str] = {}
        frames = []
        try:
            for name, statement in read_again(tree):
                sql = to_spark(with_merged(statement, kept), where, large=large)
                frames.append(self.session.sql(sql, args=arguments).cache())
                kept[name] = f"kept_{name}"
                frames[-1].createOrReplaceTempView(kept[name])
            return self.session.sql(to_spark(with_merged(tree, kept), where, large=large), args=arguments).toArrow()
        finally:
            for frame in frames:
                frame.unpersist()

    def local(self, query: Query) -> bool:
        """Return whether the rest of a merged statement reads only merged rows that are also on this machine."""
        known = self._merged.get(query.name, {})
        return bool(known) and relations(tail(query, known)) <= self._rows.keys()

    def on_this_machine(self, name: str) -> None:
        """Make a shared view on this machine read the merged rows instead of telemetry."""
        self.need([name])
        view, known = self._views[name], self._merged.get(name, {})
        if known and all(rows in self._rows for rows in known.values()):
            self.con.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {tail(view, known).sql(dialect='duckdb')}")

    def _views_below(self, names: Iterable[str]) -> set[str]:
        """Create and return the shared views among these names, and the views that they depend on."""
        found = {name for name in names if name in self._views}
        self.need(found)
        for name in list(found):
            found |= self._views_below(relations(tail(self._views[name], self._merged.get(name, {}))))
        return found

    def _tables_below(self, names: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for name in names:
            view = self._views.get(name)
            found |= {name} if view is None else relations(parsed(view.sql, view.path))
        return found

    def _large(self, names: Iterable[str]) -> bool:
        """Return whether these tables and views, read by a statement, have more rows than fit in memory."""
        below = self._tables_below(self._views_below(names)) | set(names)
        rows = [self._trace.manifest.tables[table].rows for table in below if self._trace.has(table)]
        return max(rows, default=0) >= self.large_rows

    def _all_handed(self, views: set[str]) -> bool:
        """Return whether all merged rows of these views can be passed to the tasks."""
        return all(name in self._rows for view in views for name in self._merged.get(view, {}).values())


def _read(session: Any, trace: Trace, table: str) -> Any:
    import sqlglot

    spec = schema.common(table)
    have = spec.columns_of(trace.manifest.schema_version)
    stored = ", ".join(f"`{c.name}` {TYPES.get(c.sql, c.sql)}" for c in spec.columns if c.name in have)
    if is_remote(trace.path):
        raise UsageError(
            "Spark cannot read a Trace in an object store",
            where="--engine",
            hint="use --engine duckdb, or copy the Trace to disk",
        )
    files = [str(file.absolute()) for file in trace.files(table)]
    # With a given schema, Spark does not open each file, and does not read folder names as columns.
    frame = session.read.schema(stored).parquet(*files) if files else session.createDataFrame([], stored)
    if files and (taken := trace.condition_sql(table)):
        # Jobs and nodes, which a condition may name, come before the tables that it applies to.
        frame = frame.where(sqlglot.parse_one(taken, dialect="duckdb").sql(dialect="spark"))
    columns = [
        f"`{c.name}`" if c.name in have else f"CAST(NULL AS {TYPES.get(c.sql, c.sql)}) AS `{c.name}`"
        for c in spec.columns
    ]
    if trace.by_pool and table in WITH_POOL:
        pool = sqlglot.parse_one(trace.pool_sql(table), dialect="duckdb").sql(dialect="spark")
        columns = [f"{pool} AS `cluster`" if c == "`cluster`" else c for c in columns]
    if table == "jobs" and trace.tenant_column != INGESTED:
        columns = [f"`{trace.tenant_column}` AS {INGESTED}" if c == f"`{INGESTED}`" else c for c in columns]
    return frame.selectExpr(*columns)


def parameters_of(sql: str) -> set[str]:
    """Return the parameter names in a statement in DuckDB's dialect."""
    import duckdb

    return set(duckdb.extract_statements(sql)[0].named_parameters)


def arrow_of(frame: pl.DataFrame) -> pa.Table:
    """Convert a frame to Arrow's oldest types, which both Spark and DuckDB read."""
    import polars as pl

    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _for_spark(table: pa.Table) -> pa.Table:
    """Convert a table to types that Spark has: UTC timestamps, signed integers, short strings."""
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
    """Convert a table from Spark to UTC times without a zone, as everywhere in tracekit."""
    fields = [pa.field(f.name, pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def frame_of(table: pa.Table, wanted: pl.Schema) -> pl.DataFrame:
    """Convert rows to DuckDB's names and types.

    Raises
    ------
    TypeError
        A column has a different kind of type, such as text instead of a number, or a number instead of a time.
    """
    import polars as pl

    frame = pl.DataFrame(pl.from_arrow(naive(table)))
    if len(frame.columns) != len(wanted):
        raise TypeError(f"Spark returns {len(frame.columns)} columns, DuckDB {len(wanted)}")
    columns = []
    for (name, kind), found in zip(wanted.items(), frame.iter_columns(), strict=True):
        if not _alike(found.dtype, kind):
            raise TypeError(f"the column '{name}' is {found.dtype}, in DuckDB {kind}")
        columns.append(found.cast(kind).alias(name))
    return pl.DataFrame(columns)


def _alike(one: pl.DataType, other: pl.DataType) -> bool:
    import polars as pl

    if one in (other, pl.Null()) or (one.is_numeric() and other.is_numeric()):
        return True
    if isinstance(one, pl.List) and isinstance(other, pl.List):
        return _alike(one.inner, other.inner)  # type: ignore[arg-type]  # Polars has classes for types here too
    return False
