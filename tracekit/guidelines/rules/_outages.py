"""The effect of outages on attempts, for the guidelines about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.guidelines.rules._sql import day_of

if TYPE_CHECKING:
    import polars as pl

    from tracekit.guidelines.evidence import Evidence


NEEDED_STOPS = 5
"""Fewest attempts that outages must have stopped; our choice, the same as for the effect."""

_ATTEMPTS = f"""
SELECT
    i.job_id,
    i.attempt,
    j.status AS job_status,
    i.node_count AS nodes,
    i.gpu_count AS gpus,
    i.run_s,
    CAST(i.gpu_s AS DOUBLE) AS gpu_s,
    coalesce(i.interrupted AND i.node_cause IS NOT NULL, FALSE) AS by_event,
    coalesce(i.interrupted AND (i.node_cause IS NOT NULL OR i.status = 'node_fail'), FALSE) AS stopped,
    lead(i.attempt) OVER one AS next_attempt,
    lead(i.wait_s) OVER one AS next_wait_s,
    {day_of("i.end_time")} AS day
FROM attempt_interruptions AS i
INNER JOIN jobs AS j ON i.job_id = j.job_id
WHERE i.gpu_count > 0 AND i.run_s > 0 AND i.end_time IS NOT NULL
WINDOW one AS (PARTITION BY i.job_id ORDER BY i.attempt)
ORDER BY i.job_id, i.attempt
"""


def attempts_with_stops(evidence: Evidence) -> pl.DataFrame:
    """Return one row an attempt with GPUs that ended: whether an outage stopped it, and how long the next one waited.

    job_id, attempt, job_status, nodes, gpus, run_s [s], gpu_s [GPU * s], by_event (one of its nodes failed by the table
    node_events, as in the view attempt_interruptions), stopped (that, or its status is node_fail, as in failures/ettr),
    next_attempt and next_wait_s [s] of the same job, NULL if none followed or its wait is unknown, and day.

    Raises
    ------
    LackingError
        The Trace lacks attempts.
    """
    return evidence.sql(_ATTEMPTS, also=("placements", "node_events"))
