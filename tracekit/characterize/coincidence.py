"""How many failures come together: pairs of two nodes within a window of time, and what chance would give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints


def count_pairs(times: Ints, node: Ints, group: Ints, window: int) -> int:
    """Return the pairs of failures of two nodes of one group that began within `window` of each other.

    Parameters
    ----------
    times : array of int, shape (failures,)
        When each began [ms], not negative.
    node, group : array of int, shape (failures,)
        The node, and the group that it belongs to, from 0; negative: none.
    window : int
        Longest distance of a pair [ms].
    """
    within = group >= 0
    times, node, group = times[within], node[within], group[within]
    return _alike(times, group, window) - _alike(times, node, window)


def _alike(times: Ints, label: Ints, window: int) -> int:
    """Return the pairs with one label within the window: labels are laid one behind the other, farther apart."""
    if times.size < 2:
        return 0
    line = np.sort(times + label * (int(times.max()) + window + 1))
    return int((np.searchsorted(line, line + window, side="right") - np.arange(1, line.size + 1)).sum())


def pairs_possible(node: Ints, group: Ints) -> int:
    """Return the pairs of failures of two nodes of one group, at whatever times."""
    within = group >= 0
    of_groups, of_nodes = (np.bincount(label[within]).astype(np.int64) for label in (group, node))
    return int((of_groups**2).sum() - (of_nodes**2).sum()) // 2


def chance_of_a_pair(window: float, length: float) -> float:
    """Return the chance that two independent times, each uniform over `length`, are at most `window` apart [0..1].

    It is 2 * w - w^2, with w the window in units of the length.
    """
    share = min(window / length, 1.0)
    return share * (2 - share)


def shift(times: Ints, node: Ints, length: int, rng: np.random.Generator) -> Ints:
    """Return the times with those of each node moved by an offset of its own, around the end of the log.

    The number of a node's failures, and but for the one gap at the end the times between them, stay as they are.
    """
    offset = rng.integers(0, length, int(node.max(initial=0)) + 1)
    return (times + offset[node]) % length


def deal_anew(rack: Ints, rng: np.random.Generator) -> Ints:
    """Return the racks of nodes dealt out anew among the nodes whose rack is known."""
    found = rack.copy()
    found[rack >= 0] = rng.permutation(rack[rack >= 0])
    return found


def groups_of(times: Ints, node: Ints, group: Ints, window: int) -> tuple[int, int, int]:
    """Return the number of times in which nodes failed together, the nodes of the widest, and the failures in them.

    Failures of a group belong together when each begins within the window of the one before; those of one node alone
    are none.
    """
    within = group >= 0
    if not within.any():
        return 0, 0, 0
    order = np.lexsort((node[within], times[within], group[within]))
    times, node, group = (values[within][order] for values in (times, node, group))
    fresh = np.append(True, (np.diff(times) > window) | (np.diff(group) != 0))
    chain = np.cumsum(fresh) - 1
    failures = np.bincount(chain)
    nodes = np.bincount(np.unique(np.stack([chain, node]), axis=1)[0])
    together = nodes > 1
    return int(together.sum()), int(nodes[together].max(initial=0)), int(failures[together].sum())


def share_hit(times: Floats, length: float, within: float) -> float:
    """Return for which share of the moments, from which `within` still lies in the log, a failure begins within it.

    Parameters
    ----------
    times : array of float
        When failures begin, from the begin of the log, in order.
    length, within : float
        Of the log, and of the time looked ahead, in the same unit; `within` is less than `length`.
    """
    last = length - within
    low = np.maximum(np.maximum(times - within, np.append(0.0, times[:-1])), 0.0)
    return float(np.maximum(np.minimum(times, last) - low, 0.0).sum() / last)
