"""AFS-L: the next GPU goes to a shorter or a longer job, depending on what it adds to each."""

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
        title="elastic jobs; the next GPU goes to the shorter job unless the longer one gains more from it (AFS-L)",
        rule=(
            "When a job arrives or ends, but at most once every `gap` seconds, all GPUs are divided anew, one at "
            "a time. A job's first step is its minimum. Two jobs are compared by the time they have left on the "
            "GPUs they have received so far. The longer one is preferred if the GPU raises its speed more, "
            "relative to its speed afterwards, than it raises the shorter one's speed, relative to its speed "
            "before. If neither has GPUs, the shorter one is preferred. The GPU goes to the job that wins all "
            "rounds of a knock-out in the order of submission, until no GPU is left or all jobs have their "
            "maximum. The jobs whose minima fit take part, the shortest first; the others are skipped. Jobs that "
            "end up without GPUs are stopped. Remaining times are the true ones. Gangs may be spread over nodes."
        ),
        parameters=(
            GAP,
            Parameter("resize", 10.0, "cost of changing the number of GPUs [s]"),
            Parameter("overhead", "voda", "preset for the cost of each preemption and migration (M9)"),
            FIT,
        ),
        assumptions=("D1", "D3", "M9", "M4"),
        equal_to=(
            "If no job is elastic (rigid), with gap=0, fit=count, overhead=none: srtf,scan=skip,fit=count.",
            "If the maxima of all jobs fit: every job gets its maximum.",
        ),
        sources=(
            "Hwang et al., AFS (NSDI'21): the comparison; Voda's port of it: the planning, minimum and maximum.",
            (
                "Own choices: each job's remaining time depends on its own GPUs (Voda's port uses the first "
                "job's); the comparison can be circular, so the order of the pairs matters and is fixed; speed "
                "comes from M8."
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
