"""Pollux with profiles and its genetic search: worked by hand, the best of all divisions, and what it is equal to."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.policies.resized import assert_all_work_done, assert_lawful, elastic, run, same, takes
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.pollux import evolve, goodput, goodput_table, worths
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.assumptions.sections import Application
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import raise_fitness
from tracekit.replay.registry import named_policy

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.reviewed import Golden
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

PLAIN = Application(gpu_h=1, fixed=0.0, sync=0.0, more=0.0, gamma=1.0, noise=(1.0, 1.0), most=1.0)
"""Linear speed, one batch."""
POWERS = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0])


def power_mean(total: float, jobs: int, power: float) -> float:
    """Return the power mean of the speedups of some jobs whose worths have a sum."""
    if power == 0:
        return float(np.exp(total / jobs))
    return float((total / jobs / np.sign(power)) ** (1 / power))


def profiled(application: Application, stages: int = 1) -> Models:
    """The built-in models with one application for all classes, linear speed beside, and no cost of spreading."""
    models = elastic()
    classes = {name: replace(application, gpu_h=i) for i, name in enumerate(models.applications.classes)}
    return replace(
        models,
        applications=replace(models.applications, classes=classes, stages=stages),
        spread=replace(models.spread, levels={"default": 0.0}, level="default"),
    )


def test_goodput_by_hand() -> None:
    # Half of a pass is fixed; the exchange takes as long as the pass; no overlap. On one GPU, recorded, a step takes 1.
    a = Application(gpu_h=1, fixed=0.5, sync=1.0, more=0.25, gamma=1.0, noise=(1.0, 1.0), most=1.0)
    # Two GPUs: half a batch each, 0.5 + 0.25, and 1: 1.75. Four: 0.5 + 0.125 + 1 + 2 * 0.25 = 2.125.
    found = goodput(a, np.array([1, 2, 4]), 1, 1.0, 2.0)
    assert found.tolist() == pytest.approx([1, 1 / 1.75, 1 / 2.125])
    # Recorded on two GPUs, one GPU has two batches: one pass of them takes 0.5 + 1; where only one fits a pass, 2 * 0.5
    # + 1. The recorded step takes 1 + 1.
    assert goodput(a, np.array([1]), 2, 1.0, 2.0).tolist() == pytest.approx([2 / 1.5])
    assert goodput(a, np.array([1]), 2, 1.0, 1.0).tolist() == pytest.approx([2 / 2])
    # With a batch four times as large, on four GPUs, a step takes 0.5 + 0.5 + 1.5, and is worth 4 * (3 + 1) / (3 + 4).
    larger = goodput(replace(a, most=4.0), np.array([4]), 1, 3.0, 2.0)
    assert larger[0] == pytest.approx(4 * 4 / 7 / 2.5)
    # Overlap: the root of the sum of squares.
    both = goodput(replace(a, gamma=2.0), np.array([2]), 1, 1.0, 2.0)
    assert both[0] == pytest.approx(1 / (0.75**2 + 1) ** 0.5)


def test_jobs_run_at_their_goodput_and_it_changes_with_their_stage() -> None:
    # A batch twice as large on twice the GPUs takes the same step, and is worth 2 * (noise + 1) / (noise + 2): at a
    # noise of 1 that is 4 / 3. Without larger batches two GPUs halve the pass but for its fixed part, 0.8: 1 / 0.9.
    a = replace(PLAIN, fixed=0.8, noise=(1.0, 1.0), most=2.0)
    jobs = make_jobs([(0, 1, 800)])
    outcome = run(jobs, make_cluster((2,)), "pollux-lite,profile=small,round=60", profiled(a))
    assert takes(outcome) == [(0, 0, 2)]
    assert outcome.end_ms[0] == pytest.approx(600_000, abs=1)
    # Two stages, with the noise in the geometric middle of each half of 1 to 16: 2 and 8. So 3 / 2 and 9 / 5.
    staged = profiled(replace(a, noise=(1.0, 16.0)), stages=2)
    outcome = run(jobs, make_cluster((2,)), "pollux-lite,profile=small,round=60", staged)
    # 400 s of work take 266.7 s; the next round is at 300 s, when 450 s are done; the other 350 s take 194.4 s.
    assert outcome.end_ms[0] == pytest.approx(494_444, abs=2)


def test_classes_go_by_gpu_time() -> None:
    models = load_models()
    jobs = make_jobs([(0, 1, 3_600), (0, 1, 3_601), (0, 2, 18_000), (0, 2, 18_001), (0, 1, 10**7)])
    high = jobs.devices.astype(np.int64) * 2
    by_size = goodput_table(models, jobs, high, "size")
    names = ["small", "medium", "medium", "large", "xlarge"]
    for i, name in enumerate(names):
        alone = goodput_table(models, jobs, high, name)
        width = int(by_size.width[i])
        mine = by_size.speed[by_size.first[i] :][: width * by_size.stages]
        assert mine.tolist() == alone.speed[alone.first[i] :][: width * by_size.stages].tolist()
        # The recorded number of GPUs is at least as fast as recorded, at every stage.
        assert (mine.reshape(by_size.stages, width)[:, int(jobs.devices[i])] >= 1 - 1e-12).all()


def fitness_rows(draws: Any, count: int) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.int64]]:
    """Return random jobs with applications, their speeds, and GPUs left over."""
    classes = list(load_models().applications.classes.values())
    rows, parts = np.zeros(count, struct_dtype("FitnessRow")), [np.zeros(1)]
    for i in range(count):
        asks = int(draws.integers(1, 5))
        rows[i]["first"] = sum(map(len, parts))
        rows[i]["low"], rows[i]["high"] = -(-asks // 4), 2 * asks
        noise = float(draws.choice([1, 8, 64]))
        parts += [
            np.zeros(1),
            goodput(classes[int(draws.integers(4))], np.arange(1, 2 * asks + 1), asks, noise, 2.0),
        ]
        rows[i]["held"] = draws.integers(rows[i]["low"], rows[i]["high"] + 1) if draws.random() < 0.5 else 0
    rows["gpus"] = np.where(rows["held"] > 0, rows["low"], 0)
    rows["fair"], rows["factor"] = 1.0, draws.random(count)
    return rows, np.concatenate(parts), np.array([int(draws.integers(0, 9))])


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 3), power=POWERS)
def test_the_search_finds_the_best_division_of_few_jobs(seed: int, count: int, power: float) -> None:
    rows, speed, free = fitness_rows(np.random.default_rng(seed), count)
    least = rows["gpus"].copy()
    ranges = [
        list(range(low, high + 1)) if held else [0, *range(low, high + 1)]
        for held, low, high in rows[["held", "low", "high"]].tolist()
    ]

    def worth(division: Any) -> float:
        return float(worths(np.array([division]), rows, speed, power).sum())

    best = max(worth(d) for d in product(*ranges) if sum(d) - least.sum() <= free[0])
    raise_fitness(rows, free.copy(), speed, power, np.zeros(count, struct_dtype("Entry")), np.zeros(count, np.int32))
    greedy = rows["gpus"].copy()
    found = evolve(rows, free, speed, power, greedy, population=40, generations=40, random=np.random.default_rng(seed))
    assert found.sum() - least.sum() <= free[0]
    assert worth(greedy) <= worth(found) + 1e-12
    assert worth(found) == pytest.approx(best, rel=1e-9)
    # The search alone, from nothing but the minima, comes there too.
    alone = evolve(rows, free, speed, power, least, population=60, generations=60, random=np.random.default_rng(seed))
    assert worth(alone) == pytest.approx(best, rel=1e-6)


@settings(max_examples=examples(25), deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4),
    gpus=st.integers(4, 9),
    sigma=st.sampled_from([0.0, 0.03, 0.3]),
    power=POWERS,
)
def test_steps_find_the_best_division_of_jobs_that_start(
    sizes: list[int], gpus: int, sigma: float, power: float
) -> None:
    jobs, models = make_jobs([(0, g, 600) for g in sizes]), elastic(sigma=sigma)
    outcome = run(jobs, make_cluster((gpus,)), f"pollux-lite,p={power:g}", models)
    now = {j: n for at, j, n in takes(outcome) if at == 0}

    def speed(n: float) -> float:
        return n / (1 + sigma * (n - 1))

    fair = [speed(min(max(gpus / len(sizes), 1.0), 2.0 * g)) for g in sizes]

    def mean(division: tuple[int, ...]) -> float:
        ups = np.array([max(speed(n) / f, 1e-3) if n else 1e-3 for n, f in zip(division, fair, strict=True)])
        return float(np.exp(np.log(ups).mean()) if power == 0 else (ups**power).mean() ** (1 / power))

    ranges = [[0, *range(1, 2 * g + 1)] for g in sizes]
    best = max(mean(d) for d in product(*ranges) if sum(d) <= gpus)
    assert mean(tuple(now.get(j, 0) for j in range(len(sizes)))) == pytest.approx(best)


def test_the_mean_of_what_jobs_add() -> None:
    rows = np.zeros(2, struct_dtype("FitnessRow"))
    rows["fair"], rows["factor"], rows["held"] = 1.0, 0.5, [2, 1]
    speed = np.array([0.0, 1.0, 2.0])
    division = np.array([[2, 2]])
    # Speedups 2 and, after a change, 2 * 0.5 = 1.
    expected = {-1.0: 4 / 3, 0.0: 2**0.5, 1.0: 1.5, -2.0: (5 / 8) ** -0.5}
    for power, mean in expected.items():
        assert power_mean(float(worths(division, rows, speed, power).sum()), 2, power) == pytest.approx(mean)


@settings(max_examples=examples(15), deadline=None)
@given(jobs=job_lists(sizes=st.sampled_from([1, 2, 4, 8])), cluster=clusters())
def test_an_application_of_linear_speed_is_not_an_application(jobs: Jobs, cluster: Cluster) -> None:
    models = profiled(PLAIN)
    one = run(jobs, cluster, "pollux-lite,profile=large,round=5", models)
    same(one, run(jobs, cluster, "pollux-lite,round=5", models))


@pytest.mark.parametrize(
    "options", ["profile=size", "profile=xlarge,p=0", "search=genetic,generations=3", "profile=size,fit=count,p=1"]
)
@settings(max_examples=examples(8), deadline=None)
@given(jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_and_all_work_is_done(options: str, jobs: Jobs, cluster: Cluster) -> None:
    # With work of up to 50 s a round of 5 s lets jobs pass through several stages.
    outcome = run(jobs, cluster, f"pollux-lite,round=5,{options}", load_models())
    assert_lawful(jobs, cluster, outcome)
    assert_all_work_done(jobs, outcome)


def test_the_search_is_the_same_again_and_by_its_seed() -> None:
    jobs = make_jobs([(i, 1 + i % 4, 300 + 20 * i) for i in range(12)])
    cluster, text = make_cluster((4, 4)), "pollux-lite,profile=size,search=genetic"
    one, two = run(jobs, cluster, text, load_models()), run(jobs, cluster, text, load_models())
    assert one.log is not None
    assert two.log is not None
    assert one.log.tobytes() == two.log.tobytes()


def test_profiles_are_distinguished(golden: Golden) -> None:
    plain, profile = named_policy("pollux-lite"), named_policy("pollux-lite,profile=size")
    assert (plain.label, profile.label) == ("pollux-lite", "pollux-lite,profile=size")
    assert profile.what != plain.what
    golden(profile.what)
    assert "M43" not in plain.assumptions
    assert "M43" in profile.assumptions


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("applications.classes.small.noise = [1.0]", "two numbers above 0"),
        ("applications.classes.small.noise = [0.0, 1.0]", "two numbers above 0"),
        ("applications.classes.small.gpu_h = 10.0", "ascending gpu_h"),
        ("applications.classes.small.gamma = 0.5", "gamma"),
    ],
)
def test_applications_that_make_no_sense_are_reported(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says):
        load_models(file)


def test_bad_input_is_an_error_of_one_line() -> None:
    for text in ("pollux-lite,profile=huge", "pollux-lite,p=2", "pollux-lite,p=-9", "pollux-lite,population=1"):
        with pytest.raises(UsageError) as error:
            named_policy(text)
        assert "\n" not in str(error.value)
