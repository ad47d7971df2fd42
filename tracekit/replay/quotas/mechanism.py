"""Tenants who take turns, within quotas or beyond them: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Run, Setting

__all__ = ["Tenants"]


@dataclass(frozen=True)
class Tenants:
    """Tenants take turns by a rule and start their jobs in an order of their own, within quotas or beyond them.

    Each pass picks a tenant and starts its first job if quota, resources and places allow it, until none can start.
    """

    order: Ordered
    """The order inside a tenant, with `by_tenant`; `scan` is about a tenant's own jobs."""
    tenant: NDArray[np.int32]
    """Tenant of each job, from 0 on (n,)."""
    quota: NDArray[np.int64]
    """Quota of each tenant [GPUs] (Q, T)."""
    quota_ms: NDArray[np.int64]
    """Times from which the rows of `quota` hold [ms], ascending; the first holds before too (Q,)."""
    weight: NDArray[np.int64] | None = None
    """Weight of each tenant (T,); the quota when None."""
    pick: Literal["usage", "dominant", "cycle"] = "usage"
    """Whose turn it is. 'usage': least GPUs for its weight. 'dominant': least share, for its weight, of the resource
    that it has most of. 'cycle': the first job of every tenant once, those within their quota before those that borrow,
    then by key."""
    across: Literal["stop", "skip"] = "skip"
    """Whether the pass ends when the tenant whose turn it is cannot start; 'stop' needs an `order` that stops, too."""
    limit: Literal["none", "own", "cohort"] = "none"
    """What a tenant may hold: any free GPUs; its quota; or its quota and what the others of its domain leave."""
    borrow_ppm: int = -1
    """With a cohort: what a tenant may hold above its quota, in parts of it [ppm]; -1 anything."""
    lend_ppm: int = 1_000_000
    """With a cohort: the part of its quota that others may use [ppm]."""
    reclaim: Literal["never", "overdrawn", "cohort"] = "never"
    """Whom a job may evict. 'overdrawn': where the cluster is full to `theta_ppm`, a job that stays within its quota
    evicts the youngest jobs of tenants above theirs, none of which falls below it. 'cohort': see the next five."""
    theta_ppm: int = 900_000
    """Part of the GPUs in use from which on tenants reclaim [ppm]."""
    reclaim_own: Literal["never", "lower", "lower-or-newer"] = "never"
    """Jobs of its own tenant that a job may evict: none, of lower priority, or also newer ones of its own."""
    reclaim_others: Literal["never", "lower", "any"] = "never"
    """Jobs of tenants who borrow that a job within its tenant's quota may evict."""
    reclaim_borrowing: bool = False
    """Whether a job may evict others' jobs of lower priority even when it has to borrow itself."""
    reclaim_below: int = -1
    """With `reclaim_borrowing`: only jobs of this priority or lower; -1 any lower than its own."""
    fair: bool = False
    """Whether tenants who borrow do so by weight: the turn goes to the smallest share above quota, and is taken from
    the largest."""
    priority: NDArray[np.int64] | None = None
    """Priority of each job, larger is more urgent (n,), 0 to 2^18; all alike when None."""
    half_life_ms: int = 0
    """With pick='usage': time after which past use counts half [ms]; 0: only what is held now counts."""
    attempt_ms: int = 0
    """Time for which a job tries to start as far apart as it may be [ms]; 0: there are no attempts."""
    backoff_ms: int = 0
    """Time for which it rests after an attempt that failed [ms]."""
    attempts: int = 1
    """Failed attempts that lead to the next of `order.scopes`."""
    resources: bool = False
    """Whether CPUs and memory, of a domain as a whole, limit jobs as well."""
    attribute: bool = False
    """Whether to record for each job how much of its wait its tenant held its quota or more."""

    takes_outages: ClassVar[bool] = True
    """Whether jobs may be stopped by a node that fails under them."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which tenants take turns."""
        return prepared_by("quotas.tenant_books", self, setting)
