"""Accounts of tenants: what each holds, has held, may hold, and whether its jobs wait.

An account is a tenant in a domain. What is here takes single records where it can: that keeps compilation short.
"""

from __future__ import annotations

from typing import Any

from tracekit.replay.engine.compiled import inner

__all__ = [
    "DECAY_BITS",
    "LAST",
    "LIMIT_COHORT",
    "LIMIT_NONE",
    "LIMIT_OWN",
    "PICK_CYCLE",
    "PICK_DOMINANT",
    "PICK_USAGE",
    "above",
    "charge",
    "count",
    "has_resources",
    "leave_line",
    "line_up",
    "refresh",
    "room",
    "settle_account",
    "share_of",
]

PICK_USAGE, PICK_DOMINANT, PICK_CYCLE = range(3)
LIMIT_NONE, LIMIT_OWN, LIMIT_COHORT = range(3)

LAST = 1 << 62
"""The share of a tenant without weight: after all others."""

DECAY_BITS = 14
"""At each period, past use is multiplied by a whole number of parts of 2^14."""

_SHARE = 10**9
_DECAYED_SHARE = 1000
_PERIODS = 1024
_ANY = 1 << 40


@inner
def settle_account(rules: Any, account: Any, now: int) -> None:
    """Book an account's past up to now; to be called before its use or its quota changes."""
    elapsed = now - account.settled
    if elapsed == 0:
        return
    if account.use >= account.quota:
        account.over += elapsed
    period = rules.period
    if period > 0:
        periods = now // period - account.settled // period
        if periods == 0:
            account.decayed += account.use * elapsed
        else:
            account.decayed += account.use * (period - account.settled % period)
            account.decayed = (account.decayed * rules.keep) >> DECAY_BITS
            # After so many periods nothing is left of what was before.
            for _ in range(min(periods - 1, _PERIODS)):
                account.decayed = ((account.decayed + account.use * period) * rules.keep) >> DECAY_BITS
            account.decayed += account.use * (now % period)
    account.settled = now


@inner
def above(account: Any, use: int) -> int:
    """Return the share above its quota that an account would have with that use [GPUs * 10^9 / weight]."""
    if use <= account.quota:
        return 0
    return (use - account.quota) * _SHARE // account.weight if account.weight > 0 else LAST


@inner
def refresh(rules: Any, pool: Any, account: Any) -> None:
    """Compute an account's share from what it holds; the smallest has its turn first."""
    if rules.pick == PICK_CYCLE:
        account.share = above(account, account.use)
        return
    if account.weight <= 0:
        account.share = LAST
        return
    most = account.use * _SHARE
    if rules.pick == PICK_DOMINANT:
        most //= max(pool.gpus, 1)
        if pool.cpu_all > 0:
            most = max(most, account.cpu * _SHARE // pool.cpu_all)
        if pool.memory_all > 0:
            most = max(most, account.memory * _SHARE // pool.memory_all)
    account.share = most // account.weight


@inner
def share_of(rules: Any, account: Any, now: int) -> int:
    """Return an account's share now: of what it holds, or of what it has held where the past counts."""
    if rules.period == 0 or account.weight <= 0:
        return account.share
    settle_account(rules, account, now)
    return account.decayed * _DECAYED_SHARE // account.weight


@inner
def count(pool: Any, account: Any, sign: int) -> None:
    """Add an account to the sums of its pool, or take it out of them (-1)."""
    pool.use += sign * account.use
    pool.over += sign * max(account.use - account.quota, 0)
    pool.lend += sign * account.lend
    pool.lent += sign * max(account.use - (account.quota - account.lend), 0)


@inner
def charge(rules: Any, pools: Any, claims: Any, account: Any, j: int, gpus: int, now: int) -> None:
    """Book that a job takes GPUs, or frees them (below 0), with its CPUs and memory."""
    settle_account(rules, account, now)
    pool = pools[account.pool]
    count(pool, account, -1)
    account.use += gpus
    count(pool, account, 1)
    if gpus < 0:
        account.eased = 1
    if rules.resources:
        sign = 1 if gpus > 0 else -1
        account.cpu += sign * claims[j].cpu
        account.memory += sign * claims[j].memory
        pool.cpu -= sign * claims[j].cpu
        pool.memory -= sign * claims[j].memory
    refresh(rules, pool, account)


@inner
def line_up(pools: Any, accounts: Any, line: Any, a: int) -> None:
    """Count a job that was put into a queue."""
    account = accounts[a]
    account.stuck = 0
    account.waiting += 1
    if account.waiting == 1:
        pool = pools[account.pool]
        account.place = pool.open
        line[pool.low + pool.open] = a
        pool.open += 1


@inner
def leave_line(pools: Any, accounts: Any, line: Any, a: int) -> None:
    """Count a job that was taken out of a queue."""
    account = accounts[a]
    account.waiting -= 1
    if account.waiting == 0:
        pool = pools[account.pool]
        pool.open -= 1
        moved = line[pool.low + pool.open]
        line[pool.low + account.place] = moved
        accounts[moved].place = account.place


@inner
def room(rules: Any, pool: Any, account: Any) -> int:
    """Return the GPUs that an account may take now, whether or not so many are free.

    In a cohort an account keeps what it does not lend; what all lend is a pool, from which each takes what it uses
    beyond that, up to what it lends itself and its borrowing limit.
    """
    if rules.limit == LIMIT_NONE:
        return _ANY
    if rules.limit == LIMIT_OWN:
        return account.quota - account.use
    kept = account.quota - account.lend
    lent = min(pool.lend - pool.lent, account.lend - max(account.use - kept, 0) + account.borrow)
    return max(kept - account.use, 0) + max(lent, 0)


@inner
def has_resources(rules: Any, pool: Any, claims: Any, j: int) -> bool:
    """Return whether a domain has the CPUs and the memory that a job asks for."""
    if rules.resources == 0:
        return True
    return (pool.cpu_all < 0 or claims[j].cpu <= pool.cpu) and (pool.memory_all < 0 or claims[j].memory <= pool.memory)
