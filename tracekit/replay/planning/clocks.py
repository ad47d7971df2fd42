"""Clocks that plans set for jobs: GPU power by clock, the energy at these clocks, and the power over time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.native import compiled
from tracekit.replay.outcome import PowerUse
from tracekit.replay.results.energy import KWH_MW_MS, idle_energy_kwh

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.results.energy import PowerDraw

HINT = "fix the policy"
_FULL = 1_000_000


@dataclass(frozen=True)
class ClockPower:
    """Power of GPUs as a function of their clock (M7)."""

    draw: PowerDraw
    """Power at full clock."""
    s0: float
    """Share of the peak power that does not fall with the clock [0..1]."""
    cap_mw: int = -1
    """Power cap that the plans try to keep, including idle GPUs [mW], or -1 if none."""

    def drawn(self, clock: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of `draw.busy` that is used at the given clocks [0..1]."""
        return np.asarray(self.s0 + (1 - self.s0) * clock**3)


class ClockBook:
    """The clock of each job in one run, and the energy that its GPUs use beyond their idle power."""

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
        """Energy beyond the idle power, up to the last time that clocks were set."""
        self.now_ms = self.level_mw = self.peak_mw = self.over_ms = self.slowed_ms = self.changes = 0
        self.slowed = False
        self.mean_mw = float(power.draw.idle.sum()) / max(cluster.total_gpus, 1)
        self.look()

    def begin(self, planned: Any, clocks: Any) -> None:
        """Set the clocks of the jobs in a plan that is about to be carried out, to full clock if None.

        Raises
        ------
        UsageError
            A clock is invalid, or the number of clocks differs from the number of jobs.
        """
        job = np.asarray(planned, np.int64)
        clock = np.full(len(job), _FULL) if clocks is None else np.asarray(clocks)
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
        # GPUs in use on nodes that have left have the cluster's mean power.
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
        """Add the energy to the outcome, and the power if the plans have a cap."""
        self._pass_time(outcome.makespan_ms)
        served = outcome.held_milli_ms // 1000
        on_top = self.drawn_mw_ms + float(((served - self.since) * self.on_top).sum())
        energy = idle_energy_kwh(self.power.draw.idle, self.cluster, outcome) + on_top / KWH_MW_MS
        if self.power.cap_mw < 0:
            return replace(outcome, energy_kwh=energy)
        use = PowerUse(self.peak_mw / 1000, self.over_ms, self.slowed_ms, self.changes)
        return replace(outcome, energy_kwh=energy, power=use)
