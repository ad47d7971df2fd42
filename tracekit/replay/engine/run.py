"""Run a policy's mechanism on jobs and a cluster, and define the interface between mechanisms and the engine."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tracekit.replay.native import compiled
from tracekit.replay.outages.asked import outages_unsupported, saves_nothing
from tracekit.replay.outcome import Losses, Outcome, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outages.asked import Checkpoints
    from tracekit.trace import Trace


@dataclass(frozen=True)
class Setting:
    """The input of a run, independent of the policy."""

    jobs: Jobs
    """The jobs to run."""
    cluster: Cluster
    """The cluster to run them on."""
    assignment: Assignment
    """The nodes that each job accepts."""
    name: str = "policy"
    """Name of the policy, for errors."""
    rule: str = "consolidate"
    """A placement of `build.RULES`."""
    spread: NDArray[np.int32] | None = None
    """Speed of a gang on k nodes if k0 nodes are enough [ppm], or None for 1,000,000 everywhere (k0, k)."""
    trace: Trace | None = None
    """The Trace of the jobs, for mechanisms that read further tables."""
    checkpoints: Checkpoints | None = None
    """The checkpoints of jobs if nodes fail, or None if no node fails."""
    log_rows: int = 0
    """Number of rows for the event log, or 0 to keep no log."""


def unchanged(outcome: Outcome) -> Outcome:
    """Return an outcome as it is."""
    return outcome


class Run(NamedTuple):
    """A run before its first instant."""

    state: EngineState
    """The engine's arrays, which contain the outcome after the run."""
    step: Callable[[int], bool]
    """Runs at most the given number of instants, at least one, and returns whether any are left."""
    complete: Callable[[Outcome], Outcome] = unchanged
    """Adds this mechanism's records to the outcome."""
    unit: int = 1000
    """Unit in which the state counts GPUs [milli-GPU]."""


class Mechanism(Protocol):
    """Carries out the rule of a policy."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run: its state, and the function that steps through the instants.

        The engine may call this again for the same run, with more room for the log. The result must be the same.
        """
        ...


_INSTANTS = 100_000
"""Number of instants between checks for progress updates and interrupts."""


def simulate(
    jobs: Jobs,
    cluster: Cluster,
    assignment: Assignment,
    mechanism: Mechanism,
    *,
    name: str = "policy",
    rule: str = "consolidate",
    spread: NDArray[np.int32] | None = None,
    trace: Trace | None = None,
    checkpoints: Checkpoints | None = None,
    log: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Replay the jobs and return their schedule.

    Parameters
    ----------
    jobs, cluster, assignment
        The jobs, the cluster, and the nodes that each job accepts.
    mechanism : Mechanism
        The mechanism that carries out the policy's rule, such as an `Ordered`.
    name, rule, spread, trace, checkpoints
        See `Setting`.
    log : bool
        Whether to keep the event log.
    progress : callable, optional
        Called from time to time with the number of jobs submitted so far.

    Raises
    ------
    UsageError
        The mechanism does not support the placement, or outages that stop jobs, or a planner made an impossible
        request.
    """
    if cluster.change_kills is not None:
        if not getattr(mechanism, "takes_outages", False):
            raise outages_unsupported(name)
        checkpoints = checkpoints or saves_nothing(len(jobs))
    rows = 16 * len(jobs) + 1024 if log else 0
    while True:
        run = mechanism.prepare(Setting(jobs, cluster, assignment, name, rule, spread, trace, checkpoints, rows))
        begun = time.perf_counter()
        while run.step(_INSTANTS):
            if progress is not None:
                progress(int(run.state.g["submitted"][0]))
        wall = time.perf_counter() - begun
        written = int(run.state.g["log_size"][0])
        if written <= rows:
            outcome = _outcome(run.state, wall, log=log, unit=run.unit)
            return run.complete(outcome if checkpoints is None else replace(outcome, losses=_losses(run.state)))
        # The run is deterministic: repeat it with room for the whole log.
        rows = written


def _losses(s: EngineState) -> Losses:
    return Losses(s.jobs["restarts"].copy(), s.jobs["lost"] * 1000, s.jobs["saving"].copy())


def _outcome(s: EngineState, wall: float, *, log: bool, unit: int) -> Outcome:
    """Build the outcome from the state, which counts GPUs in units of `unit` milli-GPUs."""
    g, jobs = s.g[0], s.jobs
    done = jobs["status"] == compiled.DONE
    samples = s.samples[: g["samples"]]
    return Outcome(
        first_start_ms=jobs["first"].copy(),
        end_ms=jobs["end"].copy(),
        run_ms=jobs["ran"].copy(),
        overhead_ms=jobs["overhead_done"].copy(),
        preemptions=jobs["preemptions"].copy(),
        migrations=jobs["migrations"].copy(),
        nodes_spanned=np.zeros(len(jobs), np.int32) if g["by_count"] else jobs["nodes"].copy(),
        unschedulable=~done & (jobs["status"] != compiled.FUTURE),
        held_milli_ms=jobs["attained"] * unit,
        timeline=Timeline(
            time_ms=samples["time"].copy(),
            running=samples["running"].copy(),
            pending=samples["pending"].copy(),
            busy_milli=samples["busy"] * unit,
            free_milli=samples["free"] * unit,
            fragmented_milli=samples["fragmented"] * unit,
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
