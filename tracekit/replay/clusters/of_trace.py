"""The cluster of a Trace, from its nodes, from its VCs' quotas, or from the GPUs that its log shows in use."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.replay.clusters.cluster import (
    Node,
    QuotaTable,
    check_factor,
    make_cluster,
    repeated,
    scaled_number,
    shares_of,
)
from tracekit.replay.jobs import naive_utc
from tracekit.replay.part import checked_cluster
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.trace import Trace

    Longs = NDArray[np.int64]


# The cluster of a log without a node list: GPUs allocated at the same time, and GPUs per node.


class HeldGpus:
    """GPUs allocated over time, by VC.

    Parameters
    ----------
    intervals : polars.DataFrame
        One row per attempt with GPUs: vc, since, until [us], milli [milli-GPU].
    """

    def __init__(self, intervals: pl.DataFrame) -> None:
        self._all = intervals
        self.names = sorted(intervals["vc"].drop_nulls().unique().to_list())
        """VCs with GPUs."""

    def peak(self, vc: str | None = None) -> int:
        """Return the largest number of GPUs allocated at the same time, rounded up, for one VC or for all VCs."""
        _, held = self._steps(vc)
        return int(-(-held.max(initial=0) // 1000))

    def p95(self, vc: str) -> int:
        """Return the 95th percentile of a VC's allocated GPUs over the time of the whole log [milli-GPU]."""
        times, held = self._steps(vc)
        if not len(times):
            return 0
        begin, end = int(self._all["since"].min()), int(self._all["until"].max())  # type: ignore[arg-type]  # integers
        lengths = np.diff(np.concatenate([[begin], times, [end]]))
        values = np.concatenate([[0], held])
        order = np.argsort(values, kind="stable")
        reached = np.searchsorted(np.cumsum(lengths[order]) * 100, 95 * (end - begin))
        return int(values[order][min(int(reached), len(values) - 1)])

    def _steps(self, vc: str | None) -> tuple[Longs, Longs]:
        """Return the times at which the number of allocated GPUs changes [us], with the new numbers [milli-GPU]."""
        own = self._all if vc is None else self._all.filter(pl.col("vc") == vc)
        milli = own["milli"].to_numpy()
        times = np.concatenate([own["since"].to_numpy(), own["until"].to_numpy()])
        moments, index = np.unique(times, return_inverse=True)
        change = np.zeros(len(moments), dtype=np.int64)
        np.add.at(change, index, np.concatenate([milli, -milli]))
        return moments, np.cumsum(change)


def held_gpus(trace: Trace, cluster: str | None) -> HeldGpus:
    """Return the GPUs allocated to a cluster's attempts, excluding attempts without a start or a later end."""
    table = "attempts" if _has_attempts(trace) else "jobs"
    rows = trace.scan(table)
    jobs = trace.scan("jobs")
    if table == "attempts":
        rows = rows.select("job_id", "start_time", "end_time", "gpu_count").join(
            jobs.select("job_id", "cluster", "vc"), on="job_id"
        )
    if cluster is not None:
        rows = rows.filter(pl.col("cluster") == cluster)
    intervals = rows.select(
        "vc",
        pl.col("start_time").cast(pl.Int64).alias("since"),
        pl.col("end_time").cast(pl.Int64).alias("until"),
        (pl.col("gpu_count").fill_nan(None).clip(0, 1e6) * 1000).round().cast(pl.Int64).alias("milli"),
    ).filter(pl.col("until") > pl.col("since"), pl.col("milli") > 0)
    return HeldGpus(intervals.collect())


def gpus_per_node(trace: Trace, cluster: str | None) -> int | None:
    """Return the most GPUs per node that a job had, computed from its node count, or None if unknown."""
    rows = trace.scan("jobs").filter(pl.col("node_count") >= 1, pl.col("gpu_count") >= 1)
    if cluster is not None:
        rows = rows.filter(pl.col("cluster") == cluster)
    most = rows.select((pl.col("gpu_count").clip(0, 1e6) / pl.col("node_count")).ceil().max()).collect().item()
    return None if most is None else max(1, int(most))


def _has_attempts(trace: Trace) -> bool:
    # Attempts that were derived from jobs add nothing to the jobs.
    retries = trace.capabilities.get("retries")
    return trace.has("attempts") and retries is not None and retries.available


# If the source lists no model for a node, use the one that most GPU-hours on it requested.


def with_used_models(trace: Trace, nodes: list[Node]) -> tuple[list[Node], int]:
    """Fill in the missing models of nodes; return the nodes and the number of inferred models.

    Jobs that request no model, or one of several, are ignored. If two models have equal GPU-hours, the first by name
    wins.
    """
    unknown = [node.name for node in nodes if not node.model]
    if not unknown or not all(trace.has(table) for table in ("placements", "jobs", "attempts")):
        return nodes, 0
    one = ~pl.col("gpu_model").str.contains("|", literal=True)
    asked = trace.scan("jobs").select("job_id", "gpu_model").filter(one)
    ran = trace.scan("attempts").select("job_id", "attempt", began="start_time", ended="end_time")
    start, end = (pl.coalesce(own, whole) for own, whole in (("start_time", "began"), ("end_time", "ended")))
    used = (
        trace.scan("placements")
        .filter(pl.col("node_id").is_in(unknown))
        .join(asked, on="job_id")
        .join(ran, on=["job_id", "attempt"], how="left")
        .group_by("node_id", "gpu_model")
        .agg((pl.col("gpu_count") * (end - start).dt.total_seconds()).clip(lower_bound=0).sum().alias("seconds"))
        .filter(pl.col("seconds") > 0)
        .sort("seconds", "gpu_model", descending=[True, False])
        .unique("node_id", keep="first", maintain_order=True)
        .collect()
    )
    models = dict(used.select("node_id", "gpu_model").iter_rows())
    return [replace(node, model=node.model or models.get(node.name, "")) for node in nodes], len(models)


NODE_GPUS = 8
"""GPUs per node if the trace does not list them."""

PARTITIONED = frozenset({"helios"})
"""Formats whose quotas are partitions: a VC owns the nodes of its quota, and jobs of other VCs never run on them.
Helios lists the whole nodes of each VC by day, which add up to the cluster, and its study replays each VC as a separate
cluster (SC'21)."""


def cluster_of_trace(
    trace: Trace,
    jobs: Jobs,
    *,
    partitioned: bool | None = None,
    gpus: float | None = None,
    cluster: str | None = None,
    load: float = 1.0,
    events: bool = True,
    stops: bool = False,
) -> Cluster:
    """Return the cluster on which the jobs of a Trace ran.

    Its nodes come from the first of these sources that the Trace has:

    - the nodes table, without machines that have no GPUs;
    - the capacity table: 8-GPU nodes for the cluster's total, or for the sum of all quotas if no total is given, and
      one smaller node for the remainder. If the number changes, the last nodes leave and join. All VCs share the nodes.
      If partitioned, the same is done with each VC's quota, and the VC owns its nodes;
    - the GPUs that the log shows in use (see `observed_cluster`).

    Nodes in the nodes table take only jobs of their partitions, if the table lists these. They are away while an event
    in node_events has them down, drained or in maintenance: no job starts there, and running jobs run to their end,
    unless `stops` is set.

    Quotas come from the capacity table. If there is none, they are estimated (D9) as the 95th percentile over time of
    each VC's allocated GPUs, rescaled in whole GPUs to the GPUs of the cluster.

    Parameters
    ----------
    trace : Trace
        The Trace that the cluster comes from.
    jobs : Jobs
        Jobs of the Trace. The cluster's times count from the origin of these jobs.
    partitioned : bool, optional
        Whether each VC is an isolated domain. By default, this is true if the nodes come from quotas that the source
        calls partitions (`PARTITIONED`). Only then may a policy that lends quotas use the nodes of other VCs
        (`Cluster.lendable`).
    gpus : float, optional
        Factor for the number of nodes in each group, rounded half up, but at least one. The last nodes are dropped, or
        all are repeated in order. Quotas are multiplied, too.
    cluster : str, optional
        The cluster to use, which is required if the Trace has several.
    load : float
        Factor by which submissions, quota changes and node changes are compressed in time.
    events : bool
        Whether nodes are away during their events, rather than always available.
    stops : bool
        Whether the jobs on a node stop when it goes down. If not, they run to their end.

    Raises
    ------
    UsageError
        The Trace has several clusters and none is named, it should be partitioned but its nodes have no VC, no GPUs are
        known, or the factor is invalid.
    """
    factor = check_factor(gpus)
    name = _chosen(trace, cluster)
    stated, total, of_quotas = _stated_quotas(trace, jobs, name, load)
    nodes = _listed_nodes(trace, name)
    if nodes:
        held = partial(with_absences, trace=trace, jobs=jobs, load=load, stops=stops) if events else None
        return _of_nodes(trace, nodes, stated.scaled(factor), name, factor, held, partitioned=bool(partitioned))
    if total.gpus.max(initial=0) < 1:
        return observed_cluster(trace, jobs, partitioned=partitioned, gpus=gpus, cluster=cluster)
    by_source = bool(stated.tenants) and trace.manifest.format in PARTITIONED
    divided = by_source if partitioned is None else partitioned
    if divided and not stated.tenants:
        raise UsageError(
            "the capacity of the Trace has no VCs, so it cannot be partitioned",
            where=trace.path,
            hint="use --vc-partitions off, or a cluster file",
        )
    if divided:
        grown = QuotaTable(stated.tenants, stated.times, _grown(stated.gpus, factor))
        nodes = [
            node
            for column, vc in enumerate(grown.tenants)
            for node in _nodes_of_quota(vc, grown.times, grown.gpus[:, column])
        ]
        origin = f"{NODE_GPUS}-GPU nodes for the quota of each {trace.ingested_tenant.one}"
        if partitioned is None:
            origin += ", which the source calls a partition"
        made = _with_quotas(nodes, grown, trace, name, origin, factor)
        return replace(made, lendable=partitioned is None)
    whole = _grown(total.gpus, factor)
    nodes = _nodes_of_quota("", total.times, whole[:, 0])
    same = len(stated.times) == len(total.times) and np.array_equal(stated.gpus.sum(axis=1), total.gpus[:, 0])
    quotas = stated.scaled(factor)
    if same and stated.tenants:
        # Scale whole nodes, and scale quotas so that they still add up to the capacity.
        rows = [shares_of(row, int(sum_)) for row, sum_ in zip(stated.gpus, whole[:, 0], strict=True)]
        quotas = QuotaTable(stated.tenants, stated.times, np.array(rows, dtype=np.int64))
    origin = f"{NODE_GPUS}-GPU nodes for the total that the Trace lists"
    if of_quotas:
        one, many = trace.ingested_tenant.one, trace.ingested_tenant.many
        sum_, most = int(total.gpus.max()), held_gpus(trace, name).peak() if trace.has("jobs") else 0
        origin = (
            f"{NODE_GPUS}-GPU nodes for the sum of the {one} quotas, shared by all {many}; quotas are not"
            f" machines: they add up to at most {counted(sum_, 'GPUs')}, and jobs used up to {most:,} at the same time"
        )
    return _with_quotas(nodes, quotas, trace, name, origin, factor)


def states_capacity(trace: Trace, jobs: Jobs, cluster: str | None = None) -> bool:
    """Return whether a Trace lists nodes or GPUs. If it does not, its cluster is `observed_cluster`.

    Raises
    ------
    UsageError
        The Trace has several clusters and none is named.
    """
    name = _chosen(trace, cluster)
    _, total, _ = _stated_quotas(trace, jobs, name, 1.0)
    return bool(_listed_nodes(trace, name)) or int(total.gpus.max(initial=0)) >= 1


def observed_cluster(
    trace: Trace,
    jobs: Jobs,
    *,
    partitioned: bool | None = None,
    gpus: float | None = None,
    cluster: str | None = None,
) -> Cluster:
    """Return a cluster as large as the most GPUs allocated to the log's jobs at the same time, in total or per VC.

    Jobs that still run when the log ends are not replayed and count as jobs without GPUs.

    Each node has as many GPUs as any job had on one node, or 8 if that is unknown. There are enough nodes for the peak
    or, if no attempt has a known duration, for the largest job. Estimated quotas, parameters and errors are the same as
    for `cluster_of_trace`.
    """
    factor = check_factor(gpus)
    name = _chosen(trace, cluster)
    held = held_gpus(trace, name)
    size = gpus_per_node(trace, name)
    sizes = f"nodes of {size or NODE_GPUS} GPUs" + ("" if size else ", assumed")
    size = size or NODE_GPUS
    peaks: Mapping[str, int] = {"": held.peak() or int(jobs.devices.max(initial=0))}
    if partitioned:
        peaks = {vc: held.peak(vc) for vc in held.names}
        if not peaks:
            raise UsageError(
                "no VC of the Trace has GPUs, so the cluster cannot be partitioned",
                where=trace.path,
                hint="use --vc-partitions off, or a cluster file",
            )
    nodes = [
        Node(f"{vc or 'node'}-{number:04d}", size, domain=vc)
        for vc, peak in peaks.items()
        for number in range(scaled_number(-(-peak // size), factor))
    ]
    if not nodes:
        raise UsageError(
            "neither the tables nor the jobs of the Trace list any GPU", where=trace.path, hint="give a cluster file"
        )
    by = f", by {trace.ingested_tenant.one}" if partitioned else ""
    origin = f"observed: the most GPUs allocated to finished jobs at the same time{by}; {sizes}"
    return _with_quotas(nodes, QuotaTable.none(), trace, name, origin, factor, held)


def _of_nodes(
    trace: Trace,
    listed: list[Node],
    quotas: QuotaTable,
    cluster: str | None,
    factor: float,
    held: Callable[[list[Node]], list[Node]] | None,
    *,
    partitioned: bool,
) -> Cluster:
    """Return the cluster of listed machines. `held` adds when events take the nodes away."""
    nodes, inferred = with_used_models(trace, listed)
    if not partitioned:
        nodes = [replace(node, domain="") for node in nodes]
    elif not any(node.domain for node in nodes):
        raise UsageError(
            "the nodes of the Trace belong to no VC, so they cannot be partitioned",
            where=trace.path,
            hint="use --vc-partitions off, or a cluster file",
        )
    origin = "nodes of the Trace"
    if inferred:
        origin += f" ({counted(inferred, 'nodes')} with a model inferred from most of the GPU-hours there)"
    made = _with_quotas(repeated(nodes, factor), quotas, trace, cluster, origin, factor)
    there = nodes if held is None else held(nodes)
    if there != nodes:
        # Estimated quotas are shares of all nodes, including those that are away at first.
        fail = ", and jobs on a node that goes down stop" if any(node.stops for node in there) else ""
        origin = f"{made.origin}; nodes are away during their node events{fail}"
        made = make_cluster(repeated(there, factor), QuotaTable(made.tenants, made.quota_ms, made.quota), origin)
    return replace(made, without_gpus=_nodes_without_gpus(trace, cluster))


def _chosen(trace: Trace, cluster: str | None) -> str | None:
    """Return the cluster to use, or None if the Trace names no clusters."""
    names = (
        trace.scan("jobs").select(pl.col("cluster").drop_nulls().unique()).collect()["cluster"].sort().to_list()
        if trace.has("jobs")
        else []
    )
    return checked_cluster(trace, names, cluster)


def _own(rows: pl.LazyFrame, cluster: str | None) -> pl.LazyFrame:
    """Return the rows of one cluster and the rows that name no cluster."""
    return rows if cluster is None else rows.filter(pl.col("cluster").is_null() | (pl.col("cluster") == cluster))


def _listed_nodes(trace: Trace, cluster: str | None) -> list[Node]:
    if not trace.has("nodes"):
        return []
    rows = _own(trace.scan("nodes"), cluster).filter(pl.col("gpu_count") >= 1)
    scaled = [
        (pl.col(column).fill_nan(None).clip(0, 1e9) * scale + 0.5).floor().cast(pl.Int64).fill_null(-1).alias(column)
        for column, scale in (("cpu_count", 1000), ("memory_gib", 1024))
    ]
    table = rows.select(
        "node_id",
        pl.col("gpu_count").clip(upper_bound=1_000_000),
        *(pl.col(c).fill_null("") for c in _TEXTS),
        *scaled,
        pl.col("partitions").list.sort(),
    ).collect()
    return [replace(Node(*row[:-1]), partitions=tuple(row[-1] or ())) for row in table.iter_rows()]


def _nodes_without_gpus(trace: Trace, cluster: str | None) -> int:
    rows = _own(trace.scan("nodes"), cluster).filter(~(pl.col("gpu_count") >= 1).fill_null(value=False))
    return int(rows.select(pl.len()).collect().item())


_TEXTS = ("gpu_model", "rack", "vc")


def _stated_quotas(trace: Trace, jobs: Jobs, cluster: str | None, load: float) -> tuple[QuotaTable, QuotaTable, bool]:
    """Return the quotas of the VCs, the cluster's total (tenant ''), and whether the total is the sum of the quotas.

    If the source gives no total, the total is the sum.
    """
    if not trace.has("capacity"):
        return QuotaTable.none(), QuotaTable.none(), False
    table = (
        _own(trace.scan("capacity"), cluster)
        .select("vc", pl.col("time").cast(pl.Int64), pl.col("gpu_count").fill_nan(None).clip(0, 1e9).floor())
        .drop_nulls(["time", "gpu_count"])
        .collect()
    )
    vcs = _steps(table.filter(pl.col("vc").is_not_null()), jobs, load)
    total = _steps(table.filter(pl.col("vc").is_null()).with_columns(vc=pl.lit("")), jobs, load)
    if total.tenants:
        return vcs, total, False
    sums = vcs.gpus.sum(axis=1, keepdims=True) if vcs.tenants else vcs.gpus
    return vcs, QuotaTable(vcs.tenants and [""], vcs.times, sums), True


def _steps(table: pl.DataFrame, jobs: Jobs, load: float) -> QuotaTable:
    """Return one row per time at which a quota changes. The first row is the state at the origin."""
    if table.is_empty():
        return QuotaTable.none()
    micros = table["time"].to_numpy()
    times = milliseconds_after_origin(table["time"], jobs, load)
    tenants = table["vc"].unique().sort().to_list()
    moments = np.unique(times)
    gpus = np.zeros((len(moments), len(tenants)), dtype=np.int64)
    for column, vc in enumerate(tenants):
        own = np.flatnonzero((table["vc"] == vc).to_numpy())
        own = own[np.argsort(micros[own], kind="stable")]
        # The quota before the first row is unknown; the first row is the best guess.
        place = np.maximum(np.searchsorted(times[own], moments, side="right") - 1, 0)
        gpus[:, column] = table["gpu_count"].to_numpy()[own][place].astype(np.int64)
    changes = np.append(np.any(gpus[1:] != gpus[:-1], axis=1), True)
    keep = np.concatenate([[True], changes[:-1]])
    begin = max(int(np.searchsorted(moments, 0, side="right")) - 1, 0)
    keep[:begin] = False
    keep[begin] = True
    return QuotaTable(tenants, moments[keep], gpus[keep])


def _grown(gpus: NDArray[np.int64], factor: float) -> NDArray[np.int64]:
    """Return quotas with `factor` times as many whole nodes, and the same smaller node for the remainder."""
    grown = [scaled_number(int(q) // NODE_GPUS, factor) * NODE_GPUS + int(q) % NODE_GPUS for q in gpus.flat]
    return np.array(grown, dtype=np.int64).reshape(gpus.shape)


def _nodes_of_quota(vc: str, times: NDArray[np.int64], quota: NDArray[np.int64]) -> list[Node]:
    """Return the nodes for a quota over time: first whole nodes, then one node per remainder."""
    prefix = vc or "node"
    whole = [
        _node(f"{prefix}-{number:04d}", NODE_GPUS, vc, times, quota >= (number + 1) * NODE_GPUS)
        for number in range(int(quota.max(initial=0)) // NODE_GPUS)
    ]
    rests = [rest for rest in np.unique(quota % NODE_GPUS).tolist() if rest]
    return whole + [_node(f"{prefix}-rest-{r}", r, vc, times, quota % NODE_GPUS == r) for r in rests]


def _node(name: str, gpus: int, vc: str, times: NDArray[np.int64], there: NDArray[np.bool_]) -> Node:
    moves = np.flatnonzero(there[1:] != there[:-1]) + 1
    changes = tuple((int(times[row]), bool(there[row])) for row in moves)
    return Node(name, gpus, domain=vc, absent=not there[0], changes=changes)


def _with_quotas(
    nodes: list[Node],
    quotas: QuotaTable,
    trace: Trace,
    cluster: str | None,
    origin: str,
    factor: float,
    held: HeldGpus | None = None,
) -> Cluster:
    """Return the cluster with its quotas, or with estimated quotas (D9) if it has none."""
    if factor != 1:
        origin += f"; number of nodes times {factor:g}"
    if quotas.tenants or not trace.has("jobs"):
        return make_cluster(nodes, quotas, origin)
    held = held_gpus(trace, cluster) if held is None else held
    if held.names:
        total = sum(node.gpus for node in nodes if not node.absent)
        weights = np.array([held.p95(vc) for vc in held.names], dtype=np.int64)
        shares = shares_of(weights, total).reshape(1, -1)
        quotas = QuotaTable(held.names, np.zeros(1, dtype=np.int64), shares)
        origin += (
            f"; quotas estimated: 95th percentile over time of each {trace.ingested_tenant.one}'s GPUs, rescaled to the"
            " GPUs of the cluster"
        )
    return make_cluster(nodes, quotas, origin)


# The absences of a Trace's nodes, according to its node_events table.

AWAY = ("down", "drained", "maintenance")
"""States in which a node takes no new jobs. A degraded node still takes them."""

NO_END = 1 << 62
"""End of an absence whose end is unknown [ms]."""

_EPOCH = dt.datetime(1970, 1, 1)


def milliseconds_after_origin(times: pl.Series, jobs: Jobs, load: float = 1.0) -> NDArray[np.int64]:
    """Convert times to times after the origin of the jobs [ms], compressed by the replay's factor `load`."""
    origin = naive_utc(jobs.origin) - _EPOCH
    micros = times.cast(pl.Int64).to_numpy() - origin // dt.timedelta(microseconds=1)
    return np.floor(micros / (1000 * load) + 0.5).astype(np.int64)


def with_absences(
    nodes: Sequence[Node], trace: Trace, jobs: Jobs, load: float = 1.0, *, stops: bool = False
) -> list[Node]:
    """Return the nodes, away during their events in the Trace and available otherwise.

    Overlapping or adjacent events of one node count as one. An event without an end lasts forever. Events of other
    nodes, or in which the node still works, have no effect.

    Parameters
    ----------
    nodes : sequence of Node
        Nodes without changes.
    trace : Trace
    jobs : Jobs
        Node times count from the origin of these jobs.
    load : float
        Factor by which the jobs' submissions are compressed in time.
    stops : bool
        Whether the jobs on a node stop when it goes down.
    """
    spans: dict[str, list[tuple[int, int]]] = {}
    fails: dict[str, set[int]] = {}
    for name, begin, end, kills in absences(trace, jobs, load).iter_rows():
        spans.setdefault(name, []).append((begin, end))
        if stops and kills and begin > 0:
            fails.setdefault(name, set()).add(begin)
    return [
        replace(_away(node, joined(spans[node.name])), stops=tuple(sorted(fails.get(node.name, ()))))
        if node.name in spans
        else node
        for node in nodes
    ]


def _away(node: Node, spans: list[tuple[int, int]]) -> Node:
    """Return a node that is away in the given spans [ms]. A span that ends before the origin has no effect."""
    held = [(begin, end) for begin, end in spans if end > 0]
    changes = [(begin, False) for begin, _ in held if begin > 0] + [(end, True) for _, end in held if end < NO_END]
    return replace(node, absent=any(begin <= 0 for begin, _ in held), changes=tuple(sorted(changes)))


def absences(trace: Trace, jobs: Jobs, load: float = 1.0) -> pl.DataFrame:
    """Return when nodes are away according to node_events, by node and time: node_id, since, until [ms], kills.

    `until` is `NO_END` if the end is unknown. `kills` is whether the jobs on the node stop: they do if it is down, but
    not if it is drained or in maintenance. An event that ends before it begins is ignored.
    """
    columns = {"node_id": pl.String, "since": pl.Int64, "until": pl.Int64, "kills": pl.Boolean}
    if not trace.has("node_events"):
        return pl.DataFrame(schema=columns)
    events = (
        trace.scan("node_events")
        .filter(pl.col("state").is_in(AWAY))
        .select("node_id", "start_time", "end_time", kills=pl.col("state") == "down")
        .drop_nulls(["node_id", "start_time"])
        .sort("node_id", "start_time", "end_time", "kills", nulls_last=True)
        .collect()
    )
    since = milliseconds_after_origin(events["start_time"], jobs, load)
    ended = events["end_time"].is_not_null().to_numpy()
    until = milliseconds_after_origin(events["end_time"].fill_null(events["start_time"]), jobs, load)
    found = events.select(
        "node_id", since=pl.Series(since), until=pl.Series(np.where(ended, until, NO_END)), kills="kills"
    )
    return found.filter(pl.col("until") > pl.col("since"))


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans in order, merging spans that overlap or touch."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > begin:
            found.append((begin, end))
    return found
