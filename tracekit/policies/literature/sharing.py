"""GPU sharing in compiled code: two jobs on a GPU with the shortest job first, and jobs on fractions of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.literature.residents import rounded_up, rounded_use
from tracekit.policies.parameters import ORDER, scan, start_order
from tracekit.replay.assumptions.of_jobs import memory_ppm
from tracekit.replay.assumptions.speeds import accumulated_memory_ppm, accumulation_ppm
from tracekit.replay.keys import shortest_left, smallest_left
from tracekit.replay.mechanisms import Fractional, Sharing

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


_KEYS = {"srtf": shortest_left, "srsf": smallest_left}


def _parameters(most: int) -> tuple[Parameter, ...]:
    return (
        Parameter("residents", 2, "maximum number of jobs on a GPU", minimum=1, maximum=most),
        Parameter("key", "srtf", "order: remaining run time, or remaining run time times GPUs", ("srtf", "srsf")),
        Parameter("consolidate", False, "whether to try the tightest single node before GPUs of several nodes"),
        Parameter(
            "subbatch", 1, "maximum number of sub-batches that a job may use to fit next to another job", maximum=4
        ),
    )


_ROUNDED = (
    "Utilization is counted in whole percent, and memory in whole percent rounded up. Jobs with equal requests, "
    "utilization and memory form one queue. Only the first job of each queue, with the least work, is considered, "
    "which does not change the result."
)
_SOURCES = (
    "Luo et al., arXiv 2407.13088, and its released testbed code: the order, the test, the choice of GPUs.",
    (
        "Our choices: ties go to the lowest node and job; the test uses a job's remaining work at its recorded speed; "
        "all GPUs of a gang have the same number of sub-batches, which gives the smallest mean of both ends."
    ),
)


class _Shared(Policy):
    """Order jobs by run time, share GPUs, and never stop a job."""

    test: ClassVar[bool]

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Sharing:
        """Return the sharing mechanism, with utilization and memory from the models."""
        p = self.parameters
        parts = [s for s in (1, 2, 4) if s <= p["subbatch"]]
        memory = np.stack([accumulated_memory_ppm(models, memory_ppm(models, jobs), s) for s in parts])
        return Sharing(
            _KEYS[p["key"]],
            rounded_use(models, jobs),
            rounded_up(memory),
            speeds_ppm=tuple(int(accumulation_ppm(models, s)) for s in parts),
            strength_ppm=round(models.interference.c * 1_000_000) if models.interference.rule == "product" else -1,
            residents=p["residents"],
            test=self.test,
            consolidate=p["consolidate"],
        )


class SjfFfs(_Shared):
    """Shortest first, sharing GPUs by first fit.

    Equal to
    --------
    - With residents=1, or if no two jobs fit in a GPU's memory, the policy equals sjf,scan=skip with gangs placed
      anywhere.
    """

    test = False
    card = Card(
        name="sjf-ffs",
        rule=(
            "Jobs start in order of run time. A job that cannot start is skipped, and no job is stopped. A job takes "
            "idle GPUs on the nodes with the fewest jobs if there are enough. Otherwise, it takes all idle GPUs and, "
            "for the rest, GPUs with a free seat and enough memory, again on the nodes with the fewest jobs. Jobs on "
            "one GPU slow each other down, and a gang runs at the speed of its slowest GPU. " + _ROUNDED
        ),
        parameters=_parameters(8),
        assumptions=("M0", "M1", "M2", "M3", "M4"),
        sources=_SOURCES,
    )


class SjfBsbf(_Shared):
    """Shortest first, sharing GPUs if the pair gains.

    Equal to
    --------
    - With residents=1, or if no two jobs fit in a GPU's memory, the policy equals sjf,scan=skip with gangs placed
      anywhere.
    - Without interference (c=0), jobs start exactly when they start under sjf-ffs, but partners may differ.
    """

    test = True
    card = Card(
        name="sjf-bsbf",
        rule=(
            "Like sjf-ffs, but a job shares only GPUs with a single job, and only if the two jobs' mean end is then "
            "earlier than if it waited for that job to end. Partners with the earliest mean end come "
            "first. " + _ROUNDED
        ),
        parameters=_parameters(2),
        assumptions=("M0", "M1", "M2", "M3", "M4"),
        sources=_SOURCES,
    )


_POPULARITY = Parameter(
    "popularity", 0.95, "share of jobs that form the expected workload, the most frequent shapes first", maximum=1.0
)
_FRACTIONAL_RULE = (
    "Jobs start in order and run to their end. Each job takes its share of every GPU that it uses, and its CPUs and "
    "memory. A job that fits on no empty node is split into parts, each on its own node. "
)
_FRACTIONAL_SOURCES = (
    "Weng et al., Beware of Fragmentation (ATC'23), and its released simulator, in which tasks only arrive.",
    "Our choices: jobs end, there is a queue, and large gangs are split into parts.",
)
_FRACTIONAL_EQUAL = (
    (
        "With jobs of one whole GPU, one GPU model and enough CPU, every rule equals fifo, except for the choice of "
        "nodes."
    ),
)


class _Fractional(Policy):
    """A policy whose rule scores nodes."""

    card: ClassVar[Card]

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Fractional:
        """Return the job order and the placement rule."""
        p = self.parameters
        order = start_order(p, jobs, models, seed)
        return Fractional(order, self.card.name, popularity=p.get("popularity", 0.95), seed=seed)


def _fractional_card(name: str, title: str, rule: str, *parameters: Parameter) -> Card:
    return Card(
        name=name,
        title=title,
        rule=_FRACTIONAL_RULE + rule,
        parameters=(
            scan("stop"),
            Parameter("order", "fifo", "order of the jobs: by submission, run time, or GPU time", ORDER.choices),
            *parameters,
        ),
        assumptions=("D1",),
        equal_to=_FRACTIONAL_EQUAL,
        sources=_FRACTIONAL_SOURCES,
    )


class Fgd(_Fractional):
    """Jobs go where they increase fragmentation least (fragmentation gradient descent)."""

    card: ClassVar[Card] = _fractional_card(
        "fgd",
        "fragmentation gradient descent",
        "A job goes where it adds least to the free GPU capacity that the expected workload (the most frequent job "
        "shapes of the trace) cannot use.",
        _POPULARITY,
    )


class BestFit(_Fractional):
    """Jobs go to the node with the least capacity left."""

    card: ClassVar[Card] = _fractional_card(
        "bestfit",
        "best fit by CPU and GPU",
        "A job goes to the node on which the least CPU and GPU capacity remains free.",
    )


class DotProduct(_Fractional):
    """Jobs go to the node with the smallest dot product of free capacity and demand."""

    card: ClassVar[Card] = _fractional_card(
        "dotproduct",
        "dot product of free capacity and demand",
        "A job goes to the node with the smallest product of free capacity and demand, summed over CPU and GPU.",
    )


class Packing(_Fractional):
    """Jobs go to GPUs in use first."""

    card: ClassVar[Card] = _fractional_card(
        "packing",
        "GPUs in use first",
        "A job goes to GPUs in use that have room, otherwise to unused GPUs of a used node, otherwise to an "
        "unused node.",
    )


class Clustering(_Fractional):
    """Jobs go to nodes that run jobs of the same size."""

    card: ClassVar[Card] = _fractional_card(
        "clustering",
        "jobs of one size together",
        "A job goes to a node that runs only jobs of its size, otherwise to a node that runs such jobs among others, "
        "otherwise to an unused node, otherwise to any node. The fuller node comes first.",
    )


class Random(_Fractional):
    """Jobs go to a random node that fits."""

    card: ClassVar[Card] = _fractional_card(
        "random", "any node that fits", "A job goes to any node and GPU that fit, chosen at random by the seed."
    )
