"""Run one policy's mechanism over jobs and a cluster."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.backfill import run_easy
from tracekit.replay.build import build
from tracekit.replay.cells_layout import columns_of_cells, open_cells
from tracekit.replay.cells_pass import run_cells
from tracekit.replay.compiled import compiled
from tracekit.replay.fractional import run_fractional
from tracekit.replay.fractional_build import divide
from tracekit.replay.mechanisms import Backfill, Cells, Fractional, Ordered, Planner, Recorded, Sharing, Tenants
from tracekit.replay.nodes import node_joins
from tracekit.replay.ordered import run_ordered
from tracekit.replay.outcome import Outcome, Timeline
from tracekit.replay.planner import run_planned
from tracekit.replay.power import cap_of, meter, run_capped, with_energy
from tracekit.replay.recorded import run_recorded
from tracekit.replay.reservations import run_conservative
from tracekit.replay.residents import residents
from tracekit.replay.sharing import run_shared
from tracekit.replay.state import DONE, FUTURE, State
from tracekit.replay.tenancy import columns_of, open_books
from tracekit.replay.tenants import run_tenants

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.assignment import Assignment
    from tracekit.replay.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism

__all__ = ["simulate"]

_INSTANTS = 100_000
"""Instants between two looks at the world outside: progress and interruptions."""


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
    rows = 16 * len(jobs) + 1024 if log else 0
    cap = cap_of(mechanism, name)
    while True:
        state = build(jobs, cluster, assignment, mechanism, rule=rule, spread=spread, log_rows=rows)
        books = None
        if isinstance(mechanism, Tenants):
            state, books = open_books(state, jobs, cluster, assignment, mechanism)
        _open(state, cluster.absent)
        power = None if cap is None else meter(state, cluster, cap, name)
        begun = time.perf_counter()
        if isinstance(mechanism, Cells | Fractional):
            _drive_divided(state, jobs, cluster, assignment, mechanism, progress or _nobody)
        elif isinstance(mechanism, Tenants):
            victims = None if mechanism.reclaim == "never" else state.scratch
            while run_tenants(state, books, mechanism.order.key, victims, _INSTANTS):
                (progress or _nobody)(int(state.g["submitted"][0]))
        elif isinstance(mechanism, Ordered) and power is not None:
            while run_capped(state, power, mechanism.key, _INSTANTS):
                (progress or _nobody)(int(state.g["submitted"][0]))
        else:
            _drive(state, mechanism, name, progress or _nobody)
        wall = time.perf_counter() - begun
        written = int(state.g["log_size"][0])
        if written <= rows:
            outcome = _outcome(state, wall, log=log, unit=1 if isinstance(mechanism, Fractional) else 1000)
            if power is not None:
                outcome = with_energy(outcome, cluster, power)
            columns = columns_of_cells(mechanism) if isinstance(mechanism, Cells) else columns_of(state, books)
            return replace(outcome, columns=columns)
        # The run is deterministic: the same again, with room for what it wants to tell.
        rows = written


def _nobody(_submitted: int) -> None:
    pass


def _drive_divided(
    state: State,
    jobs: Jobs,
    cluster: Cluster,
    assignment: Assignment,
    mechanism: Cells | Fractional,
    progress: Callable[[int], None],
) -> None:
    """Run a mechanism that divides the nodes in its own way."""
    if isinstance(mechanism, Fractional):
        run_fractional(*divide(state, jobs, cluster, assignment, mechanism), mechanism, progress)
        return
    inside, apart, hosts = open_cells(state, jobs, cluster, mechanism)
    _open(inside, mechanism.cells.cluster.absent)
    while run_cells(state, inside, apart, hosts, mechanism.order.key, _INSTANTS):
        progress(int(state.g["submitted"][0]))


def _drive(
    state: State,
    mechanism: Backfill | Ordered | Planner | Recorded | Sharing,
    name: str,
    progress: Callable[[int], None],
) -> None:
    """Run a mechanism to its end: one branch for each kind, each in a module of its own."""
    if isinstance(mechanism, Planner):
        run_planned(state, mechanism, name, progress)
        return
    if isinstance(mechanism, Recorded):
        run_recorded(state, mechanism, progress)
        return
    if isinstance(mechanism, Backfill):
        run = run_easy if mechanism.kind == "easy" else run_conservative
        run(state, mechanism, _INSTANTS, progress)
        return
    if isinstance(mechanism, Sharing):
        shared = residents(state, mechanism)
        while run_shared(state, shared, mechanism.key, _INSTANTS):
            progress(int(state.g["submitted"][0]))
        return
    victims = state.scratch if mechanism.preemptive else None
    while run_ordered(state, mechanism.key, victims, _INSTANTS):
        progress(int(state.g["submitted"][0]))


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
