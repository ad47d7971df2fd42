"""Simulate a whole run of a Slurm cluster in plain Python, with clocks, main and backfill passes, and priorities.

The rules come from slurm.conf(5), sched_config and the source of slurmctld 22.05. A submission sets a flag. A loop that
checks once a second runs the main pass if the flag is set and the last pass was `batch_sched_delay` ago. In any case,
it runs the main pass every `sched_interval`. The backfill pass sleeps for `bf_interval` and runs if something has
changed. A run of a real cluster is chaotic, so compare ensembles over the phases of these clocks.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.worlds.slurm_pass import Cluster, Job, Running, Settings, Usage, backfill, choose, free_amounts
from tests.worlds.slurm_priority import Asked, Association, FairTree, Weights, priority

if TYPE_CHECKING:
    from collections.abc import Sequence


class Submitted(NamedTuple):
    """A job with values that only the simulation knows."""

    job: Job
    submit: int
    """[ms]"""
    run: int
    """Run time [ms]. The job ends at its limit if that is shorter."""
    billing: float


class Clocks(NamedTuple):
    """Periods and phases of slurmctld's threads [ms]."""

    sched_interval: int = 60_000
    batch_sched_delay: int = 3_000
    bf_interval: int = 30_000
    calc_period: int = 300_000
    queue_depth: int = 100
    loop_phase: int = 0
    """Time of the loop's first check, after which it checks once a second."""
    backfill_phase: int = 0
    tick_phase: int = 0
    epilog: bool = False
    """Whether a job's end starts a main pass at once, as with `Epilog=`."""


@dataclass
class _State:
    waiting: dict[int, int] = field(default_factory=dict)
    """Priority of each waiting job, by position in the job list."""
    running: dict[int, tuple[int, Running]] = field(default_factory=dict)
    """Start [ms] and state of each running job."""


class Simulation:
    """A run of the cluster, where `starts` has the start of each job [ms]."""

    def __init__(
        self,
        cluster: Cluster,
        weights: Weights,
        tree: Sequence[Association],
        jobs: Sequence[Submitted],
        settings: Settings,
        clocks: Clocks,
    ) -> None:
        self.cluster, self.weights, self.jobs, self.settings, self.clocks = cluster, weights, jobs, settings, clocks
        self.tree = FairTree(tree, weights)
        self.state = _State()
        self.starts = [-1] * len(jobs)
        self.ends: list[tuple[int, int]] = []
        self.flag = self.changed = False
        self.last_main = self.last_full = -(1 << 60)
        self.now = 0
        self._go()

    def _go(self) -> None:
        submits = sorted(range(len(self.jobs)), key=lambda k: (self.jobs[k].submit, k), reverse=True)
        first = self.jobs[submits[-1]].submit if submits else 0
        tick, backfill_at = first - first % 1000 + self.clocks.tick_phase, first + self.clocks.backfill_phase
        tick -= self.clocks.calc_period
        loop = first + self.clocks.loop_phase
        while submits or self.ends or self.state.waiting:
            soonest = min(
                self.jobs[submits[-1]].submit if submits else 1 << 60, self.ends[0][0] if self.ends else 1 << 60
            )
            if not self.state.waiting:  # the loop and backfill passes do nothing, so keep their phases
                loop += max(0, -(-(soonest - loop) // 1000)) * 1000
                backfill_at += max(0, -(-(soonest - backfill_at) // self.clocks.bf_interval)) * self.clocks.bf_interval
            self.now = min(soonest, tick, loop, backfill_at)
            if self.ends and self.ends[0][0] == self.now:
                self._end(heapq.heappop(self.ends)[1])
            elif submits and self.jobs[submits[-1]].submit == self.now:
                self._submit(submits.pop())
            elif tick == self.now:
                self._tick()
                tick += self.clocks.calc_period
            elif loop == self.now:
                self._look()
                loop += 1000
            elif self.changed:
                self.changed = False
                self._backfill()
                backfill_at += self.clocks.bf_interval
            else:
                backfill_at += 1000

    def _submit(self, k: int) -> None:
        job = self.jobs[k]
        self.tree.submit(job.job.user)
        self.state.waiting[k] = self._priority(k)
        self.flag = self.changed = True

    def _priority(self, k: int) -> int:
        job, total = self.jobs[k].job, self.jobs[k]
        asked = Asked(job.user, job.partition, job.qos, job.nodes, job.need[1] * job.nodes, total.billing)
        age = self.now // 1000 - total.submit // 1000
        return priority(self.weights, asked, age, self.tree.factor[job.user])

    def _tick(self) -> None:
        running = [(r.job.user, start // 1000, self.jobs[k].billing) for k, (start, r) in self.state.running.items()]
        self.tree.tick(self.now // 1000, running)
        for k in self.state.waiting:
            self.state.waiting[k] = self._priority(k)
        self.changed = True

    def _end(self, k: int) -> None:
        start, r = self.state.running.pop(k)
        self.tree.end(self.now // 1000, r.job.user, start // 1000, self.jobs[k].billing)
        self.flag = self.changed = True
        if self.clocks.epilog:
            self._main(self.clocks.queue_depth)

    def _start(self, k: int, nodes: int) -> None:
        job = self.jobs[k]
        del self.state.waiting[k]
        self.starts[k] = self.now
        self.state.running[k] = self.now, Running(job.job, nodes, self.now // 1000 + job.job.limit)
        heapq.heappush(self.ends, (self.now + min(job.run, job.job.limit * 1000), k))

    def _queue(self) -> list[int]:
        tiers = self.cluster.tiers
        waiting = self.state.waiting

        def key(k: int) -> tuple[int, int, int]:
            return -tiers.get(self.jobs[k].job.partition, 1), -waiting[k], self.jobs[k].job.number

        return sorted(waiting, key=key)

    def _look(self) -> None:
        if self.now - self.last_full >= self.clocks.sched_interval:
            self.last_full = self.now
            self._main(1 << 60)
        elif self.flag and self.now - self.last_main >= self.clocks.batch_sched_delay:
            self._main(self.clocks.queue_depth)

    def _main(self, depth: int) -> None:
        """Start jobs in order. After its first job that does not fit, a partition is closed with all its nodes."""
        self.flag, self.last_main = False, self.now
        queue = self._queue()
        self.changed |= bool(queue)
        open_nodes = (1 << len(self.cluster.nodes)) - 1
        running = [r for _, r in self.state.running.values()]
        usage, free = Usage(self.cluster, running), free_amounts(self.cluster, running)
        closed: set[str] = set()
        for k in queue[:depth]:
            job = self.jobs[k].job
            if job.partition in closed:
                continue
            usable = self.cluster.partitions[job.partition] & open_nodes
            nodes = choose(self.cluster, job, usable, free)
            if usable.bit_count() >= job.nodes and usage.full(job):
                continue
            if nodes is None:
                closed.add(job.partition)
                open_nodes &= ~self.cluster.partitions[job.partition]
                continue
            self._start(k, nodes)
            usage.add(job)
            for place in range(len(free)):
                if nodes >> place & 1:
                    free[place] = [f - a for f, a in zip(free[place], job.need, strict=True)]

    def _backfill(self) -> None:
        order = self._queue()
        by_number = {self.jobs[k].job.number: k for k in order}
        running = [r for _, r in self.state.running.values()]
        queue = [self.jobs[k].job for k in order]
        for number, nodes in backfill(self.now // 1000, self.cluster, running, queue, self.settings).starts:
            self._start(by_number[number], nodes)
