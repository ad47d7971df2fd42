"""Whether a difference is more than noise: its interval, its p-value, and the correction for many comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.array_types import Floats


FEWEST_DAYS = 5
"""With fewer days in a period there is no verdict: too few blocks to resample, as in the comparison of policies."""

_LOST = 0.1
"""Largest share of resamples without a value."""

_DUST = 1e-9
"""A smaller relative change is rounding error."""

RULE = (
    "The 95 % interval of the difference draws whole days again on each side, 1,000 times, and runs from the 2.5th to"
    " the 97.5th percentile of the differences; that of the relative change likewise. With few days it is somewhat too"
    " narrow, which the p-value corrects: it sets the difference against its spread over these draws by Student's t,"
    " one observation a day, once with a variance for each side (Welch) and once with one for both, and takes the"
    " larger. All rows together, those of size classes and virtual clusters too, are held to a false discovery rate of"
    " 5 % (Benjamini and Hochberg, 1995): changed says that the adjusted p-value is at most 0.05 and that the interval"
    " of the difference holds no 0, noise that the difference may be chance, too little data that a side has fewer than"
    " five days or 30 observations. Days are"
    " taken as independent: a backlog of several days, or a trend, makes p-values too small."
)


@dataclass(frozen=True)
class Estimate:
    """A measure in one period."""

    value: float
    """NaN where there is none."""
    resampled: Floats
    """Its value in each resample, NaN where it has none."""
    n: int
    """Observations."""
    days: int
    """Days that it is computed from."""
    groups: int = 1
    """Groups of days within which days were drawn."""


@dataclass(frozen=True)
class MeasureDifference:
    """The difference of a measure between two periods."""

    value: float | None
    low: float | None
    high: float | None
    relative: float | None
    """value / before; None where before is 0."""
    relative_low: float | None
    relative_high: float | None
    p: float | None
    """None where there is too little data."""


def difference(before: Estimate, after: Estimate) -> MeasureDifference:
    """Return the difference between two periods, with intervals and p-value."""
    value = _known(after.value - before.value)
    if value is not None and abs(value) <= _DUST * max(abs(before.value), abs(after.value)):
        value = 0.0
    relative = _known(value / before.value) if value is not None and before.value else None
    few = min(before.days, after.days) < FEWEST_DAYS
    if value is None or few:
        return MeasureDifference(value, None, None, relative, None, None, None)
    # A period of unusual length has fewer resamples; both periods use the same number.
    n = min(len(before.resampled), len(after.resampled))
    old, new = before.resampled[:n], after.resampled[:n]
    low, high = _ends(new - old)
    if low is None:
        return MeasureDifference(value, None, None, relative, None, None, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = np.where(old != 0, (new - old) / old, np.nan)
    ends = _ends(changes) if relative is not None else (None, None)
    return MeasureDifference(value, low, high, relative, *ends, _p(value, before, after))


def _known(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


def _ends(values: Floats) -> tuple[float | None, float | None]:
    if np.isnan(values).mean() > _LOST:
        return None, None
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def _p(value: float, before: Estimate, after: Estimate) -> float:
    """Return the two-sided p-value of a difference of 0: the larger of Welch's, and Student's with one variance."""
    if value == 0:
        return 1.0
    estimates = (before, after)
    freedoms = [e.days - e.groups for e in estimates]
    # n days drawn out of n spread by (n - 1) / n too little.
    variances = [
        float(np.nanvar(estimate.resampled)) * estimate.days / freedom
        for estimate, freedom in zip(estimates, freedoms, strict=True)
    ]
    apart = sum(variances)
    if apart == 0:
        return 0.0
    welch = apart**2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    of_a_day = sum(v * s.days * f for v, s, f in zip(variances, estimates, freedoms, strict=True)) / sum(freedoms)
    together = of_a_day * sum(1 / e.days for e in estimates)
    return max(_tails(value, apart, welch), _tails(value, together, sum(freedoms)))


def _tails(value: float, variance: float, freedom: float) -> float:
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(value) / np.sqrt(variance)))


def adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for their number by Benjamini and Hochberg; those that are None do not count."""
    known = np.array([p for p in p_values if p is not None], dtype=np.float64)
    order = np.argsort(known, kind="stable")[::-1]
    ranks = np.arange(len(known), 0, -1)
    fixed = np.empty(len(known))
    fixed[order] = np.minimum.accumulate(np.minimum(known[order] * len(known) / ranks, 1.0))
    left = iter(fixed.tolist())
    return [None if p is None else next(left) for p in p_values]
