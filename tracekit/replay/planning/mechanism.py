"""Plans, and the policies that make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.engine.setting import Run, Setting
    from tracekit.replay.planning.view import View

__all__ = ["Plan", "Planner"]


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
    place: NDArray[np.int64] | None = None
    """Nodes that are named: rows (place in `job`, node, GPUs there), for some jobs or all (r, 3). Such a job is placed
    before the others, exactly there, or goes on if it runs there. Where jobs share GPUs a fourth number may name the
    first of the GPUs by index in the node, -1 any that no job has (r, 4)."""
    beside: NDArray[np.int64] | None = None
    """Where jobs share: for each the job, named before it or kept, whose GPUs it has too; a job beside itself shares
    its GPUs only with those beside it; -1 leaves a running job where it is, and gives another GPUs that no job has
    (k,). A job whose `beside` waits, waits too; one that loses it to its end keeps the GPUs."""


@dataclass(frozen=True)
class Planner:
    """A policy that looks at all jobs at once and says how many GPUs each should have."""

    plan: Callable[[View], Plan]
    """Called after every event, or at rounds."""
    round_ms: int = 0
    """Plans are made only at multiples of this, when something has happened since the last [ms]; 0: at every event."""
    gap_ms: int = 0
    """Least time between two plans that events ask for [ms]."""
    any_model: bool = False
    """Whether `Plan.model` may name GPU models other than the one that a job asks for."""
    fit: Literal["place", "count"] = "place"
    """Whether gangs need places on nodes, or only enough free GPUs in number."""
    scope: Literal[0, 1, 2] = 2
    """How far apart a gang's GPUs may be: 0 on the fewest nodes, 1 anywhere in a group, 2 on all nodes of a model."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost of each preemption and migration by the GPUs of the gang, larger gangs as the last entry [ms]; None is 0."""
    resize_ms: int = 0
    """Cost of a change in the number of GPUs [ms]."""
    estimate_ms: NDArray[np.int64] | None = None
    """Belief about run times (n,) [ms]; the truth when None."""
    names_nodes: bool = False
    """Whether `Plan.place` may name nodes."""
    share: int = 1
    """Jobs that a GPU may have, put there by `Plan.beside` or `Plan.place`. Their speeds are the plan's."""

    def __post_init__(self) -> None:
        if self.share < 1:
            raise ValueError(f"{self.share} jobs on a GPU")
        if self.fit == "count" and (self.names_nodes or self.share > 1):
            raise ValueError("by count there are no nodes to name and no GPUs to share")

    def prepare(self, setting: Setting) -> Run:
        """Return a run under the planner (see `asking.prepare`)."""
        from tracekit.replay.planning.asking import prepare

        return prepare(self, setting)
