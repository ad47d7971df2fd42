"""The rate of arrivals by hour of the week or of the day, or constant, with a trend.

The expected number in an hour is base * profile[hour] * exp(trend * days since the beginning). The profile's cell is
(arrivals + 1) / (expected + 1): an hour of the week without arrivals keeps a small rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole


__all__ = ["HOUR_S", "Hours", "Rate", "fit_rate", "hours_between", "observed_week", "with_hours"]

HOUR_S = 3600
CELLS = {"constant": 1, "hour_of_day": 24, "hour_of_week": 168}
LEAST_DAYS = {"constant": 0, "hour_of_day": 2, "hour_of_week": 14}
"""Days of arrivals that a profile needs."""


@dataclass(frozen=True)
class Hours:
    """The hours of a window."""

    start_s: int
    """Beginning of the first hour, seconds since 1970 UTC."""
    of_week: Whole
    """Hour of the local week of each hour, 0 is Monday 00:00 to 01:00."""
    open_s: Floats
    """How much of each hour is inside the window [s]."""


@dataclass(frozen=True)
class Rate:
    """A fitted rate of arrivals."""

    kind: str
    per_hour: float
    """Arrivals in an hour of mean profile at the beginning."""
    profile: Floats
    """24 or 168 factors with mean 1, or a single 1."""
    trend_per_day: float
    """Growth of the logarithm."""
    trend_error: float | None
    """Standard error, widened by the dispersion of hourly counts."""
    dispersion: float
    """Pearson's chi-square of hourly counts by degree of freedom; 1 is Poisson."""
    log_likelihood: float

    def expected(self, hours: Hours) -> Floats:
        """Return the expected arrivals in each hour."""
        days = np.arange(hours.of_week.size) / 24
        cells = hours.of_week % self.profile.size
        return self.per_hour * self.profile[cells] * np.exp(self.trend_per_day * days) * hours.open_s / HOUR_S

    def mean_per_hour(self, hours: Hours) -> float:
        """Return the rate without a trend that has as many arrivals in these hours."""
        flat = self.profile[hours.of_week % self.profile.size] * hours.open_s / HOUR_S
        return float(self.expected(hours).sum() / flat.sum())


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


def fit_rate(arrivals_s: Floats, hours: Hours) -> tuple[Rate, dict[str, float]]:
    """Return the rate of the least BIC, and the BIC of every kind that the window allows.

    The log-likelihood in it is divided by the dispersion of the richest kind: bursts alone would otherwise make any
    profile look needed.
    """
    counts = _counts(arrivals_s, hours)
    days = hours.open_s.sum() / 86400
    kinds = [kind for kind, least in LEAST_DAYS.items() if days >= least]
    rates = {kind: _fit_kind(kind, counts, hours, trend=days >= 14) for kind in kinds}
    widest = max(1.0, rates[kinds[-1]].dispersion)
    bic = {
        kind: float(CELLS[kind] * np.log(hours.of_week.size) - 2 * rate.log_likelihood / widest)
        for kind, rate in rates.items()
    }
    return rates[min(bic, key=lambda k: bic[k])], bic


def observed_week(arrivals_s: Floats, hours: Hours) -> list[float | None]:
    """Return the mean number of arrivals in each hour of the week, None for an hour that the window never holds whole.

    Incomplete hours are left out: the window begins with an arrival, so that the rest of that hour would count more.
    """
    whole = hours.open_s >= HOUR_S
    number = np.bincount(hours.of_week[whole], minlength=CELLS["hour_of_week"])
    seen = np.bincount(hours.of_week[whole], _counts(arrivals_s, hours)[whole], CELLS["hour_of_week"])
    return [float(s / n) if n else None for s, n in zip(seen, number, strict=True)]


def _counts(arrivals_s: Floats, hours: Hours) -> Floats:
    place = ((arrivals_s - hours.start_s) // HOUR_S).astype(np.int64)
    return np.bincount(np.clip(place, 0, hours.of_week.size - 1), minlength=hours.of_week.size).astype(float)


def _fit_kind(kind: str, counts: Floats, hours: Hours, *, trend: bool) -> Rate:
    cells = hours.of_week % CELLS[kind]
    days = np.arange(counts.size) / 24
    slope = 0.0
    profile = np.ones(CELLS[kind])
    base = 0.0
    for _ in range(50 if trend else 1):
        growth = np.exp(slope * days) * hours.open_s / HOUR_S
        base = counts.sum() / growth.sum()
        expected = np.bincount(cells, base * growth, CELLS[kind])
        profile = (np.bincount(cells, counts, CELLS[kind]) + 1) / (expected + 1)
        if not trend:
            break
        whole = base * growth * profile[cells]
        centred = days - (whole @ days) / whole.sum()
        step = float(((counts - whole) @ centred) / max(whole @ centred**2, 1e-9))
        slope = float(np.clip(slope + np.clip(step, -0.05, 0.05), -0.2, 0.2))
        if abs(step) < 1e-9:
            break
    level = profile.mean()
    growth = np.exp(slope * days) * hours.open_s / HOUR_S
    whole = base * growth * profile[cells]
    # The cells were drawn a little towards the mean: scaling restores the total.
    whole *= counts.sum() / whole.sum()
    per_hour = float(whole.sum() / (growth * profile[cells] / level).sum())
    free = max(1, counts.size - CELLS[kind] - int(trend))
    dispersion = float(((counts - whole) ** 2 / whole).sum() / free)
    error = None
    if trend:
        centred = days - (whole @ days) / whole.sum()
        error = float(np.sqrt(max(dispersion, 1.0) / max(whole @ centred**2, 1e-9)))
    return Rate(kind, per_hour, profile / level, slope, error, dispersion, float(counts @ np.log(whole) - whole.sum()))
