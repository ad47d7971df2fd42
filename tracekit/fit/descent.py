"""Minimize a function of a few bounded variables by BFGS steps.

In place of scipy's L-BFGS-B, whose linear algebra of a handful of variables goes through threaded LAPACK calls: on a
busy machine each takes milliseconds, many times the function itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["descend"]

_LEAP = 4.0
"""Longest step of a coordinate."""
_HALVES = 25
_FLAT = 1e-5
"""Gradient at which to stop."""


def descend(
    fall: Callable[[Floats], tuple[float, Floats]],
    x: Floats,
    low: Floats,
    high: Floats,
    *,
    rounds: int = 100,
    gain: float = 1e-10,
) -> tuple[Floats, float]:
    """Return the point that was reached and the value there.

    Parameters
    ----------
    fall : callable
        Point to value and gradient.
    x : array
        Where to begin.
    low, high : array
        Bounds of each variable.
    rounds : int
        Most steps.
    gain : float
        Relative gain of a step at which to stop.
    """
    x = np.clip(x, low, high)
    value, slope = fall(x)
    inverse: Floats | None = None
    for _ in range(rounds):
        free = ~(((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)))
        if not free.any() or np.abs(slope[free]).max() < _FLAT:
            break
        reached = _step(fall, x, value, slope, free, inverse, low, high)
        if reached is None:
            if inverse is None:
                break
            inverse = None
            continue
        new, new_value, new_slope = reached
        inverse = _updated(inverse, new - x, new_slope - slope)
        small = value - new_value <= gain * max(abs(value), abs(new_value), 1.0)
        x, value, slope = new, new_value, new_slope
        if small:
            break
    return x, value


def _step(
    fall: Callable[[Floats], tuple[float, Floats]],
    x: Floats,
    value: float,
    slope: Floats,
    free: NDArray[np.bool_],
    inverse: Floats | None,
    low: Floats,
    high: Floats,
) -> tuple[Floats, float, Floats] | None:
    """Return the next point with its value and gradient; None where no step of the direction goes down."""
    step = np.zeros(x.size)
    if inverse is None:
        step[free] = -slope[free] / np.sqrt(slope[free] @ slope[free])
    else:
        step[free] = -(inverse[np.ix_(free, free)] @ slope[free])
    if not np.isfinite(step).all():
        return None
    step /= max(1.0, float(np.abs(step).max()) / _LEAP)
    for _ in range(_HALVES):
        new = np.clip(x + step, low, high)
        expected = float(slope @ (new - x))
        if expected >= 0:
            return None
        found, found_slope = fall(new)
        if found <= value + 1e-4 * expected:
            return new, found, found_slope
        # The parabola through value, slope and what was found, held between a tenth and a half.
        curve = 2 * (found - value - expected)
        step = step * (float(np.clip(-expected / curve, 0.1, 0.5)) if curve > 0 else 0.5)
    return None


def _updated(inverse: Floats | None, step: Floats, turn: Floats) -> Floats | None:
    """Return the inverse curvature after a step along which the gradient turned."""
    product = float(step @ turn)
    if product <= 1e-10 * float(np.sqrt((step @ step) * (turn @ turn))):
        return inverse
    if inverse is None:
        inverse = np.eye(step.size) * (product / float(turn @ turn))
    toward = inverse @ turn
    whole = 1 + float(turn @ toward) / product
    mixed = np.outer(toward, step)
    return inverse + (whole * np.outer(step, step) - mixed - mixed.T) / product
