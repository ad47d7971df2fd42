"""When jobs come: a rate that follows the week, what is left beyond it, and jobs submitted in one second.

Jobs of one second (or of one step, where the log's times are coarser) are a batch, and batches are what arrives. With
the fitted rate the gaps between them are read in operational time, where a Poisson process has exponential gaps of
mean 1. Poisson is rejected when hourly counts, or the gaps themselves, vary more (gaps: or less) than those of drawn
Poisson processes in all but 1 % of the draws; then a gamma renewal process and a two-state Markov-modulated Poisson
process are fitted to the same gaps, and of these the least BIC wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.fit.modulation import fit_gamma, fit_modulated
from tracekit.fit.rate import HOUR_S, Hours, Rate, fit_rate, hours_between, observed_week
from tracekit.fit.sample import resolution_of

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["HOURS_UNKNOWN", "fit_arrivals"]

HOURS_UNKNOWN = (
    "the log does not tell the hour of the day: the hours of the arrival rate are those of the Trace's own clock, whose"
    " hour 0 need not be midnight"
)
"""Note of a model whose log does not tell the hour of the day."""

DRAWS = 999
"""Poisson processes drawn for a p-value; as few as 199 where there are more than 5,000 hours."""
_MOST_COUNTS = 5_000_000
LEVEL = 0.01
"""p-value below which Poisson is rejected."""
GAPS = 20_000
"""Most successive gaps that the processes are fitted to."""
_LEAST = 20
"""Arrivals that a process needs."""
_BATCH_SIZES = 500
_WORDS = {"poisson": "Poisson", "gamma_renewal": "gamma renewal", "mmpp": "MMPP"}


def fit_arrivals(jobs: pl.DataFrame, timezone: str, rng: np.random.Generator) -> dict[str, Any]:
    """Return what workload.json says about arrivals.

    Parameters
    ----------
    jobs : DataFrame
        submit_us, user and gpu_count, in order of submission.
    timezone : str
        Zone in which hours of the week are read.
    rng : Generator
        Draws the processes behind the p-values.
    """
    timed = jobs.filter(jobs["submit_us"].is_not_null())
    if timed.height < 2 or timed["submit_us"][0] == timed["submit_us"][-1]:
        return {"jobs": timed.height, "process": None, "reason": "jobs of at least two times are needed"}
    seconds = timed["submit_us"].to_numpy() / 1e6
    step = max(1.0, resolution_of(seconds))
    ticks = np.floor(seconds / step) * step
    times, counts = np.unique(ticks, return_counts=True)
    hours = hours_between(int(times[0]), int(times[-1] + step), timezone)
    rate, bic = fit_rate(times, hours)
    found: dict[str, Any] = {
        "jobs": timed.height,
        "batches": int(times.size),
        "step_s": step,
        "start": int(times[0]),
        "days": float((times[-1] + step - times[0]) / 86400),
        "timezone": timezone,
        "rate": {
            "kind": rate.kind,
            "unit": "batches an hour",
            "per_hour": rate.per_hour,
            "profile": rate.profile.tolist(),
            "trend_per_day": rate.trend_per_day,
            "trend_standard_error": rate.trend_error,
            "bic": bic,
        },
        "observed_per_hour": observed_week(times, hours),
        "batch": _batches(timed, ticks, counts),
        **_process(times, step, rate, hours, rng),
    }
    return found


def _process(times: Floats, step: float, rate: Rate, hours: Hours, rng: np.random.Generator) -> dict[str, Any]:
    if times.size < _LEAST:
        why = f"{times.size} arrivals cannot tell one process from another, {_LEAST} are needed"
        return {"process": "poisson", "why": why, "tests": None, "candidates": []}
    expected = rate.expected(hours)
    edges = hours.start_s + HOUR_S * np.arange(expected.size + 1)
    gaps = np.diff(np.interp(times, edges, np.concatenate([[0.0], expected.cumsum()])))
    gaps = gaps[max(0, (gaps.size - GAPS) // 2) :][:GAPS]
    tick = step * float(expected.sum() / hours.open_s.sum())
    least = min(tick / 2, float(gaps.min()) / 2)
    p_counts = _p_of_counts(rate, hours, expected, rng)
    spread = float(gaps.var() / gaps.mean() ** 2)
    p_gaps = _p_of_gaps(spread, gaps.size, tick, rng)
    tests = {
        "dispersion_of_hourly_counts": rate.dispersion,
        "p_dispersion": p_counts,
        "squared_variation_of_gaps": spread,
        "p_variation": p_gaps,
        "level": LEVEL,
        "draws": DRAWS,
        "gaps": int(gaps.size),
    }
    told = (
        f"hourly counts vary {rate.dispersion:.3g} times as much as those of independent arrivals (p = {p_counts:.3g}),"
        f" gaps {spread:.3g} times as much (p = {p_gaps:.3g})"
    )
    if min(p_counts, p_gaps) >= LEVEL:
        return {"process": "poisson", "why": f"Poisson is not rejected: {told}", "tests": tests, "candidates": []}
    candidates = _candidates(gaps / gaps.mean(), least)
    _, *others = candidates
    best = min(others, key=lambda c: float(c["bic"]))
    shown = ", ".join(f"{_WORDS[c['process']]} {c['bic']:,.1f}" for c in candidates)
    why = (
        f"Poisson is rejected by these tests: {told}; of the other processes {_WORDS[best['process']]} has the least"
        f" BIC ({shown})"
    )
    return {"process": best["process"], "why": why, "tests": tests, "candidates": candidates}


def _candidates(gaps: Floats, least: float) -> list[dict[str, Any]]:
    """Return the processes fitted to gaps of mean 1, Poisson among them for comparison."""
    size = float(np.log(gaps.size))
    found: list[dict[str, Any]] = [_candidate("poisson", {}, -float(gaps.sum()), size)]
    a, scale, likelihood = fit_gamma(gaps, least)
    found.append(_candidate("gamma_renewal", {"a": a, "scale": scale, "least": least}, likelihood, size))
    modulated = fit_modulated(gaps)
    if modulated is not None:
        process, likelihood = modulated
        named = {
            "quiet_rate": process.quiet_rate,
            "busy_rate": process.busy_rate,
            "to_busy": process.to_busy,
            "to_quiet": process.to_quiet,
        }
        found.append(_candidate("mmpp", named, likelihood, size))
    return found


def _candidate(name: str, parameters: dict[str, float], likelihood: float, size: float) -> dict[str, Any]:
    free = {"poisson": 0, "gamma_renewal": 2, "mmpp": 3}[name]
    return {
        "process": name,
        "parameters": parameters,
        "log_likelihood": likelihood,
        "aic": 2 * free - 2 * likelihood,
        "bic": free * size - 2 * likelihood,
    }


def _p_of_counts(rate: Rate, hours: Hours, expected: Floats, rng: np.random.Generator) -> float:
    """Return how often Poisson counts of this rate are as dispersed, each draw with a rate of its own."""
    cells = hours.of_week % rate.profile.size
    order = np.argsort(cells, kind="stable")
    starts = np.flatnonzero(np.diff(cells[order], prepend=-1))
    sizes = np.diff(np.append(starts, cells.size))
    expected = expected[order]
    per_cell = np.add.reduceat(expected, starts)
    free = max(1, cells.size - rate.profile.size - int(rate.trend_error is not None))
    worse = 0
    draws = int(np.clip(_MOST_COUNTS // cells.size, 199, DRAWS))
    for _ in range(draws):
        drawn = rng.poisson(expected)
        factor = (np.add.reduceat(drawn, starts) + 1) / (per_cell + 1)
        fitted = expected * np.repeat(factor, sizes)
        fitted *= max(drawn.sum(), 1) / fitted.sum()
        worse += float(((drawn - fitted) ** 2 / fitted).sum() / free) >= rate.dispersion
    return (1 + worse) / (1 + draws)


def _p_of_gaps(spread: float, size: int, tick: float, rng: np.random.Generator) -> float:
    """Return how often the gaps of a Poisson process, read in ticks, vary as much or as little (two-sided)."""
    size = min(size, 5_000)
    above = below = 0
    for _ in range(DRAWS):
        times = np.unique(np.floor(np.cumsum(rng.exponential(size=size + 1)) / tick))
        gaps = np.diff(times)
        found = gaps.var() / max(gaps.mean(), 1e-12) ** 2 if gaps.size > 1 else 0.0
        above += found >= spread
        below += found <= spread
    return float(min(1.0, 2 * (1 + min(above, below)) / (1 + DRAWS)))


def _batches(timed: pl.DataFrame, ticks: Floats, counts: NDArray[np.int64]) -> dict[str, Any]:
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
