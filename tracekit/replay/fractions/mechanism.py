"""Jobs that share GPUs in thousandths: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Run, Setting

__all__ = ["Fractional"]


@dataclass(frozen=True)
class Fractional:
    """Jobs share GPUs in thousandths, and ask for CPU and memory too; a rule scores the nodes (`fractions.supply`).

    A job goes to one node if an empty one could hold it. Otherwise it is cut into parts as large as an empty node can
    hold and one for what is left over, with CPU and memory in proportion, each on a node of its own.
    """

    order: Ordered
    """The order of the jobs; it does not evict, has no levels and does not relax. Its key gets milli-GPUs and
    milli-GPU * ms in place of GPUs and GPU * ms."""
    rule: str
    """A name of `fractions.RULES`."""
    popularity: float = 0.95
    """Share of the jobs whose shapes are the expected workload (see `tasks.expected_workload`)."""
    seed: int = 0
    """Of the rule 'random'."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which jobs share GPUs in thousandths (see fractional.pxi)."""
        return prepared_by("fractions.build", self, setting)
