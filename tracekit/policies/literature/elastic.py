"""Policies for elastic jobs: Optimus, and those of the open-source Voda scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.optimal import take_chains
from tracekit.policies.literature.resizing import GAP, RESIZE, Sizes, Wish, ragged
from tracekit.policies.parameters import FIT, overhead
from tracekit.policies.plans import Planned
from tracekit.policies.service import read_thresholds
from tracekit.replay.assumptions.speeds import PPM, ppm, server_speed
from tracekit.replay.mechanisms import Plan, View

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints


_SOURCES = (
    "The open-source Voda scheduler: minimum first, then GPUs one by one, at most one plan every 30 s.",
    (
        "Our choices: the cost of a resize; running jobs keep their minimum unless preempt=on, so that they do not "
        "stop and restart because of long queues; preemption by GPU counts, with nodes chosen afterwards."
    ),
)


class _InOrder(Sizes):
    """Gives each job its minimum in order, then lets jobs grow."""

    def set_up(self) -> None:
        """Determine whether jobs have a fixed size."""
        super().set_up()
        self.rigid = not self.p["elastic"]
        self.settings["scope"] = 0 if self.rigid else 2

    def order(self, view: View) -> Ints:
        """Return the order of the jobs: by submission."""
        return np.arange(len(view.job))

    def plan(self, view: View) -> Plan:
        """Return the plan. If no job can change, only waiting jobs that fit start."""
        order, p = self.order(view), self.p
        if self.rigid and not p["preempt"]:
            waiting = view.job[order[view.held[order] == 0]]
            return Plan(waiting, self.gpus[waiting], keep=True, optional=len(waiting))
        wish = self.wish(view)
        job, held, gpus = wish.job, wish.held, wish.gpus
        doubling = p["steps"] == "double"
        self.give(wish, order, self.low[job], self.most[job], running_first=not p["preempt"], doubling=doubling)
        if not self.rigid:
            return self.resized(wish, order=order)
        named = order[((gpus != held) | (wish.pool != wish.before))[order]]
        # A job that was promised GPUs may not fit on the nodes. Waiting jobs may then use them.
        late = order[((gpus == 0) & (held == 0))[order]]
        line = np.concatenate([named, late])
        pool = np.where(gpus[line] > 0, wish.pool[line], -1)
        asked = np.where(np.arange(len(line)) < len(named), gpus[line], self.gpus[job[line]])
        return self.pools.plan(job[line], asked, pool, np.full(len(line), PPM))


class _ByRemainingTime(_InOrder):
    """Orders the jobs by their remaining run time."""

    def order(self, view: View) -> Ints:
        """Return the order of the jobs."""
        return np.argsort(view.remaining_ms + view.overhead_ms, kind="stable")


def _parameters(preempt: str) -> tuple[Parameter, ...]:
    return (
        Parameter("elastic", True, "whether jobs may run on more or fewer GPUs than they request"),
        Parameter("preempt", preempt == "on", "whether running jobs may be stopped for earlier jobs in the order"),
        Parameter("steps", "one", "whether jobs grow by one GPU at a time or double", ("one", "double")),
        GAP,
        Parameter("resize", 10.0, "cost of changing the number of GPUs [s]"),
        overhead("voda"),
        FIT,
    )


_RULE = (
    "When a job arrives or ends, but at most once every `gap` seconds, all GPUs are divided again. Jobs get their "
    "minimum in the order of {order}. A job is skipped if its minimum is not free. Then the same jobs, in the same "
    "order, repeatedly get one more GPU each, or double, up to their maximum. With preempt=off, running jobs get their "
    "minimum before waiting jobs. With preempt=on, running jobs are stopped if earlier jobs in the order leave too few "
    "GPUs. A change costs `resize` seconds. Gangs may be spread over nodes. Jobs that could not run on the GPUs they "
    "request are rejected. With elastic=off, jobs get the GPUs that they request, placed close together as in other "
    "policies."
)


class ElasticFifo(Planned):
    """Elastic jobs, first in, first out.

    Equal to
    --------
    - With elastic=off and gap=0, the policy equals fifo,scan=skip.
    - With elastic=off, preempt=on, gap=0, fit=count and overhead=none, the policy equals las,queues=none,scan=skip.
    - If the maxima of all jobs fit, every job gets its maximum.
    """

    plans = _InOrder
    card = Card(
        name="elastic-fifo",
        rule=_RULE.format(order="their submission"),
        parameters=_parameters("off"),
        assumptions=("D1", "D3", "M9", "M4"),
        sources=_SOURCES,
    )


class ElasticSrjf(Planned):
    """Elastic jobs, shortest remaining job first.

    Equal to
    --------
    - With elastic=off, preempt=off and gap=0, the policy equals sjf,scan=skip.
    - With elastic=off, gap=0, fit=count and overhead=none, the policy equals srtf,scan=skip,fit=count.
    """

    plans = _ByRemainingTime
    card = Card(
        name="elastic-srjf",
        rule=_RULE.format(order="their remaining run time on the GPUs they request"),
        parameters=_parameters("on"),
        assumptions=("D1", "D3", "M9", "M4"),
        sources=_SOURCES,
    )


_NEVER = 1 << 60


class _Queues(Sizes):
    """Plans by queue. A job's GPU time since it last started over determines its queue."""

    def set_up(self) -> None:
        """Read the upper limits of all queues except the last [GPU*ms]."""
        super().set_up()
        self.thresholds: Ints = np.array(read_thresholds(self.p["queues"]), np.int64)

    def begin(self, view: View) -> None:
        self.base = np.zeros(len(view.table), np.int64)
        """GPU time of each job before it last started over, which no longer counts (n,) [GPU*ms]."""

    def plan(self, view: View) -> Plan:
        """Return the plan: the GPUs of each job."""
        wish = self.wish(view)
        queue = self._find(view, wish)
        first = view.table["first"][wish.job]
        order = np.lexsort((np.where(first < 0, np.iinfo(np.int64).max, first), queue))
        self.give(wish, order, self.gpus[wish.job])
        self._shrink(wish, queue)
        # Among jobs without GPUs, the smallest come first, because their minimum gives the most speed per GPU. On a
        # concave curve, that is more than any additional GPU adds.
        waits = order[wish.gpus[order] == 0]
        least = self.low[wish.job]
        density = self.relative[least[waits]] / least[waits]
        if len(waits):
            self.give(wish, waits[np.argsort(-density, kind="stable")], least)
        place, gpus = self.steps(wish)
        self.grow(wish, place, self.relative[gpus + 1] - self.relative[gpus], order)
        due, gap_ms = self._next_ms(view, wish), round(self.p["gap"] * 1000)
        return self.resized(wish, wake_ms=max(due, view.now_ms + gap_ms) if due >= 0 else -1)

    def _find(self, view: View, wish: Wish) -> Ints:
        """Return the queue of each job. Jobs that have waited long enough start over in the first queue (k,)."""
        table, job = view.table, wish.job
        attained = table["attained"]
        waits = job[wish.held == 0]
        late = waits[self._patience_ms(view, waits, np.zeros(len(waits), np.bool_)) <= view.now_ms]
        self.base[late] = attained[late]
        return np.searchsorted(self.thresholds, attained[job] - self.base[job], side="right")

    def _next_ms(self, view: View, wish: Wish) -> int:
        """Return the next time at which a job changes queues if no job arrives or ends, or -1 for never [ms]."""
        had = view.table["attained"][wish.job] - self.base[wish.job]
        queue = np.searchsorted(self.thresholds, had, side="right")
        runs = np.flatnonzero((wish.gpus > 0) & (queue < len(self.thresholds)))
        falls = view.now_ms - (had[runs] - self.thresholds[queue[runs]]) // wish.gpus[runs]
        idle = (wish.gpus == 0) & (had > 0)
        waits = self._patience_ms(view, wish.job[idle], wish.held[idle] > 0)
        due = np.concatenate([falls, waits[waits > view.now_ms]])
        return int(due.min()) if len(due) and due.min() < _NEVER else -1

    def _patience_ms(self, view: View, job: Ints, stops: Bools) -> Ints:
        """Return the time at which jobs that wait or stop now start over in the first queue [ms]."""
        if self.p["promote"] == 0 or not len(job):
            return np.full(len(job), _NEVER)
        begun, stopped = view.table["begun"][job], view.table["stopped"][job]
        stopped = np.where(stops, view.now_ms, stopped)
        due = stopped + np.minimum((stopped - begun) * self.p["promote"], _NEVER // 2).astype(np.int64)
        return np.where(view.table["first"][job] >= 0, due, _NEVER)

    def _shrink(self, wish: Wish, queue: Ints) -> None:
        """In domains with too many jobs without GPUs, shrink jobs behind the first queue to their minimum."""
        domain = self.pools.kind_domain[self.pools.kind[wish.job]]
        crowded = np.bincount(domain[wish.gpus == 0], minlength=int(domain.max(initial=0)) + 1) > self.p["crowd"]
        mine = np.flatnonzero((wish.gpus > 0) & (queue > 0) & crowded[domain])
        least = self.low[wish.job[mine]]
        np.add.at(wish.free, wish.pool[mine], wish.gpus[mine] - least)
        wish.gpus[mine] = least


class ElasticTiresias(Planned):
    """Elastic jobs, least GPU time so far first (Voda's elastic Tiresias).

    A job begins in the first queue and falls to the next queue when its GPU time so far reaches a threshold. A job that
    has waited `promote` times as long as its last run starts over in the first queue. At most once every `gap` seconds,
    all GPUs are divided again. Jobs in an earlier queue come first, and inside a queue the job that started first. Each
    job gets its request. A job for which too few GPUs are free is skipped. If more than `crowd` jobs remain without
    GPUs, the jobs behind the first queue shrink to their minimum. The remaining GPUs go where each adds the most speed:
    to jobs without GPUs, whose gain is their speed at the minimum per GPU, and to the others one GPU at a time, up to
    their maximum. Run times need not be known. Gangs may be spread over nodes.

    Equal to
    --------
    - If no job is elastic (rigid), with queues=none, gap=0 and fit=count, the policy equals fifo,scan=skip,fit=count.
    - If the maxima of all jobs fit, every job gets its maximum.

    Sources
    -------
    - The open-source Voda scheduler: queues, thresholds, order, and shrinking with a limit of 10 jobs.
    - Our choices: speed comes from M8 instead of measurements; the cost of a change; ties between equal gains go by
      queue order; jobs without GPUs are counted per domain.
    """

    plans = _Queues
    card = Card(
        name="elastic-tiresias",
        parameters=(
            Parameter("queues", "3600", "GPU times at which jobs fall to the next queue, such as 3250/7200 [GPU*s]"),
            Parameter(
                "promote",
                8.0,
                "a job that has waited this many times as long as its last run starts over in the first queue; 0: "
                "never",
            ),
            Parameter("crowd", 10, "number of jobs without GPUs above which jobs behind the first queue shrink"),
            GAP,
            Parameter("resize", 10.0, "cost of changing the number of GPUs [s]"),
            overhead("voda"),
            FIT,
        ),
        assumptions=("D1", "D3", "M9", "M4"),
    )


class _Futures(Sizes):
    """Hands out GPUs one by one by comparing jobs in pairs."""

    def plan(self, view: View) -> Plan:
        """Return the plan: the GPUs of each job."""
        from tracekit.replay.kernel import divide_by_pairs

        wish = self.wish(view)
        low, high = self.low[wish.job], self.most[wish.job]
        work = view.remaining_ms * self.relative[self.gpus[wish.job]]
        self.give(wish, np.argsort(work / self.relative[low], kind="stable"), low)
        for line, free in self.contended(wish):
            wish.gpus[line] = 0
            room = np.zeros(2 * len(line), np.int64)
            divide_by_pairs(line, work, low, high, self.relative, free, wish.gpus, room)
        return self.resized(wish)


class AfsL(Planned):
    """Elastic jobs, where the next GPU goes to the shorter job unless the longer job gains more from it (AFS-L).

    When a job arrives or ends, but at most once every `gap` seconds, all GPUs are divided again, one at a time. A job's
    first step is its minimum. Two jobs are compared by their remaining time on the GPUs that they have received so far.
    The longer job wins if the GPU raises its speed, relative to its new speed, by more than the shorter job's speed,
    relative to its old speed. If neither has GPUs, the shorter job wins. The GPU goes to the winner of a knockout
    tournament in submission order. This repeats until no GPU is left or all jobs have their maximum. Jobs take part if
    their minimum fits, the shortest first. The others are skipped. Jobs that end up without GPUs are stopped. The
    remaining times are known. Gangs may be spread over nodes.

    Equal to
    --------
    - If no job is elastic (rigid), with gap=0, fit=count and overhead=none, the policy equals srtf,scan=skip,fit=count.
    - If the maxima of all jobs fit, every job gets its maximum.

    Sources
    -------
    - Hwang et al., AFS (NSDI'21): the comparison. Voda's port of AFS: the planning, minimum and maximum.
    - Our choices: each job's remaining time depends on its own GPUs (Voda's port uses the first job's); the order of
      the pairs is fixed, because it matters if the comparison is circular; speed comes from M8.
    """

    plans = _Futures
    card = Card(
        name="afs-l",
        parameters=(
            GAP,
            Parameter("resize", 10.0, "cost of changing the number of GPUs [s]"),
            overhead("voda"),
            FIT,
        ),
        assumptions=("D1", "D3", "M9", "M4"),
    )


class _Speedups(Sizes):
    """Divides GPUs to maximize the sum of speedups."""

    def plan(self, view: View) -> Plan:
        """Return the plan: the GPUs of each job."""
        wish = self.wish(view)
        # The earliest jobs take part, as many as there are GPUs. Each is first promised one GPU.
        self.give(wish, np.arange(len(wish.job)), np.ones(len(wish.job), np.int64))
        for line, capacity in self.contended(wish):
            low, high = self.low[wish.job[line]], self.most[wish.job[line]]
            # Each job has one step to its minimum, and one for each additional GPU.
            row, step = ragged(high - low + 1)
            size = np.where(step == 0, low[row], 1)
            after = low[row] + step
            gain = self.relative[after] - np.where(step == 0, 0.0, self.relative[after - size])
            taken = take_chains(row, size, gain, capacity, rows=len(line), core=self.p["core"])
            wish.gpus[line] = np.where(taken > 0, low + taken - 1, 0)
        return self.resized(wish)


class FfdlOptimizer(Planned):
    """Elastic jobs, with GPUs divided to maximize the sum of speedups (FfDL's optimizer).

    When a job arrives or ends, but at most once every `gap` seconds, all GPUs are divided again among the earliest
    jobs, as many as there are GPUs. Each job gets no GPU or a number from its minimum to its maximum. The division
    maximizes the sum of the jobs' speeds, each relative to its speed on one GPU. GPUs go where each adds most, and a
    minimum is given all at once. Among equals, minima go first, then earlier jobs. If the next step does not fit, an
    integer program reconsiders `core` jobs on either side of it, unless it could add less than a thousandth. A job that
    gets no GPU waits, and is stopped if it was running. Run times need not be known. Gangs may be spread over nodes.

    Equal to
    --------
    - If the maxima of all jobs fit, every job gets its maximum.
    - With gap=0 and one-GPU jobs that cannot grow, the policy equals fifo with eviction by earlier jobs.

    Sources
    -------
    - Jayaram et al., FfDL (Middleware'19), and Saxena et al. (MASCOTS'20): the sum of speedups.
    - The open-source Voda scheduler: as many jobs as GPUs, by submission; plans at most once every 30 s.
    - Our choices: minima are respected, so a job may get no GPUs (Voda's port allows any number from one on); an exact
      step near the end instead of dynamic programming over all jobs; speed comes from M8.
    """

    plans = _Speedups
    card = Card(
        name="ffdl-optimizer",
        parameters=(
            Parameter(
                "core",
                12,
                "number of jobs that an integer program reconsiders on either side of the first job that does not fit",
            ),
            GAP,
            Parameter("resize", 10.0, "cost of changing the number of GPUs [s]"),
            overhead("voda"),
            FIT,
        ),
        assumptions=("D1", "D3", "M9", "M4"),
    )


# Gains that differ by less than this share count as equal, because of rounding.
_TIE = 1e-9


@dataclass(frozen=True)
class _Paths:
    """The sequence in which jobs of each of K sizes take workers and servers, with one row of steps per size."""

    size: Ints
    """Row of each job (n,)."""
    first: Ints
    """First step of each row (K,)."""
    count: Ints
    """Number of steps of each row (K,)."""
    gain: Floats
    """Time that each step saves per unit of work, never increasing inside a row."""
    worker: Ints
    """Whether each step adds a worker (1) or a server (0)."""


class _Gains(Sizes):
    """Hands out GPUs and servers one by one, each where it shortens the remaining time most."""

    def set_up(self) -> None:
        """Compute the order in which jobs take workers and servers."""
        super().set_up()
        self.interval_ms = self.settings["round_ms"] = round(self.p["interval"] * 1000)
        if self.p["servers"]:
            self.paths = self._paths()

    def plan(self, view: View) -> Plan:
        """Return the plan: the GPUs of each job."""
        wish = self.wish(view)
        # Exclude the cost of the last change. Otherwise the remaining time of jobs that keep changing would grow.
        left = view.remaining_ms
        order = np.argsort(left, kind="stable")
        rate, also = None, None
        if self.p["servers"]:
            servers = self._with_servers(wish, order, left)
            # Speeds are relative to a job with as many workers and as many servers as it requests GPUs.
            asked = self.gpus[wish.job]
            speed = server_speed(self.models, np.maximum(wish.gpus, 1), servers)
            rate, also = ppm(speed / server_speed(self.models, asked, asked)), wish.gpus > 0
        else:
            self.give(wish, order, self.low[wish.job])
            place, gpus = self.steps(wish)
            work = left * self.relative[self.gpus[wish.job]]
            self.grow(wish, place, work[place] * (1 / self.relative[gpus] - 1 / self.relative[gpus + 1]))
        again = self.interval_ms and (also is not None or self.unfinished(wish))
        return self.resized(wish, rate, also=also, wake_ms=view.now_ms + self.interval_ms if again else -1)

    def _paths(self) -> _Paths:
        """Return the steps of every job size. Each step adds a worker, or a server if that gains more."""
        requested, size = np.unique(self.gpus, return_inverse=True)
        place = np.zeros(len(requested), np.int64)
        place[size] = np.arange(len(size))
        count, gains, workers = [], [], []
        for low, high in zip(self.low[place].tolist(), self.most[place].tolist(), strict=True):
            w, p, worth, steps = low, 1, np.inf, 0
            while True:
                now = 1 / float(server_speed(self.models, w, p))
                by_worker = now - 1 / float(server_speed(self.models, w + 1, p)) if w < high else -1.0
                by_server = now - 1 / float(server_speed(self.models, w, p + 1)) if p < high else -1.0
                best = max(by_worker, by_server)
                if best <= 0:
                    break
                # A large gain after a small one counts as equally small, so each job takes its steps in order.
                worth = min(worth, best)
                gains.append(worth)
                workers.append(int(by_worker >= by_server * (1 - _TIE)))
                w, p, steps = w + workers[-1], p + 1 - workers[-1], steps + 1
            count.append(steps)
        counts = np.array(count, np.int64)
        return _Paths(size, np.cumsum(counts) - counts, counts, np.array(gains), np.array(workers, np.int64))

    def _with_servers(self, wish: Wish, order: Ints, left: Ints) -> Ints:
        """Divide GPUs and server places. Return the servers of each job that has GPUs, and 1 for other jobs (k,)."""
        places = (wish.free * self.models.servers.per_gpu).astype(np.int64)
        self.give(wish, order, self.low[wish.job])
        # Every job has a server, so a pool runs at most as many jobs as it has places for servers.
        for p in range(len(places)):
            mine = order[(wish.pool[order] == p) & (wish.gpus[order] > 0)][places[p] :]
            wish.free[p] += int(wish.gpus[mine].sum())
            wish.gpus[mine] = 0
        places -= np.bincount(wish.pool[wish.gpus > 0], minlength=len(places))
        runs = np.flatnonzero(wish.gpus > 0)
        kind = self.paths.size[wish.job[runs]]
        row, step = ragged(self.paths.count[kind])
        at, place = self.paths.first[kind][row] + step, runs[row]
        one = server_speed(self.models, self.gpus[wish.job], self.gpus[wish.job])
        line = np.argsort(-(left * one)[place] * self.paths.gain[at], kind="stable")
        servers = np.ones(len(wish.job), np.int64)
        for p in range(len(places)):
            mine = line[wish.pool[place[line]] == p]
            worker = self.paths.worker[at[mine]]
            room = (np.cumsum(worker) <= wish.free[p]) & (np.cumsum(1 - worker) <= places[p])
            mine, worker = mine[room], worker[room]
            wish.free[p] -= int(worker.sum())
            wish.gpus += np.bincount(place[mine], worker, len(wish.job)).astype(np.int64)
            servers += np.bincount(place[mine], 1 - worker, len(wish.job)).astype(np.int64)
        return servers


class Optimus(Planned):
    """Each GPU goes to the job whose remaining time it shortens most (Optimus).

    At every interval, all GPUs are divided again. Jobs get their minimum in the order of remaining run time. A job is
    skipped if its minimum is not free. Then the GPUs go one at a time to the job whose remaining time falls most, up to
    its maximum, until no job gains or the next job in line finds no GPU. With servers=on, each job also has one
    parameter server, and each step may add a server instead of a GPU, whichever helps the job more. The division ends
    when the next job in line finds no GPU or no place for a server. The remaining times are known. Gangs may be spread
    over nodes.

    Equal to
    --------
    - If no job is elastic (rigid), with interval=0, fit=count and overhead=none, the policy equals
      srtf,scan=skip,fit=count.
    - If more GPUs make no job faster (sigma = 1), every job gets its minimum.
    - If the maxima of all jobs fit, every job gets its maximum.

    Sources
    -------
    - Peng et al., Optimus (EuroSys'18), as in its first author's later simulator (DL2): absolute gain, at least one
      worker and one server, and ending at the first job that does not fit.
    - Our choices: remaining times are known instead of fitted to a loss curve; minima come from D3 and go to jobs by
      least remaining time; a job has no more servers than its maximum number of workers; 600 s, from memory.
    """

    plans = _Gains
    card = Card(
        name="optimus",
        parameters=(
            Parameter("interval", 600.0, "time between two plans, or 0 for every event [s]"),
            Parameter("servers", False, "whether jobs have parameter servers, whose number the policy chooses (M28)"),
            RESIZE,
            overhead("pollux"),
            FIT,
        ),
        assumptions=("D1", "D3", "M28", "M9", "M4"),
    )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The card's assumptions, excluding M28 if there are no servers."""
        return tuple(name for name in self.card.assumptions if name != "M28" or self.parameters["servers"])
