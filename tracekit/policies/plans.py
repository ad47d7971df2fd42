"""Policies that plan for all jobs at once: the base of their plans, and of the policies themselves."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracekit.policies.interface import Policy
from tracekit.policies.parameters import overheads
from tracekit.replay.mechanisms import Planner

if TYPE_CHECKING:
    from tracekit.array_types import Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Plan, View


class Plans:
    """Makes the plans of a policy for n jobs on one cluster, and keeps the state of one run.

    The policy's parameters `gap`, `fit`, `resize` and `overhead`, if it has them, set the fields of the planner.

    Parameters
    ----------
    p : dict
        The policy's parameters.
    jobs, cluster, models, seed
        As passed to the policy.
    """

    def __init__(self, p: dict[str, Any], jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> None:
        self.p, self.jobs, self.cluster, self.models, self.seed = p, jobs, cluster, models, seed
        self.gpus: Ints = jobs.devices.astype(np.int64)
        """GPUs that each job requests (n,)."""
        self.most: Ints = self.gpus
        """Most GPUs that each job may get (n,)."""
        self.settings: dict[str, Any] = {}
        """Fields of the planner that the parameters do not set, or set to another value."""
        self.set_up()

    def set_up(self) -> None:
        """Prepare everything that is the same in all runs."""

    def begin(self, view: View) -> None:
        """Begin a run."""

    def plan(self, view: View) -> Plan:
        """Return the plan until the next event."""
        raise NotImplementedError

    @cached_property
    def overhead_ms(self) -> Ints:
        """Cost of each preemption and migration, by number of GPUs [ms]."""
        return overheads(self.models, self.p["overhead"], self.most)

    def planner(self) -> Planner:
        """Return the planner that asks for these plans."""
        fields = {
            "gap_ms": round(self.p.get("gap", 0.0) * 1000),
            "fit": self.p.get("fit", "place"),
            "resize_ms": round(self.p.get("resize", 0.0) * 1000),
            "overhead_ms": self.overhead_ms if "overhead" in self.p else None,
        }
        return Planner(self.plan, self.begin, **(fields | self.settings))


class Planned(Policy):
    """A policy with a planner."""

    plans: ClassVar[type[Plans]]
    """Makes the plans."""

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return the planner for these jobs and this cluster."""
        return self.plans(self.parameters, jobs, cluster, models, seed).planner()
