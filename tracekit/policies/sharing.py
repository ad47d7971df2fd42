"""Shortest first with two jobs on a GPU: first fit (FFS), or only if both gain (BSBF)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.replay.assumptions.of_jobs import memory_ppm, utilization_ppm
from tracekit.replay.assumptions.speeds import accumulated_memory_ppm, accumulation_ppm
from tracekit.replay.keys import shortest_left, smallest_left
from tracekit.replay.mechanisms import Sharing

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["SjfBsbf", "SjfFfs"]

_PERCENT = 10_000
_KEYS = {"srtf": shortest_left, "srsf": smallest_left}


def _parameters(most: int) -> tuple[Parameter, ...]:
    return (
        Parameter("residents", 2, "most jobs on a GPU", minimum=1, maximum=most),
        Parameter("key", "srtf", "order: remaining run time, or remaining run time times GPUs", ("srtf", "srsf")),
        Parameter("consolidate", False, "try one node, the tightest, before GPUs of several nodes"),
        Parameter("subbatch", 1, "most sub-batches that a job may use to fit next to another", maximum=4),
    )


_ROUNDED = (
    "Utilization is counted in whole percent, memory in whole percent rounded up. Jobs that are identical in both "
    "and in what they ask for wait in one line, and only the first of the line, the job with the least work, is "
    "considered; this is exact."
)
_SOURCES = (
    "Luo et al., arXiv 2407.13088, and its released testbed code: the order, the test, the choice of GPUs.",
    (
        "Own choices: ties by lowest node and job; the test uses a job's remaining work at its recorded speed; "
        "one number of sub-batches for all GPUs of a gang, the one with the smallest mean of both ends."
    ),
)


class _Shared(Policy):
    """Order by run time, sharing GPUs, never stopping a job."""

    test: ClassVar[bool]

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Sharing:
        """Return the key, and utilization and memory from the models."""
        p = self.parameters
        parts = [s for s in (1, 2, 4) if s <= p["subbatch"]]
        memory = np.stack([accumulated_memory_ppm(models, memory_ppm(models, jobs), s) for s in parts])
        return Sharing(
            _KEYS[p["key"]],
            (utilization_ppm(models, jobs) + _PERCENT // 2) // _PERCENT * _PERCENT,
            -(-memory // _PERCENT) * _PERCENT,
            speeds_ppm=tuple(int(accumulation_ppm(models, s)) for s in parts),
            strength_ppm=round(models.interference.c * 1_000_000) if models.interference.rule == "product" else -1,
            residents=p["residents"],
            test=self.test,
            consolidate=p["consolidate"],
        )


class SjfFfs(_Shared):
    """Shortest job first, sharing wherever a GPU has a seat."""

    test = False
    card: ClassVar[Card] = Card(
        name="sjf-ffs",
        title="shortest first, sharing GPUs by first fit",
        rule=(
            "Jobs start in the order of their run time. A job that cannot start is skipped, and no job is "
            "stopped. A job takes idle GPUs of the nodes with the fewest jobs if there are enough. Otherwise it "
            "takes all idle GPUs and, for the rest, GPUs with a seat and memory left, again on the nodes with the "
            "fewest jobs. Jobs on one GPU slow each other down, and a gang runs at the pace of its slowest GPU. "
            + _ROUNDED
        ),
        parameters=_parameters(8),
        assumptions=("M0", "M1", "M2", "M3", "M4"),
        equal_to=(
            "With residents=1, or if no two jobs fit in a GPU's memory: sjf,scan=skip, with gangs placed anywhere.",
        ),
        sources=_SOURCES,
    )


class SjfBsbf(_Shared):
    """Shortest job first, sharing if that is better than waiting."""

    test = True
    card: ClassVar[Card] = Card(
        name="sjf-bsbf",
        title="shortest first, sharing GPUs if the pair gains",
        rule=(
            "As sjf-ffs, but a job shares only GPUs on which one running job is alone, and only if the mean of "
            "both ends is smaller than if it waited for that job's end. The partners with the smallest mean come "
            "first. " + _ROUNDED
        ),
        parameters=_parameters(2),
        assumptions=("M0", "M1", "M2", "M3", "M4"),
        equal_to=(
            "With residents=1, or if no two jobs fit in a GPU's memory: sjf,scan=skip, with gangs placed anywhere.",
            "Without interference (c=0) it starts jobs exactly when sjf-ffs does; partners may differ.",
        ),
        sources=_SOURCES,
    )
