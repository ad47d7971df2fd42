"""Fit all families to one sample, choose one, and measure how well it fits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.fit.families import FAMILIES
from tracekit.fit.goodness import GOODNESS_JOBS, anderson_darling, bootstrap, kolmogorov, residuals
from tracekit.fit.likelihood import FitFailure, maximize
from tracekit.fit.splice import fit_splice
from tracekit.fit.tail import fit_tail, tail_p_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.fit.families import Family
    from tracekit.fit.likelihood import Fitted
    from tracekit.fit.sample import Sample
    from tracekit.fit.splice import Splice

__all__ = ["LEVELS", "Effort", "best", "describe", "fit_families", "observed_quantiles"]

LEVELS = (
    *(0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7),
    *(0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1),
)
"""Shares at which workload.json has the observed quantiles of a group."""

_MISFIT = 0.03
"""Kolmogorov-Smirnov distance above which no family fits well; quantiles 0.05 apart, and lines between, come nearer."""
_BY_CHANCE = 1.63
"""Times 1 / sqrt(n): the distance that 1 of 100 samples of the right distribution exceeds (Kolmogorov)."""


@dataclass(frozen=True)
class Effort:
    """How much work a fit puts into goodness."""

    replicates: int = 99
    """Samples that the bootstrap draws; 0 leaves it out."""
    bootstrap_jobs: int = 500
    """Most jobs that the bootstrap of a family is taken over."""
    tail_jobs: int = 2_000
    """Most jobs that the bootstrap of a tail is taken over."""
    drawn_only: bool = False
    """Whether run times are fitted only by what jobs are drawn from: until the end, by size class and status."""


def fit_families(sample: Sample, families: Iterable[Family]) -> tuple[list[Fitted], dict[str, str]]:
    """Return the families that could be fitted, and why the others could not."""
    fitted, failed = [], {}
    for family in families:
        try:
            fitted.append(maximize(family, sample))
        except FitFailure as why:
            failed[family.name] = str(why)
    return fitted, failed


def best(fitted: list[Fitted], criterion: str) -> Fitted:
    """Return the fit with the least AIC or BIC; of equal ones the simpler, which comes first."""
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
    """Return everything that workload.json says about the distribution of one sample.

    The family with the least BIC is chosen: among 11 families, some of them nested, AIC would choose a needless
    parameter in one case of six, however large the sample.

    Parameters
    ----------
    sample : Sample
    rng : Generator
    effort : Effort
    families : mapping
        Those that are fitted, by name.
    bound_s : float, optional
        The longest duration that is drawn [s]; a tail is fitted where it is given.
    p_tail, p_value : bool
        Whether the bootstrap is done for the tail and for the chosen family.
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
    """Return whether the chosen family fits badly, by more than chance, and the quantiles reach the longest job."""
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
    """Return [share, duration] by the Kaplan-Meier estimate, as far as it reaches; None where no end is known.

    A rounded value is the middle of its interval, 0 where the interval begins at 0.
    """
    if not sample.observed_n:
        return None
    values = np.concatenate([np.where(sample.low > 0, (sample.low + sample.high) / 2, 0.0), sample.exact, sample.right])
    ends = np.concatenate([sample.middles_n, np.zeros(sample.right.size)])
    counts = np.concatenate([sample.middles_n, sample.right_n])
    order = np.lexsort((-ends, values))  # of equal durations, ends come before censored ones
    values, ends, counts = values[order], ends[order], counts[order]
    left = np.cumprod(1 - ends / counts[::-1].cumsum()[::-1])
    gone = np.where(left < 1e-12, 1.0, 1 - left)
    place = np.searchsorted(gone, np.array(LEVELS) - 1e-9, side="left")
    first = int(np.flatnonzero(ends)[0])
    return [[q, float(values[max(i, first)])] for q, i in zip(LEVELS, place, strict=True) if i < values.size]


def _tail(sample: Sample, rng: np.random.Generator, effort: Effort) -> dict[str, Any]:
    tail = fit_tail(sample)
    if tail is None:
        return {"failed": "fewer than 50 ends, or 10 distinct ones, are in the upper half"}
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
