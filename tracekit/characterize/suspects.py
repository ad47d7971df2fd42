"""Which nodes are suspect: their failures are more than chance explains, also without one user, and against good nodes.

A node is tested against the nodes that are not suspect. All are tested against each other first; then the suspects are
left out of what the others, and they themselves, are compared with, and all are tested again, until no further node is
suspect. Otherwise bad nodes would hide each other, and the failures expected of them would hold a part of their own. As
long as no node is bad, the first round alone decides how often one is named; with bad nodes among what a good one is
compared with, the good one looks better than it is.

Attempts are no independent trials of a node. A job that is tried again fails again, and a user who submits a broken
script loses all its jobs, on whatever nodes they land. One cause must not count as many failures, and a node must not
be blamed for whose jobs it got. Hence two rules, of which neither looks at how an attempt ended:

- A user's attempts, of which each begins within an hour of the one before, are a session, which ends with the UTC
  day. A trial is the first attempt of a session on a node; a job has one trial a node, its first there. Where the
  start is unknown each job is a session.
- Trials are compared within a stratum: the same cluster, tenant, size class and user, and the same job group (name and
  group) where that has ten trials. The groups of a user with fewer are taken together, and so are the users of a tenant
  with fewer than ten; there a job group, or a user, has one trial a node.

Trials of a stratum may still end alike because they have one cause, such as one job on two nodes. A node has no more
than one of them, so that its number of failures varies less than that of independent trials, and the test errs towards
naming no node. Stratified tables: Mantel and Haenszel, Journal of the National Cancer Institute 22 (1959); units that
are alike within clusters: Donner and Klar, Design and Analysis of Cluster Randomization Trials (2000).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import duckdb

    from tracekit.array_types import Bools, Floats, Ints

# The trials of nodes.


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


# Whether one of many has more failures than chance explains.


def excess_among_trials(found: int, drawn: Ints, failed: Ints, tried: Ints) -> float:
    """Return the chance of at least `found` failures in one's own trials if all trials of a stratum had the same risk.

    Given that F of the N trials of a stratum failed, those among n of them are hypergeometric(N, F, n) under one common
    risk, whatever that risk is; one's failures are the sum over the strata, which are independent. With a single
    stratum this is Fisher's exact test against all others, with several it is the exact form of Mantel and Haenszel's.
    Source: Mantel and Haenszel, Journal of the National Cancer Institute 22 (1959); Gart, Biometrika 57 (1970).

    Parameters
    ----------
    found : int
        Own failures, over all strata.
    drawn, failed, tried : array of int, shape (strata,)
        Own trials n, failures of all F, and trials of all N, one's own included in the latter two.

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
    # Where all trials fail, or all are one's own, there is no chance in it.
    found -= int(np.where(drawn == tried, failed, drawn)[certain].sum())
    told &= ~certain
    drawn, failed, tried = drawn[told], failed[told], tried[told]
    single = drawn == 1
    chances, least = np.ones(1), 0
    for risk in (failed[single] / tried[single]).tolist():
        # The trial fails or not: what numpy.convolve does for two numbers, several times faster.
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
    """Return the chance of each number of marked ones among those drawn, and the number that comes first."""
    from scipy.special import gammaln

    share = marked / total
    mean = drawn * share
    # By Bernstein's inequality what lies farther out is less likely than 1e-40. It changes no p-value that matters, and
    # would make the sums over strata slow. scipy.stats has these chances too, but takes seconds for a large node.
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
    """Return for each node the chance of at least so many failures if every node hour had the same risk.

    Given that F failures came on all nodes, those of a node with the share w of the hours are binomial(F, w) when
    failures are Poisson at one common rate, whatever that rate is. Source: Przyborowski and Wilenski,
    Biometrika 31 (1940).

    Parameters
    ----------
    found : array of int
        Failures of each node.
    hours : array of float
        Exposure of each node [h], not negative.
    all_found, all_hours : array
        Those of all nodes that each is compared with, its own included.

    Returns
    -------
    array of float
        P-values [0..1]; NaN where there are no hours.

    Examples
    --------
    >>> both = np.array([2, 2]), np.array([10.0, 10.0])
    >>> excess_over_time(np.array([2, 0]), np.array([5.0, 5.0]), *both).round(9).tolist()
    [0.25, 1.0]
    """
    from scipy.special import betainc

    share = hours / np.where(all_hours > 0, all_hours, np.nan)
    # The chance of at least k of n is the incomplete beta function I_w(k, n - k + 1).
    least = np.maximum(found, 1)
    values = np.where(found > 0, betainc(least, all_found - least + 1, share), np.where(np.isnan(share), np.nan, 1.0))
    return np.clip(values, 0.0, 1.0)


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


LEVEL = 0.05
"""Chance of naming any node where all are alike [0..1]."""
_ROUNDS = 10
"""Most times that suspects are left out and all are tested again: each costs as much as the first."""


@dataclass(frozen=True)
class Suspects:
    """What is found of each node; all arrays have one value a node, NaN where it is unknown."""

    expected: Floats
    """Failures to be expected at the risk of the nodes that are not suspect."""
    p_values: Floats
    adjusted: Floats
    """The p-values with regard to their number, by Holm's method."""
    without_one_user: Floats
    """The same without the user with most failures there; NaN where `adjusted` is above 0.05, or no user is known."""
    suspect: Bools


class Failures(Protocol):
    """The failures of nodes, with what is to be expected of them if they are like the good ones."""

    nodes: int

    def expected(self, good: Bools) -> Floats:
        """Return the failures to be expected of each node at the risk of the good ones."""

    def p_values(self, good: Bools) -> Floats:
        """Return for each node the chance of at least its failures if its risk were that of the good ones."""

    def without_one_user(self, nodes: Ints, good: Bools) -> Floats:
        """Return the same for some nodes without the user who has most failures there; NaN where no user is known."""


def find_suspects(failures: Failures) -> Suspects:
    """Return which nodes are suspect, and what the test says of each.

    A node is suspect where its adjusted p-value is at most 0.05, and also the one without the user who has most
    failures there, as far as users are known.
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
    """Failures among the trials of strata: all trials of a stratum have the same risk, on whatever node they are.

    Parameters
    ----------
    node : array of int, shape (rows,)
        Number of the node of each row of `trials`, rising.
    trials : pl.DataFrame
        As `tracekit.characterize.suspects.trials_of_nodes` returns them.
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
        """Return the sum over the strata of F * n / N, F and N being those of the good nodes.

        Where no good node has trials of a stratum, nothing can be expected: the node's own failures stand for it.
        """
        tried, failed = self._totals(np.flatnonzero(good[self._row_node]))
        compared = tried[self._row_stratum] > 0
        risk = failed[self._row_stratum] / np.maximum(tried[self._row_stratum], 1)
        of_rows = np.where(compared, self._row_tried * risk, self._row_failed)
        sums: Floats = np.bincount(self._row_node, weights=of_rows, minlength=self.nodes).astype(np.float64)
        return sums

    def p_values(self, good: Bools) -> Floats:
        """Return the exact chances, see `excess_among_trials`; a node that is not good stands against the good ones."""
        totals = self._totals(np.flatnonzero(good[self._row_node]))
        return np.array([self._p_value(self._rows(node), totals, own=bool(good[node])) for node in range(self.nodes)])

    def without_one_user(self, nodes: Ints, good: Bools) -> Floats:
        """Return the same without the trials, on all nodes, of the user with most failures on the one in question.

        Of equals the user with more trials is left out. Trials of unknown users count as those of one user.
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
        """Return the p-value of the trials in these rows against `totals`, which hold them where `own` says so."""
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
    """Failures in the hours of nodes: every node hour has the same risk.

    Parameters
    ----------
    failed : array of int
        Of each node.
    hours : array of float
        Of each node [h].
    """

    def __init__(self, failed: Ints, hours: Floats) -> None:
        self.nodes = len(failed)
        self._failed, self._hours = failed, hours

    def expected(self, good: Bools) -> Floats:
        """Return F * h / H, F and H being those of the good nodes; NaN where these have no time."""
        hours = self._hours[good].sum()
        return self._hours * (self._failed[good].sum() / hours) if hours > 0 else np.full(self.nodes, np.nan)

    def p_values(self, good: Bools) -> Floats:
        """Return the chances by the binomial, see `excess_over_time`; NaN where there is no time."""
        failed = self._failed[good].sum() + np.where(good, 0, self._failed)
        return excess_over_time(
            self._failed, self._hours, failed, self._hours[good].sum() + np.where(good, 0, self._hours)
        )

    def without_one_user(self, nodes: Ints, good: Bools) -> Floats:  # noqa: ARG002 -- hours are not told apart by user
        """Return NaN: the hours are not told apart by user."""
        return np.full(len(nodes), np.nan)


def _codes(values: pl.Series) -> Ints:
    """Return a number for each value, from 0 on without gaps, equal ones alike; NULL is a value."""
    return np.unique(values.rank("dense").fill_null(0).to_numpy(), return_inverse=True)[1].astype(np.int64)
