"""Tenants that take turns, within their quotas or beyond: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.engine.ordered import Ordered
    from tracekit.replay.engine.setting import Run, Setting


@dataclass(frozen=True)
class Tenants:
    """Tenants take turns by a rule and start their jobs in their own order, within their quotas or beyond.

    Each pass picks a tenant and starts its first job if quota, resources and free nodes allow it, until no tenant can
    start.
    """

    order: Ordered
    """The order of jobs within a tenant, with `by_tenant`; `scan` applies to a tenant's own jobs."""
    tenant: NDArray[np.int32]
    """Tenant of each job, starting at 0 (n,)."""
    quota: NDArray[np.int64]
    """Quota of each tenant [GPUs] (Q, T)."""
    quota_ms: NDArray[np.int64]
    """Times from which the rows of `quota` apply [ms], ascending; the first also applies before (Q,)."""
    weight: NDArray[np.int64] | None = None
    """Weight of each tenant (T,); None uses the quota."""
    pick: Literal["usage", "dominant", "cycle"] = "usage"
    """Which tenant goes next. 'usage': the one with the fewest GPUs relative to its weight. 'dominant': the one with
    the smallest weighted share of its dominant resource. 'cycle': the first job of every tenant once, jobs within quota
    before jobs that borrow, then by key."""
    across: Literal["stop", "skip"] = "skip"
    """Whether the pass ends if the next tenant cannot start a job; 'stop' also needs an `order` that stops."""
    limit: Literal["none", "own", "cohort"] = "none"
    """What a tenant may hold: any free GPUs; its quota; or its quota plus what other tenants of its domain leave
    unused."""
    borrow_ppm: int = -1
    """With a cohort: how much a tenant may hold above its quota, relative to the quota [ppm]; -1 means no limit."""
    lend_ppm: int = 1_000_000
    """With a cohort: share of a tenant's quota that others may use [ppm]."""
    reclaim: Literal["never", "overdrawn", "cohort"] = "never"
    """Which jobs a job may evict. 'overdrawn': if the cluster is full to `theta_ppm`, a job that stays within its
    tenant's quota evicts the youngest jobs of tenants above their quota; none of them falls below it. 'cohort': see the
    next five."""
    theta_ppm: int = 900_000
    """Share of GPUs in use above which tenants reclaim [ppm]."""
    reclaim_own: Literal["never", "lower", "lower-or-newer"] = "never"
    """Which jobs of its own tenant a job may evict: none, jobs of lower priority, or also newer jobs of equal
    priority."""
    reclaim_others: Literal["never", "lower", "any"] = "never"
    """Which jobs of borrowing tenants a job within its tenant's quota may evict."""
    reclaim_borrowing: bool = False
    """Whether a job may evict other tenants' jobs of lower priority even if it has to borrow itself."""
    reclaim_below: int = -1
    """With `reclaim_borrowing`: evict only jobs of this priority or lower; -1 means any priority below its own."""
    fair: bool = False
    """Whether tenants borrow by weight: the tenant with the smallest share above quota goes next, and GPUs are
    reclaimed from the one with the largest."""
    priority: NDArray[np.int64] | None = None
    """Priority of each job, 0 to 2^18; larger is more urgent (n,). None means that all are equal."""
    half_life_ms: int = 0
    """With pick='usage': half-life of past use [ms]; 0 counts only what a tenant holds now."""
    attempt_ms: int = 0
    """Time for which a job tries to start at its current spread [ms]; 0 means no attempts."""
    backoff_ms: int = 0
    """Time for which a job pauses after a failed attempt [ms]."""
    attempts: int = 1
    """Number of failed attempts after which a job goes to the next of `order.scopes`."""
    resources: bool = False
    """Whether the total CPUs and memory of a domain also limit jobs."""
    attribute: bool = False
    """Whether to record, for each job, the part of its wait in which its tenant held at least its quota."""

    takes_outages: ClassVar[bool] = True
    """Whether a node failure may stop running jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which tenants take turns."""
        return prepared_by("quotas.tenant_books", self, setting)
