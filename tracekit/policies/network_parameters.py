"""Shared parts of the policies of gangs, tiers and links: two parameters, and the parts of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.policies.interface import Parameter
from tracekit.policies.links import Network
from tracekit.policies.places import Places

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["GAP", "LINKS", "LOOK", "gang_parts", "gangs_and_links"]

GAP = Parameter("gap", 60.0, "least time between two plans triggered by events [s]")

LOOK = Parameter("look", 200, "a plan stops after this many refused jobs", minimum=1)

LINKS = Parameter("links", True, "speeds from tiers and traffic on links (M36 to M38), or from M4 alone")


def gang_parts(
    jobs: Jobs, cluster: Cluster, models: Models, seed: int, *, links: bool
) -> tuple[Places, Network | None]:
    """Return the places of a plan and, if wanted, its network."""
    places = Places(jobs, cluster)
    return places, Network(jobs, cluster, models, seed, places) if links else None


def gangs_and_links(
    jobs: Jobs, cluster: Cluster, models: Models, seed: int, priority: NDArray[np.float64] | None = None
) -> tuple[Places, Network]:
    """Return the places of a plan and its network, for a policy that needs both."""
    places = Places(jobs, cluster)
    return places, Network(jobs, cluster, models, seed, places, priority=priority)
