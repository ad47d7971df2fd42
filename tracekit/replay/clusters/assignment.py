"""The nodes that each job may use: its domain, and the groups of the domain with the GPU model that it requests.

A group is the set of nodes with the same domain, GPU model and rack. These nodes are adjacent in the cluster's order.
The groups that a job accepts are the bits of one 64-bit number, in which bit 0 is the first group of its domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tracekit.errors import UsageError
from tracekit.text import counted

if TYPE_CHECKING:
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
    """Kind of demand of each job: jobs of one kind have the same domain, requested model and number of GPUs (n,)."""
    kind_domain: Ints
    """Domain of each kind, or -1 if none (K,)."""
    kind_model: Ints
    """Requested model of each kind, index into `Jobs.models`, or -1 to accept any (K,)."""
    kind_devices: Ints
    """Number of GPUs per job of each kind (K,)."""
    kind_accept: NDArray[np.uint64]
    """Groups that each kind accepts, as bits. Bit 0 is the first group of its domain (K,)."""
    accept: NDArray[np.uint64]
    """Accepted groups by domain and by requested model plus 1. Column 0 accepts any model (D, models + 1)."""
    group_domain: Ints
    """Domain of each group, ascending (G,)."""
    group_model: Ints
    """Model of each group, index into `Cluster.models` (G,)."""
    group_rack: Ints
    """Rack of each group, index into `Cluster.racks`, or -1 if it spans several racks (G,)."""
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
        """Return a mask of the jobs that could be placed on the empty cluster with all nodes available, shape (n,).

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
        low, high = self.groups_of(domain)
        found = np.zeros(len(devices), dtype=np.bool_)
        of_model: dict[int, Longs] = {}
        for group in range(low, high):
            accepts = (accept >> np.uint64(group - low)) & np.uint64(1) == 1
            gpus = int(self.group_gpus[group])
            found |= accepts & (devices <= gpus if relaxed else self.fits_group(group, devices))
            if relaxed and scope == 2:
                model = int(self.group_model[group])
                sums = of_model.get(model, np.zeros(len(devices), dtype=np.int64))
                of_model[model] = sums + np.where(accepts, gpus, 0)
        for sums in of_model.values():
            found |= (devices <= sums) & (sums > 0)
        return found

    def _in_blocks(self, domain: int, devices: Ints, accept: NDArray[np.uint64]) -> NDArray[np.bool_]:
        rounded = np.array([1 << (int(gpus) - 1).bit_length() for gpus in devices], np.int64)
        found = np.zeros(len(devices), dtype=np.bool_)
        low, high = self.groups_of(domain)
        for group in range(low, high):
            accepts = (accept >> np.uint64(group - low)) & np.uint64(1) == 1
            largest, count = int(self.group_largest[group]), int(self.group_largest_nodes[group])
            found |= accepts & ((rounded <= largest) | (-(-devices // largest) <= count))
        return found

    def fits_group(self, group: int, devices: Ints) -> NDArray[np.bool_]:
        """Return a mask of the jobs with `devices` GPUs that fit on as few nodes as possible in an empty group (k,)."""
        largest, count = int(self.group_largest[group]), int(self.group_largest_nodes[group])
        whole, rest = devices // largest, devices % largest
        other = (count > whole) | (rest <= int(self.group_second[group]))
        fits: NDArray[np.bool_] = (devices <= largest) | ((whole <= count) & ((rest == 0) | other))
        return fits


def assign(jobs: Jobs, cluster: Cluster) -> Assignment:
    """Return the nodes that each job may use.

    A job belongs to the domain named after its VC, or else to the domain '' if it exists, or else to no domain. It
    accepts the groups of its domain with the model that it requests, ignoring case ('A|B' requests either). If it
    requests no model, it accepts every group. If the cluster lists no models at all, models do not matter. Groups of
    lent spares accept only preemptible jobs.

    Raises
    ------
    UsageError
        A domain has more than 64 GPU models.
    """
    notes: list[str] = []
    domain = _domains_of_jobs(jobs, cluster)
    groups = _groups(cluster, notes)
    accept = _accept(jobs, cluster, groups, notes)
    stoppable = None if cluster.lent is None else jobs.preemptible == 1
    kind, first = _kinds(domain, jobs, stoppable)
    models = jobs.model[first]
    kind_domain = domain[first]
    kind_accept = np.where(kind_domain >= 0, accept[kind_domain, models + 1], np.uint64(0)).astype(np.uint64)
    if stoppable is not None and cluster.lent is not None:
        own = _groups_in(groups, cluster.lent, len(cluster.domains))
        kind_accept &= np.where(stoppable[first], ~np.uint64(0), ~own[kind_domain])
    sizes = [_sizes(cluster.gpus[low:high]) for low, high in zip(groups[3], groups[4], strict=True)]
    largest, largest_nodes, second, gpus = (list(column) for column in zip(*sizes, strict=True)) if sizes else [[]] * 4
    return Assignment(
        domains=len(cluster.domains),
        domain=domain,
        kind=kind,
        kind_domain=kind_domain,
        kind_model=models,
        kind_devices=jobs.devices[first],
        kind_accept=kind_accept,
        accept=accept,
        group_domain=groups[0],
        group_model=groups[1],
        group_rack=groups[2],
        group_low=groups[3],
        group_high=groups[4],
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


def _groups(cluster: Cluster, notes: list[str]) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return the domain, model, rack, first node, and the node after the last node of each group."""
    order = np.lexsort((cluster.rack, cluster.model, cluster.domain))
    if not np.array_equal(order, np.arange(cluster.nodes)):
        msg = "the nodes of a cluster must be sorted by domain, model and rack"
        raise ValueError(msg)
    by_model = _starts(cluster.domain, cluster.model)
    models = np.bincount(cluster.domain[by_model], minlength=len(cluster.domains))
    if models.max(initial=0) > MOST_GROUPS:
        worst = int(np.argmax(models))
        raise UsageError(
            f"{_named(cluster, worst)} has {models[worst]} GPU models, more than {MOST_GROUPS}",
            hint="give the same name to GPU models that one job may mix",
        )
    starts = _starts(cluster.domain, cluster.model, cluster.rack)
    racks = np.bincount(cluster.domain[starts], minlength=len(cluster.domains))
    crowded = np.flatnonzero(racks > MOST_GROUPS)
    if len(crowded):
        merged = np.isin(cluster.domain[starts], crowded) & ~np.isin(starts, by_model)
        starts = starts[~merged]
        notes.extend(
            f"racks are ignored in {_named(cluster, int(d))}: {racks[d]} groups of nodes are more than {MOST_GROUPS}"
            for d in crowded
        )
    ends = np.append(starts[1:], cluster.nodes).astype(np.int32)[: len(starts)]
    rack = cluster.rack[starts].copy()
    rack[cluster.rack[starts] != cluster.rack[ends - 1]] = -1
    return cluster.domain[starts], cluster.model[starts], rack, starts.astype(np.int32), ends


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


def _accept(
    jobs: Jobs, cluster: Cluster, groups: tuple[Ints, Ints, Ints, Ints, Ints], notes: list[str]
) -> NDArray[np.uint64]:
    """Return the mask of each domain and requested model. Column 0 is for jobs that request no model."""
    unknown = all(name == "" for name in cluster.models)
    names = [name.casefold() for name in cluster.models]
    accept = np.zeros((len(cluster.domains), len(jobs.models) + 1), dtype=np.uint64)
    requested = [set[str](), *(set(asked.casefold().split("|")) for asked in jobs.models)]
    low = np.searchsorted(groups[0], groups[0])
    for group in range(len(groups[0])):
        bit = np.uint64(1) << np.uint64(group - low[group])
        own = names[groups[1][group]]
        accept[groups[0][group], 0] |= bit
        for code in range(1, len(jobs.models) + 1):
            if unknown or own in requested[code]:
                accept[groups[0][group], code] |= bit
    if unknown and jobs.models:
        notes.append("the GPU models that jobs request are ignored, because the cluster lists no models")
    elif jobs.models:
        counts = np.bincount(jobs.model[jobs.model >= 0], minlength=len(jobs.models))
        notes.extend(
            f"the cluster does not have the GPU model '{asked}', which {counted(counts[code], 'jobs')} requested"
            for code, asked in enumerate(jobs.models)
            if counts[code] and requested[code + 1].isdisjoint(names)
        )
    return accept


def _groups_in(
    groups: tuple[Ints, Ints, Ints, Ints, Ints], nodes: NDArray[np.bool_], domains: int
) -> NDArray[np.uint64]:
    """Return the groups of the selected nodes as bits by domain (D,). `nodes` selects whole groups only (N,)."""
    found = np.zeros(domains, np.uint64)
    low = np.searchsorted(groups[0], groups[0])
    for group in np.flatnonzero(nodes[groups[3]]).tolist():
        found[groups[0][group]] |= np.uint64(1) << np.uint64(group - low[group])
    return found


def _kinds(domain: Ints, jobs: Jobs, stoppable: NDArray[np.bool_] | None) -> tuple[Ints, Longs]:
    """Return the kind of each job and one job of each kind, with kinds sorted by domain, model and GPUs.

    If spares are lent, preemptible jobs form kinds of their own.
    """
    models, largest = len(jobs.models) + 1, int(jobs.devices.max(initial=0)) + 1
    code = ((domain.astype(np.int64) + 1) * models + jobs.model + 1) * largest + jobs.devices
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
    # A table of all codes is several times faster than sorting the jobs.
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
