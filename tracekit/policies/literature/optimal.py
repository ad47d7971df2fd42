"""Optimal choices: matchings, integer programs and multiple-choice knapsacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.array_types import Bools, Floats, Ints


def heaviest_pairs(edges: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the edges of a maximum-weight matching (Edmonds' blossom algorithm).

    Parameters
    ----------
    edges : sequence of (weight, one, other)
        Edges with integer weights; edges with a weight of 0 or less are never matched.

    Returns
    -------
    list
        The chosen edges, each with the smaller end first, sorted by that end.
    """
    import networkx as nx

    graph = nx.Graph()
    graph.add_weighted_edges_from((one, other, weight) for weight, one, other in edges if weight > 0)
    found = nx.max_weight_matching(graph)
    return sorted(
        ((int(graph[one][other]["weight"]), min(one, other), max(one, other)) for one, other in found),
        key=lambda edge: edge[1],
    )


def best_assignment(weight: Floats) -> list[tuple[int, int]]:
    """Return the pairs (row, column) with the largest sum of weights, using each row and column at most once.

    Parameters
    ----------
    weight : array (R, C)
        Weights; pairs with a weight of 0 or less are never chosen.
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(np.maximum(weight, 0.0), maximize=True)
    return [(r, c) for r, c in zip(rows.tolist(), columns.tolist(), strict=True) if weight[r, c] > 0]


def chosen(
    cost: Floats, limits: Iterable[tuple[Any, Any, Any]], *, most: float | Floats = 1.0, **options: Any
) -> Bools | None:
    """Return the variables that an integer program (HiGHS) sets for the least total cost, or None if infeasible.

    Parameters
    ----------
    cost : array (v,)
        Cost of each variable, which is 0 or 1.
    limits : (matrix, lower, upper)
        Limits on the sums of rows: matrices (r, v), dense or sparse, and lower and upper limits (r,).
    most : float or array (v,)
        Upper limit of each variable.
    **options
        Options of the program, such as `mip_rel_gap`, the accepted gap to the least cost [1].
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    found: Any = milp(
        cost,
        integrality=np.ones(len(cost), np.int64),
        bounds=Bounds(0, most),
        constraints=[LinearConstraint(matrix, lower, upper) for matrix, lower, upper in limits],
        options=cast("Any", options),
    )
    return None if found.x is None else np.asarray(found.x) > 0.5


def sparse(parts: Iterable[tuple[Ints, Ints, NDArray[Any]]], rows: int, columns: int) -> Any:
    """Return a sparse matrix of entries (row, column, value). Values at the same place are added."""
    from scipy.sparse import csr_array

    row, column, value = (np.concatenate(list(part)) for part in zip(*parts, strict=True))
    return csr_array((value.astype(np.float64), (row, column)), shape=(rows, columns))


_SLIGHT = 1e-3


def take_chains(
    row: Ints, size: Ints, gain: Floats, capacity: int, *, rows: int, core: int, limit_s: float = 1.0
) -> Ints:
    """Return how many steps to take from each row for the largest sum of gains (a multiple-choice knapsack).

    A row is a chain of steps that may only be taken in order.

    Steps are taken in order of gain per size until one does not fit; among equals, the first steps of rows come first.
    An integer program over the rows near that step then fills the remaining capacity, unless it could add less than a
    thousandth. The other rows keep their steps.

    Parameters
    ----------
    row : array (s,)
        Row of each step, ascending. Each row's steps are in order.
    size : array (s,)
        Size of each step, at least 1.
    gain : array (s,)
        Gain of each step. Gain per size never increases inside a row. Steps with a gain of 0 or less are not taken.
    capacity : int
        Maximum sum of sizes.
    rows : int
        Number of rows.
    core : int
        Number of rows, on either side of the first step that does not fit, that the program reconsiders. With
        core=rows, the result is optimal.
    limit_s : float
        Time limit of the program [s]. The best solution found by then is used, or else the steps that fit, in order.
    """
    taken = np.zeros(rows, np.int64)
    worth = np.flatnonzero(gain > 0)
    further = np.append(np.False_, row[1:] == row[:-1])[: len(row)]
    order = worth[np.lexsort((further[worth], -(gain / size)[worth]))]
    fits = np.cumsum(size[order]) <= capacity
    stop = len(order) if fits.all() else int(fits.argmin())
    taken += np.bincount(row[order[:stop]], minlength=rows)
    left = capacity - int(size[order[:stop]].sum())
    if left == 0 or stop == len(order):
        return taken
    # Upper bound: the gain if the step that does not fit could be taken in part.
    bound = left * float(gain[order[stop]] / size[order[stop]])
    greedy, filled = _filled(row, size, gain, taken, order[stop:], left)
    if not core or bound - filled < _SLIGHT * float(gain[order[:stop]].sum()):
        return greedy
    near = np.unique(np.concatenate([_last(row[order[:stop][::-1]], core), _last(row[order[stop:]], core)]))
    better = _program(row, size, gain, taken, near, left, filled, limit_s)
    if better is None:
        return greedy
    taken[near] = better
    return taken


def _filled(row: Ints, size: Ints, gain: Floats, taken: Ints, order: Ints, left: int) -> tuple[Ints, float]:
    """Add the steps that fit into the remaining capacity, in order. Return all steps taken and the added gain."""
    found, gained, closed = taken.copy(), 0.0, set()
    for step in order.tolist():
        r = int(row[step])
        if size[step] > left:
            # Later steps of the row depend on this step.
            closed.add(r)
        elif r not in closed:
            found[r] += 1
            left -= int(size[step])
            gained += float(gain[step])
        if left == 0:
            break
    return found, gained


def _last(rows: Ints, count: int) -> Ints:
    """Return the first `count` distinct rows of a list."""
    first = np.sort(np.unique(rows, return_index=True)[1])[:count]
    return rows[first]


def _program(
    row: Ints, size: Ints, gain: Floats, taken: Ints, near: Ints, left: int, beat: float, limit_s: float
) -> Ints | None:
    """Return the best steps of the rows `near` within the capacity that they use plus the remaining capacity.

    Return None if no choice adds more than `beat`.
    """
    first = np.searchsorted(row, near)
    count = np.searchsorted(row, near, side="right") - first
    mine = np.repeat(np.arange(len(near)), count)
    step = np.arange(len(mine)) - np.repeat(np.cumsum(count) - count, count)
    at = first[mine] + step
    # A choice is a number of steps of a row; its size and gain are the sums over these steps.
    size_to, gain_to = _summed(size[at], step), _summed(gain[at], step)
    before = taken[near]
    room = left + int(size[at][step < before[mine]].sum())
    one = np.zeros((len(near), len(mine)))
    one[mine, np.arange(len(mine))] = 1.0
    limits = [(one, -np.inf, 1.0), (size_to[None, :].astype(float), -np.inf, float(room))]
    found = chosen(-gain_to / max(float(gain_to.max()), 1e-300), limits, time_limit=limit_s, mip_rel_gap=1e-6)
    if found is None:
        return None
    best = np.zeros(len(near), np.int64)
    best[mine[found]] = step[found] + 1
    now = float(gain[at][step < before[mine]].sum())
    return best if gain_to[found].sum() > now + beat and size_to[found].sum() <= room else None


def _summed(values: NDArray[Any], step: Ints) -> NDArray[Any]:
    """Return cumulative sums within each row, where step 0 starts a row."""
    total = np.cumsum(values)
    start = np.flatnonzero(step == 0)
    before = np.repeat(total[start] - values[start], np.diff(np.append(start, len(step))))
    return np.asarray(total - before)
