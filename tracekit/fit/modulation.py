"""Fit arrivals that are not Poisson even at a known rate: gamma renewal and a two-state modulated Poisson process.

Both are in operational time, in which the fitted rate is 1 everywhere: a gap is the expected number of arrivals
between two arrivals. A gamma renewal process draws gaps from gamma(a, scale); a < 1 is bursty. Arrivals of one tick
of the log's clock are one batch, so that no gap is shorter than half a tick: the gamma distribution is that of the
gaps above it. A two-state Markov-modulated Poisson process changes between a quiet and a busy rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from tracekit.fit.descent import minimize

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats


__all__ = ["Modulated", "fit_gamma", "fit_modulated", "gamma_log_likelihood", "modulated_log_likelihood"]


@dataclass(frozen=True)
class Modulated:
    """A two-state Markov-modulated Poisson process with mean rate 1."""

    quiet_rate: float
    busy_rate: float
    to_busy: float
    """Changes from quiet to busy per unit of quiet operational time."""
    to_quiet: float

    @property
    def busy_share(self) -> float:
        """Share of operational time in the busy state."""
        return self.to_busy / (self.to_busy + self.to_quiet)


def gamma_log_likelihood(gaps: Floats, a: float, scale: float, least: float) -> float:
    """Return the log-likelihood of gaps under the part of gamma(a, scale) above `least`."""
    one = special.gammaln(a) + a * np.log(scale) + np.log(max(float(special.gammaincc(a, least / scale)), 1e-300))
    return float((a - 1) * np.log(gaps).sum() - gaps.sum() / scale - gaps.size * one)


def fit_gamma(gaps: Floats, least: float) -> tuple[float, float, float]:
    """Return shape and scale of the most likely gamma renewal process, and the log-likelihood.

    Parameters
    ----------
    gaps : array
        In operational time, all above `least`.
    least : float
        Half a tick of the log's clock, in operational time.
    """

    def fall(theta: Floats) -> float:
        return -gamma_log_likelihood(gaps, float(np.exp(theta[0])), float(np.exp(theta[1])), least) / gaps.size

    begin = np.array([0.0, float(np.log(gaps.mean()))])
    bounds = [(-5.0, 5.0), (-6.0, 8.0)]
    depth, point = minimize(fall, begin, bounds)
    a, scale = np.exp(point)
    return float(a), float(scale), -depth * gaps.size


def modulated_log_likelihood(gaps: Floats, process: Modulated) -> float:
    """Return the exact log-likelihood of gaps between arrivals of a stationary process.

    A gap x multiplies the vector of states by exp((Q - R) x) R, with Q the changes and R the rates; the products are
    taken in pairs, so that n gaps take log2(n) steps.
    """
    a, b, quiet, busy = process.to_busy, process.to_quiet, process.quiet_rate, process.busy_rate
    first, last = -(a + quiet), -(b + busy)
    middle, half = (first + last) / 2, (first - last) / 2
    root = np.sqrt(half * half + a * b)
    up, down = np.exp((middle + root) * gaps), np.exp((middle - root) * gaps)
    mean, slope = (up + down) / 2, (up - down) / (2 * root)
    steps = np.empty((gaps.size, 2, 2))
    steps[:, 0, 0] = (mean + slope * half) * quiet
    steps[:, 0, 1] = slope * a * busy
    steps[:, 1, 0] = slope * b * quiet
    steps[:, 1, 1] = (mean - slope * half) * busy
    total = 0.0
    while len(steps) > 1:
        odd = steps[-1:] if len(steps) % 2 else steps[:0]
        steps = np.concatenate([steps[0 : len(steps) - 1 : 2] @ steps[1::2], odd])
        size = steps.max(axis=(1, 2), keepdims=True)
        if not (size > 0).all():
            return -np.inf
        total += float(np.log(size).sum())
        steps = steps / size
    # The state at an arrival is weighted by the arrivals in that state.
    states = np.array([b * quiet, a * busy])
    found = float((states / states.sum()) @ steps[0].sum(axis=1))
    return total + float(np.log(found)) if found > 0 else -np.inf


def fit_modulated(gaps: Floats) -> tuple[Modulated, float] | None:
    """Return the most likely two-state process of mean rate 1 and its log-likelihood; None where none is found."""

    def process(theta: Floats) -> Modulated:
        share, ratio, speed = special.expit(theta[0]), 1 + np.exp(theta[1]), np.exp(theta[2])
        quiet = 1 / (1 - share + share * ratio)
        return Modulated(float(quiet), float(quiet * ratio), float(speed * share), float(speed * (1 - share)))

    def fall(theta: Floats) -> float:
        found = modulated_log_likelihood(gaps, process(theta))
        return -found if np.isfinite(found) else 1e12

    best = None
    bounds = [(-7.0, 7.0), (-4.0, 8.0), (-9.0, 5.0)]
    # A first step may end in a corner where both states are alike; short stays need a starting point of their own.
    for start in ((-1.0, 1.5, -4.0), (-2.0, 2.5, -1.0), (0.0, 1.0, -6.5), (0.0, 1.0, -2.0)):
        found = minimize(fall, np.array(start), bounds, maxiter=40)
        if best is None or found[0] < best[0]:
            best = found
    if best is None or not np.isfinite(best[0]) or best[0] >= 1e12:
        return None
    return process(best[1]), -best[0]
