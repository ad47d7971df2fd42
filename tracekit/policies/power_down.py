"""The policy power-down: idle nodes are switched off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import NOISE, ORDER, scan, start_order
from tracekit.replay.assumptions.costs import power_prices
from tracekit.replay.mechanisms import Ordered, Switching
from tracekit.replay.results.energy import power_draw_mw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.array_types import Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


_ENDLESS = 1 << 62

SWITCHING = (
    Parameter("idle", 900.0, "time a node must be entirely idle before it may be switched off, or inf for never [s]"),
    Parameter("reserve", 1, "number of entirely idle nodes per pool that stay on [nodes]"),
    Parameter("reserve_gpus", 0, "number of free GPUs per pool that stay on [GPUs]"),
)
"""Parameters of all policies that switch nodes off."""


def switching(
    given: Mapping[str, Any], order: Ordered, jobs: Jobs, cluster: Cluster, models: Models, held_ms: Ints | None = None
) -> Switching:
    """Return the mechanism for the parameters `SWITCHING`. With `held_ms`, each job waits until its own time."""
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
    """Idle nodes are switched off, except for a reserve.

    Jobs start as under fifo, sjf or ssf, and are never stopped. The nodes of one domain and GPU model form a pool. A
    node that has been entirely idle for `idle` seconds is switched off, the last node of the pool first, if `reserve`
    entirely idle nodes and `reserve_gpus` free GPUs stay on and no waiting job could use the pool. If jobs still wait
    after all possible starts, nodes are switched on, the first node of the pool first, until the idle nodes and those
    waking up have as many GPUs as these jobs request. If jobs still wait and no node is waking up, nodes are switched
    on one at a time. Nodes are also switched on to restore the reserve. A node accepts jobs after its wake-up time
    (M40), and draws its idle power until then. GPUs on nodes that are off or waking up do not count towards the
    cluster's utilization. The energy and its cost (M41) follow the actual switching of the nodes.

    Equal to
    --------
    - With idle=inf, or a reserve of all nodes, power-down equals the policy that `order` names.
    - With off_share = 1 in the models, nothing is saved.

    Sources
    -------
    - Slurm's power saving: SuspendTime, SuspendExcNodes with a count as the reserve, and ResumeTimeout.
    - Our choices: which node is switched first, and how many nodes wake up for waiting jobs.
    """

    card = Card(
        name="power-down",
        parameters=(*SWITCHING, ORDER, scan("stop"), NOISE),
        assumptions=("D1", "M7", "M11", "M40", "M41"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Switching:
        """Return the job order and the rules for switching nodes."""
        order = start_order(self.parameters, jobs, models, seed)
        return switching(self.parameters, order, jobs, cluster, models)
