"""Jobs that can wait go to hours of cheap power, and idle nodes are switched off (after CE-DLA)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import NOISE, ORDER, scan, start_order
from tracekit.policies.power_down import SWITCHING, switching
from tracekit.replay.assumptions.of_jobs import classes, estimates_ms
from tracekit.replay.assumptions.prices import HOUR_MS, PowerPrices, power_prices
from tracekit.replay.clusters.assignment import assign

if TYPE_CHECKING:
    from tracekit.array_types import Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Switching


_LONGEST_MS = 400 * 24 * HOUR_MS
"""The longest part of a run time to book: beyond a year all hours cost the same [ms]."""


def booked_starts(
    arrival_ms: Ints, run_ms: Ints, gpus: Ints, patience_ms: Ints, room: float, prices: PowerPrices, gain: float
) -> Ints:
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
