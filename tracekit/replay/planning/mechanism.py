"""Planners: policies that consider all jobs at once. What a planner decides, and how a run asks for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np

from tracekit.errors import TracekitError, UsageError
from tracekit.replay.engine.build import build, open_nodes, unused_allocations
from tracekit.replay.engine.ordered import Ordered
from tracekit.replay.engine.run import Run
from tracekit.replay.engine.state import NONE, struct_dtype
from tracekit.replay.keys import by_arrival, engine_key
from tracekit.replay.native import compiled
from tracekit.replay.outcome import PowerUse
from tracekit.replay.planning.plan_reader import HINT, PlanReader
from tracekit.replay.planning.view import View
from tracekit.replay.results.energy import KWH_MW_MS, idle_energy_kwh

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.run import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.results.energy import PowerDraw


@dataclass(frozen=True)
class Plan:
    """What a planner wants: GPUs for jobs. A running job that is not named loses its GPUs, unless `keep` is set.

    Jobs are placed in the given order; a job that finds no place waits. Requesting more GPUs than a domain has is an
    error.
    """

    job: NDArray[np.int64]
    """Indices into the arrays of `Jobs`, each at most once (k,)."""
    gpus: NDArray[np.int64]
    """GPUs for each job; 0 is the same as not naming the job (k,)."""
    rate: NDArray[np.int64] | None = None
    """Speed of each job with these GPUs [ppm of the recorded speed], before spread and GPU model; None is full speed
    (k,)."""
    group: NDArray[np.int64] | None = None
    """Group of nodes for each job, -1 for any (k,)."""
    model: NDArray[np.int64] | None = None
    """GPU model for each job, index into `Cluster.models`, -1 for any model that it accepts (k,)."""
    keep: bool = False
    """Whether running jobs that are not named keep their GPUs and speed."""
    optional: int = 0
    """Number of jobs at the end of the list that may exceed the available GPUs: each starts only if there is room."""
    wake_ms: int = -1
    """When to ask again even if nothing happens [ms]; -1 for never."""
    lost_ms: NDArray[np.int64] | None = None
    """Run time since its last checkpoint that each job must redo if it is stopped or moved, in addition to the cost of
    stopping or moving [ms]; None is 0 (k,)."""
    place: NDArray[np.int64] | None = None
    """Named nodes: rows (place in `job`, node, GPUs there), for some or all jobs (r, 3). Such a job is placed before
    the others, exactly there, or continues if it runs there. If jobs share GPUs, a fourth number may give the index of
    the first GPU in the node, or -1 for GPUs without any job (r, 4)."""
    beside: NDArray[np.int64] | None = None
    """For sharing: the job, named before it or kept, whose GPUs each job shares (k,). A job beside itself shares its
    GPUs only with jobs beside it. -1 leaves a running job where it is, and gives other jobs GPUs without any job. A job
    whose `beside` waits also waits; a job whose `beside` ends keeps the GPUs."""
    clock: NDArray[np.int64] | None = None
    """Clock of each job's GPUs [ppm of the full clock]; None is full clock (k,). It requires a Planner with `clocks`
    and affects only the energy; its effect on the speed must be part of `rate`."""
    exchange: NDArray[np.int64] | None = None
    """Nodes whose future changes are exchanged: rows (node, other), both available and with the same group and GPUs
    (r, 2). This lets a plan choose which nodes leave when the cluster sets only how many."""


@dataclass(frozen=True)
class ClockPower:
    """Power of GPUs as a function of their clock (M7)."""

    draw: PowerDraw
    """Power at full clock."""
    s0: float
    """Share of the peak power that does not fall with the clock [0..1]."""
    cap_mw: int = -1
    """Power cap that the plans aim to keep, idle GPUs included [mW]; -1 if none."""

    def drawn(self, clock: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of `draw.busy` that is used at the given clocks [0..1]."""
        return np.asarray(self.s0 + (1 - self.s0) * clock**3)


@dataclass(frozen=True)
class Planner:
    """A policy that considers all jobs at once and decides how many GPUs each should have."""

    plan: Callable[[View], Plan]
    """Called after every event, or in rounds."""
    begin: Callable[[View], None] | None = None
    """Called before the first plan of every run, to forget the previous run: a planner may run more than once."""
    round_ms: int = 0
    """Make plans only at multiples of this time, if something has happened since the last plan [ms]; 0: at every
    event."""
    gap_ms: int = 0
    """Minimum time between two plans that events request [ms]."""
    any_model: bool = False
    """Whether `Plan.model` may name a GPU model other than the one that a job requests."""
    fit: Literal["place", "count"] = "place"
    """'place' if gangs need GPUs on specific nodes, 'count' if they only need enough free GPUs."""
    scope: Literal[0, 1, 2] = 2
    """How far a gang may spread: 0 the fewest nodes, 1 any nodes of a group, 2 all nodes of a model."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost of each preemption and migration by number of GPUs; the last entry covers larger gangs [ms]; None is 0."""
    resize_ms: int = 0
    """Cost of a change in the number of GPUs [ms]."""
    estimate_ms: NDArray[np.int64] | None = None
    """Expected run times (n,) [ms]; None means the actual ones."""
    names_nodes: bool = False
    """Whether `Plan.place` may name nodes."""
    share: int = 1
    """Number of jobs that a GPU may have, set by `Plan.beside` or `Plan.place`. The plan sets their speeds."""
    wide: bool = False
    """Whether to accept jobs that fit only if spread as far as `scope` allows; if not, jobs must fit on the fewest
    nodes."""
    spread: bool = True
    """Whether the engine slows gangs on more nodes than they need (M4); if not, the plan's rates include this
    effect."""

    clocks: ClockPower | None = None
    """Power of GPUs by clock. If given, plans may set clocks, and the energy is computed from them."""
    tell: Callable[[Outcome], Outcome] | None = None
    """Adds what only this policy reports to the outcome."""

    def __post_init__(self) -> None:
        if self.share < 1:
            raise ValueError(f"{self.share} jobs on a GPU")
        if self.clocks is not None and self.share > 1:
            raise ValueError("jobs that share a GPU cannot have separate clocks")
        if self.fit == "count" and (self.names_nodes or self.share > 1):
            raise ValueError("with fit=count a plan cannot name nodes or share GPUs")

    takes_outages: ClassVar[bool] = True
    """Whether a node failure may stop running jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run controlled by a planner.

        Raises, when run
        ----------------
        UsageError
            The planner fails, or its plan is invalid: it names a job twice, or one that is neither waiting nor
            running; requests more GPUs than exist, an unknown group of nodes or GPU model, or an invalid speed; names
            nodes that are not free; puts a job next to one that is not running; or exchanges nodes that differ.
        """
        state = _state(self, setting)
        arrays = open_nodes(state, setting.cluster)
        book = None if self.clocks is None else ClockBook(self.clocks, state, setting.cluster, setting.name)

        def complete(outcome: Outcome) -> Outcome:
            outcome = outcome if book is None else book.complete(outcome)
            return outcome if self.tell is None else self.tell(outcome)

        return Run(state, _steps(self, state, arrays, setting, book), complete)


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
        running = rows["status"][job] == compiled.RUNNING
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
        reason = compiled.next_plan(arrays, key, planner.round_ms, planner.gap_ms, left)
        while reason == compiled.ASK and left > 0:
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
                    wrong = compiled.apply_plan(arrays, key, compiled.PlanArrays(read), named, stopped)
                    if wrong:
                        raise reader.fault(wrong, read)
                exchange_changes(state, plan.exchange, name)
                idle = 0 if g["running"] or g["submitted"] < n else idle + 1
                if idle >= _IDLE_PLANS:
                    return False
                g["wake"] = max(int(plan.wake_ms), view.now_ms + 1) if plan.wake_ms >= 0 else -1
            if book is not None:
                book.look()
            reason = compiled.next_plan(arrays, key, planner.round_ms, planner.gap_ms, left)
        return bool(reason != compiled.OVER)

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
