"""Which nodes see more failed attempts than chance explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn, Param
from tracekit.characterize.timeline import TimelineRows, TimelineTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.array_types import Floats, Ints


__all__ = ["TIMELINE", "adjust", "excess_among_attempts", "excess_over_time"]


def excess_among_attempts(failures: Ints, attempts: Ints) -> Floats:
    """Return for each node the chance of at least so many failures if attempts of a kind all had the same risk.

    Given that F of the N attempts of a kind failed, those of a node with n of them are hypergeometric(N, F, n) under
    one common risk, whatever that risk is; a node's failures are the sum over the kinds. With a single kind this is
    Fisher's exact test of the node against all others, with several it is the exact form of Mantel and Haenszel's.

    Parameters
    ----------
    failures, attempts : array of int
        One row a node, one column a kind of attempt.

    Returns
    -------
    array of float
        One-sided p-values [0..1].

    Examples
    --------
    >>> excess_among_attempts(np.array([[2], [0]]), np.array([[2], [2]])).round(9).tolist()
    [0.166666667, 1.0]
    """
    tried, failed = attempts.sum(axis=0), failures.sum(axis=0)
    p_values = np.ones(len(failures))
    for node, (found, share) in enumerate(zip(failures.sum(axis=1), attempts, strict=True)):
        chances, least = np.ones(1), 0
        for kind in np.flatnonzero((share > 0) & (failed > 0)):
            part, low = _hypergeometric(int(tried[kind]), int(failed[kind]), int(share[kind]))
            chances, least = np.convolve(chances, part), least + low
        if found > least:
            p_values[node] = chances[found - least :].sum()
    return np.clip(p_values, 0.0, 1.0)


def _hypergeometric(total: int, marked: int, drawn: int) -> tuple[Floats, int]:
    """Return the chance of each number of marked ones among those drawn, and the number that comes first."""
    from scipy.special import gammaln

    share = marked / total
    mean = drawn * share
    # By Bernstein's inequality what lies farther out is less likely than 1e-40. It changes no p-value that matters, and
    # would make the sums over kinds slow. scipy.stats has these chances too, but takes seconds for a large node.
    reach = 20 * (mean * (1 - share)) ** 0.5 + 100
    low = max(0, drawn + marked - total, int(mean - reach))
    high = min(drawn, marked, int(mean + reach))
    found = np.arange(low, high + 1)
    logs = -(
        gammaln(found + 1)
        + gammaln(marked - found + 1)
        + gammaln(drawn - found + 1)
        + gammaln(total - marked - drawn + found + 1)
    )
    chances: Floats = np.exp(logs - logs.max())
    return chances / chances.sum(), low


def excess_over_time(failures: Ints, hours: Floats) -> Floats:
    """Return for each node the chance of at least so many failures if every node hour had the same risk.

    Given that F failures came on all nodes, those of a node with the share w of the hours are binomial(F, w) when
    failures are Poisson at one common rate, whatever that rate is. Source: Przyborowski and Wilenski,
    Biometrika 31 (1940).

    Parameters
    ----------
    failures : array of int
        Of each node.
    hours : array of float
        Exposure of each node [h], not negative; at least one is above 0.

    Returns
    -------
    array of float
        P-values [0..1].

    Examples
    --------
    >>> excess_over_time(np.array([2, 0]), np.array([5.0, 5.0])).round(9).tolist()
    [0.25, 1.0]
    """
    from scipy.special import betainc

    # The chance of at least k of n is the incomplete beta function I_w(k, n - k + 1).
    least = np.maximum(failures, 1)
    values = betainc(least, failures.sum() - least + 1, hours / hours.sum())
    return np.clip(np.where(failures > 0, values, 1.0), 0.0, 1.0)


def adjust(p_values: Floats) -> Floats:
    """Return p-values corrected for their number by Holm's step-down method.

    Naming the nodes with an adjusted value of at most a as bad has a chance of at most a of naming any good one,
    however the nodes depend on each other. Source: Holm, Scandinavian Journal of Statistics 6 (1979).

    Examples
    --------
    >>> adjust(np.array([0.01, 0.5, 0.02])).tolist()
    [0.03, 0.5, 0.04]
    """
    order = np.argsort(p_values, kind="stable")
    steps = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    failed = "o.failed_or_retried" if params["rule"] == "retried" else "o.failed"
    if params["failures"] == "node_fail":
        failed = f"CASE WHEN {failed} IS NOT NULL THEN o.status IS NOT DISTINCT FROM 'node_fail' END"
    con.execute(
        f"""CREATE TEMP TABLE node_attempt AS
            SELECT p.node_id, coalesce(o.class_order, 6) AS kind, {failed} AS failed,
                   CASE WHEN o.run_s >= 0 THEN o.run_s END AS run_s
            FROM (SELECT DISTINCT job_id, attempt, node_id FROM placements WHERE node_id IS NOT NULL) AS p
            INNER JOIN attempt_outcomes AS o ON p.job_id = o.job_id AND p.attempt = o.attempt"""
    )
    kinds = con.sql(
        """SELECT node_id, kind, count(*) AS attempts, count(*) FILTER (WHERE failed) AS failed_attempts,
                  sum(CAST(run_s AS DECIMAL(38, 6))) AS run_s
           FROM node_attempt WHERE failed IS NOT NULL AND run_s IS NOT NULL
           GROUP BY node_id, kind"""
    ).pl()
    ((unknown, endless),) = con.execute(
        """SELECT count(*) FILTER (WHERE failed IS NULL), count(*) FILTER (WHERE failed IS NOT NULL AND run_s IS NULL)
           FROM node_attempt"""
    ).fetchall()
    failures = pl.col("failed_attempts")
    hours = pl.col("run_s").cast(pl.Float64) / 3600
    nodes = kinds.group_by("node_id").agg(pl.col("attempts", "failed_attempts", "run_s").sum()).sort("node_id")
    frame = nodes.select(
        "node_id",
        "attempts",
        "failed_attempts",
        (failures / pl.col("attempts")).alias("failed_share"),
        hours.alias("node_hours"),
        (hours / pl.when(failures > 0).then(failures)).alias("mean_hours_between_failures"),
    )
    frame = frame.with_columns(_judged(frame, kinds, str(params["exposure"])))
    return TimelineRows(frame, _notes(frame.height, int(frame["failed_attempts"].sum()), unknown, endless))


def _judged(nodes: pl.DataFrame, kinds: pl.DataFrame, exposure: str) -> list[pl.Series]:
    """Return expected failures, p-values and adjusted p-values of the nodes; unknown where there is no exposure."""
    failures, hours = nodes["failed_attempts"].to_numpy(), nodes["node_hours"].to_numpy()
    if exposure != "node_hours":
        attempts, failed = _table(nodes, kinds, "attempts"), _table(nodes, kinds, "failed_attempts")
        if exposure == "attempts":
            attempts, failed = attempts.sum(axis=1, keepdims=True), failed.sum(axis=1, keepdims=True)
        expected = (attempts * (failed.sum(axis=0) / np.maximum(attempts.sum(axis=0), 1))).sum(axis=1)
        p_values = excess_among_attempts(failed, attempts)
    elif hours.sum() > 0:
        expected = failures.sum() * hours / hours.sum()
        p_values = excess_over_time(failures, hours)
    else:
        expected = p_values = np.full(len(failures), np.nan)
    values = {"expected_failed_attempts": expected, "p_value": p_values, "adjusted_p_value": adjust(p_values)}
    return [pl.Series(name, v, dtype=pl.Float64, nan_to_null=True) for name, v in values.items()]


def _table(nodes: pl.DataFrame, kinds: pl.DataFrame, column: str) -> Ints:
    """Return a column of `kinds` as a table: one row a node of `nodes`, one column a kind."""
    table = np.zeros((nodes.height, 7), dtype=np.int64)
    row = nodes["node_id"].search_sorted(kinds["node_id"])
    table[row.to_numpy(), kinds["kind"].to_numpy()] = kinds[column].to_numpy()
    return table


def _notes(nodes: int, failures: int, unknown: int, endless: int) -> tuple[str, ...]:
    notes = [f"failed attempts on {nodes} nodes, each counted on every node that it was on: {failures}"]
    if unknown:
        notes.append(f"attempts on nodes left out, since how they ended is unknown: {unknown}")
    if endless:
        notes.append(f"attempts on nodes left out, since their run time is unknown: {endless}")
    return tuple(notes)


TIMELINE = TimelineTable(
    name="node_failures",
    title="Failed attempts of each node against what equal risk would give",
    tables=("jobs", "attempts", "placements"),
    params=(
        Param(
            "rule",
            "stated",
            "attempts with a status of failure, or also those of unknown end tried again",
            ("stated", "retried"),
        ),
        Param(
            "failures",
            "all",
            "every failed attempt, or those that the source blames on the node",
            ("all", "node_fail"),
        ),
        Param(
            "exposure",
            "sized_attempts",
            "what the risk of a node grows with: its attempts of each size class, all its attempts, or their hours",
            ("sized_attempts", "attempts", "node_hours"),
        ),
    ),
    columns=(
        AnswerColumn("node_id", "text", "the machine"),
        AnswerColumn("attempts", "attempts", "attempts on this node whose end and run time are known"),
        AnswerColumn("failed_attempts", "attempts", "those of them that failed"),
        AnswerColumn("failed_share", "share", "failed_attempts / attempts"),
        AnswerColumn("node_hours", "hours", "run time of these attempts, summed"),
        AnswerColumn("mean_hours_between_failures", "hours", "node_hours / failed_attempts; NULL without a failure"),
        AnswerColumn("expected_failed_attempts", "attempts", "failures that the node would have if all were alike"),
        AnswerColumn("p_value", "0..1", "chance of at least so many failures if all nodes were alike"),
        AnswerColumn("adjusted_p_value", "0..1", "the same, with regard to the number of nodes looked at"),
    ),
    rule="""\
An attempt on several nodes counts on each of them, since nothing says which one failed. Attempts of unknown end or
run time are out; a note counts them. Failed is failed, timeout, node_fail or out_of_memory (view attempt_outcomes).
Equal risk means that all attempts of one size class have the same chance to fail, wherever they run: expected is the
sum over the classes of F * n / N, for a node with n of the N attempts of the class, of which F failed. p_value is the
chance of at least so many failures, one-sided and exact: a sum of hypergeometric numbers (Fisher; Mantel, Haenszel).
exposure=attempts takes all classes as one. exposure=node_hours means equal risk in every hour: expected = F * h / H,
p_value from binomial(F, h / H) (Przyborowski and Wilenski, 1940). Most failures come early in a run, so that nodes with
many short attempts look bad by the hour.
adjusted_p_value is Holm's (1979): naming all nodes with at most 0.05 names any good one in at most 5 of 100 traces.
Failures that come in clusters break the assumption: a job or user that fails time after time on one node makes that
node look bad. failures=node_fail counts those alone that the source blames on the node.""",
    compute=_compute,
)
