"""Turns of tenants: hand-worked schedules, a second reckoning, and the law of quotas."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import quotas_of
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import VCS, clusters, job_lists
from tests.replay.turns import Turns, broken, ends_of, run_policy
from tracekit.errors import UsageError
from tracekit.policies.tenants import quotas
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered, Tenants

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

SHARING = [
    # policy, reckoning
    ("fair-share,fit=count", {"weight": "equal"}),
    ("fair-share,fit=count,scan=skip", {"weight": "equal", "skip": True}),
    ("fair-share,fit=count,weight=quota", {}),
    ("drf,fit=count,scan=skip", {"weight": "equal"}),
    ("kueue,fit=count", {"cycle": True, "skip": True, "limit": "cohort"}),
    ("kueue,fit=count,scan=stop", {"cycle": True, "limit": "cohort"}),
    ("kueue,fit=count,scan=stop,borrow_limit=0.5", {"cycle": True, "limit": "cohort", "borrow": 2}),
    ("kueue,fit=count,lend_limit=0.5", {"cycle": True, "skip": True, "limit": "cohort", "lend": [2, 2, 2, 0]}),
    ("kueue,fit=count,cohort=off", {"cycle": True, "skip": True, "limit": "own"}),
    ("philly,fit=count,theta=inf", {"skip": True}),
]


def test_the_turn_goes_to_the_tenant_with_the_fewest_gpus() -> None:
    """b comes late, but has nothing: it gets the first two GPUs that come free, a its third job after that."""
    rows = [(0, 1, 10), (0, 1, 11), (1, 1, 5), (2, 1, 7), (3, 1, 7)]
    jobs = make_jobs(rows, vc=["a", "a", "a", "b", "b"])
    outcome = run_policy(jobs, make_cluster((2,)), "fair-share")
    # At 10 a holds 1 and b 0: b. At 11 a holds 0 and b 1: a. At 16 b holds 1 and a 0, but only b waits.
    assert ends_of(outcome) == [10, 11, 16, 17, 23]
    assert broken(jobs, make_cluster((2,)), outcome) == []


def test_weights_by_quota_share_gpus_in_proportion() -> None:
    """Nine jobs of one GPU each and 4 GPUs: b, with three times the quota, holds three of them."""
    jobs = make_jobs([(0, 1, 10)] * 9, vc=["a"] * 5 + ["b"] * 4)
    outcome = run_policy(jobs, make_cluster((4,), quota={"a": 1, "b": 3}), "fair-share,weight=quota")
    assert [int(np.sum(outcome.first_start_ms[part] == 0)) for part in (slice(0, 5), slice(5, 9))] == [1, 3]


def test_a_pass_of_one_tenant_does_not_hold_up_another() -> None:
    """a's wide job cannot start; b goes on, and a's narrow one only with scan=skip."""
    jobs = make_jobs([(0, 2, 10), (1, 4, 1), (2, 1, 1), (3, 1, 1)], vc=["b", "a", "a", "b"])
    cluster = make_cluster((4,))
    assert ends_of(run_policy(jobs, cluster, "fair-share")) == [10, 11, 12, 4]
    assert ends_of(run_policy(jobs, cluster, "fair-share,scan=skip")) == [10, 11, 3, 4]


def test_past_use_counts_with_a_half_life() -> None:
    """a held the GPU for 100 s: with a half-life b has the turns until it has had as much, else the earlier job has."""
    jobs = make_jobs([(0, 1, 100), (1, 1, 10), (2, 1, 10), (3, 1, 10)], vc=["a", "a", "b", "b"])
    cluster = make_cluster((1,))
    assert ends_of(run_policy(jobs, cluster, "fair-share")) == [100, 110, 120, 130]
    assert ends_of(run_policy(jobs, cluster, "fair-share,half_life=1000")) == [100, 130, 110, 120]


def test_past_use_is_forgotten() -> None:
    """Long after a's job nothing of it is left: the earlier job has the turn again."""
    rows = [(0, 1, 100), (50_000, 1, 100), (50_001, 1, 10), (50_002, 1, 10)]
    jobs = make_jobs(rows, vc=["a", "c", "a", "b"])
    ends = ends_of(run_policy(jobs, make_cluster((1,)), "fair-share,half_life=10"))
    assert ends == [100, 50_100, 50_110, 50_120]


def test_users_may_be_the_tenants() -> None:
    jobs = make_jobs([(0, 1, 10), (1, 1, 10), (2, 1, 10)], vc="vc", user=["u", "u", "v"])
    cluster = make_cluster((1,))
    assert ends_of(run_policy(jobs, cluster, "fair-share,of=user")) == [10, 20, 30]
    assert ends_of(run_policy(jobs, cluster, "fair-share,of=user,half_life=60")) == [10, 30, 20]
    with pytest.raises(UsageError, match="users have no quotas"):
        run_policy(jobs, cluster, "fair-share,of=user,weight=quota")


def test_a_higher_quota_lets_a_waiting_job_start() -> None:
    """The change itself asks for a pass: nothing else happens at 20."""
    jobs = make_jobs([(0, 2, 100), (1, 2, 10), (2, 9, 10)], vc="a")
    cluster = make_cluster((8,), quota={"a": [(0, 2), (20, 4)]})
    outcome = run_policy(jobs, cluster, "kueue,cohort=off")
    assert ends_of(outcome) == [100, 30, -1]
    assert outcome.unschedulable.tolist() == [False, False, True]
    assert broken(jobs, cluster, outcome, quotas=quotas_of(cluster)) == []


def test_quotas_that_no_table_tells_follow_from_the_log() -> None:
    """a held 3 GPUs and b 1 all the time: 6 and 2 of 8."""
    jobs = make_jobs(
        [(0, 3, 10), (0, 1, 10)], vc=["a", "b"], recorded_start_ms=[0, 0], recorded_end_ms=[10_000, 10_000]
    )
    table, times = quotas(jobs, make_cluster((8,)), load_models(None))
    assert (table.tolist(), times.tolist()) == ([[6, 2, 0]], [0])
    unknown = make_jobs([(0, 3, 10)], vc="a")
    with pytest.raises(UsageError, match="has no quotas"):
        quotas(unknown, make_cluster((8,)), load_models(None))


@tried(14, 40, jobs=job_lists(sizes=st.integers(1, 8), typed=False))
@pytest.mark.parametrize(("policy", "rule"), SHARING)
def test_the_engine_agrees_with_a_second_reckoning(policy: str, rule: dict[str, Any], jobs: Jobs) -> None:
    quota = [4, 4, 4, 0]
    weight = [1] * 4 if rule.get("weight") == "equal" else [4, 4, 4, 1]
    given_rule = {"lend": quota, **{key: value for key, value in rule.items() if key != "weight"}}
    expected = Turns(12, quota, weight, **given_rule).ends(jobs, jobs.tenant.tolist())
    outcome = run_policy(jobs, make_cluster((12,), quota=dict.fromkeys(VCS, 4)), policy)
    assert outcome.end_ms.tolist() == expected


@tried(21, 60, jobs=job_lists(), cluster=clusters(), scan=st.sampled_from(["stop", "skip"]))
def test_a_quota_is_never_exceeded(jobs: Jobs, cluster: Cluster, scan: str) -> None:
    outcome = run_policy(jobs, cluster, f"kueue,cohort=off,scan={scan}")
    found = broken(jobs, cluster, outcome, quotas=quotas_of(cluster), preemptive=False)
    assert found == []


@settings(max_examples=60)
@given(
    jobs=job_lists(),
    cluster=clusters(),
    policy=st.sampled_from(["fair-share,scan=skip", "fair-share,of=user", "drf", "philly,theta=inf,retries=0"]),
)
def test_sharing_keeps_the_laws(jobs: Jobs, cluster: Cluster, policy: str) -> None:
    outcome = run_policy(jobs, cluster, policy)
    assert broken(jobs, cluster, outcome, preemptive=False, conserve=policy == "fair-share,scan=skip") == []


@tried(10, 30, jobs=job_lists(), cluster=clusters(), scan=st.sampled_from(["stop", "skip"]))
def test_one_tenant_is_first_in_first_out(jobs: Jobs, cluster: Cluster, scan: str) -> None:
    jobs = replace(jobs, user=np.zeros_like(jobs.user))
    one = run_policy(jobs, cluster, f"fair-share,of=user,scan={scan}")
    fifo = run_policy(jobs, cluster, f"fifo,scan={scan}")
    assert one.log is not None
    assert fifo.log is not None
    assert one.log.tolist() == fifo.log.tolist()


def test_a_mechanism_that_contradicts_itself_is_refused() -> None:
    jobs, cluster = make_jobs([(0, 1, 1)]), make_cluster((1,))
    quota, times = np.ones((1, 1), np.int64), np.zeros(1, np.int64)
    cases: list[tuple[Ordered, Literal["stop", "skip"]]] = [
        (Ordered(by_arrival), "skip"),
        (Ordered(by_arrival, scan="skip", by_tenant=True), "stop"),
    ]
    for order, across in cases:
        mechanism = Tenants(order, jobs.tenant, quota, times, across=across)
        with pytest.raises(ValueError, match="set "):
            simulate(jobs, cluster, assign(jobs, cluster), mechanism)
