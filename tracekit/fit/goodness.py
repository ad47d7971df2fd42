"""Goodness of fit: Kolmogorov-Smirnov, Anderson-Darling, and a parametric bootstrap.

The residual u of every job is uniform on (0, 1) when the family is right: F(x) for an exact value, a random
number in (F(a), F(b)) for an interval, in (F(x), 1) for a right-censored value (randomized quantile residuals, Dunn and
Smyth 1996). Both statistics compare the residuals with the uniform distribution. Since the parameters were fitted to
the same data, no table gives a p-value; the bootstrap draws samples from the fitted family, censors and rounds them
alike, fits them again, and counts how often they fit worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from tracekit.fit.likelihood import Likelihood, climb
from tracekit.fit.sample import Sample

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats
    from tracekit.fit.families import Family
    from tracekit.fit.likelihood import Fitted


__all__ = ["GOODNESS_JOBS", "Bootstrap", "anderson_darling", "bootstrap", "censoring_times", "kolmogorov", "residuals"]

GOODNESS_JOBS = 10_000
"""Most jobs that the statistics use; of a larger sample a random part."""


def residuals(family: Family, p: Floats, sample: Sample, rng: np.random.Generator) -> Floats:
    """Return one residual a job, rising."""
    exact = np.repeat(family.cdf(sample.exact, p), sample.exact_n.astype(np.int64))
    beyond = np.repeat(family.cdf(sample.right, p), sample.right_n.astype(np.int64))
    times = sample.interval_n.astype(np.int64)
    low = np.repeat(family.cdf(sample.low, p), times)
    high = np.repeat(family.cdf(sample.high, p), times)
    beyond = beyond + (1 - beyond) * rng.random(beyond.size)
    inside = low + (high - low) * rng.random(low.size)
    return np.sort(np.concatenate([exact, beyond, inside]))


def kolmogorov(u: Floats) -> float:
    """Return the largest gap between the share of residuals up to u and u itself."""
    ranks = np.arange(u.size + 1) / u.size
    return float(max((ranks[1:] - u).max(), (u - ranks[:-1]).max()))


def anderson_darling(u: Floats) -> float:
    """Return the Anderson-Darling statistic of rising residuals."""
    u = np.clip(u, 1e-12, 1 - 1e-12)
    odd = 2 * np.arange(1, u.size + 1) - 1
    return float(-u.size - (odd @ (np.log(u) + np.log1p(-u[::-1]))) / u.size)


@dataclass(frozen=True)
class Bootstrap:
    """Parametric bootstrap of both statistics on a part of the sample."""

    jobs: int
    """Size of the part."""
    replicates: int
    p_ks: float
    """Share of drawn samples that fit no better, by Kolmogorov-Smirnov; the observed one counts as drawn."""
    p_ad: float


def censoring_times(sample: Sample, size: int, rng: np.random.Generator) -> Floats:
    """Return `size` durations [s] after which observation ended, infinite where it did not.

    Drawn from the Kaplan-Meier estimate of the censoring, in which an observed end is what cuts it short.
    """
    if not sample.right.size:
        return np.full(size, np.inf)
    values = np.concatenate([sample.middles, sample.right])
    cut = np.concatenate([np.zeros(sample.middles.size), sample.right_n])
    counts = np.concatenate([sample.middles_n, sample.right_n])
    order = np.argsort(values, kind="stable")
    values, cut, counts = values[order], cut[order], counts[order]
    at_risk = counts[::-1].cumsum()[::-1]
    left = np.cumprod(1 - cut / at_risk)
    place = np.searchsorted(-left, -rng.random(size), side="right")
    return np.append(values, np.inf)[place]


def bootstrap(fitted: Fitted, sample: Sample, rng: np.random.Generator, *, jobs: int, replicates: int) -> Bootstrap:
    """Return how unusual the misfit of at most `jobs` of the sample's jobs would be if the family were right.

    The family is fitted to the part, and to every drawn sample, by Newton steps from the parameters of the whole
    sample, until a step would gain less than 0.05 of log-likelihood.
    """
    family, theta = fitted.family, fitted.family.to_free(fitted.p)
    part = sample.draw(jobs, rng)
    size = part.n
    information = Likelihood(family, part).information(theta)

    def misfit(drawn: Sample) -> tuple[float, float]:
        refitted = climb(Likelihood(family, drawn), theta, information, steps=4, gain=0.05)
        u = residuals(family, family.from_free(refitted), drawn, rng)
        return kolmogorov(u), anderson_darling(u)

    ks, ad = misfit(part)
    worse_ks = worse_ad = 0
    for _ in range(replicates):
        durations = _draw(fitted, size, rng)
        ends = censoring_times(part, size, rng)
        seen = durations <= ends
        step = sample.resolution_s
        rounded = np.round(durations[seen] / step) * step
        found_ks, found_ad = misfit(Sample.make(rounded, ends[~seen], resolution_s=step))
        worse_ks += found_ks >= ks
        worse_ad += found_ad >= ad
    return Bootstrap(size, replicates, (1 + worse_ks) / (1 + replicates), (1 + worse_ad) / (1 + replicates))


def _draw(fitted: Fitted, size: int, rng: np.random.Generator) -> Floats:
    """Return durations of a family, exactly."""
    family = fitted.family
    each = fitted.p.reshape(family.parts, -1)
    if family.parts == 1:
        return _draw_part(family.scipy, np.broadcast_to(each[0], (size, each.shape[1])), size, rng)
    member = np.searchsorted(np.cumsum(each[:, 0])[:-1], rng.random(size))
    return _draw_part(family.scipy, each[member, 1:], size, rng)


def _draw_part(name: str, p: Floats, size: int, rng: np.random.Generator) -> Floats:
    scale = p[:, -1]
    if name == "lognorm":
        return np.exp(p[:, 0] * rng.standard_normal(size)) * scale
    if name == "gamma":
        return rng.gamma(p[:, 0], scale)
    tail = np.maximum(rng.random(size), 1e-300)
    loss = -np.log(tail)
    if name == "expon":
        return loss * scale
    if name == "weibull_min":
        return loss ** (1 / p[:, 0]) * scale
    if name == "lomax":
        return np.expm1(np.minimum(loss / p[:, 0], 600)) * scale
    odds = special.expm1(np.minimum(loss / (p[:, 1] if name == "burr12" else 1.0), 600))
    found: Floats = np.exp(np.minimum(np.log(np.maximum(odds, 1e-300)) / p[:, 0], 600)) * scale
    return found
