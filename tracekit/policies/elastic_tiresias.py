"""Elastic Tiresias: least GPU time first in two queues; GPUs that are left go where they speed jobs up most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT
from tracekit.policies.resizing import GAP, Sizes, Wish
from tracekit.policies.tiresias import read_thresholds
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["ElasticTiresias"]

_NEVER = 1 << 60


class ElasticTiresias(Policy):
    """Tiresias' queues with elastic jobs."""

    card: ClassVar[Card] = Card(
        name="elastic-tiresias",
        title="elastic jobs, least GPU time so far first (Voda's elastic Tiresias)",
        rule=(
            "A job begins in the first queue and falls to the next when the GPU time it has had reaches a threshold; "
            "one that has waited promote times its last run begins anew. At most once in gap seconds all GPUs are "
            "divided anew: jobs of an earlier queue first, inside a queue in the order in which they first started, "
            "get what they ask for, and who finds too few free is passed over. Where more than crowd jobs then have "
            "nothing, those behind the first queue shrink to their minimum. What is free goes where a GPU adds most "
            "speed: jobs without GPUs, for which the speed of the minimum counts by its GPUs, and one GPU more for the "
            "others, up to the maximum. Run times need not be known. Gangs may be spread over nodes."
        ),
        parameters=(
            Parameter("queues", "3600", "GPU time at which a job falls to the next queue, such as 3250/7200 [GPU*s]"),
            Parameter("promote", 8.0, "a job that has waited so many times its last run begins anew; 0 never"),
            Parameter("crowd", 10, "jobs without GPUs above which those behind the first queue shrink"),
            GAP,
            Parameter("resize", 10.0, "cost of a change in the number of GPUs [s]"),
            Parameter("overhead", "voda", "preset of what each preemption and migration costs (M9)"),
            FIT,
        ),
        assumptions=("D1", "D3", "M9", "M4"),
        equal_to=(
            "Where no job is elastic (rigid), with queues=none, gap=0, fit=count: fifo,scan=skip,fit=count.",
            "With room for the maximum of all: every job has its maximum.",
        ),
        sources=(
            "The open-source Voda scheduler: queues, thresholds, order, the shrinking and its limit of 10 jobs.",
            (
                "Own choices: speed is M8's and not measured; the cost of a change; between equal gains the order of "
                "the queues; a crowd is counted by domain."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans by queue."""
        p = self.parameters
        sizes = Sizes(jobs, cluster, models, p["fit"])
        gap_ms = round(p["gap"] * 1000)
        queues = _Queues(np.array(read_thresholds(p["queues"]), np.int64), p["promote"])

        def plan(view: View) -> Plan:
            wish = sizes.begin(view)
            queue = queues.find(view, wish)
            first = view.table["first"][wish.job]
            order = np.lexsort((np.where(first < 0, np.iinfo(np.int64).max, first), queue))
            sizes.give(wish, order, sizes.requested[wish.job])
            _shrink(sizes, wish, queue, p["crowd"])
            # Of jobs without GPUs those come first whose minimum is fastest for its GPUs: the smallest. On a concave
            # curve that is more than any further GPU adds.
            waits = order[wish.gpus[order] == 0]
            least = sizes.low[wish.job]
            density = sizes.speed[least[waits]] / least[waits]
            if len(waits):
                sizes.give(wish, waits[np.argsort(-density, kind="stable")], least)
            place, gpus = sizes.steps(wish)
            sizes.grow(wish, place, sizes.speed[gpus + 1] - sizes.speed[gpus], order)
            due = queues.next_ms(view, wish)
            return sizes.plan(wish, wake_ms=max(due, view.now_ms + gap_ms) if due >= 0 else -1)

        return Planner(
            plan,
            gap_ms=gap_ms,
            fit=p["fit"],
            overhead_ms=overhead_ms(models, p["overhead"], np.arange(int(sizes.high.max(initial=1)) + 1)),
            resize_ms=round(p["resize"] * 1000),
        )


@dataclass
class _Queues:
    """Which queue each job is in, by the GPU time it has had since it began anew."""

    thresholds: NDArray[np.int64]
    """Ends of the queues but the last [GPU*ms]."""
    promote: float
    """A job that waits so many times its last run begins anew; 0 never."""
    view: View | None = None
    """Of the run that the books are of."""
    base: NDArray[np.int64] | None = None
    """GPU time that does not count any more (n,) [GPU*ms]."""

    def find(self, view: View, wish: Wish) -> NDArray[np.int64]:
        """Return the queue of each job, after letting those begin anew that have waited long (k,)."""
        table, job = view.table, wish.job
        if self.view is not view or self.base is None:
            self.view, self.base = view, np.zeros(len(table), np.int64)
        attained = table["attained"]
        waits = job[wish.held == 0]
        late = waits[self._patience_ms(view, waits, np.zeros(len(waits), np.bool_)) <= view.now_ms]
        self.base[late] = attained[late]
        return np.searchsorted(self.thresholds, attained[job] - self.base[job], side="right")

    def next_ms(self, view: View, wish: Wish) -> int:
        """Return when, if nothing comes or ends, a job falls or begins anew [ms]; -1 never."""
        assert self.base is not None  # noqa: S101 -- `find` goes first
        had = view.table["attained"][wish.job] - self.base[wish.job]
        queue = np.searchsorted(self.thresholds, had, side="right")
        runs = np.flatnonzero((wish.gpus > 0) & (queue < len(self.thresholds)))
        falls = view.now_ms - (had[runs] - self.thresholds[queue[runs]]) // wish.gpus[runs]
        idle = (wish.gpus == 0) & (had > 0)
        waits = self._patience_ms(view, wish.job[idle], wish.held[idle] > 0)
        due = np.concatenate([falls, waits[waits > view.now_ms]])
        return int(due.min()) if len(due) and due.min() < _NEVER else -1

    def _patience_ms(self, view: View, job: NDArray[np.int64], stops: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return when jobs that wait, or stop now, have waited long enough [ms]."""
        if self.promote == 0 or not len(job):
            return np.full(len(job), _NEVER)
        begun, stopped = view.table["begun"][job], view.table["stopped"][job]
        stopped = np.where(stops, view.now_ms, stopped)
        due = stopped + np.minimum((stopped - begun) * self.promote, _NEVER // 2).astype(np.int64)
        return np.where(view.table["first"][job] >= 0, due, _NEVER)


def _shrink(sizes: Sizes, wish: Wish, queue: NDArray[np.int64], crowd: int) -> None:
    """Take jobs behind the first queue down to their minimum in the domains where too many have nothing."""
    domain = sizes.pools.kind_domain[sizes.pools.kind[wish.job]]
    crowded = np.bincount(domain[wish.gpus == 0], minlength=int(domain.max(initial=0)) + 1) > crowd
    mine = np.flatnonzero((wish.gpus > 0) & (queue > 0) & crowded[domain])
    least = sizes.low[wish.job[mine]]
    np.add.at(wish.free, wish.pool[mine], wish.gpus[mine] - least)
    wish.gpus[mine] = least
