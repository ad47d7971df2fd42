"""Jobs that share GPUs in thousandths, placed by fragmentation gradient descent or by a rule it is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import scan
from tracekit.replay.keys import by_arrival, shortest, smallest
from tracekit.replay.mechanisms import Fractional, Ordered

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["BestFit", "Clustering", "DotProduct", "Fgd", "Packing", "Random"]

_ORDER = Parameter(
    "order", "fifo", "which job goes first: by submission, run time, or GPU time", ("fifo", "sjf", "ssf")
)
_POPULARITY = Parameter(
    "popularity", 0.95, "share of the jobs whose shapes are the workload that free GPUs should suit", maximum=1.0
)
_KEYS = {"fifo": by_arrival, "sjf": shortest, "ssf": smallest}
_COMMON = (
    "Jobs start in order, each with its share of every GPU that it touches, its CPU and its memory, and run to their "
    "end. A job that no empty node could hold is cut into parts, each on a node of its own. "
)
_SOURCES = (
    "Weng et al., Beware of Fragmentation (ATC'23), and its released simulator, where tasks only arrive.",
    "That jobs end, the queue, and parts of large gangs are our choice.",
)
_EQUAL = ("With jobs of one whole GPU, one GPU model and enough CPU: fifo, whatever the rule, but for the nodes.",)


class _Divided(Policy):
    """A rule that scores nodes."""

    card: ClassVar[Card]

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Fractional:
        """Return the order and the rule."""
        p = self.parameters
        order = Ordered(_KEYS[p["order"]], scan=p["scan"], drift="none", by_arrival=p["order"] == "fifo")
        return Fractional(order, self.card.name, popularity=p.get("popularity", 0.95), seed=seed)


def _card(name: str, title: str, rule: str, *parameters: Parameter) -> Card:
    return Card(
        name=name,
        title=title,
        rule=_COMMON + rule,
        parameters=(scan("stop"), _ORDER, *parameters),
        assumptions=("D1",),
        equal_to=_EQUAL,
        sources=_SOURCES,
    )


class Fgd(_Divided):
    """Fragmentation gradient descent."""

    card: ClassVar[Card] = _card(
        "fgd",
        "fragmentation gradient descent",
        "A job goes where it least raises the free GPU capacity that the expected workload cannot use: the shapes of "
        "the most frequent jobs of the trace.",
        _POPULARITY,
    )


class BestFit(_Divided):
    """The node with least left."""

    card: ClassVar[Card] = _card(
        "bestfit", "best fit by CPU and GPU", "A job goes to the node where least CPU and GPU stay free."
    )


class DotProduct(_Divided):
    """The node whose rest is least like the demand."""

    card: ClassVar[Card] = _card(
        "dotproduct",
        "dot product of rest and demand",
        "A job goes to the node with the smallest product of what is left and what is asked, over CPU and GPU.",
    )


class Packing(_Divided):
    """GPUs in use first."""

    card: ClassVar[Card] = _card(
        "packing",
        "GPUs in use first",
        "A job goes to GPUs in use that have room, else to unused GPUs of a used node, else to an unused node.",
    )


class Clustering(_Divided):
    """Jobs of one size together."""

    card: ClassVar[Card] = _card(
        "clustering",
        "jobs of one size together",
        "A job goes to a node with jobs of its size only, else with such among others, else to an unused node, else to "
        "any; the fuller node first.",
    )


class Random(_Divided):
    """Any node that fits."""

    card: ClassVar[Card] = _card(
        "random", "any node that fits", "A job goes to any node and GPU that fit, drawn by seed."
    )
