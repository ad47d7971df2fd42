"""Fit all families to one sample, choose the best family, and measure how well it fits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.fit.families import FAMILIES
from tracekit.fit.likelihood import FitFailure, Likelihood, climb, maximize
from tracekit.fit.sample import Sample
from tracekit.fit.splice import fit_splice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.array_types import Floats
    from tracekit.fit.families import Family
    from tracekit.fit.likelihood import Fitted
    from tracekit.fit.splice import Splice


# Goodness of fit: Kolmogorov-Smirnov, Anderson-Darling, and a parametric bootstrap. If the family is right, the
# residual u of each job is uniform on (0, 1). This residual is F(x) for an exact value, a random number in (F(a), F(b))
# for an interval, and one in (F(x), 1) for a right-censored value (randomized quantile residuals, Dunn and Smyth 1996).
# Both statistics compare the residuals with the uniform distribution. The parameters were fitted to the same data, so
# p-values cannot come from a table. The bootstrap draws samples from the fitted family, censors and rounds them like
# the data, refits them, and counts how often they fit worse.

GOODNESS_JOBS = 10_000
"""Maximum number of jobs that the statistics use; larger samples are subsampled at random."""


def residuals(family: Family, p: Floats, sample: Sample, rng: np.random.Generator) -> Floats:
    """Return one residual per job, in increasing order."""
    exact = np.repeat(family.cdf(sample.exact, p), sample.exact_n.astype(np.int64))
    beyond = np.repeat(family.cdf(sample.right, p), sample.right_n.astype(np.int64))
    times = sample.interval_n.astype(np.int64)
    low = np.repeat(family.cdf(sample.low, p), times)
    high = np.repeat(family.cdf(sample.high, p), times)
    beyond = beyond + (1 - beyond) * rng.random(beyond.size)
    inside = low + (high - low) * rng.random(low.size)
    return np.sort(np.concatenate([exact, beyond, inside]))


def kolmogorov(u: Floats) -> float:
    """Return the largest difference between u and the share of residuals up to u."""
    ranks = np.arange(u.size + 1) / u.size
    return float(max((ranks[1:] - u).max(), (u - ranks[:-1]).max()))


def anderson_darling(u: Floats) -> float:
    """Return the Anderson-Darling statistic of residuals in increasing order."""
    u = np.clip(u, 1e-12, 1 - 1e-12)
    odd = 2 * np.arange(1, u.size + 1) - 1
    return float(-u.size - (odd @ (np.log(u) + np.log1p(-u[::-1]))) / u.size)


@dataclass(frozen=True)
class Bootstrap:
    """Parametric bootstrap of both statistics on a part of the sample."""

    jobs: int
    """Number of jobs in this part."""
    replicates: int
    p_ks: float
    """Share of drawn samples, including the observed sample, that fit no better by Kolmogorov-Smirnov."""
    p_ad: float


def censoring_times(sample: Sample, size: int, rng: np.random.Generator) -> Floats:
    """Draw the observation time [s] of `size` jobs, or infinity if it never ends.

    They are drawn from the Kaplan-Meier estimate of the censoring, which treats an observed end as censored.
    """
    if not sample.right.size:
        return np.full(size, np.inf)
    values, ends, cut = sample.in_order()
    at_risk = (ends + cut)[::-1].cumsum()[::-1]
    left = np.cumprod(1 - cut / at_risk)
    place = np.searchsorted(-left, -rng.random(size), side="right")
    return np.append(values, np.inf)[place]


def bootstrap(fitted: Fitted, sample: Sample, rng: np.random.Generator, *, jobs: int, replicates: int) -> Bootstrap:
    """Return the p-values of the misfit, assuming that the family is right.

    At most `jobs` of the sample's jobs are used.

    The family is fitted to this subsample and to each drawn sample by Newton steps, starting from the parameters of the
    whole sample, until a step would gain less than 0.05 in log-likelihood.
    """
    family, theta = fitted.family, fitted.family.to_free(fitted.p)
    part = sample.draw(jobs, rng)
    size = part.n
    information = Likelihood(family, part).information(theta)

    def misfit(drawn: Sample) -> tuple[float, float]:
        refitted = climb(Likelihood(family, drawn), theta, information, steps=4, gain=0.05)
        u = residuals(family, family.from_free(refitted), drawn, rng)
        return kolmogorov(u), anderson_darling(u)

    ks, ad = misfit(part)
    worse_ks = worse_ad = 0
    for _ in range(replicates):
        durations = family.draw(fitted.p, size, rng)
        ends = censoring_times(part, size, rng)
        seen = durations <= ends
        step = sample.resolution_s
        rounded = np.round(durations[seen] / step) * step
        found_ks, found_ad = misfit(Sample.make(rounded, ends[~seen], resolution_s=step))
        worse_ks += found_ks >= ks
        worse_ad += found_ad >= ad
    return Bootstrap(size, replicates, (1 + worse_ks) / (1 + replicates), (1 + worse_ad) / (1 + replicates))


# Fit the tail of a distribution: a power law above some duration, by Clauset's method.
# Above xmin, the share that lasts longer than x is (x / xmin) ** -b, where b is the maximum-likelihood estimate (Hill).
# Right-censored jobs count up to the time until which they were observed. xmin is the candidate with the smallest
# Kolmogorov-Smirnov distance between the Kaplan-Meier estimate and the fitted tail. Clauset, Shalizi and Newman, SIAM
# Review 51 (2009).

_CANDIDATES = 100
_LEAST_ABOVE = 50
"""Minimum number of known ends for a tail."""


@dataclass(frozen=True)
class Tail:
    """A power law above xmin, scipy's pareto(b, scale=xmin)."""

    xmin: float
    """Duration at which the tail begins [s]."""
    b: float
    error: float
    """Standard error of b."""
    above: int
    """Number of jobs in the tail."""
    ks: float


def fit_tail(sample: Sample, *, candidates: int = _CANDIDATES) -> Tail | None:
    """Return the best power-law tail in the upper half of the sample, or None if that half has fewer than 50 ends."""
    values, ends, cut = sample.in_order()
    counts = ends + cut
    from_here = ends[::-1].cumsum()[::-1]
    jobs = counts[::-1].cumsum()[::-1]
    allowed = np.flatnonzero((from_here >= _LEAST_ABOVE) & (jobs <= 0.5 * counts.sum()) & (values > 0) & (ends > 0))
    if allowed.size == 0 or np.unique(values[allowed[0] :]).size < 10:
        return None
    if allowed.size > candidates:
        allowed = allowed[np.unique(np.linspace(0, allowed.size - 1, candidates).astype(np.int64))]
    after = np.cumprod(1 - ends / jobs)
    before = np.append(1.0, after[:-1])
    logs = np.log(np.maximum(values, 1e-300))
    weighted = (counts * logs)[::-1].cumsum()[::-1]
    best: Tail | None = None
    for i in allowed:
        spread = weighted[i] - jobs[i] * logs[i]
        if spread <= 0:
            continue
        b = from_here[i] / spread
        fitted = np.exp(-b * (logs[i:] - logs[i]))
        tail_before, tail_after = before[i:] / before[i], after[i:] / before[i]
        gap = np.maximum(np.abs(tail_before - fitted), np.abs(tail_after - fitted))
        ks = float(gap[ends[i:] > 0].max())
        if best is None or ks < best.ks:
            best = Tail(float(values[i]), float(b), float(b / np.sqrt(from_here[i])), int(jobs[i]), ks)
    return best


def tail_p_value(sample: Sample, rng: np.random.Generator, *, jobs: int, replicates: int) -> tuple[float, int] | None:
    """Return the share of drawn samples whose tail fits no better, and the number of jobs used.

    Durations below xmin are drawn from the subsample, and the tail from the power law. xmin is found again for each
    drawn sample.
    """
    part = sample.draw(jobs, rng)
    tail = fit_tail(part, candidates=30)
    if tail is None:
        return None
    body = np.repeat(part.middles, part.middles_n.astype(np.int64))
    body = body[body < tail.xmin]
    share = tail.above / part.n
    worse = 0
    for _ in range(replicates):
        inside = rng.random(part.n) < share
        drawn = np.empty(part.n)
        above = int(inside.sum())
        drawn[inside] = tail.xmin * np.exp(np.minimum(rng.exponential(size=above) / tail.b, 600))
        drawn[~inside] = rng.choice(body, part.n - above)
        ends = censoring_times(part, part.n, rng)
        seen = drawn <= ends
        found = fit_tail(Sample.make(drawn[seen], ends[~seen], resolution_s=part.resolution_s), candidates=30)
        worse += found is None or found.ks >= tail.ks
    return (1 + worse) / (1 + replicates), part.n


LEVELS = (
    *(0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7),
    *(0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1),
)
"""Shares at which workload.json lists a group's observed quantiles."""

_MISFIT = 0.03
"""Kolmogorov-Smirnov distance above which a family fits badly. Interpolated quantiles 0.05 apart fit better."""
_BY_CHANCE = 1.63
"""Times 1 / sqrt(n), the distance that 1 in 100 samples from the right distribution exceeds (Kolmogorov)."""


@dataclass(frozen=True)
class Effort:
    """Amount of work that a fit spends on goodness of fit."""

    replicates: int = 99
    """Number of samples that the bootstrap draws, or 0 to skip the bootstrap."""
    bootstrap_jobs: int = 500
    """Maximum number of jobs in the bootstrap of a family."""
    tail_jobs: int = 2_000
    """Maximum number of jobs in the bootstrap of a tail."""
    drawn_only: bool = False
    """Whether to fit only the run times needed to draw jobs: `until_end` by size class and status, and the groups that
    give their shape."""


def fit_families(sample: Sample, families: Iterable[Family]) -> tuple[list[Fitted], dict[str, str]]:
    """Return the families that could be fitted, and the reason for each family that could not."""
    fitted, failed = [], {}
    for family in families:
        try:
            fitted.append(maximize(family, sample))
        except FitFailure as why:
            failed[family.name] = str(why)
    return fitted, failed


def best(fitted: list[Fitted], criterion: str) -> Fitted:
    """Return the fit with the lowest AIC or BIC; among equals, the simpler fit, which comes first."""
    return min(fitted, key=lambda one: getattr(one, criterion))


def describe(
    sample: Sample,
    rng: np.random.Generator,
    effort: Effort,
    *,
    families: Mapping[str, Family] = FAMILIES,
    bound_s: float | None = None,
    p_tail: bool = False,
    p_value: bool = True,
) -> dict[str, Any]:
    """Return the entry in workload.json for the distribution of one sample.

    The family with the lowest BIC is chosen. Among 11 families, some nested, AIC would choose an unnecessary parameter
    in 1 of 6 cases at any sample size.

    Parameters
    ----------
    sample : Sample
    rng : Generator
    effort : Effort
    families : mapping
        The families to fit, by name.
    bound_s : float, optional
        Longest duration that is drawn [s]; if given, a tail is fitted.
    p_tail, p_value : bool
        Whether to run the bootstrap for the tail and for the chosen family.
    """
    fitted, failed = fit_families(sample, families.values())
    seen = {one.family.name: one for one in fitted}
    part = sample.draw(GOODNESS_JOBS, rng)
    described = [
        _fitted(seen[name], part, rng) if name in seen else {"family": name, "failed": failed[name]}
        for name in families
    ]
    found: dict[str, Any] = {
        "n": sample.n,
        "observed": sample.observed_n,
        "right_censored": sample.right_n_total,
        "in_intervals": int(sample.interval_n.sum()),
        "resolution_s": sample.resolution_s,
        "quantiles_s": observed_quantiles(sample),
        "unit": "s",
        "chosen": None,
        "best_by": None,
        "families": described,
        "goodness_jobs": part.n,
        "bootstrap": None,
        "tail": None,
        "drawn_from": None if fitted or not sample.observed_n else "quantiles",
    }
    if bound_s is not None:
        found["tail"] = _tail(sample, rng, effort if p_tail else replace(effort, replicates=0))
    if fitted:
        by_bic = best(fitted, "bic")
        found["chosen"] = by_bic.family.name
        found["drawn_from"] = "family"
        if bound_s is not None and "failed" not in found["tail"]:
            splice = fit_splice(by_bic, sample, bound_s)
            if splice is not None:
                found["tail"]["truncated"] = _truncated(splice)
                found["drawn_from"] = "family+tail" if splice.better else "family"
        if _poor(found):
            found["drawn_from"] = "quantiles"
        found["best_by"] = {"aic": best(fitted, "aic").family.name, "bic": by_bic.family.name}
        if p_value and effort.replicates:
            drawn = bootstrap(by_bic, sample, rng, jobs=effort.bootstrap_jobs, replicates=effort.replicates)
            found["bootstrap"] = asdict(drawn)
    else:
        found["reason"] = f"no family could be fitted: {next(iter(failed.values()))}"
    return found


def _poor(entry: dict[str, Any]) -> bool:
    """Return whether the chosen family fits worse than by chance and the quantiles include the longest job."""
    ks = next(f["ks"] for f in entry["families"] if f["family"] == entry["chosen"])
    return bool(ks > max(_MISFIT, _BY_CHANCE / np.sqrt(entry["goodness_jobs"])) and entry["quantiles_s"][-1][0] == 1)


def _fitted(one: Fitted, part: Sample, rng: np.random.Generator) -> dict[str, Any]:
    u = residuals(one.family, one.p, part, rng)
    return {
        "family": one.family.name,
        "scipy": one.family.scipy,
        "parameters": one.family.named(one.p),
        "standard_errors": None if one.errors is None else one.family.named(one.errors),
        "log_likelihood": one.log_likelihood,
        "aic": one.aic,
        "bic": one.bic,
        "ks": kolmogorov(u),
        "anderson_darling": anderson_darling(u),
    }


def observed_quantiles(sample: Sample) -> list[list[float]] | None:
    """Return [share, duration] pairs of the Kaplan-Meier estimate up to its last share, or None if no end is known.

    A rounded value counts as the middle of its interval, or as 0 if the interval begins at 0.
    """
    if not sample.observed_n:
        return None
    values = np.concatenate([np.where(sample.low > 0, (sample.low + sample.high) / 2, 0.0), sample.exact, sample.right])
    ends = np.concatenate([sample.middles_n, np.zeros(sample.right.size)])
    counts = np.concatenate([sample.middles_n, sample.right_n])
    order = np.lexsort((-ends, values))  # among equal durations, ends come before censored ones
    values, ends, counts = values[order], ends[order], counts[order]
    left = np.cumprod(1 - ends / counts[::-1].cumsum()[::-1])
    gone = np.where(left < 1e-12, 1.0, 1 - left)
    place = np.searchsorted(gone, np.array(LEVELS) - 1e-9, side="left")
    first = int(np.flatnonzero(ends)[0])
    return [[q, float(values[max(i, first)])] for q, i in zip(LEVELS, place, strict=True) if i < values.size]


def _tail(sample: Sample, rng: np.random.Generator, effort: Effort) -> dict[str, Any]:
    tail = fit_tail(sample)
    if tail is None:
        return {"failed": "the upper half has fewer than 50 ends, or fewer than 10 distinct ones"}
    p = tail_p_value(sample, rng, jobs=effort.tail_jobs, replicates=effort.replicates) if effort.replicates else None
    return {
        "scipy": "pareto",
        "parameters": {"b": tail.b, "scale": tail.xmin},
        "standard_errors": {"b": tail.error},
        "xmin_s": tail.xmin,
        "jobs_above": tail.above,
        "ks": tail.ks,
        "p_ks": None if p is None else p[0],
        "bootstrap_jobs": None if p is None else p[1],
    }


def _truncated(splice: Splice) -> dict[str, Any]:
    return {
        "scipy": "truncpareto",
        "parameters": {"b": splice.b, "c": splice.bound / splice.xmin, "scale": splice.xmin},
        "standard_errors": None if splice.error is None else {"b": splice.error},
        "xmin_s": splice.xmin,
        "ends_above": splice.above,
        "share_above": splice.share,
        "bound_s": splice.bound,
        "log_likelihood_gain": splice.gain,
        "needed_gain": splice.needed,
    }
