"""Replace the upper end of a family with a power law, and draw durations from both.

Below xmin, durations have the family's shape; above it, they follow a power law that ends at a bound B. The share s
above xmin is the observed share, estimated by Kaplan-Meier if jobs are right-censored:

    density below xmin    (1 - s) f(x) / F(xmin)
    density from xmin on  s b x ** -(b + 1) / (xmin ** -b - B ** -b)

The value of b maximizes the likelihood under this truncation (Aban, Meerschaert and Panorska, Journal of the American
Statistical Association 101 (2006)). The value of xmin brings the power law above it closest to the Kaplan-Meier
estimate. This is Clauset's method (`fit_tail`) with a bound. Without the bound, b would be too large, and the drawn
tail truncated twice. The power law replaces the family if this lowers BIC. The jobs above xmin determine xmin, s and b,
so the log-likelihood of all jobs must rise by more than 1.5 log(ends above xmin).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from tracekit.errors import UsageError
from tracekit.fit.families import FAMILIES, quantiles

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints
    from tracekit.fit.families import Family
    from tracekit.fit.likelihood import Fitted
    from tracekit.fit.sample import Sample


_PARAMETERS = 3
"""Number of parameters: xmin, the share above it, and b."""
_LOG_B = (float(np.log(1e-3)), float(np.log(50.0)))
"""Range of log b. At the lower end, each decade has equally many durations. Above the upper end, the tail vanishes."""
_UPPER = 0.1
"""Maximum share of the jobs that can form the tail."""
_CANDIDATES = 100
_LEAST_ABOVE = 50
"""Minimum number of known ends for a tail."""
_LEAST_DISTINCT = 10


@dataclass(frozen=True)
class Splice:
    """A power law between two durations, which is scipy's truncpareto(b, c=bound / xmin, scale=xmin)."""

    xmin: float
    """Duration at which the power law begins [s]."""
    b: float
    share: float
    """Share of the jobs that last at least `xmin` [0..1]."""
    bound: float
    """Duration at which the power law ends [s]."""
    above: int = 0
    """Number of jobs with a known end above xmin."""
    error: float | None = None
    """Standard error of b, or None if the likelihood is flat."""
    gain: float = 0.0
    """Gain in log-likelihood over the family truncated at the bound."""
    needed: float = 0.0
    """Gain above which the power law lowers BIC."""

    @property
    def better(self) -> bool:
        """Whether BIC prefers the power law to the family alone."""
        return self.gain > self.needed

    def durations(self, beyond: Floats) -> Floats:
        """Return the durations [s] that are exceeded with these probabilities, given that a duration is above xmin."""
        least = (self.bound / self.xmin) ** -self.b
        return self.xmin * (least + beyond * (1 - least)) ** (-1 / self.b)


def fit_splice(fitted: Fitted, sample: Sample, bound: float) -> Splice | None:
    """Return the power law that best fits the durations above its xmin, compared with the truncated family.

    Up to 100 durations in the upper tenth are tried as xmin, evenly spaced in the logarithm of the share above them. A
    rounded duration counts as the middle of its interval.

    Parameters
    ----------
    fitted : Fitted
        The family whose upper end is replaced.
    sample : Sample
    bound : float
        Duration at which the power law ends [s]. No duration with a known end is above it.

    Returns
    -------
    Splice or None
        None if the upper tenth has fewer than 50 ends, or fewer than 10 distinct ones.
    """
    points = _points(sample)
    candidates = _candidates(points)
    if not candidates.size:
        return None
    upper = [_Upper(points, int(place), bound) for place in candidates]
    return _compared(min(upper, key=lambda one: one.ks), points, fitted, bound)


@dataclass(frozen=True)
class _Points:
    """Distinct durations in increasing order; among equal durations, ends come before censored ones."""

    values: Floats
    ends: Floats
    """Number of jobs that ended at each duration."""
    cut: Floats
    """Number of jobs known to last longer than each duration."""
    before: Floats
    """Kaplan-Meier share of jobs that last at least as long as each duration."""
    lost: Floats
    """Share of these jobs that end at each duration."""


def _points(sample: Sample) -> _Points:
    values, ends, cut = sample.in_order()
    at_risk = (ends + cut)[::-1].cumsum()[::-1]
    lost = ends / at_risk
    return _Points(values, ends, cut, np.append(1.0, np.cumprod(1 - lost)[:-1]), lost)


def _candidates(points: _Points) -> Ints:
    """Return the indices of the durations at which the power law may begin."""
    left = points.ends[::-1].cumsum()[::-1]
    distinct = (points.ends > 0)[::-1].cumsum()[::-1]
    allowed = np.flatnonzero(
        (points.ends > 0) & (points.before <= _UPPER) & (left >= _LEAST_ABOVE) & (distinct >= _LEAST_DISTINCT)
    )
    if allowed.size <= _CANDIDATES:
        return allowed
    shares = points.before[allowed]
    levels = np.geomspace(shares[0], shares[-1], _CANDIDATES)
    places = np.searchsorted(-shares, -levels, side="left").clip(0, allowed.size - 1)
    return allowed[np.unique(places)]


class _Upper:
    """The most likely power law that begins at one of the durations."""

    def __init__(self, points: _Points, place: int, bound: float) -> None:
        self.place = place
        self.reach = float(np.log(bound / points.values[place]))
        logs, self._cut = np.log(points.values[place:] / points.values[place]), points.cut[place:]
        ends = points.ends[place:]
        self.number, self._total = float(ends.sum()), float((ends * logs).sum())
        later = self._cut > 0
        self._cut, self._cut_logs = self._cut[later], np.minimum(logs[later], self.reach * (1 - 1e-9))
        from scipy import optimize  # imported late, because drawing from a tail does not need it

        self.log_b = float(optimize.minimize_scalar(lambda at: -self.likelihood(at), bounds=_LOG_B, method="bounded").x)
        left = self._left(logs)
        before = points.before[place:] / points.before[place]
        after = before * (1 - points.lost[place:])
        gap = np.maximum(np.abs(before - left), np.abs(after - left))
        self.ks = float(gap[ends > 0].max())

    def likelihood(self, log_b: float) -> float:
        """Return the log-likelihood of durations above xmin, without the factor 1 / x common to all densities."""
        b = np.exp(log_b)
        whole = -np.expm1(-b * self.reach)
        found = self.number * (log_b - np.log(whole)) - b * self._total
        if self._cut.size:
            left = (np.exp(-b * self._cut_logs) - np.exp(-b * self.reach)) / whole
            found += (self._cut * np.log(left)).sum()
        return float(found)

    @property
    def jobs(self) -> float:
        """Number of jobs known to have lasted longer than xmin."""
        return self.number + float(self._cut.sum())

    @property
    def error(self) -> float | None:
        """Standard error of b, from the curvature of the log-likelihood."""
        step = 1e-3
        up, here, down = (self.likelihood(self.log_b + d) for d in (step, 0.0, -step))
        curvature = (2 * here - up - down) / step**2
        return float(np.exp(self.log_b) / np.sqrt(curvature)) if curvature > 0 else None

    def _left(self, logs: Floats) -> Floats:
        b = np.exp(self.log_b)
        return (np.exp(-b * logs) - np.exp(-b * self.reach)) / -np.expm1(-b * self.reach)


def _compared(upper: _Upper, points: _Points, fitted: Fitted, bound: float) -> Splice:
    """Return the power law with its gain in log-likelihood over the family truncated at the bound, for all jobs."""
    family, p, place = fitted.family, fitted.p, upper.place
    xmin, share = float(points.values[place]), float(points.before[place])
    whole = float(family.cdf(np.array([bound]), p)[0])
    seen, cut = points.ends > 0, points.cut > 0
    x = points.values[seen]
    low = x < xmin
    density = points.ends[seen] * (family.logpdf(x, p) + np.log(x) - np.log(whole))
    gone = family.cdf(points.values[cut], p) / whole
    alone = points.cut[cut] * np.log(np.maximum(1 - gone, 1e-300))
    under = points.values[cut] < xmin
    below = max(float(family.cdf(np.array([xmin]), p)[0]) / whole, 1e-300)
    gain = upper.likelihood(upper.log_b) + upper.jobs * np.log(share) - density[~low].sum() - alone.sum()
    # Below xmin, the density of every end changes by the same factor; censored jobs may end above xmin.
    gain += points.ends[seen][low].sum() * np.log((1 - share) / below)
    gain += (points.cut[cut][under] * np.log(share + (1 - share) * (1 - gone[under] / below))).sum()
    needed = _PARAMETERS / 2 * float(np.log(upper.number))
    b = float(np.exp(upper.log_b))
    return Splice(xmin, b, share, bound, int(upper.number), upper.error, float(gain), needed)


def spliced_quantiles(family: Family, p: Floats, splice: Splice, scores: Floats) -> Floats:
    """Return the durations [s] at given normal scores, from the family below xmin and from the power law above it."""
    beyond = special.ndtr(-scores)
    found = np.empty(scores.shape)
    upper = beyond < splice.share
    found[upper] = splice.durations(beyond[upper] / splice.share)
    # These are ranks among the durations below xmin, which follow the family truncated there.
    inside = special.ndtri(special.ndtr(scores[~upper]) / (1 - splice.share))
    found[~upper] = quantiles(family, p, np.minimum(inside, 8.0), longest_s=splice.xmin)
    return found


# Draw durations from an entry in workload.json.

_UNSEEN = 10
"""Factor on the log's longest run time for a group in which more than 1 % of the jobs are still running."""


def longest_drawn(longest_s: float | None, n: int, right_censored: int) -> float:
    """Return the longest run time that may be drawn for a group [s].

    This is the longest run time in the log, which reflects the machines and their limits. If more than 1 % of the
    group's jobs were still running, it is ten times as long, because longer runs are possible.
    """
    return max(float(longest_s or 0.0), 1.0) * (_UNSEEN if right_censored > 0.01 * n else 1)


def drawn_durations(entry: dict[str, Any], bound_s: float, scores: Floats) -> Floats:
    """Return a fitted group's unrounded durations [s] at given normal scores, truncated at a bound.

    Parameters
    ----------
    entry : dict
        Entry with a separate fit, so `pooled_to` is None.
    bound_s : float
        Longest duration that is drawn [s].
    scores : array

    Raises
    ------
    UsageError
        No duration in the group has a known end, so there is nothing to draw from.
    """
    # Files written by earlier versions do not record the distribution to draw from.
    source = entry.get("drawn_from") or ("quantiles" if entry["chosen"] is None else "family")
    if source == "quantiles":
        if entry["quantiles_s"] is None:
            what = f"the model has no durations to draw from: none of {entry['n']:,} has a known end"
            raise UsageError(what, hint="fit a Trace with runs that ended")
        shares, values = np.array(entry["quantiles_s"], float).T
        # A run time of 0 has no logarithm. A quarter of a step rounds to 0.
        logs = np.log(np.maximum(values, entry["resolution_s"] / 4))
        within = np.interp(np.log(bound_s), logs, shares) if bound_s < values[-1] else 1.0
        return np.exp(np.interp(special.ndtr(scores) * within, shares, logs))
    family = FAMILIES[entry["chosen"]]
    p = family.vector(next(f for f in entry["families"] if f["family"] == family.name)["parameters"])
    if source == "family+tail" and bound_s > entry["tail"]["truncated"]["xmin_s"]:
        tail = entry["tail"]["truncated"]
        bound = min(bound_s, tail["bound_s"])
        splice = Splice(tail["xmin_s"], tail["parameters"]["b"], tail["share_above"], bound)
        return spliced_quantiles(family, p, splice, scores)
    return quantiles(family, p, scores, longest_s=bound_s)
