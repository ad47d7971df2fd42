"""Run one policy's mechanism over jobs and a cluster."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay.backfilling.conservative import conservative_steps
from tracekit.replay.backfilling.easy import easy_steps
from tracekit.replay.cells.layout import columns_of_cells, open_cells
from tracekit.replay.cells.scheduling import run_cells
from tracekit.replay.engine.build import build
from tracekit.replay.engine.compiled import compiled, compiling
from tracekit.replay.engine.entrances import choosing
from tracekit.replay.engine.nodes import node_joins
from tracekit.replay.engine.ordered import run_ordered
from tracekit.replay.engine.planner import planner_steps
from tracekit.replay.engine.power import cap_of, meter, run_capped, with_energy
from tracekit.replay.engine.recorded import recorded_steps
from tracekit.replay.engine.state import DONE, FUTURE, State
from tracekit.replay.fractions.build import divide
from tracekit.replay.fractions.fractional import fractional_steps
from tracekit.replay.mechanisms import Backfill, Cells, Fractional, Planner, Recorded, Sharing, Tenants
from tracekit.replay.outcome import Outcome, Timeline
from tracekit.replay.quotas.tenancy import columns_of, open_books
from tracekit.replay.quotas.tenants import run_tenants
from tracekit.replay.sharing.residents import residents
from tracekit.replay.sharing.shared import run_shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.cluster import Cluster
    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism

__all__ = ["simulate"]

_INSTANTS = 100_000
"""Instants between two looks at the world outside: progress and interruptions."""
_FEW_INSTANTS = 1_000
"""The same where the run may be interpreted, for which there is a limit of time."""


def simulate(
    jobs: Jobs,
    cluster: Cluster,
    assignment: Assignment,
    mechanism: Mechanism,
    *,
    name: str = "policy",
    rule: str = "consolidate",
    spread: NDArray[np.int32] | None = None,
    log: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Replay the jobs and return their schedule.

    Parameters
    ----------
    jobs, cluster, assignment
        What runs, where, and which nodes each job accepts.
    mechanism : Ordered or Planner
        The policy's rule.
    name : str
        Of the policy, for errors.
    rule : str
        A placement of `placement.RULES`.
    spread : array, optional
        Speed of a spread gang (see `build`).
    log : bool
        Keep the event log.
    progress : callable, optional
        Told now and then how many jobs have been submitted.

    Raises
    ------
    UsageError
        A planner asked for what cannot be.
    """
    with choosing(len(jobs)) as small:
        instants = _FEW_INSTANTS if small else _INSTANTS
        return _simulate(jobs, cluster, assignment, mechanism, name, rule, spread, instants, log=log, progress=progress)


def _simulate(
    jobs: Jobs,
    cluster: Cluster,
    assignment: Assignment,
    mechanism: Mechanism,
    name: str,
    rule: str,
    spread: NDArray[np.int32] | None,
    instants: int,
    *,
    log: bool,
    progress: Callable[[int], None] | None,
) -> Outcome:
    rows = 16 * len(jobs) + 1024 if log else 0
    while True:
        with compiling():
            state = build(jobs, cluster, assignment, mechanism, rule=rule, spread=spread, log_rows=rows)
            run = _prepare(state, jobs, cluster, assignment, mechanism, name)
            run.step(0)
        begun = time.perf_counter()
        while run.step(instants):
            if progress is not None:
                progress(int(run.state.g["submitted"][0]))
        wall = time.perf_counter() - begun
        written = int(run.state.g["log_size"][0])
        if written <= rows:
            outcome = _outcome(run.state, wall, log=log, unit=1 if isinstance(mechanism, Fractional) else 1000)
            return run.complete(outcome)
        # The run is deterministic: the same again, with room for what it wants to tell.
        rows = written


class _Run(NamedTuple):
    """A run before its first instant."""

    state: State
    step: Callable[[int], bool]
    """Runs at most so many instants and tells whether more are to come; with 0 it only compiles."""
    complete: Callable[[Outcome], Outcome]
    """Adds to the outcome what only this mechanism knows."""


def _as_it_is(outcome: Outcome) -> Outcome:
    return outcome


def _prepare(
    state: State, jobs: Jobs, cluster: Cluster, assignment: Assignment, mechanism: Mechanism, name: str
) -> _Run:
    """Make a mechanism ready: one branch for each kind, each in a module of its own."""
    books = None
    complete = _as_it_is
    if isinstance(mechanism, Tenants):
        state, books = open_books(state, jobs, cluster, assignment, mechanism)
        complete = partial(_with_columns, columns=partial(columns_of, state, books))
    _open(state, cluster.absent)
    cap = cap_of(mechanism, name)
    step: Callable[[int], bool]
    if isinstance(mechanism, Tenants):
        victims = None if mechanism.reclaim == "never" else state.scratch
        step = partial(run_tenants, state, books, mechanism.order.key, victims)
    elif isinstance(mechanism, Fractional):
        step = fractional_steps(*divide(state, jobs, cluster, assignment, mechanism), mechanism)
    elif isinstance(mechanism, Cells):
        inside, apart, hosts = open_cells(state, jobs, cluster, mechanism)
        _open(inside, mechanism.cells.cluster.absent)
        step = partial(run_cells, state, inside, apart, hosts, mechanism.order.key)
        complete = partial(_with_columns, columns=partial(columns_of_cells, mechanism))
    elif isinstance(mechanism, Planner):
        step = planner_steps(state, mechanism, name, jobs.job_id, cluster.node_id)
    elif isinstance(mechanism, Recorded):
        step = recorded_steps(state, mechanism)
    elif isinstance(mechanism, Backfill):
        step = (easy_steps if mechanism.kind == "easy" else conservative_steps)(state, mechanism)
    elif isinstance(mechanism, Sharing):
        step = partial(run_shared, state, residents(state, mechanism), mechanism.key)
    elif cap is not None:
        power = meter(state, cluster, cap, name)
        step = partial(run_capped, state, power, mechanism.key)
        complete = partial(with_energy, cluster=cluster, found=power)
    else:
        step = partial(run_ordered, state, mechanism.key, state.scratch if mechanism.preemptive else None)
    return _Run(state, step, complete)


def _with_columns(outcome: Outcome, columns: Callable[[], dict[str, NDArray[np.int64]]]) -> Outcome:
    """Add a mechanism's own columns of jobs, which are known only at the end."""
    return replace(outcome, columns=columns())


@compiled
def _open(s: Any, absent: Any) -> None:
    """Let the nodes join that are there from the beginning."""
    g = s.g[0]
    for index in range(len(s.nodes)):
        if absent[index]:
            continue
        if g.by_count:
            s.nodes[index].up = 1
            s.domains[s.groups[s.nodes[index].group].domain].free += s.nodes[index].gpus
            g.free += s.nodes[index].gpus
        else:
            node_joins(g, s.nodes, s.groups, s.domains, s.bits, s.tops, index)


def _outcome(s: State, wall: float, *, log: bool, unit: int) -> Outcome:
    """Return what the state tells; its GPUs are counted in units of so many milli-GPUs."""
    g, jobs = s.g[0], s.jobs
    done = jobs["status"] == DONE
    kept = s.samples[: g["samples"]]
    return Outcome(
        first_start_ms=jobs["first"].copy(),
        end_ms=jobs["end"].copy(),
        run_ms=jobs["ran"].copy(),
        overhead_ms=jobs["overhead_done"].copy(),
        preemptions=jobs["preemptions"].copy(),
        migrations=jobs["migrations"].copy(),
        nodes_spanned=np.zeros(len(jobs), np.int32) if g["by_count"] else jobs["nodes"].copy(),
        unschedulable=~done & (jobs["status"] != FUTURE),
        held_milli_ms=jobs["attained"] * unit,
        timeline=Timeline(
            time_ms=kept["time"].copy(),
            running=kept["running"].copy(),
            pending=kept["pending"].copy(),
            busy_milli=kept["busy"] * unit,
            free_milli=kept["free"] * unit,
            fragmented_milli=kept["fragmented"] * unit,
        ),
        makespan_ms=int(g["last_end"]),
        busy_milli_ms=int(g["busy_at_end"]) * unit,
        free_milli_ms=int(g["free_at_end"]) * unit,
        fragmented_milli_ms=int(g["fragmented_at_end"]) * unit,
        energy_kwh=None,
        events=int(g["events"]),
        wall_s=wall,
        log=s.log[: g["log_size"]] if log else None,
    )
