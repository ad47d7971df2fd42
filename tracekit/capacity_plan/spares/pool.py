"""The interchangeable nodes of a log, and when each was out of service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import MissingTableError, UsageError, nearest
from tracekit.replay.clusters.of_trace import AWAY, NO_END
from tracekit.text import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.capacity_plan.question import SpareQuestion
    from tracekit.trace import Trace

    Ints = NDArray[np.int64]

_DAY_MS = 86_400_000


@dataclass(frozen=True)
class NodePool:
    """Nodes with equal numbers of GPUs, and their outages (m,), ordered by begin.

    The log covers the time from the first to the last time in jobs, attempts and node_events, as in
    failures/node_availability.
    """

    nodes: int
    gpus_per_node: int | None
    """GPUs of each node; None if the log does not record them."""
    other_nodes: int
    """Number of GPU nodes of other sizes, which are excluded."""
    span_ms: int
    """Time that the log covers [ms]."""
    node: NDArray[np.int32]
    """The node (m,)."""
    since_ms: Ints
    """Begin, from the start of the log [ms] (m,)."""
    until_ms: Ints
    """End [ms]; NO_END if the log records no end (m,)."""
    kills: NDArray[np.bool_]
    """Whether jobs on the node stop when the outage begins: they stop if the node is down and continue if it is drained
    or in maintenance (m,).
    """

    @classmethod
    def of(cls, trace: Trace, question: SpareQuestion) -> NodePool:
        """Return the node pool of a Trace.

        Raises
        ------
        MissingTableError
            The Trace has no table node_events.
        UsageError
            No node belongs to the requested cluster or GPU model, or the log covers no time.
        """
        if not trace.has("node_events"):
            hint = "docs/machines.md lists the files that provide it"
            raise MissingTableError("the Trace has no table 'node_events'", where=trace.path, hint=hint)
        events = trace.scan("node_events").select("node_id", "state", "start_time", "end_time").collect()
        begin, end = _covered(trace, events)
        if end <= begin:
            raise UsageError("the log covers no time", where=trace.path, hint="use a log that records when events end")
        names, gpus, others = _nodes(trace, events, question)
        place = {name: number for number, name in enumerate(names)}
        away = (
            events.filter(pl.col("state").is_in(AWAY) & pl.col("node_id").is_in(names))
            .drop_nulls("start_time")
            .select(
                pl.col("node_id").replace_strict(place, return_dtype=pl.Int32).alias("node"),
                ((pl.col("start_time").dt.epoch("us") - begin) // 1000).alias("since"),
                ((pl.col("end_time").dt.epoch("us") - begin) // 1000).fill_null(NO_END).alias("until"),
                (pl.col("state") == "down").alias("kills"),
            )
            .filter(pl.col("until") > pl.col("since"))
            .sort("since", "node", "until", "kills")
        )
        return cls(
            len(names),
            gpus,
            others,
            (end - begin) // 1000,
            away["node"].to_numpy(),
            away["since"].to_numpy(),
            away["until"].to_numpy(),
            away["kills"].to_numpy(),
        )

    @property
    def days(self) -> float:
        """Time that the log covers [days]."""
        return self.span_ms / _DAY_MS

    @property
    def rate_per_ms(self) -> float:
        """How often a node goes down per millisecond, also counting nodes that were already out of service."""
        return float(self.kills.sum()) / (self.nodes * self.span_ms)

    def availability(self) -> float:
        """Return 1 - time out of service / total time, over all nodes; overlapping outages count once [0..1]."""
        return 1 - sum(until - since for _, since, until in self.spans()) / (self.nodes * self.span_ms)

    def spans(self) -> list[tuple[int, int, int]]:
        """Return (node, begin, end) of the outages within the log [ms]; outages that overlap or touch are merged."""
        order = np.lexsort((self.until_ms, self.since_ms, self.node))
        rows = zip(self.node[order].tolist(), self.since_ms[order].tolist(), self.until_ms[order].tolist(), strict=True)
        found: list[tuple[int, int, int]] = []
        for node, since, until in rows:
            last = min(until, self.span_ms)
            if found and found[-1][0] == node and since <= found[-1][2]:
                found[-1] = (node, found[-1][1], max(found[-1][2], last))
            else:
                found.append((node, since, last))
        return found

    def most_up(self) -> int:
        """Return the largest number of nodes that were up at once."""
        moves = sorted(move for _, a, b in self.spans() if b > a for move in ((a, 1), (b, -1)))
        # At the same time, returning nodes count before leaving ones; nodes up for a single instant do not count.
        down, least, last = 0, self.nodes, -1
        for time, change in moves:
            if time > max(last, 0):
                least, last = min(least, down), time
            down += change
        if last < self.span_ms:
            least = min(least, down)
        return self.nodes - least

    def nodes_of_gang(self, question: SpareQuestion) -> int:
        """Return how many nodes the job takes.

        Raises
        ------
        UsageError
            The log does not record the GPUs of nodes, or the job needs more nodes than were ever up at once.
        """
        gang = question.gang
        if gang.in_nodes:
            found = gang.number
        elif self.gpus_per_node is None:
            hint = f"give the job size in nodes, such as --gang {max(gang.number // 8, 1)}nodes"
            raise UsageError("the log does not record how many GPUs its nodes have", where="--gang", hint=hint)
        else:
            found = -(-gang.number // self.gpus_per_node)
        most = self.most_up()
        if found > most:
            there = f"the log has {counted(self.nodes, 'nodes')}"
            if most < self.nodes:
                there += f", with at most {most:,} up at once"
            raise UsageError(
                f"the job needs {counted(found, 'nodes')}, but {there}", where="--gang", hint="use a smaller job"
            )
        return found


def _covered(trace: Trace, events: pl.DataFrame) -> tuple[int, int]:
    """Return the first and last time in the log [us since 1970]."""
    times = [events[name].dt.epoch("us") for name in ("start_time", "end_time")]
    for table, columns in (
        ("jobs", ("submit_time", "start_time", "end_time")),
        ("attempts", ("start_time", "end_time")),
    ):
        if trace.has(table):
            own = [pl.col(name).dt.epoch("us") for name in columns]
            ends = trace.scan(table).select(
                pl.min_horizontal(c.min() for c in own), pl.max_horizontal(c.max() for c in own).alias("last")
            )
            times += [pl.Series(ends.collect().row(0), dtype=pl.Int64)]
    known = pl.concat([one.cast(pl.Int64).rename("time") for one in times]).drop_nulls()
    return (int(known.min()), int(known.max())) if len(known) else (0, 0)  # type: ignore[arg-type]  # whole numbers


def _nodes(trace: Trace, events: pl.DataFrame, question: SpareQuestion) -> tuple[list[str], int | None, int]:
    """Return the node names, the GPUs of each node, and how many nodes have another size."""
    wanted = question.cluster is not None or question.model is not None
    if not trace.has("nodes"):
        if wanted:
            what = "the Trace has no table nodes, so the clusters and GPU models of nodes are unknown"
            raise UsageError(what, where=trace.path, hint="omit --model and --for")
        return sorted(events["node_id"].unique().drop_nulls().to_list()), None, 0
    nodes = trace.scan("nodes").select("node_id", "cluster", "gpu_model", "gpu_count").collect()
    for option, column, value in (("--for", "cluster", question.cluster), ("--model", "gpu_model", question.model)):
        if value is not None:
            known = nodes[column].drop_nulls().unique().sort().to_list()
            if value not in known:
                what = f"no node {'belongs to cluster' if column == 'cluster' else 'is of GPU model'} '{value[:60]}'"
                raise UsageError(what, where=option, hint=nearest(value[:60], known))
            nodes = nodes.filter(pl.col(column) == value)
    with_gpus = nodes.filter(pl.col("gpu_count").fill_null(0) > 0)
    if with_gpus.is_empty():
        # Nodes named only in events belong to the log just like listed nodes.
        named = nodes["node_id"] if wanted else pl.concat([nodes["node_id"], events["node_id"].drop_nulls()])
        return sorted(named.unique().to_list()), None, 0
    sizes = with_gpus.group_by("gpu_count").len().sort("len", "gpu_count", descending=True)
    gpus = int(sizes["gpu_count"][0])
    alike = with_gpus.filter(pl.col("gpu_count") == gpus)
    return sorted(alike["node_id"].unique().to_list()), gpus, len(with_gpus) - len(alike)
