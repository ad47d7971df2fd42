"""The level of the rate of arrivals through the log: constant, an exponential trend, or pieces between change points.

The counts of days (of weeks, in a log of more than a year) are cut into pieces of one rate each. Of pieces there are at
most as many as `tracekit.fit.pieces` finds that chance does not make. The forms are compared by BIC; a piece
more has two parameters, its rate and its beginning. The log-likelihood in it is divided by the dispersion of counts:
that of hours, or that of days where it is larger, each around the rate that it is least around. Bursts alone, which
make counts vary, make no change point then.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from tracekit.fit.rate import CELLS, HOUR_S, LEAST_DAYS, fit_level, hourly_counts

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.rate import Hours, Rate


# Change points in the counts of successive days: where they may be, and whether chance alone makes such ones.
#
# `best_cuts` finds for every number of pieces the cuts of the largest Poisson likelihood, by dynamic programming
# (Jackson et al., 2005, "An algorithm for optimal partitioning of data on an interval"). Counts of a workload vary
# much more than Poisson counts, and days of bursts would be pieces of their own. `pieces_beyond_chance` therefore
# counts only those that chance does not make: an arc of a piece is compared with the rest of the piece, and with the
# arcs that the same days have in random order (circular binary segmentation: Olshen et al., 2004, Biostatistics
# 5(4)). Blocks of days are put in random order, so that bursts of a day or two stay what they are.

BLOCK = 3
"""Units of a block, and of the shortest piece."""
DRAWS = 199
"""Random orders of the blocks."""
LEVEL = 0.05
"""p-value above which a piece is left whole; BIC decides beside it."""
_FIRST = 39
"""Orders after which a test ends that cannot reach the level any more."""
_MOST_PIECES = 16


class ChangeTest(NamedTuple):
    """What random orders say about the pieces of a log."""

    pieces: int
    """Number of pieces that chance does not make; 1 where none changes."""
    p: float | None
    """p-value of the strongest arc of the whole log; None where it has too few blocks."""


def best_cuts(counts: Floats, exposure: Floats, least: int, most: int) -> list[Whole]:
    """Return for 2, 3, ... `most` pieces where to cut so that the Poisson likelihood is largest.

    Parameters
    ----------
    counts, exposure : array (n,)
        Arrivals in each unit, and what they are proportional to within a piece, above 0.
    least : int
        Units of the shortest piece.
    most : int
        Pieces; fewer where the units do not suffice.

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
    came: list[Whole] = []
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
    """Return how many pieces the counts of successive units have that random orders of their blocks do not make.

    The orders are the same for the same counts.

    Parameters
    ----------
    counts, exposure : array (n,)
        As for `best_cuts`.
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
    """Return the p-value of the arc that differs most from the rest, where it begins and where it ends."""
    number = counts.size
    block = np.arange(number) // BLOCK
    if number < 2 * BLOCK or counts.sum() <= 0:
        return None, 0, number
    gain, begin, end = _gains(counts[None], exposure[None])
    above, drawn = 0, 0
    for draws in (_FIRST, DRAWS - _FIRST):
        keys = rng.random((draws, int(block[-1]) + 1))[:, block]
        order = np.argsort(keys, axis=1, kind="stable")
        # A block in random order may be its own arc again, to the digits that sums are exact to.
        above += int((_gains(counts[order], exposure[order])[0] >= gain[0] * (1 - 1e-12)).sum())
        drawn += draws
        if (1 + above) / (1 + DRAWS) > LEVEL:
            break
    return (1 + above) / (1 + drawn), int(begin[0]), int(end[0])


def _gains(counts: Floats, exposure: Floats) -> tuple[Floats, Whole, Whole]:
    """Return for each row the log-likelihood that its best arc gains over one rate, its begin and its end."""
    rows, number = counts.shape
    total, exposed = _running(counts), _running(exposure)
    whole, over = total[:, -1:], exposed[:, -1:]
    best = np.full(rows, -np.inf)
    begins, ends = np.zeros(rows, np.int64), np.full(rows, number)
    for begin in (0, *range(BLOCK, number - BLOCK + 1)):
        # What is left before and behind an arc is nothing, or a piece itself.
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
