"""When the nodes of a Trace are away, according to its table node_events."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.replay.jobs import naive_utc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.replay.clusters.nodes import Node
    from tracekit.replay.jobs import Jobs
    from tracekit.trace import Trace


AWAY = ("down", "drained", "maintenance")
"""States in which a node takes no new jobs; a degraded node still does."""

_EPOCH = dt.datetime(1970, 1, 1)


def milliseconds_after_origin(times: pl.Series, jobs: Jobs, load: float = 1.0) -> NDArray[np.int64]:
    """Return times after the origin of the jobs [ms], compressed by the factor `load` of the replay."""
    origin = naive_utc(jobs.origin) - _EPOCH
    micros = times.cast(pl.Int64).to_numpy() - origin // dt.timedelta(microseconds=1)
    return np.floor(micros / (1000 * load) + 0.5).astype(np.int64)


def with_absences(nodes: Sequence[Node], trace: Trace, jobs: Jobs, load: float = 1.0) -> list[Node]:
    """Return the nodes, away during their events in the Trace and available otherwise.

    Overlapping or adjacent events of one node count as one; an event without an end lasts forever. Events of other
    nodes, and events in which a node works, have no effect.

    Parameters
    ----------
    nodes : sequence of Node
        Nodes without changes.
    trace : Trace
    jobs : Jobs
        Node times count from the origin of these jobs.
    load : float
        Factor by which the jobs' submissions are compressed in time.
    """
    if not trace.has("node_events"):
        return list(nodes)
    events = (
        trace.scan("node_events")
        .filter(pl.col("state").is_in(AWAY) & pl.col("node_id").is_in([node.name for node in nodes]))
        .select("node_id", "start_time", "end_time")
        .drop_nulls("start_time")
        .collect()
    )
    begins = milliseconds_after_origin(events["start_time"], jobs, load).tolist()
    ended = events["end_time"].is_not_null()
    ends = milliseconds_after_origin(events["end_time"].fill_null(events["start_time"]), jobs, load).tolist()
    spans: dict[str, list[tuple[int, int | None]]] = {}
    for name, begin, end, over in zip(events["node_id"], begins, ends, ended, strict=True):
        spans.setdefault(name, []).append((begin, end if over else None))
    return [_away(node, spans[node.name]) if node.name in spans else node for node in nodes]


def _away(node: Node, spans: list[tuple[int, int | None]]) -> Node:
    """Return a node that is away in the given spans [ms]; an end of None means forever."""
    joined: list[tuple[int, int | None]] = []
    for begin, end in sorted(spans, key=lambda span: span[0]):
        last = joined[-1] if joined else None
        if last is not None and (last[1] is None or begin <= last[1]):
            over = None if last[1] is None or end is None else max(last[1], end)
            joined[-1] = (last[0], over)
        else:
            joined.append((begin, end))
    # A span that ends before the origin, or at its start, has no effect.
    held = [(begin, end) for begin, end in joined if end is None or end > max(begin, 0)]
    changes = [(begin, False) for begin, _ in held if begin > 0] + [(end, True) for _, end in held if end is not None]
    return replace(node, absent=any(begin <= 0 for begin, _ in held), changes=tuple(sorted(changes)))
