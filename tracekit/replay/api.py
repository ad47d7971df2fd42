"""Replay a Trace under a policy, from Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.damage import damage_told
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.feasibility import check_feasibility
from tracekit.replay.native import kernel
from tracekit.replay.part import busiest_cluster, part_of
from tracekit.replay.results.summary import measured_jobs
from tracekit.replay.results.tables import jobs_table, timeline_table
from tracekit.replay.scenario import Scenario, cluster_for
from tracekit.replay.workload.from_trace import jobs_of_trace
from tracekit.trace import Trace

if TYPE_CHECKING:
    import datetime as dt

    import polars as pl

    from tracekit.replay.cluster import Cluster
    from tracekit.replay.results.comparison import Compared

__all__ = ["Replay", "replay", "scenario_of"]


@dataclass(frozen=True)
class Replay:
    """A replayed schedule."""

    result: Compared
    """Jobs, outcome and summary."""

    @property
    def summary(self) -> dict[str, Any]:
        """The figures of summary.json."""
        return dict(self.result.summary)

    def jobs(self) -> pl.DataFrame:
        """Return the table of jobs.parquet, one row a job."""
        return jobs_table(self.result.jobs, self.result.outcome)

    def timeline(self) -> pl.DataFrame:
        """Return running and waiting jobs, free and fragmented GPUs through time."""
        return timeline_table(self.result.jobs, self.result.outcome)

    def __repr__(self) -> str:
        s = self.result.summary
        return f"<replay of {s['jobs']:,} jobs under {s['policy']}: mean JCT {s['avg_jct_s'] or 0:,.0f} s>"


@damage_told()
def scenario_of(
    trace: Trace | str | Path,
    *,
    cluster: str | Path | Cluster | None = None,
    cluster_name: str | None = None,
    placement: str = "consolidate",
    partitioned: bool | None = None,
    start: dt.datetime | None = None,
    end: dt.datetime | None = None,
    load: float = 1.0,
    gpus: float | None = None,
    limit: int | None = None,
    models: str | Path | None = None,
    seed: int = 0,
    force: bool = False,
    measure_from: dt.datetime | None = None,
    measure_to: dt.datetime | None = None,
) -> Scenario:
    """Return what policies can be tried on: the jobs of a Trace, on a cluster, under stated assumptions.

    Parameters
    ----------
    trace : Trace or path
        Jobs with submission, run time and number of GPUs.
    cluster : str, path or Cluster, optional
        'auto' for what the log shows was in use, or a TOML file; by default the nodes and quotas of the Trace.
    cluster_name : str, optional
        Which cluster, where the Trace has several; by default the one with the most jobs, which `assumptions` tells.
    placement : str
        Where gangs go, see `tracekit.replay.engine.placement`.
    partitioned : bool, optional
        Make each virtual cluster a cluster of its own.
    start, end : datetime, optional
        Take only jobs submitted in [start, end), UTC.
    load : float
        Multiply the offered load, by shortening the time between submissions.
    gpus : float, optional
        Multiply the nodes.
    limit : int, optional
        Take only the first so many jobs.
    models : path, optional
        A TOML file that replaces assumptions.
    seed : int
        Of every random draw.
    force : bool
        Go on although most of the work can never run here.
    measure_from, measure_to : datetime, optional
        Take the figures over the jobs submitted in this time only, UTC and in the time of the replay.

    Raises
    ------
    EngineMissingError
        This installation cannot replay.
    TracekitError
        The Trace, the cluster or an option cannot be used; or the replay makes no sense on this cluster.
    """
    kernel()  # before a Trace is read for nothing
    opened = Trace.of(trace)
    unasked = busiest_cluster(opened) if cluster_name is None else None
    cluster_name = cluster_name or unasked
    part = part_of(opened, cluster_name)
    jobs = jobs_of_trace(opened, cluster=cluster_name, start=start, end=end, load=load, limit=limit)
    nodes = cluster_for(opened, jobs, cluster, partitioned=partitioned, gpus=gpus, cluster_name=cluster_name, load=load)
    if unasked is not None and part is not None:
        several = ", ".join(sorted((unasked, *part.others)))
        chosen = f"{unasked}, the one with the most jobs of {several}: cluster_name takes another"
        nodes = replace(nodes, origin=f"{chosen}; {nodes.origin}")
    scenario = Scenario.make(
        jobs, nodes, models=load_models(Path(models) if models else None), placement=placement, seed=seed
    )
    measured = None
    if measure_from is not None or measure_to is not None:
        measured = measured_jobs(jobs, measure_from, measure_to)
    found = check_feasibility(jobs, nodes, scenario.assignment)
    if found.verdict == "refuse" and not force:
        raise UsageError(" ".join(found.sentences), hint="use another cluster, or --force to replay all the same")
    return replace(scenario, measured=measured, feasibility=found, trace=opened, part=part)


@damage_told()
def replay(trace: Trace | str | Path, policy: Any = "fifo", **options: Any) -> Replay:
    """Replay a Trace under one policy.

    >>> import tracekit
    >>> result = tracekit.replay("my-trace", policy="srtf,overhead=helios")  # doctest: +SKIP
    >>> result.summary["avg_jct_s"]  # doctest: +SKIP

    Parameters
    ----------
    trace : Trace or path
        What ran.
    policy : str or Policy
        A policy and its parameters, as on the command line; see 'tracekit policies'.
    **options
        Those of `scenario_of`; `cluster` above all.

    Raises
    ------
    TracekitError
        See `scenario_of`; or there is no such policy or parameter.
    """
    return Replay(scenario_of(trace, **options).run(policy))
