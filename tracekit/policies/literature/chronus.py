"""Chronus: jobs with deadlines get reserved leases, and the other leases go to the smallest remaining GPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.deadlines import BROKEN, DECLINED, FREE, PROMISED, SLO, UNSEEN, Promises, declined
from tracekit.policies.literature.optimal import chosen, sparse
from tracekit.policies.literature.turns import Turns, next_slice
from tracekit.policies.parameters import overhead
from tracekit.policies.plans import Planned
from tracekit.policies.pools import NOTHING
from tracekit.replay.assumptions.speeds import PPM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.array_types import Floats, Ints
    from tracekit.replay.mechanisms import Plan, View


class Need(NamedTuple):
    """The leases that a job needs before its deadline."""

    job: int
    pool: int
    gpus: int
    leases: int
    """Number of leases, each for all GPUs of the job."""
    end: int
    """First lease that begins too late for the job."""


class Reservations:
    """The GPUs promised in each pool and lease.

    Parameters
    ----------
    pools : int
        Number of pools.
    """

    def __init__(self, pools: int) -> None:
        self.of: dict[int, tuple[Need, Ints]] = {}
        """The need of each job, and its leases in ascending order."""
        self._used: Ints = np.zeros((pools, 1024), np.int64)
        self._first = 0

    def reserve(self, need: Need, low: int, capacity: int) -> bool:
        """Reserve a job's leases from `low` on, as late as possible. Return False if they do not fit."""
        used = self._between(need.pool, low, need.end)
        room = np.flatnonzero(capacity - used >= need.gpus)
        if len(room) < need.leases:
            return False
        self._take(need, low + room[len(room) - need.leases :])
        return True

    def extend(self, job: int, more: int, low: int, capacity: int) -> bool:
        """Reserve more leases for a job from `low` on. If they do not fit, reserve none and return False."""
        need, had = self.of[job]
        used = self._between(need.pool, low, need.end).copy()
        used[had[had >= low] - low] = capacity
        room = np.flatnonzero(capacity - used >= need.gpus)
        if len(room) < more:
            return False
        new = low + room[len(room) - more :]
        self._used[need.pool, new - self._first] += need.gpus
        self.of[job] = need, np.sort(np.concatenate([had, new]))
        return True

    def free(self, jobs: Iterable[int], low: int) -> None:
        """Remove the jobs' leases from `low` on, and forget these jobs."""
        for job in jobs:
            self.drop_first(job, len(self.of[job][1]), low)
            del self.of[job]

    def drop_first(self, job: int, count: int, low: int) -> None:
        """Remove the first leases of a job from `low` on, up to `count`, and its past leases."""
        need, had = self.of[job]
        had = had[had >= low]
        self._used[need.pool, had[:count] - self._first] -= need.gpus
        self.of[job] = need, had[count:]

    def move_all(self, needs: Sequence[Need], low: int, capacity: Ints) -> bool:
        """Repeat the reservations of all jobs with leases, the least slack first.

        If a job finds no room, change nothing and return False.
        """
        self._between(0, low, max(need.end for need in needs))
        old, used = self.of, self._used.copy()
        self.of = {}
        self._used[:, low - self._first :] = 0
        for need in sorted(needs, key=lambda one: (one.end - one.leases, one.leases, one.job)):
            if not self.reserve(need, low, int(capacity[need.pool])):
                self.of, self._used = old, used
                return False
        return True

    def solve(self, needs: Sequence[Need], low: int, capacity: Ints, limit: int, cells: int) -> bool:
        """Repeat the reservations of all jobs with leases, wherever there is room, by an integer program (HiGHS).

        Parameters
        ----------
        limit : int
            Maximum number of search nodes. A program that needs more counts as infeasible.
        cells : int
            Maximum number of pairs of a job and a lease. A larger program is not tried.

        Returns
        -------
        bool
            Whether all jobs fit. If not, nothing changes.
        """
        length = np.array([need.end - low for need in needs])
        if (length <= 0).any() or int(length.sum()) > cells:
            return False
        row = np.repeat(np.arange(len(needs)), length)
        lease = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
        span = int(length.max())
        gpus, pool = (np.array([need[i] for need in needs], np.int64)[row] for i in (2, 1))
        at = np.arange(len(row))
        parts = [(row, at, np.ones(len(row))), (len(needs) + pool * span + lease, at, gpus)]
        matrix = sparse(parts, len(needs) + len(capacity) * span, len(row))
        asked = np.array([need.leases for need in needs], np.float64)
        room = np.repeat(capacity.astype(np.float64), span)
        limits = matrix, np.concatenate([asked, np.zeros(len(room))]), np.concatenate([asked, room])
        # Prefer late leases, because new jobs may need capacity soon.
        taken = chosen(-lease.astype(float), [limits], node_limit=limit, mip_rel_gap=1.0)
        if taken is None or (np.bincount(row[taken], minlength=len(needs)) != asked).any():
            return False
        self._between(0, low, low + span)
        self._used[:, low - self._first :] = 0
        self.of = {}
        for i, need in enumerate(needs):
            self._take(need, low + lease[taken & (row == i)])
        return True

    def _take(self, need: Need, leases: Ints) -> None:
        self._used[need.pool, leases - self._first] += need.gpus
        self.of[need.job] = need, leases

    def _between(self, pool: int, low: int, high: int) -> Ints:
        """Return the GPUs promised in leases from `low` to `high` - 1, and forget much earlier leases."""
        width = self._used.shape[1]
        if high - self._first > width:
            kept = self._used[:, max(low - self._first, 0) :]
            self._used = np.zeros((len(self._used), max(2 * (high - low), 1024)), np.int64)
            self._used[:, : kept.shape[1]] = kept[:, : self._used.shape[1]]
            self._first = max(low, self._first)
        return self._used[pool, max(low - self._first, 0) : max(high - self._first, 0)]


_DUE, _BEST_EFFORT, _PROMISED, _LAST = range(4)
"""Priority groups, from first to last."""


class _Leasing(Turns):
    """Plans based on promises and the leases reserved for them."""

    def set_up(self) -> None:
        """Compute the deadlines and the need of each job."""
        super().set_up()
        p, jobs = self.p, self.jobs
        self.lease_ms = max(round(p["lease"] * 1000), 1)
        self.admission, self.between, self.last = p["admission"], p["between"], p["declined"] == "last"
        self.repack, self.nodes, self.cells = p["repack"], p["limit"], p["cells"]
        self.promises = Promises(jobs, self.models, self.seed, p["slo"], drop=p["declined"] == "drop")
        self.settings.update(round_ms=0 if p["between"] else self.lease_ms, tell=self.promises.tell)
        restart = self.overhead_ms[jobs.devices]
        whole = self.lease_ms / np.maximum(self.lease_ms - restart, 1)
        self.longer: Floats = p["margin"] * whole
        """Assumed need of each job relative to its run time, including a restart per lease and the margin (n,)."""

    def begin(self, view: View) -> None:
        self.promises.begin()
        self.reserved = Reservations(len(self.pools.model))
        self.left: Ints = np.zeros(len(self.longer), np.int64)
        self.seen: Ints = np.full(len(self.longer), -1)
        if self.admission == "none":
            self.promises.state[:] = FREE

    def plan(self, view: View) -> Plan:
        """Return the plan until the next lease begins."""
        job, now = view.job, view.now_ms
        running = self.pools.held(view)
        waits = running < 0
        if not waits.any():
            return NOTHING
        state, begins = self.promises.state, now % self.lease_ms == 0
        left = view.remaining_ms
        self.left[job] = left + view.overhead_ms
        fresh = job[waits & (state[job] == UNSEEN)]
        if len(fresh):
            self._admit(view, fresh, job)
        line = np.full(len(job), _BEST_EFFORT)
        line[state[job] == PROMISED] = _PROMISED
        if self.last:
            line[state[job] >= DECLINED] = _LAST
        only = np.full(len(job), -1)
        if begins:
            self._due(view, job, line, only)
        asked = ~self.promises.waits_for_nothing(job)
        if not begins:
            asked &= waits
        order = np.flatnonzero(asked)
        order = order[np.lexsort((waits[order], (left * self.gpus[job])[order], line[order]))]
        free = self.pools.capacity(view, running)
        chosen = np.full(len(job), -1)
        if not begins:
            free -= self.pools.used(running, view.held)
            chosen = running.copy()
        if len(order) and (free > 0).any():
            chosen[order] = self.choose(job, order, running, free, only)[order]
        idle = (chosen < 0) & ~self.promises.waits_for_nothing(job)
        wake = next_slice(now, self.lease_ms) if idle.any() else -1
        return self.moved(job, running, chosen, wake)

    def _admit(self, view: View, fresh: Ints, job: Ints) -> None:
        """Admit new jobs that can meet their deadlines, one by one, and decline the others."""
        low = -(-view.now_ms // self.lease_ms)
        # Jobs that have ended need no more leases.
        self.seen[job] = view.now_ms
        self.reserved.free([j for j in self.reserved.of if self.seen[j] != view.now_ms], low)
        capacity = self.pools.gpus(view)
        for j in fresh.tolist():
            found = any(self._reserve(need, low, capacity) for need in self._needs(j, low))
            self.promises.state[j] = PROMISED if found else DECLINED

    def _needs(self, j: int, low: int) -> list[Need]:
        """Return a job's need in each pool where it could meet its deadline, the fastest pool first."""
        end = int(self.promises.deadline_ms[j]) // self.lease_ms
        kind = self.pools.kind[j]
        found = []
        for pool in np.argsort(self.rank[kind], kind="stable").tolist():
            leases = self._leases(j, pool)
            if self.speed[kind, pool] > 0 and leases <= end - low:
                found.append(Need(j, pool, int(self.gpus[j]), leases, end))
        return found

    def _leases(self, j: int, pool: int) -> int:
        """Return the number of leases, at least one, that a job still needs in a pool."""
        speed = max(int(self.speed[self.pools.kind[j], pool]), 1)
        return max(int(-(-self.left[j] * self.longer[j] * PPM // (speed * self.lease_ms))), 1)

    def _reserve(self, need: Need, low: int, capacity: Ints) -> bool:
        if self.reserved.reserve(need, low, int(capacity[need.pool])):
            return True
        if need.gpus > capacity[need.pool] or len(self.reserved.of) >= self.repack:
            return False
        # Ignore leases that jobs no longer need, because they also ran outside their leases.
        all_needs = [
            had._replace(leases=min(self._leases(j, had.pool), max(had.end - low, 0)))
            for j, (had, _) in self.reserved.of.items()
        ]
        all_needs.append(need)
        if self.reserved.move_all(all_needs, low, capacity):
            return True
        return self.admission == "program" and self.reserved.solve(all_needs, low, capacity, self.nodes, self.cells)

    def _due(self, view: View, job: Ints, line: Ints, only: Ints) -> None:
        """Mark jobs whose leases begin now, and withdraw promises that the policy cannot keep."""
        low = view.now_ms // self.lease_ms
        place = {j: i for i, j in enumerate(job.tolist())}
        capacity = self.pools.gpus(view)
        gone = []
        for j, (need, leases) in self.reserved.of.items():
            at = place.get(j)
            if at is None:
                gone.append(j)
                continue
            first = int(np.searchsorted(leases, low))
            if first == len(leases) or leases[first] == low:
                self._begin(j, need, low, capacity)
                kept = self.reserved.of[j][1]
                if len(kept) and kept[0] == low:
                    line[at], only[at] = _DUE, need.pool
                elif not len(kept):
                    gone.append(j)
                    line[at] = _LAST if self.last else _BEST_EFFORT
        self.reserved.free(gone, low)

    def _begin(self, j: int, need: Need, low: int, capacity: Ints) -> None:
        """Adjust a job's leases to the number that it still needs."""
        _, leases = self.reserved.of[j]
        had = len(leases) - int(np.searchsorted(leases, low))
        needed = self._leases(j, need.pool)
        self.reserved.drop_first(j, max(had - needed, 0), low)
        if had >= needed:
            return
        if need.end > low:
            self.reserved.extend(j, needed - had, low, int(capacity[need.pool]))
        if not len(self.reserved.of[j][1]):
            self.promises.state[j] = BROKEN


class Chronus(Planned):
    """Reserved leases for jobs with deadlines, and smallest remaining GPU time first for the others (Chronus).

    Time is divided into leases. A job with a deadline (D7) is admitted on arrival if all its GPUs can be reserved for
    as many whole leases as it needs before the deadline, as late as possible. If that fails, the leases of all admitted
    jobs are reserved again, the least slack first. If that also fails, admission=program tries an integer program. We
    assume that a job needs its run time, the restart overhead of each lease and the margin. When a lease begins, all
    GPUs are reallocated: first to admitted jobs with a reservation for this lease, then to best-effort jobs, then to
    admitted jobs ahead of schedule. Within each group, the job with the smallest remaining run time times GPUs goes
    first, and jobs that do not fit are skipped. A job keeps its GPUs for the lease or until it ends. With between=on,
    GPUs that become free during a lease go to waiting jobs, in the same order, for the rest of the lease. Otherwise,
    they stay idle. A promise that can no longer be kept is withdrawn. Declined jobs and jobs without a deadline are
    best-effort jobs. With declined=drop, declined jobs never run, and their number is reported. Run times are known.
    Gangs may be spread over nodes.

    Equal to
    --------
    - With slo=0, between=off and overhead=none, the policy equals srsf,fit=count if jobs arrive and end when leases
      begin.
    - With slo=0 and an infinite lease, the policy equals ssf,scan=skip,fit=count.
    - With admission=none, the policy equals slo=0, but counts the deadlines of all jobs.

    Sources
    -------
    - Gao et al., Chronus (SoCC'21), as in its released code: leases; whole leases before a deadline, reserved late and
      with the least slack first; GPUs between leases; the order by class, by remaining time times GPUs, and by age; the
      margin; the overhead per lease; and the preset chronus.
    - Our choices: 240 s, which ElasticFlow's authors used (the code's own default, 60 units, is an hour if a unit is a
      minute); every job has a deadline; a job that cannot meet its deadline is a best-effort job, while the code puts
      it last (declined=last); admitted jobs also run ahead of schedule; jobs are admitted one by one, the program
      accepts any feasible solution, and no local search places jobs.
    """

    plans = _Leasing
    card = Card(
        name="chronus",
        parameters=(
            Parameter("lease", 240.0, "length of a lease [s]", minimum=1, maximum=1e9),
            SLO,
            Parameter(
                "admission",
                "greedy",
                "how to reserve leases; with none, no job is admitted, and deadlines are counted but not promised",
                ("greedy", "program", "none"),
            ),
            declined("last"),
            Parameter("between", True, "allocate free GPUs also between the starts of leases"),
            Parameter(
                "margin",
                1.1,
                "assumed run time of a job, as a multiple of its actual run time [1]",
                minimum=1,
                maximum=1000,
            ),
            Parameter(
                "repack",
                64,
                "number of admitted jobs from which existing leases are fixed; 0 to fix them always [jobs]",
            ),
            Parameter(
                "limit",
                100,
                "maximum number of search nodes of the program; if it is not solved by then, the job is declined",
            ),
            Parameter("cells", 20_000, "maximum number of pairs of a job and a lease for which the program is tried"),
            overhead("chronus"),
        ),
        assumptions=("D1", "D7", "M9", "M4"),
    )
