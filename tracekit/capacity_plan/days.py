"""Other months of the same jobs: whole submission days of the log, drawn with replacement and laid side by side.

A day is 24 hours, counted from the first submission of the log. Each day of the window takes one day of the log, drawn
with replacement; where the log has three weeks or more, it is drawn among those that have the same place in the week.
Before the window stand some days more, drawn alike, which fill the cluster and are not measured.

With growth g each day takes the jobs of floor(g) days of the log. Of one day more each user's jobs come with
probability g - floor(g), all of that user's day or none of them; a job without a user comes or not by itself. So there
are g times the jobs a day in expectation, with bursts as large as those of the log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.calibration.delays import delays_of_jobs
from tracekit.errors import UsageError
from tracekit.replay.results.comparison import FEWEST_DAYS
from tracekit.replay.results.sizes import gpus_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

DAY_MS = 86_400_000
_WEEKLY_DAYS = 21
"""From so many days on a day stands for its place in the week: each place has three or more."""
_NEARLY = 0.05
"""A last day of which no more is missing counts as whole [days]."""


@dataclass(frozen=True)
class Resample:
    """One other month."""

    jobs: Jobs
    """Sorted by the time from which they compete; submissions count from the start of the days before the window."""
    group: Bools
    """Jobs of the window whose wait counts (n,)."""
    window: Bools
    """Jobs of the window (n,)."""
    begin_ms: int
    """Where the window begins [ms]."""
    end_ms: int
    offered_gpus: float
    """GPU time that the jobs of the window ask for / the time of the window [GPUs]."""


@dataclass(frozen=True)
class DayPool:
    """The days of a log."""

    jobs: Jobs
    """Sorted by submission, each on a whole day."""
    held_ms: Ints
    """From submission to eligibility by the log [ms] (n,)."""
    startup: Mapping[str, tuple[float, ...]]
    """Start-up delays by size of gang [s]; empty where jobs have none."""
    group: Bools
    """Jobs whose wait counts (n,)."""
    days: int
    """Days of the log, and of the window."""

    @classmethod
    def of(
        cls, jobs: Jobs, held_ms: Ints | None, startup: Mapping[str, tuple[float, ...]], group: Bools, starts: Bools
    ) -> DayPool:
        """Return the whole days of a log.

        Parameters
        ----------
        jobs : Jobs
        held_ms : array of int, shape (n,), optional
            From submission to eligibility by the log [ms].
        startup : mapping
            Start-up delays by size of gang [s].
        group : array of bool, shape (n,)
            Jobs whose wait counts.
        starts : array of bool, shape (n,)
            Jobs that the twin starts at all; others are left out, since no number of days can make them wait less.

        Raises
        ------
        UsageError
            The log has fewer than 5 whole days.
        """
        days = int(jobs.submit_ms.max(initial=0) / DAY_MS + _NEARLY)
        if days < FEWEST_DAYS:
            raise UsageError(
                f"the log covers {days:,} whole days with submissions; a plan needs at least {FEWEST_DAYS}",
                hint="use a longer log",
            )
        rows = np.flatnonzero(starts & (jobs.submit_ms < days * DAY_MS))
        held = np.zeros(len(jobs), np.int64) if held_ms is None else held_ms
        return cls(_gathered(jobs, rows), held[rows], startup, group[rows], days)

    @property
    def lead(self) -> int:
        """Days before the window: a quarter of it, from one to seven."""
        return min(max(self.days // 4, 1), 7)

    @property
    def weekly(self) -> bool:
        """Whether a day is drawn among those of its place in the week."""
        return self.days >= _WEEKLY_DAYS

    @property
    def offered_gpus(self) -> float:
        """GPU time that the jobs of the log ask for / its time [GPUs]."""
        return float((gpus_of(self.jobs) * self.jobs.work_ms.astype(np.float64)).sum()) / 1000 / (self.days * DAY_MS)

    def resample(self, number: int, growth: float, seed: int) -> Resample:
        """Return one other month; equal numbers and seeds draw the same days at every growth.

        Parameters
        ----------
        number : int
            Which one.
        growth : float
            Jobs a day as a multiple of the log's.
        seed : int
        """
        day = self.jobs.submit_ms // DAY_MS
        first = np.searchsorted(day, np.arange(self.days + 1))
        rows, slots = [], []
        for layer in range(int(np.ceil(growth))):
            random = np.random.default_rng([seed, number, layer])
            drawn = self._drawn(random)
            share = min(growth - layer, 1.0)
            for slot, source in enumerate(drawn.tolist()):
                own = np.arange(first[source], first[source + 1])
                if share < 1:
                    own = own[_comes(self.jobs.user[own], share, random)]
                rows.append(own)
                slots.append(np.full(len(own), slot))
        return self._laid(np.concatenate(rows), np.concatenate(slots), _number(seed, number))

    def _drawn(self, random: np.random.Generator) -> Ints:
        """Return which day of the log each day is, those before the window first."""
        place = np.arange(-self.lead, self.days)
        if not self.weekly:
            return random.integers(0, self.days, len(place))
        weekday = place % 7
        alike = (self.days - 1 - weekday) // 7 + 1
        found: Ints = weekday + 7 * np.floor(random.random(len(place)) * alike).astype(np.int64)
        return found

    def _laid(self, rows: Ints, slots: Ints, seed: int) -> Resample:
        submit = slots * DAY_MS + self.jobs.submit_ms[rows] % DAY_MS
        order = np.argsort(submit, kind="stable")
        rows, submit = rows[order], submit[order]
        laid = replace(_gathered(self.jobs, rows), submit_ms=submit)
        jobs, places = laid.held_back(self.held_ms[rows] + delays_of_jobs(laid, self.startup, seed))
        begin, end = self.lead * DAY_MS, (self.lead + self.days) * DAY_MS
        window = jobs.submit_ms >= begin
        work = (gpus_of(jobs) * jobs.work_ms.astype(np.float64))[window]
        return Resample(
            jobs, window & self.group[rows][places], window, begin, end, float(work.sum()) / 1000 / (end - begin)
        )


def _gathered(jobs: Jobs, rows: Ints) -> Jobs:
    """Return some jobs, in this order and as often as they are named; when they ran is unknown."""
    unknown = np.full(len(rows), -1, np.int64)
    return replace(jobs.rows(rows), recorded_start_ms=unknown, recorded_end_ms=unknown)


def _comes(users: NDArray[np.int32], share: float, random: np.random.Generator) -> Bools:
    """Return which jobs of a day come, where each user comes with a probability (n,)."""
    names, place = np.unique(users, return_inverse=True)
    by_user = (random.random(len(names)) < share)[place]
    alone = random.random(len(users)) < share
    return np.where(users >= 0, by_user, alone)


def _number(*words: int) -> int:
    """Return a seed made of several numbers."""
    return int(np.random.SeedSequence(words).generate_state(1)[0])
