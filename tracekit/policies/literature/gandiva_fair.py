"""Gandiva_fair: GPU time in proportion to tickets, by gang-aware stride scheduling and trades of GPU types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.turns import Turns, next_slice
from tracekit.policies.parameters import overhead
from tracekit.policies.plans import Planned
from tracekit.policies.pools import NOTHING
from tracekit.policies.tenants import WEIGHT, tenants, weights

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints
    from tracekit.replay.mechanisms import Plan, View


_SLACK = 1e-9


def fill_segments(segment: Ints, limit: Floats, weight: Floats, capacity: Floats) -> Floats:
    """Return shares in proportion to weights and within limits. GPUs that limits leave unused go to the other rows.

    Parameters
    ----------
    segment : array (k,)
        The segment whose capacity each row shares.
    limit : array (k,)
        Maximum share of each row.
    weight : array (k,)
        Weight of each row, above 0.
    capacity : array (S,)
        GPUs of each segment.
    """
    if not len(segment):
        return np.zeros(0)
    need = limit / weight
    by = np.lexsort((need, segment))
    seg, most, worth = segment[by], limit[by], weight[by]
    start = np.flatnonzero(np.concatenate([[True], seg[1:] != seg[:-1]]))
    count = np.diff(np.append(start, len(seg)))
    # For each row: the share taken by rows with less need, and the weight of this and later rows.
    taken = np.cumsum(most) - most
    taken -= np.repeat(taken[start], count)
    passed = np.cumsum(worth) - worth
    passed -= np.repeat(passed[start], count)
    total = np.repeat(np.add.reduceat(worth, start), count)
    level = (capacity[seg] - taken) / (total - passed)
    short = need[by] > level
    # A segment's level is that of the first row whose need exceeds the level, or infinite if there is no such row.
    first = np.full(len(capacity), np.inf)
    first[seg[short][::-1]] = level[short][::-1]
    found = np.empty(len(seg))
    found[by] = np.minimum(most, np.maximum(worth * first[seg], 0.0))
    return found


def fill_shares(limit: Floats, weight: Floats, capacity: float) -> Floats:
    """Return shares in proportion to weights and within limits, in one segment."""
    return fill_segments(np.zeros(len(limit), np.int64), limit, weight, np.array([capacity]))


def trade(have: Floats, speedup: Floats, margin: float) -> tuple[Floats, int]:
    """Return each tenant's GPUs of each type after trading fast GPUs for slow ones, and the number of trades.

    For each pair of types, starting with the most different, the tenant with the largest speedup from the slow to the
    fast type buys from the tenant with the smallest speedup. The price of a fast GPU, in slow GPUs, is the
    second-largest speedup. They trade while the largest speedup is at least 1 + margin times the smallest. No tenant is
    worse off: the seller gets at least its own speedup and the buyer pays at most its own.

    Parameters
    ----------
    have : array (T, J)
        GPUs of each tenant on each type.
    speedup : array (T, J)
        Speed of the tenant's jobs on each type, or 0 if they do not run there.
    margin : float
        Minimum gain for a trade.
    """
    have = have.copy()
    deals = 0
    tenants, types = have.shape
    mean = np.array([speedup[speedup[:, j] > 0, j].mean() if (speedup[:, j] > 0).any() else 0.0 for j in range(types)])
    pairs = [
        (f, s)
        for f in range(types)
        for s in range(types)
        if f != s and mean[f] >= mean[s] > 0 and (f < s or mean[f] > mean[s])
    ]
    pairs.sort(key=lambda p: (-mean[p[0]] / mean[p[1]], p))
    for fast, slow in pairs:
        able = (speedup[:, fast] > 0) & (speedup[:, slow] > 0)
        ratio = np.where(able, speedup[:, fast] / np.where(able, speedup[:, slow], 1.0), 0.0)
        order = [int(t) for t in np.lexsort((np.arange(tenants), -ratio)) if able[t]]
        buyers, sellers = list(order), list(reversed(order))
        while buyers and sellers:
            buyer, seller = buyers[0], sellers[0]
            if buyer == seller or ratio[buyer] < ratio[seller] * (1 + margin):
                break
            rest = [ratio[t] for t in order if t != buyer]
            price = min(max(rest), ratio[buyer])
            amount = min(have[seller, fast], have[buyer, slow] / price)
            if amount > _SLACK:
                have[buyer, fast] += amount
                have[seller, fast] -= amount
                have[buyer, slow] -= amount * price
                have[seller, slow] += amount * price
                deals += 1
            if have[buyer, slow] <= _SLACK:
                buyers.pop(0)
            elif have[seller, fast] <= _SLACK:
                sellers.pop(0)
            else:
                break
    return np.maximum(have, 0.0), deals


_LEAST = 1e-6
"""Smallest entitlement, used in place of zero [GPUs]."""


class _Stride(Turns):
    """Plans based on entitlements and passes."""

    any_model = True

    def set_up(self) -> None:
        """Compute the tenants' tickets."""
        super().set_up()
        p = self.p
        self.slice_ms = max(round(p["quantum"] * 1000), 1)
        self.margin = p["margin"] if p["trade"] else np.inf
        self.owner = tenants(self.jobs, p["of"]).astype(np.int64)
        self.table, self.times, self.worth = weights(self.jobs, self.cluster, self.models, p["of"], p["weight"])

    def begin(self, view: View) -> None:
        n = len(self.owner)
        self.home: Ints = np.full(n, -1, np.int64)
        """Pool of each job's turns, or -1 if not yet assigned (n,)."""
        self.due: Floats = np.full(n, _LEAST)
        """GPUs to which each job is entitled (n,)."""
        self.passed: Floats = np.zeros(n)
        """GPU time that each job has used, divided by its entitlement [ms] (n,)."""
        self.now_ms = 0
        self.known = 0
        self.ran: Ints = np.zeros(0, np.int64)
        self.active: Ints = np.zeros(0, np.int64)
        self.free: Ints = np.zeros(0, np.int64)

    def plan(self, view: View) -> Plan:
        """Return the plan until the next slice or event."""
        job, running = view.job, self.pools.held(view)
        self.passed[self.ran] += self.gpus[self.ran] / self.due[self.ran] * (view.now_ms - self.now_ms)
        self.now_ms = view.now_ms
        pools = self.pools.gpus(view)
        ticks = view.now_ms % self.slice_ms == 0
        split = int(np.searchsorted(job, self.known))
        if split < len(job):
            # A new job starts with the smallest pass.
            self.passed[job[split:]] = self.passed[job[:split]].min() if split else 0.0
            self.due[job[split:]] = self.gpus[job[split:]]
        self.known = view.submitted
        if ticks and not (np.array_equal(job, self.active) and np.array_equal(pools, self.free)):
            self._entitle(job, pools)
            self.active, self.free = job, pools
        if not ticks and (running >= 0).all():
            # No job waits, so all jobs continue.
            self.ran = job
            return NOTHING
        free = self.pools.capacity(view, running)
        chosen = running.copy()
        if not ticks:
            free -= self.pools.used(running, view.held)
            asked = np.flatnonzero(running < 0)
        else:
            asked = np.arange(len(job))
        asked = asked[np.lexsort((asked, running[asked] < 0, self.passed[job[asked]]))]
        found = self.choose(job, asked, running, free, self.home[job])
        # GPUs that a pool's jobs cannot use go to jobs of other pools, in the same order.
        rest = asked[found[asked] < 0]
        if len(rest) and (free > 0).any():
            more = self.choose(job, rest, running, free)
            found = np.where(found >= 0, found, more)
        chosen[asked] = found[asked]
        self.ran = job[chosen >= 0]
        wake = next_slice(view.now_ms, self.slice_ms) if (chosen < 0).any() else -1
        return self.moved(job, running, chosen, wake)

    def _tickets(self) -> Floats:
        if self.worth is not None:
            return self.worth.astype(np.float64)
        row = max(int(np.searchsorted(self.times, self.now_ms, side="right")) - 1, 0)
        found: Floats = np.maximum(self.table[row].astype(np.float64), _LEAST)
        return found

    def _entitle(self, job: Ints, pools: Ints) -> None:
        """Compute each tenant's entitlement in each pool, the pools of its jobs, and each job's due share."""
        layout = self.pools
        speed = self.speed[layout.kind[job]]
        domain = layout.kind_domain[layout.kind[job]]
        gpus, owner = self.gpus[job], self.owner[job]
        tickets = self._tickets()
        for d in np.unique(domain[domain >= 0]).tolist():
            low, high = np.searchsorted(layout.domain, [d, d + 1])
            own = np.flatnonzero(domain == d)
            who, index = np.unique(owner[own], return_inverse=True)
            demand = np.bincount(index, gpus[own]).astype(np.float64)
            share = fill_shares(demand, tickets[who], float(pools[low:high].sum()))
            total = np.stack([np.bincount(index, speed[own, p], len(who)) for p in range(low, high)], axis=1)
            mean = total / np.bincount(index)[:, None].astype(np.float64)
            part = np.where(mean > 0, pools[low:high], 0).astype(np.float64)
            part /= np.maximum(part.sum(axis=1, keepdims=True), _LEAST)
            have, _ = trade(share[:, None] * part, mean, self.margin)
            self._send_home(job[own], index, have, int(low), speed[own, low:high])
            segment = index * (high - low) + self.home[job[own]] - low
            self.due[job[own]] = fill_segments(segment, gpus[own].astype(np.float64), np.ones(len(own)), have.ravel())
        self.due[job] = np.maximum(self.due[job], _LEAST)

    def _send_home(self, job: Ints, index: Ints, have: Floats, low: int, speed: Ints) -> None:
        """Assign new jobs to the pool where their tenant has most GPUs left; move one job per tenant to a better pool.

        `index` is the tenant of each job by its row in `have`.
        """
        gpus = self.gpus[job]
        settled = self.home[job] >= 0
        old = np.flatnonzero(settled)
        left = have.copy()
        np.subtract.at(left, (index[old], self.home[job[old]] - low), gpus[old])
        if len(left.T) > 1:
            over = left[index[old], self.home[job[old]] - low] <= -gpus[old]
            seen: set[int] = set()
            for i in old[over].tolist():
                best = int(np.where(speed[i] > 0, left[index[i]], -np.inf).argmax())
                if int(index[i]) not in seen and left[index[i], best] >= gpus[i]:
                    seen.add(int(index[i]))
                    left[index[i], best] -= gpus[i]
                    self.home[job[i]] = low + best
        for i in np.flatnonzero(~settled).tolist():
            best = int(np.where(speed[i] > 0, left[index[i]], -np.inf).argmax())
            left[index[i], best] -= gpus[i]
            self.home[job[i]] = low + best


class GandivaFair(Planned):
    """GPU time in proportion to tickets, by gang-aware stride scheduling and trades of GPU types.

    Tenants with jobs share the GPUs of each type in proportion to their tickets; no tenant gets more GPUs than its jobs
    request. With trade=on, the tenant whose jobs gain most from the faster of two types buys GPUs of that type from the
    tenant whose jobs gain least. The price of a fast GPU, in slow GPUs, is the second-largest gain. The two tenants
    trade until one has nothing left to give, provided that the largest gain is at least 1 + `margin` times the
    smallest. A tenant's share of a type is divided evenly among its jobs there, and no job gets more GPUs than it
    requests. A job goes to the type on which its tenant has most GPUs left, and moves when the tenant has too few there
    and enough elsewhere. At each multiple of `quantum`, the jobs of a type run in the order of their pass, the smallest
    first. A running job's pass grows by its GPUs times the time, divided by its share. A job that does not fit is
    skipped and keeps its pass, so it moves to the front. A new job starts with the smallest pass, and gets a type at
    the next slice. GPUs that the jobs of a type leave free go to jobs of other types and, until the next slice, to new
    arrivals. Gangs may be spread over nodes.

    Equal to
    --------
    - If all jobs fit, every job starts at once and no job is stopped.
    - With one GPU type, or if all tenants gain equally, trade=on equals trade=off.
    - With equal tickets and enough one-GPU jobs, all tenants get equal GPU time, to within a slice.

    Sources
    -------
    - Chaudhary et al., Gandiva_fair (EuroSys'20): tickets, gang-aware stride, and trades. The price, which is the
      second-largest gain, is that of an independent reimplementation.
    - Our choices: one queue for all nodes of a type, including multi-node gangs, instead of one queue per node and a
      central queue; tenants trade as much as possible at once; `margin`; a tenant's speed on a type is the mean over
      its jobs.
    """

    plans = _Stride
    card = Card(
        name="gandiva-fair",
        parameters=(
            Parameter("quantum", 60.0, "length of a slice [s]", minimum=0.001),
            Parameter("of", "user", "kind of tenants with tickets: virtual clusters or users", ("vc", "user")),
            WEIGHT,
            Parameter("trade", True, "whether tenants may trade GPU types"),
            Parameter("margin", 0.1, "minimum gain of the buyer over the seller for a trade [1]"),
            overhead("gandiva"),
        ),
        assumptions=("D1", "D6", "D9", "M9", "M4"),
    )
