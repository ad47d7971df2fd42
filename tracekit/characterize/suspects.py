"""Which nodes are suspect: their failures are more than chance explains, also without one user, and against good nodes.

A node is tested against the nodes that are not suspect. All are tested against each other first; then the suspects are
left out of what the others, and they themselves, are compared with, and all are tested again, until no further node is
suspect. Otherwise bad nodes would hide each other, and the failures expected of them would hold a part of their own. As
long as no node is bad, the first round alone decides how often one is named; with bad nodes among what a good one is
compared with, the good one looks better than it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tracekit.characterize.excess import adjust, excess_among_trials, excess_over_time

if TYPE_CHECKING:
    import polars as pl

    from tracekit.array_types import Bools, Floats, Ints

__all__ = ["LEVEL", "Failures", "HourlyFailures", "StratifiedFailures", "Suspects", "find_suspects"]

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
        As `tracekit.characterize.trials.trials_of_nodes` returns them.
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
