"""GFS, as far as its rule is known: spot jobs within a forecast quota, evicted where that does least harm."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import overheads, scan
from tracekit.policies.spot_jobs import SpotJobs
from tracekit.replay.assumptions.of_jobs import classes
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["GfsLike"]


class GfsLike(Policy):
    """Guaranteed jobs at once, spot jobs within a quota."""

    card: ClassVar[Card] = Card(
        name="gfs-like",
        title="spot jobs within a quota by a forecast of guaranteed demand, evicted with least harm (after GFS)",
        rule=(
            "Guaranteed jobs start first, by submission: where no spot job is if they find a place there, else beside "
            "spot jobs, else by evicting some. Evicted are those with the least harm among all nodes: GPUs times the "
            "run time since the last checkpoint, plus `harm` for each, and half of that for a job that has run for "
            "its guaranteed time; fewer jobs between equals. For a gang of several nodes a program of whole numbers "
            "chooses the nodes. Victims wait again by submission and do their lost time again. A spot job starts on "
            "the node with most spot GPUs where it fits, while the spot GPUs of that domain and GPU model stay within "
            "the quota: factor * (GPUs there - the quantile q of the peak of guaranteed demand within the guaranteed "
            "time). Demand is what guaranteed jobs hold or wait for. Each hour it is forecast for each VC and GPU "
            "model: mean and deviation of that hour of the week in the last four weeks, or, before two are known, the "
            "demand now and the changes from hour to hour of the last day; VCs are taken for independent and the sum "
            "for normal. Then the factor is multiplied by 0.9 if more than target of the spot starts of the last day "
            "ended by eviction, else by 1.05 if a spot job has waited for longer than wait, between 0.2 and 1.2."
        ),
        parameters=(
            Parameter(
                "quota",
                "forecast",
                "how many GPUs spot jobs may have: what the forecast leaves, all that are free, or none",
                ("forecast", "all", "none"),
            ),
            Parameter("q", 0.9, "quantile of the peak of guaranteed demand [1]", minimum=0.001, maximum=0.999),
            Parameter("guarantee", 3600.0, "guaranteed time of a spot job, and how far the forecast looks [s]"),
            Parameter("factor", 1.0, "the quota's factor at first [1]", maximum=10),
            Parameter("adapt", True, "the factor follows evictions and waits"),
            Parameter("target", 0.05, "share of spot starts that may end by eviction [1]", maximum=1),
            Parameter("wait", 3600.0, "wait of a spot job from which the factor grows [s]"),
            Parameter("harm", 3600.0, "harm of an eviction beside the time lost [GPU*s]", maximum=1e9),
            Parameter("checkpoint", 1800.0, "run time between two checkpoints, 0 nothing is lost, inf all of it [s]"),
            Parameter(
                "limit",
                1000,
                "most nodes of the program's search, whose best so far then counts; without one the gang waits; 0 any "
                "number",
            ),
            scan("skip"),
            Parameter("overhead", "none", "preset of what each preemption and migration costs (M9)"),
        ),
        assumptions=("D1", "M4", "M9", "M10"),
        equal_to=(
            "Without spot jobs: fifo with the same scan.",
            "With quota=none: spot jobs never start, and the others as if there were none.",
            (
                "With quota=all, checkpoint=inf, guarantee=inf and jobs of one GPU: plain preemption by priority, in "
                "which the spot job that started last makes room and begins anew."
            ),
        ),
        sources=(
            (
                "Duan et al., GFS (ASPLOS'26, arXiv 2509.11134), abstract: a probabilistic linear forecast of each "
                "organization's demand, a spot quota with a guaranteed time, preemption with least harm."
            ),
            (
                "Own choices, as the formulas could not be read: the forecast, the quota and its factor, the harm, "
                "the placement and the order of victims. A job that takes several GPU models counts towards each by "
                "its GPUs. Which jobs are spot: preemptible ones, by M10 where the trace does not tell."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans that name the nodes of every job."""
        p = self.parameters
        spot = classes(models, jobs, seed) == 1
        # What a stopped job has to do again is told by `checkpoint`, so that M9's share of it is not charged as well.
        restarts = replace(models, overhead=replace(models.overhead, lost_work_s=0.0))
        overhead_ms = overheads(restarts, p["overhead"], jobs)
        run: SpotJobs | None = None

        def plan(view: View) -> Plan:
            nonlocal run
            if run is None or run.view is not view:
                run = SpotJobs(p, jobs, cluster, spot, overhead_ms, view)
            return run.plan(view)

        return Planner(plan, scope=0, names_nodes=True, overhead_ms=overhead_ms)
