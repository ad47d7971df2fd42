"""Contradictions that any source may hold, looked for in the finished tables.

They are counted and shown, never clipped or dropped. Each check is a query over the common tables that
returns one text column, the rows found, or a function that returns them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit.ingest.over_capacity import starts_over_capacity

if TYPE_CHECKING:
    from collections.abc import Callable

    import duckdb

    from tracekit.ingest.sink import Sink

__all__ = ["COMMON_CHECKS", "run_common_checks"]


class _CommonCheck(NamedTuple):
    name: str
    meaning: str
    tables: tuple[str, ...]
    of: str
    """Query for the number of rows looked at."""
    query: str | Callable[[duckdb.DuckDBPyConnection], list[str]]


_COMMON = (
    _CommonCheck(
        "completed_without_end",
        "jobs that completed but have no end",
        ("jobs",),
        "SELECT count(*) FROM jobs",
        "SELECT job_id FROM jobs WHERE status = 'completed' AND end_time IS NULL",
    ),
    _CommonCheck(
        "gpu_held_twice",
        "placements that hold a GPU which an earlier placement holds at the same time",
        ("placements",),
        "SELECT count(*) FROM placements WHERE gpu_index IS NOT NULL",
        """SELECT DISTINCT job_id || ' on ' || node_id FROM (
            SELECT job_id, node_id, start_time, max(end_time) OVER (
                PARTITION BY node_id, gpu ORDER BY start_time, end_time, job_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS held_until
            FROM (SELECT job_id, node_id, start_time, end_time, unnest(gpu_index) AS gpu FROM placements
                  WHERE start_time < end_time))
        WHERE held_until > start_time""",
    ),
    _CommonCheck(
        "gpu_beyond_listed",
        "machines that run jobs on more GPUs than the machine list gives them",
        ("placements", "nodes"),
        "SELECT count(*) FROM nodes",
        """SELECT node_id || ': listed ' || n.gpu_count || ', used ' || u.used FROM nodes n JOIN (
            SELECT node_id, max(list_max(gpu_index)) + 1 AS used FROM placements GROUP BY node_id) u USING (node_id)
        WHERE u.used > n.gpu_count""",
    ),
    _CommonCheck(
        "unlisted_nodes",
        "machines that run jobs but are not in the machine list",
        ("placements", "nodes"),
        "SELECT count(DISTINCT node_id) FROM placements",
        "SELECT DISTINCT node_id FROM placements ANTI JOIN nodes USING (node_id)",
    ),
    _CommonCheck(
        "samples_beyond_listed",
        "machines whose telemetry shows more GPUs than the machine list gives them",
        ("gpu_utilization", "nodes"),
        "SELECT count(*) FROM nodes",
        """SELECT node_id || ': listed ' || n.gpu_count || ', seen ' || u.seen FROM nodes n JOIN (
            SELECT node_id, max(gpu_index) + 1 AS seen FROM gpu_utilization GROUP BY node_id) u USING (node_id)
        WHERE u.seen > n.gpu_count""",
    ),
    _CommonCheck(
        "nodes_without_telemetry",
        "listed machines that have no GPU sample at all",
        ("gpu_utilization", "nodes"),
        "SELECT count(*) FROM nodes",
        "SELECT node_id FROM nodes ANTI JOIN (SELECT DISTINCT node_id FROM gpu_utilization) USING (node_id)",
    ),
    _CommonCheck(
        "running_over_capacity",
        "starts at which the cluster's running GPUs exceed the total that its quota table states",
        ("attempts", "capacity", "jobs"),
        "SELECT count(*) FROM attempts WHERE gpu_count > 0 AND run_s > 0",
        starts_over_capacity,
    ),
)

COMMON_CHECKS = frozenset(check.name for check in _COMMON)
"""Names of the checks that are counted on the finished tables."""


def run_common_checks(con: duckdb.DuckDBPyConnection, tables: set[str], sink: Sink) -> None:
    """Run every check whose tables exist, and enter the counts.

    Parameters
    ----------
    con : DuckDB connection
        Has the tables as views.
    tables : set of str
        The common tables that exist.
    sink : Sink
        Gets the counts.
    """
    for check in _COMMON:
        if tables.issuperset(check.tables):
            sink.progress.stage(f"checking {check.name}")
            of = con.execute(check.of).fetchall()[0][0]
            if isinstance(check.query, str):
                query = f"SELECT count(*), min(x, 5) FROM ({check.query}) AS found(x)"
                count, examples = con.execute(query).fetchall()[0]
            else:
                rows = check.query(con)
                count, examples = len(rows), sorted(rows)[:5]
            sink.check(check.name, count, of, check.meaning, examples)
