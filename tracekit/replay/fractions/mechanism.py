"""Jobs that share GPUs in thousandths: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tracekit.replay.engine.setting import Run
from tracekit.replay.keys import engine_key

if TYPE_CHECKING:
    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Setting

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
        from tracekit.replay import kernel
        from tracekit.replay.engine.build import build, open_nodes
        from tracekit.replay.fractions.build import divide

        whole = build(setting, replace(self.order, fit="count"), rule=setting.rule, kind="Fractional")
        open_nodes(whole, setting.cluster)
        state, nodes, gangs = divide(whole, setting.jobs, setting.cluster, setting.assignment, self)
        arrays = kernel.State(state), kernel.Fractions(nodes), kernel.Gangs(gangs)
        return Run(state, partial(kernel.run_fractional, *arrays, engine_key(self.order.key)), unit=1)
