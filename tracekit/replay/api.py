"""Replay a Trace under a policy, from Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.feasibility import check_feasibility
from tracekit.replay.native import kernel
from tracekit.replay.outages.away import with_outages
from tracekit.replay.outages.failures import outages_for
from tracekit.replay.outages.texts import read_checkpoints, read_outages
from tracekit.replay.part import busiest_cluster, part_of
from tracekit.replay.results.summary import measured_jobs
from tracekit.replay.results.tables import jobs_table, timeline_table
from tracekit.replay.scenario import Scenario, cluster_for
from tracekit.replay.workload.from_trace import jobs_of_trace
from tracekit.settings import ReplaySettings, merge_settings
from tracekit.trace import Trace

if TYPE_CHECKING:
    import polars as pl

    from tracekit.replay.results.comparison import ReplayResult

__all__ = ["Replay", "replay", "scenario_of"]


@dataclass(frozen=True)
class Replay:
    """A replayed schedule."""

    result: ReplayResult
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


@explain_damage()
def scenario_of(
    trace: Trace | str | Path,
    settings: ReplaySettings | None = None,
    **changes: Any,
) -> Scenario:
    """Return the scenario that policies run on: the jobs of a Trace, on a cluster, under stated assumptions.

    Parameters
    ----------
    trace : Trace or path
        Jobs with submission, run time and number of GPUs.
    settings : ReplaySettings, optional
        Which jobs are replayed on what.
    **changes
        Settings by name, such as ``cluster="auto"`` or ``limit=1000``; times are UTC.

    Raises
    ------
    EngineMissingError
        This installation cannot replay.
    TracekitError
        The Trace, the cluster or an option cannot be used; or the replay makes no sense on this cluster.
    """
    kernel()  # fails before a Trace is read in vain
    chosen, opened = merge_settings(ReplaySettings, settings, changes), Trace.of(trace).ingested
    busiest = busiest_cluster(opened) if chosen.cluster_name is None else None
    name = chosen.cluster_name or busiest
    part = part_of(opened, name)
    jobs = jobs_of_trace(opened, cluster=name, start=chosen.start, end=chosen.end, load=chosen.load, limit=chosen.limit)
    asked = read_outages(chosen.outages) if chosen.outages is not None else None
    if asked is None and (chosen.checkpoint is not None or chosen.spares):
        raise UsageError("checkpoints and spares mean nothing without outages", hint="add --outages recorded")
    if asked is not None and asked.kind == "recorded" and not chosen.node_events:
        raise UsageError("recorded outages are node events", where="--no-node-events", hint="leave one of them out")
    saving = read_checkpoints(chosen.checkpoint)
    nodes = cluster_for(opened, jobs, chosen if asked is None else replace(chosen, node_events=False), name)
    if busiest is not None and part is not None:
        several = ", ".join(sorted((busiest, *part.others)))
        why = f"{busiest}, the one with the most jobs of {several}: cluster_name takes another"
        nodes = replace(nodes, origin=f"{why}; {nodes.origin}")
    outages = None
    if asked is not None:
        outages = outages_for(asked, opened, nodes, jobs, chosen.load, chosen.seed)
        nodes = with_outages(nodes, outages, chosen.spares)
    models = load_models(Path(chosen.models) if chosen.models else None)
    scenario = Scenario.make(jobs, nodes, models=models, placement=chosen.placement, seed=chosen.seed)
    measured = None
    if chosen.measure_from is not None or chosen.measure_to is not None:
        measured = measured_jobs(jobs, chosen.measure_from, chosen.measure_to)
    found = check_feasibility(jobs, nodes, scenario.assignment)
    if found.verdict == "refuse" and not chosen.force:
        raise UsageError(" ".join(found.sentences), hint="use another cluster, or --force to replay all the same")
    return replace(
        scenario, measured=measured, feasibility=found, trace=opened, part=part, outages=outages, saving=saving
    )


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
        A policy and its parameters, as on the command line; see 'tracekit policies'.
    **options
        Settings by name, see `tracekit.settings.ReplaySettings`; `cluster` above all.

    Raises
    ------
    TracekitError
        See `scenario_of`; or there is no such policy or parameter.
    """
    return Replay(scenario_of(trace, **options).run(policy))
