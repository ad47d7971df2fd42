"""Who sits on each GPU, and which nodes have idle GPUs or GPUs with a seat left: the state of shared GPUs.

A GPU has seats for a fixed number of jobs, whose memory adds up to at most the whole. The engine's own index of nodes
counts idle GPUs as free, so that a shared GPU is busy once. Beside it nodes are listed here by the number of jobs on
them: one bit a node for each group and number of jobs, in one table for nodes with idle GPUs and in another for nodes
with open ones (with at least one job and at least one seat left). Nodes that left the cluster are not listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay.engine.compiled import compiled, count_trailing_zeros, inner
from tracekit.replay.engine.nodes import NONE, take_gpus
from tracekit.replay.engine.state import PPM, records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import State
    from tracekit.replay.mechanisms import Sharing

__all__ = ["IDLE", "OPEN", "Residents", "gather", "list_node", "residents", "seat", "seats_of_node", "unlist", "unseat"]

IDLE, OPEN = range(2)
"""Kinds of GPUs: without a job; with one at least and a seat left."""

_FIELDS = {
    "JOB": "mark:i8 utilization:i8 held:i4 alone:i4 place:i4 model:i4 step:i4",
    "GPU": "node:i4 jobs:i4 memory:i4",
    "NODE": "mark:i8 first:i4 jobs:i4 open:i4 listed:i4",
    "GROUP": "idle:i8 open:i8 row:i8 count:i8 most:i8",
    "DOMAIN": "base:i8 size:i8",
    "HEAD": "job:i8 bound:i8",
    "HELD": "gpu:i4 next:i4",
    "GLOBAL": """seats:i8 strength:i8 test:i8 consolidate:i8 free_held:i8 chosen:i8 change:i8 away:i8 most:i8
        alone:i8 work:i8 partners:i8""",
}
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


class Residents(NamedTuple):
    """The arrays of shared GPUs, beside those of `State`."""

    g: NDArray[Any]
    """GLOBAL (1,): seats of a GPU, the policy's settings, sizes."""
    jobs: NDArray[Any]
    """JOB (n,): utilization [ppm], what it holds, how many GPUs it holds alone, place among the candidates."""
    gpus: NDArray[Any]
    """GPU: every GPU, those of a node side by side; its jobs and the memory that they hold [ppm]."""
    seats: NDArray[np.int32]
    """Jobs of each GPU in order of arrival (GPUs * seats)."""
    nodes: NDArray[Any]
    """NODE (N,): first GPU, jobs on it, open GPUs."""
    groups: NDArray[Any]
    """GROUP (G,): idle and open GPUs of the nodes that are there, places in the tables of bits."""
    domains: NDArray[Any]
    """DOMAIN (D,): the stretch of `candidates`."""
    candidates: NDArray[np.int32]
    """Jobs of each domain that hold a GPU alone."""
    heads: NDArray[Any]
    """HEAD of each queue: its first job, and a number that the GPUs it could have do not exceed."""
    held: NDArray[Any]
    """HELD: the GPUs of running jobs, as chains in the order of taking; unused ones from GLOBAL.free_held."""
    bits: NDArray[np.uint64]
    """One bit a node by kind, group and number of jobs (2, ...)."""
    counts: NDArray[np.int32]
    """How many bits are set, by kind, group and number of jobs (2, ...)."""
    memory: NDArray[np.int32]
    """Memory of each job by sub-batches [ppm of a GPU's] (S, n)."""
    speeds: NDArray[np.int64]
    """Speed by sub-batches [ppm] (S,)."""
    chosen: NDArray[np.int32]
    """GPUs chosen for a job."""
    partners: NDArray[Any]
    """Heap of partners for a job, by mean end."""
    partner_at: NDArray[np.int32]
    """Position of each job in `partners`, -1 none (n,)."""
    pairs: NDArray[np.int64]
    """Room for the speeds beside each of a GPU's jobs."""


def _records(name: str) -> np.dtype[np.void]:
    pairs = [field.split(":") for field in _FIELDS[name].split()]
    return np.dtype([(field, kind) for field, kind in pairs], align=True)


def residents(state: State, mechanism: Sharing) -> Residents:
    """Return the state of shared GPUs before the first instant, nodes that are there listed."""
    n = len(state.jobs)
    gpus = state.nodes["gpus"].astype(np.int64)
    total = int(gpus.sum())
    memory = np.atleast_2d(np.asarray(mechanism.memory_ppm, np.int32))
    least = np.sort(memory.min(axis=0))[:2]
    # Where no two jobs fit together, nobody shares: the search for partners can be left out.
    seats = mechanism.residents if len(least) == 2 and least.sum() <= PPM else 1
    g = np.zeros(1, _records("GLOBAL"))
    g["seats"], g["strength"], g["test"] = seats, mechanism.strength_ppm, mechanism.test
    g["consolidate"] = mechanism.consolidate
    g["away"] = len(state.changes) > 0 or (state.nodes["up"] == 0).any()
    jobs = np.zeros(n, _records("JOB"))
    jobs["utilization"] = mechanism.utilization_ppm
    jobs["held"] = jobs["place"] = jobs["mark"] = NONE
    cells = np.zeros(total, _records("GPU"))
    cells["node"] = np.repeat(np.arange(len(gpus)), gpus)
    nodes = np.zeros(len(gpus), _records("NODE"))
    nodes["first"] = np.cumsum(gpus) - gpus
    nodes["mark"] = NONE
    groups = np.zeros(len(state.groups), _records("GROUP"))
    groups["most"] = state.groups["largest"] * seats
    rows = groups["most"] + 1
    groups["count"] = np.cumsum(rows) - rows
    words = rows * state.groups["words"]
    groups["row"] = np.cumsum(words) - words
    g["most"] = groups["most"].max(initial=0)
    domains = np.zeros(len(state.domains), _records("DOMAIN"))
    domain_of = state.groups["domain"][state.nodes["group"]]
    base = np.bincount(domain_of, weights=gpus, minlength=len(domains)).astype(np.int64)
    domains["base"] = np.cumsum(base) - base
    heads = np.zeros(len(state.queues), _records("HEAD"))
    heads["job"] = NONE
    held = np.zeros(total * seats + 1, _records("HELD"))
    held["next"] = np.arange(1, len(held) + 1)
    held["next"][-1] = NONE
    found = Residents(
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
        partners=np.zeros(total, records("HEAP")),
        partner_at=np.full(n, NONE, np.int32),
        pairs=np.zeros(max(seats, 2), np.int64),
    )
    _list_all(state, found)
    return found


@compiled
def _list_all(s: Any, r: Any) -> None:
    for node in range(len(s.nodes)):
        list_node(s, r, node)


@inner
def _flip(r: Any, kind: int, group: Any, shared: Any, node: Any, jobs: int, step: int) -> None:
    bit = _ONE << np.uint64(node.bit & 63)
    word = shared.row + jobs * group.words + (node.bit >> 6)
    r.bits[kind, word] ^= bit
    r.counts[kind, shared.count + jobs] += step


@inner
def list_node(s: Any, r: Any, index: int) -> None:
    """Enter a node that is there into the tables."""
    node = s.nodes[index]
    if node.up == 0:
        return
    mine = r.nodes[index]
    mine.listed = 1
    shared = r.groups[node.group]
    shared.idle += node.free
    shared.open += mine.open
    if node.free > 0:
        _flip(r, IDLE, s.groups[node.group], shared, node, mine.jobs, 1)
    if mine.open > 0:
        _flip(r, OPEN, s.groups[node.group], shared, node, mine.jobs, 1)


@inner
def unlist(s: Any, r: Any, index: int) -> None:
    """Take a node out of the tables; what it holds must be as it was when it was listed."""
    mine = r.nodes[index]
    if mine.listed == 0:
        return
    mine.listed = 0
    node = s.nodes[index]
    shared = r.groups[node.group]
    shared.idle -= node.free
    shared.open -= mine.open
    if node.free > 0:
        _flip(r, IDLE, s.groups[node.group], shared, node, mine.jobs, -1)
    if mine.open > 0:
        _flip(r, OPEN, s.groups[node.group], shared, node, mine.jobs, -1)


@inner
def _enter_candidate(r: Any, d: int, j: int) -> None:
    domain = r.domains[d]
    r.candidates[domain.base + domain.size] = j
    r.jobs[j].place = domain.size
    domain.size += 1


@inner
def _leave_candidate(r: Any, d: int, j: int) -> None:
    domain = r.domains[d]
    domain.size -= 1
    last = r.candidates[domain.base + domain.size]
    r.candidates[domain.base + r.jobs[j].place] = last
    r.jobs[last].place = r.jobs[j].place
    r.jobs[j].place = NONE


@inner
def _count_alone(r: Any, d: int, j: int, change: int) -> None:
    job = r.jobs[j]
    job.alone += change
    if job.alone > 0 and job.place == NONE:
        _enter_candidate(r, d, j)
    elif job.alone == 0 and job.place != NONE:
        _leave_candidate(r, d, j)


@inner
def seat(s: Any, r: Any, j: int, gpu: int) -> bool:
    """Let a job join a GPU that has a seat and memory for it; return whether it is new on the node."""
    g = s.g[0]
    seats = r.g[0].seats
    cell = r.gpus[gpu]
    mine = r.nodes[cell.node]
    d = s.groups[s.nodes[cell.node].group].domain
    unlist(s, r, cell.node)
    if cell.jobs == 0:
        take_gpus(g, s.nodes, s.groups, s.domains, s.bits, s.tops, cell.node, 1)
        _count_alone(r, d, j, 1)
    elif cell.jobs == 1:
        _count_alone(r, d, r.seats[gpu * seats], -1)
    r.seats[gpu * seats + cell.jobs] = j
    mine.open += np.int32(cell.jobs == 0 and seats > 1) - np.int32(cell.jobs > 0 and cell.jobs + 1 == seats)
    cell.jobs += 1
    cell.memory += r.memory[r.jobs[j].step, j]
    new = mine.mark != 2 * j
    if new:
        mine.mark = 2 * j
        mine.jobs += 1
    list_node(s, r, cell.node)
    return new


@inner
def unseat(s: Any, r: Any, j: int, gpu: int) -> None:
    """Let a job leave a GPU."""
    g = s.g[0]
    seats = r.g[0].seats
    cell = r.gpus[gpu]
    mine = r.nodes[cell.node]
    d = s.groups[s.nodes[cell.node].group].domain
    unlist(s, r, cell.node)
    place = gpu * seats
    while r.seats[place] != j:
        place += 1
    while place < gpu * seats + cell.jobs - 1:
        r.seats[place] = r.seats[place + 1]
        place += 1
    mine.open += np.int32(cell.jobs > 1 and cell.jobs == seats) - np.int32(cell.jobs == 1 and seats > 1)
    cell.jobs -= 1
    cell.memory -= r.memory[r.jobs[j].step, j]
    if cell.jobs == 0:
        take_gpus(g, s.nodes, s.groups, s.domains, s.bits, s.tops, cell.node, -1)
        _count_alone(r, d, j, -1)
    elif cell.jobs == 1:
        _count_alone(r, d, r.seats[gpu * seats], 1)
    if mine.mark != 2 * j + 1:
        mine.mark = 2 * j + 1
        mine.jobs -= 1
    list_node(s, r, cell.node)


@inner
def seats_of_node(s: Any, r: Any, index: int, kind: int, room: int, wanted: int, keep: bool) -> int:
    """Count a node's GPUs of a kind, at most so many, by index; open ones whose memory leaves room.

    `room` is what the GPU's jobs may hold [ppm]; with `keep` the GPUs are chosen.
    """
    seats = r.g[0].seats
    first = r.nodes[index].first
    found = 0
    for gpu in range(first, first + s.nodes[index].gpus):
        cell = r.gpus[gpu]
        fits = cell.jobs == 0 if kind == IDLE else 0 < cell.jobs < seats and cell.memory <= room
        if fits and found < wanted:
            found += 1
            if keep:
                r.chosen[r.g[0].chosen] = gpu
                r.g[0].chosen += 1
    return found


@inner
def gather(s: Any, r: Any, d: int, model: int, kind: int, room: int, wanted: int, keep: bool) -> int:
    """Count GPUs of a kind on a domain's nodes of one model until there are enough.

    Nodes with fewer jobs come first, the lowest index on ties; see `seats_of_node`.
    """
    domain = s.domains[d]
    found = 0
    for jobs in range(r.g[0].most + 1):
        for index in range(domain.group_low, domain.group_high):
            group = s.groups[index]
            shared = r.groups[index]
            if group.model != model or jobs > shared.most or r.counts[kind, shared.count + jobs] == 0:
                continue
            row = shared.row + jobs * group.words
            for word in range(group.words):
                bits = r.bits[kind, row + word]
                while bits != _ZERO:
                    node = group.low + word * 64 + np.int64(count_trailing_zeros(bits))
                    bits &= bits - _ONE
                    found += seats_of_node(s, r, node, kind, room, wanted - found, keep)
                    if found >= wanted:
                        return found
    return found
