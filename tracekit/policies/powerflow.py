"""GPUs and a clock for each job, where one more watt saves most time (after PowerFlow)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.clocks import CAP_W, LEAST, ClockProgram, ClockTable, cap_mw, clock_power, clock_table
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.pools import make_pools
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.of_jobs import deadlines_ms
from tracekit.replay.assumptions.speeds import elastic_bounds, elastic_ppm
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.pools import Pools
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


# One clock for each job under a cap on the cluster's power, by deadlines and energy (after CD-GPC).


def startable(
    view: View, pools: Pools, gpus: NDArray[np.int64], job: NDArray[np.int64], held: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """Return the places of the first `most` waiting jobs for which one of their pools has enough free GPUs (k,)."""
    free = pools.gpus(view) - pools.used(pools.held(view), held)
    if free.max(initial=0) <= 0:
        return np.zeros(0, np.int64)
    # By kind: jobs of a kind ask for the same GPUs.
    largest = np.where(pools.accepts, free, 0).max(axis=1, initial=0)
    return np.flatnonzero((held == 0) & (gpus[job] <= largest[pools.kind[job]]))[:most]


class _Clocks:
    """Plans that start jobs and set clocks."""

    def __init__(
        self, jobs: Jobs, pools: Pools, table: ClockTable, cap: int, idle_mw: NDArray[np.int64], most: int
    ) -> None:
        self.pools, self.table, self.cap, self.idle_mw, self.most = pools, table, cap, idle_mw, most
        self.gpus = jobs.devices.astype(np.int64)
        self.steps = len(table.ppm)
        self.clock: NDArray[np.int64] = np.full(len(jobs), -1)
        self.tried_ms = -1
        self.bound = False
        """Whether the cap limited the clocks."""

    def kinds(self, view: View, job: NDArray[np.int64], remaining: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the kind of each job, by its power."""
        return self.table.kind[job]

    def choose(self, kind: NDArray[np.int64], gpus: NDArray[np.int64], room: float) -> NDArray[np.int64]:
        """Return the clock of each job: the same for all, the highest that there is room for."""
        sums = (gpus[:, None] * self.table.on_top_mw[kind]).sum(axis=0)
        fits = np.flatnonzero(sums <= room)
        self.bound = not len(fits) or fits[0] > 0
        return np.full(len(kind), fits[0] if len(fits) else self.steps - 1)

    def plan(self, view: View) -> Plan:
        """Return which jobs start, and whose clock changes."""
        job, held = view.job, view.held
        running = np.flatnonzero(held > 0)
        # A millisecond after jobs have started, only the clocks are considered.
        fresh = np.zeros(0, np.int64)
        if view.now_ms != self.tried_ms:
            fresh = startable(view, self.pools, self.gpus, job, held, self.most)
        self.tried_ms = -1
        chosen = np.sort(np.concatenate([running, fresh]))
        own = job[chosen]
        room = self.cap - float((self.idle_mw * (view.node_gpus > 0)).sum())
        clock = self.choose(self.kinds(view, own, view.remaining_ms[chosen]), self.gpus[own], room)
        starts = held[chosen] == 0
        named = np.flatnonzero(starts | (self.clock[own] != clock))
        # Those that start go last, in their order: they may find no place.
        named = named[np.argsort(starts[named], kind="stable")]
        self.clock[own] = np.where(starts, -1, clock)
        wake = -1
        if len(fresh) and self.bound:
            # Some jobs may have found no place, and the power reserved for them is free.
            wake = self.tried_ms = view.now_ms + 1
        return Plan(
            own[named],
            self.gpus[own[named]],
            rate=self.table.speed_ppm[clock[named]],
            clock=self.table.ppm[clock[named]],
            keep=True,
            optional=int(starts.sum()),
            wake_ms=wake,
        )


class _ByDeadline(_Clocks):
    """Plans by the program over clocks, deadlines and energy."""

    deadline_ms: NDArray[np.int64]
    program: ClockProgram
    """Kinds are D * K: by a job's power, and the slowest clock that ends in time."""

    def prepare(self, deadline_ms: NDArray[np.int64], aim: str, late_w: float) -> None:
        """Set the deadlines, and the cost of each clock per GPU and unit of work [mW]."""
        self.deadline_ms = deadline_ms
        self.time = 1e6 / self.table.speed_ppm
        kinds = len(self.table.on_top_mw)
        aimed = self.table.full_mw if aim == "energy" else np.full((kinds, self.steps), 1e5)
        late = np.maximum(self.time[None, :] - self.time[:, None], 0) * late_w * 1000
        # By a job's power, the slowest clock that ends in time, and the chosen clock.
        cost = (aimed * self.time)[:, None, :] + late[None, :, :]
        power = np.repeat(self.table.on_top_mw, self.steps, axis=0)
        self.program = ClockProgram(power, cost.reshape(kinds * self.steps, self.steps))

    def kinds(self, view: View, job: NDArray[np.int64], remaining: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the kind of each job: by its power, and the slowest clock at which it ends in time.

        One that is late whatever is done counts as one that needs the full clock.
        """
        slack = (self.deadline_ms[job] - view.now_ms) / np.maximum(remaining, 1)
        slowest = np.searchsorted(self.time, slack + 1e-9, side="right") - 1
        return np.asarray(self.table.kind[job] * self.steps + np.maximum(slowest, 0))

    def choose(self, kind: NDArray[np.int64], gpus: NDArray[np.int64], room: float) -> NDArray[np.int64]:
        """Return the clock of each job by the program."""
        found = self.program.choose(kind, gpus, room)
        self.bound = bool((found != self.program.free[kind]).any())
        return found


class ClockMpc(Policy):
    """A clock for each job."""

    card: ClassVar[Card] = Card(
        name="clock-mpc-like",
        title="one clock per job under a power cap, by deadlines and energy",
        rule=(
            "Waiting jobs start in the order of submission. Jobs that do not fit are skipped, no job is stopped, "
            "and no job waits to save power. When a job arrives or ends, but at most once every `gap` seconds, "
            "every running job gets one of the clocks 1.0, 0.9, ... `least`. The GPUs, including idle ones, draw "
            "at most the cap by M7, and the cost is as small as possible. The cost counts, for each unit of work "
            "and each GPU, the energy that it takes (aim=energy) or the time (aim=speed), plus `late` watts for "
            "the time by which the clock is too slow for the deadline (D7). A job that is late at any clock is "
            "later the slower its clock is. The program is solved by its Lagrangian dual, with one price of power "
            "for all jobs. Power that the price leaves under the cap goes to jobs in the order of submission. The "
            "result is within one job's change of the optimum. If even the lowest clocks exceed the cap, they are "
            "used. With clocks=one all jobs have one clock, the highest that keeps the cap. Run times and the "
            "power of jobs are known."
        ),
        parameters=(
            CAP_W,
            Parameter("share", 0.7, "the cap as a share of the power that all GPUs draw when fully used", maximum=1),
            Parameter("aim", "energy", "cost of a clock in addition to lateness", ("energy", "speed")),
            Parameter("late", 1000.0, "price of lateness, as power per GPU [W]"),
            Parameter("clocks", "each", "each job has its own clock, or all have one", ("each", "one")),
            LEAST,
            Parameter("gap", 60.0, "least time between two plans [s]"),
            Parameter("candidates", 256, "waiting jobs that a plan tries to start [jobs]", minimum=1),
        ),
        assumptions=("D1", "M4", "M7", "D7"),
        equal_to=(
            "With cap_w=inf, aim=speed and gap=0: fifo,scan=skip, as long as all candidates are tried.",
            "With clocks=one and gap=0: power-cap,scan=skip.",
            "With least=1: fifo,scan=skip, whatever the cap, with gap=0.",
        ),
        sources=(
            (
                "Kang et al., CD-GPC (IEEE Transactions on Industrial Electronics, 2022), by its abstract: an "
                "economic model-predictive control sets the clocks of GPUs under a cluster's power budget, by the "
                "Lagrangian dual, and with deadlines."
            ),
            (
                "Own choices: M7 instead of a model that is learned as jobs run; a horizon of one plan; the cost; "
                "one clock per job, because gangs run in step; the order in which jobs start."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans that start jobs and set their clocks."""
        p = self.parameters
        cap = cap_mw(cluster, models, p["cap_w"], p["share"])
        power = clock_power(jobs, cluster, models, cap)
        table = clock_table(jobs, cluster, models, power, p["least"])
        deadline_ms = deadlines_ms(models, jobs.submit_ms, jobs.work_ms, seed)
        kind = _Clocks if p["clocks"] == "one" else _ByDeadline
        rounds = kind(jobs, make_pools(jobs, cluster, "place"), table, cap, power.draw.idle, p["candidates"])
        if isinstance(rounds, _ByDeadline):
            rounds.prepare(deadline_ms, p["aim"], p["late"])

        def tell(outcome: Outcome) -> Outcome:
            return replace(outcome, deadline_ms=deadline_ms)

        return Planner(rounds.plan, gap_ms=round(p["gap"] * 1000), scope=0, clocks=power, tell=tell)


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
        """Return which jobs start, which get other GPUs, and whose clock changes."""
        from tracekit.replay.kernel import raise_flow

        job, held, remaining = view.job, view.held, view.remaining_ms
        before = self.pools.held(view)
        # A millisecond after jobs have started, only the clocks are considered.
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
        """Return the plan of the jobs whose GPUs or clock change."""
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
        title="GPUs and a clock for each job, where one more watt saves most time",
        rule=(
            "When a job arrives or ends, but at most once every `gap` seconds, GPUs and clocks are assigned anew. "
            "Running jobs get the minimum number of GPUs of D3 at the lowest clock, and so do waiting jobs while "
            "GPUs last, the shortest remaining job first; a job whose minimum is not free is skipped. Then each "
            "step goes to the job that saves most remaining time per additional watt. It gets twice the GPUs, up "
            "to its maximum, or the next clock of `least`, ... 0.9, 1.0, while the GPUs, including idle ones, "
            "draw at most the cap by M7. A job stays as it is if the cap does not allow its best step. Running "
            "jobs are never stopped; a resize costs `resize` seconds, a new clock costs nothing, and gangs may be "
            "spread over nodes. With elastic=off every job has the GPUs that it asks for, in one place as in "
            "other policies, and only clocks are chosen. No job waits to save power: if even the lowest clocks "
            "draw more than the cap, the result says so. Run times and the power of jobs are known, and recorded "
            "run times are taken as run times at full clock."
        ),
        parameters=(
            CAP_W,
            Parameter("share", 0.7, "the cap as a share of the power that all GPUs draw when fully used", maximum=1),
            Parameter("elastic", True, "jobs run on other numbers of GPUs than they ask for"),
            LEAST,
            Parameter("gap", 300.0, "least time between two plans [s]"),
            Parameter("resize", 30.0, "cost of changing the number of GPUs [s]"),
            Parameter("overhead", "voda", "preset for the cost of each migration (M9)"),
            Parameter("candidates", 256, "waiting jobs that a plan tries to start [jobs]", minimum=1),
        ),
        assumptions=("D1", "D3", "M4", "M7", "M9"),
        equal_to=(
            "With cap_w=inf, elastic=off and gap=0: sjf,scan=skip, as long as all candidates are tried.",
            "With s0 = 1 in the models a lower clock saves nothing, and with elastic=off all clocks are full.",
            "With cap_w=inf, if the maxima of all jobs fit: every job gets its maximum at full clock.",
        ),
        sources=(
            (
                "Gu et al., PowerFlow (arXiv 2304.06381), by its abstract: GPUs and clocks of jobs by models of time "
                "and energy, buddy allocation, network packing."
            ),
            (
                "Own choices: the greedy steps and their order; a power cap instead of an energy budget; M7 and "
                "M8 instead of models fitted to each job; GPUs double, and the replay's placement rule places "
                "them, not buddy allocation."
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
