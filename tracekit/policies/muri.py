"""Muri: jobs whose stages complement each other take turns on the same GPUs."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.matching import heaviest_pairs
from tracekit.policies.parameters import OVERHEAD, overheads
from tracekit.policies.pools import make_pools
from tracekit.replay.assumptions.of_jobs import memory_ppm, utilization_ppm
from tracekit.replay.assumptions.speeds import stages_ppm
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Groups", "Muri", "gains", "group_speed", "group_time"]

Stages: TypeAlias = tuple[int, ...]
"""Shares of an iteration on storage, CPU, GPU and network [ppm]."""

_PPM = 1_000_000
_MEASURED = (1.0, 1.0, 1.31, 1.48, 1.35)
"""Time of a group relative to its plan, by number of jobs."""
_PERCENT = 10_000


@lru_cache(maxsize=1 << 16)
def group_time(group: tuple[Stages, ...]) -> int:
    """Return the time in which each job of a group ends an iteration, in the best order of their turns.

    Parameters
    ----------
    group : tuple
        Times of each job's stages, in any unit; at most as many jobs as stages.
    """
    stages = range(len(group[0]))
    turns = permutations(stages[1:], len(group) - 1)
    return min(
        sum(max(job[(at - shift) % len(job)] for job, shift in zip(group, (0, *others), strict=True)) for at in stages)
        for others in turns
    )


@lru_cache(maxsize=1 << 16)
def efficiency(group: tuple[Stages, ...]) -> int:
    """Return the share of the group's time in which its stages are busy [ppm]."""
    return sum(map(sum, group)) * _PPM // (len(group[0]) * group_time(group))


def group_speed(group: tuple[Stages, ...]) -> int:
    """Return the speed of each job of a group [ppm]."""
    return max(min(round(sum(group[0]) * _PPM / (group_time(group) * _MEASURED[len(group)])), _PPM), 1)


def gains(group: tuple[Stages, ...]) -> bool:
    """Return whether a group is at least as fast as its jobs one after the other."""
    return len(group) == 1 or group_time(group) * _MEASURED[len(group)] <= sum(map(sum, group))


class Groups:
    """Plans of one replay."""

    def __init__(
        self,
        jobs: Jobs,
        cluster: Cluster,
        stages: NDArray[np.int64],
        memory: NDArray[np.int64],
        *,
        key: str,
        most: int,
        candidates: int,
        unpack: bool,
    ) -> None:
        self.gpus = jobs.devices.astype(np.int64)
        self.pools = make_pools(jobs, cluster, "place")
        self.domains = len(cluster.domains)
        self.key, self.most, self.candidates, self.unpack = key, most, candidates, unpack
        shapes, self.shape = np.unique(stages, axis=0, return_inverse=True)
        self.shape = self.shape.ravel()
        self.shapes: list[Stages] = [tuple(row) for row in shapes.tolist()]
        self.size: list[int] = self.gpus.tolist()
        self.alone = [((*row,),) for row in stages.tolist()]
        self.memory: list[int] = memory.tolist()
        self.sharing = False
        """Whether the last plan has groups of several jobs."""

    def plan(self, view: View) -> Plan:
        """Return which jobs run together."""
        job = view.job
        there = np.bincount(self.pools.domain, self.pools.gpus(view), self.domains).astype(np.int64)
        if not self.sharing and (self._asked(job) <= there).all():
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
        # Jobs that the plan leaves out get GPUs that find no other use; stopped jobs would only move.
        late = [j for j in left_over if j not in running][: 4 * self.candidates]
        return self._told([*groups, *([j] for j in late)], running, len(job))

    def _asked(self, job: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the GPUs that jobs ask of each domain."""
        domain = self.pools.kind_domain[self.pools.kind[job]]
        return np.bincount(domain, self.gpus[job], self.domains).astype(np.int64)

    def _key(self, view: View, job: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.key == "las":
            return view.attained_gpu_ms
        left = view.remaining_ms + view.overhead_ms
        return left if self.key == "srtf" else left * self.gpus[job]

    def _chosen(self, ranked: NDArray[np.int64], there: int) -> tuple[list[int], list[int]]:
        """Return the considered jobs (those with enough GPUs, and the next equal ones), and the rest."""
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
                slots[kind] = self.most - 1
            else:
                others.append(j)
                continue
            chosen.append(j)
        return chosen, others

    def _packed(self, chosen: list[int], there: int) -> list[list[int]]:
        """Return the groups of the chosen jobs, formed while together they ask for more GPUs than exist."""
        buckets: dict[int, list[list[int]]] = {}
        for j, kind in zip(chosen, self.pools.kind[chosen].tolist(), strict=True):
            buckets.setdefault(kind, []).append([j])
        demand = int(self.gpus[chosen].sum())
        for _ in range(self.most - 1):
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
        """Return groups of one kind, matched for the largest efficiency until enough GPUs are freed, and the GPUs."""
        gpus = int(self.gpus[groups[0][0]])
        pairs: list[tuple[int, int, int]] = []
        for low in range(0, len(groups), self.candidates):
            part = groups[low : low + self.candidates]
            found = _matched(tuple(self._shapes(g) for g in part), tuple(self._need(g) for g in part), self.most)
            pairs += [(weight, low + a, low + b) for weight, a, b in found]
        pairs.sort(key=lambda pair: (-pair[0], pair[1]))
        pairs = pairs[: -(-excess // gpus)]
        gone = {b for _, _, b in pairs}
        made = {a: groups[a] + groups[b] for _, a, b in pairs}
        return [made.get(at, group) for at, group in enumerate(groups) if at not in gone], gpus * len(pairs)

    def _need(self, group: list[int]) -> int:
        return sum(self.memory[j] for j in group)

    def _told(self, groups: list[list[int]], running: set[int], active: int) -> Plan:
        """Return the plan for groups; a running job comes first in its group, so the others join it."""
        named, beside, rate = [], [], []
        for group in groups:
            ordered = group if len(group) == 1 else sorted(group, key=lambda j: j not in running)
            speed = _PPM if len(group) == 1 else group_speed(self._shapes(group))
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
    """Return pairs of groups (efficiency [ppm], place, later place) of the largest sum; groups stay within `most`."""
    edges = [
        (efficiency(tuple(sorted(groups[a] + groups[b]))), a, b)
        for a in range(len(groups))
        for b in range(a + 1, len(groups))
        if len(groups[a]) + len(groups[b]) <= most and need[a] + need[b] <= _PPM
    ]
    if len({weight for weight, _, _ in edges}) == 1 and len(edges) == len(groups) * (len(groups) - 1) // 2:
        # All equal: every neighbour is equally good.
        return [(edges[0][0], a, a + 1) for a in range(0, len(groups) - 1, 2)]
    return [(weight, a, b) for weight, a, b in heaviest_pairs(edges)]


class Muri(Policy):
    """Groups of jobs with complementary stages."""

    card: ClassVar[Card] = Card(
        name="muri",
        title="jobs with complementary stages take turns on the same GPUs",
        rule=(
            "Jobs are considered in the order of the key. A job reserves its GPUs if enough are left in number, "
            "and then the next group - 1 jobs that ask for the same number are considered too. If these jobs "
            "together ask for more GPUs than exist, jobs that ask for the same number are matched in pairs, then "
            "pairs with pairs, up to group jobs, by blossom matching. The matching maximizes the sum of the "
            "efficiencies, and the most efficient pairs are formed until the GPUs suffice. The efficiency of a "
            "group is the share of its time in which storage, CPU, GPU and network are busy when its jobs take "
            "turns in the best order. Each job of the group completes an iteration in that time, times 1.31, 1.48 "
            "or 1.35 for two, three or four jobs, as Muri measured. A group that would be faster one job after "
            "the other is dissolved. The groups with the most GPUs are placed first, then by their first job. "
            "Jobs for which no GPUs are left are stopped, and waiting jobs start if there is room. Utilization is "
            "counted in whole percent."
        ),
        parameters=(
            Parameter(
                "key",
                "srsf",
                "order: remaining run time, that times GPUs, or least GPU time so far",
                ("srtf", "srsf", "las"),
            ),
            Parameter("group", 4, "most jobs in a group", minimum=1, maximum=4),
            Parameter("round", 360.0, "length of a round; 0: decide at every arrival and end [s]"),
            Parameter("candidates", 32, "most groups that one matching considers, in the order of the key", minimum=2),
            Parameter("unpack", True, "dissolve groups that would be faster one job after the other"),
            Parameter("memory", False, "jobs share only if their GPU memory fits together (M2)"),
            OVERHEAD,
        ),
        assumptions=("D1", "M1", "M2", "M4", "M5", "M9"),
        equal_to=(
            "With group=1, round=0 on one node: srsf,fit=quota, or with key=srtf srtf,fit=quota.",
            "If there are GPUs for all jobs, or all ask for the same number and use only the GPU (u = 1): group=1.",
        ),
        sources=(
            "Zhao et al., Muri (SIGCOMM'22), and its released simulator: order, choice, matching, factors, unpacking.",
            (
                "Own choices: rounds instead of every event; a matching considers at most candidates groups; M5's "
                "input stage is half storage, half CPU; running jobs win ties of the key; a job that stays in its "
                "group keeps its GPUs, and each job that moves pays for its own restart; jobs left out may start "
                "if a planned job found no place."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans of groups."""
        p = self.parameters
        utilization = (utilization_ppm(models, jobs) + _PERCENT // 2) // _PERCENT * _PERCENT
        largest = int(cluster.gpus.max(initial=1))
        three = stages_ppm(models, utilization, jobs.devices > largest)
        stages = np.column_stack([three[:, 0] // 2, three[:, 0] - three[:, 0] // 2, three[:, 1], three[:, 2]])
        memory = memory_ppm(models, jobs) if p["memory"] else np.zeros(len(jobs), np.int64)
        groups = Groups(
            jobs,
            cluster,
            stages,
            memory,
            key=p["key"],
            most=p["group"],
            candidates=p["candidates"],
            unpack=p["unpack"],
        )
        return Planner(
            groups.plan,
            round_ms=round(p["round"] * 1000),
            scope=0,
            overhead_ms=overheads(models, p["overhead"], jobs),
            share=max(p["group"], 2),
        )
