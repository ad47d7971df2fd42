"""Jobs that share whole GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.engine.build import Ordered, build, open_nodes
from tracekit.replay.engine.run import Run
from tracekit.replay.engine.state import NONE, struct_dtype
from tracekit.replay.keys import engine_key
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.run import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.keys import Key


@dataclass(frozen=True)
class Sharing:
    """Jobs start in the order of a key, on idle GPUs or else next to other jobs. They are never stopped.

    Jobs on one GPU slow each other down (M1), and a gang runs at the speed of its slowest GPU. A waiting job that
    cannot start is skipped. Jobs with the same class, utilization and memory share a queue, so utilization and memory
    should have few distinct values.
    """

    key: Key
    """A function like those of `replay.keys`. Among jobs of one size, it grows with the run time."""
    utilization_ppm: NDArray[np.int64]
    """GPU utilization of each job (n,) [ppm]."""
    memory_ppm: NDArray[np.int64]
    """Memory of each job on each of its GPUs, by number of sub-batches (S, n), or (n,) [ppm of the GPU's memory]."""
    speeds_ppm: tuple[int, ...] = (1_000_000,)
    """Speed by number of sub-batches (S,), starting with the undivided batch [ppm]."""
    strength_ppm: int = 500_000
    """Coefficient c of M1 [ppm], or -1 for the rule 'sum' (D5)."""
    residents: int = 2
    """Largest number of jobs per GPU, whose memory must fit into the GPU. 1 means that no GPU is shared."""
    test: bool = True
    """Whether a job shares only if that gives both jobs a lower mean end time than waiting. Then at most two jobs share
    a GPU."""
    consolidate: bool = False
    """Whether to try the one node with the tightest fit before GPUs of the nodes with the fewest jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which jobs share GPUs."""
        state = _state(self, setting)
        arrays = open_nodes(state, setting.cluster)
        shared = residents(state, self)
        compiled.list_all(arrays, shared)
        return Run(state, partial(compiled.run_shared, arrays, shared, engine_key(self.key)))


# The state of shared GPUs: the jobs on each GPU, and the nodes that have idle GPUs or GPUs with a free seat.
#
# A GPU has seats for a fixed number of jobs, whose memory must fit into the GPU. In the engine's node index, idle GPUs
# are free, so a shared GPU counts as busy once. This module also lists nodes by their number of jobs, with one bit per
# node for each group and number of jobs: one table for nodes with idle GPUs, one for nodes with open GPUs (at least one
# job and one free seat). It does not list nodes that left the cluster.

_WHOLE = 1_000_000
"""The memory of a GPU [ppm]."""


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


def residents(state: EngineState, mechanism: Sharing) -> Any:
    """Return the state of shared GPUs before the first instant, with no node listed."""
    n = len(state.jobs)
    gpus = state.nodes["gpus"].astype(np.int64)
    total = int(gpus.sum())
    memory = np.atleast_2d(np.asarray(mechanism.memory_ppm, np.int32))
    least = np.sort(memory.min(axis=0))[:2]
    # If no two jobs fit together, skip the search for partners: no job shares a GPU.
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
    return compiled.Residents(
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
