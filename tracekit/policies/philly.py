"""The production scheduler of Philly."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, overheads
from tracekit.policies.quotas import quotas, tenants
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered, Tenants

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Philly"]


class Philly(Policy):
    """Quotas that may be exceeded, locality that is relaxed, and reclaim."""

    card: ClassVar[Card] = Card(
        name="philly",
        title="VCs may use idle GPUs beyond their quotas and must give them back (Philly)",
        rule=(
            "The turn goes to the VC with the fewest GPUs for its quota. Inside a VC jobs start in the order of "
            "their submission, and later jobs may overtake one that cannot start. A VC may exceed its quota while "
            "GPUs are idle. When the share `theta` of the GPUs is in use, a job that stays within its VC's quota "
            "evicts jobs of VCs above theirs, those started last first; no VC falls below its quota. For "
            "`attempt` seconds a gang tries to start on the fewest nodes of one rack, then it pauses for "
            "`backoff` seconds. After `retries` failed attempts it takes any nodes of one rack, and after the "
            "same number again any nodes of one GPU model, for which it waits without pauses. A one-GPU job, or a "
            "job in a domain of one node, has nothing to relax and never pauses. An evicted job keeps its level "
            "of relaxation. Each job's wait is split into two columns: fair_share_wait_ms, during which its VC "
            "used its quota or more, and fragmentation_wait_ms, the rest."
        ),
        parameters=(
            Parameter("theta", 0.9, "share of the GPUs in use from which VCs reclaim; inf: never [0..1]"),
            Parameter("attempt", 150.0, "time for which a gang tries to start [s]", minimum=0.001),
            Parameter("backoff", 120.0, "time for which it pauses after a failed attempt [s]"),
            Parameter("retries", 3, "failed attempts after which it may be further apart; 0: anywhere at once"),
            FIT,
            Parameter("overhead", "helios", "preset for the cost of each preemption (M9)"),
        ),
        assumptions=("D1", "D9", "M4", "M9"),
        quotas=True,
        equal_to=(
            "With one VC on one node: fifo,scan=skip.",
            "With one VC, one GPU model, retries=0 and no cost of spreading: fifo,scan=skip,fit=count.",
            "If no VC ever reaches its quota: no job is evicted.",
        ),
        sources=(
            "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19).",
            "Our choice: the order across VCs and of victims, the number of retries, and timers for attempts.",
        ),
    )

    @property
    def lends(self) -> bool:
        """A VC may exceed its quota while GPUs are idle."""
        return True

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Tenants:
        """Return turns by use of the quota."""
        p = self.parameters
        table, times = quotas(jobs, cluster, models)
        order = Ordered(
            by_arrival,
            scan="skip",
            fit=p["fit"],
            drift="none",
            by_tenant=True,
            by_arrival=True,
            overhead_ms=overheads(models, p["overhead"], jobs),
        )
        tries = p["fit"] == "place" and p["retries"] > 0
        if p["fit"] == "place":
            order = replace(order, scopes=(0, 1, 2) if tries else (2,))
        return Tenants(
            order,
            tenants(jobs),
            table,
            times,
            reclaim="never" if math.isinf(p["theta"]) else "overdrawn",
            theta_ppm=0 if math.isinf(p["theta"]) else min(round(p["theta"] * 1_000_000), 10**9),
            attempt_ms=max(round(p["attempt"] * 1000), 1) if tries else 0,
            backoff_ms=round(p["backoff"] * 1000),
            attempts=max(p["retries"], 1),
            attribute=True,
        )
