"""Gandiva_fair: shares and deals by hand and by law, and turns that come near to them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.gandiva_fair import fill_segments, fill_shares, trade
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

FREE = "gandiva-fair,overhead=none"


def run(jobs: Jobs, cluster: Cluster, policy: str) -> Outcome:
    outcome = run_engine(jobs, cluster, policy)
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome) == []
    return outcome


def had_until(outcome: Outcome, jobs: Jobs, until_ms: int) -> list[float]:
    """GPU time that each user had until then [GPU*s]."""
    found, since = [0.0] * len(jobs.users), {}
    assert outcome.log is not None
    for row in outcome.log:
        job, time = int(row["job"]), min(int(row["time_ms"]), until_ms)
        if row["kind"] == LOG_KINDS["start"]:
            since[job] = time
        elif row["kind"] in {LOG_KINDS["stop"], LOG_KINDS["finish"]} and job in since:
            found[int(jobs.user[job])] += (time - since.pop(job)) * int(jobs.devices[job]) / 1000
    for job, time in since.items():
        found[int(jobs.user[job])] += (until_ms - time) * int(jobs.devices[job]) / 1000
    return found


def test_a_share_that_is_not_asked_for_goes_to_the_others() -> None:
    # 8 GPUs, three tenants, one of whom has two to ask for: 3, 3, 2.
    assert fill_shares(np.array([9.0, 9.0, 2.0]), np.ones(3), 8.0).tolist() == [3.0, 3.0, 2.0]
    # Weights 2, 1: 4 and 2 of 6; with a limit of 3 the rest goes to the other.
    assert fill_shares(np.array([9.0, 9.0]), np.array([2.0, 1.0]), 6.0).tolist() == [4.0, 2.0]
    assert fill_shares(np.array([3.0, 9.0]), np.array([2.0, 1.0]), 6.0).tolist() == [3.0, 3.0]
    assert fill_shares(np.array([1.0, 2.0]), np.ones(2), 6.0).tolist() == [1.0, 2.0]
    assert fill_shares(np.zeros(0), np.zeros(0), 6.0).tolist() == []
    two = fill_segments(np.array([1, 0, 1]), np.array([4.0, 9.0, 1.0]), np.ones(3), np.array([5.0, 3.0]))
    assert two.tolist() == [2.0, 5.0, 1.0]


def test_who_gains_most_buys_at_the_second_largest_gain() -> None:
    # One has 3 of a fast GPU, the other 1.5: 2/3 of a fast GPU for one slow GPU.
    have, deals = trade(np.ones((2, 2)), np.array([[3.0, 1.0], [1.5, 1.0]]), 0.1)
    assert deals == 1
    assert have == pytest.approx(np.array([[5 / 3, 0.0], [1 / 3, 2.0]]))
    # Three tenants, gains 4, 2, 1: the first buys from the last at 2, which earns twice what it gives.
    have, deals = trade(np.ones((3, 2)), np.array([[4.0, 1.0], [2.0, 1.0], [1.0, 1.0]]), 0.1)
    assert have[0] == pytest.approx([1.5, 0.0])
    # Then the second has nothing to gain from the first, and buys the last half of the last at 2, the larger left.
    assert have.sum(axis=0) == pytest.approx([3.0, 3.0])
    assert trade(np.ones((2, 2)), np.array([[2.0, 1.0], [2.0, 1.0]]), 0.1)[1] == 0


@settings(max_examples=15, deadline=None)
@given(
    gains=st.lists(st.floats(1.0, 8.0), min_size=1, max_size=6),
    fast=st.lists(st.floats(0.0, 9.0), min_size=6, max_size=6),
    slow=st.lists(st.floats(0.0, 9.0), min_size=6, max_size=6),
)
def test_nobody_is_worse_off_for_a_deal(gains: list[float], fast: list[float], slow: list[float]) -> None:
    count = len(gains)
    before = np.column_stack([fast[:count], slow[:count]])
    speed = np.column_stack([gains, np.ones(count)])
    after, _ = trade(before, speed, 0.05)
    assert after.sum(axis=0) == pytest.approx(before.sum(axis=0), abs=1e-6)
    assert ((speed * after).sum(axis=1) >= (speed * before).sum(axis=1) - 1e-6).all()
    assert (after >= 0).all()


def test_turns_follow_the_tickets_of_users() -> None:
    # Due are 1/4, 1/4 and 1/2 of the GPU: 0, 1, then job 2 until its pass is level, to its end; 0 and 1 take turns.
    outcome = run(make_jobs([(0, 1, 120)] * 3, user=["a", "a", "b"]), make_cluster((1,)), FREE)
    assert outcome.first_start_ms.tolist() == [0, 60_000, 120_000]
    assert outcome.end_ms.tolist() == [300_000, 360_000, 240_000]


def test_a_gang_that_is_passed_over_comes_to_the_front() -> None:
    # The gang finds no two GPUs at 0; at 60 s its pass is the smallest.
    outcome = run(make_jobs([(0, 1, 120), (0, 1, 120), (0, 2, 120)], user=["a", "b", "b"]), make_cluster((2,)), FREE)
    assert outcome.first_start_ms.tolist() == [0, 0, 60_000]


def test_types_go_to_those_who_gain_by_them() -> None:
    models = load_models()
    models = replace(models, type_speed=replace(models.type_speed, ratio={"B": {"A": 4.0}}))
    jobs = make_jobs([(0, 1, 1200), (0, 1, 1200)], user=["a", "b"], model=["A|B", "B"])
    cluster = make_cluster((1, 1), model=["A", "B"])  # the first job takes either at one speed
    ends = [
        Scenario.make(jobs, cluster, models=models).run(f"{FREE},trade={on}", log=True).outcome.end_ms.tolist()
        for on in ("on", "off")
    ]
    # With the deal the fast GPU is that of b. Without it each has half of both, and the first job takes the first type.
    assert ends[0] == [1_200_000, 300_000]
    assert ends[1] == [1_200_000, 1_200_000]


def test_quotas_are_tickets_and_none_is_not_a_ticket() -> None:
    jobs = make_jobs([(0, 1, 600), (0, 1, 600)], vc=["a", "b"])
    outcome = run(jobs, make_cluster((1,), quota={"a": 0, "b": 3}), f"{FREE},of=vc,weight=quota")
    # Without a ticket a job has its slice once, until its pass is above all others.
    assert outcome.end_ms.tolist() == [1_200_000, 660_000]


def test_users_have_no_quotas() -> None:
    with pytest.raises(UsageError, match="no quotas"):
        run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), "gandiva-fair,weight=quota")


@tried(4, 10, gpus=st.integers(1, 4), counts=st.lists(st.integers(4, 7), min_size=2, max_size=4))
def test_users_have_equal_times_however_many_jobs_they_have(gpus: int, counts: list[int]) -> None:
    users = [f"u{i}" for i, count in enumerate(counts) for _ in range(count)]
    jobs = make_jobs([(0, 1, 1200)] * len(users), user=users)
    outcome = run(jobs, make_cluster((gpus,)), FREE)
    had = had_until(outcome, jobs, 1_200_000)
    # A job may be ahead or behind by a slice, and a user has up to so many that run at once.
    assert max(had) - min(had) <= 60 * 2 * max(counts)


@tried(5, 15, jobs=job_lists(typed=False), cluster=clusters())
def test_with_one_gain_nobody_trades(jobs: Jobs, cluster: Cluster) -> None:
    ends = [run_engine(jobs, cluster, f"{FREE},quantum=5,trade={on}").end_ms.tolist() for on in ("on", "off")]
    assert ends[0] == ends[1]


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_and_room_for_all_is_used_at_once(jobs: Jobs, cluster: Cluster) -> None:
    run(jobs, cluster, "gandiva-fair,quantum=5")
    wide = make_cluster((200, 200), model=["A100", "V100"])
    outcome = run(jobs, wide, "gandiva-fair,quantum=5")
    assert outcome.preemptions.sum() == 0
    able = outcome.unschedulable == 0
    assert (outcome.first_start_ms[able] == jobs.submit_ms[able]).all()
