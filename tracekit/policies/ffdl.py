"""FfDL: gangs in order, packed or spread by biased sampling of placements."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.gangs import Gangs
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.network_parameters import GAP, LINKS, gang_parts
from tracekit.policies.parameters import scan
from tracekit.policies.places import Places, Spot, gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.links import Network
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Planner

__all__ = ["Ffdl"]

_STREAM = 36
"""Seed of the random numbers."""


class _Sampled(Gangs):
    """Gangs on the best of some placements drawn at random."""

    def __init__(
        self,
        jobs: Jobs,
        places: Places,
        network: Network | None,
        models: Models,
        *,
        pack: bool,
        samples: int,
        nodes: int,
        stop: bool,
        seed: int,
    ) -> None:
        super().__init__(jobs, places, network, models, stop=stop)
        self.pack, self.samples, self.most_nodes, self.seed = pack, samples, nodes, seed
        self.draws = self._stream()

    def _stream(self) -> np.random.Generator:
        return np.random.default_rng((self.seed % 2**64, _STREAM))

    def reset(self) -> None:
        """Reset the random numbers."""
        self.draws = self._stream()

    def order(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the order of submission, and of jobs submitted at once the largest gang first."""
        return waiting[np.lexsort((waiting, -self.gpus[waiting], self.jobs.arrival_ms[waiting]))]

    def choose(self, job: int) -> Spot | None:
        """Return the best placement that was drawn on nodes of the first GPU model with enough free GPUs."""
        pool = self.places.pools[int(self.places.job_pool[job])]
        gpus = int(self.gpus[job])
        for low, high, _ in pool.models:
            nodes = pool.nodes[low:high]
            free = self.places.free[nodes]
            if int(free.sum()) >= gpus:
                some = np.flatnonzero(free)
                return self._drawn(nodes[some], free[some], gpus)
        return None

    def _drawn(self, nodes: NDArray[np.int64], free: NDArray[np.int64], gpus: int) -> Spot:
        used = self.places.gpus[nodes] - free
        best = _best_first(free, gpus, pack=self.pack)
        if self.samples == 0:
            return _given(nodes, free, best, gpus, pack=self.pack)
        # As many of the best nodes as may be drawn, and those needed to have enough.
        enough = int(np.searchsorted(np.cumsum(free[best]), gpus)) + 1
        best = best[: max(self.most_nodes, enough)]
        bias = (used if self.pack else free)[best] / self.places.gpus[nodes[best]]
        # The order of exponential times over weights equals drawing one node after the other by weight.
        times = self.draws.standard_exponential((self.samples, len(best))) / (bias + 1 / (1 + len(best)))
        orders = best[_least(times, min(gpus, len(best)))]
        chosen = _best_order(free[orders], gpus, pack=self.pack)
        return _given(nodes, free, orders[chosen], gpus, pack=self.pack)


def _least(times: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Return the columns of the smallest numbers of each row, ascending (rows, count)."""
    if count == 1:
        first: NDArray[np.intp] = np.argmin(times, axis=1, keepdims=True)
        return first
    some = np.argpartition(times, count - 1, axis=1)[:, :count]
    order = np.take_along_axis(times, some, axis=1).argsort(axis=1)
    return np.take_along_axis(some, order, axis=1)


def _best_order(room: NDArray[np.int64], gpus: int, *, pack: bool) -> int:
    """Return the best row of nodes, given by their free GPUs in the order drawn: fewest nodes, or most room left."""
    if not pack:
        # One GPU of each; if gangs have several of all nodes, all orders are equal.
        return int((room.min(axis=1) if room.shape[1] == gpus else np.zeros(len(room))).argmax())
    used = np.cumsum(room, axis=1) - room < gpus
    return int(np.lexsort(((room * used).sum(axis=1), used.sum(axis=1)))[0])


def _best_first(free: NDArray[np.int64], gpus: int, *, pack: bool) -> NDArray[np.intp]:
    """Return nodes as a rule without chance takes them: the tightest that has room for all first, or the emptiest."""
    if not pack:
        return np.argsort(-free, kind="stable")
    # Nodes with room for all come first, the tightest at the head; then the others by most room.
    return np.lexsort((np.where(free >= gpus, free, -free), free < gpus))


def _given(
    nodes: NDArray[np.int64], free: NDArray[np.int64], order: NDArray[np.intp], gpus: int, *, pack: bool
) -> Spot:
    """Return the GPUs of nodes in an order: all of each node, or one of each, again and again."""
    if pack:
        return gathered(nodes, free, order, gpus)
    left, share = gpus, np.zeros(len(order), np.int64)
    room = free[order].copy()
    while left > 0:
        each = np.flatnonzero(room > 0)[:left]
        share[each] += 1
        room[each] -= 1
        left -= len(each)
    taken = np.flatnonzero(share)
    return Spot(nodes[order[taken]].tolist(), share[taken].tolist())


class Ffdl(Policy):
    """Gangs, first come, first served, packed or spread."""

    card: ClassVar[Card] = Card(
        name="ffdl",
        title="gangs in order, packed or spread by biased sampling (FfDL)",
        rule=(
            "Jobs start in the order of their submission, and of those submitted at once the largest gang first. "
            "Each gang starts whole on any nodes of one GPU model and runs to its end. The policy draws as many "
            "placements as samples says and takes the best. It draws nodes one after the other, with place=pack "
            "by the share of their GPUs in use, with place=spread by the share that is free. Packed, a gang takes "
            "all free GPUs of a node before the next node; fewer nodes are better, then less room left on them. "
            "Spread, it takes one GPU of each node in turn; more room left on the fullest node is better. Nodes "
            "are drawn from the best ones; nodes says how many. With samples=0 nothing is drawn: a packed gang "
            "takes the tightest node with enough room, otherwise the nodes with the most room; a spread gang "
            "takes the nodes with the most room. With scan=stop a gang that finds too few GPUs holds up all later "
            "ones. Speeds depend on the tiers and on other traffic on the same links. If racks are not known, all "
            "nodes are in one rack, and gangs wider than a tier go beyond it."
        ),
        parameters=(
            Parameter("place", "pack", "kind of placement", ("pack", "spread")),
            Parameter("samples", 100, "placements drawn for each gang; 0: none", maximum=10_000),
            Parameter("nodes", 64, "number of nodes to draw from", minimum=1, maximum=100_000),
            scan("stop"),
            LINKS,
            GAP,
        ),
        assumptions=("D1", "M4", "M36", "M37", "M38"),
        equal_to=(
            (
                "With samples=0 and one-GPU jobs that arrive one by one, gap=0: fifo with placement best-fit, or "
                "with place=spread worst-fit."
            ),
            "With one GPU model and one-GPU jobs: pack and spread give the same waits.",
            (
                "With one GPU model, links=off, no cost of spreading, gap=0, and jobs that arrive one by one: "
                "fifo,fit=count."
            ),
        ),
        sources=(
            (
                "Jayaram et al., FfDL (Middleware'19): gang scheduling, pack and spread; in the released platform "
                "pack is the default."
            ),
            (
                "Own choices, because the sampler is not released: weights and scores, 100 samples, the nodes "
                "drawn from; one GPU per learner; no quotas, so no job is evicted."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans in order."""
        p = self.parameters
        places, network = gang_parts(jobs, cluster, models, seed, links=p["links"])
        sampled = _Sampled(
            jobs,
            places,
            network,
            models,
            pack=p["place"] == "pack",
            samples=p["samples"],
            nodes=p["nodes"],
            stop=p["scan"] == "stop",
            seed=seed,
        )
        return sampled.planner(p["gap"])
