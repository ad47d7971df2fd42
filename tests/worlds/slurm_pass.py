"""One pass of Slurm's backfill scheduler, in plain Python.

The rules come from sched/backfill and select/cons_tres in Slurm 22.05, and from sched_config, resource_limits and
preempt in its documentation. The pass takes the state at a moment, and returns the jobs that it starts and plans. Times
are whole seconds. Node sets are integers with a bit for each node, in the order of the configuration.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Amounts = tuple[int, int, int]
"""GPUs, CPUs and memory [GiB]."""


class Node(NamedTuple):
    """A machine, whose position in the list is its position in the configuration."""

    have: Amounts
    weight: int = 1


class Job(NamedTuple):
    """A job's request, with `need` on each of its nodes."""

    number: int
    need: Amounts
    nodes: int
    limit: int
    """Time limit [s]."""
    partition: str
    qos: str
    user: str
    account: str


class Running(NamedTuple):
    """A running job."""

    job: Job
    nodes: int
    """Set of nodes."""
    end: int
    """Time at which the job reaches its time limit."""
    completing: bool = False
    """Whether the job has ended but its nodes are not free yet."""


@dataclass(frozen=True)
class Cluster:
    """Machines, partitions and limits."""

    nodes: Sequence[Node]
    partitions: Mapping[str, int]
    """Node set of each partition."""
    tiers: Mapping[str, int] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    """Parent of each account."""
    group_gpus: Mapping[str, int] = field(default_factory=dict)
    """GrpTRES=gres/gpu of accounts."""
    user_gpus: Mapping[str, int] = field(default_factory=dict)
    """MaxTRESPerUser=gres/gpu of QOS."""
    preempts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """QOS that jobs in each QOS may preempt."""
    qos_priority: Mapping[str, int] = field(default_factory=dict)


class Settings(NamedTuple):
    """SchedulerParameters, with times in seconds."""

    window: int = 86_400
    resolution: int = 60
    max_job_test: int = 500


class Plan(NamedTuple):
    """A job's reservation."""

    job: int
    start: int
    end: int
    nodes: int


class Decisions(NamedTuple):
    """The decisions of a pass."""

    starts: list[tuple[int, int]]
    """Job and node set, in order."""
    plans: list[Plan]


class Usage:
    """GPUs in use by account (with its ancestors) and by QOS and user."""

    def __init__(self, cluster: Cluster, running: Sequence[Running]) -> None:
        self._cluster = cluster
        self._account: dict[str, int] = defaultdict(int)
        self._user: dict[tuple[str, str], int] = defaultdict(int)
        for r in running:
            self.add(r.job)

    def _accounts(self, job: Job) -> list[str]:
        found, name = [], job.account
        while name:
            found.append(name)
            name = self._cluster.parents.get(name, "")
        return found

    def add(self, job: Job) -> None:
        """Count a job that starts."""
        for account in self._accounts(job):
            self._account[account] += job.need[0] * job.nodes
        self._user[job.qos, job.user] += job.need[0] * job.nodes

    def full(self, job: Job) -> bool:
        """Return whether a limit keeps the job from starting now."""
        gpus = job.need[0] * job.nodes
        if not gpus:
            return False
        cluster = self._cluster
        if any(self._account[a] + gpus > cluster.group_gpus.get(a, 1 << 30) for a in self._accounts(job)):
            return True
        return self._user[job.qos, job.user] + gpus > cluster.user_gpus.get(job.qos, 1 << 30)


def members(nodes: int) -> list[int]:
    """Return the positions of the nodes in a set."""
    return [k for k in range(nodes.bit_length()) if nodes >> k & 1]


def free_amounts(cluster: Cluster, running: Sequence[Running]) -> list[list[int]]:
    """Return the free amounts on each node."""
    free = [list(node.have) for node in cluster.nodes]
    for r in running:
        _take(free, r.job, r.nodes)
    return free


def _take(free: list[list[int]], job: Job, nodes: int, sign: int = 1) -> None:
    for k in members(nodes):
        for i, amount in enumerate(job.need):
            free[k][i] -= sign * amount


def choose(cluster: Cluster, job: Job, usable: int, free: Sequence[Sequence[int]]) -> int | None:
    """Return the nodes that cons_tres picks for a job, or None if too few nodes fit.

    Fitting nodes form runs of neighbours with equal weight. The run with the lowest weight is best. Among equals, the
    shortest run (by CPUs) that is long enough is best, or the longest run if none is long enough. For jobs with GPUs,
    requested CPUs count, and for jobs without GPUs, a node's free CPUs.
    """
    fits = [k for k in members(usable) if all(f >= a for f, a in zip(free[k], job.need, strict=True))]
    if len(fits) < job.nodes:
        return None
    runs: list[list[int]] = []
    for k in fits:
        if runs and runs[-1][-1] == k - 1 and cluster.nodes[k].weight == cluster.nodes[k - 1].weight:
            runs[-1].append(k)
        else:
            runs.append([k])

    def cpus(run: list[int]) -> int:
        return sum(job.need[1] if job.need[0] else free[k][1] for k in run)

    chosen, left = 0, job.nodes
    while left:
        enough = [run for run in runs if len(run) >= left]
        lowest = min(cluster.nodes[run[0]].weight for run in runs)
        light = [run for run in enough if cluster.nodes[run[0]].weight == lowest]
        if light:
            best = min(light, key=cpus)
        else:
            best = max((run for run in runs if cluster.nodes[run[0]].weight == lowest), key=cpus)
        runs.remove(best)
        for k in best[:left]:
            chosen |= 1 << k
        left -= min(left, len(best))
    return chosen


def preemptible(cluster: Cluster, job: Job, running: Sequence[Running]) -> list[Running]:
    """Return the running jobs in its partition that a job may preempt, lowest QOS and fewest nodes first."""
    weaker = cluster.preempts.get(job.qos, ())
    allowed = cluster.partitions[job.partition]
    found = [r for r in running if r.job.qos in weaker and r.nodes & allowed and not r.completing]
    return sorted(found, key=lambda r: (cluster.qos_priority[r.job.qos], r.job.nodes))


_BARRIER = 30
"""Length of the first window of the will-run test [s]."""


def will_run(
    cluster: Cluster, job: Job, usable: int, free: Sequence[Sequence[int]], running: Sequence[Running], now: int
) -> tuple[int, int] | None:
    """Return the time at which a job can start on `usable` and the nodes that it gets, or None.

    `running` is ordered by estimated end. Jobs that it may preempt are ended first, then the others in windows that
    double in length. The job is tried after each window.
    """
    nodes = choose(cluster, job, usable, free)
    if nodes is not None:
        return now, nodes
    after = [list(amounts) for amounts in free]
    weaker = preemptible(cluster, job, running)
    for r in weaker:
        _take(after, r.job, r.nodes, -1)
    nodes = choose(cluster, job, usable, after) if weaker else None
    if nodes is not None:
        return now, nodes
    left = [r for r in running if r not in weaker]
    barrier, window = 0, _BARRIER
    for k, ended in enumerate(left):
        last = k + 1 == len(left)
        if ended.nodes & usable and not ended.completing:
            _take(after, ended.job, ended.nodes, -1)
            end = ended.end
            barrier = barrier or end + _BARRIER - end % _BARRIER
        elif not (last and barrier):
            continue
        if last or left[k + 1].end > barrier + window:
            nodes = choose(cluster, job, usable, after)
            if nodes is not None:
                return end, nodes
            window *= 2
            while not last and left[k + 1].end > barrier + window:
                window *= 2
    return None


class _Map:
    """The nodes without reservations over time."""

    def __init__(self, begin: int, end: int, nodes: int, resolution: int) -> None:
        self.pieces = [[begin, end, nodes]]
        self._resolution = resolution

    def usable(self, allowed: int, start: int, end: int) -> tuple[int, int]:
        """Return the allowed nodes that are free in all of [start, end], and the next time at which more return (or
        0)."""
        found, later = allowed, 0
        for k, (begin, until, nodes) in enumerate(self.pieces):
            if until <= start:
                continue
            beyond = begin > end
            if not beyond:
                found &= nodes
            if not later and k + 1 < len(self.pieces) and self.pieces[k + 1][2] & allowed & ~(found & nodes):
                later = until
            if beyond:
                break
        return found, later

    def clashes(self, nodes: int, start: int, end: int) -> bool:
        """Return whether one of the nodes is reserved in [start, end)."""
        return any(nodes & ~free for begin, until, free in self.pieces if until > start and begin < end)

    def reserve(self, nodes: int, start: int, end: int) -> None:
        """Reserve nodes for [start, end), in steps of the resolution."""
        start -= start % self._resolution
        end = -(-end // self._resolution) * self._resolution
        for cut in (start, end):
            for k, (begin, until, free) in enumerate(self.pieces):
                if begin < cut < until:
                    self.pieces[k : k + 1] = [[begin, cut, free], [cut, until, free]]
                    break
        for piece in self.pieces:
            if piece[0] >= start and piece[1] <= end:
                piece[2] &= ~nodes
        for k in range(len(self.pieces) - 1):
            if self.pieces[k][2] == self.pieces[k + 1][2]:
                self.pieces[k : k + 2] = [[self.pieces[k][0], self.pieces[k + 1][1], self.pieces[k][2]]]
                break


def backfill(
    now: int, cluster: Cluster, running: Sequence[Running], queue: Sequence[Job], settings: Settings
) -> Decisions:
    """Return the decisions of a backfill pass at `now` on waiting jobs in Slurm's order."""
    made = _Pass(now, cluster, running, settings)
    for job in queue:
        slot = made.slot(job)
        if made.tested > settings.max_job_test:
            break
        if slot is not None:
            made.decide(job, *slot)
    return made.decided


class _Pass:
    """The state of a backfill pass."""

    def __init__(self, now: int, cluster: Cluster, running: Sequence[Running], settings: Settings) -> None:
        self._now, self._cluster, self._running = now, cluster, list(running)
        self._free = free_amounts(cluster, running)
        self._usage = Usage(cluster, [r for r in running if not r.completing])
        self._horizon = now + settings.window
        self._map = _Map(now, self._horizon, (1 << len(cluster.nodes)) - 1, settings.resolution)
        self.tested = 0
        self.decided = Decisions([], [])

    def slot(self, job: Job) -> tuple[int, int] | None:
        """Return the time and nodes at which a job can start without breaking a reservation, or None."""
        later, tested = 0, 0
        while True:
            start = later or self._now
            usable, later = self._map.usable(self._cluster.partitions[job.partition], start, start + job.limit)
            found = None
            if usable.bit_count() >= job.nodes:
                self.tested, tested = self.tested + 1 - tested, 1
                ordered = sorted(self._running, key=lambda r: r.end)
                found = will_run(self._cluster, job, usable, self._free, ordered, self._now)
            if found is None:
                if not later:
                    return None
                continue
            start, nodes = max(found[0], start), found[1]
            if start <= self._now:
                return start, nodes
            if later and start > later:
                continue
            if start > self._horizon:
                return None
            if not self._map.clashes(nodes, start, start + job.limit):
                return start, nodes
            later = start

    def decide(self, job: Job, start: int, nodes: int) -> None:
        """Start a job or reserve its nodes, unless a limit keeps it from running."""
        now = start <= self._now
        if now and any(r.completing and r.nodes & nodes for r in self._running):
            self._reserve(job, self._now + 1, nodes)
        elif self._usage.full(job):
            return
        elif now and choose(self._cluster, job, nodes, self._free) is not None:
            self.decided.starts.append((job.number, nodes))
            self._running.append(Running(job, nodes, self._now + job.limit))
            _take(self._free, job, nodes)
            self._usage.add(job)
        else:  # later, or when preempted jobs are gone
            self._reserve(job, start, nodes)

    def _reserve(self, job: Job, start: int, nodes: int) -> None:
        self._map.reserve(nodes, start, start + job.limit)
        self.decided.plans.append(Plan(job.number, start, start + job.limit, nodes))
