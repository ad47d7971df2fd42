"""Tests of whether batches arrive independently: how hourly counts and gaps vary, compared with Poisson processes.

Of a step (tick) of its clock a log shows only whether anything arrived in it. The fitted rate is that of such ticks:
where a share q of them is hit, -ln(1 - q) events arrive in a tick of a Poisson process. In ticks, gaps and hourly
counts vary less than those of a Poisson process, and the less the more ticks are hit. A statistic is therefore compared
with that of simulated processes observed through the same clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.fit.rate import HOUR_S

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.rate import Hours, Rate


DRAWS = 999
"""Processes simulated for a p-value; as few as 250 where there are many hours or gaps."""
_LEAST_DRAWS = 250
_MOST = 5_000_000
"""Approximate number of random numbers for a p-value."""
_MOST_HIT = 0.999
"""Largest share of the ticks of an hour that is taken as hit: with all of them the rate would be infinite."""


class IndependenceResult(NamedTuple):
    """A statistic of the log, compared with that of independent arrivals."""

    value: float
    independent: float
    """Median of the simulated processes; 0 where they cannot vary."""
    p: float
    draws: int

    @property
    def ratio(self) -> float | None:
        """Variation of the log over that of independent arrivals."""
        return self.value / self.independent if self.independent > 0 else None


@dataclass(frozen=True)
class Clock:
    """The fitted rate of ticks with an arrival, and of the events behind them, through the hours of a window."""

    step_s: float
    edges_s: Floats
    """Ends of the hours, the first and the last those of the window, in seconds since 1970 UTC."""
    cells: Whole
    """Which factor of the profile each hour has."""
    hits: Floats
    """Expected ticks with an arrival in each hour."""
    ticks: Floats
    """Ticks in each hour."""

    @classmethod
    def make(cls, times: Floats, step: float, rate: Rate, hours: Hours) -> Clock:
        """Return the clock of a rate fitted to `times`, the rising beginnings [s] of ticks of `step` seconds."""
        return cls.of_window(float(times[0]), float(times[-1] + step), step, rate, hours)

    @classmethod
    def of_window(cls, begin_s: float, end_s: float, step: float, rate: Rate, hours: Hours) -> Clock:
        """Return the clock of a rate through a window [s since 1970], of which `hours` are the hours."""
        edges = hours.start_s + HOUR_S * np.arange(hours.of_week.size + 1, dtype=float)
        edges[0], edges[-1] = begin_s, end_s
        return cls(step, edges, hours.of_week % rate.profile.size, rate.expected(hours), np.diff(edges) / step)

    @property
    def shares(self) -> Floats:
        """Share of the ticks of each hour that are hit."""
        return np.clip(self.hits / self.ticks, 0.0, _MOST_HIT)

    @property
    def room(self) -> float:
        """Squared variation of the gaps of a Poisson process: share of ticks that are not hit, where batches come.

        Of ticks hit with chance q a gap is k ticks long with chance q (1 - q)^(k - 1): its squared variation is 1 - q.
        """
        return 1 - float((self.hits @ self.shares) / self.hits.sum())

    def gaps(self, times: Floats) -> Floats:
        """Return the expected hit ticks between successive times."""
        return np.diff(np.interp(times, self.edges_s, _cumulated(self.hits)))

    def between(self, begin_s: float, end_s: float) -> Clock:
        """Return the clock of a part of the window."""
        first = int(np.searchsorted(self.edges_s, begin_s, side="right")) - 1
        last = int(np.searchsorted(self.edges_s, end_s))
        edges = self.edges_s[first : last + 1].copy()
        edges[0], edges[-1] = begin_s, end_s
        ticks = np.diff(edges) / self.step_s
        part = slice(first, last)
        return Clock(self.step_s, edges, self.cells[part], self.hits[part] * ticks / self.ticks[part], ticks)


def counts_test(
    dispersion: float, clock: Clock, factors: int, fitted: int, rng: np.random.Generator
) -> IndependenceResult:
    """Test whether hourly counts are more dispersed than those of a Poisson process, whose rate is fitted to each draw.

    `dispersion` is that of Pearson, `factors` of the profile, `fitted` the numbers that were fitted to the counts.
    """
    order = np.argsort(clock.cells, kind="stable")
    cells = clock.cells[order]
    ticks, shares = np.round(clock.ticks[order]).astype(np.int64), clock.shares[order]
    expected = clock.hits[order]
    per_cell = np.bincount(cells, expected, factors)
    free = cells.size - fitted
    if free <= 0:
        return IndependenceResult(dispersion, 0.0, 1.0, 0)
    values = np.empty(_draws(cells.size))
    for place in range(values.size):
        drawn = rng.binomial(ticks, shares)
        refitted = expected * ((np.bincount(cells, drawn, factors) + 1) / (per_cell + 1))[cells]
        refitted *= max(drawn.sum(), 1) / refitted.sum()
        values[place] = ((drawn - refitted) ** 2 / refitted).sum() / free
    above = int((values >= dispersion).sum())
    return IndependenceResult(dispersion, float(np.median(values)), (1 + above) / (1 + values.size), values.size)


def gaps_test(times: Floats, clock: Clock, factors: int, rng: np.random.Generator) -> IndependenceResult:
    """Test whether gaps vary more or less than those of a Poisson process observed in ticks (two-sided).

    `times` are the beginnings of successive ticks with an arrival [s], `factors` those of the profile.
    """
    part = clock.between(times[0], times[-1] + clock.step_s)
    outside = np.bincount(clock.cells, clock.hits, factors) - np.bincount(part.cells, part.hits, factors)
    outside = np.maximum(outside, 0.0)
    per_cell = np.bincount(part.cells, part.hits, factors) + outside
    events = _cumulated(-part.ticks * np.log1p(-part.shares))
    number = int(events[-1] + 6 * np.sqrt(events[-1])) + 20
    ratios = np.empty(_draws(max(number, part.hits.size)))
    for place in range(ratios.size):
        drawn = rng.exponential(size=number).cumsum()
        seconds = np.interp(drawn[: np.searchsorted(drawn, events[-1])], events, part.edges_s)
        ticks = np.floor(seconds / part.step_s)
        hit = ticks[np.flatnonzero(np.diff(ticks, prepend=-1.0))] * part.step_s
        # As for the log, the rate of a draw is fitted to its own hits.
        hours = np.searchsorted(part.edges_s[1:-1], hit, side="right")
        counts = np.bincount(part.cells, np.bincount(hours, minlength=part.hits.size), factors) + rng.poisson(outside)
        fitted = replace(part, hits=part.hits * ((counts + 1) / (per_cell + 1))[part.cells])
        ratios[place] = _variation(fitted.gaps(hit)) / fitted.room
    value, room = _variation(clock.gaps(times)), part.room
    above, below = int((ratios >= value / room).sum()), int((ratios <= value / room).sum())
    p = min(1.0, 2 * (1 + min(above, below)) / (1 + ratios.size))
    return IndependenceResult(value, float(np.median(ratios)) * room, p, ratios.size)


def _variation(gaps: Floats) -> float:
    """Return the squared variation: variance over squared mean."""
    return float(gaps.var() / gaps.mean() ** 2) if gaps.size > 1 else 0.0


def _draws(size: int) -> int:
    return int(np.clip(_MOST // size, _LEAST_DRAWS, DRAWS))


def _cumulated(each: Floats) -> Floats:
    return np.concatenate([[0.0], each.cumsum()])
