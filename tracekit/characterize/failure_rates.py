"""Laws of the time between failures: whether nodes age, and whether they are alike.

All laws are fitted to the same observations by maximum likelihood: each time in which a node worked, and whether a
failure ended it. Hence their AICs compare (Akaike, 1974). A node of rate r with k failures in T hours has the
likelihood r^k * exp(-r * T).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints

ALIKE = 1e4
"""Shape of a gamma distribution of rates from which on nodes are alike: their rates differ by 1 % or less."""

_CHI2 = 3.841458820694124
"""95 % quantile of chi-squared with one degree of freedom."""


@dataclass(frozen=True)
class Law:
    """A fitted law."""

    log_likelihood: float
    free: int
    """Number of fitted parameters."""
    parameters: dict[str, float]

    @property
    def aic(self) -> float:
        """Akaike's criterion: 2 * parameters - 2 * log-likelihood; less is better."""
        return 2 * self.free - 2 * self.log_likelihood


def kaplan_meier(hours: Floats, failed: Bools, shares: tuple[float, ...]) -> list[float | None]:
    """Return by when each share had failed [h]; None where so many did not.

    Source: Kaplan and Meier, Journal of the American Statistical Association 53 (1958). What the log cuts off at a time
    is at risk at it.
    """
    times, where = np.unique(hours, return_inverse=True)
    over = np.bincount(where, weights=failed, minlength=times.size)
    leaving = np.bincount(where, minlength=times.size)
    at_risk = leaving[::-1].cumsum()[::-1]
    left = np.cumprod(1 - over / at_risk)
    found: list[float | None] = []
    for share in shares:
        reached = np.flatnonzero(left <= 1 - share + 1e-12)
        found.append(float(times[reached[0]]) if reached.size else None)
    return found


def exponential(hours: Floats, failed: Bools) -> Law:
    """Return the law of one constant rate for all nodes: `rate` [1/h] = failures / hours."""
    number, total = int(failed.sum()), float(hours.sum())
    rate = number / total
    return Law(number * np.log(rate) - number, 1, {"rate": rate})


def weibull(hours: Floats, failed: Bools) -> Law:
    """Return the law whose rate falls (shape below 1) or rises (above 1) since a node came back, alike for all nodes.

    `shape`, `shape_low` and `shape_high` (95 % by the profile likelihood) and `scale` [h].
    """
    from scipy.optimize import brentq, minimize_scalar

    number = int(failed.sum())
    unit = float(hours.max())
    logs = np.log(hours / unit)
    own = float(logs[failed].sum())

    def profile(log_shape: float) -> float:
        shape = np.exp(log_shape)
        power = float(np.exp(shape * logs).sum()) / number
        return float(number * (log_shape - np.log(power) - 1) + (shape - 1) * own)

    best = minimize_scalar(lambda u: -profile(u), bounds=(-5, 5), method="bounded", options={"xatol": 1e-9})
    top, at = -float(best.fun), float(best.x)
    ends = []
    for far in (-7.0, 7.0):
        outside = top - profile(far) > _CHI2 / 2
        ends.append(brentq(lambda u: top - profile(u) - _CHI2 / 2, at, far) if outside else far)
    shape = np.exp(at)
    scale = unit * (np.exp(shape * logs).sum() / number) ** (1 / shape)
    return Law(
        top - number * np.log(unit),
        2,
        {
            "shape": float(shape),
            "shape_low": float(np.exp(ends[0])),
            "shape_high": float(np.exp(ends[1])),
            "scale": float(scale),
        },
    )


def gamma_rates(number: Ints, hours: Floats) -> Law:
    """Return the law of nodes of constant rates that are gamma distributed: `shape`, and `rate` [1/h], their mean.

    A node's number of failures is then negative binomial (Greenwood and Yule, 1920). Of alike nodes the shape has no
    limit; it is `ALIKE` or more then.

    Parameters
    ----------
    number : array of int, shape (nodes,)
        Failures of each node.
    hours : array of float, shape (nodes,)
        Time in which it worked [h].
    """
    from scipy.optimize import minimize, minimize_scalar
    from scipy.special import digamma, gammaln

    worked = hours > 0
    k, t = number[worked].astype(np.float64), hours[worked]
    mean = k.sum() / t.sum()

    def loss(at: Floats) -> float:
        log_shape, log_rate = float(at[0]), float(at[1])
        shape = np.exp(log_shape)
        each = gammaln(shape + k) - gammaln(shape) + k * (log_rate - log_shape)
        return -float((each - (shape + k) * np.log1p(np.exp(log_rate) * t / shape)).sum())

    middle, most = float(np.log(mean)), float(np.log(2 * ALIKE))

    def slope(at: Floats) -> Floats:
        shape = np.exp(at[0])
        ratio = np.exp(at[1]) * t / shape
        lost = (shape + k) * ratio / (1 + ratio)
        by_shape = shape * (digamma(shape + k) - digamma(shape) - np.log1p(ratio)) - k + lost
        return -np.array([by_shape.sum(), (k - lost).sum()])

    first = minimize_scalar(lambda u: loss(np.array([u, middle])), bounds=(-5, most), method="bounded")
    found = minimize(
        loss,
        np.array([float(first.x), middle]),
        method="L-BFGS-B",
        jac=slope,
        options={"ftol": 1e-15, "gtol": 1e-9},
        bounds=[(-7.0, most), (middle - 5, middle + 5)],
    )
    shape, rate = np.exp(found.x)
    return Law(-float(found.fun), 2, {"shape": float(shape), "rate": float(rate)})


def two_kinds(number: Ints, hours: Floats) -> Law:
    """Return the law of good and bad nodes, each with a constant rate: `bad_share`, `bad_rate`, `good_rate` [1/h].

    By expectation and maximization (Dempster, Laird and Rubin, 1977) from several starts, the likeliest end.

    Parameters
    ----------
    number : array of int, shape (nodes,)
        Failures of each node.
    hours : array of float, shape (nodes,)
        Time in which it worked [h].
    """
    worked = hours > 0
    k, t = number[worked].astype(np.float64), hours[worked]
    mean = float(k.sum() / t.sum())
    ends = [_climb(k, t, share, times * mean, mean) for share, times in ((0.05, 8.0), (0.2, 4.0), (0.5, 2.0))]
    return max(ends, key=lambda law: law.log_likelihood)


def _climb(k: Floats, t: Floats, share: float, bad: float, mean: float) -> Law:
    # A class without failures has the rate 0, whose logarithm the sums cannot hold.
    least = 1e-9 * mean
    good = max((mean - share * bad) / (1 - share), 0.1 * mean)
    before = -np.inf
    for _ in range(2000):
        logs = np.stack([np.log(s) + k * np.log(r) - r * t for s, r in ((share, bad), (1 - share, good))])
        each = np.logaddexp(logs[0], logs[1])
        now = float(each.sum())
        if now - before < 1e-9 * max(1.0, abs(now)):
            break
        before = now
        is_bad = np.exp(logs[0] - each)
        share = float(np.clip(is_bad.mean(), 1e-9, 1 - 1e-9))
        bad = max(float((is_bad * k).sum() / max((is_bad * t).sum(), 1e-300)), least)
        good = max(float(((1 - is_bad) * k).sum() / max(((1 - is_bad) * t).sum(), 1e-300)), least)
    if bad < good:
        share, bad, good = 1 - share, good, bad
    return Law(now, 3, {"bad_share": share, "bad_rate": bad, "good_rate": good})
