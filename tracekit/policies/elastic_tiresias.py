"""Elastic Tiresias: least GPU time first in two queues; the GPUs that are left go where they speed jobs up most."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import CHARGE, FIT, FIT_OR_QUOTA, INTERVAL, OVERHEAD, charged, overheads, scan
from tracekit.policies.quota_plan import AttainedOrder, quota_plan
from tracekit.policies.resizing import GAP, Sizes, Wish
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.keys import least_attained, least_attained_stays
from tracekit.replay.mechanisms import Ordered, Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


# Tiresias: least attained service in levels, and the Gittins index.

_SPAN = 1 << 44
"""Above every submission [ms]: 557 years."""
_STEPS = 32
"""Steps inside a queue at which the Gittins index is computed again."""
_SCALE = 1 << 14


_QUEUES = Parameter(
    "queues", "3250/7200", "GPU time at which a job moves to the next queue, separated by / [GPU*s]; none for one queue"
)
_WITHIN = Parameter(
    "within",
    "submit",
    "inside a queue, the earlier submission evicts later ones, or running jobs stay and the others wait by submission",
    ("submit", "running"),
)
_PROMOTE = Parameter(
    "promote", 0.0, "a job that has waited this many times its last run goes back to the first queue; 0: never"
)


def read_thresholds(text: str) -> tuple[int, ...]:
    """Return the thresholds that a parameter names [GPU*ms].

    Raises
    ------
    UsageError
        They are not ascending positive numbers.
    """
    if text == "none":
        return ()
    try:
        numbers = [float(part) for part in text.split("/")]
    except ValueError:
        numbers = [-1.0]
    if any(not 0 < n < 1e12 for n in numbers) or any(a >= b for a, b in pairwise(numbers)):
        raise UsageError(
            f"queues={text[:60]} does not list ascending numbers above 0",
            hint="write queues=3250/7200 [GPU*s], or queues=none",
        )
    return tuple(round(n * 1000) for n in numbers)


class Las(Policy):
    """Discretized two-dimensional least attained service."""

    card: ClassVar[Card] = Card(
        name="las",
        title="least GPU time so far first; running jobs may be stopped (Tiresias 2D-LAS)",
        rule=(
            "A job begins in the first queue and falls to the next when its GPU time so far reaches a threshold. "
            "Jobs of an earlier queue go first and evict those of later ones. Inside a queue the earlier "
            "submission goes first, or with within=running the job that has GPUs. Run times need not be known."
        ),
        parameters=(_QUEUES, _WITHIN, scan("skip"), FIT_OR_QUOTA, OVERHEAD, CHARGE, _PROMOTE, INTERVAL),
        assumptions=("D1", "M9"),
        equal_to=(
            "With queues=none: fifo with eviction.",
            "With one-GPU jobs, no two submitted at once: fit=quota is fit=place.",
            "With queues=none and within=running: fifo,scan=skip.",
            "With one-GPU jobs: the classic multi-level feedback queue.",
            "With interval=0.001: the same as without it, to the millisecond.",
        ),
        sources=(
            "Gu et al., Tiresias (NSDI'19); thresholds of 3,250 and 7,200 GPU*s from its released simulator.",
            (
                "Lucid's port: queues=18000,interval=60,overhead=lucid,fit=quota. On 5,000 jobs and a full "
                "cluster (336 and 480 GPUs) our mean completion time is 0.1 and 0.3 % below that of the port; "
                "with fit=count it is 2.8 and 2.1 % below, with fit=place 7.9 and 5.7 %. In the port a job ends "
                "one second late. Voda's port has one threshold of 3,600 GPU*s."
            ),
            (
                "The released simulator and Muri's port of it keep running jobs first inside a queue, and waiting "
                "jobs by the time they fell into it; we order waiting jobs by submission. With "
                "within=running,fit=count,charge=event our mean completion time on Muri's third trace, loaded, is "
                "6.2 % above that of the port; with within=submit it is 41 % above."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered | Planner:
        """Return keys by queue and submission."""
        p = self.parameters
        if p["fit"] == "quota":
            order = AttainedOrder(read_thresholds(p["queues"]), stays=p["within"] == "running")
            return quota_plan(order, p, jobs, cluster, models)
        return Ordered(
            least_attained_stays if p["within"] == "running" else least_attained,
            scan=p["scan"],
            fit=p["fit"],
            preemptive=True,
            drift="none",
            thresholds=read_thresholds(p["queues"]),
            **charged(models, p["overhead"], p["charge"], jobs),
            promote_ppm=round(p["promote"] * 1_000_000),
            interval_ms=round(p["interval"] * 1000),
        )


class Gittins(Policy):
    """Discretized two-dimensional Gittins index."""

    card: ClassVar[Card] = Card(
        name="gittins",
        title="most likely to end soon first (Gittins index); running jobs may be stopped (Tiresias)",
        rule=(
            "As las, but inside a queue the job that is most likely to end soon goes first. The order is the "
            "Gittins index of its GPU time so far, from the distribution of the GPU time of all jobs of the "
            "trace, looking ahead to the end of its queue; the last queue goes by submission. The index is "
            "computed again at 32 steps in a queue."
        ),
        parameters=(_QUEUES, scan("skip"), FIT, OVERHEAD, _PROMOTE),
        assumptions=("D1", "M9"),
        equal_to=(
            "If the GPU time of jobs has a decreasing hazard: las.",
            "If it is exponential: any order inside a queue.",
        ),
        sources=("Gu et al., Tiresias (NSDI'19); how far the index looks ahead is our interpretation.",),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered:
        """Return keys by queue, index and submission."""
        p = self.parameters
        ends = read_thresholds(p["queues"])
        steps: list[int] = []
        values: list[int] = []
        service = np.sort(jobs.work_ms * jobs.devices)
        low = 0
        for queue, end in enumerate(ends):
            grid = np.unique(np.linspace(low, end, _STEPS + 1).astype(np.int64)[:-1])
            index = gittins_index(service, grid, end)
            # Higher index first: small numbers go first.
            values += [queue * _SCALE + _SCALE - 1 - round(i * (_SCALE - 2)) for i in index]
            steps += [int(step) for step in grid[1:]] + [end]
            low = end
        values.append(len(ends) * _SCALE)
        return Ordered(
            least_attained,
            scan=p["scan"],
            fit=p["fit"],
            preemptive=True,
            drift="none",
            thresholds=tuple(steps),
            level_values=tuple(values),
            overhead_ms=overheads(models, p["overhead"], jobs),
            promote_ppm=round(p["promote"] * 1_000_000),
        )


def gittins_index(service: NDArray[np.int64], attained: NDArray[np.int64], end: int) -> NDArray[np.float64]:
    """Return the Gittins index of jobs of unknown service, looking ahead to `end`, scaled to 0..1.

    P(X - s <= d | X > s) / E[min(X - s, d) | X > s] with d = end - s: the chance to finish in the span, over the
    service that the span is expected to take. It is scaled by its largest value among `attained`, which keeps order.

    Parameters
    ----------
    service : array, sorted
        Service of past jobs (X) [GPU*ms].
    attained : array
        Service that a job has had (s) [GPU*ms].
    end : int
        Where its queue ends [GPU*ms].
    """
    index = np.zeros(len(attained))
    for i, s in enumerate(attained):
        left = service[np.searchsorted(service, s, "right") :] - s
        if len(left):
            span = end - s
            cost = np.minimum(left, span).sum()
            index[i] = (left <= span).sum() / cost if cost else 0.0
    top = index.max(initial=0.0)
    return index / top if top > 0 else index


_NEVER = 1 << 60


class ElasticTiresias(Policy):
    """Tiresias' queues with elastic jobs."""

    card: ClassVar[Card] = Card(
        name="elastic-tiresias",
        title="elastic jobs, least GPU time so far first (Voda's elastic Tiresias)",
        rule=(
            "A job begins in the first queue and falls to the next when its GPU time so far reaches a threshold. "
            "A job that has waited promote times its last run starts over in the first queue. At most once every "
            "gap seconds all GPUs are divided anew. Jobs of an earlier queue come first, and inside a queue the "
            "job that started first; each gets what it asks for, and a job that finds too few free GPUs is "
            "skipped. If more than crowd jobs are then left without GPUs, the jobs behind the first queue shrink "
            "to their minimum. The GPUs that are left go where each adds the most speed: to jobs without GPUs, "
            "whose gain is the speed of their minimum per GPU, and to the others one GPU at a time, up to their "
            "maximum. Run times need not be known. Gangs may be spread over nodes."
        ),
        parameters=(
            Parameter("queues", "3600", "GPU time at which a job falls to the next queue, such as 3250/7200 [GPU*s]"),
            Parameter(
                "promote",
                8.0,
                "a job that has waited this many times its last run starts over in the first queue; 0: never",
            ),
            Parameter("crowd", 10, "with more jobs than this without GPUs, the jobs behind the first queue shrink"),
            GAP,
            Parameter("resize", 10.0, "cost of changing the number of GPUs [s]"),
            Parameter("overhead", "voda", "preset for the cost of each preemption and migration (M9)"),
            FIT,
        ),
        assumptions=("D1", "D3", "M9", "M4"),
        equal_to=(
            "If no job is elastic (rigid), with queues=none, gap=0, fit=count: fifo,scan=skip,fit=count.",
            "If the maxima of all jobs fit: every job gets its maximum.",
        ),
        sources=(
            "The open-source Voda scheduler: queues, thresholds, order, the shrinking and its limit of 10 jobs.",
            (
                "Own choices: speed comes from M8 and is not measured; the cost of a change; the order of the "
                "queues between equal gains; a crowd is counted per domain."
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
            # Of jobs without GPUs the smallest come first: their minimum is fastest for its GPUs. On a concave curve
            # that is more than any further GPU adds.
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
    """The queue of each job, by its GPU time since it started over."""

    thresholds: NDArray[np.int64]
    """Ends of all queues except the last [GPU*ms]."""
    promote: float
    """A job that waits this many times its last run starts over; 0: never."""
    view: View | None = None
    """The run that the books describe."""
    base: NDArray[np.int64] | None = None
    """GPU time that does not count any more (n,) [GPU*ms]."""

    def find(self, view: View, wish: Wish) -> NDArray[np.int64]:
        """Return the queue of each job, after jobs that have waited long start over (k,)."""
        table, job = view.table, wish.job
        if self.view is not view or self.base is None:
            self.view, self.base = view, np.zeros(len(table), np.int64)
        attained = table["attained"]
        waits = job[wish.held == 0]
        late = waits[self._patience_ms(view, waits, np.zeros(len(waits), np.bool_)) <= view.now_ms]
        self.base[late] = attained[late]
        return np.searchsorted(self.thresholds, attained[job] - self.base[job], side="right")

    def next_ms(self, view: View, wish: Wish) -> int:
        """Return when, if no job arrives or ends, a job falls or starts over [ms]; -1 never."""
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
    """Shrink jobs behind the first queue to their minimum in domains with too many jobs without GPUs."""
    domain = sizes.pools.kind_domain[sizes.pools.kind[wish.job]]
    crowded = np.bincount(domain[wish.gpus == 0], minlength=int(domain.max(initial=0)) + 1) > crowd
    mine = np.flatnonzero((wish.gpus > 0) & (queue > 0) & crowded[domain])
    least = sizes.low[wish.job[mine]]
    np.add.at(wish.free, wish.pool[mine], wish.gpus[mine] - least)
    wish.gpus[mine] = least
