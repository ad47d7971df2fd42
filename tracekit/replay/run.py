"""Run one policy's mechanism over jobs and a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.build import build
from tracekit.replay.compiled import compiled
from tracekit.replay.mechanisms import Planner, Recorded
from tracekit.replay.nodes import node_joins
from tracekit.replay.ordered import run_ordered
from tracekit.replay.outcome import Outcome, Timeline
from tracekit.replay.planner import run_planned
from tracekit.replay.recorded import run_recorded
from tracekit.replay.state import DONE, FUTURE, State

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
    while True:
        state = build(jobs, cluster, assignment, mechanism, rule=rule, spread=spread, log_rows=rows)
        _open(state, cluster.absent)
        begun = time.perf_counter()
        _drive(state, mechanism, name, progress or _nobody)
        wall = time.perf_counter() - begun
        written = int(state.g["log_size"][0])
        if written <= rows:
            return _outcome(state, wall, log=log)
        # The run is deterministic: the same again, with room for what it wants to tell.
        rows = written


def _nobody(_submitted: int) -> None:
    pass


def _drive(state: State, mechanism: Mechanism, name: str, progress: Callable[[int], None]) -> None:
    """Run a mechanism to its end: one branch for each kind, each in a module of its own."""
    if isinstance(mechanism, Planner):
        run_planned(state, mechanism, name, progress)
        return
    if isinstance(mechanism, Recorded):
        run_recorded(state, mechanism, progress)
        return
    while run_ordered(state, mechanism.key, _INSTANTS):
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


def _outcome(s: State, wall: float, *, log: bool) -> Outcome:
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
        held_milli_ms=jobs["attained"] * 1000,
        timeline=Timeline(
            time_ms=kept["time"].copy(),
            running=kept["running"].copy(),
            pending=kept["pending"].copy(),
            busy_milli=kept["busy"] * 1000,
            free_milli=kept["free"] * 1000,
            fragmented_milli=kept["fragmented"] * 1000,
        ),
        makespan_ms=int(g["last_end"]),
        busy_milli_ms=int(g["busy_at_end"]) * 1000,
        free_milli_ms=int(g["free_at_end"]) * 1000,
        fragmented_milli_ms=int(g["fragmented_at_end"]) * 1000,
        energy_kwh=None,
        events=int(g["events"]),
        wall_s=wall,
        log=s.log[: g["log_size"]] if log else None,
    )
