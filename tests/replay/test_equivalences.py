"""Settings in which two policies must give the same schedule, and what must hold whatever the policy.

===========================================================  ==========================================================
setting                                                      tested in
===========================================================  ==========================================================
any policy, never short of GPUs: every job starts at once    test_no_job_waits_where_there_is_room (ordering policies)
work-conserving skip, one GPU each: same use while queued    test_use_is_the_same_while_jobs_wait
SSF and QSSF with known run times, one GPU each: SJF         test_with_one_gpu_each_small_is_short
SRSF, equal sizes: SRTF                                      test_with_equal_sizes_remaining_service_is_remaining_time
all submitted at once, equal sizes, no cost: SRTF is SJF     test_with_all_jobs_there_remaining_time_is_run_time
equal sizes and run times: FIFO                              test_equal_jobs_go_in_the_order_of_arrival
FIFO, equal sizes, count: STOP is SKIP                       test_with_equal_sizes_there_is_nothing_to_skip
Tiresias, one queue, running first: FIFO SKIP                test_one_queue_that_evicts_nobody_is_fifo
Tiresias, one queue by submission, equal sizes: FIFO STOP    test_one_queue_of_equal_sizes_is_fifo
Gittins, decreasing hazard: LAS; exponential: constant       test_gittins_of_a_decreasing_hazard_is_las and neighbours
overhead up: useful GPU time the same                        test_overhead_changes_no_useful_gpu_time
identical seeds: identical schedules and files               test_a_seed_gives_the_same_bytes, test_every_policy
QSSF, constant predictions: smallest gang first              tests/policies/test_qssf.py
EASY, conservative                                           with backfilling
DRF, Kueue, Philly                                           test_tenants.py
HiveD, one VC; HiveD's guarantee                             test_hived.py
Gavel, Themis, AlloX, Lucid, Voda, ElasticFlow               with these policies
===========================================================  ==========================================================
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.policies.service import Gittins, gittins_index
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.results.tables import jobs_table
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

ARRAYS = ("first_start_ms", "end_ms", "run_ms", "overhead_ms", "preemptions", "migrations", "nodes_spanned")
ORDERING = ["fifo", "fifo,scan=skip", "sjf", "ssf", "srtf", "srsf", "las", "las,within=running", "gittins", "qssf"]

EQUAL_SIZES = st.integers(1, 8).flatmap(lambda g: job_lists(sizes=st.just(g), typed=False))
ONE_GPU = job_lists(sizes=st.just(1), typed=False)


def assert_same(jobs: Jobs, cluster: Cluster, policy: str, other: str) -> None:
    one, two = run_engine(jobs, cluster, policy), run_engine(jobs, cluster, other)
    for name in ARRAYS:
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name


@tried(5, 25, jobs=job_lists(typed=False))
@pytest.mark.parametrize("policy", ORDERING)
def test_no_job_waits_where_there_is_room(policy: str, jobs: Jobs) -> None:
    # A node for each job: whatever else runs, one is wholly free.
    outcome = run_engine(jobs, make_cluster([20] * len(jobs)), policy)
    assert outcome.first_start_ms.tolist() == jobs.submit_ms.tolist()
    assert outcome.end_ms.tolist() == (jobs.submit_ms + jobs.work_ms).tolist()


@tried(
    21,
    60,
    rows=st.lists(st.tuples(st.integers(0, 30), st.just(1), st.integers(1, 20)), min_size=8, max_size=30),
    gpus=st.integers(1, 5),
)
def test_use_is_the_same_while_jobs_wait(rows: list[tuple[float, int, float]], gpus: int) -> None:
    jobs, cluster = make_jobs(rows), make_cluster([gpus])
    outcomes = [run_engine(jobs, cluster, f"{policy},scan=skip") for policy in ("fifo", "sjf", "ssf", "qssf")]
    times = np.unique(np.concatenate([jobs.submit_ms, *(o.end_ms for o in outcomes)]))
    running = np.array([use(o.first_start_ms, o.end_ms, times) for o in outcomes])
    waiting = np.array([use(jobs.submit_ms, o.first_start_ms, times) for o in outcomes])
    # Whoever has a queue uses all GPUs ...
    assert (running[waiting > 0] == gpus).all()
    # ... and until the first queue is empty for good or for a while, all have done the same.
    queued = (waiting > 0).any(axis=0)
    began = int(np.argmax(queued)) if queued.any() else len(times)
    emptied = next((t for t in range(began, len(times)) if (waiting[:, t] == 0).any()), len(times))
    assert (running[:, :emptied] == running[0, :emptied]).all()


def use(begin: NDArray[np.int64], end: NDArray[np.int64], times: NDArray[np.int64]) -> list[int]:
    """How many spans hold at each time."""
    return [int(((begin <= t) & (t < end)).sum()) for t in times]


@tried(5, 25, jobs=ONE_GPU, cluster=clusters())
@pytest.mark.parametrize("scan", ["stop", "skip"])
def test_with_one_gpu_each_small_is_short(scan: str, jobs: Jobs, cluster: Cluster) -> None:
    assert_same(jobs, cluster, f"ssf,scan={scan}", f"sjf,scan={scan}")
    assert_same(jobs, cluster, f"qssf,oracle=on,scan={scan}", f"sjf,scan={scan}")


@given(jobs=job_lists(), cluster=clusters())
def test_foretelling_the_truth_is_smallest_first(jobs: Jobs, cluster: Cluster) -> None:
    assert_same(jobs, cluster, "qssf,oracle=on", "ssf")


@tried(5, 25, jobs=EQUAL_SIZES, cluster=clusters())
@pytest.mark.parametrize("more", ["", ",overhead=helios", ",overhead=helios,charge=event", ",fit=count,scan=stop"])
def test_with_equal_sizes_remaining_service_is_remaining_time(more: str, jobs: Jobs, cluster: Cluster) -> None:
    assert_same(jobs, cluster, f"srsf{more}", f"srtf{more}")


@tried(21, 60, works=st.lists(st.integers(0, 60), min_size=1, max_size=25), gpus=st.integers(1, 8), cluster=clusters())
def test_with_all_jobs_there_remaining_time_is_run_time(works: list[int], gpus: int, cluster: Cluster) -> None:
    jobs = make_jobs([(0, gpus, work) for work in works], vc="a", tenants=["a", "b", "c"])
    assert_same(jobs, cluster, "srtf", "sjf")
    assert_same(jobs, cluster, "srsf", "ssf")


@tried(
    14,
    40,
    submits=st.lists(st.integers(0, 40), min_size=1, max_size=25),
    gpus=st.integers(1, 8),
    work=st.integers(0, 30),
    cluster=clusters(),
)
def test_equal_jobs_go_in_the_order_of_arrival(submits: list[int], gpus: int, work: int, cluster: Cluster) -> None:
    jobs = make_jobs([(submit, gpus, work) for submit in submits], vc="a", tenants=["a", "b", "c"])
    for policy in ("sjf", "ssf", "srtf", "srsf", "qssf,oracle=on"):
        assert_same(jobs, cluster, policy, "fifo")


@tried(5, 25, jobs=EQUAL_SIZES, cluster=clusters())
def test_with_equal_sizes_there_is_nothing_to_skip(jobs: Jobs, cluster: Cluster) -> None:
    for policy in ("fifo", "sjf", "qssf"):
        assert_same(jobs, cluster, f"{policy},scan=skip,fit=count", f"{policy},scan=stop,fit=count")


@tried(5, 25, jobs=job_lists(), cluster=clusters())
@pytest.mark.parametrize("scan", ["skip", "stop"])
@pytest.mark.parametrize("fit", ["place", "count"])
def test_one_queue_that_evicts_nobody_is_fifo(scan: str, fit: str, jobs: Jobs, cluster: Cluster) -> None:
    assert_same(jobs, cluster, f"las,queues=none,within=running,scan={scan},fit={fit}", f"fifo,scan={scan},fit={fit}")


@given(jobs=EQUAL_SIZES, cluster=clusters())
def test_one_queue_of_equal_sizes_is_fifo(jobs: Jobs, cluster: Cluster) -> None:
    assert_same(jobs, cluster, "las,queues=none,fit=count", "fifo,scan=stop,fit=count")


def slow_index(service: list[int], attained: int, end: int) -> Fraction:
    """The Gittins index by its definition, in exact numbers."""
    left = [x - attained for x in service if x > attained]
    if not left:
        return Fraction(0)
    chance = Fraction(sum(x <= end - attained for x in left), len(left))
    return chance / Fraction(sum(min(x, end - attained) for x in left), len(left))


@given(
    service=st.lists(st.integers(0, 50), min_size=1, max_size=30),
    attained=st.lists(st.integers(0, 39), min_size=1, max_size=8),
)
def test_the_gittins_index_by_its_definition(service: list[int], attained: list[int]) -> None:
    found = gittins_index(np.sort(np.array(service)), np.array(attained), 40)
    expected = [slow_index(service, s, 40) for s in attained]
    top = max(expected) or Fraction(1)
    np.testing.assert_allclose(found, [float(index / top) for index in expected], rtol=1e-12)


def test_the_gittins_index_of_exponential_service_is_constant() -> None:
    quantiles = (np.arange(100_000) + 0.5) / 100_000
    service = np.sort((-np.log1p(-quantiles) * 1_000_000).astype(np.int64))
    index = gittins_index(service, np.linspace(0, 1_900_000, 20).astype(np.int64), 2_000_000)
    assert index.min() > 0.99


def test_gittins_of_a_decreasing_hazard_is_las() -> None:
    # Lomax service: the hazard 1 / (100 s + s) falls. The end of the queue keeps enough jobs in each step.
    quantiles = (np.arange(20_000) + 0.5) / 20_000
    works = np.round(100 * (1 / (1 - quantiles) - 1), 3)[np.random.default_rng(3).permutation(20_000)]
    works = np.minimum(works, 5000)
    jobs = make_jobs([(float(i), 1, float(work)) for i, work in enumerate(works)])
    cluster = make_cluster([8] * 45)
    mechanism = Gittins(queues="320").mechanism(jobs, cluster, load_models(None), 0)
    values = mechanism.level_values
    assert len(values) == 33
    assert (np.diff(values) > 0).all()
    steps = "/".join(str(step / 1000) for step in mechanism.thresholds)
    assert_same(jobs, cluster, "gittins,queues=320", f"las,queues={steps}")
    assert run_engine(jobs, cluster, "gittins,queues=320").preemptions.sum() > 100


@tried(5, 25, jobs=job_lists(), cluster=clusters())
@pytest.mark.parametrize(
    "policy", ["srtf", "srsf", "las,queues=12", "las,queues=12,within=running", "gittins,queues=12"]
)
def test_overhead_changes_no_useful_gpu_time(policy: str, jobs: Jobs, cluster: Cluster) -> None:
    costs = ["none", "helios", "lucid"] + (["helios,charge=event"] if "gittins" not in policy else [])
    for cost in costs:
        outcome = run_engine(jobs, cluster, f"{policy},overhead={cost}")
        ended = ~outcome.unschedulable
        useful = outcome.held_milli_ms // 1000 - outcome.overhead_ms * jobs.devices
        assert useful[ended].tolist() == (jobs.work_ms * jobs.devices)[ended].tolist()
        assert (outcome.run_ms - outcome.overhead_ms)[ended].tolist() == jobs.work_ms[ended].tolist()
        if cost == "none":
            assert outcome.overhead_ms.sum() == 0


def noisy(jobs: Jobs, seed: int) -> Outcome:
    return Scenario.make(jobs, make_cluster([8, 8]), seed=seed).run("sjf,noise=1.5").outcome


def test_another_seed_is_another_schedule() -> None:
    random = np.random.default_rng(1)
    rows = [(i / 2, int(random.integers(1, 9)), int(random.integers(1, 60))) for i in range(80)]
    jobs = make_jobs(rows)
    table = jobs_table(jobs, noisy(jobs, 1))
    assert table.equals(jobs_table(jobs, noisy(jobs, 1)))
    assert not table.equals(jobs_table(jobs, noisy(jobs, 2)))
