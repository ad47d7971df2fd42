"""Base classes for policies that plan for all jobs at once, and for their plans."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracekit.policies.interface import Policy
from tracekit.policies.network_tiers import place_rows
from tracekit.policies.parameters import overheads
from tracekit.replay.assumptions.speeds import PPM
from tracekit.replay.mechanisms import Plan, Planner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.array_types import Ints
    from tracekit.policies.network_tiers import Spot
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import View


class Plans:
    """Makes the plans of a policy for n jobs on one cluster, and keeps the state of one run.

    The policy's parameters `gap`, `fit`, `resize` and `overhead`, if present, set fields of the planner.

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
        """Maximum GPUs of each job (n,)."""
        self.settings: dict[str, Any] = {}
        """Planner fields that the parameters do not set, or that override them."""
        self.set_up()

    def set_up(self) -> None:
        """Prepare everything that all runs share."""

    def begin(self, view: View) -> None:
        """Begin a run."""

    def plan(self, view: View) -> Plan:
        """Return the plan until the next event."""
        raise NotImplementedError

    def written(
        self, stopped: Sequence[int], rates: Mapping[int, int], spots: Mapping[int, Spot], wake_ms: int, **more: Any
    ) -> Plan:
        """Return the plan that changes only these jobs.

        Parameters
        ----------
        stopped : sequence of int
            Jobs that stop.
        rates : mapping
            Speed of each other job with the GPUs that it requests [ppm].
        spots : mapping
            Nodes and GPUs of the jobs that start or move; these jobs also have an entry in `rates`.
        wake_ms : int
            Time of the next plan if no event occurs, or -1 for never [ms].
        **more
            Other columns of the plan.
        """
        job = np.array([*stopped, *rates], np.int64)
        gpus = np.where(np.arange(len(job)) < len(stopped), 0, self.gpus[job])
        rate = np.array([*[PPM] * len(stopped), *rates.values()], np.int64)
        index = {j: at for at, j in enumerate(rates, len(stopped))}
        place = place_rows((index[j], spot) for j, spot in spots.items())
        return Plan(job, gpus, rate=rate, place=place, keep=True, wake_ms=wake_ms, **more)

    @cached_property
    def overhead_ms(self) -> Ints:
        """Cost of each preemption and migration, by number of GPUs [ms]."""
        return overheads(self.models, self.p["overhead"], self.most)

    def planner(self) -> Planner:
        """Return the planner that requests these plans."""
        fields = {
            "gap_ms": round(self.p.get("gap", 0.0) * 1000),
            "fit": self.p.get("fit", "place"),
            "resize_ms": round(self.p.get("resize", 0.0) * 1000),
            "overhead_ms": self.overhead_ms if "overhead" in self.p else None,
        }
        return Planner(self.plan, self.begin, **(fields | self.settings))


class Planned(Policy):
    """A policy with a planner, which ignores partitions."""

    keeps_partitions: ClassVar[bool] = False

    plans: ClassVar[type[Plans]]
    """Makes the plans."""

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return the planner for these jobs and this cluster."""
        return self.plans(self.parameters, jobs, cluster, models, seed).planner()
