"""Numbers of findings that the planted problems leave open, worked by hand: limits, shares of jobs, sums over days."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.guidelines.planted import DAY, Log, when
from tracekit.guidelines.evidence import Evidence
from tracekit.guidelines.interface import GUIDELINES, LackingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.guidelines.interface import Finding
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def finding(make_trace: MakeTrace, log: Log, name: str) -> Finding:
    return GUIDELINES.find(name).find(Evidence(make_trace(**log.tables)))


def test_the_share_of_jobs_with_a_limit_is_of_jobs_with_gpus(make_trace: MakeTrace) -> None:
    log = Log()
    for k in range(6):
        log.job(k * 10_000, 600, gpus=0 if k == 0 else 1, queue_s=60, node="n", time_limit_s=3600 if k < 3 else None)
    # Of six jobs three state a limit; the first has no GPUs.
    found = finding(make_trace, log, "backfill").numbers["limit_share"]
    assert (found.value, found.n) == (0.4, 5)


@pytest.mark.parametrize(
    ("queue_s", "run_s", "share"),
    [(60.0, 59.0, 0.5), (60.0, 60.0, 0.0), (59.0, 10.0, 0.0), (61.0, 60.0, 0.5), (3600.0, 3601.0, 0.0)],
)
def test_a_job_waited_long_when_a_minute_and_longer_than_it_ran(
    make_trace: MakeTrace, queue_s: float, run_s: float, share: float
) -> None:
    log = Log()
    for day in range(6):
        log.job(day * DAY, run_s, queue_s=queue_s)
        log.job(day * DAY, 7200)
    assert finding(make_trace, log, "order-by-service").numbers["waited_longer_share"].value == share


def test_what_a_tenant_borrows_leaves_the_idle_quota_of_another_as_it_is(make_trace: MakeTrace) -> None:
    log = Log()
    for vc, gpus in (("a", 2), ("b", 6)):
        log.add("capacity", time=when(0), vc=vc, gpu_count=gpus)
    for k in range(10):
        # a holds 4 of its 2 GPUs all the time, b 3 of its 6: 3 of 8 are unused.
        log.job(k * DAY, DAY, gpus=4, vc="a")
        log.job(k * DAY, DAY, gpus=3, vc="b")
    log.job(DAY, 60, queue_s=60, gpus=1, vc="b")
    found = finding(make_trace, log, "lend-quota")
    assert found.numbers["unused_share"].value == pytest.approx(3 / 8, abs=0.01)
    assert [row["vc"] for row in found.rows] == ["a", "b"]


def test_quotas_that_run_empty_after_the_last_submission_are_not_unused(make_trace: MakeTrace) -> None:
    log = Log()
    for vc in "ab":
        log.add("capacity", time=when(0), vc=vc, gpu_count=4)
    for k in range(10):
        # a holds all of its 4 GPUs, b one of its 4, until the last job comes; one of b runs on for ten days more.
        log.job(k * DAY, DAY, gpus=4, vc="a")
        log.job(k * DAY, DAY, gpus=1, vc="b")
    log.job(10 * DAY, 10 * DAY, queue_s=60, gpus=1, vc="b")
    found = finding(make_trace, log, "lend-quota")
    assert found.numbers["unused_share"].value == pytest.approx(3 / 8)
    assert [row["allocated_share_mean"] for row in found.rows] == [pytest.approx(1), pytest.approx(1 / 4)]


def test_attempts_of_a_day_or_more_that_fail_are_lost(make_trace: MakeTrace) -> None:
    log = Log()
    log.job(0, DAY + 900, gpus=2, status="failed")  # 48.5 GPU-hours
    log.job(DAY, DAY - 1, gpus=1, status="failed")  # a second short of long
    log.job(2 * DAY, 2 * DAY, gpus=4)  # 192, completed
    for _ in range(2):
        log.job(5 * DAY, 3600, gpus=1)
    found = finding(make_trace, log, "checkpoint-long").numbers
    held = 48.5 + (DAY - 1) / 3600 + 192 + 2
    assert (found["lost_gpu_hours"].value, found["lost_gpu_hours"].n) == (48.5, 1)
    # A quarter of an hour is lost with a checkpoint each hour.
    assert (found["saved_gpu_hours"].value, found["saved_gpu_hours"].n) == (48, 1)
    assert (found["long_failures"].value, found["long_failures"].n) == (1, 2)
    assert found["lost_share"].n == 5
    assert found["lost_share"].value == pytest.approx(48.5 / held)
    assert found["long_share"].value == pytest.approx(240.5 / held)


@pytest.mark.parametrize("seconds", [60, 120, 300, 600])
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_the_pool_is_as_long_and_for_gangs_as_small_as_saves_most(
    make_trace: MakeTrace, seconds: int, size: int
) -> None:
    log = Log()
    for _ in range(2):
        log.job(0, seconds, gpus=size, status="failed")
    log.job(0, 7200, gpus=size)
    # A smaller gang that does not fail only costs time on the pool.
    log.job(0, 7200, gpus=max(size - 1, 1))
    found = finding(make_trace, log, "pre-run-pool")
    numbers = found.numbers
    assert (numbers["pool_s"].value, numbers["least_gpus"].value) == (seconds, size)
    assert numbers["saved_gpu_hours"].value == pytest.approx((2 * (size - 1) - 1) * seconds / 3600)
    assert numbers["early_share"].value == pytest.approx(2 / (3 if size == 2 else 4))
    assert not found.text  # a minute of one GPU is a saving, too


def test_a_failure_after_ten_minutes_is_not_early(make_trace: MakeTrace) -> None:
    log = Log()
    for run_s in (600, 601):
        log.job(0, run_s, gpus=2, status="failed")
    assert finding(make_trace, log, "pre-run-pool").numbers["early_share"].value == 0.5


def used(*jobs: tuple[float, float, float]) -> Log:
    """Return jobs of (GPUs, hours, mean utilization of each GPU)."""
    log = Log()
    for day, (gpus, hours, pct) in enumerate(jobs):
        log.used(log.job(day * DAY, hours * 3600, gpus=gpus), gpus, pct)
    return log


def test_gangs_at_10_to_50_percent_could_do_with_half(make_trace: MakeTrace) -> None:
    # The second and third are low; a job of one GPU is no gang.
    log = used((2, 1, 10.0), (2, 2, 10.5), (4, 1, 50.0), (2, 1, 50.5), (1, 5, 30.0))
    found = finding(make_trace, log, "right-size-gangs")
    assert (found.numbers["low_gangs"].value, found.numbers["low_gangs"].n) == (2, 4)
    assert found.numbers["low_share"].value == pytest.approx(8 / 12)
    assert (found.numbers["spare_gpu_hours"].value, found.numbers["spare_gpu_hours"].n) == (4, 2)
    assert found.rows == ({"user": "u", "jobs": 2, "gpu_hours": 8.0},)
    assert found.covers == 1


def test_jobs_of_one_gpu_at_10_to_50_percent_could_share_it(make_trace: MakeTrace) -> None:
    log = used((1, 1, 10.0), (1, 2, 10.5), (1, 4, 50.0), (1, 1, 50.5), (2, 1, 30.0))
    found = finding(make_trace, log, "share-gpus")
    assert (found.numbers["low_jobs"].value, found.numbers["low_jobs"].n) == (2, 5)
    assert found.numbers["low_share"].value == pytest.approx(6 / 10)
    assert (found.numbers["freed_gpu_hours"].value, found.numbers["freed_gpu_hours"].n) == (3, 2)


def test_jobs_of_an_hour_at_up_to_10_percent_are_idle(make_trace: MakeTrace) -> None:
    log = used((1, 1, 10.0), (2, 2, 0.0), (1, 3599 / 3600, 0.0), (1, 4, 10.5))
    found = finding(make_trace, log, "reclaim-idle")
    # What is wasted is what was not busy: 0.9 of an hour, and 4 GPU-hours.
    assert (found.numbers["idle_jobs"].value, found.numbers["idle_jobs"].n) == (2, 4)
    assert found.numbers["wasted_gpu_hours"].n == 2
    assert found.numbers["wasted_gpu_hours"].value == pytest.approx(4.9)
    assert found.numbers["idle_share"].value == pytest.approx(4.9 / (9 + 3599 / 3600))
    assert [row["job_id"] for row in found.rows] == ["j1", "j0"]


def test_reasons_that_cost_the_same_stand_by_name(make_trace: MakeTrace) -> None:
    log = Log()
    for number, reason in enumerate(("b_error", "c_error", "a_error", "c_error")):
        job = log.job(number * DAY, 3600, status="failed", attempts=("failed",) * 2)
        for attempt in range(2):
            log.add("failures", job_id=job, attempt=attempt, time=when(0), reason=reason, category="user")
    found = finding(make_trace, log, "stop-retries")
    assert [(row["reason"], row["retries_saved"]) for row in found.rows] == [
        ("c_error", 2),
        ("a_error", 1),
        ("b_error", 1),
    ]


def test_the_twenty_that_cost_the_most_are_listed(make_trace: MakeTrace) -> None:
    # j0 costs as much as j1.
    found = finding(make_trace, used(*((1, 1 + max(k, 1), 0.0) for k in range(21))), "reclaim-idle")
    assert [row["job_id"] for row in found.rows] == [*(f"j{k}" for k in range(20, 1, -1)), "j0"]
    log = Log()
    for k in range(21):
        # 2 GPU-hours by a and b each, more by all others.
        log.used(log.job(k * DAY, 3600 * max(k, 1), gpus=2, user="abcdefghijklmnopqrstu"[k]), 2, 30.0)
    rows = finding(make_trace, log, "right-size-gangs").rows
    assert [row["user"] for row in rows] == [*"utsrqponmlkjihgfedca"]


def test_quotas_of_one_gpu_count_and_what_has_no_vc_or_no_quota_does_not(make_trace: MakeTrace) -> None:
    log = Log()
    log.add("capacity", time=when(0), gpu_count=20)
    for vc, gpus in (("a", 1), ("b", 3), ("none", 0)):
        log.add("capacity", time=when(0), vc=vc, gpu_count=gpus)
    for k in range(10):
        for owner in ("a", "none", "unlisted", None):
            log.job(k * DAY, DAY, gpus=1, vc=owner)
        log.job(k * DAY, DAY, gpus=2, vc="b")
    log.job(10 * DAY, 60, queue_s=60, gpus=1, vc="b")
    found = finding(make_trace, log, "lend-quota")
    # Of 1 + 3 GPUs one is unused.
    assert [row["vc"] for row in found.rows] == ["a", "b"]
    assert found.numbers["unused_share"].value == pytest.approx(1 / 4)
    assert found.numbers["unused_share"].n == 2


def test_one_quota_cannot_be_lent(make_trace: MakeTrace) -> None:
    log = Log()
    log.add("capacity", time=when(0), vc="v", gpu_count=4)
    for k in range(10):
        log.job(k * DAY, DAY, gpus=1, queue_s=60)
    with pytest.raises(LackingError, match="quotas of fewer than two VCs"):
        finding(make_trace, log, "lend-quota")


def gangs(*sizes: tuple[int, float, int, float, float]) -> Log:
    """Return 100 hours of jobs (number, GPUs, nodes, hours, hours of waiting); of four nodes one fails after 50."""
    log = Log()
    log.nodes("abcd", 8)
    for number, gpus, nodes, hours, waited in sizes:
        for k in range(number):
            log.job(k * 7200, hours * 3600, gpus=gpus, queue_s=waited * 3600, node_count=nodes)
    log.job(0, 100 * 3600, gpus=0)
    log.add("node_events", node_id="b", start_time=when(50 * 3600), end_time=when(51 * 3600), state="down")
    return log


def test_the_gangs_that_are_hit_most_are_compared_with_all_smaller_ones(make_trace: MakeTrace) -> None:
    minute = 0.016667  # in hours, to the millionth
    log = gangs(
        (5, 1, 1, 1, 0),
        (10, 8, 1, 3, 1),
        (10, 16, 2, 1.5, 1.5),
        (10, 32, 4, 1 / 60, 0),
        (10, 64, 8, 4, 0),  # on more nodes than there are
        (9, 128, 4, 50, 0),
    )
    found = finding(make_trace, log, "cap-wide-gangs")
    # Half of all pairs of neighbours have b, and all sets of four. Moments of the last 1.5 hours are not looked at.
    hit = pytest.approx(1.5 / 98.5 / 2)
    keys = ("gpus", "jobs", "median_run_h", "nodes", "hit_share", "ettr")
    assert [tuple(row[key] for key in keys) for row in found.rows] == [
        (16, 10, 1.5, 2, hit, 0.5),
        (32, 10, pytest.approx(1 / 60), 4, pytest.approx(minute / (100 - minute)), None),
        (64, 10, 4, 8, None, 1),
    ]
    # Smaller jobs made progress for 5 + 30 of 5 + 40 hours.
    rest = pytest.approx(35 / 45)
    assert {key: (number.value, number.n) for key, number in found.numbers.items()} == {
        "hit_share": (hit, 30),
        "gpus": (16, 10),
        "jobs": (10, 10),
        "median_run_s": (5400, 10),
        "ettr": (0.5, 10),
        "rest_ettr": (rest, 15),
        "ettr_gap": (pytest.approx(35 / 45 - 0.5), 10),
    }


def test_gangs_have_no_gap_where_they_or_all_smaller_jobs_are_not_measured(make_trace: MakeTrace) -> None:
    alone = finding(make_trace, gangs((10, 16, 2, 1.5, 0.5)), "cap-wide-gangs").numbers
    assert [alone[key].value for key in ("ettr", "rest_ettr", "ettr_gap")] == [0.75, None, None]
    short = finding(make_trace, gangs((10, 16, 2, 0.5, 0.5), (1, 8, 1, 1, 1)), "cap-wide-gangs").numbers
    assert [short[key].value for key in ("ettr", "rest_ettr", "ettr_gap")] == [None, 0.5, None]


def test_few_gangs_are_not_measured(make_trace: MakeTrace) -> None:
    with pytest.raises(LackingError, match="No size has ten jobs that ran long enough on several nodes"):
        finding(make_trace, gangs((9, 16, 2, 1.5, 0), (10, 8, 1, 1, 0)), "cap-wide-gangs")


def test_jobs_without_names_repeat_none(make_trace: MakeTrace) -> None:
    log = Log()
    for day in range(3):
        log.job(day * DAY, 600)
    assert finding(make_trace, log, "order-by-service").numbers["again_share"].value == 0


def test_three_neighbours_on_a_node_are_as_many_as_four(make_trace: MakeTrace) -> None:
    log = Log()
    for day in range(5):
        for begin, others, nodes, pct in ((0, 3, "a", 80), (7200, 4, "ab", 70)):
            job = log.job(day * DAY + begin, 600, gpus=2, node_count=len(nodes))
            for node in nodes:
                gpus = [0] if len(nodes) > 1 else [0, 1]
                log.hold(job, node, gpus)
                log.busy(node, gpus, day * DAY + begin, 600, pct)
            for k in range(others):
                log.hold(log.job(day * DAY + begin, 600), "a", [2 + k])
    found = finding(make_trace, log, "wait-for-locality").numbers["drop_pct"]
    assert found.value == pytest.approx(10)
    assert found.n == 5
