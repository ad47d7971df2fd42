"""Backfilling: later jobs start early if, by the estimates, they delay no job with a promised start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, NOISE, RELAX, SCOPE, believed
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Backfill, Ordered

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Conservative", "Easy"]

_OVERRUN = "If a job outlives its estimate, the estimate is doubled, again and again; the job is never stopped (D8)."


def _order(parameters: dict[str, Any], jobs: Jobs, models: Models, seed: int) -> Ordered:
    return Ordered(
        by_arrival,
        fit=parameters["fit"],
        estimate_ms=believed(jobs, models, parameters["noise"], seed),
        relax_after_ms=round(parameters["relax"] * 1000),
        relax_scope=1 if parameters["relax_to"] == "rack" else 2,
    )


class Easy(Policy):
    """Later jobs may overtake the first waiting job if they do not delay it."""

    card: ClassVar[Card] = Card(
        name="easy",
        title="EASY backfilling: later jobs start early if they do not delay the first job in the queue",
        rule=(
            "Jobs start in the order of their submission, up to the first job that does not fit. The estimates of "
            "the running jobs give the time and the nodes at which it will fit. A later job may start now if it "
            "fits now and either should end by that time or takes only GPUs that are free then outside the place "
            "kept for the first job. " + _OVERRUN
        ),
        parameters=(FIT, NOISE, RELAX, SCOPE),
        assumptions=("D1", "M4", "M11"),
        equal_to=(
            "If all jobs have one size, it is fifo,scan=stop.",
            "If all estimates are 0, it is fifo,scan=skip.",
            "With fit=count, exact estimates and at most two waiting jobs, it is conservative (no job of length 0).",
        ),
        sources=(
            "Mu'alem and Feitelson, backfilling on the SP2 (TPDS 2001).",
            "Our choice: the time is found on a map of the nodes, and an estimate that has passed is doubled.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Backfill:
        """Return keys by submission, and the estimates."""
        return Backfill(_order(self.parameters, jobs, models, seed), "easy")


class Conservative(Policy):
    """Later jobs may overtake waiting jobs if they delay none with a reservation."""

    card: ClassVar[Card] = Card(
        name="conservative",
        title="conservative backfilling: later jobs start early if they delay no earlier job",
        rule=(
            "Each waiting job gets a reservation, in the order of submission: the first time from which enough "
            "GPUs are free, in number, for its estimated run time, given the reservations before it. Reservations "
            "are made anew at every event. A job whose reservation is now starts. If it does not fit on the "
            "nodes, it keeps its reservation and is tried again at the next event. Only the first `depth` waiting "
            "jobs of a domain have reservations; others start if they delay none of these. " + _OVERRUN
        ),
        parameters=(
            FIT,
            NOISE,
            Parameter("depth", 16, "number of waiting jobs per domain that get reservations; 0: all"),
            RELAX,
            SCOPE,
        ),
        assumptions=("D1", "M4", "M11"),
        equal_to=(
            "If all jobs have one size and fit=count, it is fifo,scan=stop.",
            "If all estimates are 0 and fit=count, it is fifo,scan=skip.",
            "With fit=count and depth=1, it is easy (no job with an estimate of 0).",
        ),
        sources=(
            "Mu'alem and Feitelson, backfilling on the SP2 (TPDS 2001).",
            "Our choice: the limit on reservations, and an estimate that has passed is doubled.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Backfill:
        """Return keys by submission, the estimates, and how many jobs have reservations."""
        p = self.parameters
        return Backfill(_order(p, jobs, models, seed), "conservative", p["depth"])
