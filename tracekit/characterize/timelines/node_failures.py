"""Find nodes with more failures than chance explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn, Param
from tracekit.characterize.notes import Note, noted
from tracekit.characterize.suspects import HourlyFailures, StratifiedFailures, find_suspects, trials_of_nodes
from tracekit.characterize.timeline import TimelineRows, TimelineTable

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


NODE_FAILURES = TimelineTable(
    name="node_failures",
    title="Failed attempts of each node, compared with equal risk",
    tables=("jobs", "attempts", "placements"),
    views=("attempt_outcomes",),
    params=(
        Param(
            "rule",
            "stated",
            "attempts with a failure status; retried adds attempts of unknown end that were tried again",
            ("stated", "retried"),
        ),
        Param(
            "failures",
            "all",
            "every failed attempt, or only those that the source blames on the node",
            ("all", "node_fail"),
        ),
        Param(
            "exposure",
            "trials",
            "what a node's risk grows with: trials as in the rule, its attempts of each size class, all its attempts,"
            " or their hours",
            ("trials", "sized_attempts", "attempts", "node_hours"),
        ),
    ),
    columns=(
        AnswerColumn("node_id", "text", "the machine"),
        AnswerColumn("attempts", "attempts", "attempts on this node whose end and run time are known"),
        AnswerColumn("failed_attempts", "attempts", "of these, attempts that failed"),
        AnswerColumn("timed_out_attempts", "attempts", "of the failed attempts, those with status timeout"),
        AnswerColumn("failed_share", "share", "failed_attempts / attempts"),
        AnswerColumn("node_hours", "hours", "total run time of these attempts"),
        AnswerColumn("mean_hours_between_failures", "hours", "node_hours / failed_attempts; NULL without a failure"),
        AnswerColumn("trials", "trials", "what is tested: trials as defined in the rule, or the attempts"),
        AnswerColumn("failed_trials", "trials", "of these, attempts that failed"),
        AnswerColumn(
            "expected_failed_trials", "trials", "failures expected at the risk of the nodes that are not suspect"
        ),
        AnswerColumn("p_value", "0..1", "chance of at least this many failed trials at that risk"),
        AnswerColumn("adjusted_p_value", "0..1", "the same, adjusted for the number of nodes tested"),
        AnswerColumn(
            "adjusted_p_value_without_one_user",
            "0..1",
            "the same without the user with the most failures there; NULL if adjusted_p_value is above 0.05, if no"
            " user is known, and by the hour",
        ),
        AnswerColumn("suspect", "true or false", "whether both are at most 0.05, as far as they are known"),
    ),
    rule="""\
An attempt on several nodes counts on each of them, because no source says which node failed. Attempts with an unknown
end or run time are excluded; a note counts them. Failed is failed, timeout, node_fail or out_of_memory (view
attempt_outcomes). Each cause counts once: a trial is the first attempt on the node in a user's session, and a job has
one trial per node, its first there. In a session each attempt begins within an hour of the one before; it ends with the
UTC day. Only similar trials are compared: trials of one stratum have the same cluster, tenant, size class and user, and
the same job group (name and group) if that has ten trials. A user's smaller groups are combined, and so are the users
of a tenant with fewer than ten trials; in such a combination a group, or a user, has one trial per node. Which attempts
are trials, and in which stratum, does not depend on how they ended. Equal risk means that all trials of one stratum
have the same chance to fail, wherever they run. The expected number is the sum over the strata of F * n / N, for a node
with n trials, if the nodes that are not suspect have N trials and F of them failed. p_value is the chance of at least
this many failures, one-sided and exact: a sum of hypergeometric numbers (Fisher; Mantel and Haenszel, 1959; Gart,
1970). Suspect nodes are compared with those that are not suspect. adjusted_p_value is Holm's (1979). A node is suspect
if it is at most 0.05, both with all users and without the user with the most failures there. Suspects are removed from
the nodes used for comparison, and all nodes are tested again until no suspect is added (ten times at most). If all
nodes are equally good, at most 5 of 100 traces name any node. This fails if jobs of several users fail for one reason
on the same node again and again. exposure=sized_attempts takes each attempt as a trial and each size class as a
stratum, and exposure=attempts takes all classes as one stratum: failures that come in clusters then make good nodes
suspect. exposure=node_hours means equal risk in every hour: expected = F * h / H, p_value from binomial(F, h / H)
(Przyborowski and Wilenski, 1940). Most failures come early in a run, so nodes with many short attempts look bad by the
hour. failures=node_fail counts only failures that the source blames on the node.""",
    compute=_compute,
)
