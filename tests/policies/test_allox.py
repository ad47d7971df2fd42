"""AlloX: the matching by hand and by trying every schedule, and runs of it."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.gpu_types import match_queues
from tracekit.replay.assumptions.models import Models, load_models
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


def typed(ratio: dict[str, dict[str, float]]) -> Models:
    models = load_models()
    return replace(models, type_speed=replace(models.type_speed, ratio=ratio))


def run(jobs: Jobs, cluster: Cluster, policy: str, ratio: dict[str, dict[str, float]]) -> Outcome:
    outcome = Scenario.make(jobs, cluster, models=typed(ratio)).run(policy, log=True).outcome
    assert outcome.log is not None
    broken = audit(jobs, cluster, outcome.log, outcome, preemptive=False)
    assert [b for b in broken if "another GPU model" not in b] == []
    return outcome


def begins(time: list[list[float]], ready: list[list[float]]) -> list[list[int]]:
    found: list[list[int]] = match_queues(np.array(time), [np.array(r) for r in ready]).tolist()
    return found


def test_three_jobs_on_two_types() -> None:
    # Times on one GPU of type 0 and one of type 1: (2, 10), (3, 4), (6, 30). The first, then the third on type 0 end at
    # 2 and 8, the second on type 1 at 4: 14 in all; all three on type 0, shortest first, 2 + 5 + 11 = 18.
    assert begins([[2, 10], [3, 4], [6, 30]], [[0], [0]]) == [[0, 0], [1, 1]]
    # Type 0 is busy for 1: 3 and 9 and 4 is still the best, and only the second begins.
    assert begins([[2, 10], [3, 4], [6, 30]], [[1], [0]]) == [[1, 1]]


def test_a_job_waits_for_the_type_that_suits_it() -> None:
    # 10 after 5 is less than 100 now.
    assert begins([[10, 100]], [[5], [0]]) == []
    assert begins([[10, 100]], [[95], [0]]) == [[0, 1]]
    assert begins([[np.inf, np.inf]], [[0], [0]]) == []
    assert begins([[10, np.inf], [12, np.inf]], [[], [0]]) == []


def least_sum(time: list[tuple[float, float]], ready: list[list[float]]) -> float:
    """Return the least sum of completion times of all schedules: each job on a machine, the shortest first there."""
    machines = [(j, at) for j, line in enumerate(ready) for at in line]
    best = np.inf
    for where in itertools.product(range(len(machines)), repeat=len(time)):
        total = 0.0
        for i, (j, ready_at) in enumerate(machines):
            at = ready_at
            for t in sorted(row[j] for row, w in zip(time, where, strict=True) if w == i):
                at += t
                total += at
        best = min(best, total)
    return best


@settings(max_examples=20, deadline=None)
@given(
    time=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=4),
    wait=st.tuples(st.sampled_from([0, 0, 3]), st.sampled_from([0, 7])),
)
def test_schedules_have_the_least_sum(time: list[tuple[int, int]], wait: tuple[int, int]) -> None:
    # All are there at once, a moment after those that keep the machines busy, which may run nowhere else.
    models = [f"A|B|m{i}" for i in range(len(time))]
    ratio = {model: {"A": 1 / a, "B": 1 / b} for model, (a, b) in zip(models, time, strict=True)}
    busy = [(name, w) for name, w in zip("AB", wait, strict=True) if w]
    begin = 0.001 if busy else 0.0
    rows = [*((0.0, 1, float(w)) for _, w in busy), *((begin, 1, 1.0) for _ in time)]
    jobs = make_jobs(rows, model=[*(name for name, _ in busy), *models])
    outcome = run(jobs, make_cluster((1, 1), model=["A", "B"]), "allox", ratio)
    found = outcome.end_ms[len(busy) :].sum() / 1000 - begin * len(time)
    ready = [[w - begin if w else 0.0] for w in wait]
    assert found == pytest.approx(least_sum([(float(a), float(b)) for a, b in time], ready), abs=0.05)


def test_a_gang_is_matched_with_its_size() -> None:
    # B is 4 times slower. The gangs of two: the short one on A to 10 and then the long one to 110, 120 in all; the long
    # one on A and the short one on B would be 140. The single job has 15 behind the short gang, and 21 on B. When A
    # is free at 10 it is shorter than the long gang, which waits for the other GPU until 15 and ends at 115.
    jobs = make_jobs([(0, 2, 100), (0, 2, 10), (1, 1, 5)], model="A")
    outcome = run(jobs, make_cluster((2, 2), model=["A", "B"]), "allox", {"A": {"B": 0.25}})
    assert outcome.end_ms.tolist() == [115_000, 10_000, 15_000]


@tried(9, 25, jobs=job_lists(), cluster=clusters(changing=False))
def test_alike_types_are_shortest_first(jobs: Jobs, cluster: Cluster) -> None:
    shortest = run_engine(jobs, cluster, "sjf,scan=skip")
    assert run_engine(jobs, cluster, "allox").end_ms.tolist() == shortest.end_ms.tolist()


@settings(max_examples=15, deadline=None)
@given(jobs=job_lists(sizes=st.just(1), typed=False))
def test_without_a_choice_it_is_fifo(jobs: Jobs) -> None:
    fifo = run_engine(jobs, make_cluster((1,)), "fifo")
    assert run_engine(jobs, make_cluster((1,)), "allox,alpha=0").end_ms.tolist() == fifo.end_ms.tolist()


@tried(
    7,
    20,
    jobs=job_lists(),
    cluster=clusters(),
    ratio=st.sampled_from([0.2, 0.7, 1.0, 3.0]),
    machines=st.sampled_from(["all", "free"]),
    candidates=st.sampled_from([1, 3, 32]),
)
def test_the_laws_hold(jobs: Jobs, cluster: Cluster, ratio: float, machines: str, candidates: int) -> None:
    models = typed({"A100": {"V100": ratio}})
    policy = f"allox,machines={machines},candidates={candidates}"
    outcome = Scenario.make(jobs, cluster, models=models).run(policy, log=True).outcome
    assert outcome.log is not None
    broken = audit(jobs, cluster, outcome.log, outcome)
    assert [b for b in broken if "another GPU model" not in b] == []
    stays = not len(cluster.change_ms) and not cluster.absent.any()
    assert not stays or ((outcome.end_ms >= 0) == ~outcome.unschedulable.astype(bool)).all()


def test_bad_parameters() -> None:
    with pytest.raises(UsageError, match="alpha"):
        run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), "allox,alpha=2")
    with pytest.raises(UsageError, match="candidates"):
        run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), "allox,candidates=0")


GAVELS_SAMPLE = {42: 59_492.106756, 1234: 64_494.582453, 15: 54_834.129989}
"""Mean completion time [s] by seed, as the documentation of Gavel's simulator prints it for AlloX on 36 GPUs of each of
three types, with a job every 9,000 s on average."""


@pytest.mark.parametrize("seed", [42, *(pytest.param(s, marks=pytest.mark.thorough) for s in (1234, 15))])
def test_the_documented_sample_of_gavels_simulator(seed: int) -> None:
    """Its generator: a job in five runs 10^3 to 10^4 minutes, others 10^1.5 to 10^3, uniform in the exponent.

    Jobs 4000 to 4999 count. 6 % of the GPUs are in use, so that every job has a V100 at once. There it takes what was
    drawn. Rounds of 360 s, which this replay has not, add the wait for one to begin and the rest of the last one, up to
    two of them.
    """
    kind, gap = random.Random(seed + 2), random.Random(seed + 3)
    rows, at = [], 0.0
    for _ in range(5000):
        kind.uniform(0, 1)  # the number of GPUs, which is not used
        long = kind.random() >= 0.8
        rows.append((at, 1, 60 * 10 ** (kind.uniform(3, 4) if long else kind.uniform(1.5, 3))))
        kind.choice(range(26))  # the model
        at -= math.log(1 - gap.random()) * 9000
    types = ("V100", "P100", "K80")
    jobs = make_jobs(rows, model=["|".join(types)] * len(rows))
    cluster = make_cluster([1] * 108, model=[name for name in types for _ in range(36)])
    models = typed({"|".join(types): {"V100": 1.0, "P100": 0.5, "K80": 0.2}})
    found = Scenario.make(jobs, cluster, models=models).run("allox").outcome
    mean = float((found.end_ms - jobs.submit_ms)[4000:].mean()) / 1000
    assert 0 < GAVELS_SAMPLE[seed] - mean < 2 * 360
    assert mean == pytest.approx(GAVELS_SAMPLE[seed], rel=0.012)
