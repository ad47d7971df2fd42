"""The cluster of a replay: nodes in groups, groups in domains, and the quotas of tenants through time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Cluster"]


@dataclass(frozen=True)
class Cluster:
    """Nodes and quotas.

    A *domain* is a set of nodes that a job's queue may use: the whole cluster, or one virtual cluster when they are
    isolated. A *group* is the nodes of one domain, GPU model and rack. Nodes are sorted by domain, model and rack,
    so that a group's nodes are neighbours; the index of a node breaks ties everywhere.
    """

    node_id: list[str]
    """Names of the nodes."""
    gpus: NDArray[np.int32]
    """GPUs of each node, at least 1 (N,)."""
    model: NDArray[np.int32]
    """Index into `models` (N,)."""
    rack: NDArray[np.int32]
    """Index into `racks` (N,); 0 everywhere where racks are not known."""
    domain: NDArray[np.int32]
    """Index into `domains` (N,)."""
    cpu_milli: NDArray[np.int64]
    """CPUs of each node [milli-cores] (N,); -1 unknown."""
    memory_mib: NDArray[np.int64]
    """Host memory of each node [MiB] (N,); -1 unknown."""
    models: list[str]
    """GPU models; '' is unknown."""
    racks: list[str]
    """Racks, or one ''."""
    domains: list[str]
    """Domains: names of virtual clusters when isolated, else one ''."""
    tenants: list[str]
    """Virtual clusters that have a quota."""
    quota_ms: NDArray[np.int64]
    """Times from which the rows of `quota` hold [ms after the jobs' origin] (Q,), ascending; the first holds before."""
    quota: NDArray[np.int64]
    """Quota of each tenant [GPUs] (Q, tenants)."""
    change_ms: NDArray[np.int64]
    """Times at which a node joins or leaves [ms] (E,), ascending."""
    change_node: NDArray[np.int32]
    """The node (E,)."""
    change_up: NDArray[np.int8]
    """1 joins, 0 leaves: no new job starts on it, running ones go on to their end, if it does not fail (E,)."""
    absent: NDArray[np.int8]
    """1 where a node is away before its first change (N,)."""
    origin: str
    """Where the cluster comes from, as results state it, such as 'nodes of the Trace'."""
    change_kills: NDArray[np.int8] | None = None
    """1 where what runs on the node stops at the change, because it fails (E,); None where that never is so."""
    lent: NDArray[np.bool_] | None = None
    """Rows that stand for a spare while jobs that may be stopped use it (N,); the same node has another row for when it
    works, and never both are there. None where no spare is lent."""
    lendable: bool = False
    """Whether a policy that lends quotas may use the nodes of all domains as one: where they are divided because the
    source says so, not because the user does."""
    without_gpus: int = 0
    """Nodes of the Trace that are left out because they have no GPUs."""

    @property
    def nodes(self) -> int:
        """Nodes in all; a node that is lent as a spare counts twice (see `lent`)."""
        return len(self.gpus)

    @property
    def machines(self) -> int:
        """Nodes in all, each once."""
        return self.nodes - (0 if self.lent is None else int(self.lent.sum()))

    def effective_changes(self) -> Iterator[tuple[int, int, bool]]:
        """Yield (time [ms], node, whether it joins) of each change that has an effect, in order."""
        there = (self.absent == 0).tolist()
        rows = zip(self.change_ms.tolist(), self.change_node.tolist(), self.change_up.tolist(), strict=True)
        for time, node, up in rows:
            if there[node] != bool(up):
                there[node] = bool(up)
                yield time, node, bool(up)

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes."""
        return int(self.gpus.sum() if self.lent is None else self.gpus[~self.lent].sum())
