"""Clocks that plans give to jobs: the energy at the clocks that there were, and the power through time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.kernel import RUNNING
from tracekit.replay.outcome import PowerUse
from tracekit.replay.planning.plan_reader import HINT
from tracekit.replay.results.energy import KWH_MW_MS, idle_energy_kwh

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.planning.mechanism import ClockPower
    from tracekit.replay.planning.plan import Plan

__all__ = ["ClockBook"]

_FULL = 1_000_000


class ClockBook:
    """The clock of each job of one run, and what its GPUs drew so far beyond their idle power."""

    def __init__(self, power: ClockPower, state: EngineState, cluster: Cluster, name: str) -> None:
        n = len(state.jobs)
        self.power, self.state, self.cluster, self.name = power, state, cluster, name
        self.on_top = (power.draw.busy - power.draw.rest).astype(np.float64)
        """What a GPU of each job draws beyond its idle power at its clock [mW] (n,)."""
        self.clock: NDArray[np.int64] = np.full(n, _FULL)
        """Clock of each job [ppm] (n,)."""
        self.since: NDArray[np.int64] = np.zeros(n, np.int64)
        """Service of each job when its clock was set last [GPU*ms] (n,)."""
        self.drawn_mw_ms = 0.0
        """Energy beyond the idle power, until the clocks of jobs were set last."""
        self.now_ms = self.level_mw = self.peak_mw = self.over_ms = self.slowed_ms = self.changes = 0
        self.slowed = False
        self.mean_mw = float(power.draw.idle.sum()) / max(cluster.total_gpus, 1)
        self.look()

    def begin(self, plan: Plan) -> None:
        """Set the clocks of a plan that is about to be carried out.

        Raises
        ------
        UsageError
            A clock is none, or there are not as many as jobs.
        """
        job = np.asarray(plan.job, np.int64)
        clock = np.full(len(job), _FULL) if plan.clock is None else np.asarray(plan.clock)
        if clock.shape != job.shape or (clock.dtype.kind not in "iu" and len(clock)):
            raise UsageError(f"the policy {self.name} made a plan whose clocks are no list of whole numbers", hint=HINT)
        wrong = np.flatnonzero((clock <= 0) | (clock > _FULL))
        if len(wrong):
            raise UsageError(f"the policy {self.name} gave a clock of {clock[wrong[0]]} ppm", hint=HINT)
        changed = self.clock[job] != clock
        job, clock = job[changed], clock[changed].astype(np.int64)
        rows = self.state.jobs
        running = rows["status"][job] == RUNNING
        # What it did since the engine last looked at it.
        elapsed = int(self.state.g["now"][0]) - rows["since"][job]
        served = rows["attained"][job] + np.where(running, elapsed * rows["gpus"][job], 0)
        self.drawn_mw_ms += float(((served - self.since[job]) * self.on_top[job]).sum())
        self.since[job], self.clock[job] = served, clock
        draw = self.power.draw
        self.on_top[job] = draw.busy[job] * self.power.drawn(clock / _FULL) - draw.rest[job]
        self.changes += int(running.sum())

    def look(self) -> None:
        """Book the time since the last look at the power that held, and take the power of now."""
        g, nodes = self.state.g[0], self.state.nodes
        self._pass_time(int(g["now"]))
        job = self.state.events["job"][: int(g["event_size"])]
        there = int((nodes["gpus"] * nodes["up"]).sum())
        # GPUs in use on nodes that left draw the cluster's mean.
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
        """Return the outcome with the energy, and with what was drawn where the plans keep to a cap."""
        self._pass_time(outcome.makespan_ms)
        served = outcome.held_milli_ms // 1000
        on_top = self.drawn_mw_ms + float(((served - self.since) * self.on_top).sum())
        energy = idle_energy_kwh(self.power.draw.idle, self.cluster, outcome) + on_top / KWH_MW_MS
        if self.power.cap_mw < 0:
            return replace(outcome, energy_kwh=energy)
        use = PowerUse(self.peak_mw / 1000, self.over_ms, self.slowed_ms, self.changes)
        return replace(outcome, energy_kwh=energy, power=use)
