"""Families of duration distributions, in one registry for fitting, checking and drawing.

Parameters have scipy's names, `loc` is 0, and every parameter is above 0. A mixture's parameters end in the number of
their part: weight_1, s_1, scale_1, weight_2, ... The weights sum to 1, and the parts are ordered by `scale`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.array_types import Floats


@dataclass(frozen=True)
class Family:
    """One family of distributions over durations above 0 [s]."""

    name: str
    scipy: str
    """Name in scipy.stats; for a mixture, the name of each part."""
    own: tuple[str, ...]
    """Parameters of one part, with scipy's names."""
    density: Callable[[Floats, Floats, Floats], Floats]
    survival: Callable[[Floats, Floats, Floats], Floats]
    parts: int = 1

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of all parameters in the order of a parameter vector."""
        if self.parts == 1:
            return self.own
        return tuple(f"{name}_{k}" for k in range(1, self.parts + 1) for name in ("weight", *self.own))

    @property
    def free(self) -> int:
        """Number of free parameters; a mixture has one less because its weights sum to 1."""
        return self.parts * (len(self.own) + 1) - 1 if self.parts > 1 else len(self.own)

    def named(self, p: Floats) -> dict[str, float]:
        """Return a parameter vector by name."""
        return dict(zip(self.parameters, map(float, p), strict=True))

    def vector(self, named: Mapping[str, float]) -> Floats:
        """Return named parameters as a vector."""
        return np.array([named[name] for name in self.parameters], float)

    def unit(self, name: str) -> str:
        """Return the unit of a parameter: seconds for scales, dimensionless for all others."""
        return "s" if name.startswith("scale") else "1"

    def to_free(self, p: Floats) -> Floats:
        """Return unbounded coordinates: logarithms of parameters, and log-ratios of weights to the last weight."""
        logs = np.log(p)
        if self.parts == 1:
            return logs
        each = logs.reshape(self.parts, -1)
        return np.concatenate([each[:-1, 0] - each[-1, 0], each[:, 1:].ravel()])

    def from_free(self, theta: Floats) -> Floats:
        """Return the parameters at unbounded coordinates, along the last axis."""
        if self.parts == 1:
            return np.exp(theta)
        shape = theta.shape[:-1]
        ratios = np.concatenate([theta[..., : self.parts - 1], np.zeros((*shape, 1))], axis=-1)
        weights = np.exp(ratios - ratios.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        rest = np.exp(theta[..., self.parts - 1 :]).reshape(*shape, self.parts, -1)
        return np.concatenate([weights[..., None], rest], axis=-1).reshape(*shape, -1)

    def ordered(self, p: Floats) -> Floats:
        """Return the parameters with the parts of a mixture ordered by scale."""
        if self.parts == 1:
            return p
        each = p.reshape(self.parts, -1)
        return each[np.argsort(each[:, -1], kind="stable")].ravel()

    def problem(self, named: Mapping[str, Any]) -> str | None:
        """Return why these are not valid parameters of the family, or None if they are."""
        if set(named) != set(self.parameters):
            return f"{self.name} has the parameters {', '.join(self.parameters)}"
        for name, value in named.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value) or value <= 0:
                return f"{self.name}: {name} must be a number above 0, not {value}"
        total = sum(v for k, v in named.items() if k.startswith("weight"))
        if self.parts > 1 and abs(total - 1) > 1e-6:
            return f"{self.name}: the weights sum to {total:g}, not to 1"
        return None

    def logpdf(self, x: Floats, p: Floats) -> Floats:
        """Return the log-density at durations above 0."""
        return self.density(x, np.log(x), p)

    def logsf(self, x: Floats, p: Floats) -> Floats:
        """Return the log of the share that lasts longer than each duration."""
        return np.minimum(self.survival(x, np.log(np.maximum(x, 1e-300)), p), 0.0)

    def cdf(self, x: Floats, p: Floats) -> Floats:
        """Return the share that lasts no longer than each duration."""
        found: Floats = np.where(x > 0, -np.expm1(self.logsf(x, p)), 0.0)
        return found


# Log-density and log-survival of each family, in scipy's parameters with loc = 0.
# They use plain NumPy because a fit calls them hundreds of times; the tests compare each with scipy.stats. `x` holds
# durations above 0 and `logx` their logarithms, which a fit computes once. `p` holds the parameters in the order of the
# family: numbers, or columns of numbers with one row of results each.

_HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


def _exp(x: Floats) -> Floats:
    # A trial value far from the optimum gives density 0 instead of a warning.
    return np.exp(np.minimum(x, 700.0))


def _softplus(x: Floats) -> Floats:
    """Return log(1 + exp(x))."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _expon_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -np.log(p[0]) - x / p[0]
    return found


def _expon_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -x / p[0]
    return found


def _lognorm_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    z = (logx - np.log(p[1])) / p[0]
    found: Floats = -0.5 * z * z - logx - (np.log(p[0]) + _HALF_LOG_2PI)
    return found


def _lognorm_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = special.log_ndtr((np.log(p[1]) - logx) / p[0])
    return found


def _weibull_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    z = p[0] * (logx - np.log(p[1]))
    found: Floats = np.log(p[0]) - logx + z - _exp(z)
    return found


def _weibull_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -_exp(p[0] * (logx - np.log(p[1])))
    return found


def _gamma_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    constant = special.gammaln(p[0]) + p[0] * np.log(p[1])
    found: Floats = (p[0] - 1) * logx - x / p[1] - constant
    return found


def _gamma_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    y = x / p[1]
    upper = special.gammaincc(p[0], y)
    far = upper < 1e-290
    # Where the value underflows, use the leading term of the asymptotic series.
    series = (p[0] - 1) * np.log(np.maximum(y, 1e-300)) - y - special.gammaln(p[0])
    found: Floats = np.where(far, series, np.log(np.where(far, 1.0, upper)))
    return found


def _fisk_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    z = p[0] * (logx - np.log(p[1]))
    found: Floats = np.log(p[0]) - logx + z - 2 * _softplus(z)
    return found


def _fisk_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -_softplus(p[0] * (logx - np.log(p[1])))
    return found


def _lomax_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = np.log(p[0]) - np.log(p[1]) - (p[0] + 1) * np.log1p(x / p[1])
    return found


def _lomax_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -p[0] * np.log1p(x / p[1])
    return found


def _burr12_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    z = p[0] * (logx - np.log(p[2]))
    found: Floats = np.log(p[0] * p[1]) - logx + z - (p[1] + 1) * _softplus(z)
    return found


def _burr12_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -p[1] * _softplus(p[0] * (logx - np.log(p[2])))
    return found


def _mixture(part: Any, parts: int) -> Any:
    """Return the log of the weighted sum of `parts` copies of a formula.

    The parameters of part 1 come first, beginning with its weight, then those of part 2, and so on.
    """

    def mixed(x: Floats, logx: Floats, p: Floats) -> Floats:
        width = len(p) // parts
        each = [p[k : k + width] for k in range(0, len(p), width)]
        logs = [np.log(one[0]) + part(x, logx, one[1:]) for one in each]
        top = logs[0]
        for other in logs[1:]:
            top = np.maximum(top, other)
        top = np.maximum(top, -1e300)
        total = np.exp(logs[0] - top)
        for other in logs[1:]:
            total += np.exp(other - top)
        found: Floats = top + np.log(total)
        return found

    return mixed


def _registry() -> dict[str, Family]:
    found = [
        Family("expon", "expon", ("scale",), _expon_logpdf, _expon_logsf),
        Family("lognorm", "lognorm", ("s", "scale"), _lognorm_logpdf, _lognorm_logsf),
        Family("weibull_min", "weibull_min", ("c", "scale"), _weibull_logpdf, _weibull_logsf),
        Family("gamma", "gamma", ("a", "scale"), _gamma_logpdf, _gamma_logsf),
        Family("fisk", "fisk", ("c", "scale"), _fisk_logpdf, _fisk_logsf),
        Family("lomax", "lomax", ("c", "scale"), _lomax_logpdf, _lomax_logsf),
        Family("burr12", "burr12", ("c", "d", "scale"), _burr12_logpdf, _burr12_logsf),
    ]
    for parts in (2, 3):
        for name, own, density, survival in (
            ("expon", ("scale",), _expon_logpdf, _expon_logsf),
            ("lognorm", ("s", "scale"), _lognorm_logpdf, _lognorm_logsf),
        ):
            label = f"hyperexpon_{parts}" if name == "expon" else f"lognorm_mix_{parts}"
            found.append(Family(label, name, own, _mixture(density, parts), _mixture(survival, parts), parts))
    return {family.name: family for family in found}


FAMILIES = _registry()
"""All families by name, simplest first."""

_GRID = 4096


def quantiles(family: Family, p: Floats, scores: Floats, *, longest_s: float) -> Floats:
    """Return the durations [s] at given normal scores of the distribution truncated at `longest_s`.

    A score z stands for the probability Phi(z). The quantile function is interpolated in a table of 4,096 durations,
    linearly between normal score and logarithm. The error is below 1e-4 of the duration, and 0.4 % at the truncation.
    """
    p = np.asarray(p, float)
    low = np.log(1e-6)
    x = np.exp(np.linspace(low, np.log(max(longest_s, 1e-3)), _GRID))
    logsf = np.minimum(family.logsf(x, p), -1e-300)
    share = -np.expm1(logsf)
    whole = max(float(share[-1]), 1e-300)
    # Use the lower share below the median and the upper share above it, so that neither tail loses digits.
    below = np.maximum(share / whole, 1e-300)
    above = np.maximum((whole - share) / whole, 0.0)
    if whole > 0.5:
        above = np.maximum((np.exp(logsf) - np.exp(logsf[-1])) / whole, 0.0)
    with np.errstate(divide="ignore"):
        table = np.where(below < 0.5, special.ndtri(np.minimum(below, 1.0)), -special.ndtri(above))
    known = np.isfinite(table)
    table, x = table[known], x[known]
    rising = np.diff(table, prepend=-1e9) > 0
    if not rising.any():
        return np.full(scores.shape, longest_s)
    found: Floats = np.exp(np.interp(scores, table[rising], np.log(x)[rising]))
    return found
