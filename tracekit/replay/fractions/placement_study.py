"""The placement study of `tracekit replay --inflate`: place all tasks of a Trace on its nodes, under several rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.damage import explain_damage
from tracekit.errors import UsageError, nearest
from tracekit.outputs import StagedFolder, output_errors
from tracekit.progress import Progress
from tracekit.replay.fractions.supply import RULES, WHOLE, fractions
from tracekit.replay.fractions.tasks import expected_workload, supply_of, tasks_of_jobs
from tracekit.replay.native import compiled
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

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.fractions.tasks import Supply, Tasks
    from tracekit.replay.jobs import Jobs


# In the inflate mode, tasks arrive and never leave, which shows how full a placement rule can make a cluster.
#
# It repeats the experiment of Weng et al., "Beware of Fragmentation", USENIX ATC 2023, with any tasks and nodes.


def inflate(tasks: Tasks, nodes: Supply, policy: str, seed: int, load: float = 1.3) -> pl.DataFrame:
    """Let tasks arrive at an empty cluster until they request `load` times its GPUs, and return how full it gets.

    Each task arrives once, in an order shuffled with the seed. Then tasks are sampled with replacement (see
    `arrivals`). A task that fits nowhere is dropped. The seed also sets the rank of the nodes, which breaks ties.

    Parameters
    ----------
    tasks : Tasks
        The tasks, which also form the expected workload.
    nodes : Supply
        The nodes.
    policy : str
        A rule of `fractions.RULES`.
    seed : int
        Seed of all random choices, at least 0.
    load : float
        Total GPUs requested at the end, as a share of the existing GPUs.

    Returns
    -------
    polars.DataFrame
        One row for each whole percent reached, with these columns in this order:
        `arrived_percent` (GPUs requested so far, placed or not, of all GPUs [%]),
        `gpu_allocation_ratio` (allocated GPUs, of all GPUs [%]), `unallocated_gpus` (the rest [%]),
        `fragmented_gpus` (fragment of the nodes, of all GPUs [%], see `fractions.wasted_milli`),
        `fragmentation_rate` (the fragment, of the unallocated GPUs [%], or NULL if no unallocated GPUs are left).

    Raises
    ------
    UsageError
        The policy does not exist, the load is not above 0, the seed is negative, or there are no GPUs or GPU requests.
    """
    capacity = int(nodes.gpus.sum()) * WHOLE
    if capacity == 0:
        raise UsageError("the cluster has no GPUs to fill")
    if seed < 0:
        raise UsageError(f"the seed must be at least 0, not {seed}")
    random = np.random.default_rng(seed)
    order = arrivals(tasks, capacity, load, random)
    state = fractions(
        nodes,
        tasks,
        expected_workload(tasks),
        policy,
        seed=int(random.integers(2**63)),
        rank=random.permutation(len(nodes)),
    )
    left, wasted = np.zeros(len(order), dtype=np.int64), np.zeros(len(order), dtype=np.int64)
    compiled.inflate_arrive(compiled.Fractions(state), tasks.shape[order], np.zeros_like(state.scratch), left, wasted)
    requested = _requested(tasks)[order]
    return by_percent(np.cumsum(requested), left, wasted / int(state.totals[compiled.WEIGHT]), capacity)


def inflate_jobs(jobs: Jobs, cluster: Cluster, policy: str, seed: int, load: float = 1.3) -> pl.DataFrame:
    """Inflate the cluster of a replay with its jobs (see `inflate`).

    Virtual clusters, quotas and node changes are ignored. A job runs on one node, so a job with more GPUs than any node
    has is never placed. CPU and memory count only if they are known for all nodes.
    """
    nodes, knows_cpu, knows_memory = supply_of(cluster)
    return inflate(tasks_of_jobs(jobs, cpu=knows_cpu, memory=knows_memory), nodes, policy, seed, load)


def _requested(tasks: Tasks) -> NDArray[np.int64]:
    of_shape = tasks.shapes["count"].astype(np.int64) * tasks.shapes["milli"]
    return np.asarray(of_shape[tasks.shape], dtype=np.int64)


def arrivals(tasks: Tasks, capacity_milli: int, load: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the order in which tasks arrive, as indices of tasks.

    All tasks arrive in shuffled order. Then tasks are drawn uniformly with replacement until the next one would raise
    the requested GPUs above `load` times the capacity. As in the study, only one GPU of this next task counts. If all
    tasks together already request more, random tasks are removed.

    Parameters
    ----------
    tasks : Tasks
        The tasks.
    capacity_milli : int
        GPUs of the cluster [milli-GPU].
    load : float
        Total GPUs requested at the end, as a share of the capacity.
    random : numpy Generator
        Random number generator.

    Raises
    ------
    UsageError
        The load is not above 0, or the tasks request no GPU.
    """
    if not 0 < load < float("inf"):
        raise UsageError(f"the load must be above 0, not {load}")
    requested = _requested(tasks)
    total = int(requested.sum())
    if total == 0:
        raise UsageError("no task requests a GPU")
    target = load * capacity_milli
    order = random.permutation(len(tasks))
    if total > target:
        leaving = random.permutation(len(tasks))
        still = total - np.cumsum(requested[leaving])
        gone = leaving[: int(np.argmax(still <= target)) + 1]
        return np.asarray(order[~np.isin(order, gone)], dtype=np.int64)
    one_gpu = tasks.shapes["milli"].astype(np.int64)[tasks.shape]
    parts = [order]
    while True:
        drawn = random.integers(len(tasks), size=len(tasks))
        before = total + np.cumsum(requested[drawn]) - requested[drawn]
        beyond = before + one_gpu[drawn] > target
        if beyond.any():
            parts.append(drawn[: int(np.argmax(beyond))])
            return np.concatenate(parts)
        parts.append(drawn)
        total += int(requested[drawn].sum())


def by_percent(
    arrived_milli: NDArray[np.int64], left_milli: NDArray[np.int64], fragment_milli: NDArray[np.float64], capacity: int
) -> pl.DataFrame:
    """Reduce arrivals to whole percents, in the same way as the published tables of the study.

    An arrival belongs to the whole percent nearest to the GPUs requested so far, including its own (halves to even).
    The values of each percent are means over its arrivals. For a percent without arrivals, they are means over the
    arrivals of its two neighbours, or NULL if these have no arrivals either. The allocation is rounded to 2 decimals
    for each arrival and again for the mean, the fragment only for the mean, and the rate not at all.

    Parameters
    ----------
    arrived_milli : array, shape (n,)
        GPUs requested so far at each arrival [milli-GPU].
    left_milli, fragment_milli : arrays, shape (n,)
        Unallocated GPUs after each arrival, and the fragment of all nodes [milli-GPU].
    capacity : int
        GPUs of the cluster [milli-GPU].
    """
    percent = np.rint(100 * arrived_milli / capacity).astype(np.int64)
    # Use Python's round: it rounds the decimal value, numpy rounds the value times 100.
    allocation = np.array([round(100 * (1 - left / capacity), 2) for left in left_milli])
    fragment = 100 * fragment_milli / capacity
    rate = 100 * np.divide(fragment_milli, left_milli, out=np.full(len(left_milli), np.nan), where=left_milli > 0)
    rows = []
    for value in range(int(percent.max(initial=-1)) + 1):
        here = percent == value
        if not here.any():
            here = np.abs(percent - value) <= 1
        held = _mean(allocation[here])
        lost = _mean(fragment[here])
        rows.append(
            {
                "arrived_percent": value,
                "gpu_allocation_ratio": None if held is None else round(held, 2),
                "unallocated_gpus": None if held is None else round(100 - round(held, 2), 2),
                "fragmented_gpus": None if lost is None else round(lost, 2),
                "fragmentation_rate": _mean(rate[here]),
            }
        )
    return pl.DataFrame(rows, schema={"arrived_percent": pl.Int64} | dict.fromkeys(_MEASURES, pl.Float64))


_MEASURES: Sequence[str] = ("gpu_allocation_ratio", "unallocated_gpus", "fragmented_gpus", "fragmentation_rate")


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


_MARKER = "inflation.parquet"
_FULL = 100
"""Requested GPUs at which the published tables compare rules [% of the GPUs]."""


@dataclass(frozen=True)
class PlacementStudy:
    """The allocation that each rule reaches."""

    table: pl.DataFrame
    """The policy column and the columns of `inflate`."""
    notes: tuple[str, ...]
    """The assumptions and exclusions, one sentence each."""

    def headline(self) -> pl.DataFrame:
        """Return, for each rule, the row at 100 % arrived (if reached) and the last row."""
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
    """Let every task of a Trace arrive and stay, until the tasks request `load` times the GPUs.

    Parameters
    ----------
    trace : Trace or path
        Jobs with a number of GPUs (0 for jobs without GPUs). No times are needed (see `every_task`).
    rules : sequence of str, optional
        Names of placement rules, or None for all rules.
    load : float
        Total GPUs requested at the end, as a share of the existing GPUs.
    settings, **changes
        The jobs that arrive, and the nodes that they arrive on: cluster, cluster_name, partitioned, gpus, start, end,
        limit, seed.

    Raises
    ------
    UsageError
        A rule does not exist, the load is invalid, no job has a known number of GPUs, or outages are requested.
    TracekitError
        The Trace or the cluster cannot be read.
    """
    progress = progress or Progress()
    chosen = merge_settings(ReplaySettings, settings, changes)
    if chosen.load != 1:
        raise UsageError(
            "a placement study has no arrival times", where="--load", hint="--inflate already sets the load"
        )
    given = {"--outages": chosen.outages, "--checkpoint": chosen.checkpoint, "--spares": chosen.spares or None}
    for flag, value in given.items():
        if value is not None:
            raise UsageError("no task runs in a placement study, so none can fail", where=flag)
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
    """Write OUT completely or not at all, with the study's table as inflation.parquet and inflation.csv.

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
    # In a replay's placement, best-fit is written with a hyphen.
    chosen = list(dict.fromkeys(name.replace("-", "") for name in given or RULES))
    for rule in chosen:
        if rule not in RULES:
            raise UsageError(f"'{rule[:60]}' is not a placement rule of the placement study", hint=nearest(rule, RULES))
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
        found.append(f"ignored because it is unknown for some nodes: {' and '.join(unknown)}")
    wide = int((tasks.devices > int(nodes.gpus.max(initial=0))).sum())
    if wide:
        found.append(f"never placed: {counted(wide, 'tasks')} with more GPUs than any node has")
    return found
