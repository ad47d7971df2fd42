"""Every job asked in turn, from what was known when it began to wait, and whether its wait fell in.

The waits of the jobs that are alike are estimated as those of Kaplan and Meier (1958): a job that has waited for an
hour and waits on counts among those that wait for more than an hour, and says nothing of what comes after.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.expected_wait.likeness import ALWAYS, likeness

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.characterize.expected_wait.likeness import Lately


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


# The ends of the interval, which learn from every miss.
#
# Adaptive conformal inference (Gibbs and Candes, NeurIPS 2021): the share of earlier waits at which an end lies moves
# a little outwards after a miss, and a little inwards after none, so that over time the misses are as many as they
# may be, whatever the waits do. Each end learns for itself. An outcome is learned when it is known and no sooner: a
# wait within the interval when the job starts, a wait beyond it when the end has passed.

GAIN = 0.05
"""How far an end moves after a miss, as a share of the earlier waits. Gibbs and Candes take 0.005 for series of many
thousands; logs of a few hundred jobs learn in time only with more."""
_QUICK, _LEAST = 300, 0.2
"""After so many outcomes the ends move less with each further one, down to this part: a few misses in a row then change
an interval little. Decaying steps keep the share of misses right (Angelopoulos, Barber and Bates, ICML 2024); the rest
is for waits that drift."""


@dataclass
class Ends:
    """At which shares of the earlier waits the ends lie, for jobs of one cluster and size class."""

    low: float
    high: float
    top: float
    """The upper end where the interval begins at 0."""
    learned: int = 0
    """From how many outcomes."""


@dataclass(frozen=True)
class Told:
    """An interval, as it was told."""

    low_us: float
    high_us: float
    """Infinite where no upper end is known."""
    low_share: float
    high_share: float
    from_zero: bool
    """Whether it begins at 0 and leaves out nothing below."""

    def misses(self, wait_us: float, between: tuple[float, float]) -> tuple[float, float]:
        """Return which part of a wait lies below and above the interval, 0 or 1; of one that equals an end, a share.

        Where many waits are alike, an end falls into the middle of them: those beyond it count as missed. This is what
        drawing lots between equal waits gives in the mean (Czado, Gneiting and Held, Biometrics 2009).
        """
        first, last = between
        below = float(wait_us < self.low_us)
        if wait_us == self.low_us and not self.from_zero:
            below = min(max((self.low_share - first) / (last - first), 0.0), 1.0)
        above = float(wait_us > self.high_us)
        if wait_us == self.high_us:
            above = min(max((last - self.high_share) / (last - first), 0.0), 1.0)
        return below, above


@dataclass
class Learner:
    """Tells intervals one after another, in the order of time, and learns from what became of them."""

    level: float
    gain: float = GAIN
    ends: dict[int, Ends] = field(default_factory=dict)
    coming: list[tuple[int, int, int, Told, float, float]] = field(default_factory=list)
    """What will be known: when [us], a number that tells equal times apart, whose, the interval, and the misses."""

    def ends_of(self, group: int) -> Ends:
        """Return where the ends of a group lie."""
        miss = 1 - self.level
        return self.ends.setdefault(group, Ends(miss / 2, 1 - miss / 2, self.level))

    def tell(self, group: int, waits: Waits, row: int) -> Told:
        """Return the interval for one question; what was known by then has been learned (`learn`)."""
        ends = self.ends_of(group)
        if waits.at_once(row) > (1 - self.level) / 2 + 1e-9:
            # So many start at once that no wait lies below: all misses may lie above.
            return Told(0.0, waits.quantile(row, ends.top), 0.0, ends.top, from_zero=True)
        low = waits.quantile(row, ends.low)
        if math.isinf(low):
            low = float(waits.longest[row])
        return Told(low, max(low, waits.quantile(row, ends.high)), ends.low, ends.high, from_zero=False)

    def share_of(self, group: int, told: Told, share: float) -> float:
        """Return at which share of the earlier waits a quantile lies, moved as far as the ends next to it were.

        So the quantiles agree with the interval: what 75 % of the jobs wait at most is within what 80 % do.
        """
        ends, miss = self.ends_of(group), 1 - self.level
        between, moved = [0.0, miss / 2, 1 - miss / 2, 1.0], [0.0, ends.low, ends.high, 1.0]
        if told.from_zero:
            between, moved = [0.0, self.level, 1.0], [0.0, ends.top, 1.0]
        return float(np.interp(share, between, np.maximum.accumulate(np.clip(moved, 0.0, 1.0))))

    def expect(self, moment_us: int, number: int, group: int, told: Told, misses: tuple[float, float]) -> None:
        """Remember an outcome that will be known at a moment."""
        heappush(self.coming, (moment_us, number, group, told, *misses))

    def learn(self, moment_us: int) -> None:
        """Learn from every outcome known by a moment."""
        miss = 1 - self.level
        while self.coming and self.coming[0][0] <= moment_us:
            _, _, group, told, below, above = heappop(self.coming)
            ends = self.ends_of(group)
            ends.learned += 1
            gain = self.gain * min(max(_QUICK / ends.learned, _LEAST), 1.0)
            if told.from_zero:
                ends.top += gain * (above - miss)
            else:
                ends.low += gain * (miss / 2 - below)
                ends.high += gain * (above - miss / 2)


_AT_ONCE = 8192
"""Questions whose waits are sorted together: enough that numpy is fast, and few megabytes."""


@dataclass(frozen=True)
class Backtest:
    """What every job would have been told, and what was learned on the way."""

    rows: pl.DataFrame
    """Rows of `jobs` in their order: step, like_jobs, low_s, high_s, wait_s, below, above; see the timeline."""
    learner: Learner
    """As it stands after the last job; it still has to `learn` what became known later."""
    groups: dict[tuple[str | None, str | None], int]
    """The learner's number of each cluster and size class."""


def backtest(jobs: pl.DataFrame, lately: Lately, level: float, gain: float = GAIN) -> Backtest:
    """Ask for every job, in the order in which they began to wait.

    Parameters
    ----------
    jobs : polars.DataFrame
        Of `waiting_jobs`.
    lately : Lately
        Which earlier jobs are looked at.
    level : float
        Share of the waits that the intervals shall hold [0..1].
    gain : float
        How fast the ends learn; 0: not at all.
    """
    n = jobs.height
    since, until = jobs["since"].to_numpy(), jobs["until"].to_numpy()
    started = jobs["started"].to_numpy()
    keys = jobs.select(ALWAYS).rows()
    groups = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    group = [groups[key] for key in keys]
    alike = likeness(jobs, lately)
    told_rows = np.flatnonzero(alike.step >= 0)
    low, high, below, above = (np.full(n, np.nan) for _ in range(4))
    learner = Learner(level, gain)
    for begin in range(0, len(told_rows), _AT_ONCE):
        asked = told_rows[begin : begin + _AT_ONCE]
        waits = waits_of(alike.rows(asked, lately.most), since[asked], since, until, started)
        for row, job in enumerate(asked.tolist()):
            learner.learn(since[job])
            told = learner.tell(group[job], waits, row)
            low[job], high[job] = told.low_us, told.high_us
            wait = float(until[job] - since[job])
            if not started[job] and wait <= told.high_us:
                continue  # it may have waited on
            misses = told.misses(wait, waits.shares(row, wait))
            below[job], above[job] = misses
            known = since[job] + math.ceil(told.high_us) if wait > told.high_us else until[job]
            learner.expect(int(known), job, group[job], told, misses)
    rows = jobs.select("job_id", "gpu_class", "class_order").with_columns(
        step=pl.Series(alike.step),
        like_jobs=pl.Series(np.where(alike.step >= 0, alike.end - alike.first, 0)),
        low_s=_known(low / 1e6),
        high_s=_known(high / 1e6),
        wait_s=pl.Series((until - since) / 1e6),
        started=pl.Series(started),
        below=_known(below),
        above=_known(above),
    )
    return Backtest(rows, learner, groups)


def _known(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pl.Series:
    """Return numbers with NULL for what is not finite."""
    return pl.Series([None if not math.isfinite(v) else v for v in values.tolist()], dtype=pl.Float64)
