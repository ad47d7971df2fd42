"""Jobs that share GPUs in thousandths: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Run, Setting


@dataclass(frozen=True)
class Fractional:
    """Jobs share GPUs in thousandths and also request CPU and memory; a rule scores the nodes (`fractions.supply`).

    A job goes to one node if an empty node could hold it. Otherwise it is split into parts as large as an empty node
    can hold, and one part for the remainder. CPU and memory are split in proportion, and each part runs on its own
    node.
    """

    order: Ordered
    """The order of the jobs; it must not evict, have levels or relax. Its key gets milli-GPUs and milli-GPU * ms
    instead of GPUs and GPU * ms."""
    rule: str
    """A name of `fractions.RULES`."""
    popularity: float = 0.95
    """Share of the jobs whose shapes form the expected workload (see `tasks.expected_workload`)."""
    seed: int = 0
    """Seed of the rule 'random'."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which jobs share GPUs in thousandths (see fractional.pxi)."""
        return prepared_by("fractions.build", self, setting)
