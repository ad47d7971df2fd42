"""Fit one family to one sample by maximum likelihood, with standard errors.

The log-likelihood is the sum of log f(x) over exact values, log S(x) over right-censored values, and log(F(b) - F(a))
over intervals. It is maximized in unbounded coordinates, first on at most 400 grouped values, then on all values until
a Newton step would gain less than 1e-5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.array_types import Floats
    from tracekit.fit.families import Family, Formula
    from tracekit.fit.sample import Sample


def minimize(
    fall: Callable[[Floats], Any],
    begin: Floats,
    bounds: Sequence[tuple[float, float]],
    *,
    gradient: bool = False,
    **options: float,
) -> tuple[float, Floats]:
    """Return the smallest value found from a starting point, and the coordinates of this minimum.

    Parameters
    ----------
    fall : callable
        Function of an array of coordinates. If `gradient` is set, it returns a value and a gradient.
    begin : array
        Starting point, within the bounds.
    bounds : sequence of tuple
        Lowest and highest value of each coordinate.
    **options : float
        Options for scipy.optimize.minimize(method="L-BFGS-B").
    """
    # Imported here because it takes a third of a second, and pages that only show a fit import this package.
    from scipy import optimize

    descend: Any = optimize.minimize  # scipy's types require a constant for `jac`
    found = descend(fall, begin, jac=gradient, method="L-BFGS-B", bounds=bounds, options=options)
    return float(found.fun), np.asarray(found.x, float)


_GROUPED = 400
"""Number of grouped values in the first maximization."""
_GROUPED_ERRORS = 1_000
"""Number of grouped values used for the information matrix of a large sample."""
_EXACT_HESSIAN = 20_000
"""Maximum number of distinct values for which the information matrix uses each value instead of grouped values."""
_STEP = 1e-5
"""Forward-difference step of a gradient; it shifts a maximum by half a step, far below any standard error."""
_ROOM = 32_000
"""Number of values computed at once. More would not fit into the CPU cache and take up to five times longer."""
_LEAST = 1e-300
"""Smallest share of jobs in an interval."""
_LEAP = 2.0
"""Longest step in any coordinate."""
_POINT = 0.0201
"""Spread of logarithms below which a part of a mixture counts as a single duration."""
_FIRST_STEPS, _STEPS = 12, 100
_FAR = 60.0
_EDGE = 14.0
"""With a shape above exp(14), about a million, or below its inverse, the family tends to another family."""


class FitFailure(Exception):  # noqa: N818 -- a result, not a mistake of the user
    """The reason why a family could not be fitted."""


@dataclass(frozen=True)
class Fitted:
    """A family with its maximum-likelihood parameters."""

    family: Family
    p: Floats
    errors: Floats | None
    """Standard errors of `p`, or None if the likelihood is flat."""
    log_likelihood: float
    n: int

    @property
    def aic(self) -> float:
        """2 k - 2 log L, where k is the number of free parameters."""
        return 2 * self.family.free - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Return k log n - 2 log L."""
        return float(self.family.free * np.log(self.n) - 2 * self.log_likelihood)


class Likelihood:
    """The log-likelihood of a sample as a function of a family's unbounded coordinates."""

    def __init__(self, family: Family, sample: Sample) -> None:
        self._family = family
        self._exact, self._log_exact = sample.exact, np.log(np.maximum(sample.exact, 1e-300))
        self._right = sample.right.size
        # Neighboring intervals share an edge, so compute survival once per edge.
        edges = np.unique(np.concatenate([sample.low, sample.high]))
        self._ends = np.concatenate([sample.right, edges])
        self._log_ends = np.log(np.maximum(self._ends, 1e-300))
        self._low_at = self._right + np.searchsorted(edges, sample.low)
        self._high_at = self._right + np.searchsorted(edges, sample.high)
        self._begins = self._ends <= 0
        self.counts = np.concatenate([sample.exact_n, sample.right_n, sample.interval_n])

    def each(self, theta: Floats) -> Floats:
        """Return the log-likelihood of one job at each distinct value, with one row for each row of `theta`."""
        # Trial points far from the optimum overflow, which needs no warning.
        with np.errstate(all="ignore"):
            p = self._family.from_free(np.minimum(np.maximum(theta, -_FAR), _FAR))
            if theta.ndim == 2:
                p = p.T[:, :, None]
            found = [_in_slices(self._family.density, self._exact, self._log_exact, p)]
            if self._ends.size:
                logsf = _in_slices(self._family.survival, self._ends, self._log_ends, p)
                beyond = np.where(self._begins, 0.0, np.minimum(logsf, 0.0))
                found.append(beyond[..., : self._right])
                if self._low_at.size:
                    low, high = beyond.take(self._low_at, axis=-1), beyond.take(self._high_at, axis=-1)
                    inside = np.where(high > -0.7, np.expm1(low) - np.expm1(high), np.exp(low) - np.exp(high))
                    found.append(np.log(np.maximum(inside, _LEAST)))
            # fmax replaces NaN with -1e6.
            return np.fmin(np.fmax(np.concatenate(found, axis=-1), -1e6), 1e6)

    def total(self, theta: Floats) -> float:
        """Return the log-likelihood of the sample."""
        # The digits of a dot product would depend on the number of CPUs. Those of a sum do not.
        return float((self.each(theta) * self.counts).sum())

    def totals(self, thetas: Floats) -> Floats:
        """Return the log-likelihood at each row of coordinates."""
        found: Floats = (self.each(thetas) * self.counts).sum(axis=-1)
        return found

    def fall(self, theta: Floats) -> tuple[float, Floats]:
        """Return the negative log-likelihood, and its gradient by forward differences."""
        found = -self.totals(theta + _steps(theta.size))
        return float(found[0]), (found[1:] - found[0]) / _STEP

    def slope(self, theta: Floats, depth: float) -> Floats:
        """Return the gradient of `fall` at a point whose negative log-likelihood is known."""
        return np.asarray((-self.totals(theta + _steps(theta.size)[1:]) - depth) / _STEP)

    def information(self, theta: Floats) -> Floats:
        """Return the negative second derivatives, by central differences."""
        size, step = theta.size, 1e-3
        moved = np.eye(size) * step
        first, second = np.tril_indices(size, -1)
        both = moved[first] + moved[second]
        points = np.concatenate([theta[None], theta + moved, theta - moved, theta + both, theta - both])
        found = self.totals(points) - self.total(theta)
        up, down, plus, minus = np.split(found[1:], np.cumsum([size, size, first.size]))
        matrix = np.diag(-(up + down) / step**2)
        mixed = plus + minus - up[first] - up[second] - down[first] - down[second]
        matrix[first, second] = matrix[second, first] = -mixed / (2 * step**2)
        return matrix


@cache
def _steps(size: int) -> Floats:
    """Return the rows of a gradient by forward differences: no step, then a step in each coordinate."""
    return np.concatenate([np.zeros((1, size)), np.eye(size) * _STEP])


def _in_slices(formula: Formula, x: Floats, logx: Floats, p: Any) -> Floats:
    """Return a formula at each duration, computed for as many durations at once as fit into the CPU cache."""
    rows = p.shape[1] if p.ndim == 3 else 1
    width = max(1, _ROOM // rows)
    if p.ndim < 3 or x.size <= width:
        return np.asarray(formula(x, logx, p))
    found = np.empty((rows, x.size))
    for i in range(0, x.size, width):
        found[:, i : i + width] = formula(x[i : i + width], logx[i : i + width], p)
    return found


def maximize(family: Family, sample: Sample) -> Fitted:
    """Return the most likely member of the family.

    Raises
    ------
    FitFailure
        The sample is too small or has a single value, or the likelihood has no maximum inside the family.
    """
    if sample.observed_n < max(10, 3 * family.free):
        raise FitFailure(f"{sample.observed_n} durations have a known end, {max(10, 3 * family.free)} are needed")
    distinct = sample.distinct
    if distinct < 2:
        raise FitFailure("all durations are the same")
    if distinct <= family.free:
        raise FitFailure(f"{distinct} distinct durations cannot determine {family.free} parameters")
    grouped = sample.coarse(_GROUPED)
    rough = Likelihood(family, grouped)
    theta = _best_start(family, rough, grouped)
    same = grouped.exact.size == sample.exact.size and grouped.right.size == sample.right.size
    full = rough if same else Likelihood(family, sample)
    theta = climb(full, theta, rough.information(theta))
    p = family.ordered(family.from_free(theta))
    _check_inside(family, p, sample)
    theta = family.to_free(p)
    ranked = full if full.counts.size <= _EXACT_HESSIAN else Likelihood(family, sample.coarse(_GROUPED_ERRORS))
    errors = _errors(family, theta, ranked.information(theta))
    _check_identified(family, p, errors)
    return Fitted(family, p, errors, full.total(theta), sample.n)


def _best_start(family: Family, rough: Likelihood, grouped: Sample) -> Floats:
    """Return the highest point found for grouped values.

    For mixtures, take a few steps from each EM result and continue from the best, unless one of its parts shrinks to
    one duration.
    """
    limit = float(np.log(max(grouped.middles.max(initial=1.0), grouped.right.max(initial=1.0), 1.0))) + 12
    bounds = _bounds(family, limit)

    def descend(begin: Floats, rounds: int) -> tuple[float, Floats]:
        return minimize(rough.fall, begin, bounds, gradient=True, maxiter=rounds, ftol=1e-10, gtol=1e-5)

    begins = [np.clip(family.to_free(start), *np.array(bounds).T) for start in family.starts(grouped)]
    if family.parts > 1:
        begun = [descend(begin, _FIRST_STEPS) for begin in begins]
        begins = [point for _, point in sorted(begun, key=lambda one: one[0])]
    best: tuple[float, Floats] = (np.inf, begins[0])
    for begin in begins:
        depth, point = descend(begin, _STEPS)
        if family.parts > 1 and not _shrunk(family, point):
            return point
        if depth < best[0] - 1e-6:
            best = (depth, point)
    return best[1]


def _shrunk(family: Family, theta: Floats) -> bool:
    named = family.named(family.from_free(theta))
    return any(name.startswith("s_") and value < _POINT for name, value in named.items())


def _bounds(family: Family, limit: float) -> list[tuple[float, float]]:
    """Return the search bounds, which keep a mixture from shrinking a part to a point."""
    found: list[tuple[float, float]] = [(-12.0, 12.0)] * (family.parts - 1)
    for name in family.own * family.parts:
        if name == "scale":
            found.append((-14.0, limit + 8))
        elif family.parts > 1:
            found.append((float(np.log(0.02)), 3.0))
        else:
            found.append((-8.0, _EDGE))
    return found


def climb(likelihood: Likelihood, theta: Floats, information: Floats, *, steps: int = 20, gain: float = 1e-5) -> Floats:
    """Find a better point by Newton steps with a fixed information matrix, halving steps until the likelihood rises.

    Stop after `steps` steps, or when the next step would gain less than `gain` in log-likelihood.
    """
    values, vectors = np.linalg.eigh(information)
    # Steps stay small in directions where the matrix is flat or negative.
    values = np.maximum(np.abs(values), 1e-8 * np.abs(values).max() + 1e-12)
    depth, slope = likelihood.fall(theta)
    for _ in range(steps):
        step = -(vectors @ ((vectors.T @ slope) / values))
        step /= max(1.0, float(np.abs(step).max()) / _LEAP)
        if float(-slope @ step) < 2 * gain:
            break
        for _half in range(12):
            found = -float(likelihood.totals((theta + step)[None])[0])
            if found < depth:
                break
            step = step / 2
        else:
            break
        theta, depth = theta + step, found
        slope = likelihood.slope(theta, depth)
    return theta


def _check_inside(family: Family, p: Floats, sample: Sample) -> None:
    named = family.named(p)
    longest = max(sample.middles.max(), sample.right.max(initial=0.0))
    for name, value in named.items():
        if name.startswith("weight") and value * sample.n < 5:
            raise FitFailure(f"a part has fewer than 5 jobs ({name} = {value:.2g})")
        if name.startswith("scale") and value > 1e5 * longest:
            raise FitFailure(f"no maximum inside the family: {name} grows without bound")
        if name.startswith("scale") and value < 1e-6:
            raise FitFailure(f"no maximum inside the family: {name} tends to 0")
        if family.parts > 1 and name.startswith("s_") and value < _POINT:
            raise FitFailure(f"a part shrinks to one duration ({named['scale' + name[1:]]:.6g} s)")
        if not name.startswith(("weight", "scale")) and (value > 1e5 or value < 1e-3):
            raise FitFailure(
                f"no maximum inside the family: {name} {'grows without bound' if value > 1 else 'tends to 0'}"
            )


def _check_identified(family: Family, p: Floats, errors: Floats | None) -> None:
    """Reject a large shape that the data do not determine, because the family then tends to another family."""
    if errors is None or family.parts > 1:
        return
    for name, value, error in zip(family.parameters, p, errors, strict=True):
        if name != "scale" and value > 100 and error > 2 * value:
            raise FitFailure(
                f"no maximum inside the family: {name} is {value:.3g} with a standard error of {error:.3g}"
            )


def _errors(family: Family, theta: Floats, information: Floats) -> Floats | None:
    values = np.linalg.eigvalsh(information)
    if not np.isfinite(values).all() or values[0] <= 1e-9 * max(values[-1], 1e-300):
        return None
    covariance = np.linalg.inv(information)
    step = 1e-6
    moved = np.eye(theta.size) * step
    turned = np.array([(family.from_free(theta + d) - family.from_free(theta - d)) / (2 * step) for d in moved]).T
    return np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", turned, covariance, turned), 0))
