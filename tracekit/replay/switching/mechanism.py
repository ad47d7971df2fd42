"""Idle nodes are switched off, and on again: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.prices import PowerPrices
    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Run, Setting

__all__ = ["Switching"]


@dataclass(frozen=True)
class Switching:
    """Jobs in an order, on nodes that are switched off when they are idle and switched on again when jobs wait.

    Nodes of one domain and GPU model are a pool; each pool decides for itself.
    """

    order: Ordered
    """The order of the jobs; it does not evict, and needs places."""
    off_after_ms: int
    """Time for which a node has to be wholly idle before it may be switched off [ms]; 2^62 never."""
    wake_ms: int
    """Time from the decision to switch a node on until jobs may start there, at least 1 [ms]."""
    reserve_nodes: int
    """Wholly idle nodes of each pool that stay on."""
    reserve_gpus: int
    """Free GPUs of each pool that stay on."""
    idle_mw: NDArray[np.int64]
    """Of each node that is on and has no job, all its GPUs [mW] (N,)."""
    off_mw: NDArray[np.int64]
    """Of each node that is off [mW] (N,)."""
    on_top_mw: NDArray[np.int64]
    """What a GPU draws more with a job on it, by job [mW] (n,)."""
    prices: PowerPrices
    """What the energy costs."""
    held_ms: NDArray[np.int64] | None = None
    """Time after its submission for which each job waits by the policy's choice [ms] (n,); None where none does."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run with nodes that are switched.

        Raises
        ------
        UsageError
            The order evicts.
        """
        return prepared_by("switching.switches", self, setting)
