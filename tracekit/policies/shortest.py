"""Shortest first, with run times known or estimated; with and without eviction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tracekit.policies.interface import Card, Policy
from tracekit.policies.parameters import CHARGE, FIT, FIT_OR_QUOTA, NOISE, OVERHEAD, believed, charged, scan
from tracekit.policies.quota_plan import RemainingOrder, quota_plan
from tracekit.replay.keys import shortest, shortest_left, smallest, smallest_left
from tracekit.replay.mechanisms import Ordered, Planner

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Sjf", "Srsf", "Srtf", "Ssf"]

_SOURCES = (
    "The usual bounds.",
    "SJF and SSF as in Helios (SC'21) and Lucid (ASPLOS'23), which stop at the first job that cannot start.",
    "SRTF and SRSF as in the simulators of Tiresias (NSDI'19) and Muri (SIGCOMM'22), which skip it.",
    (
        "Helios' SRTF: overhead=helios,fit=quota. On 5,000 jobs and a full cluster (336 and 480 GPUs) our mean "
        "completion time is 0.3 and 0.0 % below that of Helios; with fit=count it is 1.2 and 0.5 % below, with "
        "fit=place 9.0 and 5.0 %. In Helios a job ends one second late."
    ),
    (
        "The charge at every event comes from Muri's simulator. On its third trace, loaded, with each job charged "
        "by its model, our mean completion time is within 0.05 % of Muri's (without any charge 0.8 to 1.3 % "
        "below)."
    ),
)


class _Estimated(Policy):
    """Order by the estimated needs of jobs; never stop a job."""

    key: ClassVar[Any]

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered:
        """Return keys by estimate."""
        p = self.parameters
        return Ordered(
            self.key,
            scan=p["scan"],
            fit=p["fit"],
            drift="none",
            estimate_ms=believed(jobs, models, p["noise"], seed),
        )


class _Remaining(Policy):
    """Order by true remaining time, stopping jobs that have more left than a waiting one."""

    key: ClassVar[Any]
    drift: ClassVar[Any]

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered | Planner:
        """Return keys by remaining time."""
        p = self.parameters
        if p["fit"] == "quota":
            return quota_plan(RemainingOrder(by_gpus=self.card.name == "srsf"), p, jobs, cluster, models)
        return Ordered(
            self.key,
            scan=p["scan"],
            fit=p["fit"],
            preemptive=True,
            # A stalled job's remaining time does not change, so it must be asked for.
            drift="any" if p["charge"] == "event" else self.drift,
            **charged(models, p["overhead"], p["charge"], jobs),
        )


class Sjf(_Estimated):
    """Shortest job first."""

    key = staticmethod(shortest)
    card: ClassVar[Card] = Card(
        name="sjf",
        title="shortest job first",
        rule="The job with the least run time starts first, ties by submission. Running jobs are never stopped.",
        parameters=(scan("stop"), FIT, NOISE),
        assumptions=("D1", "M11"),
        equal_to=("With equal run times and sizes: fifo.", "If all jobs have one size: ssf."),
        sources=_SOURCES,
    )


class Ssf(_Estimated):
    """Smallest service first."""

    key = staticmethod(smallest)
    card: ClassVar[Card] = Card(
        name="ssf",
        title="smallest GPU time (GPUs times run time) first",
        rule="The job with the least run time times GPUs starts first, ties by submission. Running jobs are never "
        "stopped.",
        parameters=(scan("stop"), FIT, NOISE),
        assumptions=("D1", "M11"),
        equal_to=("If all jobs have one size: sjf.",),
        sources=_SOURCES,
    )


class Srtf(_Remaining):
    """Shortest remaining time first."""

    key = staticmethod(shortest_left)
    drift = "time"
    card: ClassVar[Card] = Card(
        name="srtf",
        title="shortest remaining time first; running jobs may be stopped",
        rule=(
            "Whenever a job arrives or ends, the jobs with the least remaining run time get the GPUs. A waiting "
            "job evicts running jobs with more time left, the longest first, until it fits. A stopped job later "
            "continues where it was, at the cost that overhead names; that cost counts as remaining run time. "
            "With charge=event every running job pays the cost at every event of the cluster, and the cost does "
            "not affect the order."
        ),
        parameters=(scan("skip"), FIT_OR_QUOTA, OVERHEAD, CHARGE),
        assumptions=("D1", "M9"),
        equal_to=(
            "If all jobs are submitted at once, with one size and no overhead: sjf.",
            "If all jobs have one size: srsf.",
        ),
        sources=_SOURCES,
    )


class Srsf(_Remaining):
    """Smallest remaining service first."""

    key = staticmethod(smallest_left)
    drift = "any"
    card: ClassVar[Card] = Card(
        name="srsf",
        title="smallest remaining GPU time first; running jobs may be stopped",
        rule="As srtf, with the remaining run time times the GPUs of the gang.",
        parameters=(scan("skip"), FIT_OR_QUOTA, OVERHEAD, CHARGE),
        assumptions=("D1", "M9"),
        equal_to=("If all jobs have one size: srtf.",),
        sources=_SOURCES,
    )
