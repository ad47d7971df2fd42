"""Whether one of many has more failures than chance explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints


__all__ = ["adjust", "excess_among_trials", "excess_over_time"]


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
