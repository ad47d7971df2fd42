"""When a gang that is spread over nodes could first have moved to the fewest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.characterize.placeable import compressed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.characterize.occupancy import Steps
    from tracekit.characterize.placeable import FreeNodes

_NEVER = np.iinfo(np.int64).max


class Packing:
    """Where gangs of one size fit on the fewest nodes of a pool, through time.

    Parameters
    ----------
    pool : FreeNodes
        Has nodes.
    gang : float
        GPUs of the gang, more than 0.
    """

    def __init__(self, pool: FreeNodes, gang: float) -> None:
        self._pool = pool
        # As FreeNodes.fits: whole nodes, and one more with enough for the rest; a small gang is all rest.
        whole, rest = divmod(gang, pool.size) if gang > pool.size else (0, gang)
        self._whole, self._rest = int(whole), float(rest) if rest > 1e-9 else 0.0
        self._full = pool.with_at_least(pool.size) if self._whole else None
        self._partly = pool.with_at_least(self._rest) if self._rest else None
        self._fits: dict[tuple[int, int], Steps] = {}
        self._nodes: dict[int, Steps] = {}

    def first_place(self, since: int, until: int, nodes: Sequence[int], parts: Sequence[float]) -> int | None:
        """Return the first moment in [since, until) at which the fewest nodes have room [us]; None without any.

        The GPUs that it holds itself, `parts` of the `nodes` of the pool, count as free.
        """
        anyway = int(_next_true(self._with(0, 0), np.array([since]))[0])
        if anyway == since:
            return since
        # Its own GPUs can only bring the moment forward.
        end = min(anyway, until)
        own = [self._of_node(node) for node in nodes]
        times = [steps.times[slice(*np.searchsorted(steps.times, [since, end - 1], side="right"))] for steps in own]
        begins = np.unique(np.concatenate([np.array([since]), *times]))
        full, partly = np.zeros(len(begins), dtype=np.int64), np.zeros(len(begins), dtype=np.int64)
        for node, steps, gpus in zip(nodes, own, parts, strict=True):
            free = steps.at(begins)
            with_own = np.minimum(free + gpus, self._pool.node_gpus[node])
            full += (with_own >= self._pool.size - 1e-9) & (free < self._pool.size - 1e-9)
            partly += (with_own >= self._rest - 1e-9) & (free < self._rest - 1e-9)
        first = self._first(begins, np.append(begins[1:], end), full, partly)
        return anyway if first is None and anyway < until else first

    def _first(self, begins: Ints, ends: Ints, full: Ints, partly: Ints) -> int | None:
        """Return the first moment at which it fits, given how many own nodes count besides from each begin on."""
        full, partly = np.minimum(full, self._whole), np.minimum(partly, self._whole + 1)
        best = _NEVER
        for pair in np.unique(np.stack([full, partly], axis=1), axis=0).tolist():
            rows = (full == pair[0]) & (partly == pair[1])
            moments = _next_true(self._with(pair[0], pair[1]), begins[rows])
            inside = moments[moments < ends[rows]]
            best = min(best, int(inside.min(initial=_NEVER)))
        return None if best == _NEVER else best

    def _with(self, full: int, partly: int) -> Steps:
        """Return whether it fits where so many more nodes are wholly free, and have enough for the rest."""
        if (full, partly) not in self._fits:
            steps = [s for s in (self._full, self._partly) if s is not None]
            times = np.unique(np.concatenate([s.times for s in steps]))
            holds: Bools = np.ones(len(times) + 1, dtype=bool)
            if self._full is not None:
                holds &= _values(self._full, times) + full >= self._whole
            if self._partly is not None:
                holds &= _values(self._partly, times) + partly >= self._whole + 1
            self._fits[full, partly] = compressed(times, holds)
        return self._fits[full, partly]

    def _of_node(self, node: int) -> Steps:
        if node not in self._nodes:
            self._nodes[node] = self._pool.of_node(node)
        return self._nodes[node]


def _values(steps: Steps, times: Ints) -> Floats:
    """Return the value before the first of some times that hold all its steps, and from each of them on."""
    return np.concatenate([steps.values[:1], steps.at(times)])


def _next_true(steps: Steps, moments: Ints) -> Ints:
    """Return the first moment from each on at which a condition holds that changes at every step."""
    index = np.searchsorted(steps.times, moments, side="right")
    later = np.append(steps.times, _NEVER)[index]
    return np.where(steps.values[index] > 0, moments, later)
