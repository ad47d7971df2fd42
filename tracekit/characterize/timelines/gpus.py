"""GPUs over time: in use and waited for by tenant, in total by cluster, and free on nodes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.answer import AnswerColumn, Param
from tracekit.characterize.free_nodes import CAPACITY, EVENTS, free_nodes, idle_gpus_away
from tracekit.characterize.notes import noted
from tracekit.characterize.occupancy import (
    CLUSTER_GPUS,
    QUOTA,
    Spans,
    attempts_sql,
    cluster_gpus,
    most_held,
    no_attempt_sql,
    quotas,
    running,
    spans,
    tenants,
    window_us,
)
from tracekit.characterize.timeline import TimelineRows, TimelineTable
from tracekit.errors import QueryError, TooManyIntervalsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.array_types import Bools, Ints
    from tracekit.characterize.notes import Note

STEP = Param("step_s", 3600, "length of the averaging intervals [s], or 0 for the shortest that a page can show")
_MOST_ROWS = 5_000_000
_PAGE_ROWS = 800
ROUND_STEPS_S = (60, 300, 600, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)


def wide_step_s(span_s: float, most: float) -> int:
    """Return the shortest of 30, 60, 120, ... days [s] that splits a span [s] into at most max(`most`, 3) intervals."""
    step = ROUND_STEPS_S[-1]
    while span_s / step + 2 > max(most, 3):
        step *= 2
    return step


def fits(span_s: float, step_s: float, groups: int) -> bool:
    """Return whether intervals of this step [s] over a span [s] are few enough to compute for each group."""
    return (span_s / step_s + 2) * max(groups, 1) <= _MOST_ROWS


def grid_us(con: duckdb.DuckDBPyConnection, step_s: float, groups: int) -> Ints:
    """Return the edges [us] of the intervals that cover a trace, aligned to whole steps; empty if there are no times.

    If an interval would begin before year 1, the edges are aligned to the beginning of that year.

    Parameters
    ----------
    con : DuckDB connection
        A connection with jobs and attempts.
    step_s : float
        Length of an interval [s], or 0 for a round length that gives about a page of rows for all clusters.
    groups : int
        Number of rows per interval.

    Raises
    ------
    QueryError
        The step is not above 0.
    TooManyIntervalsError
        The step gives too many rows.
    """
    if step_s < 1 and step_s != 0:
        raise QueryError(f"the parameter 'step_s' cannot be {step_s:g}", hint="give 1 s or more, or 0")
    window = window_us(con)
    if window is None:
        return np.empty(0, dtype=np.int64)
    if step_s == 0:
        step_s = page_step_s(con, window)
    step = round(step_s * 1_000_000)
    offset = schema.FIRST_US % step if window[0] // step * step < schema.FIRST_US else 0
    first = (window[0] - offset) // step
    last = max(first + 1, -(-(window[1] - offset) // step))
    if (last - first) * max(groups, 1) > _MOST_ROWS:
        what = f"steps of {step_s:g} s give {(last - first) * groups:,} rows"
        raise TooManyIntervalsError(what, hint="give a larger step_s")
    return np.arange(first, last + 1) * step + offset


def page_step_s(con: duckdb.DuckDBPyConnection, window: tuple[int, int]) -> float:
    """Return a round step [s] that gives about a page of rows for all clusters of a trace."""
    clusters = max(1, con.execute("SELECT count(DISTINCT cluster) FROM jobs").fetchall()[0][0])
    span_s = (window[1] - window[0]) / 1_000_000
    fitting = [s for s in ROUND_STEPS_S if (span_s / s + 2) * clusters <= _PAGE_ROWS]
    return fitting[0] if fitting else wide_step_s(span_s, _PAGE_ROWS)


def _gpu_timeline(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    groups = tenants(con)
    source = attempts_sql(con)
    ran, notes = running(con, source, with_gpus=False)
    waited, lost = _waiting(con, source)
    edges = grid_us(con, float(params["step_s"]), len(groups))
    stated, quota = quotas(con, groups, lambda: ran.with_gpus().by_tenant(len(groups)), str(params["quota"]))
    if not len(edges):
        return TimelineRows(GPU_TIMELINE.no_rows(), (*notes, *lost, quota))
    number = len(groups)
    submitting = _submitting(con, edges)
    allowed = np.stack([steps.means(edges) for steps in stated])
    most = cache(lambda: most_held(ran, groups))
    owned, owner = cluster_gpus(con, groups, allowed, edges[:-1], str(params["quota"]), most, float(params["gpus"]))
    away: list[Note] = []
    if params["events"] == "away" and params["quota"] in {"auto", "capacity"}:
        names = groups["cluster"].to_list()
        idle, away = idle_gpus_away(con, list(dict.fromkeys(names)), edges)
        for row, name in enumerate(names):
            owned[row] -= idle.get(name, 0)
            # Without VCs, jobs may use the whole cluster.
            allowed[row] -= 0 if quota.kind != "no tenants" else idle.get(name, 0)
    columns = {
        "running_jobs": ran.means(number, edges, np.ones(len(ran.code))),
        "pending_jobs": waited.means(number, edges, np.ones(len(waited.code))),
        "running_gpus": ran.means(number, edges, ran.gpus),
        "pending_gpus": waited.means(number, edges, waited.gpus),
        "capacity_gpus": allowed,
        "cluster_gpus": owned,
    }
    parts = [
        pl.DataFrame(
            {
                "time": pl.Series(edges[:-1], dtype=pl.Int64).cast(pl.Datetime("us")),
                "cluster": pl.repeat(cluster, len(edges) - 1, dtype=pl.String, eager=True),
                "vc": pl.repeat(vc, len(edges) - 1, dtype=pl.String, eager=True),
                **{name: values[group] for name, values in columns.items()},
                "submitting": submitting,
            }
        ).with_columns(pl.col("capacity_gpus", "cluster_gpus").fill_nan(None))
        for group, (cluster, vc) in enumerate(groups.iter_rows())
    ]
    return TimelineRows(pl.concat(parts), (*notes, *lost, quota, owner, *away))


def _submitting(con: duckdb.DuckDBPyConnection, edges: Ints) -> Bools:
    """Return a mask of the intervals that end by the last submission, or of all if none does or it is unknown."""
    last = con.execute("SELECT last_submission FROM trace_window").fetchall()[0][0]
    ended: Bools = edges[1:] <= (np.iinfo(np.int64).max if last is None else last)
    return ended if ended[0] else np.ones_like(ended)


def _waiting(con: duckdb.DuckDBPyConnection, source: str) -> tuple[Spans, list[Note]]:
    window = window_us(con)
    found, lost = spans(
        con,
        f"""SELECT code, job_gpus AS gpus, epoch_us(start_time) AS until,
                   epoch_us(start_time) - CAST(round(wait_s * 1000000) AS BIGINT) AS since
            FROM ({source})
            UNION ALL
            SELECT t.code, j.gpu_count, coalesce(epoch_us(j.end_time), CASE WHEN j.status = 'pending' THEN $last END),
                   epoch_us(j.submit_time)
            FROM jobs AS j
            JOIN tenant AS t ON j.cluster IS NOT DISTINCT FROM t.cluster AND j.vc IS NOT DISTINCT FROM t.vc
            WHERE {no_attempt_sql(con)}""",
        {"last": window and window[1]},
    )
    return found, noted("wait unknown", lost)


GPU_TIMELINE = TimelineTable(
    name="gpu_timeline",
    title="Running and waiting jobs and GPUs of each VC over time",
    tables=("jobs", "attempts"),
    views=("job_classes", "open_attempts", "trace_capabilities", "trace_nodes", "trace_tenant", "trace_window"),
    also=("capacity", "nodes", "node_events", "placements"),
    by_cluster=True,
    params=(STEP, QUOTA, CLUSTER_GPUS, EVENTS),
    columns=(
        AnswerColumn("time", "UTC", "start of the interval"),
        AnswerColumn("cluster", "text", "the cluster"),
        AnswerColumn("vc", "text", "the tenant; NULL for jobs without one"),
        AnswerColumn("running_jobs", "jobs", "mean number of running attempts"),
        AnswerColumn("pending_jobs", "jobs", "mean number of waiting jobs"),
        AnswerColumn("running_gpus", "GPUs", "mean number of GPUs allocated"),
        AnswerColumn("pending_gpus", "GPUs", "mean number of GPUs that waiting jobs ask for"),
        AnswerColumn("capacity_gpus", "GPUs", "mean number of GPUs that the VC may use; NULL when unknown"),
        AnswerColumn("cluster_gpus", "GPUs", "GPUs of the VC's cluster in the interval; NULL when unknown"),
        AnswerColumn("submitting", "true or false", "whether the interval ends by the last submission of the trace"),
    ),
    rule="""Means over each interval, weighted by time, so running_gpus times the length of the interval is the GPU time
allocated in it. Every VC has a row for every interval from the first to the last moment of the trace. Attempts that
still run, and jobs that still wait, count up to the end of the trace, unless an attempt has passed its time limit or a
later run has its GPUs (view open_attempts). Attempts and jobs with other unknown ends are excluded, and a note counts
them. A cluster's capacity is the number of GPUs in its node list. If there is no list, it is the total in the trace;
without a total, the sum of the recorded quotas of its VCs; and without quotas, the most GPUs that its jobs used at one
time. The note next to the result names the source. With events=away, unused GPUs do not count while node_events lists
their node as down, drained or in maintenance; with events=ignored they do. Quotas are not machines, so a note reports
if jobs used more GPUs than the sum of the quotas, or never used half of it. Intervals after the last submission show
the logged jobs draining, not how full the cluster was. If no interval ends by the last submission, all count as
submitting.""",
    compute=_gpu_timeline,
)


def _free_gpus(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    clusters, notes = free_nodes(con, str(params["capacity"]), events=params["events"] == "away")
    moments = grid_us(con, float(params["step_s"]), len(clusters))
    moments = moments[moments <= schema.LAST_US]
    parts = [FREE_GPUS.no_rows()]
    for cluster, nodes in clusters.items():
        free, whole, whole_gpus, gang = nodes.at_moments(moments)
        parts.append(
            pl.DataFrame(
                {
                    "time": pl.Series(moments, dtype=pl.Int64).cast(pl.Datetime("us")),
                    "cluster": pl.repeat(cluster, len(moments), dtype=pl.String, eager=True),
                    "free_gpus": free,
                    "whole_free_nodes": whole,
                    "whole_free_gpus": whole_gpus,
                    "largest_gang": gang,
                }
            )
        )
    return TimelineRows(pl.concat(parts), tuple(notes))


FREE_GPUS = TimelineTable(
    name="free_gpus",
    title="Free GPUs of each cluster over time, and how scattered they are",
    tables=("jobs", "attempts", "placements"),
    views=("node_gpus", "open_attempts", "trace_window"),
    also=("nodes", "gpu_utilization", "node_events"),
    by_cluster=True,
    params=(STEP, CAPACITY, EVENTS),
    columns=(
        AnswerColumn("time", "UTC", "a moment, every step_s"),
        AnswerColumn("cluster", "text", "the cluster"),
        AnswerColumn("free_gpus", "GPUs", "GPUs that no attempt uses"),
        AnswerColumn("whole_free_nodes", "nodes", "nodes whose GPUs are all free"),
        AnswerColumn("whole_free_gpus", "GPUs", "the GPUs of these nodes"),
        AnswerColumn("largest_gang", "GPUs", "the largest gang that would fit on the fewest nodes for its size"),
    ),
    rule="""Each row is the state at one moment, including changes at that moment. A gang is assumed to need the fewest
nodes that fit it, so the largest gang that fits fills all entirely free nodes and the best of the others. An attempt
that still runs keeps its GPUs to the end of the trace. A node that node_events lists as down, drained or in maintenance
has no free GPUs during that time (with events=ignored it counts as present). Other attempts with an unknown start or
end take no GPUs, nor do placements on nodes of unknown size; a note counts these.""",
    compute=_free_gpus,
)
