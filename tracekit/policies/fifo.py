"""First in, first out."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, RELAX, SCOPE, scan
from tracekit.policies.quotas import NO_QUOTA, NO_USE_COUNTS, QUEUES, tenants
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered, Tenants

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Fifo"]


class Fifo(Policy):
    """Jobs start in the order of their arrival."""

    card: ClassVar[Card] = Card(
        name="fifo",
        title="first in, first out",
        rule=(
            "Jobs start in the order of their submission, each as a whole gang, and run to their end. With "
            "scan=stop a job that cannot start holds up all later jobs. With scan=skip later jobs may overtake "
            "it, and many-GPU jobs may starve unless age_cap is set. With relax, a gang that has waited this long "
            "takes GPUs on any nodes. With queues, each VC, user or partition has its own queue, and a job that "
            "cannot start holds up only that queue."
        ),
        parameters=(
            scan("stop"),
            FIT,
            Parameter("age_cap", 0.0, "wait after which a job that cannot start holds up all others; 0: never [s]"),
            RELAX,
            SCOPE,
            QUEUES,
        ),
        assumptions=("D1", "M4"),
        equal_to=(
            "With one VC, queues=vc gives the schedule of queues=one.",
            "If all jobs have one size and fit=count, scan=stop and scan=skip give the same schedule.",
            "With relax=0 only strict placements are made; then spreading never slows a job.",
        ),
        sources=(
            "The usual baseline.",
            "Helios (SC'21), Lucid (ASPLOS'23) and Gavel (OSDI'20) stop at the first job that cannot start.",
            "The simulators of Tiresias (NSDI'19) and of the Alibaba trace of 2020 skip it.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered | Tenants:
        """Return keys by submission, in turns if there are several queues."""
        p = self.parameters
        if p["queues"] != "one":
            return self._queues(jobs)
        return Ordered(
            by_arrival,
            scan=p["scan"],
            fit=p["fit"],
            drift="none",
            by_arrival=True,
            relax_after_ms=round(p["relax"] * 1000),
            relax_scope=1 if p["relax_to"] == "rack" else 2,
            age_cap_ms=round(p["age_cap"] * 1000),
        )

    def _queues(self, jobs: Jobs) -> Tenants:
        p = self.parameters
        if p["relax"] or p["age_cap"]:
            what = "relax" if p["relax"] else "age_cap"
            raise UsageError(
                f"the policy fifo: queues={p['queues']} cannot be combined with {what}", hint=f"leave {what} out"
            )
        codes = tenants(jobs, p["queues"])
        count = int(codes.max(initial=0)) + 1
        return Tenants(
            Ordered(by_arrival, scan=p["scan"], fit=p["fit"], drift="none", by_tenant=True, by_arrival=True),
            codes,
            np.full((1, count), NO_QUOTA, np.int64),
            np.zeros(1, np.int64),
            np.full(count, NO_USE_COUNTS, np.int64),
            limit="own",
            reclaim="never",
            reclaim_others="never",
        )
