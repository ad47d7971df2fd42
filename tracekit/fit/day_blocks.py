"""Blocks of whole days: how long they have to be for a log, and which days of the log a new one is made of.

The moving-block bootstrap of Kuensch (1989) with blocks that begin on the weekday that is due: what days of a block
have to do with each other stays, and beyond a block days are independent. So a block is as long as days of the log hang
together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole

__all__ = ["block_length", "drawn_days"]

_WEEK = 7
_LONGEST = 28
"""Most days of a block."""
_LEAST_WEEKS = 2
"""Days of each weekday that a log needs for its weekdays to be kept."""


def block_length(daily: Floats) -> int:
    """Return how many days a block needs: the first lag at which the autocorrelation is within chance.

    The logarithm of 1 + the daily figure is taken, less the mean of its weekday where there are three weeks or more;
    chance is 2 / sqrt(days). At most a quarter of the log, and 28 days.

    Parameters
    ----------
    daily : array (n,)
        What came on each day, such as jobs.
    """
    number = daily.size
    most = min(_LONGEST, max(1, number // 4))
    levels = np.log1p(daily)
    week = np.arange(number) % _WEEK if number >= 3 * _WEEK else np.zeros(number, np.int64)
    levels = levels - (np.bincount(week, levels) / np.maximum(np.bincount(week), 1))[week]
    whole = float(levels @ levels)
    if whole <= 0:
        return 1
    for lag in range(1, most):
        if float(levels[lag:] @ levels[:-lag]) / whole < 2 / np.sqrt(number):
            return lag
    return most


def drawn_days(number: int, known: int, length: int, rng: np.random.Generator) -> Whole:
    """Return which day of the log each new day is, block by block.

    A block begins on the weekday that is due, counted from the first day of the log; in a log of less than two weeks on
    any day. It ends early where the log does.

    Parameters
    ----------
    number : int
        New days.
    known : int
        Days of the log.
    length : int
        Days of a block.
    """
    found = np.empty(number, np.int64)
    keeps = known >= _LEAST_WEEKS * _WEEK
    at = 0
    while at < number:
        first = at % _WEEK if keeps else 0
        step = _WEEK if keeps else 1
        start = first + step * int(rng.integers((known - 1 - first) // step + 1))
        take = min(length, known - start, number - at)
        found[at : at + take] = np.arange(start, start + take)
        at += take
    return found
