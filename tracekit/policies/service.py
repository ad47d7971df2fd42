"""Policies that order jobs by run time or GPU time: known, estimated, predicted, remaining or used so far."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import (
    CHARGE,
    FIT,
    FIT_OR_QUOTA,
    INTERVAL,
    NOISE,
    OVERHEAD,
    believed,
    charged,
    overheads,
    scan,
)
from tracekit.policies.pools import make_pools
from tracekit.replay.keys import least_attained, least_attained_stays, shortest, shortest_left, smallest, smallest_left
from tracekit.replay.mechanisms import Ordered, Plan, Planner, View

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


@dataclass(frozen=True)
class RemainingOrder:
    """Order by least remaining run time, then waiting jobs first, then by submission."""

    by_gpus: bool
    """Whether the remaining time is multiplied by the job's GPUs."""

    def _left(self, view: View, gpus: Ints) -> Ints:
        left = view.remaining_ms + view.overhead_ms
        return left * gpus if self.by_gpus else left

    def order(self, view: View, gpus: Ints) -> Ints:
        """Return the jobs' indices in the view, in this order."""
        return np.lexsort((view.job, view.running, self._left(view, gpus)))

    def change_in_ms(self, view: View, gpus: Ints, runs: Bools) -> int:
        """Return the time until a running job may overtake a waiting job, or -1 for never [ms]."""
        left = self._left(view, gpus)
        waiting = np.unique(left[~runs])
        below = np.searchsorted(waiting, left[runs], side="right") - 1
        near = below >= 0
        if not near.any():
            return -1
        fall = gpus[runs][near] if self.by_gpus else np.ones(int(near.sum()), np.int64)
        missing = left[runs][near] - waiting[below[near]]
        return int(np.maximum(-(-missing // fall), 1).min())


@dataclass(frozen=True)
class AttainedOrder:
    """Order by the queue that a job's GPU time has reached, then by submission or with running jobs first."""

    thresholds: tuple[int, ...]
    """Upper limits of the queues [GPU*ms]."""
    stays: bool

    def order(self, view: View, gpus: Ints) -> Ints:
        """Return the jobs' indices in the view, in this order."""
        queue = np.searchsorted(np.array(self.thresholds, np.int64), view.attained_gpu_ms, side="right")
        waits = ~view.running if self.stays else np.zeros(len(queue), np.bool_)
        return np.lexsort((view.job, waits, queue))

    def change_in_ms(self, view: View, gpus: Ints, runs: Bools) -> int:
        """Return the time until a running job falls into the next queue, or -1 for never [ms]."""
        ends = np.array([*self.thresholds, 1 << 62], np.int64)
        had = view.attained_gpu_ms[runs]
        missing = ends[np.searchsorted(ends, had, side="right")] - had
        after = -(-missing // gpus[runs])[missing < 1 << 61]
        return int(after.min()) if len(after) else -1


def quota_plan(
    order: RemainingOrder | AttainedOrder, p: dict[str, Any], jobs: Jobs, cluster: Cluster, models: Models
) -> Planner:
    """Return the planner that plans jobs by GPU count and places them afterwards (fit=quota).

    Each decision considers all jobs in order. A job gets its GPUs from its domain's total or is skipped. Skipped
    running jobs are stopped. Planned jobs that do not fit on the nodes wait, and their GPUs stay idle. The simulators
    of Helios (SRTF) and Lucid (Tiresias) do the same.

    Raises
    ------
    UsageError
        A parameter has a value that fit=quota does not support.
    """
    for name, only in (("charge", "restart"), ("scan", "skip"), ("promote", 0.0)):
        if p.get(name, only) != only:
            raise UsageError(f"fit=quota cannot be combined with {name}={p[name]}", hint="use fit=place or fit=count")
    gpus, pools = jobs.devices.astype(np.int64), make_pools(jobs, cluster, "place")
    every = round(p.get("interval", 0.0) * 1000)

    def plan(view: View) -> Plan:
        job = view.job
        wants, domain = gpus[job], pools.kind_domain[pools.kind[job]]
        quota = np.bincount(pools.domain, pools.gpus(view), len(cluster.domains)).astype(np.int64).tolist()
        chosen = []
        ranked = order.order(view, wants)
        for place, asked, where in zip(ranked.tolist(), wants[ranked].tolist(), domain[ranked].tolist(), strict=True):
            if asked <= quota[where]:
                quota[where] -= asked
                chosen.append(place)
        taken = np.array(chosen, np.int64)
        runs = np.zeros(len(job), np.bool_)
        runs[taken] = True
        change = -1 if runs.all() else order.change_in_ms(view, wants, runs)
        wake = -1 if change < 0 else view.now_ms + change
        if wake >= 0 and every:
            wake = -(-wake // every) * every
        return Plan(job=job[taken], gpus=wants[taken], wake_ms=wake)

    return Planner(plan, round_ms=every, scope=0, overhead_ms=overheads(models, p["overhead"], jobs.devices))


_SOURCES = (
    "The usual reference policies.",
    "SJF and SSF as in Helios (SC'21) and Lucid (ASPLOS'23), which stop at the first job that cannot start.",
    "SRTF and SRSF as in the simulators of Tiresias (NSDI'19) and Muri (SIGCOMM'22), which skip it.",
    (
        "Helios' SRTF: overhead=helios,fit=quota. On 5,000 jobs and a full cluster (336 and 480 GPUs), our mean "
        "completion time is 0.3 and 0.0 % below that of Helios. With fit=count it is 1.2 and 0.5 % below, and with "
        "fit=place 9.0 and 5.0 %. In Helios, a job ends one second late."
    ),
    (
        "The charge at every event comes from Muri's simulator. On its third trace, under load and with a charge that "
        "depends on each job's model, our mean completion time is within 0.05 % of Muri's. Without any charge, it is "
        "0.8 to 1.3 % below."
    ),
)


class _Estimated(Policy):
    """Order jobs by estimated run time or GPU time, and never stop a job."""

    key: ClassVar[Any]

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered:
        """Return the order by estimate."""
        p = self.parameters
        return Ordered(
            self.key,
            scan=p["scan"],
            fit=p["fit"],
            drift="none",
            estimate_ms=believed(jobs, models, p["noise"], seed),
        )


class _Remaining(Policy):
    """Order jobs by true remaining time, and stop jobs that have more time left than a waiting job."""

    key: ClassVar[Any]
    drift: ClassVar[Any]

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered | Planner:
        """Return the order by remaining time."""
        p = self.parameters
        if p["fit"] == "quota":
            return quota_plan(RemainingOrder(by_gpus=self.card.name == "srsf"), p, jobs, cluster, models)
        return Ordered(
            self.key,
            scan=p["scan"],
            fit=p["fit"],
            preemptive=True,
            # The remaining time of a stalled job does not fall, so read it at every event.
            drift="any" if p["charge"] == "event" else self.drift,
            **charged(models, p["overhead"], p["charge"], jobs),
        )


class Sjf(_Estimated):
    """Shortest job first.

    The job with the shortest run time starts first, and ties go by submission. Running jobs are never stopped.

    Equal to
    --------
    - With equal run times and sizes, the policy equals fifo.
    - If all jobs have one size, the policy equals ssf.
    """

    key = staticmethod(shortest)
    card = Card(
        name="sjf",
        parameters=(scan("stop"), FIT, NOISE),
        assumptions=("D1", "M11"),
        sources=_SOURCES,
    )


class Ssf(_Estimated):
    """Smallest GPU time (GPUs times run time) first.

    The job with the smallest run time times GPUs starts first, and ties go by submission. Running jobs are never
    stopped.

    Equal to
    --------
    - If all jobs have one size, the policy equals sjf.
    """

    key = staticmethod(smallest)
    card = Card(
        name="ssf",
        parameters=(scan("stop"), FIT, NOISE),
        assumptions=("D1", "M11"),
        sources=_SOURCES,
    )


class Srtf(_Remaining):
    """Shortest remaining time first; running jobs may be stopped.

    Whenever a job arrives or ends, the jobs with the least remaining run time get the GPUs. A waiting job evicts
    running jobs with more time left, starting with the longest, until it fits. A stopped job later resumes at the cost
    of `overhead`, which counts as remaining run time. With charge=event, every running job pays the cost at every
    cluster event, and the cost does not affect the order.

    Equal to
    --------
    - If all jobs are submitted at once, with one size and no overhead, the policy equals sjf.
    - If all jobs have one size, the policy equals srsf.
    """

    key = staticmethod(shortest_left)
    drift = "time"
    card = Card(
        name="srtf",
        parameters=(scan("skip"), FIT_OR_QUOTA, OVERHEAD, CHARGE),
        assumptions=("D1", "M9"),
        sources=_SOURCES,
    )


class Srsf(_Remaining):
    """Smallest remaining GPU time first; running jobs may be stopped.

    Like srtf, but ordered by the remaining run time times the job's GPUs.

    Equal to
    --------
    - If all jobs have one size, the policy equals srtf.
    """

    key = staticmethod(smallest_left)
    drift = "any"
    card = Card(
        name="srsf",
        parameters=(scan("skip"), FIT_OR_QUOTA, OVERHEAD, CHARGE),
        assumptions=("D1", "M9"),
        sources=_SOURCES,
    )


class Qssf(Policy):
    """Shortest jobs first, predicted from earlier jobs of their kind (QSSF).

    Like ssf, but with predicted run times. The prediction uses jobs that, in the log, had ended before the job was
    submitted. It is `blend` times the mean of jobs with the same user, name and size, plus 1 - `blend` times the
    geometric mean of that user's jobs of the same size. If there are no such jobs, it uses all of the user's jobs, or
    else all jobs. Running jobs are never stopped.

    Equal to
    --------
    - With oracle=on, the policy equals ssf.
    - With oracle=on and one-GPU jobs, the policy equals sjf.

    Sources
    -------
    - Hu et al., Characterization and Prediction of Deep Learning Workloads (Helios, SC'21).
    - In that paper, the second part is a learned regressor with a weight of 0.9. It is not public, so we use the
      geometric mean.
    - We use the recorded ends of jobs, because the cluster's operator knew these.
    """

    card = Card(
        name="qssf",
        parameters=(
            scan("stop"),
            FIT,
            Parameter("blend", 0.5, "weight of the mean over jobs with the same name [0..1]", maximum=1),
            Parameter("oracle", default=False, meaning="use the true run times"),
        ),
        assumptions=("D1",),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered:
        """Return the order by predicted GPU time."""
        p = self.parameters
        estimate = jobs.work_ms if p["oracle"] else foretell_ms(jobs, p["blend"])
        return Ordered(smallest, scan=p["scan"], fit=p["fit"], drift="none", estimate_ms=estimate)


def foretell_ms(jobs: Jobs, blend: float) -> Ints:
    """Return run times predicted from jobs that had ended before each submission (n,) [ms].

    A job without a recorded end is assumed to end as if it had not waited. Until the first job has ended, predictions
    are one second.

    Parameters
    ----------
    jobs : Jobs
    blend : float
        Weight of the mean over jobs with the same user, name and size. The rest is the weight of the geometric mean
        over jobs with the same user and size.
    """
    from tracekit.replay.kernel import foretell

    known = jobs.recorded_end_ms >= jobs.submit_ms
    ends = np.where(known, jobs.recorded_end_ms, jobs.submit_ms + jobs.work_ms)
    user = jobs.user if len(jobs.users) else jobs.tenant
    sized = _numbered(user.astype(np.int64) * (int(jobs.devices.max(initial=1)) + 1) + jobs.devices)
    named = _numbered(sized * (int(jobs.name.max(initial=-1)) + 2) + jobs.name + 1)
    foretold = np.empty(len(jobs), np.int64)
    foretell(
        jobs.submit_ms,
        jobs.work_ms,
        ends,
        np.argsort(ends, kind="stable"),
        _numbered(user.astype(np.int64)),
        sized,
        named,
        np.log(np.maximum(jobs.work_ms, 1)),
        np.zeros((int(user.max(initial=0)) + 2, 3)),
        np.zeros((int(sized.max(initial=0)) + 1, 3)),
        np.zeros((int(named.max(initial=0)) + 1, 3)),
        blend,
        foretold,
    )
    return foretold


def _numbered(codes: Ints) -> Ints:
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


_SPAN = 1 << 44
"""Later than every submission [ms]: 557 years."""
_STEPS = 32
"""Number of steps per queue at which the Gittins index is recomputed."""
_SCALE = 1 << 14


_QUEUES = Parameter(
    "queues",
    "3250/7200",
    "GPU times at which jobs move to the next queue, separated by /, or none for one queue [GPU*s]",
)
_WITHIN = Parameter(
    "within",
    "submit",
    "inside a queue, either earlier submissions evict later ones, or running jobs stay and the others wait in "
    "submission order",
    ("submit", "running"),
)
_PROMOTE = Parameter(
    "promote", 0.0, "wait, as a multiple of a job's last run, after which it returns to the first queue, or 0 for never"
)


def read_thresholds(text: str) -> tuple[int, ...]:
    """Return the thresholds listed in a parameter [GPU*ms].

    Raises
    ------
    UsageError
        The thresholds are not ascending positive numbers.
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
    """Least GPU time so far first; running jobs may be stopped (Tiresias 2D-LAS).

    A job begins in the first queue and falls to the next queue when its GPU time so far reaches a threshold. Jobs in an
    earlier queue go first, and evict those in later queues. Inside a queue, the earlier submission goes first, or with
    within=running, the running job. Run times need not be known.

    Equal to
    --------
    - With queues=none, the policy equals fifo with eviction.
    - With one-GPU jobs of which no two are submitted at once, fit=quota equals fit=place.
    - With queues=none and within=running, the policy equals fifo,scan=skip.
    - With one-GPU jobs, the policy is the classic multi-level feedback queue.
    - With interval=0.001, the schedule equals that of interval=0 to the millisecond.

    Sources
    -------
    - Gu et al., Tiresias (NSDI'19); thresholds of 3,250 and 7,200 GPU*s from its released simulator.
    - Lucid's port: queues=18000,interval=60,overhead=lucid,fit=quota. On 5,000 jobs and a full cluster (336 and 480
      GPUs), our mean completion time is 0.1 and 0.3 % below that of the port. With fit=count it is 2.8 and 2.1 % below,
      and with fit=place 7.9 and 5.7 %. In the port, a job ends one second late. Voda's port has one threshold of 3,600
      GPU*s.
    - Inside a queue, the released simulator and Muri's port of it put running jobs first and order waiting jobs by the
      time at which they fell into the queue. We order waiting jobs by submission. With
      within=running,fit=count,charge=event, our mean completion time on Muri's third trace, under load, is 6.2 % above
      that of the port. With within=submit, it is 41 % above.
    """

    card = Card(
        name="las",
        parameters=(_QUEUES, _WITHIN, scan("skip"), FIT_OR_QUOTA, OVERHEAD, CHARGE, _PROMOTE, INTERVAL),
        assumptions=("D1", "M9"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered | Planner:
        """Return the order by queue and submission."""
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
    """Jobs most likely to end soon go first (Gittins index); running jobs may be stopped (Tiresias).

    Like las, but inside a queue the job that is most likely to end soon goes first. Jobs are ordered by the Gittins
    index of their GPU time so far. The index comes from the GPU times of all jobs in the trace, and looks ahead to the
    end of the queue. The last queue is ordered by submission. The index is recomputed at 32 steps per queue.

    Equal to
    --------
    - If the GPU time of jobs has a decreasing hazard, the policy equals las.
    - If the GPU time is exponentially distributed, the order inside a queue does not matter.

    Sources
    -------
    - Gu et al., Tiresias (NSDI'19); the look-ahead of the index is our interpretation.
    """

    card = Card(
        name="gittins",
        parameters=(_QUEUES, scan("skip"), FIT, OVERHEAD, _PROMOTE),
        assumptions=("D1", "M9"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered:
        """Return the order by queue, index and submission."""
        p = self.parameters
        ends = read_thresholds(p["queues"])
        steps: list[int] = []
        values: list[int] = []
        service = np.sort(jobs.work_ms * jobs.devices)
        low = 0
        for queue, end in enumerate(ends):
            grid = np.unique(np.linspace(low, end, _STEPS + 1).astype(np.int64)[:-1])
            index = gittins_index(service, grid, end)
            # Jobs with a higher index go first, so they get smaller numbers.
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
            overhead_ms=overheads(models, p["overhead"], jobs.devices),
            promote_ppm=round(p["promote"] * 1_000_000),
        )


def gittins_index(service: Ints, attained: Ints, end: int) -> Floats:
    """Return the Gittins index, scaled to 0..1, of jobs with unknown GPU time, looking ahead to `end`.

    P(X - s <= d | X > s) / E[min(X - s, d) | X > s] with d = end - s: the probability of finishing within the span,
    divided by the expected GPU time within the span. Scaling divides it by its largest value among `attained`, which
    keeps the order.

    Parameters
    ----------
    service : array, sorted
        GPU time of past jobs (X) [GPU*ms].
    attained : array
        GPU time that a job has used (s) [GPU*ms].
    end : int
        Upper limit of the job's queue [GPU*ms].
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
