"""SJF-BCO, as far as its rule is known: smallest gang first, packed or on quiet links, whichever costs less."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.gangs import Gangs
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.network_parameters import GAP, gangs_and_links
from tracekit.policies.parameters import NOISE, believed
from tracekit.policies.places import Places, Spot, gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.links import Network
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Planner

__all__ = ["SjfBcoLike"]


class _Balanced(Gangs):
    """Gangs that are packed, or kept away from busy links."""

    def __init__(
        self,
        jobs: Jobs,
        places: Places,
        network: Network,
        models: Models,
        *,
        place: str,
        kappa: int,
        believed_ms: NDArray[np.int64] | None,
    ) -> None:
        super().__init__(jobs, places, network, models, believed_ms=believed_ms)
        self.links, self.place, self.kappa = network, place, kappa

    def order(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the smallest gangs first, equal sizes by submission."""
        return waiting[np.argsort(self.gpus[waiting], kind="stable")]

    def choose(self, job: int) -> Spot | None:
        """Return the packed or the quiet GPUs of the first GPU model that has enough, by the rule."""
        pool, gpus = self.places.pools[int(self.places.job_pool[job])], int(self.gpus[job])
        for low, high, _ in pool.models:
            nodes = pool.nodes[low:high]
            free = self.places.free[nodes]
            if int(free.sum()) >= gpus:
                return self._chosen(job, nodes, free, gpus)
        return None

    def _chosen(self, job: int, nodes: NDArray[np.int64], free: NDArray[np.int64], gpus: int) -> Spot:
        enough = np.where(free >= gpus, free, 2**62)
        tightest = int(enough.argmin())
        packs = self.place == "packed" or (self.place == "kappa" and gpus <= self.kappa)
        if free[tightest] >= gpus and (packs or self.place == "best"):
            # On one node a gang sends over no link, which is optimal.
            return Spot([int(nodes[tightest])], [gpus])
        idle = free == self.places.gpus[nodes]
        packed = gathered(nodes, free, np.lexsort((-free, idle)), gpus)
        if packs:
            return packed
        quiet = gathered(nodes, free, np.lexsort((-free, self.links.load[nodes])), gpus)
        if self.place != "best":
            return quiet
        return min((quiet, packed), key=lambda spot: self.cost_ms(job, spot))


class SjfBcoLike(Policy):
    """Smallest job first, balancing contention and overhead."""

    card: ClassVar[Card] = Card(
        name="sjf-bco-like",
        title="smallest gang first, packed or on quiet links, whichever costs less (after SJF-BCO)",
        rule=(
            "Jobs are considered by their GPUs, the smallest first, and among equals by submission. A job that "
            "finds too few free GPUs is skipped, and no job is stopped. Two placements are compared. Packed: the "
            "tightest node with room for all, otherwise nodes in use before idle nodes, most room first; this "
            "keeps idle nodes whole, but gangs meet on links. Quiet: the nodes whose links carry the fewest gangs "
            "first, then most room. place=best takes the placement with the smaller sum of the gang's own time "
            "and the delays of the gangs that it slows, all at the current speeds. kappa packs gangs of at most "
            "kappa GPUs and looks for quiet links for larger ones. Gangs wider than a node always send, and gangs "
            "wider than a rack send over the spine. If racks are not known, all nodes are in one rack."
        ),
        parameters=(
            Parameter("place", "best", "which placement is taken", ("best", "kappa", "packed", "quiet")),
            Parameter("kappa", 4, "place=kappa packs gangs up to this many GPUs"),
            NOISE,
            GAP,
        ),
        assumptions=("D1", "M11", "M36", "M37", "M38"),
        equal_to=(
            "With one-GPU jobs, one GPU model and gap=0: fifo,scan=skip.",
            "With one GPU model and links that slow no job: place makes no difference to waits.",
            "With place=kappa and kappa above every gang: place=packed; with kappa=0: place=quiet.",
        ),
        sources=(
            (
                "Yu et al., SJF-BCO (MobiHoc'22, arXiv 2207.07817), abstract: rings of GPUs, smallest job first, "
                "contention balanced against overhead."
            ),
            (
                "Own choices: the two placements; comparing them instead of solving an approximate integer "
                "program for the makespan; jobs arrive one by one."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans by size."""
        p = self.parameters
        places, network = gangs_and_links(jobs, cluster, models, seed)
        balanced = _Balanced(
            jobs,
            places,
            network,
            models,
            place=p["place"],
            kappa=p["kappa"],
            believed_ms=believed(jobs, models, p["noise"], seed),
        )
        return balanced.planner(p["gap"])
