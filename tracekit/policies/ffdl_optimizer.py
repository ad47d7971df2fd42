"""The FfDL optimizer: GPUs for the largest sum of the jobs' speedups."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.knapsack import take_chains
from tracekit.policies.parameters import FIT
from tracekit.policies.resizing import GAP, Sizes, ragged
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from tracekit.policies.resizing import Wish
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["FfdlOptimizer"]


class FfdlOptimizer(Policy):
    """Largest sum of speedups."""

    card: ClassVar[Card] = Card(
        name="ffdl-optimizer",
        title="elastic jobs, with GPUs divided for the largest sum of speedups (FfDL's optimizer)",
        rule=(
            "When a job arrives or ends, but at most once every gap seconds, all GPUs are divided anew among the "
            "earliest submitted jobs, as many jobs as there are GPUs. Each job gets no GPU, or any number from "
            "its minimum to its maximum. The division maximizes the sum of the jobs' speeds, each relative to its "
            "speed on one GPU. GPUs go where each adds most, a minimum at once; among equals minima go first, "
            "then earlier jobs. If the next such step does not fit, an integer program decides again over the "
            "core jobs on either side of it, unless it can add less than a thousandth. A job that gets no GPU "
            "waits, and is stopped if it was running. Run times need not be known. Gangs may be spread over nodes."
        ),
        parameters=(
            Parameter(
                "core",
                12,
                "an integer program decides over this many jobs on either side of the first that does not fit",
            ),
            GAP,
            Parameter("resize", 10.0, "cost of changing the number of GPUs [s]"),
            Parameter("overhead", "voda", "preset for the cost of each preemption and migration (M9)"),
            FIT,
        ),
        assumptions=("D1", "D3", "M9", "M4"),
        equal_to=(
            "If the maxima of all jobs fit: every job gets its maximum.",
            "With one-GPU jobs that cannot grow, gap=0: fifo, with eviction by earlier jobs.",
        ),
        sources=(
            "Jayaram et al., FfDL (Middleware'19), and Saxena et al. (MASCOTS'20): the sum of speedups.",
            "The open-source Voda scheduler: as many jobs as GPUs, by submission; plans at most once every 30 s.",
            (
                "Own choices: minima count (Voda's port takes any number from one on), so a job may get nothing; "
                "an exact step near the end instead of dynamic programming over all jobs; speed comes from M8."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans by the sum of speedups."""
        p = self.parameters
        sizes = Sizes(jobs, cluster, models, p["fit"])

        def plan(view: View) -> Plan:
            wish = sizes.begin(view)
            _choose(sizes, wish)
            for pool in np.unique(wish.pool[wish.gpus > 0]).tolist():
                _divide(sizes, wish, pool, p["core"])
            return sizes.plan(wish)

        return Planner(
            plan,
            gap_ms=round(p["gap"] * 1000),
            fit=p["fit"],
            overhead_ms=overhead_ms(models, p["overhead"], np.arange(int(sizes.high.max(initial=1)) + 1)),
            resize_ms=round(p["resize"] * 1000),
        )


def _choose(sizes: Sizes, wish: Wish) -> None:
    """Promise a GPU to the earliest jobs, as many jobs as GPUs: these take part."""
    sizes.give(wish, np.arange(len(wish.job)), np.ones(len(wish.job), np.int64))


def _divide(sizes: Sizes, wish: Wish, pool: int, core: int) -> None:
    """Divide a pool among the jobs that have a GPU of it."""
    line = np.flatnonzero((wish.pool == pool) & (wish.gpus > 0))
    low, high = sizes.low[wish.job[line]], sizes.high[wish.job[line]]
    capacity = int(wish.free[pool] + wish.gpus[line].sum())
    if high.sum() <= capacity:
        wish.gpus[line] = high
        return
    # A step to the minimum, and one for each further GPU.
    row, step = ragged(high - low + 1)
    size = np.where(step == 0, low[row], 1)
    after = low[row] + step
    gain = sizes.speed[after] - np.where(step == 0, 0.0, sizes.speed[after - size])
    taken = take_chains(row, size, gain, capacity, rows=len(line), core=core)
    wish.gpus[line] = np.where(taken > 0, low + taken - 1, 0)
