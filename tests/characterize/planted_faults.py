"""Logs of node failures with a known distribution, where each node works, fails and returns after an hour."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

__all__ = ["END", "events_of", "hour", "job_over", "renewals"]

END = 10_000.0
"""Length of a planted log [h]."""


def hour(number: float | None) -> dt.datetime | None:
    """Return a number of hours as a time in the log, or None for None."""
    return None if number is None else dt.datetime(2020, 1, 1) + dt.timedelta(hours=number)


def job_over(end: float = END) -> list[dict[str, Any]]:
    """Return the jobs table with one job that spans the log, so that the log covers that time."""
    return [{"job_id": "j", "submit_time": hour(0), "end_time": hour(end)}]


def renewals(
    nodes: int, draw: Callable[[np.random.Generator, int], float], rng: np.random.Generator, end: float = END
) -> dict[str, list[float]]:
    """Return when each node fails [h], given the time that a node works until it fails."""
    found: dict[str, list[float]] = {}
    for node in range(nodes):
        now, times = draw(rng, node), []
        while now < end:
            times.append(now)
            now += 1 + draw(rng, node)
        found[f"n{node}"] = times
    return found


def events_of(times: dict[str, list[float]], cause: str = "fan") -> list[dict[str, Any]]:
    """Return rows of node_events, with an hour of outage for each failure."""
    return [
        {"node_id": node, "start_time": hour(t), "end_time": hour(t + 1), "state": "down", "cause": cause}
        for node, own in times.items()
        for t in own
    ]
