"""The nodes that each job may use: those in its domain and partition with the GPU model that it requests.

A group is the set of nodes with the same domain, GPU model, partitions and rack; they are adjacent in the cluster's
order. The groups that a job accepts are the bits of one 64-bit number, where bit 0 is the first group of its domain.
Groups that differ only in their partitions are *siblings*: a gang may use nodes of several siblings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tracekit.errors import UsageError
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]


MOST_GROUPS = 64
"""Largest number of groups in a domain, which is the number of bits in a mask."""


@dataclass(frozen=True)
class Assignment:
    """Domains of jobs, groups of nodes, and the groups that each job accepts.

    There are n jobs, K kinds of demand, G groups and D domains.
    """

    domains: int
    """Number of domains in the cluster (D)."""
    domain: Ints
    """Domain of each job, or -1 if none (n,)."""
    kind: Ints
    """Kind of demand of each job: jobs of one kind have the same domain, partition (if partitions restrict jobs to
    nodes), requested model and number of GPUs (n,)."""
    kind_domain: Ints
    """Domain of each kind, or -1 if none (K,)."""
    kind_model: Ints
    """Requested model of each kind, index into `Jobs.models`, or -1 to accept any (K,)."""
    kind_devices: Ints
    """Number of GPUs per job of each kind (K,)."""
    kind_accept: NDArray[np.uint64]
    """Groups that each kind accepts, as bits. Bit 0 is the first group of its domain (K,)."""
    kind_queue: Ints
    """Queue of each kind: jobs of one queue belong to partitions with the same nodes (K,)."""
    queue_sets: NDArray[np.bool_]
    """Whether the jobs of a queue may use the nodes of a partition set, see `Cluster.partition_sets` (Q, sets)."""
    group_domain: Ints
    """Domain of each group, ascending (G,)."""
    group_model: Ints
    """Model of each group, index into `Cluster.models` (G,)."""
    group_rack: Ints
    """Rack of each group, index into `Cluster.racks`, or -1 if it spans several racks (G,)."""
    group_first: Ints
    """First of the siblings of each group (G,)."""
    group_low: Ints
    """First node of each group (G,)."""
    group_high: Ints
    """The node after the last node of each group (G,)."""
    group_largest: Ints
    """GPUs of the largest node in each group (G,)."""
    group_largest_nodes: Longs
    """Number of nodes of that size in each group (G,)."""
    group_second: Ints
    """GPUs of the next smaller node size in each group, or 0 if none (G,)."""
    group_gpus: Longs
    """Total GPUs of each group (G,)."""
    notes: tuple[str, ...]
    """Notes for readers of a result, one sentence each."""

    def groups_of(self, domain: int) -> tuple[int, int]:
        """Return the first group of a domain and the group after its last."""
        low, high = np.searchsorted(self.group_domain, [domain, domain + 1])
        return int(low), int(high)

    def can_ever_fit(
        self, fit: Literal["place", "count", "blocks"] = "place", *, relaxed: bool = False, scope: Literal[1, 2] = 2
    ) -> NDArray[np.bool_]:
        """Return a mask of the jobs that fit on the empty cluster with all nodes available, shape (n,).

        Parameters
        ----------
        fit : str
            'count': the domain has enough GPUs of any model. 'place': the job fits on nodes of an accepted group. A job
            larger than the largest node takes whole nodes of that size and one more node for the remainder. 'blocks':
            the job fits into one block of 2^k GPUs, rounded up, or on whole nodes of the largest size.
        relaxed : bool
            A job may also take any free GPUs, on any number of nodes.
        scope : int
            How far a relaxed job may spread: within one group (1) or across all nodes of one GPU model (2).
        """
        found: NDArray[np.bool_] = self.kinds_that_fit(fit, relaxed=relaxed, scope=scope)[self.kind]
        return found

    def kinds_that_fit(
        self, fit: Literal["place", "count", "blocks"] = "place", *, relaxed: bool = False, scope: Literal[1, 2] = 2
    ) -> NDArray[np.bool_]:
        """Return the mask of `can_ever_fit` for each kind of demand, shape (K,)."""
        found = np.zeros(len(self.kind_devices), dtype=np.bool_)
        if fit == "count":
            gpus = np.bincount(self.group_domain, self.group_gpus, self.domains).astype(np.int64)
            known = self.kind_domain >= 0
            found[known] = self.kind_devices[known] <= gpus[self.kind_domain[known]]
            return found
        for domain in range(self.domains):
            own = np.flatnonzero(self.kind_domain == domain)
            if len(own):
                devices, accept = self.kind_devices[own], self.kind_accept[own]
                if fit == "blocks":
                    found[own] = self._in_blocks(domain, devices, accept)
                else:
                    found[own] = self._placeable(domain, devices, accept, relaxed, scope)
        return found

    def _placeable(
        self, domain: int, devices: Ints, accept: NDArray[np.uint64], relaxed: bool, scope: int
    ) -> NDArray[np.bool_]:
        found = np.zeros(len(devices), dtype=np.bool_)
        of_model: dict[int, Longs] = {}
        for siblings, accepts in self._racks(domain, accept):
            if not relaxed:
                for chosen, rows in _alike(accepts):
                    found[rows] |= self.fits_group(siblings[chosen], devices[rows])
                continue
            gpus = accepts @ self.group_gpus[siblings]
            found |= (devices <= gpus) & (gpus > 0)
            if scope == 2:
                model = int(self.group_model[siblings[0]])
                of_model[model] = of_model.get(model, np.zeros(len(devices), dtype=np.int64)) + gpus
        for sums in of_model.values():
            found |= (devices <= sums) & (sums > 0)
        return found

    def _in_blocks(self, domain: int, devices: Ints, accept: NDArray[np.uint64]) -> NDArray[np.bool_]:
        rounded = np.array([1 << (int(gpus) - 1).bit_length() for gpus in devices], np.int64)
        found = np.zeros(len(devices), dtype=np.bool_)
        for siblings, accepts in self._racks(domain, accept):
            for chosen, rows in _alike(accepts):
                largest, count, _ = self._largest(siblings[chosen])
                found[rows] |= (rounded[rows] <= largest) | (-(-devices[rows] // largest) <= count)
        return found

    def _racks(self, domain: int, accept: NDArray[np.uint64]) -> Iterator[tuple[Longs, NDArray[np.bool_]]]:
        """Yield the siblings of each rack and model of a domain, and which of them each of k jobs accepts (k, S)."""
        low, high = self.groups_of(domain)
        for first in np.unique(self.group_first[low:high]).tolist():
            siblings = low + np.flatnonzero(self.group_first[low:high] == first)
            yield siblings, accept[:, None] >> (siblings - low).astype(np.uint64) & np.uint64(1) == 1

    def _largest(self, groups: Longs) -> tuple[int, int, int]:
        """Return the GPUs of the largest node of some groups, the number of these nodes, and the next smaller size."""
        largest = int(self.group_largest[groups].max())
        big = self.group_largest[groups] == largest
        smaller = np.where(big, self.group_second[groups], self.group_largest[groups])
        return largest, int(self.group_largest_nodes[groups][big].sum()), int(smaller.max())

    def fits_group(self, groups: int | Longs, devices: Ints) -> NDArray[np.bool_]:
        """Return a mask of the jobs with `devices` GPUs that fit on as few nodes as possible in empty siblings (k,)."""
        largest, count, second = self._largest(np.atleast_1d(groups))
        whole, rest = devices // largest, devices % largest
        other = (count > whole) | (rest <= second)
        fits: NDArray[np.bool_] = (devices <= largest) | ((whole <= count) & ((rest == 0) | other))
        return fits


def _alike(accepts: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], Longs]]:
    """Yield each nonempty set of groups that jobs accept, with these jobs."""
    sets, of_job = np.unique(accepts, axis=0, return_inverse=True)
    for number, chosen in enumerate(sets):
        if chosen.any():
            yield chosen, np.flatnonzero(of_job.ravel() == number)


def assign(jobs: Jobs, cluster: Cluster) -> Assignment:
    """Return the nodes that each job may use.

    A job belongs to the domain named after its VC, or else to the domain '' if it exists, or else to no domain. It
    accepts the groups of its domain whose nodes belong to its partition and have the model that it requests, ignoring
    case ('A|B' requests either). If it requests no model, it accepts every model. If the cluster lists no models at
    all, models do not matter. Groups of lent spares accept only preemptible jobs.

    Raises
    ------
    UsageError
        A domain has more than 64 GPU models.
    """
    notes: list[str] = []
    domain = _domains_of_jobs(jobs, cluster)
    groups = _groups(cluster, notes)
    queue, may_use = _queues(jobs, cluster, notes)
    accept = _accept(jobs, cluster, groups, notes)
    stoppable = None if cluster.lent is None else jobs.preemptible == 1
    kind, first = _kinds(domain, queue, jobs, stoppable)
    models = jobs.model[first]
    kind_domain = domain[first]
    kind_accept = np.where(kind_domain >= 0, accept[kind_domain, models + 1], np.uint64(0)).astype(np.uint64)
    if len(may_use) > 1:
        for number, usable in enumerate(may_use):
            own = groups.bits(usable[cluster.serves], len(cluster.domains))
            rows = queue[first] == number
            kind_accept[rows] &= own[kind_domain[rows]]
    if stoppable is not None and cluster.lent is not None:
        own = groups.bits(cluster.lent, len(cluster.domains))
        kind_accept &= np.where(stoppable[first], ~np.uint64(0), ~own[kind_domain])
    sizes = [_sizes(cluster.gpus[low:high]) for low, high in zip(groups.low, groups.high, strict=True)]
    largest, largest_nodes, second, gpus = (list(column) for column in zip(*sizes, strict=True)) if sizes else [[]] * 4
    return Assignment(
        domains=len(cluster.domains),
        domain=domain,
        kind=kind,
        kind_domain=kind_domain,
        kind_model=models,
        kind_devices=jobs.devices[first],
        kind_accept=kind_accept,
        kind_queue=queue[first],
        queue_sets=may_use,
        group_domain=groups.domain,
        group_model=groups.model,
        group_rack=groups.rack,
        group_first=groups.first,
        group_low=groups.low,
        group_high=groups.high,
        group_largest=np.array(largest, dtype=np.int32),
        group_largest_nodes=np.array(largest_nodes, dtype=np.int64),
        group_second=np.array(second, dtype=np.int32),
        group_gpus=np.array(gpus, dtype=np.int64),
        notes=tuple(notes),
    )


def _domains_of_jobs(jobs: Jobs, cluster: Cluster) -> Ints:
    index = {name: code for code, name in enumerate(cluster.domains)}
    other = index.get("", -1)
    # The last entry is for jobs without a VC, because their code -1 indexes it.
    by_tenant = np.array([index.get(name, other) for name in jobs.tenants] + [other], dtype=np.int32)
    return by_tenant[jobs.tenant]


class _Groups(NamedTuple):
    """The groups of a cluster's nodes, in order (G,): see the columns of `Assignment`."""

    domain: Ints
    model: Ints
    rack: Ints
    first: Ints
    low: Ints
    high: Ints

    def bits(self, nodes: NDArray[np.bool_], domains: int) -> NDArray[np.uint64]:
        """Return the groups with a selected node as bits by domain (D,). `nodes` is the selection (N,)."""
        found = np.zeros(domains, np.uint64)
        low = np.searchsorted(self.domain, self.domain)
        for group in np.flatnonzero(np.logical_or.reduceat(nodes, self.low)).tolist() if len(self.low) else ():
            found[self.domain[group]] |= np.uint64(1) << np.uint64(group - low[group])
        return found


def _groups(cluster: Cluster, notes: list[str]) -> _Groups:
    order = np.lexsort((cluster.rack, cluster.serves, cluster.model, cluster.domain))
    if not np.array_equal(order, np.arange(cluster.nodes)):
        msg = "the nodes of a cluster must be sorted by domain, model, partitions and rack"
        raise ValueError(msg)
    finest = _starts(cluster.domain, cluster.model, cluster.serves, cluster.rack)
    coarser = (
        (_starts(cluster.domain, cluster.model, cluster.serves), "racks are ignored"),
        (_starts(cluster.domain, cluster.model), "partitions are ignored"),
    )
    starts = finest
    for kept, what in coarser:
        count = np.bincount(cluster.domain[starts], minlength=len(cluster.domains))
        crowded = np.flatnonzero(count > MOST_GROUPS)
        starts = starts[~np.isin(cluster.domain[starts], crowded) | np.isin(starts, kept)]
        notes.extend(
            f"{what} in {_named(cluster, int(d))}: {count[d]} groups of nodes are more than {MOST_GROUPS}"
            for d in crowded
        )
    models = np.bincount(cluster.domain[starts], minlength=len(cluster.domains))
    if models.max(initial=0) > MOST_GROUPS:
        worst = int(np.argmax(models))
        raise UsageError(
            f"{_named(cluster, worst)} has {models[worst]} GPU models, more than {MOST_GROUPS}",
            hint="give the same name to GPU models that one job may mix",
        )
    ends = np.append(starts[1:], cluster.nodes).astype(np.int32)[: len(starts)]
    rack = cluster.rack[starts].copy()
    rack[np.logical_or.reduceat(cluster.rack != np.repeat(rack, ends - starts), starts)] = -1
    same = np.stack([cluster.domain[starts], cluster.model[starts], rack])
    _, index, inverse = np.unique(same, axis=1, return_index=True, return_inverse=True)
    first = index[inverse.ravel()].astype(np.int32)
    return _Groups(same[0], same[1], same[2], first, starts.astype(np.int32), ends)


def _starts(*columns: Ints) -> Longs:
    """Return the nodes at which a column changes, including the first node."""
    if not len(columns[0]):
        return np.empty(0, dtype=np.int64)
    change = np.zeros(len(columns[0]), dtype=np.bool_)
    change[0] = True
    for column in columns:
        change[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(change)


def _named(cluster: Cluster, domain: int) -> str:
    name = cluster.domains[domain]
    return f"the pool '{name}'" if name else "the cluster"


def _accept(jobs: Jobs, cluster: Cluster, groups: _Groups, notes: list[str]) -> NDArray[np.uint64]:
    """Return the mask of each domain and requested model. Column 0 is for jobs that request no model."""
    unknown = all(name == "" for name in cluster.models)
    names = [name.casefold() for name in cluster.models]
    accept = np.zeros((len(cluster.domains), len(jobs.models) + 1), dtype=np.uint64)
    requested = [set[str](), *(set(asked.casefold().split("|")) for asked in jobs.models)]
    low = np.searchsorted(groups.domain, groups.domain)
    for group, domain in enumerate(groups.domain.tolist()):
        bit = np.uint64(1) << np.uint64(group - low[group])
        own = names[groups.model[group]]
        accept[domain, 0] |= bit
        for code in range(1, len(jobs.models) + 1):
            if unknown or own in requested[code]:
                accept[domain, code] |= bit
    if unknown and jobs.models:
        notes.append("GPU models that jobs request are ignored, because the cluster lists no models")
    elif jobs.models:
        counts = np.bincount(jobs.model[jobs.model >= 0], minlength=len(jobs.models))
        notes.extend(
            f"the cluster does not have the GPU model '{asked}', which {counted(counts[code], 'jobs')} requested"
            for code, asked in enumerate(jobs.models)
            if counts[code] and requested[code + 1].isdisjoint(names)
        )
    return accept


def _queues(jobs: Jobs, cluster: Cluster, notes: list[str]) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the queue of each job (n,), and which partition sets the jobs of each queue may use (Q, sets).

    Partitions whose jobs may use the same nodes are one queue. A job may use every node if it has no partition, or if
    no node is known to belong to its partition.
    """
    everywhere = np.ones(len(cluster.partition_sets), dtype=np.bool_)
    if jobs.partition is None or not any(cluster.partition_sets):
        return np.zeros(len(jobs), dtype=np.int32), everywhere[None]
    rows = [everywhere]
    unknown = []
    for name in jobs.partitions:
        usable = np.array([not own or not own.isdisjoint(name.split(",")) for own in map(set, cluster.partition_sets)])
        known = any(not set(own).isdisjoint(name.split(",")) for own in cluster.partition_sets)
        if not known:
            unknown.append(name)
        rows.append(usable if known else everywhere)
    # The last entry is for jobs without a partition, because their code -1 indexes it.
    distinct, inverse = np.unique(np.array([*rows[1:], rows[0]]), axis=0, return_inverse=True)
    queue = inverse.ravel().astype(np.int32)[jobs.partition]
    counts = np.bincount(jobs.partition[jobs.partition >= 0], minlength=len(jobs.partitions))
    notes.extend(
        f"no node is known to belong to the partition '{name}', so its {counted(count, 'jobs')} may use every node"
        for name in unknown
        if (count := int(counts[jobs.partitions.index(name)]))
    )
    return queue, distinct


def _kinds(domain: Ints, queue: Ints, jobs: Jobs, stoppable: NDArray[np.bool_] | None) -> tuple[Ints, Longs]:
    """Return the kind of each job and one job of each kind, with kinds sorted by domain, queue, model and GPUs.

    If spares are lent, preemptible jobs form kinds of their own.
    """
    models, largest = len(jobs.models) + 1, int(jobs.devices.max(initial=0)) + 1
    code = (domain.astype(np.int64) + 1) * (int(queue.max(initial=0)) + 1) + queue
    code = (code * models + jobs.model + 1) * largest + jobs.devices
    if stoppable is not None:
        code = code * 2 + stoppable
    return numbered(code)


def numbered(codes: Longs) -> tuple[Ints, Longs]:
    """Return the rank of each code among the distinct codes, and where each distinct code occurs first.

    Codes are at least 0.
    """
    size = int(codes.max(initial=0)) + 1
    if size > 16 * len(codes):
        _, first, number = np.unique(codes, return_index=True, return_inverse=True)
        return number.astype(np.int32), first
    # A table of all codes is several times as fast as sorting the jobs.
    first_of = np.full(size, -1, dtype=np.int64)
    first_of[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    used = np.flatnonzero(first_of >= 0)
    rank = np.zeros(size, dtype=np.int32)
    rank[used] = np.arange(len(used))
    return rank[codes], first_of[used]


def _sizes(gpus: Ints) -> tuple[int, int, int, int]:
    """Return the largest node size, the number of nodes of that size, the next smaller size or 0, and the total."""
    largest = int(gpus.max())
    return largest, int((gpus == largest).sum()), int(gpus[gpus < largest].max(initial=0)), int(gpus.sum())
