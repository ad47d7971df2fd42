"""Gandiva: time slices on nodes that have more jobs than GPUs, packing, migration, growing and shrinking."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.gandiva_run import GandivaRun
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.speeds import elastic_bounds
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Gandiva"]


class Gandiva(Policy):
    """Time slices, packing, migration."""

    card: ClassVar[Card] = Card(
        name="gandiva",
        title="time slices on crowded nodes, with packing and migration",
        rule=(
            "A job gets a home on arrival. Of the nodes with room for it, this is the least loaded node of its "
            "class (the class of a node is the size of its first job, in GPUs), otherwise an empty node, "
            "otherwise any node. If no node has room, the job goes, by the same order, to a node whose jobs then "
            "ask for at most depth times its GPUs, and takes turns there. If there is no such node it waits, and "
            "later jobs may overtake it. A gang wider than a node has its home on several nodes. On nodes that "
            "have more jobs than GPUs, the jobs that ran go to the end of the circle at each multiple of quantum, "
            "and the jobs that fit run next, in the order of the circle, all GPUs of a gang at once. With pack=on "
            "each slice pairs, on every such node, the two jobs of one size with the lowest utilization on the "
            "same GPUs, if their memory fits and their speeds add up to more than 1; they separate as soon as "
            "there is room. With migrate=on jobs that wait for their turn move to GPUs that become free, the "
            "longest wait first. With grow=on the spare GPUs of a node go to one of its jobs, which gives them "
            "back when another job comes."
        ),
        parameters=(
            Parameter("slices", True, "nodes may have more jobs than GPUs; the jobs take turns"),
            Parameter("quantum", 60.0, "length of a slice [s]", minimum=0.001),
            Parameter(
                "depth",
                4.0,
                "most GPUs that the jobs of a node may ask for, relative to the GPUs of the node",
                minimum=1,
            ),
            Parameter("pack", True, "two jobs may share GPUs on a crowded node"),
            Parameter("migrate", True, "jobs move to GPUs that become free"),
            Parameter("grow", False, "jobs use the spare GPUs of their node"),
            Parameter("resize", 1.0, "cost of changing the number of GPUs [s]"),
            Parameter("overhead", "gandiva", "preset for the cost of each preemption and migration (M9)"),
        ),
        assumptions=("D1", "M1", "M2", "M8", "M9", "M4"),
        equal_to=(
            "If all jobs fit: every job starts at once and none is stopped.",
            "On one node with slices=off: fifo,scan=skip.",
            (
                "On one node with jobs of one size, all submitted at once, pack=off and overhead=none: equal times, "
                "to within a slice."
            ),
            "With memory level 'single', if no two jobs fit on a GPU: pack=off.",
        ),
        sources=(
            (
                "Xiao et al., Gandiva (OSDI'18): classes of nodes, slices of about a minute, packing only under "
                "overload, migration to vacated GPUs, growing into idle ones; from other people's notes and "
                "simulators."
            ),
            (
                "Own choices: depth, because no trace records host memory; ties by lowest node; pairs by M1, "
                "known without trying; one new pair per node and slice; homes of wide gangs; a job takes its turn "
                "even if earlier jobs in the circle do not fit; a migration costs what a preemption costs; nodes "
                "are not emptied to undo fragmentation."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans at events and slices."""
        run: GandivaRun | None = None

        def plan(view: View) -> Plan:
            nonlocal run
            if run is None or run.view is not view:
                run = GandivaRun(self.parameters, jobs, cluster, models, view)
            return run.plan(view)

        p = self.parameters
        _, high = elastic_bounds(models, jobs.devices)
        return Planner(
            plan,
            overhead_ms=overhead_ms(models, p["overhead"], np.arange(int(high.max(initial=1)) + 1)),
            resize_ms=round(p["resize"] * 1000),
            names_nodes=True,
            share=2 if p["pack"] else 1,
        )
