"""The jobs of one cluster, what they may have run on, and their replays under settings that are tried."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.calibration.delays import delays_of_jobs, startup_delays
from tracekit.calibration.waits import AGREE_S
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.clusters.nodes import cluster_under
from tracekit.replay.registry import named_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tracekit.calibration.rules import Rules
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

__all__ = ["Settings", "Workbench"]

_EXCERPT, _WAITED = 20_000, 1000
"""Jobs of an excerpt at the least, and how many of them have to have waited longer than `AGREE_S`."""


class Settings(NamedTuple):
    """One candidate."""

    rules: Rules
    capacity: str
    """A name of `Workbench.clusters`."""
    delays: bool
    """Whether jobs start up with a delay."""


@dataclass
class Workbench:
    """The jobs of one cluster, what they may have run on, and what was tried on them."""

    jobs: Jobs
    """With recorded starts."""
    clusters: Mapping[str, Callable[[bool], Cluster]]
    """Makes the cluster, in one piece or with nodes for each VC, by the name of where its capacity comes from. The
    first is what the source states."""
    among: Bools
    """Jobs to learn from: those of the first part of the log whose start is known (n,)."""
    held_ms: Ints | None = None
    """From submission to eligibility by the log [ms]; None where it tells no holds (n,)."""
    models: Models = field(default_factory=lambda: load_models(None))
    seed: int = 0
    delays: dict[str, tuple[float, ...]] | None = None
    """Start-up delays by size of gang [s]; None reads them from the jobs to learn from."""
    made: dict[tuple[str, bool], Cluster] = field(default_factory=dict)
    """Clusters that were asked for already, by capacity and whether each VC has nodes of its own."""

    def cluster(self, settings: Settings) -> Cluster:
        """Return the cluster of a candidate."""
        key = (settings.capacity, settings.rules.partitioned)
        if key not in self.made:
            self.made[key] = self.clusters[settings.capacity](settings.rules.partitioned)
        return self.made[key]

    @property
    def startup(self) -> dict[str, tuple[float, ...]]:
        """Start-up delays by size of gang [s]."""
        if self.delays is None:
            gpus = next(iter(self.clusters.values()))(False).total_gpus
            self.delays = startup_delays(self.jobs, gpus, self.among)
        return self.delays

    def excerpt(self) -> Workbench | None:
        """Return the first jobs to learn from, enough of which waited; None where these are most of them.

        The log begins with them, so that a replay of them alone meets the cluster as the log did.
        """
        learn = np.flatnonzero(self.among)
        waited = np.cumsum(np.nan_to_num(self.recorded_s[learn]) > AGREE_S)
        enough = max(_EXCERPT, int(np.searchsorted(waited, _WAITED)) + 1)
        if enough >= len(learn) / 2:
            return None
        rows = np.arange(learn[enough - 1] + 1)
        held = None if self.held_ms is None else self.held_ms[rows]
        return replace(self, jobs=self.jobs.rows(rows), among=self.among[rows], held_ms=held, delays=self.startup)

    def held_back(self, *, delays: bool) -> tuple[Jobs, Ints]:
        """Return the jobs as they compete for GPUs, and the place of each in `jobs`."""
        held = np.zeros(len(self.jobs), np.int64) if self.held_ms is None else self.held_ms
        if delays:
            held = held + delays_of_jobs(self.jobs, self.startup, self.seed)
        return self.jobs.held_back(held)

    def replay(self, settings: Settings, policy: str | None = None) -> tuple[Outcome, Ints]:
        """Return the schedule under a candidate, or under another policy in its place, and whose rows these are.

        Raises
        ------
        UsageError
            The policy cannot run on these jobs.
        """
        from tracekit.replay.engine.run import simulate

        rules = settings.rules
        jobs, order = self.held_back(delays=settings.delays)
        chosen = named_policy(policy or rules.policy)
        cluster = cluster_under(self.cluster(settings), lends=chosen.lends)
        mechanism = chosen.mechanism(jobs, cluster, self.models, self.seed)
        outcome = simulate(jobs, cluster, assign(jobs, cluster), mechanism, name=chosen.label, rule=rules.placement)
        return outcome, order

    def waits_s(self, settings: Settings, policy: str | None = None) -> NDArray[np.float64]:
        """Return first start minus submission of each of `jobs` [s]; NaN where it never starts (n,)."""
        outcome, order = self.replay(settings, policy)
        start = np.empty(len(self.jobs), np.int64)
        start[order] = outcome.first_start_ms
        return np.where(start >= 0, (start - self.jobs.submit_ms) / 1000, np.nan)

    @property
    def recorded_s(self) -> NDArray[np.float64]:
        """First start minus submission by the log [s]; NaN unknown (n,)."""
        wait = (self.jobs.recorded_start_ms - self.jobs.submit_ms) / 1000
        return np.where(self.jobs.recorded_start_ms >= self.jobs.submit_ms, wait, np.nan)
