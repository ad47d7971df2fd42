"""Turn Kubernetes node conditions, as exported by kube-state-metrics, into node events.

`kube_node_status_condition` has one series per status of each condition, with the value 1 while the condition has that
status. A node is down while its Ready condition is false or unknown. `kube_node_spec_unschedulable` is 1 while a node
is cordoned, which means drained. Names: github.com/kubernetes/kube-state-metrics, page node-metrics.md.

An event lasts from the first sample that shows it to the next sample that does not, so its start and end are up to one
sampling interval late. If a node's first sample already shows an event, it began earlier, at an unknown time; its
recorded start is that sample, and it is counted. An event in the last sample has no end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.ingest.node_events import add_events, cause_of, match_machines
from tracekit.ingest.telemetry._series import NODE_METRICS, Labels
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.ingest.sink import Sink
    from tracekit.ingest.telemetry._series import Samples

SOURCE = "kube-state-metrics"
_LIST = "kubernetes"
"""Source of the states in a node list. These states have no ends."""

_READY, _CORDONED = NODE_METRICS
_WORDS = {f"{_READY}.false": "Ready is false", f"{_READY}.unknown": "Ready is unknown", f"{_READY}.true": None}
"""Meaning of a series with the value 1. The 'true' series is inverted."""

_BEFORE = (
    "outages that a Kubernetes node's first sample already shows; they began earlier, but their recorded start is "
    "that sample"
)
_NO_NODE = "series of Kubernetes node conditions without a node name; ignored"
_AMBIGUOUS = "Kubernetes nodes whose name matches several machines of the log; ignored"


def condition_of(metric: Mapping[str, object]) -> tuple[str, Labels] | None:
    """Return a series' condition and node, or None for a series of another metric or another condition.

    If the exporter has its own `node` label, Prometheus renames the node's label to `exported_node`.
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


class NodeConditions:
    """Collects condition samples, and writes the resulting events."""

    def __init__(self) -> None:
        kinds = {"host": pl.String, "metric": pl.String, "time": pl.Int64, "holds": pl.Boolean}
        self._parts = [pl.DataFrame(schema=kinds)]
        self._nameless = 0

    def __bool__(self) -> bool:
        """Return whether any sample was added."""
        return len(self._parts) > 1 or self._nameless > 0

    def add(self, samples: Samples) -> bool:
        """Add samples, and return whether they belong to a condition."""
        metric, host = samples.metric, samples.labels.host
        if metric not in (*_WORDS, _CORDONED):
            return False
        if host is None:
            self._nameless += 1
            return True
        holds = (samples.values > 0.5) != (metric == f"{_READY}.true")
        # Samples between two equal samples change nothing.
        kept = np.ones(len(holds), dtype=bool)
        kept[1:-1] = (holds[1:-1] != holds[:-2]) | (holds[1:-1] != holds[2:])
        part = pl.DataFrame({"time": samples.times[kept], "holds": holds[kept]})
        self._parts.append(part.select(pl.lit(host).alias("host"), pl.lit(metric).alias("metric"), "time", "holds"))
        return True

    def write(self, con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
        """Add the events to node_events. They replace states from Kubernetes node lists, which have no end.

        Parameters
        ----------
        con : DuckDB connection
            Contains the log's nodes and placements.
        """
        if self._nameless:
            sink.check("node_conditions_without_node", self._nameless, None, _NO_NODE)
        known = con.execute(
            "SELECT node_id, any_value(cluster) FROM (SELECT node_id, cluster FROM nodes UNION ALL "
            "SELECT node_id, NULL FROM placements) GROUP BY node_id ORDER BY node_id"
        ).fetchall()
        samples = pl.concat(self._parts)
        hosts = samples.select("host").unique().with_columns(cluster=pl.lit(None, dtype=pl.String))
        nodes = match_machines(known, hosts, sink, "ambiguous_node_conditions", _AMBIGUOUS).drop("cluster")
        events = (
            pl.concat([outages(samples, _WORDS, "down"), outages(samples, {_CORDONED: None}, "drained")])
            .sort("host", maintain_order=True)
            .join(nodes, on="host", maintain_order="left")
        )
        old = events.filter("first")["node_id"]
        sink.check("node_conditions_before_samples", len(old), len(events), _BEFORE, old)
        if not len(events) and not sink.has("node_events"):
            return
        causes = [cause_of(words) for words in events["source_cause"]]
        rows = events.with_columns(pl.Series("cause", causes, dtype=pl.String), source=pl.lit(SOURCE))
        con.register("condition_event", rows.drop("host", "first").to_arrow())
        con.register("condition_node", nodes.select("node_id").to_arrow())
        listed = f"source IS NOT DISTINCT FROM '{_LIST}' AND node_id IN (SELECT node_id FROM condition_node)"
        if sink.has("node_events"):
            left = con.execute(f"SELECT count(*) FROM {sink.rows('node_events')} WHERE {listed}").fetchall()[0][0]
            if left:
                sink.note(f"states in Kubernetes node lists are ignored ({left}), because samples show when they end")
        add_events(con, sink, "SELECT * FROM condition_event", f"NOT ({listed})")
        on = counted(nodes["node_id"].n_unique(), "Kubernetes nodes")
        sink.note(f"{counted(len(events), 'events')} of {on} from {SOURCE}")


def outages(samples: pl.DataFrame, words: Mapping[str, str | None], state: str) -> pl.DataFrame:
    """Return the times in which the last sample of some metric in `words` holds.

    Parameters
    ----------
    samples : DataFrame
        Columns host, metric, time [us since 1970] and holds. If two samples at the same time differ, the metric holds.

    Returns
    -------
    DataFrame
        Columns host, start_time, end_time (NULL if the last sample still shows the outage), state, source_cause (the
        words of the first metric that holds at the start) and `first` (whether the host's first sample shows it).
    """
    own = (
        samples.filter(pl.col("metric").is_in(list(words)))
        .group_by("host", "metric", "time")
        .agg(pl.col("holds").any())
    )
    shown = [name for name in words if name in own["metric"]]
    wide = (
        samples.select("host", "time").clear()
        if own.is_empty()
        else own.pivot("metric", index=["host", "time"], values="holds").sort("host", "time")
    )
    wide = wide.with_columns(pl.col(shown).forward_fill().over("host"))
    said = [pl.when(name).then(pl.lit(words[name], dtype=pl.String)) for name in shown]
    out, none = pl.any_horizontal(pl.lit(value=False), *shown).fill_null(value=False), pl.lit(None, dtype=pl.String)
    return (
        wide.with_columns(out=out, source_cause=pl.coalesce(*said, none))
        .with_columns(
            turns=pl.col("out") != pl.col("out").shift(1, fill_value=False).over("host"),
            first=pl.int_range(pl.len()).over("host") == 0,
        )
        .filter("turns")
        .with_columns(end=pl.col("time").shift(-1).over("host"))
        .filter("out")
        .select(
            "host",
            pl.col("time").cast(pl.Datetime("us")).alias("start_time"),
            pl.col("end").cast(pl.Datetime("us")).alias("end_time"),
            pl.lit(state).alias("state"),
            "source_cause",
            "first",
        )
    )
