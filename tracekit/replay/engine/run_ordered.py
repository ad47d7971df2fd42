"""Prepare a run of jobs in one order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.replay import kernel
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.setting import Run
from tracekit.replay.keys import engine_key

if TYPE_CHECKING:
    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Setting


def prepare(mechanism: Ordered, setting: Setting) -> Run:
    """Return a run of jobs in the order of a mechanism (see ordered.pxi)."""
    state = build(setting, mechanism)
    arrays = open_nodes(state, setting.cluster)
    return Run(state, partial(kernel.run_ordered, arrays, engine_key(mechanism.key), mechanism.preemptive))
