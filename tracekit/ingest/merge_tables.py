"""Merge a Trace's tables with a newer export's tables.

If the newer export repeats a row, it replaces the older row in the same position. New rows are added at the end.

The merge skips partitions that a newer export does not change and reuses their files. A row may change if the export
has a row of the same job or sample. The partition with this row is then rewritten as a whole, as is every partition
that gets a new row. To find them, we read only the ids, clusters and submissions of all jobs in the Trace, and no other
columns of unchanged partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.errors import TraceError
from tracekit.ingest.companion import LISTS
from tracekit.ingest.derived import shown_gpus
from tracekit.ingest.merge_jobs import JOB_TABLES
from tracekit.tables.parquet import files_sql
from tracekit.tables.partitions import JOB_TABLES as CUT_WITH_JOBS
from tracekit.tables.partitions import SAMPLE_TABLES, table_files
from tracekit.tables.writing import row_sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import duckdb

    from tracekit.manifest import Partition
    from tracekit.trace import Trace
    from tracekit.trace_writer import TraceWriter


def attach(con: duckdb.DuckDBPyConnection, old: Trace, new: Path, *, by_cluster: bool) -> bool:
    """Create the views old_<table>, new_<table> and both_<table> of every common table.

    Each view has the table's columns, `side` (0 for old, 1 for new) and `row`, the row's position in the table.

    Parameters
    ----------
    old : Trace
        The Trace, in any supported schema version.
    new : Path
        Folder that contains the tables of the newer export.
    by_cluster : bool
        Whether machines are named CLUSTER/NAME if there are several clusters. If so, they are renamed when only the two
        exports together have several.

    Returns
    -------
    bool
        Whether the Trace's machines are renamed.

    Raises
    ------
    TraceError
        A table is damaged.
    """
    fresh = {table: (new / f"{table}.parquet",) for table in schema.COMMON_TABLES}
    sides = (
        _Side(0, old.manifest.schema_version, {t: old.files(t) for t in old.tables}),
        _Side(1, schema.SCHEMA_VERSION, {t: files for t, files in fresh.items() if files[0].is_file()}),
    )
    renamed = False
    for side in sides:
        _attach_side(con, side)
    if by_cluster:
        clusters = [
            [
                str(row[0])
                for row in con.execute(
                    f"SELECT DISTINCT cluster FROM {side.name}_nodes WHERE cluster IS NOT NULL"
                ).fetchall()
            ]
            for side in sides
        ]
        if len({name for names in clusters for name in names}) > 1:
            for side, names in zip(sides, clusters, strict=True):
                if len(names) == 1:
                    _attach_side(con, side, prefix=f"{names[0]}/")
                    renamed = renamed or side.name == "old"
    for table in schema.COMMON_TABLES:
        con.execute(f"CREATE VIEW both_{table} AS SELECT * FROM old_{table} UNION ALL SELECT * FROM new_{table}")
    return renamed


class _Side(NamedTuple):
    """The tables of one export."""

    number: int
    """0 for old, 1 for new."""
    version: str
    """Schema version of the tables."""
    files: Mapping[str, Sequence[Path]]
    """Parquet files by table."""

    @property
    def name(self) -> str:
        """Prefix of the views."""
        return ("old", "new")[self.number]


def _attach_side(
    con: duckdb.DuckDBPyConnection, side: _Side, prefix: str = "", tables: Iterable[str] = schema.COMMON_TABLES
) -> None:
    import duckdb

    number, version, files = side
    for table in tables:
        columns = schema.common(table).columns
        if files.get(table):
            shown = [
                f"{sql_text(prefix)} || node_id AS node_id" if prefix and c.name == "node_id" else f'"{c.name}"'
                for c in columns
            ]
            source = f"row FROM ({row_sql(table, files[table], version)})"
        else:
            shown = [f'CAST(NULL AS {c.sql}) AS "{c.name}"' for c in columns]
            source = "0::BIGINT AS row WHERE false"
        view = f"CREATE OR REPLACE VIEW {side.name}_{table} AS SELECT {number} AS side, {', '.join(shown)}, {source}"
        try:
            con.execute(view)
        except duckdb.Error as error:
            raise TraceError(
                f"the table {table} cannot be read: {str(error).splitlines()[0]}",
                where=files[table][0].parent,
                hint="run 'tracekit validate TRACE' for details",
            ) from error


def write_tables(
    con: duckdb.DuckDBPyConnection, writer: TraceWriter, old: Trace, *, nodes_from_jobs: bool, narrow: bool
) -> dict[str, list[Partition]]:
    """Write every table except those that list source records. The rule for jobs must have run (see `merge_jobs`).

    Parameters
    ----------
    old : Trace
        The Trace whose tables are attached.
    nodes_from_jobs : bool
        Whether a machine's GPU count is the most that its jobs used at once. If so, it is counted over both exports.
    narrow : bool
        Leave out the rows of partitions that do not change.

    Returns
    -------
    dict
        The skipped partitions, by table, including those of doubtful_times, whose view then has only the other rows.
    """
    kept = _untouched_jobs(con, old) if narrow else {}
    _attach_changed(con, old, kept)
    for table in JOB_TABLES:
        if _rows(con, f"both_{table}"):
            query = _job_rows(con, table)
            if table == "placements" and _rows(con, "identity"):
                query = _WITH_GPUS.format(rows=query)
            writer.copy(table, con, query)
    _attach_changed(con, old, {table: () for table in kept if table != "doubtful_times"})
    placements = [*writer.files("placements"), *table_files(old.path, "placements", kept.get("placements", ()))]
    for table in ("nodes", "capacity", "node_events", "gpu_utilization", "host_utilization"):
        if _rows(con, f"both_{table}"):
            if narrow and table in SAMPLE_TABLES and table in old.tables:
                kept[table] = _untouched_samples(con, old, table, writer.files("nodes"))
                _attach_changed(con, old, {table: kept[table]})
            query = _keyed_rows(con, table)
            if table == "nodes" and nodes_from_jobs and placements:
                held = shown_gpus(f"read_parquet({files_sql(placements)}, hive_partitioning = false)")
                query = _NAMED_NODES.format(nodes=query, held=held)
            if table == "nodes" and _rows(con, "old_nodes WHERE source IS NOT NULL"):
                query = _STATED_NODES.format(nodes=query)
            if table == "node_events" and _rows(con, "old_node_events"):
                query = _ENDED_EVENTS.format(events=query, lists=LISTS)
            writer.copy(table, con, query)
    return kept


def _attach_changed(con: duckdb.DuckDBPyConnection, old: Trace, without: Mapping[str, Sequence[Partition]]) -> None:
    """Recreate the views of the Trace's tables without the partitions in `without`."""
    files = {}
    for table, left_out in without.items():
        paths = {old.path / partition.path for partition in left_out}
        files[table] = tuple(path for path in old.files(table) if path not in paths)
    _attach_side(con, _Side(0, old.manifest.schema_version, files), tables=files)


def write_listed_records(con: duckdb.DuckDBPyConnection, writer: TraceWriter, shown: Mapping[str, str]) -> None:
    """Write the rejects and the doubtful times of both exports, whose rows name a file.

    `shown` has the names of the new files, without files that were already read.
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
    if table == "gpu_utilization":
        # If an export ends before its telemetry ends, or begins after its telemetry begins, it has no record of some
        # jobs that are in the other export.
        return _SAMPLES.format(columns=columns, old=old)
    return f"""SELECT {columns} FROM (
        SELECT {columns}, row AS place, row AS seq FROM old_{table} ANTI JOIN same_{table} ON row = old_row
        UNION ALL
        SELECT {columns}, coalesce(place, row + {old}), row FROM new_{table} LEFT JOIN (
            SELECT new_row, min(old_row) AS place FROM same_{table} GROUP BY new_row) ON row = new_row)
        ORDER BY place, seq"""


_SAMPLES = """SELECT {columns} FROM (
    SELECT {columns}, row AS place, row AS seq FROM old_gpu_utilization ANTI JOIN same_gpu_utilization ON row = old_row
    UNION ALL
    SELECT {columns}, coalesce(place, row + {old}), row FROM (
        SELECT n.* REPLACE (coalesce(n.job_id, s.job_id) AS job_id), s.place
        FROM new_gpu_utilization n LEFT JOIN (
            SELECT new_row, min(old_row) AS place, any_value(job_id) AS job_id
            FROM same_gpu_utilization JOIN (SELECT row AS old_row, job_id FROM old_gpu_utilization) USING (old_row)
            GROUP BY new_row) s ON n.row = new_row))
    ORDER BY place, seq"""

# Telemetry shows an attempt's GPUs only while it lasts, so the GPUs in one export are kept if the other shows none.
_WITH_GPUS = """SELECT p.* REPLACE (
    CASE WHEN p.gpu_index IS NULL AND (p.gpu_count IS NULL OR p.gpu_count = len(s.gpu_index))
         THEN s.gpu_index ELSE p.gpu_index END AS gpu_index,
    coalesce(p.gpu_count, len(s.gpu_index)) AS gpu_count)
FROM (SELECT *, row_number() OVER () AS place FROM ({rows})) p
LEFT JOIN (
    SELECT h.final_id, b.node_id, b.start_time, list_sort(list_distinct(flatten(list(b.gpu_index)))) AS gpu_index
    FROM both_placements b JOIN identity h USING (side, job_id) WHERE len(b.gpu_index) > 0
    GROUP BY h.final_id, b.node_id, b.start_time) s
ON s.final_id = p.job_id AND s.node_id = p.node_id AND s.start_time IS NOT DISTINCT FROM p.start_time
ORDER BY p.place"""

# The GPU model comes from the newer export, or else from the older one.
_NAMED_NODES = """SELECT n.* REPLACE (CASE WHEN n.source IS NULL THEN coalesce(h.gpu_count, n.gpu_count)
                                           ELSE n.gpu_count END AS gpu_count,
                                      coalesce(n.gpu_model, o.gpu_model) AS gpu_model)
FROM (SELECT *, row_number() OVER () AS place FROM ({nodes})) n
LEFT JOIN ({held}) h USING (node_id) LEFT JOIN old_nodes o USING (node_id) ORDER BY n.place"""

# Values from an earlier machine list are kept if the newer export has no machine list.
_STATED_NODES = """SELECT n.* REPLACE (
    CASE WHEN o.node_id IS NULL THEN n.gpu_count ELSE o.gpu_count END AS gpu_count,
    CASE WHEN o.node_id IS NULL THEN n.gpu_model ELSE coalesce(o.gpu_model, n.gpu_model) END AS gpu_model,
    CASE WHEN o.node_id IS NULL THEN n.source ELSE o.source END AS source,
    coalesce(n.gpu_memory_gib, s.gpu_memory_gib) AS gpu_memory_gib, coalesce(n.cpu_count, s.cpu_count) AS cpu_count,
    coalesce(n.memory_gib, s.memory_gib) AS memory_gib, coalesce(n.rack, s.rack) AS rack)
FROM (SELECT *, row_number() OVER () AS rank FROM ({nodes})) n
LEFT JOIN old_nodes s ON s.node_id = n.node_id AND s.source IS NOT NULL
LEFT JOIN old_nodes o ON o.node_id = n.node_id AND o.source IS NOT NULL AND n.source IS NULL
ORDER BY n.rank"""

# A known end is never removed. If the newer export lists the same machines, or has Slurm's own event log, and no longer
# shows a state from an older list, that state is over. It ended when it was last seen: at the end of the older export.
_ENDED_EVENTS = """SELECT e.* REPLACE (coalesce(e.end_time, o.end_time, CASE WHEN g.node_id IS NOT NULL
    THEN greatest(e.start_time, (SELECT greatest(max(submit_time), max(start_time), max(end_time)) FROM old_jobs))
    END) AS end_time)
FROM (SELECT *, row_number() OVER () AS rank FROM ({events})) e
LEFT JOIN old_node_events o ON o.node_id = e.node_id AND o.start_time = e.start_time AND o.state = e.state
     AND o.source IS NOT DISTINCT FROM e.source
LEFT JOIN (
    SELECT x.node_id, x.start_time, x.state, x.source FROM old_node_events x
    ANTI JOIN new_node_events y ON x.node_id = y.node_id AND x.start_time = y.start_time AND x.state = y.state
    WHERE x.end_time IS NULL AND x.source IN {lists} AND (
        x.node_id IN (SELECT node_id FROM new_nodes WHERE source IS NOT NULL)
        OR EXISTS (SELECT 1 FROM new_node_events WHERE source = 'slurm'))) g
  ON g.node_id = e.node_id AND g.start_time = e.start_time AND g.state = e.state AND g.source = e.source
ORDER BY e.rank"""


_KEY = "cluster, strftime(submit_time::DATE, '%Y-%m-%d')"


def _untouched_jobs(con: duckdb.DuckDBPyConnection, old: Trace) -> dict[str, list[Partition]]:
    """Return the unchanged partitions of the job tables, by table, after the rule for jobs has run."""
    if not old.has("jobs") or old.manifest.tables["jobs"].partitions is None:
        return {}
    named = " UNION ".join(f"SELECT job_id FROM new_{table}" for table in CUT_WITH_JOBS)
    changed = con.execute(
        f"""SELECT DISTINCT {_KEY} FROM new_jobs
        UNION SELECT {_KEY} FROM merged_jobs
        UNION SELECT {_KEY} FROM old_jobs
              SEMI JOIN ({named} UNION SELECT job_id FROM identity WHERE side = 0) USING (job_id)"""
    ).fetchall()
    # Rows whose job is not in the Trace are in the partition for unknown jobs. The export may contain their job.
    touched = {*changed, (None, None)}
    return {
        table: [p for p in info.partitions if (p.cluster, p.day) not in touched]
        for table, info in old.manifest.tables.items()
        if table in CUT_WITH_JOBS and info.partitions is not None
    }


def _untouched_samples(
    con: duckdb.DuckDBPyConnection, old: Trace, table: str, nodes: Sequence[Path]
) -> list[Partition]:
    """Return the unchanged partitions of a sample table. `nodes` are the files of the merged machines."""
    partitions = old.manifest.tables[table].partitions
    if partitions is None:
        return []
    merged = f"read_parquet({files_sql(nodes)})" if nodes else "old_nodes"
    # If a machine's cluster changes, its samples move to other partitions.
    moved = con.execute(
        f"""SELECT DISTINCT o.cluster FROM {merged} n LEFT JOIN old_nodes o USING (node_id)
        WHERE o.cluster IS DISTINCT FROM n.cluster"""
    ).fetchall()
    changed = con.execute(
        f"""SELECT DISTINCT cluster, strftime(time::DATE, '%Y-%m-%d')
        FROM new_{table} LEFT JOIN {merged} n USING (node_id)"""
    ).fetchall()
    left, touched = {cluster for (cluster,) in moved}, set(changed)
    return [p for p in partitions if p.cluster not in left and (p.cluster, p.day) not in touched]
