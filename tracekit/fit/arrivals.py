"""Fit arrivals: a rate that follows the week, changes through the log, batches of one second, and bursts beyond these.

Jobs of one second (or of one step, where the times of the log are coarser) are a batch, and batches are what arrives.
With the fitted rate the gaps between batches are converted to operational time, in which a Poisson process has
exponential gaps of mean 1. Poisson is rejected when hourly counts vary more, or gaps more or less, than those of 99 %
of simulated Poisson processes observed through the same clock; then a gamma renewal process and a two-state
Markov-modulated Poisson process are fitted to the same gaps, and the one with the least BIC is chosen.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.fit.gap_errors import gamma_errors, modulated_errors
from tracekit.fit.independence import Clock, IndependenceResult, counts_test, gaps_test
from tracekit.fit.modulation import fit_gamma, fit_modulated
from tracekit.fit.pieces import fit_rate, rate_entry
from tracekit.fit.rate import Hours, Rate, hours_between, observed_week
from tracekit.fit.sample import resolution_of
from tracekit.text import duration, percent

if TYPE_CHECKING:
    import polars as pl

    from tracekit.fit.arrays import Floats, Whole


__all__ = ["HOURS_UNKNOWN", "PROCESS_WORDS", "fit_arrivals"]

HOURS_UNKNOWN = (
    "the log does not state the hour of the day: the hours of the arrival rate are those of the Trace's own clock,"
    " whose hour 0 need not be midnight"
)
"""Note of a model whose log does not state the hour of the day."""

PROCESS_WORDS = {"poisson": "Poisson", "gamma_renewal": "gamma renewal", "mmpp": "MMPP"}
"""Names of the processes in text."""

LEVEL = 0.01
"""p-value below which Poisson is rejected."""
GAPS = 20_000
"""Most successive gaps that the processes are fitted to."""
_LEAST = 20
"""Arrivals that a process needs."""
_LEAST_ROOM = 0.05
"""Least share of steps without a batch, in the hours with batches, that the tests need."""
_BATCH_SIZES = 500


def fit_arrivals(jobs: pl.DataFrame, timezone: str, rng: np.random.Generator) -> dict[str, Any]:
    """Return what workload.json says about arrivals.

    `jobs` are in order of submission; hours of the week are read in `timezone`.
    """
    timed = jobs.filter(jobs["submit_us"].is_not_null())
    if timed.height < 2 or timed["submit_us"][0] == timed["submit_us"][-1]:
        return {"jobs": timed.height, "process": None, "reason": "jobs of at least two times are needed"}
    seconds = timed["submit_us"].to_numpy() / 1e6
    step = max(1.0, resolution_of(seconds))
    ticks = np.floor(seconds / step) * step
    times, counts = np.unique(ticks, return_counts=True)
    hours = hours_between(int(times[0]), int(times[-1] + step), timezone)
    found_rate = fit_rate(times, hours)
    rate = found_rate.rate
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
        **_process(times, step, rate, hours, rng),
    }
    return found


def _process(times: Floats, step: float, rate: Rate, hours: Hours, rng: np.random.Generator) -> dict[str, Any]:
    if times.size < _LEAST:
        why = f"{times.size} arrivals cannot distinguish the processes, {_LEAST} are needed"
        return {"process": "poisson", "why": why, "tests": None, "candidates": []}
    clock = Clock.make(times, step, rate, hours)
    if clock.room < _LEAST_ROOM:
        why = (
            f"the log's clock goes in steps of {duration(step)}, and where batches come only {percent(clock.room)} of"
            " them are without one: that does not distinguish bursts from independent arrivals"
        )
        return {"process": "poisson", "why": why, "tests": None, "candidates": []}
    first = max(0, (times.size - 1 - GAPS) // 2)
    middle = times[first : first + GAPS + 1]
    gaps = clock.gaps(middle)
    least = min(float(clock.hits.sum() / clock.ticks.sum()), float(gaps.min())) / 2
    counts = counts_test(rate.dispersion, clock, rate.profile.size, rate.fitted, rng)
    varied = gaps_test(middle, clock, rate.profile.size, rng)
    tests = {
        "dispersion_of_hourly_counts": counts.value,
        "dispersion_if_independent": counts.independent,
        "p_dispersion": counts.p,
        "squared_variation_of_gaps": varied.value,
        "variation_if_independent": varied.independent,
        "p_variation": varied.p,
        "level": LEVEL,
        "draws": min(test.draws for test in (counts, varied) if test.draws),
        "gaps": int(gaps.size),
    }
    evidence = (
        f"hourly counts vary {_times(counts)} those of independent arrivals (p = {counts.p:.3g}), gaps"
        f" {_times(varied)} theirs (p = {varied.p:.3g})"
    )
    if min(counts.p, varied.p) >= LEVEL:
        return {"process": "poisson", "why": f"Poisson is not rejected: {evidence}", "tests": tests, "candidates": []}
    candidates = _candidates(gaps / gaps.mean(), least)
    _, *others = candidates
    best = min(others, key=lambda c: float(c["bic"]))
    shown = ", ".join(f"{PROCESS_WORDS[c['process']]} {c['bic']:,.1f}" for c in candidates)
    why = (
        f"Poisson is rejected by these tests: {evidence}; of the other processes {PROCESS_WORDS[best['process']]} has"
        f" the least BIC ({shown})"
    )
    return {"process": best["process"], "why": why, "tests": tests, "candidates": candidates}


def _times(outcome: IndependenceResult) -> str:
    return f"{outcome.ratio:.3g} times as much as" if outcome.ratio is not None else "as"


def _candidates(gaps: Floats, least: float) -> list[dict[str, Any]]:
    """Return the processes fitted to gaps of mean 1, Poisson among them for comparison."""
    size = float(np.log(gaps.size))
    found: list[dict[str, Any]] = [_candidate("poisson", {}, {}, -float(gaps.sum()), size)]
    a, scale, likelihood = fit_gamma(gaps, least)
    errors = gamma_errors(gaps, a, scale, least)
    found.append(_candidate("gamma_renewal", {"a": a, "scale": scale, "least": least}, errors, likelihood, size))
    modulated = fit_modulated(gaps)
    if modulated is not None:
        process, likelihood = modulated
        found.append(_candidate("mmpp", asdict(process), modulated_errors(gaps, process), likelihood, size))
    return found


def _candidate(
    name: str, parameters: dict[str, float], errors: dict[str, float] | None, likelihood: float, size: float
) -> dict[str, Any]:
    free = {"poisson": 0, "gamma_renewal": 2, "mmpp": 3}[name]
    return {
        "process": name,
        "parameters": parameters,
        "standard_errors": errors,
        "log_likelihood": likelihood,
        "aic": 2 * free - 2 * likelihood,
        "bic": free * size - 2 * likelihood,
    }


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
