"""Draw arrival times from a fitted process, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from tracekit.errors import UsageError
from tracekit.fit.job_draws import pick
from tracekit.fit.rate import HOUR_S, with_hours
from tracekit.fit.synthetic import LONGEST_DAYS, MOST_JOBS

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints


_LEAST_ABOVE = 0.02
"""Rejection sampling is used if at least this share of the gaps is above `least`."""


def level_at(rate: dict[str, Any], length: float, days: Floats) -> Floats:
    """Return the rate in an hour of mean profile, at given days since the beginning.

    After the end of the log the rate stays at its last value. `length` is the length of the log [days]. Files of
    earlier versions have no pieces.
    """
    pieces = rate.get("pieces") or []
    if pieces:
        ends = np.array([p["to_day"] for p in pieces[:-1]])
        return np.array([p["per_hour"] for p in pieces], float)[np.searchsorted(ends, days, side="right")]
    trend, per_hour = float(rate["trend_per_day"]), float(rate["per_hour"])
    found: Floats = per_hour * np.exp(np.minimum(trend * np.minimum(days, length), 500.0))
    return found


def draw_batches(
    arrivals: dict[str, Any], rng: np.random.Generator, *, jobs: int | None, days: float | None, load: float
) -> tuple[Ints, Ints]:
    """Return the submission second and the batch number of each job.

    Parameters
    ----------
    arrivals : dict
        The part of workload.json.
    jobs, days : optional
        Number of jobs or of days; the other is None.
    load : float
        Factor on the rate. Bursts keep their number of arrivals and become shorter by that factor.

    Raises
    ------
    UsageError
        The span would exceed 100 years or contain more than `MOST_JOBS` jobs.
    """
    rate, mean = arrivals["rate"], arrivals["batch"]["mean"]
    turns = [0.0, arrivals["days"], *(p["from_day"] for p in rate.get("pieces") or [])]
    fastest = load * float(level_at(rate, arrivals["days"], np.array(turns)).max())
    if jobs is not None and jobs / mean / fastest / 24 > LONGEST_DAYS:
        raise _too_long()
    hours, operational = _clock(arrivals, days, load)
    limit = float(operational[-1]) if days is not None else np.inf
    if days is not None and limit * mean > MOST_JOBS:
        raise UsageError(f"would give more than {MOST_JOBS:,} jobs", where="--days", hint="ask for fewer days")
    wanted = int((jobs or 0) / mean) + 1 if jobs is not None else int(limit) + 1
    times = _operational_times(arrivals, rng, int(wanted * 1.02) + 50, limit)
    sizes = _sizes(arrivals["batch"], times.size, rng)
    while jobs is not None and sizes.sum() < jobs:
        more = _operational_times(arrivals, rng, wanted // 4 + 50, np.inf) + times[-1]
        times = np.concatenate([times, more])
        sizes = np.concatenate([sizes, _sizes(arrivals["batch"], more.size, rng)])
    if jobs is not None:
        needed = int(np.searchsorted(sizes.cumsum(), jobs)) + 1
        times, sizes = times[:needed], sizes[:needed]
        hours, operational = _clock(arrivals, None, load, until=float(times[-1]))
    step = arrivals["step_s"]
    real = np.interp(times, operational, arrivals["start"] // HOUR_S * HOUR_S + HOUR_S * hours)
    seconds = (np.floor(real / step) * step).astype(np.int64)
    batch = np.repeat(np.arange(seconds.size), sizes)
    return np.repeat(seconds, sizes)[:jobs], batch[:jobs]


def _too_long() -> UsageError:
    return UsageError(f"would span more than {LONGEST_DAYS:,.0f} days", hint="ask for fewer jobs or days")


def _clock(
    arrivals: dict[str, Any], days: float | None, load: float, *, until: float | None = None
) -> tuple[Floats, Floats]:
    """Return hours since the beginning, and the expected number of arrivals up to each."""
    rate = arrivals["rate"]
    first_hour = arrivals["start"] // HOUR_S * HOUR_S
    offset = (arrivals["start"] - first_hour) / HOUR_S
    if until is None and days is None:
        return np.zeros(1), np.zeros(1)  # the number of jobs determines the span
    number = 24 * 7 if days is None else int(np.ceil(days * 24 + offset))
    while True:
        if number > LONGEST_DAYS * 24:
            raise _too_long()
        whole = with_hours(int(first_hour), number, arrivals["timezone"])
        profile = np.asarray(rate["profile"], float)
        # After the end of the log the trend is unknown, so the rate stays constant.
        each = load * level_at(rate, arrivals["days"], whole.days) * profile[whole.of_week % profile.size]
        each[0] *= 1 - offset
        if days is not None:
            each[-1] *= 1 - (number - offset - days * 24)
        total = np.concatenate([[0.0], each.cumsum()])
        if until is None or total[-1] > until:
            return np.concatenate([[offset], np.arange(1, number + 1)]), total
        number *= 2


def _operational_times(arrivals: dict[str, Any], rng: np.random.Generator, number: int, limit: float) -> Floats:
    """Return `number` arrivals of the fitted process at mean rate 1, or all arrivals below a finite limit."""
    process = arrivals["process"]
    parameters: dict[str, float] = next(
        (c["parameters"] for c in arrivals["candidates"] if c["process"] == process), {}
    )
    return operational_times(process, parameters, rng, number, limit)


def operational_times(
    process: str, parameters: dict[str, float], rng: np.random.Generator, number: int, limit: float
) -> Floats:
    """Return `number` arrivals of a process at mean rate 1, or all arrivals below a finite limit."""
    draw = {"poisson": _poisson, "gamma_renewal": _gamma, "mmpp": _modulated}[process]
    times = draw(rng, number, parameters)
    while np.isfinite(limit) and times[-1] < limit:
        times = np.concatenate([times, times[-1] + draw(rng, number // 4 + 50, parameters)])
    return times[times < limit]


def _poisson(rng: np.random.Generator, number: int, _: dict[str, float]) -> Floats:
    found: Floats = rng.exponential(size=number).cumsum()
    return found


def _gamma(rng: np.random.Generator, number: int, p: dict[str, float]) -> Floats:
    a, scale, least = p["a"], p["scale"], p["least"]
    above = float(special.gammaincc(a, least / scale))
    mean = a * scale * float(special.gammaincc(a + 1, least / scale)) / above
    gaps: Floats = np.empty(0)
    if above < _LEAST_ABOVE:
        # Few gaps are above `least`, so invert their upper tail instead of rejecting.
        gaps = np.asarray(special.gammainccinv(a, above * rng.random(number)) * scale, float)
    else:
        while gaps.size < number:
            drawn = rng.gamma(a, scale, size=int((number - gaps.size) / above * 1.05) + 50)
            gaps = np.concatenate([gaps, drawn[drawn > least]])
        gaps = gaps[:number]
    found: Floats = (gaps / mean).cumsum()
    return found


def _modulated(rng: np.random.Generator, number: int, p: dict[str, float]) -> Floats:
    """Return arrivals of a process whose first state is drawn from its stationary distribution."""
    length = 1 / p["to_busy"], 1 / p["to_quiet"]
    rates = p["quiet_rate"], p["busy_rate"]
    mean = (length[0] * rates[0] + length[1] * rates[1]) / (length[0] + length[1])
    first = int(rng.random() < length[1] / (length[0] + length[1]))
    work = rng.exponential(size=number).cumsum()
    states = 2 + 2 * int(number / (length[0] * rates[0] + length[1] * rates[1]))
    ends, done = np.zeros(1), np.zeros(1)
    while done[-1] < work[-1]:
        stay = rng.exponential(size=states)
        which = (np.arange(states) + first) % 2
        spent = stay * np.where(which == 1, length[1], length[0])
        ends = np.concatenate([ends, ends[-1] + spent.cumsum()])
        done = np.concatenate([done, done[-1] + (spent * np.where(which == 1, rates[1], rates[0])).cumsum()])
    found: Floats = np.interp(work, done, ends) * mean
    return found


def _sizes(batch: dict[str, Any], number: int, rng: np.random.Generator) -> Ints:
    return np.asarray(batch["sizes"], np.int64)[pick(np.asarray(batch["shares"], float), rng.random(number))]
