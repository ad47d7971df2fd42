"""Fit the arrival process around a known rate: Poisson, gamma renewal, or Markov-modulated.

The fitted rate converts gaps between batches to operational time, where a Poisson process has exponential gaps with
mean 1. Poisson is rejected if hourly counts vary more than in 99 % of simulated Poisson processes observed through the
same clock, or if gaps vary significantly more or less. A gamma renewal process and a two-state Markov-modulated Poisson
process are then fitted to the same gaps, and the process with the lowest BIC is chosen.

For each step (tick) of its clock, a log shows only whether anything arrived, and the fitted rate counts ticks with an
arrival. If a share q of the ticks is hit, a Poisson process has -ln(1 - q) events per tick. Measured in ticks, gaps and
hourly counts vary less than in a Poisson process, and less still if more ticks are hit. So each statistic is compared
with simulated processes observed through the same clock.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from tracekit.fit.likelihood import minimize
from tracekit.fit.rate import HOUR_S
from tracekit.text import duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.array_types import Floats, Ints
    from tracekit.fit.rate import Hours, Rate


DRAWS = 999
"""Number of processes simulated for a p-value, which drops to 250 if there are many hours or gaps."""
_LEAST_DRAWS = 250
_MOST = 5_000_000
"""Approximate maximum number of random numbers for a p-value."""
_MOST_HIT = 0.999
"""Maximum share of an hour's ticks that count as hit. If all were hit, the rate would be infinite."""


class IndependenceResult(NamedTuple):
    """A statistic of the log, compared with the same statistic of independent arrivals."""

    value: float
    independent: float
    """Median over the simulated processes, or 0 if they cannot vary."""
    p: float
    draws: int

    @property
    def ratio(self) -> float | None:
        """The log's variation divided by that of independent arrivals."""
        return self.value / self.independent if self.independent > 0 else None


@dataclass(frozen=True)
class Clock:
    """The fitted rates of ticks with an arrival and of the underlying events, for each hour of a window."""

    step_s: float
    edges_s: Floats
    """Edges of the hours, in seconds since 1970 UTC; the first and last edges are the ends of the window."""
    cells: Ints
    """Index of each hour's factor in the profile."""
    hits: Floats
    """Expected number of ticks with an arrival in each hour."""
    ticks: Floats
    """Number of ticks in each hour."""

    @classmethod
    def make(cls, times: Floats, step: float, rate: Rate, hours: Hours) -> Clock:
        """Return the clock of a rate fitted to `times`, the increasing start times [s] of ticks `step` seconds long."""
        return cls.of_window(float(times[0]), float(times[-1] + step), step, rate, hours)

    @classmethod
    def of_window(cls, begin_s: float, end_s: float, step: float, rate: Rate, hours: Hours) -> Clock:
        """Return the clock of a rate over a window [s since 1970] that consists of `hours`."""
        edges = hours.start_s + HOUR_S * np.arange(hours.of_week.size + 1, dtype=float)
        edges[0], edges[-1] = begin_s, end_s
        return cls(step, edges, hours.of_week % rate.profile.size, rate.expected(hours), np.diff(edges) / step)

    @property
    def shares(self) -> Floats:
        """Share of each hour's ticks that are hit."""
        return np.clip(self.hits / self.ticks, 0.0, _MOST_HIT)

    @property
    def room(self) -> float:
        """Squared variation of a Poisson process's gaps: the share of ticks without a hit at the times of batches.

        If ticks are hit with probability q, a gap is k ticks long with probability q (1 - q)^(k - 1), so its squared
        variation is 1 - q.
        """
        return 1 - float((self.hits @ self.shares) / self.hits.sum())

    def gaps(self, times: Floats) -> Floats:
        """Return the expected number of hit ticks between successive times."""
        return np.diff(np.interp(times, self.edges_s, _cumulated(self.hits)))

    def between(self, begin_s: float, end_s: float) -> Clock:
        """Return the clock for a part of the window."""
        first = int(np.searchsorted(self.edges_s, begin_s, side="right")) - 1
        last = int(np.searchsorted(self.edges_s, end_s))
        edges = self.edges_s[first : last + 1].copy()
        edges[0], edges[-1] = begin_s, end_s
        ticks = np.diff(edges) / self.step_s
        part = slice(first, last)
        return Clock(self.step_s, edges, self.cells[part], self.hits[part] * ticks / self.ticks[part], ticks)


def counts_test(
    dispersion: float, clock: Clock, factors: int, fitted: int, rng: np.random.Generator
) -> IndependenceResult:
    """Test whether hourly counts are more dispersed than those of a Poisson process.

    The rate is fitted again to each draw. `dispersion` is Pearson's, `factors` is the number of factors in the profile,
    and `fitted` is the number of parameters fitted to the counts.
    """
    order = np.argsort(clock.cells, kind="stable")
    cells = clock.cells[order]
    ticks, shares = np.round(clock.ticks[order]).astype(np.int64), clock.shares[order]
    expected = clock.hits[order]
    per_cell = np.bincount(cells, expected, factors)
    free = cells.size - fitted
    if free <= 0:
        return IndependenceResult(dispersion, 0.0, 1.0, 0)
    values = np.empty(_draws(cells.size))
    for place in range(values.size):
        drawn = rng.binomial(ticks, shares)
        refitted = expected * ((np.bincount(cells, drawn, factors) + 1) / (per_cell + 1))[cells]
        refitted *= max(drawn.sum(), 1) / refitted.sum()
        values[place] = ((drawn - refitted) ** 2 / refitted).sum() / free
    above = int((values >= dispersion).sum())
    return IndependenceResult(dispersion, float(np.median(values)), (1 + above) / (1 + values.size), values.size)


def gaps_test(times: Floats, clock: Clock, factors: int, rng: np.random.Generator) -> IndependenceResult:
    """Test whether gaps vary more or less than those of a Poisson process observed in ticks (two-sided).

    `times` are the start times of successive ticks with an arrival [s]; `factors` is the number of factors in the
    profile.
    """
    part = clock.between(times[0], times[-1] + clock.step_s)
    outside = np.bincount(clock.cells, clock.hits, factors) - np.bincount(part.cells, part.hits, factors)
    outside = np.maximum(outside, 0.0)
    per_cell = np.bincount(part.cells, part.hits, factors) + outside
    events = _cumulated(-part.ticks * np.log1p(-part.shares))
    number = int(events[-1] + 6 * np.sqrt(events[-1])) + 20
    ratios = np.empty(_draws(max(number, part.hits.size)))
    for place in range(ratios.size):
        drawn = rng.exponential(size=number).cumsum()
        seconds = np.interp(drawn[: np.searchsorted(drawn, events[-1])], events, part.edges_s)
        ticks = np.floor(seconds / part.step_s)
        hit = ticks[np.flatnonzero(np.diff(ticks, prepend=-1.0))] * part.step_s
        # As for the log, each draw's rate is fitted to its own hits.
        hours = np.searchsorted(part.edges_s[1:-1], hit, side="right")
        counts = np.bincount(part.cells, np.bincount(hours, minlength=part.hits.size), factors) + rng.poisson(outside)
        fitted = replace(part, hits=part.hits * ((counts + 1) / (per_cell + 1))[part.cells])
        ratios[place] = _variation(fitted.gaps(hit)) / fitted.room
    value, room = _variation(clock.gaps(times)), part.room
    above, below = int((ratios >= value / room).sum()), int((ratios <= value / room).sum())
    p = min(1.0, 2 * (1 + min(above, below)) / (1 + ratios.size))
    return IndependenceResult(value, float(np.median(ratios)) * room, p, ratios.size)


def _variation(gaps: Floats) -> float:
    """Return the squared variation, the variance divided by the squared mean."""
    return float(gaps.var() / gaps.mean() ** 2) if gaps.size > 1 else 0.0


def _draws(size: int) -> int:
    return int(np.clip(_MOST // size, _LEAST_DRAWS, DRAWS))


def _cumulated(each: Floats) -> Floats:
    return np.concatenate([[0.0], each.cumsum()])


# Fit arrivals that are not Poisson even around a known rate: gamma renewal and two-state modulated Poisson.
# Both use operational time, in which the fitted rate is 1 everywhere, and a gap is the expected number of arrivals
# between two arrivals. A gamma renewal process draws gaps from gamma(a, scale); if a < 1, it is bursty. Arrivals in the
# same tick of the log's clock form one batch, so no gap is shorter than half a tick, and the gamma distribution
# describes the gaps above that. A two-state Markov-modulated Poisson process switches between a quiet and a busy rate.


@dataclass(frozen=True)
class Modulated:
    """A two-state Markov-modulated Poisson process with mean rate 1."""

    quiet_rate: float
    busy_rate: float
    to_busy: float
    """Number of switches from quiet to busy per unit of quiet operational time."""
    to_quiet: float

    @property
    def busy_share(self) -> float:
        """Share of operational time spent in the busy state."""
        return self.to_busy / (self.to_busy + self.to_quiet)


def gamma_log_likelihood(gaps: Floats, a: float, scale: float, least: float) -> float:
    """Return the log-likelihood of gaps under gamma(a, scale) truncated below `least`."""
    one = special.gammaln(a) + a * np.log(scale) + np.log(max(float(special.gammaincc(a, least / scale)), 1e-300))
    return float((a - 1) * np.log(gaps).sum() - gaps.sum() / scale - gaps.size * one)


def fit_gamma(gaps: Floats, least: float) -> tuple[float, float, float]:
    """Return the shape and scale of the most likely gamma renewal process, and its log-likelihood.

    Parameters
    ----------
    gaps : array
        Gaps in operational time, all above `least`.
    least : float
        Half a tick of the log's clock, in operational time.
    """

    def fall(theta: Floats) -> float:
        return -gamma_log_likelihood(gaps, float(np.exp(theta[0])), float(np.exp(theta[1])), least) / gaps.size

    begin = np.array([0.0, float(np.log(gaps.mean()))])
    bounds = [(-5.0, 5.0), (-6.0, 8.0)]
    depth, point = minimize(fall, begin, bounds)
    a, scale = np.exp(point)
    return float(a), float(scale), -depth * gaps.size


def modulated_log_likelihood(gaps: Floats, process: Modulated) -> float:
    """Return the exact log-likelihood of gaps between arrivals of a stationary process.

    A gap x multiplies the state vector by exp((Q - R) x) R, where Q contains the transition rates and R the arrival
    rates. The products are computed in pairs, so n gaps take log2(n) steps.
    """
    a, b, quiet, busy = process.to_busy, process.to_quiet, process.quiet_rate, process.busy_rate
    first, last = -(a + quiet), -(b + busy)
    middle, half = (first + last) / 2, (first - last) / 2
    root = np.sqrt(half * half + a * b)
    up, down = np.exp((middle + root) * gaps), np.exp((middle - root) * gaps)
    mean, slope = (up + down) / 2, (up - down) / (2 * root)
    steps = np.empty((gaps.size, 2, 2))
    steps[:, 0, 0] = (mean + slope * half) * quiet
    steps[:, 0, 1] = slope * a * busy
    steps[:, 1, 0] = slope * b * quiet
    steps[:, 1, 1] = (mean - slope * half) * busy
    total = 0.0
    while len(steps) > 1:
        odd = steps[-1:] if len(steps) % 2 else steps[:0]
        steps = np.concatenate([steps[0 : len(steps) - 1 : 2] @ steps[1::2], odd])
        size = steps.max(axis=(1, 2), keepdims=True)
        if not (size > 0).all():
            return -np.inf
        total += float(np.log(size).sum())
        steps = steps / size
    # The state at an arrival is weighted by the arrival rate in that state.
    states = np.array([b * quiet, a * busy])
    found = float((states / states.sum()) @ steps[0].sum(axis=1))
    return total + float(np.log(found)) if found > 0 else -np.inf


def fit_modulated(gaps: Floats) -> tuple[Modulated, float] | None:
    """Return the most likely two-state process with mean rate 1 and its log-likelihood, or None if none is found."""

    def fall(theta: Floats) -> float:
        found = modulated_log_likelihood(gaps, _modulated(theta))
        return -found if np.isfinite(found) else 1e12

    best = None
    bounds = [(-7.0, 7.0), (-4.0, 8.0), (-9.0, 5.0)]
    # The first descent may end where both states are equal, so short stays need another starting point.
    for start in ((-1.0, 1.5, -4.0), (-2.0, 2.5, -1.0), (0.0, 1.0, -6.5), (0.0, 1.0, -2.0)):
        found = minimize(fall, np.array(start), bounds, maxiter=40)
        if best is None or found[0] < best[0]:
            best = found
    if best is None or not np.isfinite(best[0]) or best[0] >= 1e12:
        return None
    return _modulated(best[1]), -best[0]


# Compute the standard errors of an arrival process's parameters from the observed information of its gaps.

_STEP = 1e-3
"""Step of the second differences, in logarithms and log-odds."""


def gamma_errors(gaps: Floats, a: float, scale: float, least: float) -> dict[str, float] | None:
    """Return the standard errors of a gamma renewal process, or None if the likelihood has no interior maximum."""

    def named(theta: Floats) -> dict[str, float]:
        return {"a": float(np.exp(theta[0])), "scale": float(np.exp(theta[1]))}

    def likelihood(theta: Floats) -> float:
        return gamma_log_likelihood(gaps, **named(theta), least=least)

    return _errors(likelihood, named, np.log([a, scale]))


def modulated_errors(gaps: Floats, process: Modulated) -> dict[str, float] | None:
    """Return the standard errors of a two-state process, which has three free parameters because its mean rate is 1."""

    def named(theta: Floats) -> dict[str, float]:
        return asdict(_modulated(theta))

    def likelihood(theta: Floats) -> float:
        return modulated_log_likelihood(gaps, _modulated(theta))

    ratio = process.busy_rate / process.quiet_rate
    if ratio <= 1:
        return None
    theta = [special.logit(process.busy_share), np.log(ratio - 1), np.log(process.to_busy + process.to_quiet)]
    return _errors(likelihood, named, np.array(theta))


def _modulated(theta: Floats) -> Modulated:
    share, ratio, speed = float(special.expit(theta[0])), 1 + float(np.exp(theta[1])), float(np.exp(theta[2]))
    quiet = 1 / (1 - share + share * ratio)
    return Modulated(quiet, quiet * ratio, speed * share, speed * (1 - share))


def _errors(
    likelihood: Callable[[Floats], float], named: Callable[[Floats], dict[str, float]], theta: Floats
) -> dict[str, float] | None:
    """Return the delta-method standard errors of named parameters, or None if the information is not positive."""
    moved = np.eye(theta.size) * _STEP
    information = np.empty((theta.size, theta.size))
    for i, one in enumerate(moved):
        for j, other in enumerate(moved[: i + 1]):
            corners = [theta + one + other, theta - one - other, theta + one - other, theta - one + other]
            up, down, right, left = (likelihood(corner) for corner in corners)
            information[i, j] = information[j, i] = (right + left - up - down) / (4 * _STEP**2)
    if not np.isfinite(information).all() or np.linalg.eigvalsh(information)[0] <= 0:
        return None
    covariance = np.linalg.inv(information)
    names = list(named(theta))
    turned = np.array([[named(theta + d)[name] - named(theta - d)[name] for d in moved] for name in names]) / (
        2 * _STEP
    )
    found = np.sqrt(np.einsum("ij,jk,ik->i", turned, covariance, turned))
    return dict(zip(names, map(float, found), strict=True))


PROCESS_WORDS = {"poisson": "Poisson", "gamma_renewal": "gamma renewal", "mmpp": "MMPP", "sessions": "sessions"}
"""Names of the processes, as used in sentences."""

LEVEL = 0.01
"""Level below which a p-value rejects Poisson."""
GAPS = 20_000
"""Maximum number of successive gaps that the processes are fitted to."""
_LEAST = 20
"""Minimum number of arrivals for fitting a process."""
_LEAST_ROOM = 0.05
"""Minimum share of steps without a batch, in hours with batches, at which the tests are run."""


def fit_process(times: Floats, clock: Clock, rate: Rate, rng: np.random.Generator) -> dict[str, Any]:
    """Return the keys process, why, tests and candidates of workload.json.

    Parameters
    ----------
    times : array (n,)
        Increasing start times of the steps with an arrival [s since 1970].
    clock : Clock
        The fitted rate per step.
    rate : Rate
        The same rate.
    rng : Generator
        Random numbers for the tests.
    """
    if times.size < _LEAST:
        why = f"{times.size} arrivals are too few to distinguish the processes; {_LEAST} are needed"
        return {"process": "poisson", "why": why, "tests": None, "candidates": []}
    if clock.room < _LEAST_ROOM:
        why = (
            f"the log's clock has steps of {duration(clock.step_s)}, and at the times of batches only"
            f" {percent(clock.room)} of them have no batch, too few to distinguish bursts from independent"
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
        f"Poisson is rejected by these tests: {evidence}; of the other processes, {PROCESS_WORDS[best['process']]} has"
        f" the lowest BIC ({shown})"
    )
    return {"process": best["process"], "why": why, "tests": tests, "candidates": candidates}


def _times(outcome: IndependenceResult) -> str:
    return f"{outcome.ratio:.3g} times as much as" if outcome.ratio is not None else "as"


def _candidates(gaps: Floats, least: float) -> list[dict[str, Any]]:
    """Return the processes fitted to gaps of mean 1, including Poisson for comparison."""
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
    """Return the parameters of one process fitted to a part of the arrivals, or None if no fit is found."""
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
    """Return the middle arrivals, with at most `GAPS` gaps between them."""
    first = max(0, (times.size - 1 - GAPS) // 2)
    return times[first : first + GAPS + 1]


def _least_gap(clock: Clock, gaps: Floats) -> float:
    """Return half a clock step in operational time, because no gap is shorter."""
    return min(float(clock.hits.sum() / clock.ticks.sum()), float(gaps.min())) / 2
