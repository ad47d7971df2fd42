"""Pollux: GPUs go where they raise the power mean of the jobs' speedups most, with or without job profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.resizing import Sizes, speedup
from tracekit.policies.parameters import FIT, overhead
from tracekit.policies.plans import Planned
from tracekit.policies.pools import settle_pools
from tracekit.replay.assumptions.speeds import PPM, ppm
from tracekit.replay.engine.state import struct_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.assumptions.sections import Application
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Plan, View


BATCHES = 50
"""Number of batch sizes tried, in geometric steps."""
_GPU_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class SpeedTable:
    """Speeds of n jobs on 0, 1, ... GPUs, by stage of training."""

    speed: Floats
    """Concatenated rows of speeds. A job's speeds are goodputs relative to its recorded run."""
    first: Ints
    """Start of the row of each job's first stage (n,)."""
    width: Ints
    """Offset from one stage's row to the next, or 0 if there is only one stage (n,)."""
    stages: int
    """Number of stages."""
    sigma: float | None
    """Parameter of M8's speeds, or None if speeds are goodputs."""

    def rows(self, job: Ints, stage: Ints) -> Ints:
        """Return the start of each job's row in a stage (k,)."""
        return self.first[job] + stage * self.width[job]

    def stage(self, left_ms: Ints, work_ms: Ints) -> Ints:
        """Return the stage of each job by its remaining work (k,)."""
        done = 1 - left_ms / np.maximum(work_ms, 1)
        return np.clip((done * self.stages).astype(np.int64), 0, self.stages - 1)

    def to_next_stage_ms(self, stage: Ints, left_ms: Ints, work_ms: Ints) -> Floats:
        """Return each job's work until its next stage, or a very large number in the last stage (k,) [ms]."""
        then = work_ms * (1 - (stage + 1) / self.stages)
        return np.where(stage + 1 < self.stages, np.maximum(left_ms - then, 0.0), 2.0**62)

    def between(self, first: Ints, gpus: Floats) -> Floats:
        """Return the speeds on numbers of GPUs that may be fractional, at least 1 (k,)."""
        if self.sigma is not None:
            return np.asarray(gpus / (1 + self.sigma * (gpus - 1)))
        low = np.floor(gpus).astype(np.int64)
        high = np.ceil(gpus).astype(np.int64)
        return np.asarray(self.speed[first + low] + (gpus - low) * (self.speed[first + high] - self.speed[first + low]))


def plain_table(models: Models, high: Ints) -> SpeedTable:
    """Return M8's speeds up to the largest maximum of any job, relative to one GPU."""
    nothing = np.zeros(len(high), np.int64)
    speed = speedup(models, np.arange(int(high.max(initial=1)) + 1))
    return SpeedTable(speed, nothing, nothing, 1, models.elastic.sigma)


def goodputs(
    application: Application, gpus: Ints, requested: int, noise: float, local: float, batches: Floats
) -> Floats:
    """Return the goodput by GPUs and batch, relative to the recorded GPUs and batch (n, m).

    As in Pollux, goodput is throughput times efficiency. The efficiency is (noise + 1) / (noise + m) with m times the
    recorded batch.

    Parameters
    ----------
    application : Application
        Application class of M43.
    gpus : array
        Numbers of GPUs, at least 1.
    requested : int
        GPUs of the recorded run.
    noise : float
        Gradient noise scale, relative to the recorded batch.
    local : float
        Largest batch per GPU in one pass, relative to the recorded batch per GPU. Larger batches take several passes.
    batches : array
        Total batches over all GPUs, relative to the recorded batch.
    """
    a = application
    n = gpus.astype(np.float64)[:, None]
    m = batches[None, :]

    def step(n: Floats, m: Floats) -> Floats:
        batch = m * requested / n
        grad = np.ceil(batch / local - 1e-9).clip(1.0) * a.fixed + (1 - a.fixed) * batch
        sync = np.where(n > 1, a.sync + a.more * np.maximum(n - 2, 0), 0.0)
        return np.asarray((grad**a.gamma + sync**a.gamma) ** (1 / a.gamma))

    one = float(step(np.array([[float(requested)]]), np.ones((1, 1)))[0, 0])
    return np.asarray(m / step(n, m) * (noise + 1) / (noise + m) * one)


def goodput(application: Application, gpus: Ints, requested: int, noise: float, local: float) -> Floats:
    """Return the goodput by GPUs, with the best batch for each number (see `goodputs`)."""
    batches = np.geomspace(1.0, max(application.most, 1.0), BATCHES)
    return np.asarray(goodputs(application, gpus, requested, noise, local, batches).max(axis=1))


def application_of(models: Models, jobs: Jobs, profile: str) -> Ints:
    """Return each job's class, an index into M43's classes: by recorded GPU time, or the class `profile` (n,)."""
    classes = models.applications.classes
    if profile != "size":
        return np.full(len(jobs), list(classes).index(profile))
    ends = np.array([c.gpu_h for c in classes.values()]) * _GPU_HOUR_MS
    return np.minimum(np.searchsorted(ends, jobs.work_ms * jobs.devices.astype(np.float64)), len(classes) - 1)


def noise_in(application: Application, stage: int, stages: int) -> float:
    """Return the noise in the middle of a stage, which grows by a constant factor per stage."""
    begin, end = application.noise
    return float(begin * (end / begin) ** ((stage + 0.5) / stages))


def goodput_table(models: Models, jobs: Jobs, high: Ints, profile: str) -> SpeedTable:
    """Return goodputs up to each job's maximum GPUs, by its application class (M43).

    Parameters
    ----------
    profile : str
        'size' for classes by recorded GPU time, or the name of one class for all jobs.
    """
    given = models.applications
    names, asks, kind = list(given.classes), jobs.devices.astype(np.int64), application_of(models, jobs, profile)
    pairs, inverse = np.unique(np.stack([kind, asks], axis=1).reshape(-1, 2), axis=0, return_inverse=True)
    parts: list[Floats] = [np.zeros(1)]
    starts, widths, size = [], [], 1
    for which, requested in pairs.tolist():
        application = given.classes[names[which]]
        most = int(high[(asks == requested)].max())
        starts.append(size)
        widths.append(most + 1)
        for stage in range(given.stages):
            noise = noise_in(application, stage, given.stages)
            parts += [np.zeros(1), goodput(application, np.arange(1, most + 1), requested, noise, given.local)]
        size += given.stages * (most + 1)
    place = inverse.ravel()
    first, width = np.array(starts, np.int64), np.array(widths, np.int64)
    none = np.zeros(0, np.int64)
    return SpeedTable(
        np.concatenate(parts),
        first[place] if len(place) else none,
        width[place] if len(place) else none,
        given.stages,
        None,
    )


@dataclass(frozen=True)
class Bounds:
    """Bounds on the GPUs of k jobs in P pools."""

    least: Ints
    """Guaranteed GPUs of each job: its minimum, or 0 (k,)."""
    low: Ints
    """Minimum of each job, which has no GPU or at least this many (k,)."""
    high: Ints
    """Maximum of each job (k,)."""
    pool: Ints
    """Pool of each job (k,)."""
    free: Ints
    """GPUs of each pool beyond `least` (P,)."""

    def drawn(self, count: int, random: np.random.Generator) -> Ints:
        """Return random divisions, which need not fit. Each GPU count of a job is equally likely (count, k)."""
        gpus = random.integers(self.low - 1, self.high + 1, (count, len(self.low)))
        return np.where(gpus < self.low, self.least, gpus)

    def within(self, gpus: Ints, random: np.random.Generator) -> Ints:
        """Reduce divisions so that they fit: in random order, jobs get at most the GPUs left, or `least` (m, k)."""
        found = np.broadcast_to(self.least, gpus.shape).copy()
        for pool in np.unique(self.pool).tolist():
            mine = np.flatnonzero(self.pool == pool)
            order = mine[np.argsort(random.random((len(gpus), len(mine))), axis=1)]
            extra = np.take_along_axis(gpus, order, axis=1) - self.least[order]
            before = np.cumsum(extra, axis=1) - extra
            given = np.clip(self.free[pool] - before, 0, extra)
            given = np.where(self.least[order] + given >= self.low[order], given, 0)
            np.put_along_axis(found, order, self.least[order] + given, axis=1)
        return found

    def children(
        self, parents: Ints, score: Floats, count: int, random: np.random.Generator
    ) -> tuple[Ints, NDArray[np.intp], Bools]:
        """Return children of divisions, the parent of each GPU count, and whether the count was redrawn (count, k).

        A child has two parents, each the better of two random divisions, and takes each GPU count from either parent.
        Then each count is redrawn with probability 1 / k, and jobs for which too few GPUs are left get the rest.
        """
        k = len(self.low)
        pairs = random.integers(0, len(parents), (2, 2, count))
        better = np.where(score[pairs[0]] >= score[pairs[1]], pairs[0], pairs[1])[:, :, None]
        source = np.where(random.random((count, k)) < 0.5, better[0], better[1])
        anew = random.random((count, k)) < 1 / k
        own = parents[source, np.arange(k)]
        return self.within(np.where(anew, self.drawn(count, random), own), random), source, anew

    def in_order(self, order: Ints) -> Ints:
        """Give jobs their minimum in order, up to the first job that does not fit. Return this division (k,)."""
        found = self.least.copy()
        for pool in np.unique(self.pool).tolist():
            mine = order[self.pool[order] == pool]
            fits = np.cumsum(self.low[mine] - self.least[mine]) <= self.free[pool]
            found[mine[fits]] = self.low[mine[fits]]
        return found


_NOTHING = 1e-3
"""Speedup of a job without GPUs, used instead of 0."""


def worths(gpus: Ints, rows: NDArray[Any], speed: Floats, power: float) -> Floats:
    """Return each job's contribution to the mean in each division, which rises with the job's speedup.

    Parameters
    ----------
    gpus : array (m, k)
        Divisions.
    rows : array (k,)
        The jobs, as FitnessRow.
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


def evolve(
    rows: NDArray[Any],
    free: Ints,
    speed: Floats,
    power: float,
    first: Ints,
    *,
    population: int,
    generations: int,
    random: np.random.Generator,
) -> Ints:
    """Return the best division found, at least as good as `first` (k,).

    Each generation has as many children as parents (`Bounds.children`). The best of the parents and children survive.

    Parameters
    ----------
    rows : array (k,)
        The jobs, as FitnessRow. Running jobs keep at least their minimum. Waiting jobs get no GPU, or at least their
        minimum.
    free : array (P,)
        GPUs of each pool beyond the minima of running jobs.
    speed, power
        As in `worths`.
    first : array (k,)
        Division to start from.
    population, generations : int
        Number of divisions per generation, and number of generations.
    random : Generator
        Source of all random draws.
    """
    if not len(rows):
        return first
    held = np.clip(rows["held"], np.where(rows["held"] > 0, rows["low"], 0), rows["high"])
    least = np.where(rows["held"] > 0, rows["low"], 0)
    bounds = Bounds(least, rows["low"], rows["high"], rows["pool"], free)
    drawn = np.concatenate([held[None], bounds.drawn(population, random)])
    parents = np.concatenate([first[None], bounds.within(drawn, random)])
    score = worths(parents, rows, speed, power).sum(axis=1)
    for _ in range(generations):
        children, _, _ = bounds.children(parents, score, population, random)
        parents = np.concatenate([parents, children])
        score = np.concatenate([score, worths(children, rows, speed, power).sum(axis=1)])
        best = np.argsort(-score, kind="stable")[:population]
        parents, score = parents[best], score[best]
    found: Ints = parents[int(score.argmax())]
    return found


_STREAM = 14
"""Seed of the random numbers."""
_LONGEST_MS = 10**13
"""Longest time until the next plan [ms]."""


PROFILE = Parameter(
    "profile",
    "none",
    "the jobs' application classes: none, by size (recorded GPU time), or one class for all jobs (M43)",
    ("none", "size", "small", "medium", "large", "xlarge"),
    words=(
        "work is fixed",
        "batches adapt: application classes by recorded GPU time",
        "batches adapt: all jobs are small applications",
        "batches adapt: all jobs are medium applications",
        "batches adapt: all jobs are large applications",
        "batches adapt: all jobs are very large applications",
    ),
)
"""What is known about a job's batches and steps: its application class, or nothing (fixed work)."""


class _Rounds(Sizes):
    """Divides GPUs in rounds."""

    def set_up(self) -> None:
        """Compute the speeds of the jobs."""
        super().set_up()
        self.round_ms = self.settings["round_ms"] = max(round(self.p["round"] * 1000), 1)
        self.delta_ms, profile = self.p["delta"] * 1000, self.p["profile"]
        self.table: SpeedTable = (
            plain_table(self.models, self.most)
            if profile == "none"
            else goodput_table(self.models, self.jobs, self.most, profile)
        )

    def begin(self, view: View) -> None:
        self.stage = np.zeros(len(self.jobs), np.int64)
        """Training stage of each job when it was last planned (n,)."""

    def plan(self, view: View) -> Plan:
        """Return the plan: the GPUs of each job."""
        wish, table = self.wish(view), self.table
        job, held, before, free = wish.job, wish.held, wish.before, wish.free
        low, high = self.low[job], self.most[job]
        stage = np.zeros(len(job), np.int64)
        if table.stages > 1:
            stage = table.stage(view.remaining_ms, self.jobs.work_ms[job])
        rows = np.zeros(len(job), struct_dtype("FitnessRow"))
        rows["held"], rows["low"], rows["high"] = held, low, high
        rows["gpus"] = np.where(held > 0, low, 0)
        rows["pool"] = wish.pool = settle_pools(before, self.pools, job, low, free)
        rows["first"] = table.rows(job, stage)
        sharing = np.bincount(rows["pool"], minlength=len(free))
        fair = np.clip((free / np.maximum(sharing, 1))[rows["pool"]], 1.0, rows["high"])
        rows["fair"] = table.between(rows["first"], fair)
        age = (view.now_ms - self.jobs.submit_ms[job]).astype(np.float64)
        changes = (view.table["migrations"][job] + view.table["preemptions"][job]).astype(np.float64)
        factor = np.maximum(age - changes * self.delta_ms, 0) / np.maximum(age + self.delta_ms, 1)
        rows["factor"] = np.where(view.attained_gpu_ms > 0, factor, 1.0)
        free -= np.bincount(before[before >= 0], low[before >= 0], len(free)).astype(np.int64)
        wish.gpus = self._divided(rows, np.maximum(free, 0), view.now_ms)
        # A job that keeps its GPUs changes speed in a new stage.
        changed = (held > 0) & (stage != self.stage[job])
        self.stage[job] = stage
        rate = ppm(table.speed[rows["first"] + wish.gpus]) if table.sigma is None else None
        wake = -1
        if changed.any() or self.unfinished(wish):
            wake = view.now_ms + self.round_ms
        elif table.stages > 1:
            # If all jobs have their maximum, no job can gain until some job's speed changes.
            left = table.to_next_stage_ms(stage, view.remaining_ms, self.jobs.work_ms[job]) * PPM / view.rate
            wake = (view.now_ms + int(min(left.min(), _LONGEST_MS))) // self.round_ms * self.round_ms + self.round_ms
        return self.resized(wish, rate, also=changed, wake_ms=wake)

    def _divided(self, rows: NDArray[Any], free: Ints, now_ms: int) -> Ints:
        """Return the GPUs of each job. `free` excludes the minima of running jobs (k,)."""
        from tracekit.replay.kernel import raise_fitness

        power, left = float(self.p["p"]), free.copy()
        wanted = np.bincount(rows["pool"], rows["high"] - rows["gpus"], len(free))
        raise_fitness(
            rows,
            left,
            self.table.speed,
            power,
            np.zeros(len(rows), struct_dtype("Entry")),
            np.zeros(len(rows), np.int32),
        )
        found: Ints = rows["gpus"]
        # If all maxima fit, the greedy steps have already given each job its best number.
        if self.p["search"] == "greedy" or (wanted <= free).all():
            return found
        return evolve(
            rows,
            free,
            self.table.speed,
            power,
            found,
            population=self.p["population"],
            generations=self.p["generations"],
            random=np.random.default_rng((self.seed % 2**64, _STREAM, max(now_ms, 0))),
        )


class PolluxLite(Planned):
    """GPUs go where they raise the power mean of speedups most (Pollux, by default without profiles).

    In rounds, GPUs are divided again to raise the power mean of all jobs' speedups. With p=-1, this is the harmonic
    mean. A job's speedup is its speed divided by its speed with an equal share of the GPUs. If its number of GPUs
    changes, the speedup is multiplied by max(age - R * delta, 0) / (age + delta), with R past changes. A first start is
    exempt. Running jobs get their minimum. Then the GPUs go, step by step, where each gains most, and among equals to
    the earlier job, up to the maximum. With search=genetic, a seeded genetic search of `generations` generations
    improves that division. Running jobs are never stopped, and gangs may be spread over nodes. With profile=none, the
    work of a job is fixed: batch sizes do not adapt, and efficiency does not change. With another profile, speed is
    goodput. Jobs are then applications (M43) with the best batch for their GPUs and for the noise of their gradients.
    The noise rises in stages with the work done. When its stage changes, a job changes speed at the next round. The
    recorded work is assumed to be work on the recorded GPUs with a batch that did not adapt. Do not compare runs with a
    profile to runs without one.

    Equal to
    --------
    - With linear speed and equal jobs that arrive at once, all jobs get the same number of GPUs, to within one.
    - With profile=none, if the maxima of all jobs fit, every job gets its maximum.
    - With a profile whose applications have no fixed part, no exchange and no larger batches (M43), the policy equals
      profile=none with linear speed.

    Sources
    -------
    - Qiao et al., Pollux (OSDI'21): fitness with p = -1, penalty, rounds of 60 s; goodput as throughput times
      efficiency (noise + 1) / (noise + m), overlapping steps of computation and exchange, 50 batch sizes; genetic
      search of 100 divisions in 100 generations, starting from earlier divisions.
    - Our choices: greedy steps instead of the genetic search, or before it, and fewer generations; running jobs are not
      stopped; a first start has no penalty; the maximum comes from D3 instead of being twice the largest number so far;
      jobs on several nodes may share them; the numbers of M43.
    """

    plans = _Rounds
    card = Card(
        name="pollux-lite",
        parameters=(
            PROFILE,
            Parameter(
                "p", -1.0, "exponent of the mean: 1 for the sum, 0 for the geometric mean", minimum=-2.0, maximum=1.0
            ),
            Parameter("search", "greedy", "how to search for the division of GPUs", ("greedy", "genetic")),
            Parameter("population", 20, "number of divisions in a generation of the search", minimum=2, maximum=1000),
            Parameter("generations", 20, "number of generations of the search", maximum=1000),
            Parameter("round", 60.0, "time between two plans [s]", minimum=0.001),
            Parameter("delta", 30.0, "cost of a change in the fitness [s]"),
            Parameter("resize", 30.0, "cost of changing the number of GPUs [s]"),
            overhead("voda"),
            FIT,
        ),
        assumptions=("D1", "D3", "M43", "M9", "M4"),
    )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The card's assumptions, excluding M43 if there are no profiles."""
        return tuple(name for name in self.card.assumptions if name != "M43" or self.parameters["profile"] != "none")
