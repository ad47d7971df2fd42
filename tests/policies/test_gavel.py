"""Gavel: shares by hand and by law, and rounds that come near to them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.policies.literature.gavel_shares import max_min_shares
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

ROUND_MS = 360_000


def shares(
    count: list[int], gpus: list[int], speed: list[list[float]], capacity: list[int], *, once: bool = False
) -> tuple[list[list[float]], list[float]]:
    found, level = max_min_shares(np.array(count), np.array(gpus), np.array(speed), np.array(capacity), once=once)
    return np.round(found, 6).tolist(), np.round(level, 6).tolist()


def test_one_type_is_filled_like_water() -> None:
    # 8 GPUs for 2 jobs of 1, 2 of 2 and 1 of 8: all have 2 at most, and the last what is left.
    assert shares([2, 2, 1], [1, 2, 8], [[1.0]] * 3, [8])[0] == [[1.0], [1.0], [0.25]]
    assert shares([2, 2, 1], [1, 2, 8], [[1.0]] * 3, [14])[0] == [[1.0], [1.0], [1.0]]
    assert shares([4], [2], [[1.0]], [4])[0] == [[0.5]]


def test_two_types_go_to_those_that_make_most_of_them() -> None:
    # Each has its best type: 1 where a mixture of both has 0.75.
    found, level = shares([1, 1], [1, 1], [[1.0, 0.5], [0.5, 1.0]], [1, 1])
    assert found == [[1.0, 0.0], [0.0, 1.0]]
    assert level == pytest.approx([4 / 3, 4 / 3], abs=1e-5)


def test_what_the_least_cannot_use_goes_to_the_next() -> None:
    # The first kind may only use the first type, and is alike with the second on it; all of the other is left.
    found, level = shares([1, 1], [1, 1], [[1.0, 0.0], [1.0, 1.0]], [1, 1])
    assert found == [[1.0, 0.0], [0.0, 1.0]]
    assert level == pytest.approx([2.0, 1.0], abs=1e-5)


def test_types_that_a_job_is_too_large_for_are_left_out() -> None:
    assert shares([1, 1], [4, 9], [[1.0, 1.0]] * 2, [8, 2])[0] == [[1.0, 0.0], [0.0, 0.0]]


def test_one_program_leaves_what_the_least_cannot_use() -> None:
    # 8 GPUs: the jobs of one GPU can have no more than 1, so nobody does.
    assert shares([2, 1], [1, 4], [[1.0]] * 2, [8], once=True)[0] == [[1.0], [0.25]]
    assert shares([2, 1], [1, 4], [[1.0]] * 2, [8])[0] == [[1.0], [1.0]]
    # Too few GPUs for all leave nothing.
    assert shares([4], [2], [[1.0]], [4], once=True)[0] == [[0.5]]
    # Two types, by the program: the first kind has all that it may use, and that is the least.
    _, level = shares([1, 1], [1, 4], [[1.0, 0.0], [1.0, 1.0]], [1, 4], once=True)
    assert min(level) == pytest.approx(min(shares([1, 1], [1, 4], [[1.0, 0.0], [1.0, 1.0]], [1, 4])[1]), abs=1e-5)


@pytest.mark.parametrize(("leftover", "rounds"), [("shares", 15), ("rounds", 7)])
def test_who_has_the_left_over_gpus(leftover: str, rounds: int) -> None:
    # 4 GPUs, a job of one and a job of all. By shares the first has 1 and the second 3/4, so that of 35 rounds 20 and
    # 15 are theirs; where the left-over GPUs are nobody's share the second has 1/4, and 7 of 35.
    jobs, cluster = make_jobs([(0, 1, 360 * 200), (0, 4, 360 * 200)]), make_cluster((4,))
    outcome = run_engine(jobs, cluster, f"gavel,leftover={leftover}")
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome) == []
    had, since = 0, -1
    for row in outcome.log:
        if row["job"] != 1 or row["time_ms"] > 35 * ROUND_MS:
            continue
        if row["kind"] == LOG_KINDS["start"]:
            since = int(row["time_ms"])
        elif row["kind"] == LOG_KINDS["stop"]:
            had, since = had + int(row["time_ms"]) - since, -1
    had += 35 * ROUND_MS - since if since >= 0 else 0
    assert abs(had / ROUND_MS - rounds) <= 1


@tried(10, 30, size=st.sampled_from([1, 2, 4]), runs=st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_jobs_of_one_size_leave_nothing_over(size: int, runs: list[int]) -> None:
    jobs = make_jobs([(0, size, run) for run in runs])
    ends = [
        run_engine(jobs, make_cluster((4, 4)), f"gavel,round=5,again=20,leftover={leftover}").end_ms.tolist()
        for leftover in ("shares", "rounds")
    ]
    assert ends[0] == ends[1]


@tried(
    28,
    80,
    kinds=st.lists(
        st.tuples(
            st.integers(1, 9),
            st.sampled_from([1, 2, 4]),
            st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), min_size=3, max_size=3),
        ),
        min_size=1,
        max_size=6,
    ),
    capacity=st.lists(st.integers(4, 16), min_size=3, max_size=3),
)
def test_nobody_has_less_than_alone_on_an_equal_part(
    kinds: list[tuple[int, int, list[float]]], capacity: list[int]
) -> None:
    count, gpus = np.array([k[0] for k in kinds]), np.array([k[1] for k in kinds])
    speed, size = np.array([k[2] for k in kinds]), np.array(capacity)
    found, level = max_min_shares(count, gpus, speed, size)
    assert (found >= 0).all()
    assert (found.sum(axis=1) <= 1 + 1e-6).all()
    assert ((count * gpus) @ found <= size * (1 + 1e-6)).all()
    able = (speed > 0).any(axis=1)
    alone = np.minimum(1.0, size / count.sum() / gpus[:, None])
    alone /= np.maximum(alone.sum(axis=1, keepdims=True), 1.0)
    equal = speed[able] @ size / size.sum()
    isolated = gpus[able] * (speed[able] * alone[able]).sum(axis=1) / equal
    assert level[able].min(initial=np.inf) >= isolated.min(initial=np.inf) * (1 - 1e-6)


def test_with_room_for_all_everyone_runs_from_the_next_round_on() -> None:
    jobs = make_jobs([(0, 4, 1000), (10, 2, 1000), (10, 1, 5000), (360, 1, 7)])
    outcome = run_engine(jobs, make_cluster((8,)), "gavel")
    assert outcome.first_start_ms.tolist() == [0, ROUND_MS, ROUND_MS, ROUND_MS]
    assert outcome.end_ms.tolist() == [1_000_000, 1_360_000, 5_360_000, 367_000]
    assert outcome.preemptions.sum() == outcome.migrations.sum() == 0


@pytest.mark.parametrize(("count", "size", "gpus"), [(5, 1, 2), (7, 2, 6), (9, 4, 8)])
def test_equal_jobs_have_equal_times_to_a_round(count: int, size: int, gpus: int) -> None:
    rounds = 12
    jobs = make_jobs([(0, size, rounds * 360)] * count)
    outcome = run_engine(jobs, make_cluster((gpus,)), "gavel")
    # In whole rounds, each with so many at once: nobody ends a round before the others are done but for one.
    full = -(-count * rounds // (gpus // size))
    assert outcome.makespan_ms == full * ROUND_MS
    assert outcome.end_ms.min() >= (rounds - 1) * count // (gpus // size) * ROUND_MS


def test_jobs_go_to_the_type_that_suits_them() -> None:
    models = load_models()
    models = replace(models, type_speed=replace(models.type_speed, ratio={"A": {"B": 0.25}}))
    cluster = make_cluster((1, 1), model=["A", "B"])
    jobs = make_jobs([(0, 1, 1000), (0, 1, 1000)], model=["A", "B"])
    outcome = Scenario.make(jobs, cluster, models=models).run("gavel", log=True).outcome
    # One on each type: nobody waits while a type that he may use is free.
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome) == []
    assert outcome.first_start_ms.tolist() == [0, 0]


def test_a_type_that_nothing_is_known_of_is_not_used() -> None:
    cluster = make_cluster((1, 1), model=["A", "B"])
    outcome = run_engine(make_jobs([(0, 1, 360), (0, 1, 360)], model="A"), cluster, "gavel")
    assert outcome.end_ms.tolist() == [360_000, 720_000]


def test_a_stop_costs_what_the_preset_says() -> None:
    jobs = make_jobs([(0, 1, 400), (0, 1, 400)])
    free = run_engine(jobs, make_cluster((1,)), "gavel")
    # 0: 360 s, 1: 360 s; then both had as much, and 1, which runs, goes on for its 40 s; 0 from the next round on.
    assert free.end_ms.tolist() == [1_120_000, 760_000]
    assert free.preemptions.tolist() == [1, 0]
    paid = run_engine(jobs, make_cluster((1,)), "gavel,overhead=shockwave")
    assert paid.end_ms.tolist() == [1_140_000, 760_000]


@tried(14, 40, jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_and_the_same_comes_out_again(jobs: Jobs, cluster: Cluster) -> None:
    def go() -> Outcome:
        return run_engine(jobs, cluster, "gavel,round=5,again=20")

    one, two = go(), go()
    assert one.log is not None
    assert two.log is not None
    assert audit(jobs, cluster, one.log, one) == []
    assert one.log.tobytes() == two.log.tobytes()
