"""What a change would do to the recorded waits, by the twin.

The effect is that of the change inside the replay, twin with the change against twin, applied to what the log recorded.
Its interval joins two doubts: which days the log happened to hold (whole submission days are resampled), and how far
the twin itself is from the log on jobs that its settings were not chosen by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.calibration.rules import Rules
from tracekit.replay.results.comparison import FEWEST_DAYS, submission_days

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.calibration.api import ClusterCalibration

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

__all__ = ["TwinEffect", "effect_of_change"]

_RESAMPLES = 1000
_LEAST_S = 1.0
"""A mean wait below a second counts as one in ratios."""


@dataclass(frozen=True)
class TwinEffect:
    """The mean wait that the log recorded, and what it would be."""

    cluster: str
    change: str
    jobs: int
    recorded_s: float
    """Mean wait by the log [s]."""
    changed_s: float
    """Mean wait with the change [s]."""
    low_s: float
    high_s: float
    """Its 95 % interval [s]."""

    @property
    def verdict(self) -> str:
        """'shorter', 'longer', or 'undecided' where the interval holds the recorded wait."""
        if self.high_s < self.recorded_s:
            return "shorter"
        return "longer" if self.low_s > self.recorded_s else "undecided"


def effect_of_change(found: ClusterCalibration, change: str | Rules) -> TwinEffect | str:
    """Return what a change would do, or why it cannot be told, a sentence without its full stop.

    Parameters
    ----------
    found : ClusterCalibration
        The twin.
    change : str or Rules
        A policy in place of the twin's, as `tracekit replay -p` takes it, or other rules.

    Raises
    ------
    UsageError
        The policy cannot run here.
    """
    score, whole = found.score, found.score.whole
    if not score.carries:
        means = f"it waits {whole['twin_mean_s']:,.0f} s in the mean, the log {whole['recorded_mean_s']:,.0f} s"
        return f"a replay does not reproduce this log ({means}; grade {score.grade}); the effect cannot be told"
    if isinstance(change, Rules):
        changed = found.bench.waits_s(found.settings._replace(rules=change))
        what = change.words
    else:
        changed = found.bench.waits_s(found.settings, change)
        what = change
    both = ~np.isnan(found.recorded_s) & ~np.isnan(found.twin_s) & ~np.isnan(changed)
    if not both.any():
        return "no job starts both in the twin and with the change"
    days = submission_days(found.bench.jobs)
    sums = _sums(days[both], found.twin_s[both], changed[both], found.recorded_s[both])
    recorded = float(found.recorded_s[both].mean())
    ratio = _ratio(sums[:, 2].sum(), sums[:, 1].sum(), sums[:, 0].sum())
    low, high = _interval(found, sums, days)
    return TwinEffect(found.name, what, int(both.sum()), recorded, recorded * ratio, recorded * low, recorded * high)


def _sums(days: NDArray[np.int64], twin: Floats, changed: Floats, recorded: Floats) -> Floats:
    """Return jobs and the sums of three waits by day (D, 4)."""
    _, place = np.unique(days, return_inverse=True)
    return np.stack([np.bincount(place), *(np.bincount(place, weights=w) for w in (twin, changed, recorded))], axis=1)


def _ratio(above: float, below: float, jobs: float) -> float:
    """Return the ratio of two mean waits of which the tiniest count as a second."""
    return max(above / jobs, _LEAST_S) / max(below / jobs, _LEAST_S)


def _interval(found: ClusterCalibration, sums: Floats, days: NDArray[np.int64]) -> tuple[float, float]:
    """Return the 95 % interval of the ratio."""
    random = np.random.default_rng(0)
    unseen = found.unseen
    own = _sums(days[unseen], found.twin_s[unseen], found.twin_s[unseen], found.recorded_s[unseen])
    point = np.log(_ratio(sums[:, 2].sum(), sums[:, 1].sum(), sums[:, 0].sum()))
    ratios = _resampled(random, sums, 2, 1) if len(sums) >= FEWEST_DAYS else np.full(_RESAMPLES, point)
    errors = _resampled(random, own, 1, 3) if len(own) >= FEWEST_DAYS else np.zeros(_RESAMPLES)
    signs = random.choice([-1.0, 1.0], _RESAMPLES)
    low, high = np.quantile(ratios + signs * errors, [0.025, 0.975])
    return float(np.exp(min(low, point))), float(np.exp(max(high, point)))


def _resampled(random: np.random.Generator, sums: Floats, above: int, below: int) -> Floats:
    """Return the logarithm of the ratio of two means in each resample of whole days (R,)."""
    blocks = len(sums)
    drawn = random.multinomial(blocks, np.full(blocks, 1 / blocks), _RESAMPLES) @ sums
    jobs = np.maximum(drawn[:, 0], 1.0)
    top, bottom = (np.maximum(drawn[:, k] / jobs, _LEAST_S) for k in (above, below))
    found: Floats = np.log(top / bottom)
    return found
