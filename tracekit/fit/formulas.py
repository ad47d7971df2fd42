"""Log-density and log-survival of each family, in scipy's parameters with loc = 0.

Plain NumPy, because a fit calls them hundreds of times; the tests compare each with scipy.stats. `x` are durations
above 0, `logx` their logarithms (an argument, because a fit computes them once), `p` the parameters in the order of the
family: numbers, or columns of numbers with one row of results each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats


HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


def _exp(x: Floats) -> Floats:
    # A far-off trial value gives 0 density, not a warning.
    return np.exp(np.minimum(x, 700.0))


def _softplus(x: Floats) -> Floats:
    """Return log(1 + exp(x))."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def expon_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -np.log(p[0]) - x / p[0]
    return found


def expon_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -x / p[0]
    return found


def lognorm_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    z = (logx - np.log(p[1])) / p[0]
    found: Floats = -0.5 * z * z - logx - (np.log(p[0]) + HALF_LOG_2PI)
    return found


def lognorm_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = special.log_ndtr((np.log(p[1]) - logx) / p[0])
    return found


def weibull_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    z = p[0] * (logx - np.log(p[1]))
    found: Floats = np.log(p[0]) - logx + z - _exp(z)
    return found


def weibull_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -_exp(p[0] * (logx - np.log(p[1])))
    return found


def gamma_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    constant = special.gammaln(p[0]) + p[0] * np.log(p[1])
    found: Floats = (p[0] - 1) * logx - x / p[1] - constant
    return found


def gamma_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    y = x / p[1]
    upper = special.gammaincc(p[0], y)
    far = upper < 1e-290
    # Beyond the smallest number: the leading term of the asymptotic series.
    series = (p[0] - 1) * np.log(np.maximum(y, 1e-300)) - y - special.gammaln(p[0])
    found: Floats = np.where(far, series, np.log(np.where(far, 1.0, upper)))
    return found


def fisk_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    z = p[0] * (logx - np.log(p[1]))
    found: Floats = np.log(p[0]) - logx + z - 2 * _softplus(z)
    return found


def fisk_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -_softplus(p[0] * (logx - np.log(p[1])))
    return found


def lomax_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = np.log(p[0]) - np.log(p[1]) - (p[0] + 1) * np.log1p(x / p[1])
    return found


def lomax_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -p[0] * np.log1p(x / p[1])
    return found


def burr12_logpdf(x: Floats, logx: Floats, p: Floats) -> Floats:
    z = p[0] * (logx - np.log(p[2]))
    found: Floats = np.log(p[0] * p[1]) - logx + z - (p[1] + 1) * _softplus(z)
    return found


def burr12_logsf(x: Floats, logx: Floats, p: Floats) -> Floats:
    found: Floats = -p[1] * _softplus(p[0] * (logx - np.log(p[2])))
    return found


def mixture(part: Any, parts: int) -> Any:
    """Return the log of the weighted sum of `parts` copies of a formula.

    The parameters are those of part 1 (its weight first), then those of part 2, and so on.
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
