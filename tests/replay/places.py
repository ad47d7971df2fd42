"""Placement rules in slow, plain Python for the oracle and the auditor, each written as its sentence says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["PLACEMENTS", "NodeMap", "Take", "Want", "find_place", "wants"]

PLACEMENTS = ("consolidate", "best-fit", "worst-fit", "first-fit", "any", "buddy")

Take = tuple[int, int, int]
"""(node, the GPU's index in it or -1, number of GPUs). With node -1, GPUs are only counted."""


@dataclass(frozen=True)
class Want:
    """What a job requests from the node map."""

    gpus: int
    """Gang size."""
    domain: int
    """Domain of the job's queue, or -1 if the cluster has none for it."""
    model: str | None
    """GPU model, or None for any model."""
    stoppable: bool = False
    """Whether the job may use lent spares."""
    sets: frozenset[tuple[str, ...]] | None = None
    """Partition sets of the nodes that the job may use, or None for all nodes."""


def wants(jobs: Jobs, cluster: Cluster) -> list[Want]:
    """Return each job's request. Isolated virtual clusters are found by the tenant's name."""
    found = []
    for job in range(len(jobs)):
        domain = 0
        if list(cluster.domains) != [""]:
            name = jobs.tenants[jobs.tenant[job]] if jobs.tenant[job] >= 0 else None
            domain = cluster.domains.index(name) if name in cluster.domains else -1
        model = jobs.models[jobs.model[job]] if jobs.model[job] >= 0 else None
        stoppable = bool(jobs.preemptible[job] == 1)
        found.append(Want(int(jobs.devices[job]), domain, model, stoppable, _sets(jobs, cluster, job)))
    return found


def _sets(jobs: Jobs, cluster: Cluster, job: int) -> frozenset[tuple[str, ...]] | None:
    if jobs.partition is None or jobs.partition[job] < 0:
        return None
    asked = set(jobs.partitions[jobs.partition[job]].split(","))
    if not any(asked & set(names) for names in cluster.partition_sets):
        return None  # no node is known to belong to the partition
    chosen = frozenset(names for names in cluster.partition_sets if not names or asked & set(names))
    return None if len(chosen) == len(cluster.partition_sets) else chosen


class NodeMap:
    """The GPUs in use on each node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.gpus = [int(g) for g in cluster.gpus]
        self.domain = [int(d) for d in cluster.domain]
        self.up = [not absent for absent in cluster.absent]
        self.used = [0] * len(self.gpus)
        self.cells = [[False] * g for g in self.gpus]
        self.counted = [0] * len(cluster.domains)
        groups: dict[tuple[int, int, int], list[int]] = {}
        for node in range(len(self.gpus)):
            key = (self.domain[node], int(cluster.model[node]), int(cluster.rack[node]))
            groups.setdefault(key, []).append(node)
        self.groups = groups

    def copy(self) -> NodeMap:
        """Return an independent copy of the map."""
        other = NodeMap(self.cluster)
        other.up = list(self.up)
        other.used = list(self.used)
        other.cells = [list(cells) for cells in self.cells]
        other.counted = list(self.counted)
        return other

    def free(self, node: int) -> int:
        """Return how many GPUs on a node a new job may take."""
        return self.gpus[node] - self.used[node] if self.up[node] else 0

    def free_by_count(self, domain: int) -> int:
        """Return a domain's number of free GPUs over all nodes, which is negative while a full cluster is drained."""
        there = sum(g for g, up, d in zip(self.gpus, self.up, self.domain, strict=True) if up and d == domain)
        return there - sum(u for u, d in zip(self.used, self.domain, strict=True) if d == domain) - self.counted[domain]

    def accepted(self, want: Want) -> list[list[int]]:
        """Return the nodes that a job accepts by model and rack, in the order of all nodes there."""
        found = []
        for (domain, model, _), nodes in self.groups.items():
            if domain == want.domain and want.model in {None, self.cluster.models[model]}:
                own = [node for node in nodes if self._accepts(want, node)]
                if own:
                    found.append(own)
        return found

    def _accepts(self, want: Want, node: int) -> bool:
        lent = self.cluster.lent is not None and bool(self.cluster.lent[node])
        served = self.cluster.partition_sets[self.cluster.serves[node]]
        return (want.stoppable or not lent) and (want.sets is None or served in want.sets)

    def take(self, place: list[Take], domain: int) -> None:
        """Mark a job's GPUs as taken."""
        self._change(place, domain, 1)

    def give(self, place: list[Take], domain: int) -> None:
        """Mark a job's GPUs as free."""
        self._change(place, domain, -1)

    def _change(self, place: list[Take], domain: int, sign: int) -> None:
        for node, gpu, count in place:
            if node < 0:
                self.counted[domain] += sign * count
                continue
            self.used[node] += sign * count
            assert 0 <= self.used[node] <= self.gpus[node]
            if gpu >= 0:
                for index in range(gpu, gpu + count):
                    assert self.cells[node][index] == (sign < 0)
                    self.cells[node][index] = sign > 0

    def has_room(self, place: list[Take]) -> bool:
        """Return whether exactly these GPUs are free, even on a drained node, because a returning job never left."""
        for node, gpu, count in place:
            if node < 0:
                return False
            if self.gpus[node] - self.used[node] < count:
                return False
            if gpu >= 0 and any(self.cells[node][gpu : gpu + count]):
                return False
        return True


def find_place(nodes: NodeMap, want: Want, placement: str, fit: str = "place", level: int = 0) -> list[Take] | None:
    """Return where a job can start now, or None. Levels 1 and 2 also accept scattered nodes (relaxed)."""
    if want.domain < 0:
        return None
    if fit == "count":
        return [(-1, -1, want.gpus)] if nodes.free_by_count(want.domain) >= want.gpus else None
    if placement == "buddy":  # never relaxed: scattered GPUs are no blocks
        return _buddy(nodes, want)
    place = None
    if placement != "any":
        place = _one_node(nodes, want, placement) or _many_nodes(nodes, want)
    if place is None and (level >= 1 or placement == "any"):
        place = _scatter(nodes, want, nodes.accepted(want))
    if place is None and (level >= 2 or placement == "any"):
        place = _scatter(nodes, want, _by_model(nodes, want))
    return place


def _one_node(nodes: NodeMap, want: Want, placement: str) -> list[Take] | None:
    fitting = [n for group in nodes.accepted(want) for n in group if nodes.free(n) >= want.gpus]
    if not fitting:
        return None
    if placement in {"consolidate", "best-fit"}:
        node = min(fitting, key=lambda n: (nodes.free(n), n))
    elif placement == "worst-fit":
        node = min(fitting, key=lambda n: (-nodes.free(n), n))
    else:
        node = min(fitting)
    return [(node, -1, want.gpus)]


def _many_nodes(nodes: NodeMap, want: Want) -> list[Take] | None:
    for group in nodes.accepted(want):
        largest = max(nodes.gpus[n] for n in group)
        if want.gpus <= largest:
            continue
        whole = want.gpus // largest
        rest = want.gpus - whole * largest
        empty = [n for n in group if nodes.gpus[n] == largest == nodes.free(n)][:whole]
        if len(empty) < whole:
            continue
        place = [(n, -1, largest) for n in empty]
        if rest:
            others = [n for n in group if n not in empty and nodes.free(n) >= rest]
            if not others:
                continue
            place.append((min(others, key=lambda n: (-nodes.free(n), n)), -1, rest))
        return place
    return None


def _by_model(nodes: NodeMap, want: Want) -> list[list[int]]:
    """Return the accepted nodes by GPU model, with racks merged."""
    merged: dict[int, list[int]] = {}
    for group in nodes.accepted(want):
        merged.setdefault(int(nodes.cluster.model[group[0]]), []).extend(group)
    return list(merged.values())


def _scatter(nodes: NodeMap, want: Want, groups: list[list[int]]) -> list[Take] | None:
    for group in groups:
        if sum(nodes.free(n) for n in group) < want.gpus:
            continue
        place = []
        left = want.gpus
        for node in sorted(group, key=lambda n: (-nodes.free(n), n)):
            if left:
                taken = min(left, nodes.free(node))
                place.append((node, -1, taken))
                left -= taken
        return place
    return None


def _buddy(nodes: NodeMap, want: Want) -> list[Take] | None:
    size = 1
    while size < want.gpus:
        size *= 2
    blocks = []
    for group in nodes.accepted(want):
        for node in group:
            if nodes.up[node]:
                top = 1
                while top < nodes.gpus[node]:
                    top *= 2
                blocks += [(length, node, at) for at, length in _free_blocks(nodes.cells[node], 0, top)]
    blocks = [block for block in blocks if block[0] >= size]
    if blocks:
        _, node, at = min(blocks)
        return [(node, at, size)]
    for group in nodes.accepted(want):
        largest = max(nodes.gpus[n] for n in group)
        if size <= largest:
            continue
        many = -(-want.gpus // largest)
        empty = [n for n in group if nodes.gpus[n] == largest == nodes.free(n)][:many]
        if len(empty) == many:
            return [(n, 0, largest) for n in empty]
    return None


def _free_blocks(cells: list[bool], start: int, length: int) -> list[tuple[int, int]]:
    """Return the largest free aligned blocks (start, length) inside an aligned block."""
    inside = cells[start : start + length]
    if len(inside) == length and not any(inside):
        return [(start, length)]
    if length == 1:
        return []
    half = length // 2
    return _free_blocks(cells, start, half) + _free_blocks(cells, start + half, half)
