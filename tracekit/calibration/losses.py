"""What a change would do to the GPU-hours that outages cost, by the twin with the recorded outages.

The twin is replayed with the outages that the log recorded, each of which stops what runs on its node, and again with
the change. What that saves is taken as a part of what the log itself lost: work since the last checkpoint of attempts
that ended as a node of theirs failed, a restart of each, and the saving of work, under the same rule of checkpoints.

Spares save none of that: the job on a failing node is stopped all the same. They shorten the wait until it goes on, and
other jobs wait for the nodes that are held free; so their effect is told by the GPU-hours that all jobs wait.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.outages.away import with_outages, without_absences
from tracekit.replay.outages.failures import recorded_outages
from tracekit.replay.outages.texts import CheckpointsAsked
from tracekit.replay.results.comparison import FEWEST_DAYS, submission_days
from tracekit.replay.results.sizes import gpus_of
from tracekit.text import percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.calibration.twins import TwinReplays
    from tracekit.replay.results.comparison import ReplayResult
    from tracekit.trace import Trace

    Floats = NDArray[np.float64]

ASSUMED = CheckpointsAsked(3600.0, 60.0, 300.0)
"""How jobs save their work as long as nobody knows: each hour, at the cost of a minute, and a restart in five minutes
(the hour and the five minutes are those of Kokolis et al., 2024; the minute is ours)."""

_FEWEST = 5
"""Outages that have to have stopped jobs, in the log and in the twin."""
_WORST = 2.0
"""Factor by which the jobs stopped in the twin may differ from those in the log."""
_STUCK = 0.01
"""Part of the jobs that may never end in a replay; they are in no sum."""
_RESAMPLES = 1000


@dataclass(frozen=True)
class LossChange:
    """A change of how jobs save their work, or of which nodes fail."""

    name: str
    """What is done, for people."""
    saving: CheckpointsAsked | None = None
    """How jobs save their work; `ASSUMED` when None."""
    without: frozenset[str] = frozenset()
    """Nodes that no longer fail."""
    spares: int = 0
    """Nodes that are held free to take the place of those that fail."""
    told_by: Literal["lost", "waited"] = "lost"
    """Whether it should save GPU-hours lost to outages and checkpoints, or GPU-hours that jobs wait."""


class RecordedLosses(NamedTuple):
    """What the log lost to outages, under a rule of checkpoints, and how long its jobs waited."""

    stopped: Mapping[str, int]
    """Attempts that ended as a node of theirs failed, by job."""
    gpu_s: Mapping[str, float]
    """What they cost by job: work since the last checkpoint, a restart, and the saving of all its work [GPU * s]."""
    waited_gpu_s: Mapping[str, float | None]
    """Waits of all its attempts times their GPUs, by job [GPU * s]; None where one is unknown."""


@dataclass(frozen=True)
class LossEffect:
    """What outages cost, and what they would cost."""

    cluster: str
    change: str
    told_by: Literal["lost", "waited"]
    """What the GPU-hours are: lost to outages and checkpoints, or waited by jobs."""
    recorded_gpu_h: float
    """By the log; those lost under `ASSUMED` [GPU-hours]."""
    changed_gpu_h: float
    """With the change [GPU-hours]."""
    low_gpu_h: float
    high_gpu_h: float
    """Its 95 % interval [GPU-hours]."""
    ettr: float | None
    """Effective training time ratio in the twin, as things are [0..1]."""
    changed_ettr: float | None
    """The same with the change."""
    stopped: int
    """Attempts that outages stopped, by the log."""
    twin_stopped: int
    """Jobs that outages stopped in the twin, each time counted."""

    @property
    def saved_gpu_h(self) -> float:
        """GPU-hours saved; below 0 they are added."""
        return self.recorded_gpu_h - self.changed_gpu_h

    @property
    def verdict(self) -> str:
        """'better', 'worse', or 'undecided' where the interval holds what the log lost."""
        if self.high_gpu_h < self.recorded_gpu_h:
            return "better"
        return "worse" if self.low_gpu_h > self.recorded_gpu_h else "undecided"

    @property
    def words(self) -> str:
        """The change in one line, such as 'GPU-hours that jobs wait 1,200 -> 800 (650 to 1,000)'."""
        recorded, changed, low, high = (
            f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
            for value in (self.recorded_gpu_h, self.changed_gpu_h, self.low_gpu_h, self.high_gpu_h)
        )
        what = "that jobs wait" if self.told_by == "waited" else "that outages and checkpoints cost"
        return f"GPU-hours {what} {recorded} -> {changed} ({low} to {high})"


def loss_effect(one: TwinReplays, trace: Trace, recorded: RecordedLosses, change: LossChange) -> LossEffect | str:
    """Return what a change would do to what outages cost in one cluster, or why that cannot be told.

    Its interval joins which days the log happened to hold (whole submission days are resampled) and how far the twin is
    from the log in what outages cost.
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
    _, order = one.found.bench.held_back(delays=one.found.settings.delays)
    days = submission_days(one.found.bench.jobs)[order]
    own = np.array([log.get(name, None if waits else 0.0) for name in names], np.float64)[order]
    ended = (as_it_is.outcome.end_ms >= 0) & (changed.outcome.end_ms >= 0)
    told = ended & ~np.isnan(own)
    sums = _by_day(days[told], cost(as_it_is)[told], cost(changed)[told], own[told])
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
    """Return why replays with outages tell nothing, of sums by day and the part of the jobs that never ends."""
    if not attempts / _WORST <= stopped <= attempts * _WORST:
        return (
            f"outages stop {stopped:,} jobs in the twin and stopped {attempts:,} attempts in the log, so that the twin "
            "does not carry what they cost"
        )
    if stuck > _STUCK:
        return f"{percent(stuck)} of the jobs never end in the twin with the outages, or with the change"
    if len(sums) < FEWEST_DAYS:
        return f"the jobs were submitted on {len(sums)} days, and {FEWEST_DAYS} are the fewest to tell from"
    if not (sums[:, 0].sum() > 0 and sums[:, 2].sum() > 0):
        return "in the log or in the twin there is nothing that the change could save"
    return None


def _expected(sums: Floats) -> tuple[float, float, float]:
    """Return what is lost with the change and its 95 % interval, of what is lost in the twin, with it, by the log.

    The change is a ratio inside the replay. The twin's own miss, twin against log, says how far its ratios can be
    trusted: what the change does counts for so much more or less, at most twice or not at all.
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
    """Return the twin with the outages that the log recorded, but for those that a change does away with.

    Raises
    ------
    UsageError
        The log has no outage of a node of the twin's cluster, or the twin's policy does not support outages.
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
    # An outage stops what runs on its node, so that gangs hold nodes here where the twin counts GPUs alone.
    one.failing[key] = failing.run(replace(one.rules, fit="place").policy)
    return one.failing[key]


def _wasted_gpu_s(result: ReplayResult) -> Floats:
    """Return the GPU time of each job that was held and not useful (n,) [GPU * s]."""
    outcome = result.outcome
    assert outcome.losses is not None  # noqa: S101 -- it was replayed with outages
    held = outcome.held_milli_ms.astype(np.float64)
    overhead = held / np.maximum(outcome.run_ms, 1) * outcome.overhead_ms
    worked = held - overhead - outcome.losses.lost_milli_ms
    found: Floats = (held - worked * (outcome.losses.progress_ppm / 1e6)) / 1e6
    return found


def _waited_gpu_s(result: ReplayResult) -> Floats:
    """Return the time from submission to end in which each job held no GPUs, times its GPUs (n,) [GPU * s]."""
    outcome = result.outcome
    waited = outcome.end_ms - result.jobs.submit_ms - outcome.run_ms
    return np.asarray(waited * gpus_of(result.jobs) / 1e6, np.float64)


def _by_day(days: NDArray[np.int64], *values: Floats) -> Floats:
    """Return the sums of values by day (D, values)."""
    _, place = np.unique(days, return_inverse=True)
    return np.stack([np.bincount(place, weights=one) for one in values], axis=1)
