"""Virtual clusters of private cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.build import Ordered, build, open_nodes
from tracekit.replay.engine.run import Run, Setting
from tracekit.replay.engine.state import NONE, struct_dtype
from tracekit.replay.keys import by_arrival, engine_key
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.cells.private import PrivateCells
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


@dataclass(frozen=True)
class Cells:
    """Virtual clusters (VCs) with private cells in buddy blocks. Other jobs use idle GPUs and make way."""

    order: Ordered
    """The order within a VC and among the other jobs, with `by_tenant`. Its key must not depend on values that change
    during a run, and its gangs must not relax."""
    cells: PrivateCells
    """The cells of each VC."""
    tenant: NDArray[np.int32]
    """Domain of `cells.cluster` for each job that is placed there or rejected, or the number of domains for other jobs
    (n,)."""

    @property
    def guaranteed(self) -> NDArray[np.bool_]:
        """Mask of the jobs that are placed in cells of their VC (n,)."""
        found: NDArray[np.bool_] = self.tenant < len(self.cells.cluster.domains)
        return found

    def prepare(self, setting: Setting) -> Run:
        """Return a run with private cells."""
        jobs, cluster = replace(setting.jobs, tenant=self.tenant), setting.cluster
        state = build(replace(setting, jobs=jobs), self.order, rule="buddy", kind="Cells")
        arrays = open_nodes(state, cluster)
        inside, apart, hosts = _open_cells(state, setting.jobs, cluster, self)
        private = open_nodes(inside, self.cells.cluster)
        step = partial(compiled.run_cells, arrays, private, compiled.State(apart), hosts, engine_key(self.order.key))
        return Run(state, step, self._with_column)

    def _with_column(self, outcome: Outcome) -> Outcome:
        """Add the `guaranteed` column, which is 1 if a job ran in cells of its VC."""
        return replace(outcome, columns={"guaranteed": self.guaranteed.astype(np.int64)})


def _open_cells(
    state: EngineState, jobs: Jobs, cluster: Cluster, mechanism: Cells
) -> tuple[EngineState, EngineState, Any]:
    """Prepare the state of `mechanism.order` for cells, and return the additional arrays.

    Returns
    -------
    EngineState
        The private cells, without jobs.
    EngineState
        The nodes of the run, with all GPUs of bound cells in use.
    kernel.Hosts
        The block of each cell.
    """
    private = mechanism.cells.cluster
    own = assign(jobs, private)
    # The pass needs the jobs that ended, and their allocations.
    state.g["tenants"], state.g["ended"], state.g["rung"], state.g["keeps"] = 1, NONE, NONE, 1
    state.jobs["never"] = np.where(mechanism.guaranteed, ~own.can_ever_fit("blocks"), state.jobs["never"])
    first = np.zeros(len(own.kind_devices), np.int64)
    first[own.kind[::-1]] = np.arange(len(jobs) - 1, -1, -1)
    few = jobs.rows(first)
    inside = build(
        Setting(few, private, assign(few, private)), Ordered(by_arrival, scan="skip", drift="none"), rule="buddy"
    )
    kind = np.where(mechanism.guaranteed, own.kind, NONE).astype(np.int32)
    apart = {name: getattr(state, name).copy() for name in ("g", "nodes", "domains", "bits", "tops")}
    return inside, state._replace(**apart), _hosts(state, cluster, mechanism, kind)


def _hosts(state: EngineState, cluster: Cluster, mechanism: Cells, kind: NDArray[np.int32]) -> Any:
    private, chain = mechanism.cells.cluster, mechanism.cells.chain
    chains = np.zeros(len(mechanism.cells.whole), struct_dtype("Group"))
    members = np.argsort(chain, kind="stable").astype(np.int32)
    hosts = np.zeros(cluster.nodes, struct_dtype("Host"))
    hosts["chain"], hosts["up"], hosts["changed"] = chain, state.nodes["up"], 1
    hosts["base"] = np.cumsum(cluster.gpus) - cluster.gpus
    hosts["width"] = cluster.gpus
    bits = tops = 0
    for number, row in enumerate(chains):
        low, high = np.searchsorted(chain[members], [number, number + 1])
        own = members[low:high]
        # The largest block of a node is the node itself, the next smaller 2^k, or the next larger 2^k if cells are
        # whole nodes.
        size = int(cluster.gpus[own].max(initial=1))
        level = (size - 1 if mechanism.cells.whole[number] else size >> 1).bit_length()
        row["low"], row["high"], row["words"] = low, high, (high - low + 63) // 64
        row["summary"] = (row["words"] + 63) // 64
        row["largest"], row["bits"], row["tops"] = level, bits, tops
        bits += int(row["words"]) * _rows_of(level + 1)
        tops += int(row["summary"]) * _rows_of(level + 1)
        hosts["bit"][own] = np.arange(len(own))
        if mechanism.cells.whole[number]:
            hosts["width"][own] = 1 << level
    cells = np.zeros(private.nodes, struct_dtype("Cell"))
    cells["node"], cells["chain"] = NONE, private.rack
    cells["level"] = [(int(gpus) - 1).bit_length() for gpus in private.gpus]
    c = np.zeros(1, struct_dtype("CellBook"))
    c["changed"] = cluster.nodes
    # Queues are sorted by domain, then tenant. All queues of a VC are in one domain.
    tenants, domains, vcs = state.queues["tenant"], state.queues["domain"], len(private.domains)
    tried = np.zeros((vcs, 2), np.int32)
    for vc in range(vcs):
        queues = np.flatnonzero(tenants == vc)
        tried[vc] = (queues[0], queues[-1] + 1) if len(queues) else (0, 0)
    ends = state.domains["queue_high"]
    return compiled.Hosts(
        c=c,
        hosts=hosts,
        cells=cells,
        chains=chains,
        members=members,
        bits=np.zeros(bits, np.uint64),
        tops=np.zeros(tops, np.uint64),
        rows=np.full((cluster.nodes, compiled.LEVELS), NONE, np.int16),
        changed=np.arange(cluster.nodes, dtype=np.int32),
        owner=np.full(cluster.total_gpus, NONE, np.int32),
        kind=kind,
        chain=np.full(len(kind), NONE, np.int32),
        evicted=np.zeros(min(len(kind), cluster.total_gpus), np.int32),
        tried=tried,
        others=(ends - [int(((domains == d) & (tenants == vcs)).sum()) for d in range(len(ends))]).astype(np.int32),
    )


def _rows_of(level: int) -> int:
    """Return the number of rows for the blocks below a level: one per number of GPUs from 0 to the whole block."""
    return (1 << level) - 1 + level
