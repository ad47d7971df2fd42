"""Fit the process of arrivals around a known rate: Poisson, gamma renewal, or modulated.

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
from tracekit.fit.independence import IndependenceResult, counts_test, gaps_test
from tracekit.fit.modulation import fit_gamma, fit_modulated
from tracekit.text import duration, percent

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats
    from tracekit.fit.independence import Clock
    from tracekit.fit.rate import Rate

__all__ = ["PROCESS_WORDS", "fit_process", "parameters_of"]

PROCESS_WORDS = {"poisson": "Poisson", "gamma_renewal": "gamma renewal", "mmpp": "MMPP", "sessions": "sessions"}
"""Names of the processes in text."""

LEVEL = 0.01
"""p-value below which Poisson is rejected."""
GAPS = 20_000
"""Most successive gaps that the processes are fitted to."""
_LEAST = 20
"""Arrivals that a process needs."""
_LEAST_ROOM = 0.05
"""Least share of steps without a batch, in the hours with batches, that the tests need."""


def fit_process(times: Floats, clock: Clock, rate: Rate, rng: np.random.Generator) -> dict[str, Any]:
    """Return process, why, tests and candidates of workload.json.

    Parameters
    ----------
    times : array (n,)
        Rising beginnings of the steps in which something arrived [s since 1970].
    clock : Clock
        The fitted rate, by step.
    rate : Rate
        The same rate.
    rng : Generator
        For the tests.
    """
    if times.size < _LEAST:
        why = f"{times.size} arrivals cannot distinguish the processes, {_LEAST} are needed"
        return {"process": "poisson", "why": why, "tests": None, "candidates": []}
    if clock.room < _LEAST_ROOM:
        why = (
            f"the log's clock goes in steps of {duration(clock.step_s)}, and where batches come only"
            f" {percent(clock.room)} of them are without one: that does not distinguish bursts from independent"
            " arrivals"
        )
        return {"process": "poisson", "why": why, "tests": None, "candidates": []}
    middle = _middle(times)
    gaps = clock.gaps(middle)
    least = _least_gap(clock, gaps)
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


def parameters_of(process: str, times: Floats, clock: Clock) -> dict[str, float] | None:
    """Return the parameters of one process, fitted to a part of the arrivals; None where no fit is found."""
    if process == "poisson":
        return {}
    gaps = clock.gaps(_middle(times))
    gaps = np.maximum(gaps, 1e-12)
    least = _least_gap(clock, gaps)
    gaps = gaps / gaps.mean()
    if process == "gamma_renewal":
        a, scale, _ = fit_gamma(gaps, least)
        return {"a": a, "scale": scale, "least": least}
    modulated = fit_modulated(gaps)
    return None if modulated is None else asdict(modulated[0])


def _middle(times: Floats) -> Floats:
    """Return the arrivals in the middle, at most so many that gaps between them are `GAPS`."""
    first = max(0, (times.size - 1 - GAPS) // 2)
    return times[first : first + GAPS + 1]


def _least_gap(clock: Clock, gaps: Floats) -> float:
    """Return half a step of the clock in operational time, below which no gap is."""
    return min(float(clock.hits.sum() / clock.ticks.sum()), float(gaps.min())) / 2
