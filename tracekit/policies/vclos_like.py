"""vClos, as far as its rule is known: links are allocated with the GPUs, and no gang meets another."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.gangs import Gangs
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.network_parameters import GAP, gangs_and_links
from tracekit.policies.parameters import scan
from tracekit.policies.places import ANYWHERE, FEWEST, RACK, Places, Spot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.links import Network
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Planner

__all__ = ["VclosLike"]


class _Isolated(Gangs):
    """Gangs with links of their own."""

    def __init__(self, jobs: Jobs, places: Places, network: Network, models: Models, *, stop: bool) -> None:
        super().__init__(jobs, places, network, models, stop=stop)
        self.links = network
        self._none: set[int] = set()

    def order(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the order of submission; jobs that found no links in the last plan are tried again."""
        self._none.clear()
        return waiting

    def choose(self, job: int) -> Spot | None:
        """Return the nearest GPUs whose links are free."""
        kind = int(self.places.kind[job])
        if kind in self._none:
            return None
        spot = self.places.find(job, FEWEST)
        if spot is None or len(spot.nodes) > 1:
            spot = self._own(job)
        if spot is None:
            self._none.add(kind)
        return spot

    def _own(self, job: int) -> Spot | None:
        """Return the nearest GPUs on several nodes whose links are free; those of a rack, if racks are left."""
        used = np.array([len(self.links.on.get(link, ())) for link in range(len(self.links.lanes))])
        has = used < self.links.lanes
        nodes, racks = has[: self.links.nodes], has[self.links.nodes :]
        free = np.where(nodes, self.places.free, 0)
        for tier in (FEWEST, RACK):
            spot = self.places.found(job, tier, free)
            if spot is not None:
                return spot
        return self.places.found(job, ANYWHERE, np.where(racks[self.links.rack], free, 0))


class _Hashed(Gangs):
    """Gangs on the nearest GPUs, whatever their links carry."""

    def choose(self, job: int) -> Spot | None:
        """Return the nearest GPUs."""
        return self.nearest(job)


class VclosLike(Policy):
    """GPUs and links together."""

    card: ClassVar[Card] = Card(
        name="vclos-like",
        title="links are allocated with GPUs, and no gang slows another (after vClos)",
        rule=(
            "Jobs start in the order of their submission and run to their end. A gang takes the fewest nodes of a "
            "rack if it can, otherwise nodes of one rack, otherwise any nodes of one GPU model. With isolate=on a "
            "gang on several nodes has their links to the rack to itself, and a gang over several racks also has "
            "one link of each rack to the spine. If GPUs are free but such links are not, it waits, and with "
            "scan=skip later jobs may overtake it. So every gang runs as if it were alone. With isolate=off no "
            "links are allocated: gangs share links, and each gang is equally likely to use any of a rack's "
            "parallel links. If racks are not known, all nodes are in one rack, and then only the links of nodes "
            "count."
        ),
        parameters=(
            Parameter("isolate", True, "gangs have links to themselves, or share them"),
            scan("skip"),
            GAP,
        ),
        assumptions=("D1", "M36", "M37", "M38"),
        equal_to=(
            "With isolate=off and gap=0: delay-scheduling,rack=0,any=0, with the same scan.",
            "With one-GPU jobs and gap=0: fifo,scan=skip.",
            "If every gang fits on one node, and nodes have enough GPUs for all: isolate makes no difference.",
        ),
        sources=(
            (
                "Han et al., Isolated Scheduling for Distributed Training Tasks in GPU Clusters (arXiv 2308.05692), "
                "abstract: a virtual Clos of leaf and spine links for each job, against ECMP."
            ),
            (
                "Own choices: one link from a gang to the spine for each of its racks, each node link for one "
                "gang, placement as in delay scheduling without patience, no optical switches; sharing by ECMP is "
                "the mean over the links that gangs may be hashed to."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans in order of submission."""
        p = self.parameters
        places, network = gangs_and_links(jobs, cluster, models, seed)
        kind = _Isolated if p["isolate"] else _Hashed
        return kind(jobs, places, network, models, stop=p["scan"] == "stop").planner(p["gap"])
