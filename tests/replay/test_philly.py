"""Philly: reclaim, attempts and rests, waits by cause, and what it is equal to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.outcomes import make_outcome
from tests.replay.strategies import clusters, job_lists
from tests.replay.turns import broken, ends_of, run_policy
from tracekit.replay.results.tables import jobs_table

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

HALVES = make_cluster((8,), quota={"a": 4, "b": 4})
FREE = "overhead=none"


def test_quotas_may_be_exceeded_while_gpus_are_idle() -> None:
    jobs = make_jobs([(0, 4, 10), (0, 4, 10)], vc="a")
    assert ends_of(run_policy(jobs, HALVES, "philly")) == [10, 10]


def test_a_tenant_takes_back_its_quota_from_the_youngest() -> None:
    """b's job evicts the last started of a's, which had run 2 of 30 s and goes on when b's ends."""
    jobs = make_jobs([(0, 4, 30), (1, 4, 30), (3, 4, 10)], vc=["a", "a", "b"])
    outcome = run_policy(jobs, HALVES, f"philly,{FREE}")
    assert ends_of(outcome) == [30, 41, 13]
    assert outcome.preemptions.tolist() == [0, 1, 0]
    # a held its quota all the time that its job waited.
    assert outcome.columns["fair_share_wait_ms"].tolist() == [0, 10_000, 0]
    assert outcome.columns["fragmentation_wait_ms"].tolist() == [0, 0, 0]
    assert broken(jobs, HALVES, outcome) == []
    assert ends_of(run_policy(jobs, HALVES, "philly")) == [30, 71, 13]


def test_nobody_falls_below_its_quota() -> None:
    """a holds 5 and its quota is 4: without either of its jobs, of 2 and 3, it would hold less."""
    jobs = make_jobs([(0, 2, 30), (1, 3, 30), (2, 4, 10)], vc=["a", "a", "b"])
    outcome = run_policy(jobs, HALVES, f"philly,{FREE},theta=0.5")
    assert outcome.preemptions.sum() == 0
    assert ends_of(outcome) == [30, 31, 40]


def test_nothing_is_taken_from_a_cluster_that_is_not_full() -> None:
    """7 of 8 GPUs are in use: reclaim begins at 0.875."""
    jobs = make_jobs([(0, 4, 30), (1, 3, 30), (2, 2, 10)], vc=["a", "a", "b"])
    assert run_policy(jobs, HALVES, "philly,theta=0.9").preemptions.sum() == 0
    assert run_policy(jobs, HALVES, "philly,theta=0.875").preemptions.tolist() == [0, 1, 0]


def test_a_job_beyond_its_own_quota_takes_nothing() -> None:
    jobs = make_jobs([(0, 8, 30), (1, 5, 10)], vc=["a", "b"])
    assert ends_of(run_policy(jobs, HALVES, "philly")) == [30, 40]


def test_a_gang_goes_further_apart_after_failed_attempts() -> None:
    """One GPU is free on each of two nodes; attempts take 10 s, rests 5, and two of them lead to the next step.

    From 1 on it tries to be on one node: until 11, and from 16 to 26; from 31 on any nodes of one rack: until 41, and
    from 46 to 56; from 61 on any nodes.
    """
    jobs = make_jobs([(0, 2, 100), (0, 2, 100), (1, 2, 10)])
    policy = "philly,attempt=10,backoff=5,retries=2"
    racks = make_cluster((3, 3), rack=["r0", "r1"], quota={"vc": 6})
    outcome = run_policy(jobs, racks, policy)
    assert outcome.first_start_ms.tolist() == [0, 0, 61_000]
    assert outcome.columns["fair_share_wait_ms"].tolist() == [0, 0, 0]
    assert outcome.columns["fragmentation_wait_ms"].tolist() == [0, 0, 60_000]
    one_rack = make_cluster((3, 3), quota={"vc": 6})
    assert run_policy(jobs, one_rack, policy).first_start_ms.tolist() == [0, 0, 31_000]
    assert run_policy(jobs, racks, "philly,retries=0").first_start_ms.tolist() == [0, 0, 1_000]


def test_a_resting_gang_does_not_start() -> None:
    """The node is free from 12 on, but the gang rests from 11 to 16."""
    jobs = make_jobs([(0, 3, 12), (0, 3, 50), (1, 3, 10)])
    cluster = make_cluster((3, 3), quota={"vc": 6})
    assert run_policy(jobs, cluster, "philly,attempt=10,backoff=5").first_start_ms.tolist() == [0, 0, 16_000]
    assert run_policy(jobs, cluster, "philly,attempt=10,backoff=0").first_start_ms.tolist() == [0, 0, 12_000]


@tried(10, 30, jobs=job_lists(sizes=st.integers(1, 10)), size=st.integers(1, 8), quota=st.integers(0, 8))
def test_one_tenant_on_one_node_is_first_in_first_out(jobs: Jobs, size: int, quota: int) -> None:
    jobs = replace(jobs, tenant=np.zeros_like(jobs.tenant))
    cluster = make_cluster((size,), quota={"a": quota, "b": 1})
    philly, fifo = run_policy(jobs, cluster, "philly"), run_policy(jobs, cluster, "fifo,scan=skip")
    assert philly.log is not None
    assert fifo.log is not None
    assert philly.log.tolist() == fifo.log.tolist()


@tried(10, 30, jobs=job_lists(typed=False), nodes=st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_without_locality_only_numbers_count(jobs: Jobs, nodes: list[int]) -> None:
    jobs = replace(jobs, tenant=np.zeros_like(jobs.tenant))
    cluster = make_cluster(nodes, quota={"a": 4})
    philly, fifo = run_policy(jobs, cluster, "philly,retries=0"), run_policy(jobs, cluster, "fifo,scan=skip,fit=count")
    assert philly.end_ms.tolist() == fifo.end_ms.tolist()


@settings(max_examples=20)
@given(jobs=job_lists(), cluster=clusters())
def test_quotas_never_reached_evict_nobody(jobs: Jobs, cluster: Cluster) -> None:
    plenty = replace(cluster, quota=np.full_like(cluster.quota, 10_000))
    assert run_policy(jobs, plenty, "philly,theta=0").preemptions.sum() == 0


@tried(
    28,
    80,
    jobs=job_lists(),
    cluster=clusters(),
    theta=st.sampled_from(["0", "0.9", "1"]),
    more=st.sampled_from(["", ",attempt=3,backoff=2,retries=1", ",retries=0", ",fit=count"]),
)
def test_reclaim_keeps_the_laws(jobs: Jobs, cluster: Cluster, theta: str, more: str) -> None:
    outcome = run_policy(jobs, cluster, f"philly,theta={theta}{more}")
    assert broken(jobs, cluster, outcome, overhead_ms=(7_000, 30_000, 60_000)) == []
    ended = outcome.end_ms >= 0
    shares = outcome.columns["fair_share_wait_ms"], outcome.columns["fragmentation_wait_ms"]
    assert all((share[ended] >= 0).all() for share in shares)
    wait = outcome.end_ms - jobs.submit_ms - outcome.run_ms
    assert (shares[0] + shares[1])[ended].tolist() == wait[ended].tolist()


def test_columns_of_the_policy_follow_those_of_every_result() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 10)])
    outcome = replace(make_outcome(jobs, [(0, 10), None]), columns={"fair_share_wait_ms": np.array([5, 0])})
    table = jobs_table(jobs, outcome)
    assert table.columns[-2:] == ["slowdown", "fair_share_wait_ms"]
    assert table["fair_share_wait_ms"].to_list() == [5, None]
