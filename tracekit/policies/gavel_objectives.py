"""Objectives of Gavel, for which the shares of time on the GPU types are chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.gavel_shares import (
    Demand,
    fastest_for_all,
    max_min_shares,
    most_value,
    raise_least,
    spread_over,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["OBJECTIVES", "PACKABLE", "Active", "Found", "find_shares", "isolated_speed"]

OBJECTIVES = ("max_min", "makespan", "finish_time_fairness", "throughput", "cost", "slo", "hierarchical")
PACKABLE = ("max_min", "throughput", "cost")
"""Objectives whose kinds of jobs stay few enough for pairs of them."""
_STEP = 1.25
"""Run times and needs within this factor count as equal, at the larger value."""
_NEAR = 1.05
"""Precision of the search for the least worst slowdown."""


@dataclass(frozen=True)
class Active:
    """The jobs of one domain when shares are found, in order of submission. k jobs, J types."""

    gpus: NDArray[np.int64]
    """GPUs of each (k,)."""
    speed: NDArray[np.float64]
    """Speed on each type, 0 if it may not or cannot run there (k, J)."""
    capacity: NDArray[np.float64]
    """GPUs of each type (J,)."""
    price: NDArray[np.float64]
    """Price of a GPU of each type, as a part of the highest (J,)."""
    left_ms: NDArray[np.float64]
    """Run time left (k,) [ms]."""
    age_ms: NDArray[np.float64]
    """Time since submission (k,) [ms]."""
    isolated_ms: NDArray[np.float64]
    """Time that the work done would have taken on an equal part of the cluster (k,) [ms]."""
    due_ms: NDArray[np.float64]
    """Time until the deadline, below 0 after it (k,) [ms]."""
    tenant: NDArray[np.int64]
    """VC (k,)."""
    load: NDArray[np.int64]
    """Level of GPU utilization (k,); all 0 if jobs are not packed."""
    beside: Callable[[int, int], tuple[float, float]] | None = None
    """Speeds of jobs of two levels that share GPUs, (0, 0) if they may not; None: jobs are not packed."""


@dataclass(frozen=True)
class Found:
    """Shares of jobs. k jobs, J types, R pairs of kinds."""

    alone: NDArray[np.float64]
    """Share of time on each type (k, J)."""
    packed: NDArray[np.float64]
    """Share of time on each type next to another job (k, J)."""
    kind: NDArray[np.int64]
    """Kind of each job (k,)."""
    pairs: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """Rows (kind, other kind, type) of the pairs that have time (R, 3)."""


def find_shares(objective: str, active: Active, *, once: bool, inside: str) -> Found:
    """Return the shares of time that are best for an objective.

    Parameters
    ----------
    objective : str
        One of `OBJECTIVES`.
    once : bool
        For max_min: raise only the least speed.
    inside : str
        For hierarchical: 'fair' or 'fifo', how the part of a VC is divided among its jobs.
    """
    shares = np.zeros(active.speed.shape)
    able = np.flatnonzero((active.speed > 0).any(axis=1))
    kind = np.zeros(len(shares), np.int64)
    if not len(able):
        return Found(shares, shares, kind)
    if active.beside is not None:
        return _packed(objective, active, able, once=once)
    if objective == "max_min":
        first, of, count = _grouped(active.gpus, active.speed)
        found, _ = max_min_shares(count, active.gpus[first], active.speed[first], active.capacity, once=once)
        return Found(found[of], shares, of)
    own = _rows(active, able)
    value = own.speed / (own.price if objective in {"cost", "slo"} else 1.0)
    # No job can do better than all the time that it can use, where it is fastest.
    first, of, count = _grouped(own.gpus, own.speed)
    room = fastest_for_all(Demand(count, own.gpus[first], own.speed[first], own.capacity), value[first])
    if room is not None and objective != "slo":
        shares[able] = room[of]
    elif objective == "hierarchical":
        shares[able] = _of_tenants(own, inside)
    elif objective == "makespan":
        shares[able], _ = _at_need(own, own.left_ms)
    elif objective == "finish_time_fairness":
        shares[able] = _fair_finish(own)
    else:
        shares[able] = _valued(own, value, due=objective == "slo")
    return Found(shares, np.zeros(shares.shape), kind)


def isolated_speed(active: Active) -> NDArray[np.float64]:
    """Return the speed of each job on its part of the GPUs of each type, divided equally among all jobs (k,)."""
    part = np.minimum(1.0, active.capacity / max(len(active.gpus), 1) / active.gpus[:, None])
    part = part / np.maximum(part.sum(axis=1, keepdims=True), 1.0)
    return np.asarray((active.speed * part).sum(axis=1))


def _rows(active: Active, chosen: NDArray[np.int64]) -> Active:
    whole = {"capacity", "price", "beside"}
    return Active(**{key: v if key in whole else v[chosen] for key, v in vars(active).items()})


def _grouped(*columns: NDArray[np.generic]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return a row of each kind, the kind of each row, and how many each has; kinds are rows that are equal."""
    table = np.column_stack([np.asarray(c, np.float64) for c in columns])
    _, first, of, count = np.unique(table, axis=0, return_index=True, return_inverse=True, return_counts=True)
    return first, of.ravel(), count


def _stepped(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values rounded up to powers of the step, so few of them differ."""
    return np.asarray(_STEP ** np.ceil(np.log(np.maximum(values, 1e-12)) / np.log(_STEP) - 1e-9))


def _at_need(active: Active, need: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return the shares that make the least speed over need as large as can be, and that."""
    stepped = _stepped(need)
    first, of, count = _grouped(active.gpus, active.speed, stepped)
    demand = Demand(count, active.gpus[first], active.speed[first], active.capacity)
    found, level = raise_least(demand, stepped[first], once=True)
    return found[of], level


def _fair_finish(active: Active) -> NDArray[np.float64]:
    """Return the shares with the least worst ratio of a job's end to its end on an equal part."""
    fastest, left = active.speed.max(axis=1), np.maximum(active.left_ms, 1.0)
    alone = active.isolated_ms + left / np.maximum(isolated_speed(active), 1e-9)

    def at(ratio: float) -> tuple[NDArray[np.float64], float]:
        need = left / np.maximum(ratio * alone - active.age_ms, 1e-9)
        # Never more than the fastest: rounding up must not ask for more than any job can have.
        stepped = np.minimum(_stepped(need), fastest)
        first, of, count = _grouped(active.gpus, active.speed, stepped)
        demand = Demand(count, active.gpus[first], active.speed[first], active.capacity)
        found, level = raise_least(demand, stepped[first], once=True)
        return found[of], level

    low = float(((active.age_ms + left / fastest) / alone).max())
    high, (best, level) = low, at(low)
    while level < 1 - 1e-9:
        low, high = high, high * 2
        best, level = at(high)
    while high > low * _NEAR:
        middle = (low * high) ** 0.5
        found, level = at(middle)
        if level < 1 - 1e-9:
            low = middle
        else:
            high, best = middle, found
    return best


def _valued(active: Active, value: NDArray[np.float64], *, due: bool) -> NDArray[np.float64]:
    """Return the shares of the largest total value; with deadlines, meet them as far as all can be met."""
    floor = np.zeros(len(active.gpus))
    if due:
        need = _stepped(active.left_ms / np.maximum(active.due_ms, 1.0))
        fastest = active.speed.max(axis=1)
        late = active.left_ms > active.due_ms * fastest
        floor = np.where(late, 0.0, np.minimum(need, fastest * (1 - 1e-9)))
    first, of, count = _grouped(active.gpus, active.speed, value, floor)
    demand = Demand(count, active.gpus[first], active.speed[first], active.capacity)
    found = most_value(demand, value[first], floor[first]) if due else None
    if found is None:
        found = most_value(demand, value[first])
    return np.zeros(active.speed.shape) if found is None else found[of]


def _of_tenants(active: Active, inside: str) -> NDArray[np.float64]:
    """Return shares: GPUs of each type go to the VCs by max-min over their sums, and a VC's to its jobs."""
    tenants, tenant = np.unique(active.tenant, return_inverse=True)
    first, of, count = _grouped(active.gpus, active.speed, tenant)
    demand = Demand(count, active.gpus[first], active.speed[first], active.capacity)
    equal, entity = demand.equal, tenant[first]
    merged = demand.alike
    if merged:
        wanted = np.bincount(tenant, active.gpus, len(tenants)).astype(np.int64)
        whole = Demand(np.ones_like(wanted), wanted, np.ones((len(wanted), 1)), active.capacity.sum(keepdims=True))
        shares, _ = raise_least(whole, 1.0 / wanted, once=False)
        part = shares * wanted[:, None]
        demand = demand.merged()
    else:
        together = np.zeros((len(tenants), len(first)))
        together[entity, np.arange(len(first))] = count * demand.gpus / equal
        shares, _ = raise_least(demand, np.ones(len(tenants)), once=False, together=together)
        part = np.zeros((len(tenants), len(active.capacity)))
        np.add.at(part, entity, shares * (count * demand.gpus)[:, None])
    if inside == "fifo":
        found = np.zeros((len(active.gpus), part.shape[1]))
        for e in range(len(tenants)):
            own = np.flatnonzero(tenant == e)
            found[own] = _in_order(active.gpus[own], demand.speed[of[own]], part[e])
        return spread_over(active.gpus, found[:, 0], active.capacity) if merged else found
    row = np.zeros((len(first), part.shape[1]))
    for e in range(len(tenants)):
        kinds = np.flatnonzero(entity == e)
        mine = Demand(count[kinds], demand.gpus[kinds], demand.speed[kinds], part[e])
        room = fastest_for_all(mine, mine.speed)
        if room is None:
            room, _ = raise_least(mine, equal[kinds] / mine.gpus, once=False)
        row[kinds] = room
    if merged:
        row = spread_over(demand.gpus, row[:, 0] * count, active.capacity) / count[:, None]
    return row[of]


def _in_order(gpus: NDArray[np.int64], speed: NDArray[np.float64], part: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares of jobs in their order, each on its fastest types first, until the GPUs are given away."""
    shares, left = np.zeros(speed.shape), part.copy()
    for i, row in enumerate(np.argsort(-speed, axis=1, kind="stable").tolist()):
        if left.sum() <= 1e-9:
            break
        time = 1.0
        for j in row:
            given = min(time, left[j] / gpus[i]) if speed[i, j] > 0 else 0.0
            shares[i, j] = given
            left[j] -= given * gpus[i]
            time -= given
    return shares


def _packed(objective: str, active: Active, able: NDArray[np.int64], *, once: bool) -> Found:
    """Return shares of single jobs and of pairs of jobs that share GPUs, with equal numbers of GPUs."""
    own = _rows(active, able)
    first, of, count = _grouped(own.gpus, own.speed, own.load)
    gpus, speed, load = own.gpus[first], own.speed[first], own.load[first]
    a, b = np.nonzero(np.triu(gpus[:, None] == gpus))
    enough = (a != b) | (count[a] > 1)
    pair = np.column_stack([a, b])[enough]
    beside = own.beside
    slower = np.array([beside(int(load[i]), int(load[j])) if beside else (0.0, 0.0) for i, j in pair]).reshape(-1, 2)
    both = np.stack([speed[pair[:, i]] * slower[:, i, None] for i in (0, 1)], axis=2)
    demand = Demand(count, gpus, speed, own.capacity, pair, both)
    if objective == "max_min":
        found, _ = raise_least(demand, demand.equal / gpus, once=once)
    else:
        value = speed / (own.price if objective == "cost" else 1.0)
        best = most_value(demand, value)
        found = np.zeros((len(gpus) + len(pair), speed.shape[1])) if best is None else best
    alone, time = found[: len(gpus)], found[len(gpus) :]
    packed = np.zeros(alone.shape)
    for i in (0, 1):
        np.add.at(packed, pair[:, i], time)
    packed /= count[:, None]
    kind = np.full(len(active.gpus), -1)
    kind[able] = of
    shares = [np.zeros(active.speed.shape) for _ in range(2)]
    for table, part in zip(shares, (alone, packed), strict=True):
        table[able] = part[of]
    row, place = np.nonzero(time > 1e-9)
    return Found(shares[0], shares[1], kind, np.column_stack([pair[row], place]))
