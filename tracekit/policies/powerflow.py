"""GPUs and a clock for each job where a further watt saves most time (after PowerFlow)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.clock_mpc import startable
from tracekit.policies.clocks import CAP_W, LEAST, ClockTable, cap_mw, clock_power, clock_table
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.pools import make_pools
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.speeds import elastic_bounds, elastic_ppm
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.pools import Pools
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["PowerFlow"]


class _Flow:
    """Plans for one run."""

    def __init__(
        self, jobs: Jobs, pools: Pools, models: Models, table: ClockTable, cap: int, idle_mw: NDArray[np.int64]
    ) -> None:
        self.pools, self.models, self.table, self.cap, self.idle_mw = pools, models, table, cap, idle_mw
        self.gpus = jobs.devices.astype(np.int64)
        self.elastic, self.most = False, 0
        self.low, self.high = self.gpus, self.gpus
        self.sigma = models.elastic.sigma
        self.drawn = np.ascontiguousarray(table.on_top_mw)
        self.speed = table.speed_ppm / 1e6
        self.clock: NDArray[np.int64] = np.full(len(jobs), -1)
        self.tried_ms = -1

    def plan(self, view: View) -> Plan:
        """Return who starts, who has other GPUs, and whose clock changes."""
        from tracekit.replay.kernel import raise_flow

        job, held, remaining = view.job, view.held, view.remaining_ms
        before = self.pools.held(view)
        # A millisecond after jobs were started the clocks alone are looked at.
        again = view.now_ms == self.tried_ms
        self.tried_ms = -1
        running = np.flatnonzero(held > 0)
        order = np.argsort(remaining, kind="stable")
        least = np.where(held > 0, np.minimum(self.low[job], held), 0)
        free = np.maximum(self.pools.gpus(view), self.pools.used(before, held))
        free -= self.pools.used(before, least)
        if again:
            fresh, pool = running[:0], running[:0]
        elif self.elastic:
            fresh, pool = self._admitted(job, order[held[order] == 0], free)
        else:
            able = np.zeros(len(job), np.bool_)
            able[startable(view, self.pools, self.gpus, job, held, len(job))] = True
            fresh = order[able[order]][: self.most]
            pool = np.zeros(len(fresh), np.int64)
        chosen = np.concatenate([running, fresh])
        own = job[chosen]
        rows = np.zeros(len(chosen), struct_dtype("FlowRow"))
        rows["pool"] = np.concatenate([before[running], pool])
        rows["gpus"] = np.where(held[chosen] > 0, least[chosen], self.low[own])
        rows["high"] = np.maximum(self.high[own], rows["gpus"])
        rows["clock"], rows["kind"] = len(self.speed) - 1, self.table.kind[own]
        # At the speed of one GPU.
        asked = self.gpus[own]
        rows["left"] = np.maximum(remaining[chosen], 1) * asked / (1 + self.sigma * (asked - 1))
        room = self.cap - float((self.idle_mw * (view.node_gpus > 0)).sum())
        room -= float((rows["gpus"] * self.drawn[rows["kind"], -1]).sum())
        heap, at = np.zeros(len(rows), struct_dtype("Entry")), np.zeros(len(rows), np.int32)
        raise_flow(rows, self.drawn, self.speed, self.sigma, np.maximum(free, 0), room, heap, at)
        return self._named(view, own, held[chosen], rows, rigid=not self.elastic)

    def _admitted(
        self, job: NDArray[np.int64], waiting: NDArray[np.int64], free: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the waiting jobs whose least number of GPUs is free, and their pools; `free` is taken from."""
        kind = self.pools.kind[job[waiting]]
        largest = np.where(self.pools.accepts, free, 0).max(axis=1, initial=0)
        able = waiting[self.low[job[waiting]] <= largest[kind]][: self.most]
        found = []
        for place in able.tolist():
            least = int(self.low[job[place]])
            mine = np.where(self.pools.accepts[self.pools.kind[job[place]]], free, 0)
            pool = int(mine.argmax())
            if mine[pool] >= least:
                free[pool] -= least
                found.append((place, pool))
        places = np.array(found, np.int64).reshape(-1, 2)
        return places[:, 0], places[:, 1]

    def _named(
        self, view: View, own: NDArray[np.int64], held: NDArray[np.int64], rows: NDArray[np.void], *, rigid: bool
    ) -> Plan:
        """Return the plan of those whose GPUs or clock change."""
        gpus, clock = rows["gpus"].astype(np.int64), rows["clock"].astype(np.int64)
        starts = held == 0
        named = np.flatnonzero(starts | (gpus != held) | (self.clock[own] != clock))
        self.clock[own] = np.where(starts, -1, clock)
        wake = -1
        if rigid:
            # Those that start go last, in their order: they may find no place, and then there is more power for others.
            named = named[np.argsort(starts[named], kind="stable")]
            if starts.any() and (clock > 0).any():
                wake = self.tried_ms = view.now_ms + 1
        else:
            # Large gangs first, as they are harder to place.
            named = named[np.argsort(-gpus[named], kind="stable")]
        job, gpus, clock = own[named], gpus[named], clock[named]
        speed = self.table.speed_ppm[clock]
        if not rigid:
            speed = np.maximum(elastic_ppm(self.models, self.gpus[job], gpus) * speed // 1_000_000, 1)
        model = np.full(len(named), -1) if rigid else self.pools.model[rows["pool"][named]]
        return Plan(
            job,
            gpus,
            rate=speed,
            model=model,
            clock=self.table.ppm[clock],
            keep=True,
            optional=len(named),
            wake_ms=wake,
        )


class PowerFlow(Policy):
    """GPUs and clocks by the time that a further watt saves."""

    card: ClassVar[Card] = Card(
        name="powerflow-like",
        title="GPUs and a clock for each job where a further watt saves most time",
        rule=(
            "At most once in `gap` seconds, when a job came or ended, GPUs and clocks are given anew. Jobs that run "
            "have the least number of GPUs of D3 at the lowest clock, and so have waiting ones while GPUs last, the "
            "shortest remaining one first; one whose least number is not free is passed over. Then, step by step, the "
            "job for which it saves most remaining time for each further watt has twice the GPUs, up to its greatest "
            "number, or the next clock of `least`, ... 0.9, 1.0, while the GPUs, idle ones included, draw at most the "
            "cap by M7. A job whose best step the cap does not allow stays as it is. Running jobs are never stopped; "
            "another number of GPUs costs `resize` seconds, a clock nothing, and gangs may be spread over nodes. "
            "With elastic=off every job has the GPUs that it asks for, in one place as everywhere, and only clocks "
            "are chosen. No job is kept waiting to save power: where even the lowest clocks draw more than the cap, "
            "that is told. Run times and what jobs draw are known, and the recorded ones are taken to be at full clock."
        ),
        parameters=(
            CAP_W,
            Parameter("share", 0.7, "the cap as a share of the power of all GPUs when fully used", maximum=1),
            Parameter("elastic", True, "jobs run on other numbers of GPUs than they ask for"),
            LEAST,
            Parameter("gap", 300.0, "least time between two plans [s]"),
            Parameter("resize", 30.0, "cost of a change in the number of GPUs [s]"),
            Parameter("overhead", "voda", "preset of what each migration costs (M9)"),
            Parameter("candidates", 256, "waiting jobs that a plan tries to start [jobs]", minimum=1),
        ),
        assumptions=("D1", "D3", "M4", "M7", "M9"),
        equal_to=(
            "With cap_w=inf, elastic=off and gap=0: sjf,scan=skip, as long as all candidates are tried.",
            "With s0 = 1 in the models a lower clock saves nothing, and with elastic=off all clocks are full.",
            "With cap_w=inf and room for the maximum of all: every job has its maximum at full clock.",
        ),
        sources=(
            (
                "Gu et al., PowerFlow (arXiv 2304.06381), by its abstract: GPUs and clocks of jobs by models of time "
                "and energy, buddy allocation, network packing."
            ),
            (
                "Own choices: the greedy steps and their order; a cap on power in place of a budget of energy; M7 and "
                "M8 in place of models fitted to each job; GPUs double, and are placed by the rule of the replay, not "
                "by buddy allocation."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans that give GPUs and clocks."""
        p = self.parameters
        cap = cap_mw(cluster, models, p["cap_w"], p["share"])
        power = clock_power(jobs, cluster, models, cap)
        table = clock_table(jobs, cluster, models, power, p["least"])
        flow = _Flow(jobs, make_pools(jobs, cluster, "place"), models, table, cap, power.draw.idle)
        flow.elastic, flow.most = p["elastic"], p["candidates"]
        if flow.elastic:
            flow.low, flow.high = elastic_bounds(models, flow.gpus)
        return Planner(
            flow.plan,
            gap_ms=round(p["gap"] * 1000),
            scope=2 if flow.elastic else 0,
            overhead_ms=overhead_ms(models, p["overhead"], np.arange(int(flow.high.max(initial=1)) + 1)),
            resize_ms=round(p["resize"] * 1000),
            clocks=power,
        )
