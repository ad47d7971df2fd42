"""The log's own priorities."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, NOISE, RELAX, SCOPE, believed, scan
from tracekit.replay.keys import most_urgent
from tracekit.replay.mechanisms import Backfill, Ordered

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism

__all__ = ["Priority"]


class Priority(Policy):
    """Jobs start in the order of the priorities that the log gives them."""

    card: ClassVar[Card] = Card(
        name="priority",
        title="the log's priorities, first in, first out among equals",
        rule=(
            "The job with the highest priority in the log starts first, and among equals the earlier submission. "
            "A job without a priority has priority 0. Running jobs are never stopped. Priorities do not change: a "
            "log has one value per job and does not show how it grew while the job waited. With backfill=easy or "
            "conservative, later jobs start early if they delay no earlier job, as in the policies of these names."
        ),
        parameters=(
            scan("stop"),
            FIT,
            Parameter(
                "backfill", "none", "whether later jobs may start early by estimates", ("none", "easy", "conservative")
            ),
            NOISE,
            RELAX,
            SCOPE,
        ),
        assumptions=("D1", "M4", "M11"),
        equal_to=(
            "If all jobs have one priority: fifo with the same scan.",
            "If all jobs have one priority and backfill=easy or conservative: easy or conservative.",
        ),
        sources=("The priority queue of Slurm, PBS and YARN, without aging.",),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Mechanism:
        """Return keys by priority."""
        p = self.parameters
        levels = np.unique(jobs.priority)
        order = Ordered(
            most_urgent,
            scan=p["scan"],
            fit=p["fit"],
            drift="none",
            value=np.searchsorted(levels, jobs.priority).astype(np.int64),
            estimate_ms=None if p["backfill"] == "none" else believed(jobs, models, p["noise"], seed),
            relax_after_ms=round(p["relax"] * 1000),
            relax_scope=1 if p["relax_to"] == "rack" else 2,
        )
        return order if p["backfill"] == "none" else Backfill(order, p["backfill"])
