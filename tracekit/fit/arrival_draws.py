"""Arrival times drawn from the fitted arrivals of a workload, at the rate that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.fit.batch_draws import draw_batches
from tracekit.fit.session_draws import session_seconds

if TYPE_CHECKING:
    from tracekit.fit.arrays import Whole


__all__ = ["RATES", "at_rate", "draw_arrivals"]

RATES = ("mean", "end", "fitted")
"""Rates of arrivals that a model can be drawn with."""


def at_rate(arrivals: dict[str, Any], rate: str) -> dict[str, Any]:
    """Return the part of workload.json with another rate: the mean one of the log, or that at its end, that stays.

    The end is that of the trend, or the last piece. 'fitted' leaves the rate as it is.
    """
    if rate == "fitted":
        return arrivals
    if arrivals.get("sessions"):
        starts = at_rate({"days": arrivals["days"], **arrivals["sessions"]["starts"]}, rate)
        arrivals = {**arrivals, "sessions": {**arrivals["sessions"], "starts": starts}}
    known = arrivals["rate"]
    pieces = known.get("pieces") or []
    growth = min(known["trend_per_day"] * arrivals["days"], 500.0)
    if rate == "end":
        per_hour = pieces[-1]["per_hour"] if pieces else known["per_hour"] * float(np.exp(growth))
    elif known.get("mean_per_hour") is not None:
        per_hour = known["mean_per_hour"]
    else:  # a file of an earlier version: the mean of the trend
        per_hour = known["per_hour"] * (float(np.expm1(growth)) / growth if abs(growth) > 1e-9 else 1.0)
    flat = {"form": "constant", "per_hour": per_hour, "trend_per_day": 0.0, "pieces": []}
    return {**arrivals, "rate": {**known, **flat}}


def draw_arrivals(
    arrivals: dict[str, Any], rng: np.random.Generator, *, jobs: int | None, days: float | None, load: float
) -> tuple[Whole, Whole]:
    """Return the submission second of every job, and the number of its batch: jobs of one second, in sessions.

    Parameters and errors are those of `draw_batches`. What the jobs of a session have in common is not drawn here but
    by `tracekit.fit.session_draws.draw_sessions`.
    """
    if arrivals["process"] != "sessions":
        return draw_batches(arrivals, rng, jobs=jobs, days=days, load=load)
    seconds = session_seconds(arrivals, rng, jobs=jobs, days=days, load=load)
    return seconds, np.unique(seconds, return_inverse=True)[1]
