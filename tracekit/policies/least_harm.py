"""Which running jobs to evict, so that a gang gets its place with the least harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["cheapest_cover", "cheapest_nodes"]


def cheapest_cover(gpus: Sequence[int], harm: Sequence[int], need: int) -> tuple[int, list[int]] | None:
    """Return the least harm that frees so many GPUs of a node, and the jobs that do; None where all are too few.

    A knapsack over the few GPUs of one node: a program for each node would cost milliseconds.

    Parameters
    ----------
    gpus : list of int
        GPUs of each job on the node, at least 1.
    harm : list of int
        What each eviction costs, at least 1.
    need : int
        At least 1.
    """
    best: list[tuple[int, list[int]] | None] = [(0, []), *[None] * need]
    for job, (size, cost) in enumerate(zip(gpus, harm, strict=True)):
        for freed in range(need, 0, -1):
            before = best[max(freed - size, 0)]
            if before is not None:
                now = best[freed]
                total = before[0] + cost
                if now is None or total < now[0]:
                    best[freed] = total, [*before[1], job]
    return best[need]


def cheapest_nodes(
    free: NDArray[np.int64],
    part: NDArray[np.int64],
    harm: NDArray[np.int64],
    largest: int,
    gpus: int,
    limit: int = 0,
) -> tuple[list[int], list[int], list[int]] | None:
    """Return whole nodes, and one more for the rest, that a gang gets with the least harm, by an integer program.

    Parameters
    ----------
    free : array (m,)
        Free GPUs of each node.
    part : array (m, k)
        GPUs of each job that may be evicted on each node.
    harm : array (k,)
        What each eviction costs, at least 1.
    largest : int
        GPUs of a whole node.
    gpus : int
        Size of the gang.
    limit : int
        Most nodes of the program's search, 0 any number; the best found by then counts.

    Returns
    -------
    nodes, their GPUs for the gang, and the jobs that leave; None where no place is found.
    """
    whole, rest = divmod(gpus, largest)
    room = free + part.sum(axis=1)
    if int((room >= largest).sum()) < whole or int((room >= (rest or largest)).sum()) < whole + (rest > 0):
        return None
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    count, jobs = part.shape
    on_node, job = np.nonzero(part)
    # Variables: whole nodes, the node of the rest, evictions. A whole node needs every job on it to leave.
    size = 2 * count + jobs
    links = np.arange(len(job))
    leave = coo_array(
        (np.repeat([1.0, -1.0], len(job)), (np.tile(links, 2), np.concatenate([on_node, 2 * count + job]))),
        shape=(len(job), size),
    )
    nodes = np.arange(count)
    columns = np.concatenate([count + nodes, 2 * count + job])
    values = np.concatenate([np.full(count, -float(rest)), part[on_node, job]])
    enough = coo_array((values, (np.concatenate([nodes, on_node]), columns)), shape=(count, size))
    once = coo_array((np.ones(2 * count), (np.tile(nodes, 2), np.arange(2 * count))), shape=(count, size))
    sums = np.zeros((2, size))
    sums[0, :count], sums[1, count : 2 * count] = 1, 1
    upper = np.concatenate([room >= largest, (room >= rest) & (rest > 0), np.ones(jobs)])
    options: Any = {"mip_rel_gap": 0.0} | ({"node_limit": limit} if limit else {})
    found: Any = milp(
        np.concatenate([np.zeros(2 * count), harm / max(int(harm.max(initial=1)), 1)]),
        integrality=np.ones(size, np.int64),
        bounds=Bounds(0, upper.astype(np.float64)),
        constraints=[
            LinearConstraint(leave.tocsr(), ub=0),
            LinearConstraint(enough.tocsr(), lb=-free.astype(np.float64)),
            LinearConstraint(once.tocsr(), ub=1),
            LinearConstraint(sums, lb=[whole, rest > 0], ub=[whole, rest > 0]),
        ],
        options=options,
    )
    if found.x is None:
        return None
    chosen = np.asarray(found.x) > 0.5
    taken = [(node, largest) for node in np.flatnonzero(chosen[:count]).tolist()]
    taken += [(node, rest) for node in np.flatnonzero(chosen[count : 2 * count]).tolist()]
    taken.sort()
    return [node for node, _ in taken], [size for _, size in taken], np.flatnonzero(chosen[2 * count :]).tolist()
