"""Run times drawn from an entry of workload.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from tracekit.errors import UsageError
from tracekit.fit.families import FAMILIES, quantiles
from tracekit.fit.splice import Splice, spliced_quantiles

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats


_UNSEEN = 10
"""Factor on the longest run time of the log, for a group of which more than 1 % still ran."""


def longest_drawn(longest_s: float | None, n: int, right_censored: int) -> float:
    """Return the longest run time that is drawn for a group [s].

    That of the log, since it bounds what the machines and their limits allow; ten times that where more than 1 % of
    the group still ran, since the longest that was seen is then not the longest there is.
    """
    return max(float(longest_s or 0.0), 1.0) * (_UNSEEN if right_censored > 0.01 * n else 1)


def drawn_durations(entry: dict[str, Any], bound_s: float, scores: Floats) -> Floats:
    """Return the durations [s] of a fitted group, cut at a bound, at given normal scores; they are not rounded.

    Parameters
    ----------
    entry : dict
        With a fit of its own: `pooled_to` is None.
    bound_s : float
        The longest that is drawn [s].
    scores : array

    Raises
    ------
    UsageError
        No duration of the group is known to its end, so there is nothing to draw from.
    """
    # Files of earlier versions do not say what is drawn from.
    source = entry.get("drawn_from") or ("quantiles" if entry["chosen"] is None else "family")
    if source == "quantiles":
        if entry["quantiles_s"] is None:
            what = f"the model has no durations to draw from: none of {entry['n']:,} is known to its end"
            raise UsageError(what, hint="fit a Trace with ended runs")
        shares, values = np.array(entry["quantiles_s"], float).T
        # A run time of 0 has no logarithm; a quarter of a step is rounded to 0.
        logs = np.log(np.maximum(values, entry["resolution_s"] / 4))
        within = np.interp(np.log(bound_s), logs, shares) if bound_s < values[-1] else 1.0
        found: Floats = np.exp(np.interp(special.ndtr(scores) * within, shares, logs))
        return found
    family = FAMILIES[entry["chosen"]]
    p = family.vector(next(f for f in entry["families"] if f["family"] == family.name)["parameters"])
    if source == "family+tail" and bound_s > entry["tail"]["truncated"]["xmin_s"]:
        tail = entry["tail"]["truncated"]
        bound = min(bound_s, tail["bound_s"])
        splice = Splice(tail["xmin_s"], tail["parameters"]["b"], tail["share_above"], bound)
        return spliced_quantiles(family, p, splice, scores)
    return quantiles(family, p, scores, longest_s=bound_s)
