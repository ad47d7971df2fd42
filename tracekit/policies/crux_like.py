"""Crux, as far as a replay of jobs can show it: gangs that compute much for their traffic go first on links."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.gangs import Gangs
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.network_parameters import GAP, gangs_and_links
from tracekit.policies.parameters import scan
from tracekit.replay.assumptions.network import ring_s, traffic_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.places import Spot
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Planner

__all__ = ["CruxLike", "intensity"]


def intensity(models: Models, jobs: Jobs, seed: int) -> NDArray[np.float64]:
    """Return the GPU time of an iteration over the time that its traffic takes on a node's link, alone (n,).

    Infinite where there is no traffic.
    """
    message_mb, compute_s = traffic_of(models, jobs, seed)
    sends = ring_s(message_mb, jobs.devices, models.links.gbit.node_gbit)
    endless = np.full(len(jobs), np.inf)
    found: NDArray[np.float64] = np.divide(jobs.devices * compute_s, sends, out=endless, where=sends > 0)
    return found


class _Nearest(Gangs):
    """Gangs on the nearest GPUs there are."""

    def choose(self, job: int) -> Spot | None:
        """Return the nearest GPUs."""
        return self.nearest(job)


class CruxLike(Policy):
    """Links by the intensity of gangs."""

    card: ClassVar[Card] = Card(
        name="crux-like",
        title="gangs that compute much for their traffic go first on links (after Crux)",
        rule=(
            "Jobs start in the order of their submission, on the fewest nodes of a rack if they can, else on nodes of "
            "one rack, else on any nodes of one GPU model, and run to their end; with scan=skip later jobs may pass "
            "one that cannot. With priority=intensity the gangs on a link send in the order of their intensity: GPUs "
            "times the computing of an iteration over the time of its traffic on a node's link. The first has the "
            "whole link, and everybody later what is left of it by the part of an iteration in which each before it "
            "sends, at least the part of M38; over links in parallel these parts spread evenly. With levels, "
            "intensities within a factor of two are one priority, so many from the highest job of the list down, and "
            "the earlier job goes first inside one. With priority=none gangs share links evenly. Where racks are not "
            "known there is one, and gangs wider than a tier send beyond it."
        ),
        parameters=(
            Parameter("priority", "intensity", "who goes first on a link", ("intensity", "none")),
            Parameter("levels", 8, "priorities that links know, 0 as many as jobs", maximum=64),
            scan("skip"),
            GAP,
        ),
        assumptions=("D1", "M36", "M37", "M38"),
        equal_to=(
            "With priority=none and gap=0: delay-scheduling,rack=0,any=0, scan alike.",
            "Where no two gangs share a link: priority makes no difference.",
            "With jobs of one GPU and gap=0: fifo,scan=skip.",
        ),
        sources=(
            "Cao et al., Crux (SIGCOMM'24), abstract: priority on links by GPU intensity.",
            (
                "Own choices: intensity by the assumed traffic and one link speed, so that it does not depend on the "
                "place; levels of a factor of two; what a lower priority has left; no choice of paths and no shift of "
                "iterations in time, which a replay of jobs cannot show."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans in order of submission."""
        p = self.parameters
        priority = None
        if p["priority"] == "intensity":
            priority = intensity(models, jobs, seed)
            if p["levels"]:
                priority = _levels(priority, p["levels"])
        places, network = gangs_and_links(jobs, cluster, models, seed, priority)
        return _Nearest(jobs, places, network, models, stop=p["scan"] == "stop").planner(p["gap"])


def _levels(values: NDArray[np.float64], levels: int) -> NDArray[np.float64]:
    """Return priorities 0 to levels - 1, the highest for the largest finite value and for infinite ones."""
    finite = values[np.isfinite(values) & (values > 0)]
    if not len(finite):
        return np.full(len(values), levels - 1.0)
    below = np.floor(np.log2(finite.max() / np.clip(values, finite.min(), finite.max())))
    found: NDArray[np.float64] = np.maximum(levels - 1 - below, 0.0)
    return found
