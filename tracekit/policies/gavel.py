"""Gavel: max-min shares of time on the GPU types, by a linear program, and rounds that approach them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import OVERHEAD, overheads
from tracekit.policies.pools import Pools, make_pools
from tracekit.replay.assumptions.speeds import type_speed_table
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Gavel", "max_min_shares"]

_SLACK = 1e-9


def max_min_shares(
    count: NDArray[np.int64], gpus: NDArray[np.int64], speed: NDArray[np.float64], capacity: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shares of time on each type that raise the least normalized speed first, then the next, and so on.

    The normalized speed of a job is gpus * sum(speed * share), divided by its speed with shares in proportion to the
    GPUs of the types.

    Parameters
    ----------
    count : array (K,)
        Jobs of each kind.
    gpus : array (K,)
        GPUs of each.
    speed : array (K, J)
        Speed on each type; 0 where it may not or cannot run.
    capacity : array (J,)
        GPUs of each type.

    Returns
    -------
    shares : array (K, J)
        Share of time of each job of a kind, rows of at most 1 in sum.
    level : array (K,)
        Normalized speed of each kind.
    """
    usable = (speed > 0) & (gpus[:, None] <= capacity)
    rate = np.where(usable, speed, 0.0)
    # Without any usable type there is nothing to normalize by, and nothing to share.
    equal = rate @ capacity / max(int(capacity.sum()), 1)
    able = np.flatnonzero(equal > 0)
    shares, level = np.zeros(rate.shape), np.zeros(len(count))
    if not len(able):
        return shares, level
    weight = np.divide(gpus[:, None] * rate, equal[:, None], out=np.zeros(rate.shape), where=equal[:, None] > 0)
    if rate.shape[1] == 1:
        shares[able, 0] = _fill(count[able], gpus[able], int(capacity[0]))
    else:
        shares[able] = _programs(count[able], gpus[able], weight[able], capacity)
    return shares, (weight * shares).sum(axis=1)


def _fill(count: NDArray[np.int64], gpus: NDArray[np.int64], capacity: int) -> NDArray[np.float64]:
    """Return the shares on one type: all jobs get equally many GPUs on average, none more than it asks for."""
    left, jobs = float(capacity), int(count.sum())
    for k in np.argsort(gpus, kind="stable").tolist():
        if gpus[k] * jobs >= left:
            return np.minimum(left / jobs / gpus, 1.0)
        left -= float(gpus[k] * count[k])
        jobs -= int(count[k])
    return np.ones(len(gpus))


def _programs(
    count: NDArray[np.int64], gpus: NDArray[np.int64], weight: NDArray[np.float64], capacity: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the shares by one linear program after the other; each fixes the kinds that can have no more."""
    from scipy.optimize import linprog

    kinds, types = weight.shape
    size = kinds * types
    rows = np.zeros((kinds + types + kinds, size + 1))
    for k in range(kinds):
        own = slice(k * types, (k + 1) * types)
        rows[k, own] = 1.0
        rows[kinds + np.arange(types), k * types + np.arange(types)] = count[k] * gpus[k]
        rows[kinds + types + k, own] = -weight[k]
    limit = np.concatenate([np.ones(kinds), capacity.astype(np.float64), np.zeros(kinds)])
    bounds = [(0.0, 1.0 if w > 0 else 0.0) for w in weight.ravel()] + [(0.0, None)]
    aim = np.zeros(size + 1)
    aim[-1] = -1.0
    growing = np.ones(kinds, np.bool_)
    shares = np.zeros((kinds, types))
    while growing.any():
        rows[kinds + types :, -1] = growing
        found = linprog(aim, A_ub=rows, b_ub=limit, bounds=bounds, method="highs")
        if found.status != 0:
            break
        x: Any = found.x
        shares = np.clip(np.asarray(x[:size]).reshape(kinds, types), 0.0, 1.0)
        level = float(x[-1])
        prices = -np.asarray(found.ineqlin.marginals)[kinds + types :]
        stuck = growing & (prices > _SLACK)
        if not stuck.any():
            break
        # A little less than it is, so that rounding does not leave the next program without a solution.
        limit[kinds + types :][stuck] = -level * (1 - _SLACK)
        growing &= ~stuck
    return shares


@dataclass
class _Book:
    """Shares and times of the rounds so far, of one run."""

    view: View
    entitled_ms: NDArray[np.float64]
    """Sum of each job's shares over time on each type [ms] (n, J)."""
    had: NDArray[np.float64]
    """Time that it ran there [ms] (n, J)."""
    share: NDArray[np.float64]
    """Its shares now (n, J)."""
    met: NDArray[np.bool_]
    """Whether its shares have been found yet (n,)."""
    now_ms: int = 0
    found_ms: int = -1
    """When shares were found last; -1 never."""
    active: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Jobs there at that time."""
    gpus: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """GPUs of the pools at that time."""


class _Rounds:
    """Plans of rounds."""

    def __init__(self, jobs: Jobs, cluster: Cluster, models: Models, round_ms: int, again_ms: int) -> None:
        self.round_ms, self.again_ms = round_ms, again_ms
        self.gpus = jobs.devices.astype(np.int64)
        self.pools: Pools = make_pools(jobs, cluster, "place")
        table = type_speed_table(models, jobs.models, cluster.models)
        job_models = jobs.model[self.pools.kind_first] if len(jobs) else np.zeros(0, np.int64)
        known = _known_ratio(models, jobs.models, cluster.models)[job_models]
        same = self.pools.kind_domain[:, None] == self.pools.domain
        usable = same & (self.pools.accepts | known[:, self.pools.model])
        self.speed = np.where(usable, table[job_models][:, self.pools.model], 0).astype(np.int64)
        # Columns of the books are the types within a domain.
        low = np.searchsorted(self.pools.domain, self.pools.domain)
        self.column = np.arange(len(low)) - low
        self.types = int(self.column.max(initial=0)) + 1
        self.book: _Book | None = None

    def plan(self, view: View) -> Plan:
        """Return who runs in the next round, and where."""
        job, held, group = view.job, view.held, view.group
        running = np.where(held > 0, self.pools.group_pool[group], -1)
        book = self._settled(view, job, running)
        capacity = self.pools.gpus(view)
        changed = not np.array_equal(job, book.active) or not np.array_equal(capacity, book.gpus)
        if changed and (book.found_ms < 0 or view.now_ms - book.found_ms >= self.again_ms):
            self._find(book, job, capacity)
        chosen = self._chosen(book, job, running, capacity)
        moved = np.flatnonzero(chosen != running)
        gpus = np.where(chosen >= 0, self.gpus[job], 0)
        moved = moved[np.argsort(-gpus[moved], kind="stable")]
        pool = np.maximum(chosen[moved], 0)
        rate = np.maximum(self.speed[self.pools.kind[job[moved]], pool], 1)
        # Shares on paper change while jobs wait, and so does the time that the others had.
        wake = view.now_ms + self.round_ms if (chosen < 0).any() else -1
        return Plan(
            job[moved],
            gpus[moved],
            rate=rate,
            model=np.where(chosen[moved] >= 0, self.pools.model[pool], -1),
            keep=True,
            optional=len(moved),
            wake_ms=wake,
        )

    def _settled(self, view: View, job: NDArray[np.int64], running: NDArray[np.int64]) -> _Book:
        """Return the books, with what happened since the last round."""
        book = self.book
        if book is None or book.view is not view:
            n = len(self.gpus)
            entitled_ms, had, share = (np.zeros((n, self.types)) for _ in range(3))
            book = self.book = _Book(view, entitled_ms, had, share, np.zeros(n, np.bool_))
        elapsed = view.now_ms - book.now_ms
        book.now_ms = view.now_ms
        book.entitled_ms[job] += book.share[job] * elapsed
        runs = running >= 0
        book.had[job[runs], self.column[running[runs]]] += elapsed
        return book

    def _find(self, book: _Book, job: NDArray[np.int64], capacity: NDArray[np.int64]) -> None:
        book.found_ms, book.active, book.gpus = book.now_ms, job.copy(), capacity
        kinds, of, count = np.unique(self.pools.kind[job], return_inverse=True, return_counts=True)
        gpus = self.gpus[self.pools.kind_first[kinds]]
        shares = np.zeros((len(kinds), self.types))
        domains = self.pools.kind_domain[kinds]
        for d in np.unique(domains).tolist():
            own = np.flatnonzero(domains == d)
            low, high = np.searchsorted(self.pools.domain, [d, d + 1])
            speed = self.speed[kinds[own], low:high] / 1e6
            # Jobs alike in size and speeds are one kind, whatever model they name.
            same, row = np.unique(np.column_stack([gpus[own], speed]), axis=0, return_inverse=True)
            row = row.ravel()
            jobs = np.bincount(row, count[own]).astype(np.int64)
            found, _ = max_min_shares(jobs, same[:, 0].astype(np.int64), same[:, 1:], capacity[low:high])
            shares[own, : high - low] = found[row]
        book.share[job] = shares[of]
        # A job begins as if it had had its share of half a round.
        fresh = job[~book.met[job]]
        half = self.round_ms / 2
        book.met[fresh] = True
        book.entitled_ms[fresh] += half * np.maximum(book.share[fresh], 1e-9)
        book.had[fresh] += half * np.maximum(book.share[fresh], 1e-9)

    def _chosen(
        self, book: _Book, job: NDArray[np.int64], running: NDArray[np.int64], capacity: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the pool in which each job runs in the next round; -1 it waits."""
        from tracekit.replay.kernel import choose_types

        place, pool = map(np.ascontiguousarray, np.nonzero(self.speed[self.pools.kind[job]] > 0))
        column = self.column[pool]
        share = book.share[job[place], column]
        had = np.maximum(book.had[job[place], column], 1e-6)
        priority = np.where(share > 0, book.entitled_ms[job[place], column] / had, 0.0)
        stays = running[place] == pool
        order = np.lexsort((pool, place, -share, ~stays, -priority))
        chosen = np.full(len(job), -1)
        # GPUs that nodes took with them are still their jobs'.
        kept = running >= 0
        used = np.bincount(running[kept], self.gpus[job[kept]], len(capacity)).astype(np.int64)
        choose_types(order, pool, self.gpus[job], place, pool, np.maximum(capacity, used), chosen)
        return chosen


def _known_ratio(models: Models, job_models: list[str], models_there: list[str]) -> NDArray[np.bool_]:
    """Return whether a ratio of speeds is known for jobs that ask for a model on another; the last row is True."""
    ratio = models.type_speed.ratio
    rows = [[there in ratio.get(a, {}) or a in ratio.get(there, {}) for there in models_there] for a in job_models]
    return np.array([*rows, [True] * len(models_there)], np.bool_).reshape(len(job_models) + 1, len(models_there))


class Gavel(Policy):
    """Max-min shares over GPU types, in rounds."""

    card: ClassVar[Card] = Card(
        name="gavel",
        title="max-min shares of time over GPU types, in rounds",
        rule=(
            "When jobs came or ended, at most once in again seconds, each job's shares of time on the GPU types are "
            "found so that the least normalized speed is as large as can be, then the next least, and so on: GPUs "
            "times speed, relative to shares in proportion to the GPUs of each type. In rounds jobs then run on the "
            "type where they lag most behind, by the time that their shares entitle them to over the time they ran, "
            "both begun with half a round's share; running jobs go first between equals. A job that does not fit is "
            "passed over, one runs on one type in a round, and a job whose shares are not found yet has what is left "
            "over. Gangs may be spread over nodes of a type."
        ),
        parameters=(
            Parameter("round", 360.0, "length of a round [s]", minimum=0.001),
            Parameter("again", 1920.0, "least time between two times that shares are found [s]"),
            OVERHEAD,
        ),
        assumptions=("D1", "D6", "M9", "M4"),
        equal_to=(
            "With one type and room for all: every job runs from the next round on, and none is stopped.",
            "With one type and jobs of one size, all there at once: equal times, to a round.",
        ),
        sources=(
            "Narayanan et al., Gavel (OSDI'20): policy, rounds and their lengths as in the released code.",
            (
                "Own choices: the leftover of the max-min program is shared out by the same rule again; time had "
                "counts from a job's entry and not from the last program; a type that a job does not name is used "
                "where its speed is known."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans in rounds."""
        p = self.parameters
        round_ms = max(round(p["round"] * 1000), 1)
        rounds = _Rounds(jobs, cluster, models, round_ms, round(p["again"] * 1000))
        return Planner(
            rounds.plan, round_ms=round_ms, any_model=True, overhead_ms=overheads(models, p["overhead"], jobs)
        )
