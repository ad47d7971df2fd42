"""Tiers and links: how fast gangs run at their place, given the traffic of others on the same links (M36 to M38)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay.assumptions.network import ring_s, traffic_of
from tracekit.replay.assumptions.speeds import PPM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.policies.places import Places
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["NODE", "RACKS", "SPINE", "Network"]

NODE, RACKS, SPINE = range(3)
"""Tier of a gang: on one node, on nodes of one rack, over several racks."""

_FEW = 4
"""Number of gangs below which one after the other is faster than all at once."""


class Network:
    """Links of a cluster, the gangs that send over them, and their speeds.

    Every node has a link to its rack, and every rack some parallel links to the spine. A gang on several nodes uses the
    links of its nodes, and over several racks also those of the racks. If racks are not known, all nodes are in one
    rack. An iteration lasts as long as its computing plus its ring, and the ring as long as on its slowest link. A
    job's recorded run time is that of its gang alone, as close together as this cluster allows.

    Parameters
    ----------
    jobs, cluster, models, seed
        As given to a policy.
    places : Places
        Of these jobs and this cluster.
    priority : array, optional
        Whose traffic goes first, larger first, the earlier job between equals (n,); None shares links evenly.
    """

    def __init__(
        self,
        jobs: Jobs,
        cluster: Cluster,
        models: Models,
        seed: int,
        places: Places,
        *,
        priority: NDArray[np.float64] | None = None,
    ) -> None:
        speeds, contention = models.links.gbit, models.contention
        self.rack = cluster.rack.astype(np.int64)
        """Rack of each node (N,)."""
        self.nodes = cluster.nodes
        parallel = cluster_lanes(models, self.rack, len(cluster.racks))
        self.lanes = np.concatenate([np.ones(self.nodes), parallel])
        """Links in parallel of each node's link and each rack's (L,)."""
        self.gbit = np.concatenate([np.full(self.nodes, speeds.node_gbit), np.full(len(parallel), speeds.spine_gbit)])
        """Bandwidth of each link for one gang alone (L,)."""
        self.message_mb, self.compute_s = traffic_of(models, jobs, seed)
        self.gpus = jobs.devices.astype(np.int64)
        slowest = np.minimum.accumulate([speeds.gpu_gbit, speeds.node_gbit, speeds.spine_gbit])
        sending = np.stack([ring_s(self.message_mb, self.gpus, gbit) for gbit in slowest.tolist()], axis=1)
        self.alone_s = self.compute_s[:, None] + sending
        """Time of an iteration of a gang alone by tier (n, 3) [s]."""
        self.duty = sending / self.alone_s
        """Part of it in which the gang sends (n, 3)."""
        self.best = self._best_tier(places)
        """Lowest tier at which each job fits with all nodes there and free (n,)."""
        self.best_s = self.alone_s[np.arange(len(jobs)), self.best]
        """Time of an iteration at the best that this cluster allows (n,) [s]."""
        self._ring_gbit = ring_s(self.message_mb, self.gpus, 1.0)
        self._gpu_cost = 1 / speeds.gpu_gbit
        self._always, self._factor, self._least = contention.sharing == "always", 1 + contention.extra, contention.least
        self._priority = priority
        self.clear()

    def clear(self) -> None:
        """Forget all gangs."""
        self.load = np.zeros(len(self.gbit))
        """Gangs on each link, each counted as M38 says (L,)."""
        self.links: dict[int, NDArray[np.int64]] = {}
        """Links of each gang on several nodes."""
        self.tier: dict[int, int] = {}
        """Tier of each of these."""
        self.on: dict[int, set[int]] = {}
        """These gangs by link."""
        self._changed: set[int] = set()

    def _best_tier(self, places: Places) -> NDArray[np.int64]:
        """Return the lowest tier at which each job fits with all nodes there and free (n,)."""
        by_kind = []
        for gpus, pool in zip(places.kind_gpus, places.kind_pool, strict=True):
            nodes = places.pools[pool].nodes
            inside = np.bincount(self.rack[nodes], places.gpus[nodes]).max(initial=0)
            by_kind.append(NODE if gpus <= places.pools[pool].largest else RACKS if gpus <= inside else SPINE)
        return np.array(by_kind, np.int64)[places.kind]

    def links_of(self, nodes: Sequence[int]) -> NDArray[np.int64]:
        """Return the links that a gang on these nodes sends over."""
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
        """Let a gang send from now on."""
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
        """Return the gangs with which one on these nodes would share a link."""
        found: set[int] = set()
        for link in self.links_of(nodes).tolist():
            found |= self.on.get(link, set())
        return found

    def speed(self, job: int) -> int:
        """Return the speed of a gang at its place [ppm of its speed alone, as close together as possible]."""
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
        """Return the speeds of gangs on several nodes, at their places [ppm]."""
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
        """Return the speed of a gang on nodes if no other gang sent [ppm]."""
        return min(round(PPM * float(self.best_s[job] / self.alone_s[job, self.tier_of(nodes)])), PPM)

    def speeds_with(self, job: int, nodes: Sequence[int]) -> dict[int, int]:
        """Return the speeds of a gang, if it were on these nodes, and of the gangs on its links [ppm]."""
        kept = self._changed.copy()
        self.enter(job, nodes)
        found = {other: self.speed(other) for other in sorted(self.neighbours(nodes) | {job})}
        self.leave(job)
        self._changed = kept
        return found

    def _weight(self, job: int) -> float:
        return 1.0 if self._always else float(self.duty[job, self.tier[job]])

    def _shares(self, weight: float | NDArray[np.float64], links: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how many times as long the traffic of gangs takes on each of their links, by their own weight."""
        others = np.maximum(self.load[links] - weight, 0.0)
        found: NDArray[np.float64] = 1 + others * self._factor / self.lanes[links]
        return found

    def _leftovers(self, job: int, links: NDArray[np.int64], priority: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the same if gangs of higher priority take their part of the link first."""
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


def cluster_lanes(models: Models, rack: NDArray[np.int64], racks: int) -> NDArray[np.float64]:
    """Return how many links to the spine each rack has, by the bandwidth of its nodes; at least one (R,)."""
    speeds = models.links.gbit
    nodes = np.bincount(rack, minlength=racks)
    found: NDArray[np.float64] = np.maximum(
        np.rint(nodes * speeds.node_gbit / speeds.spine_gbit / models.links.oversubscription), 1.0
    )
    return found
