"""What a planner says: which jobs get how many GPUs, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """What a planner wants: GPUs for jobs. A running job that is not named loses its GPUs, unless `keep`.

    Jobs are placed in the order given; one that finds no place waits. To ask for more GPUs than a domain has is an
    error.
    """

    job: NDArray[np.int64]
    """Indices into the arrays of `Jobs`, each at most once (k,)."""
    gpus: NDArray[np.int64]
    """GPUs for each; 0 is the same as not naming it (k,)."""
    rate: NDArray[np.int64] | None = None
    """Speed of each with these GPUs [ppm of the recorded speed], before spread and GPU model; full when None (k,)."""
    group: NDArray[np.int64] | None = None
    """Group of nodes for each, -1 any (k,)."""
    model: NDArray[np.int64] | None = None
    """GPU model for each, index into `Cluster.models`, -1 any that it accepts (k,)."""
    keep: bool = False
    """Whether running jobs that are not named keep their GPUs and speed."""
    optional: int = 0
    """How many of the last jobs named may be more than there are GPUs for: each starts only if there is room."""
    wake_ms: int = -1
    """When to be asked again even if nothing happens [ms]; -1 not."""
    lost_ms: NDArray[np.int64] | None = None
    """Run time since its last checkpoint that each job has to do again if it is stopped or moved, on top of what that
    costs [ms]; 0 when None (k,)."""
    place: NDArray[np.int64] | None = None
    """Nodes that are named: rows (place in `job`, node, GPUs there), for some jobs or all (r, 3). Such a job is placed
    before the others, exactly there, or goes on if it runs there. Where jobs share GPUs a fourth number may name the
    first of the GPUs by index in the node, -1 any that no job has (r, 4)."""
    beside: NDArray[np.int64] | None = None
    """Where jobs share: for each the job, named before it or kept, whose GPUs it has too; a job beside itself shares
    its GPUs only with those beside it; -1 leaves a running job where it is, and gives another GPUs that no job has
    (k,). A job whose `beside` waits, waits too; one that loses it to its end keeps the GPUs."""
    clock: NDArray[np.int64] | None = None
    """Clock of each job's GPUs [ppm of the full clock]; full when None (k,). It needs a Planner with `clocks`, and
    decides the energy alone: what it does to the speed is part of `rate`."""
    exchange: NDArray[np.int64] | None = None
    """Nodes whose changes to come are exchanged: rows (node, other), both there and alike in group and GPUs (r, 2). So
    a plan says which of the nodes leave where the cluster says how many."""
