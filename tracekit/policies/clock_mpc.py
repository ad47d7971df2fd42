"""One clock for each job under a cap on the cluster's power, by deadlines and energy (after CD-GPC)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.clocks import CAP_W, LEAST, ClockProgram, ClockTable, cap_mw, clock_power, clock_table
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.pools import make_pools
from tracekit.replay.assumptions.of_jobs import deadlines_ms
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.pools import Pools
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

__all__ = ["ClockMpc", "startable"]


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
        """Whether the cap decided about clocks."""

    def kinds(self, view: View, job: NDArray[np.int64], remaining: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the kind of each job: by what it draws."""
        return self.table.kind[job]

    def choose(self, kind: NDArray[np.int64], gpus: NDArray[np.int64], room: float) -> NDArray[np.int64]:
        """Return the clock of each job: the same for all, the highest that there is room for."""
        sums = (gpus[:, None] * self.table.on_top_mw[kind]).sum(axis=0)
        fits = np.flatnonzero(sums <= room)
        self.bound = not len(fits) or fits[0] > 0
        return np.full(len(kind), fits[0] if len(fits) else self.steps - 1)

    def plan(self, view: View) -> Plan:
        """Return who starts, and whose clock changes."""
        job, held = view.job, view.held
        running = np.flatnonzero(held > 0)
        # A millisecond after jobs were started the clocks alone are looked at.
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
            # Some may have found no place, and what was laid by for them is free.
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
    """Kinds are D * K: by what a job draws, and the slowest clock in time."""

    def prepare(self, deadline_ms: NDArray[np.int64], aim: str, late_w: float) -> None:
        """Set the deadlines, and what each clock costs a GPU, for each unit of work [mW]."""
        self.deadline_ms = deadline_ms
        self.time = 1e6 / self.table.speed_ppm
        kinds = len(self.table.on_top_mw)
        aimed = self.table.full_mw if aim == "energy" else np.full((kinds, self.steps), 1e5)
        late = np.maximum(self.time[None, :] - self.time[:, None], 0) * late_w * 1000
        # By what a job draws, the slowest clock in time, and the clock chosen.
        cost = (aimed * self.time)[:, None, :] + late[None, :, :]
        power = np.repeat(self.table.on_top_mw, self.steps, axis=0)
        self.program = ClockProgram(power, cost.reshape(kinds * self.steps, self.steps))

    def kinds(self, view: View, job: NDArray[np.int64], remaining: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the kind of each job: by what it draws, and the slowest clock at which it ends in time.

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
        title="one clock for each job under a power cap, by deadlines and energy",
        rule=(
            "Waiting jobs start in the order of submission, those that find no place are passed over, and none is "
            "stopped; no job is kept waiting to save power. At most once in `gap` seconds, when a job came or ended, "
            "every running job gets one of the clocks 1.0, 0.9, ... `least`, so that the GPUs, idle ones included, "
            "draw at most the cap by M7, and the cost is as small as can be: for each unit of work and each GPU the "
            "energy that it takes (aim=energy) or the time (aim=speed), and `late` watts for the time by which the "
            "clock is too slow for the deadline (D7); what is late at any clock is later the slower it is. The "
            "program is solved by its Lagrangian dual, one price for power that all jobs see, and what the price "
            "leaves of the cap goes to jobs in the order of submission: the best found, within one job's change of "
            "the best there is. Where not even the lowest clocks keep the cap, they are taken. With clocks=one all "
            "jobs have one clock, the highest that keeps the cap. Run times and what jobs draw are known."
        ),
        parameters=(
            CAP_W,
            Parameter("share", 0.7, "the cap as a share of the power of all GPUs when fully used", maximum=1),
            Parameter("aim", "energy", "what a clock costs beside lateness", ("energy", "speed")),
            Parameter("late", 1000.0, "price of lateness, as power of a GPU [W]"),
            Parameter("clocks", "each", "each job has a clock of its own, or all have one", ("each", "one")),
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
                "Kang et al., CD-GPC (IEEE Transactions on Industrial Electronics, 2022), by its abstract: clocks of "
                "GPUs by an economic model-predictive control under a cluster's power budget, by the Lagrangian dual, "
                "and deadlines."
            ),
            (
                "Own choices: M7 in place of a model that is learned as jobs run; a horizon of one plan; the cost; a "
                "clock for each job, as gangs run in step; the order in which jobs start."
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
