"""The trials of nodes: what a test of nodes may count as one, and with what it may compare it.

Attempts are no independent trials of a node. A job that is tried again fails again, and a user who submits a broken
script loses all its jobs, on whatever nodes they land. One cause must not count as many failures, and a node must not
be blamed for whose jobs it got. Hence two rules, of which neither looks at how an attempt ended:

- A user's attempts, of which each begins within an hour of the one before, are a session, which ends with the UTC day.
A
  trial is the first attempt of a session on a node; a job has one trial a node, its first there. Where the start is
  unknown each job is a session.
- Trials are compared within a stratum: the same cluster, tenant, size class and user, and the same job group (name and
  group) where that has ten trials. The groups of a user with fewer are taken together, and so are the users of a tenant
  with fewer than ten; there a job group, or a user, has one trial a node.

Trials of a stratum may still end alike because they have one cause, such as one job on two nodes. A node has no more
than one of them, so that its number of failures varies less than that of independent trials, and the test errs towards
naming no node. Stratified tables: Mantel and Haenszel, Journal of the National Cancer Institute 22 (1959); units that
are alike within clusters: Donner and Klar, Design and Analysis of Cluster Randomization Trials (2000).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import duckdb

SESSION_GAP_S = 3600
"""Longest time from one start of a user's to the next within a session [s]; our choice."""

LEAST_TRIALS = 10
"""Fewest trials of a user, or of a job group, that make a stratum; our choice."""

_TRIALS = f"""
WITH of_jobs AS (
    SELECT * FROM node_attempt
    WHERE failed IS NOT NULL AND run_s IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY node_id, job_id ORDER BY attempt) = 1
),

gaps AS (
    SELECT
        *,
        "name" IS NOT NULL OR "group" IS NOT NULL AS grouped,
        coalesce(
            start_time - lag(start_time) OVER (PARTITION BY "user" ORDER BY start_time, job_id, node_id)
            > INTERVAL {SESSION_GAP_S} SECOND,
            TRUE
        ) AS began
    FROM of_jobs
),

sessions AS (
    SELECT *, sum(CAST(began AS INTEGER)) OVER (PARTITION BY "user" ORDER BY start_time, job_id, node_id) AS session
    FROM gaps
),

of_sessions AS (
    SELECT * FROM sessions
    QUALIFY row_number() OVER (
        PARTITION BY
            node_id, "user", session, CAST(start_time AS DATE), CASE WHEN start_time IS NULL THEN job_id END
        ORDER BY start_time, job_id
    ) = 1
),

by_group AS (
    SELECT
        *,
        grouped
        AND count(*) OVER (PARTITION BY cluster, vc, kind, "user", "name", "group") >= {LEAST_TRIALS} AS own_group
    FROM of_sessions
),

by_user AS (
    SELECT
        *,
        NOT own_group
        AND count(*) OVER (PARTITION BY cluster, vc, kind, "user", own_group) >= {LEAST_TRIALS} AS own_user
    FROM (
        SELECT * FROM by_group
        QUALIFY own_group OR NOT grouped OR row_number() OVER (
            PARTITION BY node_id, cluster, vc, kind, "user", "name", "group" ORDER BY start_time, job_id
        ) = 1
    )
),

counted AS (
    SELECT
        *,
        dense_rank() OVER (
            ORDER BY
                cluster, vc, kind, own_group, own_user,
                CASE WHEN own_group OR own_user THEN "user" END, own_group OR own_user AND "user" IS NULL,
                CASE WHEN own_group THEN "name" END, CASE WHEN own_group THEN "group" END
        ) - 1 AS stratum
    FROM by_user
    QUALIFY own_group OR own_user
        OR row_number() OVER (
            PARTITION BY node_id, cluster, vc, kind, "user", own_group, own_user ORDER BY start_time, job_id
        ) = 1
)

SELECT node_id, stratum, "user", count(*) AS tried, count(*) FILTER (WHERE failed) AS failed
FROM counted
GROUP BY node_id, stratum, "user"
ORDER BY node_id, stratum, "user" NULLS FIRST
"""

_ATTEMPTS = """
SELECT node_id, {stratum} AS stratum, "user", count(*) AS tried, count(*) FILTER (WHERE failed) AS failed
FROM node_attempt
WHERE failed IS NOT NULL AND run_s IS NOT NULL
GROUP BY node_id, stratum, "user"
ORDER BY node_id, stratum, "user" NULLS FIRST
"""


def trials_of_nodes(con: duckdb.DuckDBPyConnection, exposure: str) -> pl.DataFrame:
    """Return the trials of each node: node_id, stratum, user, tried, failed; one row for each of the first three.

    Parameters
    ----------
    con : DuckDB connection
        Has the table node_attempt: node_id, job_id, attempt, cluster, vc, user, name, group, kind (order of the size
        class), start_time, run_s, failed.
    exposure : str
        'trials': as told above. 'sized_attempts': every attempt is a trial, and each size class a stratum. Otherwise
        every attempt is a trial, and all are in one stratum.
    """
    attempts = _ATTEMPTS.format(stratum="kind" if exposure == "sized_attempts" else "0")
    frame: pl.DataFrame = pl.DataFrame(con.sql(_TRIALS if exposure == "trials" else attempts))
    return frame
