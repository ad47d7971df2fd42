"""Find contradictions in tables with SQL; they are counted and reported, never clipped or dropped.

The common checks run on the finished tables of every source; formats run their own checks on the rows that they stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.ingest.corrections import LOST_END, lost_runs
from tracekit.text import count, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import duckdb
    from numpy.typing import NDArray

    from tracekit.ingest.sink import Sink


# Find starts at which a cluster used more GPUs than it owned.


def starts_over_capacity(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the jobs at whose start the GPUs in use in their cluster exceeded its recorded total.

    At the moment a job ends, it no longer counts; at the moment a job starts, it counts.

    A cluster's total is its row without a VC in the table capacity.
    """
    totals = pl.DataFrame(
        con.sql(
            "SELECT cluster, time, gpu_count FROM capacity WHERE vc IS NULL AND gpu_count IS NOT NULL ORDER BY time"
        )
    )
    if not len(totals):
        return []
    # If no job has a second attempt, the table jobs gives the same result without a join.
    retried = con.execute("SELECT 1 FROM attempts WHERE attempt > 0 LIMIT 1").fetchall()
    source = "(SELECT a.*, j.cluster FROM attempts a JOIN jobs j USING (job_id))" if retried else "jobs"
    rows = f"FROM {source} WHERE gpu_count > 0 AND run_s > 0"
    held = pl.DataFrame(con.sql(f"SELECT cluster, start_time, end_time, gpu_count {rows}"))
    over = np.zeros(len(held), dtype=bool)
    for (cluster,), total in totals.group_by("cluster"):
        own = held.select(pl.col("cluster").eq_missing(pl.lit(cluster, dtype=pl.String))).to_series()
        over[own.to_numpy()] = _over(held.filter(own), total)
    if not over.any():
        return []
    # Fetching the names of all jobs would take longer than fetching their times, and they are rarely needed.
    names: pl.Series = pl.DataFrame(con.sql(f"SELECT job_id {rows}"))["job_id"]
    return names.filter(pl.Series(over)).to_list()


def _over(held: pl.DataFrame, total: pl.DataFrame) -> NDArray[np.bool_]:
    """Return a mask of the intervals of one cluster that start while GPUs in use exceed its total at that time."""
    if not len(held):
        return np.zeros(0, dtype=bool)
    # Times as integers, because NumPy sorts them several times faster than dates.
    start, end = (held[name].to_physical().to_numpy() for name in ("start_time", "end_time"))
    gpus = held["gpu_count"].to_numpy()
    times = np.concatenate([start, end])
    order = np.argsort(times)
    running = np.cumsum(np.concatenate([gpus, -gpus])[order])
    # Compare the sum only after all events of the same moment.
    rising = times[order]
    last = np.flatnonzero(np.append(rising[1:] != rising[:-1], True))
    after = np.empty(len(times))
    after[order] = np.repeat(running[last], np.diff(last, prepend=-1))
    at_start = after[: len(start)]
    row = np.searchsorted(total["time"].to_physical().to_numpy(), start, side="right") - 1
    # Before the first row, the total is unknown.
    over: NDArray[np.bool_] = (row >= 0) & (at_start > total["gpu_count"].to_numpy()[np.maximum(row, 0)] + 1e-6)
    return over


_MUCH = 0.01
"""Share of the GPU-hours above which a note reports how much the rejected records contain."""


class SqlCheck(NamedTuple):
    """A contradiction that a query finds."""

    name: str
    meaning: str
    """Meaning of a count above zero, in one sentence."""
    query: str | Callable[[duckdb.DuckDBPyConnection], list[str]]
    """SQL that returns the rows found as one text column, or a function that returns them."""
    of: str
    """The rows that are checked, as SQL text after FROM; if there are none, the query does not run."""
    tables: tuple[str, ...] = ()
    """Common tables that the check needs."""


_COMMON = (
    SqlCheck(
        "completed_without_end",
        "jobs that completed but have no end",
        "SELECT job_id FROM jobs WHERE status = 'completed' AND end_time IS NULL",
        "jobs",
        ("jobs",),
    ),
    SqlCheck(
        "gpu_held_twice",
        "placements on a GPU that an earlier placement holds at the same time",
        """SELECT DISTINCT job_id || ' on ' || node_id FROM (
            SELECT job_id, node_id, start_time, max(end_time) OVER (
                PARTITION BY node_id, gpu ORDER BY start_time, end_time, job_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS held_until
            FROM (SELECT job_id, node_id, start_time, end_time, unnest(gpu_index) AS gpu FROM placements
                  WHERE start_time < end_time))
        WHERE held_until > start_time""",
        "placements WHERE gpu_index IS NOT NULL",
        ("placements",),
    ),
    SqlCheck(
        "gpu_beyond_listed",
        "machines that run jobs on more GPUs than the machine list shows",
        """SELECT node_id || ': listed ' || n.gpu_count || ', used ' || u.used FROM nodes n JOIN (
            SELECT node_id, max(list_max(gpu_index)) + 1 AS used FROM placements GROUP BY node_id) u USING (node_id)
        WHERE u.used > n.gpu_count""",
        "nodes",
        ("placements", "nodes"),
    ),
    SqlCheck(
        "unlisted_nodes",
        "machines that run jobs but are not in the machine list",
        "SELECT DISTINCT node_id FROM placements ANTI JOIN nodes USING (node_id)",
        "(SELECT DISTINCT node_id FROM placements)",
        ("placements", "nodes"),
    ),
    SqlCheck(
        "events_of_unlisted_nodes",
        "machines with events that are not in the machine list",
        "SELECT DISTINCT node_id FROM node_events ANTI JOIN nodes USING (node_id)",
        "(SELECT DISTINCT node_id FROM node_events)",
        ("node_events", "nodes"),
    ),
    SqlCheck(
        "node_fail_without_event",
        "runs that ended by a node failure although no event shows one of their nodes out of service, or with an "
        "error, within 10 minutes of their end: outages may be missing from the events",
        # Twice SlurmdTimeout, after which Slurm sets a node down: 300 s by default (slurm.schedmd.com/slurm.conf.html).
        """SELECT a.job_id || ' on ' || min(p.node_id) FROM attempts a JOIN placements p USING (job_id, attempt)
        LEFT JOIN node_events e ON e.node_id = p.node_id AND e.start_time <= a.end_time + INTERVAL 10 MINUTE
            AND (e.end_time IS NULL OR e.end_time >= a.end_time - INTERVAL 10 MINUTE)
        WHERE a.status = 'node_fail' AND a.end_time IS NOT NULL
        GROUP BY a.job_id, a.attempt HAVING count(e.node_id) = 0""",
        "attempts WHERE status = 'node_fail' AND end_time IS NOT NULL",
        ("attempts", "placements", "node_events"),
    ),
    SqlCheck(
        "samples_beyond_listed",
        "machines with more GPUs in telemetry than in the machine list",
        """SELECT node_id || ': listed ' || n.gpu_count || ', seen ' || u.seen FROM nodes n JOIN (
            SELECT node_id, max(gpu_index) + 1 AS seen FROM gpu_utilization GROUP BY node_id) u USING (node_id)
        WHERE u.seen > n.gpu_count""",
        "nodes",
        ("gpu_utilization", "nodes"),
    ),
    SqlCheck(
        "nodes_without_telemetry",
        "listed machines without any GPU sample",
        "SELECT node_id FROM nodes ANTI JOIN (SELECT DISTINCT node_id FROM gpu_utilization) USING (node_id)",
        "nodes",
        ("gpu_utilization", "nodes"),
    ),
    SqlCheck(
        "running_past_limit",
        LOST_END,
        lost_runs,
        "attempts WHERE status = 'running' AND end_time IS NULL AND start_time IS NOT NULL",
        ("attempts", "jobs"),
    ),
    SqlCheck(
        "running_over_capacity",
        "starts at which the cluster uses more GPUs than the total in its quota table",
        starts_over_capacity,
        "attempts WHERE gpu_count > 0 AND run_s > 0",
        ("attempts", "capacity", "jobs"),
    ),
)

COMMON_CHECKS = frozenset(check.name for check in _COMMON)
"""Names of the checks that run on the finished tables."""


def run_checks(con: duckdb.DuckDBPyConnection, sink: Sink, checks: Iterable[SqlCheck]) -> None:
    """Run checks and record their counts."""
    sizes: dict[str, int] = {}
    for check in checks:
        sink.progress.stage(f"checking {check.name}")
        if check.of not in sizes:
            sizes[check.of] = con.execute(f"SELECT count(*) FROM {check.of}").fetchall()[0][0]
        number, examples = _found(con, check) if sizes[check.of] else (0, [])
        sink.check(check.name, number, sizes[check.of], check.meaning, examples)


def _found(con: duckdb.DuckDBPyConnection, check: SqlCheck) -> tuple[int, list[str]]:
    """Return the number of contradictions and up to five examples."""
    if isinstance(check.query, str):
        number, examples = con.execute(f"SELECT count(*), min(x, 5) FROM ({check.query}) AS found(x)").fetchall()[0]
        return number, examples
    rows = check.query(con)
    return len(rows), sorted(rows)[:5]


def run_common_checks(con: duckdb.DuckDBPyConnection, tables: set[str], sink: Sink) -> None:
    """Run the common checks for which all tables exist; `con` has the tables as views."""
    run_checks(con, sink, [check for check in _COMMON if tables.issuperset(check.tables)])


def count_rejected_hours(con: duckdb.DuckDBPyConnection, tables: set[str], sink: Sink) -> None:
    """Count the GPU-hours of rejected records, and note them if they exceed `_MUCH` of all GPU-hours.

    Only readers that can compute the GPU time of rejected records fill `sink.rejected_gpu_s` [GPU*s].
    """
    name = "rejected_gpu_hours"
    earlier = sink.checks.pop(name, None)
    lost = sink.rejected_gpu_s / 3600 + (earlier.count if earlier else 0)
    if not lost:
        return
    used = 0.0
    if "attempts" in tables:
        query = "SELECT coalesce(sum(run_s * gpu_count), 0) / 3600 FROM attempts"
        used = float(con.execute(query).fetchall()[0][0])
    meaning = (
        "GPU-hours of runs with rejected records, if these contain GPUs and run time; all results leave them out "
        "(see the table rejects)"
    )
    sink.check(name, round(lost), round(lost + used), meaning)
    if lost > _MUCH * (lost + used):
        sink.note(
            f"unreadable records account for at least {percent(lost / (lost + used))} of the GPU-hours, "
            f"{count(lost)} of {count(lost + used)}: all results leave them out (see the table rejects)"
        )
