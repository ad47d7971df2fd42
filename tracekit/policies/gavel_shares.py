"""Programs that divide time on GPU types: shares that raise the least level, or the most value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Demand", "fastest_for_all", "max_min_shares", "most_value", "raise_least", "spread_over"]

_SLACK = 1e-9


@dataclass(frozen=True)
class Demand:
    """Kinds of jobs that share the GPUs of some types. K kinds, J types, R pairs of kinds."""

    count: NDArray[np.int64]
    """Jobs of each kind (K,)."""
    gpus: NDArray[np.int64]
    """GPUs of each (K,)."""
    speed: NDArray[np.float64]
    """Speed on each type; 0 if it may not or cannot run there (K, J)."""
    capacity: NDArray[np.float64]
    """GPUs of each type (J,)."""
    pair: NDArray[np.int64] | None = None
    """Kinds that may share GPUs, with equal numbers of GPUs (R, 2)."""
    pair_speed: NDArray[np.float64] | None = None
    """Speed of both jobs on each type; 0 if they may not share (R, J, 2)."""

    @property
    def equal(self) -> NDArray[np.float64]:
        """Speed of a job of each kind with shares in proportion to the GPUs of the types (K,)."""
        return np.asarray(self.speed @ self.capacity / max(float(self.capacity.sum()), 1.0))

    @property
    def alike(self) -> bool:
        """Whether every kind is equally fast on all types, so they count as one."""
        return self.pair is None and bool((self.speed == self.speed[:, :1]).all())

    def merged(self) -> Demand:
        """Return the same with all types as one."""
        return Demand(self.count, self.gpus, self.speed[:, :1], self.capacity.sum(keepdims=True))


def max_min_shares(
    count: NDArray[np.int64],
    gpus: NDArray[np.int64],
    speed: NDArray[np.float64],
    capacity: NDArray[np.int64] | NDArray[np.float64],
    *,
    once: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shares of time on each type that raise the least normalized speed first, then the next, and so on.

    The normalized speed of a job is gpus * sum(speed * share), divided by its speed with shares in proportion to the
    GPUs of the types.

    Parameters
    ----------
    count : array (K,)
        Jobs of each kind.
    gpus : array (K,)
        GPUs of each.
    speed : array (K, J)
        Speed on each type; 0 if it may not or cannot run there.
    capacity : array (J,)
        GPUs of each type.
    once : bool
        Raise only the least speed: GPUs that the program leaves belong to no share.

    Returns
    -------
    shares : array (K, J)
        Share of time of each job of a kind, rows of at most 1 in sum.
    level : array (K,)
        Normalized speed of each kind.
    """
    usable = (speed > 0) & (gpus[:, None] <= capacity)
    demand = Demand(count, gpus, np.where(usable, speed, 0.0), np.asarray(capacity, np.float64))
    # Without any usable type there is nothing to normalize by, and nothing to share.
    equal = demand.equal
    shares = np.zeros(demand.speed.shape)
    able = np.flatnonzero(equal > 0)
    if len(able):
        own = Demand(count[able], gpus[able], demand.speed[able], demand.capacity)
        found = None if once else fastest_for_all(own, own.speed)
        if found is None:
            found, _ = raise_least(own, equal[able] / gpus[able], once=once)
        shares[able] = found
    level = np.divide(gpus * (demand.speed * shares).sum(axis=1), equal, out=np.zeros(len(count)), where=equal > 0)
    return shares, level


def fastest_for_all(demand: Demand, value: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return shares that give every job all its time where its value is largest; None if there is no room for that.

    Types of one value are filled in order, large gangs first, so a job rarely has shares of two.

    Parameters
    ----------
    value : array (K, J)
        Value of time on each type; 0 if a kind may not run there.
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


def raise_least(
    demand: Demand, need: NDArray[np.float64], *, once: bool, together: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], float]:
    """Return shares that make the least level, speed over need, as large as can be, and that level.

    Parameters
    ----------
    need : array (K,)
        Speed that each kind needs for a level of 1, above 0. Every kind can run on some type.
    once : bool
        Stop there; otherwise the next least level is raised, and so on, while time is left.
    together : array (E, K), optional
        Weights that sum the speeds of the kinds to those of E entities; needs and levels are then those of the
        entities.

    Returns
    -------
    shares : array (K, J), or (K + R, J) with pairs
        Share of time of each job of a kind alone, then the time of each pair, summed over its jobs.
    level : float
        The least level.
    """
    if together is None and demand.alike:
        found, level = _fill(demand.merged(), need, once=once)
        time = spread_over(demand.gpus, found * demand.count, demand.capacity)
        return time / demand.count[:, None], level
    return _programs(demand, need, together, once=once)


def _fill(demand: Demand, need: NDArray[np.float64], *, once: bool) -> tuple[NDArray[np.float64], float]:
    """Return the shares on one type: at level y a job has the share need * y / speed, at most all its time."""
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


def spread_over(
    gpus: NDArray[np.int64], time: NDArray[np.float64], capacity: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the time on each of several equal types; they are filled in their order, large gangs first.

    Parameters
    ----------
    gpus : array (N,)
        GPUs of a gang.
    time : array (N,)
        Time of all gangs of a kind on any type.
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


def _programs(
    demand: Demand, need: NDArray[np.float64], together: NDArray[np.float64] | None, *, once: bool
) -> tuple[NDArray[np.float64], float]:
    """Return the shares by a sequence of linear programs; each fixes the jobs that cannot get more."""
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
        # Slightly less than it is, so rounding leaves the next program a solution.
        floor[stuck] = level * need[stuck] * (1 - _SLACK)
        growing &= ~stuck
    return program.shares(time), max(first, 0.0)


def most_value(
    demand: Demand, value: NDArray[np.float64], floor: NDArray[np.float64] | None = None
) -> NDArray[np.float64] | None:
    """Return the shares of the largest total value, GPUs times value times time; None if a floor is impossible.

    Parameters
    ----------
    value : array (K, J)
        Value of a GPU's time, instead of the speed.
    floor : array (K,), optional
        Least speed of each kind.

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
    """Variables, rows and limits: the time of each way to run, a kind alone or a pair on a type, over all its jobs."""

    def __init__(self, demand: Demand) -> None:
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

    def worth(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value of each way's time: GPUs times value, in a pair as much less as each is slower."""
        demand = self.demand
        found = demand.gpus[self.first] * value[self.first, self.on]
        packed = np.flatnonzero(self.second >= 0)
        if len(packed):
            a, b, on = self.first[packed], self.second[packed], self.on[packed]
            part = [self.speeds[i][packed] / demand.speed[k, on] * value[k, on] for i, k in enumerate((a, b))]
            found[packed] = demand.gpus[a] * (part[0] + part[1])
        return np.asarray(found)

    def solve(
        self,
        rows: NDArray[np.float64],
        limit: NDArray[np.float64],
        level: NDArray[np.float64] | None,
        aim: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.float64], float, NDArray[np.float64]] | None:
        """Return times, the level, and prices of the further rows; None if the program has no solution.

        Parameters
        ----------
        rows, limit : arrays (A, ways), (A,)
            Further rows, at most their limits.
        level : array (A,), optional
            Coefficients of the level in these rows; the level is then made as large as can be.
        aim : array (ways,), optional
            The objective if there is no level.
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

    def shares(self, time: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return times as shares of each job by kind and type, and below them the times of the pairs."""
        demand = self.demand
        kinds, types = demand.speed.shape
        pairs = 0 if demand.pair is None else len(demand.pair)
        found = np.zeros((kinds + pairs, types))
        alone = self.second < 0
        found[self.first[alone], self.on[alone]] = time[alone] / demand.count[self.first[alone]]
        found[kinds + self.pair[~alone], self.on[~alone]] = time[~alone]
        np.clip(found[:kinds], 0.0, 1.0, out=found[:kinds])
        return found
