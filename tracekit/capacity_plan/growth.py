"""The growth of a log's load: the GPU-hours requested per week, and when they will fill the cluster."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.jobs import gpus_of
from tracekit.text import percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs

    Floats = NDArray[np.float64]

_FEWEST_WEEKS = 6
"""Minimum number of whole weeks for a growth fit. Our choice."""
_WEEK_MS = 7 * 86_400_000
_HORIZON = 520
"""Longest time until the cluster fills that is reported [weeks]."""


@dataclass(frozen=True)
class LoadGrowth:
    """Growth of the requested GPU-hours, significant at the 5 % level."""

    weeks: int
    """Number of whole weeks in the log."""
    per_week_share: float
    """Growth from one week to the next [1], with its 95 % interval."""
    per_week_low: float
    per_week_high: float
    offered_share: float
    """Fitted load of the last week / weekly capacity of the cluster's GPUs [1]."""
    fills_after_weeks: float | None
    """Weeks from the last whole week until the fitted load reaches the cluster's capacity: 0 if it already has, None if
    it takes more than ten years.
    """
    fills_low_weeks: float | None
    fills_high_weeks: float | None
    """95 % interval of `fills_after_weeks`: when the confidence band of the fitted line reaches the capacity. None if
    it takes more than ten years.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the content for plan.json."""
        return asdict(self)

    @property
    def sentence(self) -> str:
        """The growth in words."""
        growth = (
            f"the GPU-hours that the jobs of this log request grow by {percent(self.per_week_share)} a week "
            f"({percent(self.per_week_low)} to {percent(self.per_week_high)}, over {self.weeks} weeks)"
        )
        if self.fills_after_weeks is None:
            return f"{growth}; they do not fill the cluster within ten years"
        if self.fills_after_weeks == 0:
            return f"{growth}, and have reached the cluster's capacity"
        high = "more than ten years" if self.fills_high_weeks is None else f"{self.fills_high_weeks:,.0f}"
        return (
            f"{growth}, and fill the cluster {self.fills_after_weeks:,.0f} weeks after the log "
            f"({self.fills_low_weeks or 0:,.0f} to {high})"
        )


def weekly_gpu_hours(jobs: Jobs) -> Floats:
    """Return the GPU-hours requested by the jobs submitted in each whole week (W,), counted from the first job.

    GPU-hours are run time times requested GPUs. They count in the week of submission.
    """
    weeks = int(jobs.submit_ms.max(initial=0)) // _WEEK_MS
    week = jobs.submit_ms // _WEEK_MS
    whole = week < weeks
    hours = (gpus_of(jobs) * jobs.work_ms.astype(np.float64))[whole] / 3.6e9
    return np.bincount(week[whole], weights=hours, minlength=weeks).astype(np.float64)


def load_growth(hours: Floats, gpus: float) -> LoadGrowth | None:
    """Return the growth of weekly GPU-hours, or None if it is not significant or cannot be estimated.

    A line is fitted to the logarithm of the hours by least squares. Consecutive weeks are correlated, so the effective
    number of independent weeks is n (1 - r) / (1 + r), where r is the lag-1 correlation of the residuals, or 0 if it is
    negative (Santer et al., Journal of Geophysical Research 105, 2000). Intervals use Student's t.

    Parameters
    ----------
    hours : array of float, shape (W,)
        GPU-hours of each week. At least six weeks are needed, each with jobs.
    gpus : int
        GPUs of the cluster.
    """
    n = len(hours)
    if n < _FEWEST_WEEKS or (hours <= 0).any():
        return None
    week = np.arange(n) - (n - 1) / 2
    log = np.log(hours)
    slope = float((week * log).sum() / (week**2).sum())
    middle = float(log.mean())
    rest = log - middle - slope * week
    independent = n * _shrink(rest)
    freedom = independent - 2
    if freedom < 1:
        return None
    from scipy.special import stdtrit

    t = float(stdtrit(freedom, 0.975))
    spread = float(np.sqrt((rest**2).sum() / freedom))
    error = spread / float(np.sqrt((week**2).sum()))
    low, high = slope - t * error, slope + t * error
    if low <= 0:
        return None
    full = np.log(gpus * 7 * 24)
    ahead = np.arange(0, _HORIZON + 0.25, 0.25)
    at = week[-1] + ahead
    line = middle + slope * at
    # The uncertainty of the weekly mean depends on the effective number of weeks.
    band = t * np.sqrt(spread**2 / independent + (error * at) ** 2)
    fills, soonest, latest = (_reached(ahead, values, full) for values in (line, line + band, line - band))
    share, least, most = (float(np.expm1(v)) for v in (slope, low, high))
    return LoadGrowth(n, share, least, most, float(np.exp(line[0] - full)), fills, soonest, latest)


def _shrink(rest: Floats) -> float:
    """Return the share of weeks that count as independent [0..1]."""
    total = float((rest**2).sum())
    r = float((rest[1:] * rest[:-1]).sum()) / total if total > 0 else 0.0
    r = min(max(r, 0.0), 0.99)
    return (1 - r) / (1 + r)


def _reached(ahead: Floats, values: Floats, level: float) -> float | None:
    """Return the first time from which values are at or above a level."""
    below = np.flatnonzero(values < level)
    if not len(below):
        return 0.0
    return None if below[-1] == len(ahead) - 1 else float(ahead[below[-1] + 1])
