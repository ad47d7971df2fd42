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
        title="quotas of VCs, which they lend and borrow while GPUs are idle (Kueue)",
        rule=(
            "Every VC is a queue with its quota, in order of priority and then submission. In a cycle each queue "
            "offers its first job once; those that stay within their queue's quota go before those that borrow, then "
            "by priority, then by submission. A job starts if its queue's quota, or what the others of the cohort "
            "lend and do not use, allows it and it has a place. With scan=stop a queue's first job holds up its "
            "others (StrictFIFO), with scan=skip they may pass it (BestEffortFIFO). A job that its quota does not "
            "allow may evict: reclaim, jobs of queues that borrow, while its own queue stays within its quota; "
            "preempt, jobs of its own queue; preempt_to_borrow, jobs of others with lower priority even when it has "
            "to borrow. Victims are those of other queues first, then of lowest priority, then started last; as many "
            "as are needed, and those that turn out not to be needed stay. With fair=on the smallest share above "
            "quota, for its weight, goes first and jobs are taken from the largest. A job whose quota allows it but "
            "that has no place evicts nobody; the column placement_refused marks it."
        ),
        parameters=(
            Parameter("cohort", default=True, meaning="whether VCs may use what others of the domain do not"),
            Parameter("borrow_limit", float("inf"), "most that a VC may hold above its quota, in parts of it"),
            Parameter("lend_limit", 1.0, "part of its quota that others may use", maximum=1),
            scan("skip"),
            FIT,
            Parameter(
                "reclaim", "never", "whose jobs of borrowing VCs may be evicted, by priority", ("never", "lower", "any")
            ),
            Parameter(
                "preempt",
                "never",
                "which jobs of its own VC a job may evict, by priority",
                ("never", "lower", "lower-or-newer"),
            ),
            Parameter("preempt_to_borrow", default=False, meaning="whether a job that has to borrow may evict others'"),
            Parameter(
                "borrow_priority",
                _NO_CAP,
                "with preempt_to_borrow, only jobs of others with this priority or lower",
                minimum=-_NO_CAP,
                maximum=_NO_CAP,
            ),
            Parameter("fair", default=False, meaning="whether what is above quota is shared by weight"),
            WEIGHT,
            OVERHEAD,
        ),
        assumptions=("D1", "D9", "M9"),
        quotas=True,
        equal_to=(
            "With cohort=off and scan=stop: fifo,scan=stop of each VC within its quota.",
            "With borrow_limit=0 and lend_limit=0: cohort=off.",
            "With one VC that has the whole cluster and jobs of one priority: fifo with the same scan.",
        ),
        sources=(
            "Documentation and source of Kueue, commit ff69552e79.",
            "That a job needs a place as well, and that a job is evicted at most once at a time, is our choice.",
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
            raise UsageError(f"{len(levels):,} priorities are too many", hint=f"kueue can have {_LEVELS:,} at most")
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
