"""The scheduling pass where jobs share GPUs in thousandths (see supply.pxi and rules.pxi).

Everything is counted in milli-GPUs. Jobs of one demand wait in one queue, or all of a domain where the first that
cannot start stops the pass. A job that did not fit is looked at again only when a node on which something ended, or
that joined, could hold it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tracekit.replay import kernel
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.setting import Run
from tracekit.replay.fractions.build import divide
from tracekit.replay.keys import engine_key

if TYPE_CHECKING:
    from tracekit.replay.engine.setting import Setting
    from tracekit.replay.mechanisms import Fractional

__all__ = ["prepare"]


def prepare(mechanism: Fractional, setting: Setting) -> Run:
    """Return a run in which jobs share GPUs in thousandths."""
    whole = build(setting, replace(mechanism.order, fit="count"), rule=setting.rule, kind="Fractional")
    open_nodes(whole, setting.cluster)
    state, nodes, gangs = divide(whole, setting.jobs, setting.cluster, setting.assignment, mechanism)
    step = partial(
        kernel.run_fractional,
        kernel.State(state),
        kernel.Fractions(nodes),
        kernel.Gangs(gangs),
        engine_key(mechanism.order.key),
    )
    return Run(state, step, unit=1)
