"""Replay a Trace under a policy, from Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.notebook import Brief
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.clusters.feasibility import check_feasibility
from tracekit.replay.native import kernel
from tracekit.replay.outages.asked import read_checkpoints, read_outages
from tracekit.replay.outages.away import with_outages, without_absences
from tracekit.replay.outages.failures import outages_for
from tracekit.replay.part import busiest_cluster, part_of
from tracekit.replay.results.summary import measured_jobs
from tracekit.replay.results.tables import jobs_table, timeline_table
from tracekit.replay.scenario import Scenario, cluster_for
from tracekit.replay.workload.from_trace import jobs_of_trace
from tracekit.settings import ReplaySettings, merge_settings
from tracekit.text import count, counted, duration, percent
from tracekit.trace import Trace

if TYPE_CHECKING:
    from tracekit.replay.results.comparison import ReplayResult


@dataclass(frozen=True)
class Replay:
    """A replayed schedule."""

    result: ReplayResult
    """The jobs, outcome and summary of the replay."""

    @property
    def summary(self) -> dict[str, Any]:
        """The figures of summary.json."""
        return dict(self.result.summary)

    def jobs(self) -> pl.DataFrame:
        """Return the table of jobs.parquet, one row per job."""
        return jobs_table(self.result.jobs, self.result.outcome)

    def timeline(self) -> pl.DataFrame:
        """Return the running and waiting jobs, and the free and fragmented GPUs, over time."""
        return timeline_table(self.result.jobs, self.result.outcome)

    def __repr__(self) -> str:
        return str(self._brief)

    def _repr_html_(self) -> str:
        return self._brief.html()

    @property
    def _brief(self) -> Brief:
        s = self.summary
        cluster, stopped = s["cluster"], s["preemptions"]
        never = f", {count(s['unschedulable'])} can never run" if s["unschedulable"] else ""
        return Brief.of(
            f"Replay of {counted(s['jobs'], 'jobs')} under {s['policy']}",
            [
                ("cluster", f"{counted(cluster['nodes'], 'nodes')}, {counted(cluster['gpus'], 'GPUs')}"),
                ("completed", f"{counted(s['completed'], 'jobs')}{never}"),
                ("wait", _times(s, "queue_s")),
                ("completion", _times(s, "jct_s")),
                ("GPUs allocated", _share(s["gpu_utilization_share"])),
                ("preemptions", count(stopped) if stopped else None),
                ("goodput", _share(s["goodput_share"])),
            ],
        )


def _times(summary: dict[str, Any], what: str) -> str | None:
    """Return the mean, median and 95th percentile of a time in words, or None if no job has a value."""
    mean, median, high = (summary[f"{of}_{what}"] for of in ("avg", "median", "p95"))
    if mean is None:
        return None
    return f"mean {duration(mean)}, median {duration(median)}, 95th percentile {duration(high)}"


def _share(value: float | None) -> str | None:
    return None if value is None else percent(value)


@explain_damage()
def scenario_of(
    trace: Trace | str | Path,
    settings: ReplaySettings | None = None,
    **changes: Any,
) -> Scenario:
    """Return a scenario for policies: the jobs of a Trace, a cluster and the assumptions.

    Parameters
    ----------
    trace : Trace or path
        Jobs with submission time, run time and number of GPUs.
    settings : ReplaySettings, optional
        The jobs to replay, and the cluster to replay them on.
    **changes
        Settings by name, such as ``cluster="auto"`` or ``limit=1000``. Times are in UTC.

    Raises
    ------
    EngineMissingError
        This installation cannot replay. TracekitError The Trace, the cluster or an option cannot be used, or a replay
        on this cluster would be meaningless.
    """
    kernel()  # fails early, before the Trace is read
    chosen, opened = merge_settings(ReplaySettings, settings, changes), Trace.of(trace).ingested.divided
    busiest = busiest_cluster(opened) if chosen.cluster_name is None else None
    name = chosen.cluster_name or busiest
    part = part_of(opened, name)
    jobs = jobs_of_trace(opened, cluster=name, start=chosen.start, end=chosen.end, load=chosen.load, limit=chosen.limit)
    nodes = cluster_for(opened, jobs, chosen, name)
    if busiest is not None and part is not None:
        several = ", ".join(sorted((busiest, *part.others)))
        why = f"{busiest}, the one with the most jobs of {several}: choose another with cluster_name"
        nodes = replace(nodes, origin=f"{why}; {nodes.origin}")
    models = load_models(Path(chosen.models) if chosen.models else None)
    scenario = Scenario.make(jobs, nodes, models=models, placement=chosen.placement, seed=chosen.seed)
    scenario = failing(scenario, opened, chosen)
    measured = None
    if chosen.measure_from is not None or chosen.measure_to is not None:
        measured = measured_jobs(jobs, chosen.measure_from, chosen.measure_to)
    found = check_feasibility(jobs, scenario.cluster, scenario.assignment)
    if found.verdict == "refuse" and not chosen.force:
        raise UsageError(" ".join(found.sentences), hint="use another cluster, or --force to replay anyway")
    return replace(scenario, measured=measured, feasibility=found, trace=opened, part=part)


@explain_damage()
def replay(trace: Trace | str | Path, policy: Any = "fifo", **options: Any) -> Replay:
    """Replay a Trace under one policy.

    >>> import tracekit
    >>> result = tracekit.replay("my-trace", policy="srtf,overhead=helios")  # doctest: +SKIP
    >>> result.summary["avg_jct_s"]  # doctest: +SKIP

    Parameters
    ----------
    trace : Trace or path
        The recorded jobs.
    policy : str or Policy
        A policy and its parameters, written as on the command line (see 'tracekit policies').
    **options
        Settings by name, most often `cluster` (see `tracekit.settings.ReplaySettings`).

    Raises
    ------
    TracekitError
        See `scenario_of`. Also raised if the policy or one of its parameters does not exist.
    """
    return Replay(scenario_of(trace, **options).run(policy))


def failing(scenario: Scenario, trace: Trace, settings: ReplaySettings) -> Scenario:
    """Return the scenario with the requested outages, checkpoints and spares, if any.

    Sampled outages replace the recorded outages.

    Raises
    ------
    UsageError
        The request is invalid, or this log cannot provide it.
    """
    if settings.outages is None:
        if settings.checkpoint is not None or settings.spares or settings.lend_spares:
            raise UsageError("checkpoints and spares have no effect without outages", hint="add --outages recorded")
        return scenario
    if settings.outages == "recorded" and not settings.node_events:
        raise UsageError(
            "cannot be combined with --no-node-events", where="--no-node-events", hint="leave one of them out"
        )
    asked, saving, cluster = read_outages(settings.outages), read_checkpoints(settings.checkpoint), scenario.cluster
    if trace.has("node_events"):
        known = set(trace.scan("node_events").select(pl.col("node_id").unique()).collect()["node_id"])
        cluster = without_absences(cluster, np.array([name in known for name in cluster.node_id]))
    outages = outages_for(asked, trace, cluster, scenario.jobs, settings.load, settings.seed)
    if settings.lend_spares and not settings.spares:
        raise UsageError("needs spares to lend", where="--lend-spares", hint="add --spares N")
    if settings.lend_spares and not (scenario.jobs.preemptible == 1).any():
        raise UsageError("the log has no preemptible job", where="--lend-spares", hint="leave it out")
    cluster = with_outages(cluster, outages, settings.spares, lend=settings.lend_spares)
    assignment = assign(scenario.jobs, cluster)
    return replace(scenario, cluster=cluster, assignment=assignment, outages=outages, saving=saving)
