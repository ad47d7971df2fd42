"""Clusters in TOML files, for what-if questions.

    partitioned = true        # each VC is an isolated domain; the default is false

    [[pool]]                  # identical nodes
    name = "v100"
    nodes = 16
    gpus_per_node = 8
    model = "V100"            # this key and the following ones are optional
    racks = ["r1", "r2"]      # nodes are divided evenly among the racks, in order; or rack = "r1"
    vc = "research"
    partitions = ["gpu", "debug"]   # only jobs of these partitions; without the key, jobs of all partitions
    cpus = 96
    memory_gib = 512

    [vc.research]
    quota = [{from = 2020-04-01, quota = 64}, {from = 2020-05-01, quota = 96}]   # or quota = 64

Times are dates, or seconds after the first submission. A pool may also have `node_ids` and `absent` (away at first). A
file may also have `origin`, and `[[change]]` with `at`, `nodes` and `up` for nodes that join or leave.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import numpy as np

from tracekit.decode import Range
from tracekit.errors import nearest
from tracekit.replay.clusters.cluster import Node, QuotaTable, make_cluster
from tracekit.replay.jobs import naive_utc
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.decode import Place
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


_MOST = 1_000_000
"""Upper limit for nodes, GPUs per node and similar numbers. A larger value is taken for a typing error."""

_Number = Annotated[int, Range(1, _MOST)]
_Amount = Annotated[float, Range(0, 1e9)]
_Quota = Annotated[int, Range(0, 10**9)]
_Time = dt.date | Annotated[float, Range(-1e11, 1e11)]
"""A date, or seconds after the first submission."""


@dataclass(frozen=True)
class _Pool:
    nodes: _Number
    gpus_per_node: _Number
    name: str | None = None
    node_ids: tuple[str, ...] | None = None
    model: str = ""
    vc: str = ""
    rack: str | None = None
    racks: tuple[str, ...] | None = None
    partitions: tuple[str, ...] = ()
    cpus: _Amount | None = None
    memory_gib: _Amount | None = None
    absent: bool = False


@dataclass(frozen=True)
class _Change:
    at: _Time
    nodes: tuple[str, ...]
    up: bool


@dataclass(frozen=True)
class _Step:
    from_: _Time
    quota: _Quota


@dataclass(frozen=True)
class _Tenant:
    quota: _Quota | tuple[_Step, ...]


@dataclass(frozen=True)
class _ClusterFile:
    pool: tuple[_Pool, ...] = ()
    change: tuple[_Change, ...] = ()
    vc: dict[str, _Tenant] = field(default_factory=dict)
    partitioned: bool = False
    origin: str | None = None


def read_cluster(path: Path, jobs: Jobs, *, partitioned: bool | None = None) -> Cluster:
    """Read the cluster that a TOML file describes (see the module for the keys).

    Parameters
    ----------
    path : Path
        The cluster file.
    jobs : Jobs
        The jobs, whose first submission is time 0.
    partitioned : bool, optional
        Whether each VC is an isolated domain. This overrides the file.

    Raises
    ------
    UsageError
        The file cannot be read, is not TOML, or has an invalid key or value. The error names the line.
    """
    text = TomlText(path, "cluster")
    file = text.decode(_ClusterFile)
    divided = file.partitioned if partitioned is None else partitioned
    if not file.pool:
        raise text.error((), "has no [[pool]], so no GPUs", "write at least one pool with nodes and gpus_per_node")
    nodes: list[Node] = []
    for number, pool in enumerate(file.pool):
        if len(nodes) + pool.nodes > _MOST:
            place = ("pool", number, "nodes")
            raise text.error(place, f"the pools have more than {_MOST:,} nodes", "write fewer")
        nodes += _nodes(text, number, pool)
    if divided and not any(node.domain for node in nodes):
        raise text.error(("partitioned",), "no pool has a vc, so the cluster cannot be partitioned", "give pools a vc")
    nodes = _changed(text, file, nodes, jobs)
    if not divided:
        nodes = [replace(node, domain="") for node in nodes]
    origin = f"the file {path.name}" if file.origin is None else file.origin
    return make_cluster(nodes, _quotas(text, file, jobs), origin)


def _nodes(text: TomlText, number: int, pool: _Pool) -> list[Node]:
    count = pool.nodes
    name = f"pool{number}" if pool.name is None else pool.name
    ids = pool.node_ids
    if ids is None:
        ids = tuple(f"{name}-{i:04d}" for i in range(count))
    elif len(ids) != count:
        place = ("pool", number, "node_ids")
        raise text.error(place, f"has {len(ids)} names for {count} nodes", "name each node once")
    place = ("pool", number, "racks")
    if pool.racks is not None and pool.rack is not None:
        raise text.error(place, "a pool has either rack or racks", "remove one of them")
    racks = (pool.rack or "",) if pool.racks is None else pool.racks
    if not 1 <= len(racks) <= count:
        raise text.error(place, f"{len(racks)} racks for {count} nodes", "write 1 to as many racks as nodes")
    cpu = -1 if pool.cpus is None else round(pool.cpus * 1000)
    memory = -1 if pool.memory_gib is None else round(pool.memory_gib * 1024)
    serves = tuple(sorted(set(pool.partitions)))
    whole = Node("", pool.gpus_per_node, pool.model, "", pool.vc, cpu, memory, pool.absent, partitions=serves)
    return [replace(whole, name=ids[i], rack=racks[i * len(racks) // count]) for i in range(count)]


def _changed(text: TomlText, file: _ClusterFile, nodes: list[Node], jobs: Jobs) -> list[Node]:
    """Return the nodes with the times at which they join and leave."""
    names: dict[str, int] = {}
    for number, node in enumerate(nodes):
        if names.setdefault(node.name, number) != number:
            raise text.error(("pool",), f"two nodes are called '{node.name}'", "give the pools different names")
    moves: dict[int, list[tuple[int, bool]]] = {}
    for number, change in enumerate(file.change):
        for name in change.nodes:
            if name not in names:
                place = ("change", number, "nodes")
                raise text.error(place, f"no node '{name[:80]}'", nearest(name, list(names)[:200]))
            moves.setdefault(names[name], []).append((_time(change.at, jobs), change.up))
    return [
        replace(node, changes=tuple(moves[number])) if number in moves else node for number, node in enumerate(nodes)
    ]


def _quotas(text: TomlText, file: _ClusterFile, jobs: Jobs) -> QuotaTable:
    steps = {vc: _steps(text, ("vc", vc, "quota"), tenant.quota, jobs) for vc, tenant in file.vc.items()}
    times = sorted({at for rows in steps.values() for at, _ in rows if at is not None}) or [0] * bool(steps)
    tenants = sorted(steps)
    gpus = np.zeros((len(times), len(tenants)), dtype=np.int64)
    for column, vc in enumerate(tenants):
        own = np.array([times[0] if at is None else at for at, _ in steps[vc]], dtype=np.int64)
        place = np.maximum(np.searchsorted(own, times, side="right") - 1, 0)
        gpus[:, column] = np.array([quota for _, quota in steps[vc]], dtype=np.int64)[place]
    return QuotaTable(tenants, np.array(times, dtype=np.int64), gpus)


def _steps(text: TomlText, at: Place, quota: int | tuple[_Step, ...], jobs: Jobs) -> list[tuple[int | None, int]]:
    """Return (time, quota) rows in ascending order. A row with time None always applies."""
    if isinstance(quota, int):
        return [(None, quota)]
    rows = [(_time(step.from_, jobs), step.quota) for step in quota]
    if not rows:
        raise text.error(at, "the list is empty", "such as quota = 64")
    if any(later[0] <= earlier[0] for earlier, later in pairwise(rows)):
        raise text.error(at, "the times must rise", "sort the list by from")
    return [*rows]


def _time(value: dt.date | float, jobs: Jobs) -> int:
    """Convert a time to milliseconds after the first submission."""
    if not isinstance(value, dt.date):
        return round(value * 1000)
    moment = value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time())
    micros: int = (naive_utc(moment) - naive_utc(jobs.origin)) // dt.timedelta(microseconds=1)
    return (micros + 500) // 1000
