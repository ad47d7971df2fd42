"""Policies that place one-GPU jobs where a score is lowest, alone or shared. Gangs do not share GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.residents import FULL, Lines, Residents
from tracekit.policies.plans import Planned
from tracekit.replay.assumptions.speeds import type_speed_table

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.mechanisms import View


_PERCENT = 10_000
_REMAINING = 1e9
"""Unit in which the engine counts remaining work, per second."""


@dataclass(frozen=True)
class Company:
    """The m GPUs that a job may join, with at most C jobs each, and the effect of joining. Empty seats are zeros."""

    gpu: Ints
    """The GPUs (m,)."""
    idle: Bools
    """Whether each GPU is idle (m,)."""
    speed: Floats
    """Speed of the job on each GPU [0..1] (m,)."""
    left_s: Floats
    """Remaining run time, at full speed, of the jobs on each GPU [s] (m, C)."""
    before: Floats
    """Current speeds of the jobs on each GPU [0..1] (m, C)."""
    after: Floats
    """Speeds of the jobs on each GPU if the job joins [0..1] (m, C)."""
    own_s: float
    """Remaining run time of the job [s]."""

    @property
    def harm_s(self) -> Floats:
        """Total delay of the jobs on each GPU if speeds stay constant after the job joins [s] (m,)."""
        found: Floats = (self.left_s * (1 / self.after - 1 / self.before)).sum(axis=1)
        return found


class ScoredSeats(Residents):
    """Plans that place one-GPU jobs by a policy's score."""

    idle_first: ClassVar[bool] = False
    """Whether an idle GPU is never worse than a shared one, so shared GPUs can be ignored while one is idle."""

    def set_up(self) -> None:
        """Compute the jobs' utilization and the speeds of pairs."""
        super().set_up()
        self.shown = self.p["residents"]
        self.settings["share"] = max(self.shown, 2)
        self.percent = np.append(np.array(self.demand.used, np.int64) // _PERCENT, 0)
        """Utilization of each job in percent. The last entry stands for an empty seat (n + 1,)."""
        self.pair = self.demand.pair_speeds()

    def begin(self, view: View) -> None:
        """Begin a run."""
        super().begin(view)
        self.whole = np.zeros(len(self.demand.node), np.bool_)
        """Whether a gang uses each GPU (T,)."""
        self.nodes: Ints | None = None
        self.there: dict[int, list[Ints]] = {}
        """GPUs on nodes in service for each kind of demand, by GPU model."""

    def left(self, job: int, gpus: list[int]) -> None:
        """Record that a job on these GPUs has ended."""
        self.whole[gpus] = False

    def start(self, view: View) -> None:
        """Start waiting jobs where their score is lowest."""
        if len(self.waiting):
            if view.node_gpus is not self.nodes:
                self.nodes, self.there = view.node_gpus, {}
            self.remaining = view.table["remaining"]
            self.waiting.start(self._begin_job)

    def seated(self, job: int, gpu: int) -> None:
        """Record that a one-GPU job has started on a GPU."""

    def speed(self, job: int, gpu: int) -> int:
        """Return the speed of a job on one of its GPUs [ppm]."""
        on = self.on[gpu]
        return FULL if len(on) == 1 else self.demand.speed_among(job, [other for other in on if other != job])

    def allowed(self, job: int, gpus: Ints) -> Bools:
        """Return whether a job may join each of these GPUs, all of which have a free seat (m,)."""
        return self.memory[gpus] + self.demand.memory[job] <= FULL

    def score(self, job: int, company: Company) -> Floats:
        """Return a score per GPU, lowest on the best GPU for the job and infinite on a forbidden GPU (m,)."""
        raise NotImplementedError

    def _begin_job(self, job: int) -> bool:
        if self.demand.gpus[job] > 1:
            found = self.idle_gpus(job)
            if found is None:
                return False
            self.put(job, found)
            self.whole[found] = True
            return True
        alone = self.idle_gpus(job) if self.idle_first else None
        if alone is not None:
            self.put(job, alone)
            self.seated(job, alone[0])
            return True
        gpus, idle = self._candidates(job)
        if not len(gpus):
            return False
        company = self._company(job, gpus, idle)
        score = self.score(job, company)
        at = int(score.argmin())
        if not np.isfinite(score[at]):
            return False
        self.put(job, [int(gpus[at])])
        self.seated(job, int(gpus[at]))
        return True

    def _candidates(self, job: int) -> tuple[Ints, Bools]:
        """Return the GPUs that a job may join, and whether each is idle. Include only one idle GPU per model."""
        idle, shared = [], []
        for own in self._accepted(job):
            count = self.count[own]
            taken = own[(count > 0) & (count < self.shown) & ~self.whole[own]]
            shared.append(taken[self.allowed(job, taken)])
            empty = own[count == 0]
            if len(empty):
                # As in other policies, prefer the node with the fewest idle GPUs.
                idle.append(int(empty[self.idle[self.demand.node[empty]].argmin()]))
        gpus = np.concatenate([np.array(idle, np.int64), *shared])
        return gpus, np.arange(len(gpus)) < len(idle)

    def _accepted(self, job: int) -> list[Ints]:
        """Return the GPUs that a job may use on nodes in service, by GPU model."""
        kind, view = self.demand.kind[job], self.view
        if kind not in self.there:
            up = (view.node_gpus > 0)[self.demand.node]
            self.there[kind] = [own[up[own]] for own in self.demand.gpus_of(job)]
        return self.there[kind]

    def _company(self, job: int, gpus: Ints, idle: Bools) -> Company:
        # Ignore seats that are empty on all GPUs.
        width = max(int(self.count[gpus].max(initial=0)), 1)
        seat, pair = self.seat[gpus, :width], self.pair
        used = self.percent[seat]
        own = int(self.percent[job])
        there = seat >= 0
        before = np.ones(seat.shape)
        for column, other in permutations(range(seat.shape[1]), 2):
            before[:, column] *= pair[used[:, column], used[:, other]]
        left = np.where(there, self.remaining[np.maximum(seat, 0)], 0) / _REMAINING
        return Company(
            gpu=gpus,
            idle=idle,
            speed=pair[own, used].prod(axis=1),
            left_s=left,
            before=before,
            after=before * pair[used, own],
            own_s=float(self.remaining[job]) / _REMAINING,
        )


class _Tuned(ScoredSeats):
    """Score GPUs by the interference among their jobs."""

    idle_first = True

    def set_up(self) -> None:
        super().set_up()
        self.cap: int = round(self.p["cap"] * FULL)
        self.kappa: float = self.p["kappa"]
        self.tune_ms: int = round(self.p["tune"] * 1000)

    def begin(self, view: View) -> None:
        super().begin(view)
        self.tuning: dict[int, int] = {}
        """Time at which the tuning of a GPU's jobs ends [ms]."""
        self.load = np.zeros(len(self.demand.node), np.int64)

    def allowed(self, job: int, gpus: Ints) -> Bools:
        load = self.load[gpus]
        below = (load < self.cap) & (self.memory[gpus] < self.cap)
        tuned = ~np.isin(gpus, list(self.tuning)) if self.tuning else np.ones(len(gpus), np.bool_)
        return below & tuned & (self.memory[gpus] + self.demand.memory[job] <= FULL)

    def score(self, job: int, company: Company) -> Floats:
        there = company.left_s > 0
        interference = 1 / company.speed - 1 + np.where(there, 1 / company.after - 1, 0).sum(axis=1)
        return np.where(company.idle, -1.0, interference)

    def seated(self, job: int, gpu: int) -> None:
        self.load[gpu] += self.demand.used[job]
        if len(self.on[gpu]) > 1 and self.tune_ms:
            self.tuning[gpu] = self.view.now_ms + self.tune_ms

    def left(self, job: int, gpus: list[int]) -> None:
        super().left(job, gpus)
        if len(gpus) == 1:
            self.load[gpus[0]] -= self.demand.used[job]

    def due(self, now_ms: int) -> None:
        ready = [gpu for gpu, until in self.tuning.items() if until <= now_ms]
        for gpu in ready:
            del self.tuning[gpu]
        self.touch(ready)

    def wake(self, now_ms: int) -> int:
        return min(self.tuning.values(), default=-1)

    def speed(self, job: int, gpu: int) -> int:
        found = super().speed(job, gpu)
        if self.kappa == 1 or found == FULL or gpu in self.tuning:
            return found
        return max(round(FULL / (1 + (FULL / found - 1) * self.kappa)), 1)


class IaDeep(Planned):
    """Jobs take an idle GPU if there is one, otherwise the GPU where jobs interfere least.

    Jobs are considered in submission order. If a job cannot start, it and all identical jobs are skipped. A one-GPU job
    takes an idle GPU, on the node with the fewest idle GPUs. If there is none, it joins a GPU with fewer than
    `residents` jobs whose total utilization and total memory are below `cap`, where it fits and no tuning is running.
    Of these GPUs, it takes the one with the least interference, which is the smallest sum of the jobs' slowdowns minus
    1. The jobs on a GPU are tuned for `tune` seconds, during which no job joins them. After that, the part of each
    slowdown above 1 is multiplied by `kappa`. Gangs get idle GPUs close together. No job is stopped. Utilization and
    memory are counted in whole percent.

    Equal to
    --------
    - With residents=1, the policy equals fifo,scan=skip.
    - With residents=2 and tune=0, if no job waits for a seat, the policy equals sjf-ffs by submission, with other
      partners.

    Sources
    -------
    - Chen et al., IADeep (SC'23), and its released code: idle GPUs first, the limit of 99 %, least interference.
    - Our choices: interference from M1 instead of a regression over past records; tuning as a factor (kappa=0.8 is a
      guess at its gain); the choice of node for an idle GPU; gangs run alone.
    """

    plans = _Tuned
    card = Card(
        name="iadeep",
        parameters=(
            Parameter("residents", 3, "maximum number of jobs on a GPU", minimum=1, maximum=8),
            Parameter("cap", 0.99, "utilization or memory at or above which no job joins a GPU [0..1]", maximum=8.0),
            Parameter(
                "kappa", 1.0, "factor by which tuning multiplies slowdowns, or 1 for no effect [0..1]", maximum=1.0
            ),
            Parameter("tune", 60.0, "duration of tuning, or 0 for no tuning [s]"),
        ),
        assumptions=("D1", "M1", "M2", "M4"),
    )


class _LeastDelay(ScoredSeats):
    """Score GPUs by the total delay. A job may also wait."""

    idle_first = True

    def begin(self, view: View) -> None:
        super().begin(view)
        if self.p["key"] == "sjf":
            self.waiting = Lines(self.demand.type, self.jobs.work_ms.tolist())

    def score(self, job: int, company: Company) -> Floats:
        found: Floats = company.own_s / company.speed + company.harm_s
        if not self.p["wait"]:
            return found
        # Assume that a waiting job runs alone on the first GPU that becomes idle.
        ends = (company.left_s / company.before).max(axis=1, initial=0.0)
        return np.where(company.idle | (found < ends.min(initial=np.inf) + company.own_s), found, np.inf)


class InterferenceGreedy(Planned):
    """One-GPU jobs go where they and their neighbours end soonest in sum, or wait (a bound for learned placement).

    Jobs are considered in the order of `key`. A job that cannot start is skipped, and so are all identical jobs. A
    one-GPU job may take an idle GPU, on the node with the fewest idle GPUs, or join a GPU with fewer than `residents`
    jobs and enough memory left. It goes where its remaining run time at its speed there, plus the delay of the jobs
    there, is smallest, assuming constant speeds. With wait=on, it starts only if that sum is less than its remaining
    run time plus the time until one of the GPUs that it could join becomes idle. Gangs get idle GPUs close together. No
    job is stopped. Run times and interference are known exactly. Utilization and memory are counted in whole percent.

    Equal to
    --------
    - With residents=1, the policy equals fifo,scan=skip, or sjf,scan=skip with key=sjf.
    - Without interference (c = 0), wait=on equals wait=off.

    Sources
    -------
    - Our own bound for systems that learn placement from interference, such as Bao et al., Harmony (INFOCOM'19). It
      knows what those systems learn, but considers one job at a time, so their results may differ. It overstates harm,
      because neighbours speed up again when a job ends.
    """

    plans = _LeastDelay
    card = Card(
        name="interference-greedy",
        parameters=(
            Parameter("residents", 2, "maximum number of jobs on a GPU", minimum=1, maximum=8),
            Parameter("key", "fifo", "order of the jobs: by submission, or by run time", ("fifo", "sjf")),
            Parameter("wait", True, "whether jobs wait if that is expected to be better than sharing"),
        ),
        assumptions=("D1", "M1", "M2", "M4"),
    )


class _LeastCompletion(ScoredSeats):
    """Score GPUs by the job's completion time and the delay of the jobs there."""

    def set_up(self) -> None:
        super().set_up()
        p = self.p
        self.type_speed = type_speed_table(self.models, self.jobs.models, self.cluster.models) / FULL
        self.blind, self.crash_ms = p["memory"] == "blind", max(round(p["crash"] * 1000), 1)

    def begin(self, view: View) -> None:
        super().begin(view)
        self.known: set[int] = set()
        """Jobs that have run out of memory once."""
        self.crashes: dict[int, int] = {}
        """Time at which each job that does not fit runs out of memory [ms]."""

    def allowed(self, job: int, gpus: Ints) -> Bools:
        if self.blind and job not in self.known:
            return np.ones(len(gpus), np.bool_)
        margin: float = self.p["margin"]
        need = round(self.demand.memory[job] * (1 + margin))
        return self.memory[gpus] + need <= FULL

    def score(self, job: int, company: Company) -> Floats:
        of_model = self.type_speed[self.jobs.model[job], self.demand.model[company.gpu]]
        found = company.own_s / (company.speed * of_model) + self.p["harm"] * company.harm_s
        # Among equals, choose the GPU with the least memory left.
        equal = np.flatnonzero(found == found.min())
        gpu = company.gpu[equal]
        best = equal[np.lexsort((gpu, -self.memory[gpu]))[0]]
        return np.where(np.arange(len(found)) == best, 0.0, 1.0)

    def seated(self, job: int, gpu: int) -> None:
        if self.memory[gpu] > FULL:
            self.crashes[job] = self.view.now_ms + self.crash_ms

    def due(self, now_ms: int) -> None:
        self.crashes = {job: at for job, at in self.crashes.items() if job in self.of}
        for job in [job for job, at in self.crashes.items() if at <= now_ms]:
            del self.crashes[job]
            if self.memory[self.of[job]].max() > FULL:
                self.stop(job)
                self.known.add(job)
                self.waiting.add(job)

    def wake(self, now_ms: int) -> int:
        return min(self.crashes.values(), default=-1)


class SchedTuneLike(Planned):
    """One-GPU jobs go where they end soonest, by memory, interference and GPU model.

    Jobs are considered in submission order. A job that cannot start is skipped, and so are all identical jobs. A
    one-GPU job may take an idle GPU, on the node with the fewest idle GPUs, or join a GPU with fewer than `residents`
    jobs where its memory plus `margin` fits. It goes where its run time at its speed there, by interference (M1) and
    GPU model (D6), plus `harm` times the delay of the jobs there, is smallest. Among equals, it goes where the least
    memory is left. Gangs get idle GPUs close together. No job is stopped. With memory=blind, memory is ignored: a job
    that does not fit runs out of memory after `crash` seconds, waits again, and from then on is placed where it fits.
    Utilization and memory are counted in whole percent.

    Equal to
    --------
    - With residents=1 and one GPU model, the policy equals fifo,scan=skip.

    Sources
    -------
    - Albahar et al., SchedTune (CCGrid'22), abstract: predicted memory and completion times drive placement on GPUs of
      several types, and avoid out-of-memory failures.
    - Our choices, because we had no access to the inner rule: the score and its weight, ties, `margin`, and gangs that
      run alone; the models' own values instead of learned predictors, so that predictions are perfect.
    """

    plans = _LeastCompletion
    card = Card(
        name="schedtune-like",
        parameters=(
            Parameter("residents", 4, "maximum number of jobs on a GPU", minimum=1, maximum=8),
            Parameter("harm", 1.0, "weight of the delay of the jobs there"),
            Parameter("margin", 0.05, "extra memory kept free for a job, as a share of the job's memory [1]"),
            Parameter("memory", "known", "whether the memory of jobs is known in advance", ("known", "blind")),
            Parameter("crash", 60.0, "time after which a job that does not fit runs out of memory [s]", minimum=0.001),
            Parameter("overhead", "none", "preset for the cost of a restart after running out of memory (M9)"),
        ),
        assumptions=("D1", "D6", "M1", "M2", "M4", "M9"),
    )
