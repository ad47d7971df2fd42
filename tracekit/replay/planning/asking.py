"""Run a planner: ask for plans, and carry them out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tracekit.errors import TracekitError, UsageError
from tracekit.replay import kernel
from tracekit.replay.engine.build import build, open_nodes, unused_allocations
from tracekit.replay.engine.ordered import Ordered
from tracekit.replay.engine.setting import Run
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import ASK, NONE, OVER, RUNNING
from tracekit.replay.keys import by_arrival, engine_key
from tracekit.replay.outcome import PowerUse
from tracekit.replay.planning.plan import Plan
from tracekit.replay.planning.plan_reader import HINT, PlanReader
from tracekit.replay.planning.view import View
from tracekit.replay.results.energy import KWH_MW_MS, idle_energy_kwh

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.setting import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.planning.mechanism import ClockPower, Planner


# Clocks that plans set for jobs: the energy at these clocks, and the power over time.

_FULL = 1_000_000


class ClockBook:
    """The clock of each job of one run, and the energy that its GPUs have used beyond their idle power."""

    def __init__(self, power: ClockPower, state: EngineState, cluster: Cluster, name: str) -> None:
        n = len(state.jobs)
        self.power, self.state, self.cluster, self.name = power, state, cluster, name
        self.on_top = (power.draw.busy - power.draw.rest).astype(np.float64)
        """Power of a GPU of each job beyond its idle power at its clock [mW] (n,)."""
        self.clock: NDArray[np.int64] = np.full(n, _FULL)
        """Clock of each job [ppm] (n,)."""
        self.since: NDArray[np.int64] = np.zeros(n, np.int64)
        """Service of each job when its clock was last set [GPU*ms] (n,)."""
        self.drawn_mw_ms = 0.0
        """Energy beyond the idle power, up to the last time clocks were set."""
        self.now_ms = self.level_mw = self.peak_mw = self.over_ms = self.slowed_ms = self.changes = 0
        self.slowed = False
        self.mean_mw = float(power.draw.idle.sum()) / max(cluster.total_gpus, 1)
        self.look()

    def begin(self, plan: Plan) -> None:
        """Set the clocks of a plan that is about to be carried out.

        Raises
        ------
        UsageError
            A clock is invalid, or the number of clocks differs from the number of jobs.
        """
        job = np.asarray(plan.job, np.int64)
        clock = np.full(len(job), _FULL) if plan.clock is None else np.asarray(plan.clock)
        if clock.shape != job.shape or (clock.dtype.kind not in "iu" and len(clock)):
            raise UsageError(
                f"the policy {self.name} made a plan whose clocks are not a list of whole numbers", hint=HINT
            )
        wrong = np.flatnonzero((clock <= 0) | (clock > _FULL))
        if len(wrong):
            raise UsageError(f"the policy {self.name} gave a clock of {clock[wrong[0]]} ppm", hint=HINT)
        changed = self.clock[job] != clock
        job, clock = job[changed], clock[changed].astype(np.int64)
        rows = self.state.jobs
        running = rows["status"][job] == RUNNING
        # Work since the engine last settled the job.
        elapsed = int(self.state.g["now"][0]) - rows["since"][job]
        served = rows["attained"][job] + np.where(running, elapsed * rows["gpus"][job], 0)
        self.drawn_mw_ms += float(((served - self.since[job]) * self.on_top[job]).sum())
        self.since[job], self.clock[job] = served, clock
        draw = self.power.draw
        self.on_top[job] = draw.busy[job] * self.power.drawn(clock / _FULL) - draw.rest[job]
        self.changes += int(running.sum())

    def look(self) -> None:
        """Record the time since the last call at the power that applied, and compute the current power."""
        g, nodes = self.state.g[0], self.state.nodes
        self._pass_time(int(g["now"]))
        job = self.state.events["job"][: int(g["event_size"])]
        there = int((nodes["gpus"] * nodes["up"]).sum())
        # GPUs in use on nodes that have left use the cluster's mean power.
        left = max(int(g["busy"]) + int(g["free"]) - there, 0) * self.mean_mw
        idle = float((self.power.draw.idle * nodes["up"]).sum()) + left
        self.level_mw = round(idle + float((self.state.jobs["gpus"][job] * self.on_top[job]).sum()))
        self.slowed = bool((self.clock[job] < _FULL).any())

    def _pass_time(self, now_ms: int) -> None:
        elapsed = now_ms - self.now_ms
        if elapsed > 0:
            self.now_ms = now_ms
            self.peak_mw = max(self.peak_mw, self.level_mw)
            self.slowed_ms += elapsed * self.slowed
            self.over_ms += elapsed * (self.power.cap_mw >= 0 and self.level_mw > self.power.cap_mw)

    def complete(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the energy, and with the power used if the plans keep to a cap."""
        self._pass_time(outcome.makespan_ms)
        served = outcome.held_milli_ms // 1000
        on_top = self.drawn_mw_ms + float(((served - self.since) * self.on_top).sum())
        energy = idle_energy_kwh(self.power.draw.idle, self.cluster, outcome) + on_top / KWH_MW_MS
        if self.power.cap_mw < 0:
            return replace(outcome, energy_kwh=energy)
        use = PowerUse(self.peak_mw / 1000, self.over_ms, self.slowed_ms, self.changes)
        return replace(outcome, energy_kwh=energy, power=use)


# Exchange the future changes of nodes: the cluster sets how many of several identical nodes leave, a plan sets which.


def exchange_changes(state: EngineState, pairs: Any, name: str) -> None:
    """Exchange the future changes of the two nodes of each pair.

    Parameters
    ----------
    state : EngineState
        Its changes are modified.
    pairs : array, optional
        Rows (node, other), carried out one after the other (r, 2); None for none.
    name : str
        Name of the policy.

    Raises
    ------
    UsageError
        A pair is not two available nodes of the same group with the same number of GPUs.
    """
    if pairs is None:
        return
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or (rows.dtype.kind not in "iu" and len(rows)):
        raise UsageError(f"the policy {name} exchanged nodes, but not in rows of two whole numbers", hint=HINT)
    to_come = state.changes["node"][int(state.g["change"][0]) :]
    nodes = state.nodes
    for one, other in rows.tolist():
        if not (0 <= one < len(nodes) and 0 <= other < len(nodes)):
            raise UsageError(f"the policy {name} exchanged nodes {one} and {other} of {len(nodes)}", hint=HINT)
        alike = all(nodes[column][one] == nodes[column][other] for column in ("group", "gpus"))
        if not (alike and nodes["up"][one] and nodes["up"][other]):
            raise UsageError(
                f"the policy {name} exchanged nodes {one} and {other}, which must both be available and identical",
                hint=HINT,
            )
        mine, theirs = to_come == one, to_come == other
        to_come[mine], to_come[theirs] = other, one


_Result = TypeVar("_Result")
_IDLE_PLANS = 1000
"""Number of plans in a row that start nothing, with nothing running or pending, before the remaining jobs wait
forever."""
_PLANS = 1000
"""Number of plans between checks for progress updates and interrupts."""


def prepare(planner: Planner, setting: Setting) -> Run:
    """Return a run controlled by a planner.

    Raises, when run
    ----------------
    UsageError
        The planner fails, or its plan is invalid: it names a job twice, or one that is neither waiting nor running;
        requests more GPUs than exist, an unknown group of nodes or GPU model, or an invalid speed; names nodes that are
        not free; puts a job next to one that is not running; or exchanges nodes that differ.
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
    """Return a function that runs at most so many instants and plans, and returns whether more are left."""
    g, key, name = state.g[0], engine_key(by_arrival), setting.name
    n = len(state.jobs)
    view = _view(planner, state, arrays, name)
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
                # Skip empty plans: most plans of a planner that names only what changes are empty.
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
    """Return the state for a planner: nothing is queued, and several jobs may share a GPU."""
    # A gang that may be spread fits wherever a relaxed one fits.
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
    # The last job class holds a plan's request before the job is placed.
    wish = np.zeros(1, state.job_classes.dtype)
    state = state._replace(active=np.zeros(n, np.int32), job_classes=np.concatenate([state.job_classes, wish]))
    if share == 1:
        return state
    gpus = state.nodes["gpus"]
    total = int(gpus.sum())
    state.g["seats"] = 1
    state.nodes["seat"] = np.cumsum(gpus) - gpus
    # Twice the seats: a moving job keeps its old allocation until it has the new one.
    allocations = unused_allocations(total + 2 * total * share + 1)
    state.g["unused_allocation"] = total
    return state._replace(allocations=allocations, events=np.zeros(min(n, total * share), struct_dtype("Entry")))


def _view(planner: Planner, state: EngineState, arrays: Any, name: str) -> View:
    """Return the planner's view of a run, after the planner began the run."""
    view = View(state, arrays)
    if planner.begin is not None:
        _called(planner.begin, view, name)
    return view


def _called(function: Callable[[View], _Result], view: View, name: str) -> _Result:
    try:
        return function(view)
    except TracekitError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UsageError(f"the policy {name} failed at {view.now_ms / 1000:g} s: {reason}", hint=HINT) from error


def _ask(planner: Planner, view: View, name: str) -> Plan:
    plan = _called(planner.plan, view, name)
    if not isinstance(plan, Plan):
        raise UsageError(f"the policy {name} returned {type(plan).__name__} at {view.now_ms / 1000:g} s, not a Plan")
    return plan
