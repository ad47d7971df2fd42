"""The arrays that a run with private cells needs in addition to the engine's state."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay import kernel
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.ordered import Ordered
from tracekit.replay.engine.setting import Run, Setting
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import LEVELS, NONE
from tracekit.replay.keys import by_arrival, engine_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.cells.mechanism import Cells
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


class Hosts(NamedTuple):
    """The block to which each private cell is bound, and the jobs that must make way."""

    c: NDArray[Any]
    """CellBook (1,): how far the arrays are current."""
    hosts: NDArray[Any]
    """Host of each node (N,)."""
    cells: NDArray[Any]
    """Cell of each private cell (P,)."""
    chains: NDArray[Any]
    """Group of each chain: its nodes are places in `members`, its `largest` is the level of its largest cell (C,)."""
    members: NDArray[np.int32]
    """Nodes, grouped by chain (N,)."""
    bits: NDArray[np.uint64]
    """One bit per node for each level and number of GPUs that must make way."""
    tops: NDArray[np.uint64]
    """One bit per word of `bits`."""
    rows: NDArray[np.int16]
    """Row of each node at each level, -1 if none (N, 7)."""
    changed: NDArray[np.int32]
    """Nodes whose rows are out of date (N,)."""
    owner: NDArray[np.int32]
    """Job without a cell of its own on each GPU, -1 if none."""
    kind: NDArray[np.int32]
    """Job of the private state that represents each job, -1 if it has no cells (n,)."""
    chain: NDArray[np.int32]
    """First link of the private cells that each running job holds (n,)."""
    evicted: NDArray[np.int32]
    """Jobs evicted in this pass."""
    tried: NDArray[np.int32]
    """First and last queue of each VC (T, 2)."""
    others: NDArray[np.int32]
    """First queue of jobs without cells in each domain (D,)."""


def prepare(mechanism: Cells, setting: Setting) -> Run:
    """Return a run with private cells."""
    jobs, cluster = replace(setting.jobs, tenant=mechanism.tenant), setting.cluster
    state = build(replace(setting, jobs=jobs), mechanism.order, rule="buddy", kind="Cells")
    arrays = open_nodes(state, cluster)
    inside, apart, hosts = _open_cells(state, setting.jobs, cluster, mechanism)
    private = open_nodes(inside, mechanism.cells.cluster)
    step = partial(
        kernel.run_cells, arrays, private, kernel.State(apart), kernel.Hosts(hosts), engine_key(mechanism.order.key)
    )
    return Run(state, step, partial(_columns, mechanism))


def _open_cells(
    state: EngineState, jobs: Jobs, cluster: Cluster, mechanism: Cells
) -> tuple[EngineState, EngineState, Hosts]:
    """Prepare the state of `mechanism.order` for cells, and return the additional arrays.

    Returns
    -------
    EngineState
        The private cells, without jobs.
    EngineState
        The nodes of the run, with all GPUs of bound cells in use.
    Hosts
        The block of each cell.
    """
    private = mechanism.cells.cluster
    own = assign(jobs, private)
    # The pass needs to know which jobs ended, and what they held.
    state.g["tenants"], state.g["ended"], state.g["rung"], state.g["keeps"] = 1, NONE, NONE, 1
    state.jobs["never"] = np.where(mechanism.guaranteed, ~own.can_ever_fit("blocks"), state.jobs["never"])
    first = np.zeros(len(own.kind_devices), np.int64)
    first[own.kind[::-1]] = np.arange(len(jobs) - 1, -1, -1)
    few = _few(jobs, first)
    inside = build(
        Setting(few, private, assign(few, private)), Ordered(by_arrival, scan="skip", drift="none"), rule="buddy"
    )
    kind = np.where(mechanism.guaranteed, own.kind, NONE).astype(np.int32)
    apart = {name: getattr(state, name).copy() for name in ("g", "nodes", "domains", "bits", "tops")}
    return inside, state._replace(**apart), _hosts(state, cluster, mechanism, kind)


def _columns(mechanism: Cells, outcome: Outcome) -> Outcome:
    """Add the column `guaranteed`: 1 if a job ran in cells of its VC."""
    return replace(outcome, columns={"guaranteed": mechanism.guaranteed.astype(np.int64)})


def _few(jobs: Jobs, index: NDArray[np.int64]) -> Jobs:
    """Return some of the jobs."""
    arrays = {field.name: getattr(jobs, field.name) for field in fields(jobs)}
    chosen: dict[str, Any] = {name: array[index] for name, array in arrays.items() if isinstance(array, np.ndarray)}
    return replace(jobs, job_id=jobs.job_id.gather(index), **chosen)


def _hosts(state: EngineState, cluster: Cluster, mechanism: Cells, kind: NDArray[np.int32]) -> Hosts:
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
        # The largest block of a node: the node itself, the next smaller 2^k, or the next larger if cells are whole
        # nodes.
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
    # Queues are sorted by domain, then tenant; all queues of a VC are in one domain.
    tenants, domains, vcs = state.queues["tenant"], state.queues["domain"], len(private.domains)
    tried = np.zeros((vcs, 2), np.int32)
    for vc in range(vcs):
        queues = np.flatnonzero(tenants == vc)
        tried[vc] = (queues[0], queues[-1] + 1) if len(queues) else (0, 0)
    ends = state.domains["queue_high"]
    return Hosts(
        c=c,
        hosts=hosts,
        cells=cells,
        chains=chains,
        members=members,
        bits=np.zeros(bits, np.uint64),
        tops=np.zeros(tops, np.uint64),
        rows=np.full((cluster.nodes, LEVELS), NONE, np.int16),
        changed=np.arange(cluster.nodes, dtype=np.int32),
        owner=np.full(cluster.total_gpus, NONE, np.int32),
        kind=kind,
        chain=np.full(len(kind), NONE, np.int32),
        evicted=np.zeros(min(len(kind), cluster.total_gpus), np.int32),
        tried=tried,
        others=(ends - [int(((domains == d) & (tenants == vcs)).sum()) for d in range(len(ends))]).astype(np.int32),
    )


def _rows_of(level: int) -> int:
    """Return how many rows the blocks below a level need: one for each number of GPUs from 0 to the whole block."""
    return (1 << level) - 1 + level
