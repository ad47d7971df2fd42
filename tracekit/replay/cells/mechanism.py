"""Virtual clusters of private cells: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.cells.private import PrivateCells
    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Run, Setting


@dataclass(frozen=True)
class Cells:
    """Virtual clusters (VCs) with private cells, placed in buddy blocks; other jobs use idle GPUs and make way."""

    order: Ordered
    """The order within a VC and among the other jobs, with `by_tenant`. Its key must not depend on anything that
    changes during a run, and it must not relax."""
    cells: PrivateCells
    """What each VC owns."""
    tenant: NDArray[np.int32]
    """Domain of `cells.cluster` for each job that is placed there or rejected; the number of domains for other jobs
    (n,)."""

    @property
    def guaranteed(self) -> NDArray[np.bool_]:
        """Jobs that are placed in cells of their VC (n,)."""
        found: NDArray[np.bool_] = self.tenant < len(self.cells.cluster.domains)
        return found

    def prepare(self, setting: Setting) -> Run:
        """Return a run with private cells."""
        return prepared_by("cells.layout", self, setting)
