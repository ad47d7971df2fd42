"""The state of shared GPUs: the jobs on each GPU, and the nodes that have idle GPUs or GPUs with a free seat.

A GPU has seats for a fixed number of jobs, whose memory must fit into the GPU. The engine's own node index counts idle
GPUs as free, so a shared GPU counts as busy once. In addition, this module lists nodes by their number of jobs: one bit
per node for each group and number of jobs, in one table for nodes with idle GPUs and in another for nodes with open
GPUs (at least one job and one free seat). Nodes that left the cluster are not listed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay import kernel
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.ordered import Ordered
from tracekit.replay.engine.setting import Run
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import NONE
from tracekit.replay.keys import engine_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.setting import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.sharing.mechanism import Sharing


_WHOLE = 1_000_000
"""The memory of a GPU [ppm]."""


class Residents(NamedTuple):
    """The arrays that shared GPUs need in addition to `EngineState`."""

    g: NDArray[Any]
    """SharedGlobals (1,): seats per GPU, the policy's settings, sizes."""
    jobs: NDArray[Any]
    """SharedJob (n,): utilization [ppm], held GPUs, number of GPUs held alone, place among the candidates."""
    gpus: NDArray[Any]
    """SharedGpu: all GPUs, grouped by node; the jobs on each and the memory that they hold [ppm]."""
    seats: NDArray[np.int32]
    """Jobs on each GPU in order of arrival (GPUs * seats)."""
    nodes: NDArray[Any]
    """SharedNode (N,): first GPU, jobs on it, open GPUs."""
    groups: NDArray[Any]
    """SharedGroup (G,): idle and open GPUs of the available nodes, positions in the bit tables."""
    domains: NDArray[Any]
    """Candidates (D,): the range of each domain in `candidates`."""
    candidates: NDArray[np.int32]
    """Jobs of each domain that hold a GPU alone."""
    heads: NDArray[Any]
    """Head of each queue: its first job, and an upper bound of the GPUs that it could get."""
    held: NDArray[Any]
    """Held: the GPUs of running jobs, as linked lists in allocation order; unused ones from SharedGlobals.free_held."""
    bits: NDArray[np.uint64]
    """One bit per node by kind, group and number of jobs (2, ...)."""
    counts: NDArray[np.int32]
    """Number of bits set, by kind, group and number of jobs (2, ...)."""
    memory: NDArray[np.int32]
    """Memory of each job by sub-batches [ppm of the GPU's memory] (S, n)."""
    speeds: NDArray[np.int64]
    """Speed by sub-batches [ppm] (S,)."""
    chosen: NDArray[np.int32]
    """GPUs chosen for a job."""
    partners: NDArray[Any]
    """Heap of partners for a job, by mean end."""
    partner_at: NDArray[np.int32]
    """Position of each job in `partners`, -1 if none (n,)."""
    pairs: NDArray[np.int64]
    """Buffer for the speeds next to each job of a GPU."""


def prepare(mechanism: Sharing, setting: Setting) -> Run:
    """Return a run in which jobs share GPUs."""
    state = _state(mechanism, setting)
    arrays = open_nodes(state, setting.cluster)
    shared = kernel.Residents(residents(state, mechanism))
    kernel.list_all(arrays, shared)
    return Run(state, partial(kernel.run_shared, arrays, shared, engine_key(mechanism.key)))


def _state(mechanism: Sharing, setting: Setting) -> EngineState:
    """Return the state for a policy that shares GPUs: jobs of equal memory and utilization share a queue."""
    kinds = np.column_stack([mechanism.utilization_ppm * mechanism.test, np.atleast_2d(mechanism.memory_ppm)[0]])
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    # A gang may use any nodes of one model.
    order = Ordered(mechanism.key, scan="skip", drift="none", by_tenant=True, scopes=(2,))
    alike = replace(setting.jobs, tenant=kind.reshape(-1).astype(np.int32))
    state = build(replace(setting, jobs=alike), order, rule="consolidate", kind="Sharing")
    state.g["shared"], state.g["ended"] = 1, NONE
    most = min(len(alike), int(setting.cluster.gpus.sum()) * mechanism.residents)
    return state._replace(events=np.zeros(most, struct_dtype("Entry")))


def residents(state: EngineState, mechanism: Sharing) -> Residents:
    """Return the state of shared GPUs before the first instant, with no node listed."""
    n = len(state.jobs)
    gpus = state.nodes["gpus"].astype(np.int64)
    total = int(gpus.sum())
    memory = np.atleast_2d(np.asarray(mechanism.memory_ppm, np.int32))
    least = np.sort(memory.min(axis=0))[:2]
    # If no two jobs fit together, none shares, and the search for partners can be skipped.
    seats = mechanism.residents if len(least) == 2 and least.sum() <= _WHOLE else 1
    g = np.zeros(1, struct_dtype("SharedGlobals"))
    g["seats"], g["strength"], g["test"] = seats, mechanism.strength_ppm, mechanism.test
    g["consolidate"] = mechanism.consolidate
    g["away"] = len(state.changes) > 0 or (state.nodes["up"] == 0).any()
    jobs = np.zeros(n, struct_dtype("SharedJob"))
    jobs["utilization"] = mechanism.utilization_ppm
    jobs["held"] = jobs["place"] = jobs["mark"] = NONE
    cells = np.zeros(total, struct_dtype("SharedGpu"))
    cells["node"] = np.repeat(np.arange(len(gpus)), gpus)
    nodes = np.zeros(len(gpus), struct_dtype("SharedNode"))
    nodes["first"] = np.cumsum(gpus) - gpus
    nodes["mark"] = NONE
    groups = np.zeros(len(state.groups), struct_dtype("SharedGroup"))
    groups["most"] = state.groups["largest"] * seats
    rows = groups["most"] + 1
    groups["count"] = np.cumsum(rows) - rows
    words = rows * state.groups["words"]
    groups["row"] = np.cumsum(words) - words
    g["most"] = groups["most"].max(initial=0)
    domains = np.zeros(len(state.domains), struct_dtype("Candidates"))
    domain_of = state.groups["domain"][state.nodes["group"]]
    base = np.bincount(domain_of, weights=gpus, minlength=len(domains)).astype(np.int64)
    domains["base"] = np.cumsum(base) - base
    heads = np.zeros(len(state.queues), struct_dtype("Head"))
    heads["job"] = NONE
    held = np.zeros(total * seats + 1, struct_dtype("Held"))
    held["next"] = np.arange(1, len(held) + 1)
    held["next"][-1] = NONE
    return Residents(
        g=g,
        jobs=jobs,
        gpus=cells,
        seats=np.full(total * seats, NONE, np.int32),
        nodes=nodes,
        groups=groups,
        domains=domains,
        candidates=np.zeros(total, np.int32),
        heads=heads,
        held=held,
        bits=np.zeros((2, int(words.sum())), np.uint64),
        counts=np.zeros((2, int(rows.sum())), np.int32),
        memory=memory,
        speeds=np.asarray(mechanism.speeds_ppm, np.int64),
        chosen=np.zeros(total, np.int32),
        partners=np.zeros(total, struct_dtype("Entry")),
        partner_at=np.full(n, NONE, np.int32),
        pairs=np.zeros(max(seats, 2), np.int64),
    )
