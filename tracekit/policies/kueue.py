"""Quotas with borrowing, as Kueue has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, OVERHEAD, overheads, scan
from tracekit.policies.quotas import WEIGHT, quotas, tenants
from tracekit.replay.keys import most_urgent
from tracekit.replay.mechanisms import Ordered, Tenants

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Kueue"]

_LEVELS = 1 << 18
_NO_CAP = 10**9


class Kueue(Policy):
    """Queues with quotas in a cohort."""

    card: ClassVar[Card] = Card(
        name="kueue",
        title="quotas of VCs that lend and borrow idle GPUs (Kueue)",
        rule=(
            "Every VC is a queue with its own quota, in order of priority and then submission. In a cycle each "
            "queue offers its first job once. Jobs that stay within their queue's quota go before jobs that "
            "borrow, then by priority, then by submission. A job starts if it fits on the nodes and is allowed by "
            "its queue's quota, or by what the other queues of the cohort lend and do not use. With scan=stop a "
            "queue's first job holds up its others (StrictFIFO); with scan=skip they may overtake it "
            "(BestEffortFIFO). A job that its quota does not allow may evict: with reclaim, jobs of queues that "
            "borrow, while its own queue stays within its quota; with preempt, jobs of its own queue; with "
            "preempt_to_borrow, jobs of other queues with lower priority, even if it has to borrow. Jobs of other "
            "queues are evicted first, then those of lowest priority, then those started last. As many are chosen "
            "as needed, and those that turn out not to be needed stay. With fair=on the smallest weighted share "
            "above quota goes first, and jobs are evicted from the largest. A job that its quota allows but that "
            "does not fit evicts no job; the column placement_refused marks it."
        ),
        parameters=(
            Parameter("cohort", default=True, meaning="whether VCs may use what other VCs of the domain do not use"),
            Parameter("borrow_limit", float("inf"), "how far a VC may exceed its quota, as a share of the quota"),
            Parameter("lend_limit", 1.0, "share of its quota that other VCs may use", maximum=1),
            scan("skip"),
            FIT,
            Parameter(
                "reclaim", "never", "which jobs of borrowing VCs may be evicted, by priority", ("never", "lower", "any")
            ),
            Parameter(
                "preempt",
                "never",
                "which jobs of its own VC a job may evict, by priority",
                ("never", "lower", "lower-or-newer"),
            ),
            Parameter(
                "preempt_to_borrow",
                default=False,
                meaning="whether a job that has to borrow may evict jobs of other VCs",
            ),
            Parameter(
                "borrow_priority",
                _NO_CAP,
                "with preempt_to_borrow, evict only jobs of other VCs with this priority or lower",
                minimum=-_NO_CAP,
                maximum=_NO_CAP,
            ),
            Parameter("fair", default=False, meaning="whether GPUs above quota are shared by weight"),
            WEIGHT,
            OVERHEAD,
        ),
        assumptions=("D1", "D9", "M9"),
        quotas=True,
        equal_to=(
            "With cohort=off and scan=stop: fifo,scan=stop for each VC within its quota.",
            "With borrow_limit=0 and lend_limit=0: cohort=off.",
            "With one VC that has the whole cluster and jobs of one priority: fifo with the same scan.",
        ),
        sources=(
            "Documentation and source of Kueue, commit ff69552e79.",
            "Our choice: a job must also fit on the nodes, and each job is evicted at most once at a time.",
        ),
    )

    @property
    def lends(self) -> bool:
        """Whether there is a cohort."""
        return bool(self.parameters["cohort"])

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Tenants:
        """Return cycles over the VCs."""
        p = self.parameters
        levels, rank = np.unique(jobs.priority, return_inverse=True)
        if len(levels) > _LEVELS:
            raise UsageError(f"{len(levels):,} priorities are too many", hint=f"kueue supports at most {_LEVELS:,}")
        codes = tenants(jobs)
        table, times = quotas(jobs, cluster, models)
        below = int(np.searchsorted(levels, p["borrow_priority"], "right")) - 1
        capped = p["borrow_priority"] != _NO_CAP
        reclaim: Any = p["reclaim"] if p["cohort"] else "never"
        return Tenants(
            Ordered(
                most_urgent,
                scan=p["scan"],
                fit=p["fit"],
                drift="none",
                by_tenant=True,
                by_arrival=len(levels) <= 1,
                value=rank.astype(np.int64),
                overhead_ms=overheads(models, p["overhead"], jobs),
            ),
            codes,
            table,
            times,
            np.ones(table.shape[1], np.int64) if p["weight"] == "equal" else None,
            pick="cycle",
            limit="cohort" if p["cohort"] else "own",
            borrow_ppm=-1 if p["borrow_limit"] == float("inf") else round(p["borrow_limit"] * 1_000_000),
            lend_ppm=round(p["lend_limit"] * 1_000_000),
            reclaim="cohort" if reclaim != "never" or p["preempt"] != "never" else "never",
            reclaim_own=p["preempt"],
            reclaim_others=reclaim,
            reclaim_borrowing=p["preempt_to_borrow"] and reclaim != "never" and not (capped and below < 0),
            reclaim_below=below if capped else -1,
            fair=p["fair"],
            priority=rank.astype(np.int64),
            attribute=True,
        )
