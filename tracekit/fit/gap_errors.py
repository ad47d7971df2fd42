"""Standard errors of the parameters of an arrival process, from the observed information of its gaps."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from tracekit.fit.modulation import Modulated, gamma_log_likelihood, modulated_log_likelihood

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.fit.arrays import Floats

__all__ = ["gamma_errors", "modulated_errors"]

_STEP = 1e-3
"""Step of the second differences, in logarithms and log odds."""


def gamma_errors(gaps: Floats, a: float, scale: float, least: float) -> dict[str, float] | None:
    """Return the standard errors of a gamma renewal process, None where the likelihood has no inner maximum."""

    def named(theta: Floats) -> dict[str, float]:
        return {"a": float(np.exp(theta[0])), "scale": float(np.exp(theta[1]))}

    def likelihood(theta: Floats) -> float:
        return gamma_log_likelihood(gaps, **named(theta), least=least)

    return _errors(likelihood, named, np.log([a, scale]))


def modulated_errors(gaps: Floats, process: Modulated) -> dict[str, float] | None:
    """Return the standard errors of a two-state process, of which three numbers are free: its mean rate is 1."""

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
    """Return the errors of named parameters by the delta method; None where the information is not positive."""
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
