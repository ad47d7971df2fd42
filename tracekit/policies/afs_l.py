"""AFS-L: between a shorter and a longer job the next GPU goes by what it adds to each."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT
from tracekit.policies.resizing import GAP, Sizes
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["AfsL"]


class AfsL(Policy):
    """Apathetic future share with known lengths."""

    card: ClassVar[Card] = Card(
        name="afs-l",
        title="elastic jobs, the next GPU to the shorter job unless the longer one makes more of it (AFS-L)",
        rule=(
            "At most once in gap seconds, when a job came or ended, all GPUs are divided anew, one at a time; the "
            "first step of a job is its minimum. Of two jobs the longer one, by the time that it has left with the "
            "GPUs given to it so far, is preferred where the GPU adds more to its speed, relative to the speed after, "
            "than to that of the shorter one, relative to the speed before; of two without GPUs the shorter one. The "
            "GPU goes to the job that is preferred in all rounds of a knock-out in the order of submission, until no "
            "GPU is left or all have their maximum. Taking part are the jobs whose minima fit, the shortest first, "
            "others being passed over. Jobs that have no GPUs then are stopped. Remaining times are the true ones. "
            "Gangs may be spread over nodes."
        ),
        parameters=(
            GAP,
            Parameter("resize", 10.0, "cost of a change in the number of GPUs [s]"),
            Parameter("overhead", "voda", "preset of what each preemption and migration costs (M9)"),
            FIT,
        ),
        assumptions=("D1", "D3", "M9", "M4"),
        equal_to=(
            "Where no job is elastic (rigid), with gap=0, fit=count, overhead=none: srtf,scan=skip,fit=count.",
            "With room for the maximum of all: every job has its maximum.",
        ),
        sources=(
            "Hwang et al., AFS (NSDI'21): the comparison; Voda's port of it: plans, minimum and maximum.",
            (
                "Own choices: each job's time left is by its own GPUs (Voda's port takes the first job's); the "
                "comparison can go round in a circle, so the order of the pairs matters and is fixed; speed is M8's."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans by comparison."""
        p = self.parameters
        sizes = Sizes(jobs, cluster, models, p["fit"])

        def plan(view: View) -> Plan:
            from tracekit.replay.kernel import divide_by_pairs

            wish = sizes.begin(view)
            low, high = sizes.low[wish.job], sizes.high[wish.job]
            work = view.remaining_ms * sizes.speed[sizes.requested[wish.job]]
            sizes.give(wish, np.argsort(work / sizes.speed[low], kind="stable"), low)
            for pool in np.unique(wish.pool[wish.gpus > 0]).tolist():
                line = np.flatnonzero((wish.pool == pool) & (wish.gpus > 0))
                free = int(wish.free[pool] + wish.gpus[line].sum())
                if high[line].sum() <= free:
                    wish.gpus[line] = high[line]
                    continue
                wish.gpus[line] = 0
                room = np.zeros(2 * len(line), np.int64)
                divide_by_pairs(line, work, low, high, sizes.speed, free, wish.gpus, room)
            return sizes.plan(wish)

        return Planner(
            plan,
            gap_ms=round(p["gap"] * 1000),
            fit=p["fit"],
            overhead_ms=overhead_ms(models, p["overhead"], np.arange(int(sizes.high.max(initial=1)) + 1)),
            resize_ms=round(p["resize"] * 1000),
        )
