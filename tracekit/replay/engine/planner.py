"""Ask a planner and carry out what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import TracekitError, UsageError
from tracekit.replay.engine.carried import apply_plan
from tracekit.replay.engine.plan_columns import HINT, Reader
from tracekit.replay.engine.planned import ASK, OVER, gather, next_plan, settle_running
from tracekit.replay.engine.view import View
from tracekit.replay.mechanisms import Plan, by_arrival

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import State
    from tracekit.replay.mechanisms import Planner

__all__ = ["planner_steps"]

_IDLE_PLANS = 1000
"""Plans in a row that start nothing, with nothing running and nothing to come, after which the rest waits for ever."""
_PLANS = 1000
"""Plans between two looks at the world outside."""


def planner_steps(
    state: State, planner: Planner, name: str, job_id: pl.Series, node_id: list[str]
) -> Callable[[int], bool]:
    """Return what runs a planner for at most so many instants and plans, and tells whether more are to come.

    Raises, when run
    ----------------
    UsageError
        The planner fails, or its plan names a job twice, or one that neither waits nor runs, or asks for more GPUs than
        there are, for a group of nodes or a GPU model that is not there, or for a speed that is no speed; names nodes
        that are not free; or puts a job beside one that does not run.
    """
    g = state.g[0]
    n = len(state.jobs)
    wanted, stopped = np.zeros(n, np.int64), np.zeros(len(state.events), np.int64)
    view = View(state, gather, settle_running)
    reader = Reader(state, planner, name, job_id, node_id)
    idle = 0
    # Nothing waits yet: these change nothing, but are compiled before the clock of the run starts.
    view.renew()
    nobody, _ = view.job, view.table
    _apply(reader, Plan(nobody, nobody, keep=True), wanted, stopped)

    def step(instants: int) -> bool:
        nonlocal idle
        left = min(instants, _PLANS)
        reason = next_plan(state, by_arrival, planner.round_ms, planner.gap_ms, left)
        while reason == ASK and left > 0:
            left -= 1
            if g["running"] or g["pending"]:
                view.renew()
                plan = _ask(planner, view, name)
                _apply(reader, plan, wanted, stopped)
                idle = 0 if g["running"] or g["submitted"] < n else idle + 1
                if idle >= _IDLE_PLANS:
                    return False
                g["wake"] = max(int(plan.wake_ms), view.now_ms + 1) if plan.wake_ms >= 0 else -1
            reason = next_plan(state, by_arrival, planner.round_ms, planner.gap_ms, left)
        return reason != OVER

    return step


def _ask(planner: Planner, view: View, name: str) -> Plan:
    try:
        plan = planner.plan(view)
    except TracekitError:
        raise
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UsageError(f"the policy {name} failed at {view.now_ms / 1000:g} s: {told}", hint=HINT) from error
    if not isinstance(plan, Plan):
        raise UsageError(f"the policy {name} returned {type(plan).__name__} at {view.now_ms / 1000:g} s, not a Plan")
    return plan


def _apply(reader: Reader, plan: Plan, wanted: NDArray[np.int64], stopped: NDArray[np.int64]) -> None:
    planner, arrays = reader.planner, reader.read(plan)
    wrong = apply_plan(
        reader.state,
        by_arrival,
        *arrays,
        planner.share,
        bool(plan.keep),
        planner.any_model,
        planner.resize_ms,
        wanted,
        stopped,
    )
    if wrong:
        raise reader.fault(wrong, arrays)
