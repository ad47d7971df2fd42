"""Quotas that tenants lend and borrow: hand-worked schedules, equivalences, laws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import VCS, clusters, job_lists
from tests.replay.turns import broken, ends_of, run_policy
from tracekit.replay.outcome import LOG_KINDS

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

HALVES = make_cluster((8,), quota={"a": 4, "b": 4})


def test_a_tenant_borrows_what_others_leave() -> None:
    jobs = make_jobs([(0, 4, 10), (0, 4, 10), (1, 4, 10)], vc=["a", "a", "b"])
    assert ends_of(run_policy(jobs, HALVES, "kueue")) == [10, 10, 20]
    assert ends_of(run_policy(jobs, HALVES, "kueue,cohort=off")) == [10, 20, 11]
    assert ends_of(run_policy(jobs, HALVES, "kueue,borrow_limit=0")) == [10, 20, 11]
    assert ends_of(run_policy(jobs, HALVES, "kueue,lend_limit=0")) == [10, 20, 11]


def test_limits_are_parts_of_the_quota() -> None:
    """a may hold 4 + 2 with borrow_limit=0.5, and as many when b lends only half of its 4."""
    jobs = make_jobs([(0, 4, 10), (0, 2, 10), (0, 1, 10)], vc="a")
    assert ends_of(run_policy(jobs, HALVES, "kueue,borrow_limit=0.5")) == [10, 10, 20]
    assert ends_of(run_policy(jobs, HALVES, "kueue,lend_limit=0.5")) == [10, 10, 20]
    never = make_jobs([(0, 7, 10)], vc="a")
    assert run_policy(never, HALVES, "kueue,lend_limit=0.5").unschedulable.tolist() == [True]


def test_tenants_without_jobs_lend_as_well() -> None:
    jobs = make_jobs([(0, 8, 10)], vc="a")
    assert ends_of(run_policy(jobs, HALVES, "kueue")) == [10]


def test_who_stays_within_quota_goes_before_who_borrows() -> None:
    """At 10 a's job is the oldest, but would borrow; b's goes first and takes what it needs."""
    jobs = make_jobs([(0, 8, 10), (1, 6, 10), (2, 3, 10)], vc=["c", "a", "b"])
    cluster = make_cluster((8,), quota={"a": 4, "b": 4, "c": 0})
    assert ends_of(run_policy(jobs, cluster, "kueue")) == [10, 30, 20]


def test_then_priority_and_then_age_decide() -> None:
    jobs = make_jobs([(0, 8, 10), (1, 4, 10), (2, 4, 10), (3, 4, 10)], vc=["a", "a", "a", "a"], priority=[0, 0, 5, 0])
    assert ends_of(run_policy(jobs, HALVES, "kueue")) == [10, 20, 20, 30]


@pytest.mark.parametrize(
    ("policy", "priority", "evicts"),
    [
        ("kueue", 1, False),
        ("kueue,reclaim=any", 0, True),
        ("kueue,reclaim=lower", 0, False),
        ("kueue,reclaim=lower", 1, True),
        ("kueue,reclaim=any,cohort=off", 1, None),
    ],
)
def test_reclaiming_what_was_lent(policy: str, priority: int, evicts: bool | None) -> None:
    """b takes back its 4 at 1 from a's second job, which goes on at 11 with 29 s left; or nothing was lent."""
    jobs = make_jobs([(0, 4, 30), (0, 4, 30), (1, 4, 10)], vc=["a", "a", "b"], priority=[0, 0, priority])
    outcome = run_policy(jobs, HALVES, policy)
    expected = {True: [30, 40, 11], False: [30, 30, 40], None: [30, 60, 11]}
    assert ends_of(outcome) == expected[evicts]
    assert outcome.preemptions.tolist() == [0, int(evicts is True), 0]
    assert broken(jobs, HALVES, outcome) == []


def test_victims_that_are_not_needed_stay() -> None:
    """Youngest first: 1 and then 4 GPUs are set aside for 4; with the 4, the 1 is not needed any more."""
    jobs = make_jobs([(0, 3, 30), (1, 4, 30), (2, 1, 30), (3, 4, 10)], vc=["a", "a", "a", "b"])
    outcome = run_policy(jobs, HALVES, "kueue,reclaim=any")
    assert outcome.preemptions.tolist() == [0, 1, 0, 0]
    assert ends_of(outcome) == [30, 41, 32, 13]
    assert broken(jobs, HALVES, outcome) == []


def test_evicting_jobs_of_its_own_tenant() -> None:
    rows = [(0, 4, 10), (1, 4, 10)]
    one = make_cluster((4,), quota={"a": 4})
    urgent = make_jobs(rows, vc="a", priority=[0, 1])
    assert ends_of(run_policy(urgent, one, "kueue")) == [10, 20]
    assert ends_of(run_policy(urgent, one, "kueue,preempt=lower")) == [20, 11]
    # An older job of equal priority, which could not start at first, evicts a newer one.
    rows = [(0, 3, 5), (1, 4, 10), (2, 1, 10)]
    equal = make_jobs(rows, vc="a")
    assert ends_of(run_policy(equal, one, "kueue,preempt=lower")) == [5, 22, 12]
    assert ends_of(run_policy(equal, one, "kueue,preempt=lower-or-newer")) == [5, 15, 22]


def test_evicting_in_order_to_borrow() -> None:
    """c has no quota: its urgent job may take from a, which borrows, only with preempt_to_borrow."""
    jobs = make_jobs([(0, 4, 10), (0, 4, 10), (1, 4, 10)], vc=["a", "a", "c"], priority=[0, 0, 3])
    cluster = make_cluster((8,), quota={"a": 4, "b": 4, "c": 0})
    assert ends_of(run_policy(jobs, cluster, "kueue,reclaim=lower")) == [10, 10, 20]
    assert ends_of(run_policy(jobs, cluster, "kueue,reclaim=lower,preempt_to_borrow=on")) == [10, 19, 11]
    capped = "kueue,reclaim=lower,preempt_to_borrow=on,borrow_priority=-1"
    assert ends_of(run_policy(jobs, cluster, capped)) == [10, 10, 20]


def test_fair_sharing_of_what_is_above_quota() -> None:
    """c borrows all 8 GPUs of b. a borrows as well: 2 against 6 and 4 against 4, but not 6 against 2."""
    jobs = make_jobs([(0, 2, 100)] * 4 + [(1, 2, 100)] * 4, vc=["c"] * 4 + ["a"] * 4)
    cluster = make_cluster((8,), quota={"a": 0, "b": 8, "c": 0})
    assert run_policy(jobs, cluster, "kueue,reclaim=any").preemptions.sum() == 0
    outcome = run_policy(jobs, cluster, "kueue,fair=on,reclaim=any")
    assert outcome.log is not None
    stopped = [int(row["job"]) for row in outcome.log if row["kind"] == LOG_KINDS["stop"] and row["time_ms"] == 1000]
    assert stopped == [3, 2]
    assert (outcome.first_start_ms == 1000).tolist() == [False] * 4 + [True] * 2 + [False] * 2
    assert broken(jobs, cluster, outcome) == []


def test_a_place_that_is_missing_is_reported() -> None:
    """a may take 4 more, but one node has 3 free and the other none."""
    jobs = make_jobs([(0, 1, 10), (0, 4, 10), (0, 4, 10)], vc=["a", "b", "a"])
    cluster = make_cluster((4, 4), quota={"a": 5, "b": 4})
    outcome = run_policy(jobs, cluster, "kueue,cohort=off")
    assert outcome.columns["placement_refused"].tolist() == [0, 0, 1]
    assert outcome.columns["fragmentation_wait_ms"].tolist() == [0, 0, 10_000]


@tried(14, 40, jobs=job_lists(sizes=st.integers(1, 4), typed=False))
def test_without_a_cohort_each_queue_is_first_in_first_out(jobs: Jobs) -> None:
    """StrictFIFO of isolated quotas is FIFO in as many isolated clusters."""
    quota = dict.fromkeys(VCS, 4)
    kueue = run_policy(jobs, make_cluster((12,), quota=quota), "kueue,cohort=off,scan=stop,fit=count")
    apart = run_policy(jobs, make_cluster((4, 4, 4), domain=VCS), "fifo,scan=stop,fit=count")
    assert kueue.end_ms.tolist() == apart.end_ms.tolist()


@tried(
    28,
    80,
    jobs=job_lists(most=16),
    cluster=clusters(),
    urgency=st.lists(st.integers(0, 3), min_size=16, max_size=16),
    reclaim=st.sampled_from(["never", "lower", "any"]),
    preempt=st.sampled_from(["never", "lower", "lower-or-newer"]),
    more=st.sampled_from(
        [
            "",
            ",fair=on",
            ",fair=on,weight=quota",
            ",preempt_to_borrow=on",
            ",lend_limit=0.5",
            ",scan=stop,overhead=helios",
        ]
    ),
)
def test_eviction_keeps_the_laws(
    jobs: Jobs, cluster: Cluster, urgency: list[int], reclaim: str, preempt: str, more: str
) -> None:
    jobs.priority[:] = urgency[: len(jobs)]
    outcome = run_policy(jobs, cluster, f"kueue,reclaim={reclaim},preempt={preempt}{more}")
    costs = (7_000, 30_000, 60_000) if "helios" in more else (0, 0, 0)
    assert broken(jobs, cluster, outcome, overhead_ms=costs) == []
    ended = outcome.end_ms >= 0
    wait = outcome.end_ms - jobs.submit_ms - outcome.run_ms
    told = outcome.columns["fair_share_wait_ms"] + outcome.columns["fragmentation_wait_ms"]
    assert told[ended].tolist() == wait[ended].tolist()
