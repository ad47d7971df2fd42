"""Dominant resource fairness: the example of its paper, and what it is equal to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tests.effort import tried
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tests.replay.turns import broken, ends_of, run_policy

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

GB = 1024


def test_the_example_of_the_paper() -> None:
    """9 CPUs and 18 GB; A asks for <1 CPU, 4 GB>, B for <3 CPUs, 1 GB>: A runs 3 and B 2, dominant shares 2/3 each."""
    jobs = make_jobs(
        [(0, 1, 10)] * 10,
        vc=["a"] * 5 + ["b"] * 5,
        cpu_milli=[1000] * 5 + [3000] * 5,
        memory_mib=[4 * GB] * 5 + [GB] * 5,
    )
    cluster = make_cluster((100,), cpu_milli=9000, memory_mib=18 * GB)
    outcome = run_policy(jobs, cluster, "drf")
    started = outcome.first_start_ms == 0
    assert started.tolist() == [True] * 3 + [False] * 2 + [True] * 2 + [False] * 3
    # Three more of A fit at 10, then two more of B; the last of B follows.
    assert ends_of(outcome) == [10, 10, 10, 20, 20, 10, 10, 20, 20, 30]


def test_resources_are_totals_of_the_domain() -> None:
    """No node has 12 CPUs, both together have: the job runs; one that asks for 17 never does."""
    jobs = make_jobs([(0, 1, 10), (0, 1, 10), (1, 1, 10)], cpu_milli=[12_000, 17_000, 8_000])
    outcome = run_policy(jobs, make_cluster((4, 4), cpu_milli=8_000), "drf")
    assert ends_of(outcome) == [10, -1, 20]
    assert outcome.unschedulable.tolist() == [False, True, False]


def test_what_is_not_reported_does_not_limit() -> None:
    """One node tells no CPUs, one job no memory."""
    jobs = make_jobs([(0, 1, 10), (0, 1, 10)], cpu_milli=[99_000, 99_000], memory_mib=[-1, 4 * GB])
    cluster = make_cluster((4, 4), cpu_milli=[8_000, -1], memory_mib=2 * GB)
    assert ends_of(run_policy(jobs, cluster, "drf")) == [10, 10]


def test_strict_sharing_waits_for_the_tenant_whose_turn_it_is() -> None:
    """a's wide job has the turn and no room: b's narrow one starts only with scan=skip."""
    jobs = make_jobs([(0, 2, 10), (1, 4, 10), (2, 1, 1)], vc=["b", "a", "b"])
    cluster = make_cluster((4,))
    assert ends_of(run_policy(jobs, cluster, "drf")) == [10, 20, 21]
    assert ends_of(run_policy(jobs, cluster, "drf,scan=skip")) == [10, 20, 3]


@tried(10, 30, jobs=job_lists(), cluster=clusters())
def test_one_tenant_is_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    jobs = replace(jobs, user=np.zeros_like(jobs.user))
    one, fifo = run_policy(jobs, cluster, "drf,of=user"), run_policy(jobs, cluster, "fifo,scan=stop")
    assert one.log is not None
    assert fifo.log is not None
    assert one.log.tolist() == fifo.log.tolist()


@tried(10, 30, jobs=job_lists(), cluster=clusters())
def test_gpus_alone_are_shared_as_fair_share_does(jobs: Jobs, cluster: Cluster) -> None:
    dominant, usage = run_policy(jobs, cluster, "drf,scan=skip"), run_policy(jobs, cluster, "fair-share,scan=stop")
    assert dominant.end_ms.tolist() == usage.end_ms.tolist()


@tried(14, 40, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_no_resource_is_exceeded(jobs: Jobs, cluster: Cluster) -> None:
    jobs = replace(jobs, cpu_milli=jobs.devices.astype(np.int64) * 3_000)
    cluster = replace(cluster, cpu_milli=cluster.gpus.astype(np.int64) * 2_000)
    outcome = run_policy(jobs, cluster, "drf")
    assert broken(jobs, cluster, outcome, preemptive=False) == []
    ran = outcome.first_start_ms >= 0
    for now in np.unique(outcome.first_start_ms[ran]):
        held = ran & (outcome.first_start_ms <= now) & (outcome.end_ms > now)
        assert jobs.cpu_milli[held].sum() <= cluster.cpu_milli.sum()
