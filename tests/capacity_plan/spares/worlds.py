"""Nodes with known times away."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.capacity_plan.spare_runs import NodePool

if TYPE_CHECKING:
    from tests.capacity_plan.spares.walk import Away

__all__ = ["DAY", "HOUR", "event", "failing", "pool_of"]

HOUR, DAY = 3_600_000, 86_400_000
"""[ms]"""


def pool_of(nodes: int, span: int, away: list[Away]) -> NodePool:
    """Return 8-GPU nodes with these times away, in a log of length `span` [ms]."""
    rows = sorted(away, key=lambda one: (one[1], one[0], one[2], one[3]))
    node, since, until, kills = ([row[k] for row in rows] for k in range(4))
    return NodePool(
        nodes, 8, 0, span, np.array(node, np.int32), np.array(since, np.int64), np.array(until, np.int64),
        np.array(kills, np.bool_),
    )  # fmt: skip


def event(node: str, start: float, end: float | None, state: str = "down") -> dict[str, Any]:
    """Return a row of node_events, with times in hours since the start of 2020."""
    times = [None if h is None else dt.datetime(2020, 1, 1) + dt.timedelta(hours=h) for h in (start, end)]
    return {"node_id": node, "start_time": times[0], "end_time": times[1], "state": state, "source": "test"}


def failing(nodes: int, days: int, works_days: float, away_h: float, seed: int, together: int = 1) -> list[Away]:
    """Return times away of nodes that are up and down for exponential times, in groups that fail together.

    The nodes begin in their long-run state, so some are away at the start.
    """
    rng = np.random.default_rng(seed)
    found: list[Away] = []
    for group in range(nodes // together):
        now = 0.0
        if rng.random() < away_h * HOUR / (away_h * HOUR + works_days * DAY):
            now = -1.0
        while now < days * DAY:
            since = now if now < 0 else now + rng.exponential(works_days * DAY)
            until = max(since, 0) + max(rng.exponential(away_h * HOUR), 1)
            found += [(group * together + n, int(since), int(until), True) for n in range(together)]
            now = until
    return [row for row in found if row[1] < days * DAY]
