"""GPU clock policies: one clock for all GPUs under a power cap, or one clock per job (after CD-GPC and PowerFlow)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, NOISE, ORDER, scan, start_order
from tracekit.policies.plans import Planned, Plans
from tracekit.policies.pools import make_pools
from tracekit.replay.assumptions.costs import clock_speed_ppm, power_config
from tracekit.replay.assumptions.of_jobs import deadlines_ms, utilization_ppm
from tracekit.replay.assumptions.speeds import elastic_bounds, elastic_ppm, ppm
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.mechanisms import ClockPower, Plan, PowerCap, View
from tracekit.replay.results.energy import power_draw_mw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.array_types import Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


SHARE = Parameter("share", 0.7, "cap, as a share of the power that all GPUs draw when fully used", maximum=1)

_CLOCKS = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
_ENDLESS = 1 << 62


class PowerCapped(Policy):
    """One clock for all GPUs, as high as the power cap allows.

    Jobs start as under fifo, sjf or ssf, and are never stopped. After every event, all running jobs get the same clock:
    the highest of 1.0, 0.9, ... 0.4 of the full clock that keeps the power of all GPUs, including idle ones, within the
    cap (M7). If even 0.4 exceeds the cap, the clock is 0.4. The cap is `cap_w` or, if that is 0, `share` of the power
    that all GPUs draw when fully used. No job waits to save power. Recorded run times are assumed to be run times at
    full clock.

    Equal to
    --------
    - With cap_w=inf, power-cap equals the policy that `order` names.
    - With s0 = 1 in the models, a lower clock saves nothing, so the clock is 0.4 as soon as the cap applies.

    Sources
    -------
    - PowerFlow (arXiv 2304.06381): only its power model, without its choice of GPUs and clocks for each job.
    - Our choices: one clock for all GPUs, and the clock steps.
    """

    card = Card(
        name="power-cap",
        parameters=(
            Parameter("cap_w", 0.0, "power cap for all GPUs together, or 0 to use `share` [W]"),
            SHARE,
            ORDER,
            scan("stop"),
            FIT,
            NOISE,
        ),
        assumptions=("D1", "M4", "M7", "M11"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> PowerCap:
        """Return the job order, and the cap with the power of each job."""
        p = self.parameters
        cap_w = p["cap_w"] or p["share"] * full_w(cluster, models)
        draw, s0 = power_draw_mw(jobs, cluster, models), models.power.s0
        return PowerCap(
            start_order(p, jobs, models, seed),
            cap_mw=_ENDLESS if math.isinf(cap_w) else min(round(cap_w * 1000), _ENDLESS),
            speed_ppm=tuple(clock_speed_ppm(models, _CLOCKS).tolist()),
            drawn_ppm=tuple(ppm(s0 + (1 - s0) * _CLOCKS**3).tolist()),
            idle_mw=draw.idle,
            busy_mw=draw.busy,
            rest_mw=draw.rest,
        )


def full_w(cluster: Cluster, models: Models) -> float:
    """Return the power of all GPUs when fully used [W]."""
    most = np.array([power_config(models, name).max_w for name in cluster.models])
    return float((most[cluster.model] * cluster.gpus).sum())


CAP_W = Parameter("cap_w", 0.0, "power cap for all GPUs together, 0 to use `share`, or inf for no cap [W]")
LEAST = Parameter(
    "least", 0.4, "lowest clock, as a share of the full clock; clocks are 0.1 apart", minimum=0.1, maximum=1
)
_MOST_MW = 1 << 60
"""A cap that is never reached [mW]."""


@dataclass(frozen=True)
class ClockTable:
    """K clocks, the full clock first, and a GPU's power at each clock for each of D kinds of jobs."""

    ppm: Ints
    """The clocks [ppm] (K,)."""
    speed_ppm: Ints
    """Speed of a job at each clock (K,) [ppm]."""
    kind: Ints
    """Kind of each job, by its power (n,)."""
    on_top_mw: Floats
    """Power of a GPU beyond its idle power (D, K) [mW]."""
    full_mw: Floats
    """Power of a GPU including its idle power (D, K) [mW]."""


def clock_table(jobs: Jobs, cluster: Cluster, models: Models, power: ClockPower, least: float) -> ClockTable:
    """Return the clocks 1.0, 0.9, ... down to `least`, and the jobs' power at these clocks (M7)."""
    steps = np.arange(10, 0, -1)[: 1 + round((1 - least) * 10 - 1e-9)] / 10
    u = utilization_ppm(models, jobs) / 1e6
    draw = power.draw
    mean = float(draw.idle.sum()) / max(cluster.total_gpus, 1)
    # `rest` is the idle power of the job's GPU model times its utilization.
    idle = np.where(u > 0, np.rint(draw.rest / np.maximum(u, 1e-9)), np.rint(mean))
    rows, kind = np.unique(np.column_stack([draw.busy, draw.rest, idle]), axis=0, return_inverse=True)
    on_top = rows[:, :1] * power.drawn(steps) - rows[:, 1:2]
    return ClockTable(
        ppm=np.rint(steps * 1e6).astype(np.int64),
        speed_ppm=clock_speed_ppm(models, steps),
        kind=kind.ravel().astype(np.int64),
        on_top_mw=on_top,
        full_mw=on_top + rows[:, 2:],
    )


class ClockProgram:
    """Chooses one clock for each job to keep the sum of costs small within the available power.

    It uses the Lagrangian dual of the program in which jobs may divide their time between clocks. At a given power
    price, each kind of job takes the clock with the least cost plus priced power. As the price falls, the kinds move to
    their next clocks one by one. When too little power is left for a whole kind, its jobs move in the given order while
    they fit. The result is within one job's change of the optimum.

    Parameters
    ----------
    power, cost : array (D, K)
        Power and cost of a GPU by kind of job and clock.
    """

    def __init__(self, power: Floats, cost: Floats) -> None:
        self.power = power
        rows = np.arange(len(power))
        # Among clocks with equal power, take the cheapest clock, and among equals the fastest, which is the first.
        self.least = np.where(power <= power.min(axis=1, keepdims=True), cost, np.inf).argmin(axis=1)
        """The clock at which each kind draws least power (D,)."""
        steps = []
        now = self.least.copy()
        while len(rows):
            more = power - power[rows, now][:, None]
            gain = cost[rows, now][:, None] - cost
            worth = np.divide(gain, more, out=np.zeros_like(gain), where=(more > 0) & (gain > 0))
            to = worth.argmax(axis=1)
            moves = np.flatnonzero(worth[rows, to] > 0)
            if not len(moves):
                break
            steps.append(np.column_stack([worth[moves, to[moves]], moves, to[moves], more[moves, to[moves]]]))
            now[moves] = to[moves]
        self.free = now
        """The clock at which each kind costs least (D,)."""
        # A kind's later steps are worth less, so its steps stay in order.
        found = np.concatenate(steps) if steps else np.zeros((0, 4))
        found = found[np.argsort(-found[:, 0], kind="stable")]
        self.step_kind, self.step_to = found[:, 1].astype(np.int64), found[:, 2].astype(np.int64)
        self.step_mw = found[:, 3]

    def choose(self, kind: Ints, gpus: Ints, room: float) -> Ints:
        """Return each job's clock index, or that of the least power if even this exceeds `room`.

        Parameters
        ----------
        kind, gpus : array (n,)
            Kind and GPUs of each job.
        room : float
            Total power that the jobs may draw.
        """
        weight = np.bincount(kind, gpus, len(self.power))
        left = room - float(weight @ self.power[np.arange(len(weight)), self.least])
        drawn = np.cumsum(weight[self.step_kind] * self.step_mw)
        taken = int(np.searchsorted(drawn, left, side="right"))
        if taken == len(drawn):
            return np.asarray(self.free[kind] if left >= 0 else self.least[kind])
        clock = self.least.copy()
        # A kind's later steps come later, and the last write counts.
        clock[self.step_kind[:taken]] = self.step_to[:taken]
        found: Ints = clock[kind]
        left -= float(drawn[taken - 1]) if taken else 0.0
        own = np.flatnonzero(kind == self.step_kind[taken])
        raised = own[np.cumsum(gpus[own]) * self.step_mw[taken] <= left]
        found[raised] = self.step_to[taken]
        return found


class _Clocked(Plans):
    """Jobs with their own clocks under a power cap."""

    def set_up(self) -> None:
        """Compute the power of the jobs at each clock."""
        p, jobs, cluster, models = self.p, self.jobs, self.cluster, self.models
        cap_w = p["cap_w"] or p["share"] * full_w(cluster, models)
        self.cap: int = round(min(cap_w * 1000, _MOST_MW))
        self.power = ClockPower(power_draw_mw(jobs, cluster, models), models.power.s0, self.cap)
        self.table = clock_table(jobs, cluster, models, self.power, p["least"])
        self.pools, self.candidates = make_pools(jobs, cluster, "place"), p["candidates"]
        self.settings.update(scope=0, clocks=self.power)

    def begin(self, view: View) -> None:
        """Begin a run, in which no job has a clock yet."""
        self.clock: Ints = np.full(len(self.gpus), -1)
        self.tried_ms = -1

    def room(self, view: View) -> float:
        """Return the power that the cap leaves for jobs after all idle power [mW]."""
        return self.cap - float((self.power.draw.idle * (view.node_gpus > 0)).sum())

    def startable(self, view: View, job: Ints, held: Ints) -> Ints:
        """Return the indices of waiting jobs that fit into the free GPUs of a pool that they accept (k,)."""
        free = self.pools.gpus(view) - self.pools.used(self.pools.held(view), held)
        if free.max(initial=0) <= 0:
            return np.zeros(0, np.int64)
        return np.flatnonzero((held == 0) & (self.gpus[job] <= self.pools.largest(free)[self.pools.kind[job]]))


class _Clocks(_Clocked):
    """Plans that start jobs and set clocks: one for all jobs, or one per job by a program over deadlines and energy."""

    def set_up(self) -> None:
        """Make the program over D * K kinds of jobs: by power, and by the slowest clock that meets the deadline."""
        super().set_up()
        p = self.p
        self.deadline_ms = deadlines_ms(self.models, self.jobs.submit_ms, self.jobs.work_ms, self.seed)
        self.settings["tell"] = lambda outcome: replace(outcome, deadline_ms=self.deadline_ms)
        self.time = 1e6 / self.table.speed_ppm
        kinds, self.steps = self.table.on_top_mw.shape
        aimed = self.table.full_mw if p["aim"] == "energy" else np.full((kinds, self.steps), 1e5)
        late = np.maximum(self.time[None, :] - self.time[:, None], 0) * p["late"] * 1000
        # Cost by the job's power, the slowest clock that meets the deadline, and the chosen clock [mW per GPU and unit
        # of work].
        cost = (aimed * self.time)[:, None, :] + late[None, :, :]
        power = np.repeat(self.table.on_top_mw, self.steps, axis=0)
        self.program = ClockProgram(power, cost.reshape(kinds * self.steps, self.steps))

    def choose(self, view: View, job: Ints, remaining: Ints) -> tuple[Ints, bool]:
        """Return each job's clock, and whether the cap limited the clocks."""
        kind, gpus, room = self.table.kind[job], self.gpus[job], self.room(view)
        if self.p["clocks"] == "one":
            # The highest clock that the power allows.
            sums = (gpus[:, None] * self.table.on_top_mw[kind]).sum(axis=0)
            fits = np.append(np.flatnonzero(sums <= room), len(self.table.ppm) - 1)
            return np.full(len(kind), fits[0]), bool(sums[0] > room)
        # Find the slowest clock at which each job meets its deadline, or the full clock if it is late at any clock.
        slack = (self.deadline_ms[job] - view.now_ms) / np.maximum(remaining, 1)
        slowest = np.searchsorted(self.time, slack + 1e-9, side="right") - 1
        kind = kind * self.steps + np.maximum(slowest, 0)
        found = self.program.choose(kind, gpus, room)
        return found, bool((found != self.program.free[kind]).any())

    def plan(self, view: View) -> Plan:
        """Return the plan: jobs that start, and jobs with a new clock."""
        job, held = view.job, view.held
        running = np.flatnonzero(held > 0)
        # One millisecond after jobs have started, reconsider only the clocks.
        fresh = np.zeros(0, np.int64)
        if view.now_ms != self.tried_ms:
            fresh = self.startable(view, job, held)[: self.candidates]
        self.tried_ms = -1
        chosen = np.sort(np.concatenate([running, fresh]))
        own = job[chosen]
        clock, bound = self.choose(view, own, view.remaining_ms[chosen])
        starts = held[chosen] == 0
        named = np.flatnonzero(starts | (self.clock[own] != clock))
        # Jobs that start go last, in their order, because they may not fit.
        named = named[np.argsort(starts[named], kind="stable")]
        self.clock[own] = np.where(starts, -1, clock)
        wake = -1
        if len(fresh) and bound:
            # If some jobs did not fit, the power reserved for them is free again.
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


class ClockMpc(Planned):
    """One clock per job under a power cap, chosen by deadlines and energy.

    Waiting jobs start in submission order. Jobs that do not fit are skipped, no job is stopped, and no job waits to
    save power. When a job arrives or ends, but at most once every `gap` seconds, every running job gets one of the
    clocks 1.0, 0.9, ... `least`. The clocks minimize the cost while all GPUs, including idle ones, draw at most the cap
    (M7). For each unit of work and each GPU, the cost is the energy (aim=energy) or the time (aim=speed), plus `late`
    watts for the delay past the deadline (D7) that the clock causes. A job that is late at any clock becomes later with
    a slower one. The program is solved by its Lagrangian dual, with one price of power for all jobs. Power that is then
    left under the cap goes to jobs in submission order. The result is within one job's change of the optimum. If even
    the lowest clocks exceed the cap, the lowest clocks are used. With clocks=one, all jobs have the same clock, the
    highest that the cap allows. The run times and the power of jobs are known.

    Equal to
    --------
    - With cap_w=inf, aim=speed and gap=0, the policy equals fifo,scan=skip if `candidates` covers all waiting jobs.
    - With clocks=one and gap=0, the policy equals power-cap,scan=skip.
    - With least=1 and gap=0, the policy equals fifo,scan=skip for any cap.

    Sources
    -------
    - Kang et al., CD-GPC (IEEE Transactions on Industrial Electronics, 2022), by its abstract: an economic
      model-predictive control sets GPU clocks under a cluster's power budget, using the Lagrangian dual and deadlines.
    - Our choices: M7 instead of a model that is learned while jobs run; a horizon of one plan; the cost; one clock per
      job, because gangs run in lockstep; the order in which jobs start.
    """

    plans = _Clocks
    card = Card(
        name="clock-mpc-like",
        parameters=(
            CAP_W,
            SHARE,
            Parameter("aim", "energy", "cost of a clock in addition to lateness", ("energy", "speed")),
            Parameter("late", 1000.0, "price of lateness, as power per GPU [W]"),
            Parameter(
                "clocks", "each", "whether each job has its own clock, or all jobs have one clock", ("each", "one")
            ),
            LEAST,
            Parameter("gap", 60.0, "minimum time between two plans [s]"),
            Parameter("candidates", 256, "maximum number of waiting jobs that a plan tries to start [jobs]", minimum=1),
        ),
        assumptions=("D1", "M4", "M7", "D7"),
    )


class _Flow(_Clocked):
    """Plans that also choose the GPUs of elastic jobs."""

    def set_up(self) -> None:
        """Compute the bounds of the jobs."""
        super().set_up()
        self.elastic, self.sigma = self.p["elastic"], self.models.elastic.sigma
        self.low = self.gpus
        if self.elastic:
            self.low, self.most = elastic_bounds(self.models, self.gpus)
            self.settings["scope"] = 2
        self.drawn = np.ascontiguousarray(self.table.on_top_mw)
        self.speed = self.table.speed_ppm / 1e6

    def plan(self, view: View) -> Plan:
        """Return the plan: jobs that start, change their GPUs or get a new clock."""
        from tracekit.replay.kernel import raise_flow

        job, held, remaining = view.job, view.held, view.remaining_ms
        before = self.pools.held(view)
        # One millisecond after jobs have started, reconsider only the clocks.
        again = view.now_ms == self.tried_ms
        self.tried_ms = -1
        running = np.flatnonzero(held > 0)
        order = np.argsort(remaining, kind="stable")
        least = np.where(held > 0, np.minimum(self.low[job], held), 0)
        free = self.pools.capacity(view, before)
        free -= self.pools.used(before, least)
        if again:
            fresh, pool = running[:0], running[:0]
        elif self.elastic:
            fresh, pool = self._admitted(job, order[held[order] == 0], free)
        else:
            able = np.zeros(len(job), np.bool_)
            able[self.startable(view, job, held)] = True
            fresh = order[able[order]][: self.candidates]
            pool = np.zeros(len(fresh), np.int64)
        chosen = np.concatenate([running, fresh])
        own = job[chosen]
        rows = np.zeros(len(chosen), struct_dtype("FlowRow"))
        rows["pool"] = np.concatenate([before[running], pool])
        rows["gpus"] = np.where(held[chosen] > 0, least[chosen], self.low[own])
        rows["high"] = np.maximum(self.most[own], rows["gpus"])
        rows["clock"], rows["kind"] = len(self.speed) - 1, self.table.kind[own]
        # Convert the remaining work to time on one GPU.
        asked = self.gpus[own]
        rows["left"] = np.maximum(remaining[chosen], 1) * asked / (1 + self.sigma * (asked - 1))
        room = self.room(view) - float((rows["gpus"] * self.drawn[rows["kind"], -1]).sum())
        heap, at = np.zeros(len(rows), struct_dtype("Entry")), np.zeros(len(rows), np.int32)
        raise_flow(rows, self.drawn, self.speed, self.sigma, np.maximum(free, 0), room, heap, at)
        return self._named(view, own, held[chosen], rows, rigid=not self.elastic)

    def _admitted(self, job: Ints, waiting: Ints, free: Ints) -> tuple[Ints, Ints]:
        """Return the waiting jobs whose minimum is free, with their pools, and reduce `free` by the GPUs taken."""
        largest = self.pools.largest(free)[self.pools.kind[job[waiting]]]
        able = waiting[self.low[job[waiting]] <= largest][: self.candidates]
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

    def _named(self, view: View, own: Ints, held: Ints, rows: NDArray[np.void], *, rigid: bool) -> Plan:
        """Return the plan for the jobs that change their GPUs or clock."""
        gpus, clock = rows["gpus"].astype(np.int64), rows["clock"].astype(np.int64)
        starts = held == 0
        named = np.flatnonzero(starts | (gpus != held) | (self.clock[own] != clock))
        self.clock[own] = np.where(starts, -1, clock)
        wake = -1
        if rigid:
            # Jobs that start go last, in their order. If they do not fit, there is more power for other jobs.
            named = named[np.argsort(starts[named], kind="stable")]
            if starts.any() and (clock > 0).any():
                wake = self.tried_ms = view.now_ms + 1
        else:
            # Large gangs go first because they are harder to place.
            named = named[np.argsort(-gpus[named], kind="stable")]
        job, gpus, clock = own[named], gpus[named], clock[named]
        speed, pool = self.table.speed_ppm[clock], rows["pool"][named]
        if rigid:
            pool = np.full(len(named), -1)
        else:
            speed = elastic_ppm(self.models, self.gpus[job], gpus) * speed // 1_000_000
        return self.pools.plan(job, gpus, pool, speed, wake, clock=self.table.ppm[clock])


class PowerFlow(Planned):
    """GPUs and clocks go to the jobs that save most time per additional watt.

    When a job arrives or ends, but at most once every `gap` seconds, GPUs and clocks are reassigned. Running jobs get
    their minimum number of GPUs (D3) at the lowest clock. Waiting jobs get the same while GPUs last, the shortest
    remaining job first. A job is skipped if its minimum is not free. Then each step goes to the job that saves most
    remaining time per additional watt. A step doubles the GPUs, up to the maximum, or raises the clock to the next of
    `least`, ... 0.9, 1.0, as long as all GPUs, including idle ones, draw at most the cap according to M7. A job stays
    as it is if the cap does not allow its best step. Running jobs are never stopped. A resize costs `resize` seconds, a
    new clock costs nothing, and gangs may be spread over nodes. With elastic=off, every job gets the GPUs that it
    requests, placed close together as in other policies, and only clocks are chosen. No job waits to save power. If
    even the lowest clocks exceed the cap, the result reports it. The run times and the power of jobs are known, and
    recorded run times are assumed to be run times at full clock.

    Equal to
    --------
    - With cap_w=inf, elastic=off and gap=0, the policy equals sjf,scan=skip if `candidates` covers all waiting jobs.
    - With s0 = 1 in the models, a lower clock saves nothing, so with elastic=off all jobs run at full clock.
    - With cap_w=inf, if the maxima of all jobs fit, every job gets its maximum at full clock.

    Sources
    -------
    - Gu et al., PowerFlow (arXiv 2304.06381), by its abstract: models of time and energy choose the jobs' GPUs and
      clocks; buddy allocation; network packing.
    - Our choices: the greedy steps and their order; a power cap instead of an energy budget; M7 and M8 instead of
      models fitted to each job; GPU counts that double; the replay's placement rule instead of buddy allocation.
    """

    plans = _Flow
    card = Card(
        name="powerflow-like",
        parameters=(
            CAP_W,
            SHARE,
            Parameter("elastic", True, "whether jobs may run on more or fewer GPUs than they request"),
            LEAST,
            Parameter("gap", 300.0, "minimum time between two plans [s]"),
            Parameter("resize", 30.0, "cost of changing the number of GPUs [s]"),
            Parameter("overhead", "voda", "preset for the cost of each migration (M9)"),
            Parameter("candidates", 256, "maximum number of waiting jobs that a plan tries to start [jobs]", minimum=1),
        ),
        assumptions=("D1", "D3", "M4", "M7", "M9"),
    )
