"""First in, first out."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, RELAX, SCOPE, scan
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Fifo"]


class Fifo(Policy):
    """Jobs start in the order in which they came."""

    card: ClassVar[Card] = Card(
        name="fifo",
        title="first in, first out",
        rule=(
            "Jobs start in the order of their submission, each as a whole gang, and run to their end. With scan=stop a "
            "job that cannot start holds up all that came later; with scan=skip later jobs may pass it, and wide jobs "
            "may starve unless age_cap is set. With relax, a gang that has waited so long takes GPUs on any nodes."
        ),
        parameters=(
            scan("stop"),
            FIT,
            Parameter("age_cap", 0.0, "wait after which a job that cannot start holds up all others, 0 never [s]"),
            RELAX,
            SCOPE,
        ),
        assumptions=("D1", "M4"),
        equal_to=(
            "With jobs of one size and fit=count, scan=stop and scan=skip give the same schedule.",
            "With relax=0 only strict placements are made; spreading then never slows a job.",
        ),
        sources=(
            "The usual baseline.",
            "Helios (SC'21), Lucid (ASPLOS'23) and Gavel (OSDI'20) stop at the first job that cannot start.",
            "The simulators of Tiresias (NSDI'19) and of the Alibaba trace of 2020 skip it.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered:
        """Return keys by submission."""
        p = self.parameters
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
