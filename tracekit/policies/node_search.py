"""Which nodes a gang takes, where each has so many GPUs for it: the fewest, and of these the fullest."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NodeSearch"]

_MANY = 1 << 30
"""More than any number of GPUs of a node."""


@dataclass(frozen=True)
class NodeSearch:
    """Where the gangs of one size and kind look for places, laid out so that one pass goes over all nodes."""

    gpus: int
    """Size of the gang."""
    one: slice | NDArray[np.int64]
    """Nodes that could have the whole gang, by group."""
    groups: list[tuple[int, int, int]]
    """Groups in which it needs several nodes: first node, the one after the last, GPUs of the largest (r,)."""
    several: NDArray[np.int64]
    """The nodes of these (m,)."""
    largest: NDArray[np.int64]
    """GPUs of the largest node of the group of each (m,)."""
    low: NDArray[np.int64]
    """First place of each group in `several` (r,)."""
    least: NDArray[np.int64]
    """Whole nodes that the gang needs in each group (r,)."""

    @staticmethod
    def among(groups: list[tuple[int, int, int]], gpus: int) -> NodeSearch:
        """Lay out groups of nodes (first node, the one after the last, GPUs of the largest) for a gang."""
        ones = [(low, high) for low, high, largest in groups if gpus <= largest]
        one: slice | NDArray[np.int64]
        if ones and all(left[1] == right[0] for left, right in pairwise(ones)):
            one = slice(ones[0][0], ones[-1][1])
        else:
            one = _nodes(ones)
        wide = [group for group in groups if gpus > group[2]]
        size = np.array([high - low for low, high, _ in wide], np.int64)
        largest = np.array([most for _, _, most in wide], np.int64)
        several = _nodes([(low, high) for low, high, _ in wide])
        return NodeSearch(gpus, one, wide, several, np.repeat(largest, size), np.cumsum(size) - size, gpus // largest)

    def find(self, room: NDArray[np.int64]) -> list[tuple[int, int]] | None:
        """Return the nodes that the gang takes as (node, GPUs); None where there is no place.

        In one place: the node with the fewest GPUs that suffice, the first of equals; larger gangs on whole nodes of
        the first group that has them, and one more for what is left.

        Parameters
        ----------
        room : array (N,)
            GPUs that each node has for it.
        """
        part = room[self.one]
        if len(part):
            fits = np.where(part >= self.gpus, part, _MANY)
            at = int(fits.argmin())
            if part[at] >= self.gpus:
                return [(self.one.start + at if isinstance(self.one, slice) else int(self.one[at]), self.gpus)]
        if self.groups:
            # Most groups have too few whole nodes.
            whole = np.add.reduceat(room[self.several] >= self.largest, self.low, dtype=np.int64)
            for index in np.flatnonzero(whole >= self.least).tolist():
                low, high, largest = self.groups[index]
                found = _whole_nodes(room[low:high], self.gpus, largest)
                if found is not None:
                    return [(low + node, count) for node, count in found]
        return None


def _nodes(parts: list[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array([node for low, high in parts for node in range(low, high)], np.int64)


def _whole_nodes(room: NDArray[np.int64], gpus: int, largest: int) -> list[tuple[int, int]] | None:
    """Return whole nodes of one group, and one more for the remainder, the one with most room."""
    whole, rest = divmod(gpus, largest)
    free = np.flatnonzero(room >= largest)[:whole].tolist()
    if len(free) < whole:
        return None
    found = [(node, largest) for node in free]
    if rest:
        left = room.copy()
        left[free] = 0
        at = int(left.argmax())
        if left[at] < rest:
            return None
        found.append((at, rest))
    return sorted(found)
