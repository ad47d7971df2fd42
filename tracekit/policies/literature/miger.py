"""After MIGER, without its unpublished inner rule: jobs share GPU slices, and online jobs have their own."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.residents import Lines, Residents
from tracekit.policies.plans import Planned
from tracekit.replay.assumptions.of_jobs import online_services
from tracekit.replay.assumptions.speeds import PPM, interference_ppm

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.array_types import Ints
    from tracekit.replay.assumptions.sections import Slices
    from tracekit.replay.mechanisms import View


class Slice(NamedTuple):
    """A slice of a GPU: first memory slot, compute units and memory slots."""

    start: int
    compute: int
    memory: int


class Resident(NamedTuple):
    """The properties of a one-GPU job that affect how its GPU is split."""

    used: int
    """Utilization, as a share of a whole GPU [ppm]."""
    memory: int
    """Memory, as a share of a whole GPU's memory [ppm]."""
    online: bool
    """Whether the job is online. An online job has its own, large enough slice, which never changes."""


class Cut(NamedTuple):
    """The split of a GPU, and the slices of its jobs."""

    place: tuple[Slice, ...]
    """The slice of each job."""
    speed: tuple[int, ...]
    """Speed of each job [ppm]."""


class Layouts:
    """All ways to split a GPU (M32), and the best split for given jobs."""

    def __init__(
        self, slices: Slices, beside: Callable[[int, int], int], *, most: int, slack: float, whole_only: bool = False
    ) -> None:
        """Take M32, a job's speed next to another job by utilization [ppm], and the maximum number of jobs per slice.

        An online job's slice exceeds its load by at least the share `slack`. With `whole_only`, a GPU is one slice.
        """
        self.compute, self.memory = slices.compute, slices.memory
        self.beside, self.most, self.slack = beside, most, slack
        found = [
            Slice(start, profile.compute, profile.memory)
            for profile in slices.profiles.values()
            for start in profile.starts
            if not whole_only or profile.compute == slices.compute
        ]
        self.layouts = _maximal(sorted(found))
        self._best: dict[tuple[tuple[Resident, ...], tuple[Slice | None, ...]], Cut | None] = {}

    def best(self, jobs: tuple[Resident, ...], fixed: tuple[Slice | None, ...]) -> Cut | None:
        """Return the split with the largest sum of speeds, or None if the jobs do not fit together.

        Parameters
        ----------
        jobs : tuple
            Jobs to place on the GPU.
        fixed : tuple
            The slice that each job keeps, or None for any slice.
        """
        key = jobs, fixed
        if key not in self._best:
            self._best[key] = self._found(jobs, fixed)
        return self._best[key]

    def _found(self, jobs: tuple[Resident, ...], fixed: tuple[Slice | None, ...]) -> Cut | None:
        best: tuple[tuple[int, int], Cut] | None = None
        for layout in self.layouts:
            choices = [
                [piece for piece in layout if (keep is None or keep == piece) and self._suits(job, piece)]
                for job, keep in zip(jobs, fixed, strict=True)
            ]
            for place in product(*choices):
                speed = self._speeds(jobs, place)
                if speed is None:
                    continue
                # Among equals, prefer small slices for online jobs, which keep their slices.
                kept = sum(piece.compute for job, piece in zip(jobs, place, strict=True) if job.online)
                if best is None or (sum(speed), -kept) > best[0]:
                    best = (sum(speed), -kept), Cut(place, speed)
        return None if best is None else best[1]

    def _suits(self, job: Resident, piece: Slice) -> bool:
        """Return whether a slice has enough memory for a job, and for an online job also enough compute."""
        if job.memory * self.memory > piece.memory * PPM:
            return False
        needed = min(job.used * (1 + self.slack), PPM)
        return not job.online or needed * self.compute <= piece.compute * PPM

    def _speeds(self, jobs: tuple[Resident, ...], place: tuple[Slice, ...]) -> tuple[int, ...] | None:
        """Return the speed of each job, or None if a slice has too many jobs or sharing it does not pay."""
        speeds = []
        for at, (job, piece) in enumerate(zip(jobs, place, strict=True)):
            others = [jobs[i] for i, other in enumerate(place) if other == piece and i != at]
            if others:
                memory = job.memory + sum(other.memory for other in others)
                crowded = len(others) >= self.most or memory * self.memory > piece.memory * PPM
                if crowded or job.online or any(other.online for other in others):
                    return None
            speeds.append(self._speed(job, piece, others))
        for piece in set(place):
            there = [i for i, other in enumerate(place) if other == piece]
            alone = max(self._speed(jobs[i], piece, []) for i in there)
            if len(there) > 1 and sum(speeds[i] for i in there) <= alone:
                return None
        return tuple(speeds)

    def _speed(self, job: Resident, piece: Slice, others: list[Resident]) -> int:
        part = piece.compute * PPM // self.compute
        speed = min(PPM, part * PPM // max(job.used, 1))
        for other in others:
            speed = speed * self.beside(_scaled(job.used, part), _scaled(other.used, part)) // PPM
        return max(speed, 1)


def _scaled(used: int, part: int) -> int:
    """Convert a job's utilization from a whole GPU to a slice, in whole percent [ppm]."""
    return min(used * PPM // part // 10_000 * 10_000, PPM)


def _maximal(slices: list[Slice]) -> list[tuple[Slice, ...]]:
    """Return the maximal sets of slices that do not overlap in memory."""

    @cache
    def cells(piece: Slice) -> frozenset[int]:
        return frozenset(range(piece.start, piece.start + piece.memory))

    found: list[tuple[Slice, ...]] = []

    def grow(chosen: tuple[Slice, ...], at: int) -> None:
        held = frozenset[int]().union(*(cells(piece) for piece in chosen))
        free = [piece for piece in slices if not cells(piece) & held]
        if not free:
            found.append(chosen)
        for piece in free:
            index = slices.index(piece)
            if index >= at:
                grow((*chosen, piece), index + 1)

    grow((), 0)
    return found


_STEP = 50_000
"""Step to which utilization and memory are rounded up [ppm]."""


class _Cuts(Residents):
    """Starts jobs and splits GPUs."""

    def set_up(self) -> None:
        """Determine the jobs' properties, and all possible splits."""
        super().set_up()
        p, models = self.p, self.models
        online = online_services(models, self.jobs, self.seed)
        peak = round(models.online.load * (1 + models.online.swing) * PPM)
        used = np.where(online, min(peak, PPM), np.array(self.demand.used, np.int64))
        rows = zip(_steps(used), _steps(self.demand.memory), online.tolist(), strict=True)
        self.kinds = [Resident(*row) for row in rows]

        def beside(one: int, other: int) -> int:
            return int(interference_ppm(models, one, other))

        whole = p["slices"] == "whole"
        self.layouts = Layouts(models.slices, beside, most=p["mps"], slack=p["slack"], whole_only=whole)
        self.settings["share"] = max(p["residents"], 2)
        self.reconfigure_ms, self.horizon_ms = round(p["reconfigure"] * 1000), round(p["horizon"] * 1000)

    def extra(self) -> Ints:
        """Return whether each job is online."""
        return online_services(self.models, self.jobs, self.seed).astype(np.int64)

    def begin(self, view: View) -> None:
        super().begin(view)
        self.online = Lines(self.demand.type)
        self.emptied: set[int] = set()
        """GPUs that a job has left since the last plan."""
        self.cut: dict[int, Cut] = {}
        """Split of each GPU that has one-GPU jobs, in the order of `Residents.on`."""
        self.alike: dict[tuple[tuple[Resident, ...], Cut | None], int] = {}
        self.code = np.zeros(len(self.demand.node), np.int64)
        """Code of each GPU: equal for GPUs with equal jobs and slices, 0 if idle, or -1 if a gang uses it (T,)."""
        self.order: dict[int, list[int]] = {}
        """Jobs on each GPU at its last split, in the order of their slices."""
        self.stopped: dict[int, int] = {}
        """Time until which each job pauses while its GPU is split again [ms]."""

    def left(self, job: int, gpus: list[int]) -> None:
        """Record that a job on these GPUs has ended."""
        self.emptied.update(gpus)

    def due(self, now_ms: int) -> None:
        """Resume jobs after their pause, and reconsider how to split GPUs that a job has left."""
        for job in [job for job, until in self.stopped.items() if until <= now_ms or job not in self.of]:
            del self.stopped[job]
            self.touch(self.of.get(job, ()))
        for gpu in sorted(self.emptied):
            self._again(gpu)
        self.emptied.clear()

    def add(self, job: int) -> None:
        """Let a job wait with the jobs of its class."""
        (self.online if self.kinds[job].online else self.waiting).add(job)

    def start(self, view: View) -> None:
        """Start online jobs, then the others."""
        for line in (self.online, self.waiting):
            line.start(self._start)

    def wake(self, now_ms: int) -> int:
        """Return the end of the first pause."""
        return min(self.stopped.values(), default=-1)

    def speed(self, job: int, gpu: int) -> int:
        """Return the speed of a job on its slice, or 1 during a pause."""
        if job in self.stopped:
            return 1
        on = self.on[gpu]
        return self.cut[gpu].speed[on.index(job)] if gpu in self.cut else PPM

    def _start(self, job: int) -> bool:
        if self.demand.gpus[job] > 1:
            found = self.idle_gpus(job)
            if found is None:
                return False
            self.put(job, found)
            self.code[found] = -1
            return True
        best: tuple[int, int, int] | None = None
        cuts: dict[int, Cut] = {}
        for gpu in self._candidates(job):
            on = self.on[gpu]
            cut = self._cut(gpu, [*on, job], self.cut[gpu].place if gpu in self.cut else ())
            if cut is None:
                continue
            gain = sum(cut.speed) - sum(self.cut[gpu].speed if on else ())
            if gain > 0 and (best is None or (gain, len(on), -gpu) > best):
                best, cuts[gpu] = (gain, len(on), -gpu), cut
        if best is None:
            return False
        gpu = -best[2]
        self._stop_moved(gpu, cuts[gpu])
        self.put(job, [gpu])
        self._set(gpu, cuts[gpu])
        return True

    def _candidates(self, job: int) -> list[int]:
        """Return the GPUs that a job may join, one from each group of equal GPUs."""
        found = []
        for own in self.demand.gpus_of(job):
            there = own[self.view.node_gpus[self.demand.node[own]] > 0]
            there = there[(self.code[there] >= 0) & (self.count[there] < self.p["residents"])]
            codes, first = np.unique(self.code[there], return_index=True)
            found += [int(gpu) for code, gpu in zip(codes.tolist(), there[first].tolist(), strict=True) if code]
            empty = there[self.code[there] == 0]
            if len(empty):
                found.append(int(empty[self.idle[self.demand.node[empty]].argmin()]))
        return found

    def _cut(self, gpu: int, jobs: list[int], now: tuple[Slice, ...]) -> Cut | None:
        """Return a GPU's split for these jobs, the first of which already have slices, or None if they do not fit.

        The split changes only if the gain exceeds the loss during the pause.
        """
        kinds = tuple(self.kinds[job] for job in jobs)
        rest = (None,) * (len(jobs) - len(now))
        kept = self.layouts.best(kinds, (*now, *rest))
        online = tuple(piece if kind.online else None for piece, kind in zip(now, kinds, strict=False))
        anew = self.layouts.best(kinds, (*online, *rest))
        if anew is None or (kept is not None and sum(kept.speed) >= sum(anew.speed)):
            return kept
        before = self.cut[gpu].speed if now else ()
        moved = [at for at, piece in enumerate(now) if piece != anew.place[at]]
        speeds = before if len(before) == len(now) else (kept.speed if kept else anew.speed)
        cost = self.reconfigure_ms * sum(speeds[at] for at in moved)
        gain = sum(anew.speed) - (sum(kept.speed) if kept else sum(before))
        return anew if gain * self.horizon_ms > cost else kept

    def _stop_moved(self, gpu: int, cut: Cut) -> None:
        """Pause jobs whose slice changes while the GPU is split again."""
        if not self.reconfigure_ms or gpu not in self.cut:
            return
        for job, old, new in zip(self.on[gpu], self.cut[gpu].place, cut.place, strict=False):
            if old != new:
                self.stopped[job] = self.view.now_ms + self.reconfigure_ms

    def _again(self, gpu: int) -> None:
        """Reconsider the split of a GPU after a job has left."""
        on = self.on[gpu]
        old = self.cut.pop(gpu, None)
        if not on or old is None:
            self.code[gpu] = 0
            return
        # The remaining jobs have kept their order.
        staying = [piece for job, piece in zip(self.order[gpu], old.place, strict=True) if job in self.of]
        speeds = tuple(s for job, s in zip(self.order[gpu], old.speed, strict=True) if job in self.of)
        self.cut[gpu] = Cut(tuple(staying), speeds)
        cut = self._cut(gpu, on, tuple(staying))
        if cut is not None:
            self._stop_moved(gpu, cut)
            self._set(gpu, cut)

    def _set(self, gpu: int, cut: Cut) -> None:
        self.cut[gpu] = cut
        self.order[gpu] = list(self.on[gpu])
        key = tuple(self.kinds[job] for job in self.on[gpu]), cut
        self.code[gpu] = self.alike.setdefault(key, len(self.alike) + 1)
        self.touch([gpu])


class MigerLike(Planned):
    """GPUs are split by need into slices that jobs may share, and online jobs get their own slices.

    Online jobs are considered first, then the others, each in submission order. A job that cannot start is skipped, and
    so are all identical jobs. A one-GPU job goes where the sum of speeds grows most, among all GPUs with fewer than
    `residents` jobs. For the jobs there plus the new one, the policy finds the split with the largest sum, over all
    legal splits and placements. Up to `mps` jobs may share a slice if their speeds add up to more than the speed of one
    job alone. An online job has its own slice, which exceeds its load by at least `slack`, and keeps it. On a slice
    with c of 7 parts, the speed is min(1, c / 7 / u), times M1 with the utilizations of the slice. If the slices of
    other jobs change, those jobs pause for `reconfigure` seconds. This happens only if the gain over `horizon` seconds
    exceeds the loss. When a job ends, its GPU's split is reconsidered. Among equals, the GPU with the most jobs is
    taken, then the first GPU. Gangs get idle GPUs close together. Utilization and memory are counted in steps of 5 %.

    Equal to
    --------
    - With slices=whole, mps=1 and no online jobs, the policy equals fifo,scan=skip.
    - With residents=1 and no online jobs, the policy equals fifo,scan=skip.

    Sources
    -------
    - Zhang, Li, Li, MIGER (ICPP'24), abstract: a hierarchy of slice sizes, co-location and shares, with protected
      online jobs. The slice geometry comes from NVIDIA.
    - Our choices, because we had no access to the inner rule: the objective, exact search for few jobs, the speed of a
      slice, placement of one job at a time, and every default value; an online job's load is the maximum of M33.
    """

    plans = _Cuts
    card = Card(
        name="miger-like",
        parameters=(
            Parameter("slices", "all", "which slices to use: all those of M32, or only whole GPUs", ("all", "whole")),
            Parameter("mps", 2, "maximum number of jobs on a slice", minimum=1, maximum=4),
            Parameter("residents", 3, "maximum number of jobs on a GPU", minimum=1, maximum=4),
            Parameter(
                "slack", 0.2, "minimum excess of an online job's slice over its load, as a share of that load [1]"
            ),
            Parameter("reconfigure", 10.0, "duration of a new split [s]"),
            Parameter("horizon", 3600.0, "time over which the gain of a new split counts [s]"),
        ),
        assumptions=("D1", "M1", "M2", "M4", "M10", "M32", "M33"),
    )


def _steps(values: Ints | list[int]) -> list[int]:
    """Round values up to steps of 5 %."""
    found: list[int] = np.minimum(-(-np.asarray(values, np.int64) // _STEP) * _STEP, PPM).tolist()
    return found
