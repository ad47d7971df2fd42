"""A second, plain Python calculation of policies with tenants, by number of GPUs only and without evictions."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tests.replay.auditor import audit
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.registry import named_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

__all__ = ["Turns", "broken", "ends_of", "run_policy"]


def run_policy(jobs: Jobs, cluster: Cluster, policy: str) -> Outcome:
    """Run a policy by its name on the engine, without a cost of spreading, and return its Outcome with the log."""
    mechanism = named_policy(policy).mechanism(jobs, cluster, load_models(None), 0)
    return simulate(jobs, cluster, assign(jobs, cluster), mechanism, log=True)


def broken(jobs: Jobs, cluster: Cluster, outcome: Outcome, **rules: Any) -> list[str]:
    """Return the laws that an outcome with its log breaks (see `audit`)."""
    assert outcome.log is not None
    return audit(jobs, cluster, outcome.log, outcome, **rules)


def ends_of(outcome: Outcome) -> list[float]:
    """Return the ends of all jobs [s], or -1 if never."""
    return [-1 if end < 0 else end / 1000 for end in outcome.end_ms.tolist()]


@dataclass
class Turns:
    """One domain of `capacity` GPUs, with each tenant's `quota` in GPUs."""

    capacity: int
    quota: Sequence[int]
    weight: Sequence[int]
    cycle: bool = False
    """Whether to use cycles like Kueue's, instead of turns by usage relative to weight."""
    skip: bool = False
    limit: str = "none"
    borrow: int | None = None
    """Maximum number of GPUs above the quota, or None for any number."""
    lend: Sequence[int] = ()
    use: list[int] = field(default_factory=list)

    def room(self, tenant: int) -> int:
        """Return how many GPUs a tenant may take now."""
        quota, use = self.quota[tenant], self.use[tenant]
        if self.limit == "none":
            return 10**9
        if self.limit == "own":
            return quota - use
        kept = [q - lent for q, lent in zip(self.quota, self.lend, strict=True)]
        pool = sum(self.lend) - sum(max(0, u - k) for u, k in zip(self.use, kept, strict=True))
        most = 10**9 if self.borrow is None else quota + self.borrow - max(use, kept[tenant])
        return max(0, kept[tenant] - use) + max(0, min(pool, most))

    def ends(self, jobs: Jobs, tenant: Sequence[int]) -> list[int]:
        """Return the end of each job [ms], or -1 if never."""
        self.use = [0] * len(self.quota)
        free, found, first = self.capacity, [-1] * len(jobs), 0
        gpus, submit = jobs.devices.tolist(), jobs.submit_ms.tolist()
        running: list[tuple[int, int]] = []
        waiting: list[int] = []
        failed: set[tuple[int, int, bool]] = set()
        most = [self.room(t) for t in range(len(self.quota))]
        while running or first < len(jobs):
            now = min([running[0][0]] if running else [submit[first]])
            if first < len(jobs):
                now = min(now, submit[first])
            while running and running[0][0] == now:
                job = heapq.heappop(running)[1]
                found[job] = now
                free += gpus[job]
                self.use[tenant[job]] -= gpus[job]
                failed = {who for who in failed if self.limit == "own" and who[2] and who[0] != tenant[job]}
            while first < len(jobs) and submit[first] == now:
                if gpus[first] <= min(self.capacity, most[tenant[first]]):
                    waiting.append(first)
                first += 1
            queue: list[int] = []
            while True:
                if not queue:
                    queue = self._next(waiting, failed, tenant, gpus)
                if not queue:
                    break
                job = queue.pop(0)
                if gpus[job] <= min(free, self.room(tenant[job])):
                    waiting.remove(job)
                    free -= gpus[job]
                    self.use[tenant[job]] += gpus[job]
                    heapq.heappush(running, (now + int(jobs.work_ms[job]), job))
                else:
                    failed.add((tenant[job], gpus[job], gpus[job] > self.room(tenant[job])))
        return found

    def _next(
        self, waiting: list[int], failed: set[tuple[int, int, bool]], tenant: Sequence[int], gpus: list[int]
    ) -> list[int]:
        """Return the jobs to try next, which are one job or those of a cycle.

        A job that failed is not tried again until GPUs become free or, at its tenant's quota, until the tenant releases
        some.
        """
        heads: dict[int, int] = {}
        barred = {who[:2] for who in failed}
        over: set[int] = set()
        for job in waiting:
            if (tenant[job], gpus[job]) in barred:
                if not self.skip:
                    over.add(tenant[job])
            elif tenant[job] not in heads and tenant[job] not in over:
                heads[tenant[job]] = job
        if not self.cycle:
            share = {t: Fraction(self.use[t], self.weight[t]) for t in heads}
            return [heads[t] for t in sorted(heads, key=lambda t: (share[t], heads[t]))][:1]
        borrows = {t: self.use[t] + gpus[job] > self.quota[t] for t, job in heads.items()}
        return [heads[t] for t in sorted(heads, key=lambda t: (borrows[t], heads[t]))]
