"""The scenario of a replay: jobs on a cluster under explicit assumptions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.replay.assumptions.models import Models, load_models, used_assumptions
from tracekit.replay.assumptions.speeds import spread_ppm
from tracekit.replay.clusters.assignment import Assignment, assign
from tracekit.replay.clusters.cluster import Cluster, cluster_under
from tracekit.replay.engine.build import RULES
from tracekit.replay.mechanisms import Planner
from tracekit.replay.native import kernel
from tracekit.replay.outages.asked import CheckpointsAsked, checkpoints_for, outages_unsupported
from tracekit.replay.outcome import fact
from tracekit.replay.registry import named_policy
from tracekit.replay.results.comparison import ReplayResult
from tracekit.replay.results.energy import energy_kwh, power_cap_assumption, utilization_assumption
from tracekit.replay.results.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.clusters.feasibility import Feasibility
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outages.failures import Outages
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.part import Part
    from tracekit.settings import ReplaySettings
    from tracekit.trace import Trace


_WIDEST = 512
"""Largest number of nodes in the speed table. Jobs on more nodes get the speed for this number."""


def placement_named(name: str) -> str:
    """Check the name of a placement, and return it.

    Raises
    ------
    UsageError
        No placement has this name.
    """
    if name not in RULES:
        raise UsageError(f"'{name[:60]}' is not a placement", hint=nearest(name[:60], RULES))
    return name


def cluster_for(
    trace: Trace,
    jobs: Jobs,
    settings: ReplaySettings,
    name: str | None,
) -> Cluster:
    """Return the cluster that a replay runs on.

    Parameters
    ----------
    settings : ReplaySettings
        `cluster` is 'auto' (the GPUs that the log shows in use), a TOML file or a Cluster. By default, the cluster
        comes from the Trace's tables.
    name : str, optional
        The cluster of the Trace to use.

    Raises
    ------
    UsageError
        The cluster cannot be read or built, or a factor is given for the nodes of a cluster file.
    """
    from tracekit.replay.clusters.file import read_cluster
    from tracekit.replay.clusters.of_trace import cluster_of_trace, observed_cluster

    where, partitioned, gpus = settings.cluster, settings.partitioned, settings.gpus
    if isinstance(where, Cluster):
        return where
    if where == "auto":
        return observed_cluster(trace, jobs, partitioned=partitioned, gpus=gpus, cluster=name)
    if where is not None:
        if gpus is not None and gpus != 1:
            raise UsageError(
                "the nodes of a cluster file cannot be multiplied", where="--gpus", hint="change the file instead"
            )
        return read_cluster(Path(where), jobs, partitioned=partitioned)
    return cluster_of_trace(
        trace,
        jobs,
        partitioned=partitioned,
        gpus=gpus,
        cluster=name,
        load=settings.load,
        events=settings.node_events,
    )


@dataclass(frozen=True)
class Scenario:
    """The jobs, cluster and assumptions shared by all policies of a comparison."""

    jobs: Jobs
    cluster: Cluster
    assignment: Assignment
    models: Models
    placement: str = "consolidate"
    seed: int = 0
    measured: NDArray[np.bool_] | None = None
    """Mask of the jobs that count in the results (n,), or None to count all jobs."""
    feasibility: Feasibility | None = None
    """Whether the cluster can run the jobs, checked before the first replay."""
    trace: Trace | None = None
    """The Trace of the jobs."""
    part: Part | None = None
    """The cluster of the jobs, if the Trace has several, or None if the Trace has only one."""
    outages: Outages | None = None
    """Node outages that stop running jobs, or None if there are no outages."""
    saving: CheckpointsAsked = field(default_factory=CheckpointsAsked)
    """The checkpoints of jobs if nodes fail."""

    @classmethod
    def make(
        cls,
        jobs: Jobs,
        cluster: Cluster,
        *,
        models: Models | None = None,
        placement: str = "consolidate",
        seed: int = 0,
    ) -> Scenario:
        """Make the scenario of jobs on a cluster.

        Raises
        ------
        UsageError
            The placement does not exist.
        """
        return cls(jobs, cluster, assign(jobs, cluster), models or load_models(None), placement_named(placement), seed)

    def run(self, policy: Any, *, log: bool = False, progress: Callable[[int], None] | None = None) -> ReplayResult:
        """Replay under a policy, given as a Policy or as a string such as 'srtf,overhead=helios'.

        Raises
        ------
        UsageError
            The policy cannot run here, or makes an impossible request.
        """
        if isinstance(policy, str):
            policy = named_policy(policy)
        kernel()  # reports a missing engine
        from tracekit.replay.engine.run import simulate

        usable = cluster_under(self.cluster, lends=policy.lends, partitions=policy.keeps_partitions)
        cluster = policy.borrowed(usable, self.jobs, self.models)
        assignment = self.assignment if cluster is self.cluster else assign(self.jobs, cluster)
        mechanism = policy.mechanism(self.jobs, cluster, self.models, self.seed)
        checkpoints = None
        if self.outages is not None:
            # A policy that borrows nodes knows only its own changes of nodes.
            if cluster is not usable or not getattr(mechanism, "takes_outages", False):
                raise outages_unsupported(policy.label)
            if cluster.lent is not None and isinstance(mechanism, Planner):
                raise UsageError(
                    f"{policy.label} does not support lent spares: it would count them twice",
                    hint="use a job order, such as fifo, srtf or easy, or omit --lend-spares",
                )
            checkpoints = checkpoints_for(self.saving, self.jobs, cluster, self.outages.rate_per_ms)
        outcome = simulate(
            self.jobs,
            cluster,
            assignment,
            mechanism,
            name=policy.label,
            rule=self.placement,
            spread=spread_table(self.models, self.jobs, cluster),
            trace=self.trace,
            checkpoints=checkpoints,
            log=log,
            progress=progress,
        )
        if outcome.energy_kwh is None:
            energy = energy_kwh(self.jobs, cluster, outcome, self.models)
            outcome = replace(outcome, energy_kwh=energy)
        summary = summarize(
            self.jobs,
            cluster,
            outcome,
            policy=policy.label,
            parameters=policy.parameters,
            placement=self.placement,
            assumptions=self._assumptions(policy, outcome, cluster, assignment),
            measured=self.measured,
        )
        return ReplayResult(policy.label, self.jobs, outcome, summary, cluster)

    def _assumptions(self, policy: Any, outcome: Outcome, cluster: Cluster, assignment: Assignment) -> dict[str, Any]:
        overhead = policy.parameters.get("overhead")
        found: dict[str, Any] = used_assumptions(self.models, (*policy.assumptions, "M7"), overhead and str(overhead))
        found["utilization"] = utilization_assumption(self.jobs, self.models)
        if outcome.power is not None:
            found["power cap"] = power_cap_assumption(outcome)
        found.update(outcome.facts)
        if self.outages is not None:
            value = self.outages.origin
            if self.outages.end_ms is not None and outcome.makespan_ms > self.outages.end_ms:
                day, last = (f"{ms / 86_400_000:,.3g}" for ms in (self.outages.end_ms, outcome.makespan_ms))
                value += f"; there are none after day {day}, but the replay ends on day {last}, so losses are too low"
            found["outages"] = fact("outages of nodes", value, "the input")
            value = f"{self.saving.words}; recorded run times are taken as work without checkpoints"
            found["checkpoints"] = fact("checkpoints", value, "the input")
        found["cluster"] = fact("the cluster", cluster.origin, "the input")
        if assignment.notes:
            found["groups"] = fact("groups", " ".join(assignment.notes), "the engine")
        if outcome.notes:
            found["recorded"] = fact("the recorded schedule", "; ".join(outcome.notes), "the input")
        return found


def spread_table(models: Models, jobs: Jobs, cluster: Cluster) -> NDArray[np.int32]:
    """Return the speed of a job on k nodes if k0 nodes are enough, according to M4 (k0, k) [ppm]."""
    widest = min(int(jobs.devices.max(initial=1)), cluster.nodes, _WIDEST)
    least = np.arange(widest + 1)[:, None]
    nodes = np.arange(widest + 1)[None, :]
    table = spread_ppm(models, 1, np.maximum(nodes, 1), np.minimum(np.maximum(least, 1), np.maximum(nodes, 1)))
    return np.asarray(np.broadcast_to(table, (widest + 1, widest + 1)), np.int32).copy()
