"""Planners that put several jobs on the same GPUs: who sits where, what is booked, and what cannot be."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.places import wants
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


def run(jobs: Jobs, cluster: Cluster, plan: Callable[[View], Plan], **options: Any) -> Outcome:
    planner = Planner(plan, **{"names_nodes": True, "share": 2, **options})
    outcome = simulate(jobs, cluster, assign(jobs, cluster), planner, name="toy", log=True)
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, gang="elastic", residents=planner.share) == []
    return outcome


def ints(*values: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


def takes(outcome: Outcome, job: int) -> list[tuple[int, int, int]]:
    """Rows (time, node, GPU) of what a job takes."""
    assert outcome.log is not None
    return sorted(
        (int(r["time_ms"]), int(r["node"]), int(r["gpu"])) for r in outcome.log if r["kind"] == 3 and r["job"] == job
    )


def at(steps: dict[int, Plan], jobs: Jobs) -> Callable[[View], Plan]:
    """Plans by time [ms]; at any other, those who run go on and the others start alone where there is room."""

    def plan(v: View) -> Plan:
        waiting = v.job[~v.running]
        rest = Plan(waiting, jobs.devices[waiting].astype(np.int64), keep=True, optional=len(waiting))
        return steps.get(v.now_ms, rest)

    return plan


# ---- pairs: a job without a place sits beside a running one of its size ----


def pairs(jobs: Jobs, speed: int) -> Callable[[View], Plan]:
    def plan(v: View) -> Plan:
        other = {int(a): int(b) for a, b in v.pairs}
        order = [*v.job[v.running].tolist(), *v.job[~v.running].tolist()]
        free = int(v.node_free.sum())
        alone = {int(j): int(jobs.devices[j]) for j in v.job[v.running] if int(j) not in other}
        beside, named = [], []
        for j in order:
            gpus, mate = int(jobs.devices[j]), -1
            if j not in alone and j not in other:
                mate = next((a for a, size in alone.items() if size == gpus), -1)
                if gpus <= free:
                    mate, free = -1, free - gpus
                elif mate < 0:
                    continue
                else:
                    del alone[mate]
                    other[mate], other[j] = j, mate
            named.append(j)
            beside.append(mate)
        rate = [speed if j in other else 1_000_000 for j in named]
        return Plan(ints(*named), jobs.devices[named].astype(np.int64), rate=ints(*rate), beside=ints(*beside))

    return plan


def test_a_packed_pair_slows_down_and_who_is_left_recovers() -> None:
    jobs, cluster = make_jobs([(0, 4, 100), (10, 4, 40), (20, 2, 10)]), make_cluster((4,))
    outcome = run(jobs, cluster, pairs(jobs, 800_000))
    # Job 1 ends at 10 + 40 / 0.8. By then job 0 has 100 - 10 - 50 * 0.8 left. Job 2 finds no partner of its size.
    assert outcome.end_ms.tolist() == [110_000, 60_000, 120_000]
    assert outcome.held_milli_ms.tolist() == [4 * 110_000_000, 4 * 50_000_000, 2 * 10_000_000]
    assert outcome.busy_milli_ms == (4 * 110 + 2 * 10) * 1_000_000
    assert outcome.preemptions.tolist() == outcome.migrations.tolist() == [0, 0, 0]


def test_the_gpus_stay_with_who_is_left_when_the_first_ends() -> None:
    jobs, cluster = make_jobs([(0, 4, 20), (10, 4, 40), (11, 2, 5)]), make_cluster((4, 2))
    outcome = run(jobs, cluster, pairs(jobs, 800_000), overhead_ms=ints(0, 9000))
    # Job 0 ends at 10 + 10 / 0.8; then job 1 has 40 - 10 left, alone.
    assert outcome.end_ms.tolist() == [22_500, 52_500, 16_000]
    assert takes(outcome, 1) == [(10_000, 0, gpu) for gpu in range(4)]
    assert outcome.migrations.tolist() == [0, 0, 0]
    assert outcome.busy_milli_ms == (4 * 52_500 + 2 * 5_000) * 1000


# ---- groups: made anew at every event, shortest first, two to a GPU where there are too few ----


def groups(jobs: Jobs, speed: int) -> Callable[[View], Plan]:
    def plan(v: View) -> Plan:
        order = v.job[np.lexsort((v.job, v.remaining_ms))].tolist()
        made: list[list[int]] = []
        left = len(order)
        for j in order:
            # All have one GPU: the shortest are paired until the rest fit.
            if made and len(made[-1]) == 1 and left + len(made) > v.gpus:
                made[-1].append(j)
            else:
                made.append([j])
            left -= 1
        named = [j for group in made for j in group]
        beside = [group[0] for group in made for _ in group]
        rate = [speed if len(group) > 1 else 1_000_000 for group in made for _ in group]
        return Plan(ints(*named), jobs.devices[named].astype(np.int64), rate=ints(*rate), beside=ints(*beside))

    return plan


def test_groups_are_made_anew_and_who_moves_is_charged() -> None:
    jobs, cluster = make_jobs([(0, 1, 40), (0, 1, 40), (10, 1, 20), (10, 1, 10)]), make_cluster((1, 1))
    outcome = run(jobs, cluster, groups(jobs, 800_000), overhead_ms=ints(0, 2000))
    # At 10 s: 3 with 2; 0, which stays, with 1, which moves to it. 3 ends at 22.5 s, with 10, 20 and 21.6 s left of the
    # others: 0 moves to 2, and 1 is alone. 2 ends at 35 s; 0 has 11.6 s left, and 1 9.1 s.
    assert outcome.end_ms.tolist() == [46_600, 44_100, 35_000, 22_500]
    assert outcome.migrations.tolist() == [1, 1, 0, 0]
    assert takes(outcome, 0) == [(0, 0, 0), (22_500, 1, 0)]
    assert takes(outcome, 1) == [(0, 1, 0), (10_000, 0, 0)]
    assert takes(outcome, 2) == takes(outcome, 3) == [(10_000, 1, 0)]
    assert outcome.busy_milli_ms == (46_600 + 44_100) * 1000


def test_two_that_are_to_be_alone_part_and_the_first_named_stays() -> None:
    jobs, cluster = make_jobs([(0, 2, 10), (0, 2, 10), (5, 1, 1)]), make_cluster((4, 1))
    start = Plan(ints(0, 1), ints(2, 2), beside=ints(0, 0))
    part = Plan(ints(1, 0, 2), ints(2, 2, 1), beside=ints(1, 0, -1))
    outcome = run(jobs, cluster, at({0: start, 5000: part}, jobs), overhead_ms=ints(0, 0, 500))
    assert takes(outcome, 0) == [(0, 0, 0), (0, 0, 1), (5000, 0, 2), (5000, 0, 3)]
    assert takes(outcome, 1) == [(0, 0, 0), (0, 0, 1)]
    assert outcome.end_ms.tolist() == [10_500, 10_000, 6000]


def test_who_is_kept_in_company_stays_in_it() -> None:
    jobs, cluster = make_jobs([(0, 2, 10), (0, 2, 10), (5, 1, 1)]), make_cluster((4,))
    start = Plan(ints(0, 1), ints(2, 2), beside=ints(-1, 0))
    again = Plan(ints(1, 0), ints(2, 2), rate=ints(500_000, 1_000_000))
    outcome = run(jobs, cluster, at({0: start, 5000: again}, jobs))
    assert outcome.end_ms.tolist() == [10_000, 15_000, 11_000]
    assert outcome.migrations.tolist() == [0, 0, 0]


def test_a_group_moves_together_and_one_that_comes_back_to_its_gpu_is_not_charged() -> None:
    jobs, cluster = make_jobs([(0, 1, 10), (0, 1, 10), (5, 1, 1)]), make_cluster((2,))
    start = Plan(ints(0, 1), ints(1, 1))
    # Job 1 leaves GPU 1, since job 0 does not have it yet, and finds it again where job 0 is put.
    together = Plan(ints(0, 1, 2), ints(1, 1, 1), place=ints((0, 0, 1, 1)), beside=ints(-1, 0, -1))
    outcome = run(jobs, cluster, at({0: start, 5000: together}, jobs), overhead_ms=ints(0, 3000))
    assert takes(outcome, 0) == [(0, 0, 0), (5000, 0, 1)]
    assert takes(outcome, 1) == [(0, 0, 1), (5000, 0, 1)]
    assert takes(outcome, 2) == [(5000, 0, 0)]
    assert outcome.migrations.tolist() == [1, 0, 0]
    assert outcome.end_ms.tolist() == [13_000, 10_000, 6000]


# ---- GPUs that are named one by one ----


def test_a_job_is_put_on_gpus_of_several_others() -> None:
    jobs, cluster = make_jobs([(0, 2, 10), (0, 1, 20), (5, 3, 5)]), make_cluster((4, 4))
    start = Plan(ints(0, 1), ints(2, 1))
    over = Plan(ints(2), ints(3), rate=ints(250_000), place=ints((0, 0, 2, 1), (0, 1, 1, 3)), keep=True)
    seen: list[Any] = []
    steps = at({0: start, 5000: over}, jobs)

    def plan(v: View) -> Plan:
        seen.append((v.now_ms, v.pairs.tolist(), v.node_free.tolist(), v.places[:, [0, 1, 3]].tolist()))
        return steps(v)

    outcome = run(jobs, cluster, plan)
    assert takes(outcome, 2) == [(5000, 0, 1), (5000, 0, 2), (5000, 1, 3)]
    assert outcome.end_ms.tolist() == [10_000, 20_000, 25_000]
    # GPUs 0 to 2 of node 0 until 10, 20 and 25 s; GPU 1 goes on until 25 s; one of node 1 from 5 to 25 s.
    assert outcome.busy_milli_ms == (10 + 25 + 25 + 20) * 1_000_000
    assert seen[2] == (
        10_000,
        [[1, 2], [2, 1]],
        [2, 3],
        [[1, 0, 2], [2, 0, 1], [2, 0, 2], [2, 1, 3]],
    )


def test_three_may_share_where_the_planner_says_so() -> None:
    jobs, cluster = make_jobs([(0, 1, 6), (0, 1, 6), (0, 1, 6), (0, 1, 6)]), make_cluster((1,))
    third = [333_333, 333_333, 333_334]
    start = Plan(ints(0, 1, 2), ints(1, 1, 1), rate=ints(*third), beside=ints(0, 0, 0))
    outcome = run(jobs, cluster, at({0: start}, jobs), share=3)
    # At 18 s, the fourth starts with what is left of the others.
    assert outcome.end_ms.tolist() == [18_001, 18_001, 18_000, 24_001]
    assert outcome.busy_milli_ms == 24_001_000


def test_on_a_node_that_leaves_nobody_joins() -> None:
    jobs, cluster = make_jobs([(0, 2, 10), (0, 2, 12), (5, 2, 1)]), make_cluster((2,), changes=[(3, 0, False)])
    start = Plan(ints(0, 1), ints(2, 2), beside=ints(0, 0))
    join = Plan(ints(0, 1, 2), ints(2, 2, 2), beside=ints(0, 0, 0))
    outcome = run(jobs, cluster, at({0: start, 5000: join}, jobs), share=3)
    assert outcome.end_ms.tolist() == [10_000, 12_000, -1]


def test_a_job_beside_one_that_waits_waits() -> None:
    jobs, cluster = make_jobs([(0, 1, 4), (0, 2, 4), (0, 2, 4)]), make_cluster((2,))
    start = Plan(ints(0, 1, 2), ints(1, 2, 2), beside=ints(-1, -1, 1), optional=2)
    then = Plan(ints(1, 2), ints(2, 2), beside=ints(1, 1))
    assert run(jobs, cluster, at({0: start, 4000: then}, jobs)).end_ms.tolist() == [4000, 8000, 8000]


# ---- what cannot be ----

NEITHER = "which is neither planned alone before it nor kept"
FAULTS: dict[str, tuple[Plan, str]] = {
    "later": (Plan(ints(2, 1), ints(1, 1), beside=ints(1, -1)), f"put a job next to job j1, {NEITHER}: job j2, at 1 s"),
    "who waits": (Plan(ints(2), ints(1), beside=ints(1), keep=True), f"put a job next to job j1, {NEITHER}"),
    "who is stopped": (Plan(ints(2), ints(1), beside=ints(0)), f"put a job next to job j0, {NEITHER}"),
    "a chain": (Plan(ints(1, 2, 3), ints(1, 1, 1), beside=ints(-1, 1, 2)), f"put a job next to job j2, {NEITHER}"),
    "nobody": (Plan(ints(1), ints(1), beside=ints(9)), f"put a job next to the job at 9, {NEITHER}: job j1"),
    "below": (Plan(ints(1), ints(1), beside=ints(-2)), f"put a job next to the job at -2, {NEITHER}: job j1"),
    "size": (
        Plan(ints(1, 2), ints(2, 1), beside=ints(-1, 1)),
        "put a job of 1 GPUs next to job j1, which has a different number: job j2, at 1 s",
    ),
    "size of one that is kept": (
        Plan(ints(2), ints(2), beside=ints(0), keep=True),
        "put a job of 2 GPUs next to job j0, which has a different number: job j2",
    ),
    "crowd": (
        Plan(ints(1, 2, 3), ints(1, 1, 1), beside=ints(1, 1, 1)),
        "put a job next to job j1, whose GPUs already have 2 jobs: job j3, at 1 s",
    ),
    "crowded GPU": (
        Plan(ints(1, 2, 3), ints(1, 1, 1), place=ints((0, 0, 1, 1), (1, 0, 1, 1), (2, 0, 1, 1))),
        "named GPUs of node n0 that already have 2 jobs: job j3",
    ),
    "model": (
        Plan(ints(1, 4), ints(1, 1), place=ints((0, 0, 1)), beside=ints(-1, 1)),
        "put a job next to job j1, whose nodes it may not use: job j4",
    ),
    "lengths": (Plan(ints(1, 2), ints(1, 1), beside=ints(-1)), "columns differ in length"),
    "fractions": (Plan(ints(1), ints(1), beside=np.array([-1.0])), "beside are not a list of whole numbers"),
    "both": (
        Plan(ints(1, 2), ints(1, 1), place=ints((1, 0, 1)), beside=ints(-1, 1)),
        "named both nodes and a job to sit next to: job j2",
    ),
    "no such GPU": (
        Plan(ints(1), ints(2), place=ints((0, 0, 2, 3))),
        "named 2 GPUs from GPU 3 on of node n0, which has 4: job j1",
    ),
    "GPU below": (Plan(ints(1), ints(1), place=ints((0, 0, 1, -2))), "named 1 GPUs from GPU -2 on of node n0"),
    "GPUs twice": (Plan(ints(1), ints(3), place=ints((0, 0, 2, 0), (0, 0, 1, 1))), "named GPUs of node n0 twice"),
    "GPUs and any": (Plan(ints(1), ints(2), place=ints((0, 0, 1, -1), (0, 0, 1, 1))), "named GPUs of node n0 twice"),
    "columns": (Plan(ints(1), ints(1), place=ints((0, 0))), "not in rows of 3 or 4 whole numbers"),
    "too many alone": (
        Plan(ints(1, 2, 3), ints(4, 2, 4), beside=ints(-1, -1, 1)),
        "requested more GPUs than the cluster has, or fewer than 0 (2): job j2",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_faulty_company_is_an_error_of_one_line(case: str) -> None:
    # Job 0 runs since 0 s; the others come with the plan, and the last may use node 1 only.
    rows = [(0, 1, 10), (1, 1, 10), (1, 1, 10), (1, 1, 10), (1, 1, 10)]
    jobs = make_jobs(rows, model=[None, None, None, None, "B"], models=["A", "B"])
    with pytest.raises(UsageError) as error:
        run(jobs, make_cluster((4, 1), model=["A", "B"]), at({1000: FAULTS[case][0]}, jobs))
    assert "the policy toy" in error.value.what
    assert FAULTS[case][1] in error.value.what
    assert "\n" not in str(error.value)


def test_company_needs_places() -> None:
    with pytest.raises(ValueError, match="cannot name nodes or share GPUs"):
        Planner(lambda v: Plan(v.job, v.job), share=2, fit="count")
    with pytest.raises(ValueError, match="0 jobs on a GPU"):
        Planner(lambda v: Plan(v.job, v.job), share=0)


# ---- plans drawn at random ----


class Dice:
    """Plans drawn at random, none of them faulty, that look at what became of the one before."""

    def __init__(self, jobs: Jobs, cluster: Cluster, share: int, seed: int) -> None:
        self.jobs, self.cluster, self.share = jobs, cluster, share
        self.random, self.plans, self.shared = random.Random(seed), 0, 0
        self.want = wants(jobs, cluster)
        self.groups: dict[int, set[int]] = {}
        """Who may share with each job that is beside itself."""
        self.beside: dict[int, int] = {}
        self.named: dict[int, list[tuple[int, int, int]]] = {}

    def __call__(self, v: View) -> Plan:
        self.check(v)
        self.plans += 1
        self.groups, self.beside, self.named = {}, {}, {}
        if self.plans > 40:
            waiting = v.job[~v.running]
            return Plan(waiting, self.jobs.devices[waiting].astype(np.int64), keep=True, optional=len(waiting))
        return self.draw(v)

    def check(self, v: View) -> None:
        held: dict[int, list[tuple[int, int]]] = {}
        for job, node, gpus, gpu in v.places.tolist():
            assert gpus == 1
            held.setdefault(job, []).append((node, gpu))
        for job, other in v.pairs.tolist():
            self.shared += 1
            assert job not in self.groups or other in self.groups[job]
        for job, other in self.beside.items():
            assert job not in held or other not in held or held[job] == held[other]
        for job, rows in self.named.items():
            for node, gpus, gpu in rows if job in held else []:
                mine = {g for n, g in held[job] if n == node}
                assert len(mine) == gpus if gpu < 0 else mine >= set(range(gpu, gpu + gpus))

    def draw(self, v: View) -> Plan:
        dice, active = self.random, v.job.tolist()
        keep = dice.random() < 0.5
        held = dict(zip(active, v.held.tolist(), strict=True))
        order = [j for j in dice.sample(active, len(active)) if dice.random() < 0.9]
        crowd = Counter((node, gpu) for _, node, _, gpu in v.places.tolist())
        # Beside whom a job may be put: those who are kept, with their GPUs, and those who are beside themselves.
        spots: dict[int, list[tuple[int, int]]] = {j: [] for j in active if keep and held[j] and j not in order}
        for job, node, _, gpu in v.places.tolist():
            if job in spots:
                spots[job].append((node, gpu))
        size = {j: held[j] for j in spots}
        for j in order:
            size[j] = held[j] if held[j] and dice.random() < 0.7 else dice.choice([0, 1, 1, 2, 3])
            mates = [a for a in spots if size[a] == size[j] > 0 and self.follows(j, a)]
            mates = [a for a in mates if max(crowd[spot] for spot in spots[a]) < self.share]
            other = dice.choice(mates) if mates and dice.random() < 0.5 else dice.choice([-1, j])
            self.beside[j] = other
            if other == j and size[j]:
                spots[j], self.groups[j] = [(-1, j)], set()
                crowd[-1, j] = 1
            elif other >= 0 and other != j:
                crowd.update(spots[other])
                self.groups.get(other, set()).add(j)
        taken = {(node, gpu) for job, node, _, gpu in v.places.tolist() if job in spots}
        for j in order:
            if self.beside[j] == -1 and size[j] and dice.random() < 0.4:
                self.name(v, j, size[j], taken, crowd)
        rows = [(i, *row) for i, j in enumerate(order) for row in self.named.get(j, [])]
        return Plan(
            ints(*order),
            ints(*[size[j] for j in order]),
            rate=ints(*[dice.randint(300_000, 1_500_000) for _ in order]),
            beside=ints(*[self.beside[j] for j in order]),
            place=ints(*rows).reshape(-1, 4),
            keep=keep,
            optional=len(order),
            wake_ms=v.now_ms + dice.randint(1, 9000),
        )

    def follows(self, j: int, other: int) -> bool:
        """Tell whether a job may go wherever another may."""
        mine, its = self.want[j], self.want[other]
        return mine.domain == its.domain and mine.model in {None, its.model}

    def name(self, v: View, j: int, size: int, taken: set[tuple[int, int]], crowd: Counter[tuple[int, int]]) -> None:
        """Draw GPUs of one node for a job: any that no job has, or some on which there is a seat left."""
        want, cluster = self.want[j], self.cluster
        allowed = [
            node
            for node, gpus in enumerate(v.node_gpus.tolist())
            if gpus >= size
            and cluster.domain[node] == want.domain
            and want.model in {None, cluster.models[cluster.model[node]]}
        ]
        if not allowed:
            return
        node = self.random.choice(allowed)
        if self.random.random() < 0.5:
            self.named[j] = [(node, size, -1)]
            return
        left = [g for g in range(int(v.node_gpus[node])) if (node, g) not in taken and crowd[node, g] < self.share]
        if len(left) >= size:
            self.named[j] = [(node, 1, gpu) for gpu in self.random.sample(left, size)]
            crowd.update((node, gpu) for _, _, gpu in self.named[j])


@tried(35, 100, job_lists(), clusters(), st.integers(2, 4), st.integers(0, 1 << 30))
def test_random_company_keeps_the_laws(jobs: Jobs, cluster: Cluster, share: int, seed: int) -> None:
    dice = Dice(jobs, cluster, share, seed)
    outcome = run(jobs, cluster, dice, share=share, overhead_ms=ints(0, 500, 2000), resize_ms=700)
    assert (outcome.end_ms >= 0).any() or outcome.unschedulable.all()


def test_random_company_shares_a_lot() -> None:
    rows = [(k / 4, 1 + k % 3, 6 + k % 5) for k in range(40)]
    jobs, cluster = make_jobs(rows), make_cluster((4, 4, 2))
    dice = Dice(jobs, cluster, 3, 7)
    outcome = run(jobs, cluster, dice, share=3, overhead_ms=ints(0, 500, 2000))
    assert dice.shared > 200
    assert outcome.migrations.sum() > 40
    assert (outcome.end_ms > 0).all()
