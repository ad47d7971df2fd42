"""Run a planner: ask for plans, and carry them out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import TracekitError, UsageError
from tracekit.replay import kernel
from tracekit.replay.engine.build import build, open_nodes, unused_allocations
from tracekit.replay.engine.ordered import Ordered
from tracekit.replay.engine.setting import Run
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import ASK, NONE, OVER
from tracekit.replay.keys import by_arrival, engine_key
from tracekit.replay.planning.clocks import ClockBook
from tracekit.replay.planning.exchange import exchange_changes
from tracekit.replay.planning.plan import Plan
from tracekit.replay.planning.plan_reader import HINT, PlanReader
from tracekit.replay.planning.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.engine.setting import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.planning.mechanism import Planner

__all__ = ["prepare"]

_IDLE_PLANS = 1000
"""Plans in a row that start nothing, with nothing running and nothing to come, after which the rest waits for ever."""
_PLANS = 1000
"""Plans between two looks at the world outside."""


def prepare(planner: Planner, setting: Setting) -> Run:
    """Return a run under a planner.

    Raises, when run
    ----------------
    UsageError
        The planner fails, or its plan names a job twice, or one that neither waits nor runs, or asks for more GPUs than
        there are, for a group of nodes or a GPU model that is not there, or for a speed that is no speed; names nodes
        that are not free; or puts a job beside one that does not run; or exchanges nodes that are not alike.
    """
    state = _state(planner, setting)
    arrays = open_nodes(state, setting.cluster)
    book = None if planner.clocks is None else ClockBook(planner.clocks, state, setting.cluster, setting.name)

    def complete(outcome: Outcome) -> Outcome:
        outcome = outcome if book is None else book.complete(outcome)
        return outcome if planner.tell is None else planner.tell(outcome)

    return Run(state, _steps(planner, state, arrays, setting, book), complete)


def _steps(
    planner: Planner, state: EngineState, arrays: Any, setting: Setting, book: ClockBook | None
) -> Callable[[int], bool]:
    """Return what runs a planner for at most so many instants and plans, and says whether more are to come."""
    g, key, name = state.g[0], engine_key(by_arrival), setting.name
    n = len(state.jobs)
    view = View(state, arrays)
    reader = PlanReader(state, planner, name, setting.jobs.job_id, setting.cluster.node_id)
    named, stopped = np.zeros(n, np.int64), np.zeros(len(state.events), np.int64)
    idle = 0

    def step(instants: int) -> bool:
        nonlocal idle
        left = min(instants, _PLANS)
        reason = kernel.next_plan(arrays, key, planner.round_ms, planner.gap_ms, left)
        while reason == ASK and left > 0:
            left -= 1
            if g["running"] or g["pending"]:
                view.renew()
                plan = _ask(planner, view, name)
                if plan.clock is not None and book is None:
                    raise UsageError(f"the policy {name} gave clocks, which needs a Planner with clocks", hint=HINT)
                # Nothing to do costs nothing: most plans of a planner that names only what changes are empty.
                if not plan.keep or np.size(plan.job) or plan.optional:
                    read = reader.read(plan)
                    if book is not None:
                        book.begin(plan)
                    wrong = kernel.apply_plan(arrays, key, kernel.PlanArrays(read), named, stopped)
                    if wrong:
                        raise reader.fault(wrong, read)
                exchange_changes(state, plan.exchange, name)
                idle = 0 if g["running"] or g["submitted"] < n else idle + 1
                if idle >= _IDLE_PLANS:
                    return False
                g["wake"] = max(int(plan.wake_ms), view.now_ms + 1) if plan.wake_ms >= 0 else -1
            if book is not None:
                book.look()
            reason = kernel.next_plan(arrays, key, planner.round_ms, planner.gap_ms, left)
        return bool(reason != OVER)

    return step


def _state(planner: Planner, setting: Setting) -> EngineState:
    """Return the state of a planner: nothing is queued, and several jobs may share a GPU."""
    # A gang that may be spread has a place wherever a relaxed one has.
    order = Ordered(
        by_arrival,
        fit=planner.fit,
        overhead_ms=planner.overhead_ms,
        estimate_ms=planner.estimate_ms,
        scopes=(planner.scope,) if planner.wide else (),
    )
    state = build(setting if planner.spread else replace(setting, spread=None), order, kind="Planner")
    n, share = len(state.jobs), planner.share
    state.g["planned"], state.g["scope"], state.g["asked"] = 1, planner.scope, NONE
    # The last job class is where a plan's wish is written before it is placed.
    wish = np.zeros(1, state.job_classes.dtype)
    state = state._replace(active=np.zeros(n, np.int32), job_classes=np.concatenate([state.job_classes, wish]))
    if share == 1:
        return state
    gpus = state.nodes["gpus"]
    total = int(gpus.sum())
    state.g["seats"] = 1
    state.nodes["seat"] = np.cumsum(gpus) - gpus
    # Twice the seats: a job that moves keeps its old allocation until it has the new one.
    allocations = unused_allocations(total + 2 * total * share + 1)
    state.g["unused_allocation"] = total
    return state._replace(allocations=allocations, events=np.zeros(min(n, total * share), struct_dtype("Entry")))


def _ask(planner: Planner, view: View, name: str) -> Plan:
    try:
        plan = planner.plan(view)
    except TracekitError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UsageError(f"the policy {name} failed at {view.now_ms / 1000:g} s: {reason}", hint=HINT) from error
    if not isinstance(plan, Plan):
        raise UsageError(f"the policy {name} returned {type(plan).__name__} at {view.now_ms / 1000:g} s, not a Plan")
    return plan
