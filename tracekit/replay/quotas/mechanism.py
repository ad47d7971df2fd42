"""Tenants take turns, within or beyond their quotas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.run import Run, unchanged
from tracekit.replay.engine.state import NONE, struct_dtype
from tracekit.replay.keys import engine_key
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.build import Ordered
    from tracekit.replay.engine.run import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


@dataclass(frozen=True)
class Tenants:
    """Tenants take turns by a rule and start their jobs in their own order, within or beyond their quotas.

    Each pass picks a tenant and starts its first job if quota, resources and free nodes allow it, until no tenant can
    start.
    """

    order: Ordered
    """The order of jobs within a tenant, with `by_tenant` set. `scan` applies to a tenant's own jobs."""
    tenant: NDArray[np.int32]
    """Tenant of each job, starting at 0 (n,)."""
    quota: NDArray[np.int64]
    """Quota of each tenant [GPUs] (Q, T)."""
    quota_ms: NDArray[np.int64]
    """Times from which the rows of `quota` apply [ms], ascending. The first row also applies before (Q,)."""
    weight: NDArray[np.int64] | None = None
    """Weight of each tenant (T,), or None to use the quota."""
    pick: Literal["usage", "dominant", "cycle"] = "usage"
    """The tenant that goes next. 'usage': the tenant with the fewest GPUs relative to its weight. 'dominant': the
    tenant with the smallest weighted share of its dominant resource. 'cycle': every tenant's first job once; jobs
    within quota come before jobs that borrow, then by key."""
    across: Literal["stop", "skip"] = "skip"
    """Whether the pass ends if the next tenant cannot start a job. 'stop' also needs an `order` that stops."""
    limit: Literal["none", "own", "cohort"] = "none"
    """What a tenant may use: any free GPUs, its quota, or its quota plus what other tenants of its domain leave
    unused."""
    borrow_ppm: int = -1
    """In a cohort, how much a tenant may use above its quota, relative to the quota [ppm], or -1 for no limit."""
    lend_ppm: int = 1_000_000
    """In a cohort, the share of a tenant's quota that others may use [ppm]."""
    reclaim: Literal["never", "overdrawn", "cohort"] = "never"
    """The jobs that a job may evict. 'overdrawn': if at least `theta_ppm` of the cluster is in use, a job that stays
    within its tenant's quota evicts the youngest jobs of tenants above their quota, without taking any of them below
    it. 'cohort': see the fields from `reclaim_own` to `fair`."""
    theta_ppm: int = 900_000
    """Share of GPUs in use at or above which tenants reclaim [ppm]."""
    reclaim_own: Literal["never", "lower", "lower-or-newer"] = "never"
    """The jobs of its own tenant that a job may evict: none, jobs of lower priority, or also newer jobs of equal
    priority."""
    reclaim_others: Literal["never", "lower", "any"] = "never"
    """The jobs of borrowing tenants that a job within its tenant's quota may evict."""
    reclaim_borrowing: bool = False
    """Whether a job may evict other tenants' jobs of lower priority even if it borrows."""
    reclaim_below: int = -1
    """With `reclaim_borrowing`, evict only jobs of this priority or lower, or of any priority below its own if -1."""
    fair: bool = False
    """Whether tenants borrow by weight. The tenant with the smallest share above quota goes next, and GPUs are
    reclaimed from the tenant with the largest."""
    priority: NDArray[np.int64] | None = None
    """Priority of each job, 0 to 2^18, where larger is more urgent (n,). None if all are equal."""
    half_life_ms: int = 0
    """With pick='usage', the half-life of past use [ms], or 0 to count only current use."""
    attempt_ms: int = 0
    """Time for which a job tries to start at its current spread [ms], or 0 for no attempts."""
    backoff_ms: int = 0
    """Time for which a job pauses after a failed attempt [ms]."""
    attempts: int = 1
    """Number of failed attempts after which a job goes to the next of `order.scopes`."""
    resources: bool = False
    """Whether a domain's total CPUs and memory also limit jobs."""
    attribute: bool = False
    """Whether to record how long each job waited while its tenant used at least its quota."""

    takes_outages: ClassVar[bool] = True
    """Whether a node failure may stop running jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which tenants take turns."""
        jobs = replace(setting.jobs, tenant=self.tenant)
        state = build(replace(setting, jobs=jobs), self.order, kind="Tenants")
        state, books, claims = open_books(state, setting.jobs, setting.cluster, setting.assignment, self)
        arrays = open_nodes(state, setting.cluster)
        evicts = self.reclaim != "never"
        step = partial(compiled.run_tenants, arrays, books, engine_key(self.order.key), evicts)
        return Run(state, step, partial(_with_columns, state, claims) if self.attribute else unchanged)


_VICTIMS = {"never": 0, "lower": 1, "any": 2, "lower-or-newer": 2}
_DECAYS_IN_HALF_LIFE = 16
_ANY = 1 << 40


def open_books(
    state: EngineState, jobs: Jobs, cluster: Cluster, assignment: Assignment, mechanism: Tenants
) -> tuple[EngineState, Any, NDArray[Any]]:
    """Return the state of `mechanism.order` prepared for tenants, the tenants' arrays, and the jobs' claims."""
    accounts, tenants, account_of = _accounts(state, mechanism)
    state.jobs["tenant"] = account_of
    claims = np.zeros(len(jobs) if _needs_claims(mechanism) else 1, struct_dtype("Claim"))
    if mechanism.priority is not None and len(claims) == len(jobs):
        claims["priority"] = mechanism.priority
    pools = np.zeros(len(state.domains), struct_dtype("Pool"))
    pools["low"] = np.searchsorted(accounts["pool"], np.arange(len(pools)), "left")
    pools["high"] = np.searchsorted(accounts["pool"], np.arange(len(pools)), "right")
    pools["gpus"] = np.bincount(cluster.domain, weights=cluster.gpus, minlength=len(pools))
    pools["cpu_all"] = pools["memory_all"] = NONE
    if mechanism.resources:
        _fill_resources(state, claims, pools, jobs, cluster, assignment)
    limits = _limits(tenants, mechanism)
    state.jobs["never"] |= jobs.devices > _most(limits, pools, mechanism)[account_of]
    rules = _rules(mechanism)
    row = max(int(np.searchsorted(mechanism.quota_ms, 0, "right")) - 1, 0)
    rules["row"] = row
    for index, field in enumerate(("quota", "weight", "borrow", "lend")):
        accounts[field] = limits[row, :, index]
    np.add.at(pools["lend"], accounts["pool"], accounts["lend"])
    pools["round"] = 1
    if mechanism.order.scan == "skip":
        state.queues["gpus"][state.job_classes["queue"]] = state.job_classes["gpus"]
    kind = _kinds(state.job_classes)
    state.g["wake"] = mechanism.quota_ms[row + 1] if row + 1 < len(limits) else NONE
    state.g["tenants"], state.g["ended"], state.g["rung"] = 1, NONE, NONE
    if mechanism.attempt_ms:
        _stay_close(state, cluster)
    if mechanism.reclaim != "never":
        state = _with_victims(state, accounts, pools, account_of)
    books = compiled.TenantBooks(
        rules=rules,
        accounts=accounts,
        pools=pools,
        claims=claims,
        line=np.zeros(len(accounts), np.int32),
        kind=kind,
        refused=np.zeros(int(kind.max()) + 1, np.int64),
        limits=limits,
        limit_ms=mechanism.quota_ms.astype(np.int64),
    )
    return state, books, claims


def _with_columns(state: EngineState, claims: NDArray[Any], outcome: Outcome) -> Outcome:
    """Add the columns that a run with tenants records for each job.

    fair_share_wait_ms: wait while the job's tenant used at least its quota. fragmentation_wait_ms: the rest of the
    wait, in which only a place was missing. placement_refused: 1 if the quota allowed a start at some time but no place
    was free.
    """
    jobs, delayed = state.jobs, claims["delayed"]
    wait = jobs["end"] - jobs["submit"] - jobs["ran"]
    columns = {
        "fair_share_wait_ms": delayed.copy(),
        "fragmentation_wait_ms": np.where(jobs["end"] >= 0, wait - delayed, 0),
        "placement_refused": claims["refused"].astype(np.int64),
    }
    return replace(outcome, columns=columns)


def _rules(mechanism: Tenants) -> NDArray[Any]:
    t = np.zeros(1, struct_dtype("TenantRules"))
    for name in ("pick", "limit", "reclaim"):
        t[name] = getattr(compiled, f"{name}_{getattr(mechanism, name)}".upper())
    t["across"] = mechanism.across == "stop"
    t["fair"], t["theta"] = mechanism.fair, mechanism.theta_ppm
    t["own"], t["others"] = _VICTIMS[mechanism.reclaim_own], _VICTIMS[mechanism.reclaim_others]
    t["borrowing"], t["cap"] = mechanism.reclaim_borrowing, mechanism.reclaim_below
    if mechanism.half_life_ms:
        t["period"] = max(mechanism.half_life_ms // _DECAYS_IN_HALF_LIFE, 1)
        # A power of two, computed once. From here on, all numbers are whole.
        t["keep"] = round((1 << compiled.DECAY_BITS) * 0.5 ** (1 / _DECAYS_IN_HALF_LIFE))
    t["attempt"], t["backoff"], t["attempts"] = mechanism.attempt_ms, mechanism.backoff_ms, mechanism.attempts
    t["resources"], t["attributed"] = mechanism.resources, mechanism.attribute
    return t


def _needs_claims(mechanism: Tenants) -> bool:
    return mechanism.reclaim != "never" or mechanism.resources or mechanism.attribute or mechanism.attempt_ms > 0


def _accounts(state: EngineState, mechanism: Tenants) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Return the accounts (sorted by domain and tenant like the queues), their tenants, and each job's account."""
    if not mechanism.order.by_tenant:
        msg = "the order of a mechanism with tenants must separate them: set by_tenant"
        raise ValueError(msg)
    if mechanism.across == "stop" and mechanism.order.scan != "stop":
        msg = "if the pass ends at the first tenant that cannot start, its first job decides: set scan='stop'"
        raise ValueError(msg)
    queues, count = state.queues, mechanism.quota.shape[1]
    code = queues["domain"].astype(np.int64) * count + queues["tenant"]
    # In a single domain, tenants without jobs also have an account, because others may borrow their quota.
    distinct = np.unique(code) if len(state.domains) > 1 else np.arange(count)
    accounts = np.zeros(len(distinct), struct_dtype("Account"))
    accounts["pool"] = distinct // count
    accounts["queue_low"] = np.searchsorted(code, distinct, "left")
    accounts["queue_high"] = np.searchsorted(code, distinct, "right")
    accounts["candidate"] = NONE
    account_of = np.searchsorted(distinct, code)[state.job_classes["queue"][state.jobs["job_class"]]]
    return accounts, distinct % count, account_of


def _kinds(job_classes: NDArray[Any]) -> NDArray[np.int32]:
    fields = ["accept", "domain", "gpus", "scope"]
    _, kind = np.unique(job_classes[fields].astype([(name, np.uint64) for name in fields]), return_inverse=True)
    return kind.astype(np.int32)


def _limits(tenants: NDArray[np.int64], mechanism: Tenants) -> NDArray[np.int64]:
    quotas = mechanism.quota[:, tenants].astype(np.int64)
    weights = quotas
    if mechanism.weight is not None:
        weights = np.broadcast_to(mechanism.weight[tenants].astype(np.int64), quotas.shape)
    ppm = mechanism.borrow_ppm
    borrow = np.full_like(quotas, _ANY) if ppm < 0 else quotas * ppm // 1_000_000
    lend = quotas * mechanism.lend_ppm // 1_000_000
    return np.ascontiguousarray(np.stack([quotas, weights, borrow, lend], axis=2))


def _most(limits: NDArray[np.int64], pools: NDArray[Any], mechanism: Tenants) -> NDArray[np.int64]:
    """Return the number of GPUs that each account could get if no other account had any."""
    quota, borrow, lend = limits[:, :, 0], limits[:, :, 2], limits[:, :, 3]
    if mechanism.limit == "none":
        most = np.full_like(quota, _ANY)
    elif mechanism.limit == "own":
        most = quota
    else:
        most = quota - lend
        for pool in pools:
            own = slice(int(pool["low"]), int(pool["high"]))
            lent = lend[:, own].sum(axis=1, keepdims=True)
            most[:, own] += np.minimum(lent, lend[:, own] + borrow[:, own])
    return np.asarray(most.max(axis=0, initial=0), np.int64)


def _fill_resources(
    state: EngineState, claims: NDArray[Any], pools: NDArray[Any], jobs: Jobs, cluster: Cluster, assignment: Assignment
) -> None:
    """Set CPUs and memory of jobs and domains. A job that needs more than the domain has can never run."""
    asked = {"cpu": jobs.cpu_milli, "memory": jobs.memory_mib}
    there = {"cpu": cluster.cpu_milli, "memory": cluster.memory_mib}
    for field in ("cpu", "memory"):
        totals = np.zeros(len(pools), np.int64)
        np.add.at(totals, cluster.domain, there[field])
        totals[np.unique(cluster.domain[there[field] < 0])] = NONE
        pools[field] = pools[f"{field}_all"] = totals
        claims[field] = np.maximum(asked[field], 0)
        total = totals[np.maximum(assignment.domain, 0)]
        state.jobs["never"] |= (total >= 0) & (claims[field] > total)


def _stay_close(state: EngineState, cluster: Cluster) -> None:
    """Keep jobs from relaxing if they cannot spread further: jobs with one GPU, and jobs in a domain of one node."""
    job_classes = state.job_classes
    nodes = np.bincount(cluster.domain, minlength=len(state.domains))
    job_classes["relaxed"][(job_classes["gpus"] == 1) | (nodes[job_classes["domain"]] <= 1)] = NONE


def _with_victims(
    state: EngineState, accounts: NDArray[Any], pools: NDArray[Any], account_of: NDArray[np.int64]
) -> EngineState:
    """Return the state with room for the running jobs of each account, in eviction order."""
    n = len(state.jobs)
    room = np.minimum(np.bincount(account_of, minlength=len(accounts)), pools["gpus"][accounts["pool"]])
    accounts["eviction_base"] = np.concatenate([[0], np.cumsum(room)[:-1]])
    running = min(n, int(pools["gpus"].sum()))
    state.g["ring"] = 0
    return state._replace(
        eviction_queue=np.zeros(int(room.sum()), struct_dtype("Entry")),
        eviction_at=np.full(n, NONE, np.int32),
        scratch=np.zeros(running, np.int32),
        evicted=np.zeros(running, np.int32),
    )
