"""Clocks that policies choose from, the power of GPUs at each, and the best clock of each job under a cap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, NOISE, scan
from tracekit.replay.assumptions.costs import clock_speed_ppm, power_config
from tracekit.replay.assumptions.of_jobs import estimates_ms, utilization_ppm
from tracekit.replay.assumptions.speeds import ppm
from tracekit.replay.keys import by_arrival, shortest, smallest
from tracekit.replay.mechanisms import ClockPower, Ordered, PowerCap
from tracekit.replay.results.energy import power_draw_mw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


# A cap on the power of the cluster's GPUs.

_CLOCKS = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
_KEYS = {"fifo": by_arrival, "sjf": shortest, "ssf": smallest}
_ENDLESS = 1 << 62


class PowerCapped(Policy):
    """All clocks are lowered together as far as a power cap requires."""

    card: ClassVar[Card] = Card(
        name="power-cap",
        title="one clock for all GPUs, as high as the power cap allows",
        rule=(
            "Jobs start as under fifo, sjf or ssf, and are never stopped. After every event all running jobs get "
            "the highest clock of 1.0, 0.9, ... 0.4 of the full clock at which the GPUs, including idle ones, "
            "draw at most the cap by M7. If even 0.4 exceeds the cap, the clock is 0.4. The cap is `cap_w`, or "
            "else `share` of the power that all GPUs draw when fully used. No job waits to save power. Recorded "
            "run times are taken as run times at full clock."
        ),
        parameters=(
            Parameter("cap_w", 0.0, "power cap of all GPUs together, 0 to use `share` [W]"),
            Parameter("share", 0.7, "the cap as a share of the power that all GPUs draw when fully used", maximum=1),
            Parameter("order", "fifo", "which jobs go first", ("fifo", "sjf", "ssf")),
            scan("stop"),
            FIT,
            NOISE,
        ),
        assumptions=("D1", "M4", "M7", "M11"),
        equal_to=(
            "With cap_w=inf, it is the policy that `order` names.",
            "With s0 = 1 in the models, a lower clock saves nothing: as soon as the cap applies, the clock is 0.4.",
        ),
        sources=(
            (
                "Only the power model of PowerFlow (arXiv 2304.06381), without its choice of GPUs and clocks for each "
                "job."
            ),
            "Our choice: one clock for all GPUs, and its steps.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> PowerCap:
        """Return the order, and the cap with the power of each job."""
        p = self.parameters
        fifo = p["order"] == "fifo"
        order = Ordered(
            _KEYS[p["order"]],
            scan=p["scan"],
            fit=p["fit"],
            drift="none",
            by_arrival=fifo,
            estimate_ms=None if fifo else estimates_ms(models, jobs.work_ms, seed, p["noise"]),
        )
        cap_w = p["cap_w"] or p["share"] * full_w(cluster, models)
        draw, s0 = power_draw_mw(jobs, cluster, models), models.power.s0
        return PowerCap(
            order,
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


CAP_W = Parameter("cap_w", 0.0, "power cap of all GPUs together, 0 to use `share`, inf for no cap [W]")
LEAST = Parameter(
    "least", 0.4, "lowest clock, as a share of the full one; clocks are 0.1 apart", minimum=0.1, maximum=1
)
_MOST_MW = 1 << 60
"""A cap that is never reached [mW]."""


@dataclass(frozen=True)
class ClockTable:
    """K clocks, the full one first, and the power of a GPU at each with a job of each of D kinds."""

    ppm: NDArray[np.int64]
    """The clocks [ppm] (K,)."""
    speed_ppm: NDArray[np.int64]
    """Speed of a job (K,) [ppm]."""
    kind: NDArray[np.int64]
    """Kind of each job, by its power (n,)."""
    on_top_mw: NDArray[np.float64]
    """Power of a GPU beyond its idle power (D, K) [mW]."""
    full_mw: NDArray[np.float64]
    """Power of a GPU including its idle power (D, K) [mW]."""


def clock_table(jobs: Jobs, cluster: Cluster, models: Models, power: ClockPower, least: float) -> ClockTable:
    """Return the clocks 1.0, 0.9, ... down to `least`, and the power of the jobs at them (M7)."""
    steps = np.arange(10, 0, -1)[: 1 + round((1 - least) * 10 - 1e-9)] / 10
    u = utilization_ppm(models, jobs) / 1e6
    draw = power.draw
    mean = float(draw.idle.sum()) / max(cluster.total_gpus, 1)
    # `rest` is the idle power of the job's GPU model, as far as it is used.
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


def cap_mw(cluster: Cluster, models: Models, cap_w: float, share: float) -> int:
    """Return the cap of the parameters `cap_w` and `share` [mW]."""
    return round(min((cap_w or share * full_w(cluster, models)) * 1000, _MOST_MW))


def clock_power(jobs: Jobs, cluster: Cluster, models: Models, cap: int) -> ClockPower:
    """Return the power of the GPUs by their clock, under a cap [mW]."""
    return ClockPower(power_draw_mw(jobs, cluster, models), models.power.s0, cap)


class ClockProgram:
    """One clock for each job, for a small sum of costs within the available power.

    By the Lagrangian dual of the program in which jobs may divide their time between clocks: with a price on power each
    kind of job takes the clock at which cost and power together cost least. As the price falls, one kind after the
    other moves to its next clock. At the price at which no room is left, the jobs of the next kind move on in the given
    order while they fit. The result is within one job's change of the optimum.

    Parameters
    ----------
    power, cost : array (D, K)
        Power and cost of a GPU by kind of job and clock.
    """

    def __init__(self, power: NDArray[np.float64], cost: NDArray[np.float64]) -> None:
        self.power = power
        rows = np.arange(len(power))
        # Of clocks with equal power the one that costs least, and then the first, which is the fastest.
        self.least = np.where(power <= power.min(axis=1, keepdims=True), cost, np.inf).argmin(axis=1)
        """The clock at which each kind draws least (D,)."""
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
        # Each further step of a kind is worth less, so they stay in order.
        found = np.concatenate(steps) if steps else np.zeros((0, 4))
        found = found[np.argsort(-found[:, 0], kind="stable")]
        self.step_kind, self.step_to = found[:, 1].astype(np.int64), found[:, 2].astype(np.int64)
        self.step_mw = found[:, 3]

    def choose(self, kind: NDArray[np.int64], gpus: NDArray[np.int64], room: float) -> NDArray[np.int64]:
        """Return the index of the clock of each job; if even the least power is more than `room`, that of least.

        Parameters
        ----------
        kind, gpus : array (n,)
            Kind and GPUs of each job.
        room : float
            Power that the jobs may draw together.
        """
        weight = np.bincount(kind, gpus, len(self.power))
        left = room - float(weight @ self.power[np.arange(len(weight)), self.least])
        drawn = np.cumsum(weight[self.step_kind] * self.step_mw)
        taken = int(np.searchsorted(drawn, left, side="right"))
        if taken == len(drawn):
            return np.asarray(self.free[kind] if left >= 0 else self.least[kind])
        clock = self.least.copy()
        # Later steps of a kind come after its earlier ones, and the last write stays.
        clock[self.step_kind[:taken]] = self.step_to[:taken]
        found: NDArray[np.int64] = clock[kind]
        left -= float(drawn[taken - 1]) if taken else 0.0
        own = np.flatnonzero(kind == self.step_kind[taken])
        raised = own[np.cumsum(gpus[own]) * self.step_mw[taken] <= left]
        found[raised] = self.step_to[taken]
        return found
