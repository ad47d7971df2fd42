"""Compute timelines per cluster, with one Spark task per cluster, if the clusters share no nodes.

A task sees one cluster's nodes and jobs, with their attempts and placements. It receives the window of the whole trace,
the step that suits all clusters, and the nodes' observed GPUs. If a node belongs to no cluster or serves two, or the
parts' notes cannot be combined, the timeline is computed on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from tracekit.characterize.engines.spark.by_day import stream_of
from tracekit.characterize.notes import add_notes
from tracekit.characterize.occupancy import window_us
from tracekit.characterize.session import connect_with_views
from tracekit.characterize.timeline import TimelineRows, all_timelines
from tracekit.characterize.timelines.gpus import page_step_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.answer import Value
    from tracekit.characterize.notes import Note
    from tracekit.characterize.timeline import TimelineTable
    from tracekit.trace import Trace

_HANDED = ("trace_window", "node_gpus")
"""Views of the whole trace whose rows each task receives."""

_APART = """WITH owner AS (SELECT node_id, min(cluster) AS cluster, count(*) AS rows FROM nodes GROUP BY node_id),
used AS (
    SELECT DISTINCT p.node_id, j.cluster
    FROM placements AS p INNER JOIN jobs AS j ON p.job_id = j.job_id WHERE p.node_id IS NOT NULL
),
known AS (SELECT node_id FROM node_gpus UNION SELECT node_id FROM node_events UNION SELECT node_id FROM used)
SELECT
    (SELECT count(*) FROM known AS k LEFT JOIN owner AS o ON k.node_id = o.node_id WHERE o.cluster IS NULL)
    + (SELECT count(*) FROM owner WHERE rows > 1 OR cluster IS NULL OR cluster NOT IN (
        SELECT cluster FROM jobs WHERE cluster IS NOT NULL
    ))
    + (SELECT count(*) FROM used AS u INNER JOIN owner AS o ON u.node_id = o.node_id
       WHERE u.cluster IS DISTINCT FROM o.cluster)"""


@dataclass(frozen=True)
class ClusterPart:
    """Data shared by the tasks of one timeline; each task takes its cluster from its input rows."""

    trace: Trace
    empty: tuple[str, ...]
    timeline: str
    params: Mapping[str, Value]
    handed: Mapping[str, bytes]
    """Rows of the views over the whole trace, as Arrow streams, by name."""


def run_by_cluster(
    session: Any,
    con: duckdb.DuckDBPyConnection,
    trace: Trace,
    empty: frozenset[str],
    timeline: TimelineTable,
    params: Mapping[str, Value],
) -> TimelineRows | None:
    """Compute a timeline with one task per cluster and return its rows, or None if it must be computed as a whole.

    Parameters
    ----------
    session : SparkSession
        The session that runs the tasks.
    con : DuckDB connection
        A connection on this machine with the tables and the shared views.
    trace, empty, timeline, params
        See `Engine.timeline`.
    """
    present = {*trace.tables, *empty}
    clusters = [
        row[0] for row in con.execute("SELECT DISTINCT cluster FROM jobs ORDER BY cluster NULLS LAST").fetchall()
    ]
    if len(clusters) < 2 or not _apart(con, present):
        return None
    window = window_us(con)
    if window is not None and params.get("step_s") == 0:
        params = {**params, "step_s": page_step_s(con, window)}
    handed = {
        name: stream_of(con.sql(f"FROM {name}").to_arrow_table())
        for name in _HANDED
        if name != "node_gpus" or present >= {"nodes", "placements", "gpu_utilization"}
    }
    part = ClusterPart(trace, tuple(sorted(empty)), timeline.name, dict(params), handed)
    context = session.sparkContext
    sent = context.broadcast(part)

    def work(cluster: str | None) -> tuple[bytes, tuple[Note, ...]]:
        from tracekit.characterize.engines.spark.by_cluster import rows_of_cluster

        return rows_of_cluster(sent.value, cluster)

    found = context.parallelize(clusters, len(clusters)).map(work).collect()
    notes = add_notes([notes for _, notes in found])
    if notes is None:
        return None
    frames = [pl.DataFrame(pl.from_arrow(pa.ipc.open_stream(rows).read_all())) for rows, _ in found]
    return TimelineRows(pl.concat(frames), notes)


def _apart(con: duckdb.DuckDBPyConnection, present: set[str]) -> bool:
    """Return whether every node belongs to a single cluster that has jobs and serves no other cluster."""
    if not {"nodes", "placements", "gpu_utilization", "node_events"} <= present:
        # A timeline that reads no nodes can be divided. One that reads nodes has these tables, which may be empty.
        tables = {"nodes", "placements", "node_events"} & present
        return not any(con.execute(f"SELECT 1 FROM {t} WHERE node_id IS NOT NULL LIMIT 1").fetchall() for t in tables)
    return not con.execute(_APART).fetchall()[0][0]


def rows_of_cluster(part: ClusterPart, cluster: str | None) -> tuple[bytes, tuple[Note, ...]]:
    """Return the rows of one cluster as an Arrow stream, and its notes. Runs on an executor."""
    with connect_with_views(part.trace, also=part.empty) as con:
        for name, rows in part.handed.items():
            table = pa.ipc.open_stream(rows).read_all()
            con.register(f"handed_{name}", table)
            con.execute(f"CREATE OR REPLACE VIEW {name} AS FROM handed_{name}")
        present = {*part.trace.tables, *part.empty}
        own = "(SELECT job_id FROM whole_jobs WHERE cluster IS NOT DISTINCT FROM getvariable('cluster'))"
        con.execute("SET VARIABLE cluster = CAST(? AS VARCHAR)", [cluster])
        conditions = {
            "jobs": "cluster IS NOT DISTINCT FROM getvariable('cluster')",
            "capacity": "cluster IS NOT DISTINCT FROM getvariable('cluster')",
            "nodes": "cluster IS NOT DISTINCT FROM getvariable('cluster')",
            "attempts": f"job_id IN {own}",
            "placements": f"job_id IN {own}",
        }
        if "nodes" in present:
            conditions["node_events"] = "node_id IN (SELECT node_id FROM nodes)"
        for table, condition in conditions.items():
            if part.trace.has(table):  # the other tables are empty
                con.execute(f"ALTER VIEW {table} RENAME TO whole_{table}")
                con.execute(f"CREATE VIEW {table} AS FROM whole_{table} WHERE {condition}")
        if "node_gpus" in part.handed:
            mine = "node_id IN (SELECT node_id FROM nodes)"
            con.execute(f"CREATE OR REPLACE VIEW node_gpus AS FROM handed_node_gpus WHERE {mine}")
        found = all_timelines()[part.timeline].compute(con, part.params)
    return stream_of(found.frame.to_arrow(compat_level=pl.CompatLevel.oldest())), found.notes
