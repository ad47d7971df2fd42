"""The inflate mode: tasks only arrive and none leaves, to see how full a placement rule can make a cluster.

It repeats the experiment of Weng et al., "Beware of Fragmentation", USENIX ATC 2023, on any tasks and nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.replay import kernel
from tracekit.replay.fractions.supply import WHOLE, fractions
from tracekit.replay.fractions.tasks import expected_workload, supply_of, tasks_of_jobs
from tracekit.replay.kernel import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.fractions.tasks import Supply, Tasks
    from tracekit.replay.jobs import Jobs

__all__ = ["arrivals", "by_percent", "inflate", "inflate_jobs"]


def inflate(tasks: Tasks, nodes: Supply, policy: str, seed: int, load: float = 1.3) -> pl.DataFrame:
    """Let tasks arrive on an empty cluster until they ask for `load` times its GPUs, and return how it fills.

    Each task arrives once, in an order shuffled by the seed, followed by tasks drawn with replacement (see `arrivals`).
    A task that fits nowhere is dropped. The seed also draws the rank of the nodes, which decides ties.

    Parameters
    ----------
    tasks : Tasks
        The tasks; they are the expected workload too.
    nodes : Supply
        The nodes.
    policy : str
        A rule of `fractions.RULES`.
    seed : int
        Seed of all that is drawn, 0 or more.
    load : float
        GPUs requested at the end, as a share of the GPUs there are.

    Returns
    -------
    polars.DataFrame
        One row for each whole percent reached, in this order of columns:
        `arrived_percent` (GPUs requested so far, placed or not, of all GPUs [%]),
        `gpu_allocation_ratio` (GPUs held, of all GPUs [%]), `unallocated_gpus` (the rest [%]),
        `fragmented_gpus` (fragment of the nodes, of all GPUs [%]; see `fractions.wasted_milli`),
        `fragmentation_rate` (the same, of the GPUs left [%]; NULL where none is left).

    Raises
    ------
    UsageError
        No such policy, a load that is not above 0, a negative seed, a cluster without GPUs, or tasks that ask for none.
    """
    capacity = int(nodes.gpus.sum()) * WHOLE
    if capacity == 0:
        raise UsageError("the cluster has no GPUs to fill")
    if seed < 0:
        raise UsageError(f"a seed is 0 or more, not {seed}")
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
    kernel.inflate_arrive(kernel.Fractions(state), tasks.shape[order], np.zeros_like(state.scratch), left, wasted)
    requested = _requested(tasks)[order]
    return by_percent(np.cumsum(requested), left, wasted / int(state.totals[WEIGHT]), capacity)


def inflate_jobs(jobs: Jobs, cluster: Cluster, policy: str, seed: int, load: float = 1.3) -> pl.DataFrame:
    """Inflate with the jobs of a replay on its cluster; see `inflate`.

    Virtual clusters, quotas and changes of nodes are not looked at, and a job runs on one node: one with more GPUs than
    any node has is never placed. CPU and memory count only where they are known of every node.
    """
    nodes, knows_cpu, knows_memory = supply_of(cluster)
    return inflate(tasks_of_jobs(jobs, cpu=knows_cpu, memory=knows_memory), nodes, policy, seed, load)


def _requested(tasks: Tasks) -> NDArray[np.int64]:
    of_shape = tasks.shapes["count"].astype(np.int64) * tasks.shapes["milli"]
    return np.asarray(of_shape[tasks.shape], dtype=np.int64)


def arrivals(tasks: Tasks, capacity_milli: int, load: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the order in which tasks arrive, as indices of tasks.

    All tasks shuffled, then tasks drawn uniformly with replacement, until the next would bring the GPUs requested above
    `load` times the capacity; as in the study, of that next task only one GPU is counted. Where the tasks ask for
    more from the start, random ones are left out until they do not.

    Parameters
    ----------
    tasks : Tasks
        The tasks.
    capacity_milli : int
        GPUs of the cluster [milli-GPU].
    load : float
        GPUs requested at the end, as a share of the capacity.
    random : numpy Generator
        Source of what is drawn.

    Raises
    ------
    UsageError
        A load that is not above 0, or tasks that ask for no GPU.
    """
    if not 0 < load < float("inf"):
        raise UsageError(f"a load is a number above 0, not {load}")
    requested = _requested(tasks)
    total = int(requested.sum())
    if total == 0:
        raise UsageError("no task asks for a GPU")
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
    """Reduce arrivals to whole percents, as the published tables of the study were made.

    An arrival belongs to the nearest whole percent (halves to the even one) of the GPUs requested so far, itself
    included; a percent has the means over its arrivals, or over those of the percents beside it where it has none, and
    NULL where those have none too. The allocation is rounded to 2 decimals for each arrival and for the mean, the
    fragment for the mean, the rate not at all.

    Parameters
    ----------
    arrived_milli : array, shape (n,)
        GPUs requested so far, at each arrival [milli-GPU].
    left_milli, fragment_milli : arrays, shape (n,)
        GPUs left after it, and the fragment of all nodes [milli-GPU].
    capacity : int
        GPUs of the cluster [milli-GPU].
    """
    percent = np.rint(100 * arrived_milli / capacity).astype(np.int64)
    # Python's round, since it rounds the decimal value and numpy's the product with 100.
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
