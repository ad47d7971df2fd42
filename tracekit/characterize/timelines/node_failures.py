"""Find suspect nodes: those with more failures than expected by chance, even without their worst user.

A node is compared with normal nodes. First all nodes are tested against each other. Then suspects are removed from the
comparison, and all nodes are tested again until there are no new suspects. Otherwise bad nodes would hide each other,
and their own failures would raise their expected number. If no node is bad, only the first round decides how often a
node is called suspect. If bad nodes remain in the comparison, a good node looks better than it is.

Attempts are not independent trials of a node. A failed job often fails again when retried, and a user's broken script
fails on any node. One cause must not count as many failures, and a node must not be blamed for its users. So there are
two rules, which do not depend on how an attempt ended:

- A session is a sequence of a user's attempts, each of which begins within an hour of the previous one. A session
  ends with the UTC day. A trial is the first attempt of a session on a node. A job has at most one trial per node: its
  first attempt there. If the start is unknown, each job is its own session.
- Trials are compared within a stratum: the same cluster, tenant, size class and user, and the same job group (name and
  group) if that group has ten trials. A user's smaller groups are combined, and so are a tenant's users with fewer than
  ten trials. In such a combination, a job group or a user has one trial per node.

Trials of a stratum may still share a cause, such as one job on two nodes. A node has at most one of these trials, so
its number of failures varies less than with independent trials, and the test errs on the side of naming no node. For
stratified tables, see Mantel and Haenszel, Journal of the National Cancer Institute 22 (1959). For correlated units
within clusters, see Donner and Klar, Design and Analysis of Cluster Randomization Trials (2000).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from tracekit.characterize.notes import Note, noted
from tracekit.characterize.timeline import TimelineRows, timeline_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.array_types import Bools, Floats, Ints

# Select the trials of nodes.


SESSION_GAP_S = 3600
"""Maximum time between a user's successive starts within a session [s]; our choice."""

LEAST_TRIALS = 10
"""Minimum number of trials for a user or a job group to form a stratum; our choice."""

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
    """Return the trials of each node: node_id, stratum, user, tried, failed; one row for each node, stratum and user.

    Parameters
    ----------
    con : DuckDB connection
        A connection with the node_attempt table: node_id, job_id, attempt, cluster, vc, user, name, group, kind (order
        of the size class), start_time, run_s, failed.
    exposure : str
        With 'trials', trials are defined as above. With 'sized_attempts', every attempt is a trial, and each size class
        is a stratum. Otherwise every attempt is a trial, and all trials are in one stratum.
    """
    attempts = _ATTEMPTS.format(stratum="kind" if exposure == "sized_attempts" else "0")
    frame: pl.DataFrame = pl.DataFrame(con.sql(_TRIALS if exposure == "trials" else attempts))
    return frame


# Test whether a node has more failures than expected by chance.


def excess_among_trials(found: int, drawn: Ints, failed: Ints, tried: Ints) -> float:
    """Return the probability of at least `found` failures in a node's trials if a stratum's trials had equal risk.

    If F of the N trials of a stratum failed, the failures among n of them are hypergeometric(N, F, n) under any common
    risk. The node's failures are the sum over the strata, which are independent. With a single stratum this is Fisher's
    exact test against all other nodes; with several strata it is the exact form of Mantel and Haenszel's test. Source:
    Mantel and Haenszel, Journal of the National Cancer Institute 22 (1959); Gart, Biometrika 57 (1970).

    Parameters
    ----------
    found : int
        Failures of the node, over all strata.
    drawn, failed, tried : array of int, shape (strata,)
        Trials n of the node, and failures F and trials N of all nodes, including the node itself.

    Returns
    -------
    float
        One-sided p-value [0..1].

    Examples
    --------
    >>> round(excess_among_trials(2, np.array([2]), np.array([2]), np.array([4])), 9)
    0.166666667
    """
    told = (drawn > 0) & (failed > 0)
    certain = told & ((failed == tried) | (drawn == tried))
    # If all trials failed or all belong to the node, the outcome is certain.
    found -= int(np.where(drawn == tried, failed, drawn)[certain].sum())
    told &= ~certain
    drawn, failed, tried = drawn[told], failed[told], tried[told]
    single = drawn == 1
    chances, least = np.ones(1), 0
    for risk in (failed[single] / tried[single]).tolist():
        # A trial fails or not. This equals numpy.convolve with two numbers, but is several times faster.
        longer = np.zeros(len(chances) + 1)
        longer[:-1] = chances * (1 - risk)
        longer[1:] += chances * risk
        chances = longer
    for all_of, marked, own in zip(
        tried[~single].tolist(), failed[~single].tolist(), drawn[~single].tolist(), strict=True
    ):
        part, low = _hypergeometric(all_of, marked, own)
        chances, least = np.convolve(chances, part), least + low
    return float(min(chances[found - least :].sum(), 1.0)) if found > least else 1.0


def _hypergeometric(total: int, marked: int, drawn: int) -> tuple[Floats, int]:
    """Return the probabilities of the number of marked items among the drawn items, and the first such number."""
    from scipy.special import gammaln

    share = marked / total
    mean = drawn * share
    # By Bernstein's inequality, numbers farther out have probabilities below 1e-40, which do not affect any relevant
    # p-value but slow down the sums over strata. scipy.stats also computes these probabilities, but takes seconds for a
    # large node.
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


def excess_over_time(found: Ints, hours: Floats, all_found: Ints, all_hours: Floats) -> Floats:
    """Return, for each node, the probability of at least as many failures if every node-hour had the same risk.

    Given F failures on all nodes, the failures of a node with share w of the hours are binomial(F, w) if failures are
    Poisson at any common rate. Source: Przyborowski and Wilenski, Biometrika 31 (1940).

    Parameters
    ----------
    found : array of int
        Failures of each node.
    hours : array of float
        Exposure of each node [h], not negative.
    all_found, all_hours : array
        Failures and exposure of all nodes that each node is compared with, including itself.

    Returns
    -------
    array of float
        P-values [0..1], or NaN for nodes without hours.

    Examples
    --------
    >>> both = np.array([2, 2]), np.array([10.0, 10.0])
    >>> excess_over_time(np.array([2, 0]), np.array([5.0, 5.0]), *both).round(9).tolist()
    [0.25, 1.0]
    """
    from scipy.special import betainc

    share = hours / np.where(all_hours > 0, all_hours, np.nan)
    # The probability of at least k of n is the incomplete beta function I_w(k, n - k + 1).
    least = np.maximum(found, 1)
    values = np.where(found > 0, betainc(least, all_found - least + 1, share), np.where(np.isnan(share), np.nan, 1.0))
    return np.clip(values, 0.0, 1.0)


def adjust(p_values: Floats) -> Floats:
    """Adjust p-values for multiple testing by Holm's step-down method.

    If nodes with an adjusted value of at most a are named, the probability of naming any good node is at most a, under
    any dependence between nodes. Source: Holm, Scandinavian Journal of Statistics 6 (1979).

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


LEVEL = 0.05
"""Probability of naming any node if all nodes are equally good [0..1]."""
_ROUNDS = 10
"""Maximum number of further rounds without the suspects. Each round costs as much as the first."""


@dataclass(frozen=True)
class Suspects:
    """The test results. All arrays have one value per node, which is NaN if unknown."""

    expected: Floats
    """Failures expected at the risk of normal nodes."""
    p_values: Floats
    adjusted: Floats
    """The p-values adjusted for multiple testing by Holm's method."""
    without_one_user: Floats
    """The p-values without the user with the most failures on the node, or NaN if `adjusted` is above 0.05 or no user
    is known."""
    suspect: Bools


class Failures(Protocol):
    """The failures of nodes, and those expected if a node is as good as the good nodes."""

    nodes: int

    def expected(self, good: Bools) -> Floats:
        """Return the number of failures expected on each node at the risk of the good nodes."""

    def p_values(self, good: Bools) -> Floats:
        """Return, for each node, the probability of at least as many failures at the risk of the good nodes."""

    def without_one_user(self, nodes: Ints, good: Bools) -> Floats:
        """Return some nodes' p-values without the user with the most failures there, or NaN if no user is known."""


def find_suspects(failures: Failures) -> Suspects:
    """Return the test result for each node, and a mask of the suspect nodes.

    A node is suspect if its adjusted p-value is at most 0.05, both with all users and, if users are known, without the
    user with the most failures there.
    """
    suspect = np.zeros(failures.nodes, dtype=bool)
    for _ in range(_ROUNDS):
        p_values = failures.p_values(~suspect)
        adjusted = adjust(p_values)
        alone = p_values.copy()
        excess = np.flatnonzero(adjusted <= LEVEL)
        alone[excess] = failures.without_one_user(excess, ~suspect)
        unnamed = np.isnan(alone)
        readjusted = adjust(np.where(unnamed, p_values, alone))
        without = np.full(failures.nodes, np.nan)
        without[excess] = np.where(unnamed, np.nan, readjusted)[excess]
        further = (adjusted <= LEVEL) & (readjusted <= LEVEL) & ~suspect
        if not further.any():
            break
        suspect |= further
    return Suspects(failures.expected(~suspect), p_values, adjusted, without, suspect)


class StratifiedFailures:
    """Failures among trials in strata, where all trials of a stratum have the same risk on any node.

    Parameters
    ----------
    node : array of int, shape (rows,)
        Number of the node of each row of `trials`, in increasing order.
    trials : pl.DataFrame
        The trials, from `trials_of_nodes`.
    nodes : int
        Number of nodes.
    """

    def __init__(self, node: Ints, trials: pl.DataFrame, nodes: int) -> None:
        self.nodes = nodes
        self._named = trials["user"].null_count() < trials.height
        self._user = _codes(trials["user"])
        self._row_node, self._row_stratum = node, _codes(trials["stratum"])
        self._row_tried, self._row_failed = (trials[name].to_numpy().astype(np.int64) for name in ("tried", "failed"))
        self._strata = int(self._row_stratum.max(initial=-1)) + 1
        self._cuts = np.searchsorted(node, np.arange(nodes + 1))
        order = np.argsort(self._user, kind="stable")
        self._rows_of_user = np.split(order, np.flatnonzero(np.diff(self._user[order])) + 1)

    def expected(self, good: Bools) -> Floats:
        """Sum F * n / N over the strata, with F and N of the good nodes.

        If no good node has trials in a stratum, the node's own failures are the expected number.
        """
        tried, failed = self._totals(np.flatnonzero(good[self._row_node]))
        compared = tried[self._row_stratum] > 0
        risk = failed[self._row_stratum] / np.maximum(tried[self._row_stratum], 1)
        of_rows = np.where(compared, self._row_tried * risk, self._row_failed)
        sums: Floats = np.bincount(self._row_node, weights=of_rows, minlength=self.nodes).astype(np.float64)
        return sums

    def p_values(self, good: Bools) -> Floats:
        """Return the exact p-values (see `excess_among_trials`), comparing nodes that are not good with good ones."""
        totals = self._totals(np.flatnonzero(good[self._row_node]))
        return np.array([self._p_value(self._rows(node), totals, own=bool(good[node])) for node in range(self.nodes)])

    def without_one_user(self, nodes: Ints, good: Bools) -> Floats:
        """Return the p-values without the trials of the user with the most failures on the node in question.

        If several users have the most failures, the one with the most trials is removed. Trials of unknown users count
        as trials of one user.
        """
        p_values = np.full(len(nodes), np.nan)
        if not self._named:
            return p_values
        totals = self._totals(np.flatnonzero(good[self._row_node]))
        for k, node in enumerate(nodes.tolist()):
            rows = self._rows(node)
            failed, tried = (
                np.bincount(self._user[rows], weights=values[rows]) for values in (self._row_failed, self._row_tried)
            )
            user = int(np.lexsort((tried, failed))[-1])
            theirs = self._rows_of_user[user]
            removed = self._totals(theirs[good[self._row_node[theirs]]])
            left = totals[0] - removed[0], totals[1] - removed[1]
            p_values[k] = self._p_value(rows[self._user[rows] != user], left, own=bool(good[node]))
        return p_values

    def _rows(self, node: int) -> Ints:
        return np.arange(self._cuts[node], self._cuts[node + 1])

    def _totals(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the trials and the failures of each stratum in these rows."""
        strata = self._row_stratum[rows]
        tried, failed = (
            np.bincount(strata, weights=values[rows], minlength=self._strata).astype(np.int64)
            for values in (self._row_tried, self._row_failed)
        )
        return tried, failed

    def _p_value(self, rows: Ints, totals: tuple[Ints, Ints], *, own: bool) -> float:
        """Return the p-value of the trials in these rows against `totals`, which include them if `own` is true."""
        strata, index = np.unique(self._row_stratum[rows], return_inverse=True)
        drawn, failed = (
            np.bincount(index, weights=values[rows], minlength=len(strata)).astype(np.int64)
            for values in (self._row_tried, self._row_failed)
        )
        all_tried, all_failed = (total[strata] for total in totals)
        if not own:
            all_tried, all_failed = all_tried + drawn, all_failed + failed
        return excess_among_trials(int(failed.sum()), drawn, all_failed, all_tried)


class HourlyFailures:
    """Failures per node-hour, where every node-hour has the same risk.

    Parameters
    ----------
    failed : array of int
        Number of failures of each node.
    hours : array of float
        Exposure of each node [h].
    """

    def __init__(self, failed: Ints, hours: Floats) -> None:
        self.nodes = len(failed)
        self._failed, self._hours = failed, hours

    def expected(self, good: Bools) -> Floats:
        """Return F * h / H, with F and H of the good nodes, or NaN if these have no hours."""
        hours = self._hours[good].sum()
        return self._hours * (self._failed[good].sum() / hours) if hours > 0 else np.full(self.nodes, np.nan)

    def p_values(self, good: Bools) -> Floats:
        """Return the binomial p-values (see `excess_over_time`), or NaN for nodes without hours."""
        failed = self._failed[good].sum() + np.where(good, 0, self._failed)
        return excess_over_time(
            self._failed, self._hours, failed, self._hours[good].sum() + np.where(good, 0, self._hours)
        )

    def without_one_user(self, nodes: Ints, good: Bools) -> Floats:  # noqa: ARG002 -- hours are not recorded by user
        """Return NaN, because hours are not recorded by user."""
        return np.full(len(nodes), np.nan)


def _codes(values: pl.Series) -> Ints:
    """Return a code for each value: from 0 without gaps, equal for equal values. NULL counts as a value."""
    return np.unique(values.rank("dense").fill_null(0).to_numpy(), return_inverse=True)[1].astype(np.int64)


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
    """Return the columns from `trials` on, unknown for nodes without exposure."""
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
