"""Elastic jobs on types: matchings and trades beside all there are, schedules by hand, and limits of the price."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.heet_like import Traders, change_places, match_types, move_to_idle
from tracekit.replay.assumptions.models import Models, load_models
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

TWO = make_cluster((2, 2), model=["A", "B"])
RIGID = "heet-like,elastic=off,gap=0,overhead=none"


def typed(ratio: dict[str, dict[str, float]]) -> Models:
    models = load_models()
    return replace(models, type_speed=replace(models.type_speed, ratio=ratio))


def run(jobs: Jobs, cluster: Cluster, policy: str, ratio: dict[str, dict[str, float]], gang: str = "exact") -> Outcome:
    outcome = Scenario.make(jobs, cluster, models=typed(ratio)).run(policy, log=True).outcome
    assert outcome.log is not None
    broken = audit(jobs, cluster, outcome.log, outcome, gang=gang)
    # The auditor does not know that a type may be used for which nobody asked.
    assert [b for b in broken if "another GPU model" not in b] == []
    return outcome


def ends(jobs: Jobs, cluster: Cluster, policy: str) -> list[int]:
    found: list[int] = run_engine(jobs, cluster, policy).end_ms.tolist()
    return found


def one_model(cluster: Cluster) -> Cluster:
    order = np.lexsort((cluster.rack, cluster.domain))
    return replace(cluster, model=np.zeros_like(cluster.model), rack=cluster.rack[order], gpus=cluster.gpus[order])


def test_the_long_job_has_the_type_that_it_needs_more() -> None:
    # B is half as fast. Of two gangs of two, 40 s and 10 s, the long one on A and the short one on B cost as much as
    # 40 + 20, the other way round 80 + 10. j2 fits nowhere before 20 s, and starts on B then.
    jobs = make_jobs([(0, 2, 40), (0, 2, 10), (5, 1, 4)], model="A")
    outcome = run(jobs, TWO, f"{RIGID},trade=off", {"A": {"B": 0.5}})
    assert outcome.end_ms.tolist() == [40_000, 20_000, 28_000]
    # Nobody moves: A is never idle before the others have ended.
    assert run(jobs, TWO, RIGID, {"A": {"B": 0.5}}).end_ms.tolist() == [40_000, 20_000, 28_000]


def test_two_jobs_change_places() -> None:
    # j0 has A from 0 s, and at 10 s j1 finds B alone free. j0 has 90 s left on A and 112.5 on B, j1 50 and 200: changed
    # they save 127.5 of 290 s. At 60 s j1 has ended; j0 has 62.5 s left on B and 50 on A, saves a fifth and moves back.
    jobs = make_jobs([(0, 2, 100), (10, 2, 50)], model=["m0", "m1"])
    ratio = {"m0": {"A": 1.0, "B": 0.8}, "m1": {"A": 1.0, "B": 0.25}}
    accepting = replace(jobs, models=["A|m0", "A|m1"])
    ratio = {f"A|{name}": speeds for name, speeds in ratio.items()}
    assert run(accepting, TWO, RIGID, ratio).end_ms.tolist() == [110_000, 60_000]
    assert run(accepting, TWO, f"{RIGID},trade=off", ratio).end_ms.tolist() == [100_000, 210_000]
    # 12.5 of 62.5 s are too little where a quarter has to be saved.
    assert run(accepting, TWO, f"{RIGID},margin=0.25", ratio).end_ms.tolist() == [122_500, 60_000]


@pytest.mark.parametrize(("balance", "gpus"), [("0", 8), ("1", 1)])
def test_the_price_decides_how_far_a_job_grows(balance: str, gpus: int) -> None:
    # A job of 4 GPUs may have 1 to 8. With 1 it takes 4 / 1.09 times as long, with 8 half of 1.21 / 1.09.
    jobs = make_jobs([(0, 4, 109)])
    seconds = {1: 400.0, 8: 60.5}[gpus]
    assert ends(jobs, make_cluster((8,)), f"heet-like,balance={balance}") == [
        pytest.approx(seconds * 1000, abs=2),
    ]


@st.composite
def matchings(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    pools = draw(st.integers(1, 3))
    row = st.lists(st.sampled_from([1.0, 2.0, 3.5, 8.0, np.inf]), min_size=pools, max_size=pools)
    return draw(st.lists(row, min_size=1, max_size=4)), draw(
        st.lists(st.integers(0, 3), min_size=pools, max_size=pools)
    )


@settings(max_examples=examples(150), deadline=None)
@given(case=matchings())
def test_of_all_matchings_it_is_the_fullest_and_cheapest(case: tuple[list[list[float]], list[int]]) -> None:
    price, free = case
    best = (0, 0.0)
    for where in itertools.product(range(-1, len(free)), repeat=len(price)):
        used = [where.count(pool) for pool in range(len(free))]
        cost = sum(row[pool] for row, pool in zip(price, where, strict=True) if pool >= 0)
        if np.isfinite(cost) and all(u <= f for u, f in zip(used, free, strict=True)):
            best = min(best, (-sum(used), cost))
    left = np.array(free)
    found = match_types(np.array(price), np.ones(len(price), np.int64), left)
    mine = [(row[pool], pool) for row, pool in zip(price, found.tolist(), strict=True) if pool >= 0]
    assert (-len(mine), sum(cost for cost, _ in mine)) == pytest.approx(best)
    assert left.tolist() == [f - sum(pool == p for _, pool in mine) for p, f in enumerate(free)]


@settings(max_examples=examples(150), deadline=None)
@given(
    case=matchings(),
    gpus=st.lists(st.integers(1, 4), min_size=4, max_size=4),
    factor=st.integers(1, 3),
)
def test_nobody_is_left_for_whom_there_is_room(
    case: tuple[list[list[float]], list[int]], gpus: list[int], factor: int
) -> None:
    price, sizes = np.array(case[0]), np.array(gpus[: len(case[0])])
    free = np.array(case[1]) * factor
    left = free.copy()
    found = match_types(price, sizes, left)
    used = np.bincount(found[found >= 0], sizes[found >= 0], len(free))
    assert (left == free - used).all()
    assert (left >= 0).all()
    assert not ((np.isfinite(price) & (sizes[:, None] <= left)).any(axis=1) & (found < 0)).any()


PRICES = st.tuples(st.sampled_from([1.0, 2.0, 4.5]), st.sampled_from([1.0, 3.0, 4.0]), st.integers(0, 1))


def traders(rows: list[tuple[float, float, int]], size: int, high: int, margin: float, toll: float = 0.0) -> Traders:
    """Return jobs of (price on type 0, on type 1, type) rows, whose prices fall with GPUs, all of them running."""
    pool = np.array([row[2] for row in rows], np.int64)
    many = np.ones(len(rows), np.int64)
    factor = 1 / np.maximum(np.arange(9), 0.1)
    price = np.array([row[:2] for row in rows])
    return Traders(price, factor, np.full(9, toll), pool.copy(), many, many * high, many * size, pool, margin)


@settings(max_examples=examples(150), deadline=None)
@given(rows=st.lists(PRICES, min_size=1, max_size=6), size=st.integers(1, 2), toll=st.sampled_from([0.0, 0.4]))
def test_changed_places_reach_the_least_sum(rows: list[tuple[float, float, int]], size: int, toll: float) -> None:
    def total(there: tuple[int, ...]) -> float:
        moves = sum(where != row[2] for row, where in zip(rows, there, strict=True))
        return sum(row[where] / size for row, where in zip(rows, there, strict=True)) + toll * moves

    found = traders(rows, size, size, 0.0, toll)
    there = sum(row[2] for row in rows)
    least = min(total(p) for p in itertools.product((0, 1), repeat=len(rows)) if sum(p) == there)
    change_places(found)
    assert int(found.pool.sum()) == there
    assert total(tuple(found.pool.tolist())) == pytest.approx(least)


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=st.lists(PRICES, min_size=1, max_size=5),
    idle=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    margin=st.sampled_from([0.0, 0.3]),
)
def test_nobody_who_would_save_by_moving_is_left(
    rows: list[tuple[float, float, int]], idle: tuple[int, int], margin: float
) -> None:
    found = traders(rows, 2, 4, margin)
    before = found.price[np.arange(len(rows)), found.pool] * found.factor[found.gpus]
    free = np.array(idle)
    move_to_idle(found, free)
    used = np.bincount(found.pool, found.gpus, 2)
    assert (free + used == np.array(idle) + 2 * np.bincount([row[2] for row in rows], minlength=2)).all()
    assert (free >= 0).all()
    price = found.price[np.arange(len(rows)), found.pool] * found.factor[found.gpus]
    assert (price <= before).all()
    for job, pool in enumerate(found.pool.tolist()):
        gpus = min(4, int(free[1 - pool]))
        assert gpus == 0 or found.price[job, 1 - pool] / gpus >= (1 - margin) * price[job] * (1 - 1e-9)


@tried(7, 20, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_with_one_type_and_fixed_sizes_it_is_smallest_or_shortest_first(jobs: Jobs, cluster: Cluster) -> None:
    one = one_model(cluster)
    assert ends(jobs, one, f"{RIGID},balance=1") == ends(jobs, one, "ssf,scan=skip")
    assert ends(jobs, one, f"{RIGID},balance=0") == ends(jobs, one, "sjf,scan=skip")
    assert ends(jobs, one, "heet-like,trade=off") == ends(jobs, one, "heet-like")


@settings(max_examples=examples(60), deadline=None)
@given(jobs=job_lists(most=4, sizes=st.integers(1, 4), typed=False), balance=st.sampled_from([0, 1]))
def test_with_room_for_all_everybody_has_the_most_or_the_least(jobs: Jobs, balance: int) -> None:
    # A job with nothing to do costs nothing, with however many GPUs.
    jobs = replace(jobs, work_ms=np.maximum(jobs.work_ms, 10))
    outcome = run_engine(jobs, make_cluster((8, 8, 8, 8)), f"heet-like,gap=0,balance={balance}")
    assert outcome.log is not None
    wanted = jobs.devices * 2 if balance == 0 else -(-jobs.devices // 4)
    for place, gpus in enumerate(wanted.tolist()):
        takes = outcome.log[(outcome.log["job"] == place) & (outcome.log["kind"] == 3)]
        assert int(takes["value"].sum()) == gpus * 1000
    assert outcome.first_start_ms.tolist() == jobs.submit_ms.tolist()


@tried(
    10,
    30,
    jobs=job_lists(),
    cluster=clusters(),
    ratio=st.sampled_from([0.2, 0.7, 1.0, 3.0]),
    options=st.sampled_from(["", ",gap=0,margin=0", ",gap=5,balance=1,overhead=pollux", ",elastic=off,gap=0"]),
    candidates=st.sampled_from([1, 3, 100]),
)
def test_the_laws_hold(jobs: Jobs, cluster: Cluster, ratio: float, options: str, candidates: int) -> None:
    policy = f"heet-like,candidates={candidates}{options}"
    outcome = run(jobs, cluster, policy, {"A100": {"V100": ratio}}, "exact" if "off" in options else "elastic")
    stays = not len(cluster.change_ms) and not cluster.absent.any()
    assert not stays or ((outcome.end_ms >= 0) == ~outcome.unschedulable.astype(bool)).all()


def test_bad_parameters() -> None:
    for wrong in ("balance=2", "margin=-1", "candidates=0", "trade=perhaps"):
        with pytest.raises(UsageError, match=wrong.partition("=")[0]):
            run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), f"heet-like,{wrong}")
