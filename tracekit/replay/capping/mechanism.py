"""A cap on GPU power: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Run, Setting


@dataclass(frozen=True)
class PowerCap:
    """Runs jobs in an order while the power of all GPUs, idle ones included, stays within a cap (M7).

    All running jobs have the same clock: the highest clock that keeps the cap, or the lowest if none does.
    """

    order: Ordered
    """The order of the jobs; it must not evict."""
    cap_mw: int
    """Power cap for all GPUs together [mW]; 2^62 means none."""
    speed_ppm: tuple[int, ...]
    """Speed of a job at each clock, descending; the first is 1,000,000 [ppm] (K,)."""
    drawn_ppm: tuple[int, ...]
    """Share of `busy_mw` used at each clock; the first is 1,000,000 [ppm] (K,)."""
    idle_mw: NDArray[np.int64]
    """Power of all GPUs of each node without jobs [mW] (N,)."""
    busy_mw: NDArray[np.int64]
    """Utilization of each job times the peak power of its GPU [mW] (n,)."""
    rest_mw: NDArray[np.int64]
    """Utilization of each job times the idle power of its GPU, which `busy_mw` replaces [mW] (n,)."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run under the cap.

        Raises
        ------
        UsageError
            The order evicts, or the possible power of the GPUs is too large to count.
        """
        return prepared_by("capping.meter", self, setting)
