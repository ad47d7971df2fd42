"""The fitted distributions of run times and the weekly rates of a model, for tables and charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.fit.run_times import LEAST_JOBS, LEAST_KNOWN
from tracekit.text import count, percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.fit.families import Family
    from tracekit.fit.model import WorkloadModel

_WEEK = 168
_STEEP = 10.0
"""Growth or decline over the log from which weeks are too different for a mean week."""
_MOST_GROWTH = 700.0
"""Logarithm of the largest growth that is reported, because exp(710) overflows."""


def chosen_fit(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the chosen fit of a group that has a fit."""
    found: dict[str, Any] = next(f for f in entry["families"] if f["family"] == entry["chosen"])
    return found


@dataclass(frozen=True)
class FittedDistribution:
    """The fitted distribution of a group of jobs."""

    family: Family
    p: NDArray[np.float64]
    ratio: float
    """Factor that shifts another group's shape to this group's median, or 1 if the group has its own fit."""

    def cdf(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of the jobs that run at most this long."""
        return np.asarray(self.family.cdf(seconds / self.ratio, self.p), float)

    def quantiles(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the run times [s] that these shares of the jobs do not exceed."""
        from scipy import special

        from tracekit.fit.families import quantiles

        return self.ratio * np.asarray(quantiles(self.family, self.p, special.ndtri(shares), longest_s=1e12), float)


def fitted_distribution(model: WorkloadModel, entry: dict[str, Any]) -> FittedDistribution | None:
    """Return the fit of a group or of the group that it is pooled with, or None if no family was chosen."""
    from tracekit.fit.families import FAMILIES

    source, ratio = model.shape(entry)
    if source["chosen"] is None:
        return None
    family = FAMILIES[source["chosen"]]
    return FittedDistribution(family, family.vector(chosen_fit(source)["parameters"]), ratio)


def observed_points(entry: dict[str, Any]) -> list[tuple[float, float]]:
    """Return shares and observed run times [s]. Each step in share corresponds to at least one job of the group."""
    least = 1 / max(entry["n"], 1) - 1e-9
    return [(share, s) for share, s in entry.get("quantiles_s") or [] if min(share, 1 - share) >= least]


def why_undrawn(model: WorkloadModel, entry: dict[str, Any]) -> str | None:
    """Return why a group's observed and fitted run times cannot be shown, or None if they can."""
    if entry["pooled_to"] is None:
        return None if entry["chosen"] is not None else str(entry["reason"])
    if entry.get("quantiles_s") is None:
        if entry["median_ratio"] is not None:
            return f"fewer than {LEAST_JOBS}, and the model does not contain their quantiles: fit again"
        return f"fewer than {LEAST_JOBS}, and fewer than {LEAST_KNOWN} with a known end"
    if fitted_distribution(model, entry) is None:
        return f"fewer than {LEAST_JOBS}, and no fit of a larger group"
    return None


def hours_known(model: WorkloadModel) -> bool:
    """Return whether the log's hours and weekdays are known. If so, hour 0 of the week is Monday 00:00."""
    return bool(model.document["source"]["hour_of_day_known"])


def weekly_rates(model: WorkloadModel) -> list[dict[str, Any]]:
    """Return the fitted and observed numbers of batches for each of the 168 hours of a week.

    The fitted value is the mean over the log. The week begins on Monday 00:00, or with the log's first hour if hours
    are unknown. `observed` is None if the log never covers the hour completely, or if the model does not contain it.
    """
    from tracekit.fit.rate import HOUR_S, with_hours

    arrivals = model.document["arrivals"]
    growth = min(log_growth(model), _MOST_GROWTH)
    mean = arrivals["rate"]["per_hour"] * (float(np.expm1(growth)) / growth if abs(growth) > 1e-9 else 1.0)
    if arrivals["rate"].get("pieces"):
        mean = arrivals["rate"]["mean_per_hour"]
    fitted = mean * np.resize(np.asarray(arrivals["rate"]["profile"], float), _WEEK)
    seen = arrivals.get("observed_per_hour") or [None] * _WEEK
    first = 0
    if not hours_known(model):
        first = int(with_hours(arrivals["start"] // HOUR_S * HOUR_S, 1, arrivals["timezone"]).of_week[0])
    order = [(first + hour) % _WEEK for hour in range(_WEEK)]
    return [{"hour_of_week": i, "fitted": float(fitted[h]), "observed": seen[h]} for i, h in enumerate(order)]


def log_growth(model: WorkloadModel) -> float:
    """Return the growth of the logarithm of the rate, from the start of the log to its end."""
    arrivals = model.document["arrivals"]
    return float(arrivals["rate"]["trend_per_day"] * arrivals["days"])


def growth_factor(model: WorkloadModel) -> float:
    """Return the rate at the end of the log divided by that at its start, limited to exp(-700)..exp(700)."""
    return float(np.exp(np.clip(log_growth(model), -_MOST_GROWTH, _MOST_GROWTH)))


def steep(growth: float) -> bool:
    """Return whether the rate changes too much over the log for a useful mean week."""
    return bool(abs(growth) > np.log(_STEEP))


def half_days(model: WorkloadModel) -> float:
    """Return the number of days at the log's end (or start, if the rate falls) with half of the fitted batches.

    Only growth is considered. The hour of the day shifts the result by hours at most.
    """
    growth = abs(log_growth(model))
    days = float(model.document["arrivals"]["days"])
    if growth < 1e-9:
        return days / 2
    # Solve exp(growth x) - 1 = (exp(growth) - 1) / 2 for the rest's share x, which has the other half.
    return days * (1 - float(np.logaddexp(0.0, growth) - np.log(2)) / growth)


def growth_words(growth: float) -> str:
    """Describe the change of a rate that is multiplied by `growth`.

    Examples
    --------
    >>> growth_words(1.25), growth_words(12.3), growth_words(1e-9), growth_words(1e9)
    ('grows by 25.0 %', 'grows 12.3-fold', 'falls by more than 99.9 %', 'grows more than 1,000,000-fold')
    """
    if growth < 2:
        # A fitted rate may come close to 0, but never falls by 100 %.
        part = percent(min(abs(growth - 1), 0.9999)).replace("> ", "more than ").replace("< ", "less than ")
        return f"{'falls' if growth < 1 else 'grows'} by {part}"
    return "grows more than 1,000,000-fold" if growth > 1e6 else f"grows {count(growth)}-fold"
