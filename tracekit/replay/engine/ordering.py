"""Policies that put jobs into an order, with or without eviction (see ordered.pxi)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tracekit.replay import kernel
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.setting import Run
from tracekit.replay.keys import engine_key

if TYPE_CHECKING:
    from tracekit.replay.engine.setting import Setting
    from tracekit.replay.mechanisms import Ordered

__all__ = ["prepare"]


def prepare(order: Ordered, setting: Setting) -> Run:
    """Return a run of jobs in an order."""
    state = build(setting, order)
    arrays = open_nodes(state, setting.cluster)
    return Run(state, partial(kernel.run_ordered, arrays, engine_key(order.key), order.preemptive))
