"""The scheduling pass of policies with tenants: pick one, start its first job if it may, and again."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.engine.compiled import compiled, inner
from tracekit.replay.engine.heap import heap_push, heap_remove
from tracekit.replay.engine.loop import dequeue, enqueue, next_instant, start, touch
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.ordered import settle_evictions, take, take_again
from tracekit.replay.engine.state import KIND_TIMER, PPM, WAITING
from tracekit.replay.quotas.accounts import (
    LIMIT_OWN,
    PICK_CYCLE,
    above,
    charge,
    count,
    has_resources,
    leave_line,
    line_up,
    refresh,
    room,
    settle_account,
    share_of,
)
from tracekit.replay.quotas.reclaim import reclaim, seniority

__all__ = ["run_tenants"]

_BY_QUOTA = 2
"""What blocks a queue: 1 a place or resources, 2 its tenant's quota."""

_ANY = 1 << 40


@inner
def _arrive(s: Any, books: Any, j: int, begins: bool) -> None:
    """Count a job that is in its queue. Where its wait begins, note its tenant's past, and let an attempt end later."""
    g = s.g[0]
    rules = books.rules[0]
    job = s.jobs[j]
    line_up(books.pools, books.accounts, books.line, job.tenant)
    if begins and rules.attributed:
        account = books.accounts[job.tenant]
        settle_account(rules, account, g.now)
        books.claims[j].mark = account.over
    if begins and rules.attempt > 0:
        books.claims[j].tries = books.claims[j].out = 0
    if rules.attempt > 0 and s.demands[job.demand].relaxed != NONE:
        heap_push(s.events, s.event_at, 0, g.event_size, (g.now + rules.attempt) * 4 + KIND_TIMER, j)
        g.event_size += 1


@inner
def _rings(s: Any, books: Any, j: int) -> None:
    """End a waiting job's attempt, which failed, or the rest after it."""
    g = s.g[0]
    rules = books.rules[0]
    job = s.jobs[j]
    claim = books.claims[j]
    rests = claim.out == 0 and rules.backoff > 0
    if claim.out == 0:
        dequeue(s, j)
        leave_line(books.pools, books.accounts, books.line, job.tenant)
        claim.tries += 1
        if claim.tries >= rules.attempts:
            claim.tries = 0
            job.demand = s.demands[job.demand].relaxed
    claim.out = rests
    if rests:
        heap_push(s.events, s.event_at, 0, g.event_size, (g.now + rules.backoff) * 4 + KIND_TIMER, j)
        g.event_size += 1
    else:
        enqueue(s, j, job.key)
        _arrive(s, books, j, False)


@inner
def _read_instant(s: Any, books: Any, victims: Any) -> None:
    """Book what happened in this instant: ends, submissions, attempts."""
    g = s.g[0]
    rules = books.rules[0]
    while g.ended != NONE:
        j = g.ended
        job = s.jobs[j]
        g.ended = job.stopped
        account = books.accounts[job.tenant]
        charge(rules, books.pools, books.claims, account, j, -job.gpus, g.now)
        if victims is not None:
            heap_remove(s.ranks, s.rank_at, account.rank_base, account.rank_size, g.jobs - 1 - j)
            account.rank_size -= 1
    for j in range(rules.seen, g.submitted):
        if s.jobs[j].status == WAITING:
            _arrive(s, books, j, True)
    rules.seen = g.submitted
    while g.rung != NONE:
        j = g.rung
        g.rung = s.jobs[j].stopped
        _rings(s, books, j)


@inner
def _earlier(queues: Any, waiting: Any, q: int, other: int) -> bool:
    """Return whether the first job of one queue goes before that of another."""
    a = waiting[queues[q].base + queues[q].head]
    b = waiting[queues[other].base + queues[other].head]
    return a.key < b.key or (a.key == b.key and a.job < b.job)


@inner
def _line(s: Any, rules: Any, account: Any, most: int) -> int:
    """Return the queue of the tenant's next job, of at most so many GPUs where its jobs may pass each other.

    NONE where there is none; where the pass ends at the first tenant that cannot start, only its first job counts.
    """
    if rules.across:
        return account.queue_low
    best = NONE
    for q in range(account.queue_low, account.queue_high):
        queue = s.queues[q]
        if queue.size == 0 or queue.blocked or queue.gpus > most:
            continue
        if best == NONE or _earlier(s.queues, s.waiting, q, best):
            best = q
    return best


@inner
def _pick(s: Any, books: Any, victims: Any, d: int) -> int:
    """Return the account with the smallest share that has a job to try; the earlier job decides between equals."""
    now = s.g[0].now
    rules = books.rules[0]
    pool = books.pools[d]
    best = NONE
    best_share: Any = np.int64(0)
    best_queue = NONE
    for i in range(pool.open):
        a = books.line[pool.low + i]
        account = books.accounts[a]
        if account.stuck:
            continue
        share = share_of(rules, account, now)
        if best != NONE and share > best_share:
            continue
        most: Any = np.int64(_ANY)
        if victims is None:
            most = min(np.int64(s.domains[d].free), room(rules, pool, account))
        q = _line(s, rules, account, most)
        if q == NONE:
            account.stuck = 1
            continue
        if best == NONE or share < best_share or _earlier(s.queues, s.waiting, q, best_queue):
            best, best_share, best_queue = a, share, q
    if best != NONE:
        books.accounts[best].candidate = best_queue
    return best


@inner
def _nominate(s: Any, books: Any, victims: Any, d: int) -> int:
    """Let every tenant name its next job for a cycle; return how many did.

    One that has no chance in this pass loses its turn at once.
    """
    rules = books.rules[0]
    pool = books.pools[d]
    found = 0
    for i in range(pool.open):
        account = books.accounts[books.line[pool.low + i]]
        account.candidate = NONE
        if account.stuck:
            continue
        q = _line(s, rules, account, _ANY)
        if q == NONE:
            account.stuck = 1
            continue
        found += 1
        j = s.waiting[s.queues[q].base + s.queues[q].head].job
        gpus = s.jobs[j].gpus
        if victims is None:
            if gpus > room(rules, pool, account):
                s.queues[q].blocked = _BY_QUOTA
                continue
            if gpus > s.domains[d].free:
                s.queues[q].blocked = 1
                if rules.attributed:
                    books.claims[j].refused = 1
                continue
        account.candidate = q
        if rules.fair:
            account.turn = above(account, account.use + gpus)
        else:
            account.turn = account.use + gpus > account.quota
    return found


@inner
def _next_candidate(s: Any, books: Any, pool: Any) -> int:
    """Return the account whose candidate comes next in a cycle; NONE where all had their turn."""
    best = NONE
    for i in range(pool.open):
        a = books.line[pool.low + i]
        account = books.accounts[a]
        if account.candidate == NONE:
            continue
        if best != NONE:
            other = books.accounts[best]
            if account.turn > other.turn:
                continue
            if account.turn == other.turn and not _earlier(s.queues, s.waiting, account.candidate, other.candidate):
                continue
        best = a
    return best


@inner
def _try(s: Any, books: Any, key: Any, victims: Any, a: int, q: int) -> int:
    """Start the first job of a queue if quota, resources and places allow it, or can be made to.

    Returns 0 where it starts, and else what blocks the queue.
    """
    g = s.g[0]
    rules = books.rules[0]
    j = s.waiting[s.queues[q].base + s.queues[q].head].job
    job = s.jobs[j]
    demand = s.demands[job.demand]
    account = books.accounts[a]
    pool = books.pools[account.pool]
    kind = books.kind[job.demand]
    nodes = 0
    allowed = room(rules, pool, account) >= demand.gpus
    by = 1 if allowed else _BY_QUOTA
    allowed = allowed and has_resources(rules, pool, books.claims, j)
    may_reclaim = job.evicted == 0
    while True:
        # What found no place finds none until GPUs come free, whoever asks.
        if allowed and s.domains[demand.domain].free >= demand.gpus and books.refused[kind] != pool.round:
            nodes = take(s, j, demand) if victims is None else take_again(s, j, demand)
            if nodes == 0 and job.evicted == 0:
                books.refused[kind] = pool.round
        if nodes > 0:
            break
        if allowed and rules.attributed:
            books.claims[j].refused = 1
        if victims is None:
            return by
        else:  # noqa: RET505 -- the branch is left out of the compiled code where nobody reclaims
            if not may_reclaim or not reclaim(s, books, key, a, j, demand, allowed):
                return by
            may_reclaim = False
            allowed = True
            pool.round += 1
    dequeue(s, j)
    start(s, key, j, nodes, PPM)
    leave_line(books.pools, books.accounts, books.line, a)
    charge(rules, books.pools, books.claims, account, j, demand.gpus, g.now)
    if rules.attributed:
        books.claims[j].delayed += account.over - books.claims[j].mark
    if victims is not None:
        rank = seniority(books.claims[j], job)
        heap_push(s.ranks, s.rank_at, account.rank_base, account.rank_size, rank, g.jobs - 1 - j)
        account.rank_size += 1
    return 0


@inner
def _sweep(s: Any, books: Any, key: Any, victims: Any, d: int) -> bool:
    """Let tenants take turns, or go round in cycles, until none can start a job; return whether any did."""
    rules = books.rules[0]
    cycle = rules.pick == PICK_CYCLE
    started = False
    left = 0
    while True:
        if cycle:
            a = _next_candidate(s, books, books.pools[d])
            if a == NONE:
                left = _nominate(s, books, victims, d)
                if left == 0:
                    return started
                continue
        else:
            a = _pick(s, books, victims, d)
            if a == NONE:
                return started
        q = books.accounts[a].candidate
        books.accounts[a].candidate = NONE
        if s.queues[q].blocked == 0:
            s.queues[q].blocked = _try(s, books, key, victims, a, q)
            if s.queues[q].blocked == 0:
                started = True
                continue
        if rules.across:
            return started


@inner
def _unblock(s: Any, books: Any, pool: Any) -> None:
    """Let every queue be tried again, but those of tenants at their own quota who gave nothing back."""
    own = books.rules[0].limit == LIMIT_OWN
    pool.round += 1
    for i in range(pool.open):
        account = books.accounts[books.line[pool.low + i]]
        account.stuck = 0
        for q in range(account.queue_low, account.queue_high):
            if s.queues[q].blocked == _BY_QUOTA and own and not account.eased:
                continue
            s.queues[q].blocked = 0
        account.eased = 0


@inner
def _is_full(s: Any, books: Any, pool: Any, d: int, use: int) -> bool:
    """Return whether a domain is full enough for tenants to reclaim, when so many of its GPUs are in use."""
    return use * PPM >= books.rules[0].theta * (pool.use + s.domains[d].free)


@inner
def _pass(s: Any, books: Any, key: Any, victims: Any, d: int) -> None:
    """Start what can start in a domain. Where jobs may reclaim, a start can open the way to more."""
    pool = books.pools[d]
    again = s.domains[d].freed > 0
    while True:
        if again:
            _unblock(s, books, pool)
        over, use = pool.over, pool.use
        started = _sweep(s, books, key, victims, d)
        again = started and (
            pool.over > over or _is_full(s, books, pool, d, pool.use) > _is_full(s, books, pool, d, use)
        )
        if victims is None or not again:
            break
    if victims is not None:  # noqa: SIM102 -- decided while compiling
        if s.g[0].evicted > 0:
            settle_evictions(s, key)
    s.domains[d].freed = 0


@inner
def _change_quotas(s: Any, books: Any) -> None:
    """Let the quotas of this moment hold from now on, and look at every domain anew."""
    g = s.g[0]
    rules = books.rules[0]
    while rules.row + 1 < len(books.limit_ms) and books.limit_ms[rules.row + 1] <= g.now:
        rules.row += 1
        g.events += 1
    for a in range(len(books.accounts)):
        account = books.accounts[a]
        settle_account(rules, account, g.now)
        count(books.pools[account.pool], account, -1)
        account.quota = books.limits[rules.row, a, 0]
        account.weight = books.limits[rules.row, a, 1]
        account.borrow = books.limits[rules.row, a, 2]
        account.lend = books.limits[rules.row, a, 3]
        account.eased = 1
        count(books.pools[account.pool], account, 1)
        refresh(rules, books.pools[account.pool], account)
    for d in range(len(s.domains)):
        touch(s, d, 1)
    g.wake = books.limit_ms[rules.row + 1] if rules.row + 1 < len(books.limit_ms) else NONE


@compiled
def run_tenants(s: Any, books: Any, key: Any, victims: Any, instants: int) -> bool:
    """Run at most so many instants of a policy with tenants; return False when nothing is left to happen.

    `victims` is None where no job may be evicted, which leaves that code out; else the array of that name's use.
    """
    g = s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return False
        _read_instant(s, books, victims)
        if g.wake == g.now:
            _change_quotas(s, books)
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            _pass(s, books, key, victims, d)
        g.touched = 0
    return True
