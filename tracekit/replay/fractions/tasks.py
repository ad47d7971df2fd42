"""Tasks on nodes with divided GPUs: the shapes of their requests, the expected workload, and the nodes themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.replay.engine.state import struct_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


@dataclass(frozen=True)
class Tasks:
    """Tasks grouped by shape. A task runs on one node."""

    shapes: NDArray[np.void]
    """The distinct shapes, rows of Shape, in order of first use (S,)."""
    shape: NDArray[np.int32]
    """Index of each task's shape (n,)."""
    model_sets: list[str]
    """Sets of accepted GPU models, joined by '|', or '' to accept any."""

    def __len__(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class ExpectedWorkload:
    """The workload that determines which free GPUs are usable."""

    shapes: NDArray[np.void]
    """Its shapes, rows of Shape, most frequent first. `memory` is 0 and `weight` is the number of tasks (M,)."""
    model_sets: list[str]
    """Sets of accepted GPU models, as in `Tasks`."""


@dataclass(frozen=True)
class Supply:
    """Empty nodes. All arrays have the shape (N,)."""

    cpu_milli: NDArray[np.int64]
    """CPU of each node [milli-cores]."""
    memory_mib: NDArray[np.int64]
    """Host memory of each node [MiB]."""
    gpus: NDArray[np.int64]
    """GPUs of each node."""
    model: NDArray[np.int64]
    """Index into `models`."""
    models: list[str]
    """Names of the GPU models."""

    def __len__(self) -> int:
        return len(self.gpus)


def group_tasks(
    cpu_milli: NDArray[np.int64],
    memory_mib: NDArray[np.int64],
    count: NDArray[np.int64],
    milli: NDArray[np.int64],
    models: Sequence[str],
) -> Tasks:
    """Group tasks by shape.

    Parameters
    ----------
    cpu_milli, memory_mib : arrays, shape (n,)
        CPU [milli-cores] and host memory [MiB] of each task.
    count, milli : arrays, shape (n,)
        GPUs of each task, and its request per GPU [milli-GPU]. Both are 0 if it requests no GPU.
    models : sequence of str, length n
        Accepted GPU models joined by '|', or '' to accept any.
    """
    tasks = pl.DataFrame(
        {"cpu": cpu_milli, "memory": memory_mib, "count": count, "milli": milli, "models": list(models)},
        schema={"cpu": pl.Int64, "memory": pl.Int64, "count": pl.Int32, "milli": pl.Int32, "models": pl.String},
    )
    key = tasks.columns
    table = tasks.group_by(key, maintain_order=True).len("weight").with_row_index("shape")
    sets = table["models"].unique(maintain_order=True).to_list()
    shapes = np.zeros(len(table), dtype=struct_dtype("Shape"))
    for name in ("cpu", "memory", "count", "milli", "weight"):
        shapes[name] = table[name].to_numpy()
    shapes["models"] = [sets.index(name) for name in table["models"]]
    index = tasks.join(table, on=key, how="left", maintain_order="left")["shape"]
    return Tasks(shapes=shapes, shape=index.cast(pl.Int32).to_numpy(), model_sets=sets)


def tasks_of_jobs(jobs: Jobs, *, cpu: bool = True, memory: bool = True) -> Tasks:
    """Return the shapes of a replay's jobs. Unknown CPU and memory requests count as 0.

    Parameters
    ----------
    jobs : Jobs
        The jobs. The name of a GPU model may join several models with '|'.
    cpu, memory : bool
        Whether CPU and host memory are used, as returned by `supply_of`.
    """
    nothing = np.zeros(len(jobs), dtype=np.int64)
    names = pl.Series([*jobs.models, ""], dtype=pl.String)
    return group_tasks(
        np.maximum(jobs.cpu_milli, 0) if cpu else nothing,
        np.maximum(jobs.memory_mib, 0) if memory else nothing,
        jobs.devices.astype(np.int64),
        jobs.milli.astype(np.int64),
        names.gather(np.where(jobs.model < 0, len(jobs.models), jobs.model)).to_list(),
    )


def supply_of(cluster: Cluster) -> tuple[Supply, bool, bool]:
    """Return the nodes of a replay's cluster, and whether CPU and memory are known for all of them.

    Virtual clusters are merged and quotas are ignored. Nodes that join later are excluded. A resource that is unknown
    for some node is ignored: it is 0 everywhere, and the tasks must ignore it, too.
    """
    there = cluster.absent == 0
    cpu, memory = cluster.cpu_milli[there], cluster.memory_mib[there]
    knows_cpu, knows_memory = bool((cpu >= 0).all()), bool((memory >= 0).all())
    supply = Supply(
        cpu_milli=cpu if knows_cpu else np.zeros_like(cpu),
        memory_mib=memory if knows_memory else np.zeros_like(memory),
        gpus=cluster.gpus[there].astype(np.int64),
        model=cluster.model[there].astype(np.int64),
        models=list(cluster.models),
    )
    return supply, knows_cpu, knows_memory


def expected_workload(tasks: Tasks, popularity: float = 0.95) -> ExpectedWorkload:
    """Return the most frequent task shapes, which form the workload whose needs define fragmentation.

    Shapes are counted without host memory and taken in order of decreasing number of tasks (ties: larger CPU, GPU share
    and GPUs first, then later set of models) until they cover the share `popularity` of the tasks. Tasks without GPUs
    also count. This is the target workload of Weng et al., "Beware of Fragmentation", USENIX ATC 2023.

    Parameters
    ----------
    tasks : Tasks
        The tasks.
    popularity : float
        Share of the tasks to cover [0..1].
    """
    columns = {name: tasks.shapes[name] for name in ("cpu", "milli", "count", "models", "weight")}
    names = [tasks.model_sets[index] for index in tasks.shapes["models"]]
    table = (
        pl.DataFrame({**columns, "name": names})
        .group_by("cpu", "milli", "count", "models", "name")
        .agg(pl.col("weight").sum())
        .sort("weight", "cpu", "milli", "count", "name", descending=True)
    )
    covered = np.cumsum(table["weight"].to_numpy())
    count_kept = int(np.searchsorted(covered, popularity * len(tasks))) + 1
    table = table.head(count_kept)
    shapes = np.zeros(len(table), dtype=struct_dtype("Shape"))
    for name in ("cpu", "milli", "count", "models", "weight"):
        shapes[name] = table[name].to_numpy()
    return ExpectedWorkload(shapes, tasks.model_sets)
