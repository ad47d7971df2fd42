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


@dataclass(frozen=True)
class Sharing:
    """Jobs start in the order of a key, on idle GPUs or else next to other jobs; no job is stopped.

    Jobs on one GPU slow each other down (M1); a gang runs at the speed of its slowest GPU. A waiting job that cannot
    start is skipped. Jobs of one class, utilization and memory share a queue, so both should have few distinct values.
    """

    key: Key
    """A function like those of `replay.keys` that grows with the run time among jobs of one size."""
    utilization_ppm: NDArray[np.int64]
    """GPU utilization of each job (n,) [ppm]."""
    memory_ppm: NDArray[np.int64]
    """Memory of each job on each of its GPUs, by number of sub-batches (S, n), or (n,) [ppm of the GPU's memory]."""
    speeds_ppm: tuple[int, ...] = (1_000_000,)
    """Speed by number of sub-batches (S,), starting with the undivided batch [ppm]."""
    strength_ppm: int = 500_000
    """Coefficient c of M1 [ppm]; -1 for the rule 'sum' (D5)."""
    residents: int = 2
    """Largest number of jobs per GPU; their memory must fit into the GPU. 1 shares nothing."""
    test: bool = True
    """Whether a job shares only if this gives a lower mean end time of both jobs than waiting; then at most two
    share."""
    consolidate: bool = False
    """Whether to try a single node, the one with the tightest fit, before GPUs of the nodes with the fewest jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which jobs share GPUs."""
        return prepared_by("sharing.residents", self, setting)
