"""The plans of Lyra: gangs by shortest job first, spare GPUs to elastic jobs, servers on loan given back in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.loans import loaned
from tracekit.policies.lyra_servers import Servers
from tracekit.policies.places import FEWEST
from tracekit.replay.assumptions.speeds import elastic_ppm
from tracekit.replay.mechanisms import Plan, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.policies.places import Places, Spot
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster

__all__ = ["LyraPlans"]


_NOBODY = np.zeros(0, np.int64)


class LyraPlans:
    """Plans of one policy.

    Parameters
    ----------
    places : Places
        Of the jobs and the cluster with its loans.
    cluster : Cluster
    models : Models
        Assumptions.
    grow : callable
        Divides what is left over, given the books, the view and the elastic jobs that run.
    may_grow : array of bool (n,)
        Which jobs are elastic.
    interval_ms : int
        Least time between two divisions of what is left over [ms].
    decreasing : bool
        Whether jobs that start at once get their places largest first.
    """

    def __init__(
        self,
        places: Places,
        cluster: Cluster,
        models: Models,
        grow: Callable[[Servers, View, list[int]], None],
        *,
        may_grow: NDArray[np.bool_],
        interval_ms: int,
        decreasing: bool,
    ) -> None:
        self.places, self.cluster, self.models, self.grow = places, cluster, models, grow
        self.may_grow = may_grow
        self.interval_ms, self.decreasing = interval_ms, decreasing
        self.lent = loaned(cluster)
        self.asks = np.array(places.kind_gpus, np.int64)
        self.pool = np.array(places.kind_pool, np.int64)
        self.wide = self.asks > np.array([pool.largest for pool in places.pools], np.int64)[self.pool]
        own = np.where(self.lent, 0, places.gpus)
        first = np.unique(places.kind, return_index=True)[1].tolist() if len(places.kind) else []
        self.possible = np.zeros(len(self.asks), np.bool_)
        for job in first:
            self.possible[places.kind[job]] = places.found(job, FEWEST, own) is not None
        leaves = (cluster.change_up == 0) & self.lent[cluster.change_node]
        self.leave_ms = np.unique(cluster.change_ms[leaves])
        self._view: View | None = None

    def plan(self, view: View) -> Plan:
        """Return who starts, is resized or gives way now."""
        if view is not self._view:
            self._view = view
            self.books = Servers(self.cluster, self.lent, self.may_grow)
            self.grown_ms, self.news, self.seen = -1, True, -1
        books, now = self.books, view.now_ms
        job, running = view.job, view.running
        books.begin(view, job[running])
        self.news |= books.ended or books.changed or view.submitted != self.seen
        self.seen = view.submitted
        books.reclaim()
        if len(books.base) < len(job):
            waits = np.array([j not in books.base for j in job.tolist()]) if books.stopped else ~running
            self._start(view, np.flatnonzero(waits))
        elastic = books.elastic
        wake = -1
        if elastic and self.news:
            if self.grown_ms < 0 or now >= self.grown_ms + self.interval_ms:
                self.grow(books, view, list(elastic))
                self.grown_ms, self.news = now, False
            else:
                wake = self.grown_ms + self.interval_ms
        exchange = None
        if len(self.leave_ms) and books.borrows():
            place = int(np.searchsorted(self.leave_ms, now, side="right"))
            if place < len(self.leave_ms):
                due = int(self.leave_ms[place])
                if due - 1 <= now:
                    exchange = books.exchange(due)
                else:
                    wake = due - 1 if wake < 0 else min(wake, due - 1)
        return self._written(wake, exchange)

    def _start(self, view: View, waits: NDArray[np.int64]) -> None:
        """Let jobs at places of the view start, the least time left first, passing over those without a place."""
        books, places = self.books, self.places
        open_kind = self.possible & self._room()
        waits = waits[open_kind[places.kind[view.job[waits]]]]
        if not len(waits):
            return
        order = view.job[waits[np.argsort(view.remaining_ms[waits], kind="stable")]]
        kind = places.kind[order]
        chosen: list[tuple[int, Spot]] = []
        while True:
            fits = np.flatnonzero(open_kind[kind])
            if not len(fits):
                break
            at = int(fits[0])
            job = int(order[at])
            order, kind = order[at + 1 :], kind[at + 1 :]
            spot = self._find(job)
            if spot is None:
                open_kind[places.kind[job]] = False
                continue
            chosen.append((job, spot))
            books.start(job, spot, view)
            if not len(order):
                break
            open_kind &= self._room()
        if self.decreasing and len(chosen) > 1:
            self._place_decreasing(chosen, view)

    def _place_decreasing(self, chosen: list[tuple[int, Spot]], view: View) -> None:
        """Give jobs that start at once other places, the largest first; all keep theirs where one would find none."""
        books = self.books
        if books.gave:
            # Workers went to make room just there.
            return
        for job, _ in chosen:
            books.forget(job)
        again: list[tuple[int, Spot]] = []
        for job, _ in sorted(chosen, key=lambda row: -int(self.asks[self.places.kind[row[0]]])):
            spot = self._find(job)
            if spot is None:
                break
            books.start(job, spot, view)
            again.append((job, spot))
        if len(again) < len(chosen):
            for job, _ in again:
                books.forget(job)
            for job, spot in chosen:
                books.start(job, spot, view)

    def _room(self) -> NDArray[np.bool_]:
        """Return the kinds of jobs for which enough GPUs could be free: on one node, or for wide gangs in sum (K,)."""
        loose, pools = self.books.loose(), self.places.pools
        most = np.array([loose[p.nodes].max(initial=0) for p in pools], np.int64)
        total = np.array([loose[p.nodes].sum() for p in pools], np.int64)
        return np.asarray(self.asks <= np.where(self.wide, total[self.pool], most[self.pool]))

    def _find(self, job: int) -> Spot | None:
        """Return GPUs for a job: on training nodes before those on loan, free ones before those of further workers."""
        books = self.books
        sources = [books.free, books.loose()] if any(books.workers.values()) else [books.free]
        for free in sources:
            for nodes in (np.where(self.lent, 0, free), free) if self.lent.any() else (free,):
                spot = self.places.found(job, FEWEST, nodes)
                if spot is not None:
                    return spot
        return None

    def _written(self, wake_ms: int, exchange: NDArray[np.int64] | None) -> Plan:
        """Return the plan that makes of what was before what the books say."""
        named = self.books.changes()
        if not named:
            return Plan(_NOBODY, _NOBODY, keep=True, wake_ms=wake_ms, exchange=exchange)
        job = np.array([j for j, _ in named], np.int64)
        gpus = np.array([sum(spot.gpus) for _, spot in named], np.int64)
        rows = [(i, n, g) for i, (_, spot) in enumerate(named) for n, g in zip(spot.nodes, spot.gpus, strict=True)]
        asks = self.asks[self.places.kind[job]]
        return Plan(
            job,
            gpus,
            rate=np.maximum(elastic_ppm(self.models, asks, gpus), 1),
            place=np.array(rows, np.int64).reshape(len(rows), 3),
            keep=True,
            wake_ms=wake_ms,
            exchange=exchange,
        )
