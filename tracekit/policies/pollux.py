"""Pollux: GPUs where they raise a power mean of the jobs' speedups most, with or without profiles of the jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracekit.policies.divisions import Bounds
from tracekit.policies.goodput import SpeedTable, goodput_table, plain_table
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT
from tracekit.policies.pools import make_pools, settle_pools
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.speeds import PPM, elastic_bounds, elastic_ppm, ppm
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


# The fitness of Pollux, a power mean of speedups, and the genetic search for the division in which it is largest.

_NOTHING = 1e-3
"""Speedup of a job without GPUs, instead of 0."""


def worths(
    gpus: NDArray[np.int64], rows: NDArray[Any], speed: NDArray[np.float64], power: float
) -> NDArray[np.float64]:
    """Return each job's contribution to the mean in each of several divisions: numbers that rise with speedups.

    Parameters
    ----------
    gpus : array (m, k)
        Divisions.
    rows : array (k,)
        FitnessRows.
    speed : array
        Speeds of all kinds of jobs.
    power : float
        Exponent of the mean.
    """
    speedup = speed[rows["first"] + gpus] / rows["fair"]
    speedup = np.where(gpus != rows["held"], speedup * rows["factor"], speedup)
    speedup = np.maximum(np.where(gpus > 0, speedup, _NOTHING), _NOTHING)
    if power == 0:
        return np.asarray(np.log(speedup))
    return np.asarray(np.sign(power) * speedup**power)


def power_mean(total: float, jobs: int, power: float) -> float:
    """Return the power mean of the speedups of some jobs whose worths have a sum."""
    if power == 0:
        return float(np.exp(total / jobs))
    return float((total / jobs / np.sign(power)) ** (1 / power))


def evolve(
    rows: NDArray[Any],
    free: NDArray[np.int64],
    speed: NDArray[np.float64],
    power: float,
    first: NDArray[np.int64],
    *,
    population: int,
    generations: int,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Return the best division found, at least as good as `first` (k,).

    Each generation has as many children as parents. A child has two parents, each the better of two drawn, and takes
    each number of GPUs from either. Then each number is drawn again with a chance of one in k. The best of parents and
    children survive.

    Parameters
    ----------
    rows : array (k,)
        FitnessRows; running jobs keep at least their minimum, waiting jobs have no GPU or at least their minimum.
    free : array (P,)
        GPUs of each pool beyond the minima of running jobs.
    speed, power
        As for `worths`.
    first : array (k,)
        A division to begin with.
    population, generations : int
        Divisions in a generation, and generations.
    random : Generator
        Source of all draws.
    """
    k = len(rows)
    if not k:
        return first
    held = np.clip(rows["held"], np.where(rows["held"] > 0, rows["low"], 0), rows["high"])
    least = np.where(rows["held"] > 0, rows["low"], 0)
    bounds = Bounds(least, rows["low"], rows["high"], rows["pool"], free)
    drawn = np.concatenate([held[None], bounds.drawn(population, random)])
    parents = np.concatenate([first[None], bounds.within(drawn, random)])
    score = worths(parents, rows, speed, power).sum(axis=1)
    for _ in range(generations):
        pairs = random.integers(0, len(parents), (2, 2, population))
        better = np.where(score[pairs[0]] >= score[pairs[1]], pairs[0], pairs[1])
        children = np.where(random.random((population, k)) < 0.5, parents[better[0]], parents[better[1]])
        changed = random.random((population, k)) < 1 / k
        children = bounds.within(np.where(changed, bounds.drawn(population, random), children), random)
        parents = np.concatenate([parents, children])
        score = np.concatenate([score, worths(children, rows, speed, power).sum(axis=1)])
        best = np.argsort(-score, kind="stable")[:population]
        parents, score = parents[best], score[best]
    found: NDArray[np.int64] = parents[int(score.argmax())]
    return found


_STREAM = 14
"""Seed of the random numbers."""
_LONGEST_MS = 10**13
"""No job is waited for longer [ms]."""


PROFILE = Parameter(
    "profile",
    "none",
    "applications of the jobs: none, by size (recorded GPU time), or one class for all (M43)",
    ("none", "size", "small", "medium", "large", "xlarge"),
    words=(
        "work is fixed",
        "batches adapt: applications by recorded GPU time",
        "batches adapt: all jobs are small applications",
        "batches adapt: all jobs are medium applications",
        "batches adapt: all jobs are large applications",
        "batches adapt: all jobs are very large applications",
    ),
)
"""Knowledge about a job's batches and steps: none, so its work is fixed, or a class of applications."""


class PolluxLite(Policy):
    """GPUs by a power mean of speedups."""

    card: ClassVar[Card] = Card(
        name="pollux-lite",
        title="GPUs go where they raise the power mean of speedups most (Pollux, by default without profiles)",
        rule=(
            "In rounds, GPUs are divided anew to make the power mean of all jobs' speedups large; p = -1 is the "
            "harmonic mean. A job's speedup is its speed over its speed with an equal share of the GPUs. If its "
            "number of GPUs changes, the speedup is multiplied by max(age - R * delta, 0) / (age + delta), with R "
            "past changes; a first start is exempt. Running jobs get their minimum. Then the GPUs go, step by "
            "step, where each gains most, to the earlier job among equals, up to the maximum. With search=genetic "
            "a seeded genetic search over divisions, with so many generations, improves that division. Running "
            "jobs are never stopped, and gangs may be spread over nodes. With profile=none the work of a job is "
            "fixed: no batch size adapts, so no job gets less efficient. With another profile work is goodput. "
            "Jobs are then applications (M43) with the best batch for their GPUs and for the noise of their "
            "gradients. The noise rises in stages with the work done, and a job's speed changes with its stage, "
            "at the next round. The recorded work counts as work on the recorded GPUs with a batch that did not "
            "adapt. Do not compare runs with a profile and runs without one."
        ),
        parameters=(
            PROFILE,
            Parameter("p", -1.0, "exponent of the mean: 1 is the sum, 0 the geometric mean", minimum=-2.0, maximum=1.0),
            Parameter("search", "greedy", "how to search for divisions", ("greedy", "genetic")),
            Parameter("population", 20, "divisions in a generation of the search", minimum=2, maximum=1000),
            Parameter("generations", 20, "generations of the search", maximum=1000),
            Parameter("round", 60.0, "time between two plans [s]", minimum=0.001),
            Parameter("delta", 30.0, "cost of a change in the fitness [s]"),
            Parameter("resize", 30.0, "cost of changing the number of GPUs [s]"),
            Parameter("overhead", "voda", "preset for the cost of each preemption and migration (M9)"),
            FIT,
        ),
        assumptions=("D1", "D3", "M43", "M9", "M4"),
        equal_to=(
            "With linear speed and equal jobs that arrive at once: the same number of GPUs for each, to within one.",
            "With profile=none, if the maxima of all jobs fit: every job gets its maximum.",
            (
                "With a profile whose applications have no fixed part, no exchange and no larger batches (M43): "
                "profile=none with linear speed."
            ),
        ),
        sources=(
            (
                "Qiao et al., Pollux (OSDI'21): fitness with p = -1, penalty, 60 s; goodput as throughput times "
                "efficiency (noise + 1) / (noise + m), steps of computing and exchange that overlap, 50 batch sizes; "
                "genetic search of 100 divisions in 100 generations, begun with earlier divisions."
            ),
            (
                "Own choices: steps of the largest gain instead of the genetic search, or before it, and fewer "
                "generations; running jobs are not stopped; a first start has no penalty; the maximum is that of "
                "D3, not twice the largest number so far; jobs on several nodes may share them; the numbers of "
                "M43."
            ),
        ),
    )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Those of the card; without profiles not theirs."""
        return tuple(name for name in self.card.assumptions if name != "M43" or self.parameters["profile"] != "none")

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans in rounds."""
        p = self.parameters
        rounds = _Rounds(jobs, cluster, models, seed, p)
        return Planner(
            rounds.plan,
            round_ms=rounds.round_ms,
            fit=p["fit"],
            scope=2,
            overhead_ms=overhead_ms(models, p["overhead"], np.arange(int(rounds.high.max(initial=1)) + 1)),
            resize_ms=round(p["resize"] * 1000),
        )


class _Rounds:
    """Plans of one policy."""

    def __init__(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int, given: dict[str, Any]) -> None:
        self.jobs, self.models, self.seed, self.given = jobs, models, seed, given
        self.requested = jobs.devices.astype(np.int64)
        self.low, self.high = elastic_bounds(models, self.requested)
        self.pools = make_pools(jobs, cluster, given["fit"])
        self.round_ms = max(round(given["round"] * 1000), 1)
        self.delta_ms = given["delta"] * 1000
        profile = given["profile"]
        self.table: SpeedTable = (
            plain_table(models, self.high) if profile == "none" else goodput_table(models, jobs, self.high, profile)
        )
        self.view: View | None = None
        self.stage = np.zeros(len(jobs), np.int64)
        """The stage of its training when each job was last planned (n,)."""

    def plan(self, view: View) -> Plan:
        """Return the GPUs of each job."""
        if view is not self.view:
            self.view = view
            self.stage[:] = 0
        job, held, before, pools, table = view.job, view.held, self.pools.held(view), self.pools, self.table
        low, high = self.low[job], self.high[job]
        free = np.maximum(pools.gpus(view), pools.used(before, held))
        stage = np.zeros(len(job), np.int64)
        if table.stages > 1:
            stage = table.stage(view.remaining_ms, self.jobs.work_ms[job])
        rows = np.zeros(len(job), struct_dtype("FitnessRow"))
        rows["held"], rows["low"], rows["high"] = held, low, high
        rows["gpus"] = np.where(held > 0, low, 0)
        rows["pool"] = settle_pools(before, pools, job, low, free)
        rows["first"] = table.rows(job, stage)
        sharing = np.bincount(rows["pool"], minlength=len(free))
        fair = np.clip((free / np.maximum(sharing, 1))[rows["pool"]], 1.0, rows["high"])
        rows["fair"] = table.between(rows["first"], fair)
        age = (view.now_ms - self.jobs.submit_ms[job]).astype(np.float64)
        changes = (view.table["migrations"][job] + view.table["preemptions"][job]).astype(np.float64)
        factor = np.maximum(age - changes * self.delta_ms, 0) / np.maximum(age + self.delta_ms, 1)
        rows["factor"] = np.where(view.attained_gpu_ms > 0, factor, 1.0)
        free -= np.bincount(before[before >= 0], low[before >= 0], len(free)).astype(np.int64)
        gpus = self._divided(rows, np.maximum(free, 0), view.now_ms)
        changed = gpus != held
        if table.stages > 1:
            # Who goes on as he is has another speed in another stage.
            changed |= (held > 0) & (stage != self.stage[job])
            self.stage[job] = stage
        named = np.flatnonzero(changed)
        named = named[np.argsort(-gpus[named], kind="stable")]
        if table.sigma is not None:
            rate = elastic_ppm(self.models, self.requested[job[named]], gpus[named])
        else:
            rate = ppm(table.speed[rows["first"][named] + gpus[named]])
        wake = -1
        if len(named) or (gpus < high).any():
            wake = view.now_ms + self.round_ms
        elif table.stages > 1:
            # At their maxima no job gains, however much time passes, until the speed of a job changes.
            left = table.to_next_stage_ms(stage, view.remaining_ms, self.jobs.work_ms[job]) * PPM / view.rate
            wake = (view.now_ms + int(min(left.min(), _LONGEST_MS))) // self.round_ms * self.round_ms + self.round_ms
        return Plan(
            job[named],
            gpus[named],
            rate=np.maximum(rate, 1),
            model=pools.model[rows["pool"][named]],
            keep=True,
            optional=len(named),
            wake_ms=wake,
        )

    def _divided(self, rows: NDArray[Any], free: NDArray[np.int64], now_ms: int) -> NDArray[np.int64]:
        """Return the GPUs of each job; its pools have this many free GPUs beyond the minima of running jobs (k,)."""
        from tracekit.replay.kernel import raise_fitness

        power, left = float(self.given["p"]), free.copy()
        wanted = np.bincount(rows["pool"], rows["high"] - rows["gpus"], len(free))
        raise_fitness(
            rows,
            left,
            self.table.speed,
            power,
            np.zeros(len(rows), struct_dtype("Entry")),
            np.zeros(len(rows), np.int32),
        )
        found: NDArray[np.int64] = rows["gpus"]
        # Where all could have their maximum the steps have led each to its best.
        if self.given["search"] == "greedy" or (wanted <= free).all():
            return found
        return evolve(
            rows,
            free,
            self.table.speed,
            power,
            found,
            population=self.given["population"],
            generations=self.given["generations"],
            random=np.random.default_rng((self.seed % 2**64, _STREAM, max(now_ms, 0))),
        )
