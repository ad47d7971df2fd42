"""The cluster of a replay: nodes in groups, groups in domains, and the quotas of tenants over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Cluster:
    """Nodes and quotas.

    A *domain* is the set of nodes that a job's queue may use: the whole cluster, or one virtual cluster if they are
    isolated. A *group* is the set of nodes with the same domain, GPU model and rack. Nodes are sorted by domain, model
    and rack, so a group's nodes are adjacent. Ties are always broken by node index.
    """

    node_id: list[str]
    """Node names."""
    gpus: NDArray[np.int32]
    """GPUs of each node, at least 1 (N,)."""
    model: NDArray[np.int32]
    """Index into `models` (N,)."""
    rack: NDArray[np.int32]
    """Index into `racks` (N,); 0 everywhere if racks are unknown."""
    domain: NDArray[np.int32]
    """Index into `domains` (N,)."""
    cpu_milli: NDArray[np.int64]
    """CPUs of each node [milli-cores] (N,); -1 if unknown."""
    memory_mib: NDArray[np.int64]
    """Host memory of each node [MiB] (N,); -1 if unknown."""
    models: list[str]
    """GPU models; '' means unknown."""
    racks: list[str]
    """Racks, or a single ''."""
    domains: list[str]
    """Domains: names of the virtual clusters if they are isolated, else a single ''."""
    tenants: list[str]
    """Virtual clusters with a quota."""
    quota_ms: NDArray[np.int64]
    """Times from which the rows of `quota` apply [ms after the origin] (Q,), ascending; earlier, the first applies."""
    quota: NDArray[np.int64]
    """Quota of each tenant [GPUs] (Q, tenants)."""
    change_ms: NDArray[np.int64]
    """Times at which a node joins or leaves [ms] (E,), ascending."""
    change_node: NDArray[np.int32]
    """The node that joins or leaves (E,)."""
    change_up: NDArray[np.int8]
    """1 joins, 0 leaves: no new job starts on the node, and running jobs finish unless the node fails (E,)."""
    absent: NDArray[np.int8]
    """1 if the node is away before its first change (N,)."""
    origin: str
    """Where the cluster comes from, as results report it, such as 'nodes of the Trace'."""
    change_kills: NDArray[np.int8] | None = None
    """1 if the change stops the jobs on the node, because the node fails (E,); None if no change does."""
    lent: NDArray[np.bool_] | None = None
    """Extra rows for spares, which are present while preemptible jobs use the spare (N,). The same node has another row
    for regular work, and the two are never present at the same time. None if no spare is lent."""
    lendable: bool = False
    """Whether a policy that lends quotas may use the nodes of all domains as one: True if the domains come from the
    source and not from the user."""
    without_gpus: int = 0
    """Nodes of the Trace that are excluded because they have no GPUs."""

    @property
    def nodes(self) -> int:
        """Number of nodes; a node lent as a spare counts twice (see `lent`)."""
        return len(self.gpus)

    @property
    def machines(self) -> int:
        """Number of nodes, each counted once."""
        return self.nodes - (0 if self.lent is None else int(self.lent.sum()))

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
