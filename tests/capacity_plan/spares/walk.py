"""Simulate a gang with spares moment by moment in plain Python, for comparison with the plan's replays."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Away", "walked"]

Away = tuple[int, int, int, bool]
"""Node, begin and end [ms], and whether jobs on the node stop."""


def walked(  # noqa: C901, PLR0912 -- one moment after the other
    gang: int, nodes: int, away: Sequence[Away], span: int, period: int, progress: float, restart: int
) -> tuple[float, ...]:
    """Return the time saved, spent on saving, lost, restarting and waiting [ms], and how often outages stop the gang.

    Parameters
    ----------
    gang, nodes : int
        Number of nodes that the gang uses, and of all nodes. The last nodes are spares at first.
    away : sequence
        Times during which nodes are away.
    span : int
        Length of the log [ms].
    period, progress
        Time of work including one checkpoint [ms], and the part of this time that is work.
    restart : int
        Length of a restart [ms].
    """
    leaves, comes = defaultdict(list), defaultdict(list)
    stops = defaultdict(set)
    for node in range(nodes):
        spans: list[list[int]] = []
        for _, since, until, kills in sorted(a for a in away if a[0] == node):
            if kills:
                stops[since].add(node)
            if spans and since <= spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], until)
            else:
                spans.append([since, until])
        for since, until in spans:
            leaves[max(since, 0)].append(node)
            comes[until].append(node)
    working, standby = set(range(gang)), set(range(gang, nodes))
    on: frozenset[int] = frozenset()
    began, failures = 0, 0
    saved = saving = lost = restarting = 0.0
    ran = 0

    def leave(node: int) -> None:
        standby.discard(node)
        if node in working:
            working.discard(node)
            if standby:
                working.add(min(standby))
                standby.discard(min(standby))

    def come(node: int) -> None:
        (working if len(working) < gang else standby).add(node)

    # Spares that are away at the start replace no node.
    for node in sorted(leaves[0], reverse=True):
        if node >= gang:
            standby.discard(node)
    for node in sorted(leaves.pop(0)):
        leave(node)
    stop_times = sorted({span, *(t for t in (*leaves, *comes, *stops) if 0 < t < span)})
    for time in [0, *stop_times]:
        if on and (time == span or (time > 0 and stops[time] & on)):
            length = time - began
            overhead = min(length, restart if failures else 0)
            whole = (length - overhead) // period * period
            saved, saving = saved + whole * progress, saving + whole * (1 - progress)
            lost, restarting, ran = lost + length - overhead - whole, restarting + overhead, ran + length
            failures += time < span
            on = frozenset()
        if time > 0:
            for node in sorted(comes.get(time, ())):
                come(node)
            for node in sorted(leaves.get(time, ())):
                leave(node)
        if not on and time < span and len(working) == gang:
            on, began = frozenset(working), time
    return saved, saving, lost, restarting, span - ran, failures
