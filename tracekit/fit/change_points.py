"""Change points in the counts of successive days: where they may be, and whether chance alone makes such ones.

`best_cuts` finds for every number of pieces the cuts of the largest Poisson likelihood, by dynamic programming (Jackson
et al., 2005, "An algorithm for optimal partitioning of data on an interval"). Counts of a workload vary much more than
Poisson counts, and days of bursts would be pieces of their own. `pieces_beyond_chance` therefore counts only those that
chance does not make: an arc of a piece is compared with the rest of the piece, and with the arcs that the same days
have in random order (circular binary segmentation: Olshen et al., 2004, Biostatistics 5(4)). Blocks of days are put in
random order, so that bursts of a day or two stay what they are.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole

__all__ = ["BLOCK", "DRAWS", "LEVEL", "ChangeTest", "best_cuts", "pieces_beyond_chance"]

BLOCK = 3
"""Units of a block, and of the shortest piece."""
DRAWS = 199
"""Random orders of the blocks."""
LEVEL = 0.05
"""p-value above which a piece is left whole; BIC decides beside it."""
_FIRST = 39
"""Orders after which a test ends that cannot reach the level any more."""
_MOST_PIECES = 16


class ChangeTest(NamedTuple):
    """What random orders say about the pieces of a log."""

    pieces: int
    """Number of pieces that chance does not make; 1 where none changes."""
    p: float | None
    """p-value of the strongest arc of the whole log; None where it has too few blocks."""


def best_cuts(counts: Floats, exposure: Floats, least: int, most: int) -> list[Whole]:
    """Return for 2, 3, ... `most` pieces where to cut so that the Poisson likelihood is largest.

    Parameters
    ----------
    counts, exposure : array (n,)
        Arrivals in each unit, and what they are proportional to within a piece, above 0.
    least : int
        Units of the shortest piece.
    most : int
        Pieces; fewer where the units do not suffice.

    Returns
    -------
    list of array (pieces + 1,)
        Edges from 0 to n, in units.
    """
    number = counts.size
    most = min(most, number // least)
    if most < 2:
        return []
    total, exposed = _running(counts), _running(exposure)
    place = np.arange(number + 1)
    long = place[None, :] - place[:, None] >= least
    inside = np.where(long, total[None, :] - total[:, None], 0.0)
    over = np.where(long, exposed[None, :] - exposed[:, None], 1.0)
    gain = np.where(long, special.xlogy(inside, inside / over), -np.inf)
    best = gain[0]
    came: list[Whole] = []
    found = []
    for _ in range(2, most + 1):
        whole = best[:, None] + gain
        came.append(whole.argmax(axis=0))
        best = whole.max(axis=0)
        edges = [number]
        for step in reversed(came):
            edges.append(int(step[edges[-1]]))
        found.append(np.array([0, *edges[::-1]]))
    return found


def pieces_beyond_chance(counts: Floats, exposure: Floats) -> ChangeTest:
    """Return how many pieces the counts of successive units have that random orders of their blocks do not make.

    The orders are the same for the same counts.

    Parameters
    ----------
    counts, exposure : array (n,)
        As for `best_cuts`.
    """
    rng = np.random.default_rng(counts.size)
    waiting, pieces = [(0, counts.size)], 1
    first: float | None = None
    while waiting and pieces < _MOST_PIECES:
        low, high = waiting.pop()
        p, begin, end = _strongest_arc(counts[low:high], exposure[low:high], rng)
        if (low, high) == (0, counts.size):
            first = p
        if p is None or p > LEVEL:
            continue
        edges = sorted({low, low + begin, low + end, high})
        waiting += list(itertools.pairwise(edges))
        pieces += len(edges) - 2
    return ChangeTest(pieces, first)


def _strongest_arc(counts: Floats, exposure: Floats, rng: np.random.Generator) -> tuple[float | None, int, int]:
    """Return the p-value of the arc that differs most from the rest, where it begins and where it ends."""
    number = counts.size
    block = np.arange(number) // BLOCK
    if number < 2 * BLOCK or counts.sum() <= 0:
        return None, 0, number
    gain, begin, end = _gains(counts[None], exposure[None])
    above, drawn = 0, 0
    for draws in (_FIRST, DRAWS - _FIRST):
        keys = rng.random((draws, int(block[-1]) + 1))[:, block]
        order = np.argsort(keys, axis=1, kind="stable")
        # A block in random order may be its own arc again, to the digits that sums are exact to.
        above += int((_gains(counts[order], exposure[order])[0] >= gain[0] * (1 - 1e-12)).sum())
        drawn += draws
        if (1 + above) / (1 + DRAWS) > LEVEL:
            break
    return (1 + above) / (1 + drawn), int(begin[0]), int(end[0])


def _gains(counts: Floats, exposure: Floats) -> tuple[Floats, Whole, Whole]:
    """Return for each row the log-likelihood that its best arc gains over one rate, its begin and its end."""
    rows, number = counts.shape
    total, exposed = _running(counts), _running(exposure)
    whole, over = total[:, -1:], exposed[:, -1:]
    best = np.full(rows, -np.inf)
    begins, ends = np.zeros(rows, np.int64), np.full(rows, number)
    for begin in (0, *range(BLOCK, number - BLOCK + 1)):
        # What is left before and behind an arc is nothing, or a piece itself.
        end = np.array([e for e in range(begin + BLOCK, number + 1) if e == number or e <= number - BLOCK])
        end = end[(end < number) | (begin > 0)]
        if not end.size:
            continue
        inside, within = total[:, end] - total[:, begin, None], exposed[:, end] - exposed[:, begin, None]
        outside, without = np.maximum(whole - inside, 0.0), over - within
        gain = special.xlogy(inside, inside / within) + special.xlogy(outside, outside / without)
        place = gain.argmax(axis=1)
        found = gain[np.arange(rows), place]
        better = found > best
        best, begins = np.where(better, found, best), np.where(better, begin, begins)
        ends = np.where(better, end[place], ends)
    return best - special.xlogy(whole, whole / over)[:, 0], begins, ends


def _running(each: Floats) -> Floats:
    zero = np.zeros((*each.shape[:-1], 1))
    return np.concatenate([zero, each.cumsum(axis=-1)], axis=-1)
