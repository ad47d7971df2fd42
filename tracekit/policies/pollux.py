"""Pollux without profiles: GPUs where they raise the harmonic mean of the jobs' speedups most."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT
from tracekit.policies.pools import Pools, make_pools
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.speeds import elastic_bounds, elastic_ppm
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["PolluxLite"]


class PolluxLite(Policy):
    """GPUs by the harmonic mean of speedups."""

    card: ClassVar[Card] = Card(
        name="pollux-lite",
        title="GPUs where they raise the harmonic mean of speedups most, without profiles of the jobs",
        rule=(
            "In rounds GPUs are divided anew so that the harmonic mean of all jobs' speedups is large. A job's speedup "
            "is its speed over that with an equal share of the GPUs. Another number of GPUs than it holds multiplies "
            "it by max(age - R * delta, 0) / (age + delta), with R past changes; a first start is free of that. Jobs "
            "that run have their minimum; then the GPUs go, step by step, where each gains most, the earlier job "
            "between equals, up to the maximum. Running jobs are never stopped, and gangs may be spread over nodes. "
            "The work of a job is fixed: there is no batch size that adapts, so nothing gets less efficient."
        ),
        parameters=(
            Parameter("round", 60.0, "time between two plans [s]", minimum=0.001),
            Parameter("delta", 30.0, "cost of a change that the fitness reckons with [s]"),
            Parameter("resize", 30.0, "cost of a change in the number of GPUs [s]"),
            Parameter("overhead", "voda", "preset of what each preemption and migration costs (M9)"),
            FIT,
        ),
        assumptions=("D1", "D3", "M9", "M4"),
        equal_to=(
            "With linear speed and equal jobs that come at once: equally many GPUs for each, to one.",
            "With room for the maximum of all: every job has its maximum.",
        ),
        sources=(
            (
                "Qiao et al., Pollux (OSDI'21): fitness with p = -1, penalty, 60 s; efficiency is left out, as no "
                "trace has a gradient noise scale."
            ),
            (
                "Own choices: steps of the largest gain in place of the genetic search; running jobs are not stopped; "
                "a first start bears no penalty; the maximum is that of D3, not twice the largest number so far."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans in rounds."""
        p = self.parameters
        requested = jobs.devices.astype(np.int64)
        low, high = elastic_bounds(models, requested)
        pools = make_pools(jobs, cluster, p["fit"])
        round_ms = max(round(p["round"] * 1000), 1)
        delta_ms = p["delta"] * 1000

        def plan(view: View) -> Plan:
            job, held, before = view.job, view.held, pools.held(view)
            free = np.maximum(pools.gpus(view), pools.used(before, held))
            from tracekit.replay.kernel import raise_fitness

            rows = np.zeros(len(job), struct_dtype("FitnessRow"))
            rows["held"], rows["low"], rows["high"] = held, low[job], high[job]
            rows["gpus"] = np.where(held > 0, low[job], 0)
            rows["pool"] = _settle_pools(before, pools, job, low[job], free)
            sharing = np.bincount(rows["pool"], minlength=len(free))
            fair = np.clip((free / np.maximum(sharing, 1))[rows["pool"]], 1.0, rows["high"])
            sigma = models.elastic.sigma
            rows["fair"] = fair / (1 + sigma * (fair - 1))
            age = (view.now_ms - jobs.submit_ms[job]).astype(np.float64)
            changes = (view.table["migrations"][job] + view.table["preemptions"][job]).astype(np.float64)
            factor = np.maximum(age - changes * delta_ms, 0) / np.maximum(age + delta_ms, 1)
            rows["factor"] = np.where(view.attained_gpu_ms > 0, factor, 1.0)
            free -= np.bincount(before[before >= 0], low[job][before >= 0], len(free)).astype(np.int64)
            room = np.zeros(len(job), struct_dtype("Entry"))
            raise_fitness(rows, np.maximum(free, 0), sigma, room, np.zeros(len(job), np.int32))
            gpus = rows["gpus"]
            named = np.flatnonzero(gpus != held)
            named = named[np.argsort(-gpus[named], kind="stable")]
            return Plan(
                job[named],
                gpus[named],
                rate=np.maximum(elastic_ppm(models, requested[job[named]], gpus[named]), 1),
                model=pools.model[rows["pool"][named]],
                keep=True,
                optional=len(named),
                # With all that they may have nobody gains, however much time passes.
                wake_ms=view.now_ms + round_ms if len(named) or (gpus < high[job]).any() else -1,
            )

        return Planner(
            plan,
            round_ms=round_ms,
            fit=p["fit"],
            scope=2,
            overhead_ms=overhead_ms(models, p["overhead"], np.arange(int(high.max(initial=1)) + 1)),
            resize_ms=round(p["resize"] * 1000),
        )


def _settle_pools(
    before: NDArray[np.int64], pools: Pools, job: NDArray[np.int64], low: NDArray[np.int64], free: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the pool of each job: its own, else that of those it may use with most GPUs for each job there."""
    found = before.copy()
    kind = pools.kind[job]
    several = pools.accepts.sum(axis=1) > 1
    waiting = before < 0
    simple = waiting & ~several[kind]
    found[simple] = pools.accepts[kind[simple]].argmax(axis=1)
    left = free - np.bincount(found[found >= 0], low[found >= 0], len(free))
    for place in np.flatnonzero(waiting & several[kind]).tolist():
        mine = np.where(pools.accepts[kind[place]] & (free >= low[place]), left, -np.inf)
        found[place] = int(mine.argmax())
        left[found[place]] -= low[place]
    return found
