"""The minimizer of all fits: scipy's L-BFGS-B."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.fit.arrays import Floats


def minimize(
    fall: Callable[[Floats], Any],
    begin: Floats,
    bounds: Sequence[tuple[float, float]],
    *,
    gradient: bool = False,
    **options: float,
) -> tuple[float, Floats]:
    """Return the least value that is found from a starting point, and where it is.

    Parameters
    ----------
    fall : callable
        Function of an array of coordinates; where `gradient` says so it returns its value and its gradient.
    begin : array
        Starting point, within the bounds.
    bounds : sequence of tuple
        Lowest and highest value of each coordinate.
    **options : float
        Options of scipy.optimize.minimize(method="L-BFGS-B").
    """
    # Imported here: it takes a third of a second, and pages that show a fit made elsewhere import this package too.
    from scipy import optimize

    descend: Any = optimize.minimize  # scipy's types want a constant for `jac`
    found = descend(fall, begin, jac=gradient, method="L-BFGS-B", bounds=bounds, options=options)
    return float(found.fun), np.asarray(found.x, float)
