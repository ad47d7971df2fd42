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
    """Guaranteed jobs in cells of their virtual cluster, opportunistic ones on what is idle."""

    card: ClassVar[Card] = Card(
        name="hived",
        title="each VC has blocks of GPUs of its own, as many as its quota says (HiveD)",
        rule=(
            "Each VC owns cells: of every chain, the nodes of one GPU model and size, a part in proportion to its "
            "quota, as whole nodes and, for the rest, as blocks of 1, 2, 4 ... GPUs. Quotas beyond the cluster are "
            "scaled down, and those that hold first hold always. A guaranteed job is placed in the cells of its VC "
            "as in a cluster of its own, in the order of submission: its gang, rounded up to 2^k GPUs, takes the "
            "smallest free block that suffices, a larger one whole cells of the largest size; with scan=skip later "
            "jobs of the VC may pass one that cannot start. Only then is a cell that is used for the first time "
            "bound, to the smallest block of a real node that no cell is bound to, of equals the one with the "
            "fewest GPUs in use by opportunistic jobs; opportunistic jobs on the GPUs that the job takes are "
            "stopped, as whole gangs. An idle cell is unbound. So a VC waits for no other, except for want of "
            "nodes that are away. Opportunistic jobs run "
            "in blocks of GPUs that nobody uses, outside bound cells if possible, in the order of submission, after"
            " all guaranteed jobs that can start; they may be stopped at any time and wait again. All jobs are "
            "guaranteed, or with opportunistic=preemptible those that the log does not call preemptible, or with "
            "opportunistic=priority those of at least the priority guaranteed_from. A job that all cells of its VC "
            "together could not hold, such as one of a VC without quota, is opportunistic, or with oversize=reject "
            "rejected. Placement is always in blocks, whatever --placement says. The column guaranteed marks which "
            "jobs were."
        ),
        parameters=(
            Parameter(
                "opportunistic",
                "none",
                "which jobs run without guarantee: none, those that may be preempted, or those of low priority",
                ("none", "preemptible", "priority"),
            ),
            Parameter(
                "guaranteed_from",
                0,
                "with opportunistic=priority, the least priority of a guaranteed job",
                minimum=-_MOST,
                maximum=_MOST,
            ),
            Parameter(
                "oversize",
                "opportunistic",
                "what becomes of a guaranteed job that the cells of its VC could never hold",
                ("opportunistic", "reject"),
            ),
            scan("skip"),
            Parameter("overhead", "helios", "preset of what each preemption and migration costs (M9)"),
        ),
        assumptions=("D1", "D9", "M4", "M9"),
        quotas=True,
        equal_to=(
            "Guaranteed jobs: as with fifo, placement buddy and the same scan on a cluster of their VC's cells alone.",
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
        """Whether opportunistic jobs run on what VCs leave idle."""
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
