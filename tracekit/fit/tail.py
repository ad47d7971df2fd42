"""The tail of a distribution: a power law above some duration, by the method of Clauset.

Above xmin the share that lasts longer than x is (x / xmin) ** -b; b is its maximum-likelihood estimate (Hill), in which
right-censored jobs count up to where they were observed. xmin is the candidate with the smallest Kolmogorov-Smirnov
distance between the Kaplan-Meier estimate and the fitted tail. Clauset, Shalizi and Newman, SIAM Review 51 (2009).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.fit.goodness import censoring_times
from tracekit.fit.sample import Sample

__all__ = ["Tail", "fit_tail", "tail_p_value"]

_CANDIDATES = 100
_LEAST_ABOVE = 50
"""Known ends that a tail needs."""


@dataclass(frozen=True)
class Tail:
    """A power law above xmin; scipy's pareto(b, scale=xmin)."""

    xmin: float
    """Where the tail begins [s]."""
    b: float
    error: float
    """Standard error of b."""
    above: int
    """Jobs in the tail."""
    ks: float


def fit_tail(sample: Sample, *, candidates: int = _CANDIDATES) -> Tail | None:
    """Return the best power-law tail in the upper half of the sample; None where fewer than 50 ends are there."""
    values = np.concatenate([sample.middles, sample.right])
    ends = np.concatenate([sample.middles_n, np.zeros(sample.right.size)])
    counts = np.concatenate([sample.middles_n, sample.right_n])
    order = np.argsort(values, kind="stable")
    values, ends, counts = values[order], ends[order], counts[order]
    from_here = ends[::-1].cumsum()[::-1]
    jobs = counts[::-1].cumsum()[::-1]
    allowed = np.flatnonzero((from_here >= _LEAST_ABOVE) & (jobs <= 0.5 * counts.sum()) & (values > 0) & (ends > 0))
    if allowed.size == 0 or np.unique(values[allowed[0] :]).size < 10:
        return None
    if allowed.size > candidates:
        allowed = allowed[np.unique(np.linspace(0, allowed.size - 1, candidates).astype(np.int64))]
    after = np.cumprod(1 - ends / jobs)
    before = np.append(1.0, after[:-1])
    logs = np.log(np.maximum(values, 1e-300))
    weighted = (counts * logs)[::-1].cumsum()[::-1]
    best: Tail | None = None
    for i in allowed:
        spread = weighted[i] - jobs[i] * logs[i]
        if spread <= 0:
            continue
        b = from_here[i] / spread
        fitted = np.exp(-b * (logs[i:] - logs[i]))
        tail_before, tail_after = before[i:] / before[i], after[i:] / before[i]
        gap = np.maximum(np.abs(tail_before - fitted), np.abs(tail_after - fitted))
        ks = float(gap[ends[i:] > 0].max())
        if best is None or ks < best.ks:
            best = Tail(float(values[i]), float(b), float(b / np.sqrt(from_here[i])), int(jobs[i]), ks)
    return best


def tail_p_value(sample: Sample, rng: np.random.Generator, *, jobs: int, replicates: int) -> tuple[float, int] | None:
    """Return the share of drawn samples whose tail fits no better, and the jobs it was taken over.

    The body is drawn from the part's own durations below xmin, the tail from the power law; each drawn sample finds its
    own xmin, as the part did.
    """
    part = sample.draw(jobs, rng)
    tail = fit_tail(part, candidates=30)
    if tail is None:
        return None
    body = np.repeat(part.middles, part.middles_n.astype(np.int64))
    body = body[body < tail.xmin]
    share = tail.above / part.n
    worse = 0
    for _ in range(replicates):
        inside = rng.random(part.n) < share
        drawn = np.empty(part.n)
        above = int(inside.sum())
        drawn[inside] = tail.xmin * np.exp(np.minimum(rng.exponential(size=above) / tail.b, 600))
        drawn[~inside] = rng.choice(body, part.n - above)
        ends = censoring_times(part, part.n, rng)
        seen = drawn <= ends
        found = fit_tail(Sample.make(drawn[seen], ends[~seen], resolution_s=part.resolution_s), candidates=30)
        worse += found is None or found.ks >= tail.ks
    return (1 + worse) / (1 + replicates), part.n
