"""The families of distributions of durations, in one registry for fitting, checking and drawing.

Parameters have the names of scipy, `loc` is 0, and every parameter is above 0. Those of a mixture end in the number of
their part: weight_1, s_1, scale_1, weight_2, ...; the weights sum to 1 and parts are ordered by `scale`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from tracekit.fit import formulas as f

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.fit.arrays import Floats


@dataclass(frozen=True)
class Family:
    """One family of distributions over durations above 0 [s]."""

    name: str
    scipy: str
    """Name in scipy.stats, of each part where it is a mixture."""
    own: tuple[str, ...]
    """Parameters of one part, scipy's names."""
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
        """Number of parameters that a fit may choose: the weights of a mixture sum to 1."""
        return self.parts * (len(self.own) + 1) - 1 if self.parts > 1 else len(self.own)

    def named(self, p: Floats) -> dict[str, float]:
        """Return a parameter vector by name."""
        return dict(zip(self.parameters, map(float, p), strict=True))

    def vector(self, named: Mapping[str, float]) -> Floats:
        """Return parameters by name as a vector."""
        return np.array([named[name] for name in self.parameters], float)

    def unit(self, name: str) -> str:
        """Return the unit of a parameter: scales are seconds, all others pure numbers."""
        return "s" if name.startswith("scale") else "1"

    def to_free(self, p: Floats) -> Floats:
        """Return unbounded coordinates: logs of parameters, log-ratios of weights to the last."""
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
        """Return the parameters with the parts of a mixture in order of their scale."""
        if self.parts == 1:
            return p
        each = p.reshape(self.parts, -1)
        return each[np.argsort(each[:, -1], kind="stable")].ravel()

    def problem(self, named: Mapping[str, Any]) -> str | None:
        """Return why these are not parameters of the family, None when they are."""
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


def _registry() -> dict[str, Family]:
    found = [
        Family("expon", "expon", ("scale",), f.expon_logpdf, f.expon_logsf),
        Family("lognorm", "lognorm", ("s", "scale"), f.lognorm_logpdf, f.lognorm_logsf),
        Family("weibull_min", "weibull_min", ("c", "scale"), f.weibull_logpdf, f.weibull_logsf),
        Family("gamma", "gamma", ("a", "scale"), f.gamma_logpdf, f.gamma_logsf),
        Family("fisk", "fisk", ("c", "scale"), f.fisk_logpdf, f.fisk_logsf),
        Family("lomax", "lomax", ("c", "scale"), f.lomax_logpdf, f.lomax_logsf),
        Family("burr12", "burr12", ("c", "d", "scale"), f.burr12_logpdf, f.burr12_logsf),
    ]
    for parts in (2, 3):
        for name, own, density, survival in (
            ("expon", ("scale",), f.expon_logpdf, f.expon_logsf),
            ("lognorm", ("s", "scale"), f.lognorm_logpdf, f.lognorm_logsf),
        ):
            label = f"hyperexpon_{parts}" if name == "expon" else f"lognorm_mix_{parts}"
            found.append(Family(label, name, own, f.mixture(density, parts), f.mixture(survival, parts), parts))
    return {family.name: family for family in found}


FAMILIES = _registry()
"""Every family by name, simple ones first."""

_GRID = 4096


def quantiles(family: Family, p: Floats, scores: Floats, *, longest_s: float) -> Floats:
    """Return the durations [s] at given normal scores of the distribution cut at `longest_s`.

    A score z is the probability Phi(z). The quantile function is interpolated in a table of 4,096 durations, linear
    between normal score and logarithm; the error is below 1e-4 of the duration, and 0.4 % at the cut.
    """
    p = np.asarray(p, float)
    low = np.log(1e-6)
    x = np.exp(np.linspace(low, np.log(max(longest_s, 1e-3)), _GRID))
    logsf = np.minimum(family.logsf(x, p), -1e-300)
    share = -np.expm1(logsf)
    whole = max(float(share[-1]), 1e-300)
    # Below the median by the share below, above it by the share above, so that neither tail loses digits.
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
