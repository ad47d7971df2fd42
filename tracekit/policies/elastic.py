"""Elastic jobs: the minimum of each in order, then the remaining GPUs one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT
from tracekit.policies.pools import make_pools
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.speeds import elastic_bounds, elastic_ppm
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["ElasticFifo", "ElasticSrjf"]

_SOURCES = (
    "The open-source Voda scheduler: minimum first, then one GPU after the other, at most one plan every 30 s.",
    (
        "Own choices: the cost of a resize; running jobs keep their minimum unless preempt=on, so long lists do "
        "not make them stop and start; preemption by GPU counts, with places chosen afterwards."
    ),
)


class _Elastic(Policy):
    """Minimum first in an order, then growth."""

    shortest: ClassVar[bool]

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans by the list."""
        p = self.parameters
        requested = jobs.devices.astype(np.int64)
        low, high = elastic_bounds(models, requested) if p["elastic"] else (requested, requested)
        pools = make_pools(jobs, cluster, p["fit"])
        rigid = not p["elastic"]

        def order_of(view: View) -> NDArray[np.int64]:
            if not self.shortest:
                return np.arange(len(view.job))
            return np.argsort(view.remaining_ms + view.overhead_ms, kind="stable")

        def queue(view: View) -> Plan:
            """Let jobs of fixed size start if there is room for them."""
            order = order_of(view)
            waiting = view.job[order[view.held[order] == 0]]
            return Plan(waiting, requested[waiting], keep=True, optional=len(waiting))

        def divide(view: View) -> Plan:
            from tracekit.replay.kernel import divide_gpus

            job, held, before = view.job, view.held, pools.held(view)
            order = order_of(view)
            pool, gpus, line = before.copy(), np.zeros(len(job), np.int64), np.zeros(len(job), np.int64)
            free = np.maximum(pools.gpus(view), pools.used(before, held))
            kind, accepts = pools.kind[job].astype(np.int64), pools.accepts.view(np.uint8)
            keep, doubling = not p["preempt"], p["steps"] == "double"
            divide_gpus(order, pool, low[job], high[job], kind, accepts, free, keep, doubling, gpus, line)
            named = order[((gpus != held) | (pool != before))[order]]
            if rigid:
                # Who was promised GPUs may find no place for them: whoever waits may then have them.
                late = order[((gpus == 0) & (held == 0))[order]]
                return Plan(
                    np.concatenate([job[named], job[late]]),
                    np.concatenate([gpus[named], requested[job[late]]]),
                    model=np.concatenate([pools.model[pool[named]], np.full(len(late), -1)]),
                    keep=True,
                    optional=len(named) + len(late),
                )
            # Large gangs first, as they are harder to place.
            named = named[np.argsort(-gpus[named], kind="stable")]
            rate = np.maximum(elastic_ppm(models, requested[job[named]], gpus[named]), 1)
            return Plan(
                job[named], gpus[named], rate=rate, model=pools.model[pool[named]], keep=True, optional=len(named)
            )

        return Planner(
            queue if rigid and not p["preempt"] else divide,
            gap_ms=round(p["gap"] * 1000),
            fit=p["fit"],
            scope=0 if rigid else 2,
            overhead_ms=overhead_ms(models, p["overhead"], np.arange(int(high.max(initial=1)) + 1)),
            resize_ms=round(p["resize"] * 1000),
        )


def _parameters(preempt: str) -> tuple[Parameter, ...]:
    return (
        Parameter("elastic", True, "jobs run on other numbers of GPUs than they ask for"),
        Parameter("preempt", preempt == "on", "running jobs may be stopped for earlier jobs in the order"),
        Parameter("steps", "one", "jobs grow by one GPU, or they double", ("one", "double")),
        Parameter("gap", 30.0, "least time between two plans [s]"),
        Parameter("resize", 10.0, "cost of changing the number of GPUs [s]"),
        Parameter("overhead", "voda", "preset for the cost of each preemption and migration (M9)"),
        FIT,
    )


_RULE = (
    "When a job arrives or ends, but at most once every gap seconds, all GPUs are divided anew. The jobs get "
    "their minimum in the order of {order}; jobs whose minimum is not free are skipped. Then the same jobs, in "
    "the same order, get one GPU more each, or double, again and again, up to their maximum. With preempt=off "
    "running jobs get their minimum before waiting ones. With preempt=on running jobs are stopped if the jobs "
    "before them leave nothing. A change costs resize seconds. Gangs may be spread over nodes. Jobs that could "
    "not run on the GPUs they ask for are rejected. With elastic=off minimum and maximum are what a job asks for, "
    "in one place as in other policies."
)


class ElasticFifo(_Elastic):
    """Elastic jobs in the order of submission."""

    shortest = False
    card: ClassVar[Card] = Card(
        name="elastic-fifo",
        title="elastic jobs, first in, first out",
        rule=_RULE.format(order="their submission"),
        parameters=_parameters("off"),
        assumptions=("D1", "D3", "M9", "M4"),
        equal_to=(
            "With elastic=off and gap=0: fifo,scan=skip.",
            "With elastic=off, preempt=on, gap=0, fit=count, overhead=none: las,queues=none,scan=skip.",
            "If the maxima of all jobs fit: every job gets its maximum.",
        ),
        sources=_SOURCES,
    )


class ElasticSrjf(_Elastic):
    """Elastic jobs by the run time that is left."""

    shortest = True
    card: ClassVar[Card] = Card(
        name="elastic-srjf",
        title="elastic jobs, shortest remaining job first",
        rule=_RULE.format(order="their remaining run time on the GPUs that they ask for"),
        parameters=_parameters("on"),
        assumptions=("D1", "D3", "M9", "M4"),
        equal_to=(
            "With elastic=off, preempt=off, gap=0: sjf,scan=skip.",
            "With elastic=off, gap=0, fit=count, overhead=none: srtf,scan=skip,fit=count.",
        ),
        sources=_SOURCES,
    )
