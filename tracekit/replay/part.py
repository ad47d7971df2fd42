"""The replayed cluster of a Trace with several, and its share of the waiting time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.errors import UsageError, nearest
from tracekit.text import counted, percent, shorten

if TYPE_CHECKING:
    from tracekit.trace import Trace


_NAMED = 3
"""Largest number of clusters that are listed by name."""


@dataclass(frozen=True)
class Part:
    """One cluster of a Trace that has several."""

    cluster: str
    others: tuple[str, ...]
    """Names of the clusters that were not replayed."""
    waiting_share: float | None
    """The cluster's share of all waiting hours [1], over GPU jobs with a known wait, or None if no job waited."""

    @property
    def words(self) -> str:
        """Name of the cluster, with its share of the waiting hours."""
        name = shorten(self.cluster, 30)
        if self.waiting_share is None:
            return f"{name}, one of {counted(len(self.others) + 1, 'clusters')}, none of which has a known wait"
        return f"{name}, with {percent(self.waiting_share)} of the waiting hours of all clusters"

    @property
    def missing(self) -> str:
        """The clusters that were not replayed, in words."""
        if len(self.others) > _NAMED:
            return f"{len(self.others):,} other clusters were not"
        names = " and ".join(shorten(name, 30) for name in self.others)
        return f"{names} {'was' if len(self.others) == 1 else 'were'} not"


def checked_cluster(trace: Trace, names: list[str], cluster: str | None) -> str | None:
    """Return which of the clusters named in a Trace to use, or None if the Trace names no cluster.

    Raises
    ------
    UsageError
        The cluster does not exist, or the Trace has several clusters and none is chosen.
    """
    if cluster is not None and cluster not in names:
        raise UsageError(f"no cluster '{cluster}'", where=trace.path, hint=nearest(cluster, names, of_log=True))
    if cluster is None and len(names) > 1:
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        raise UsageError("the Trace has several clusters", where=trace.path, hint=f"choose one of: {shown}")
    return cluster if cluster is not None or not names else names[0]


def busiest_cluster(trace: Trace) -> str | None:
    """Return the cluster with the most jobs, which is replayed by default, or None if the Trace has fewer than two."""
    if not trace.has("jobs"):
        return None
    named = trace.scan("jobs").filter(pl.col("cluster").is_not_null()).group_by("cluster").len()
    found = named.sort("len", "cluster", descending=[True, False]).collect()
    return str(found["cluster"][0]) if len(found) > 1 else None


def part_of(trace: Trace, cluster: str | None) -> Part | None:
    """Return a cluster as a part of its Trace, or None if the Trace has no other cluster.

    The wait of a GPU job is its queue_s: first start minus submission.
    """
    if cluster is None or not trace.has("jobs"):
        return None
    wait_s = pl.col("queue_s").filter(pl.col("gpu_count") > 0).sum()
    waits = trace.scan("jobs").filter(pl.col("cluster").is_not_null()).group_by("cluster").agg(wait_s)
    hours = dict(waits.collect().iter_rows())
    if len(hours) < 2 or cluster not in hours:
        return None
    total = sum(hours.values())
    others = tuple(sorted(name for name in hours if name != cluster))
    return Part(cluster, others, hours[cluster] / total if total else None)
