"""Starting values of a fit: from moments of the logarithms, and by EM for mixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats
    from tracekit.fit.families import Family
    from tracekit.fit.sample import Sample


__all__ = ["em", "starts"]

_EM_VALUES = 300
"""Grouped values that EM uses."""
_EM_ROUNDS = 25


def starts(family: Family, sample: Sample) -> list[Floats]:
    """Return starting points (parameter vectors), likely ones first."""
    if family.parts > 1:
        few = sample.coarse(_EM_VALUES)
        return [em(family, few, cut) for cut in _cuts(family.parts)]
    return _by_moments(family.name, *_moments(sample))


def _moments(sample: Sample) -> tuple[float, float, float, float]:
    """Return mean and standard deviation of the logarithms, the mean, and total time over the number of known ends."""
    values = np.maximum(np.concatenate([sample.middles, sample.right]), 1e-6)
    counts = np.concatenate([sample.middles_n, sample.right_n])
    logs = np.log(values)
    total = counts.sum()
    mean = float(counts @ logs / total)
    spread = max(float(np.sqrt(counts @ (logs - mean) ** 2 / total)), 1e-3)
    return mean, spread, float(counts @ values / total), float(counts @ values / max(sample.middles_n.sum(), 1.0))


def _by_moments(name: str, mean: float, spread: float, average: float, shared: float) -> list[Floats]:
    middle = float(np.exp(mean))
    logistic = np.pi / (np.sqrt(3) * spread)
    extreme = 1.28 / spread
    turned = float(np.exp(mean + 0.5772 / extreme))
    gap = max(float(np.log(average)) - mean, 1e-4)
    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    found: dict[str, list[tuple[float, ...]]] = {
        "expon": [(shared,)],
        "lognorm": [(spread, middle)],
        "weibull_min": [(extreme, turned)],
        "gamma": [(shape, max(shared / shape, 1e-6))],
        "fisk": [(logistic, middle)],
        "lomax": [(1.0, middle), (4.0, 4 * shared)],
        "burr12": [
            (logistic, 1.0, middle),
            (extreme, 5.0, turned * 5 ** (1 / extreme)),
            (logistic * 1.5, 0.4, middle * 0.6),
        ],
    }
    return [np.array(one, float) for one in found[name]]


def _cuts(parts: int) -> list[tuple[float, ...]]:
    """Return shares of the jobs at which EM first cuts them into parts."""
    if parts == 2:
        return [(0.5,), (0.15,), (0.85,)]
    return [(1 / 3, 2 / 3), (0.1, 0.5), (0.5, 0.9)]


def em(family: Family, sample: Sample, cut: tuple[float, ...]) -> Floats:
    """Return the parameters of a mixture after some rounds of expectation and maximization.

    A right-censored value counts with the mean, and mean square, of the part beyond it; an interval with its middle.
    """
    seen, seen_n = np.maximum(sample.middles, 1e-6), sample.middles_n
    order = np.argsort(seen, kind="stable")
    seen, seen_n = seen[order], seen_n[order]
    rank = (np.cumsum(seen_n) - seen_n / 2) / seen_n.sum()
    member = np.searchsorted(np.asarray(cut), rank)
    lognormal = family.scipy == "lognorm"
    rows = []
    for k in range(family.parts):
        weight = seen_n * (member == k)
        share = max(weight.sum(), 1e-9)
        if lognormal:
            logs = np.log(seen)
            mean = float(weight @ logs / share)
            rows.append([share, max(float(np.sqrt(weight @ (logs - mean) ** 2 / share)), 0.05), np.exp(mean)])
        else:
            rows.append([share, max(float(weight @ seen / share), 1e-6)])
    p = np.array(rows)
    p[:, 0] /= p[:, 0].sum()
    step = _lognormal_round if lognormal else _exponential_round
    for _ in range(_EM_ROUNDS):
        p = step(p, seen, seen_n, sample)
        p[:, 0] = np.maximum(p[:, 0], 1e-4)
        p[:, 0] /= p[:, 0].sum()
    return p.ravel()


def _memberships(logs: Floats) -> Floats:
    """Return the share of each part in each value, from log weight plus log density."""
    if not logs.size:
        return logs
    found: Floats = np.exp(logs - logs.max(axis=0))
    found /= found.sum(axis=0)
    return found


def _exponential_round(p: Floats, seen: Floats, seen_n: Floats, sample: Sample) -> Floats:
    weight, scale = p[:, :1], p[:, 1:]
    of_seen = _memberships(np.log(weight) - np.log(scale) - seen / scale) * seen_n
    of_right = _memberships(np.log(weight) - sample.right / scale) * sample.right_n
    jobs = of_seen.sum(axis=1) + of_right.sum(axis=1)
    beyond = (of_right * (sample.right + scale)).sum(axis=1)
    mean = (of_seen @ seen + beyond) / np.maximum(jobs, 1e-9)
    return np.column_stack([jobs / jobs.sum(), np.maximum(mean, 1e-6)])


def _lognormal_round(p: Floats, seen: Floats, seen_n: Floats, sample: Sample) -> Floats:
    weight, s, mean = p[:, :1], p[:, 1:2], np.log(p[:, 2:])
    logs = np.log(seen)
    z = (logs - mean) / s
    of_seen = _memberships(np.log(weight) - np.log(s) - z * z / 2) * seen_n
    jobs = of_seen.sum(axis=1)
    first = of_seen @ logs
    second = of_seen @ (logs * logs)
    if sample.right.size:
        bound = (np.log(sample.right) - mean) / s
        left = special.log_ndtr(-bound)
        of_right = _memberships(np.log(weight) + left) * sample.right_n
        # Mean and mean square of a normal variable beyond `bound`.
        hazard = np.exp(np.minimum(-bound * bound / 2 - 0.9189385332 - left, 50))
        beyond = mean + s * hazard
        square = mean**2 + s**2 * (1 + bound * hazard) + 2 * mean * s * hazard
        jobs = jobs + of_right.sum(axis=1)
        first = first + (of_right * beyond).sum(axis=1)
        second = second + (of_right * square).sum(axis=1)
    jobs = np.maximum(jobs, 1e-9)
    centre = first / jobs
    spread = np.sqrt(np.maximum(second / jobs - centre**2, 0.05**2))
    return np.column_stack([jobs / jobs.sum(), spread, np.exp(centre)])
