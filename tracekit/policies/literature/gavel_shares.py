"""Compute the shares of time on GPU types that are best for one of Gavel's objectives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.array_types import Floats, Ints


OBJECTIVES = ("max_min", "makespan", "finish_time_fairness", "throughput", "cost", "slo", "hierarchical")
PACKABLE = ("max_min", "throughput", "cost")
"""Objectives with few enough kinds of jobs to form pairs."""
_STEP = 1.25
"""Factor within which run times and needs count as equal, at the larger value."""
_NEAR = 1.05
"""Precision of the search for the smallest worst-case slowdown, as a factor."""


@dataclass(frozen=True)
class Active:
    """The jobs of one domain when shares are computed, in submission order. k jobs, J types."""

    gpus: Ints
    """GPUs of each job (k,)."""
    speed: Floats
    """Speed of each job on each type, or 0 if the job may not or cannot run there (k, J)."""
    capacity: Floats
    """GPUs of each type (J,)."""
    price: Floats
    """GPU price of each type, relative to the highest price (J,)."""
    left_ms: Floats
    """Remaining run time of each job (k,) [ms]."""
    age_ms: Floats
    """Time since each job's submission (k,) [ms]."""
    isolated_ms: Floats
    """Time that each job's work so far would have taken on an equal part of the cluster (k,) [ms]."""
    due_ms: Floats
    """Time until each job's deadline, negative after the deadline (k,) [ms]."""
    tenant: Ints
    """VC of each job (k,)."""
    load: Ints
    """GPU utilization level of each job, or 0 for all if jobs are not packed (k,)."""
    beside: Callable[[int, int], tuple[float, float]] | None = None
    """Function from two levels to the speeds of two jobs that share GPUs ((0, 0): not allowed), or None if unpacked."""


@dataclass(frozen=True)
class Found:
    """Computed shares of jobs. k jobs, J types, R pairs of kinds."""

    alone: Floats
    """Share of time that each job runs alone on each type (k, J)."""
    packed: Floats
    """Share of time that each job runs on each type together with another job (k, J)."""
    kind: Ints
    """Kind of each job (k,)."""
    pairs: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """The pairs that get time, as rows (kind, other kind, type) (R, 3)."""


def find_shares(objective: str, active: Active, *, once: bool, inside: str) -> Found:
    """Return the shares of time that are best for an objective.

    Parameters
    ----------
    objective : str
        One of `OBJECTIVES`.
    once : bool
        Whether max_min raises only the least speed.
    inside : str
        How hierarchical divides a VC's part among its jobs: 'fair' or 'fifo'.
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
    # No job can do better than running all the time where it is fastest.
    demand, first, of = _kinds(own)
    room = fastest_for_all(demand, value[first])
    if room is not None and objective != "slo":
        shares[able] = room[of]
    elif objective == "hierarchical":
        shares[able] = _of_tenants(own, inside)
    elif objective == "makespan":
        shares[able], _ = _at_need(own, _stepped(own.left_ms))
    elif objective == "finish_time_fairness":
        shares[able] = _fair_finish(own)
    else:
        shares[able] = _valued(own, value, due=objective == "slo")
    return Found(shares, np.zeros(shares.shape), kind)


def isolated_speed(active: Active) -> Floats:
    """Return each job's speed on an equal part of each type's GPUs (k,)."""
    part = np.minimum(1.0, active.capacity / max(len(active.gpus), 1) / active.gpus[:, None])
    part = part / np.maximum(part.sum(axis=1, keepdims=True), 1.0)
    return np.asarray((active.speed * part).sum(axis=1))


def _rows(active: Active, chosen: Ints) -> Active:
    whole = {"capacity", "price", "beside"}
    return Active(**{key: v if key in whole else v[chosen] for key, v in vars(active).items()})


def _grouped(*columns: NDArray[np.generic]) -> tuple[Ints, Ints, Ints]:
    """Group equal rows into kinds. Return the first row of each kind, the kind of each row, and the rows per kind."""
    table = np.column_stack([np.asarray(c, np.float64) for c in columns])
    _, first, of, count = np.unique(table, axis=0, return_index=True, return_inverse=True, return_counts=True)
    return first, of.ravel(), count


def _kinds(active: Active, *columns: NDArray[np.generic]) -> tuple[Kinds, Ints, Ints]:
    """Return the kinds of jobs, each kind's first row, and each row's kind. Extra columns also distinguish kinds."""
    first, of, count = _grouped(active.gpus, active.speed, *columns)
    return Kinds(count, active.gpus[first], active.speed[first], active.capacity), first, of


def _stepped(values: Floats) -> Floats:
    """Round values up to powers of the step, so that only a few different values remain."""
    return np.asarray(_STEP ** np.ceil(np.log(np.maximum(values, 1e-12)) / np.log(_STEP) - 1e-9))


def _at_need(active: Active, need: Floats) -> tuple[Floats, float]:
    """Return the shares that maximize the smallest ratio of speed to need, and that ratio."""
    demand, first, of = _kinds(active, need)
    found, level = raise_least(demand, need[first], once=True)
    return found[of], level


def _fair_finish(active: Active) -> Floats:
    """Return the shares with the smallest worst ratio of a job's end to its end on an equal part of the cluster."""
    fastest, left = active.speed.max(axis=1), np.maximum(active.left_ms, 1.0)
    alone = active.isolated_ms + left / np.maximum(isolated_speed(active), 1e-9)

    def at(ratio: float) -> tuple[Floats, float]:
        need = left / np.maximum(ratio * alone - active.age_ms, 1e-9)
        # Limit the need to the fastest speed, which rounding up must not exceed.
        return _at_need(active, np.minimum(_stepped(need), fastest))

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


def _valued(active: Active, value: Floats, *, due: bool) -> Floats:
    """Return the shares with the largest total value. With `due`, jobs also meet their deadlines if all can be met."""
    floor = np.zeros(len(active.gpus))
    if due:
        need = _stepped(active.left_ms / np.maximum(active.due_ms, 1.0))
        fastest = active.speed.max(axis=1)
        late = active.left_ms > active.due_ms * fastest
        floor = np.where(late, 0.0, np.minimum(need, fastest * (1 - 1e-9)))
    demand, first, of = _kinds(active, value, floor)
    found = most_value(demand, value[first], floor[first]) if due else None
    if found is None:
        found = most_value(demand, value[first])
    return np.zeros(active.speed.shape) if found is None else found[of]


def _of_tenants(active: Active, inside: str) -> Floats:
    """Divide each type's GPUs among VCs by max-min over their sums, then among each VC's jobs. Return the shares."""
    tenants, tenant = np.unique(active.tenant, return_inverse=True)
    demand, first, of = _kinds(active, tenant)
    count, equal, entity = demand.count, demand.equal, tenant[first]
    merged = demand.alike
    if merged:
        wanted = np.bincount(tenant, active.gpus, len(tenants)).astype(np.int64)
        whole = Kinds(np.ones_like(wanted), wanted, np.ones((len(wanted), 1)), active.capacity.sum(keepdims=True))
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
        mine = Kinds(count[kinds], demand.gpus[kinds], demand.speed[kinds], part[e])
        room = fastest_for_all(mine, mine.speed)
        if room is None:
            room, _ = raise_least(mine, equal[kinds] / mine.gpus, once=False)
        row[kinds] = room
    if merged:
        row = spread_over(demand.gpus, row[:, 0] * count, active.capacity) / count[:, None]
    return row[of]


def _in_order(gpus: Ints, speed: Floats, part: Floats) -> Floats:
    """Return shares for jobs in order, each on its fastest types first, until no GPUs are left."""
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


def _packed(objective: str, active: Active, able: Ints, *, once: bool) -> Found:
    """Return the shares of single jobs, and of pairs of jobs with equal numbers of GPUs that share them."""
    own = _rows(active, able)
    first, of, count = _grouped(own.gpus, own.speed, own.load)
    gpus, speed, load = own.gpus[first], own.speed[first], own.load[first]
    a, b = np.nonzero(np.triu(gpus[:, None] == gpus))
    enough = (a != b) | (count[a] > 1)
    pair = np.column_stack([a, b])[enough]
    beside = own.beside
    slower = np.array([beside(int(load[i]), int(load[j])) if beside else (0.0, 0.0) for i, j in pair]).reshape(-1, 2)
    both = np.stack([speed[pair[:, i]] * slower[:, i, None] for i in (0, 1)], axis=2)
    demand = Kinds(count, gpus, speed, own.capacity, pair, both)
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


_SLACK = 1e-9


@dataclass(frozen=True)
class Kinds:
    """Kinds of jobs that share the GPUs of some types. K kinds, J types, R pairs of kinds."""

    count: Ints
    """Jobs of each kind (K,)."""
    gpus: Ints
    """GPUs of a job of each kind (K,)."""
    speed: Floats
    """Speed of each kind on each type, or 0 if the kind may not or cannot run there (K, J)."""
    capacity: Floats
    """GPUs of each type (J,)."""
    pair: Ints | None = None
    """Kinds that may share GPUs, with equal numbers of GPUs (R, 2)."""
    pair_speed: Floats | None = None
    """Speeds of both jobs in each pair on each type, or 0 if they may not share GPUs (R, J, 2)."""

    @property
    def equal(self) -> Floats:
        """Speed of a job of each kind if its shares are in proportion to the types' GPUs (K,)."""
        return np.asarray(self.speed @ self.capacity / max(float(self.capacity.sum()), 1.0))

    @property
    def alike(self) -> bool:
        """Whether every kind is equally fast on all types, so all types count as one."""
        return self.pair is None and bool((self.speed == self.speed[:, :1]).all())

    def merged(self) -> Kinds:
        """Return the same kinds with all types merged into one."""
        return Kinds(self.count, self.gpus, self.speed[:, :1], self.capacity.sum(keepdims=True))


def max_min_shares(
    count: Ints, gpus: Ints, speed: Floats, capacity: Ints | Floats, *, once: bool = False
) -> tuple[Floats, Floats]:
    """Return the shares of time on each type that maximize the least normalized speed, then the next least, and so on.

    The normalized speed of a job is gpus * sum(speed * share), divided by its speed with shares in proportion to the
    GPUs of the types.

    Parameters
    ----------
    count : array (K,)
        Jobs of each kind.
    gpus : array (K,)
        GPUs of a job of each kind.
    speed : array (K, J)
        Speed of each kind on each type, or 0 if the kind may not or cannot run there.
    capacity : array (J,)
        GPUs of each type.
    once : bool
        Raise only the least speed, so the GPUs left over are in no share.

    Returns
    -------
    shares : array (K, J)
        Share of time that each job of a kind runs. Each row sums to at most 1.
    level : array (K,)
        Normalized speed of each kind.
    """
    usable = (speed > 0) & (gpus[:, None] <= capacity)
    demand = Kinds(count, gpus, np.where(usable, speed, 0.0), np.asarray(capacity, np.float64))
    # Kinds without a usable type get no share, because they cannot be normalized.
    equal = demand.equal
    shares = np.zeros(demand.speed.shape)
    able = np.flatnonzero(equal > 0)
    if len(able):
        own = Kinds(count[able], gpus[able], demand.speed[able], demand.capacity)
        found = None if once else fastest_for_all(own, own.speed)
        if found is None:
            found, _ = raise_least(own, equal[able] / gpus[able], once=once)
        shares[able] = found
    level = np.divide(gpus * (demand.speed * shares).sum(axis=1), equal, out=np.zeros(len(count)), where=equal > 0)
    return shares, level


def fastest_for_all(demand: Kinds, value: Floats) -> Floats | None:
    """Return shares with which every job always runs where its value is largest, or None if that does not fit.

    Types of equal value are filled one after another, large gangs first, and a job rarely gets shares of two types.

    Parameters
    ----------
    value : array (K, J)
        Value of time on each type, or 0 if a kind may not run there.
    """
    best = value.max(axis=1)
    left = demand.capacity.copy()
    shares = np.zeros(value.shape)
    for k in np.lexsort((-demand.gpus, (value >= best[:, None] * (1 - _SLACK)).sum(axis=1))).tolist():
        if best[k] <= 0:
            continue
        need = float(demand.count[k])
        for j in np.flatnonzero(value[k] >= best[k] * (1 - _SLACK)).tolist():
            given = min(need, left[j] / demand.gpus[k])
            left[j] -= given * demand.gpus[k]
            need -= given
            shares[k, j] = given / demand.count[k]
            if need <= 0:
                break
        if need > _SLACK:
            return None
    return shares


def raise_least(demand: Kinds, need: Floats, *, once: bool, together: Floats | None = None) -> tuple[Floats, float]:
    """Return the shares that maximize the least level (speed over need), and this level.

    Parameters
    ----------
    need : array (K,)
        Speed above 0 that each kind needs for a level of 1. Every kind must be able to run on some type.
    once : bool
        Whether to stop there. Otherwise, the next least level is raised, and so on, while time is left.
    together : array (E, K), optional
        Weights that sum the kinds' speeds to the speeds of E entities. Needs and levels then apply to entities.

    Returns
    -------
    shares : array (K, J), or (K + R, J) with pairs
        Share of time that each job of a kind runs alone, then the total time of each pair.
    level : float
        The least level.
    """
    if together is None and demand.alike:
        found, level = _fill(demand.merged(), need, once=once)
        time = spread_over(demand.gpus, found * demand.count, demand.capacity)
        return time / demand.count[:, None], level
    return _programs(demand, need, together, once=once)


def _fill(demand: Kinds, need: Floats, *, once: bool) -> tuple[Floats, float]:
    """Return the shares on one type: at level y, a job has the share need * y / speed, at most 1."""
    per_level = need / demand.speed[:, 0]
    cost = demand.gpus * demand.count * per_level
    left, open_cost = float(demand.capacity[0]), float(cost.sum())
    full = 1.0 / per_level
    least = min(left / open_cost, float(full.min()))
    if once:
        return least * per_level, least
    for k in np.argsort(full, kind="stable").tolist():
        if full[k] * open_cost >= left:
            return np.minimum(left / open_cost * per_level, 1.0), least
        left -= float(demand.gpus[k] * demand.count[k])
        open_cost -= float(cost[k])
    return np.ones(len(full)), least


def spread_over(gpus: Ints, time: Floats, capacity: Floats) -> Floats:
    """Divide time over several equal types: fill one type after another, large gangs first.

    Parameters
    ----------
    gpus : array (N,)
        GPUs of a gang of each kind.
    time : array (N,)
        Total time of all gangs of each kind, on any type.
    capacity : array (J,)
        GPUs of each type.

    Returns
    -------
    array (N, J)
    """
    order = np.argsort(-gpus, kind="stable")
    until = np.cumsum((time * gpus)[order])
    since = np.concatenate([[0.0], until[:-1]])
    high = np.cumsum(capacity)
    part = np.minimum(until[:, None], high) - np.maximum(since[:, None], high - capacity)
    found = np.zeros((len(gpus), len(capacity)))
    found[order] = np.maximum(part, 0.0) / gpus[order, None]
    return found


def _programs(demand: Kinds, need: Floats, together: Floats | None, *, once: bool) -> tuple[Floats, float]:
    """Return the shares from a sequence of linear programs. Each fixes the jobs that cannot get more."""
    program = _Program(demand)
    gain = program.gain if together is None else together @ program.gain
    growing, floor = np.ones(len(need), np.bool_), np.zeros(len(need))
    time, first = np.zeros(program.ways), -1.0
    while growing.any():
        found = program.solve(-gain, -floor, np.where(growing, need, 0.0))
        if found is None:
            break
        time, level, prices = found
        first = level if first < 0 else first
        stuck = growing & (prices > _SLACK)
        if once or not stuck.any():
            break
        # A slightly smaller value keeps the next program feasible after rounding.
        floor[stuck] = level * need[stuck] * (1 - _SLACK)
        growing &= ~stuck
    return program.shares(time), max(first, 0.0)


def most_value(demand: Kinds, value: Floats, floor: Floats | None = None) -> Floats | None:
    """Return the shares with the largest total value, GPUs times value times time, or None if the floors cannot be met.

    Parameters
    ----------
    value : array (K, J)
        Value of a GPU's time for each kind on each type, used instead of the speed.
    floor : array (K,), optional
        Minimum speed of each kind.

    Returns
    -------
    array (K, J), or (K + R, J) with pairs
    """
    program = _Program(demand)
    aim = program.worth(value)
    gain = program.gain if floor is not None else np.zeros((0, program.ways))
    found = program.solve(-gain, np.zeros(0) if floor is None else -floor, None, aim)
    return None if found is None else program.shares(found[0])


class _Program:
    """A linear program. Each variable is the total time of one way to run: a kind or a pair on a type."""

    def __init__(self, demand: Kinds) -> None:
        self.demand = demand
        kinds, types = demand.speed.shape
        own, on = np.nonzero(demand.speed > 0)
        first, second = own, np.full(len(own), -1)
        speeds = [demand.speed[own, on], np.zeros(len(own))]
        self.pair = np.full(len(own), -1)
        if demand.pair is not None and demand.pair_speed is not None:
            row, place = np.nonzero((demand.pair_speed > 0).all(axis=2))
            self.pair = np.concatenate([self.pair, row])
            first = np.concatenate([first, demand.pair[row, 0]])
            second = np.concatenate([second, demand.pair[row, 1]])
            on = np.concatenate([on, place])
            speeds = [np.concatenate([speeds[i], demand.pair_speed[row, place, i]]) for i in (0, 1)]
        self.first, self.on, self.ways = first, on, len(on)
        at = np.arange(self.ways)
        packed = np.flatnonzero(second >= 0)
        self.gain, use = np.zeros((kinds, self.ways)), np.zeros((kinds, self.ways))
        np.add.at(self.gain, (first, at), speeds[0])
        np.add.at(use, (first, at), 1.0)
        np.add.at(self.gain, (second[packed], packed), speeds[1][packed])
        np.add.at(use, (second[packed], packed), 1.0)
        self.gain /= demand.count[:, None]
        held = np.zeros((types, self.ways))
        held[on, at] = demand.gpus[first]
        self.rows = np.concatenate([use / demand.count[:, None], held])
        self.limit = np.concatenate([np.ones(kinds), demand.capacity])
        self.second, self.speeds = second, speeds

    def worth(self, value: Floats) -> Floats:
        """Return the value of each way's time: GPUs times value, reduced in a pair by each job's slowdown."""
        demand = self.demand
        found = demand.gpus[self.first] * value[self.first, self.on]
        packed = np.flatnonzero(self.second >= 0)
        if len(packed):
            a, b, on = self.first[packed], self.second[packed], self.on[packed]
            part = [self.speeds[i][packed] / demand.speed[k, on] * value[k, on] for i, k in enumerate((a, b))]
            found[packed] = demand.gpus[a] * (part[0] + part[1])
        return np.asarray(found)

    def solve(
        self, rows: Floats, limit: Floats, level: Floats | None, aim: Floats | None = None
    ) -> tuple[Floats, float, Floats] | None:
        """Return the times, the level, and the prices of the additional rows, or None if the program is infeasible.

        Parameters
        ----------
        rows, limit : arrays (A, ways), (A,)
            Additional rows, and their upper limits.
        level : array (A,), optional
            Coefficients of the level in these rows. If given, the level is maximized.
        aim : array (ways,), optional
            Coefficients of the value to maximize, if no level is given.
        """
        from scipy.optimize import linprog

        matrix = np.concatenate([self.rows, rows])
        objective = np.zeros(self.ways) if aim is None else -aim
        if level is not None:
            column = np.concatenate([np.zeros(len(self.rows)), level])
            matrix = np.column_stack([matrix, column])
            objective = np.append(objective, -1.0)
        found: Any = linprog(objective, A_ub=matrix, b_ub=np.concatenate([self.limit, limit]), method="highs")
        if found.status != 0:
            return None
        x = np.maximum(np.asarray(found.x), 0.0)
        prices = -np.asarray(found.ineqlin.marginals)[len(self.rows) :]
        return x[: self.ways], float(x[-1]) if level is not None else 0.0, prices

    def shares(self, time: Floats) -> Floats:
        """Convert times to shares of each job by kind and type, followed by rows with the times of the pairs."""
        demand = self.demand
        kinds, types = demand.speed.shape
        pairs = 0 if demand.pair is None else len(demand.pair)
        found = np.zeros((kinds + pairs, types))
        alone = self.second < 0
        found[self.first[alone], self.on[alone]] = time[alone] / demand.count[self.first[alone]]
        found[kinds + self.pair[~alone], self.on[~alone]] = time[~alone]
        np.clip(found[:kinds], 0.0, 1.0, out=found[:kinds])
        return found
