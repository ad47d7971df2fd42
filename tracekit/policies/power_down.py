"""Idle nodes are switched off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import NOISE, scan
from tracekit.replay.assumptions.of_jobs import estimates_ms
from tracekit.replay.assumptions.prices import power_prices
from tracekit.replay.keys import by_arrival, shortest, smallest
from tracekit.replay.mechanisms import Ordered, Switching
from tracekit.replay.results.energy import power_draw_mw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["ORDER", "SWITCHING", "PowerDown", "start_order", "switching"]

_KEYS = {"fifo": by_arrival, "sjf": shortest, "ssf": smallest}
_ENDLESS = 1 << 62

SWITCHING = (
    Parameter("idle", 900.0, "time that a node is wholly idle before it may be switched off, inf never [s]"),
    Parameter("reserve", 1, "wholly idle nodes of each pool that stay on [nodes]"),
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
    """Idle nodes are switched off, but for a reserve."""

    card: ClassVar[Card] = Card(
        name="power-down",
        title="idle nodes are switched off, but for a reserve",
        rule=(
            "Jobs start as under fifo, sjf or ssf, and are never stopped. The nodes of a domain and a GPU model are a "
            "pool. A node of it that has been wholly idle for `idle` seconds is switched off, the last one of the pool "
            "first, as long as `reserve` wholly idle nodes and `reserve_gpus` free GPUs stay on, and while no job "
            "waits that could use the pool. When jobs wait after all starts of a moment, nodes are switched on, the "
            "first of the pool first, until the wholly idle GPUs and those on their way are as many as those jobs "
            "ask for; if they still wait then with no node on its way, one more at a time. Nodes are also switched on "
            "to make the reserve whole. A node takes jobs when its wake-up time (M40) is over; until then it draws "
            "its idle power. GPUs of nodes that are off or waking count as not there in the utilization of the "
            "cluster, and the energy and its cost (M41) are those of the nodes as they were switched."
        ),
        parameters=(*SWITCHING, ORDER, scan("stop"), NOISE),
        assumptions=("D1", "M7", "M11", "M40", "M41"),
        equal_to=(
            "With idle=inf, or a reserve of all nodes: the policy that `order` names.",
            "With off_share = 1 in the models, nothing is saved.",
        ),
        sources=(
            "Power saving of Slurm: SuspendTime, SuspendExcNodes with a count as the reserve, and ResumeTimeout.",
            "Which node goes first, and how many are woken for waiting jobs: our choice.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Switching:
        """Return the order, and when nodes are switched."""
        order = start_order(self.parameters, jobs, models, seed)
        return switching(self.parameters, order, jobs, cluster, models)
