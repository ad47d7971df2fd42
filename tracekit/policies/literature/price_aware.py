"""Flexible jobs move to hours of cheap power, and idle nodes are switched off (after CE-DLA)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import NOISE, ORDER, scan, start_order
from tracekit.policies.power_down import SWITCHING, switching
from tracekit.replay.assumptions.costs import HOUR_MS, PowerPrices, power_prices
from tracekit.replay.assumptions.of_jobs import classes, estimates_ms
from tracekit.replay.clusters.assignment import assign

if TYPE_CHECKING:
    from tracekit.array_types import Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Switching


_LONGEST_MS = 400 * 24 * HOUR_MS
"""Longest run time to book [ms]. Over a year, all start hours cost the same."""


def booked_starts(
    arrival_ms: Ints, run_ms: Ints, gpus: Ints, patience_ms: Ints, room: float, prices: PowerPrices, gain: float
) -> Ints:
    """Return each job's start: the hour at which its run costs least and fits.

    Jobs book in the given order. A job starts at once, or at the beginning of a price hour.

    Parameters
    ----------
    arrival_ms, run_ms, gpus, patience_ms : array (n,)
        Arrivals, ascending [ms], estimated run times [ms], GPUs, and longest waits [ms] of the jobs.
    room : float
        Maximum GPUs booked in any hour.
    prices : PowerPrices
        The price of power.
    gain : float
        Minimum saving, as a share of the cost of starting at once [0..1].

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
    # Hours are counted from the start of the hour that contains time 0.
    hour = (arrival_ms + lead) // HOUR_MS
    latest = (arrival_ms + patience_ms + lead) // HOUR_MS
    for j in range(len(arrival_ms)):
        run = int(run_ms[j])
        starts = np.arange(hour[j] + 1, latest[j] + 1) * HOUR_MS - lead
        starts = np.concatenate([arrival_ms[j : j + 1], starts])
        cost = prices.paid(starts + run) - prices.paid(starts)
        # Prices may be negative, so measure the saving against the absolute cost.
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
    """Return the first hour of a run, and the hour after its last."""
    return (start + lead) // HOUR_MS, (start + run + lead - 1) // HOUR_MS + 1 if run else (start + lead) // HOUR_MS + 1


class PriceAware(Policy):
    """Flexible jobs move to hours of cheap power, and idle nodes are switched off.

    A job books its start on arrival: at once, or at the beginning of an hour within its patience. It takes the start at
    which the energy for its estimated run time costs least according to M41, and among equals the earliest. A later
    hour is chosen only if it saves at least the share `gain` of the cost of starting at once, and if the GPUs booked in
    the domain stay within the share `fill` of its GPUs in all hours of the run. If no hour qualifies, the job starts at
    once. A job joins the queue when its hour begins, and then starts as under power-down, which also switches idle
    nodes off. With who=opportunistic, only jobs of that class (M10) wait. A job's patience is `patience` seconds, but
    at most `stretch` times its estimated run time.

    Equal to
    --------
    - With patience=0, or one price for all hours, the policy equals power-down.
    - With patience=0 and idle=inf, price-aware equals the policy that `order` names.

    Sources
    -------
    - Kang et al., Cost Efficient GPU Cluster Management for Training and Inference of Deep Learning (CE-DLA; Energies
      15:474, 2022), by its abstract: jobs follow the price of electricity, the number of active nodes is right-sized,
      and training and inference are separate classes.
    - Our choices: bookings hour by hour instead of an integer program; one site, so that prices depend only on the
      hour; `patience`; power-down for right-sizing.
    """

    card = Card(
        name="price-aware-like",
        parameters=(
            Parameter("patience", 21600.0, "longest time that a job waits for a cheaper hour, or 0 for none [s]"),
            Parameter(
                "stretch", math.inf, "longest wait for a cheaper hour, as a multiple of the job's estimated run time"
            ),
            Parameter("gain", 0.05, "minimum saving, as a share of the cost of starting at once", maximum=1),
            Parameter("fill", 1.0, "maximum share of the GPUs that may be booked", maximum=1),
            Parameter("who", "all", "which jobs may wait", ("all", "opportunistic")),
            *SWITCHING,
            ORDER,
            scan("stop"),
            NOISE,
        ),
        assumptions=("D1", "M7", "M10", "M11", "M40", "M41"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Switching:
        """Return the job order, the rules for switching nodes, and how long each job waits for its hour."""
        p = self.parameters
        arrival = jobs.arrival_ms
        believed = estimates_ms(models, jobs.work_ms, seed, p["noise"])
        limit = np.minimum(p["patience"] * 1000, p["stretch"] * np.maximum(believed, 1))
        # Limit the wait to 31 days: no later hour is cheaper than all earlier ones.
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
