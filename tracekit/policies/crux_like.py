"""Crux, as far as a replay of jobs can show it: gangs with much computation for their traffic go first on links."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.gangs import Gangs
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.network_parameters import GAP, gangs_and_links
from tracekit.policies.parameters import scan
from tracekit.replay.assumptions.network import ring_s, traffic_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.places import Spot
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Planner

__all__ = ["CruxLike", "intensity"]


def intensity(models: Models, jobs: Jobs, seed: int) -> NDArray[np.float64]:
    """Return the GPU time of an iteration over the time that its traffic takes on a node's link, alone (n,).

    Infinite without traffic.
    """
    message_mb, compute_s = traffic_of(models, jobs, seed)
    sends = ring_s(message_mb, jobs.devices, models.links.gbit.node_gbit)
    endless = np.full(len(jobs), np.inf)
    found: NDArray[np.float64] = np.divide(jobs.devices * compute_s, sends, out=endless, where=sends > 0)
    return found


class _Nearest(Gangs):
    """Gangs on the nearest free GPUs."""

    def choose(self, job: int) -> Spot | None:
        """Return the nearest GPUs."""
        return self.nearest(job)


class CruxLike(Policy):
    """Links by the intensity of gangs."""

    card: ClassVar[Card] = Card(
        name="crux-like",
        title="gangs with much computation for their traffic go first on links (after Crux)",
        rule=(
            "Jobs start in the order of their submission and run to their end. A gang takes the fewest nodes of a "
            "rack if it can, otherwise nodes of one rack, otherwise any nodes of one GPU model. With scan=skip "
            "later jobs may overtake a job that cannot start. With priority=intensity the gangs on a link send in "
            "the order of their intensity: GPUs times the computing time of an iteration, divided by the time of "
            "its traffic on a node's link. The first gang has the whole link. Each later gang has what is left "
            "after the part of an iteration in which each gang before it sends, but at least the part of M38. "
            "Over parallel links these parts spread evenly. With levels, intensities within a factor of two have "
            "the same priority, counted down from the highest job on the list, and within a priority the earlier "
            "job goes first. With priority=none gangs share links evenly. If racks are not known, all nodes are "
            "in one rack, and gangs wider than a tier send beyond it."
        ),
        parameters=(
            Parameter("priority", "intensity", "which gang goes first on a link", ("intensity", "none")),
            Parameter("levels", 8, "number of priorities that links support; 0: one per job", maximum=64),
            scan("skip"),
            GAP,
        ),
        assumptions=("D1", "M36", "M37", "M38"),
        equal_to=(
            "With priority=none and gap=0: delay-scheduling,rack=0,any=0, with the same scan.",
            "If no two gangs share a link: priority makes no difference.",
            "With one-GPU jobs and gap=0: fifo,scan=skip.",
        ),
        sources=(
            "Cao et al., Crux (SIGCOMM'24), abstract: priority on links by GPU intensity.",
            (
                "Own choices: intensity from the assumed traffic and a single link speed, so it does not depend "
                "on the placement; levels of a factor of two; what a lower priority gets; no choice of paths and "
                "no time shift of iterations, which a replay of jobs cannot show."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans in order of submission."""
        p = self.parameters
        priority = None
        if p["priority"] == "intensity":
            priority = intensity(models, jobs, seed)
            if p["levels"]:
                priority = _levels(priority, p["levels"])
        places, network = gangs_and_links(jobs, cluster, models, seed, priority)
        return _Nearest(jobs, places, network, models, stop=p["scan"] == "stop").planner(p["gap"])


def _levels(values: NDArray[np.float64], levels: int) -> NDArray[np.float64]:
    """Return priorities 0 to levels - 1, the highest for the largest finite value and for infinite ones."""
    finite = values[np.isfinite(values) & (values > 0)]
    if not len(finite):
        return np.full(len(values), levels - 1.0)
    below = np.floor(np.log2(finite.max() / np.clip(values, finite.min(), finite.max())))
    found: NDArray[np.float64] = np.maximum(levels - 1 - below, 0.0)
    return found
