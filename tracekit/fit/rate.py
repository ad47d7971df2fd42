"""Fit the arrival rate: by hour of the week, by hour of the day, or constant, with a level that may change.

The expected number of arrivals in an hour is level(days since the beginning) * profile[hour]. Each cell of the profile
is (arrivals + 1) / (expected + 1), so an hour of the week without arrivals keeps a small rate. The level is constant,
grows exponentially, or is constant in each of several pieces separated by change points.

Daily counts (weekly counts, if the log is longer than a year) are split into pieces with one rate each. Only pieces
that are not due to chance are allowed. The forms of the level are compared by BIC; each piece adds two parameters, its
rate and its beginning. The log-likelihood in BIC is divided by the dispersion of hourly or daily counts, whichever is
larger, each around the rate that makes it smallest. So bursts, which only make counts vary more, do not produce change
points.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from scipy import special

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints


HOUR_S = 3600
CELLS = {"constant": 1, "hour_of_day": 24, "hour_of_week": 168}
LEAST_DAYS = {"constant": 0, "hour_of_day": 2, "hour_of_week": 14}
"""Number of days of arrivals needed for each profile."""
_ROUNDS = 50


@dataclass(frozen=True)
class Hours:
    """The hours of a window."""

    start_s: int
    """Beginning of the first hour, in seconds since 1970 UTC."""
    of_week: Ints
    """Each hour's index in the local week, where 0 is Monday 00:00 to 01:00."""
    open_s: Floats
    """Part of each hour that is within the window [s]."""

    @property
    def days(self) -> Floats:
        """Time from the beginning of the first hour to the beginning of each hour [days]."""
        return np.arange(self.of_week.size) / 24


class Piece(NamedTuple):
    """A part of the log with a constant level of the rate."""

    from_day: float
    """Beginning of the piece, in days since the beginning of the log's first hour."""
    to_day: float
    per_hour: float
    """Number of arrivals in an hour of mean profile."""
    standard_error: float
    """Standard error of `per_hour`, widened by the dispersion of counts."""


@dataclass(frozen=True)
class Rate:
    """A fitted rate of arrivals."""

    kind: str
    form: str
    """constant, exponential or piecewise."""
    per_hour: float
    """Number of arrivals in an hour of mean profile at the beginning."""
    profile: Floats
    """24 or 168 factors with mean 1, or a single 1."""
    profile_errors: Floats
    """Standard error of each factor, widened by the dispersion of counts, or 0 for a single 1."""
    trend_per_day: float
    """Growth of the logarithm, or 0 if the form is not exponential."""
    trend_error: float | None
    """Standard error, widened by the dispersion of hourly counts, or None if the form is not exponential."""
    pieces: tuple[Piece, ...]
    """The pieces of a piecewise level."""
    dispersion: float
    """Pearson's chi-square of hourly counts per degree of freedom, which is 1 for Poisson."""
    log_likelihood: float

    @property
    def fitted(self) -> int:
        """Number of parameters fitted to the counts: the factors, plus the parameters of the level beyond the first."""
        return self.profile.size + {"constant": 0, "exponential": 1, "piecewise": 2 * len(self.pieces) - 2}[self.form]

    def level(self, days: Floats) -> Floats:
        """Return the rate in an hour of mean profile, at times since the beginning [days]; the last rate continues."""
        if self.pieces:
            ends = np.array([p.to_day for p in self.pieces[:-1]])
            return np.array([p.per_hour for p in self.pieces])[np.searchsorted(ends, days, side="right")]
        return self.per_hour * np.exp(self.trend_per_day * days)

    def expected(self, hours: Hours) -> Floats:
        """Return the expected number of arrivals in each hour."""
        cells = hours.of_week % self.profile.size
        return self.level(hours.days) * self.profile[cells] * hours.open_s / HOUR_S

    def mean_per_hour(self, hours: Hours) -> float:
        """Return the constant rate that gives the same number of arrivals in these hours."""
        flat = self.profile[hours.of_week % self.profile.size] * hours.open_s / HOUR_S
        return float(self.expected(hours).sum() / flat.sum())

    def widened(self, dispersion: float) -> Rate:
        """Widen the standard errors for a larger dispersion of counts; a smaller dispersion changes nothing."""
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
    """Return `number` whole hours, starting at a given time."""
    times = pl.Series((start_s + HOUR_S * np.arange(number, dtype=np.int64)) * 1000).cast(pl.Datetime("ms", "UTC"))
    local = times.dt.convert_time_zone(timezone)
    week = (local.dt.weekday().cast(pl.Int64) - 1) * 24 + local.dt.hour().cast(pl.Int64)
    return Hours(start_s, week.to_numpy(), np.full(number, float(HOUR_S)))


def observed_week(arrivals_s: Floats, hours: Hours) -> list[float | None]:
    """Return the mean number of arrivals in each hour of the week, or None for hours never completely observed.

    Incomplete hours are excluded: the window begins with an arrival, so the rest of that hour would count too much.
    """
    whole = hours.open_s >= HOUR_S
    number = np.bincount(hours.of_week[whole], minlength=CELLS["hour_of_week"])
    seen = np.bincount(hours.of_week[whole], hourly_counts(arrivals_s, hours)[whole], CELLS["hour_of_week"])
    return [float(s / n) if n else None for s, n in zip(seen, number, strict=True)]


def hourly_counts(arrivals_s: Floats, hours: Hours) -> Floats:
    """Count the arrivals in each hour of a window."""
    place = ((arrivals_s - hours.start_s) // HOUR_S).astype(np.int64)
    return np.bincount(np.clip(place, 0, hours.of_week.size - 1), minlength=hours.of_week.size).astype(float)


def fit_level(kind: str, form: str, counts: Floats, hours: Hours, edges: Floats | None = None) -> Rate:
    """Return the most likely rate for a kind of profile and a form of the level.

    Parameters
    ----------
    kind : {'constant', 'hour_of_day', 'hour_of_week'}
    form : {'constant', 'exponential', 'piecewise'}
    counts : array (hours,)
        Number of arrivals in each hour.
    hours : Hours
    edges : array (pieces + 1,), optional
        Edges of the pieces of a piecewise level, in hours since the beginning.
    """
    cells = hours.of_week % CELLS[kind]
    opened = hours.open_s / HOUR_S
    member = np.zeros(counts.size, np.int64)
    if edges is not None:
        member = np.searchsorted(edges[1:-1], np.arange(counts.size), side="right")
    profile, slope = _alternate(form, counts, hours, cells, member)
    levels = _levels(counts, member, profile[cells] * opened) if form == "piecewise" else np.ones(1)
    growth = levels[member] * np.exp(slope * hours.days) * opened
    # The cells were shrunk slightly toward the mean. Scaling restores the total.
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


def _alternate(form: str, counts: Floats, hours: Hours, cells: Ints, member: Ints) -> tuple[Floats, float]:
    """Return the profile, with mean 1, and the slope, which are fitted in turn until neither changes."""
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
    """Return a Newton step for the growth of the logarithm, with `whole` arrivals expected in each hour."""
    centred = days - (whole @ days) / whole.sum()
    return float(((counts - whole) @ centred) / max(whole @ centred**2, 1e-9))


def _levels(counts: Floats, member: Ints, exposure: Floats) -> Floats:
    """Return arrivals / exposure for each piece; a piece without arrivals counts as half an arrival."""
    return np.maximum(np.bincount(member, counts), 0.5) / np.bincount(member, exposure)


# Find change points in the counts of successive days, and test whether chance alone could produce them. `best_cuts`
# finds, for each number of pieces, the cuts with the largest Poisson likelihood by dynamic programming (Jackson et al.,
# 2005, "An algorithm for optimal partitioning of data on an interval"). Workload counts vary much more than Poisson
# counts, so days with bursts would become separate pieces. `pieces_beyond_chance` counts only pieces that are not due
# to chance: it compares an arc of a piece with the rest of the piece, and with the arcs of the same days in random
# order (circular binary segmentation, Olshen et al., 2004, Biostatistics 5(4)). Random orders shuffle blocks of days,
# which keeps bursts of a day or two intact.

BLOCK = 3
"""Number of units in a block, and in the shortest piece."""
DRAWS = 199
"""Number of random orders of the blocks."""
LEVEL = 0.05
"""The p-value above which a piece is not split; BIC must also prefer the split."""
_FIRST = 39
"""Number of orders after which a test may stop early if it can no longer reach the level."""
_MOST_PIECES = 16


class ChangeTest(NamedTuple):
    """The result of testing a log's pieces against random orders."""

    pieces: int
    """Number of pieces that cannot be due to chance, or 1 if the rate does not change."""
    p: float | None
    """The p-value of the strongest arc of the whole log, or None if the log has too few blocks."""


def best_cuts(counts: Floats, exposure: Floats, least: int, most: int) -> list[Ints]:
    """Return the cuts with the largest Poisson likelihood for 2, 3, ... `most` pieces.

    Parameters
    ----------
    counts, exposure : array (n,)
        Arrivals in each unit, and the exposure to which they are proportional within a piece, above 0.
    least : int
        Number of units in the shortest piece.
    most : int
        Maximum number of pieces; there are fewer if there are too few units.

    Returns
    -------
    list of array (pieces + 1,)
        Edges from 0 to n, in units.
    """
    number = counts.size
    most = min(most, number // least)
    if most < 2:
        return []
    total, exposed = _running(counts), _running(exposure)
    place = np.arange(number + 1)
    long = place[None, :] - place[:, None] >= least
    inside = np.where(long, total[None, :] - total[:, None], 0.0)
    over = np.where(long, exposed[None, :] - exposed[:, None], 1.0)
    gain = np.where(long, special.xlogy(inside, inside / over), -np.inf)
    best = gain[0]
    came: list[Ints] = []
    found = []
    for _ in range(2, most + 1):
        whole = best[:, None] + gain
        came.append(whole.argmax(axis=0))
        best = whole.max(axis=0)
        edges = [number]
        for step in reversed(came):
            edges.append(int(step[edges[-1]]))
        found.append(np.array([0, *edges[::-1]]))
    return found


def pieces_beyond_chance(counts: Floats, exposure: Floats) -> ChangeTest:
    """Count the pieces in the counts of successive units that random orders of their blocks do not explain.

    The same counts always give the same random orders.

    Parameters
    ----------
    counts, exposure : array (n,)
        As in `best_cuts`.
    """
    rng = np.random.default_rng(counts.size)
    waiting, pieces = [(0, counts.size)], 1
    first: float | None = None
    while waiting and pieces < _MOST_PIECES:
        low, high = waiting.pop()
        p, begin, end = _strongest_arc(counts[low:high], exposure[low:high], rng)
        if (low, high) == (0, counts.size):
            first = p
        if p is None or p > LEVEL:
            continue
        edges = sorted({low, low + begin, low + end, high})
        waiting += list(itertools.pairwise(edges))
        pieces += len(edges) - 2
    return ChangeTest(pieces, first)


def _strongest_arc(counts: Floats, exposure: Floats, rng: np.random.Generator) -> tuple[float | None, int, int]:
    """Return the p-value, beginning and end of the arc that differs most from the rest."""
    number = counts.size
    block = np.arange(number) // BLOCK
    if number < 2 * BLOCK or counts.sum() <= 0:
        return None, 0, number
    gain, begin, end = _gains(counts[None], exposure[None])
    above, drawn = 0, 0
    for draws in (_FIRST, DRAWS - _FIRST):
        keys = rng.random((draws, int(block[-1]) + 1))[:, block]
        order = np.argsort(keys, axis=1, kind="stable")
        # A random order may reproduce the same arc, except for rounding in the sums.
        above += int((_gains(counts[order], exposure[order])[0] >= gain[0] * (1 - 1e-12)).sum())
        drawn += draws
        if (1 + above) / (1 + DRAWS) > LEVEL:
            break
    return (1 + above) / (1 + drawn), int(begin[0]), int(end[0])


def _gains(counts: Floats, exposure: Floats) -> tuple[Floats, Ints, Ints]:
    """Return the best arc of each row: its log-likelihood gain over a single rate, its beginning and its end."""
    rows, number = counts.shape
    total, exposed = _running(counts), _running(exposure)
    whole, over = total[:, -1:], exposed[:, -1:]
    best = np.full(rows, -np.inf)
    begins, ends = np.zeros(rows, np.int64), np.full(rows, number)
    for begin in (0, *range(BLOCK, number - BLOCK + 1)):
        # The rest before or after an arc is either empty or long enough to be a piece.
        end = np.array([e for e in range(begin + BLOCK, number + 1) if e == number or e <= number - BLOCK])
        end = end[(end < number) | (begin > 0)]
        if not end.size:
            continue
        inside, within = total[:, end] - total[:, begin, None], exposed[:, end] - exposed[:, begin, None]
        outside, without = np.maximum(whole - inside, 0.0), over - within
        gain = special.xlogy(inside, inside / within) + special.xlogy(outside, outside / without)
        place = gain.argmax(axis=1)
        found = gain[np.arange(rows), place]
        better = found > best
        best, begins = np.where(better, found, best), np.where(better, begin, begins)
        ends = np.where(better, end[place], ends)
    return best - special.xlogy(whole, whole / over)[:, 0], begins, ends


def _running(each: Floats) -> Floats:
    zero = np.zeros((*each.shape[:-1], 1))
    return np.concatenate([zero, each.cumsum(axis=-1)], axis=-1)


_DAY = 24
_WEEK = 7
_LEAST_CHANGING_DAYS = 14
"""Minimum number of days in a log for a trend or a change point."""
_MOST_UNITS = 366
"""Number of units above which longer units, such as weeks, are used, because the work grows with the square."""


class RateFit(NamedTuple):
    """The chosen rate, and the alternatives with which it was compared."""

    rate: Rate
    kinds: dict[str, float]
    """BIC of each kind of profile, with the chosen form of the level."""
    forms: list[dict[str, Any]]
    """The level's forms that were tried: form, pieces, parameters, bic, behind (BIC above the lowest)."""
    dispersion: float
    """Divisor of the forms' log-likelihoods."""
    unit_days: int
    """Length of a unit [days]; change points are between units."""
    test: ChangeTest


def fit_rate(arrivals_s: Floats, hours: Hours) -> RateFit:
    """Return the rate with the lowest BIC, choosing first the level's form, with the richest profile, then the profile.

    Parameters
    ----------
    arrivals_s : array (n,)
        Arrival times in increasing order [s since 1970].
    hours : Hours
        The hours of the log.
    """
    counts = hourly_counts(arrivals_s, hours)
    days = float(hours.open_s.sum() / 86400)
    kinds = [kind for kind, least in LEAST_DAYS.items() if days >= least]
    richest = kinds[-1]
    unit = _unit_days(counts.size / _DAY)
    tried: list[tuple[Rate, Floats | None]] = [(fit_level(richest, "constant", counts, hours), None)]
    test = ChangeTest(1, None)
    if days >= _LEAST_CHANGING_DAYS:
        tried.append((fit_level(richest, "exponential", counts, hours), None))
        seen, exposure = _by_unit(counts, hours, tried[-1][0], unit)
        test = pieces_beyond_chance(seen, exposure)
        for cut in best_cuts(seen, exposure, BLOCK, test.pieces):
            edges = np.array([*(cut[:-1] * unit * _DAY), counts.size], float)
            tried.append((fit_level(richest, "piecewise", counts, hours, edges), edges))
    daily = [unit_dispersion(counts, rate, hours, unit) for rate, _ in tried]
    slow = min((x for x in daily if x is not None), default=1.0)
    dispersion = max(1.0, slow, min(rate.dispersion for rate, _ in tried))
    size = float(np.log(counts.size))
    scored = [_of_level(rate) * size - 2 * rate.log_likelihood / dispersion for rate, _ in tried]
    best = int(np.argmin(scored))
    forms = [_form(rate, bic, bic - scored[best]) for (rate, _), bic in zip(tried, scored, strict=True)]
    form, chosen_edges = tried[best][0].form, tried[best][1]
    rates = {kind: fit_level(kind, form, counts, hours, chosen_edges) for kind in kinds}
    widest = max(1.0, rates[richest].dispersion)
    bic = {kind: CELLS[kind] * size - 2 * rate.log_likelihood / widest for kind, rate in rates.items()}
    chosen = rates[min(bic, key=lambda k: bic[k])]
    return RateFit(chosen.widened(slow), bic, forms, dispersion, unit, test)


def rate_entry(fit: RateFit, hours: Hours, arrivals: int) -> dict[str, Any]:
    """Return the entry in workload.json for a rate fitted to a number of arrivals.

    Standard errors assume counts with the given dispersion. A rate from n arrivals has rate * sqrt(dispersion / n).
    """
    rate = fit.rate
    mean = rate.mean_per_hour(hours)
    return {
        "kind": rate.kind,
        "form": rate.form,
        "unit": "batches an hour",
        "per_hour": rate.per_hour,
        "mean_per_hour": mean,
        "mean_standard_error": mean * float(np.sqrt(fit.dispersion / arrivals)),
        "dispersion": fit.dispersion,
        "profile": rate.profile.tolist(),
        "profile_standard_errors": rate.profile_errors.tolist(),
        "trend_per_day": rate.trend_per_day,
        "trend_standard_error": rate.trend_error,
        "pieces": [
            {"from_day": p.from_day, "to_day": p.to_day, "per_hour": p.per_hour, "standard_error": p.standard_error}
            for p in rate.pieces
        ],
        "bic": fit.kinds,
        "forms": fit.forms,
        "change_test": {
            "unit_days": fit.unit_days,
            "block_days": BLOCK * fit.unit_days,
            "most_pieces": fit.test.pieces,
            "p": fit.test.p,
            "level": LEVEL,
            "draws": DRAWS,
        },
    }


def unit_dispersion(counts: Floats, rate: Rate, hours: Hours, unit_days: int) -> float | None:
    """Return Pearson's chi-square of daily counts per degree of freedom.

    Bursts that last for hours correlate hourly counts, so daily counts are more dispersed. The result is None if there
    are fewer than half as many degrees of freedom as units.
    """
    of_unit = _units(counts.size, unit_days)
    seen, due = (np.bincount(of_unit, x) for x in (counts, rate.expected(hours)))
    free = seen.size - _of_level(rate)
    return float(((seen - due) ** 2 / due).sum() / free) if free >= seen.size / 2 else None


def _of_level(rate: Rate) -> int:
    """Count the level's parameters, without those of the profile."""
    return rate.fitted - rate.profile.size + 1


def _form(rate: Rate, bic: float, behind: float) -> dict[str, Any]:
    return {
        "form": rate.form,
        "pieces": max(1, len(rate.pieces)),
        "parameters": _of_level(rate),
        "bic": bic,
        "behind": behind,
        "trend_per_day": rate.trend_per_day if rate.form == "exponential" else None,
        "trend_standard_error": rate.trend_error,
    }


def _unit_days(days: float) -> int:
    """Return the number of days to count together."""
    return 1 if days <= _MOST_UNITS else _WEEK * int(np.ceil(days / _WEEK / _MOST_UNITS))


def _units(number: int, unit_days: int) -> Ints:
    """Return the unit of each hour; an incomplete unit at the end belongs to the last complete unit."""
    width = unit_days * _DAY
    return np.minimum(np.arange(number) // width, max(number // width - 1, 0))


def _by_unit(counts: Floats, hours: Hours, rate: Rate, unit_days: int) -> tuple[Floats, Floats]:
    """Return the arrivals in each unit, and its hours weighted by the profile."""
    of_unit = _units(counts.size, unit_days)
    flat = rate.profile[hours.of_week % rate.profile.size] * hours.open_s / HOUR_S
    return np.bincount(of_unit, counts).astype(float), np.bincount(of_unit, flat).astype(float)
