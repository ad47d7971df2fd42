"""The cluster of a replay: nodes in groups, groups in domains, and the quotas of tenants over time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Cluster:
    """Nodes and quotas.

    A *domain* is the set of nodes that a job's queue may use: the whole cluster, or one virtual cluster if they are
    isolated. A *group* is the set of nodes with the same domain, GPU model, partitions and rack. Nodes are sorted by
    these four, so a group's nodes are adjacent. Node indices break all ties.
    """

    node_id: list[str]
    """Node names."""
    gpus: NDArray[np.int32]
    """GPUs of each node, at least 1 (N,)."""
    model: NDArray[np.int32]
    """Index into `models` (N,)."""
    rack: NDArray[np.int32]
    """Index into `racks` (N,), which is 0 everywhere if racks are unknown."""
    domain: NDArray[np.int32]
    """Index into `domains` (N,)."""
    serves: NDArray[np.int32]
    """Index into `partition_sets` (N,)."""
    place: NDArray[np.int32]
    """Place of each node in the original list (N,)."""
    cpu_milli: NDArray[np.int64]
    """CPUs of each node [milli-cores], or -1 if unknown (N,)."""
    memory_mib: NDArray[np.int64]
    """Host memory of each node [MiB], or -1 if unknown (N,)."""
    models: list[str]
    """GPU models, in which '' means unknown."""
    racks: list[str]
    """Racks, or a single ''."""
    domains: list[str]
    """Domains: names of the virtual clusters if they are isolated, else a single ''."""
    partition_sets: list[tuple[str, ...]]
    """Sets of partitions whose jobs a node takes, smallest first. () means unknown: such a node takes every job."""
    tenants: list[str]
    """Virtual clusters with a quota."""
    quota_ms: NDArray[np.int64]
    """Times from which the rows of `quota` apply [ms after origin], ascending. The first also applies before (Q,)."""
    quota: NDArray[np.int64]
    """Quota of each tenant [GPUs] (Q, tenants)."""
    change_ms: NDArray[np.int64]
    """Times at which a node joins or leaves [ms] (E,), ascending."""
    change_node: NDArray[np.int32]
    """The node that joins or leaves (E,)."""
    change_up: NDArray[np.int8]
    """1 if the node joins, or 0 if it leaves and takes no new jobs. Running jobs finish unless the node fails (E,)."""
    absent: NDArray[np.int8]
    """1 if the node is away before its first change (N,)."""
    origin: str
    """The source of the cluster, as results report it, such as 'nodes of the Trace'."""
    change_kills: NDArray[np.int8] | None = None
    """1 if the change stops the jobs on the node because the node fails (E,). None if no change stops jobs."""
    lent: NDArray[np.bool_] | None = None
    """Extra rows for spares, present while preemptible jobs use the spare (N,). The node's other row is for regular
    work, and the two are never present at the same time. None if no spare is lent."""
    lendable: bool = False
    """Whether a policy that lends quotas may use all domains as one. True if the domains come from the source, not from
    the user."""
    without_gpus: int = 0
    """Number of nodes in the Trace that are excluded because they have no GPUs."""

    @property
    def nodes(self) -> int:
        """Number of nodes. A node lent as a spare counts twice (see `lent`)."""
        return len(self.gpus)

    @property
    def machines(self) -> int:
        """Number of nodes, each counted once."""
        return self.nodes - (0 if self.lent is None else int(self.lent.sum()))

    def as_nodes(self) -> list[Node]:
        """Return the nodes in the form that `make_cluster` takes, in the order of the arrays."""
        moves: list[list[tuple[int, bool]]] = [[] for _ in self.node_id]
        stops: list[list[int]] = [[] for _ in self.node_id]
        kills = np.zeros(len(self.change_ms)) if self.change_kills is None else self.change_kills
        for at, node, up, stop in zip(
            self.change_ms.tolist(), self.change_node.tolist(), self.change_up.tolist(), kills.tolist(), strict=True
        ):
            moves[node].append((at, bool(up)))
            stops[node] += [at] * int(stop)
        return [
            Node(
                name,
                int(self.gpus[n]),
                self.models[self.model[n]],
                self.racks[self.rack[n]],
                self.domains[self.domain[n]],
                int(self.cpu_milli[n]),
                int(self.memory_mib[n]),
                bool(self.absent[n]),
                tuple(moves[n]),
                self.partition_sets[self.serves[n]],
                int(self.place[n]),
                tuple(stops[n]),
            )
            for n, name in enumerate(self.node_id)
        ]

    def effective_changes(self) -> Iterator[tuple[int, int, bool]]:
        """Yield (time [ms], node, whether it joins) for each change that has an effect, in order."""
        there = (self.absent == 0).tolist()
        rows = zip(self.change_ms.tolist(), self.change_node.tolist(), self.change_up.tolist(), strict=True)
        for time, node, up in rows:
            if there[node] != bool(up):
                there[node] = bool(up)
                yield time, node, bool(up)

    @property
    def total_gpus(self) -> int:
        """Total GPUs of all nodes."""
        return int(self.gpus.sum() if self.lent is None else self.gpus[~self.lent].sum())


# Sort nodes, build a `Cluster` from them, and scale the number of nodes of each kind.

NO_TIMES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Node:
    """A node before it gets its position in the cluster.

    `changes` are the times at which it joins (True) or leaves (False) [ms]. An `absent` node is away before its first
    change.
    """

    name: str
    gpus: int
    model: str = ""
    rack: str = ""
    domain: str = ""
    cpu_milli: int = -1
    memory_mib: int = -1
    absent: bool = False
    changes: tuple[tuple[int, bool], ...] = ()
    partitions: tuple[str, ...] = ()
    """Partitions whose jobs the node takes, in alphabetical order, or () if unknown."""
    place: int | None = None
    """Place in the list of nodes, or None for the given order."""
    stops: tuple[int, ...] = ()
    """Times at which the node fails and its jobs stop [ms]. `changes` say how long it is away."""

    @property
    def group(self) -> tuple[str, str, int, tuple[str, ...], str]:
        """Return what defines the node's group and order: nodes of fewer partitions come first."""
        return self.domain, self.model, len(self.partitions), self.partitions, self.rack


@dataclass(frozen=True)
class QuotaTable:
    """GPUs that tenants may use: sorted tenants, ascending times [ms] (Q,), GPUs (Q, tenants)."""

    tenants: list[str]
    times: NDArray[np.int64]
    gpus: NDArray[np.int64]

    @classmethod
    def none(cls) -> Self:
        """Return the quota table of a cluster without tenants."""
        return cls([], NO_TIMES, np.empty((0, 0), dtype=np.int64))

    def scaled(self, factor: float) -> QuotaTable:
        """Return the quotas times a factor. At each time, they divide the rounded total into whole GPUs."""
        rows = [shares_of(row, scaled_number(int(row.sum()), factor)) for row in self.gpus]
        return replace(self, gpus=np.array(rows, dtype=np.int64).reshape(self.gpus.shape))


def make_cluster(nodes: Sequence[Node], quotas: QuotaTable, origin: str) -> Cluster:
    """Build a cluster of the nodes, sorted by domain, model, partitions and rack. Ties keep the given order."""
    order = sorted(range(len(nodes)), key=lambda number: nodes[number].group)
    ordered = [nodes[number] for number in order]
    sets = sorted({node.partitions for node in nodes}, key=lambda names: (len(names), names))
    models = sorted({node.model for node in nodes})
    racks = sorted({node.rack for node in nodes})
    domains = sorted({node.domain for node in nodes})
    index = [{name: code for code, name in enumerate(names)} for names in (models, racks, domains)]
    moves = sorted(
        [(at, number, 1, up) for number, node in enumerate(ordered) for at, up in node.changes]
        + [(at, number, 0, False) for number, node in enumerate(ordered) for at in node.stops]
    )
    return Cluster(
        node_id=[node.name for node in ordered],
        gpus=np.array([node.gpus for node in ordered], dtype=np.int32),
        model=np.array([index[0][node.model] for node in ordered], dtype=np.int32),
        rack=np.array([index[1][node.rack] for node in ordered], dtype=np.int32),
        domain=np.array([index[2][node.domain] for node in ordered], dtype=np.int32),
        serves=np.array([sets.index(node.partitions) for node in ordered], dtype=np.int32),
        place=_ranks([number if node.place is None else node.place for number, node in enumerate(nodes)])[order],
        cpu_milli=np.array([node.cpu_milli for node in ordered], dtype=np.int64),
        memory_mib=np.array([node.memory_mib for node in ordered], dtype=np.int64),
        models=models,
        racks=racks,
        domains=domains,
        partition_sets=sets,
        tenants=quotas.tenants,
        quota_ms=quotas.times,
        quota=quotas.gpus,
        change_ms=np.array([move[0] for move in moves], dtype=np.int64),
        change_node=np.array([move[1] for move in moves], dtype=np.int32),
        change_up=np.array([move[3] for move in moves], dtype=np.int8),
        absent=np.array([node.absent for node in ordered], dtype=np.int8),
        origin=origin,
        change_kills=(
            np.array([move[2] == 0 for move in moves], np.int8) if any(node.stops for node in ordered) else None
        ),
    )


def _ranks(places: list[int]) -> NDArray[np.int32]:
    """Return the rank of each place; equal places keep their order."""
    found = np.empty(len(places), dtype=np.int32)
    found[np.argsort(places, kind="stable")] = np.arange(len(places))
    return found


def cluster_under(cluster: Cluster, *, lends: bool, partitions: bool = True) -> Cluster:
    """Return the cluster for a policy.

    All nodes form one domain if the policy `lends` quotas and may do so. Unless the policy separates the `partitions`
    of a domain, every node takes every job.
    """
    joined = lends and cluster.lendable and len(cluster.domains) > 1
    mixed = not partitions and len(cluster.partition_sets) > 1
    if not joined and not mixed:
        return cluster
    domain = np.zeros_like(cluster.domain) if joined else cluster.domain
    serves = np.zeros_like(cluster.serves) if mixed else cluster.serves
    order = np.lexsort((cluster.rack, serves, cluster.model, domain))  # stable: equal nodes keep their order
    place = np.empty(cluster.nodes, dtype=np.int32)
    place[order] = np.arange(cluster.nodes, dtype=np.int32)
    columns = ("gpus", "model", "rack", "place", "cpu_milli", "memory_mib", "absent")
    origin = cluster.origin
    if joined:
        origin += "; all nodes are shared, because the policy lends quotas"
    if mixed:
        origin += "; partitions are ignored, because the policy does not know them"
    return replace(
        cluster,
        node_id=[cluster.node_id[number] for number in order],
        **{name: getattr(cluster, name)[order] for name in columns},
        domain=domain[order],
        domains=[""] if joined else cluster.domains,
        serves=serves[order],
        partition_sets=[()] if mixed else cluster.partition_sets,
        change_node=place[cluster.change_node],
        lent=None if cluster.lent is None else cluster.lent[order],
        origin=origin,
        lendable=cluster.lendable and not joined,
    )


def moved_cluster(cluster: Cluster, begin_ms: int, load: float = 1.0) -> Cluster:
    """Return the cluster from `begin_ms` on, with times moved by `moved_times`."""
    quota_ms, change_ms = (moved_times(times, begin_ms, load) for times in (cluster.quota_ms, cluster.change_ms))
    holds = max(int(np.searchsorted(quota_ms, 0, "right")) - 1, 0)
    past = change_ms <= 0
    absent = cluster.absent.copy()
    for node, up in zip(cluster.change_node[past].tolist(), cluster.change_up[past].tolist(), strict=True):
        absent[node] = 1 - up
    return replace(
        cluster,
        quota_ms=quota_ms[holds:],
        quota=cluster.quota[holds:],
        change_ms=change_ms[~past],
        change_node=cluster.change_node[~past],
        change_up=cluster.change_up[~past],
        change_kills=None if cluster.change_kills is None else cluster.change_kills[~past],
        absent=absent,
    )


def moved_times(times: NDArray[np.int64], begin_ms: int, load: float = 1.0) -> NDArray[np.int64]:
    """Return times that count from `begin_ms` and are divided by the load [ms]."""
    return np.floor((times - begin_ms) / load + 0.5).astype(np.int64)


def check_factor(gpus: float | None) -> float:
    """Return the factor by which the number of nodes is multiplied, by default 1.

    Raises
    ------
    UsageError
        The factor is not above 0 and at most 1,000.
    """
    factor = 1.0 if gpus is None else gpus
    if not (math.isfinite(factor) and 0 < factor <= 1000):
        raise UsageError(
            f"the GPU factor must be above 0 and at most 1,000, not {factor:g}", hint="1 keeps the cluster"
        )
    return factor


def scaled_number(number: int, factor: float) -> int:
    """Return a count times a factor, with halves rounded up, and at least 1 if the count is not 0."""
    return max(1, math.floor(number * factor + 0.5)) if number > 0 else 0


def repeated(nodes: Sequence[Node], factor: float) -> list[Node]:
    """Return `factor` times as many nodes per group: the last ones are dropped, or all are repeated in order."""
    groups: dict[tuple[object, ...], list[Node]] = {}
    for number, node in enumerate(nodes):
        groups.setdefault(node.group, []).append(replace(node, place=number) if node.place is None else node)
    taken = {node.name for node in nodes}
    out = []
    for group in groups.values():
        for number in range(scaled_number(len(group), factor)):
            round_, place = divmod(number, len(group))
            node = group[place]
            if round_:
                name = _free_name(node.name, round_ + 1, taken)
                node = replace(node, name=name)
            out.append(node)
    return out


def _free_name(name: str, number: int, taken: set[str]) -> str:
    new = f"{name}-{number}"
    while new in taken:
        new += "+"
    taken.add(new)
    return new


def shares_of(weights: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Return whole numbers in proportion to the weights, with exactly this total, by largest remainder.

    Ties go to the first weight. If all weights are 0, they count as equal.

    >>> shares_of(np.array([1, 1, 2]), 10)
    array([3, 2, 5])
    """
    values = [int(weight) for weight in weights]
    if not any(values):
        values = [1] * len(values)
    whole = sum(values)
    parts = [divmod(total * value, whole) for value in values]
    missing = total - sum(quotient for quotient, _ in parts)
    first = sorted(range(len(parts)), key=lambda i: (-parts[i][1], i))[: max(missing, 0)]
    shares = np.array([quotient for quotient, _ in parts], dtype=np.int64)
    shares[first] += 1
    return shares
