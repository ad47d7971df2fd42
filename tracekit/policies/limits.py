"""Limits on what one user or virtual cluster may use at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, scan
from tracekit.policies.quotas import NO_USE_COUNTS, OF, quotas, tenants
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered, Tenants

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Limits"]


class Limits(Policy):
    """First in, first out, within limits."""

    card: ClassVar[Card] = Card(
        name="limits",
        title="first in, first out, with a limit on the GPUs that a VC or a user may use at once",
        rule=(
            "Jobs start in the order of their submission, on any nodes with room, as long as their VC or user "
            "stays within its limit of GPUs. A job that would exceed the limit waits and holds up no other "
            "tenant. The limit is the same for all (gpus), or with gpus=0 the quota of each VC. With lend=idle a "
            "VC may use what other VCs leave of their quotas. With lend=reclaim they take it back: a job within "
            "its own VC's quota stops the youngest jobs of VCs above theirs. With scan=stop a tenant's first job "
            "that cannot start holds up its others; other tenants go on in either case."
        ),
        parameters=(
            OF,
            Parameter("gpus", 0, "limit of each tenant at once; 0: the quota of its VC [GPUs]"),
            Parameter("lend", "never", "whether VCs may use what others leave", ("never", "idle", "reclaim")),
            scan("skip"),
            FIT,
        ),
        assumptions=("D1", "D9"),
        quotas=True,
        equal_to=("With a limit that no tenant reaches, or with one tenant and lend=idle: fifo,scan=skip.",),
        sources=(
            "Limits per user or account: MaxTRESPerUser and GrpTRES of Slurm, ResourceQuota of Kubernetes.",
            "Lending and reclaiming as in Kueue's cohorts.",
        ),
    )

    @property
    def lends(self) -> bool:
        """Whether VCs use what others leave."""
        return bool(self.parameters["lend"] != "never")

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Tenants:
        """Return turns by submission, and limits."""
        p = self.parameters
        codes = tenants(jobs, p["of"])
        count = len(jobs.tenants if p["of"] == "vc" else jobs.users) + 1
        times = np.zeros(1, np.int64)
        if p["gpus"] > 0:
            table = np.full((1, count), p["gpus"], np.int64)
        elif p["of"] == "user":
            raise UsageError("the policy limits: users have no quotas", hint="give gpus=N, or of=vc")
        else:
            table, times = quotas(jobs, cluster, models)
        reclaim = p["lend"] == "reclaim"
        return Tenants(
            Ordered(by_arrival, scan=p["scan"], fit=p["fit"], drift="none", by_tenant=True, by_arrival=True),
            codes,
            table,
            times,
            np.full(table.shape[1], NO_USE_COUNTS, np.int64),
            limit="own" if p["lend"] == "never" else "cohort",
            reclaim="cohort" if reclaim else "never",
            reclaim_others="any" if reclaim else "never",
        )
