"""Find GPUs for gangs by tier, their network links, and the gangs' speed on them (M36 to M38)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tracekit.policies.pools import accepted_groups
from tracekit.replay.assumptions.of_jobs import ring_s, traffic_of
from tracekit.replay.assumptions.speeds import PPM
from tracekit.replay.clusters.assignment import assign

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.array_types import Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


FEWEST, RACK, ANYWHERE = range(3)
"""Closeness of a gang's GPUs: the fewest nodes of a rack, any nodes of one rack, or any nodes of one GPU model."""

Run: TypeAlias = tuple[int, int, int]
"""Consecutive nodes of a pool: the first index, the index after the last, and the GPUs of the largest node."""


_MORE = 2**62
"""A number larger than any GPU count."""


class Spot(NamedTuple):
    """A possible placement of a gang: nodes, and its GPUs on each node."""

    nodes: list[int]
    gpus: list[int]


def place_rows(spots: Iterable[tuple[int, Spot]]) -> Ints:
    """Return the rows of `Plan.place` for jobs given by their index in the plan (r, 3)."""
    rows = [(place, node, gpus) for place, spot in spots for node, gpus in zip(spot.nodes, spot.gpus, strict=True)]
    return np.array(rows, np.int64).reshape(-1, 3)


@dataclass(frozen=True)
class Pool:
    """The nodes that jobs of certain kinds accept."""

    domain: int
    nodes: Ints
    """Indices of the nodes, ascending (m,)."""
    racks: list[Run]
    """Runs of nodes of one GPU model and rack."""
    rack_low: Ints
    """First node of each run in `racks`, as an index into `nodes` (r,)."""
    rack_largest: Ints
    """GPUs of the largest node of each run in `racks` (r,)."""
    whole: Ints
    """GPUs of the largest node in each node's rack (m,)."""
    models: list[Run]
    """Runs of nodes of one GPU model."""
    largest: int
    """GPUs of the largest node."""


class Places:
    """Track the nodes' free GPUs during a plan, and find where gangs fit.

    Parameters
    ----------
    jobs : Jobs
        All jobs.
    cluster : Cluster
        All nodes. If racks are not known, all nodes count as one rack.
    """

    def __init__(self, jobs: Jobs, cluster: Cluster) -> None:
        found = assign(jobs, cluster)
        node_group = np.repeat(np.arange(len(found.group_low)), found.group_high - found.group_low)
        code = np.stack([found.kind_domain.astype(np.uint64), found.kind_accept], axis=1)
        _, first, kind_pool = np.unique(code, axis=0, return_index=True, return_inverse=True)
        masks = accepted_groups(found)[first][:, node_group]
        self.kind = found.kind.astype(np.int64)
        """Kind of demand of each job (n,)."""
        self.kind_gpus: list[int] = found.kind_devices.tolist()
        """GPUs of each kind (K,)."""
        self.kind_pool: list[int] = kind_pool.ravel().tolist()
        """Pool of each kind (K,)."""
        self.pools = [
            pool_of(cluster, np.flatnonzero(mask), cluster.rack, domain)
            for mask, domain in zip(masks, found.kind_domain[first].tolist(), strict=True)
        ]
        self.gpus = cluster.gpus.astype(np.int64)
        """GPUs of each node (N,)."""
        self.job_pool = kind_pool.ravel()[self.kind] if len(self.kind) else np.zeros(0, np.int64)
        """Pool of each job (n,)."""
        self.nearest = [self._nearest(k) for k in range(len(self.kind_gpus))]
        """Closest tier that each kind can get if all nodes are in service and free (K,)."""
        self._member = masks.astype(np.int64)
        self._pools_of: list[list[int]] = [np.flatnonzero(column).tolist() for column in self._member.T]
        self.free = self.gpus.copy()
        """Free GPUs of each node (N,)."""
        self.room: list[int] = []
        """Free GPUs of each pool (P,)."""
        self._none: set[tuple[int, int]] = set()
        self.renew(self.gpus)

    def renew(self, free: Ints) -> None:
        """Begin a plan, given each node's free GPUs (N,)."""
        self.free = free.copy()
        self.room = (self._member @ self.free).tolist()
        self._none.clear()

    def find(self, job: int, tier: int) -> Spot | None:
        """Return GPUs for a job at a tier, or None. Failed searches are not repeated in the same plan."""
        kind = int(self.kind[job])
        if (kind, tier) in self._none:
            return None
        if self.kind_gpus[kind] > self.room[self.kind_pool[kind]]:
            return None
        found = self.found(job, tier, self.free)
        if found is None:
            self._none.add((kind, tier))
        return found

    def found(self, job: int, tier: int, free: Ints) -> Spot | None:
        """Return GPUs for a job at a tier, given each node's free GPUs (N,)."""
        kind = int(self.kind[job])
        pool, gpus = self.pools[self.kind_pool[kind]], self.kind_gpus[kind]
        own = free[pool.nodes]
        return fewest(pool, gpus, own) if tier == FEWEST else _within(pool, gpus, own, near=tier == RACK)

    def take(self, spot: Spot) -> None:
        """Allocate a gang's GPUs for the rest of the plan."""
        self._change(spot, -1)

    def give(self, spot: Spot) -> None:
        """Release a gang's GPUs."""
        self._change(spot, 1)
        self._none.clear()

    def _change(self, spot: Spot, sign: int) -> None:
        for node, gpus in zip(spot.nodes, spot.gpus, strict=True):
            self.free[node] += sign * gpus
            for pool in self._pools_of[node]:
                self.room[pool] += sign * gpus

    def _nearest(self, kind: int) -> int:
        pool, gpus = self.pools[self.kind_pool[kind]], self.kind_gpus[kind]
        free = self.gpus[pool.nodes]
        if fewest(pool, gpus, free) is not None:
            return FEWEST
        return RACK if _within(pool, gpus, free, near=True) is not None else ANYWHERE


def pool_of(cluster: Cluster, nodes: Ints, rack: NDArray[np.int32] | Ints, domain: int = -1) -> Pool:
    """Return a pool of nodes given in ascending order. `rack` is the rack of every node (N,)."""
    gpus, model = cluster.gpus[nodes], cluster.model[nodes]
    racks = _runs(gpus, model, rack[nodes])
    low, high, largest = np.array(racks, np.int64).reshape(-1, 3).T
    whole = np.repeat(largest, high - low)
    return Pool(domain, nodes, racks, low, largest, whole, _runs(gpus, model), int(gpus.max(initial=0)))


def _runs(gpus: NDArray[np.int32], *columns: NDArray[np.int32] | Ints) -> list[Run]:
    """Return runs of consecutive nodes with equal values in the columns."""
    if not len(gpus):
        return []
    change = np.zeros(len(gpus), np.bool_)
    for column in columns:
        change[1:] |= column[1:] != column[:-1]
    change[:1] = True
    low = np.flatnonzero(change).tolist()
    high = [*low[1:], len(gpus)]
    return [(a, b, int(gpus[a:b].max())) for a, b in zip(low, high, strict=True)]


def fewest(pool: Pool, gpus: int, free: Ints) -> Spot | None:
    """Return the tightest node that fits the gang, or for a larger gang, whole nodes of a rack and one more node.

    Parameters
    ----------
    pool : Pool
    gpus : int
        Size of the gang.
    free : array (m,)
        Free GPUs of each node of the pool.
    """
    if gpus <= pool.largest:
        enough = np.where(free >= gpus, free, _MORE)
        node = int(enough.argmin())
        if free[node] >= gpus:
            return Spot([int(pool.nodes[node])], [gpus])
    # One pass over all nodes is enough: most racks have too few entirely free nodes.
    full = np.add.reduceat(free == pool.whole, pool.rack_low, dtype=np.int64)
    for index in ((gpus > pool.rack_largest) & (full >= gpus // pool.rack_largest)).nonzero()[0].tolist():
        low, high, largest = pool.racks[index]
        whole, rest = divmod(gpus, largest)
        taken = np.flatnonzero(free[low:high] == largest)[:whole]
        sizes = [largest] * whole
        if rest:
            others = free[low:high].copy()
            others[taken] = 0
            last = int(others.argmax())
            if others[last] < rest:
                continue
            taken, sizes = np.append(taken, last), [*sizes, rest]
        return Spot(pool.nodes[low + taken].tolist(), sizes)
    return None


def _within(pool: Pool, gpus: int, free: Ints, *, near: bool) -> Spot | None:
    """Return nodes of the first rack (`near`) or GPU model with enough free GPUs, the emptiest nodes first."""
    for low, high, _ in pool.racks if near else pool.models:
        here = free[low:high]
        if int(here.sum()) >= gpus:
            return gathered(pool.nodes[low:high], here, np.argsort(-here, kind="stable"), gpus)
    return None


def gathered(nodes: Ints, free: Ints, order: NDArray[np.intp] | Sequence[int], gpus: int) -> Spot:
    """Return the first nodes in an order that together have enough free GPUs (m,)."""
    ordered = free[order]
    before = np.cumsum(ordered) - ordered
    used = np.flatnonzero((ordered > 0) & (before < gpus))
    taken = np.minimum(ordered[used], gpus - before[used])
    return Spot(nodes[np.asarray(order)[used]].tolist(), taken.tolist())


NODE, RACKS, SPINE = range(3)
"""Tier of a gang: one node, several nodes of one rack, or several racks."""

_FEW = 4
"""Number of gangs below which computing speeds one by one is faster."""


class Network:
    """The links of a cluster, the gangs that use them, and the gangs' speeds.

    Every node has a link to its rack, and every rack has parallel links to the spine. A gang on several nodes uses the
    links of its nodes. A gang over several racks also uses the links of its racks. If racks are not known, all nodes
    count as one rack. An iteration takes its computing time plus the ring time on the slowest link. A job's recorded
    run time is assumed to be its run time alone on the cluster, with its GPUs as close together as possible.

    Parameters
    ----------
    jobs, cluster, models, seed
        As passed to the policy.
    places : Places
        The places for the same jobs and cluster.
    priority : array, optional
        Priority of each job's traffic (n,). The largest value goes first, and among equals the earlier job. With None,
        gangs share links evenly.
    """

    def __init__(
        self, jobs: Jobs, cluster: Cluster, models: Models, seed: int, places: Places, *, priority: Floats | None = None
    ) -> None:
        speeds, contention = models.links.gbit, models.contention
        self.rack = cluster.rack.astype(np.int64)
        """Rack of each node (N,)."""
        self.nodes = cluster.nodes
        racked = np.bincount(self.rack, minlength=len(cluster.racks)) * speeds.node_gbit
        parallel = np.maximum(np.rint(racked / speeds.spine_gbit / models.links.oversubscription), 1.0)
        self.lanes = np.concatenate([np.ones(self.nodes), parallel])
        """Number of parallel links per node, then per rack (L,)."""
        self.gbit = np.concatenate([np.full(self.nodes, speeds.node_gbit), np.full(len(parallel), speeds.spine_gbit)])
        """Bandwidth of each link if one gang uses it alone (L,)."""
        self.message_mb, self.compute_s = traffic_of(models, jobs, seed)
        self.gpus = jobs.devices.astype(np.int64)
        slowest = np.minimum.accumulate([speeds.gpu_gbit, speeds.node_gbit, speeds.spine_gbit])
        sending = np.stack([ring_s(self.message_mb, self.gpus, gbit) for gbit in slowest.tolist()], axis=1)
        self.alone_s = self.compute_s[:, None] + sending
        """Iteration time of each gang alone, by tier (n, 3) [s]."""
        self.duty = sending / self.alone_s
        """Share of the iteration time in which each gang sends, by tier [0..1] (n, 3)."""
        self.best = self._best_tier(places)
        """Lowest tier at which each job fits if all nodes are in service and free (n,)."""
        self.best_s = self.alone_s[np.arange(len(jobs)), self.best]
        """Iteration time of each gang alone at its best tier (n,) [s]."""
        self._ring_gbit = ring_s(self.message_mb, self.gpus, 1.0)
        self._gpu_cost = 1 / speeds.gpu_gbit
        self._always, self._factor, self._least = contention.sharing == "always", 1 + contention.extra, contention.least
        self._priority = priority
        self.clear()

    def clear(self) -> None:
        """Forget all gangs."""
        self.load = np.zeros(len(self.gbit))
        """Load of each link: the number of gangs, weighted according to M38 (L,)."""
        self.links: dict[int, Ints] = {}
        """Links of each multi-node gang."""
        self.tier: dict[int, int] = {}
        """Tier of each multi-node gang."""
        self.on: dict[int, set[int]] = {}
        """Multi-node gangs on each link."""
        self._changed: set[int] = set()

    def _best_tier(self, places: Places) -> Ints:
        """Return the lowest tier at which each job fits if all nodes are in service and free (n,)."""
        by_kind = []
        for gpus, pool in zip(places.kind_gpus, places.kind_pool, strict=True):
            nodes = places.pools[pool].nodes
            inside = np.bincount(self.rack[nodes], places.gpus[nodes]).max(initial=0)
            by_kind.append(NODE if gpus <= places.pools[pool].largest else RACKS if gpus <= inside else SPINE)
        return np.array(by_kind, np.int64)[places.kind]

    def links_of(self, nodes: Sequence[int]) -> Ints:
        """Return the links that a gang on these nodes uses."""
        if len(nodes) < 2:
            return np.zeros(0, np.int64)
        own = np.array(nodes, np.int64)
        racks = np.unique(self.rack[own])
        return np.concatenate([own, self.nodes + racks]) if len(racks) > 1 else own

    def tier_of(self, nodes: Sequence[int]) -> int:
        """Return the tier of a gang on these nodes."""
        if len(nodes) < 2:
            return NODE
        return RACKS if len({int(self.rack[node]) for node in nodes}) == 1 else SPINE

    def enter(self, job: int, nodes: Sequence[int]) -> None:
        """Add the traffic of a gang."""
        links = self.links_of(nodes)
        if not len(links):
            return
        self.links[job] = links
        self.tier[job] = self.tier_of(nodes)
        self.load[links] += self._weight(job)
        for link in links.tolist():
            self.on.setdefault(link, set()).add(job)
            self._changed |= self.on[link]

    def leave(self, job: int) -> None:
        """Remove the traffic of a gang."""
        links = self.links.pop(job, None)
        if links is None:
            return
        self.load[links] -= self._weight(job)
        del self.tier[job]
        for link in links.tolist():
            self.on[link].discard(job)
            self._changed |= self.on[link]
        self._changed.discard(job)

    def take_changed(self) -> list[int]:
        """Return the gangs whose speed may have changed since the last call, ascending."""
        found = sorted(self._changed)
        self._changed.clear()
        return found

    def neighbours(self, nodes: Sequence[int]) -> set[int]:
        """Return the gangs that would share a link with a gang on these nodes."""
        found: set[int] = set()
        for link in self.links_of(nodes).tolist():
            found |= self.on.get(link, set())
        return found

    def speed(self, job: int) -> int:
        """Return the speed of a gang on its nodes [ppm of its speed alone at its best tier]."""
        links = self.links.get(job)
        if links is None:
            return PPM
        if self._priority is None:
            slow = self._shares(self._weight(job), links)
        else:
            slow = self._leftovers(job, links, self._priority)
        slowest = max(self._gpu_cost, float((slow / self.gbit[links]).max()))
        seconds = self.compute_s[job] + self._ring_gbit[job] * slowest
        return min(max(round(PPM * float(self.best_s[job] / seconds)), 1), PPM)

    def speeds(self, jobs: Sequence[int]) -> list[int]:
        """Return the speeds of multi-node gangs on their nodes [ppm]."""
        if self._priority is not None or len(jobs) < _FEW:
            return [self.speed(job) for job in jobs]
        own = [self.links[job] for job in jobs]
        count = np.array([len(links) for links in own])
        links = np.concatenate(own)
        weight = np.repeat([self._weight(job) for job in jobs], count)
        slow = self._shares(weight, links) / self.gbit[links]
        slowest = np.maximum(np.maximum.reduceat(slow, np.cumsum(count) - count), self._gpu_cost)
        chosen = np.array(jobs)
        seconds = self.compute_s[chosen] + self._ring_gbit[chosen] * slowest
        speeds: list[int] = np.clip(np.rint(PPM * (self.best_s[chosen] / seconds)), 1, PPM).astype(np.int64).tolist()
        return speeds

    def speed_alone(self, job: int, nodes: Sequence[int]) -> int:
        """Return the speed of a gang on nodes if no other gang sends [ppm]."""
        return min(round(PPM * float(self.best_s[job] / self.alone_s[job, self.tier_of(nodes)])), PPM)

    def speeds_with(self, job: int, nodes: Sequence[int]) -> dict[int, int]:
        """Return the speeds of a gang on these nodes and of the gangs that would share its links [ppm]."""
        kept = self._changed.copy()
        self.enter(job, nodes)
        found = {other: self.speed(other) for other in sorted(self.neighbours(nodes) | {job})}
        self.leave(job)
        self._changed = kept
        return found

    def _weight(self, job: int) -> float:
        return 1.0 if self._always else float(self.duty[job, self.tier[job]])

    def _shares(self, weight: float | Floats, links: Ints) -> Floats:
        """Return how much other gangs slow a gang's traffic on each link. `weight` is the gang's own load."""
        others = np.maximum(self.load[links] - weight, 0.0)
        found: Floats = 1 + others * self._factor / self.lanes[links]
        return found

    def _leftovers(self, job: int, links: Ints, priority: Floats) -> Floats:
        """Return how much a gang's traffic is slowed if gangs of higher priority use each link first."""
        own = (-float(priority[job]), job)
        found = np.ones(len(links))
        for place, link in enumerate(links.tolist()):
            before = sum(
                float(self.duty[other, self.tier[other]])
                for other in sorted(self.on[link])
                if (-float(priority[other]), other) < own
            )
            found[place] = 1 / max(1 - before / float(self.lanes[link]), self._least)
        return found
