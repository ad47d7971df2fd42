"""Waits of many questions at once, those of jobs that still wait included as at least so long.

The estimate is that of Kaplan and Meier (1958): a job that has waited for an hour and waits on counts among those that
wait for more than an hour, and says nothing of what comes after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints


@dataclass(frozen=True)
class Waits:
    """The waits of the jobs like each of several, a row each.

    The place of a wait is how many of the n jobs waited so long or less; the quantile p lies at the place p (n + 1), as
    is usual for the next one of n alike, and between two waits it is interpolated.
    """

    places: Floats
    """Place of each wait, rising; infinite beyond the last."""
    values: Floats
    """The wait at each place [us]."""
    count: Ints
    """n: how many jobs are alike."""
    waiting: Ints
    """How many of them still wait, or left without a start."""
    longest: Floats
    """The longest time that any of them has waited, started or not [us]."""
    reached: Floats
    """The place of the longest wait that ended with a start."""

    def quantile(self, row: int, share: float) -> float:
        """Return the wait that this share of the jobs does not exceed [us]; infinite where that is not known."""
        n = self.count[row]
        # No wait beyond the longest is known: it stands for all that would lie there.
        place = min(share * (n + 1), n)
        if place <= 0:
            return 0.0
        if place > self.reached[row] + 1e-9:
            return np.inf
        places = self.places[row]
        at = int(places.searchsorted(place - 1e-9))
        before, below = (places[at - 1], self.values[row, at - 1]) if at else (0.0, 0.0)
        part = (place - before) / (places[at] - before) if places[at] > before else 1.0
        return float(below + min(max(part, 0.0), 1.0) * (self.values[row, at] - below))

    def shares(self, row: int, wait: float) -> tuple[float, float]:
        """Return between which shares a wait lies: the one of shorter waits, and that of those as long and itself."""
        places, values, n = self.places[row], self.values[row], self.count[row]
        ended = int(places.searchsorted(np.inf))
        shorter = int(values[:ended].searchsorted(wait, side="left"))
        upto = int(values[:ended].searchsorted(wait, side="right"))
        low = places[shorter - 1] if shorter else 0.0
        high = places[upto - 1] if upto else 0.0
        return float(low / (n + 1)), float(min((high + 1) / (n + 1), 1.0))

    def at_once(self, row: int) -> float:
        """Return the share of the next jobs that are expected to start without a wait."""
        ended = int(self.places[row].searchsorted(np.inf))
        zeros = int(self.values[row, :ended].searchsorted(0.0, side="right"))
        return float(self.places[row, zeros - 1] / (self.count[row] + 1)) if zeros else 0.0


def waits_of(rows: Ints, moments: Ints, since: Ints, until: Ints, started: Bools) -> Waits:
    """Return the waits as they are known at some moments.

    Parameters
    ----------
    rows : array of shape (questions, most)
        The jobs like each; -1 for none.
    moments : array
        When each question is asked [us].
    since, until, started : array
        Of every job: its wait [us], and whether a start ended it.
    """
    there = rows >= 0
    now = moments[:, None]
    ended = there & started[rows] & (until[rows] <= now)
    waited = np.minimum(until[rows], now) - since[rows]
    # Sorted by length, of equal ones the ended first; what is not there stands at the end.
    key = np.where(there, 2 * waited + ~ended, np.iinfo(np.int64).max)
    key.sort(axis=1)
    there = key < np.iinfo(np.int64).max
    ended = there & (key % 2 == 0)
    waited = key // 2
    count = there.sum(axis=1)
    left = np.maximum(count[:, None] - np.arange(rows.shape[1]), 1)
    survive = np.cumprod(np.where(ended, 1 - 1 / left, 1.0), axis=1)
    place = np.where(there, count[:, None] * (1 - survive), np.inf)
    value = np.maximum.accumulate(np.where(ended, waited, 0), axis=1)
    longest = np.where(there, waited, 0).max(axis=1, initial=0)
    reached = np.where(there, place, 0.0).max(axis=1, initial=0.0)
    return Waits(place, value.astype(np.float64), count, count - ended.sum(axis=1), longest.astype(np.float64), reached)
