"""Plans that name the nodes of a job, or put it on the GPUs of another.

Rows of a plan are (place in the plan, node, GPUs, GPU): GPUs of a node, from a certain one on or (NONE) those that no
job has. Where jobs share GPUs, `beside` of a job is the job whose GPUs it has too, itself where only those whom the
plan puts beside it may share its own, or NONE where it does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.engine.compiled import either, inner
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.placement import hold, hold_seat
from tracekit.replay.engine.state import RUNNING
from tracekit.replay.engine.switches import stop_job

__all__ = [
    "BESIDE_SIZE",
    "BESIDE_UNKNOWN",
    "CROWDED",
    "MODELS_MIXED",
    "NOT_ACCEPTED",
    "NO_ROOM",
    "TOO_FAR",
    "check_beside",
    "check_rows",
    "differs",
    "hold_beside",
    "hold_rows",
    "narrow",
    "part_company",
]

NOT_ACCEPTED, MODELS_MIXED, NO_ROOM = 11, 12, 13
"""What can be wrong with a row; `g.culprit` is the row."""
BESIDE_UNKNOWN, BESIDE_SIZE, CROWDED, TOO_FAR = 21, 22, 23, 24
"""What can be wrong with a job beside another."""

_NODE, _GPUS, _GPU = 1, 2, 3


@inner
def narrow(s: Any, demand: Any, group: int, model: int, any_model: bool) -> Any:
    """Return the groups that a plan leaves to a job, as bits."""
    domain = s.domains[demand.domain]
    accept = demand.accept
    if model != NONE:
        named = np.uint64(0)
        for index in range(domain.group_low, domain.group_high):
            if s.groups[index].model == model:
                named |= np.uint64(1) << np.uint64(index - domain.group_low)
        accept = named if any_model else accept & named
    if group != NONE:
        accept &= np.uint64(1) << np.uint64(group - domain.group_low)
    return accept


@inner
def _may_go(s: Any, demand: Any, group: int, model: int, any_model: bool, node: int) -> bool:
    """Return whether a plan leaves a node to a job; naming a node names its GPU model."""
    index = s.nodes[node].group
    domain = s.domains[demand.domain]
    if index < domain.group_low or index >= domain.group_high:
        return False
    if any_model and model == NONE:
        model = s.groups[index].model
    accept = narrow(s, demand, group, model, any_model)
    return (accept >> np.uint64(index - domain.group_low)) & np.uint64(1) == np.uint64(1)


@inner
def check_rows(s: Any, p: Any, rows: Any, ends: Any, any_model: bool) -> int:
    """Return 0, or what is wrong with the nodes that a plan names for its jobs, room left aside."""
    for i in range(len(p.jobs)):
        demand = s.demands[s.jobs[p.jobs[i]].demand]
        for at in range(ends[i], ends[i + 1]):
            s.g[0].culprit = at
            if not _may_go(s, demand, p.groups[i], p.models[i], any_model, rows[at, _NODE]):
                return NOT_ACCEPTED
            first = s.nodes[rows[ends[i], _NODE]].group
            if s.groups[s.nodes[rows[at, _NODE]].group].model != s.groups[first].model:
                return MODELS_MIXED
    return 0


@inner
def check_beside(s: Any, p: Any, beside: Any, keep: bool, wanted: Any) -> int:
    """Return 0, or what is wrong with whom a plan puts beside whom; `wanted` holds places in the plan, plus 1."""
    for i in range(len(p.jobs)):
        other = beside[i]
        if other == NONE or other == p.jobs[i] or p.gpus[i] == 0:
            continue
        s.g[0].culprit = i
        if other < 0 or other >= s.g[0].submitted:
            return BESIDE_UNKNOWN
        has = np.int64(s.jobs[other].gpus)
        if wanted[other]:
            place = wanted[other] - 1
            has = p.gpus[place]
            if place >= i or (beside[place] != NONE and beside[place] != other):
                return BESIDE_UNKNOWN
        elif not keep or s.jobs[other].status != RUNNING:
            return BESIDE_UNKNOWN
        if has != p.gpus[i]:
            return BESIDE_SIZE
    return 0


@inner
def differs(s: Any, job: Any, rows: Any, low: int, high: int) -> bool:
    """Return whether a running job, of as many GPUs, holds others than its rows say, if it has rows."""
    for at in range(low, high):
        left = rows[at, _GPUS]
        link = job.take
        while link != NONE:
            take = s.takes[link]
            from_first = take.gpu - rows[at, _GPU]
            if take.node == rows[at, _NODE] and (rows[at, _GPU] == NONE or 0 <= from_first < rows[at, _GPUS]):
                left -= take.gpus
            link = take.next
        if left != 0:
            return True
    return False


def _number_fits(s: Any, rows: Any, at: Any, _share: Any) -> Any:
    return s.nodes[rows[at, _NODE]].free >= rows[at, _GPUS]


def _seats_fit(s: Any, rows: Any, at: Any, share: Any) -> Any:
    node = s.nodes[rows[at, _NODE]]
    if rows[at, _GPU] == NONE:
        return node.free >= rows[at, _GPUS]
    for gpu in range(rows[at, _GPU], rows[at, _GPU] + rows[at, _GPUS]):
        if s.takes[node.seat + gpu].gpus >= share:
            return False
    return True


_fits = either(_number_fits, _seats_fit, field="seat")


def _hold_number(s: Any, job: Any, rows: Any, at: Any) -> None:
    hold(s, job, rows[at, _NODE], rows[at, _GPUS])


def _hold_seats(s: Any, job: Any, rows: Any, at: Any) -> None:
    if rows[at, _GPU] == NONE:
        hold(s, job, rows[at, _NODE], rows[at, _GPUS])
        return
    for gpu in range(rows[at, _GPU] + rows[at, _GPUS] - 1, rows[at, _GPU] - 1, -1):
        hold_seat(s, job, rows[at, _NODE], gpu)


_hold_row = either(_hold_number, _hold_seats, field="seat")


@inner
def hold_rows(s: Any, job: Any, rows: Any, low: int, high: int, share: int) -> int:
    """Take what its rows say for a job without GPUs; return its nodes, 0 (nothing taken) when it is not free."""
    for at in range(low, high):
        if s.nodes[rows[at, _NODE]].up == 0 or not _fits(s, rows, at, share):
            s.g[0].culprit = at
            return 0
    nodes = 0
    for at in range(high - 1, low - 1, -1):
        _hold_row(s, job, rows, at)
        nodes += at == low or rows[at - 1, _NODE] != rows[at, _NODE]
    return nodes


@inner
def hold_beside(s: Any, job: Any, other: Any, demand: Any, group: int, model: int, any_model: bool, share: int) -> int:
    """Take the GPUs of another job for one without GPUs; return its nodes.

    0 (nothing taken): nothing may start there now. A negative number: what is wrong.
    """
    if other.status != RUNNING:
        return 0
    link = other.take
    while link != NONE:
        take = s.takes[link]
        if not _may_go(s, demand, group, model, any_model, take.node):
            return -TOO_FAR
        if s.takes[s.nodes[take.node].seat + take.gpu].gpus >= share:
            return -CROWDED
        if s.nodes[take.node].up == 0:
            return 0
        link = take.next
    link = other.take
    while link != NONE:
        hold_seat(s, job, s.takes[link].node, s.takes[link].gpu)
        link = s.takes[link].next
    return other.nodes


@inner
def _together(s: Any, job: Any, other: Any) -> bool:
    """Return whether two running jobs of equally many GPUs have the same."""
    link = other.take
    while link != NONE:
        s.takes[s.nodes[s.takes[link].node].seat + s.takes[link].gpu].job = 1
        link = s.takes[link].next
    same = True
    link = job.take
    while link != NONE:
        if s.takes[s.nodes[s.takes[link].node].seat + s.takes[link].gpu].job == 0:
            same = False
        link = s.takes[link].next
    link = other.take
    while link != NONE:
        s.takes[s.nodes[s.takes[link].node].seat + s.takes[link].gpu].job = 0
        link = s.takes[link].next
    return same


@inner
def _in_company(s: Any, job: Any, jobs: int) -> bool:
    """Return whether any GPU of a running job has other than so many jobs."""
    link = job.take
    while link != NONE:
        if s.takes[s.nodes[s.takes[link].node].seat + s.takes[link].gpu].gpus != jobs:
            return True
        link = s.takes[link].next
    return False


@inner
def part_company(s: Any, key: Any, jobs: Any, beside: Any, low: int, high: int, count: Any) -> None:
    """Stop jobs that are not, or not only, beside those where the plan wants them; of two the later one.

    `count` are zeros for all jobs, and all zero again afterwards.
    """
    for i in range(low, high):
        job, other = s.jobs[jobs[i]], beside[i]
        if other == NONE or other == jobs[i] or job.status != RUNNING:
            continue
        if s.jobs[other].status == RUNNING and _together(s, job, s.jobs[other]):
            count[other] += 1
        else:
            stop_job(s, key, jobs[i])
    for i in range(high - 1, low - 1, -1):
        j = jobs[i]
        if beside[i] != j or s.jobs[j].status != RUNNING or not _in_company(s, s.jobs[j], 1 + count[j]):
            continue
        stop_job(s, key, j)
        at = i + 1
        while count[j] > 0:
            if beside[at] == j and s.jobs[jobs[at]].status == RUNNING:
                stop_job(s, key, jobs[at])
                count[j] -= 1
            at += 1
    for i in range(low, high):
        if beside[i] != NONE:
            count[beside[i]] = 0
