"""Plans that resize jobs: bounds, minima and steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Parameter
from tracekit.policies.plans import Plans
from tracekit.policies.pools import make_pools
from tracekit.replay.assumptions.speeds import elastic_bounds, elastic_ppm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.mechanisms import Plan, View


GAP = Parameter("gap", 30.0, "minimum time between two plans [s]")

RESIZE = Parameter("resize", 30.0, "cost of changing the number of GPUs [s]")


def speedup(models: Models, gpus: Ints) -> Floats:
    """Return S(n) = n / (1 + sigma * (n - 1)), the speed on n GPUs relative to one GPU (M8), or 0 without GPUs."""
    return np.asarray(gpus / (1 + models.elastic.sigma * np.maximum(gpus - 1, 0)))


def ragged(count: Ints) -> tuple[Ints, Ints]:
    """Return the row of each entry and its position in the row (0, 1, ...), given the number of entries per row."""
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)


def steps_taken(key: Floats, row: Ints, pool: Ints, free: Ints, rows: int) -> Ints:
    """Return how many one-GPU steps each row takes if steps with the largest keys go first while GPUs last.

    Keys must not increase inside a row, so each row takes its steps in order. The earlier row goes first among equals.

    Parameters
    ----------
    key : array (s,)
        Value of each step. Steps with a value of 0 or less are not taken.
    row : array (s,)
        Row of each step, ascending.
    pool : array (rows,)
        Pool of each row.
    free : array (P,)
        GPUs of each pool, reduced by the GPUs taken.
    rows : int
        Number of rows.
    """
    worth = np.flatnonzero(key > 0)
    wanted = np.bincount(pool[row[worth]], minlength=len(free))
    if (wanted <= free).all():
        free -= wanted
        return np.bincount(row[worth], minlength=rows)
    order = worth[np.argsort(-key[worth], kind="stable")]
    taken = np.zeros(rows, np.int64)
    for p in np.unique(pool[row[worth]]).tolist():
        mine = order[pool[row[order]] == p][: free[p]]
        taken += np.bincount(row[mine], minlength=rows)
        free[p] -= len(mine)
    return taken


@dataclass
class Wish:
    """The active jobs at one time, and the GPUs that each job gets. k jobs, P pools."""

    job: Ints
    """Jobs, as in the view (k,)."""
    held: Ints
    """Current GPUs of each job (k,)."""
    before: Ints
    """Current pool of each job, or -1 if the job waits (k,)."""
    free: Ints
    """GPUs of each pool that are not promised yet (P,)."""
    gpus: Ints
    """Planned GPUs of each job (k,)."""
    pool: Ints
    """Planned pool of each job (k,)."""


class Sizes(Plans):
    """Plans that resize jobs, unless the policy has a parameter `elastic` that is off (D3)."""

    def set_up(self) -> None:
        """Compute the bounds and pools of the jobs."""
        if not self.p.get("elastic", True):
            self.models = replace(self.models, elastic=replace(self.models.elastic, rigid=True))
        self.low, self.most = elastic_bounds(self.models, self.gpus)
        self.relative = speedup(self.models, np.arange(int(self.most.max(initial=1)) + 1))
        """Speed on 0, 1, ... GPUs relative to one GPU, up to the largest maximum of any job."""
        self.pools = make_pools(self.jobs, self.cluster, self.p.get("fit", "place"))
        self._accepts = self.pools.accepts.view(np.uint8)

    def wish(self, view: View) -> Wish:
        """Return the current jobs before any GPU is promised."""
        job, held, before = view.job, view.held, self.pools.held(view)
        # Jobs keep the GPUs of nodes that left.
        free = self.pools.capacity(view, before)
        return Wish(job, held, before, free, np.zeros(len(job), np.int64), before.copy())

    def give(
        self,
        wish: Wish,
        order: Ints,
        least: Ints,
        most: Ints | None = None,
        *,
        running_first: bool = False,
        doubling: bool = False,
    ) -> None:
        """Promise `least` GPUs to each job without GPUs, in order, skipping jobs that find too few.

        Then the same jobs repeatedly get one more GPU each, in the same order, up to `most`.

        Parameters
        ----------
        wish : Wish
            Overwritten.
        order : array
            Indices into the wish.
        least, most : array (k,)
            GPUs of each job in the wish. By default, `most` is `least`.
        running_first : bool
            Whether running jobs get their GPUs before all others.
        doubling : bool
            Whether jobs double their GPUs instead of adding one.
        """
        from tracekit.replay.kernel import divide_gpus

        kind, room = self.pools.kind[wish.job].astype(np.int64), np.zeros(len(wish.job), np.int64)
        order = np.ascontiguousarray(order, np.int64)
        divide_gpus(
            order,
            wish.pool,
            least,
            least if most is None else most,
            kind,
            self._accepts,
            wish.free,
            running_first,
            doubling,
            wish.gpus,
            room,
        )

    def steps(self, wish: Wish) -> tuple[Ints, Ints]:
        """Return all one-GPU steps that jobs with GPUs may take: their index in the wish, and their GPUs before."""
        room = np.minimum(self.most[wish.job] - wish.gpus, wish.free[wish.pool])
        place, step = ragged(np.where(wish.gpus > 0, np.maximum(room, 0), 0))
        return place, wish.gpus[place] + step

    def grow(self, wish: Wish, place: Ints, key: Floats, order: Ints | None = None) -> None:
        """Give jobs the most valuable steps (see `steps_taken`). Ties go by `order`, by default that of the wish."""
        if order is None:
            wish.gpus += steps_taken(key, place, wish.pool, wish.free, len(wish.job))
            return
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        line = np.argsort(rank[place], kind="stable")
        wish.gpus[order] += steps_taken(key[line], rank[place][line], wish.pool[order], wish.free, len(order))

    def contended(self, wish: Wish) -> Iterator[tuple[Ints, int]]:
        """Yield the jobs with GPUs in each pool, and the number of their GPUs and the free GPUs, unless all maxima fit.

        If all maxima fit, each of these jobs gets its maximum.
        """
        for pool in np.unique(wish.pool[wish.gpus > 0]).tolist():
            line = np.flatnonzero((wish.pool == pool) & (wish.gpus > 0))
            free = int(wish.free[pool] + wish.gpus[line].sum())
            high = self.most[wish.job[line]]
            if high.sum() <= free:
                wish.gpus[line] = high
            else:
                yield line, free

    def resized(
        self,
        wish: Wish,
        rate: Ints | None = None,
        *,
        also: Bools | None = None,
        order: Ints | None = None,
        wake_ms: int = -1,
    ) -> Plan:
        """Return a plan for the jobs whose GPUs change, large gangs first, because they are harder to place.

        Parameters
        ----------
        wish : Wish
            The planned GPUs of each job.
        rate : array (k,), optional
            Speed of each job with its planned GPUs [ppm]. The default is the speed of M8.
        also : array (k,), optional
            Jobs to include because their speed changes.
        order : array (k,), optional
            Indices into the wish, which order jobs with equal GPUs.
        wake_ms : int
            Time of the next plan if no event occurs, or -1 for never [ms].
        """
        changes = (wish.gpus != wish.held) | ((wish.pool != wish.before) & (wish.gpus > 0))
        if also is not None:
            changes |= also & (wish.gpus > 0)
        named = np.flatnonzero(changes) if order is None else order[changes[order]]
        named = named[np.argsort(-wish.gpus[named], kind="stable")]
        job, gpus, pool = wish.job[named], wish.gpus[named], wish.pool[named]
        speed = elastic_ppm(self.models, self.gpus[job], gpus) if rate is None else rate[named]
        return self.pools.plan(job, gpus, pool, speed, wake_ms)

    def unfinished(self, wish: Wish) -> bool:
        """Return whether a later plan could differ even if no job arrives or ends."""
        return bool((wish.gpus < self.most[wish.job]).any() or (wish.gpus != wish.held).any())
