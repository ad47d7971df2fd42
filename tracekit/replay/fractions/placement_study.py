"""The placement study of `tracekit replay --inflate`: every task of a Trace on its nodes, under several rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.damage import explain_damage
from tracekit.errors import UsageError, nearest
from tracekit.outputs import StagedFolder, output_errors
from tracekit.progress import Progress
from tracekit.replay.fractions.inflate import inflate_jobs
from tracekit.replay.fractions.supply import RULES
from tracekit.replay.fractions.tasks import supply_of
from tracekit.replay.part import busiest_cluster
from tracekit.replay.scenario import cluster_for
from tracekit.replay.workload.every_task import every_task
from tracekit.settings import ReplaySettings, merge_settings
from tracekit.spreadsheets import csv_safe
from tracekit.text import counted
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.fractions.tasks import Supply
    from tracekit.replay.jobs import Jobs

__all__ = ["PlacementStudy", "placement_study", "write_study"]

_MARKER = "inflation.parquet"
_FULL = 100
"""Arrivals that the published tables compare rules at [% of the GPUs]."""


@dataclass(frozen=True)
class PlacementStudy:
    """How full each rule makes the cluster."""

    table: pl.DataFrame
    """policy, and the columns of `inflate`."""
    notes: tuple[str, ...]
    """What was assumed or left out, one sentence each."""

    def headline(self) -> pl.DataFrame:
        """Return of each rule the line at 100 % arrived, where it was reached, and the last one."""
        own = pl.col("arrived_percent")
        return self.table.filter((own == _FULL) | (own == own.max().over("policy")))


@explain_damage()
def placement_study(
    trace: Trace | str | Path,
    rules: Sequence[str] | None = None,
    load: float = 1.3,
    *,
    settings: ReplaySettings | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> PlacementStudy:
    """Let every task of a Trace arrive, and no task leave, until they ask for `load` times the GPUs.

    Parameters
    ----------
    trace : Trace or path
        Jobs with a number of GPUs (0 for those without); no time is needed (see `every_task`).
    rules : sequence of str, optional
        Names of placement rules, all when None.
    load : float
        GPUs requested at the end, as a share of the GPUs there are.
    settings, **changes
        Which jobs arrive on which nodes: cluster, cluster_name, partitioned, gpus, start, end, limit, seed.

    Raises
    ------
    UsageError
        There is no such rule, the load cannot be used, or no job states its GPUs; or outages are asked for.
    TracekitError
        The Trace or the cluster cannot be read.
    """
    progress = progress or Progress()
    chosen = merge_settings(ReplaySettings, settings, changes)
    if chosen.load != 1:
        raise UsageError("nothing arrives at a time in a placement study", where="--load", hint="--inflate is the load")
    given = {"--outages": chosen.outages, "--checkpoint": chosen.checkpoint, "--spares": chosen.spares or None}
    for flag, value in given.items():
        if value is not None:
            raise UsageError("nothing runs in a placement study, so that nothing can fail", where=flag)
    names = _rules(rules)
    opened = Trace.of(trace).ingested
    own = chosen.cluster_name or busiest_cluster(opened)
    tasks = every_task(opened, cluster=own, start=chosen.start, end=chosen.end, limit=chosen.limit)
    cluster = cluster_for(opened, tasks, chosen, own)
    nodes, knows_cpu, knows_memory = supply_of(cluster)
    tables = []
    for rule in names:
        progress.stage(f"filling the cluster by {rule}")
        table = inflate_jobs(tasks, cluster, rule, chosen.seed, load)
        tables.append(table.select(pl.lit(rule).alias("policy"), pl.all()))
    found = _notes(tasks, cluster, nodes, knows_cpu=knows_cpu, knows_memory=knows_memory)
    return PlacementStudy(pl.concat(tables), tuple(found))


def write_study(study: PlacementStudy, out: Path, *, force: bool = False) -> None:
    """Write OUT, whole or not at all: inflation.parquet and inflation.csv, the table of the study.

    Raises
    ------
    OutputError
        OUT exists or cannot be written.
    """
    staged = StagedFolder(out, force=force, marker=_MARKER, kind="a placement study")
    try:
        with output_errors(out):
            study.table.write_parquet(staged.path / _MARKER)
            csv_safe(study.table).write_csv(staged.path / "inflation.csv")
        staged.commit()
    finally:
        staged.discard()


def _rules(given: Sequence[str] | None) -> list[str]:
    # best-fit is spelled with a hyphen where it is a placement of a replay.
    chosen = list(dict.fromkeys(name.replace("-", "") for name in given or RULES))
    for rule in chosen:
        if rule not in RULES:
            raise UsageError(f"'{rule[:60]}' is not a placement rule for tasks that arrive", hint=nearest(rule, RULES))
    return chosen


def _notes(tasks: Jobs, cluster: Cluster, nodes: Supply, *, knows_cpu: bool, knows_memory: bool) -> list[str]:
    without = int((tasks.devices == 0).sum())
    gpus = int(nodes.gpus.sum())
    asked = f"{counted(len(tasks), 'tasks')}, {without:,} of them without GPUs"
    found = [f"{asked}, on {counted(len(nodes), 'nodes')} with {counted(gpus, 'GPUs')}: {cluster.origin}"]
    found += [f"{counted(part.jobs, 'jobs')} left out: {part.reason}" for part in tasks.left_out]
    away = cluster.nodes - len(nodes)
    if away:
        found.append(f"{counted(away, 'nodes')} left out: away when the first task was submitted")
    unknown = [word for word, known in (("CPU", knows_cpu), ("memory", knows_memory)) if not known]
    if unknown:
        found.append(f"{' and '.join(unknown)} of some node is unknown, so that is not looked at")
    wide = int((tasks.devices > int(nodes.gpus.max(initial=0))).sum())
    if wide:
        found.append(f"{counted(wide, 'tasks')} asking for more GPUs than any node has: never placed")
    return found
