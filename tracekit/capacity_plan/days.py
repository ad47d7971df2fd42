"""The log's jobs in recorded order, and further months made of whole days drawn with replacement.

A day is 24 hours, counted from the first submission of the log. For a further month, the days of the log are resampled
with replacement, and the days of the month are drawn from this sample with replacement. The first draw models which
days the log happens to contain, the second which days the month happens to contain. If the log has at least three
weeks, a day is replaced only by days at the same position in the week. Some warm-up days before the month are drawn in
the same way. They fill the cluster and are not measured.

With growth g, each day gets the jobs of floor(g) days of the log. From one more day, each user's jobs are added, all or
none, with probability g - floor(g). A job without a user is drawn separately. So the expected number of jobs per day is
g times the log's, and bursts are as large as in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.calibration.delays import delays_of_jobs
from tracekit.errors import UsageError
from tracekit.replay.jobs import Others, gpus_of
from tracekit.replay.results.comparison import FEWEST_DAYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

DAY_MS = 86_400_000
_WEEKLY_DAYS = 21
"""Minimum number of days to draw by position in the week: each position then has at least three days."""
_NEARLY = 0.05
"""Maximum missing part of a last day that counts as whole [days]."""


@dataclass(frozen=True)
class Resample:
    """The log, or one drawn month."""

    jobs: Jobs
    """Jobs sorted by eligible time. Submission times count from the start of the warm-up days."""
    group: Bools
    """Mask of the window's jobs whose wait counts (n,)."""
    window: Bools
    """Mask of the window's jobs (n,)."""
    begin_ms: int
    """Time at which the window begins [ms]."""
    end_ms: int
    offered_gpus: float
    """GPU time requested by the jobs of the window / length of the window [GPUs]."""


@dataclass(frozen=True)
class DayPool:
    """The days of a log."""

    jobs: Jobs
    """Jobs submitted on whole days, in submission order."""
    held_ms: Ints
    """Recorded time from submission to eligibility [ms] (n,)."""
    startup: Mapping[str, tuple[float, ...]]
    """Start-up delays by job size [s], or empty if jobs have no delays."""
    group: Bools
    """Jobs whose wait counts (n,)."""
    days: int
    """Number of days of the log, and of the window."""

    @classmethod
    def of(
        cls, jobs: Jobs, held_ms: Ints | None, startup: Mapping[str, tuple[float, ...]], group: Bools, starts: Bools
    ) -> DayPool:
        """Return the pool of the whole days of a log.

        Parameters
        ----------
        jobs : Jobs
        held_ms : array of int, shape (n,), optional
            Recorded time from submission to eligibility [ms].
        startup : mapping
            Start-up delays by job size [s].
        group : array of bool, shape (n,)
            Jobs whose wait counts.
        starts : array of bool, shape (n,)
            Jobs that the twin starts. Others are excluded, because resampled days cannot shorten their waits.

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
        pool = _gathered(jobs, rows)
        if jobs.others is not None:
            others = jobs.others.jobs
            arrived = replace(others, submit_ms=others.arrival_ms, held_ms=None)
            pool = replace(pool, others=replace(jobs.others, jobs=arrived))
        return cls(pool, held[rows], startup, group[rows], days)

    @property
    def lead(self) -> int:
        """Number of warm-up days before the window: a quarter of the window, between 1 and 7."""
        return min(max(self.days // 4, 1), 7)

    @property
    def weekly(self) -> bool:
        """Whether a day is drawn among days at the same position in the week."""
        return self.days >= _WEEKLY_DAYS

    @property
    def offered_gpus(self) -> float:
        """GPU time requested by the jobs of the log / length of the log [GPUs]."""
        return float((gpus_of(self.jobs) * self.jobs.work_ms.astype(np.float64)).sum()) / 1000 / (self.days * DAY_MS)

    def resample(self, number: int | None, growth: float, seed: int) -> Resample:
        """Return the log in recorded order, or draw a month (the same one for a number and seed at every growth).

        Parameters
        ----------
        number : int, optional
            Number of the month, or None for the log, which has no warm-up days. With growth, other days are added to
            the days of the log.
        growth : float
            Jobs per day as a multiple of the log's.
        seed : int
        """
        others = None if self.jobs.others is None else self.jobs.others.jobs
        sources = [self.jobs] if others is None else [self.jobs, others]
        firsts = [np.searchsorted(jobs.submit_ms // DAY_MS, np.arange(self.days + 1)) for jobs in sources]
        drawn_of: list[tuple[list[Ints], list[Ints]]] = [([], []) for _ in sources]
        words = (seed,) if number is None else (seed, number)
        lead = 0 if number is None else self.lead
        for layer in range(int(np.ceil(growth))):
            random = np.random.default_rng([*words, layer])
            recorded = number is None and layer == 0
            drawn = np.arange(self.days) if recorded else self._drawn(lead, random)
            share = min(growth - layer, 1.0)
            for jobs, first, (rows, slots) in zip(sources, firsts, drawn_of, strict=True):
                for slot, source in enumerate(drawn.tolist()):
                    own = np.arange(first[source], first[source + 1])
                    if share < 1:
                        own = own[_comes(jobs.user[own], share, random)]
                    rows.append(own)
                    slots.append(np.full(len(own), slot))
        places = [(np.concatenate(rows), np.concatenate(slots)) for rows, slots in drawn_of]
        return self._laid(*places[0], lead, _number(*words), places[1] if others is not None else None)

    def _drawn(self, lead: int, random: np.random.Generator) -> Ints:
        """Draw a day of the log for each day, starting with the warm-up days."""
        stock = self._draw(np.arange(self.days), random)
        found: Ints = stock[self._draw(np.arange(-lead, self.days), random)]
        return found

    def _draw(self, place: Ints, random: np.random.Generator) -> Ints:
        """Draw a day of the log for each place, counted from the begin of a week."""
        if not self.weekly:
            return random.integers(0, self.days, len(place))
        weekday = place % 7
        alike = (self.days - 1 - weekday) // 7 + 1
        return weekday + 7 * np.floor(random.random(len(place)) * alike).astype(np.int64)

    def _laid(self, rows: Ints, slots: Ints, lead: int, seed: int, of_others: tuple[Ints, Ints] | None) -> Resample:
        submit = slots * DAY_MS + self.jobs.submit_ms[rows] % DAY_MS
        order = np.argsort(submit, kind="stable")
        rows, submit = rows[order], submit[order]
        laid = replace(_gathered(self.jobs, rows), submit_ms=submit)
        if laid.array is not None:
            # A day that is drawn twice has its arrays twice.
            again = slots[order] * (int(laid.array.max(initial=-1)) + 1)
            laid = replace(laid, array=np.where(laid.array >= 0, laid.array + again, -1).astype(np.int32))
        if of_others is not None and (others := self.jobs.others) is not None:
            own, days = of_others
            moved = replace(_gathered(others.jobs, own), submit_ms=days * DAY_MS + others.jobs.submit_ms[own] % DAY_MS)
            laid = replace(laid, others=Others(moved, others.elsewhere[own]))
        jobs, places = laid.held_back(self.held_ms[rows] + delays_of_jobs(laid, self.startup, seed))
        begin, end = lead * DAY_MS, (lead + self.days) * DAY_MS
        window = jobs.submit_ms >= begin
        work = (gpus_of(jobs) * jobs.work_ms.astype(np.float64))[window]
        return Resample(
            jobs, window & self.group[rows][places], window, begin, end, float(work.sum()) / 1000 / (end - begin)
        )


def _gathered(jobs: Jobs, rows: Ints) -> Jobs:
    """Return the jobs in the given order, repeated as often as listed, without their recorded times."""
    unknown = np.full(len(rows), -1, np.int64)
    return replace(jobs.rows(rows), recorded_start_ms=unknown, recorded_end_ms=unknown)


def _comes(users: NDArray[np.int32], share: float, random: np.random.Generator) -> Bools:
    """Draw which of a day's jobs to include (n,). Each user is included with this probability."""
    names, place = np.unique(users, return_inverse=True)
    by_user = (random.random(len(names)) < share)[place]
    alone = random.random(len(users)) < share
    return np.where(users >= 0, by_user, alone)


def _number(*words: int) -> int:
    """Derive a seed from several numbers."""
    return int(np.random.SeedSequence(words).generate_state(1)[0])
