"""Node outages, which may stop the jobs on the node: as recorded, sampled from the log, or at a given rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.replay.clusters.of_trace import NO_END, absences
from tracekit.text import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outages.asked import OutagesAsked
    from tracekit.trace import Trace


_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_RATE_HINT = "a rate needs no record, such as --outages rate=0.005,repair=4 (outages per node and day; hours)"
_MOST_DRAWN = 20_000_000
"""Largest number of sampled outages. Each takes about 25 bytes and is an event of the replay."""
_SPANS = 3
"""The sampling window is this many times the sum of last submission and longest run time."""


@dataclass(frozen=True)
class Outages:
    """Times at which nodes are away (m,). They may overlap."""

    node: NDArray[np.int32]
    """Index of the node in its cluster (m,)."""
    since_ms: NDArray[np.int64]
    """Start, after the origin of the jobs [ms] (m,)."""
    until_ms: NDArray[np.int64]
    """End [ms], or NO_END if unknown (m,)."""
    kills: NDArray[np.bool_]
    """Whether jobs on the node stop at the start: yes if it is down, no if it is drained (m,)."""
    node_ms: float
    """Observation time of these outages, summed over nodes [ms]."""
    origin: str
    """The source of the outages, for readers."""
    end_ms: int | None = None
    """End of the sampling window [ms], or None if the outages were not sampled."""

    @property
    def rate_per_ms(self) -> float:
        """Rate of outages that stop jobs, per node and millisecond in which the node works, or 0 if there are none.

        Overlapping outages of a node count as one.
        """
        order = np.lexsort((self.until_ms, self.since_ms, self.node))
        order = order[self.kills[order]]
        node, since, until = self.node[order], self.since_ms[order], self.until_ms[order]
        stops, away, last, end = 0, 0, -1, 0
        for one, begin, over in zip(node.tolist(), since.tolist(), until.tolist(), strict=True):
            fresh = one != last or begin > end
            stops += fresh
            length = over - begin if fresh else max(over - end, 0)
            away += length if over < NO_END else 0
            last, end = one, over if fresh else max(over, end)
        worked = self.node_ms - away
        return stops / worked if worked > 0 else 0.0

    def rows(self, kept: NDArray[np.bool_]) -> Outages:
        """Return the outages selected by `kept` (m,)."""
        columns = {name: getattr(self, name)[kept] for name in ("node", "since_ms", "until_ms", "kills")}
        return replace(self, **columns)


def horizon_ms(jobs: Jobs) -> int:
    """Return the end of the sampling window [ms], which is 3 times the sum of last submission and longest run time."""
    return _SPANS * int(jobs.arrival_ms.max(initial=0) + jobs.work_ms.max(initial=0))


def outages_for(
    asked: OutagesAsked, trace: Trace, cluster: Cluster, jobs: Jobs, load: float = 1.0, seed: int = 0
) -> Outages:
    """Return the outages for a replay.

    All policies get the same outages, so that only the policies differ (common random numbers).

    Raises
    ------
    UsageError
        Outages from the log are requested, but the log has no outages.
    """
    if asked.kind == "recorded":
        return recorded_outages(trace, cluster, jobs, load)
    rng = np.random.default_rng([seed, 21])
    if asked.kind == "model":
        return drawn_by_lot(trace, cluster, jobs, rng, load)
    repair = _lengths(trace, jobs, load) if asked.repair_h is None else asked.repair_h
    return drawn_at_rate(asked.rate, repair, cluster, horizon_ms(jobs), rng)


def recorded_outages(trace: Trace, cluster: Cluster, jobs: Jobs, load: float = 1.0) -> Outages:
    """Return the outages in the node_events table for the nodes of the cluster.

    Degraded nodes keep working. An event that ends before it begins is ignored. Jobs stop if a node goes down, and keep
    running if it is drained or in maintenance.

    Raises
    ------
    UsageError
        The Trace has no event for a node of the cluster.
    """
    events = absences(trace, jobs, load)
    index = {name: number for number, name in enumerate(cluster.node_id)}
    node = np.array([index.get(name, -1) for name in events["node_id"]], np.int32)
    known = node >= 0
    if not known.any():
        raise UsageError(
            "no recorded outage belongs to a node of this cluster",
            where=trace.path,
            hint=_RATE_HINT,
        )
    since, until = events["since"].to_numpy()[known], events["until"].to_numpy()[known]
    left_out = int((~known).sum())
    origin = f"{int(known.sum()):,} recorded absences"
    if left_out:
        origin += f"; {left_out:,} more are excluded because this cluster lacks their nodes"
    silent = cluster.nodes - len(np.unique(node[known]))
    if silent:
        origin += f"; {silent:,} of {counted(cluster.nodes, 'nodes')} have none"
    kills = events["kills"].to_numpy()[known]
    first, last = _window(events, jobs)
    return Outages(node[known], since, until, kills, float(last - first) * cluster.nodes, origin)


def drawn_by_lot(trace: Trace, cluster: Cluster, jobs: Jobs, rng: np.random.Generator, load: float = 1.0) -> Outages:
    """Return outages based on the log: each node gets the recorded outages of a randomly chosen node.

    Nodes that never failed can be chosen too, so bad nodes stay as rare as in the log. The log is shifted by one random
    time for all nodes and wraps around, so faults that occurred together stay together. An outage of unknown end lasts
    until the end of the log.

    Raises
    ------
    UsageError
        The Trace has no event for a node.
    """
    events = absences(trace, jobs, load)
    if events.is_empty():
        raise UsageError("the log has no outages to sample from", where=trace.path, hint=_RATE_HINT)
    names, (first, last) = _node_names(trace, events), _window(events, jobs)
    known = set(cluster.node_id).intersection(names)
    # Nodes of other clusters and nodes without GPUs fail differently.
    names = [name for name in names if name in known] if known else names
    span, end = last - first, horizon_ms(jobs)
    turned = int(rng.integers(span))
    lots = rng.integers(len(names), size=cluster.nodes)
    drawn = pl.DataFrame({"node": np.arange(cluster.nodes, dtype=np.int32), "node_id": np.array(names)[lots]})
    joined = drawn.join(events, on="node_id")
    _check_number(joined.height * (end / span + 2), "repeating the log")
    rounds = pl.DataFrame({"round": np.arange(-1, end // span + 1) * span})
    found = (
        joined.select(
            "node",
            "kills",
            turned=(pl.col("since") - first + turned) % span,
            length=pl.min_horizontal(pl.col("until"), pl.lit(last)) - pl.col("since"),
        )
        .join(rounds, how="cross")
        .select("node", "kills", since=pl.col("turned") + pl.col("round"), length="length")
        .filter((pl.col("since") < end) & (pl.col("since") + pl.col("length") > 0))
        .sort("since", "node", "length", "kills")
    )
    origin = (
        f"sampled from the log: each node gets the outages of one of {len(names):,} nodes at random; the log is "
        f"shifted by {turned / _DAY_MS:.3g} of {span / _DAY_MS:.3g} days and wraps around"
    )
    if not trace.has("nodes"):
        origin += "; the log does not list nodes without outages, so there are too many outages"
    since = found["since"].to_numpy()
    return Outages(
        found["node"].to_numpy(),
        since,
        since + found["length"].to_numpy(),
        found["kills"].to_numpy(),
        float(end) * cluster.nodes,
        origin,
        end,
    )


def drawn_at_rate(
    rate: float, repair: float | NDArray[np.int64], cluster: Cluster, end_ms: int, rng: np.random.Generator
) -> Outages:
    """Draw outages that occur at a constant rate, independently on every node. Each stops the jobs on its node.

    Parameters
    ----------
    rate : float
        Outages per node and day of work. The time between two outages is drawn from an exponential distribution.
    repair : float or array
        Mean length of an outage, if lengths are drawn from an exponential distribution [hours], or lengths to sample
        from [ms].
    end_ms : int
        No outage begins after this time [ms].

    Raises
    ------
    UsageError
        Too many outages are expected for the memory and the time of a replay.
    """
    mean_ms = float(np.mean(repair)) if isinstance(repair, np.ndarray) else repair * _HOUR_MS
    expected = cluster.nodes * end_ms / (_DAY_MS / rate + max(mean_ms, 1.0)) if rate > 0 else 0.0
    _check_number(expected, f"a rate of {rate:g}")
    by_lot = isinstance(repair, np.ndarray)
    node, now = np.arange(cluster.nodes, dtype=np.int32), np.zeros(cluster.nodes)
    parts = [np.empty((3, 0), np.int64)]
    while node.size and rate > 0:
        begin = now + rng.exponential(_DAY_MS / rate, node.size)
        node, begin = node[begin < end_ms], np.floor(begin[begin < end_ms])
        length = rng.choice(repair, node.size) if by_lot else rng.exponential(repair * _HOUR_MS, node.size)
        now = begin + np.maximum(np.floor(length), 1)
        parts.append(np.stack([node, begin, now]).astype(np.int64))
    rows = np.concatenate(parts, axis=1)
    lasting = "as long as in the log" if by_lot else f"{repair:g} h on average"
    origin = f"sampled at a rate of {rate:g} per node and day, {lasting}"
    kills = np.ones(rows.shape[1], np.bool_)
    return Outages(rows[0].astype(np.int32), rows[1], rows[2], kills, float(end_ms) * cluster.nodes, origin, end_ms)


def _check_number(expected: float, what: str) -> None:
    if expected > _MOST_DRAWN:
        raise UsageError(
            f"{what} would create about {expected:.1g} outages, but at most {_MOST_DRAWN:,} are possible",
            where="--outages",
            hint="use a lower rate, or --limit to replay fewer jobs",
        )


def _lengths(trace: Trace, jobs: Jobs, load: float) -> NDArray[np.int64]:
    """Return the lengths of the recorded outages with a known end [ms].

    Raises
    ------
    UsageError
        No outage has a known end.
    """
    events = absences(trace, jobs, load).filter(pl.col("until") < NO_END)
    if events.is_empty():
        raise UsageError(
            "the log does not record how long outages last", hint="add it: --outages rate=...,repair=HOURS"
        )
    return (events["until"] - events["since"]).to_numpy()


def _node_names(trace: Trace, events: pl.DataFrame) -> list[str]:
    """Return every node that the log names, in order."""
    names = [events["node_id"]]
    if trace.has("nodes"):
        names.append(trace.scan("nodes").select(pl.col("node_id").cast(pl.String)).collect()["node_id"])
    return sorted(set(pl.concat(names).drop_nulls().to_list()))


def _window(events: pl.DataFrame, jobs: Jobs) -> tuple[int, int]:
    """Return the period of the log, from its first to its last known event or submission [ms]."""
    since, until = events["since"].to_numpy(), events["until"].to_numpy()
    known = [since, until[until < NO_END], jobs.submit_ms]
    first = min(int(times.min(initial=0)) for times in known)
    return first, max(first + 1, *(int(times.max(initial=0)) for times in known))
