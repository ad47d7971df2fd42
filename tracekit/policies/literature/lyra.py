"""Lyra: training borrows idle inference servers, and elastic jobs grow into spare GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.loans import Servers, loaned, with_loans, without_loans
from tracekit.policies.literature.optimal import take_chains
from tracekit.policies.literature.resizing import RESIZE, ragged, speedup
from tracekit.policies.network_tiers import FEWEST, Places, Spot, gathered, place_rows
from tracekit.policies.parameters import overhead
from tracekit.policies.plans import Planned, Plans
from tracekit.replay.assumptions.speeds import PPM, elastic_bounds, elastic_ppm, spread_ppm
from tracekit.replay.mechanisms import Plan, View

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


_NOBODY = np.zeros(0, np.int64)


class _Loans(Plans):
    """Starts the shortest jobs first, gives spare GPUs to elastic jobs, and returns loans."""

    def set_up(self) -> None:
        """Determine the nodes on loan, when they leave, and the jobs that may run."""
        p, cluster = self.p, self.cluster
        self.places = places = Places(self.jobs, cluster)
        self.growth = _Growth(p, self.jobs, cluster, self.models, self.seed)
        self.most = self.growth.high
        self.settings["names_nodes"] = True
        self.interval_ms, self.decreasing = round(p["interval"] * 1000), p["place"] == "decreasing"
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

    def begin(self, view: View) -> None:
        self.books = Servers(self.cluster, self.lent, self.growth.most > 0)
        self.grown_ms, self.news, self.seen = -1, True, -1

    def plan(self, view: View) -> Plan:
        """Return the plan: jobs that start, are resized or stopped."""
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
                self.growth.divide(books, view, list(elastic))
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

    def _start(self, view: View, waits: Ints) -> None:
        """Start waiting jobs (indices in the view), the least remaining time first, skipping jobs that do not fit."""
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
        """Place jobs that start together again, largest first. If one does not fit, all keep their spots."""
        books = self.books
        if books.gave:
            # Workers were removed to make room on exactly these GPUs.
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

    def _room(self) -> Bools:
        """Return whether each kind could find enough free GPUs on one node, or in total for multi-node gangs (K,)."""
        loose, pools = self.books.loose(), self.places.pools
        most = np.array([loose[p.nodes].max(initial=0) for p in pools], np.int64)
        total = np.array([loose[p.nodes].sum() for p in pools], np.int64)
        return np.asarray(self.asks <= np.where(self.wide, total[self.pool], most[self.pool]))

    def _find(self, job: int) -> Spot | None:
        """Return GPUs for a job, preferring free GPUs over those of extra workers, and training nodes over loans."""
        books = self.books
        sources = [books.free, books.loose()] if any(books.workers.values()) else [books.free]
        for free in sources:
            for nodes in (np.where(self.lent, 0, free), free) if self.lent.any() else (free,):
                spot = self.places.found(job, FEWEST, nodes)
                if spot is not None:
                    return spot
        return None

    def _written(self, wake_ms: int, exchange: Ints | None) -> Plan:
        """Return the plan that leads from the previous to the new state."""
        named = self.books.changes()
        if not named:
            return Plan(_NOBODY, _NOBODY, keep=True, wake_ms=wake_ms, exchange=exchange)
        job = np.array([j for j, _ in named], np.int64)
        gpus = np.array([sum(spot.gpus) for _, spot in named], np.int64)
        asks = self.asks[self.places.kind[job]]
        return Plan(
            job,
            gpus,
            rate=np.maximum(elastic_ppm(self.models, asks, gpus), 1),
            place=place_rows(enumerate(spot for _, spot in named)),
            keep=True,
            wake_ms=wake_ms,
            exchange=exchange,
        )


_STREAM = 42
"""Seed of the random numbers."""


class _Growth:
    """Extra workers for elastic jobs."""

    def __init__(self, p: dict[str, Any], jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> None:
        self.models, self.core = models, p["core"]
        self.asks = jobs.devices.astype(np.int64)
        self.high = elastic_bounds(models, self.asks)[1]
        share = p["share"] if p["elastic"] else 0.0
        elastic = np.random.default_rng((seed % 2**64, _STREAM)).random(len(jobs)) < share
        parts = np.array([_parts(g, p["workers"]) for g in range(int(self.asks.max(initial=1)) + 1)], np.int64)
        self.worker = self.asks // parts[self.asks]
        """GPUs per worker of each job (n,)."""
        self.most = np.where(elastic, (self.high - self.asks) // self.worker, 0)
        """Maximum extra workers of each job (n,)."""
        self.speed = speedup(models, np.arange(int(self.high.max(initial=1)) + 1))
        self.lent = loaned(cluster)
        self.node_pool = cluster.domain.astype(np.int64) * max(len(cluster.models), 1) + cluster.model
        self.node_gpus = cluster.gpus.astype(np.int64)

    def divide(self, books: Servers, view: View, elastic: list[int]) -> None:
        """Divide the spare GPUs among running elastic jobs."""
        job = np.array([j for j in elastic if not books.is_fixed(j)], np.int64)
        if not len(job):
            return
        pool = self.node_pool[[books.base[j].nodes[0] for j in job.tolist()]]
        loose = books.loose()
        for p in np.unique(pool).tolist():
            self._divide_pool(books, view, job[pool == p], np.flatnonzero((self.node_pool == p) & books.up), loose)

    def _divide_pool(self, books: Servers, view: View, job: Ints, nodes: Ints, loose: Ints) -> None:
        asks, worker, most = self.asks[job], self.worker[job], self.most[job]
        row, step = ragged(most)
        before = asks[row] + step * worker[row]
        left = view.table["remaining"][job] / PPM * self.speed[asks]
        gain = left[row] * (1 / self.speed[before] - 1 / self.speed[before + worker[row]])
        capacity = int(loose[nodes].sum())
        taken = take_chains(row, worker[row], gain, capacity, rows=len(job), core=self.core)
        for j, count in zip(job.tolist(), taken.tolist(), strict=True):
            while len(workers := books.workers.get(j, [])) > count:
                # Remove the last worker on training nodes, or else the last worker.
                nodes_of = [not self.lent[spot.nodes[0]] for spot in workers]
                books.drop(j, max(range(len(workers)), key=lambda i: (nodes_of[i], i)))
        has = np.array([len(books.workers.get(j, ())) for j in job.tolist()])
        more = np.flatnonzero(taken > has)
        for place in more[np.lexsort((job[more], -worker[more]))].tolist():
            self._add(books, int(job[place]), int(taken[place]), nodes)

    def _add(self, books: Servers, job: int, count: int, nodes: Ints) -> None:
        """Place extra workers of a job, up to `count` in total, unless they would not make the job faster."""
        had = len(books.workers.get(job, ()))
        for _ in range(had, count):
            spot = self._spot(books.free, nodes, int(self.worker[job]))
            if spot is None:
                break
            books.add(job, spot)
        while len(books.workers.get(job, ())) > had and self._pace(books, job, had) >= self._pace(books, job, None):
            books.drop(job)

    def _pace(self, books: Servers, job: int, workers: int | None) -> float:
        """Return a job's speed, by GPUs and nodes, with its first `workers` extra workers, or with all if None."""
        spots = [books.base[job], *books.workers.get(job, ())[:workers]]
        nodes = {n for spot in spots for n in spot.nodes}
        gpus = sum(sum(spot.gpus) for spot in spots)
        least = -(-gpus // int(self.node_gpus[list(nodes)].max()))
        return float(self.speed[gpus]) * float(spread_ppm(self.models, gpus, len(nodes), least))

    def _spot(self, free: Ints, nodes: Ints, gpus: int) -> Spot | None:
        """Return the tightest node for a worker, servers on loan first. A multi-node worker gets the roomiest nodes."""
        here = free[nodes]
        fits = here >= gpus
        if fits.any():
            score = np.where(fits, np.where(self.lent[nodes], 0, 1 << 32) + here, 1 << 62)
            return Spot([int(nodes[int(score.argmin())])], [gpus])
        if gpus <= int(self.node_gpus[nodes].max(initial=0)) or int(here.sum()) < gpus:
            return None
        return gathered(nodes, here, np.argsort(-here, kind="stable"), gpus)


def _parts(gpus: int, workers: int) -> int:
    """Return the largest number of workers, up to a limit, that divides a gang's GPUs evenly."""
    return max((k for k in range(1, min(max(gpus, 1), workers) + 1) if gpus % k == 0), default=1)


class Lyra(Planned):
    """Training borrows idle inference servers, and elastic jobs grow into spare GPUs (Lyra).

    Waiting jobs start with the GPUs that they request, the least remaining run time first. Jobs that do not fit are
    skipped. Of jobs that start at once, the largest are placed first, each on the tightest node that fits it, or else
    on whole nodes and one more node. Training nodes come before servers on loan, and free GPUs before those of extra
    workers. The remaining GPUs go to extra workers of elastic jobs, where they reduce the sum of remaining times most.
    A multiple-choice knapsack chooses the number of extra workers of each job, up to its maximum. The largest workers
    are placed first, on the tightest server on loan that fits them, or else on training nodes. A worker is not placed
    if the spread gang would be no faster. Extra workers give way to every waiting job, and no running job has fewer
    GPUs than it requests. Servers join while inference does not need them, and leave when inference needs them again
    (M42). Among equal servers, the cheapest to lose leave first. The cost of losing a server is, for each gang on it,
    one divided by the gang's number of servers. The costs are recomputed after each choice. Extra workers on returned
    servers are removed. Gangs there are stopped, keep their progress, and wait again. Jobs that do not fit on the
    training nodes are not run. If a cluster has a rack called 'on loan', the cluster defines when these nodes join and
    leave.

    Equal to
    --------
    - With loan=off, elastic=off and place=order, the policy equals sjf,scan=skip.
    - With loan=off, elastic=off and one-GPU jobs, the policy equals sjf,scan=skip.
    - With loan=off, the policy equals sjf,scan=skip with growth. If servers are always free, it is the same on more
      nodes.

    Sources
    -------
    - Li et al., Lyra (EuroSys'23), and its preprint Aryl (arXiv 2202.07896), abstracts: loans, elastic jobs, servers
      returned by a greedy rule on the cost of preemption. From reading notes: two phases, knapsack, best fit
      decreasing. From memory: the cost of losing a server, and the preferred servers.
    - Our choices: which jobs are elastic and by how much; a number of workers that divides the GPUs evenly; an exact
      step near the end of the knapsack instead of dynamic programming over all jobs; the interval; gangs that start go
      to the fewest nodes; inference servers are as fast as training nodes, and have their own rack; jobs on nodes that
      leave for other reasons continue there and are not resized.
    """

    plans = _Loans
    card = Card(
        name="lyra",
        parameters=(
            Parameter("loan", True, "whether inference servers are borrowed (M42)"),
            Parameter("elastic", True, "whether some jobs get extra workers on spare GPUs"),
            Parameter("share", 0.3, "share of jobs that are elastic, chosen at random with the seed", maximum=1.0),
            Parameter(
                "workers",
                4,
                "maximum number of equal workers into which a job's request is divided",
                minimum=1,
                maximum=64,
            ),
            Parameter("interval", 300.0, "minimum time between two divisions of the spare GPUs [s]"),
            Parameter("min_loan", 0.0, "minimum time for which a server must be free to be borrowed [s]"),
            Parameter(
                "place",
                "decreasing",
                "which jobs are placed first if several start at once: the largest, or the shortest",
                ("decreasing", "order"),
            ),
            Parameter(
                "core",
                6,
                "number of jobs that an integer program reconsiders on either side of the first job that does not fit",
            ),
            RESIZE,
            overhead("uniform"),
        ),
        assumptions=("D1", "D3", "M42", "M9", "M4"),
    )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The card's assumptions, without those about loans or elastic jobs if these are off."""
        unused = {"M42"} if not self.parameters["loan"] else set[str]()
        unused |= set() if self.parameters["elastic"] else {"D3"}
        return tuple(name for name in self.card.assumptions if name not in unused)

    def borrowed(self, cluster: Cluster, jobs: Jobs, models: Models) -> Cluster:
        """Return the cluster with the servers on loan, or without them if loan=off."""
        if not self.parameters["loan"]:
            return without_loans(cluster)
        return with_loans(cluster, jobs, models, round(self.parameters["min_loan"] * 1000))
