"""Running jobs that a policy may evict: their spots, and the harm of an eviction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.policies.literature.optimal import chosen, sparse
from tracekit.policies.network_tiers import Spot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.array_types import Bools, Ints
    from tracekit.policies.network_tiers import Pool


def cheapest_cover(gpus: Sequence[int], harm: Sequence[int], need: int) -> tuple[int, list[int]] | None:
    """Return the least harm of freeing `need` GPUs of a node, and the jobs to evict, or None if too few can be freed.

    This is a knapsack over the few GPUs of one node. An integer program would take milliseconds per node.

    Parameters
    ----------
    gpus : list of int
        GPUs of each job on the node, at least 1.
    harm : list of int
        Cost of each eviction, at least 1.
    need : int
        GPUs to free, at least 1.
    """
    best: list[tuple[int, list[int]] | None] = [(0, []), *[None] * need]
    for job, (size, cost) in enumerate(zip(gpus, harm, strict=True)):
        for freed in range(need, 0, -1):
            before = best[max(freed - size, 0)]
            if before is not None:
                now = best[freed]
                total = before[0] + cost
                if now is None or total < now[0]:
                    best[freed] = total, [*before[1], job]
    return best[need]


def cheapest_nodes(
    free: Ints, part: Ints, harm: Ints, largest: int, gpus: int, limit: int = 0
) -> tuple[list[int], list[int], list[int]] | None:
    """Return the nodes for a gang with the least harm, by an integer program: whole nodes, and one for the rest.

    Parameters
    ----------
    free : array (m,)
        Free GPUs of each node.
    part : array (m, k)
        GPUs of each evictable job on each node.
    harm : array (k,)
        Cost of each eviction, at least 1.
    largest : int
        GPUs of a whole node.
    gpus : int
        Size of the gang.
    limit : int
        Maximum number of search nodes of the program, after which its best solution is used, or 0 for no limit.

    Returns
    -------
    The nodes, their GPUs for the gang, and the jobs to evict, or None if no solution is found.
    """
    whole, rest = divmod(gpus, largest)
    room = free + part.sum(axis=1)
    if int((room >= largest).sum()) < whole or int((room >= (rest or largest)).sum()) < whole + (rest > 0):
        return None
    count, jobs = part.shape
    on_node, job = np.nonzero(part)
    # Variables: whole nodes, the node for the rest, and evictions. Every job must leave a whole node.
    size = 2 * count + jobs
    links = np.arange(len(job))
    ones, nodes = np.ones(len(job)), np.arange(count)
    leave = sparse([(links, on_node, ones), (links, 2 * count + job, -ones)], len(job), size)
    rests = nodes, count + nodes, np.full(count, -float(rest))
    enough = sparse([rests, (on_node, 2 * count + job, part[on_node, job])], count, size)
    once = sparse([(np.tile(nodes, 2), np.arange(2 * count), np.ones(2 * count))], count, size)
    sums = np.zeros((2, size))
    sums[0, :count], sums[1, count : 2 * count] = 1, 1
    found = chosen(
        np.concatenate([np.zeros(2 * count), harm / max(int(harm.max(initial=1)), 1)]),
        [
            (leave, -np.inf, 0),
            (enough, -free.astype(np.float64), np.inf),
            (once, -np.inf, 1),
            (sums, [whole, rest > 0], [whole, rest > 0]),
        ],
        most=np.concatenate([room >= largest, (room >= rest) & (rest > 0), np.ones(jobs)]).astype(np.float64),
        mip_rel_gap=0.0,
        **({"node_limit": limit} if limit else {}),
    )
    if found is None:
        return None
    taken = [(node, largest) for node in np.flatnonzero(found[:count]).tolist()]
    taken += [(node, rest) for node in np.flatnonzero(found[count : 2 * count]).tolist()]
    taken.sort()
    return [node for node, _ in taken], [size for _, size in taken], np.flatnonzero(found[2 * count :]).tolist()


_FAR = 1 << 60
"""A time longer than any other [ms]."""


class Evictable:
    """The running spot jobs. n jobs, N nodes.

    Parameters
    ----------
    p : dict
        The parameters of gfs-like: guarantee, checkpoint [s], harm [GPU*s] and limit [nodes of a search].
    gpus : array (n,)
        GPUs of each job.
    nodes : int
        Number of nodes (N).
    restart_ms : array
        Cost of a restart by gang size [ms].
    """

    def __init__(self, p: dict[str, Any], gpus: Ints, nodes: int, restart_ms: Ints) -> None:
        self.gpus, self.each, self.limit = gpus, round(p["harm"] * 1000), p["limit"]
        self.guarantee_ms = int(min(p["guarantee"] * 1000, _FAR))
        self.checkpoint_ms = int(min(p["checkpoint"] * 1000, _FAR))
        self.on = np.zeros(nodes, np.int64)
        """GPUs of spot jobs on each node (N,)."""
        self.where: dict[int, Spot] = {}
        self._node = np.full(len(gpus), -1)
        """The node of each job that runs on a single node (n,)."""
        self._gangs: set[int] = set()
        self._start_ms = np.zeros(len(gpus), np.int64)
        self._cost_ms = restart_ms[gpus]
        self._idle_ms = np.zeros(len(gpus), np.int64)
        """Restart cost that each job will pay when it next starts [ms] (n,)."""

    def put(self, job: int, spot: Spot, now_ms: int) -> None:
        """Add a job that starts."""
        self.where[job] = spot
        self.on[spot.nodes] += spot.gpus
        if len(spot.nodes) == 1:
            self._node[job] = spot.nodes[0]
        else:
            self._gangs.add(job)
            self._node[job] = -1
        self._start_ms[job] = now_ms

    def evict(self, job: int, now_ms: int) -> tuple[Spot, int]:
        """Remove a job that will start again. Return its spot, and the run time that it loses [ms]."""
        lost = int(self.lost_ms(np.array([job]), now_ms)[0])
        served = now_ms - self._start_ms[job]
        self._idle_ms[job] = max(self._idle_ms[job] - served, 0) + self._cost_ms[job]
        return self.take(job), lost

    def take(self, job: int) -> Spot:
        """Remove a job and return its spot."""
        spot = self.where.pop(job)
        self.on[spot.nodes] -= spot.gpus
        self._gangs.discard(job)
        return spot

    def lost_ms(self, jobs: Ints, now_ms: int) -> Ints:
        """Return the run time of jobs since their last checkpoint, including repeated work [ms]."""
        if self.checkpoint_ms == 0:
            return np.zeros(len(jobs), np.int64)
        done = now_ms - self._start_ms[jobs] - self._idle_ms[jobs]
        return np.asarray(np.maximum(done, 0) % self.checkpoint_ms)

    def harm(self, jobs: Ints, now_ms: int) -> Ints:
        """Return the harm of evicting each of these jobs, at least 1 [GPU*ms]."""
        harm = self.gpus[jobs] * self.lost_ms(jobs, now_ms) + self.each
        past = now_ms - self._start_ms[jobs] >= self.guarantee_ms
        # Add 1 so that, among equals, the fewest jobs are evicted.
        return np.asarray(np.where(past, harm // 2, harm) + 1)

    def cheapest(self, pool: Pool, gpus: int, free: Ints, there: Bools, now_ms: int) -> tuple[Spot, list[int]] | None:
        """Return the spot that does the least harm, and the jobs to evict, or None if the gang fits nowhere.

        Parameters
        ----------
        pool : Pool
            Nodes that the gang may use, and on which it does not fit now.
        gpus : int
            Size of the gang.
        free : array (N,)
            Free GPUs of each node.
        there : array of bool (N,)
            Whether each node is in service.
        """
        room = np.where(there, free + self.on, 0)
        fits = np.zeros(len(room), np.bool_)
        fits[pool.nodes] = room[pool.nodes] >= gpus
        if fits.any():
            return self._one_node(fits, gpus, free, now_ms)
        best: tuple[int, Spot, list[int]] | None = None
        for low, high, largest in pool.racks:
            nodes = pool.nodes[low:high]
            if gpus > largest and int(room[nodes].sum()) >= gpus:
                found = self._several(nodes[there[nodes]], largest, gpus, free, now_ms)
                if found is not None and (best is None or found[0] < best[0]):
                    best = found
        return None if best is None else best[1:]

    def _rows(self, fits: Bools) -> tuple[Ints, Ints, Ints]:
        """Return the jobs that run on these nodes, with their nodes and GPUs."""
        jobs = np.fromiter(self.where, np.int64, len(self.where))
        jobs = jobs[self._node[jobs] >= 0]
        more = [(job, *held) for job in sorted(self._gangs) for held in zip(*self.where[job], strict=True)]
        gangs = np.array(more, np.int64).reshape(-1, 3)
        job = np.concatenate([jobs, gangs[:, 0]])
        node = np.concatenate([self._node[jobs], gangs[:, 1]])
        held = np.concatenate([self.gpus[jobs], gangs[:, 2]])
        mine = fits[node]
        return job[mine], node[mine], held[mine]

    def _one_node(self, fits: Bools, gpus: int, free: Ints, now_ms: int) -> tuple[Spot, list[int]]:
        """Return the node where evictions for a gang do the least harm, and the jobs to evict."""
        job, node, held = self._rows(fits)
        harm = self.harm(job, now_ms)
        # Lower bound per node: the harm if all GPUs were freed at the rate of its cheapest job.
        least = np.full(len(fits), np.inf)
        np.minimum.at(least, node, harm / held)
        least *= np.where(fits, gpus - free, 1)
        candidates = np.flatnonzero(np.isfinite(least) & fits)
        best, found, victims = _FAR, -1, list[int]()
        for at in candidates[np.argsort(least[candidates], kind="stable")].tolist():
            if least[at] > best * (1 + 1e-9):
                break
            own = np.flatnonzero(node == at)
            cover = cheapest_cover(held[own].tolist(), harm[own].tolist(), gpus - int(free[at]))
            if cover is not None and cover[0] < best:
                best, found, victims = cover[0], at, job[own[cover[1]]].tolist()
        return Spot([found], [gpus]), victims

    def _several(
        self, nodes: Ints, largest: int, gpus: int, free: Ints, now_ms: int
    ) -> tuple[int, Spot, list[int]] | None:
        """Return the harm, the spot and the victims for a gang that needs several of these nodes."""
        place = np.full(len(free), -1)
        place[nodes] = np.arange(len(nodes))
        job, node, held = self._rows(place >= 0)
        known, column = np.unique(job, return_inverse=True)
        part = np.zeros((len(nodes), len(known)), np.int64)
        part[place[node], column] = held
        harm = self.harm(known, now_ms)
        found = cheapest_nodes(free[nodes], part, harm, largest, gpus, self.limit)
        if found is None:
            return None
        at, sizes, leave = found
        return int(harm[leave].sum()), Spot(nodes[at].tolist(), sizes), known[leave].tolist()
