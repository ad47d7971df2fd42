"""Carry out a plan: who leaves, who goes on, who is placed where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay.engine.compiled import compiled, inner
from tracekit.replay.engine.named import (
    NO_ROOM,
    check_beside,
    check_rows,
    differs,
    hold_beside,
    hold_rows,
    narrow,
    part_company,
)
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.ordered import take
from tracekit.replay.engine.progress import change_rate
from tracekit.replay.engine.state import PPM, RUNNING, WAITING
from tracekit.replay.engine.switches import go_on, lose_job, stop_job

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GROUP_UNKNOWN", "NAMED_TWICE", "NOT_ACTIVE", "NO_SPEED", "TOO_MANY", "Columns", "apply_plan"]

TOO_MANY, NOT_ACTIVE, NAMED_TWICE, GROUP_UNKNOWN, NO_SPEED = 1, 2, 3, 4, 5
"""What can be wrong with a plan."""

_FASTEST = 1_000 * PPM
"""Greatest speed that a plan may give [ppm]."""


class Columns(NamedTuple):
    """What a plan gives each job it names (k,), by domain and in the order in which they are placed."""

    jobs: NDArray[np.int64]
    """The jobs."""
    gpus: NDArray[np.int64]
    """GPUs; 0 none."""
    rates: NDArray[np.int64]
    """Speed [ppm]."""
    groups: NDArray[np.int64]
    """Group of nodes, or NONE."""
    models: NDArray[np.int64]
    """GPU model, or NONE."""
    optional: NDArray[np.bool_]
    """Which may be more than there is room for."""


@inner
def _check(s: Any, p: Any, wanted: Any) -> int:
    """Note the place of each job named, plus 1; return 0, or what is wrong with the plan (`g.culprit` is the place)."""
    g = s.g[0]
    for i in range(len(p.jobs)):
        j = p.jobs[i]
        g.culprit = i
        if j < 0 or j >= g.submitted or (s.jobs[j].status != WAITING and s.jobs[j].status != RUNNING):
            return NOT_ACTIVE
        if wanted[j]:
            return NAMED_TWICE
        wanted[j] = i + 1
        if p.rates[i] <= 0 or p.rates[i] > _FASTEST:
            return NO_SPEED
        domain = s.domains[s.demands[s.jobs[j].demand].domain]
        if p.groups[i] != NONE and (p.groups[i] < domain.group_low or p.groups[i] >= domain.group_high):
            return GROUP_UNKNOWN
        if p.gpus[i] < 0:
            return TOO_MANY
    return 0


@inner
def _count(s: Any, p: Any, keep: bool, wanted: Any) -> int:
    """Compare what is asked with what there is, domain by domain; return 0 or TOO_MANY."""
    g = s.g[0]
    for d in range(len(s.domains)):
        s.domains[d].held = s.domains[d].free
    for i in range(g.event_size):
        j = s.events[i].job
        if not keep or wanted[j]:
            s.domains[s.demands[s.jobs[j].demand].domain].held += s.jobs[j].gpus
    for i in range(len(p.jobs)):
        domain = s.domains[s.demands[s.jobs[p.jobs[i]].demand].domain]
        g.culprit = i
        if p.gpus[i] > domain.held:
            if not p.optional[i]:
                return TOO_MANY
        else:
            domain.held -= np.int32(p.gpus[i])
    return 0


@inner
def _count_alone(s: Any, p: Any, ends: Any, beside: Any, low: int, high: int) -> int:
    """Compare what is asked of GPUs without jobs, once the plan's jobs left theirs; return 0 or TOO_MANY."""
    if low == high:
        return 0
    left = np.int64(s.domains[s.demands[s.jobs[p.jobs[low]].demand].domain].free)
    for i in range(low, high):
        j = p.jobs[i]
        if s.jobs[j].status == RUNNING or ends[i] < ends[i + 1] or (beside[i] != NONE and beside[i] != j):
            continue
        s.g[0].culprit = i
        if p.gpus[i] <= left:
            left -= p.gpus[i]
        elif not p.optional[i]:
            return TOO_MANY
    return 0


@inner
def _moves(s: Any, job: Any, gpus: int, group: int, model: int) -> bool:
    """Return whether a running job that is to have these GPUs must leave its own."""
    if job.gpus != gpus:
        return True
    if job.take == NONE:
        return False
    index = s.nodes[s.takes[job.take].node].group
    return (group >= 0 and index != group) or (model >= 0 and s.groups[index].model != model)


@inner
def _sort(values: Any, count: int) -> None:
    """Sort the first `count` numbers, ascending."""
    gap = count // 2
    while gap > 0:
        for i in range(gap, count):
            value = values[i]
            place = i
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value
        gap //= 2


@inner
def _unnamed(s: Any, wanted: Any, stopped: Any) -> int:
    """Write the running jobs that are not named, by index; return how many."""
    g = s.g[0]
    count = 0
    for i in range(g.event_size):
        j = s.events[i].job
        if wanted[j] == 0:
            stopped[count] = j
            count += 1
    _sort(stopped, count)
    return count


@inner
def _check_all(s: Any, p: Any, rows: Any, ends: Any, beside: Any, keep: bool, any_model: bool, wanted: Any) -> int:
    wrong = _check(s, p, wanted)
    if rows is not None and not wrong:
        wrong = check_rows(s, p, rows, ends, any_model)
    if beside is None and not wrong:
        wrong = _count(s, p, keep, wanted)
    if beside is not None and not wrong:
        wrong = check_beside(s, p, beside, keep, wanted)
    return wrong


@compiled
def apply_plan(
    s: Any,
    key: Any,
    p: Any,
    rows: Any,
    ends: Any,
    beside: Any,
    share: int,
    keep: bool,
    any_model: bool,
    resize_ms: int,
    wanted: Any,
    stopped: Any,
) -> int:
    """Carry out a plan; return 0, or what is wrong with it (`g.culprit` is the place in the plan, or the row).

    Parameters
    ----------
    p : Columns
        The jobs that it names.
    rows, ends : arrays (r, 4) and (k + 1,), or None
        Nodes that the plan names (see `named`), by place in the plan; those of place i are `ends[i]` to `ends[i + 1]`.
        None where a planner names no nodes.
    beside : array (k,), or None
        The job whose GPUs each job has (see `named`); None where jobs do not share.
    share : int
        Jobs that a GPU may have.
    keep : bool
        Whether jobs that are not named go on.
    any_model : bool
        Whether a model named may be another than the job asks for.
    resize_ms : int
        Cost of a change in the number of GPUs [ms].
    wanted : array (n,)
        Zeros; all zero again afterwards.
    stopped : array (events,)
        Room to work in.
    """
    wrong = _check_all(s, p, rows, ends, beside, keep, any_model, wanted)
    if wrong:
        return wrong
    unnamed = 0 if keep else _unnamed(s, wanted, stopped)
    for i in range(len(p.jobs)):
        wanted[p.jobs[i]] = 0
    low = 0
    for d in range(len(s.domains)):
        for i in range(unnamed):
            if s.demands[s.jobs[stopped[i]].demand].domain == d:
                stop_job(s, key, stopped[i])
                lose_job(s, s.jobs[stopped[i]])
        high = low
        while high < len(p.jobs) and s.demands[s.jobs[p.jobs[high]].demand].domain == d:
            high += 1
        _clear(s, key, p, rows, ends, beside, low, high, wanted)
        if rows is not None:
            wrong = _give_rows(s, key, p, rows, ends, beside, low, high, share, resize_ms)
        if not wrong:
            wrong = _give_rest(s, key, p, ends, beside, low, high, share, any_model, resize_ms)
        if wrong:
            return wrong
        low = high
    return 0


@inner
def _clear(s: Any, key: Any, p: Any, rows: Any, ends: Any, beside: Any, low: int, high: int, count: Any) -> None:
    """Stop the jobs that change size or place, so that all room is there when they are placed anew."""
    for i in range(low, high):
        job = s.jobs[p.jobs[i]]
        if job.status != RUNNING:
            continue
        moves = _moves(s, job, p.gpus[i], p.groups[i], p.models[i])
        if rows is not None and not moves:
            moves = differs(s, job, rows, ends[i], ends[i + 1])
        if moves:
            stop_job(s, key, p.jobs[i])
    if beside is not None:
        part_company(s, key, p.jobs, beside, low, high, count)


@inner
def _give_rows(
    s: Any, key: Any, p: Any, rows: Any, ends: Any, beside: Any, low: int, high: int, share: int, resize_ms: int
) -> int:
    """Place the jobs whose nodes are named; return 0 or NO_ROOM."""
    for i in range(low, high):
        j = p.jobs[i]
        job = s.jobs[j]
        if ends[i] == ends[i + 1] or job.status == RUNNING:
            continue
        old = job.take
        job.take = NONE
        nodes = hold_rows(s, job, rows, ends[i], ends[i + 1], share)
        if nodes == 0:
            job.take = old
            if not p.optional[i]:
                return NO_ROOM
        else:
            go_on(s, key, j, old, nodes, p.gpus[i], p.rates[i], resize_ms, beside)
    return 0


@inner
def _give_rest(
    s: Any, key: Any, p: Any, ends: Any, beside: Any, low: int, high: int, share: int, any_model: bool, resize_ms: int
) -> int:
    """Place the jobs whose nodes are the engine's choice, or another job's; return 0, or what is wrong."""
    wrong = 0
    if beside is not None:
        wrong = _count_alone(s, p, ends, beside, low, high)
    for i in range(low, high):
        if wrong:
            return wrong
        job = s.jobs[p.jobs[i]]
        if job.status == RUNNING:
            change_rate(s, p.jobs[i], max(p.rates[i] * job.pace // PPM, 1))
        elif p.gpus[i] > 0 and not _is_named(ends, i):
            wrong = _give(s, key, i, p, beside, share, any_model, resize_ms)
    for i in range(low, high):
        # It found no place: it waits, as if it had been stopped.
        if s.jobs[p.jobs[i]].evicted:
            lose_job(s, s.jobs[p.jobs[i]])
    return wrong


@inner
def _is_named(ends: Any, i: int) -> bool:
    if ends is None:
        return False
    return bool(ends[i] < ends[i + 1])


@inner
def _give(s: Any, key: Any, i: int, p: Any, beside: Any, share: int, any_model: bool, resize_ms: int) -> int:
    """Place a job that does not run; return 0, or what is wrong."""
    j = p.jobs[i]
    job = s.jobs[j]
    demand = s.demands[job.demand]
    old = job.take
    job.take = NONE
    alone = True
    nodes = 0
    if beside is not None and beside[i] != NONE and beside[i] != j:
        alone = False
        nodes = hold_beside(s, job, s.jobs[beside[i]], demand, p.groups[i], p.models[i], any_model, share)
    if alone:
        scratch = s.demands[len(s.demands) - 1]
        scratch.accept = narrow(s, demand, p.groups[i], p.models[i], any_model)
        scratch.domain = demand.domain
        scratch.scope = s.g[0].scope
        scratch.gpus = p.gpus[i]
        nodes = take(s, j, scratch)
    if nodes < 0:
        s.g[0].culprit = i
        return -nodes
    if nodes == 0:
        job.take = old
    else:
        go_on(s, key, j, old, nodes, p.gpus[i], p.rates[i], resize_ms, beside)
    return 0
