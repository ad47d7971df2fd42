"""Jobs that can wait go to hours of cheap power, and idle nodes are switched off (after CE-DLA)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import NOISE, scan
from tracekit.replay.assumptions.of_jobs import classes, estimates_ms
from tracekit.replay.assumptions.prices import HOUR_MS, PowerPrices, power_prices
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.keys import by_arrival, shortest, smallest
from tracekit.replay.mechanisms import Ordered, Switching
from tracekit.replay.results.energy import power_draw_mw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


# Idle nodes are switched off.

_KEYS = {"fifo": by_arrival, "sjf": shortest, "ssf": smallest}
_ENDLESS = 1 << 62

SWITCHING = (
    Parameter("idle", 900.0, "time that a node is entirely idle before it may be switched off; inf: never [s]"),
    Parameter("reserve", 1, "entirely idle nodes of each pool that stay on [nodes]"),
    Parameter("reserve_gpus", 0, "free GPUs of each pool that stay on [GPUs]"),
)
"""Parameters of every policy that switches nodes off."""

ORDER = Parameter("order", "fifo", "which jobs go first", ("fifo", "sjf", "ssf"))
"""Which policy's order it is."""


def start_order(given: Mapping[str, Any], jobs: Jobs, models: Models, seed: int) -> Ordered:
    """Return the order that the parameters order, scan and noise name."""
    fifo = given["order"] == "fifo"
    return Ordered(
        _KEYS[given["order"]],
        scan=given["scan"],
        drift="none",
        by_arrival=fifo,
        estimate_ms=None if fifo else estimates_ms(models, jobs.work_ms, seed, given["noise"]),
    )


def switching(
    given: Mapping[str, Any],
    order: Ordered,
    jobs: Jobs,
    cluster: Cluster,
    models: Models,
    held_ms: NDArray[np.int64] | None = None,
) -> Switching:
    """Return the mechanism of the parameters `SWITCHING`, for jobs that wait for an hour of their own or do not."""
    draw, rule = power_draw_mw(jobs, cluster, models), models.switching
    return Switching(
        order,
        off_after_ms=_ENDLESS if math.isinf(given["idle"]) else round(given["idle"] * 1000),
        wake_ms=max(round(rule.wake_s * 1000), 1),
        reserve_nodes=given["reserve"],
        reserve_gpus=given["reserve_gpus"],
        idle_mw=draw.idle,
        off_mw=np.rint(draw.idle * rule.off_share).astype(np.int64),
        on_top_mw=draw.busy - draw.rest,
        prices=power_prices(models, jobs.origin),
        held_ms=held_ms,
    )


class PowerDown(Policy):
    """Idle nodes are switched off, except for a reserve."""

    card: ClassVar[Card] = Card(
        name="power-down",
        title="idle nodes are switched off, except for a reserve",
        rule=(
            "Jobs start as under fifo, sjf or ssf, and are never stopped. The nodes of a domain and a GPU model "
            "form a pool. A node that has been entirely idle for `idle` seconds is switched off, the last node of "
            "the pool first, as long as `reserve` entirely idle nodes and `reserve_gpus` free GPUs stay on and no "
            "waiting job could use the pool. If jobs still wait after all starts of a moment, nodes are switched "
            "on, the first of the pool first, until the entirely idle GPUs and those waking up match what these "
            "jobs ask for. If jobs then still wait and no node is waking up, one more node at a time is switched "
            "on. Nodes are also switched on to restore the reserve. A node takes jobs when its wake-up time (M40) "
            "is over; until then it draws its idle power. GPUs of nodes that are off or waking up do not count in "
            "the utilization of the cluster. The energy and its cost (M41) follow the actual switching of the "
            "nodes."
        ),
        parameters=(*SWITCHING, ORDER, scan("stop"), NOISE),
        assumptions=("D1", "M7", "M11", "M40", "M41"),
        equal_to=(
            "With idle=inf, or a reserve of all nodes: the policy that `order` names.",
            "With off_share = 1 in the models, nothing is saved.",
        ),
        sources=(
            "Power saving of Slurm: SuspendTime, SuspendExcNodes with a count as the reserve, and ResumeTimeout.",
            "Our choice: which node goes first, and how many are woken for waiting jobs.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Switching:
        """Return the order, and when nodes are switched."""
        order = start_order(self.parameters, jobs, models, seed)
        return switching(self.parameters, order, jobs, cluster, models)


_LONGEST_MS = 400 * 24 * HOUR_MS
"""The longest part of a run time to book: beyond a year all hours cost the same [ms]."""


def booked_starts(
    arrival_ms: NDArray[np.int64],
    run_ms: NDArray[np.int64],
    gpus: NDArray[np.int64],
    patience_ms: NDArray[np.int64],
    room: float,
    prices: PowerPrices,
    gain: float,
) -> NDArray[np.int64]:
    """Return when each job may start: in the hour in which its run costs least, if there is room for it then.

    Jobs book in the order given. A job starts at once or when an hour of the list of prices begins.

    Parameters
    ----------
    arrival_ms, run_ms, gpus, patience_ms : array (n,)
        Their arrivals, ascending [ms], believed run times [ms], GPUs, and longest waits [ms].
    room : float
        GPUs that may be booked in any hour.
    prices : PowerPrices
        The price of power.
    gain : float
        Part of the cost of a start at once that must be saved, at least [0..1].

    Returns
    -------
    array (n,)
        Start [ms].
    """
    run_ms = np.minimum(run_ms, _LONGEST_MS)
    lead = prices.lead_ms % HOUR_MS
    last = int((arrival_ms + patience_ms + run_ms).max(initial=0)) + lead
    booked = np.zeros(last // HOUR_MS + 2)
    found = arrival_ms.copy()
    # Hours are counted from the start of the hour of time 0.
    hour = (arrival_ms + lead) // HOUR_MS
    latest = (arrival_ms + patience_ms + lead) // HOUR_MS
    for j in range(len(arrival_ms)):
        run = int(run_ms[j])
        starts = np.arange(hour[j] + 1, latest[j] + 1) * HOUR_MS - lead
        starts = np.concatenate([arrival_ms[j : j + 1], starts])
        cost = prices.paid(starts + run) - prices.paid(starts)
        # Power may have a negative price, and then the cost of starting at once is not a measure.
        worth = cost <= cost[0] - gain * abs(cost[0])
        worth[0] = False
        order = np.flatnonzero(worth & (cost < cost[0]))
        for k in order[np.argsort(cost[order], kind="stable")].tolist():
            low, high = _hours(int(starts[k]), run, lead)
            if booked[low:high].max() + gpus[j] <= room:
                found[j] = starts[k]
                break
        low, high = _hours(int(found[j]), run, lead)
        booked[low:high] += gpus[j]
    return found


def _hours(start: int, run: int, lead: int) -> tuple[int, int]:
    """Return the hours in which a job runs, from the first to before the last [hours]."""
    return (start + lead) // HOUR_MS, (start + run + lead - 1) // HOUR_MS + 1 if run else (start + lead) // HOUR_MS + 1


class PriceAware(Policy):
    """Jobs wait for cheap hours."""

    card: ClassVar[Card] = Card(
        name="price-aware-like",
        title="flexible jobs move to hours of cheap power, and idle nodes are switched off",
        rule=(
            "A job books its start on arrival: at once, or at the beginning of one of the hours that begin within "
            "its patience. It takes the start at which the energy of its believed run time costs least by M41, "
            "the earlier one among equals. A later hour is chosen only if it saves `gain` of the cost of starting "
            "at once, and if the GPUs booked in the domain stay within `fill` of its GPUs in all hours of the "
            "run. If no hour qualifies, the job starts at once. Until its hour a job is not in the queue; then it "
            "starts as under power-down, whose rule switches idle nodes off. With who=opportunistic only jobs of "
            "that class (M10) wait. Patience is `patience` seconds, and at most `stretch` times the believed run "
            "time."
        ),
        parameters=(
            Parameter("patience", 21600.0, "longest time that a job waits for a cheaper hour; 0: none [s]"),
            Parameter("stretch", math.inf, "the same as a multiple of its believed run time"),
            Parameter("gain", 0.05, "share of the cost that must be saved", maximum=1),
            Parameter("fill", 1.0, "share of the GPUs that may be booked", maximum=1),
            Parameter("who", "all", "which jobs can wait", ("all", "opportunistic")),
            *SWITCHING,
            ORDER,
            scan("stop"),
            NOISE,
        ),
        assumptions=("D1", "M7", "M10", "M11", "M40", "M41"),
        equal_to=(
            "With patience=0, or one price for all hours: power-down.",
            "With patience=0 and idle=inf: the policy that `order` names.",
        ),
        sources=(
            (
                "Kang et al., Cost Efficient GPU Cluster Management for Training and Inference of Deep Learning "
                "(CE-DLA; Energies 15:474, 2022), by its abstract: jobs follow the price of electricity, idle "
                "nodes are right-sized, training and inference are classes."
            ),
            (
                "Own choices: bookings hour by hour instead of its integer program; one site, so a price belongs "
                "to an hour and not to a node; patience; power-down for the right-sizing."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Switching:
        """Return the order, when nodes are switched, and for how long each job waits."""
        p = self.parameters
        arrival = jobs.arrival_ms
        believed = estimates_ms(models, jobs.work_ms, seed, p["noise"])
        limit = np.minimum(p["patience"] * 1000, p["stretch"] * np.maximum(believed, 1))
        # Beyond a month no hour is cheaper than all before it.
        patience = np.minimum(limit, 31 * 24 * HOUR_MS).astype(np.int64)
        if p["who"] == "opportunistic":
            patience[classes(models, jobs, seed) == 0] = 0
        domain = assign(jobs, cluster).domain
        prices = power_prices(models, jobs.origin)
        start = arrival.copy()
        gpus = jobs.devices.astype(np.int64)
        for d in range(len(cluster.domains)):
            own = np.flatnonzero(domain == d)
            room = p["fill"] * float(cluster.gpus[cluster.domain == d].sum())
            fits = own[gpus[own] <= room]
            start[fits] = booked_starts(
                arrival[fits], believed[fits], gpus[fits], patience[fits], room, prices, p["gain"]
            )
        held = start - jobs.submit_ms
        order = start_order(p, jobs, models, seed)
        return switching(p, order, jobs, cluster, models, held if (start > arrival).any() else None)
