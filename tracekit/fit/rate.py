"""The rate of arrivals by hour of the week or of the day, or constant, on a level that may change through the log.

The expected number in an hour is level(days since the beginning) * profile[hour]. The profile's cell is (arrivals + 1)
/ (expected + 1): an hour of the week without arrivals keeps a small rate. The level is constant, grows exponentially,
or is a constant in each of several pieces (`tracekit.fit.pieces`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole


HOUR_S = 3600
CELLS = {"constant": 1, "hour_of_day": 24, "hour_of_week": 168}
LEAST_DAYS = {"constant": 0, "hour_of_day": 2, "hour_of_week": 14}
"""Days of arrivals that a profile needs."""
_ROUNDS = 50


@dataclass(frozen=True)
class Hours:
    """The hours of a window."""

    start_s: int
    """Beginning of the first hour, seconds since 1970 UTC."""
    of_week: Whole
    """Hour of the local week of each hour, 0 is Monday 00:00 to 01:00."""
    open_s: Floats
    """How much of each hour is inside the window [s]."""

    @property
    def days(self) -> Floats:
        """Days from the beginning of the first hour to that of each."""
        return np.arange(self.of_week.size) / 24


class Piece(NamedTuple):
    """A part of the log in which the level of the rate is one number."""

    from_day: float
    """Days since the beginning of the log's first hour."""
    to_day: float
    per_hour: float
    """Arrivals in an hour of mean profile."""
    standard_error: float
    """Of `per_hour`, widened by the dispersion of counts."""


@dataclass(frozen=True)
class Rate:
    """A fitted rate of arrivals."""

    kind: str
    form: str
    """constant, exponential or piecewise."""
    per_hour: float
    """Arrivals in an hour of mean profile at the beginning."""
    profile: Floats
    """24 or 168 factors with mean 1, or a single 1."""
    profile_errors: Floats
    """Standard error of each factor, widened alike; that of a single 1 is 0."""
    trend_per_day: float
    """Growth of the logarithm; 0 where the form is not exponential."""
    trend_error: float | None
    """Standard error, widened by the dispersion of hourly counts; None where the form is not exponential."""
    pieces: tuple[Piece, ...]
    """Those of a piecewise level."""
    dispersion: float
    """Pearson's chi-square of hourly counts by degree of freedom; 1 is Poisson."""
    log_likelihood: float

    @property
    def fitted(self) -> int:
        """Numbers that were fitted to the counts: the factors, and what the level has beyond one number."""
        return self.profile.size + {"constant": 0, "exponential": 1, "piecewise": 2 * len(self.pieces) - 2}[self.form]

    def level(self, days: Floats) -> Floats:
        """Return the rate in an hour of mean profile at days since the beginning; it stays beyond the last piece."""
        if self.pieces:
            ends = np.array([p.to_day for p in self.pieces[:-1]])
            return np.array([p.per_hour for p in self.pieces])[np.searchsorted(ends, days, side="right")]
        return self.per_hour * np.exp(self.trend_per_day * days)

    def expected(self, hours: Hours) -> Floats:
        """Return the expected arrivals in each hour."""
        cells = hours.of_week % self.profile.size
        return self.level(hours.days) * self.profile[cells] * hours.open_s / HOUR_S

    def mean_per_hour(self, hours: Hours) -> float:
        """Return the rate without a trend that has as many arrivals in these hours."""
        flat = self.profile[hours.of_week % self.profile.size] * hours.open_s / HOUR_S
        return float(self.expected(hours).sum() / flat.sum())

    def widened(self, dispersion: float) -> Rate:
        """Return the rate with standard errors for another dispersion of counts, where that is larger."""
        factor = float(np.sqrt(max(dispersion, 1.0) / max(self.dispersion, 1.0)))
        if factor <= 1:
            return self
        error = None if self.trend_error is None else self.trend_error * factor
        pieces = tuple(p._replace(standard_error=p.standard_error * factor) for p in self.pieces)
        return replace(self, profile_errors=self.profile_errors * factor, trend_error=error, pieces=pieces)


def hours_between(first_s: int, last_s: int, timezone: str) -> Hours:
    """Return the hours of the window [first_s, last_s)."""
    start = first_s // HOUR_S * HOUR_S
    number = max(1, -(-(last_s - start) // HOUR_S))
    found = with_hours(start, number, timezone)
    opened = np.full(number, float(HOUR_S))
    opened[0] -= first_s - start
    opened[-1] -= start + number * HOUR_S - last_s
    return Hours(start, found.of_week, np.maximum(opened, 1.0))


def with_hours(start_s: int, number: int, timezone: str) -> Hours:
    """Return `number` whole hours from a time on."""
    times = pl.Series((start_s + HOUR_S * np.arange(number, dtype=np.int64)) * 1000).cast(pl.Datetime("ms", "UTC"))
    local = times.dt.convert_time_zone(timezone)
    week = (local.dt.weekday().cast(pl.Int64) - 1) * 24 + local.dt.hour().cast(pl.Int64)
    return Hours(start_s, week.to_numpy(), np.full(number, float(HOUR_S)))


def observed_week(arrivals_s: Floats, hours: Hours) -> list[float | None]:
    """Return the mean number of arrivals in each hour of the week, None for an hour that the window never holds whole.

    Incomplete hours are left out: the window begins with an arrival, so that the rest of that hour would count more.
    """
    whole = hours.open_s >= HOUR_S
    number = np.bincount(hours.of_week[whole], minlength=CELLS["hour_of_week"])
    seen = np.bincount(hours.of_week[whole], hourly_counts(arrivals_s, hours)[whole], CELLS["hour_of_week"])
    return [float(s / n) if n else None for s, n in zip(seen, number, strict=True)]


def hourly_counts(arrivals_s: Floats, hours: Hours) -> Floats:
    """Return the arrivals in each hour of a window."""
    place = ((arrivals_s - hours.start_s) // HOUR_S).astype(np.int64)
    return np.bincount(np.clip(place, 0, hours.of_week.size - 1), minlength=hours.of_week.size).astype(float)


def fit_level(kind: str, form: str, counts: Floats, hours: Hours, edges: Floats | None = None) -> Rate:
    """Return the most likely rate of a kind of profile and a form of its level.

    Parameters
    ----------
    kind : {'constant', 'hour_of_day', 'hour_of_week'}
    form : {'constant', 'exponential', 'piecewise'}
    counts : array (hours,)
        Arrivals in each hour.
    hours : Hours
    edges : array (pieces + 1,), optional
        Where pieces begin and end, in hours since the beginning; of a piecewise level.
    """
    cells = hours.of_week % CELLS[kind]
    opened = hours.open_s / HOUR_S
    member = np.zeros(counts.size, np.int64)
    if edges is not None:
        member = np.searchsorted(edges[1:-1], np.arange(counts.size), side="right")
    profile, slope = _alternate(form, counts, hours, cells, member)
    levels = _levels(counts, member, profile[cells] * opened) if form == "piecewise" else np.ones(1)
    growth = levels[member] * np.exp(slope * hours.days) * opened
    # The cells were drawn a little towards the mean: scaling restores the total.
    per_hour = counts.sum() / float((growth * profile[cells]).sum())
    whole = per_hour * growth * profile[cells]
    of_level = {"constant": 0, "exponential": 1, "piecewise": 2 * levels.size - 2}[form]
    dispersion = float(((counts - whole) ** 2 / whole).sum() / max(1, counts.size - CELLS[kind] - of_level))
    wide = float(np.sqrt(max(dispersion, 1.0)))
    error = None
    if form == "exponential":
        centred = hours.days - (whole @ hours.days) / whole.sum()
        error = wide / float(np.sqrt(max(whole @ centred**2, 1e-9)))
    pieces: list[Piece] = []
    if edges is not None:
        levels = levels * per_hour
        errors = levels * wide / np.sqrt(np.maximum(np.bincount(member, counts, levels.size), 1.0))
        rows = zip(edges[:-1] / 24, edges[1:] / 24, levels, errors, strict=True)
        pieces = [Piece(*(float(x) for x in row)) for row in rows]
        per_hour = float(levels[0])
    in_cell = np.bincount(cells, whole, CELLS[kind])
    factor_errors = profile * wide / np.sqrt(np.maximum(in_cell, 1.0)) * (profile.size > 1)
    likelihood = float(counts @ np.log(whole) - whole.sum())
    return Rate(
        kind, form, float(per_hour), profile, factor_errors, slope, error, tuple(pieces), dispersion, likelihood
    )


def _alternate(form: str, counts: Floats, hours: Hours, cells: Whole, member: Whole) -> tuple[Floats, float]:
    """Return the profile, with mean 1, and the slope: profile and level are fitted in turn until neither moves."""
    opened = hours.open_s / HOUR_S
    slope, moved = 0.0, 0.0
    profile = np.ones(int(cells.max()) + 1)
    levels = np.ones(int(member[-1]) + 1)
    for _ in range(1 if form == "constant" else _ROUNDS):
        if form == "piecewise":
            before, levels = levels, _levels(counts, member, profile[cells] * opened)
            moved = float(np.abs(levels / before - 1).max())
        growth = levels[member] * np.exp(slope * hours.days) * opened
        base = counts.sum() / growth.sum()
        profile = (np.bincount(cells, counts) + 1) / (np.bincount(cells, base * growth) + 1)
        if form == "exponential":
            moved = _slope_step(counts, base * growth * profile[cells], hours.days)
            slope = float(np.clip(slope + np.clip(moved, -0.05, 0.05), -0.2, 0.2))
        if abs(moved) < 1e-9:
            break
    return profile / profile.mean(), slope


def _slope_step(counts: Floats, whole: Floats, days: Floats) -> float:
    """Return a Newton step of the growth of the logarithm, with `whole` expected in each hour."""
    centred = days - (whole @ days) / whole.sum()
    return float(((counts - whole) @ centred) / max(whole @ centred**2, 1e-9))


def _levels(counts: Floats, member: Whole, exposure: Floats) -> Floats:
    """Return arrivals over exposure of each piece; half an arrival in one without any, whose rate would be 0."""
    found: Floats = np.maximum(np.bincount(member, counts), 0.5) / np.bincount(member, exposure)
    return found
