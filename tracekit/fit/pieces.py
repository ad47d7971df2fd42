"""The level of the rate of arrivals through the log: constant, an exponential trend, or pieces between change points.

The counts of days (of weeks, in a log of more than a year) are cut into pieces of one rate each. Of pieces there are at
most as many as `tracekit.fit.change_points` finds that chance does not make. The forms are compared by BIC; a piece
more has two parameters, its rate and its beginning. The log-likelihood in it is divided by the dispersion of counts:
that of hours, or that of days where it is larger, each around the rate that it is least around. Bursts alone, which
make counts vary, make no change point then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.fit.change_points import BLOCK, DRAWS, LEVEL, ChangeTest, best_cuts, pieces_beyond_chance
from tracekit.fit.rate import CELLS, HOUR_S, LEAST_DAYS, fit_level, hourly_counts

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.rate import Hours, Rate

__all__ = ["RateFit", "fit_rate", "rate_entry", "unit_dispersion"]

_DAY = 24
_WEEK = 7
_LEAST_DAYS = 14
"""Days of a log that a trend or a change point needs."""
_MOST_UNITS = 366
"""Days from which on weeks are counted, and so on: the work grows with the square."""


class RateFit(NamedTuple):
    """The chosen rate, and what it was compared with."""

    rate: Rate
    kinds: dict[str, float]
    """BIC of each kind of profile, with the chosen form of the level."""
    forms: list[dict[str, Any]]
    """Each form of the level that was tried: form, pieces, parameters, bic, behind (BIC above the least)."""
    dispersion: float
    """That by which the log-likelihoods of the forms were divided."""
    unit_days: int
    """Change points lie between such units."""
    test: ChangeTest


def fit_rate(arrivals_s: Floats, hours: Hours) -> RateFit:
    """Return the rate of the least BIC: first the form of its level, with the richest profile, then the profile.

    Parameters
    ----------
    arrivals_s : array (n,)
        Rising times [s since 1970].
    hours : Hours
        Those of the log.
    """
    counts = hourly_counts(arrivals_s, hours)
    days = float(hours.open_s.sum() / 86400)
    kinds = [kind for kind, least in LEAST_DAYS.items() if days >= least]
    richest = kinds[-1]
    unit = _unit_days(counts.size / _DAY)
    tried: list[tuple[Rate, Floats | None]] = [(fit_level(richest, "constant", counts, hours), None)]
    test = ChangeTest(1, None)
    if days >= _LEAST_DAYS:
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
    """Return what workload.json says about a rate of so many arrivals.

    Standard errors are those of counts of the stated dispersion: a rate of n arrivals has rate * sqrt(dispersion / n).
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
    """Return Pearson's chi-square of the counts of days by degree of freedom; None where these are fewer than half.

    Bursts of hours make the counts of hours depend on each other: those of days then vary by more than those of hours.
    """
    of_unit = _units(counts.size, unit_days)
    seen, due = (np.bincount(of_unit, x) for x in (counts, rate.expected(hours)))
    free = seen.size - _of_level(rate)
    return float(((seen - due) ** 2 / due).sum() / free) if free >= seen.size / 2 else None


def _of_level(rate: Rate) -> int:
    """Return the parameters of the level, those of the profile apart."""
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
    """Return how many days are counted together."""
    return 1 if days <= _MOST_UNITS else _WEEK * int(np.ceil(days / _WEEK / _MOST_UNITS))


def _units(number: int, unit_days: int) -> Whole:
    """Return the unit of each hour; what is left at the end belongs to the last."""
    width = unit_days * _DAY
    found: Whole = np.minimum(np.arange(number) // width, max(number // width - 1, 0))
    return found


def _by_unit(counts: Floats, hours: Hours, rate: Rate, unit_days: int) -> tuple[Floats, Floats]:
    """Return the arrivals of each unit, and its hours weighed by the profile."""
    of_unit = _units(counts.size, unit_days)
    flat = rate.profile[hours.of_week % rate.profile.size] * hours.open_s / HOUR_S
    return np.bincount(of_unit, counts).astype(float), np.bincount(of_unit, flat).astype(float)
