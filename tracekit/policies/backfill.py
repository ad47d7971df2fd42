"""Backfilling: later jobs go ahead where, by the estimates, they delay none that was promised a start."""

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

_OVERRUN = "A job that outlives its estimate is believed to run twice as long, and so on; it is never stopped (D8)."


def _order(parameters: dict[str, Any], jobs: Jobs, models: Models, seed: int) -> Ordered:
    return Ordered(
        by_arrival,
        fit=parameters["fit"],
        estimate_ms=believed(jobs, models, parameters["noise"], seed),
        relax_after_ms=round(parameters["relax"] * 1000),
        relax_scope=1 if parameters["relax_to"] == "rack" else 2,
    )


class Easy(Policy):
    """Later jobs may pass the first that waits as long as they do not delay it."""

    card: ClassVar[Card] = Card(
        name="easy",
        title="EASY backfilling: later jobs go ahead where they do not delay the first in the queue",
        rule=(
            "Jobs start in the order of their submission up to the first that has no place. The estimates of the "
            "running jobs give when it will have one, and where. A later job may start now if it has a place now and "
            "either should end by that moment, or takes only GPUs that are free then beside that place. " + _OVERRUN
        ),
        parameters=(FIT, NOISE, RELAX, SCOPE),
        assumptions=("D1", "M4", "M11"),
        equal_to=(
            "With jobs of one size, it is fifo,scan=stop.",
            "With estimates of 0, it is fifo,scan=skip.",
            "With fit=count, exact estimates and at most two jobs waiting, it is conservative (no job of length 0).",
        ),
        sources=(
            "Mu'alem and Feitelson, backfilling on the SP2 (TPDS 2001).",
            "That the moment is found on a map of the nodes, and doubling of estimates that have passed: our choice.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Backfill:
        """Return keys by submission, and the estimates."""
        return Backfill(_order(self.parameters, jobs, models, seed), "easy")


class Conservative(Policy):
    """Later jobs may pass those that wait as long as they delay none that has a reservation."""

    card: ClassVar[Card] = Card(
        name="conservative",
        title="conservative backfilling: later jobs go ahead where they delay no job before them",
        rule=(
            "In the order of submission each waiting job gets a reservation: the first time from which enough GPUs are "
            "free, in number, for as long as it is believed to run, reservations before it respected. Reservations are "
            "made anew at every event. A job whose reservation is now starts; where it finds no place on the nodes, it "
            "keeps its reservation and is tried again at the next event. Only the first `depth` waiting jobs of a "
            "domain have reservations; others start where they delay none of these. " + _OVERRUN
        ),
        parameters=(
            FIT,
            NOISE,
            Parameter("depth", 16, "waiting jobs of a domain that have reservations, 0 all of them"),
            RELAX,
            SCOPE,
        ),
        assumptions=("D1", "M4", "M11"),
        equal_to=(
            "With jobs of one size and fit=count, it is fifo,scan=stop.",
            "With estimates of 0 and fit=count, it is fifo,scan=skip.",
            "With fit=count and depth=1, it is easy (no job believed to have length 0).",
        ),
        sources=(
            "Mu'alem and Feitelson, backfilling on the SP2 (TPDS 2001).",
            "The limit of reservations, and doubling of estimates that have passed: our choice.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Backfill:
        """Return keys by submission, the estimates, and how many jobs have reservations."""
        p = self.parameters
        return Backfill(_order(p, jobs, models, seed), "conservative", p["depth"])
