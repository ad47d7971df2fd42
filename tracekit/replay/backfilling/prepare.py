"""Make a run with backfilling ready."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.replay.backfilling.conservative import conservative_steps
from tracekit.replay.backfilling.easy import easy_steps
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.setting import Run
from tracekit.replay.kernel import NONE

if TYPE_CHECKING:
    from tracekit.replay.engine.setting import Setting
    from tracekit.replay.mechanisms import Backfill

__all__ = ["prepare"]


def prepare(mechanism: Backfill, setting: Setting) -> Run:
    """Return a run in which later jobs may go ahead."""
    order = replace(mechanism.order, scan="skip", by_arrival=False, drift="none")
    state = build(setting, order, kind="Backfill")
    # The pass wants to hear of jobs that ended or relaxed, and what the ended held.
    state.g["tenants"], state.g["ended"], state.g["rung"], state.g["keeps"] = 1, NONE, NONE, 1
    # Conservative backfilling finds jobs in its waitlist; queues only count them, which rings do at less cost.
    state.g["ring"] = mechanism.kind == "conservative"
    arrays = open_nodes(state, setting.cluster)
    steps = easy_steps if mechanism.kind == "easy" else conservative_steps
    return Run(state, steps(state, arrays, mechanism))
