"""Gavel: optimal shares of time on GPU types for an objective, and rounds that approximate them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.gavel_shares import OBJECTIVES, PACKABLE, Active, find_shares, isolated_speed
from tracekit.policies.literature.turns import Turns
from tracekit.policies.parameters import OVERHEAD
from tracekit.policies.plans import Planned
from tracekit.replay.assumptions.costs import gpu_prices
from tracekit.replay.assumptions.of_jobs import deadlines_ms, memory_ppm, utilization_ppm
from tracekit.replay.assumptions.speeds import interference_ppm

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.mechanisms import Plan, View


_LEVELS = 5
"""Number of GPU utilization levels that distinguish pairs of jobs."""


@dataclass
class _Book:
    """Shares and times in one run so far. The columns are the types, then the types again for packed jobs."""

    entitled_ms: Floats
    """Sum of each job's shares over time on each type [ms] (n, 2 J)."""
    had: Floats
    """Run time of each job on each type [ms] (n, 2 J)."""
    share: Floats
    """Current shares of each job (n, 2 J)."""
    met: Bools
    """Whether each job's shares have been computed (n,)."""
    partner: Ints
    """Partner that shares the job's GPUs since the last plan with this job, or -1 for none (n,)."""
    left_ms: Floats
    """Remaining run time of each job when shares were last computed (n,) [ms]."""
    isolated: Floats
    """Speed of each job on an equal part of the cluster at that time, or 0 if never computed (n,)."""
    isolated_ms: Floats
    """Time that each job's work up to then would have taken on equal parts of the cluster (n,) [ms]."""
    kind: Ints
    """Kind of each job for pairing when shares were last computed (n,)."""
    pairs: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """Pairs that get packed time, as rows (kind, other kind, pool) (R, 3)."""
    now_ms: int = 0
    found_ms: int = -1
    """Time at which shares were last computed, or -1 for never."""
    active: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """The jobs present at that time."""
    gpus: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """GPUs of the pools at that time."""


class _Rounds(Turns):
    """Plans that are made in rounds."""

    any_model = True

    def set_up(self) -> None:
        """Compute the prices and speeds of the types, and the deadlines.

        Raises
        ------
        UsageError
            Jobs cannot be packed with this objective.
        """
        super().set_up()
        p, jobs, cluster, models = self.p, self.jobs, self.cluster, self.models
        self.packed: bool = p["packed"]
        if self.packed and p["objective"] not in PACKABLE:
            raise UsageError(
                f"gavel: packed=on cannot be combined with objective={p['objective']}",
                hint=f"packed=on supports {', '.join(PACKABLE)}",
            )
        self.round_ms, self.again_ms = max(round(p["round"] * 1000), 1), round(p["again"] * 1000)
        prices = gpu_prices(models, cluster.models)
        self.price = prices / prices.max()
        """GPU price of each model in the cluster, relative to the highest price."""
        self.settings.update(round_ms=self.round_ms, share=2 if self.packed else 1)
        self.due_ms = deadlines_ms(models, jobs.submit_ms, jobs.work_ms, self.seed)
        """Deadlines [ms] (n,)."""
        self.submit_ms = jobs.submit_ms
        self.tenant = jobs.tenant.astype(np.int64)

        # The book's columns are the types within a domain.
        low = np.searchsorted(self.pools.domain, self.pools.domain)
        self.column = np.arange(len(low)) - low
        self.types = int(self.column.max(initial=0)) + 1
        self.utilization = utilization_ppm(models, jobs)
        self.load = np.minimum(self.utilization * _LEVELS // 1_000_000, _LEVELS - 1)
        self.small = memory_ppm(models, jobs) * 2 <= 1_000_000

    def begin(self, view: View) -> None:
        n, width = len(self.gpus), self.types * (2 if self.packed else 1)
        self.book = _Book(
            entitled_ms=np.zeros((n, width)),
            had=np.zeros((n, width)),
            share=np.zeros((n, width)),
            met=np.zeros(n, np.bool_),
            partner=np.full(n, -1),
            left_ms=np.zeros(n),
            isolated=np.zeros(n),
            isolated_ms=np.zeros(n),
            kind=np.full(n, -1),
        )

    def plan(self, view: View) -> Plan:
        """Return the plan: the jobs that run in the next round, and their pools."""
        job, running = view.job, self.pools.held(view)
        book = self.book
        place_of = np.full(len(self.gpus), -1)
        place_of[job] = np.arange(len(job))
        known = book.partner[job]
        # Jobs that have ended, were stopped or did not fit have no partner.
        place = np.where(known >= 0, place_of[known], -1)
        together = np.where((place >= 0) & (running >= 0) & (running[place] >= 0), place, -1)
        self._settle(view.now_ms, job, running, together)
        capacity = self.pools.gpus(view)
        changed = not np.array_equal(job, book.active) or not np.array_equal(capacity, book.gpus)
        if changed and (book.found_ms < 0 or view.now_ms - book.found_ms >= self.again_ms):
            self._find(job, capacity, view.remaining_ms)
        chosen, partner = self._chosen(job, running, together, capacity)
        whom = np.where(partner >= 0, job[partner], -1)
        named = np.flatnonzero((chosen != running) | (partner != together) | (whom != known))
        book.partner[job[named]] = whom[named]
        gpus = np.where(chosen >= 0, self.gpus[job], 0)
        follows = (partner >= 0) & _second(partner, running, chosen)
        named = named[np.lexsort((-gpus[named], follows[named]))]
        pool = np.maximum(chosen[named], 0)
        rate = self.speed[self.pools.kind[job[named]], pool]
        beside = None
        if self.packed:
            mine, other = self.utilization[job[named]], self.utilization[job[partner[named]]]
            slower = np.where(partner[named] >= 0, interference_ppm(self.models, mine, other), 1_000_000)
            rate = rate * slower // 1_000_000
            # If two jobs separate and both continue alone, the later one moves.
            parts = (together >= 0) & (chosen >= 0) & (chosen[together] >= 0) & ~follows & ~follows[together]
            moves = parts & (partner != together) & (together < np.arange(len(job)))
            at = np.where(moves, job, -1)
            beside = np.where(follows, whom, at)[named]
        # While jobs wait, entitlements and run times keep changing, so plan again for the next round.
        wake = view.now_ms + self.round_ms if (chosen < 0).any() else -1
        return self.pools.plan(job[named], gpus[named], chosen[named], rate, wake, beside=beside)

    def _settle(self, now_ms: int, job: Ints, running: Ints, together: Ints) -> None:
        """Record entitlements and run times since the last round."""
        book = self.book
        elapsed = now_ms - book.now_ms
        book.now_ms = now_ms
        book.entitled_ms[job] += book.share[job] * elapsed
        runs = np.flatnonzero(running >= 0)
        column = self.column[running[runs]] + self.types * (together[runs] >= 0)
        book.had[job[runs], column] += elapsed

    def _find(self, job: Ints, capacity: Ints, left_ms: Ints) -> None:
        """Compute the shares of the current jobs."""
        book, p, packed = self.book, self.p, self.packed
        book.found_ms, book.active, book.gpus = book.now_ms, job.copy(), capacity
        met = book.isolated[job] > 0
        done = np.where(met, book.left_ms[job] - left_ms, 0.0)
        book.isolated_ms[job] += done / np.where(met, book.isolated[job], 1.0)
        book.left_ms[job] = left_ms
        kind = self.pools.kind[job]
        domains = self.pools.kind_domain[kind]
        shares = np.zeros((len(job), book.share.shape[1]))
        rows, kinds = [book.pairs[:0]], 0
        for d in np.unique(domains[domains >= 0]).tolist():
            own = np.flatnonzero(domains == d)
            low, high = np.searchsorted(self.pools.domain, [d, d + 1])
            speed = self.speed[kind[own], low:high] / 1e6
            speed[self.gpus[job[own], None] > capacity[low:high]] = 0.0
            load = np.where(self.small[job[own]], self.load[job[own]], -1) if packed else np.zeros(len(own), np.int64)
            active = Active(
                gpus=self.gpus[job[own]],
                speed=speed if p["aware"] else (speed > 0).astype(np.float64),
                capacity=capacity[low:high].astype(np.float64),
                price=self.price[self.pools.model[low:high]],
                left_ms=left_ms[own].astype(np.float64),
                age_ms=(book.now_ms - self.submit_ms[job[own]]).astype(np.float64),
                isolated_ms=book.isolated_ms[job[own]],
                due_ms=(self.due_ms[job[own]] - book.now_ms).astype(np.float64),
                tenant=self.tenant[job[own]],
                load=load,
                beside=self._beside if packed else None,
            )
            found = find_shares(p["objective"], active, once=p["leftover"] == "rounds", inside=p["inside"])
            book.isolated[job[own]] = isolated_speed(active)
            shares[own, : high - low] = found.alone
            if packed:
                shares[own, self.types : self.types + high - low] = found.packed
                book.kind[job[own]] = np.where(found.kind >= 0, found.kind + kinds, -1)
                rows.append(found.pairs + np.array([kinds, kinds, low]))
                kinds += int(found.kind.max(initial=-1)) + 1
        book.pairs = np.concatenate(rows)
        book.share[job] = shares
        # A new job starts with half a round's share as both its entitlement and its run time.
        fresh = job[~book.met[job]]
        half = self.round_ms / 2
        book.met[fresh] = True
        book.entitled_ms[fresh] += half * np.maximum(book.share[fresh], 1e-9)
        book.had[fresh] += half * np.maximum(book.share[fresh], 1e-9)

    def _beside(self, one: int, other: int) -> tuple[float, float]:
        """Return the speeds of jobs of two utilization levels that share GPUs, or (0, 0) if memory is too small."""
        if one < 0 or other < 0:
            return 0.0, 0.0
        a, b = (round((level + 0.5) / _LEVELS * 1_000_000) for level in (one, other))
        return int(interference_ppm(self.models, a, b)) / 1e6, int(interference_ppm(self.models, b, a)) / 1e6

    def _chosen(self, job: Ints, running: Ints, together: Ints, capacity: Ints) -> tuple[Ints, Ints]:
        """Return each job's pool in the next round, or -1 if the job waits, and the index of its partner."""
        from tracekit.replay.kernel import choose_types

        book = self.book
        share = book.share[job]
        priority = np.where(share > 0, book.entitled_ms[job] / np.maximum(book.had[job], 1e-6), 0.0)
        place, pool = map(np.ascontiguousarray, np.nonzero(self.speed[self.pools.kind[job]] > 0))
        column = self.column[pool]
        other = np.full(len(place), -1)
        stays = (running[place] == pool) & (together[place] < 0)
        rank, part = priority[place, column], share[place, column]
        if len(book.pairs):
            pairs = self._pairs(job, running, together, priority)
            column = self.column[pairs[:, 2]] + self.types
            place, other = np.concatenate([place, pairs[:, 0]]), np.concatenate([other, pairs[:, 1]])
            pool = np.concatenate([pool, pairs[:, 2]])
            stays = np.concatenate([stays, together[pairs[:, 0]] == pairs[:, 1]])
            rank = np.append(rank, np.minimum(priority[pairs[:, 0], column], priority[pairs[:, 1], column]))
            part = np.append(part, np.minimum(share[pairs[:, 0], column], share[pairs[:, 1], column]))
        order = np.lexsort((other, pool, place, -part, ~stays, -rank))
        chosen, partner = np.full(len(job), -1), np.full(len(job), -1)
        # Jobs keep the GPUs of nodes that left.
        kept = (running >= 0) & (together < np.arange(len(job)))
        used = np.bincount(running[kept], self.gpus[job[kept]], len(capacity)).astype(np.int64)
        choose_types(order, self.gpus[job], place, other, pool, np.maximum(capacity, used), chosen, partner)
        return chosen, partner

    def _pairs(self, job: Ints, running: Ints, together: Ints, priority: Floats) -> Ints:
        """Return the pairs that may run, as rows (index, other index, pool), running pairs first, then by priority."""
        kind, rows = self.book.kind[job], []
        for a, b, pool in self.book.pairs.tolist():
            column = int(self.column[pool]) + self.types
            ours = np.flatnonzero(kind == a)
            runs = ours[(running[ours] == pool) & (together[ours] >= 0)]
            runs = runs[kind[together[runs]] == b]
            runs = runs[runs < together[runs]] if a == b else runs
            rows.append(np.column_stack([runs, together[runs], np.full(len(runs), pool)]))
            taken = np.concatenate([runs, together[runs]])
            lines = []
            for k in (a, b):
                line = np.setdiff1d(np.flatnonzero(kind == k), taken)
                lines.append(line[np.argsort(-priority[line, column], kind="stable")])
            one, two = (lines[0][::2], lines[0][1::2]) if a == b else lines
            size = min(len(one), len(two))
            rows.append(np.column_stack([one[:size], two[:size], np.full(size, pool)]))
        return np.concatenate(rows)


def _second(partner: Ints, running: Ints, chosen: Ints) -> Bools:
    """Return the partner that joins the other: the job that does not run there yet, or else the later job."""
    place = np.arange(len(partner))
    here, there = running == chosen, running[partner] == chosen
    return np.where(here == there, partner < place, there)


class Gavel(Planned):
    """In rounds, jobs get the shares of time on GPU types that are optimal for an objective.

    When jobs arrive or end, but at most once every `again` seconds, the policy recomputes each job's shares of time on
    the GPU types. objective=max_min maximizes the least normalized speed, then the next least, and so on. The
    normalized speed is GPUs times speed, relative to shares in proportion to the GPUs of each type. With makespan, the
    last present job ends as early as possible. With finish_time_fairness, the worst ratio of a job's end to its end on
    an equal part of the cluster is as small as possible. With throughput, GPUs times speed, summed over all jobs, is as
    large as possible. With cost, the same sum is divided by the price of a GPU of the type. With slo, the objective is
    that of cost, but jobs that can still meet their deadlines get the speed that they need, unless they cannot all meet
    them. With hierarchical, the objective is max_min over the VCs, where a VC counts as the sum of its jobs. Inside a
    VC, it is max_min over the jobs, or submission order. With packed=on, two jobs with the same number of GPUs may
    share GPUs for part of the time. In each round, a job runs on the type where it lags most: the ratio of the time
    that its share gives it to the time that it ran there. Both times start with half a round's share. Among equals,
    running jobs go first. A job that does not fit is skipped, a job runs on one type in a round, and jobs without
    computed shares get the remaining GPUs. Gangs may be spread over nodes of a type.

    Equal to
    --------
    - With one type, if all jobs fit, every job runs from the next round on, and no job is stopped.
    - With one type and jobs of one size, all submitted at once, all jobs get equal time, to within a round.
    - If all jobs have one size and there is one type, leftover=rounds equals leftover=shares.
    - If all jobs fit, objective=makespan, finish_time_fairness, throughput and hierarchical equal max_min.
    - With one VC, objective=hierarchical equals max_min.
    - With one price, objective=cost equals throughput.
    - If no two jobs fit in a GPU's memory, packed=on equals packed=off, except for ties in the program.
    - If all speeds are equal, aware=off equals aware=on.

    Sources
    -------
    - Narayanan et al., Gavel (OSDI'20): objectives, rounds and round lengths as in the released code.
    - Our choices: GPUs left over by the max-min program are shared by the same rule again. leftover=rounds is the
      released behaviour: there is one program, and in each round the leftover GPUs go to jobs by priority, with jobs
      without a share last. Here, makespan and finish_time_fairness also work like this. Run time counts from a job's
      arrival instead of from the last program. A job also runs on types that it did not request if its speed there is
      known. Types on which all jobs are equally fast count as one.
    - Our choices for the other objectives: if all jobs fit where they are fastest, they run there, except under cost
      and slo. Run times and required speeds within a quarter of each other count as equal, at the larger value.
      makespan is one linear program, while the released code bisects to 5 %. The search for finish_time_fairness ends
      at 5 %. throughput weighs a job by its GPUs, because speeds are relative to the recorded speed. A deadline that
      can no longer be met is dropped, and so are all deadlines if they cannot be met together. VCs have equal weight,
      and their GPUs are divided in two steps, while the released code changes the weights of jobs. Remaining run times
      are known. Pairs are formed among five levels of GPU utilization. Jobs that lag most are paired first, and after
      its partner's end, a job speeds up only at the next round.
    """

    plans = _Rounds
    card = Card(
        name="gavel",
        parameters=(
            Parameter("objective", "max_min", "objective of the shares", OBJECTIVES),
            Parameter("round", 360.0, "length of a round [s]", minimum=0.001),
            Parameter("again", 1920.0, "minimum time between two computations of the shares [s]"),
            Parameter(
                "leftover",
                "shares",
                "for max_min: whether GPUs that cannot raise the least normalized speed are shared by the same rule "
                "again (shares), or go to the first job in line in each round (rounds)",
                ("shares", "rounds"),
            ),
            Parameter(
                "inside", "fair", "for hierarchical: how a VC's part is divided among its jobs", ("fair", "fifo")
            ),
            Parameter("packed", False, f"whether two jobs may share GPUs ({', '.join(PACKABLE)})"),
            Parameter(
                "aware",
                True,
                "whether shares depend on the speeds on the types; if off, all types count as equally fast",
            ),
            OVERHEAD,
        ),
        assumptions=("D1", "D6", "D7", "M1", "M2", "M4", "M9", "M25"),
    )
