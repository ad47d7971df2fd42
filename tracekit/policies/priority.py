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
            "The job with the greatest priority in the log starts first, the earlier submission between equals; a job "
            "without a priority has priority 0. Nothing is stopped once it runs. Priorities stay as they are: a log "
            "holds one value for each job, and how it grew while the job waited is not known. With backfill=easy or "
            "conservative, later jobs go ahead where they delay none before them, as in the policies of these names."
        ),
        parameters=(
            scan("stop"),
            FIT,
            Parameter(
                "backfill", "none", "whether later jobs may go ahead by estimates", ("none", "easy", "conservative")
            ),
            NOISE,
            RELAX,
            SCOPE,
        ),
        assumptions=("D1", "M4", "M11"),
        equal_to=(
            "With one priority for all: fifo with the same scan.",
            "With one priority for all and backfill=easy or conservative: easy or conservative.",
        ),
        sources=("The priority queue of Slurm, PBS and YARN, without ageing.",),
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
