"""Elastic Tiresias: worked by hand, and the settings in which it is another policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.effort import tried
from tests.policies.resized import assert_lawful, elastic, run, same, takes
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

FREE = "elastic-tiresias,gap=0,resize=0,overhead=none"


def test_everyone_has_what_he_asks_for_before_anyone_grows() -> None:
    jobs = make_jobs([(0, 2, 100), (0, 2, 100), (0, 4, 100)])
    outcome = run(jobs, make_cluster((6,)), FREE)
    # 2 and 2 as asked; 2 are left, too few for 4: the minimum of 1, and as every GPU adds as much, one for the first.
    assert sorted(takes(outcome)[:3]) == [(0, 0, 3), (0, 1, 2), (0, 2, 1)]
    # The first has done its 200 GPU*s at 66.667 s. Then job 1 keeps 2 to 100 s, and job 2 has the 4 that it asks for:
    # of 400 GPU*s 66.667 are done, and 133.333 more at 100 s. The last 200 take 33.333 s on 6 GPUs.
    assert outcome.end_ms.tolist() == [66_667, 100_000, pytest.approx(133_333, abs=3)]


def test_a_job_falls_behind_when_it_had_its_share() -> None:
    jobs = make_jobs([(0, 2, 100), (10, 2, 30)])
    outcome = run(jobs, make_cluster((2,)), f"{FREE},queues=40,promote=0", elastic(rigid=True))
    # The first has 40 GPU*s at 20 s and falls; the second has 40 at 40 s and falls too. In the second queue who started
    # first goes first: the first runs on from 40 s to 120 s, the second for its 10 s from then.
    assert takes(outcome) == [(0, 0, 2), (20, 1, 2), (40, 0, 2), (120, 1, 2)]
    assert outcome.end_ms.tolist() == [120_000, 130_000]


def test_a_job_that_waits_long_begins_anew() -> None:
    jobs = make_jobs([(0, 2, 100), (10, 2, 300)])
    outcome = run(jobs, make_cluster((2,)), f"{FREE},queues=40/400,promote=2", elastic(rigid=True))
    # The first runs for 20 s and falls; the second falls at 40 s, and the first runs on. At 80 s the second has waited
    # twice its 20 s, and begins anew for 20 s; the first, which had run for 40 s, goes on at 100 s.
    assert takes(outcome)[:5] == [(0, 0, 2), (20, 1, 2), (40, 0, 2), (80, 1, 2), (100, 0, 2)]


@pytest.mark.parametrize(("crowd", "gpus"), [(0, [(0, 3), (1, 1)]), (1, [(0, 4)])])
def test_a_crowd_makes_those_behind_shrink(crowd: int, gpus: list[tuple[int, int]]) -> None:
    jobs = make_jobs([(0, 4, 1000), (100, 4, 1000)])
    outcome = run(jobs, make_cluster((4,)), f"{FREE},queues=200,crowd={crowd},promote=0")
    # Job 0 has 4 GPUs, and job 1 then has the 200 GPU*s of the first queue from 100 s to 150 s. Then both are behind,
    # and job 0, which started first, has all that it asks for. One job has nothing: with crowd=0 job 0 shrinks to 1,
    # job 1 has its 1, and the other 2 are job 0's, as every GPU adds as much.
    assert [(job, n) for at, job, n in takes(outcome) if at == 150] == gpus


def test_what_is_left_goes_to_the_smaller_job() -> None:
    jobs = make_jobs([(0, 4, 100), (0, 1, 100)])
    outcome = run(jobs, make_cluster((6,)), FREE, elastic(sigma=0.03))
    # 4 and 1; the sixth GPU adds more speed to the job of one.
    assert takes(outcome)[:2] == [(0, 0, 4), (0, 1, 2)]


def test_with_room_for_all_everyone_has_the_most() -> None:
    jobs = make_jobs([(0, 1, 60), (60, 2, 60), (60, 4, 60)])
    outcome = run(jobs, make_cluster((8, 8)), "elastic-tiresias")
    assert sorted((j, n) for _, j, n in takes(outcome)) == [(0, 2), (1, 4), (2, 8)]


@tried(7, 20, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_one_queue_and_fixed_sizes_are_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    rigid = elastic(rigid=True)
    one = run(jobs, cluster, f"{FREE},queues=none,fit=count", rigid)
    same(one, run(jobs, cluster, "fifo,scan=skip,fit=count", rigid))


@tried(4, 12, jobs=job_lists(), cluster=clusters())
# With gap=1 and promote=8 some jobs stop each other again and again, before either has paid its overhead.
@pytest.mark.parametrize(
    "policy",
    [
        FREE + ",queues=30/90,promote=1,crowd=0",
        "elastic-tiresias,gap=1,queues=20,promote=0",
        "elastic-tiresias,queues=20",
    ],
)
def test_the_laws_hold(policy: str, jobs: Jobs, cluster: Cluster) -> None:
    outcome = run(jobs, cluster, policy)
    assert_lawful(jobs, cluster, outcome)


def test_thresholds_have_to_ascend() -> None:
    with pytest.raises(UsageError, match="ascending"):
        run(make_jobs([(0, 1, 10)]), make_cluster((4,)), "elastic-tiresias,queues=9/3")
