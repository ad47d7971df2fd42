"""What the estimates say of the time to come: when the first waiting job can start, where, and what is left beside it.

For each domain the forecast keeps a second map of the nodes, as it would be at the moment `until`: the jobs believed to
end by then have given back their GPUs, and the job that is aimed for holds the place it will get. Running jobs stand in
two heaps, those released on this map (the last to end first) and those that run on (the first to end first), so that
the moment moves to and fro by one group of ends at a time. Most events do not move it at all: a job that ends sooner
than believed, but was to end before the moment anyway, changes nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay.engine.compiled import inner
from tracekit.replay.engine.heap import heap_pop, heap_push, heap_remove
from tracekit.replay.engine.loop import free_chain
from tracekit.replay.engine.nodes import NONE, chain_fits, node_joins, node_leaves, take_chain
from tracekit.replay.engine.ordered import take_apart
from tracekit.replay.engine.state import records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import State

__all__ = [
    "AIMED",
    "HOPELESS",
    "UNSURE",
    "Forecast",
    "aim",
    "believed_length",
    "change_node",
    "forget",
    "make_forecast",
    "outlived",
    "run_on",
    "spare_fits",
    "unaim",
]

UNSURE, REPLACE, AIMED, HOPELESS = range(4)
"""What is known of a domain's first waiting job: nothing; when it starts; when and where; that it never can."""

_ASPECT = np.dtype(
    [(name, np.int64) for name in ("low", "high", "released", "later", "until", "head", "state", "reserved")]
)
_FACTS = np.dtype([("base", np.int64), ("late", np.int64), ("exact", np.int64)])


class Forecast(NamedTuple):
    """The arrays of one run."""

    aspects: NDArray[np.void]
    """What is believed of each domain (D,)."""
    end: NDArray[np.int64]
    """When each running job is believed to end [ms] (n,)."""
    heaps: NDArray[np.void]
    """HEAPs of each domain: its jobs that end by `until`, by -end, from `low`; the others, by end, from `high`."""
    at: NDArray[np.int32]
    """Position of each job in the one of these in which it is (n,)."""
    late_at: NDArray[np.int32]
    """Position of each job in the heap of those that outlive what is believed, NONE when it is not there (n,)."""
    facts: NDArray[np.void]
    """Where in `heaps` that heap is and how many it has, and whether the estimates are the truth (1,)."""


def make_forecast(state: State, *, exact: bool) -> tuple[Forecast, State]:
    """Return what is believed before the first instant, and the second map of nodes.

    The map is a second state, though only what placing needs is its own: compiled functions of one type of state are
    compiled once. Its `jobs` are one row a domain, the place of the job that is aimed for.
    """
    n = len(state.jobs)
    gpus = np.bincount(
        state.groups["domain"][state.nodes["group"]], weights=state.nodes["gpus"], minlength=len(state.domains)
    ).astype(np.int64)
    aspects = np.zeros(len(state.domains), _ASPECT)
    aspects["low"] = np.cumsum(gpus) - gpus
    aspects["high"] = aspects["low"] + int(gpus.sum())
    aspects["until"] = aspects["head"] = NONE
    room = int(gpus.sum())
    forecast = Forecast(
        aspects,
        end=np.zeros(n, np.int64),
        heaps=np.zeros(3 * room, records("HEAP")),
        at=np.full(n, NONE, np.int32),
        late_at=np.full(n, NONE, np.int32),
        facts=np.array([(2 * room, 0, exact)], _FACTS),
    )
    rows = np.zeros(len(state.domains), records("JOB"))
    rows["take"] = NONE
    return forecast, state._replace(
        g=state.g.copy(),
        jobs=rows,
        nodes=state.nodes.copy(),
        domains=state.domains.copy(),
        takes=state.takes.copy(),
        bits=state.bits.copy(),
        tops=state.tops.copy(),
    )


@inner
def believed_length(f: Any, job: Any) -> int:
    """Return how long a job is believed to hold its GPUs [ms]: no time at all only where that is known."""
    return job.estimate if f.facts[0].exact else max(job.estimate, 1)


@inner
def _shift(s: Any, m: Any, j: int, d: int, sign: int) -> None:
    """Take (sign 1) or free (sign -1) on the map what a running job holds."""
    g = m.g[0]
    if g.by_count:
        m.domains[d].free -= sign * s.jobs[j].gpus
    else:
        take_chain(g, m.nodes, m.groups, m.domains, m.bits, m.tops, s.takes, s.jobs[j].take, sign)


@inner
def unaim(s: Any, m: Any, f: Any, d: int) -> None:
    """Free the place on the map of the job that was aimed for."""
    aspect = f.aspects[d]
    aspect.state = UNSURE
    if aspect.reserved == 0:
        return
    g = m.g[0]
    aspect.reserved = 0
    if g.by_count:
        m.domains[d].free += s.jobs[aspect.head].gpus
        return
    row = m.jobs[d]
    take_chain(g, m.nodes, m.groups, m.domains, m.bits, m.tops, m.takes, row.take, -1)
    free_chain(m, row)


@inner
def _reserve(s: Any, m: Any, f: Any, d: int, h: int) -> bool:
    """Give job h a place on the map as it is; return whether there is one."""
    g = m.g[0]
    aspect = f.aspects[d]
    demand = s.demands[s.jobs[h].demand]
    if g.relax_ms > 0 and demand.relaxed != NONE and aspect.until - s.jobs[h].submit >= g.relax_ms:
        demand = s.demands[demand.relaxed]
    if m.domains[d].free < demand.gpus:
        return False
    if g.by_count:
        m.domains[d].free -= demand.gpus
    elif take_apart(m, d, demand) == 0:
        return False
    aspect.head = h
    aspect.reserved = 1
    return True


@inner
def _enter(s: Any, m: Any, f: Any, d: int, j: int) -> None:
    """Put a running job into the heap where it belongs by its believed end."""
    aspect = f.aspects[d]
    if f.end[j] <= aspect.until:
        heap_push(f.heaps, f.at, aspect.low, aspect.released, -f.end[j], j)
        aspect.released += 1
    else:
        heap_push(f.heaps, f.at, aspect.high, aspect.later, f.end[j], j)
        aspect.later += 1
        _shift(s, m, j, d, 1)


@inner
def _await(s: Any, f: Any, j: int) -> None:
    """Remember a job that will outlive what is believed of it."""
    if s.events[s.event_at[j]].key >> 2 > f.end[j]:
        heap_push(f.heaps, f.late_at, f.facts[0].base, f.facts[0].late, f.end[j], j)
        f.facts[0].late += 1


@inner
def run_on(s: Any, m: Any, f: Any, d: int, j: int) -> None:
    """Take note of a job that was just started."""
    aspect = f.aspects[d]
    f.end[j] = s.g[0].now + believed_length(f, s.jobs[j])
    _enter(s, m, f, d, j)
    _await(s, f, j)
    if aspect.state == AIMED and f.end[j] > aspect.until:
        aspect.state = REPLACE


@inner
def forget(s: Any, m: Any, f: Any, d: int, j: int) -> None:
    """Take note of a job that ended, whose chain is still there."""
    aspect = f.aspects[d]
    if f.end[j] <= aspect.until:
        heap_remove(f.heaps, f.at, aspect.low, aspect.released, j)
        aspect.released -= 1
        if f.end[j] == aspect.until and aspect.state != HOPELESS:
            aspect.state = UNSURE
    else:
        heap_remove(f.heaps, f.at, aspect.high, aspect.later, j)
        aspect.later -= 1
        _shift(s, m, j, d, -1)
        if aspect.state != HOPELESS:
            aspect.state = UNSURE
    if f.late_at[j] != NONE:
        heap_remove(f.heaps, f.late_at, f.facts[0].base, f.facts[0].late, j)
        f.facts[0].late -= 1


@inner
def outlived(s: Any, m: Any, f: Any) -> None:
    """Double the estimates of running jobs that should have ended."""
    now = s.g[0].now
    while f.facts[0].late > 0 and f.heaps[f.facts[0].base].key <= now:
        j = f.heaps[f.facts[0].base].job
        heap_pop(f.heaps, f.late_at, f.facts[0].base, f.facts[0].late)
        f.facts[0].late -= 1
        d = s.demands[s.jobs[j].demand].domain
        aspect = f.aspects[d]
        length = max(s.jobs[j].estimate, 1)
        while s.jobs[j].first + length <= now:
            length *= 2
        end = s.jobs[j].first + length
        if f.end[j] <= aspect.until:
            heap_remove(f.heaps, f.at, aspect.low, aspect.released, j)
            aspect.released -= 1
            if end > aspect.until:
                unaim(s, m, f, d)
        else:
            heap_remove(f.heaps, f.at, aspect.high, aspect.later, j)
            aspect.later -= 1
            _shift(s, m, j, d, -1)
        f.end[j] = end
        _enter(s, m, f, d, j)
        _await(s, f, j)


@inner
def change_node(s: Any, m: Any, f: Any, index: int, up: int) -> None:
    """Let a node of the map join or leave."""
    g = m.g[0]
    node = m.nodes[index]
    if up == node.up:
        return
    d = m.groups[node.group].domain
    unaim(s, m, f, d)
    if g.by_count:
        node.up = up
        m.domains[d].free += node.gpus if up else -node.gpus
    elif up:
        node_joins(g, m.nodes, m.groups, m.domains, m.bits, m.tops, index)
    else:
        node_leaves(g, m.nodes, m.groups, m.domains, m.bits, m.tops, index)


@inner
def _forward(s: Any, m: Any, f: Any, d: int) -> None:
    """Move the moment to the next believed end; there is one."""
    aspect = f.aspects[d]
    aspect.until = f.heaps[aspect.high].key
    while aspect.later > 0 and f.heaps[aspect.high].key == aspect.until:
        j = f.heaps[aspect.high].job
        heap_pop(f.heaps, f.at, aspect.high, aspect.later)
        aspect.later -= 1
        heap_push(f.heaps, f.at, aspect.low, aspect.released, -aspect.until, j)
        aspect.released += 1
        _shift(s, m, j, d, -1)


@inner
def _back(s: Any, m: Any, f: Any, d: int) -> None:
    """Move the moment to the believed end before the present one; there is a job released."""
    aspect = f.aspects[d]
    last = f.heaps[aspect.low].key
    while aspect.released > 0 and f.heaps[aspect.low].key == last:
        j = f.heaps[aspect.low].job
        heap_pop(f.heaps, f.at, aspect.low, aspect.released)
        aspect.released -= 1
        heap_push(f.heaps, f.at, aspect.high, aspect.later, -last, j)
        aspect.later += 1
        _shift(s, m, j, d, 1)
    aspect.until = -f.heaps[aspect.low].key if aspect.released > 0 else NONE


@inner
def aim(s: Any, m: Any, f: Any, d: int, h: int) -> None:
    """Find the first moment at which job h, which cannot start now, can, and reserve its place there.

    From the present moment back as long as there is room, and if there was none, forward until there is.
    """
    aspect = f.aspects[d]
    same_moment = aspect.state == REPLACE and aspect.head == h
    unaim(s, m, f, d)
    forward = aspect.released == 0
    if not forward:
        aspect.until = -f.heaps[aspect.low].key
    found = False
    while not forward or aspect.later > 0:
        if forward:
            _forward(s, m, f, d)
        found = _reserve(s, m, f, d, h)
        if not found:
            forward = True
        elif forward or same_moment:
            break
        else:
            unaim(s, m, f, d)
            _back(s, m, f, d)
            forward = aspect.released == 0
            found = False
    aspect.head = h
    aspect.state = AIMED if found else HOPELESS


@inner
def spare_fits(s: Any, m: Any, d: int, j: int) -> bool:
    """Return whether what a job was given is free on the map too, beside the place that is reserved there."""
    if m.g[0].by_count:
        return m.domains[d].free >= s.jobs[j].gpus
    return chain_fits(m.nodes, s.takes, s.jobs[j].take)
