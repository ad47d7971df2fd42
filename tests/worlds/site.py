"""Simulate a site with partitions, CPUs, memory, limits, arrays, reservations, outages and preemption.

The simulator is written in plain Python and shares nothing with the replay engine. `Rules` defines its rules. The true
effect of a change comes from the same simulation under changed rules. All times are whole seconds. A pass follows each
moment at which something happens, and one more pass follows if jobs were stopped for others:

1. Waiting jobs are considered in the order of the partition's tier, then `Rules.order`, then submission and number.
2. A job at a limit is skipped and blocks nobody.
3. A job that fits starts on the nodes with the fewest free GPUs (then CPUs) that fit it.
4. A job that does not fit stops preemptible jobs, youngest first, if that makes room.
5. Otherwise it waits. Without backfilling, no later job of its partition starts in this pass ('strict'). With
   'passing', every later job that fits starts. With 'easy', the first waiting job of each partition has a promise: the
   time and nodes at which it can start if running jobs end at their limits; a later job may not break a promise.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class Node(NamedTuple):
    """A machine."""

    name: str
    gpus: int
    cpus: int
    memory: int
    """[GiB]"""
    partitions: tuple[str, ...]
    model: str = "a100"


class Job(NamedTuple):
    """A job as submitted by a user. Amounts are for the whole job and are spread evenly over its nodes."""

    number: int
    submit: int
    run: int
    limit: int
    user: str
    account: str
    partition: str
    gpus: int
    cpus: int = 1
    memory: int = 1
    nodes: int = 1
    qos: str = "normal"
    array: int | None = None
    """Number of the array's first task."""
    array_most: int | None = None
    """Maximum number of the array's tasks that run at once (%N)."""
    hidden: float = 0.0
    """Rank in an order that no log shows, with lower values first."""
    hold: int = 0
    """Time after submission during which the job does not compete, which no log shows [s]."""

    def need(self) -> tuple[int, int, int]:
        """Return GPUs, CPUs and memory per node."""
        return self.gpus // self.nodes, -(-self.cpus // self.nodes), -(-self.memory // self.nodes)


class Limit(NamedTuple):
    """A bound on GPUs or jobs that run at once."""

    of: str
    """'gpus' or 'jobs'."""
    per: str
    """Whose sum is bounded: 'user', 'account', 'qos' or 'partition'."""
    most: int
    only: str | None = None
    """The user, account, QOS or partition that is bounded, or None for each of them."""
    partition: str | None = None
    """Partition to which the bound is restricted, if any."""


class Reservation(NamedTuple):
    """Nodes kept free for an account, or for nobody (maintenance)."""

    begin: int
    end: int
    nodes: tuple[int, ...]
    account: str | None = None


class Outage(NamedTuple):
    """A time during which a node is down. The node's jobs are requeued."""

    begin: int
    end: int
    node: int


@dataclass(frozen=True)
class Rules:
    """Rules by which jobs are chosen."""

    order: str = "arrival"
    """'arrival', 'shortest' (limit), 'smallest' (GPUs), 'fair' (GPUs that the user is using) or 'hidden'."""
    backfill: str = "passing"
    """'strict', 'passing' or 'easy'."""
    limits: tuple[Limit, ...] = ()
    tiers: dict[str, int] = field(default_factory=dict)
    """Tier of each partition, or 0 if absent. The highest tier is served first."""
    preempts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """QOS whose jobs may be stopped, by the QOS of the job that needs space."""


@dataclass
class Site:
    """Machines, rules and jobs."""

    nodes: list[Node]
    jobs: list[Job]
    rules: Rules = field(default_factory=Rules)
    later: tuple[int, Rules] | None = None
    """Time from which other rules apply, and these rules."""
    last: tuple[int, Rules] | None = None
    """The same for a second change of the rules."""
    reservations: list[Reservation] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)


class Run(NamedTuple):
    """One run of a job."""

    start: int
    end: int
    nodes: tuple[int, ...]
    how: str
    """'completed', 'timeout', 'node_fail' or 'preempted'."""


def simulate(site: Site) -> list[list[Run]]:
    """Return the runs of each job, in the order of `site.jobs`."""
    return _Simulation(site).runs


def last_limits(site: Site) -> list[str | None]:
    """Return Slurm's word for the last limit that held each job back, in the order of `site.jobs`."""
    return _Simulation(site).held_by


def first_waits(site: Site, runs: Sequence[Sequence[Run]]) -> list[int]:
    """Return the time from each job's submission to its first start [s]."""
    return [ran[0].start - job.submit for job, ran in zip(site.jobs, runs, strict=True)]


class _Promise(NamedTuple):
    """The time and nodes at which a partition's first waiting job can start."""

    start: int
    left: dict[int, list[int]]
    """Free amounts on the nodes next to that job."""


_END, _NODES, _RULES, _SUBMIT = range(4)
_WORDS = {
    ("gpus", "user"): "QOSMaxGRESPerUser",
    ("gpus", "account"): "AssocGrpGRES",
    ("gpus", "qos"): "QOSGrpGRES",
    ("gpus", "partition"): "QOSGrpGRES",
    ("jobs", "user"): "QOSMaxJobsPerUserLimit",
    ("jobs", "account"): "AssocGrpJobsLimit",
    ("jobs", "qos"): "QOSGrpJobsLimit",
    ("jobs", "partition"): "QOSGrpJobsLimit",
}
"""Slurm's reason words, by what a limit counts and for whom. A partition's limits are those of its QOS."""


class _Simulation:
    def __init__(self, site: Site) -> None:
        self.site, self.rules, self.jobs = site, site.rules, site.jobs
        self.free = [[n.gpus, n.cpus, n.memory] for n in site.nodes]
        self.of_partition: dict[str, list[int]] = {}
        for k, node in enumerate(site.nodes):
            for name in node.partitions:
                self.of_partition.setdefault(name, []).append(k)
        self.down: Counter[int] = Counter()
        self.held: dict[tuple[str, str, str | None], list[int]] = defaultdict(lambda: [0, 0])
        """Running GPUs and jobs, by what a limit counts, whose, and in which partition (None for all)."""
        self.tasks: Counter[int | None] = Counter()
        self.waiting: list[int] = []
        self.running: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.runs: list[list[Run]] = [[] for _ in site.jobs]
        self.held_by: list[str | None] = [None] * len(site.jobs)
        self.now = self.stopped = 0
        self.events: list[tuple[int, int, int, int]] = []
        for k, job in enumerate(site.jobs):
            self._at(job.submit + job.hold, _SUBMIT, k)
        for k, outage in enumerate(site.outages):
            self._at(outage.begin, _NODES, k, 0)
            self._at(outage.end, _NODES, k, 1)
        for r in site.reservations:
            self._at(r.begin, _RULES, 0)
            self._at(r.end, _RULES, 0)
        for number, change in enumerate((site.later, site.last), 1):
            if change is not None:
                self._at(change[0], _RULES, number)
        self._go()

    def _at(self, time: int, what: int, which: int, more: int = 0) -> None:
        heapq.heappush(self.events, (time, what, which, more))

    def _go(self) -> None:
        while self.events:
            self.now = self.events[0][0]
            happened = False
            while self.events and self.events[0][0] == self.now:
                _, what, which, more = heapq.heappop(self.events)
                # The end of a run that was stopped before is no event.
                happened |= what != _END or (len(self.runs[which]) == more and which in self.running)
                self._happen(what, which, more)
            if happened and self._pass():
                self._pass()

    def _happen(self, what: int, which: int, more: int) -> None:
        if what == _SUBMIT:
            self.waiting.append(which)
        elif what == _END:
            if len(self.runs[which]) == more and which in self.running:
                job = self.jobs[which]
                self._stop(which, "completed" if job.run <= job.limit else "timeout")
        elif what == _NODES:
            node = self.site.outages[which].node
            self.down[node] += -1 if more else 1
            if not more:
                for k in [k for k, (_, nodes) in self.running.items() if node in nodes]:
                    self._requeue(k, "node_fail")
        elif which:
            change = (self.site.later, self.site.last)[which - 1]
            assert change is not None
            self.rules = change[1]

    def _start(self, k: int, nodes: tuple[int, ...]) -> None:
        self._take(self.free, self.jobs[k], nodes)
        self._count(self.jobs[k], 1)
        self.waiting.remove(k)
        self.running[k] = self.now, nodes
        self._at(self.now + min(self.jobs[k].run, self.jobs[k].limit), _END, k, len(self.runs[k]))

    def _stop(self, k: int, how: str) -> None:
        start, nodes = self.running.pop(k)
        self._take(self.free, self.jobs[k], nodes, -1)
        self._count(self.jobs[k], -1)
        self.runs[k].append(Run(start, self.now, nodes, how))

    def _count(self, job: Job, sign: int) -> None:
        self.tasks[job.array] += sign
        for per in ("user", "account", "qos", "partition"):
            for partition in (None, job.partition):
                held = self.held[per, getattr(job, per), partition]
                held[0] += sign * job.gpus
                held[1] += sign

    def _requeue(self, k: int, how: str) -> None:
        self._stop(k, how)
        self.waiting.append(k)

    @staticmethod
    def _take(free: list[list[int]], job: Job, nodes: Iterable[int], sign: int = 1) -> None:
        for n in nodes:
            for i, amount in enumerate(job.need()):
                free[n][i] -= sign * amount

    def _pass(self) -> bool:
        """Start jobs, and return whether others were stopped for them."""
        stopped = self.stopped
        promises: dict[str, _Promise] = {}
        closed: set[str] = set()
        failed: set[tuple[object, ...]] = set()
        for k in sorted(self.waiting, key=self._key):
            job = self.jobs[k]
            if job.partition in closed:
                continue
            limit = self._at_limit(job)
            if limit is not None:
                self.held_by[k] = self.held_by[k] if self.runs[k] else limit
                continue
            # Except for preemption, free amounts only fall during a pass, so equal jobs fail alike.
            alike = job.partition, job.need(), job.nodes, job.account, job.limit
            nodes = None if alike in failed else self._place(job, self.free, promises)
            if nodes is None and job.qos in self.rules.preempts and job.partition not in promises:
                nodes = self._place_by_preemption(job)
                failed.clear()
            if nodes is not None:
                self._start(k, nodes)
                continue
            failed.add(alike)
            if self.rules.backfill == "strict":
                closed.add(job.partition)
            elif self.rules.backfill == "easy" and job.partition not in promises:
                promise = self._promise(job)
                if promise is not None:
                    promises[job.partition] = promise
        return self.stopped > stopped

    def _key(self, k: int) -> tuple[float, ...]:
        job = self.jobs[k]
        order: dict[str, Callable[[], float]] = {
            "arrival": lambda: 0.0,
            "shortest": lambda: job.limit,
            "smallest": lambda: job.gpus,
            "fair": lambda: self.held["user", job.user, None][0],
            "hidden": lambda: job.hidden,
        }
        return -self.rules.tiers.get(job.partition, 0), order[self.rules.order](), job.submit, job.number

    def _at_limit(self, job: Job) -> str | None:
        """Return Slurm's word for a limit that keeps the job from starting, regardless of free resources."""
        if job.array_most is not None and self.tasks[job.array] >= job.array_most:
            return "JobArrayTaskLimit"
        for limit in self.rules.limits:
            who = getattr(job, limit.per)
            if limit.only not in (None, who) or limit.partition not in (None, job.partition):
                continue
            gpus, jobs = self.held[limit.per, who, limit.partition]
            if (job.gpus and gpus + job.gpus > limit.most) if limit.of == "gpus" else jobs >= limit.most:
                return _WORDS[limit.of, limit.per]
        return None

    def _usable(self, job: Job, start: int) -> list[int]:
        """Return the nodes in the job's partition that are up and not reserved from `start` to the job's limit."""
        shut = {
            n
            for r in self.site.reservations
            if r.account != job.account and r.begin < start + job.limit and start < r.end
            for n in r.nodes
        }
        return [n for n in self.of_partition[job.partition] if n not in shut and not self.down[n]]

    def _place(self, job: Job, free: list[list[int]], promises: dict[str, _Promise]) -> tuple[int, ...] | None:
        need = job.need()
        late = [p for p in promises.values() if self.now + job.limit > p.start]
        fits = [
            n
            for n in self._usable(job, self.now)
            if all(f >= a for f, a in zip(free[n], need, strict=True))
            and all(n not in p.left or all(f >= a for f, a in zip(p.left[n], need, strict=True)) for p in late)
        ]
        if len(fits) < job.nodes:
            return None
        chosen = tuple(sorted(fits, key=lambda n: (free[n][0], free[n][1], n))[: job.nodes])
        if free is self.free:
            for promise in late:
                self._take_left(promise, job, chosen)
        return chosen

    @staticmethod
    def _take_left(promise: _Promise, job: Job, nodes: Iterable[int]) -> None:
        for n in nodes:
            if n in promise.left:
                for i, amount in enumerate(job.need()):
                    promise.left[n][i] -= amount

    def _promise(self, job: Job) -> _Promise | None:
        free = [list(f) for f in self.free]
        ends = sorted((start + self.jobs[k].limit, k) for k, (start, _) in self.running.items())
        usable = [n for n in self.of_partition[job.partition] if not self.down[n]]
        for end, k in ends:
            self._take(free, self.jobs[k], self.running[k][1], -1)
            fits = [n for n in usable if all(f >= a for f, a in zip(free[n], job.need(), strict=True))]
            if len(fits) >= job.nodes:
                chosen = sorted(fits, key=lambda n: (free[n][0], free[n][1], n))[: job.nodes]
                self._take(free, job, chosen)
                return _Promise(end, {n: free[n] for n in chosen})
        return None

    def _place_by_preemption(self, job: Job) -> tuple[int, ...] | None:
        weaker = self.rules.preempts.get(job.qos, ())
        victims = [k for k in self.running if self.jobs[k].qos in weaker]
        victims.sort(key=lambda k: (-self.running[k][0], -self.jobs[k].number))
        usable = set(self._usable(job, self.now))
        free = [list(f) for f in self.free]
        stopped: list[int] = []
        for k in victims:
            if not usable.intersection(self.running[k][1]):
                continue
            self._take(free, self.jobs[k], self.running[k][1], -1)
            stopped.append(k)
            nodes = self._place(job, free, {})
            if nodes is not None:
                for victim in stopped:
                    if set(self.running[victim][1]) & set(nodes):
                        self._requeue(victim, "preempted")
                        self.stopped += 1
                return nodes
        return None


def with_nodes(site: Site, more: int, partition: str | None = None) -> Site:
    """Return the site with copies of its first nodes, or without its last ones, of one partition or of all.

    A copy is down or reserved when its original is.
    """
    own = [k for k, node in enumerate(site.nodes) if partition is None or partition in node.partitions]
    gone = set(own[more:]) if more < 0 else set()
    places = [k for k in range(len(site.nodes)) if k not in gone] + [own[k % len(own)] for k in range(more)]
    copies = {k: [new for new, old in enumerate(places) if old == k] for k in range(len(site.nodes))}
    names = Counter[str]()
    nodes = []
    for k in places:
        name = site.nodes[k].name
        nodes.append(site.nodes[k]._replace(name=f"{name}-{names[name] + 1}" if names[name] else name))
        names[name] += 1
    return replace(
        site,
        nodes=nodes,
        reservations=[r._replace(nodes=tuple(new for k in r.nodes for new in copies[k])) for r in site.reservations],
        outages=[o._replace(node=new) for o in site.outages for new in copies[o.node]],
    )


def changed(site: Site, **rules: object) -> Site:
    """Return the site under changed rules from the beginning."""
    return replace(site, rules=replace(site.rules, **rules), later=None)  # type: ignore[arg-type]  # names are those of Rules
