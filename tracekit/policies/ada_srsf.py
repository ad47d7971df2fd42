"""Ada-SRSF: a gang shares a link with another only if both gain; GPUs with the least work first."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.gangs import Gangs
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.network_parameters import GAP, LOOK, gangs_and_links
from tracekit.policies.parameters import NOISE, believed
from tracekit.policies.places import Places, Spot, gathered
from tracekit.replay.assumptions.speeds import PPM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.links import Network
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Planner

__all__ = ["AdaSrsf", "sum_of_ends"]


def sum_of_ends(first: float, second: float, slower_first: float, slower_second: float) -> float:
    """Return the sum of the ends of two jobs that start together and slow each other down until one ends.

    Parameters
    ----------
    first, second : float
        Time that each takes alone.
    slower_first, slower_second : float
        How many times as long it takes next to the other, at least 1.
    """
    early, late = first * slower_first, second * slower_second
    if early <= late:
        return early + early + second - early / slower_second
    return late + late + first - late / slower_first


class _Links(Gangs):
    """Smallest service first, with a test of which gangs may share a link."""

    def __init__(
        self,
        jobs: Jobs,
        places: Places,
        network: Network,
        models: Models,
        parameters: dict[str, object],
        believed_ms: NDArray[np.int64] | None,
    ) -> None:
        look, kappa = parameters["look"], parameters["kappa"]
        super().__init__(jobs, places, network, models, believed_ms=believed_ms, look=int(str(look)))
        self.links = network
        self.accept, self.place, self.kappa = parameters["accept"], parameters["place"], int(str(kappa))
        self.service = (self.jobs.work_ms + self.error_ms) * self.gpus
        self.reset()

    def reset(self) -> None:
        """Begin with idle nodes."""
        self._ends, self._held = np.zeros(len(self.places.gpus)), np.zeros(len(self.places.gpus))
        self._end: dict[int, float] = {}

    def order(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return waiting jobs by run time times GPUs."""
        return waiting[np.argsort(self.service[waiting], kind="stable")]

    def choose(self, job: int) -> Spot | None:
        """Return the GPUs with least work, if the gang may send over their links."""
        pool, gpus = self.places.pools[int(self.places.job_pool[job])], int(self.gpus[job])
        for low, high, _ in pool.models:
            nodes = pool.nodes[low:high]
            free = self.places.free[nodes]
            if int(free.sum()) < gpus:
                continue
            spot = gathered(nodes, free, self._node_order(nodes, free, gpus), gpus)
            if len(spot.nodes) == 1 or self._may_send(job, spot):
                return spot
        return None

    def _node_order(self, nodes: NDArray[np.int64], free: NDArray[np.int64], gpus: int) -> NDArray[np.intp]:
        """Return the order in which a gang takes nodes."""
        if self.place == "first-fit":
            return np.arange(len(nodes))
        work = self._ends[nodes] - self.now_ms * self._held[nodes]
        if gpus <= self.kappa:
            return np.argsort(work, kind="stable")
        # One node that has room for all, else as few nodes as can be, with least work between equals.
        return np.lexsort((work, np.where(free >= gpus, -(2**40), -free)))

    def _may_send(self, job: int, spot: Spot) -> bool:
        """Return whether a gang may share the links of a spot with the gangs that send there."""
        others = self.links.neighbours(spot.nodes)
        if self.accept == "any" or not others:
            return True
        if self.accept == "never":
            return False
        on = [len(self.links.on.get(link, ())) for link in self.links.links_of(spot.nodes).tolist()]
        crowded = np.array(on) > self.links.lanes[self.links.links_of(spot.nodes)]
        return not crowded.any() and (self.accept == "two" or all(self._pays(job, spot, other) for other in others))

    def _pays(self, job: int, spot: Spot, other: int) -> bool:
        """Return whether two gangs end earlier in sum if this one starts now than when the other has ended."""
        together = self.links.speeds_with(job, spot.nodes)
        now, alone = self.links.speed(other), self.links.speed_alone(job, spot.nodes)
        first, second = self.left_ms(other) * PPM / now, self.left_ms(job) * PPM / alone
        joined = sum_of_ends(first, second, max(now / together[other], 1.0), max(alone / together[job], 1.0))
        return joined < first + first + second

    def started(self, job: int, spot: Spot) -> None:
        """Note how long a job keeps its nodes busy, at the speed with which it starts."""
        self._end[job] = end = self.now_ms + self.left_ms(job) * PPM / self.links.speed(job)
        self._ends[spot.nodes] += np.array(spot.gpus) * end
        self._held[spot.nodes] += spot.gpus

    def ended(self, job: int, spot: Spot) -> None:
        """Forget it."""
        self._ends[spot.nodes] -= np.array(spot.gpus) * self._end.pop(job)
        self._held[spot.nodes] -= spot.gpus


class AdaSrsf(Policy):
    """Smallest remaining service first, and a test of contention."""

    card: ClassVar[Card] = Card(
        name="ada-srsf",
        title="smallest GPU time first; a gang shares a link with another only if that helps (Ada-SRSF)",
        rule=(
            "Jobs are considered by run time times GPUs, the smallest first. A job that cannot start is skipped, "
            "and no job is stopped. A gang of at most kappa GPUs takes the nodes with the least work. A larger "
            "gang takes a node that has room for all of it, otherwise the nodes with the most room, and among "
            "equals those with the least work. The work of a node is the work of its jobs until the ends expected "
            "when they started. A gang on several nodes starts only if it may send over all its links: with "
            "accept=never, only if no other gang sends there; with accept=two, next to one other gang for each "
            "parallel link; with accept=any, always. accept=test applies the rule of two and also tests each gang "
            "that would be slowed: the two gangs must finish earlier in sum than if the new one waited for the "
            "other to end. Gangs wider than a node always send, and gangs wider than a rack send over the spine. "
            "If racks are not known, all nodes are in one rack."
        ),
        parameters=(
            Parameter("accept", "test", "when gangs may send over the same link", ("test", "never", "two", "any")),
            Parameter(
                "place", "lwf", "take the nodes with the least work first, or the first nodes", ("lwf", "first-fit")
            ),
            Parameter("kappa", 1, "gangs up to this many GPUs are not kept together"),
            NOISE,
            LOOK,
            GAP,
        ),
        assumptions=("D1", "M11", "M36", "M37", "M38"),
        equal_to=(
            "With one-GPU jobs, one GPU model and gap=0: ssf,scan=skip.",
            "With accept=any, one GPU model, links that slow no job and gap=0: ssf,scan=skip,fit=count.",
            "If every gang fits on one node and must run on one: accept makes no difference.",
        ),
        sources=(
            (
                "Wang et al., Ada-SRSF (arXiv 2002.10105): the order, least work first with kappa, and the test "
                "for two messages on a link; never and two are the paper's SRSF(1) and SRSF(2)."
            ),
            (
                "Own choices: the test uses the remaining work of whole jobs, not messages, because a replay sees "
                "no iterations; for gangs that only send, it equals the paper's threshold of 1 / (2 * (1 + eta / "
                "b)). A GPU runs one job; a gang that may not send waits without GPUs."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans by service."""
        p = self.parameters
        places, network = gangs_and_links(jobs, cluster, models, seed)
        return _Links(jobs, places, network, models, p, believed(jobs, models, p["noise"], seed)).planner(p["gap"])
