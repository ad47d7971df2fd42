"""Synergy: jobs get CPUs and memory by need, so GPUs do not wait for input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.residents import FULL, Demand
from tracekit.policies.network_tiers import Spot
from tracekit.policies.parameters import OVERHEAD
from tracekit.policies.plans import Planned, Plans
from tracekit.replay.assumptions.of_jobs import cpu_families
from tracekit.replay.assumptions.speeds import cpu_speed_ppm

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.mechanisms import Plan, View


_SLACK = 1e-6


@dataclass(frozen=True)
class Hosts:
    """CPUs and memory of N nodes, and the speeds of job families that result from them."""

    supply: Floats
    """CPUs and memory [GB] of each node (N, 2)."""
    fair: Floats
    """CPUs and memory [GB] per GPU of each node (N, 2)."""
    want: Floats
    """CPUs and memory [GB] per GPU beyond which each family gets no faster (F, 2)."""
    models: Models
    names: list[str]

    def speed(self, family: int, share: tuple[float, float], fair: tuple[float, float]) -> int:
        """Return the speed of a family with these CPUs and memory per GPU, relative to its fair share [ppm]."""
        name = self.names[family]
        usual = int(cpu_speed_ppm(self.models, name, fair[0], fair[1]))
        return max(int(cpu_speed_ppm(self.models, name, share[0], share[1])) * FULL // max(usual, 1), 1)


def make_hosts(cluster: Cluster, models: Models) -> Hosts:
    """Return the CPUs and memory of a cluster. Nodes without known values get M6's values per GPU."""
    cpu, gpus = models.cpu, cluster.gpus.astype(np.float64)
    cores = np.where(cluster.cpu_milli > 0, cluster.cpu_milli / 1000, gpus * cpu.reference_cpus)
    memory = np.where(cluster.memory_mib > 0, cluster.memory_mib * 1.048576e-3, gpus * cpu.reference_memory_gb)
    supply = np.column_stack([cores, memory])
    want = []
    for curve in cpu.families.values():
        at = curve.speed.index(max(curve.speed))
        want.append((cpu.cpus[at], curve.memory_gb[at] if curve.memory_gb else cpu.reference_memory_gb))
    return Hosts(supply, supply / gpus[:, None], np.array(want), models, list(cpu.families))


class _Rounds(Plans):
    """Divides CPUs and memory in rounds."""

    def set_up(self) -> None:
        """Determine the families of the jobs."""
        p, models = self.p, self.models
        self.demand, self.hosts = Demand(self.jobs, self.cluster, models), make_hosts(self.cluster, models)
        self.family: list[int] = cpu_families(models, self.jobs, self.seed).tolist()
        self.settings.update(round_ms=round(p["round"] * 1000), scope=0, names_nodes=True)
        self.mode, self.base, self.round_ms = p["mode"], p["base"], round(p["round"] * 1000)
        self._speeds: dict[tuple[int, tuple[float, float], tuple[float, float]], int] = {}

    def begin(self, view: View) -> None:
        nodes = len(self.demand.first)
        self.free = np.bincount(self.demand.node, minlength=nodes).astype(np.int64)
        self.left = self.hosts.supply.copy()
        self.where: dict[int, list[tuple[int, int]]] = {}
        self.at: dict[int, tuple[Ints, Ints]] = {}
        """Nodes of each running job (m,), and its GPUs on each node (m, 1)."""
        self.least: dict[int, Floats] = {}
        """Guaranteed CPUs and memory of each job per GPU on its nodes (m, 2)."""
        self.share: dict[int, Floats] = {}
        """CPUs and memory of each job per GPU on its nodes (m, 2)."""
        self.on: list[set[int]] = [set() for _ in range(nodes)]
        self.rate: dict[int, int] = {}

    def plan(self, view: View) -> Plan:
        """Return the plan: the jobs that run in the next round, their nodes and their speeds."""
        job, running = view.job, view.running
        active = set(job[running].tolist())
        touched: set[int] = set()
        for ended in [j for j in self.where if j not in active]:
            touched |= self._leave(ended)
        ranked = self._ranked(view, job).tolist()
        stopped = self._stopped(view, ranked) if self.base != "fifo" else []
        for j in stopped:
            touched |= self._leave(j)
        new = self._start(view, ranked, touched)
        changed = self._tune(touched, {j: at for at, j in enumerate(ranked)})
        wakes = self.base != "fifo" and self.round_ms and len(self.where) < len(job)
        spots = {j: Spot([node for node, _ in self.where[j]], [gpus for _, gpus in self.where[j]]) for j in new}
        rates = {j: self.rate[j] for j in (*new, *changed)}
        wake_ms = view.now_ms + self.round_ms if wakes else -1
        return self.written([j for j in stopped if j not in spots], rates, spots, wake_ms)

    def _ranked(self, view: View, job: Ints) -> Ints:
        if self.base == "fifo":
            return job
        key = view.attained_gpu_ms if self.base == "las" else view.remaining_ms + view.overhead_ms
        return job[np.lexsort((job, ~view.running, key))]

    def _stopped(self, view: View, ranked: list[int]) -> list[int]:
        """Return the running jobs that must give up their GPUs, by count, for jobs earlier in the order."""
        demand = self.demand
        left: dict[tuple[int, ...], int] = {}
        found = []
        for j in ranked:
            groups = tuple(demand.groups_of(j))
            if groups not in left:
                left[groups] = sum(int(view.group_gpus[g]) for g in groups)
            if demand.gpus[j] <= min(value for own, value in left.items() if set(own) >= set(groups)):
                for own in left:
                    if set(own) >= set(groups):
                        left[own] -= demand.gpus[j]
            elif j in self.where:
                found.append(j)
        return found

    def _start(self, view: View, ranked: list[int], touched: set[int]) -> list[int]:
        """Place waiting jobs in order, skipping jobs that do not fit."""
        up, new, full = view.node_gpus > 0, [], set[tuple[int, int]]()
        for j in ranked:
            alike = self.demand.kind[j], self.family[j]
            if j in self.where or alike in full:
                continue
            found = self._place(j, np.where(up, self.free, 0))
            if found is None:
                full.add(alike)
                continue
            new.append(j)
            self.where[j] = found
            nodes, gpus = np.array(found).T
            self.at[j], self.least[j] = (nodes, gpus[:, None]), self._least(j, nodes)
            self.free[nodes] -= gpus
            self._give(j, self.least[j])
            if self.mode != "proportional":
                self._raise(j)
            for node, _ in found:
                self.on[node].add(j)
                touched.add(node)
        return new

    def _place(self, j: int, room: Ints) -> list[tuple[int, int]] | None:
        """Return nodes for a job: with its need free, else with its fair share free, else any with enough GPUs."""
        demand, gpus, hosts = self.demand, self.demand.gpus[j], self.hosts
        want = hosts.want[self.family[j]]
        narrow = gpus <= int(room.max(initial=0))
        tries: list[Floats] = []
        if self.mode != "proportional" and narrow:
            tries.append(np.broadcast_to(want * gpus, hosts.supply.shape))
        if self.mode == "tune" and narrow:
            tries.append(np.minimum(want, hosts.fair) * gpus)
        for need in tries:
            fits = (self.left + _SLACK >= need).all(axis=1)
            found = demand.nodes_for(j, np.where(fits, room, 0))
            if found is not None:
                return found
        if self.mode == "greedy":
            # A job that needs more than a whole node may use the whole node.
            whole = (want * gpus > hosts.supply.max(axis=0)).any()
            return demand.nodes_for(j, room) if whole or not narrow else None
        return demand.nodes_for(j, room)

    def _least(self, j: int, nodes: Ints) -> Floats:
        """Return the guaranteed CPUs and memory of a job per GPU on its nodes (m, 2)."""
        fair = self.hosts.fair[nodes]
        return fair if self.mode == "proportional" else np.minimum(fair, self.hosts.want[self.family[j]])

    def _give(self, j: int, share: Floats | None) -> None:
        """Replace a job's CPUs and memory per GPU, or remove them (None)."""
        nodes, gpus = self.at[j]
        old = self.share.pop(j, None)
        if old is not None:
            self.left[nodes] += old * gpus
        if share is not None:
            self.left[nodes] -= share * gpus
            self.share[j] = share

    def _leave(self, j: int) -> set[int]:
        self._give(j, None)
        place = self.where.pop(j)
        del self.at[j], self.least[j]
        self.rate.pop(j, None)
        for node, gpus in place:
            self.free[node] += gpus
            self.on[node].discard(j)
        return {node for node, _ in place}

    def _tune(self, touched: set[int], rank: dict[int, int]) -> list[int]:
        """Redistribute the CPUs and memory of these nodes. Return the jobs whose speed changes."""
        near = sorted({j for node in touched for j in self.on[node]}, key=rank.__getitem__)
        if self.mode != "proportional":
            for j in near:
                self._give(j, self.least[j])
            for j in near:
                self._raise(j)
        changed = []
        for j in near:
            rate = min(
                self._speed(self.family[j], tuple(own), tuple(self.hosts.fair[node].tolist()))
                for own, (node, _) in zip(self.share[j].tolist(), self.where[j], strict=True)
            )
            if rate != self.rate.get(j):
                self.rate[j] = rate
                changed.append(j)
        return changed

    def _raise(self, j: int) -> None:
        """Give a job all that it can use, if its nodes have that much left."""
        nodes, gpus = self.at[j]
        want = np.maximum(self.hosts.want[self.family[j]], self.share[j])
        if (self.left[nodes] + _SLACK >= (want - self.share[j]) * gpus).all():
            self._give(j, want)

    def _speed(self, family: int, share: tuple[float, ...], fair: tuple[float, ...]) -> int:
        key = family, (share[0], share[1]), (fair[0], fair[1])
        if key not in self._speeds:
            self._speeds[key] = self.hosts.speed(*key)
        return self._speeds[key]


class Synergy(Planned):
    """Jobs get CPUs and memory by need instead of in proportion to GPUs.

    In rounds, jobs are considered in the order of `base`. With base=srtf or base=las, running jobs are stopped if
    earlier jobs leave too few GPUs, by count. A job that does not fit is skipped. With mode=proportional, each GPU has
    its share of the node's CPUs and memory. With mode=tune, a job that fits on one node goes where its need (the CPUs
    and memory beyond which it gets no faster) is free, otherwise where the smaller of need and fair share is free,
    otherwise to any node with enough GPUs. On nodes where a job arrived or left, every job first gets the smaller of
    need and fair share. Then, in order, jobs get their full need if it is still free. No job gets less than its fair
    share, unless it needs less. With mode=greedy, a job waits until its need is free. Among suitable nodes, the one
    with the fewest free GPUs is taken. A job's speed is that of M6, divided by its speed with the fair share.

    Equal to
    --------
    - With mode=proportional and round=0, the policy equals fifo,scan=skip.
    - If no family is faster with more than its fair share, or each node has one GPU, the policy equals
      mode=proportional.

    Sources
    -------
    - Mohan et al., Synergy (OSDI'22), and its artifact: modes, need, rounds, and speed curves of the families.
    - Our choices: on nodes that change, jobs that get more than the fair share are chosen again, in order, instead of
      taking from the fewest nodes; a job gets either its whole need or the smaller amount; nodes without known CPUs and
      memory get M6's values.
    """

    plans = _Rounds
    card = Card(
        name="synergy",
        parameters=(
            Parameter("mode", "tune", "how CPUs and memory are divided", ("tune", "proportional", "greedy")),
            Parameter("base", "fifo", "order of the jobs", ("fifo", "srtf", "las")),
            Parameter("round", 300.0, "length of a round, or 0 to decide at every arrival and end [s]"),
            OVERHEAD,
        ),
        assumptions=("D1", "M4", "M6", "M9"),
    )
