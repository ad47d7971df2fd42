"""The arrays for tenants in one run, and the columns that they add to the outcome."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay import kernel
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.setting import Run
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import (
    DECAY_BITS,
    LIMIT_COHORT,
    LIMIT_NONE,
    LIMIT_OWN,
    NONE,
    PICK_CYCLE,
    PICK_DOMINANT,
    PICK_USAGE,
    RECLAIM_COHORT,
    RECLAIM_NEVER,
    RECLAIM_OVERDRAWN,
)
from tracekit.replay.keys import engine_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.setting import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.quotas.mechanism import Tenants


_PICKS = {"usage": PICK_USAGE, "dominant": PICK_DOMINANT, "cycle": PICK_CYCLE}
_LIMITS = {"none": LIMIT_NONE, "own": LIMIT_OWN, "cohort": LIMIT_COHORT}
_RECLAIMS = {"never": RECLAIM_NEVER, "overdrawn": RECLAIM_OVERDRAWN, "cohort": RECLAIM_COHORT}
_VICTIMS = {"never": 0, "lower": 1, "any": 2, "lower-or-newer": 2}
_DECAYS_IN_HALF_LIFE = 16
_ANY = 1 << 40


class TenantBooks(NamedTuple):
    """The arrays that a run with tenants needs in addition to `EngineState`."""

    rules: NDArray[Any]
    """TenantRules (1,): the settings, and the time up to which the accounts are current."""
    accounts: NDArray[Any]
    """Account of each tenant in each domain, grouped by domain (A,)."""
    pools: NDArray[Any]
    """Pool of each domain: its accounts and its resources (D,)."""
    claims: NDArray[Any]
    """Claim of each job; a single unused one if the policy needs no claims (n,)."""
    line: NDArray[np.int32]
    """Accounts with queued jobs, starting at the first account of each domain (A,)."""
    kind: NDArray[np.int32]
    """Kind of each job class; jobs of one kind either all find a place or none do."""
    refused: NDArray[np.int64]
    """Last `round` of the pool in which a kind found no place; a round is a time in which no GPUs become free."""
    limits: NDArray[np.int64]
    """Quota, weight, borrowing limit and lending limit of each account over time (Q, A, 4)."""
    limit_ms: NDArray[np.int64]
    """Times from which the rows of `limits` apply [ms] (Q,)."""


def prepare(mechanism: Tenants, setting: Setting) -> Run:
    """Return a run in which tenants take turns."""
    jobs = replace(setting.jobs, tenant=mechanism.tenant)
    state = build(replace(setting, jobs=jobs), mechanism.order, kind="Tenants")
    state, books = open_books(state, setting.jobs, setting.cluster, setting.assignment, mechanism)
    arrays = open_nodes(state, setting.cluster)
    evicts = mechanism.reclaim != "never"
    step = partial(kernel.run_tenants, arrays, kernel.TenantBooks(books), engine_key(mechanism.order.key), evicts)
    return Run(state, step, partial(_with_columns, state, books))


def open_books(
    state: EngineState, jobs: Jobs, cluster: Cluster, assignment: Assignment, mechanism: Tenants
) -> tuple[EngineState, TenantBooks]:
    """Return the state of `mechanism.order`, prepared for tenants, and the tenants' arrays."""
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
    line = np.zeros(len(accounts), np.int32)
    refused = np.zeros(int(kind.max()) + 1, np.int64)
    books = TenantBooks(
        rules, accounts, pools, claims, line, kind, refused, limits, mechanism.quota_ms.astype(np.int64)
    )
    return (state if mechanism.reclaim == "never" else _with_victims(state, books, account_of)), books


def _with_columns(state: EngineState, books: TenantBooks, outcome: Outcome) -> Outcome:
    """Add the columns that a run with tenants records for each job, if requested.

    fair_share_wait_ms: wait while its tenant held at least its quota. fragmentation_wait_ms: the rest of its wait, in
    which only a place was missing. placement_refused: 1 if its quota once allowed a start but no place was free.
    """
    if not books.rules["attributed"][0]:
        return outcome
    jobs, delayed = state.jobs, books.claims["delayed"]
    wait = jobs["end"] - jobs["submit"] - jobs["ran"]
    columns = {
        "fair_share_wait_ms": delayed.copy(),
        "fragmentation_wait_ms": np.where(jobs["end"] >= 0, wait - delayed, 0),
        "placement_refused": books.claims["refused"].astype(np.int64),
    }
    return replace(outcome, columns=columns)


def _rules(mechanism: Tenants) -> NDArray[Any]:
    t = np.zeros(1, struct_dtype("TenantRules"))
    t["pick"], t["across"] = _PICKS[mechanism.pick], mechanism.across == "stop"
    t["limit"], t["reclaim"] = _LIMITS[mechanism.limit], _RECLAIMS[mechanism.reclaim]
    t["fair"], t["theta"] = mechanism.fair, mechanism.theta_ppm
    t["own"], t["others"] = _VICTIMS[mechanism.reclaim_own], _VICTIMS[mechanism.reclaim_others]
    t["borrowing"], t["cap"] = mechanism.reclaim_borrowing, mechanism.reclaim_below
    if mechanism.half_life_ms:
        t["period"] = max(mechanism.half_life_ms // _DECAYS_IN_HALF_LIFE, 1)
        # A power of two, computed once; from here on only whole numbers are used.
        t["keep"] = round((1 << DECAY_BITS) * 0.5 ** (1 / _DECAYS_IN_HALF_LIFE))
    t["attempt"], t["backoff"], t["attempts"] = mechanism.attempt_ms, mechanism.backoff_ms, mechanism.attempts
    t["resources"], t["attributed"] = mechanism.resources, mechanism.attribute
    return t


def _needs_claims(mechanism: Tenants) -> bool:
    return mechanism.reclaim != "never" or mechanism.resources or mechanism.attribute or mechanism.attempt_ms > 0


def _accounts(state: EngineState, mechanism: Tenants) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Return the accounts, sorted by domain and tenant like the queues, each one's tenant, and each job's account."""
    if not mechanism.order.by_tenant:
        msg = "the order of a mechanism with tenants must keep them apart: set by_tenant"
        raise ValueError(msg)
    if mechanism.across == "stop" and mechanism.order.scan != "stop":
        msg = "if the pass ends at the first tenant that cannot start, its first job decides: set scan='stop'"
        raise ValueError(msg)
    queues, count = state.queues, mechanism.quota.shape[1]
    code = queues["domain"].astype(np.int64) * count + queues["tenant"]
    # In a single domain, tenants without jobs have an account too, because others may borrow their quota.
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
    """Return the number of GPUs that each account could hold if no other account held any."""
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
    """Set CPUs and memory of jobs and domains; a job that needs more than the domain has can never run."""
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
    """Do not relax jobs that cannot spread further: jobs with one GPU, and jobs in a domain of one node."""
    job_classes = state.job_classes
    nodes = np.bincount(cluster.domain, minlength=len(state.domains))
    job_classes["relaxed"][(job_classes["gpus"] == 1) | (nodes[job_classes["domain"]] <= 1)] = NONE


def _with_victims(state: EngineState, books: TenantBooks, account_of: NDArray[np.int64]) -> EngineState:
    """Return the state with room for the running jobs of each account, in eviction order."""
    accounts, n = books.accounts, len(state.jobs)
    room = np.minimum(np.bincount(account_of, minlength=len(accounts)), books.pools["gpus"][accounts["pool"]])
    accounts["eviction_base"] = np.concatenate([[0], np.cumsum(room)[:-1]])
    running = min(n, int(books.pools["gpus"].sum()))
    state.g["ring"] = 0
    return state._replace(
        eviction_queue=np.zeros(int(room.sum()), struct_dtype("Entry")),
        eviction_at=np.full(n, NONE, np.int32),
        scratch=np.zeros(running, np.int32),
        evicted=np.zeros(running, np.int32),
    )
