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

_ORDER = Parameter("order", "fifo", "order of the jobs: by submission, run time, or GPU time", ("fifo", "sjf", "ssf"))
_POPULARITY = Parameter(
    "popularity", 0.95, "share of the jobs whose shapes form the workload that free GPUs should suit", maximum=1.0
)
_KEYS = {"fifo": by_arrival, "sjf": shortest, "ssf": smallest}
_COMMON = (
    "Jobs start in order and run to their end. Each takes its share of every GPU that it uses, its CPU and its "
    "memory. A job that fits on no empty node is split into parts, each on its own node. "
)
_SOURCES = (
    "Weng et al., Beware of Fragmentation (ATC'23), and its released simulator, in which tasks only arrive.",
    "Our choice: jobs end, there is a queue, and large gangs are split into parts.",
)
_EQUAL = (
    (
        "With jobs of one whole GPU, one GPU model and enough CPU: fifo under every rule, except for the choice of "
        "nodes."
    ),
)


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
        "A job goes where it adds least to the free GPU capacity that the expected workload cannot use. The "
        "expected workload is the shapes of the most frequent jobs of the trace.",
        _POPULARITY,
    )


class BestFit(_Divided):
    """The node with least left."""

    card: ClassVar[Card] = _card(
        "bestfit", "best fit by CPU and GPU", "A job goes to the node where the least CPU and GPU capacity stays free."
    )


class DotProduct(_Divided):
    """The node whose rest is least like the demand."""

    card: ClassVar[Card] = _card(
        "dotproduct",
        "dot product of free capacity and demand",
        "A job goes to the node with the smallest product of free capacity and demand, over CPU and GPU.",
    )


class Packing(_Divided):
    """GPUs in use first."""

    card: ClassVar[Card] = _card(
        "packing",
        "GPUs in use first",
        "A job goes to GPUs in use that have room, otherwise to unused GPUs of a used node, otherwise to an "
        "unused node.",
    )


class Clustering(_Divided):
    """Jobs of one size together."""

    card: ClassVar[Card] = _card(
        "clustering",
        "jobs of one size together",
        "A job goes to a node that runs only jobs of its size, otherwise to a node that runs such jobs among "
        "others, otherwise to an unused node, otherwise to any node; the fuller node comes first.",
    )


class Random(_Divided):
    """Any node that fits."""

    card: ClassVar[Card] = _card(
        "random", "any node that fits", "A job goes to any node and GPU that fit, drawn at random by seed."
    )
