"""After ONES: an evolutionary search chooses GPUs and batches while jobs run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.pollux import PROFILE, Bounds, application_of, goodputs, noise_in
from tracekit.policies.literature.resizing import Sizes
from tracekit.policies.parameters import FIT, overhead
from tracekit.policies.plans import Planned
from tracekit.policies.pools import settle_pools
from tracekit.replay.assumptions.speeds import PPM, elastic_ppm, ppm

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints
    from tracekit.policies.literature.resizing import Wish
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.assumptions.sections import Application, Applications
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Plan, View


class BatchTable:
    """Goodputs (M43) of n jobs with batches of 1, 2, 4, ... times the recorded batch.

    Jobs with the same application, request and stage of training share one *row*.

    Parameters
    ----------
    models : Models
    jobs : Jobs
    low, high : array (n,)
        Minimum and maximum GPUs of each job.
    profile : str
        As in `pollux.goodput_table`, or 'none' for the speeds of M8 with one batch and one stage.
    """

    def __init__(self, models: Models, jobs: Jobs, low: Ints, high: Ints, profile: str) -> None:
        given, asks = models.applications, jobs.devices.astype(np.int64)
        adapts = profile != "none"
        classes = list(given.classes.values())
        application_code = application_of(models, jobs, profile) if adapts else np.zeros(len(jobs), np.int64)
        kinds = np.stack([application_code, asks, low, high], axis=1).reshape(-1, 4)
        kinds, inverse = np.unique(kinds, axis=0, return_inverse=True)
        self._work_ms, self._kind = jobs.work_ms, inverse.ravel().astype(np.int64)
        self._stages = given.stages if adapts else 1
        speeds: list[Floats] = [np.zeros(1)]
        best: list[Ints] = [np.zeros(1, np.int64)]
        columns: list[tuple[int, int, int, int, int]] = []
        size, of_best = 1, 1
        for which, requested, least, most in kinds.tolist():
            gpus = np.arange(1, most + 1)
            for stage in range(self._stages):
                if adapts:
                    own = _in_stage(given, classes[which], gpus, requested, stage)
                else:
                    own = (elastic_ppm(models, requested, gpus) / PPM)[None, :]
                found = np.concatenate([np.zeros((len(own), 1)), own], axis=1)
                columns.append((size, of_best, most + 1, len(own), least + int(found.max(axis=0)[least:].argmax())))
                speeds.append(found.ravel())
                best.append(found.argmax(axis=0))
                size += found.size
                of_best += most + 1
        self._speed, self._best = np.concatenate(speeds), np.concatenate(best)
        table = np.array(columns, np.int64).reshape(-1, 5).T
        self._first, self._first_best, self._width, self.batches, self.fastest = table
        """For each row: the start of its goodputs and best batches, the step from one batch to the next, the number of
        batches, and the fastest GPU count."""

    def rows(self, job: Ints, left_ms: Ints) -> Ints:
        """Return the jobs' rows, by their remaining work (k,)."""
        done = 1 - left_ms / np.maximum(self._work_ms[job], 1)
        stage = np.clip((done * self._stages).astype(np.int64), 0, self._stages - 1)
        return self._kind[job] * self._stages + stage

    def speed(self, row: Ints, gpus: Ints, batch: Ints) -> Floats:
        """Return the goodputs by GPUs and batches (exponents of two), or 0 without GPUs (..., k)."""
        return self._speed[self._first[row] + batch * self._width[row] + gpus]

    def best_batch(self, row: Ints, gpus: Ints) -> Ints:
        """Return the fastest batch of each job on this many GPUs (..., k)."""
        return np.asarray(self._best[self._first_best[row] + gpus])


def _in_stage(given: Applications, application: Application, gpus: Ints, requested: int, stage: int) -> Floats:
    """Return the goodputs of a stage by batch and GPUs (B, n)."""
    batches = np.exp2(np.arange(int(np.log2(application.most)) + 1, dtype=np.float64))
    noise = noise_in(application, stage, given.stages)
    return goodputs(application, gpus, requested, noise, given.local, batches).T


_STREAM = 21
"""Seed of the random numbers."""


@dataclass(frozen=True)
class Moment:
    """The k jobs that a search considers at one time."""

    row: Ints
    """Row of each job in the table."""
    left: Floats
    """Remaining work of each job, at least 1 [ms]."""
    held: Ints
    resize_ms: Floats
    """Cost of changing each job's number of GPUs [ms]."""
    bounds: Bounds

    def worths(self, table: BatchTable, gpus: Ints, batch: Ints) -> Floats:
        """Return the inverse of each job's remaining time, or 0 for jobs without GPUs (m, k) [1/ms]."""
        speed = table.speed(self.row, gpus, batch)
        cost = np.where(gpus != self.held, self.resize_ms, 0.0)
        return np.asarray(speed / (self.left + speed * cost))


def evolved(
    table: BatchTable, moment: Moment, gpus: Ints, batch: Ints, *, generations: int, random: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return the population after these generations, the best schedule first (m, k).

    Each generation has as many children as schedules (`Bounds.children`). A job's batch comes from the same parent as
    its GPUs, and the two are redrawn together. The best schedules survive.

    Parameters
    ----------
    table : BatchTable
    moment : Moment
    gpus, batch : array (m, k)
        The population. Batches are exponents of two.
    generations : int
    random : Generator
        Source of all random draws.
    """
    count, k = gpus.shape
    score = moment.worths(table, gpus, batch).sum(axis=1)
    for _ in range(generations):
        children, source, anew = moment.bounds.children(gpus, score, count, random)
        drawn = random.integers(0, table.batches[moment.row], (count, k))
        batches = np.where(anew, drawn, batch[source, np.arange(k)])
        gpus, batch = np.concatenate([gpus, children]), np.concatenate([batch, batches])
        score = np.concatenate([score, moment.worths(table, children, batches).sum(axis=1)])
        best = np.argsort(-score, kind="stable")[:count]
        gpus, batch, score = gpus[best], batch[best], score[best]
    first = np.argsort(-score, kind="stable")
    return gpus[first], batch[first]


class _Search(Sizes):
    """Plans based on a population of schedules."""

    def set_up(self) -> None:
        """Compute the goodputs of the jobs."""
        super().set_up()
        self.table = BatchTable(self.models, self.jobs, self.low, self.most, self.p["profile"])
        self.resize_ms = round(self.p["resize"] * 1000)
        self.interval_ms = max(round(self.p["interval"] * 1000), 1)

    def begin(self, view: View) -> None:
        n, population = len(self.jobs), self.p["population"]
        self.evolved_ms = -1
        self.schedules = np.zeros((population, n), np.int32)
        self.batches = np.zeros((population, n), np.int8)
        self.batch, self.rate = np.zeros(n, np.int64), np.zeros(n, np.int64)

    def plan(self, view: View) -> Plan:
        """Return the plan: the GPUs and speed of each job."""
        wish = self.wish(view)
        job, left = wish.job, view.remaining_ms
        row = self.table.rows(job, left)
        capacity = wish.free.copy()
        due = self.evolved_ms < 0 or view.now_ms >= self.evolved_ms + self.interval_ms
        if due:
            self.evolved_ms = view.now_ms
            self._evolve(view, wish, row, left, capacity)
        else:
            wish.gpus[:] = wish.held
        wish.free[:] = capacity - self.pools.used(np.where(wish.gpus > 0, wish.pool, -1), wish.gpus)
        waits = np.flatnonzero(wish.gpus == 0)
        if len(waits) and wish.free.max(initial=0) > 0:
            self.give(wish, waits[np.argsort(left[waits], kind="stable")], self.low[job])
            late = waits[wish.gpus[waits] > 0]
            self.batch[job[late]] = self.table.best_batch(row[late], wish.gpus[late])
        rate = np.maximum(ppm(self.table.speed(row, wish.gpus, self.batch[job])), 1)
        also = rate != self.rate[job]
        if not due:
            # Between two steps, only jobs that get GPUs change speed.
            also &= wish.gpus != wish.held
            rate = np.where(wish.gpus == wish.held, self.rate[job], rate)
        self.rate[job] = np.where(wish.gpus > 0, rate, 0)
        return self.resized(wish, np.maximum(rate, 1), also=also, wake_ms=self.evolved_ms + self.interval_ms)

    def _evolve(self, view: View, wish: Wish, row: Ints, left: Ints, capacity: Ints) -> None:
        """Run one step of the evolution, and set the jobs' GPUs, pools and batches."""
        job, table = wish.job, self.table
        low, high = self.low[job], self.most[job]
        pool = settle_pools(wish.before, self.pools, job, low, capacity)
        if len(job) and (np.bincount(pool, high, len(capacity)) <= capacity).all():
            moment = self._moment(view, wish, np.arange(len(job)), row, left, pool, capacity)
            wish.gpus[:], self.batch[job] = _fastest(table, moment)
            wish.pool[:] = pool
            return
        waits = np.flatnonzero(wish.held == 0)
        first = waits[np.argsort(left[waits], kind="stable")][: max(int(capacity.sum()), 1)]
        part = np.sort(np.concatenate([np.flatnonzero(wish.held > 0), first]))
        if not len(part):
            return
        moment = self._moment(view, wish, part, row, left, pool, capacity)
        mine = job[part]
        random = np.random.default_rng((self.seed % 2**64, _STREAM, max(view.now_ms, 0)))
        stored = np.clip(self.schedules[:, mine].astype(np.int64), 0, high[part])
        stored = moment.bounds.within(np.where(stored < low[part], 0, stored), random)
        now, own = wish.held[part], self.batch[mine]
        short = moment.bounds.in_order(np.argsort(moment.left, kind="stable"))
        parents = [(now, own), *((n, table.best_batch(moment.row, n)) for n in (now, short))]
        gpus, batch = evolved(
            table,
            moment,
            np.stack([*(n for n, _ in parents), *stored[len(parents) :]]),
            np.stack([*(b for _, b in parents), *self.batches[len(parents) :, mine].astype(np.int64)]),
            generations=self.p["generations"],
            random=random,
        )
        self.schedules[:, mine], self.batches[:, mine] = gpus, batch
        wish.gpus[part], self.batch[mine] = gpus[0], batch[0]
        wish.pool[part] = pool[part]

    def _moment(self, view: View, wish: Wish, part: Ints, row: Ints, left: Ints, pool: Ints, capacity: Ints) -> Moment:
        """Return the `Moment` for these jobs."""
        job, held = wish.job[part], wish.held[part]
        restart = np.where(view.attained_gpu_ms[part] > 0, self.overhead_ms[self.low[job]], 0)
        cost = np.where(held > 0, self.resize_ms, restart).astype(np.float64)
        none = np.zeros(len(part), np.int64)
        bounds = Bounds(none, self.low[job], self.most[job], pool[part], capacity)
        return Moment(row[part], np.maximum(left[part], 1).astype(np.float64), held, cost, bounds)


def _fastest(table: BatchTable, moment: Moment) -> tuple[Ints, Ints]:
    """Return each job's fastest GPU count and the best batch for it, if all jobs fit (k,)."""
    fastest = table.fastest[moment.row]
    stays = moment.worths(table, moment.held, table.best_batch(moment.row, moment.held))
    changes = moment.worths(table, fastest, table.best_batch(moment.row, fastest)) > stays
    gpus = np.where(changes, fastest, moment.held)
    return gpus, table.best_batch(moment.row, gpus)


class OnesLike(Planned):
    """An evolutionary search chooses GPUs and batches while jobs run (after ONES).

    The policy keeps a population of schedules for the lifetime of the cluster. Each schedule gives GPUs and a batch to
    every job. New jobs enter it without GPUs, and ended jobs leave it. At most once every `interval` seconds, the
    population evolves by `generations` generations. A child takes each job's GPUs and batch from either of two parents,
    and sometimes redraws them. Jobs for which too few GPUs are left get the rest. The schedules with the largest sum of
    inverse remaining times survive. The remaining time is the remaining work divided by the speed, plus the cost of a
    change. Three parents are always present: the current schedule, the current schedule with the best batches, and a
    schedule that gives each job its minimum, the least remaining work first. Only the waiting jobs with the least
    remaining work take part, at most as many as there are GPUs. The cluster follows the best schedule: jobs are
    resized, stopped and started. GPUs that this schedule leaves free, or that become free before the next step, go to
    waiting jobs at their minimum, least remaining work first. If the maxima of all jobs fit, every job gets its fastest
    number of GPUs. With profile=none, there are no batches, and the work of a job is fixed. With another profile, jobs
    are applications (M43), batches are 1, 2, 4, ... times the recorded batch and change at no cost, and speed is
    goodput. Do not compare such runs with runs of fixed work.

    Equal to
    --------
    - With profile=none, if the maxima of all jobs fit, every job gets its maximum.
    - With profile=none, one GPU, and one-GPU jobs that arrive at once, the policy equals sjf.

    Sources
    -------
    - ONES (SC'21), abstract: an online evolutionary search chooses the batch sizes and workers of elastic jobs, for
      short mean completion times.
    - Our choices, because we could not read the rule: the objective, with known instead of predicted remaining work;
      the operators, population and interval; goodput by Pollux' model; powers of two as batches; waiting jobs get their
      minimum between steps; M8's GPU bounds; the placement, which the search ignores.
    """

    plans = _Search
    card = Card(
        name="ones-like",
        parameters=(
            PROFILE,
            Parameter("population", 12, "number of schedules in the population", minimum=3, maximum=1000),
            Parameter("generations", 6, "number of generations per step", maximum=1000),
            Parameter("interval", 300.0, "minimum time between two steps of the evolution [s]", minimum=0.001),
            Parameter("resize", 10.0, "cost of changing the number of GPUs [s]"),
            overhead("voda"),
            FIT,
        ),
        assumptions=("D1", "D3", "M43", "M9", "M4"),
    )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The card's assumptions, excluding M43 if there are no profiles."""
        return tuple(name for name in self.card.assumptions if name != "M43" or self.parameters["profile"] != "none")
