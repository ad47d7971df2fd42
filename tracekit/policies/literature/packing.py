"""Policies that pack jobs onto the same GPUs: in pairs that slow each other little (Lucid), or in groups (Muri)."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.optimal import heaviest_pairs
from tracekit.policies.literature.residents import FULL, Lines, Residents, rounded_use
from tracekit.policies.parameters import NOISE, OVERHEAD, believed
from tracekit.policies.plans import Planned, Plans
from tracekit.policies.pools import make_pools
from tracekit.replay.assumptions.of_jobs import memory_ppm, sharing_class
from tracekit.replay.assumptions.speeds import PPM, stages_ppm
from tracekit.replay.mechanisms import Plan, View

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Ints
    from tracekit.replay.clusters.cluster import Cluster


_CHECK_MS = 100_000
"""Time between two checks of the arrival rate."""
_WINDOW_MS = 600_000
"""Length of the window in which arrivals are counted."""
_WIDEST = 8
"""Maximum number of GPUs of a job that is packed."""


class _Packing(Residents):
    """Profiles and packs jobs."""

    def set_up(self) -> None:
        """Estimate the jobs' GPU time, and choose the profiler's nodes."""
        super().set_up()
        p, jobs, cluster = self.p, self.jobs, self.cluster
        self.score: list[int] = sharing_class(self.models, self.demand.used).tolist()
        estimate = believed(jobs, self.models, p["noise"], self.seed)
        work = jobs.work_ms if estimate is None else estimate
        self.value: list[int] = (work * self.gpus).tolist()
        """Expected GPU time of each job [GPU*ms]."""
        self.submit: list[int] = jobs.submit_ms.tolist()
        self.profile_ms = round(p["time"] * 1000)
        self.nodes = _profiler(cluster, p["profile"])
        per_node = int(cluster.gpus.max(initial=1))
        # As in the released code: with two nodes of 8 GPUs and a factor of 4, jobs of up to 8 GPUs.
        self.small = min(p["profile"] * p["factor"], per_node) if self.nodes.any() else 0

    def begin(self, view: View) -> None:
        super().begin(view)
        demand = self.demand
        # In the profiler, the smallest jobs come first, then the earliest.
        self.fresh = Lines([g << 32 | t for g, t in zip(demand.gpus, demand.type, strict=True)], demand.gpus)
        self.waiting = Lines(demand.type, self.value)
        self.profiled: dict[int, int] = {}
        """Time at which each job leaves the profiler [ms]."""
        self.partner: dict[int, int] = {}
        self.alone: dict[tuple[int, int], dict[int, None]] = {}
        """Jobs that run alone, in start order, by node group and GPUs."""
        self.listed: dict[int, tuple[int, int]] = {}
        """Key in `alone` of each job that runs alone."""
        self.fits: dict[int, bool] = {}
        """Whether jobs of each kind fit on the profiler's nodes in service."""
        self.there: Ints | None = None
        self.packing, self.checked_ms = False, -1

    def due(self, now_ms: int) -> None:
        """Stop jobs whose time in the profiler is over."""
        for job in [job for job, until in self.profiled.items() if until <= now_ms]:
            self.stop(job)
            del self.profiled[job]
            self.waiting.add(job)

    def add(self, job: int) -> None:
        """Make a job wait for the profiler or for the other nodes."""
        (self.fresh if self._profiles(job) else self.waiting).add(job)

    def start(self, view: View) -> None:
        """Start jobs in the profiler, then the other jobs."""
        self.fresh.start(self._profile, skip=False)
        self._look(view)
        self.waiting.start(self._start, skip=self.packing)

    def wake(self, now_ms: int) -> int:
        """Return the next time at which a job leaves the profiler or the policy checks the arrival rate."""
        wakes = list(self.profiled.values())
        if self.p["pack"] == "auto" and len(self.waiting):
            wakes.append(self.checked_ms + _CHECK_MS)
        return min(wakes, default=-1)

    def _look(self, view: View) -> None:
        """Decide whether to pack jobs."""
        if self.p["pack"] != "auto":
            self.packing = self.p["pack"] == "on"
        elif self.checked_ms < 0 or view.now_ms >= self.checked_ms + _CHECK_MS:
            self.checked_ms = view.now_ms
            since = bisect_left(self.submit, view.now_ms - _WINDOW_MS)
            self.packing = view.submitted - since > self.p["calm"]

    def _profiles(self, job: int) -> bool:
        """Return whether a job is small enough for the profiler and may use its nodes."""
        if self.demand.gpus[job] > self.small:
            return False
        there, kind = self.view.node_gpus, self.demand.kind[job]
        if there is not self.there:
            self.there, self.fits = there, {}
        if kind not in self.fits:
            self.fits[kind] = self.demand.nodes_for(job, np.where(self.nodes, there, 0)) is not None
        return self.fits[kind]

    def _room(self, *, profiler: bool) -> Ints:
        there = self.nodes if profiler else ~self.nodes
        return np.where(there & (self.view.node_gpus > 0), self.idle, 0)

    def _profile(self, job: int) -> bool:
        found = self.demand.nodes_for(job, self._room(profiler=True))
        if found is None:
            return False
        self.put(job, self.lowest(found))
        self.profiled[job] = self.view.now_ms + self.profile_ms
        return True

    def _start(self, job: int) -> bool:
        """Start a job on another job's GPUs, or alone."""
        tries = (self._alone, self._beside) if self.p["idle_first"] else (self._beside, self._alone)
        return any(attempt(job) for attempt in tries)

    def _alone(self, job: int) -> bool:
        found = self.demand.nodes_for(job, self._room(profiler=False))
        if found is None:
            return False
        self.put(job, self.lowest(found))
        self._list(job)
        return True

    def _list(self, job: int) -> None:
        gpu = self.of[job][0]
        self.listed[job] = int(self.demand.group[gpu]), self.demand.gpus[job]
        self.alone.setdefault(self.listed[job], {})[job] = None

    def _beside(self, job: int) -> bool:
        demand, gpus = self.demand, self.demand.gpus[job]
        if not self.packing or gpus > _WIDEST:
            return False
        most, ratio = self.p["score"], self.p["ratio"]
        for group in demand.groups_of(job):
            for other in self.alone.get((group, gpus), ()):
                if (
                    self.score[job] + self.score[other] <= most
                    and demand.memory[job] + demand.memory[other] <= FULL
                    and self.value[job] <= ratio * self.value[other]
                    and all(self.view.node_gpus[demand.node[gpu]] > 0 for gpu in self.of[other])
                ):
                    self.put(job, self.of[other])
                    self.partner[job], self.partner[other] = other, job
                    del self.alone[self.listed.pop(other)][other]
                    return True
        return False

    def left(self, job: int, gpus: list[int]) -> None:
        """Record that a job has ended. Its partner runs alone again."""
        if self.profiled.pop(job, None) is not None:
            return
        other = self.partner.pop(job, -1)
        if other >= 0:
            del self.partner[other]
            if other in self.of:
                self._list(other)
            return
        if job in self.listed:
            del self.alone[self.listed.pop(job)][job]

    def speed(self, job: int, gpu: int) -> int:
        """Return the speed of a job next to its partner."""
        other = self.partner.get(job, -1)
        return FULL if other < 0 else self.demand.speed_beside(job, other)


def _profiler(cluster: Cluster, nodes: int) -> Bools:
    """Return the profiler's nodes: this many of each domain's largest nodes, at most a quarter of them (N,)."""
    found = np.zeros(cluster.nodes, np.bool_)
    for domain in np.unique(cluster.domain).tolist():
        own = np.flatnonzero(cluster.domain == domain)
        own = own[np.argsort(-cluster.gpus[own], kind="stable")]
        found[own[: min(nodes, len(own) // 4)]] = True
    return found


class Lucid(Planned):
    """Small jobs are profiled first, then jobs run by least expected GPU time, in pairs that slow each other little.

    Jobs with few GPUs begin on the profiler: the `profile` largest nodes of each domain, but at most a quarter of its
    nodes. There, jobs with the fewest GPUs go first, then by submission, up to the first job that does not fit. A job
    that has not ended after `time` seconds leaves the profiler. All other jobs wait for the other nodes, the least
    expected run time times GPUs first. While jobs are packed, a job of at most 8 GPUs shares with the first job that
    runs alone on the same number of GPUs, if their scores add up to at most `score`, both fit in memory, and its
    expected GPU time is at most `ratio` times that of the other job. Otherwise it takes idle GPUs close together, or is
    skipped. Without packing, no job overtakes the first job that does not fit. The score is 0, 1 or 2, depending on
    utilization. Both jobs of a pair are slowed according to M1. When one of them ends, the other speeds up again. Jobs
    are stopped only in the profiler. Utilization and memory are counted in whole percent.

    Equal to
    --------
    - With pack=off and profile=0, the policy equals ssf.
    - With pack=on, profile=0 and no two jobs that fit in memory, the policy equals ssf,scan=skip.

    Sources
    -------
    - Hu et al., Lucid (ASPLOS'23), and its released simulator: profiler, order, partners, thresholds, two modes.
    - Our choices: work done in the profiler counts, while jobs repeat it in the released simulator; expected arrivals
      are those of the last ten minutes; the first partner is the job that has run alone longest; overhead is charged to
      jobs that leave the profiler.
    """

    plans = _Packing
    card = Card(
        name="lucid",
        parameters=(
            Parameter("profile", 2, "number of profiler nodes per domain, or 0 for none"),
            Parameter("time", 200.0, "maximum time in the profiler [s]", minimum=0.001),
            Parameter(
                "factor", 4, "largest profiled job, in GPUs per profiler node; the job must fit on one node", minimum=1
            ),
            Parameter(
                "pack",
                "auto",
                "when to pack jobs: always, never, or if more than `calm` jobs arrived in the last ten minutes",
                ("auto", "on", "off"),
            ),
            Parameter("calm", 2.0, "with pack=auto, arrivals in ten minutes up to which no job is packed [jobs]"),
            Parameter("score", 2, "maximum sum of the scores of a pair", maximum=4),
            Parameter("ratio", 2.0, "maximum expected GPU time of a job relative to its partner's"),
            Parameter("idle_first", False, "whether jobs look for idle GPUs before a partner"),
            NOISE,
            OVERHEAD,
        ),
        assumptions=("D1", "M1", "M2", "M4", "M9", "M11"),
    )


Stages: TypeAlias = tuple[int, ...]
"""Shares of an iteration's time on storage, CPU, GPU and network [ppm]."""

_MEASURED = (1.0, 1.0, 1.31, 1.48, 1.35)
"""Measured time of a group, relative to the computed time, by number of jobs."""


@lru_cache(maxsize=1 << 16)
def group_time(group: tuple[Stages, ...]) -> int:
    """Return the iteration time of each job in a group with the best order of turns.

    Parameters
    ----------
    group : tuple
        Times of each job's stages, in any unit. There are at most as many jobs as stages.
    """
    stages = range(len(group[0]))
    turns = permutations(stages[1:], len(group) - 1)
    return min(
        sum(max(job[(at - shift) % len(job)] for job, shift in zip(group, (0, *others), strict=True)) for at in stages)
        for others in turns
    )


@lru_cache(maxsize=1 << 16)
def efficiency(group: tuple[Stages, ...]) -> int:
    """Return the share of a group's time for which the resources are busy [ppm]."""
    return sum(map(sum, group)) * PPM // (len(group[0]) * group_time(group))


def group_speed(group: tuple[Stages, ...]) -> int:
    """Return the speed of each job in a group [ppm]."""
    return max(min(round(sum(group[0]) * PPM / (group_time(group) * _MEASURED[len(group)])), PPM), 1)


def gains(group: tuple[Stages, ...]) -> bool:
    """Return whether a group is at least as fast as its jobs run one after another."""
    return len(group) == 1 or group_time(group) * _MEASURED[len(group)] <= sum(map(sum, group))


class Groups(Plans):
    """Forms groups of jobs that take turns."""

    def set_up(self) -> None:
        """Find the jobs with equal stages."""
        p, jobs, cluster, stages = self.p, self.jobs, self.cluster, self.stages()
        self.settings.update(round_ms=round(p["round"] * 1000), scope=0, share=max(p["group"], 2))
        memory = memory_ppm(self.models, jobs) if p["memory"] else np.zeros(len(jobs), np.int64)
        self.pools = make_pools(jobs, cluster, "place")
        self.domains = len(cluster.domains)
        self.key, self.largest, self.candidates, self.unpack = p["key"], p["group"], p["candidates"], p["unpack"]
        shapes, self.shape = np.unique(stages, axis=0, return_inverse=True)
        self.shape = self.shape.ravel()
        self.shapes: list[Stages] = [tuple(row) for row in shapes.tolist()]
        self.size: list[int] = self.gpus.tolist()
        self.alone = [((*row,),) for row in stages.tolist()]
        self.memory: list[int] = memory.tolist()

    def stages(self) -> Ints:
        """Return the shares of each job's iteration that use storage, CPU, GPU and network [ppm] (n, 4)."""
        used, wide = rounded_use(self.models, self.jobs), self.gpus > int(self.cluster.gpus.max(initial=1))
        three = stages_ppm(self.models, used, wide)
        return np.column_stack([three[:, 0] // 2, three[:, 0] - three[:, 0] // 2, three[:, 1], three[:, 2]])

    def begin(self, view: View) -> None:
        """Begin a run."""
        self.sharing = False
        """Whether the last plan had groups of several jobs."""

    def plan(self, view: View) -> Plan:
        """Return the plan: the jobs that run, and their groups."""
        job = view.job
        there = np.bincount(self.pools.domain, self.pools.gpus(view), self.domains).astype(np.int64)
        domain = self.pools.kind_domain[self.pools.kind[job]]
        if not self.sharing and (np.bincount(domain, self.gpus[job], self.domains) <= there).all():
            waiting = job[~view.running]
            return Plan(waiting, self.gpus[waiting], keep=True, optional=len(waiting))
        ranked = job[np.lexsort((job, ~view.running, self._key(view, job)))]
        running = set(job[view.running].tolist())
        groups: list[list[int]] = []
        left_over: list[int] = []
        domain = self.pools.kind_domain[self.pools.kind[ranked]]
        for d in range(self.domains):
            own = ranked if self.domains == 1 else ranked[domain == d]
            chosen, others = self._chosen(own, int(there[d]))
            left = int(there[d])
            for group in self._packed(chosen, left):
                if self.size[group[0]] <= left:
                    left -= self.size[group[0]]
                    groups.append(group)
                else:
                    left_over += group
            left_over += others
        groups.sort(key=lambda group: -self.size[group[0]])
        # Jobs without a group get spare GPUs, except running jobs, which would only move.
        late = [j for j in left_over if j not in running][: 4 * self.candidates]
        return self._told([*groups, *([j] for j in late)], running)

    def _key(self, view: View, job: Ints) -> Ints:
        if self.key == "las":
            return view.attained_gpu_ms
        left = view.remaining_ms + view.overhead_ms
        return left if self.key == "srtf" else left * self.gpus[job]

    def _chosen(self, ranked: Ints, there: int) -> tuple[list[int], list[int]]:
        """Return the jobs to consider (those that fit by GPU count, and the next of the same kind), and the rest."""
        slots: dict[int, int] = {}
        chosen: list[int] = []
        others: list[int] = []
        left = there
        kinds, asked = self.pools.kind[ranked].tolist(), self.gpus[ranked].tolist()
        for j, kind, gpus in zip(ranked.tolist(), kinds, asked, strict=True):
            if slots.get(kind, 0) > 0:
                slots[kind] -= 1
            elif gpus <= left:
                left -= gpus
                slots[kind] = self.largest - 1
            else:
                others.append(j)
                continue
            chosen.append(j)
        return chosen, others

    def _packed(self, chosen: list[int], there: int) -> list[list[int]]:
        """Return groups of the chosen jobs, merged as long as they request more GPUs in total than exist."""
        buckets: dict[int, list[list[int]]] = {}
        for j, kind in zip(chosen, self.pools.kind[chosen].tolist(), strict=True):
            buckets.setdefault(kind, []).append([j])
        demand = int(self.gpus[chosen].sum())
        for _ in range(self.largest - 1):
            before = demand
            for kind in sorted(buckets, key=lambda k: -int(self.gpus[buckets[k][0][0]])):
                if demand > there:
                    buckets[kind], freed = self._merged(buckets[kind], demand - there)
                    demand -= freed
            if demand in {before, there} or demand < there:
                break
        rank = {j: at for at, j in enumerate(chosen)}
        found = []
        for groups in buckets.values():
            for group in groups:
                if len(group) > 1 and self.unpack and not gains(self._shapes(group)):
                    found += [[j] for j in group]
                else:
                    found.append(sorted(group, key=rank.__getitem__) if len(group) > 1 else group)
        return sorted(found, key=lambda group: rank[group[0]])

    def _shapes(self, group: list[int]) -> tuple[Stages, ...]:
        if len(group) == 1:
            return self.alone[group[0]]
        return tuple(sorted(self.shapes[self.shape[j]] for j in group))

    def _merged(self, groups: list[list[int]], excess: int) -> tuple[list[list[int]], int]:
        """Merge groups of one kind by efficiency until enough GPUs are freed. Return the groups and the GPUs freed."""
        gpus = int(self.gpus[groups[0][0]])
        pairs: list[tuple[int, int, int]] = []
        for low in range(0, len(groups), self.candidates):
            part = groups[low : low + self.candidates]
            found = _matched(
                tuple(self._shapes(g) for g in part), tuple(sum(self.memory[j] for j in g) for g in part), self.largest
            )
            pairs += [(weight, low + a, low + b) for weight, a, b in found]
        pairs.sort(key=lambda pair: (-pair[0], pair[1]))
        pairs = pairs[: -(-excess // gpus)]
        gone = {b for _, _, b in pairs}
        made = {a: groups[a] + groups[b] for _, a, b in pairs}
        return [made.get(at, group) for at, group in enumerate(groups) if at not in gone], gpus * len(pairs)

    def _told(self, groups: list[list[int]], running: set[int]) -> Plan:
        """Return the plan for these groups. Running jobs come first in a group, so the other jobs join them."""
        named, beside, rate = [], [], []
        for group in groups:
            ordered = group if len(group) == 1 else sorted(group, key=lambda j: j not in running)
            speed = PPM if len(group) == 1 else group_speed(self._shapes(group))
            named += ordered
            beside += [ordered[0]] * len(group)
            rate += [speed] * len(group)
        self.sharing = len(named) > len(groups)
        job = np.array(named, np.int64)
        return Plan(
            job,
            self.gpus[job],
            rate=np.array(rate, np.int64),
            beside=np.array(beside, np.int64),
            optional=len(named),
        )


@lru_cache(maxsize=1 << 12)
def _matched(groups: tuple[tuple[Stages, ...], ...], need: tuple[int, ...], most: int) -> list[tuple[int, int, int]]:
    """Return the best pairs of groups (efficiency [ppm], index, later index) by sum, each of up to `most` jobs."""
    edges = [
        (efficiency(tuple(sorted(groups[a] + groups[b]))), a, b)
        for a in range(len(groups))
        for b in range(a + 1, len(groups))
        if len(groups[a]) + len(groups[b]) <= most and need[a] + need[b] <= PPM
    ]
    if len({weight for weight, _, _ in edges}) == 1 and len(edges) == len(groups) * (len(groups) - 1) // 2:
        # All pairs are equally good, so pair neighbours.
        return [(edges[0][0], a, a + 1) for a in range(0, len(groups) - 1, 2)]
    return [(weight, a, b) for weight, a, b in heaviest_pairs(edges)]


class Muri(Planned):
    """Jobs with complementary stages take turns on the same GPUs.

    Jobs are considered in the order of `key`. A job reserves its GPUs if enough are left by count; then the next
    `group` - 1 jobs with the same request are also considered. If these jobs together request more GPUs than exist,
    jobs that request the same number are matched in pairs, then pairs with pairs, up to `group` jobs, by blossom
    matching. The matching maximizes the sum of the efficiencies, and the most efficient pairs are formed until the GPUs
    suffice. A group's efficiency is the share of its time for which storage, CPU, GPU and network are busy if its jobs
    take turns in the best order. Each job in the group completes an iteration in that time, multiplied by 1.31, 1.48 or
    1.35 for two, three or four jobs, as Muri measured. A group is dissolved if its jobs would be faster one after
    another. The groups with the most GPUs are placed first, then by their first job. Jobs that find no GPUs are
    stopped, and waiting jobs start if they fit. Utilization is counted in whole percent.

    Equal to
    --------
    - With group=1 and round=0 on one node, the policy equals srsf,fit=quota, or srtf,fit=quota with key=srtf.
    - If all jobs fit, or all request the same number of GPUs and use only the GPU (u = 1), the policy equals group=1.

    Sources
    -------
    - Zhao et al., Muri (SIGCOMM'22), and its released simulator: order, choice, matching, factors, unpacking.
    - Our choices: rounds instead of every event; a matching considers at most `candidates` groups; M5's input stage is
      half storage, half CPU; running jobs win ties; a job that stays in its group keeps its GPUs, and each job that
      moves pays for its own restart; jobs left out may start if a planned job does not fit.
    """

    plans = Groups
    card = Card(
        name="muri",
        parameters=(
            Parameter(
                "key",
                "srsf",
                "order: by remaining run time, remaining run time times GPUs, or GPU time so far",
                ("srtf", "srsf", "las"),
            ),
            Parameter("group", 4, "maximum number of jobs in a group", minimum=1, maximum=4),
            Parameter("round", 360.0, "length of a round, or 0 to decide at every arrival and end [s]"),
            Parameter("candidates", 32, "maximum number of groups in one matching, in the order of the key", minimum=2),
            Parameter("unpack", True, "whether to dissolve groups whose jobs would be faster one after another"),
            Parameter("memory", False, "whether jobs share GPUs only if they fit in GPU memory together (M2)"),
            OVERHEAD,
        ),
        assumptions=("D1", "M1", "M2", "M4", "M5", "M9"),
    )
