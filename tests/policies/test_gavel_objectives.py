"""Gavel's other objectives: shares by hand, against brute force, and schedules in rounds."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.gavel_shares import OBJECTIVES, Active, find_shares
from tracekit.replay.assumptions.costs import gpu_prices
from tracekit.replay.assumptions.models import Models, load_models
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

STEP = 1.25
ROUND_MS = 360_000


def active(gpus: list[int], speed: list[list[float]], capacity: list[float], **other: Any) -> Active:
    k = len(gpus)
    values: dict[str, Any] = {
        "price": np.ones(len(capacity)),
        "left_ms": np.full(k, 1000.0),
        "age_ms": np.zeros(k),
        "isolated_ms": np.zeros(k),
        "due_ms": np.full(k, 1e9),
        "tenant": np.zeros(k, np.int64),
        "load": np.zeros(k, np.int64),
    }
    values |= {key: np.asarray(value) if key != "beside" else value for key, value in other.items()}
    return Active(gpus=np.array(gpus), speed=np.array(speed), capacity=np.array(capacity, float), **values)


def shares(objective: str, jobs: Active, inside: str = "fair") -> list[list[float]]:
    found: list[list[float]] = np.round(find_shares(objective, jobs, once=False, inside=inside).alone, 3).tolist()
    return found


def typed(ratio: float) -> Models:
    """Assumptions where B has so much of the speed of A."""
    models = load_models()
    return replace(models, type_speed=replace(models.type_speed, ratio={"A": {"B": ratio}}))


def laws(jobs: Jobs, cluster: Cluster, policy: str, models: Models | None = None, residents: int = 1) -> list[str]:
    """Return the laws that a run breaks; that a job may run on models that it does not name is this policy's rule."""
    outcome = Scenario.make(jobs, cluster, models=models or load_models()).run(policy, log=True).outcome
    assert outcome.log is not None
    broken = audit(jobs, cluster, outcome.log, outcome, residents=residents)
    return [b for b in broken if "another GPU model" not in b]


def test_the_last_end_is_as_early_as_can_be() -> None:
    # One GPU; 1.25^10 and 1.25^12 left, so 1 to 1.5625: both end together with 1 / 2.5625 and 1.5625 / 2.5625.
    jobs = active([1, 1], [[1.0], [1.0]], [1.0], left_ms=[STEP**10, STEP**12])
    assert shares("makespan", jobs) == [[0.39], [0.61]]


def test_the_worst_finish_is_as_fair_as_can_be() -> None:
    # One GPU, L left of both. Equal parts end after 2 L. The second came 2 L ago and did nothing: with the ratio r they
    # need 1 / 2r and 1 / (2r - 2), together 1 at r = 1 + 1 / sqrt 2: 0.293 and 0.707.
    jobs = active([1, 1], [[1.0], [1.0]], [1.0], age_ms=[0.0, 2000.0])
    (first,), (second,) = shares("finish_time_fairness", jobs)
    assert first + second <= 1
    # Needs are rounded up by a quarter and the search ends at 5 %.
    worst = max(1 / (2 * first), 1 + 1 / (2 * second))
    assert 1.707 <= worst + 1e-3 <= 1.707 * 1.05 * STEP
    assert shares("finish_time_fairness", active([1, 1], [[1.0]] * 2, [1.0]))[0] == pytest.approx([0.5], rel=0.1)


def test_throughput_and_cost() -> None:
    # Both are fastest on the first type; the second job loses less on the other.
    both = active([1, 1], [[1.0, 0.5], [1.0, 0.9]], [1, 1])
    assert shares("throughput", both) == [[1, 0], [0, 1]]
    # 1 for 1 or half for a quarter.
    one = active([1], [[1.0, 0.5]], [1, 1], price=[1.0, 0.25])
    assert shares("throughput", one) == [[1, 0]]
    assert shares("cost", one) == [[0, 1]]


def test_deadlines_come_before_value() -> None:
    # One GPU, worth twice as much to the second. The first needs half of it for its deadline: 0.512 in steps of a
    # quarter; the second is late already.
    late = active([1, 1], [[1.0], [2.0]], [1.0], due_ms=[2000.0, -5.0])
    assert shares("throughput", late) == [[0], [1]]
    assert shares("slo", late) == [[0.512], [0.488]]
    # Both deadlines are too much for one GPU, and so count no longer.
    both = active([1, 1], [[1.0], [2.0]], [1.0], due_ms=[1100.0, 600.0])
    assert shares("slo", both) == shares("cost", both) == [[0], [1]]


def test_tenants_have_equal_parts_as_far_as_they_want() -> None:
    # 8 GPUs: one VC wants 2, so the other has 6 for its 3 jobs of 4.
    jobs = active([4, 2, 4, 4], [[1.0]] * 4, [8.0], tenant=[1, 0, 1, 1])
    assert shares("hierarchical", jobs) == [[0.5], [1], [0.5], [0.5]]
    assert shares("hierarchical", jobs, "fifo") == [[1], [1], [0.5], [0]]
    # Two types, on each one GPU: each VC has the type on which it is fast, and there the first of its jobs.
    two = active([1] * 4, [[1.0, 0.1], [1.0, 0.1], [0.1, 1.0], [0.1, 1.0]], [1, 1], tenant=[0, 0, 1, 1])
    assert shares("hierarchical", two, "fifo") == [[1, 0], [0, 0], [0, 1], [0, 0]]
    assert shares("hierarchical", two) == [[0.5, 0], [0.5, 0], [0, 0.5], [0, 0.5]]


def test_pairs_are_packed_where_both_gain() -> None:
    # One GPU: together each has 0.8 of its speed, by turns 0.5.
    jobs = active([1, 1], [[1.0], [1.0]], [1.0], beside=lambda _a, _b: (0.8, 0.8))
    found = find_shares("max_min", jobs, once=False, inside="fair")
    assert found.alone.tolist() == [[0], [0]]
    assert found.packed.tolist() == [[1], [1]]
    assert found.pairs.tolist() == [[0, 0, 0]]
    # With 0.4 it does not pay.
    slow = find_shares("throughput", replace(jobs, beside=lambda _a, _b: (0.4, 0.4)), once=False, inside="fair")
    assert slow.packed.sum() == 0
    assert slow.alone.sum() == pytest.approx(1)


_speeds = st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0]), min_size=2, max_size=2)


@settings(max_examples=25, deadline=None)
@given(speed=st.lists(_speeds, min_size=1, max_size=5), capacity=st.lists(st.integers(1, 2), min_size=2, max_size=2))
def test_throughput_is_the_best_assignment(speed: list[list[float]], capacity: list[int]) -> None:
    # Jobs of one GPU: some best shares are whole, so trying every assignment finds their value.
    best = 0.0
    for where in itertools.product((0, 1, None), repeat=len(speed)):
        if all(where.count(j) <= capacity[j] for j in (0, 1)):
            best = max(best, sum(row[j] for row, j in zip(speed, where, strict=True) if j is not None))
    jobs = active([1] * len(speed), speed, [float(c) for c in capacity])
    found = np.array(find_shares("throughput", jobs, once=False, inside="fair").alone)
    assert (found * np.array(speed)).sum() == pytest.approx(best)


@tried(
    9, 25, speed=st.lists(_speeds, min_size=2, max_size=5), left=st.lists(st.integers(10, 20), min_size=5, max_size=5)
)
def test_makespan_is_that_of_a_search(speed: list[list[float]], left: list[int]) -> None:
    # As the released code does it: halve a span of ends, each tried by a program of its own.
    work, k = np.array([STEP**e for e in left[: len(speed)]]), len(speed)
    table, rows, ends = np.array(speed), np.zeros((2 * k + 2, 2 * k)), (0.0, 1e6)
    for i in range(k):
        rows[i, 2 * i : 2 * i + 2] = 1
        rows[k + np.arange(2), 2 * i + np.arange(2)] = 1
        rows[k + 2 + i, 2 * i : 2 * i + 2] = -table[i]
    while ends[1] > ends[0] * 1.001 + 1e-9:
        end = sum(ends) / 2
        limit = np.concatenate([np.ones(k), [1, 1], -work / end])
        fits = linprog(np.zeros(2 * k), A_ub=rows, b_ub=limit, bounds=(0, 1)).status == 0
        ends = (ends[0], end) if fits else (end, ends[1])
    found = find_shares("makespan", active([1] * k, speed, [1.0, 1.0], left_ms=work), once=False, inside="fair")
    reached = (work / np.maximum((found.alone * table).sum(axis=1), 1e-9)).max()
    assert reached <= ends[1] * 1.002


def test_two_share_a_gpu_to_their_ends() -> None:
    # One GPU, utilization 0.2: beside each other 1 - 0.5 * 0.04 = 0.98. Both begin at 0 and end after 1000 / 0.98 s.
    jobs = make_jobs([(0, 1, 1000), (0, 1, 1000)], utilization=0.2)
    packed = run_engine(jobs, make_cluster((1,)), "gavel,packed=on")
    assert packed.first_start_ms.tolist() == [0, 0]
    assert packed.end_ms.tolist() == [1_020_409, 1_020_409]
    # By turns: rounds 1 and 3 and the first 280 s of the fifth, at 1440 s; and from the sixth, at 1800 s, the other.
    alone = run_engine(jobs, make_cluster((1,)), "gavel")
    assert alone.end_ms.tolist() == [1_720_000, 2_080_000]


def test_who_stays_behind_is_fast_again_from_the_next_round_on() -> None:
    # 0.98 for 700 / 0.98 = 714.286 s, until 720 s, the next round: 705.6 s of work. 294.4 s are left, and then alone.
    jobs = make_jobs([(0, 1, 700), (0, 1, 1000)], utilization=0.2)
    outcome = run_engine(jobs, make_cluster((1,)), "gavel,packed=on")
    assert outcome.end_ms.tolist() == [714_286, 1_014_400]


def test_the_short_job_of_two_waits_where_the_last_end_counts() -> None:
    # One GPU, 2 and 8 rounds of work: max_min takes turns, so that the short one ends after 3 or 4 rounds; makespan
    # has it run in proportion, a fifth or so of all time. Both end at 10 rounds.
    jobs = make_jobs([(0, 1, 720), (0, 1, 2880)])
    turns, last = (run_engine(jobs, make_cluster((1,)), f"gavel,objective={o}") for o in ("max_min", "makespan"))
    assert turns.makespan_ms == last.makespan_ms == 10 * ROUND_MS
    assert turns.end_ms[0] <= 4 * ROUND_MS < 6 * ROUND_MS <= last.end_ms[0]


@tried(4, 12, jobs=job_lists(most=8, sizes=st.sampled_from([1, 2, 4])))
def test_with_room_for_all_objectives_do_not_differ(jobs: Jobs) -> None:
    cluster = make_cluster([8] * 4, model=["A100", "A100", "V100", "V100"])
    usual = run_engine(jobs, cluster, "gavel,round=5,again=20").end_ms.tolist()
    for objective in ("makespan", "finish_time_fairness", "throughput", "hierarchical"):
        assert run_engine(jobs, cluster, f"gavel,round=5,again=20,objective={objective}").end_ms.tolist() == usual


@tried(4, 8, jobs=job_lists(), cluster=clusters(changing=False))
def test_objectives_that_are_equal(jobs: Jobs, cluster: Cluster) -> None:
    models = load_models()
    models = replace(models, gpu_price=replace(models.gpu_price, models={}))

    def ends(text: str) -> list[int]:
        outcome = Scenario.make(jobs, cluster, models=models).run(f"gavel,round=5,again=20,{text}").outcome
        found: list[int] = outcome.end_ms.tolist()
        return found

    # With one price for all GPUs.
    assert ends("objective=cost") == ends("objective=throughput")
    assert ends("aware=off") == ends("aware=on")


@given(
    gpus=st.lists(st.integers(1, 8), min_size=1, max_size=20),
    fast=st.sampled_from([1.0, 2.0]),
    capacity=st.lists(st.integers(8, 16), min_size=2, max_size=2),
)
def test_one_vc_shares_as_its_jobs_would(gpus: list[int], fast: float, capacity: list[float]) -> None:
    jobs = active(gpus, [[1.0, fast]] * len(gpus), capacity)
    found, wanted = (find_shares(aim, jobs, once=False, inside="fair").alone for aim in ("hierarchical", "max_min"))
    assert (found @ [1.0, fast]).tolist() == pytest.approx((wanted @ [1.0, fast]).tolist(), abs=1e-6)


@settings(max_examples=10, deadline=None)
@given(jobs=job_lists(typed=False, sizes=st.sampled_from([1, 2])))
def test_without_memory_for_two_nobody_is_packed(jobs: Jobs) -> None:
    models = load_models()
    models = replace(models, memory=replace(models.memory, level="single"))
    one, two = (
        Scenario.make(jobs, make_cluster((4,)), models=models).run(f"gavel,round=5,packed={x}").outcome.end_ms.tolist()
        for x in ("on", "off")
    )
    assert abs(max(one) - max(two)) <= 50_000


@tried(4, 10, jobs=job_lists(), cluster=clusters(), objective=st.sampled_from(OBJECTIVES))
def test_the_laws_hold(jobs: Jobs, cluster: Cluster, objective: str) -> None:
    inside = "fifo" if len(jobs) % 2 else "fair"
    policy = f"gavel,round=5,again=20,objective={objective},inside={inside}"
    assert laws(jobs, cluster, policy, load_models()) == []


@tried(
    5,
    15,
    jobs=job_lists(),
    cluster=clusters(),
    objective=st.sampled_from(["max_min", "throughput", "cost"]),
    leftover=st.sampled_from(["shares", "rounds"]),
)
def test_the_laws_hold_for_pairs(jobs: Jobs, cluster: Cluster, objective: str, leftover: str) -> None:
    rng = np.random.default_rng(len(jobs))
    jobs = replace(jobs, utilization=rng.choice([0.05, 0.3, 0.9, np.nan], len(jobs)))
    policy = f"gavel,round=5,again=10,packed=on,objective={objective},leftover={leftover}"
    assert laws(jobs, cluster, policy, residents=2) == []


def test_the_laws_hold_across_types() -> None:
    rng = np.random.default_rng(5)
    rows = [(10.0 * i, int(rng.choice([1, 1, 2, 4])), float(rng.integers(100, 5000))) for i in range(40)]
    vcs = [["a", "b"][i % 2] for i in range(40)]
    jobs = make_jobs(rows, model=[["A", "B"][i % 3 // 2] for i in range(40)], vc=vcs)
    cluster = make_cluster((4, 4), model=["A", "B"])
    for objective in OBJECTIVES:
        assert laws(jobs, cluster, f"gavel,objective={objective}", typed(0.4)) == []


def test_knowing_speeds_pays() -> None:
    # The second job is slow on B, the first is equally fast on both. Without that knowledge they take turns.
    jobs = make_jobs([(0, 1, 3600), (0, 1, 3600)], model=[None, "A"])
    cluster = make_cluster((1, 1), model=["A", "B"])
    aware, blind = (
        Scenario.make(jobs, cluster, models=typed(0.1)).run(f"gavel,aware={x}").outcome.end_ms for x in ("on", "off")
    )
    assert aware.tolist() == [3_600_000, 3_600_000]
    assert blind.max() > 3_600_000


@pytest.mark.parametrize("gpus", [12, 16, 20])
def test_max_min_and_fifo_keep_their_order_on_few_gpus(gpus: int) -> None:
    # A queue with sizes of one to eight GPUs, log-uniform run times: turns are shorter on average than first come.
    rng = np.random.default_rng(gpus)
    at = np.cumsum(rng.exponential(700, 150))
    rows = [(float(t), int(rng.choice([1, 1, 2, 4, 8])), float(10 ** rng.uniform(2.5, 4.2))) for t in at]
    jobs = make_jobs(rows)
    cluster = make_cluster([4] * (gpus // 4))
    mean = {
        policy: float((run_engine(jobs, cluster, policy).end_ms - jobs.submit_ms).mean())
        for policy in ("fifo", "gavel", "gavel,leftover=rounds")
    }
    assert max(mean["gavel"], mean["gavel,leftover=rounds"]) < mean["fifo"]


def test_pairs_do_not_go_with_every_objective() -> None:
    jobs = make_jobs([(0, 1, 10)])
    with pytest.raises(UsageError, match="packed=on cannot be combined with objective=makespan"):
        run_engine(jobs, make_cluster((1,)), "gavel,packed=on,objective=makespan")


def test_prices_go_by_the_beginning_of_a_name() -> None:
    models = load_models()
    assert gpu_prices(models, ["v100-32gb", "P100", "A100"]).tolist() == [2.48, 1.46, 1.0]
    assert gpu_prices(models, []).tolist() == [1.0]
