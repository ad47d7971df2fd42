"""Find nodes with more failures than chance explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.notes import Note, noted
from tracekit.characterize.suspects import HourlyFailures, StratifiedFailures, find_suspects, trials_of_nodes
from tracekit.characterize.timeline import TimelineRows, timeline_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.array_types import Ints
    from tracekit.characterize.suspects import Failures


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    failed = "o.failed_or_retried" if params["rule"] == "retried" else "o.failed"
    if params["failures"] == "node_fail":
        failed = f"CASE WHEN {failed} IS NOT NULL THEN o.status IS NOT DISTINCT FROM 'node_fail' END"
    con.execute(
        f"""CREATE TEMP TABLE node_attempt AS
            SELECT p.node_id, p.job_id, p.attempt, j.cluster, j.vc, j."user", j."name", j."group",
                   coalesce(o.class_order, 6) AS kind, o.start_time, {failed} AS failed,
                   CASE WHEN o.run_s >= 0 THEN o.run_s END AS run_s, o.status
            FROM (SELECT DISTINCT job_id, attempt, node_id FROM placements WHERE node_id IS NOT NULL) AS p
            INNER JOIN attempt_outcomes AS o ON p.job_id = o.job_id AND p.attempt = o.attempt
            INNER JOIN jobs AS j ON p.job_id = j.job_id"""
    )
    nodes = pl.DataFrame(
        con.sql(
            """SELECT node_id, count(*) AS attempts, count(*) FILTER (WHERE failed) AS failed_attempts,
                  count(*) FILTER (WHERE failed AND status = 'timeout') AS timed_out_attempts,
                  CAST(sum(CAST(run_s AS DECIMAL(38, 6))) AS DOUBLE) / 3600 AS node_hours
           FROM node_attempt WHERE failed IS NOT NULL AND run_s IS NOT NULL
           GROUP BY node_id ORDER BY node_id"""
        )
    )
    ((unknown, endless),) = con.execute(
        """SELECT count(*) FILTER (WHERE failed IS NULL), count(*) FILTER (WHERE failed IS NOT NULL AND run_s IS NULL)
           FROM node_attempt"""
    ).fetchall()
    frame = nodes.with_columns(
        (pl.col("failed_attempts") / pl.col("attempts")).alias("failed_share"),
        (pl.col("node_hours") / pl.when(pl.col("failed_attempts") > 0).then(pl.col("failed_attempts"))).alias(
            "mean_hours_between_failures"
        ),
    ).with_columns(_judged(con, nodes, str(params["exposure"])))
    shown = frame.select(column.name for column in NODE_FAILURES.columns)
    failures = Note("failed attempts", (nodes.height, int(nodes["failed_attempts"].sum())))
    lost = (*noted("outcome unknown", unknown), *noted("run time unknown", endless))
    return TimelineRows(shown, (failures, *lost))


def _judged(con: duckdb.DuckDBPyConnection, nodes: pl.DataFrame, exposure: str) -> list[pl.Series]:
    """Return the columns from trials on; unknown for nodes without exposure."""
    if exposure == "node_hours":
        tried, failed = nodes["attempts"].to_numpy(), nodes["failed_attempts"].to_numpy()
        failures: Failures = HourlyFailures(failed, nodes["node_hours"].to_numpy())
    else:
        trials = trials_of_nodes(con, exposure)
        node = nodes["node_id"].search_sorted(trials["node_id"]).to_numpy().astype(np.int64)
        tried, failed = (_sums(node, trials[name], nodes.height) for name in ("tried", "failed"))
        failures = StratifiedFailures(node, trials, nodes.height)
    found = find_suspects(failures)
    values = {
        "expected_failed_trials": found.expected,
        "p_value": found.p_values,
        "adjusted_p_value": found.adjusted,
        "adjusted_p_value_without_one_user": found.without_one_user,
    }
    return [
        pl.Series("trials", tried, dtype=pl.Int64),
        pl.Series("failed_trials", failed, dtype=pl.Int64),
        *(pl.Series(name, v, dtype=pl.Float64, nan_to_null=True) for name, v in values.items()),
        pl.Series("suspect", found.suspect, dtype=pl.Boolean),
    ]


def _sums(node: Ints, values: pl.Series, nodes: int) -> Ints:
    return np.bincount(node, weights=values.to_numpy(), minlength=nodes).astype(np.int64)


NODE_FAILURES = timeline_of(
    "failures/by_node",
    name="node_failures",
    title="Failed attempts of each node, compared with equal risk",
    tables=("jobs", "attempts", "placements"),
    views=("attempt_outcomes",),
    compute=_compute,
)
