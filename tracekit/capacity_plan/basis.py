"""One resample on one capacity, and what is known of its replay."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.capacity_plan.nodes import gpus_up, resized
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.clusters.nodes import cluster_under
from tracekit.replay.registry import named_policy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tracekit.capacity_plan.days import DayPool, Resample
    from tracekit.capacity_plan.nodes import Capacity
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.outcome import Outcome

    Floats = NDArray[np.float64]

__all__ = ["FIGURES", "PlanBasis", "PlannedRun", "quantile"]

FIGURES = (
    "mean_wait_s",
    "p50_wait_s",
    "p90_wait_s",
    "p99_wait_s",
    "within_target_share",
    "held_share",
    "gpus_up",
    "waiting_hours_per_day",
    "jobs_per_day",
    "offered_gpus",
    "never_start_share",
)
"""What is known of one replay of one resample.

Waits are first start minus submission of the jobs that count and were submitted in the window [s]; infinite where a job
that decides the figure never starts, NaN where the resample has no such job. within_target_share: those of them that
start within the target; never_start_share: those that never start [1]. held_share: GPU time held in the window / that
of the nodes that are there [1]. waiting_hours_per_day and jobs_per_day: of all jobs. offered_gpus: see `Resample`."""


class PlannedRun(NamedTuple):
    """What is replayed."""

    policy: str
    growth: float
    """Jobs a day as a multiple of the log's."""
    capacity: Capacity


@dataclass(frozen=True)
class PlanBasis:
    """What all replays of a plan share."""

    pool: DayPool
    cluster: Cluster
    """As many nodes as there are."""
    placement: str
    models: Models
    seed: int
    limit_s: float | None
    """The wait of the target [s]."""
    _clusters: dict[Capacity, Cluster] = field(default_factory=dict)

    def figures(self, number: int, runs: Iterable[PlannedRun]) -> list[Floats]:
        """Return the `FIGURES` of one resample in each of some runs, those of one growth side by side."""
        kept: tuple[float, Resample] | None = None
        found = []
        for run in runs:
            if kept is None or kept[0] != run.growth:
                kept = (run.growth, self.pool.resample(number, run.growth, self.seed))
            found.append(self._replayed(run, kept[1]))
        return found

    def _replayed(self, run: PlannedRun, sample: Resample) -> Floats:
        from tracekit.replay.engine.run import simulate

        if run.capacity not in self._clusters:
            made = resized(self.cluster, run.capacity, sample.begin_ms)
            self._clusters[run.capacity] = replace(made, lendable=self.cluster.lendable)
        policy = named_policy(run.policy)
        owned = cluster_under(self._clusters[run.capacity], lends=policy.lends)
        cluster = policy.borrowed(owned, sample.jobs, self.models)
        mechanism = policy.mechanism(sample.jobs, cluster, self.models, self.seed)
        places = assign(sample.jobs, cluster)
        outcome = simulate(sample.jobs, cluster, places, mechanism, name=policy.label, rule=self.placement)
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
    """Return a quantile with linear interpolation; infinite values stand at the end. NaN of nothing."""
    if not len(values):
        return float("nan")
    place = share * (len(values) - 1)
    low, high = int(np.floor(place)), int(np.ceil(place))
    sorted_ = np.partition(values, (low, high))
    if low == high or np.isinf(sorted_[high]):
        return float(sorted_[high])
    return float(sorted_[low] + (place - low) * (sorted_[high] - sorted_[low]))


def _held_share(outcome: Outcome, up: float, sample: Resample) -> float:
    """Return the GPU time held in the window / that of the nodes that are there.

    What a job holds is spread evenly over the time from its first start to its end.
    """
    begin, end = sample.begin_ms, sample.end_ms
    ran = outcome.end_ms > outcome.first_start_ms
    start, stop = outcome.first_start_ms[ran], outcome.end_ms[ran]
    inside = np.clip(np.minimum(stop, end) - np.maximum(start, begin), 0, None)
    held = float((outcome.held_milli_ms[ran] / 1000 * (inside / (stop - start))).sum())
    return held / (up * (end - begin)) if up > 0 else float("nan")
