"""Planners: what a plan may say, what it does, and one-line errors for what it may not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


def run(jobs: Jobs, cluster: Cluster, plan: Callable[[View], Plan], **options: Any) -> Outcome:
    return simulate(jobs, cluster, assign(jobs, cluster), Planner(plan, **options), name="toy", log=True)


def broken(jobs: Jobs, cluster: Cluster, outcome: Outcome, **options: Any) -> list[str]:
    assert outcome.log is not None
    return audit(jobs, cluster, outcome.log, outcome, **options)


def ints(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


FAULTS = {
    "too many": (lambda v: Plan(v.job, v.job * 0 + 5), "requested more GPUs than the cluster has, or fewer than 0 (5)"),
    "sum too large": (
        lambda v: Plan(v.job, v.job * 0 + 3),
        "requested more GPUs than the cluster has, or fewer than 0 (3)",
    ),
    "fewer than 0": (lambda v: Plan(ints(0), ints(-1)), "fewer than 0 (-1): job j0"),
    "twice": (lambda v: Plan(ints(1, 1), ints(1, 1)), "named a job twice in a plan: job j1, at 0 s"),
    "twice with none": (lambda v: Plan(ints(1, 1), ints(0, 0)), "named a job twice"),
    "not there": (
        lambda v: Plan(ints(7), ints(1)),
        "planned a job that is neither waiting nor running: the job at 7 of 3",
    ),
    "negative": (lambda v: Plan(ints(-1), ints(1)), "neither waiting nor running: the job at -1 of 3"),
    "not yet": (lambda v: Plan(ints(2), ints(1)), "neither waiting nor running: job j2"),
    "no speed": (lambda v: Plan(ints(0), ints(1), rate=ints(0)), "gave a speed of 0 ppm: job j0"),
    "great speed": (lambda v: Plan(ints(0), ints(1), rate=ints(2**40)), "gave a speed of 1099511627776 ppm"),
    "group": (lambda v: Plan(ints(0), ints(1), group=ints(1)), "the group of nodes 1, which is not in the job's"),
    "group below": (lambda v: Plan(ints(0), ints(1), group=ints(-2)), "the group of nodes -2"),
    "model": (lambda v: Plan(ints(0), ints(1), model=ints(1)), "a GPU model that the cluster does not have"),
    "lost": (lambda v: Plan(ints(0), ints(1), lost_ms=ints(-1)), "gave a lost time that is negative"),
    "lost for ever": (lambda v: Plan(ints(0), ints(1), lost_ms=ints(2**62)), "or longer than a century"),
    "lengths": (lambda v: Plan(ints(0), ints(1, 1)), "columns differ in length"),
    "fractions": (lambda v: Plan(ints(0), np.array([0.5])), "gpus are not a list of whole numbers"),
    "nothing": (lambda v: None, "returned NoneType at 0 s, not a Plan"),
    "raises": (lambda v: v.job[99], "failed at 0 s: IndexError: index 99 is out of bounds"),
}


def test_begin_is_called_once_before_the_plans_of_every_run() -> None:
    calls: list[str] = []

    def plan(view: View) -> Plan:
        calls.append("plan")
        return Plan(view.job, view.job * 0 + 1)

    planner = Planner(plan, lambda view: calls.append("begin"))
    jobs, cluster = make_jobs([(0, 1, 10), (5, 1, 10)]), make_cluster((2,))
    for _ in range(2):
        calls.clear()
        simulate(jobs, cluster, assign(jobs, cluster), planner)
        assert calls[0] == "begin"
        assert calls.count("begin") == 1
        assert len(calls) > 2


def test_a_begin_that_fails_is_an_error_of_one_line() -> None:
    with pytest.raises(UsageError, match="the policy toy failed at 0 s: ZeroDivisionError"):
        run(make_jobs([(0, 1, 10)]), make_cluster((1,)), lambda v: Plan(v.job, v.job), begin=lambda v: 1 // 0)


@pytest.mark.parametrize("case", FAULTS)
def test_a_faulty_plan_is_an_error_of_one_line(case: str) -> None:
    plan: Any = FAULTS[case][0]
    jobs = make_jobs([(0, 1, 10), (0, 1, 10), (5, 1, 10)])
    with pytest.raises(UsageError) as error:
        run(jobs, make_cluster((4,)), plan)
    assert "the policy toy" in error.value.what
    assert FAULTS[case][1] in error.value.what
    assert "\n" not in str(error.value)


def test_jobs_on_other_numbers_of_gpus_run_at_the_speed_given() -> None:
    def halves(v: View) -> Plan:
        share = np.full(len(v.job), v.gpus // len(v.job))
        return Plan(v.job, share, rate=share * 1_000_000)

    jobs = make_jobs([(0, 1, 16), (2, 1, 4)])
    outcome = run(jobs, make_cluster((4,)), halves, resize_ms=1000)
    # Job 0: 8 in 2 s at speed 4; 1 s of resize; 2 in 1 s at speed 2, until job 1 ends; 1 s of resize; 6 at speed 4.
    assert outcome.end_ms.tolist() == [6500, 4000]
    assert outcome.migrations.tolist() == [2, 0]
    assert outcome.preemptions.tolist() == [0, 0]
    assert broken(jobs, make_cluster((4,)), outcome, gang="elastic") == []


def test_keep_leaves_running_jobs_alone_and_none_stops_one() -> None:
    def plan(v: View) -> Plan:
        if v.now_ms == 0:
            return Plan(ints(0), ints(2))
        if v.now_ms == 5000:
            return Plan(ints(0, 1), ints(0, 4), keep=True)
        return Plan(v.job[~v.running], np.full(int((~v.running).sum()), 2), keep=True)

    jobs, cluster = make_jobs([(0, 2, 10), (5, 4, 10)]), make_cluster((4,))
    outcome = run(jobs, cluster, plan)
    assert outcome.end_ms.tolist() == [20_000, 15_000]
    assert outcome.preemptions.tolist() == [1, 0]
    assert broken(jobs, cluster, outcome) == []


def test_what_a_stopped_or_moved_job_loses_is_done_again() -> None:
    def plan(v: View) -> Plan:
        if v.now_ms == 0:
            return Plan(ints(0, 1), ints(2, 2), group=ints(0, 1))
        if v.now_ms == 5000:
            # Job 0 is stopped, job 1 moves; job 2, which starts, has nothing to lose.
            return Plan(ints(0, 1, 2), ints(0, 2, 2), group=ints(-1, 0, 1), lost_ms=ints(4000, 1500, 9000))
        return Plan(v.job[~v.running], v.job[~v.running] * 0 + 2, keep=True)

    jobs = make_jobs([(0, 2, 10), (0, 2, 10), (5, 2, 3)])
    cluster = make_cluster((2, 2), rack=["r0", "r1"])
    outcome = run(jobs, cluster, plan, overhead_ms=ints(0, 0, 500))
    # Job 1: 0.5 s to move, 1.5 s again, 5 s. Job 2 ends at 8 s; then job 0: 0.5 s, 4 s again and 5 s.
    assert outcome.end_ms.tolist() == [17_500, 12_000, 8_000]
    assert outcome.preemptions.tolist() == [1, 0, 0]
    assert outcome.migrations.tolist() == [0, 1, 0]
    assert broken(jobs, cluster, outcome) == []


def test_optional_jobs_start_only_where_there_is_room() -> None:
    jobs, cluster = make_jobs([(0, 3, 10), (0, 2, 10), (0, 1, 10)]), make_cluster((4,))
    outcome = run(jobs, cluster, lambda v: Plan(v.job, v.job * 0 + jobs.devices[v.job], optional=len(v.job)))
    assert outcome.end_ms.tolist() == [10_000, 20_000, 10_000]
    assert broken(jobs, cluster, outcome) == []


def test_plans_come_in_rounds_or_with_a_gap_between_them() -> None:
    asked: list[int] = []

    def plan(v: View) -> Plan:
        asked.append(v.now_ms)
        return Plan(v.job, np.ones(len(v.job), np.int64))

    jobs = make_jobs([(0, 1, 12), (3, 1, 40), (4, 1, 40)])
    run(jobs, make_cluster((4,)), plan, round_ms=10_000)
    assert asked == [0, 10_000, 20_000]
    asked.clear()
    run(jobs, make_cluster((4,)), plan, gap_ms=10_000)
    assert asked == [0, 10_000, 20_000]


def test_a_model_is_named_across_racks_and_a_move_is_charged() -> None:
    def plan(v: View) -> Plan:
        if v.now_ms == 2000:
            return Plan(ints(0, 1), ints(1, 1), model=ints(1, 0))
        return Plan(v.job, np.ones(len(v.job), np.int64), keep=True)

    cluster = make_cluster((1, 1, 1), model=["A", "B", "B"], rack=["r0", "r0", "r1"])
    jobs = make_jobs([(0, 1, 10), (2, 1, 10)])
    outcome = run(jobs, cluster, plan, overhead_ms=np.array([0, 3000]))
    assert outcome.end_ms.tolist() == [13_000, 12_000]
    assert outcome.migrations.tolist() == [1, 0]
    assert broken(jobs, cluster, outcome) == []


def test_a_model_that_a_job_does_not_ask_for_needs_leave() -> None:
    cluster = make_cluster((1, 1), model=["A", "B"])
    jobs = make_jobs([(0, 1, 10)], model="A")
    other = run(jobs, cluster, lambda v: Plan(v.job, v.job * 0 + 1, model=v.job * 0 + 1, rate=v.job * 0 + 500_000))
    assert other.end_ms.tolist() == [-1]
    free = run(
        jobs,
        cluster,
        lambda v: Plan(v.job, v.job * 0 + 1, model=v.job * 0 + 1, rate=v.job * 0 + 500_000),
        any_model=True,
    )
    assert free.end_ms.tolist() == [20_000]


def test_isolated_domains_are_carried_out_one_after_the_other() -> None:
    cluster = make_cluster((2, 2), domain=["a", "b"])
    jobs = make_jobs([(0, 1, 10), (0, 1, 10), (1, 2, 5), (1, 2, 5)], vc=["b", "a", "b", "a"])

    def latest(v: View) -> Plan:
        room = {0: 2, 1: 2}
        rows = []
        for j in v.job[::-1].tolist():
            d = int(jobs.tenant[j])
            if room[d] >= jobs.devices[j]:
                room[d] -= int(jobs.devices[j])
                rows.append(j)
        return Plan(ints(*rows), jobs.devices[rows].astype(np.int64))

    outcome = run(jobs, cluster, latest)
    assert outcome.end_ms.tolist() == [15_000, 15_000, 6_000, 6_000]
    assert outcome.preemptions.tolist() == [1, 1, 0, 0]
    assert broken(jobs, cluster, outcome) == []


def test_a_planner_may_read_the_engines_records() -> None:
    seen: list[tuple[int, int]] = []

    def plan(v: View) -> Plan:
        row = v.table[0]
        seen.append((v.submitted, int(row["attained"])))
        with pytest.raises(ValueError, match="read-only"):
            v.table["gpus"][0] = 9
        return Plan(v.job, np.ones(len(v.job), np.int64))

    run(make_jobs([(0, 1, 10), (4, 1, 10)]), make_cluster((4,)), plan)
    assert seen == [(1, 0), (2, 4000), (2, 10_000)]
