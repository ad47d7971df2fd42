"""Promises to meet deadlines, and ElasticFlow, which meets them with the fewest GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.resizing import RESIZE, Sizes, Wish
from tracekit.policies.parameters import FIT, overhead
from tracekit.policies.plans import Planned
from tracekit.replay.assumptions.of_jobs import deadlines_ms
from tracekit.replay.assumptions.speeds import PPM, elastic_ppm
from tracekit.text import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.array_types import Bools, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Plan, View
    from tracekit.replay.outcome import Outcome


SLO = Parameter("slo", 1.0, "share of jobs that have a deadline (D7); the others are best-effort jobs [1]", maximum=1)

UNSEEN, FREE, PROMISED, DECLINED, BROKEN = range(5)
"""State of a job: not yet considered, without a deadline, admitted, declined, or late for its promised deadline."""


def declined(*choices: str) -> Parameter:
    """Return the parameter `declined`, with a policy's choices in addition to 'best-effort' and 'drop'."""
    said = "a job whose deadline is not promised, or can no longer be met, runs as best effort"
    if "last" in choices:
        said += ", or after all others"
    return Parameter("declined", "best-effort", f"{said}, or never", ("best-effort", *choices, "drop"))


class Promises:
    """The jobs' deadlines, and the decision about each job in one run."""

    def __init__(self, jobs: Jobs, models: Models, seed: int, share: float, *, drop: bool) -> None:
        self.deadline_ms: Ints = deadlines_ms(models, jobs.submit_ms, jobs.work_ms, seed, share)
        """Deadlines, or -1 for jobs without one [ms] (n,)."""
        self._drop = drop

    def begin(self) -> None:
        """Begin a run, in which no job with a deadline has been considered yet."""
        self.state: NDArray[np.int8] = np.where(self.deadline_ms < 0, FREE, UNSEEN).astype(np.int8)
        """State of each job (n,)."""

    def waits_for_nothing(self, job: Ints) -> Bools:
        """Return which jobs never run because they were declined (k,)."""
        if not self._drop:
            return np.zeros(len(job), np.bool_)
        return np.asarray(self.state[job] >= DECLINED)

    def tell(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the deadlines, and the numbers of promised, kept and declined deadlines."""
        promised, late = self.state == PROMISED, outcome.end_ms > self.deadline_ms
        broken = self.state == BROKEN
        kept = promised & (outcome.end_ms >= 0) & ~late
        due = self.deadline_ms >= 0
        value = (
            f"{counted(int(due.sum()), 'jobs')} with a deadline: {int((promised | broken).sum()):,} promised "
            f"({int(kept.sum()):,} in time), {int((self.state == DECLINED).sum()):,} declined"
        )
        gone = (self.state >= DECLINED) & (outcome.first_start_ms < 0)
        if self._drop:
            value += f"; {int(gone.sum()):,} never ran"
        fact = {"title": "deadlines promised", "value": value, "source": "the engine"}
        return replace(outcome, deadline_ms=self.deadline_ms, facts={**outcome.facts, "promises": fact})


_LATEST = np.iinfo(np.int64).max


class Levels:
    """GPU counts that jobs may have (levels) and their speeds, with one row of levels per request size."""

    def __init__(self, models: Models, requested: Ints, low: Ints, high: Ints):
        size, place, self._of = np.unique(requested, return_index=True, return_inverse=True)
        gpus: list[int] = []
        count = []
        for g, least, most in zip(size.tolist(), low[place].tolist(), high[place].tolist(), strict=True):
            powers = [2**k for k in range(most.bit_length()) if least <= 2**k <= most]
            speed = elastic_ppm(models, g, powers or [g]).tolist()
            # Exclude GPU counts that do not make the job faster.
            kept = [n for i, n in enumerate(powers or [g]) if i == 0 or speed[i] > max(speed[:i])]
            gpus += kept
            count.append(len(kept))
        counts = np.array(count, np.int64)
        self.gpus: Ints = np.array(gpus, np.int64)
        """GPU count of each level, ascending inside a row (L,)."""
        row = np.repeat(np.arange(len(size)), counts)
        self.rate: Ints = np.maximum(elastic_ppm(models, size[row], self.gpus), 1)
        """Speed at each level [ppm] (L,)."""
        self.first: Ints = (np.cumsum(counts) - counts)[self._of].astype(np.int64)
        """First level of each job (n,)."""
        self.count: Ints = counts[self._of]
        """Number of levels of each job (n,)."""
        self.least: Ints = self.gpus[self.first] if len(requested) else np.zeros(0, np.int64)
        """Fewest GPUs of each job (n,)."""
        last = self.first + self.count - 1
        self.fastest: Ints = self.rate[last] if len(requested) else np.zeros(0, np.int64)
        """Speed of each job at its highest level [ppm] (n,)."""


class _Shares(NamedTuple):
    """Current GPUs of admitted jobs, indexed as in the wish, or -1 if no level meets the deadline."""

    line: Ints
    share: Ints
    pool: Ints


class _Flow(Sizes):
    """Plans based on promises and the resulting shares."""

    def set_up(self) -> None:
        """Compute the levels and deadlines of the jobs."""
        super().set_up()
        p = self.p
        self.admission, self.margin = p["admission"], p["margin"]
        self.slot_ms = max(round(p["slot"] * 1000), 1)
        self.levels = Levels(self.models, self.gpus, self.low, self.most)
        self.promises = Promises(self.jobs, self.models, self.seed, p["slo"], drop=p["declined"] == "drop")
        self.settings.update(round_ms=round(p["slot"] * 1000), tell=self.promises.tell)
        due = self.promises.deadline_ms
        self.due_ms: Ints = np.where(due < 0, _LATEST, due)

    def begin(self, view: View) -> None:
        self.promises.begin()

    def plan(self, view: View) -> Plan:
        """Return the plan: the GPUs of every job until the next event."""
        wish, now = self.wish(view), view.now_ms
        job, state = wish.job, self.promises.state
        left = view.remaining_ms
        work = (np.ceil(left * self.margin).astype(np.int64) + view.overhead_ms) * PPM
        line = np.flatnonzero(state[job] == PROMISED)
        line = line[np.argsort(self.due_ms[job[line]], kind="stable")]
        found = self._fill(wish, line, work, now)
        for place in np.flatnonzero(state[job] == UNSEEN).tolist():
            found = self._admit(wish, place, found, work, now)
        kept = found.line[found.share[found.line] >= 0]
        wish.gpus[kept], wish.pool[kept] = found.share[kept], found.pool[kept]
        wish.free -= np.bincount(wish.pool[kept], wish.gpus[kept], len(wish.free)).astype(np.int64)
        self._rest(wish, kept, found.line[found.share[found.line] < 0])
        self._grow(wish, left)
        return self.resized(wish)

    def _fill(self, wish: Wish, line: Ints, work: Ints, now_ms: int) -> _Shares:
        """Return the minimum shares of jobs, considered in the order of `line`."""
        from tracekit.replay.kernel import least_shares

        job = wish.job
        share, pool = np.zeros(len(job), np.int64), wish.before.copy()
        if not len(line):
            return _Shares(line, share, pool)
        begins, steps = (np.empty((len(wish.free), len(line) + 2), np.int64) for _ in range(2))
        first, count, kind = self.levels.first[job], self.levels.count[job], self.pools.kind[job]
        least_shares(
            *(line, work, self.due_ms[job] - now_ms, first, count, self.levels.gpus, self.levels.rate),
            *(kind.astype(np.int64), self._accepts, wish.before, wish.free, self.slot_ms, begins, steps, share, pool),
        )
        return _Shares(line, share, pool)

    def _admit(self, wish: Wish, place: int, before: _Shares, work: Ints, now_ms: int) -> _Shares:
        """Promise or decline a job's deadline. Return the shares, which include the job if it is admitted."""
        j = int(wish.job[place])
        room = int(self.due_ms[j]) - now_ms
        if self.admission and (room <= 0 or -(-int(work[place]) // int(self.levels.fastest[j])) > room):
            self.promises.state[j] = DECLINED
            return before
        at = int(np.searchsorted(self.due_ms[wish.job[before.line]], self.due_ms[j], side="right"))
        found = self._fill(wish, np.insert(before.line, at, place), work, now_ms)
        met = before.line[before.share[before.line] >= 0]
        if self.admission and (found.share[place] < 0 or (found.share[met] < 0).any()):
            self.promises.state[j] = DECLINED
            return before
        self.promises.state[j] = PROMISED
        return found

    def _rest(self, wish: Wish, kept: Ints, late: Ints) -> None:
        """Give best-effort jobs their minimum: late admitted jobs first, then running jobs, then by submission."""
        rest = ~self.promises.waits_for_nothing(wish.job)
        rest[kept] = rest[late] = False
        best = np.flatnonzero(rest)
        best = best[np.argsort(wish.held[best] == 0, kind="stable")]
        order = np.concatenate([late, best])
        if len(order) and (wish.free > 0).any():
            self.give(wish, order, self.levels.least[wish.job])

    def _grow(self, wish: Wish, left: Ints) -> None:
        """Give spare GPUs first to the jobs whose GPU time grows least."""
        from tracekit.replay.kernel import grow_by_levels

        if not (wish.free > 0).any():
            return
        job = wish.job
        has = np.flatnonzero(wish.gpus > 0)
        # By M8, each additional GPU costs a job sigma times its work on one GPU, regardless of its number of GPUs.
        cost = self.models.elastic.sigma * left * self.relative[self.gpus[job]]
        line = has[np.lexsort((self.due_ms[job[has]], cost[has]))]
        first, count = self.levels.first[job], self.levels.count[job]
        grow_by_levels(line, wish.pool, first, count, self.levels.gpus, wish.free, wish.gpus)


class ElasticFlow(Planned):
    """The fewest GPUs that meet the deadlines, and the rest where they cost least (ElasticFlow).

    A job's GPU count is a power of two between its minimum and its maximum (D3). A job's minimum share is the lowest of
    these levels that meets its deadline (D7), if it has that many GPUs from now on, or fewer while jobs with earlier
    deadlines leave fewer. A new job is admitted if it has such a share and every admitted job keeps its own; otherwise
    it is declined. When a job arrives or ends, but at most once per slot, the admitted jobs get their minimum shares,
    the earliest deadline first. The remaining GPUs go to best-effort jobs, each of which gets its minimum: late
    admitted jobs first, then running jobs, then by submission. Jobs that do not fit are skipped. GPUs that are still
    left go to jobs that have GPUs, up to their maximum. Each step goes to the job whose total GPU time grows least per
    added GPU (the earliest deadline among equals). A change costs `resize` seconds. Declined jobs and jobs without a
    deadline are best-effort jobs. With declined=drop, declined jobs never run, and their number is reported. Run times
    are known. Gangs may be spread over nodes.

    Equal to
    --------
    - If no job is elastic (rigid), with slot=0, slo=0 and fit=count, the policy equals fifo,scan=skip,fit=count.
    - If no job is elastic (rigid), admitted jobs run by earliest deadline first, and may stop all others.
    - If all jobs' maxima fit, every job gets its maximum.

    Sources
    -------
    - Gu et al., ElasticFlow (ASPLOS'23), as in its released code: deadlines instead of GPU counts, admission in the
      order of deadlines, minimum shares at levels that are powers of two, remaining GPUs by marginal GPU time, slots of
      60 s, D7's x, and the costs in the preset elasticflow.
    - The released code sorts by the growth of GPU time per GPU, the largest first, which gives GPUs to the jobs that
      use them worst. Here, the smallest growth goes first, which is what the paper means by marginal return.
    - Our choices: a share counts from now on, while the released code reserves backwards from the deadline; jobs that
      arrive together are admitted one by one; the cost of an added GPU comes from M8 instead of a new reservation; the
      margin, which covers the cost of changes and spread gangs, because we do not move jobs to form buddy blocks of
      GPUs; best-effort jobs are served in submission order.
    """

    plans = _Flow
    card = Card(
        name="elasticflow",
        parameters=(
            Parameter("slot", 60.0, "minimum time between plans, or 0 to plan at every event [s]", maximum=1e9),
            SLO,
            Parameter(
                "admission",
                True,
                "whether to decline jobs that cannot meet their deadlines; if off, every job with a deadline is "
                "admitted",
            ),
            declined(),
            Parameter(
                "margin",
                1.1,
                "assumed remaining run time of a job, as a multiple of the actual time [1]",
                minimum=1,
                maximum=1000,
            ),
            RESIZE,
            overhead("elasticflow"),
            FIT,
        ),
        assumptions=("D1", "D7", "M8", "D3", "M9", "M4"),
    )
