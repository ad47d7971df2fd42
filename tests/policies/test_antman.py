"""AntMan: worked by hand, and without one of its classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.effort import tried
from tests.policies.sharing_runs import lawful, same, sharing_jobs
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


def test_an_opportunistic_job_takes_the_gpu_with_least_load_and_what_is_left_there() -> None:
    # Guaranteed on GPUs 0 and 1, u = 0.6 and 0.3; an opportunistic job with u = 1 goes to the second, at 0.7.
    jobs = make_jobs([(0, 1, 100), (0, 1, 35), (0, 1, 100)], preemptible=[0, 0, 1], utilization=[0.6, 0.3, 1.0])
    outcome = lawful(jobs, make_cluster((2,)), "antman", 2)
    # Until 35 s it does 24.5 s of work; then it is alone: 35 + 75.5.
    assert outcome.end_ms.tolist() == [100_000, 35_000, 110_500]


def test_a_guaranteed_job_starts_over_an_opportunistic_one() -> None:
    jobs = make_jobs([(0, 1, 100), (10, 1, 50)], preemptible=[1, 0], utilization=[0.5, 0.9])
    outcome = lawful(jobs, make_cluster((1,)), "antman", 2)
    # 10 s alone, then 0.1 / 0.5 = 0.2 of the speed for 50 s: 10 more. The last 80 s alone.
    assert outcome.end_ms.tolist() == [140_000, 60_000]
    assert outcome.preemptions.tolist() == [0, 0]


def test_several_opportunistic_jobs_share_alike_and_a_busy_gpu_takes_none() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 10), (0, 1, 10)], preemptible=1, utilization=[0.4, 0.5, 0.4])
    outcome = lawful(jobs, make_cluster((1,)), "antman,guests=2", 3)
    # 0.4 and 0.5: each may have half the GPU, which is enough; the third waits for a seat.
    assert outcome.end_ms.tolist() == [10_000, 10_000, 20_000]
    alone = lawful(jobs, make_cluster((1,)), "antman,guests=2,cap=0.4", 3)
    assert alone.end_ms.tolist() == [10_000, 20_000, 30_000]


def test_a_gang_of_opportunistic_pods_goes_at_the_pace_of_its_slowest() -> None:
    jobs = make_jobs([(0, 1, 100), (0, 2, 20)], preemptible=[0, 1], utilization=[0.75, 0.5])
    # One GPU with 0.25 / 0.5 left, and an idle one.
    assert lawful(jobs, make_cluster((2,)), "antman", 2).end_ms.tolist() == [100_000, 40_000]


def test_guaranteed_jobs_stay_within_their_quota_and_others_do_not() -> None:
    jobs = make_jobs([(0, 2, 10), (0, 2, 10), (0, 2, 10)], preemptible=[0, 0, 1], vc="a", utilization=0.5)
    cluster = make_cluster((8,), quota={"a": 3})
    assert lawful(jobs, cluster, "antman", 2).first_start_ms.tolist() == [0, 10_000, 0]
    assert lawful(jobs, cluster, "antman,quota=off", 2).first_start_ms.tolist() == [0, 0, 0]
    none = make_cluster((8,), quota={"a": 0})
    assert lawful(jobs, none, "antman", 2).end_ms.tolist() == [-1, -1, 10_000]


@tried(7, 20, jobs=sharing_jobs(preemptible=0), cluster=clusters())
def test_without_opportunistic_jobs_it_is_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    assert same(run_engine(jobs, cluster, "antman"), run_engine(jobs, cluster, "limits"))
    assert same(run_engine(jobs, cluster, "antman,quota=off"), run_engine(jobs, cluster, "fifo,scan=skip"))


@tried(5, 15, jobs=sharing_jobs(), cluster=clusters())
def test_guaranteed_jobs_do_not_notice_the_others(jobs: Jobs, cluster: Cluster) -> None:
    ours = lawful(jobs, cluster, "antman,guests=2", 3)
    none = lawful(jobs, cluster, "antman,guests=2,cap=0", 3)
    hosts = jobs.preemptible == 0
    assert (none.first_start_ms[~hosts] == -1).all()
    assert ours.end_ms[hosts].tolist() == none.end_ms[hosts].tolist()


def test_what_cannot_be_is_refused() -> None:
    jobs = make_jobs([(0, 1, 1)], vc="a")
    with pytest.raises(UsageError, match="no starts to derive them from"):
        run_engine(jobs, make_cluster((1,)), "antman,quota=held")
    with pytest.raises(UsageError, match="guests"):
        run_engine(jobs, make_cluster((1,)), "antman,guests=0")
