"""Write the tables of a Trace and of a newer export as one.

A row that the newer export repeats takes the place of the older one, so that the order of a table does not change; new
rows follow at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit import schema
from tracekit.errors import TraceError
from tracekit.ingest.derived import most_held
from tracekit.ingest.merge_jobs import JOB_TABLES
from tracekit.tables.parquet import columns_sql
from tracekit.trace import sql_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import duckdb

    from tracekit.trace import Trace
    from tracekit.trace_writer import TraceWriter

__all__ = ["attach", "write_listed_records", "write_tables"]


def attach(con: duckdb.DuckDBPyConnection, old: Trace, new: Path, *, by_cluster: bool) -> None:
    """Create the views old_<table>, new_<table> and both_<table> of every common table.

    Each has the table's columns and `side` (0 old, 1 new) and `row`, the row's place in its file.

    Parameters
    ----------
    old : Trace
        The Trace, of any schema version that is read.
    new : Path
        Folder with the tables of the newer export.
    by_cluster : bool
        Whether machines are named CLUSTER/NAME as soon as there are several clusters; then they are renamed where only
        both exports together have several.

    Raises
    ------
    TraceError
        A table is damaged.
    """
    sides = (
        _Side(0, old.manifest.schema_version, {t: old.file(t) for t in old.tables}),
        _Side(1, schema.SCHEMA_VERSION, {t: f for t in schema.COMMON_TABLES if (f := new / f"{t}.parquet").is_file()}),
    )
    for side in sides:
        _attach_side(con, side)
    if by_cluster:
        clusters = [
            [str(row[0]) for row in con.execute(f"SELECT DISTINCT cluster FROM {side.name}_nodes").fetchall()]
            for side in sides
        ]
        if len({name for names in clusters for name in names}) > 1:
            for side, names in zip(sides, clusters, strict=True):
                if len(names) == 1:
                    _attach_side(con, side, prefix=f"{names[0]}/")
    for table in schema.COMMON_TABLES:
        con.execute(f"CREATE VIEW both_{table} AS SELECT * FROM old_{table} UNION ALL SELECT * FROM new_{table}")


class _Side(NamedTuple):
    """The tables of one export."""

    number: int
    """0 old, 1 new."""
    version: str
    """Their schema version."""
    files: Mapping[str, Path]
    """Their Parquet files, by table."""

    @property
    def name(self) -> str:
        """What its views begin with."""
        return ("old", "new")[self.number]


def _attach_side(con: duckdb.DuckDBPyConnection, side: _Side, prefix: str = "") -> None:
    import duckdb

    number, version, files = side
    for table in schema.COMMON_TABLES:
        columns = schema.common(table).columns
        if table in files:
            shown = [
                f"{sql_text(prefix)} || node_id AS node_id" if prefix and c.name == "node_id" else f'"{c.name}"'
                for c in columns
            ]
            rows = f"read_parquet({sql_text(files[table])}, file_row_number = true)"
            source = f"file_row_number AS row FROM (SELECT {columns_sql(table, version)} FROM {rows})"
        else:
            shown = [f'CAST(NULL AS {c.sql}) AS "{c.name}"' for c in columns]
            source = "0::BIGINT AS row WHERE false"
        view = f"CREATE OR REPLACE VIEW {side.name}_{table} AS SELECT {number} AS side, {', '.join(shown)}, {source}"
        try:
            con.execute(view)
        except duckdb.Error as error:
            raise TraceError(
                f"the table {table} cannot be read: {str(error).splitlines()[0]}",
                where=files[table].parent,
                hint="run 'tracekit validate TRACE' for details",
            ) from error


def write_tables(con: duckdb.DuckDBPyConnection, writer: TraceWriter, *, nodes_from_jobs: bool) -> None:
    """Write every table except those that list records, after the rule for jobs has run (see `merge_jobs`).

    Parameters
    ----------
    nodes_from_jobs : bool
        Whether the GPUs of a machine are the most that its jobs used at once: then they are counted over both.
    """
    for table in JOB_TABLES:
        if _rows(con, f"both_{table}"):
            writer.copy(table, con, _job_rows(con, table))
    for table in ("nodes", "capacity", "node_events", "gpu_utilization", "host_utilization"):
        if _rows(con, f"both_{table}"):
            query = _keyed_rows(con, table)
            if table == "nodes" and nodes_from_jobs:
                placements = f"read_parquet({sql_text(writer.folder / 'placements.parquet')})"
                query = _NAMED_NODES.format(nodes=query, held=most_held(placements, "start_time", "end_time"))
            writer.copy(table, con, query)


def write_listed_records(con: duckdb.DuckDBPyConnection, writer: TraceWriter, shown: Mapping[str, str]) -> None:
    """Write the rejects and the doubtful times of both, whose rows name a file.

    `shown` has the names of the new files; those read before are not in it.
    """
    con.execute("CREATE TABLE shown (source_file VARCHAR, name VARCHAR)")
    if shown:
        con.executemany("INSERT INTO shown VALUES (?, ?)", [list(item) for item in shown.items()])
    for table in ("rejects", "doubtful_times"):
        query = f"""SELECT * FROM (
            SELECT * FROM old_{table}
            UNION ALL
            SELECT r.* REPLACE (s.name AS source_file) FROM new_{table} r LEFT JOIN shown s USING (source_file)
            WHERE s.name IS NOT NULL OR r.source_file IS NULL)
            ORDER BY side, row"""
        if _rows(con, f"({query})"):
            writer.copy(table, con, query)


def _rows(con: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])


def _columns(table: str) -> str:
    return ", ".join(f'"{c.name}"' for c in schema.common(table).columns)


def _job_rows(con: duckdb.DuckDBPyConnection, table: str) -> str:
    """Return the query for a table whose rows belong to jobs."""
    if not _rows(con, "identity"):
        return f"SELECT * FROM both_{table}"
    old, columns = _rows(con, f"old_{table}"), _columns(table)
    return f"""SELECT {columns} FROM (
        SELECT {columns}, row + side * {old} AS place, 0 AS seq
        FROM both_{table} ANTI JOIN identity USING (side, job_id)
        UNION ALL
        SELECT {columns}, place, seq FROM merged_{table} JOIN (
            SELECT h.final_id AS job_id, min(t.row + t.side * {old}) AS place
            FROM both_{table} t JOIN identity h USING (side, job_id) GROUP BY h.final_id) USING (job_id))
        ORDER BY place, seq"""


def _keyed_rows(con: duckdb.DuckDBPyConnection, table: str) -> str:
    """Return the query for a table whose rows are identified by their key."""
    same = " AND ".join(f'o."{k}" IS NOT DISTINCT FROM n."{k}"' for k in schema.common(table).primary_key)
    con.execute(
        f"""CREATE TABLE same_{table} AS
        SELECT o.row AS old_row, n.row AS new_row FROM old_{table} o JOIN new_{table} n ON {same}"""
    )
    if not _rows(con, f"same_{table}"):
        return f"SELECT * FROM both_{table}"
    old, columns = _rows(con, f"old_{table}"), _columns(table)
    return f"""SELECT {columns} FROM (
        SELECT {columns}, row AS place, row AS seq FROM old_{table} ANTI JOIN same_{table} ON row = old_row
        UNION ALL
        SELECT {columns}, coalesce(place, row + {old}), row FROM new_{table} LEFT JOIN (
            SELECT new_row, min(old_row) AS place FROM same_{table} GROUP BY new_row) ON row = new_row)
        ORDER BY place, seq"""


# The GPU model of the newer export is used, or that of the older one where the newer has none.
_NAMED_NODES = """SELECT n.* REPLACE (coalesce(h.gpu_count, n.gpu_count) AS gpu_count,
                                      coalesce(n.gpu_model, o.gpu_model) AS gpu_model)
FROM (SELECT *, row_number() OVER () AS place FROM ({nodes})) n
LEFT JOIN ({held}) h USING (node_id) LEFT JOIN old_nodes o USING (node_id) ORDER BY n.place"""
