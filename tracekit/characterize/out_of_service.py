"""When nodes were out of service, by the table node_events: their GPUs are no capacity then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import Param
from tracekit.characterize.notes import Note
from tracekit.characterize.occupancy import Steps, open_attempts_sql, window_us

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from tracekit.array_types import Floats, Ints

AWAY = ("down", "drained", "maintenance")
"""States in which a node takes no new job; a degraded one does. Replays take the same ones away."""

EVENTS = Param(
    "events",
    "away",
    "nodes that node_events lists as down, drained or in maintenance: no capacity then, or as if they had been "
    "available",
    ("away", "ignored"),
)
"""The parameter by which queries let the user choose."""

_SPANS = f"""WITH event AS (
    SELECT node_id, epoch_us(start_time) AS since, coalesce(epoch_us(end_time), $last) AS until
    FROM node_events WHERE state IN {AWAY}),
marked AS (
    SELECT *, max(until) OVER (
        PARTITION BY node_id ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM event WHERE until > since),
numbered AS (
    SELECT *, count(*) FILTER (WHERE before IS NULL OR since > before) OVER (
        PARTITION BY node_id ORDER BY since, until ROWS UNBOUNDED PRECEDING) AS number
    FROM marked)
SELECT node_id, min(since) AS since, max(until) AS until FROM numbered GROUP BY node_id, number"""

# What a job still holds on a node that is drained is capacity in use.
_IDLE = """SELECT s.cluster, s.since, s.until, s.gpus FROM away_span s
UNION ALL
SELECT s.cluster, greatest(s.since, h.since), least(s.until, h.until), -h.gpus
FROM away_span s JOIN (
    SELECT p.node_id, p.gpu_count AS gpus, epoch_us(coalesce(p.start_time, a.start_time)) AS since,
           coalesce(epoch_us(p.end_time), epoch_us(a.end_time), o.until_us) AS until
    FROM placements p JOIN attempts a ON p.job_id = a.job_id AND p.attempt = a.attempt
    LEFT JOIN {still} o ON o.job_id = a.job_id AND o.attempt = a.attempt
    WHERE p.gpu_count > 0) h
  ON s.node_id = h.node_id AND h.since < s.until AND h.until > s.since"""


def away_spans(con: duckdb.DuckDBPyConnection) -> pl.DataFrame:
    """Return node_id, since and until [us] of the times in which nodes were out of service; those of a node are apart.

    A time without an end goes on to the last time of the trace.

    Parameters
    ----------
    con : DuckDB connection
        Has jobs, attempts and node_events, which may be empty.
    """
    window = window_us(con)
    found: pl.DataFrame = pl.DataFrame(con.sql(_SPANS, params={"last": window and window[1]}))
    return found.sort("node_id", "since")


def idle_gpus_away(
    con: duckdb.DuckDBPyConnection, clusters: Sequence[str | None], edges: Ints
) -> tuple[dict[str | None, Floats], list[Note]]:
    """Return the mean number of GPUs out of service that no job held, by cluster and interval, and a note on them.

    Parameters
    ----------
    con : DuckDB connection
        Has jobs, attempts, placements, nodes and node_events; the last three may be empty.
    clusters : sequence
        Names of the clusters; nodes that name none are those of the only one.
    edges : int64 array, shape (intervals + 1,)
        Edges of the intervals [us].

    Returns
    -------
    dict
        Empty where no node of known size was out of service.
    list of Note
        Empty then.
    """
    if not con.execute("SELECT 1 FROM node_events LIMIT 1").fetchall():
        return {}, []
    spans = away_spans(con)
    con.register("away", spans)
    only = clusters[0] if len(clusters) == 1 else None
    con.execute(
        """CREATE OR REPLACE TEMP TABLE away_span AS
        SELECT a.node_id, CASE WHEN $single THEN $only ELSE n.cluster END AS cluster, a.since, a.until,
               n.gpu_count AS gpus
        FROM away a JOIN nodes n ON a.node_id = n.node_id WHERE n.gpu_count > 0""",
        {"single": len(clusters) == 1, "only": only},
    )
    con.unregister("away")
    rows = pl.DataFrame(con.sql(_IDLE.format(still=open_attempts_sql(con))))
    if rows.is_empty():
        return {}, []
    found: dict[str | None, Floats] = {}
    total = 0.0
    for (cluster,), own in rows.group_by("cluster", maintain_order=True):
        values = [own[name].to_numpy() for name in ("since", "until", "gpus")]
        steps = Steps.of_intervals(values[0].astype(np.int64), values[1].astype(np.int64), values[2].astype(np.float64))
        found[cluster] = steps.means(edges)
        total += float((found[cluster] * np.diff(edges)).sum()) / 3.6e9
    nodes = con.execute("SELECT count(DISTINCT node_id) FROM away_span").fetchall()[0][0]
    return found, [Note("out of service", (total, nodes))]
