"""Log-density and log-survival with their derivatives, for the families whose climbs cost most.

These are the exponential and the lognormal, alone or as parts of a mixture. Derivatives are those by the unbounded
coordinates of `Family`: logarithms of parameters, log-ratios of weights to the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.fit import formulas as f

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.fit.families import Family

    Floats = NDArray[np.float64]
    Formula = Callable[[Floats, Floats, Floats], tuple[Floats, tuple[Floats, ...]]]

__all__ = ["Sloped", "has_slopes", "sloped_density", "sloped_survival"]


@dataclass(frozen=True)
class Sloped:
    """The logarithm of a mixture at some durations, and what its derivatives are made of."""

    values: Floats
    _weights: Floats
    _members: Floats
    """Share of each part in each value."""
    _own: Floats
    """Derivatives of each part by its own parameters."""

    def slope(self, counts: Floats) -> Floats:
        """Return the derivatives of the sum of values times `counts`."""
        held = self._members * counts
        by_weight = held[:-1].sum(axis=1) - self._weights[:-1, 0] * counts.sum()
        by_own = np.einsum("kn,kon->ko", held, self._own)
        return np.concatenate([by_weight, by_own.ravel()])


def has_slopes(family: Family) -> bool:
    """Return whether the derivatives of a family are here."""
    return family.scipy in _FORMULAS


def sloped_density(family: Family, x: Floats, logx: Floats, p: Floats) -> Sloped:
    """Return the log-density of a family with the parameter vector `p`, with derivatives."""
    return _mixed(_FORMULAS[family.scipy][0], family, x, logx, p)


def sloped_survival(family: Family, x: Floats, logx: Floats, p: Floats) -> Sloped:
    """Return the log-survival of a family with the parameter vector `p`, with derivatives."""
    return _mixed(_FORMULAS[family.scipy][1], family, x, logx, p)


def _mixed(formula: Formula, family: Family, x: Floats, logx: Floats, p: Floats) -> Sloped:
    each = p.reshape(family.parts, -1)
    weights, own = (each[:, :1], each[:, 1:]) if family.parts > 1 else (np.ones((1, 1)), each)
    values, slopes = formula(x, logx, own.T[:, :, None])
    logs = np.log(weights) + values
    top = np.maximum(logs.max(axis=0), -1e300)
    members = np.exp(logs - top)
    total = members.sum(axis=0)
    members /= total
    return Sloped(top + np.log(total), weights, members, np.stack(slopes, axis=1))


def _lognorm_density(x: Floats, logx: Floats, p: Floats) -> tuple[Floats, tuple[Floats, ...]]:
    z = (logx - np.log(p[1])) / p[0]
    square = z * z
    return -0.5 * square - logx - (np.log(p[0]) + f.HALF_LOG_2PI), (square - 1, z / p[0])


def _lognorm_survival(x: Floats, logx: Floats, p: Floats) -> tuple[Floats, tuple[Floats, ...]]:
    values = f.lognorm_logsf(x, logx, p)
    z = (logx - np.log(p[1])) / p[0]
    hazard = np.exp(np.minimum(-0.5 * z * z - f.HALF_LOG_2PI - values, 50.0))
    return values, (hazard * z, hazard / p[0])


def _expon_density(x: Floats, logx: Floats, p: Floats) -> tuple[Floats, tuple[Floats, ...]]:
    ratio = x / p[0]
    return -np.log(p[0]) - ratio, (ratio - 1,)


def _expon_survival(x: Floats, logx: Floats, p: Floats) -> tuple[Floats, tuple[Floats, ...]]:
    ratio = x / p[0]
    return -ratio, (ratio,)


_FORMULAS: dict[str, tuple[Formula, Formula]] = {
    "expon": (_expon_density, _expon_survival),
    "lognorm": (_lognorm_density, _lognorm_survival),
}
