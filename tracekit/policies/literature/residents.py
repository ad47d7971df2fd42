"""Plans that choose the GPUs of every job and let jobs share GPUs.

GPUs are numbered consecutively by node, and within a node by index. Jobs with equal requests, utilization and memory
form a type and wait in one line. If the first job of a type does not fit, no job of that type fits.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.policies.network_tiers import fewest, pool_of
from tracekit.policies.plans import Plans
from tracekit.policies.pools import accepted_groups
from tracekit.replay.assumptions.of_jobs import memory_ppm, utilization_ppm
from tracekit.replay.assumptions.speeds import interference_ppm
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.mechanisms import Plan, View
from tracekit.replay.native import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tracekit.array_types import Floats, Ints
    from tracekit.policies.network_tiers import Pool
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


FULL = 1_000_000
"""A whole GPU, a GPU's whole memory, or the recorded speed [ppm]."""
_PERCENT = 10_000


def rounded_use(models: Models, jobs: Jobs) -> Ints:
    """Return the utilization of each job, in whole percent [ppm] (n,)."""
    return (utilization_ppm(models, jobs) + _PERCENT // 2) // _PERCENT * _PERCENT


def rounded_up(memory: Ints) -> Ints:
    """Return memory shares rounded up to whole percent [ppm]."""
    return -(-memory // _PERCENT) * _PERCENT


class Demand:
    """Requests and usage of jobs, and the GPUs that they may use. n jobs, T GPUs, N nodes, K kinds of demand."""

    def __init__(self, jobs: Jobs, cluster: Cluster, models: Models, extra: Ints | None = None) -> None:
        """Take the jobs and the cluster. Jobs with different values of `extra` (n,) are of different types."""
        self.jobs, self.models = jobs, models
        self.gpus: list[int] = jobs.devices.tolist()
        used = rounded_use(models, jobs)
        self.used: list[int] = used.tolist()
        """Utilization of each job, in whole percent [ppm]."""
        memory = rounded_up(memory_ppm(models, jobs))
        self.memory: list[int] = memory.tolist()
        """Memory of each job on each of its GPUs, rounded up to whole percent [ppm]."""
        found = assign(jobs, cluster)
        self.kind: list[int] = found.kind.tolist()
        columns: list[NDArray[Any]] = [found.kind, used, memory, *([] if extra is None else [extra])]
        types = np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel()
        self.type: list[int] = types.tolist()
        """Type of each job."""
        self.cluster = cluster
        self.node = np.repeat(np.arange(cluster.nodes), cluster.gpus)
        """Node of each GPU (T,)."""
        self.first = np.cumsum(cluster.gpus) - cluster.gpus
        """First GPU of each node (N,)."""
        self.model = cluster.model[self.node].astype(np.int64)
        """GPU model of each GPU, index into `Cluster.models` (T,)."""
        self._node_group = np.repeat(np.arange(len(found.group_low)), found.group_high - found.group_low)
        self.group = self._node_group[self.node]
        """Group of each GPU (T,)."""
        self._accepts: list[list[int]] = [np.flatnonzero(row).tolist() for row in accepted_groups(found)]
        self._gpus: dict[int, list[Ints]] = {}
        self._pools: dict[int, Pool] = {}
        self._pairs: dict[tuple[int, int], int] = {}

    def groups_of(self, job: int) -> list[int]:
        """Return the groups of nodes that a job may use, ascending."""
        return self._accepts[self.kind[job]]

    def gpus_of(self, job: int) -> list[Ints]:
        """Return the GPUs that a job may use, ascending, per GPU model. Gangs never mix models."""
        kind = self.kind[job]
        if kind not in self._gpus:
            own = np.flatnonzero(np.isin(self.group, self._accepts[kind]))
            models = np.unique(self.model[own]).tolist()
            self._gpus[kind] = [own[self.model[own] == model] for model in models]
        return self._gpus[kind]

    def nodes_for(self, job: int, room: Ints) -> list[tuple[int, int]] | None:
        """Return the nodes for a gang as (node, GPUs), given the GPUs available on each node (N,), or None.

        The nodes are close together, as `network_tiers.fewest` finds them among the nodes of a group.
        """
        kind = self.kind[job]
        if kind not in self._pools:
            nodes = np.flatnonzero(np.isin(self._node_group, self._accepts[kind]))
            self._pools[kind] = pool_of(self.cluster, nodes, self._node_group)
        spot = fewest(self._pools[kind], self.gpus[job], room[self._pools[kind].nodes])
        return None if spot is None else sorted(zip(spot.nodes, spot.gpus, strict=True))

    def speed_beside(self, job: int, other: int) -> int:
        """Return the speed of a job that shares a GPU with another (M1) [ppm]."""
        pair = self.used[job], self.used[other]
        if pair not in self._pairs:
            self._pairs[pair] = int(interference_ppm(self.models, *pair))
        return self._pairs[pair]

    def pair_speeds(self) -> Floats:
        """Return a job's speed next to another job, by both jobs' utilization in percent (M1) [0..1] (101, 101)."""
        percent = np.arange(101) * _PERCENT
        table: Floats = interference_ppm(self.models, percent[:, None], percent) / FULL
        return table

    def speed_among(self, job: int, others: Iterable[int]) -> int:
        """Return the speed of a job that shares a GPU with several others (M1) [ppm]."""
        found = FULL
        for speed in sorted(self.speed_beside(job, other) for other in others):
            found = (found * speed + FULL // 2) // FULL
        return max(found, 1)


class Residents(Plans):
    """Plans that choose every job's GPUs, and track the jobs on each GPU like the engine does."""

    shown: int = 1
    """Number of jobs per GPU that `seat` shows."""

    def set_up(self) -> None:
        """Compute the demand of the jobs."""
        self.demand = Demand(self.jobs, self.cluster, self.models, self.extra())
        self.settings.update(scope=0, names_nodes=True, share=2)

    def extra(self) -> Ints | None:
        """Return values that also distinguish types of jobs (n,), or None."""
        return None

    def begin(self, view: View) -> None:
        """Begin a run with empty GPUs."""
        self.view, demand = view, self.demand
        self.waiting = Lines(demand.type)
        self.seat = np.full((len(demand.node), self.shown), -1)
        """The first jobs on each GPU, with -1 for none (T, shown)."""
        self.on: list[list[int]] = [[] for _ in demand.node]
        """Jobs on each GPU, in the order of their starts there."""
        self.of: dict[int, list[int]] = {}
        """GPUs of each running job."""
        self.count = np.zeros(len(demand.node), np.int64)
        """Number of jobs on each GPU (T,)."""
        self.idle = np.bincount(demand.node, minlength=len(demand.first)).astype(np.int64)
        """Number of GPUs without jobs on each node (N,)."""
        self.memory = np.zeros(len(demand.node), np.int64)
        """Memory used on each GPU [ppm] (T,)."""
        self.rate: dict[int, int] = {}
        """Speed of each job as last passed to the engine [ppm]."""
        self._new: list[int] = []
        self._gone: list[int] = []
        self._touched: set[int] = set()
        self._submitted = 0

    def plan(self, view: View) -> Plan:
        """Return the plan: jobs that start, their GPUs, and the current speed of every job."""
        new, ended = self._follow(view)
        for job, gpus in ended.items():
            self.left(job, gpus)
        self.due(view.now_ms)
        for job in new:
            self.add(job)
        self.start(view)
        return self._written(self.wake(view.now_ms))

    def left(self, job: int, gpus: list[int]) -> None:
        """Record that a job on these GPUs has ended."""

    def due(self, now_ms: int) -> None:
        """Handle everything that is due."""

    def add(self, job: int) -> None:
        """Make a job wait."""
        self.waiting.add(job)

    def start(self, view: View) -> None:
        """Start waiting jobs."""

    def speed(self, job: int, gpu: int) -> int:
        """Return the speed of a job on one of its GPUs [ppm]. A job runs at the speed of its slowest GPU."""
        return FULL

    def wake(self, now_ms: int) -> int:
        """Return the time of the next plan if no event occurs, or -1 for never [ms]."""
        return -1

    def _follow(self, view: View) -> tuple[list[int], dict[int, list[int]]]:
        """Remove ended jobs. Return the new jobs, and the ended jobs with the GPUs that they had.

        A job whose node failed counts as both: it ended on its GPUs and waits again.
        """
        status, names = view.status, kernel()
        ended: list[int] = []
        if view.running_jobs < len(self.of):
            running = np.fromiter(self.of, np.int64, len(self.of))
            ended = running[status[running] != names.RUNNING].tolist()
        left = {job: self._take_out(job) for job in ended}
        for job in ended:
            del self.rate[job]
        came = range(self._submitted, view.submitted)
        self._submitted = view.submitted
        new = [job for job in (*ended, *came) if status[job] == names.WAITING]
        self._new, self._gone = [], []
        return new, left

    def put(self, job: int, gpus: Iterable[int]) -> None:
        """Start a job on these GPUs, whether or not other jobs run there."""
        held = list(gpus)
        self.of[job] = held
        for gpu in held:
            if not self.on[gpu]:
                self.idle[self.demand.node[gpu]] -= 1
            self.on[gpu].append(job)
            if len(self.on[gpu]) <= self.seat.shape[1]:
                self.seat[gpu, len(self.on[gpu]) - 1] = job
            self.count[gpu] += 1
            self.memory[gpu] += self.demand.memory[job]
            self._touched.add(gpu)
        self._new.append(job)

    def stop(self, job: int) -> None:
        """Stop a running job, which then waits again."""
        self._take_out(job)
        self.rate.pop(job, None)
        self._gone.append(job)

    def _take_out(self, job: int) -> list[int]:
        held = self.of.pop(job)
        for gpu in held:
            self.on[gpu].remove(job)
            shown = self.on[gpu][: self.seat.shape[1]]
            self.seat[gpu] = [*shown, *[-1] * (self.seat.shape[1] - len(shown))]
            self.count[gpu] -= 1
            self.memory[gpu] -= self.demand.memory[job]
            self._touched.add(gpu)
            if not self.on[gpu]:
                self.idle[self.demand.node[gpu]] += 1
        return held

    def touch(self, gpus: Iterable[int]) -> None:
        """Mark GPUs whose speeds must be recomputed."""
        self._touched.update(gpus)

    def idle_gpus(self, job: int) -> list[int] | None:
        """Return idle GPUs close together for a job, or None."""
        found = self.demand.nodes_for(job, np.where(self.view.node_gpus > 0, self.idle, 0))
        return None if found is None else self.lowest(found)

    def lowest(self, nodes: Iterable[tuple[int, int]]) -> list[int]:
        """Return the given number of idle GPUs on each node, lowest index first."""
        return [gpu for node, count in nodes for gpu in self._lowest(node, count)]

    def _lowest(self, node: int, count: int) -> list[int]:
        first = int(self.demand.first[node])
        found = []
        for gpu in range(first, first + int(self.view.node_gpus[node])):
            if not self.on[gpu]:
                found.append(gpu)
                if len(found) == count:
                    break
        return found

    def _written(self, wake_ms: int) -> Plan:
        """Return the plan of the jobs that were started or stopped, or that changed speed."""
        named: list[int] = []
        rates: list[int] = []
        rows: list[tuple[int, int, int, int]] = []
        for job in self._gone:
            if job not in self.of:
                named.append(job)
                rates.append(FULL)
        stopped = len(named)
        changed = {job: None for gpu in sorted(self._touched) for job in self.on[gpu]}
        self._touched.clear()
        new = set(self._new)
        for job in [*changed, *(job for job in self._new if job not in changed)]:
            rate = min(self.speed(job, gpu) for gpu in self.of[job])
            if job in new:
                rows += self._rows(len(named), self.of[job])
            elif rate == self.rate.get(job):
                continue
            self.rate[job] = rate
            named.append(job)
            rates.append(rate)
        gpus = [0] * stopped + [self.demand.gpus[job] for job in named[stopped:]]
        return Plan(
            np.array(named, np.int64),
            np.array(gpus, np.int64),
            rate=np.array(rates, np.int64),
            keep=True,
            wake_ms=wake_ms,
            place=np.array(rows, np.int64).reshape(-1, 4),
        )

    def _rows(self, place: int, gpus: list[int]) -> Iterator[tuple[int, int, int, int]]:
        for gpu in gpus:
            node = int(self.demand.node[gpu])
            yield place, node, 1, gpu - int(self.demand.first[node])


class Lines:
    """Waiting jobs in a fixed order, with one line per type."""

    def __init__(self, types: list[int], key: list[int] | None = None) -> None:
        """Take each job's type and key. The smallest key goes first. Ties, or jobs without keys, go by submission."""
        self._types, self._key = types, key
        self._lines: dict[int, list[tuple[int, int]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, job: int) -> None:
        """Add a waiting job."""
        self._size += 1
        line = self._lines.setdefault(self._types[job], [])
        heapq.heappush(line, (self._key[job] if self._key else job, job))

    def start(self, begin: Callable[[int], bool], *, skip: bool = True) -> None:
        """Consider the jobs in order. `begin` starts a job, or returns False if no job of its type can start.

        With skip=False, the first job that cannot start ends the pass.
        """
        heads = [(*line[0], kind) for kind, line in self._lines.items() if line]
        heapq.heapify(heads)
        while heads:
            _, job, kind = heapq.heappop(heads)
            if begin(job):
                line = self._lines[kind]
                heapq.heappop(line)
                self._size -= 1
                if line:
                    heapq.heappush(heads, (*line[0], kind))
            elif not skip:
                break
