"""Find a time at which the rules of a log changed.

Each candidate of a search is replayed on the whole log. If the rules changed, one candidate fits the jobs submitted
before the change, and another fits those submitted after it. The time that divides the log best is tested with replays
that begin at that time with the cluster as full as it was in the log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.calibration.score import job_distances
from tracekit.calibration.search import search
from tracekit.calibration.workbench import FEWEST_JOBS, SPANS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.calibration.rules import Rules
    from tracekit.calibration.search import Tried
    from tracekit.calibration.workbench import Settings, Workbench
    from tracekit.progress import Progress
    from tracekit.runs.ledger import Ledger

    Floats = NDArray[np.float64]

_DAY_MS = 86_400_000
_MINUTE_MS = 60_000
_LEAST_MS = 3 * _DAY_MS
"""Shortest part of a log before or after a change [ms]. Our choice."""
_NEAR_MS = tuple(range(-3 * _DAY_MS, 3 * _DAY_MS + 1, _DAY_MS // 2))
"""Offsets from the best division of the log at which replays begin [ms]."""

# The next four limits are our choices. Simulated sites with one set of rules stay outside of them, even if no candidate
# fits their logs.
_DIVIDED = 0.9
"""Only a division that brings the candidates at least this close to the log is tested [1]."""
_CLOSER = 0.7
"""Largest distance of both parts from the log as a share of the distance without a change [1]."""
_BROKEN = 0.1
"""Largest mean distance of the earlier rules before the change as a share of the one after it [1]."""
_MOST_DAYS = 0.6
"""Smallest share of the days after the change on which the later rules are closer to the log [1]."""


class RuleChange(NamedTuple):
    """A change of the rules."""

    at_ms: int
    """Time after the first submission [ms]."""
    before: Rules
    """The rules that fit the jobs before the change best."""


class _Division(NamedTuple):
    """The division of a log into two parts that its candidates fit best."""

    at_ms: int
    before: Tried
    """The best candidate for the first part."""
    share: float
    """Distance of the best candidates of both parts / distance of the best candidate of the whole log [1]."""
    whole: float
    """Sum of the job distances of the best candidate of the whole log."""


def rule_change(
    bench: Workbench, tried: Sequence[Tried], progress: Progress | None = None, ledger: Ledger | None = None
) -> RuleChange | None:
    """Return the time at which the rules of a log changed, or None if one set of rules fits all of it.

    Parameters
    ----------
    bench : Workbench
    tried : sequence of Tried
        The candidates of a search on the first part of the log.
    progress : Progress, optional
        Reports every candidate.
    ledger : Ledger, optional
        Ledger in which shards share the candidates.
    """
    unseen = ~bench.among & ~np.isnan(bench.recorded_s)
    last = replace(bench, among=unseen, delays=bench.startup)
    division = _division(bench, [*tried, *search(last, progress, ledger).tried])
    if division is None or division.share > _DIVIDED:
        return None
    later = bench.since(division.at_ms)
    later.among = ~np.isnan(later.recorded_s)
    after = min(search(later, progress, ledger).tried, key=_whole_distance).settings
    first, end = _bounds(bench)
    times = [at for near in _NEAR_MS if first <= (at := division.at_ms + near) <= end]
    parts = [_Parts.of(bench, division.before, after, at) for at in times]
    best = min(parts, key=lambda one: one.before + one.new.sum())
    return RuleChange(best.at_ms, division.before.settings.rules) if best.changed(division.whole) else None


class _Parts(NamedTuple):
    """The distances of the earlier and the later rules from the two parts of a log."""

    at_ms: int
    jobs: int
    """Number of jobs with a known wait before the change."""
    learnt: int
    """Number of jobs after the change from which a calibration learns."""
    before: float
    """Sum of the distances of these jobs under the earlier rules."""
    old: Floats
    """Distance of each job after the change under the earlier rules (m,)."""
    new: Floats
    """The same under the later rules (m,)."""
    day: NDArray[np.int64]
    """Day of the job, counted from the change (m,)."""

    @classmethod
    def of(cls, bench: Workbench, earlier: Tried, after: Settings, at_ms: int) -> _Parts:
        """Return the distances for a change at a time. Replays of the later part begin at that time."""
        later = bench.since(at_ms)
        early = ~np.isnan(bench.recorded_s) & (bench.jobs.submit_ms < at_ms)
        return cls(
            at_ms,
            int(early.sum()),
            int(later.among.sum()),
            float(sum(earlier.by_span[: bench.span_of(at_ms)])),
            _distances(later, earlier.settings),
            _distances(later, after),
            later.jobs.submit_ms[~np.isnan(later.recorded_s)] // _DAY_MS,
        )

    def changed(self, whole: float) -> bool:
        """Return whether the rules changed, and enough jobs are left to learn from and to score.

        `whole` is the sum of distances of the best rules for the whole log.
        """
        if min(self.learnt, len(self.old) - self.learnt) < FEWEST_JOBS:
            return False
        without = min(whole, self.before + float(self.old.sum()))
        if not self.before + self.new.sum() <= _CLOSER * without:
            return False
        if self.before / self.jobs > _BROKEN * self.old.mean():
            return False
        gains = np.bincount(self.day, self.old - self.new)[np.unique(self.day)]
        return bool((gains > 0).mean() >= _MOST_DAYS)


def _division(bench: Workbench, tried: Sequence[Tried]) -> _Division | None:
    """Return the best division of the log, or None if the log is too short or fits one candidate exactly."""
    candidates = [one for one in tried if one.by_span]
    before = np.cumsum([one.by_span for one in candidates], axis=1)
    whole = before[:, -1]
    sums = before.min(axis=0) + (whole[:, None] - before).min(axis=0)
    ends = np.arange(1, SPANS + 1) * (int(bench.jobs.submit_ms.max()) + 1) // SPANS
    first, last = _bounds(bench)
    inside = np.flatnonzero((ends >= first) & (ends <= last))
    if not len(inside) or whole.min() <= 0:
        return None
    best = int(inside[np.argmin(sums[inside])])
    at_ms = int(ends[best]) // _MINUTE_MS * _MINUTE_MS
    old = candidates[int(np.argmin(before[:, best]))]
    return _Division(at_ms, old, float(sums[best] / whole.min()), float(whole.min()))


def _bounds(bench: Workbench) -> tuple[int, int]:
    """Return the earliest and the latest time of a change [ms]. Both parts then have enough jobs and days."""
    submit = bench.jobs.submit_ms[~np.isnan(bench.recorded_s)]
    if len(submit) < 4 * FEWEST_JOBS:
        return 1, 0
    first, last = int(submit[2 * FEWEST_JOBS]), int(submit[-2 * FEWEST_JOBS])
    return max(first, _LEAST_MS), min(last, int(submit[-1]) - _LEAST_MS)


def _whole_distance(one: Tried) -> float:
    return sum(one.by_span) if one.by_span else np.inf


def _distances(bench: Workbench, settings: Settings) -> Floats:
    """Return the distance of each job with a known wait under a candidate (m,)."""
    recorded = bench.recorded_s
    known = ~np.isnan(recorded)
    return job_distances(recorded[known], bench.at_least(bench.times(settings).queue_s)[known])
