"""Private clusters of buddy cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import overheads, scan
from tracekit.policies.quotas import quotas
from tracekit.replay.cells.private import deal_cells
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Cells, Ordered

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["HiveD"]

_MOST = 10**9


class HiveD(Policy):
    """Guaranteed jobs in cells of their virtual cluster, opportunistic ones on idle GPUs."""

    card: ClassVar[Card] = Card(
        name="hived",
        title="each VC has its own blocks of GPUs, according to its quota (HiveD)",
        rule=(
            "Each VC owns cells. In every chain (the nodes of one GPU model and size) it owns a part in "
            "proportion to its quota, as whole nodes and, for the rest, as blocks of 1, 2, 4 ... GPUs. Quotas "
            "that exceed the cluster are scaled down; the initial quotas hold for the whole replay. A guaranteed "
            "job is placed in the cells of its VC as in a cluster of its own, in the order of submission. Its "
            "gang is rounded up to 2^k GPUs and takes the smallest free block that suffices; a larger gang takes "
            "whole cells of the largest size. With scan=skip later jobs of the VC may overtake a job that cannot "
            "start. Only when a cell is first used is it bound to real GPUs: to the smallest block of a node that "
            "no cell is bound to, and among equals to the block with the fewest GPUs in use by opportunistic "
            "jobs. Opportunistic jobs on these GPUs are stopped, as whole gangs. An idle cell is unbound. So a VC "
            "never waits for another VC, unless nodes are out of service. Opportunistic jobs run in unused blocks "
            "of GPUs, outside bound cells if possible, in the order of submission, after all guaranteed jobs that "
            "can start. They may be stopped at any time and then wait again. All jobs are guaranteed, or with "
            "opportunistic=preemptible those that the log does not mark as preemptible, or with "
            "opportunistic=priority those of at least the priority guaranteed_from. A job that does not fit in "
            "all cells of its VC together, such as a job of a VC without quota, is opportunistic, or with "
            "oversize=reject rejected. Placement is always in blocks, whatever --placement says. The column "
            "guaranteed marks the guaranteed jobs."
        ),
        parameters=(
            Parameter(
                "opportunistic",
                "none",
                "which jobs run without guarantee: none, the preemptible ones, or those of low priority",
                ("none", "preemptible", "priority"),
            ),
            Parameter(
                "guaranteed_from",
                0,
                "with opportunistic=priority, the lowest priority of a guaranteed job",
                minimum=-_MOST,
                maximum=_MOST,
            ),
            Parameter(
                "oversize",
                "opportunistic",
                "what happens to a guaranteed job that never fits in the cells of its VC",
                ("opportunistic", "reject"),
            ),
            scan("skip"),
            Parameter("overhead", "helios", "preset for the cost of each preemption and migration (M9)"),
        ),
        assumptions=("D1", "D9", "M4", "M9"),
        quotas=True,
        equal_to=(
            (
                "Guaranteed jobs: as under fifo with placement buddy and the same scan, on a cluster that has only "
                "their VC's cells."
            ),
            "With one VC that owns a cluster of equal nodes in one rack: fifo with placement buddy and the same scan.",
            "With opportunistic jobs only: fifo with placement buddy and the same scan, on any cluster.",
        ),
        sources=(
            "Zhao et al., HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees (OSDI'20).",
            "The scheduler's source, microsoft/hivedscheduler, commit 66f26ac: opportunistic jobs, choice of cells.",
            "Our choice: no cells above nodes, no priorities inside a VC, gangs rounded up, all jobs in blocks.",
        ),
    )

    @property
    def lends(self) -> bool:
        """Whether opportunistic jobs run on GPUs that VCs leave idle."""
        return bool(self.parameters["opportunistic"] != "none")

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Cells:
        """Return the cells that follow from the quotas, and which jobs they are for."""
        p = self.parameters
        table, times = quotas(jobs, cluster, models)
        names = [*jobs.tenants, "", *sorted(set(cluster.tenants) - set(jobs.tenants))]
        cells = deal_cells(cluster, names, table[max(int(np.searchsorted(times, 0, "right")) - 1, 0)])
        own = assign(jobs, cells.cluster)
        guaranteed = own.domain >= 0
        if p["opportunistic"] == "preemptible":
            guaranteed &= jobs.preemptible != 1
        elif p["opportunistic"] == "priority":
            guaranteed &= jobs.priority >= p["guaranteed_from"]
        if p["oversize"] == "opportunistic":
            guaranteed &= own.can_ever_fit("blocks")
        order = Ordered(
            by_arrival,
            scan=p["scan"],
            drift="none",
            by_tenant=True,
            overhead_ms=overheads(models, p["overhead"], jobs),
        )
        return Cells(order, cells, np.where(guaranteed, own.domain, len(names)).astype(np.int32))
