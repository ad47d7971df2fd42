"""Failures of nodes by the table node_events, and the times between them.

An event is a failure when its state is down, or drained for a cause that is a fault. Maintenance is none, whatever the
state, nor is a node that works though not as it should, nor one drained for no cause that is known. `tracekit fit`
takes the same events. Failures of one node that overlap or adjoin are one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.notes import noted

if TYPE_CHECKING:
    import duckdb

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.characterize.notes import Note

ALL = "all"
"""What a row over all causes is called."""

UNKNOWN = "unknown"
"""The cause of an event that states none."""

HOUR_US = 3_600_000_000

FAILED = f"""coalesce(cause, '{UNKNOWN}') <> 'maintenance'
    AND (state = 'down' OR (state = 'drained' AND coalesce(cause, '{UNKNOWN}') <> '{UNKNOWN}'))"""
"""Which rows of node_events are failures, in SQL."""

_WINDOW = """SELECT epoch_us(min(t)), epoch_us(max(t)) FROM (
    SELECT unnest([min(submit_time), max(submit_time), min(start_time), max(start_time), max(end_time)]) AS t FROM jobs
    UNION ALL SELECT unnest([min(start_time), max(start_time), max(end_time)]) FROM attempts
    UNION ALL SELECT unnest([min(start_time), max(start_time), max(end_time)]) FROM node_events)"""

_FAILURES = f"""SELECT node_id, coalesce(cause, '{UNKNOWN}') AS cause, epoch_us(start_time) AS since,
       epoch_us(end_time) AS until
FROM node_events WHERE {FAILED} ORDER BY ALL"""

_NODES = """SELECT k.node_id, n.cluster, n.rack, n.gpu_count, n.node_id IS NOT NULL AS listed
FROM (SELECT node_id FROM nodes UNION SELECT node_id FROM node_events) AS k
LEFT JOIN nodes AS n ON k.node_id = n.node_id"""


@dataclass(frozen=True)
class NodeFaults:
    """The nodes of a Trace, the time that it covers, and the failures in it."""

    nodes: pl.DataFrame
    """node_id, cluster, rack, gpu_count; in the order of cluster, rack and name, numbers in names by their value."""
    failures: pl.DataFrame
    """node (row of `nodes`), cause, since, until [us since 1970]; until is NULL where a failure goes on."""
    begin: int
    """The first time of the Trace [us since 1970]."""
    end: int
    """The last one."""
    notes: tuple[Note, ...]
    """What was left out or may be missed."""

    @property
    def hours(self) -> float:
        """The time that the Trace covers [h]."""
        return (self.end - self.begin) / HOUR_US

    def causes(self) -> list[str]:
        """Return 'all' and the causes, the most frequent first."""
        counts = self.failures["cause"].value_counts().sort("count", "cause", descending=[True, False])
        return [ALL, *counts["cause"]]

    def outages(self, cause: str = ALL) -> pl.DataFrame:
        """Return the failures by one cause or all, those of a node that overlap or adjoin as one.

        Returns
        -------
        DataFrame
            node, since, until [us], open (whether it goes on); ordered by node and since.
        """
        own = self.failures if cause == ALL else self.failures.filter(pl.col("cause") == cause)
        ended = own.select(
            "node", "since", open=pl.col("until").is_null(), until=pl.col("until").fill_null(self.end)
        ).sort("node", "since", "until", "open")
        latest = pl.col("until").cum_max().shift(1).over("node")
        fresh = (latest.is_null() | (pl.col("since") > latest)).fill_null(value=True)
        return (
            ended.with_columns(outage=fresh.cum_sum())
            .group_by("outage", maintain_order=True)
            .agg(pl.col("node").first(), pl.col("since").min(), pl.col("until").max(), pl.col("open").any())
            .drop("outage")
        )


@dataclass(frozen=True)
class Intervals:
    """Times in which nodes worked: until they failed, or until the log ends."""

    node: Ints
    """Row of the node."""
    hours: Floats
    """Length [h], above 0."""
    failed: Bools
    """Whether a failure ended it; else the log did."""
    count: int
    """Nodes in all."""

    def failures_by_node(self) -> Ints:
        """Return how many failures each node has after time in which it worked."""
        return np.bincount(self.node, weights=self.failed, minlength=self.count).astype(np.int64)

    def hours_by_node(self) -> Floats:
        """Return for how long each node worked [h]."""
        found: Floats = np.bincount(self.node, weights=self.hours, minlength=self.count).astype(np.float64)
        return found


def read_faults(con: duckdb.DuckDBPyConnection) -> NodeFaults:
    """Return the nodes, the failures and the covered time of a Trace.

    Parameters
    ----------
    con : DuckDB connection
        Has node_events, nodes, jobs and attempts, which may be empty.
    """
    begin, end = con.execute(_WINDOW).fetchall()[0]
    frame = pl.DataFrame(con.sql(_NODES))
    order = sorted(range(frame.height), key=lambda row: _place(*frame.row(row)[:3]))
    nodes = frame[order] if order else frame
    rows = pl.DataFrame(con.sql(_FAILURES))
    backwards = rows.filter(pl.col("until") < pl.col("since")).height
    place = nodes.select("node_id").with_row_index("node").with_columns(pl.col("node").cast(pl.Int64))
    failures = (
        rows.filter(pl.col("until").is_null() | (pl.col("until") >= pl.col("since")))
        .join(place, on="node_id")
        .select("node", "cause", "since", "until")
        .sort("node", "since", "until", "cause")
    )
    notes = (*noted("backwards", backwards), *noted("unlisted", nodes.height - int(nodes["listed"].sum())))
    return NodeFaults(nodes.drop("listed"), failures, begin or 0, end or 0, notes)


def intervals_between(faults: NodeFaults, cause: str = ALL) -> Intervals:
    """Return the times between failures by one cause or all.

    The clock of a node starts with the log, or when it is back from the last such failure, and is cut off by the end of
    the log. A failure at the first moment of the log says nothing on how long its node had worked.
    """
    spans = faults.outages(cause)
    back = spans.select(pl.col("until").shift(1).over("node").fill_null(faults.begin))["until"].to_numpy()
    since, node = spans["since"].to_numpy(), spans["node"].to_numpy()
    seen = since > back
    last = spans.group_by("node", maintain_order=True).agg(pl.col("until").last(), pl.col("open").last())
    left = last.filter(~pl.col("open") & (pl.col("until") < faults.end))
    never = np.setdiff1d(np.arange(faults.nodes.height), node) if faults.end > faults.begin else np.zeros(0, np.int64)
    lengths = [
        (since - back)[seen],
        faults.end - left["until"].to_numpy(),
        np.full(never.size, faults.end - faults.begin),
    ]
    return Intervals(
        np.concatenate([node[seen], left["node"].to_numpy(), never]).astype(np.int64),
        np.concatenate(lengths).astype(np.float64) / HOUR_US,
        np.arange(sum(map(len, lengths))) < int(seen.sum()),
        faults.nodes.height,
    )


def _place(node: str, cluster: str | None, rack: str | None) -> tuple[list[tuple[int, int, str]], ...]:
    return _natural(cluster), _natural(rack), _natural(node)


def _natural(name: str | None) -> list[tuple[int, int, str]]:
    """Return a key by which n2 stands before n10, and what has no name behind the rest."""
    if name is None:
        return [(2, 0, "")]
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(0, int(p), p) if p.isdecimal() else (1, 0, p) for p in parts]
