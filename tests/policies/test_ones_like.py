"""The evolution of GPUs and batches: worked by hand, the best schedule of few jobs, and what it is equal to."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, tried
from tests.policies.resized import assert_all_work_done, assert_lawful, elastic, run, same, takes
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.ones_like import BatchTable, Moment, evolved
from tracekit.policies.literature.pollux import Bounds, goodputs
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.assumptions.sections import Application
from tracekit.replay.registry import named_policy

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

PLAIN = Application(gpu_h=1, fixed=0.0, sync=0.0, more=0.0, gamma=1.0, noise=(1.0, 1.0), most=1.0)
"""Linear speed, one batch."""


def applied(application: Application) -> Models:
    """The built-in models with one application for all classes, and no cost of spreading."""
    models = elastic()
    classes = {name: replace(application, gpu_h=i) for i, name in enumerate(models.applications.classes)}
    return replace(
        models,
        applications=replace(models.applications, classes=classes, stages=1),
        spread=replace(models.spread, levels={"default": 0.0}, level="default"),
    )


def test_gpus_go_where_most_jobs_end_for_the_time() -> None:
    # Speed is linear, and jobs of 2 GPUs may have 1 to 4. 4 GPUs, 100 and 400 s of work: n GPUs bring n / 2 / left, so
    # that each of the 4 is worth 4 times as much at the short job, which has all until it ends at 50 s. Job 1 has them
    # then, with its minimum at once and all at the next step, at 60 s: 10 s on one GPU do 5 s of work, and the
    # change costs 10 s; the other 395 s take 197.5 s.
    jobs = make_jobs([(0, 2, 100), (0, 2, 400)])
    outcome = run(jobs, make_cluster((4,)), "ones-like,profile=small,interval=60,population=40", applied(PLAIN))
    assert takes(outcome) == [(0, 0, 4), (50, 1, 1), (60, 1, 4)]
    assert outcome.end_ms.tolist() == [50_000, 267_500]


def test_batches_grow_with_gpus() -> None:
    # A fixed part of 0.8: with twice the batch on twice the GPUs a step takes as long, and is worth 2 * (1 + 1) /
    # (1 + 2) = 4 / 3 at a noise of 1; with the recorded batch two GPUs bring 1 / 0.9 only.
    a = replace(PLAIN, fixed=0.8, most=2.0)
    outcome = run(make_jobs([(0, 1, 800)]), make_cluster((2,)), "ones-like,profile=small", applied(a))
    assert takes(outcome) == [(0, 0, 2)]
    assert outcome.end_ms[0] == pytest.approx(600_000, abs=1)


def test_the_table_is_goodput() -> None:
    models = load_models()
    jobs = make_jobs([(0, 4, 100), (0, 2, 36_000)])
    low, high = np.array([1, 1]), np.array([8, 4])
    table = BatchTable(models, jobs, low, high, "size")
    job = np.array([0, 1])
    # Job 0 is small and has half of its work left: the sixth of ten stages. Job 1 is large and has all.
    row = table.rows(job, np.array([50_000, 36_000_000]))
    assert table.batches[row].tolist() == [3, 5]
    for j, (name, stage, most) in enumerate([("small", 5, 8), ("large", 0, 4)]):
        a = models.applications.classes[name]
        noise = a.noise[0] * (a.noise[1] / a.noise[0]) ** ((stage + 0.5) / 10)
        batches = np.exp2(np.arange(int(np.log2(a.most)) + 1, dtype=np.float64))
        found = goodputs(a, np.arange(1, most + 1), int(jobs.devices[j]), noise, models.applications.local, batches)
        for n, b in product(range(1, most + 1), range(len(batches))):
            assert table.speed(row[j : j + 1], np.array([n]), np.array([b]))[0] == pytest.approx(found[n - 1, b])
        n = int(table.fastest[row[j]])
        assert found.max() == pytest.approx(found[n - 1, int(table.best_batch(row[j : j + 1], np.array([n]))[0])])
        assert table.speed(row[j : j + 1], np.array([0]), np.array([0]))[0] == 0


@settings(max_examples=examples(25), deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(1, 200)), min_size=1, max_size=3),
    free=st.integers(1, 8),
    seed=st.integers(0, 1000),
)
def test_the_search_finds_the_best_schedule_of_few_jobs(rows: list[tuple[int, int]], free: int, seed: int) -> None:
    jobs, models, draws = make_jobs([(0, g, 60 * t) for g, t in rows]), load_models(), np.random.default_rng(seed)
    k, asks = len(jobs), jobs.devices.astype(np.int64)
    low, high = np.maximum(-(-asks // 4), 1), 2 * asks
    table = BatchTable(models, jobs, low, high, "size")
    left = np.maximum((jobs.work_ms * draws.random(k)).astype(np.int64), 1)
    held = np.where(draws.random(k) < 0.5, low, 0)
    bounds = Bounds(np.zeros(k, np.int64), low, high, np.zeros(k, np.int64), np.array([free]))
    row = table.rows(np.arange(k), left)
    moment = Moment(row, left.astype(np.float64), held, np.full(k, 10_000.0), bounds)

    def worth(gpus: Any, batch: Any) -> float:
        return float(moment.worths(table, np.array([gpus]), np.array([batch])).sum())

    ranges = [[0, *range(a, b + 1)] for a, b in zip(low, high, strict=True)]
    best = 0.0
    for chosen in product(*ranges):
        if sum(chosen) <= free:
            # Batches are one job's own matter: the best of each.
            each = [range(int(n)) for n in table.batches[row]]
            best = max(best, sum(max(_alone(moment, table, j, chosen[j], b) for b in each[j]) for j in range(k)))
    none = np.zeros((80, k), np.int64)
    gpus, batch = evolved(table, moment, none, none, generations=80, random=np.random.default_rng(seed))
    assert gpus[0].sum() <= free
    assert worth(gpus[0], batch[0]) == pytest.approx(best, rel=1e-3)


def _alone(moment: Moment, table: BatchTable, job: int, gpus: int, batch: int) -> float:
    k = len(moment.row)
    n, b = np.zeros((1, k), np.int64), np.zeros((1, k), np.int64)
    n[0, job], b[0, job] = gpus, batch
    return float(moment.worths(table, n, b)[0, job])


def test_a_population_is_never_worse_than_its_parents() -> None:
    models, jobs = load_models(), make_jobs([(0, 2, 60 * (i + 1)) for i in range(6)])
    low, high = np.ones(6, np.int64), np.full(6, 4)
    table = BatchTable(models, jobs, low, high, "size")
    bounds = Bounds(np.zeros(6, np.int64), low, high, np.zeros(6, np.int64), np.array([7]))
    moment = Moment(
        table.rows(np.arange(6), jobs.work_ms), jobs.work_ms.astype(np.float64), low * 0, np.zeros(6), bounds
    )
    gpus = bounds.in_order(np.arange(6))
    assert gpus.tolist() == [1] * 6
    parents = np.stack([gpus] * 4)
    before = moment.worths(table, parents, parents * 0).sum(axis=1).max()
    for generations in (0, 1, 5):
        after, batch = evolved(
            table, moment, parents, parents * 0, generations=generations, random=np.random.default_rng(1)
        )
        worth = moment.worths(table, after, batch).sum(axis=1)
        assert worth[0] >= before
        assert worth[0] == worth.max()
        assert (after.sum(axis=1) <= 7).all()


@pytest.mark.parametrize("profile", ["none", "large"])
def test_with_room_for_all_everyone_has_the_most(profile: str) -> None:
    jobs = make_jobs([(0, 1, 60), (0, 2, 60), (0, 4, 60)])
    outcome = run(jobs, make_cluster((8, 8)), f"ones-like,profile={profile}", applied(PLAIN))
    assert sorted((j, n) for _, j, n in takes(outcome)) == [(0, 2), (1, 4), (2, 8)]


@tried(4, 5, work=st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_on_one_gpu_the_shortest_goes_first(work: list[int]) -> None:
    jobs, models = make_jobs([(0, 1, w) for w in work]), applied(PLAIN)
    for profile in ("none", "small"):
        one = run(jobs, make_cluster((1,)), f"ones-like,profile={profile},interval=7", models)
        same(one, run(jobs, make_cluster((1,)), "sjf", models))


@pytest.mark.parametrize(
    "options",
    ["interval=5", "interval=5,profile=size", "interval=5,profile=xlarge,generations=0", "fit=count,interval=11"],
)
@settings(max_examples=examples(8), deadline=None)
@given(jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_and_all_work_is_done(options: str, jobs: Jobs, cluster: Cluster) -> None:
    outcome = run(jobs, cluster, f"ones-like,{options}", load_models())
    assert_lawful(jobs, cluster, outcome)
    assert_all_work_done(jobs, outcome)


def test_the_same_seed_gives_the_same_schedule() -> None:
    jobs = make_jobs([(i, 1 + i % 4, 300 + 20 * i) for i in range(12)])
    cluster, text = make_cluster((4, 4)), "ones-like,profile=size,interval=30"
    one, two = (run(jobs, cluster, text, load_models(), seed=3) for _ in range(2))
    assert one.log is not None
    assert two.log is not None
    assert one.log.tobytes() == two.log.tobytes()


def test_profiles_are_distinguished() -> None:
    plain, profile = named_policy("ones-like"), named_policy("ones-like,profile=size")
    assert (plain.label, profile.label) == ("ones-like", "ones-like,profile=size")
    assert "M43" not in plain.assumptions
    assert "M43" in profile.assumptions


def test_bad_input_is_an_error_of_one_line() -> None:
    for text in ("ones-like,profile=huge", "ones-like,population=2", "ones-like,interval=0"):
        with pytest.raises(UsageError) as error:
            named_policy(text)
        assert "\n" not in str(error.value)
