"""Optimus: each GPU, or parameter server, to the job whose remaining time it shortens most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT
from tracekit.policies.resizing import RESIZE, Sizes, Wish, ragged
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.speeds import ppm, server_speed
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Optimus"]

# Gains are equal that differ by less than this part, which is rounding.
_TIE = 1e-9


@dataclass(frozen=True)
class _Paths:
    """The order in which jobs of each size take workers and servers; K sizes, rows of steps side by side."""

    size: NDArray[np.int64]
    """Row of each job (n,)."""
    first: NDArray[np.int64]
    """First step of each row (K,)."""
    count: NDArray[np.int64]
    """Steps (K,)."""
    gain: NDArray[np.float64]
    """Time that each step saves per unit of work; it never rises inside a row."""
    worker: NDArray[np.int64]
    """1 for a worker, 0 for a server."""


class Optimus(Policy):
    """Marginal gain of one worker or server more."""

    card: ClassVar[Card] = Card(
        name="optimus",
        title="each GPU to the job whose remaining time it shortens most (Optimus)",
        rule=(
            "At every interval all GPUs are divided anew. The jobs get their minimum in the order of their "
            "remaining run time; jobs whose minimum is not free are skipped. Then the GPUs go one at a time to "
            "the job whose remaining time falls most, up to its maximum, until no time falls or the next job in "
            "line finds no GPU. With servers=on each job also has one parameter server, and each step may add a "
            "server instead of a GPU: a job takes whichever helps it more, and the division ends when the next "
            "job in line finds no GPU or no place for a server. Remaining times are the true ones. Gangs may be "
            "spread over nodes."
        ),
        parameters=(
            Parameter("interval", 600.0, "time between two plans; 0: at every event [s]"),
            Parameter("servers", False, "jobs have parameter servers, whose number is chosen as well (M28)"),
            RESIZE,
            Parameter("overhead", "pollux", "preset for the cost of each preemption and migration (M9)"),
            FIT,
        ),
        assumptions=("D1", "D3", "M28", "M9", "M4"),
        equal_to=(
            "If no job is elastic (rigid), with interval=0, fit=count, overhead=none: srtf,scan=skip,fit=count.",
            "If more GPUs make no job faster (sigma = 1): every job gets its minimum.",
            "If the maxima of all jobs fit: every job gets its maximum.",
        ),
        sources=(
            (
                "Peng et al., Optimus (EuroSys'18), as in its first author's later simulator (DL2): absolute "
                "gain, at least one worker and one server, an end at the first job that does not fit."
            ),
            (
                "Own choices: remaining times are known and not fitted to a loss curve; the minimum is D3's, by "
                "least remaining time; a job has no more servers than its maximum of workers; 600 s, from memory."
            ),
        ),
    )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Those of the card; without servers not theirs."""
        return tuple(name for name in self.card.assumptions if name != "M28" or self.parameters["servers"])

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans at intervals."""
        p = self.parameters
        sizes = Sizes(jobs, cluster, models, p["fit"])
        interval_ms = round(p["interval"] * 1000)
        paths = _paths(sizes, models) if p["servers"] else None

        def plan(view: View) -> Plan:
            wish = sizes.begin(view)
            # Without the cost of the last change: otherwise jobs that only change would have more and more time left.
            left = view.remaining_ms
            order = np.argsort(left, kind="stable")
            if paths is None:
                sizes.give(wish, order, sizes.low[wish.job])
                place, gpus = sizes.steps(wish)
                work = left * sizes.speed[sizes.requested[wish.job]]
                sizes.grow(wish, place, work[place] * (1 / sizes.speed[gpus] - 1 / sizes.speed[gpus + 1]))
                rate, also = None, None
            else:
                servers = _with_servers(sizes, paths, wish, order, left, models.servers.per_gpu)
                rate, also = _rates(sizes, models, wish, servers), wish.gpus > 0
            wake = view.now_ms + interval_ms if interval_ms and (also is not None or sizes.unfinished(wish)) else -1
            return sizes.plan(wish, rate, also=also, wake_ms=wake)

        return Planner(
            plan,
            round_ms=interval_ms,
            fit=p["fit"],
            overhead_ms=overhead_ms(models, p["overhead"], np.arange(int(sizes.high.max(initial=1)) + 1)),
            resize_ms=round(p["resize"] * 1000),
        )


def _paths(sizes: Sizes, models: Models) -> _Paths:
    """Return the steps of every size of job: at each the larger of both gains, a worker between equals."""
    requested, size = np.unique(sizes.requested, return_inverse=True)
    place = np.zeros(len(requested), np.int64)
    place[size] = np.arange(len(size))
    count, gains, workers = [], [], []
    for low, high in zip(sizes.low[place].tolist(), sizes.high[place].tolist(), strict=True):
        w, p, worth, steps = low, 1, np.inf, 0
        while True:
            now = 1 / float(server_speed(models, w, p))
            by_worker = now - 1 / float(server_speed(models, w + 1, p)) if w < high else -1.0
            by_server = now - 1 / float(server_speed(models, w, p + 1)) if p < high else -1.0
            best = max(by_worker, by_server)
            if best <= 0:
                break
            # A large gain behind a small one is taken at once after it, and no sooner.
            worth = min(worth, best)
            gains.append(worth)
            workers.append(int(by_worker >= by_server * (1 - _TIE)))
            w, p, steps = w + workers[-1], p + 1 - workers[-1], steps + 1
        count.append(steps)
    counts = np.array(count, np.int64)
    return _Paths(size, np.cumsum(counts) - counts, counts, np.array(gains), np.array(workers, np.int64))


def _with_servers(
    sizes: Sizes, paths: _Paths, wish: Wish, order: NDArray[np.int64], left: NDArray[np.int64], per_gpu: float
) -> NDArray[np.int64]:
    """Divide GPUs and places for servers; return the servers of each job that has GPUs, one for others (k,)."""
    places = (wish.free * per_gpu).astype(np.int64)
    sizes.give(wish, order, sizes.low[wish.job])
    # Every job has a server, so a pool runs at most as many jobs as it has places.
    for p in range(len(places)):
        mine = order[(wish.pool[order] == p) & (wish.gpus[order] > 0)][places[p] :]
        wish.free[p] += int(wish.gpus[mine].sum())
        wish.gpus[mine] = 0
    places -= np.bincount(wish.pool[wish.gpus > 0], minlength=len(places))
    runs = np.flatnonzero(wish.gpus > 0)
    kind = paths.size[wish.job[runs]]
    row, step = ragged(paths.count[kind])
    at, place = paths.first[kind][row] + step, runs[row]
    one = server_speed(sizes.models, sizes.requested[wish.job], sizes.requested[wish.job])
    line = np.argsort(-(left * one)[place] * paths.gain[at], kind="stable")
    servers = np.ones(len(wish.job), np.int64)
    for p in range(len(places)):
        mine = line[wish.pool[place[line]] == p]
        worker = paths.worker[at[mine]]
        room = (np.cumsum(worker) <= wish.free[p]) & (np.cumsum(1 - worker) <= places[p])
        mine, worker = mine[room], worker[room]
        wish.free[p] -= int(worker.sum())
        wish.gpus += np.bincount(place[mine], worker, len(wish.job)).astype(np.int64)
        servers += np.bincount(place[mine], 1 - worker, len(wish.job)).astype(np.int64)
    return servers


def _rates(sizes: Sizes, models: Models, wish: Wish, servers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return speeds relative to a job with as many workers and servers as the request has GPUs [ppm]."""
    requested = sizes.requested[wish.job]
    return ppm(server_speed(models, np.maximum(wish.gpus, 1), servers) / server_speed(models, requested, requested))
