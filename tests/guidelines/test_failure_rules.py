"""Guidelines about failures: the planted size is recovered, and there is no advice without the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.guidelines.planted import DAY, Log, when
from tracekit.guidelines.run import guidelines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.guidelines.run import Judged
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def judged(make_trace: MakeTrace, log: Log, name: str) -> Judged:
    (found,) = guidelines(make_trace(**log.tables), only=[name]).judged
    return found


def failing_gangs(failing_s: float) -> Log:
    """Return ten days with five gangs of 8 that fail after so long, and five that run for two hours."""
    log = Log()
    for day in range(10):
        for k in range(5):
            log.job(day * DAY + k * 9000, failing_s, gpus=8, status="failed")
            log.job(day * DAY + k * 9000, 7200, gpus=8)
    return log


def test_the_pool_saves_what_early_failures_hold_less_what_it_takes(make_trace: MakeTrace) -> None:
    found = judged(make_trace, failing_gangs(300), "pre-run-pool")
    assert found.verdict == "holds"
    assert found.finding is not None
    numbers = found.finding.numbers
    # A failure saves 7 GPUs for five minutes, everyone else spends five minutes on one GPU.
    assert numbers["saved_gpu_hours"].value == pytest.approx(50 * (7 - 1) * 300 / 3600)
    assert (numbers["pool_s"].value, numbers["least_gpus"].value) == (300, 2)
    assert numbers["early_share"].value == pytest.approx(0.5)
    assert numbers["saved_share"].value == pytest.approx((7 - 1) * 300 / (8 * (300 + 7200)))


def test_a_pool_that_saves_hardly_anything_is_not_advised(make_trace: MakeTrace) -> None:
    # A minute of 7 GPUs is worth little beside two hours of 8.
    assert judged(make_trace, failing_gangs(60), "pre-run-pool").verdict == "does not hold"


def test_late_failures_need_no_pool(make_trace: MakeTrace) -> None:
    assert judged(make_trace, failing_gangs(5000), "pre-run-pool").verdict == "does not hold"


def retried(trials: int, category: str = "user", reason: str = "syntax_error") -> Log:
    log = Log()
    for number in range(40):
        job = log.job(number * 20_000, 3600, gpus=1, status="failed", attempts=("failed",) * trials)
        for attempt in range(trials):
            log.add("failures", job_id=job, attempt=attempt, time=when(0), reason=reason, category=category)
    return log


def test_repeats_of_one_reason_are_counted_with_their_gpu_hours(make_trace: MakeTrace) -> None:
    found = judged(make_trace, retried(4), "stop-retries")
    assert found.verdict == "holds"
    assert found.finding is not None
    numbers = found.finding.numbers
    assert (numbers["repeat_share"].value, numbers["repeat_share"].n) == (0.75, 160)
    assert (numbers["factor"].value, numbers["factor"].n) == (4, 40)
    assert numbers["repeats"].value == 120
    assert numbers["repeat_gpu_hours"].value == pytest.approx(120)
    assert found.finding.rows == (
        {"reason": "syntax_error", "trials": 160, "jobs": 40, "retries_saved": 120, "gpu_hours_saved": 120.0},
    )


def test_memory_errors_come_back_too(make_trace: MakeTrace) -> None:
    assert judged(make_trace, retried(3, "engine", "gpu_out_of_memory"), "stop-retries").verdict == "holds"


def test_failures_that_are_not_repeated_are_left_alone(make_trace: MakeTrace) -> None:
    assert judged(make_trace, retried(1), "stop-retries").verdict == "does not hold"


def test_retries_after_faults_of_the_infrastructure_are_right(make_trace: MakeTrace) -> None:
    found = judged(make_trace, retried(4, "infrastructure", "nccl_error"), "stop-retries")
    assert found.verdict == "does not hold"
    assert found.finding is not None
    assert found.finding.numbers["repeats"].value == 0


def failing_nodes(bad_every: int) -> Log:
    """Return ten nodes with a hundred jobs each, of which every tenth fails; on node 'a' every so many."""
    log = Log()
    for node in "abcdefghij":
        for k in range(100):
            failed = k % (bad_every if node == "a" else 10) == 0
            log.job(k * 9000, 600, status="failed" if failed else "completed", node=node)
    return log


def test_the_bad_node_is_named_with_its_excess(make_trace: MakeTrace) -> None:
    found = judged(make_trace, failing_nodes(2), "drain-nodes")
    assert found.verdict == "holds"
    assert found.finding is not None
    # 9 * 10 + 50 failures over ten nodes: 14 each are expected.
    assert found.finding.numbers["excess_failures"].value == pytest.approx(36)
    assert found.finding.numbers["suspect_nodes"].value == 1
    assert [row["node_id"] for row in found.finding.rows] == ["a"]


def test_equal_nodes_stay(make_trace: MakeTrace) -> None:
    found = judged(make_trace, failing_nodes(10), "drain-nodes")
    assert found.verdict == "does not hold"
    assert found.finding is not None
    assert found.finding.rows == ()


def long_jobs(status: str) -> Log:
    """Return ten days with two jobs of 30 hours on four GPUs that end so, and six that complete."""
    log = Log()
    for day in range(10):
        for k in range(8):
            log.job(day * DAY, 30 * 3600, gpus=4, status=status if k < 2 else "completed")
    return log


def test_long_failures_lose_what_was_planted(make_trace: MakeTrace) -> None:
    found = judged(make_trace, long_jobs("failed"), "checkpoint-long")
    assert found.verdict == "holds"
    assert found.finding is not None
    numbers = found.finding.numbers
    assert numbers["lost_share"].value == pytest.approx(0.25)
    assert numbers["long_share"].value == pytest.approx(1)
    assert numbers["lost_gpu_hours"].value == pytest.approx(20 * 120)
    assert numbers["saved_gpu_hours"].value == pytest.approx(20 * 4 * 29)


def test_long_jobs_that_complete_need_no_cap(make_trace: MakeTrace) -> None:
    assert judged(make_trace, long_jobs("completed"), "checkpoint-long").verdict == "does not hold"
