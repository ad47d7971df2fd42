"""Fit arrivals: a rate with a weekly profile, which may change over the log, batches within one second, and bursts.

Jobs submitted in the same second form a batch (in the same step, if the log's clock is coarser). The arrivals are these
batches. A process (`tracekit.fit.process`) or tenants' sessions (`tracekit.fit.sessions`) describe how batches vary
around the rate, whichever better reproduces the last part of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.fit.arrival_draws import operational_times, session_gaps
from tracekit.fit.job_draws import pick
from tracekit.fit.process import PROCESS_WORDS, Clock, fit_process, parameters_of
from tracekit.fit.rate import fit_rate, hours_between, observed_week, rate_entry
from tracekit.fit.sample import resolution_of
from tracekit.fit.sessions import find_sessions, fit_together, gaps_entry, sizes_entry
from tracekit.fit.synthetic import LONGEST_DAYS

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from tracekit.array_types import Floats, Ints
    from tracekit.fit.sessions import Sessions


# Choose the model for how batches vary around their rate: a process or tenants' sessions. Both are fitted to the first
# half of the batches and drawn `DRAWS` times for the second half. Each draw gives four figures: the squared variation
# of gaps in operational time, the dispersion of hourly counts around the rate, the correlation of successive hourly
# counts, and how often the next batch belongs to the same tenant. The distance is the mean absolute difference from the
# second half of the log, with logarithms for the first two figures. The model with the smaller mean distance is chosen.

DRAWS = 20
"""Number of draws per process."""
_LEAST = 200
"""Minimum number of batches in each half."""


class Figures(NamedTuple):
    """Figures that describe how batches fluctuate around their rate."""

    variation_of_gaps: float
    dispersion_of_hourly_counts: float
    correlation_of_hourly_counts: float
    next_of_same_tenant: float

    def distance(self, other: Figures) -> float:
        """Return the mean absolute difference, using logarithms for variation and dispersion."""
        logs = np.abs(np.log(np.maximum(self[:2], 1e-9)) - np.log(np.maximum(other[:2], 1e-9)))
        return float((logs.sum() + np.abs(np.subtract(self[2:], other[2:])).sum()) / 4)


def figures(times: Floats, tenant: Ints, clock: Clock) -> Figures:
    """Return the figures of distinct, increasing arrival times and their tenants within a clock's window."""
    gaps = clock.gaps(times)
    variation = float(gaps.var() / max(gaps.mean() ** 2, 1e-12)) if gaps.size > 1 else 0.0
    counts = np.bincount(np.searchsorted(clock.edges_s[1:-1], times, side="right"), minlength=clock.hits.size)
    due = np.maximum(clock.hits * (counts.sum() / clock.hits.sum()), 1e-9)
    # An hour with a rate near 0 would outweigh all others.
    fair = due >= 0.01 * due.mean()
    away = np.where(fair, (counts - due) / np.sqrt(due), 0.0)
    square = float(away @ away)
    together = float(away[1:] @ away[:-1]) / max(square, 1e-9)
    same = float((tenant[1:] == tenant[:-1]).mean()) if tenant.size > 1 else 0.0
    return Figures(variation, square / max(int(fair.sum()), 1), together, same)


def compared(
    times: Floats,
    clock: Clock,
    process: str,
    sessions: Sessions,
    starts: tuple[Floats, Clock, str],
) -> dict[str, Any] | None:
    """Return the comparison for workload.json, or None if either half has too few batches.

    Parameters
    ----------
    times, clock : array, Clock
        Batches and their rate.
    process : str
        The best process other than sessions.
    sessions : Sessions
    starts : tuple
        Distinct start seconds of sessions, the rate of these starts, and the starts' process.

    The same batches give the same draws, so the choice does not depend on a seed.
    """
    if times.size < 2 * _LEAST:
        return None
    rng = np.random.default_rng(times.size)
    middle = float(times[times.size // 2])
    held = clock.between(middle, float(clock.edges_s[-1]))
    shares = np.bincount(np.unique(sessions.tenant, return_inverse=True)[1].ravel()) / sessions.tenant.size
    late = sessions.second >= middle
    seen = figures(*_ticks(sessions.second[late], sessions.tenant[late], held), held)
    draws: dict[str, Callable[[], tuple[Floats, Ints]] | None] = {
        process: _of_process(process, times[times < middle], clock, held, shares, rng),
        "sessions": _of_sessions(sessions, starts, middle, shares, rng),
    }
    rows = []
    for name, draw in draws.items():
        if draw is None:
            continue
        drawn = [figures(*one, held) for one in (draw() for _ in range(DRAWS)) if one[0].size > 2]
        if not drawn:
            continue
        rows.append(
            {
                "process": name,
                **Figures(*(float(x) for x in np.median(np.array(drawn), axis=0)))._asdict(),
                "distance": float(np.mean([seen.distance(one) for one in drawn])),
            }
        )
    chosen = min(rows, key=lambda r: r["distance"])["process"] if rows else process
    return {
        "held_out_batches": int((times >= middle).sum()),
        "draws": DRAWS,
        "observed": seen._asdict(),
        "processes": rows,
        "chosen": chosen,
    }


def _of_process(
    process: str, before: Floats, clock: Clock, held: Clock, shares: Floats, rng: np.random.Generator
) -> Callable[[], tuple[Floats, Ints]] | None:
    parameters = parameters_of(process, before, clock)
    if parameters is None:
        return None

    def draw() -> tuple[Floats, Ints]:
        when = _times(process, parameters, held, rng)
        return _ticks(when, pick(shares, rng.random(when.size)), held)

    return draw


def _of_sessions(
    sessions: Sessions, starts: tuple[Floats, Clock, str], middle: float, shares: Floats, rng: np.random.Generator
) -> Callable[[], tuple[Floats, Ints]] | None:
    at, clock, process = starts
    begins = sessions.second[sessions.first]
    early = begins < middle
    if early.sum() < 2 or (at < middle).sum() < 20:
        return None
    parameters = parameters_of(process, at[at < middle], clock)
    if parameters is None:
        return None
    size = sizes_entry(sessions.sizes[early])
    gaps = gaps_entry(sessions, early[sessions.number])
    # Several sessions may start in one step.
    together = float(begins.size) / at.size
    sizes, shares_of_sizes = np.asarray(size["sizes"]), np.asarray(size["shares"])
    held = clock.between(middle, float(clock.edges_s[-1]))

    def draw() -> tuple[Floats, Ints]:
        when = _times(process, parameters, held, rng)
        when = np.sort(np.repeat(when, 1 + rng.poisson(max(together - 1, 0.0), when.size)))
        number = sizes[pick(shares_of_sizes, rng.random(when.size))]
        owner = pick(shares, rng.random(when.size))
        if not when.size:
            return when, owner
        of = np.repeat(np.arange(when.size), number)
        passed = session_gaps(gaps, of, rng).cumsum()
        first = np.flatnonzero(np.diff(of, prepend=-1))
        return _ticks(when[of] + passed - passed[first][of], owner[of], held)

    return draw


def _times(process: str, parameters: dict[str, float], clock: Clock, rng: np.random.Generator) -> Floats:
    """Draw arrivals from a process over a clock's window [s]."""
    total = np.concatenate([[0.0], clock.hits.cumsum()])
    found = operational_times(process, parameters, rng, int(total[-1] * 1.02) + 50, float(total[-1]))
    return np.interp(found, total, clock.edges_s)


def _ticks(seconds: Floats, tenant: Ints, clock: Clock) -> tuple[Floats, Ints]:
    """Return the clock steps within the window that have an arrival, and the tenant of the first arrival in each."""
    inside = np.flatnonzero((seconds >= clock.edges_s[0]) & (seconds < clock.edges_s[-1]))
    inside = inside[np.argsort(seconds[inside], kind="stable")]
    times, first = np.unique(np.floor(seconds[inside] / clock.step_s) * clock.step_s, return_index=True)
    return times, tenant[inside[first]]


HOURS_UNKNOWN = (
    "the log does not record the hour of the day, so the arrival rate uses the hours of the Trace's own clock,"
    " whose hour 0 may not be midnight"
)
"""Note for models of logs that do not record the hour of the day."""

_BATCH_SIZES = 500


def fit_arrivals(jobs: pl.DataFrame, timezone: str, rng: np.random.Generator) -> dict[str, Any]:
    """Return the arrivals part of workload.json.

    `jobs` are in submission order; hours of the week are in `timezone`.
    """
    timed = jobs.filter(jobs["submit_us"].is_not_null())
    if timed.height < 2 or timed["submit_us"][0] == timed["submit_us"][-1]:
        return {"jobs": timed.height, "process": None, "reason": "jobs with at least two submission times are needed"}
    seconds = timed["submit_us"].to_numpy() / 1e6
    days = (seconds[-1] - seconds[0]) / 86400
    if days > LONGEST_DAYS:
        reason = f"the submissions span {days:,.0f} days, but at most {LONGEST_DAYS:,.0f} can be fitted"
        return {"jobs": timed.height, "process": None, "reason": reason}
    step = max(1.0, resolution_of(seconds))
    ticks = np.floor(seconds / step) * step
    times, counts = np.unique(ticks, return_counts=True)
    hours = hours_between(int(times[0]), int(times[-1] + step), timezone)
    found_rate = fit_rate(times, hours)
    rate = found_rate.rate
    clock = Clock.make(times, step, rate, hours)
    found: dict[str, Any] = {
        "jobs": timed.height,
        "batches": int(times.size),
        "step_s": step,
        "start": int(times[0]),
        "days": float((times[-1] + step - times[0]) / 86400),
        "timezone": timezone,
        "rate": rate_entry(found_rate, hours, times.size),
        "observed_per_hour": observed_week(times, hours),
        "batch": _batches(timed, ticks, counts),
        **fit_process(times, clock, rate, rng),
    }
    return found | _sessions(timed, ticks, found, clock, timezone, rng)


def _sessions(
    timed: pl.DataFrame,
    ticks: Floats,
    arrivals: dict[str, Any],
    clock: Clock,
    timezone: str,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return the sessions of a log, and replace the process with sessions if they fit better."""
    times = np.unique(ticks)
    step = arrivals["step_s"]
    if arrivals["tests"] is None:
        return {"sessions": None, "sessions_reason": "too few arrivals or too coarse a clock to separate sessions"}
    sessions = find_sessions(timed, ticks, step, clock)
    if isinstance(sessions, str):
        return {"sessions": None, "sessions_reason": sessions}
    begins, several = np.unique(sessions.second[sessions.first], return_counts=True)
    hours = hours_between(int(times[0]), int(times[-1] + step), timezone)
    found = fit_rate(begins, hours)
    # The window covers all batches. Its first and last steps contain jobs, but not always session starts.
    own = Clock.of_window(float(times[0]), float(times[-1]) + step, step, found.rate, hours)
    starts = fit_process(begins, own, found.rate, rng)
    sizes, times_of = np.unique(several, return_counts=True)
    entry = {
        "by": sessions.by,
        "threshold_s": sessions.threshold.seconds,
        "gap_parts": sessions.threshold.parts,
        "jobs": int(ticks.size),
        "sessions": int(sessions.sizes.size),
        "evidence": sessions.evidence,
        "starts": {
            "rate": {**rate_entry(found, hours, begins.size), "unit": "steps with a start an hour"},
            "batch": {
                "mean": float(several.mean()),
                "sizes": sizes.tolist(),
                "shares": (times_of / times_of.sum()).tolist(),
            },
            **starts,
        },
        "size": sizes_entry(sessions.sizes),
        "gaps": gaps_entry(sessions),
        **fit_together(sessions, timed),
    }
    choice = compared(times, clock, arrivals["process"], sessions, (begins, own, starts["process"]))
    if choice is None:
        return {"sessions": entry}
    why = "; ".join(f"{PROCESS_WORDS[r['process']]} {r['distance']:.3g}" for r in choice["processes"])
    told = f"{arrivals['why']}; on the second half of the batches, distance from the log: {why}"
    return {"sessions": entry, "process": choice["chosen"], "why": told, "held_out": choice}


def _batches(timed: pl.DataFrame, ticks: Floats, counts: Ints) -> dict[str, Any]:
    sizes, times = np.unique(counts, return_counts=True)
    kept = min(sizes.size, _BATCH_SIZES)
    shares = times[:kept] / times[:kept].sum()
    users, requests = timed["user"].to_physical().to_numpy(), timed["gpu_count"].to_numpy()
    together = ticks[1:] == ticks[:-1]
    same_user = together & (users[1:] == users[:-1])
    same_size = same_user & (requests[1:] == requests[:-1])
    return {
        "mean": float(counts.mean()),
        "largest": int(counts.max()),
        "sizes": sizes[:kept].tolist(),
        "shares": shares.tolist(),
        "same_user_share": _share(int(same_user.sum()), int(together.sum())),
        "same_request_share": _share(int(same_size.sum()), int(same_user.sum())),
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
