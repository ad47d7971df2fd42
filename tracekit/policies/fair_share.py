"""Weighted max-min sharing: of GPUs, and of the resource that a tenant has most of."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, scan
from tracekit.policies.quotas import OF, WEIGHT, tenants, weights
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered, Tenants

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Drf", "FairShare"]


class FairShare(Policy):
    """The tenant with the least has the next turn."""

    card: ClassVar[Card] = Card(
        name="fair-share",
        title="the tenant (VC or user) with the fewest GPUs for its weight goes next",
        rule=(
            "Whenever a job can start, the turn goes to the tenant with the fewest GPUs for its weight, and among "
            "equals to the tenant with the earlier job. A tenant's jobs start in the order of their submission. "
            "With scan=stop the first job that cannot start holds up the tenant's other jobs; with scan=skip they "
            "may overtake it. Other tenants go on in either case. No job is evicted and no GPU is kept free, so "
            "shares even out as jobs end. With half_life past use counts as well: its weight halves after this "
            "time, in sixteen steps. Jobs without a known tenant form one tenant together."
        ),
        parameters=(
            OF,
            WEIGHT,
            scan("stop"),
            FIT,
            Parameter("half_life", 0.0, "time after which past use counts half; 0 counts only current use [s]"),
        ),
        assumptions=("D1", "D9"),
        equal_to=(
            "With one tenant: fifo with the same scan.",
            "With one-GPU jobs of tenants who always wait: GPUs are allocated in proportion to the weights.",
        ),
        sources=(
            "Max-min fairness, as in the schedulers of Hadoop; the decay of past use, as in HPC schedulers.",
            "Ghodsi et al., DRF (NSDI'11); this is its case of one resource.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Tenants:
        """Return turns by allocated GPUs."""
        p = self.parameters
        table, times, weight = weights(jobs, cluster, models, p["of"], p["weight"])
        return Tenants(
            Ordered(by_arrival, scan=p["scan"], fit=p["fit"], drift="none", by_tenant=True, by_arrival=True),
            tenants(jobs, p["of"]),
            table,
            times,
            weight,
            half_life_ms=round(p["half_life"] * 1000),
        )


class Drf(Policy):
    """Dominant resource fairness."""

    card: ClassVar[Card] = Card(
        name="drf",
        title="the tenant with the smallest share of GPUs, CPUs or memory goes next (DRF)",
        rule=(
            "The turn goes to the tenant with the smallest dominant share: the largest of its shares of all GPUs, "
            "CPUs and memory, divided by its weight. Among equals the tenant with the earlier job goes first. A "
            "tenant's jobs start in the order of their submission. With scan=stop no other job starts while the "
            "tenant's first job cannot; with scan=skip the next tenant gets a turn. CPUs and memory count if jobs "
            "and nodes have them, as totals of the domain and not node by node; the total does not count if a "
            "node of the domain lacks it. No job is evicted."
        ),
        parameters=(OF, WEIGHT, scan("stop"), FIT),
        assumptions=("D1", "D9"),
        equal_to=(
            "With one tenant: fifo,scan=stop.",
            "With GPUs only and scan=skip: fair-share,scan=stop.",
            "If all jobs have the same demand: all tenants have the same number of GPUs.",
        ),
        sources=("Ghodsi et al., Dominant Resource Fairness (NSDI'11).",),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Tenants:
        """Return turns by dominant share."""
        p = self.parameters
        table, times, weight = weights(jobs, cluster, models, p["of"], p["weight"])
        return Tenants(
            Ordered(by_arrival, scan="stop", fit=p["fit"], drift="none", by_tenant=True, by_arrival=True),
            tenants(jobs, p["of"]),
            table,
            times,
            weight,
            pick="dominant",
            across=p["scan"],
            resources=True,
        )
