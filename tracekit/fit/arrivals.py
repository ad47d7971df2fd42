"""Fit arrivals: a rate that follows the week, changes through the log, batches of one second, and bursts beyond these.

Jobs of one second (or of one step, where the times of the log are coarser) are a batch, and batches are what arrives.
How batches fall around the rate is told by a process (`tracekit.fit.process`), or by sessions of tenants
(`tracekit.fit.sessions`), whichever gives the last part of the log back better (`tracekit.fit.process_choice`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.fit.independence import Clock
from tracekit.fit.pieces import fit_rate, rate_entry
from tracekit.fit.process import PROCESS_WORDS, fit_process
from tracekit.fit.process_choice import compared
from tracekit.fit.rate import hours_between, observed_week
from tracekit.fit.sample import resolution_of
from tracekit.fit.session_fit import fit_together, gaps_entry, sizes_entry
from tracekit.fit.sessions import find_sessions
from tracekit.fit.synthetic import LONGEST_DAYS

if TYPE_CHECKING:
    import polars as pl

    from tracekit.fit.arrays import Floats, Whole


__all__ = ["HOURS_UNKNOWN", "PROCESS_WORDS", "fit_arrivals"]

HOURS_UNKNOWN = (
    "the log does not state the hour of the day: the hours of the arrival rate are those of the Trace's own clock,"
    " whose hour 0 need not be midnight"
)
"""Note of a model whose log does not state the hour of the day."""

_BATCH_SIZES = 500


def fit_arrivals(jobs: pl.DataFrame, timezone: str, rng: np.random.Generator) -> dict[str, Any]:
    """Return what workload.json says about arrivals.

    `jobs` are in order of submission; hours of the week are read in `timezone`.
    """
    timed = jobs.filter(jobs["submit_us"].is_not_null())
    if timed.height < 2 or timed["submit_us"][0] == timed["submit_us"][-1]:
        return {"jobs": timed.height, "process": None, "reason": "jobs of at least two times are needed"}
    seconds = timed["submit_us"].to_numpy() / 1e6
    days = (seconds[-1] - seconds[0]) / 86400
    if days > LONGEST_DAYS:
        reason = f"the submissions span {days:,.0f} days, and at most {LONGEST_DAYS:,.0f} can be fitted"
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
    """Return the sessions of a log, and the process again where sessions are the better one."""
    times = np.unique(ticks)
    step = arrivals["step_s"]
    if arrivals["tests"] is None:
        return {"sessions": None, "sessions_reason": "too few arrivals, or a clock too coarse, to tell sessions apart"}
    sessions = find_sessions(timed, ticks, step, clock)
    if isinstance(sessions, str):
        return {"sessions": None, "sessions_reason": sessions}
    begins, several = np.unique(sessions.second[sessions.first], return_counts=True)
    hours = hours_between(int(times[0]), int(times[-1] + step), timezone)
    found = fit_rate(begins, hours)
    # The window is that of all batches: its first and last steps hold jobs, if not starts.
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


def _batches(timed: pl.DataFrame, ticks: Floats, counts: Whole) -> dict[str, Any]:
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
