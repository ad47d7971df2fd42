"""Numbers of findings that the planted problems leave open, worked by hand: limits, shares of jobs, sums over days."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.guidelines.planted import DAY, Log, when
from tracekit.guidelines.evidence import Evidence
from tracekit.guidelines.registry import find_guideline

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.guidelines.interface import Finding
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def finding(make_trace: MakeTrace, log: Log, name: str) -> Finding:
    return find_guideline(name).find(Evidence(make_trace(**log.tables)))


def test_the_share_of_jobs_with_a_limit_is_of_jobs_with_gpus(make_trace: MakeTrace) -> None:
    log = Log()
    for k in range(6):
        limit = {"time_limit_s": 3600} if k < 3 else {}
        log.job(k * 10_000, 600, gpus=0 if k == 0 else 1, queue_s=60, node="n", **limit)
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
