"""The decision of a planner: which jobs get how many GPUs, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Plan:
    """What a planner wants: GPUs for jobs. A running job that is not named loses its GPUs, unless `keep` is set.

    Jobs are placed in the given order; a job that finds no place waits. Requesting more GPUs than a domain has is an
    error.
    """

    job: NDArray[np.int64]
    """Indices into the arrays of `Jobs`, each at most once (k,)."""
    gpus: NDArray[np.int64]
    """GPUs for each job; 0 is the same as not naming the job (k,)."""
    rate: NDArray[np.int64] | None = None
    """Speed of each job with these GPUs [ppm of the recorded speed], before spread and GPU model; None is full speed
    (k,)."""
    group: NDArray[np.int64] | None = None
    """Group of nodes for each job, -1 for any (k,)."""
    model: NDArray[np.int64] | None = None
    """GPU model for each job, index into `Cluster.models`, -1 for any model that it accepts (k,)."""
    keep: bool = False
    """Whether running jobs that are not named keep their GPUs and speed."""
    optional: int = 0
    """Number of jobs at the end of the list that may exceed the available GPUs: each starts only if there is room."""
    wake_ms: int = -1
    """When to ask again even if nothing happens [ms]; -1 for never."""
    lost_ms: NDArray[np.int64] | None = None
    """Run time since its last checkpoint that each job must redo if it is stopped or moved, in addition to the cost of
    stopping or moving [ms]; None is 0 (k,)."""
    place: NDArray[np.int64] | None = None
    """Named nodes: rows (place in `job`, node, GPUs there), for some or all jobs (r, 3). Such a job is placed before
    the others, exactly there, or continues if it runs there. If jobs share GPUs, a fourth number may give the index of
    the first GPU in the node, or -1 for GPUs without any job (r, 4)."""
    beside: NDArray[np.int64] | None = None
    """For sharing: the job, named before it or kept, whose GPUs each job shares (k,). A job beside itself shares its
    GPUs only with jobs beside it. -1 leaves a running job where it is, and gives other jobs GPUs without any job. A job
    whose `beside` waits also waits; a job whose `beside` ends keeps the GPUs."""
    clock: NDArray[np.int64] | None = None
    """Clock of each job's GPUs [ppm of the full clock]; None is full clock (k,). It requires a Planner with `clocks`
    and affects only the energy; its effect on the speed must be part of `rate`."""
    exchange: NDArray[np.int64] | None = None
    """Nodes whose future changes are exchanged: rows (node, other), both available and with the same group and GPUs
    (r, 2). This lets a plan choose which nodes leave when the cluster sets only how many."""
