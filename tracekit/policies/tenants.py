"""Tenants (virtual clusters, users or partitions), their quotas, and policies that divide GPUs among them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, OVERHEAD, overhead, overheads, scan
from tracekit.replay.cells.private import deal_cells
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.clusters.cluster import shares_of
from tracekit.replay.keys import by_arrival, most_urgent
from tracekit.replay.mechanisms import Cells, Ordered, Tenants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.array_types import Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


OF = Parameter("of", "vc", "kind of tenants: virtual clusters or users", ("vc", "user"))

QUEUES = Parameter(
    "queues",
    "one",
    "which jobs wait behind a job that cannot start: all later jobs, or only later jobs of its VC, user or partition",
    ("one", "vc", "user", "partition"),
)

WEIGHT = Parameter("weight", "equal", "weight of each tenant's share: equal, or its quota", ("equal", "quota"))


NO_QUOTA = 10**9
"""A quota that no tenant can reach [GPUs]."""

NO_USE_COUNTS = 1 << 60
"""A weight so large that usage does not matter and the earliest job goes next."""


def tenants(jobs: Jobs, of: str = "vc") -> NDArray[np.int32]:
    """Return each job's VC, user or partition as a number. Jobs without a tenant share the last number."""
    if of == "partition":
        codes = np.full(len(jobs), -1, np.int32) if jobs.partition is None else jobs.partition
        names = jobs.partitions
    else:
        codes, names = (jobs.tenant, jobs.tenants) if of == "vc" else (jobs.user, jobs.users)
    return np.where(codes >= 0, codes, len(names)).astype(np.int32)


def quotas(jobs: Jobs, cluster: Cluster, models: Models) -> tuple[Ints, Ints]:
    """Return the VCs' quotas (Q, T), and the time at which each row takes effect [ms] (Q,).

    The columns are the VCs of the jobs, then one column for jobs without a VC, which have no quota, and then the VCs
    without jobs. The quotas come from the cluster. If the cluster has none, they are derived from the log (D9): a high
    percentile of the GPUs that each VC used at once, scaled so that their sum is the cluster's GPUs.

    Raises
    ------
    UsageError
        There are neither quotas nor recorded starts.
    """
    if not cluster.tenants:
        return _observed(jobs, cluster, models.quotas.percentile), np.zeros(1, np.int64)
    index = {name: column for column, name in enumerate(cluster.tenants)}
    idle = sorted(index.keys() - set(jobs.tenants))
    table = np.zeros((len(cluster.quota_ms), len(jobs.tenants) + 1 + len(idle)), np.int64)
    for code, name in enumerate([*jobs.tenants, None, *idle]):
        if name is not None and name in index:
            table[:, code] = cluster.quota[:, index[name]]
    return table, cluster.quota_ms.astype(np.int64)


def weights(jobs: Jobs, cluster: Cluster, models: Models, of: str, weight: str) -> tuple[Ints, Ints, Ints | None]:
    """Return quotas, their times, and weights for sharing without limits, or None for the weights if quotas are used.

    Raises
    ------
    UsageError
        Users have no quotas, or the quotas are unknown (see `quotas`).
    """
    count = len(jobs.tenants if of == "vc" else jobs.users) + 1
    if weight == "equal":
        return np.zeros((1, count), np.int64), np.zeros(1, np.int64), np.ones(count, np.int64)
    if of == "user":
        raise UsageError("users have no quotas", hint="use weight=equal, or of=vc")
    table, times = quotas(jobs, cluster, models)
    return table, times, None


def _observed(jobs: Jobs, cluster: Cluster, percentile: float) -> Ints:
    """Return one row of quotas derived from the GPUs that each VC used at once."""
    if not jobs.tenants:
        return np.array([[cluster.total_gpus]], np.int64)
    ran = (jobs.recorded_start_ms >= 0) & (jobs.recorded_end_ms > jobs.recorded_start_ms)
    if not ran.any():
        raise UsageError(
            "the cluster has no quotas, and the log has no starts to derive them from",
            hint="give a cluster file with a table [vc.NAME] and quota = ... for each VC",
        )
    begin, end = int(jobs.recorded_start_ms[ran].min()), int(jobs.recorded_end_ms[ran].max())
    held = [
        _percentile(jobs, np.flatnonzero(ran & (jobs.tenant == code)), begin, end, percentile)
        for code in range(len(jobs.tenants))
    ]
    return np.append(shares_of(np.array(held, np.int64), cluster.total_gpus), 0).reshape(1, -1)


def _percentile(jobs: Jobs, own: Ints, begin: int, end: int, percentile: float) -> int:
    """Return a percentile over time, from begin to end, of the number of GPUs that the jobs used at once."""
    times = np.concatenate([[begin], jobs.recorded_start_ms[own], jobs.recorded_end_ms[own], [end]])
    steps = np.concatenate([[0], jobs.devices[own], -jobs.devices[own], [0]]).astype(np.int64)
    order = np.argsort(times, kind="stable")
    held, spans = np.cumsum(steps[order])[:-1], np.diff(times[order])
    by_size = np.argsort(held, kind="stable")
    passed = np.cumsum(spans[by_size])
    return int(held[by_size][np.searchsorted(passed, passed[-1] * percentile / 100)])


class FairShare(Policy):
    """The team or user with the fewest GPUs for its weight goes next.

    Whenever a job can start, the turn goes to the tenant with the fewest GPUs for its weight. Among equals, it goes to
    the tenant with the earlier job. A tenant's jobs start in submission order. With scan=stop, the first job that
    cannot start blocks the tenant's other jobs. With scan=skip, they may overtake it. Other tenants are not affected.
    No job is evicted and no GPU is kept free, so shares even out as jobs end. With `half_life`, past use also counts.
    Its weight halves after this time, in sixteen steps. Jobs without a known tenant together form one tenant.

    Equal to
    --------
    - With one tenant, the policy equals fifo with the same scan.
    - With one-GPU jobs, if every tenant always has waiting jobs, GPUs are allocated in proportion to the weights.

    Sources
    -------
    - Max-min fairness as in Hadoop's schedulers; the decay of past use as in HPC schedulers.
    - Ghodsi et al., DRF (NSDI'11), restricted to one resource.
    """

    card = Card(
        name="fair-share",
        parameters=(
            OF,
            WEIGHT,
            scan("stop"),
            FIT,
            Parameter("half_life", 0.0, "time after which past use counts half, or 0 to count only current use [s]"),
        ),
        assumptions=("D1", "D9"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Tenants:
        """Return the schedule: tenants take turns by allocated GPUs."""
        p = self.parameters
        table, times, weight = weights(jobs, cluster, models, p["of"], p["weight"])
        return Tenants(
            Ordered(by_arrival, scan=p["scan"], fit=p["fit"], drift="none", by_tenant=True, by_arrival=True),
            tenants(jobs, p["of"]),
            table,
            times,
            weight,
            half_life_ms=round(p["half_life"] * 1000),
        )


class Drf(Policy):
    """The tenant with the smallest share of GPUs, CPUs or memory goes next (DRF).

    The turn goes to the tenant with the smallest dominant share: the largest of its shares of all GPUs, CPUs and
    memory, divided by its weight. Among equals, the tenant with the earlier job goes first. A tenant's jobs start in
    submission order. With scan=stop, no other job starts while the tenant's first job cannot start. With scan=skip, the
    next tenant gets a turn. CPUs and memory count if they are known for jobs and nodes. They count as totals per
    domain, not per node. A resource is ignored if its amount is unknown on any node of the domain. No job is evicted.

    Equal to
    --------
    - With one tenant, the policy equals fifo,scan=stop.
    - If only GPUs count and scan=skip, the policy equals fair-share,scan=stop.
    - If all jobs have the same demand, all tenants have the same number of GPUs.

    Sources
    -------
    - Ghodsi et al., Dominant Resource Fairness (NSDI'11).
    """

    card = Card(
        name="drf",
        parameters=(OF, WEIGHT, scan("stop"), FIT),
        assumptions=("D1", "D9"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Tenants:
        """Return the schedule: tenants take turns by dominant share."""
        p = self.parameters
        table, times, weight = weights(jobs, cluster, models, p["of"], p["weight"])
        return Tenants(
            Ordered(by_arrival, scan="stop", fit=p["fit"], drift="none", by_tenant=True, by_arrival=True),
            tenants(jobs, p["of"]),
            table,
            times,
            weight,
            pick="dominant",
            across=p["scan"],
            resources=True,
        )


class Limits(Policy):
    """First in, first out, with a limit on the GPUs that a VC or a user may use at once.

    Jobs start in submission order, on any nodes with room, while their VC or user stays within its GPU limit. A job
    that would exceed the limit waits, without blocking other tenants. The limit is the same for all tenants (`gpus`),
    or with gpus=0, the quota of each VC. With lend=idle, a VC may use other VCs' unused quota. With lend=reclaim, they
    can take it back: a job within its own VC's quota stops the most recent jobs of VCs above their quota. With
    scan=stop, a tenant's first job that cannot start blocks its later jobs. Other tenants are not affected.

    Equal to
    --------
    - With a limit that no tenant reaches, or with one tenant and lend=idle, the policy equals fifo,scan=skip.

    Sources
    -------
    - Limits per user or account: Slurm's MaxTRESPerUser and GrpTRES, and Kubernetes' ResourceQuota.
    - Lending and reclaiming as in Kueue's cohorts.
    """

    card = Card(
        name="limits",
        parameters=(
            OF,
            Parameter("gpus", 0, "limit on each tenant's GPUs at once, or 0 for its VC's quota [GPUs]"),
            Parameter("lend", "never", "whether VCs may use each other's unused quota", ("never", "idle", "reclaim")),
            scan("skip"),
            FIT,
        ),
        assumptions=("D1", "D9"),
        quotas=True,
    )

    @property
    def lends(self) -> bool:
        """Whether VCs may use each other's unused quota."""
        return bool(self.parameters["lend"] != "never")

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Tenants:
        """Return a schedule in submission order, with limits per tenant."""
        p = self.parameters
        codes = tenants(jobs, p["of"])
        count = len(jobs.tenants if p["of"] == "vc" else jobs.users) + 1
        times = np.zeros(1, np.int64)
        if p["gpus"] > 0:
            table = np.full((1, count), p["gpus"], np.int64)
        elif p["of"] == "user":
            raise UsageError("the policy limits: users have no quotas", hint="give gpus=N, or of=vc")
        else:
            table, times = quotas(jobs, cluster, models)
        reclaim = p["lend"] == "reclaim"
        return Tenants(
            Ordered(by_arrival, scan=p["scan"], fit=p["fit"], drift="none", by_tenant=True, by_arrival=True),
            codes,
            table,
            times,
            np.full(table.shape[1], NO_USE_COUNTS, np.int64),
            limit="own" if p["lend"] == "never" else "cohort",
            reclaim="cohort" if reclaim else "never",
            reclaim_others="any" if reclaim else "never",
        )


class Philly(Policy):
    """Teams may use idle GPUs beyond their quotas and must give them back (Philly).

    The turn goes to the VC with the fewest GPUs for its quota. Inside a VC, jobs start in submission order, and later
    jobs may overtake a job that cannot start. A VC may exceed its quota while GPUs are idle. When at least the share
    `theta` of the GPUs is in use, a job that stays within its VC's quota evicts jobs of VCs above their quota, the most
    recently started first. No VC falls below its quota. For `attempt` seconds, a gang tries to start on the fewest
    nodes of one rack, and then pauses for `backoff` seconds. After `retries` failed attempts, it accepts any nodes of
    one rack; after as many again, any nodes of one GPU model, for which it waits without pauses. A one-GPU job, or a
    job in a domain with one node, cannot be spread and never pauses. An evicted job keeps its last accepted locality.
    Each job's wait is split into two columns: fair_share_wait_ms is the time when its VC used its whole quota or more,
    and fragmentation_wait_ms is the rest.

    Equal to
    --------
    - With one VC on one node, the policy equals fifo,scan=skip.
    - With one VC, one GPU model, retries=0 and no cost of spreading, the policy equals fifo,scan=skip,fit=count.
    - If no VC ever reaches its quota, no job is evicted.

    Sources
    -------
    - Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19).
    - Our choices: the order of VCs, the order of evictions, the number of retries, and the timers for attempts.
    """

    card = Card(
        name="philly",
        parameters=(
            Parameter("theta", 0.9, "share of GPUs in use at or above which VCs reclaim, or inf for never [0..1]"),
            Parameter("attempt", 150.0, "time that a gang tries to start before it pauses [s]", minimum=0.001),
            Parameter("backoff", 120.0, "length of the pause after a failed attempt [s]"),
            Parameter(
                "retries", 3, "failed attempts after which a gang accepts GPUs further apart, or 0 for anywhere at once"
            ),
            FIT,
            Parameter("overhead", "helios", "preset for the cost of each preemption (M9)"),
        ),
        assumptions=("D1", "D9", "M4", "M9"),
        quotas=True,
    )

    @property
    def lends(self) -> bool:
        """True: a VC may exceed its quota while GPUs are idle."""
        return True

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Tenants:
        """Return the schedule: VCs take turns by GPUs per quota."""
        p = self.parameters
        table, times = quotas(jobs, cluster, models)
        order = Ordered(
            by_arrival,
            scan="skip",
            fit=p["fit"],
            drift="none",
            by_tenant=True,
            by_arrival=True,
            overhead_ms=overheads(models, p["overhead"], jobs.devices),
        )
        tries = p["fit"] == "place" and p["retries"] > 0
        if p["fit"] == "place":
            order = replace(order, scopes=(0, 1, 2) if tries else (2,))
        return Tenants(
            order,
            tenants(jobs),
            table,
            times,
            reclaim="never" if math.isinf(p["theta"]) else "overdrawn",
            theta_ppm=0 if math.isinf(p["theta"]) else min(round(p["theta"] * 1_000_000), 10**9),
            attempt_ms=max(round(p["attempt"] * 1000), 1) if tries else 0,
            backoff_ms=round(p["backoff"] * 1000),
            attempts=max(p["retries"], 1),
            attribute=True,
        )


_LEVELS = 1 << 18
_NO_CAP = 10**9


class Kueue(Policy):
    """Quotas that lend and borrow idle GPUs (Kueue).

    Every VC is a queue with its own quota, whose jobs are ordered by priority, then by submission. In each cycle, each
    queue offers its first job once. Jobs that stay within their queue's quota go before jobs that borrow; within both
    groups, the order is by priority, then by submission. A job starts if it fits on the nodes and is allowed by its
    queue's quota, or by quota that other queues of the cohort lend and do not use. With scan=stop, a queue's first job
    blocks its later jobs (StrictFIFO). With scan=skip, they may overtake it (BestEffortFIFO). A job that exceeds the
    available quota may evict other jobs. With `reclaim`, it may evict jobs of queues that borrow, if its own queue
    stays within its quota. With `preempt`, it may evict jobs of its own queue. With `preempt_to_borrow`, it may evict
    jobs of other queues with lower priority, even if it has to borrow. Jobs of other queues are evicted first, then
    jobs of the lowest priority, then the most recently started. Only as many jobs as needed are evicted. With fair=on,
    the queue with the smallest weighted share above quota goes first, and jobs are evicted from the queue with the
    largest such share. A job within quota that does not fit on nodes evicts no job; the column placement_refused marks
    it.

    Equal to
    --------
    - With cohort=off and scan=stop, the policy equals fifo,scan=stop for each VC within its quota.
    - With borrow_limit=0 and lend_limit=0, the policy equals cohort=off.
    - With one VC that has the whole cluster and jobs of one priority, the policy equals fifo with the same scan.

    Sources
    -------
    - Documentation and source of Kueue, commit ff69552e79.
    - Our choices: a job must also fit on the nodes, and each job is evicted at most once at a time.
    """

    card = Card(
        name="kueue",
        parameters=(
            Parameter(
                "cohort", default=True, meaning="whether VCs may use quota that other VCs in the domain do not use"
            ),
            Parameter("borrow_limit", float("inf"), "how far a VC may exceed its quota, as a share of the quota"),
            Parameter("lend_limit", 1.0, "share of a VC's quota that other VCs may use", maximum=1),
            scan("skip"),
            FIT,
            Parameter(
                "reclaim", "never", "which jobs of borrowing VCs may be evicted, by priority", ("never", "lower", "any")
            ),
            Parameter(
                "preempt",
                "never",
                "which jobs of the same VC a job may evict, by priority",
                ("never", "lower", "lower-or-newer"),
            ),
            Parameter(
                "preempt_to_borrow",
                default=False,
                meaning="whether a job that has to borrow may evict jobs of other VCs",
            ),
            Parameter(
                "borrow_priority",
                _NO_CAP,
                "with preempt_to_borrow, evict only jobs of other VCs with this priority or lower",
                minimum=-_NO_CAP,
                maximum=_NO_CAP,
            ),
            Parameter("fair", default=False, meaning="whether GPUs above quota are shared by weight"),
            WEIGHT,
            OVERHEAD,
        ),
        assumptions=("D1", "D9", "M9"),
        quotas=True,
    )

    @property
    def lends(self) -> bool:
        """Whether VCs may use each other's unused quota: only in a cohort."""
        return bool(self.parameters["cohort"])

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Tenants:
        """Return a schedule that visits the VCs in cycles."""
        p = self.parameters
        levels, rank = np.unique(jobs.priority, return_inverse=True)
        if len(levels) > _LEVELS:
            raise UsageError(
                f"the log has {len(levels):,} different priorities",
                hint=f"the policy kueue supports at most {_LEVELS:,}",
            )
        codes = tenants(jobs)
        table, times = quotas(jobs, cluster, models)
        below = int(np.searchsorted(levels, p["borrow_priority"], "right")) - 1
        capped = p["borrow_priority"] != _NO_CAP
        reclaim: Any = p["reclaim"] if p["cohort"] else "never"
        return Tenants(
            Ordered(
                most_urgent,
                scan=p["scan"],
                fit=p["fit"],
                drift="none",
                by_tenant=True,
                by_arrival=len(levels) <= 1,
                value=rank.astype(np.int64),
                overhead_ms=overheads(models, p["overhead"], jobs.devices),
            ),
            codes,
            table,
            times,
            np.ones(table.shape[1], np.int64) if p["weight"] == "equal" else None,
            pick="cycle",
            limit="cohort" if p["cohort"] else "own",
            borrow_ppm=-1 if p["borrow_limit"] == float("inf") else round(p["borrow_limit"] * 1_000_000),
            lend_ppm=round(p["lend_limit"] * 1_000_000),
            reclaim="cohort" if reclaim != "never" or p["preempt"] != "never" else "never",
            reclaim_own=p["preempt"],
            reclaim_others=reclaim,
            reclaim_borrowing=p["preempt_to_borrow"] and reclaim != "never" and not (capped and below < 0),
            reclaim_below=below if capped else -1,
            fair=p["fair"],
            priority=rank.astype(np.int64),
            attribute=True,
        )


_MOST = 10**9


class HiveD(Policy):
    """Each team has its own blocks of GPUs, according to its quota (HiveD).

    Each VC owns cells. In every chain (the nodes of one GPU model and size), it owns a share in proportion to its
    quota, as whole nodes and, for the rest, as blocks of 1, 2, 4 ... GPUs. Quotas that exceed the cluster are scaled
    down. The initial quotas apply to the whole replay. A guaranteed job is placed in the cells of its VC as in a
    private cluster, in submission order. Its gang is rounded up to 2^k GPUs, and takes the smallest free block that
    suffices. A larger gang takes whole cells of the largest size. With scan=skip, later jobs of the VC may overtake a
    job that cannot start. A cell is bound to real GPUs only when it is first used: to a node's smallest unbound block,
    and among equals to the block with the fewest GPUs used by opportunistic jobs. Opportunistic jobs on these GPUs are
    stopped, as whole gangs. An idle cell is unbound. So a VC never waits for another VC, unless nodes are out of
    service. Opportunistic jobs run in unused blocks of GPUs, outside bound cells if possible, in submission order,
    after all guaranteed jobs that can start. They may be stopped at any time, and then wait again. By default, all jobs
    are guaranteed. With opportunistic=preemptible, the jobs that the log does not mark as preemptible are guaranteed.
    With opportunistic=priority, jobs with a priority of at least `guaranteed_from` are guaranteed. A job that would not
    fit even in all cells of its VC together, such as a job of a VC without quota, is opportunistic. With
    oversize=reject, it is rejected. Placement is always in blocks, so --placement is ignored. The column guaranteed
    marks the guaranteed jobs.

    Equal to
    --------
    - Guaranteed jobs run as under fifo with placement buddy and the same scan, on a cluster that has only their VC's
      cells.
    - With one VC that owns a cluster of equal nodes in one rack, the policy equals fifo with placement buddy and the
      same scan.
    - If all jobs are opportunistic, the policy equals fifo with placement buddy and the same scan, on any cluster.

    Sources
    -------
    - Zhao et al., HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees (OSDI'20).
    - The scheduler's source code, microsoft/hivedscheduler, commit 66f26ac: opportunistic jobs, choice of cells.
    - Our choices: no cells above nodes, no priorities inside a VC, gangs that are rounded up, and all jobs in blocks.
    """

    card = Card(
        name="hived",
        parameters=(
            Parameter(
                "opportunistic",
                "none",
                "which jobs run without a guarantee: none, preemptible jobs, or low-priority jobs",
                ("none", "preemptible", "priority"),
            ),
            Parameter(
                "guaranteed_from",
                0,
                "with opportunistic=priority, the lowest priority of a guaranteed job",
                minimum=-_MOST,
                maximum=_MOST,
            ),
            Parameter(
                "oversize",
                "opportunistic",
                "what happens to a guaranteed job that never fits in the cells of its VC",
                ("opportunistic", "reject"),
            ),
            scan("skip"),
            overhead("helios"),
        ),
        assumptions=("D1", "D9", "M4", "M9"),
        quotas=True,
    )

    @property
    def lends(self) -> bool:
        """Whether opportunistic jobs run on GPUs that VCs leave idle."""
        return bool(self.parameters["opportunistic"] != "none")

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Cells:
        """Return the cells derived from the quotas, and the VC of each guaranteed job."""
        p = self.parameters
        table, times = quotas(jobs, cluster, models)
        names = [*jobs.tenants, "", *sorted(set(cluster.tenants) - set(jobs.tenants))]
        cells = deal_cells(cluster, names, table[max(int(np.searchsorted(times, 0, "right")) - 1, 0)])
        own = assign(jobs, cells.cluster)
        guaranteed = own.domain >= 0
        if p["opportunistic"] == "preemptible":
            guaranteed &= jobs.preemptible != 1
        elif p["opportunistic"] == "priority":
            guaranteed &= jobs.priority >= p["guaranteed_from"]
        if p["oversize"] == "opportunistic":
            guaranteed &= own.can_ever_fit("blocks")
        order = Ordered(
            by_arrival,
            scan=p["scan"],
            drift="none",
            by_tenant=True,
            overhead_ms=overheads(models, p["overhead"], jobs.devices),
        )
        return Cells(order, cells, np.where(guaranteed, own.domain, len(names)).astype(np.int32))
