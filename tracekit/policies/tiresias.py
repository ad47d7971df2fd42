"""Tiresias: least attained service in levels, and the Gittins index."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import CHARGE, FIT, FIT_OR_QUOTA, INTERVAL, OVERHEAD, charged, overheads, scan
from tracekit.policies.quota_plan import AttainedOrder, quota_plan
from tracekit.replay.keys import least_attained, least_attained_stays
from tracekit.replay.mechanisms import Ordered, Planner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Gittins", "Las", "gittins_index", "read_thresholds"]

_SPAN = 1 << 44
"""Above every submission [ms]: 557 years."""
_STEPS = 32
"""Steps inside a queue at which the Gittins index is asked for anew."""
_SCALE = 1 << 14


_QUEUES = Parameter(
    "queues", "3250/7200", "service at which a job moves to the next queue, with / between [GPU*s]; none for one queue"
)
_WITHIN = Parameter(
    "within",
    "submit",
    "inside a queue, the earlier submission evicts later ones, or who runs stays and the others wait by submission",
    ("submit", "running"),
)
_PROMOTE = Parameter(
    "promote", 0.0, "a job that has waited so many times its last run goes back to the first queue; 0 never"
)


def read_thresholds(text: str) -> tuple[int, ...]:
    """Return the thresholds that a parameter names [GPU*ms].

    Raises
    ------
    UsageError
        They are no ascending positive numbers.
    """
    if text == "none":
        return ()
    try:
        numbers = [float(part) for part in text.split("/")]
    except ValueError:
        numbers = [-1.0]
    if any(not 0 < n < 1e12 for n in numbers) or any(a >= b for a, b in pairwise(numbers)):
        raise UsageError(
            f"queues={text[:60]} names no ascending numbers above 0",
            hint="write queues=3250/7200 [GPU*s], or queues=none",
        )
    return tuple(round(n * 1000) for n in numbers)


class Las(Policy):
    """Discretized two-dimensional least attained service."""

    card: ClassVar[Card] = Card(
        name="las",
        title="least GPU time so far first; running jobs may be stopped (Tiresias 2D-LAS)",
        rule=(
            "A job begins in the first queue and falls to the next when the GPU time it has had reaches a threshold. "
            "Jobs of an earlier queue go first and evict those of later ones; inside a queue the earlier submission "
            "goes first, or with within=running the job that holds GPUs. Run times need not be known."
        ),
        parameters=(_QUEUES, _WITHIN, scan("skip"), FIT_OR_QUOTA, OVERHEAD, CHARGE, _PROMOTE, INTERVAL),
        assumptions=("D1", "M9"),
        equal_to=(
            "With queues=none: fifo with eviction.",
            "With jobs of one GPU, no two submitted at once: fit=quota is fit=place.",
            "With queues=none and within=running: fifo,scan=skip.",
            "With jobs of one GPU: the classic multi-level feedback queue.",
            "With interval=0.001: as without, to the millisecond.",
        ),
        sources=(
            "Gu et al., Tiresias (NSDI'19); thresholds of 3,250 and 7,200 GPU*s from its released simulator.",
            (
                "Lucid's port: queues=18000,interval=60,overhead=lucid,fit=quota. On 5,000 jobs and a full cluster "
                "(336 and 480 GPUs) the mean completion time is 0.1 and 0.3 % below that of its rule; with fit=count "
                "2.8 and 2.1 %, with fit=place 7.9 and 5.7 %. There a job ends one second late. Voda's port has one "
                "threshold of 3,600 GPU*s."
            ),
            (
                "The released simulator and Muri's port of it keep running jobs first inside a queue, and those that "
                "wait by when they fell into it, here by submission: with within=running,fit=count,charge=event the "
                "mean completion time on Muri's third trace, loaded, is 6.2 % above its own; with within=submit 41 %."
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
            "As las, but inside a queue the job that is likeliest to end soon goes first: by the Gittins index of the "
            "GPU time it has had, from the distribution of the GPU time of all jobs of the trace, looking ahead to the "
            "end of its queue; the last queue goes by submission. The index is asked for anew at 32 steps in a queue."
        ),
        parameters=(_QUEUES, scan("skip"), FIT, OVERHEAD, _PROMOTE),
        assumptions=("D1", "M9"),
        equal_to=(
            "Where the service of jobs has a decreasing hazard: las.",
            "Where it is exponential: any order inside a queue.",
        ),
        sources=("Gu et al., Tiresias (NSDI'19); how far the index looks ahead is our reading.",),
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
