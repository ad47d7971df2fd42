"""Use the twin to estimate how a change would affect the recorded waits.

The twin is replayed with and without the change. The ratio of the two means is applied to the recorded mean. The
interval of the effect combines two uncertainties: which days the log happens to cover (whole submission days are
resampled), and how far the twin is from the log on jobs held out from the calibration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tracekit.calibration.workbench import UNNAMED, JobTimes
from tracekit.replay.results.comparison import FEWEST_DAYS, submission_days
from tracekit.text import alike_durations, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.calibration.api import ClusterCalibration

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

Headline = Literal["queue", "jct"]

HEADLINES: dict[Headline, str] = {"queue": "mean wait", "jct": "mean completion time"}
"""The means for which an effect can be estimated."""

_RESAMPLES = 1000
_LEAST_S = 1.0
"""A mean below one second counts as one second in ratios."""
_LEAST_CHANGE = 0.001
"""A change of less than this share of the recorded mean counts as no change."""


@dataclass(frozen=True)
class TwinEffect:
    """A recorded mean, and its expected value with a change."""

    cluster: str
    """The cluster, or all the clusters over which the effect is summed."""
    change: str
    headline: Headline
    """The kind of mean: wait (first start minus submission) or completion time (end minus submission)."""
    jobs: int
    recorded_s: float
    """Recorded mean [s]."""
    changed_s: float
    """Mean with the change [s]."""
    low_s: float
    high_s: float
    """95 % interval of `changed_s`: `low_s` to `high_s` [s]."""
    resampled_s: Floats = field(repr=False, compare=False)
    """`changed_s` in each resample, used to sum effects over clusters (R,)."""

    @property
    def verdict(self) -> str:
        """'shorter', 'longer', 'none', or 'undecided' if the interval contains the recorded mean."""
        if abs(self.changed_s - self.recorded_s) < _LEAST_CHANGE * self.recorded_s:
            return "none"
        if self.high_s < self.recorded_s:
            return "shorter"
        return "longer" if self.low_s > self.recorded_s else "undecided"

    @property
    def share(self) -> float | None:
        """The change as a share of the recorded mean [1], negative if shorter, or None if the recorded mean is 0."""
        return self.changed_s / self.recorded_s - 1 if self.recorded_s else None

    @property
    def saved_h(self) -> float:
        """Total hours saved over all jobs, negative if hours are added."""
        return (self.recorded_s - self.changed_s) * self.jobs / 3600

    @property
    def words(self) -> str:
        """The change in one line, such as 'mean wait 9.1 h -> 6.2 h (5.0 h to 7.4 h), over the 731 jobs of Venus'."""
        values = (self.recorded_s, self.changed_s, self.low_s, self.high_s)
        before, after, low, high = alike_durations(values)
        jobs = f"{self.jobs:,} jobs"
        of = jobs if self.cluster == UNNAMED else f"the {jobs} of {shorten(self.cluster, 80)}"
        return f"{HEADLINES[self.headline]} {before} -> {after} ({low} to {high}), over {of}"


class TwinJobs(NamedTuple):
    """The jobs of one cluster from which an effect is computed (n,)."""

    days: NDArray[np.int64]
    """Day of submission, counted from the first."""
    unseen: Bools
    """Mask of the jobs held out from the calibration."""
    recorded: JobTimes
    twin: JobTimes


def jobs_of(found: ClusterCalibration) -> TwinJobs:
    """Return the jobs of a twin."""
    return TwinJobs(submission_days(found.bench.jobs), found.unseen, found.bench.recorded, found.times)


def effect_of_times(
    cluster: str, change: str, headline: Headline, jobs: TwinJobs, changed: JobTimes, months: Floats | None = None
) -> TwinEffect | str:
    """Return the effect of a change whose times are known, or the reason why there is no effect to report.

    Means are over jobs that start (or end) in the log, in the twin and with the change.

    Parameters
    ----------
    months : array of float, optional
        Log ratios of the two means in months whose days are drawn from the log. Their deviations from the median then
        replace the resampled days. They are larger if one queue changes how the next one builds up (R,).
    """
    recorded, twin, new = (getattr(times, f"{headline}_s") for times in (jobs.recorded, jobs.twin, changed))
    both = ~np.isnan(recorded) & ~np.isnan(twin) & ~np.isnan(new)
    if not both.any():
        return f"no job {'starts' if headline == 'queue' else 'ends'} both in the twin and with the change"
    sums = _sums(jobs.days[both], twin[both], new[both], recorded[both])
    mean = float(recorded[both].mean())
    ratio = _ratio(sums[:, 2].sum(), sums[:, 1].sum(), sums[:, 0].sum())
    unseen = jobs.unseen & ~np.isnan(recorded) & ~np.isnan(twin)
    own = _sums(jobs.days[unseen], twin[unseen], twin[unseen], recorded[unseen])
    point = float(np.log(ratio))
    ratios = None if months is None else point + months - np.median(months)
    resampled = mean * np.exp(_log_ratios(point, sums, own, ratios))
    return _effect(cluster, change, headline, int(both.sum()), mean, mean * ratio, resampled)


def total_effect(effects: Sequence[TwinEffect]) -> TwinEffect:
    """Combine the effects of one change in several clusters into one effect over all their jobs.

    Clusters are resampled independently, because the error in one cluster says nothing about the others.
    """
    if len(effects) == 1:
        return effects[0]
    jobs = np.array([one.jobs for one in effects], np.float64)
    weights = jobs / jobs.sum()
    recorded, changed = (
        float(weights @ np.array([getattr(one, name) for one in effects])) for name in ("recorded_s", "changed_s")
    )
    random = np.random.default_rng(0)
    resampled = weights @ np.stack([random.permutation(one.resampled_s) for one in effects])
    names = [one.cluster for one in effects]
    where = f"{', '.join(names[:-1])} and {names[-1]}"
    return _effect(where, effects[0].change, effects[0].headline, int(jobs.sum()), recorded, changed, resampled)


def _effect(
    cluster: str, change: str, headline: Headline, jobs: int, recorded: float, changed: float, resampled: Floats
) -> TwinEffect:
    low, high = (float(end) for end in np.quantile(resampled, [0.025, 0.975]))
    return TwinEffect(
        cluster, change, headline, jobs, recorded, changed, min(low, changed), max(high, changed), resampled
    )


def _sums(days: NDArray[np.int64], twin: Floats, changed: Floats, recorded: Floats) -> Floats:
    """Return the number of jobs and the sums of the three times for each day (D, 4)."""
    _, place = np.unique(days, return_inverse=True)
    return np.stack([np.bincount(place), *(np.bincount(place, weights=w) for w in (twin, changed, recorded))], axis=1)


def _ratio(above: float, below: float, jobs: float) -> float:
    """Return the ratio of two means, counting a mean below one second as one second."""
    return float(max(above / jobs, _LEAST_S) / max(below / jobs, _LEAST_S))


def _log_ratios(point: float, sums: Floats, own: Floats, months: Floats | None) -> Floats:
    """Return the log ratio in each resample, plus the twin's own error with a random sign (R,)."""
    random = np.random.default_rng(0)
    if months is not None:
        ratios = random.choice(months, _RESAMPLES)
    else:
        ratios = _resampled(random, sums, 2, 1) if len(sums) >= FEWEST_DAYS else np.full(_RESAMPLES, point)
    errors = _resampled(random, own, 1, 3) if len(own) >= FEWEST_DAYS else np.zeros(_RESAMPLES)
    return ratios + random.choice([-1.0, 1.0], _RESAMPLES) * errors


def _resampled(random: np.random.Generator, sums: Floats, above: int, below: int) -> Floats:
    """Return the log ratio of two means in each resample of whole days (R,)."""
    blocks = len(sums)
    drawn = random.multinomial(blocks, np.full(blocks, 1 / blocks), _RESAMPLES) @ sums
    jobs = np.maximum(drawn[:, 0], 1.0)
    top, bottom = (np.maximum(drawn[:, k] / jobs, _LEAST_S) for k in (above, below))
    return np.log(top / bottom)
