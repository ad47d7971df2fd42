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
            "A job gets a home when it comes: of the nodes that have room for it the least loaded one of its class, "
            "which is that of the first job there, in GPUs; else an empty one; else any. Where no node has room it "
            "goes, by the same order, to one whose jobs then ask for at most depth times its GPUs, and takes turns; "
            "where there is none it waits, and jobs behind it may pass. A gang wider than a node has its home on "
            "several. On nodes that have more jobs than GPUs the jobs that ran go to the end of the circle at each "
            "multiple of quantum, and those run who fit, in the order of the circle, all GPUs of a gang at once. With "
            "pack=on each slice pairs, on every such node, the two jobs of one size with the least utilization, on "
            "the same GPUs, where their memory fits and their speeds add to more than 1; they part as soon as there "
            "is room. With migrate=on jobs that wait for their turn move to GPUs that became free, who waits longest "
            "first. With grow=on the GPUs that a node has left over go to one job of it, which gives them back when "
            "another comes."
        ),
        parameters=(
            Parameter("slices", True, "nodes may have more jobs than GPUs, which take turns"),
            Parameter("quantum", 60.0, "length of a slice [s]", minimum=0.001),
            Parameter("depth", 4.0, "most GPUs that the jobs of a node ask for, over those it has", minimum=1),
            Parameter("pack", True, "two jobs may share GPUs on a crowded node"),
            Parameter("migrate", True, "jobs move to GPUs that became free"),
            Parameter("grow", False, "jobs use the GPUs that their node has left over"),
            Parameter("resize", 1.0, "cost of a change in the number of GPUs [s]"),
            Parameter("overhead", "gandiva", "preset of what each preemption and migration costs (M9)"),
        ),
        assumptions=("D1", "M1", "M2", "M8", "M9", "M4"),
        equal_to=(
            "With room for all: every job starts at once and none is stopped.",
            "On one node with slices=off: fifo,scan=skip.",
            "On one node with jobs of one size, all there at once, pack=off and overhead=none: equal times to a slice.",
            "With memory level 'single', where no two jobs fit a GPU: pack=off.",
        ),
        sources=(
            (
                "Xiao et al., Gandiva (OSDI'18): classes of nodes, slices of about a minute, packing under overload "
                "only, migration to vacated GPUs, growing into idle ones; as told by notes and simulators of others."
            ),
            (
                "Own choices: depth, as no trace records host memory; ties by lowest node; pairs by M1, known without "
                "trying; one new pair for a node and slice; homes of wide gangs; a job takes its turn although jobs "
                "before it in the circle do not fit; a migration costs what a preemption costs; nodes are not emptied "
                "to undo fragmentation."
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
