"""Samples from known families, rounded and censored like logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from tracekit.fit.families import FAMILIES
from tracekit.fit.sample import Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KNOWN", "censored", "draw"]

KNOWN: dict[str, dict[str, float]] = {
    "expon": {"scale": 4000.0},
    "lognorm": {"s": 1.8, "scale": 1500.0},
    "weibull_min": {"c": 0.6, "scale": 3000.0},
    "gamma": {"a": 0.5, "scale": 9000.0},
    "fisk": {"c": 1.2, "scale": 2000.0},
    "lomax": {"c": 1.5, "scale": 3000.0},
    "burr12": {"c": 1.6, "d": 0.5, "scale": 900.0},
    "hyperexpon_2": {"weight_1": 0.4, "scale_1": 60.0, "weight_2": 0.6, "scale_2": 9000.0},
    "hyperexpon_3": {
        "weight_1": 0.35,
        "scale_1": 20.0,
        "weight_2": 0.35,
        "scale_2": 1000.0,
        "weight_3": 0.3,
        "scale_3": 50000.0,
    },
    "lognorm_mix_2": {
        "weight_1": 0.4,
        "s_1": 0.8,
        "scale_1": 60.0,
        "weight_2": 0.6,
        "s_2": 1.2,
        "scale_2": 9000.0,
    },
    "lognorm_mix_3": {
        "weight_1": 0.35,
        "s_1": 0.6,
        "scale_1": 20.0,
        "weight_2": 0.35,
        "s_2": 0.7,
        "scale_2": 900.0,
        "weight_3": 0.3,
        "s_3": 0.8,
        "scale_3": 40000.0,
    },
}
"""Realistic parameters of every family [s]."""


def draw(name: str, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return durations sampled from a family by scipy's own generators."""
    family, named = FAMILIES[name], KNOWN[name]
    if family.parts == 1:
        found: NDArray[np.float64] = getattr(stats, family.scipy)(**named).rvs(size, random_state=rng)
        return found
    parts = [
        getattr(stats, family.scipy)(**{n: named[f"{n}_{k}"] for n in family.own}).rvs(size, random_state=rng)
        for k in range(1, family.parts + 1)
    ]
    weights = [named[f"weight_{k}"] for k in range(1, family.parts + 1)]
    return np.asarray(np.choose(rng.choice(family.parts, size, p=weights), parts), float)


def censored(durations: NDArray[np.float64], share: float, rng: np.random.Generator) -> Sample:
    """Return durations rounded to seconds, with a share of about `share` censored at lognormal observation ends."""
    if share == 0:
        return Sample.make(np.round(durations), resolution_s=1.0)
    noise = rng.standard_normal(durations.size) * 1.5
    # Find the centre that censors the wanted share, by bisection on the logarithm.
    low, high = -5.0, 25.0
    for _ in range(60):
        centre = (low + high) / 2
        cut = (np.exp(centre + noise) < durations).mean()
        low, high = (centre, high) if cut > share else (low, centre)
    ends = np.exp(centre + noise)
    seen = durations <= ends
    return Sample.make(np.round(durations[seen]), ends[~seen], resolution_s=1.0)
