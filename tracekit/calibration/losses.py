"""Use the twin and the recorded outages to estimate how a change would affect the GPU-hours that outages cost.

The twin is replayed with the recorded outages, which stop the jobs on their nodes, and again with the change. The
relative saving is applied to the losses in the log under the same checkpoint rule. An attempt that ended because a node
failed loses the work since the last checkpoint and the time of a restart. All attempts lose the time spent on
checkpoints.

Spares avoid none of these losses, because a job on a failing node is stopped anyway. They shorten the wait until the
job continues, but make other jobs wait longer because the spares are kept free. The effect of spares is therefore
measured in GPU-hours that all jobs wait.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.jobs import gpus_of
from tracekit.replay.outages.asked import CheckpointsAsked
from tracekit.replay.outages.away import with_outages, without_absences
from tracekit.replay.outages.failures import recorded_outages
from tracekit.replay.results.comparison import FEWEST_DAYS, submission_days
from tracekit.text import percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.calibration.twins import TwinReplays
    from tracekit.replay.results.comparison import ReplayResult
    from tracekit.trace import Trace

    Floats = NDArray[np.float64]

ASSUMED = CheckpointsAsked(3600.0, 60.0, 300.0)
"""Assumed checkpoints if nothing is known: one per hour, which takes a minute, and a restart of five minutes. The hour
and the five minutes are from Kokolis et al., 2024, and the minute is our choice.
"""

_FEWEST = 5
"""Minimum number of attempts that outages stopped in the log."""
_WORST = 2.0
"""Largest accepted factor between the numbers of stops in the twin and in the log."""
_STUCK = 0.01
"""Largest share of jobs that may never end in a replay. Jobs that never end are excluded from all sums."""
_RESAMPLES = 1000


@dataclass(frozen=True)
class LossChange:
    """A change of checkpoints, of the nodes that fail, or of the number of spares."""

    name: str
    """A description of the change for display."""
    saving: CheckpointsAsked | None = None
    """How jobs save their work, or None to use `ASSUMED`."""
    without: frozenset[str] = frozenset()
    """Nodes that no longer fail."""
    spares: int = 0
    """Number of nodes that are kept free to replace failed nodes."""
    told_by: Literal["lost", "waited"] = "lost"
    """Quantity to save: GPU-hours lost to outages and checkpoints, or GPU-hours of waiting."""


class RecordedLosses(NamedTuple):
    """Losses to outages in the log under a checkpoint rule, and the waits of its jobs."""

    stopped: Mapping[str, int]
    """Number of attempts of each job that ended because a node failed."""
    gpu_s: Mapping[str, float]
    """Cost per job: the work since the last checkpoint and a restart for each stop, plus all checkpoints [GPU * s]."""
    waited_gpu_s: Mapping[str, float | None]
    """Sum over a job's attempts of wait times GPUs [GPU * s], or None if a wait is unknown."""


@dataclass(frozen=True)
class LossEffect:
    """Cost of outages, recorded and with a change."""

    cluster: str
    change: str
    told_by: Literal["lost", "waited"]
    """Whether the GPU-hours are lost to outages and checkpoints or spent waiting."""
    recorded_gpu_h: float
    """Recorded GPU-hours. Losses assume the checkpoints in `ASSUMED`."""
    changed_gpu_h: float
    """GPU-hours with the change."""
    low_gpu_h: float
    high_gpu_h: float
    """Its 95 % interval [GPU-hours]."""
    ettr: float | None
    """Effective training time ratio in the twin without the change [0..1]."""
    changed_ettr: float | None
    """Effective training time ratio in the twin with the change [0..1]."""
    stopped: int
    """Number of attempts that outages stopped in the log."""
    twin_stopped: int
    """Number of times that outages stop jobs in the twin. A job may be counted several times."""

    @property
    def saved_gpu_h(self) -> float:
        """GPU-hours saved, negative if GPU-hours are added."""
        return self.recorded_gpu_h - self.changed_gpu_h

    @property
    def verdict(self) -> str:
        """'better', 'worse', or 'undecided' if the interval contains the recorded value."""
        if self.high_gpu_h < self.recorded_gpu_h:
            return "better"
        return "worse" if self.low_gpu_h > self.recorded_gpu_h else "undecided"

    @property
    def words(self) -> str:
        """The change in one line, such as 'GPU-hours spent waiting 1,200 -> 800 (650 to 1,000)'."""
        recorded, changed, low, high = (
            f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
            for value in (self.recorded_gpu_h, self.changed_gpu_h, self.low_gpu_h, self.high_gpu_h)
        )
        what = "spent waiting" if self.told_by == "waited" else "lost to outages and checkpoints"
        return f"GPU-hours {what} {recorded} -> {changed} ({low} to {high})"


def loss_effect(one: TwinReplays, trace: Trace, recorded: RecordedLosses, change: LossChange) -> LossEffect | str:
    """Return the effect of a change on the cost of outages in one cluster, or the reason why the effect is unknown.

    The interval combines two uncertainties: which days the log happens to cover (whole submission days are resampled),
    and how far the twin's outage cost is from the log's.
    """
    names = one.found.bench.jobs.job_id.to_list()
    attempts = sum(recorded.stopped.get(name, 0) for name in names)
    reason = one.found.why_no_effect
    if reason is None and attempts < _FEWEST:
        reason = f"outages stopped {attempts:,} attempts in the log, but at least {_FEWEST} are needed"
    if reason is not None:
        return reason
    try:
        as_it_is = _replayed(one, trace, LossChange("the twin with the recorded outages"))
        changed = _replayed(one, trace, change)
    except UsageError as error:
        return f"the outages cannot be replayed here: {error}"
    waits = change.told_by == "waited"
    log, cost = (recorded.waited_gpu_s, _waited_gpu_s) if waits else (recorded.gpu_s, _wasted_gpu_s)
    _, order = one.found.bench.held_back(one.found.settings)
    days = submission_days(one.found.bench.jobs)[order]
    own = np.array([log.get(name, None if waits else 0.0) for name in names], np.float64)[order]
    ended = (as_it_is.outcome.end_ms >= 0) & (changed.outcome.end_ms >= 0)
    known = ended & ~np.isnan(own)
    sums = _by_day(days[known], cost(as_it_is)[known], cost(changed)[known], own[known])
    stopped = int(as_it_is.summary["restarts"])
    reason = _doubt(sums, attempts, stopped, float(1 - ended.mean()))
    if reason is not None:
        return reason
    expected, low, high = _expected(sums)
    return LossEffect(
        cluster=one.found.name,
        change=change.name,
        told_by=change.told_by,
        recorded_gpu_h=float(sums[:, 2].sum()) / 3600,
        changed_gpu_h=expected / 3600,
        low_gpu_h=low / 3600,
        high_gpu_h=high / 3600,
        ettr=as_it_is.summary["ettr"],
        changed_ettr=changed.summary["ettr"],
        stopped=attempts,
        twin_stopped=stopped,
    )


def _doubt(sums: Floats, attempts: int, stopped: int, stuck: float) -> str | None:
    """Return why replays with outages show no effect, given daily sums and the share of jobs that never end."""
    if not attempts / _WORST <= stopped <= attempts * _WORST:
        return (
            f"outages stop {stopped:,} jobs in the twin but stopped {attempts:,} attempts in the log, so the twin does "
            "not reproduce the cost of outages"
        )
    if stuck > _STUCK:
        return f"{percent(stuck)} of the jobs never end in the twin with the outages, or with the change"
    if len(sums) < FEWEST_DAYS:
        return f"the jobs were submitted on {len(sums)} days; at least {FEWEST_DAYS} days are needed"
    if not (sums[:, 0].sum() > 0 and sums[:, 2].sum() > 0):
        return "the change has nothing to save in the log or in the twin"
    return None


def _expected(sums: Floats) -> tuple[float, float, float]:
    """Estimate the loss with the change and its 95 % interval from daily sums (twin, twin with the change, log).

    The change is measured as a ratio within the replay. The twin's own error (twin against log) shows how far the ratio
    can be trusted, so the logarithm of the ratio is varied by this error in both directions, by at most 100 %.
    """
    twin, new, lost = sums.sum(axis=0).tolist()
    days = len(sums)
    drawn = np.random.default_rng(0).multinomial(days, np.full(days, 1 / days), _RESAMPLES) @ sums
    drawn = np.maximum(drawn, 1e-9 * max(twin, 1.0))
    ratios, miss = np.log(drawn[:, 1] / drawn[:, 0]), np.log(drawn[:, 0] / drawn[:, 2])
    sign = np.random.default_rng(1).choice([-1.0, 1.0], _RESAMPLES)
    doubted = lost * np.exp(ratios * (1 + sign * np.minimum(np.abs(miss), 1.0)))
    low, high = np.quantile(doubted, [0.025, 0.975]).tolist()
    expected = lost * new / max(twin, 1e-9)
    return expected, min(low, expected), max(high, expected)


def _replayed(one: TwinReplays, trace: Trace, change: LossChange) -> ReplayResult:
    """Replay the twin with the recorded outages, except those that the change removes.

    Raises
    ------
    UsageError
        The log has no outage of any node in the twin's cluster, or the twin's policy does not support outages.
    """
    key = replace(change, name="", told_by="lost")
    if key in one.failing:
        return one.failing[key]
    scenario = one.scenario
    outages = recorded_outages(trace, scenario.cluster, scenario.jobs)
    cluster = scenario.cluster
    if change.without:
        spared = np.array([name in change.without for name in cluster.node_id])
        outages = outages.rows(~spared[outages.node])
        cluster = without_absences(cluster, spared)
    cluster = with_outages(cluster, outages, change.spares)
    failing = replace(
        scenario,
        cluster=cluster,
        assignment=assign(scenario.jobs, cluster),
        outages=outages,
        saving=change.saving or ASSUMED,
    )
    # An outage stops the jobs on a node, so jobs must be placed on nodes here even if the twin only counts GPUs.
    one.failing[key] = failing.run(replace(one.rules, fit="place").policy)
    return one.failing[key]


def _wasted_gpu_s(result: ReplayResult) -> Floats:
    """Return the GPU time of each job that was allocated but not useful (n,) [GPU * s]."""
    outcome = result.outcome
    assert outcome.losses is not None  # noqa: S101 -- it was replayed with outages
    held = outcome.held_milli_ms.astype(np.float64)
    overhead = held / np.maximum(outcome.run_ms, 1) * outcome.overhead_ms
    worked = held - overhead - outcome.losses.lost_milli_ms
    return (held - worked * (outcome.losses.progress_ppm / 1e6)) / 1e6


def _waited_gpu_s(result: ReplayResult) -> Floats:
    """Return the time that each job spends without GPUs between submission and end, times its GPUs (n,) [GPU * s]."""
    outcome = result.outcome
    waited = outcome.end_ms - result.jobs.submit_ms - outcome.run_ms
    return np.asarray(waited * gpus_of(result.jobs) / 1e6, np.float64)


def _by_day(days: NDArray[np.int64], *values: Floats) -> Floats:
    """Sum each array of values by day (D, values)."""
    _, place = np.unique(days, return_inverse=True)
    return np.stack([np.bincount(place, weights=one) for one in values], axis=1)
