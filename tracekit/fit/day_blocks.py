"""Blocks of whole days: how long they have to be for a log, and which days of the log a new one is made of.

The local block bootstrap of Paparoditis and Politis (2002, C. R. Acad. Sci. Paris 335, 959-962): what days of a block
have to do with each other stays, and a block comes from near the place of the log that is due, so that the slow course
of the load stays too. Blocks from anywhere (Kuensch 1989) would break a month of high load into pieces, and a queue
that took weeks to grow in the log would never be there. A block is as long as days of the log hang together, and is on
the weekdays on which it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole


_WEEK = 7
_LONGEST = 28
"""Most days of a block."""
_LEAST_WEEKS = 2
"""Days of each weekday that a log needs for its weekdays to be kept."""
_REACH_DAYS = 7
"""How far from its place a block may come from [days]. On the Philly jobs of autumn 2017, waits in replays are as in
the log with one week, and differ by more with each further one."""


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


def course(number: int, known: int, rng: np.random.Generator, *, longest: int) -> Whole:
    """Return the day of the log that is due on each new day, weekdays kept.

    As many days as the log has are the log from its first day on; fewer are its last ones, up to the last week that
    leaves room for them, since what comes next is most like what came last. Beyond the end, the log is passed through
    again, each time from a random week on to its end and from its beginning up to that week, so that every day is due
    as often as any other and passes are not in step. A log of less than two weeks does not keep its weekdays.

    Parameters
    ----------
    number : int
        New days that are asked for, which decide where the course begins.
    known : int
        Days of the log.
    longest : int
        Days of the course, at least `number`.
    """
    step = _step(known)
    begin = max(known - number, 0) // step * step
    pieces = [np.arange(begin, known)]
    size = known - begin
    while size < longest:
        first = size % step
        begin = first + step * int(rng.integers((known - 1 - first) // step + 1))
        pieces.append(np.arange(begin, known))
        size += known - begin
        # The rest of the pass, whose length keeps the weekdays of what follows.
        pieces.append(np.arange(size % step, begin))
        size += pieces[-1].size
    return np.concatenate(pieces)[:longest]


def drawn_days(due: Whole, known: int, length: int, rng: np.random.Generator) -> Whole:
    """Return which day of the log each new day is, block by block.

    A block begins on the day that is due, or a week before or after it, all alike likely where the log has them; in a
    log of less than two weeks on any day up to a week off. It ends early where the log does, and where the course
    jumps.

    Parameters
    ----------
    due : array (n,)
        The day of the log that is due on each new day, see `course`.
    known : int
        Days of the log.
    length : int
        Days of a block.
    """
    step, reach = _step(known), _REACH_DAYS // _step(known)
    found = np.empty(due.size, np.int64)
    jumps = np.append(np.flatnonzero(np.diff(due) != 1) + 1, due.size)
    at = 0
    while at < due.size:
        home = int(due[at])
        least, most = max(-(home // step), -reach), min((known - 1 - home) // step, reach)
        start = home + step * int(rng.integers(least, most + 1))
        until = int(jumps[np.searchsorted(jumps, at, side="right")])
        take = min(length, known - start, until - at)
        found[at : at + take] = np.arange(start, start + take)
        at += take
    return found


def _step(known: int) -> int:
    """Return the days by which a block may be moved: whole weeks, where the log has two."""
    return _WEEK if known >= _LEAST_WEEKS * _WEEK else 1
