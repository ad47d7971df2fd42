"""Switch idle nodes off, and on again: the mechanism."""

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


@dataclass(frozen=True)
class Switching:
    """Runs jobs in an order, on nodes that are switched off when idle and switched on again when jobs wait.

    Nodes of one domain and GPU model form a pool; each pool decides separately.
    """

    order: Ordered
    """The order of the jobs; it must not evict, and it must place jobs on nodes."""
    off_after_ms: int
    """Time for which a node must be completely idle before it may be switched off [ms]; 2^62 means never."""
    wake_ms: int
    """Time from the decision to switch a node on until jobs may start there, at least 1 [ms]."""
    reserve_nodes: int
    """Number of completely idle nodes of each pool that stay on."""
    reserve_gpus: int
    """Number of free GPUs of each pool that stay on."""
    idle_mw: NDArray[np.int64]
    """Power of all GPUs of each node while it is on without a job [mW] (N,)."""
    off_mw: NDArray[np.int64]
    """Power of each node while it is off [mW] (N,)."""
    on_top_mw: NDArray[np.int64]
    """Additional power of a GPU with a job on it, by job [mW] (n,)."""
    prices: PowerPrices
    """Prices of energy."""
    held_ms: NDArray[np.int64] | None = None
    """Time that the policy makes each job wait after its submission [ms] (n,); None if it delays no job."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run whose nodes are switched.

        Raises
        ------
        UsageError
            The order evicts.
        """
        return prepared_by("switching.switches", self, setting)
