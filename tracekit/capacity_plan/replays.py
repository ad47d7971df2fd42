"""The replays of a plan: every resample on every capacity, and the figures for each replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.calibration.workbench import replayed
from tracekit.capacity_plan.nodes import gpus_up, resized
from tracekit.capacity_plan.search import log_among
from tracekit.errors import UsageError
from tracekit.replay.facts import policy_facts
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tracekit.capacity_plan.days import DayPool, Resample
    from tracekit.capacity_plan.nodes import Capacity
    from tracekit.capacity_plan.question import WaitTarget
    from tracekit.capacity_plan.search import Ends
    from tracekit.progress import Progress
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.outcome import Outcome
    from tracekit.runs.ledger import Ledger
    from tracekit.runs.pool import ProcessPool

    Floats = NDArray[np.float64]

FIGURES = (
    *("mean_wait_s", "p50_wait_s", "p90_wait_s", "p99_wait_s", "within_target_share", "held_share", "gpus_up"),
    *("waiting_hours_per_day", "jobs_per_day", "offered_gpus", "never_start_share"),
)
"""The figures of one replay of the log or of one drawn month.

A wait is first start minus submission [s], over the counted jobs submitted in the window. It is infinite if a job that
determines it never starts, and NaN if the month has no counted jobs. within_target_share: share of these jobs that
start within the target [1]. never_start_share: share of these jobs that never start [1]. held_share: GPU time allocated
in the window / GPU time of the available nodes [1]. waiting_hours_per_day and jobs_per_day cover all jobs.
offered_gpus: see `Resample`."""


def figure(values: Floats, name: str) -> Floats:
    """Return one of the `FIGURES`, first of the log and then of each drawn month (1 + R,)."""
    column: Floats = values[:, FIGURES.index(name)]
    return column


def target_wait(values: Floats, target: WaitTarget) -> Ends:
    """Return the target's wait in the log, with the interval for a further month [s].

    The wait is infinite if any job never starts, even outside the group: a cluster on which some jobs can never run
    meets no target.
    """
    endless = np.isinf(figure(values, "waiting_hours_per_day"))
    return log_among(np.where(endless, np.inf, figure(values, f"{target.metric}_wait_s")))


class PlannedRun(NamedTuple):
    """One replay of a plan."""

    policy: str
    growth: float
    """Jobs per day as a multiple of the log's."""
    capacity: Capacity
    quotas_grow: bool = True
    """Whether quotas grow with the GPUs."""

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that distinguish this run from others, independent of file paths."""
        return self._asdict() | {"policy": policy_facts(self.policy)}


@dataclass(frozen=True)
class PlanBasis:
    """The data that all replays of a plan share."""

    pool: DayPool
    cluster: Cluster
    """The cluster with its existing nodes."""
    placement: str
    models: Models
    seed: int
    limit_s: float | None
    """The target wait [s]."""
    _clusters: dict[tuple[Capacity, int, bool], Cluster] = field(default_factory=dict)

    def figures(self, number: int | None, runs: Iterable[PlannedRun]) -> list[Floats]:
        """Return the `FIGURES` of the log (None) or of one drawn month in each run, with runs sorted by growth."""
        kept: tuple[float, Resample] | None = None
        found = []
        for run in runs:
            if kept is None or kept[0] != run.growth:
                kept = (run.growth, self.pool.resample(number, run.growth, self.seed))
            found.append(self._replayed(run, kept[1]))
        return found

    def _replayed(self, run: PlannedRun, sample: Resample) -> Floats:
        key = run.capacity, sample.begin_ms, run.quotas_grow
        if key not in self._clusters:
            self._clusters[key] = resized(self.cluster, *key)
        made = self._clusters[key]
        outcome, cluster = replayed(
            run.policy, sample.jobs, made, self.models, placement=self.placement, seed=self.seed
        )
        start, submit = outcome.first_start_ms, sample.jobs.submit_ms
        wait = np.where(start >= 0, (start - submit) / 1000, np.inf)
        own = wait[sample.group]
        days = (sample.end_ms - sample.begin_ms) / 86_400_000
        none = not len(own)
        up = gpus_up(cluster, sample.begin_ms, sample.end_ms)
        within = np.nan if none or self.limit_s is None else float((own <= self.limit_s).mean())
        return np.array(
            [
                np.nan if none else own.mean(),
                *(quantile(own, q) for q in (0.5, 0.9, 0.99)),
                within,
                _held_share(outcome, up, sample),
                up,
                float(wait[sample.window].sum()) / 3600 / days,
                int(sample.window.sum()) / days,
                sample.offered_gpus,
                np.nan if none else float(np.isinf(own).mean()),
            ]
        )


def quantile(values: Floats, share: float) -> float:
    """Return a quantile by linear interpolation, with infinite values last, or NaN if there are no values."""
    if not len(values):
        return float("nan")
    place = share * (len(values) - 1)
    low, high = int(np.floor(place)), int(np.ceil(place))
    sorted_ = np.partition(values, (low, high))
    if low == high or np.isinf(sorted_[high]):
        return float(sorted_[high])
    return float(sorted_[low] + (place - low) * (sorted_[high] - sorted_[low]))


def _held_share(outcome: Outcome, up: float, sample: Resample) -> float:
    """Return the GPU time allocated in the window, divided by the GPU time of the available nodes.

    A job's GPU time is spread evenly over the time from its first start to its end.
    """
    begin, end = sample.begin_ms, sample.end_ms
    ran = outcome.end_ms > outcome.first_start_ms
    start, stop = outcome.first_start_ms[ran], outcome.end_ms[ran]
    inside = np.clip(np.minimum(stop, end) - np.maximum(start, begin), 0, None)
    held = float((outcome.held_milli_ms[ran] / 1000 * (inside / (stop - start))).sum())
    return held / (up * (end - begin)) if up > 0 else float("nan")


def lost_process(_: int | None) -> list[Floats]:
    """Raise the error of a plan if one of its processes died."""
    what = "a process of the plan ended, perhaps because memory ran out"
    raise UsageError(what, where="--workers", hint="use fewer workers")


class PlanReplays:
    """The runs of a plan. Each run is replayed only once, in the log and in all drawn months.

    Parameters
    ----------
    pool : ProcessPool
        Processes that run `PlanBasis.figures`.
    ledger : Ledger
        Ledger that stores the resamples of each step as runs. It already identifies everything that all steps share.
    resamples : int
        Number of drawn months.
    progress : Progress
        Reports every month.
    """

    def __init__(self, pool: ProcessPool[list[Floats]], ledger: Ledger, resamples: int, progress: Progress) -> None:
        self._pool, self._ledger, self._resamples, self._progress = pool, ledger, resamples, progress
        self._known: dict[PlannedRun, Floats] = {}

    def of(self, runs: Iterable[PlannedRun]) -> dict[PlannedRun, Floats]:
        """Return the `FIGURES` of each run, first of the log and then of each drawn month (1 + R, figures).

        Raises
        ------
        UsageError
            A policy cannot run on these jobs, or a process ended before its work was done.
        UnfinishedError
            The ledger only gathers results, and some resamples are missing.
        """
        asked = list(dict.fromkeys(runs))
        new = sorted((run for run in asked if run not in self._known), key=lambda run: run.growth)
        if new:
            ledger = self._ledger.about(runs=[run.facts for run in new])
            numbers = {ledger.digest(resample=number): number for number in (None, *range(self._resamples))}
            self._progress.stage(f"replaying {len(new):,} combinations", total=len(numbers))
            pending = ((digest, (numbers[digest], new)) for digest in ledger.missing(dict.fromkeys(numbers, "")))
            made = 0
            for digest, figures in self._pool.results(pending):
                ledger.put(digest, {"figures": [row.tolist() for row in figures]})
                made += 1
                self._progress.advance(1)
            found = ledger.gather(numbers, f"resamples of {counted(len(new), 'combinations')}")
            self._progress.advance(len(numbers) - made)
            for place, run in enumerate(new):
                self._known[run] = np.array([resample["figures"][place] for resample in found])
        return {run: self._known[run] for run in asked}
