"""A cap on the power of the GPUs: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Run, Setting

__all__ = ["PowerCap"]


@dataclass(frozen=True)
class PowerCap:
    """Jobs in an order, while the GPUs, idle ones included, draw at most so much power (M7).

    All running jobs have one clock: the highest at which the cap is kept, or the lowest if none keeps it.
    """

    order: Ordered
    """The order of the jobs; it does not evict."""
    cap_mw: int
    """What they may draw together [mW]; 2^62 anything."""
    speed_ppm: tuple[int, ...]
    """Speed of a job at each clock, the first 1,000,000, falling [ppm] (K,)."""
    drawn_ppm: tuple[int, ...]
    """Part of `busy_mw` drawn at each clock, the first 1,000,000 [ppm] (K,)."""
    idle_mw: NDArray[np.int64]
    """Of each node without jobs, all its GPUs [mW] (N,)."""
    busy_mw: NDArray[np.int64]
    """Utilization of each job times the greatest power of its GPU [mW] (n,)."""
    rest_mw: NDArray[np.int64]
    """Utilization of each job times the idle power of its GPU, which it draws in place of that [mW] (n,)."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run under the cap.

        Raises
        ------
        UsageError
            The order evicts, or the GPUs could draw more than can be counted.
        """
        return prepared_by("capping.meter", self, setting)
