"""Best intervals between checkpoints."""

from __future__ import annotations

import math

__all__ = ["daly_interval"]


def daly_interval(cost_s: float, mtbf_s: float) -> float:
    """Return the work between two checkpoints that loses least time, to Daly's higher order [s].

    With cost d and mean time between failures M: sqrt(2dM) * (1 + sqrt(d / 2M) / 3 + d / 18M) - d for d < 2M, else M
    (Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 2006, eq. 37).
    """
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    part = cost_s / (2 * mtbf_s)
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + math.sqrt(part) / 3 + part / 9) - cost_s
