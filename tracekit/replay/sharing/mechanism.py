"""Jobs that share whole GPUs: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.engine.setting import Run, Setting
    from tracekit.replay.keys import Key

__all__ = ["Sharing"]


@dataclass(frozen=True)
class Sharing:
    """Jobs start in the order of a key, on idle GPUs or else beside other jobs; nothing is stopped.

    Jobs on one GPU slow each other down (M1); a gang goes at the pace of its slowest GPU. A waiting job that cannot
    start is passed over. Jobs of one class, utilization and memory wait in one line, so both should have few values.
    """

    key: Key
    """A function like those of `replay.keys` that grows with the run time for jobs of one size."""
    utilization_ppm: NDArray[np.int64]
    """GPU utilization of each job (n,) [ppm]."""
    memory_ppm: NDArray[np.int64]
    """Memory of each job on each of its GPUs, by numbers of sub-batches (S, n), or (n,) [ppm of a GPU's]."""
    speeds_ppm: tuple[int, ...] = (1_000_000,)
    """Speed by numbers of sub-batches (S,), the first in one piece [ppm]."""
    strength_ppm: int = 500_000
    """M1's c [ppm]; -1 for the rule 'sum' (D5)."""
    residents: int = 2
    """Jobs that a GPU may have, whose memory adds up to at most the whole; 1 shares nothing."""
    test: bool = True
    """Whether a job shares only where that is better for the mean of both ends than to wait; at most two then share."""
    consolidate: bool = False
    """Whether one node, the tightest, is tried before GPUs of the nodes with the fewest jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which jobs share GPUs."""
        return prepared_by("sharing.residents", self, setting)
