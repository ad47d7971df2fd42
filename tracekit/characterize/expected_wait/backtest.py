"""Predict each job's wait in turn, from data known when the job began to wait, and check the prediction.

The waits of similar jobs are estimated by the method of Kaplan and Meier (1958): a job that still waits after an hour
counts as a wait of more than an hour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.expected_wait.likeness import ALWAYS, likeness
from tracekit.characterize.expected_wait.state import STATE, States

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.characterize.expected_wait.likeness import Lately


_LONGEST_US = 2.0**61
"""Longest wait [us], about 73,000 years, which keeps scaled waits within the range of numbers."""


@dataclass(frozen=True)
class Waits:
    """The waits of the similar jobs, with one row for each question, scaled to the work ahead at the question's moment.

    The place of a wait is its rank: how many of the n jobs waited at most as long. The quantile p is at place p (n +
    1), as usual for predicting the next of n similar values, interpolated between two waits.
    """

    places: Floats
    """Place of each wait, in increasing order; infinite beyond the last."""
    values: Floats
    """The wait at each place [us]."""
    count: Ints
    """Number of similar jobs, n."""
    waiting: Ints
    """Number of similar jobs that still wait or left the queue without starting."""
    longest: Floats
    """The longest time that any similar job has waited, whether or not it started [us]."""
    reached: Floats
    """The place of the longest wait that ended with a start."""

    def quantile(self, row: int, share: float) -> float:
        """Return the wait that this share of the jobs does not exceed [us], or infinity if unknown."""
        n = self.count[row]
        # No wait above the longest is known, so all higher quantiles equal it.
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
        """Return the share of waits below a given wait, and the share of waits up to and including it."""
        places, values, n = self.places[row], self.values[row], self.count[row]
        ended = int(places.searchsorted(np.inf))
        shorter = int(values[:ended].searchsorted(wait, side="left"))
        upto = int(values[:ended].searchsorted(wait, side="right"))
        low = places[shorter - 1] if shorter else 0.0
        high = places[upto - 1] if upto else 0.0
        return float(low / (n + 1)), float(min((high + 1) / (n + 1), 1.0))

    def at_once(self, row: int) -> float:
        """Return the expected share of future jobs that start without a wait."""
        ended = int(self.places[row].searchsorted(np.inf))
        zeros = int(self.values[row, :ended].searchsorted(0.0, side="right"))
        return float(self.places[row, zeros - 1] / (self.count[row] + 1)) if zeros else 0.0


def waits_of(rows: Ints, moments: Ints, since: Ints, until: Ints, started: Bools, scale: Floats | float = 1.0) -> Waits:
    """Return the waits known at the time of each question.

    Parameters
    ----------
    rows : array of shape (questions, most)
        The similar jobs for each question, padded with -1.
    moments : array
        The moment of each question [us].
    since, until, started : array
        Beginning and end of every job's wait [us], and whether the job started at the end.
    scale : array of the shape of rows, or number
        Factor for each wait.
    """
    there = rows >= 0
    now = moments[:, None]
    ended = there & started[rows] & (until[rows] <= now)
    waited = np.minimum(np.rint((np.minimum(until[rows], now) - since[rows]) * scale), _LONGEST_US).astype(np.int64)
    # Sorted by length, with ended waits first among equal waits and missing entries last.
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


# Correct the ends of the interval after every outcome.
#
# Adaptive conformal inference (Gibbs and Candes, NeurIPS 2021): an end is at a share of the earlier waits. This share
# moves a little outwards after a miss and a little inwards otherwise. Over time, the miss rate approaches the allowed
# rate, regardless of how waits behave. Each end learns separately. An outcome is learned as soon as it is known: when
# the job starts, or when its wait exceeds the upper end.

GAIN = 0.05
"""Distance that an end moves after a miss, as a share of the earlier waits. Gibbs and Candes use 0.005 for series of
many thousands of values; logs of a few hundred jobs need a larger step to learn in time."""
_QUICK, _LEAST = 300, 0.2
"""After this many outcomes, the steps shrink with each further outcome, down to this fraction of the first step. A few
misses in a row then have little effect. Decaying steps keep the share of misses correct (Angelopoulos, Barber and
Bates, ICML 2024); they do not shrink to 0, because waits may drift."""


@dataclass
class Ends:
    """The shares of earlier waits at the interval's ends, for jobs of one cluster and size class."""

    low: float
    high: float
    top: float
    """The upper end if the interval begins at 0."""
    learned: int = 0
    """Number of outcomes learned from."""


@dataclass(frozen=True)
class Prediction:
    """A predicted interval."""

    low_us: float
    high_us: float
    """Infinite if no upper end is known."""
    low_share: float
    high_share: float
    from_zero: bool
    """Whether the interval begins at 0, so that no wait is below it."""

    def misses(self, wait_us: float, between: tuple[float, float]) -> tuple[float, float]:
        """Return the parts of a wait below and above the interval: 0, 1, or a share if the wait equals an end.

        If many waits are equal, an end may fall among them, and the waits beyond it count as missed. On average,
        breaking ties at random gives the same result (Czado, Gneiting and Held, Biometrics 2009).
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
    """Predicts intervals in time order and learns from the outcomes."""

    level: float
    gain: float = GAIN
    ends: dict[int, Ends] = field(default_factory=dict)
    coming: list[tuple[int, int, int, Prediction, float, float]] = field(default_factory=list)
    """Pending outcomes: time when known [us], tie-breaking number, group, interval, misses below and above."""

    def ends_of(self, group: int) -> Ends:
        """Return the ends of a group."""
        miss = 1 - self.level
        return self.ends.setdefault(group, Ends(miss / 2, 1 - miss / 2, self.level))

    def predict(self, group: int, waits: Waits, row: int, *, fits: bool = False) -> Prediction:
        """Predict the interval for one question; first call `learn` for its moment.

        `fits` says whether the job could start at once on free nodes.
        """
        ends = self.ends_of(group)
        if fits or waits.at_once(row) > (1 - self.level) / 2 + 1e-9:
            # The job may start at once. No wait is below the interval, so all allowed misses may be above it.
            return Prediction(0.0, waits.quantile(row, ends.top), 0.0, ends.top, from_zero=True)
        low = waits.quantile(row, ends.low)
        if math.isinf(low):
            low = float(waits.longest[row])
        return Prediction(low, max(low, waits.quantile(row, ends.high)), ends.low, ends.high, from_zero=False)

    def share_of(self, group: int, predicted: Prediction, share: float) -> float:
        """Return the share of earlier waits for a quantile, shifted like the neighbouring ends.

        This keeps the quantiles consistent with the interval.
        """
        ends, miss = self.ends_of(group), 1 - self.level
        between, moved = [0.0, miss / 2, 1 - miss / 2, 1.0], [0.0, ends.low, ends.high, 1.0]
        if predicted.from_zero:
            between, moved = [0.0, self.level, 1.0], [0.0, ends.top, 1.0]
        return float(np.interp(share, between, np.maximum.accumulate(np.clip(moved, 0.0, 1.0))))

    def expect(
        self, moment_us: int, number: int, group: int, predicted: Prediction, misses: tuple[float, float]
    ) -> None:
        """Record an outcome that becomes known at a moment."""
        heappush(self.coming, (moment_us, number, group, predicted, *misses))

    def learn(self, moment_us: int) -> None:
        """Learn from every outcome known by a moment."""
        miss = 1 - self.level
        while self.coming and self.coming[0][0] <= moment_us:
            _, _, group, predicted, below, above = heappop(self.coming)
            ends = self.ends_of(group)
            ends.learned += 1
            gain = self.gain * min(max(_QUICK / ends.learned, _LEAST), 1.0)
            if predicted.from_zero:
                ends.top += gain * (above - miss)
            else:
                ends.low += gain * (miss / 2 - below)
                ends.high += gain * (above - miss / 2)


_AT_ONCE = 512
"""Number of questions whose waits are sorted together, which is fast in numpy and needs little memory."""


@dataclass(frozen=True)
class Backtest:
    """The prediction for every job, and the learner after all outcomes."""

    rows: pl.DataFrame
    """Rows in the order of `jobs`: step, like_jobs, low_s, high_s, wait_s, below, above; see the timeline."""
    learner: Learner
    """The learner after the last job; call `learn` for outcomes that became known later."""
    groups: dict[tuple[object, ...], int]
    """The learner's number for each group of a cluster, size class and class of the state (`group_of`)."""
    states: States
    """The states of the jobs."""


def group_of(always: tuple[str | None, str | None], states: States, job: int) -> tuple[object, ...]:
    """Return the learning group of a job's interval: cluster, size class and class of the state."""
    return (*always, *states.cell(job))


def backtest(jobs: pl.DataFrame, lately: Lately, level: float, gain: float = GAIN) -> Backtest:
    """Predict each job's wait, in the order in which the jobs began to wait.

    Parameters
    ----------
    jobs : polars.DataFrame
        From `waiting_jobs`, with the columns of `with_states`.
    lately : Lately
        Limits on the earlier jobs to use.
    level : float
        Share of the waits that the intervals should cover [0..1].
    gain : float
        Step size of the ends, or 0 if they do not learn.
    """
    n = jobs.height
    since, until = jobs["since"].to_numpy(), jobs["until"].to_numpy()
    started = jobs["started"].to_numpy()
    states = States.of(jobs)
    keys = [group_of(always, states, job) for job, always in enumerate(jobs.select(ALWAYS).rows())]
    groups = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    group = [groups[key] for key in keys]
    alike = likeness(jobs, lately)
    answerable = np.flatnonzero(alike.step >= 0)
    low, high, below, above = (np.full(n, np.nan) for _ in range(4))
    learner = Learner(level, gain)
    for begin in range(0, len(answerable), _AT_ONCE):
        asked = answerable[begin : begin + _AT_ONCE]
        near = states.nearest(asked, alike.rows(asked, lately.among), lately)
        waits = waits_of(near, since[asked], since, until, started, states.ratio(asked, near))
        for row, job in enumerate(asked.tolist()):
            learner.learn(since[job])
            predicted = learner.predict(group[job], waits, row, fits=bool(states.fits[job]))
            low[job], high[job] = predicted.low_us, predicted.high_us
            wait = float(until[job] - since[job])
            if not started[job] and wait <= predicted.high_us:
                continue  # the job may have waited longer
            misses = predicted.misses(wait, waits.shares(row, wait))
            below[job], above[job] = misses
            known = since[job] + math.ceil(predicted.high_us) if wait > predicted.high_us else until[job]
            learner.expect(int(known), job, group[job], predicted, misses)
    rows = jobs.select("job_id", "gpu_class", "class_order", *STATE).with_columns(
        step=pl.Series(alike.step),
        like_jobs=pl.Series(np.where(alike.step >= 0, lately.used(alike.end - alike.first), 0)),
        load_class=pl.Series(states.load),
        low_s=_known(low / 1e6),
        high_s=_known(high / 1e6),
        wait_s=pl.Series((until - since) / 1e6),
        started=pl.Series(started),
        below=_known(below),
        above=_known(above),
    )
    return Backtest(rows, learner, groups, states)


def _known(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pl.Series:
    """Return the numbers, with NULL in place of infinity and NaN."""
    return pl.Series([None if not math.isfinite(v) else v for v in values.tolist()], dtype=pl.Float64)
