"""Themis: GPUs are leased by auction to the jobs with the worst finish-time fairness."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.optimal import chosen, sparse
from tracekit.policies.literature.resizing import speedup
from tracekit.policies.literature.turns import Turns
from tracekit.policies.parameters import overhead
from tracekit.policies.plans import Planned
from tracekit.replay.assumptions.speeds import PPM, elastic_bounds, elastic_ppm

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.mechanisms import Plan, View


def best_bundles(gain: Floats, gpus: Ints, may: Bools, free: Ints, nodes: int = 0, gap: float = 0.0) -> Ints:
    """Return the pool where each bidder wins its GPUs, or -1 for none, for the largest sum of gains (k,).

    An integer program (HiGHS) decides. Among bidders with equal requests, only those with the largest gains can win, so
    at most as many as fit are considered. The best solution within the limit is used. The limit is a number of search
    nodes, not a time, so every machine gives the same result.

    Parameters
    ----------
    gain : array (k,)
        Gain of each bidder if it wins, 0 or more.
    gpus : array (k,)
        GPUs that each bidder requests, which it gets all or not at all.
    may : array (k, P)
        The pools that each bidder may use.
    free : array (P,)
        GPUs on offer in each pool.
    nodes : int
        Maximum number of nodes of the program's search tree, or 0 for no limit.
    gap : float
        Accepted gap to the largest sum [1]. If the bids that fit, by gain per GPU, come this close to the bound for
        divisible gangs, they win without a program.
    """
    won = np.full(len(gain), -1, np.int64)
    may = may & (gpus[:, None] <= free) & (gain > 0)[:, None]
    alike: dict[tuple[int, bytes], list[int]] = {}
    for i in np.lexsort((np.arange(len(gain)), -gain)).tolist():
        if may[i].any():
            same = alike.setdefault((int(gpus[i]), may[i].tobytes()), [])
            if len(same) < int((free[may[i]] // gpus[i]).sum()):
                same.append(i)
    some = np.array(sorted(i for same in alike.values() for i in same), np.int64)
    if not len(some):
        return won
    row, pool = np.nonzero(may[some])
    if len(alike) == 1 and len(np.unique(pool)) == 1:
        # With one size and one pool, as many of the largest bids win as fit.
        won[some] = pool[0]
        return won
    bids = _Bids(gain[some][row], gpus[some][row], row, pool, free)
    taken, enough = bids.densest(gap)
    if not enough:
        found = bids.solve(nodes, gap)
        taken = taken if found is None else found
    for i in taken:
        won[some[row[i]]] = pool[i]
    return won


@dataclass(frozen=True)
class _Bids:
    """Bids of bidders for pools."""

    gain: Floats
    gpus: Ints
    row: Ints
    """The bidder of each bid."""
    pool: Ints
    free: Ints
    """GPUs of each pool."""

    def densest(self, gap: float) -> tuple[list[int], bool]:
        """Return the bids that fit, with the largest gain per GPU first, and whether their sum is within the gap."""
        left, total, bound = self.free.tolist(), float(self.free.sum()), 0.0
        had: set[int] = set()
        seen: set[int] = set()
        taken = []
        for i in np.lexsort((self.pool, -self.gain / self.gpus)).tolist():
            gpus, row, pool = int(self.gpus[i]), int(self.row[i]), int(self.pool[i])
            if row not in seen:
                seen.add(row)
                bound += float(self.gain[i]) * min(1.0, total / gpus)
                total = max(total - gpus, 0.0)
            if row not in had and gpus <= left[pool]:
                had.add(row)
                left[pool] -= gpus
                taken.append(i)
        return taken, float(self.gain[taken].sum()) >= bound * (1 - gap) - 1e-12

    def solve(self, nodes: int, gap: float) -> list[int] | None:
        """Return the program's winning bids, or None if it found no solution within the limit."""
        bids, bidders = len(self.row), int(self.row.max()) + 1
        at = np.arange(bids)
        parts = [(self.row, at, np.ones(bids)), (bidders + self.pool, at, self.gpus)]
        matrix = sparse(parts, bidders + len(self.free), bids)
        most = np.concatenate([np.ones(bidders), self.free.astype(np.float64)])
        limit = {"node_limit": nodes} if nodes else {}
        found = chosen(-self.gain, [(matrix, -np.inf, most)], mip_rel_gap=gap, **limit)
        return None if found is None else np.flatnonzero(found).tolist()


def best_sizes(low: list[int], high: list[int], free: int, value: Callable[[int, int], float]) -> tuple[list[int], int]:
    """Return the bidders' GPUs and the GPUs left after giving each minimum that fits, in order, and then single GPUs.

    Each GPU goes where the logarithm of the value grows most. This maximizes the product of the values if the logarithm
    grows less with every GPU. A bidder whose minimum does not fit gets no GPUs.

    Parameters
    ----------
    low, high : list of int
        Minimum and maximum GPUs of each bidder.
    free : int
        GPUs on offer.
    value : callable
        Value of bidder i with n GPUs, above 0.
    """
    size = [0] * len(low)
    heap: list[tuple[float, int]] = []

    def offer(i: int) -> None:
        if size[i] < high[i]:
            heapq.heappush(heap, (math.log(value(i, size[i])) - math.log(value(i, size[i] + 1)), i))

    for i, least in enumerate(low):
        if least <= free:
            size[i], free = least, free - least
            offer(i)
    while heap and free > 0:
        loss, i = heapq.heappop(heap)
        if loss >= 0:
            break
        size[i], free = size[i] + 1, free - 1
        offer(i)
    return size, free


_MINUTE = 60_000


class _Auctions(Turns):
    """Plans based on leases and finish-time fairness."""

    def set_up(self) -> None:
        """Compute the bounds of the jobs."""
        super().set_up()
        p, jobs = self.p, self.jobs
        # Here the parameter `gap` belongs to the integer program.
        self.settings["gap_ms"] = round(p["interval"] * 1000)
        self.lease_ms = max(round(p["lease"] * 1000), 1)
        self.share = 1 - p["f"]
        self.bidders, self.nodes, self.gap = p["bidders"], p["limit"], p["gap"]
        self.elastic, self.released = p["form"] == "elastic", p["waiting"] == "released"
        self.submit_ms, self.work_ms = jobs.submit_ms, np.maximum(jobs.work_ms, 1)
        self.low, self.most = elastic_bounds(self.models, self.gpus)

    def begin(self, view: View) -> None:
        self.lease_end_ms: Ints = np.zeros(len(self.submit_ms), np.int64)
        """End of each job's lease, or a past time if the job has no GPUs [ms] (n,)."""
        self.last: Floats = np.ones(len(self.submit_ms))
        """Ratio of each job when it last had GPUs, or 1 if it never had any (n,)."""
        self.since_ms: Ints = self.submit_ms.copy()
        """Time at which each job last had GPUs [ms] (n,)."""
        self.draws = np.random.default_rng(0)

    def plan(self, view: View) -> Plan:
        """Return the plan until the first lease ends."""
        job, held, now = view.job, view.held, view.now_ms
        running = self.pools.held(view)
        age = (now - self.submit_ms[job]).astype(np.float64)
        expected = age + view.remaining_ms + view.overhead_ms
        rho = expected / self.work_ms[job]
        runs = running >= 0
        self.last[job[runs]], self.since_ms[job[runs]] = rho[runs], now
        if self.released:
            waited = (now - self.since_ms[job[~runs]]) / _MINUTE
            rho[~runs] = self.last[job[~runs]] * (waited + 1)
        bound = runs & (self.lease_end_ms[job] > now)
        free = self.pools.capacity(view, running) - self.pools.used(running[bound], held[bound])
        asked = np.flatnonzero(~bound)
        order = asked[np.lexsort((asked, -rho[asked]))]
        chosen = np.where(bound, running, -1)
        size = np.where(bound, held, 0)
        gpus = self.gpus[job]
        if self.elastic:
            self._elastic(job, order, running, free, chosen, size)
        else:
            if len(order) and (len(free) > 1 or int(gpus[order].sum()) > int(free.sum())):
                bidders = self._bidders(order, rho)
                gain = np.log1p(self.lease_ms / np.maximum(expected[bidders], 1))
                may = self.speed[self.pools.kind[job[bidders]]] > 0
                # A running job bids only for its own pool, so jobs do not move unnecessarily.
                own = np.arange(len(free)) == running[bidders][:, None]
                may &= own | (running[bidders] < 0)[:, None]
                won = best_bundles(gain, gpus[bidders], may, free, self.nodes, self.gap)
                chosen[bidders] = won
                free -= np.bincount(won[won >= 0], gpus[bidders[won >= 0]], len(free)).astype(np.int64)
                order = order[chosen[order] < 0]
            # GPUs left by the bidders go to the other jobs, the worst ratio first.
            if len(order) and (free > 0).any():
                chosen[order] = self.choose(job, order, running, free)[order]
            size = np.where(chosen >= 0, gpus, 0)
        self.lease_end_ms[job[~bound & (chosen >= 0)]] = now + self.lease_ms
        waits = bool((chosen < 0).any()) or self.elastic
        # Now every job that has GPUs has a lease.
        wake = int(self.lease_end_ms[job[chosen >= 0]].min()) if waits and (chosen >= 0).any() else -1
        return self._plan(job, held, running, chosen, size, wake)

    def _bidders(self, order: Ints, rho: Floats) -> Ints:
        """Return the jobs with the worst ratios, breaking ties at random."""
        count = min(max(int(round(self.share * len(order), 9)), 1), self.bidders, len(order))
        lots = self.draws.random(len(order))
        return order[np.lexsort((lots, -rho[order]))][:count]

    def _elastic(self, job: Ints, order: Ints, running: Ints, free: Ints, chosen: Ints, size: Ints) -> None:
        """Give bidders the sizes with the largest product of speeds, then serve other jobs, the worst ratio first."""
        count = min(max(int(round(self.share * len(order), 9)), 1), self.bidders)
        kind = self.pools.kind[job]
        left = free.astype(np.float64)
        mine: dict[int, list[int]] = {}
        for i in order.tolist():
            may = (self.speed[kind[i]] > 0) & (left >= self.low[job[i]])
            if not may.any():
                continue
            pool = int(running[i])
            if pool < 0 or not may[pool]:
                pool = int(np.where(may, left, -np.inf).argmax())
            chosen[i] = pool
            left[pool] -= self.low[job[i]]
            mine.setdefault(pool, []).append(i)
        first = set(order[:count].tolist())
        speed = speedup(self.models, np.arange(int(self.most.max(initial=1)) + 1)).tolist()
        for pool, places in mine.items():
            rest = int(free[pool])
            for part in ([i for i in places if i in first], [i for i in places if i not in first]):
                low, high = self.low[job[part]].tolist(), self.most[job[part]].tolist()
                sizes, rest = best_sizes(low, high, rest, lambda _, n: speed[n])
                size[part] = sizes
        chosen[size == 0] = -1

    def _plan(self, job: Ints, held: Ints, running: Ints, chosen: Ints, size: Ints, wake_ms: int) -> Plan:
        if not self.elastic:
            return self.moved(job, running, chosen, wake_ms)
        named = np.flatnonzero((size != held) | (chosen != running))
        named = named[np.argsort(-size[named], kind="stable")]
        own, gpus, pool = job[named], size[named], chosen[named]
        rate = elastic_ppm(self.models, self.gpus[own], gpus)
        rate = rate * self.speed[self.pools.kind[own], pool] // PPM
        return self.pools.plan(own, gpus, pool, rate, wake_ms)


class Themis(Planned):
    """GPUs are leased by auction to the jobs with the worst finish-time fairness.

    A job gets GPUs for the length of a lease. When jobs arrive or end, or leases end, but at most once every `interval`
    seconds, the GPUs without a lease are auctioned. Of the n jobs without a lease, the (1 - `f`) * n jobs with the
    largest ratios bid, at least one, and ties are broken at random. The ratio is the time from submission to the
    expected end with the requested GPUs, divided by the work. For a waiting job, it is the ratio when the job lost its
    GPUs, times the minutes since then plus one (waiting=released), or the same estimate as for other jobs
    (waiting=estimate). In the rigid form, a job bids for all GPUs that it requests. An integer program chooses the
    winners: the bids with the largest product of gains. A gain compares the current value with the value after another
    lease without GPUs, where the value is the inverse of the ratio. In the elastic form, each bidder gets its minimum
    number of GPUs, the worst ratio first, and then every GPU goes where the logarithm of the speed grows most. Bids
    cost nothing. GPUs left by the bidders go to the other jobs, the worst ratio first. A job with a renewed lease keeps
    its GPUs. Gangs may be spread over nodes.

    Equal to
    --------
    - If all jobs fit, with form=rigid, every job starts at the next auction and no job is stopped.
    - With an infinite lease, interval=0, form=rigid and one-GPU jobs of equal work, jobs end as under fifo,scan=skip,
      except for the order of jobs that arrive together.

    Sources
    -------
    - Mahajan et al., Themis (NSDI'20): leases, partial auctions, f. From the first author's released simulator: the
      ideal time, which is the work at full size without a factor for contention; a waiting job's ratio; the number of
      bidders and random ties; the product of speeds; no payments and no cost of leases.
    - Our choices: each job is an app; leases of 20 minutes and the minute in a waiting job's ratio, because units are
      not given; the value of a rigid bid; `interval`; `bidders`. We leave out the released lease test, which ends the
      leases of spread jobs sooner, because it is a bug.
    """

    plans = _Auctions
    card = Card(
        name="themis",
        parameters=(
            Parameter(
                "form",
                "rigid",
                "whether jobs run on the GPUs that they request, or change their number with each lease",
                ("rigid", "elastic"),
            ),
            Parameter("f", 0.8, "share of jobs that do not bid, the smallest ratios first [1]", maximum=1),
            Parameter("lease", 1200.0, "length of a lease [s]", minimum=0.001),
            Parameter("waiting", "released", "how to compute the ratio of a waiting job", ("released", "estimate")),
            Parameter("interval", 60.0, "minimum time between two auctions [s]"),
            Parameter("bidders", 64, "maximum number of jobs that bid at once", minimum=1, maximum=10_000),
            Parameter(
                "gap", 0.01, "accepted gap of the program to the largest product, as a share of its logarithm [1]"
            ),
            Parameter(
                "limit",
                1000,
                "maximum number of search nodes of the program, after which its best solution is used; 0 for no limit",
            ),
            Parameter("resize", 30.0, "cost of changing the number of GPUs [s]"),
            overhead("none"),
        ),
        assumptions=("D1", "M8", "M9", "M4"),
    )
