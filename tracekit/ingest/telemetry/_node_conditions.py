"""Turn the conditions of Kubernetes nodes, as exported by kube-state-metrics, into node events.

`kube_node_status_condition` has one series per status of each condition, with the value 1 while that status holds. A
node is down while its condition Ready is false or unknown. `kube_node_spec_unschedulable` is 1 while a node is
cordoned; the node is then drained. Names: github.com/kubernetes/kube-state-metrics, page node-metrics.md.

An event lasts from the first sample that shows it to the first later sample that does not; both are late by up to one
sampling interval. If the first sample of a node already shows the event, it began earlier, at an unknown time; the
event then begins with that sample, and is counted. An event that the last sample still shows has no end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.ingest.node_events import Machine, add_events, cause_of, machine_ids
from tracekit.ingest.telemetry._metrics import NODE_METRICS
from tracekit.ingest.telemetry._series import Labels
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import duckdb
    from numpy.typing import NDArray

    from tracekit.ingest.sink import Sink
    from tracekit.ingest.telemetry._series import Samples

SOURCE = "kube-state-metrics"
_LIST = "kubernetes"
"""Source of the states in a node list, which have no ends."""

_READY, _CORDONED = NODE_METRICS
_WORDS = {f"{_READY}.false": "Ready is false", f"{_READY}.unknown": "Ready is unknown", f"{_READY}.true": None}
"""Meaning of a series whose value is 1; the series 'true' is inverted."""

_BEFORE = (
    "outages of Kubernetes nodes in the first sample of the node; they began earlier, but are recorded from that "
    "sample on"
)
_NO_NODE = "series on conditions of Kubernetes nodes without a node name; ignored"
_AMBIGUOUS = "Kubernetes nodes whose name matches several machines of the log; ignored"


def condition_of(metric: Mapping[str, object]) -> tuple[str, Labels] | None:
    """Return the condition and the node of a series; None for a series of another metric or another condition.

    The node is in the label `exported_node` if Prometheus renamed it because the exporter's own label is `node`.
    """
    name = metric.get("__name__")
    if name not in NODE_METRICS:
        return None
    if name == _READY:
        if metric.get("condition") != "Ready":
            return None
        name = f"{name}.{metric.get('status')}"
        if name not in _WORDS:
            return None
    node = metric.get("exported_node") or metric.get("node")
    return str(name), Labels(node if isinstance(node, str) else None, None, None, None, None, None, None)


class _Points(NamedTuple):
    """Samples of one series, without those between two equal samples."""

    times: NDArray[np.int64]
    holds: NDArray[np.bool_]


class _Span(NamedTuple):
    """A time in which a condition held [us since 1970]; `end` is None if the last sample still shows it."""

    start: int
    end: int | None
    words: str | None
    first: bool
    """Whether the first sample already shows it."""


class NodeConditions:
    """Collects samples of conditions, and writes the resulting events."""

    def __init__(self) -> None:
        self._points: dict[str | None, dict[str, list[_Points]]] = defaultdict(lambda: defaultdict(list))

    def __bool__(self) -> bool:
        """Return whether there is any sample."""
        return bool(self._points)

    def add(self, samples: Samples) -> bool:
        """Add samples, and return whether they belong to a condition."""
        if samples.metric not in _WORDS and samples.metric != _CORDONED:
            return False
        holds = samples.values > 0.5
        kept = np.ones(len(holds), dtype=bool)
        kept[1:-1] = (holds[1:-1] != holds[:-2]) | (holds[1:-1] != holds[2:])
        self._points[samples.labels.host][samples.metric].append(_Points(samples.times[kept], holds[kept]))
        return True

    def write(self, con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
        """Add the events to node_events; they replace states from Kubernetes node lists, which have no end.

        Parameters
        ----------
        con : DuckDB connection
            Contains the log's nodes and placements.
        """
        nameless = self._points.pop(None, {})
        if nameless:
            sink.check("node_conditions_without_node", sum(map(len, nameless.values())), None, _NO_NODE)
        known = con.execute(
            "SELECT node_id, any_value(cluster) FROM (SELECT node_id, cluster FROM nodes UNION ALL "
            "SELECT node_id, NULL FROM placements) GROUP BY node_id ORDER BY node_id"
        ).fetchall()
        hosts = sorted(host for host in self._points if host is not None)
        ids, doubtful = machine_ids([Machine(*row) for row in known], (Machine(host, None) for host in hosts))
        sink.check("ambiguous_node_conditions", len(doubtful), len(hosts), _AMBIGUOUS, doubtful)
        nodes = {host: ids[Machine(host, None)] for host in hosts if Machine(host, None) in ids}
        rows = [(node, *event) for host, node in nodes.items() for event in _events(self._points[host])]
        old = [node for node, *_, first in rows if first]
        sink.check("node_conditions_before_samples", len(old), len(rows), _BEFORE, old)
        _write(con, [row[:-1] for row in rows], sorted(set(nodes.values())), sink)


def _events(points: dict[str, list[_Points]]) -> Iterator[tuple[int, int | None, str, str | None, bool]]:
    """Yield start, end, state, words, and whether the first sample shows it."""
    for span in _spans({words: _merged(points[name], name) for name, words in _WORDS.items() if name in points}):
        yield span.start, span.end, "down", span.words, span.first
    if _CORDONED in points:
        for span in _spans({None: _merged(points[_CORDONED], _CORDONED)}):
            yield span.start, span.end, "drained", None, span.first


def _merged(parts: list[_Points], name: str) -> _Points:
    """Return the samples of all answers in order; if two of the same time differ, the node is out of service."""
    times, holds = np.concatenate([p.times for p in parts]), np.concatenate([p.holds for p in parts])
    if name == f"{_READY}.true":
        holds = ~holds
    instants, at = np.unique(times, return_inverse=True)
    any_holds = np.zeros(len(instants), dtype=bool)
    np.logical_or.at(any_holds, at, holds)
    return _Points(instants, any_holds)


def _spans(series: dict[str | None, _Points]) -> list[_Span]:
    """Return the times in which any of the series holds, each according to its last sample."""
    if not series:
        return []
    instants = np.unique(np.concatenate([p.times for p in series.values()]))
    holds = np.zeros((len(series), len(instants)), dtype=bool)
    for row, points in enumerate(series.values()):
        last = np.searchsorted(points.times, instants, side="right") - 1
        holds[row, last >= 0] = points.holds[last[last >= 0]]
    out = holds.any(axis=0)
    turns = np.flatnonzero(np.diff(out.astype(np.int8), prepend=0))
    words = list(series)
    found = []
    for start, end in zip(turns[::2], [*turns[1::2], None], strict=False):
        said = next((words[row] for row in np.flatnonzero(holds[:, start]) if words[row]), None)
        until = None if end is None else int(instants[end])
        found.append(_Span(int(instants[start]), until, said, bool(start == 0)))
    return found


def _write(
    con: duckdb.DuckDBPyConnection,
    rows: list[tuple[str, int, int | None, str, str | None]],
    nodes: list[str],
    sink: Sink,
) -> None:
    frame = pl.DataFrame(
        rows,
        schema={
            "node_id": pl.String,
            "start": pl.Int64,
            "end": pl.Int64,
            "state": pl.String,
            "source_cause": pl.String,
        },
        orient="row",
    ).select(
        "node_id",
        *(pl.col(name).cast(pl.Datetime("us")).alias(f"{name}_time") for name in ("start", "end")),
        "state",
        pl.Series("cause", [cause_of(row[4]) for row in rows], dtype=pl.String),
        "source_cause",
        pl.lit(SOURCE).alias("source"),
    )
    if not rows and not sink.has("node_events"):
        return
    con.register("condition_event", frame.to_arrow())
    con.register("condition_node", pl.DataFrame({"node_id": nodes}, schema={"node_id": pl.String}).to_arrow())
    listed = f"source IS NOT DISTINCT FROM '{_LIST}' AND node_id IN (SELECT node_id FROM condition_node)"
    if sink.has("node_events"):
        left = con.execute(f"SELECT count(*) FROM {sink.rows('node_events')} WHERE {listed}").fetchall()[0][0]
        if left:
            sink.note(f"states in Kubernetes node lists are ignored ({left}), because samples show when they end")
    add_events(con, sink, "SELECT * FROM condition_event", f"NOT ({listed})")
    sink.note(f"{counted(len(rows), 'events')} of {counted(len(nodes), 'Kubernetes nodes')} from {SOURCE}")
