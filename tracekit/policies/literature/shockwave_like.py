"""After Shockwave: rounds are planned over a future window by Nash welfare and the longest remaining time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.optimal import sparse
from tracekit.policies.literature.resizing import ragged
from tracekit.policies.literature.turns import Turns, next_slice
from tracekit.policies.parameters import overhead
from tracekit.policies.plans import Planned

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.mechanisms import Plan, View
    from tracekit.replay.outcome import Outcome


_POINTS = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
_VALUES = np.log(np.maximum(_POINTS, 1e-6))
_SLOPES = np.diff(_VALUES) / np.diff(_POINTS)
_TRIED = 5
"""Number of bounds on the longest remaining time that the greedy solver tries."""


def log_progress(progress: Floats) -> Floats:
    """Return the logarithm of progress [0..1], interpolated linearly between 0 (as log(1e-6)), 0.2, ... 1."""
    return np.asarray(np.interp(progress, _POINTS, _VALUES))


@dataclass(frozen=True)
class Window:
    """The jobs of a window of rounds. k jobs, P pools."""

    gpus: Ints
    """GPUs of each job (k,)."""
    pool: Ints
    """Pool of each job (k,)."""
    capacity: Ints
    """GPUs of each pool (P,)."""
    left: Floats
    """Remaining run time of each job [rounds] (k,)."""
    whole: Floats
    """Total run time of each job, above 0 [rounds] (k,)."""
    weight: Floats
    """Weight of each job in the welfare (k,)."""
    need: Floats
    """Run time that each job must get in the window, at most its remaining time [rounds] (k,)."""
    rounds: int
    """Number of rounds in the window."""
    k: float
    """Price per round of the longest remaining time."""

    def value(self, planned: Floats) -> float:
        """Return the objective if each job gets this many rounds (k,)."""
        done = np.minimum(planned, self.left)
        progress = (self.whole - self.left + done) / self.whole
        welfare = float((self.weight * log_progress(progress)).sum()) / (self.rounds * len(self.left))
        return welfare - self.k * float((self.left - done).max(initial=0.0))


class Solved(NamedTuple):
    """Result of the program."""

    rounds: Bools | None
    """Whether each job runs in each round (k, T), or None if no solution was found."""
    impossible: bool
    """Whether it is impossible to meet all needs."""
    stopped: bool
    """Whether the limit ended the search."""


def greedy(window: Window) -> Ints | None:
    """Return the number of rounds of each job (k,), or None if the needs do not fit in the window.

    Needs come first, then rounds by their gain in welfare per GPU, while the window's GPUs last. This is repeated for
    several bounds on the longest remaining time, and the best result is used. The solver does not check whether gangs
    fit together in each round.
    """
    most = np.minimum(np.ceil(window.left - 1e-9), window.rounds).astype(np.int64)
    need = np.minimum(np.ceil(window.need - 1e-9), most).astype(np.int64)
    room = window.capacity * window.rounds
    long = bool((window.need > window.rounds + 1e-9).any())
    if long or (np.bincount(window.pool, need * window.gpus, len(room)) > room).any():
        return None
    row, step = ragged(most)
    begun = window.whole - window.left
    ends = np.minimum(step + 1.0, window.left[row])
    gain = log_progress((begun[row] + ends) / window.whole[row]) - log_progress((begun[row] + step) / window.whole[row])
    density = window.weight[row] * gain / window.gpus[row]
    order = np.argsort(-density, kind="stable")
    longest = float(window.left.max(initial=0.0))
    best, found = -np.inf, np.zeros(len(most), np.int64)
    for part in np.linspace(0, window.rounds, _TRIED if window.k > 0 else 1):
        bound = np.clip(np.ceil(window.left - (longest - part) - 1e-9), 0, None).astype(np.int64)
        asked = np.minimum(np.maximum(need, bound), most)
        if (np.bincount(window.pool, asked * window.gpus, len(room)) > room).any():
            break
        line = order[np.argsort(step[order] >= asked[row[order]], kind="stable")]
        taken = np.zeros(len(most), np.int64)
        for p in range(len(room)):
            mine = line[window.pool[row[line]] == p] if len(room) > 1 else line
            fits = np.cumsum(window.gpus[row[mine]]) <= room[p]
            taken += np.bincount(row[mine[fits]], minlength=len(most))
        value = window.value(taken.astype(np.float64))
        if value > best + 1e-12:
            best, found = value, taken
    return found


def solve(window: Window, limit_s: float, gap: float) -> Solved:
    """Return the best rounds that the program (HiGHS) finds.

    Parameters
    ----------
    limit_s : float
        Time limit of the program [s], after which its best solution is used.
    gap : float
        Accepted gap to the optimum, as a share.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    jobs, rounds, pieces = len(window.left), window.rounds, len(_SLOPES)
    # Columns: each job's rounds, its planned time, the pieces of its logarithm, and the longest remaining time.
    planned, piece = jobs * rounds, jobs * (rounds + 1)
    longest = piece + jobs * pieces
    at = np.arange(jobs)
    of_round, of_piece = np.repeat(at, rounds), np.repeat(at, pieces)
    load = (window.pool[of_round] * rounds + np.tile(np.arange(rounds), jobs)) + 3 * jobs
    one = np.ones
    parts = [
        # The planned time is at most the number of rounds given.
        (at, planned + at, one(jobs)),
        (of_round, np.arange(planned), -one(planned)),
        # The pieces sum to the progress, relative to a job's total work.
        (jobs + of_piece, piece + np.arange(jobs * pieces), window.whole[of_piece]),
        (jobs + at, planned + at, -one(jobs)),
        # The longest remaining time is at least the remaining time of every job.
        (2 * jobs + at, np.full(jobs, longest), one(jobs)),
        (2 * jobs + at, planned + at, one(jobs)),
        # GPUs of each round.
        (load, np.arange(planned), window.gpus[of_round].astype(np.float64)),
    ]
    matrix = sparse(parts, 3 * jobs + len(window.capacity) * rounds, longest + 1)
    begun = window.whole - window.left
    endless = np.full(jobs, np.inf)
    room = np.repeat(window.capacity.astype(np.float64), rounds)
    limits = LinearConstraint(
        matrix,
        np.concatenate([-endless, begun, window.left, np.full(len(room), -np.inf)]),
        np.concatenate([np.zeros(jobs), begun, endless, room]),
    )
    lower, upper = np.zeros(longest + 1), one(longest + 1)
    lower[planned:piece], upper[planned:piece] = np.minimum(window.need, window.left), window.left
    upper[piece:longest], upper[longest] = np.tile(np.diff(_POINTS), jobs), np.inf
    cost = np.zeros(longest + 1)
    cost[piece:longest] = -np.repeat(window.weight, pieces) * np.tile(_SLOPES, jobs) / (rounds * jobs)
    cost[longest] = window.k
    scale = float(np.abs(cost).max())
    whole = (np.arange(longest + 1) < planned).astype(np.int64)
    options: Any = {"time_limit": limit_s, "mip_rel_gap": gap}
    found: Any = milp(
        cost / scale if scale > 0 else cost,
        integrality=whole,
        bounds=Bounds(lower, upper),
        constraints=limits,
        options=options,
    )
    if found.x is None:
        return Solved(None, found.status == 2, found.status == 1)
    chosen = np.asarray(found.x)[:planned].reshape(jobs, rounds) > 0.5
    return Solved(chosen, False, found.status == 1)


_HEAVIEST = math.log(1e6)
_AT_THE_END = 100.0
"""Exponent of the weight of a job with less than one round left."""


class _Windows(Turns):
    """Plans by windows of rounds."""

    def set_up(self) -> None:
        """Read the length of a round."""
        super().set_up()
        self.round_ms = max(round(self.p["round"] * 1000), 1)
        # Here the parameter `gap` belongs to the integer program.
        self.settings.update(round_ms=self.round_ms, gap_ms=0, tell=self.tell)
        self.submit_ms, self.work_ms = self.jobs.submit_ms, np.maximum(self.jobs.work_ms, 1)

    def begin(self, view: View) -> None:
        self.contended: Floats = np.zeros(len(self.jobs))
        """Integral, since each job's arrival, of the jobs per GPU, counted as at least 1 [ms] (n,)."""
        self.seen_ms = 0
        self.begun_ms: Ints = self.jobs.work_ms.copy()
        """Remaining time of each job when it last waited [ms] (n,)."""
        self.of: Ints = np.zeros(0, np.int64)
        """Jobs of the window, in the order of the view (k,)."""
        self.table: Bools | None = None
        """Whether each job runs in each round (k, T), or None if only the numbers of rounds are known."""
        self.counts: Ints = np.zeros(0, np.int64)
        """Number of rounds that each job still has (k,)."""
        self.weight: Floats = np.zeros(0)
        self.at = 0
        """Number of completed rounds of the window."""
        self.pool: Ints = np.zeros(0, np.int64)
        self.windows = self.relaxed = self.programs = self.stopped = self.failed = 0

    def plan(self, view: View) -> Plan:
        """Return the plan for the round that begins."""
        job, now = view.job, view.now_ms
        running = self.pools.held(view)
        free = self.pools.capacity(view, running)
        pool = self._pools(job, running, free)
        crowd = np.maximum(np.bincount(pool, minlength=len(free)) / np.maximum(free, 1), 1.0)
        since = np.maximum(self.submit_ms[job], self.seen_ms)
        self.contended[job] += crowd[pool] * (now - since)
        self.seen_ms = now
        # Exclude the cost of the last change. Otherwise the remaining time of jobs that keep changing would grow.
        left = view.remaining_ms
        # Jobs without progress since their start continue. Otherwise no job would end if rounds are shorter than a
        # restart.
        stuck = (running >= 0) & (left >= self.begun_ms[job])
        self.begun_ms[job[running < 0]] = left[running < 0]
        gpus = self.gpus[job]
        asked = np.bincount(pool, gpus, len(free))
        if (asked <= free).all():
            # If all jobs fit, no planning is needed.
            self.of = self.of[:0]
            order = np.arange(len(job))
            chosen = self.choose(job, order, running, free)
        else:
            if self.at >= self.p["window"] or not np.array_equal(job, self.of):
                self._share_out(job, pool, free, left, now, crowd)
            order = self._order(running, left)
            order = order[np.argsort(~stuck[order], kind="stable")]
            chosen = self.choose(job, order, running, free)
            self.counts -= (chosen >= 0) & (self.counts > 0)
            self.at += 1
        wake = next_slice(now, self.round_ms) if (chosen < 0).any() else -1
        return self.moved(job, running, chosen, wake)

    def _pools(self, job: Ints, running: Ints, free: Ints) -> Ints:
        """Return the pool where each job counts: its current pool, or else the least requested pool that it may use."""
        if len(free) == 1:
            return np.zeros(len(job), np.int64)
        gpus, found = self.gpus[job], running.copy()
        load = np.bincount(running[running >= 0], gpus[running >= 0], len(free)).astype(np.float64)
        kind = self.pools.kind[job]
        for i in np.flatnonzero(running < 0).tolist():
            may = (self.speed[kind[i]] > 0) & (free > 0)
            found[i] = int(np.where(may, load / np.maximum(free, 1), np.inf).argmin()) if may.any() else 0
            load[found[i]] += gpus[i]
        return found

    def _share_out(self, job: Ints, pool: Ints, free: Ints, left: Ints, now: int, crowd: Floats) -> None:
        """Plan the rounds of a new window."""
        p, rounds = self.p, int(self.p["window"])
        age = (now - self.submit_ms[job]).astype(np.float64)
        crowded = np.where(age > 0, self.contended[job] / np.maximum(age, 1), crowd[pool])
        fair = p["rhomax"] * self.work_ms[job] * crowded
        need = np.zeros(len(job))
        if np.isfinite(p["rhomax"]):
            # The expected end after the window must not be later than the fair end.
            need = left - (fair - age - rounds * self.round_ms) / crowd[pool]
        window = Window(
            gpus=self.gpus[job],
            pool=pool,
            capacity=free,
            left=np.maximum(left, 1) / self.round_ms,
            whole=np.maximum(self.work_ms[job], left) / self.round_ms,
            weight=np.ones(len(job)),
            need=np.maximum(need, 0) / self.round_ms,
            rounds=rounds,
            k=p["k"] * p["round"],
        )
        self.windows += 1
        self.of, self.at, self.weight = job, 0, window.weight
        if (need > left).any() or not self._decide(window):
            self.relaxed += 1
            rho = (age + left * crowd[pool]) / np.maximum(fair, 1)
            power = np.where(left < self.round_ms, _AT_THE_END, p["power"])
            heavy = np.exp(np.minimum(power * np.log(np.maximum(rho, 1e-300)), _HEAVIEST))
            self.weight = np.where(rho > 1, heavy, 1.0)
            self._decide(replace(window, weight=self.weight, need=np.zeros(len(job))))

    def _decide(self, window: Window) -> bool:
        """Plan the rounds of a window. Return False if the needs cannot be met."""
        self.table = None
        if self.p["solver"] == "program" and len(window.left) * window.rounds <= self.p["cells"]:
            self.programs += 1
            solved = solve(window, self.p["limit"], self.p["gap"])
            self.stopped += solved.stopped
            if solved.impossible:
                return False
            if solved.rounds is not None:
                self.table, self.counts = solved.rounds, solved.rounds.sum(axis=1)
                return True
            self.failed += 1
        counts = greedy(window)
        if counts is None:
            return False
        self.counts = counts
        return True

    def _order(self, running: Ints, left: Ints) -> Ints:
        """Return the order of jobs in this round: planned jobs, the heaviest first, then the longest remaining jobs."""
        waits = running < 0
        if self.table is not None:
            now = self.table[:, self.at]
            return np.lexsort((waits, -left, ~now))
        has = self.counts > 0
        # A job that needs all remaining rounds of the window cannot wait.
        late = self.counts < int(self.p["window"]) - self.at
        by_left = np.where(has, 0, -left)
        return np.lexsort((by_left, -self.counts, waits, late, np.where(has, -self.weight, 0.0), ~has))

    def tell(self, outcome: Outcome) -> Outcome:
        """Return the outcome with a summary of the windows."""
        value = f"{self.windows:,} windows planned, {self.relaxed:,} of them without the bound on the finish-time ratio"
        if self.p["solver"] == "program":
            value += (
                f"; {self.programs:,} programs were solved, of which {self.stopped:,} hit the limit with the best "
                f"solution so far, or with none ({self.failed:,}, planned greedily)"
            )
        fact = {"title": "windows of rounds", "value": value, "source": "the engine"}
        return replace(outcome, facts={**outcome.facts, "windows": fact})


class ShockwaveLike(Planned):
    """Rounds planned by Nash welfare and the longest remaining time over a future window (after Shockwave).

    Time is divided into rounds. When a job arrives or ends, or a window of rounds ends, the rounds of the next window
    are planned. The plan maximizes the sum of the logarithms of the jobs' progress, minus `k` per second of the longest
    remaining run time. The sum is divided by the numbers of jobs and rounds. The logarithm is interpolated linearly
    between progress values of 0, 0.2, ... 1, with log(1e-6) at 0. Every job's expected end after the window must be at
    most `rhomax` times its fair end. The fair end is the submission plus the run time times the number of jobs per GPU,
    averaged since the job arrived and counted as at least 1. If this bound cannot be met, it is dropped, and each job
    beyond it gets a weight of at most 1e6: its ratio to the bound, raised to `power` (100 if less than a round is
    left). GPUs that are idle in a round go to the jobs with the longest remaining run time. With solver=program, an
    integer program solves this in whole rounds. With solver=greedy, rounds are taken by their gain per GPU, for several
    bounds on the longest remaining run time. If all jobs fit, all jobs run. A job is not stopped before it has made
    progress. Run times are known. Gangs may be spread over nodes.

    Equal to
    --------
    - With solver=program, k=0, rhomax=inf and window=1, each round runs the jobs whose logarithms of progress grow most
      in total.
    - With solver=program, rhomax=inf and a large k, the longest remaining run time after a window is as short as
      possible.
    - If all jobs fit, every job starts with the next round and no job is stopped.

    Sources
    -------
    - Zheng et al., Shockwave (NSDI'23), as in its released code: the objective, the fair finish by jobs per GPU
      regardless of gang sizes, the relaxed program and its weights, the jobs that get idle GPUs, rounds of 120 s,
      windows of 20 rounds, gap and limit; `k` and `power` are the values given for 32 GPUs (for 64, 128 and 256 GPUs:
      10 and 5, 0.001 and 15, 1e5 and 5).
    - Our choices: the greedy solver is the default, because programs over hundreds of jobs take minutes; each job has
      one regime with a known run time, because no trace records batch sizes. So the paper's subject, forecasting
      efficiency that changes during a run, is missing here. Ratios use times since submission, while the code divides
      times since the start of the log; the maximum weight; a job that accepts several GPU models counts towards the
      model in least demand.
    """

    plans = _Windows
    card = Card(
        name="shockwave-like",
        parameters=(
            Parameter("round", 120.0, "length of a round [s]", minimum=0.001, maximum=1e9),
            Parameter("window", 20, "number of rounds planned at once", minimum=1, maximum=10_000),
            Parameter("k", 0.001, "price of the longest remaining run time [1/s]", maximum=1e9),
            Parameter(
                "rhomax", 1.0, "bound on the ratio of expected to fair time, or inf for no bound [1]", maximum=math.inf
            ),
            Parameter("power", 12.0, "exponent for the weight of jobs beyond the bound [1]", maximum=1000),
            Parameter("solver", "greedy", "how to plan windows", ("greedy", "program")),
            Parameter("limit", 15.0, "time limit of a program, after which its best solution is used [s]"),
            Parameter("gap", 0.001, "accepted gap of a program to the optimum, as a share [1]"),
            Parameter(
                "cells",
                2000,
                "maximum number of pairs of a job and a round in a program; larger windows use the greedy solver",
            ),
            overhead("shockwave"),
        ),
        assumptions=("D1", "M9", "M4"),
    )
