"""Guidelines about failures: the planted size is recovered, and there is no advice without the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from scipy.stats import fisher_exact

from tests.guidelines.planted import DAY, Log, when
from tracekit.characterize import run_query
from tracekit.guidelines.run import guidelines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.guidelines.run import Judgement
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def judged(make_trace: MakeTrace, log: Log, name: str) -> Judgement:
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


def failing_nodes(bad_every: int, users: int = 7, gpus: float = 1) -> Log:
    """Return ten nodes with a hundred jobs each, of which every tenth fails; on node 'a' every so many."""
    log = Log()
    for node in "abcdefghij":
        for k in range(100):
            failed = k % (bad_every if node == "a" else 10) == 0
            status = "failed" if failed else "completed"
            log.job(k * 9000, 600, status=status, node=node, user=f"u{k // 10 % users}", gpus=gpus)
    return log


def test_the_bad_node_is_named_with_its_excess(make_trace: MakeTrace) -> None:
    found = judged(make_trace, failing_nodes(2), "drain-nodes")
    assert found.verdict == "holds"
    assert found.finding is not None
    # 9 * 10 + 50 failures over ten nodes: 14 each are expected.
    assert found.finding.numbers["excess_failures"].value == pytest.approx(36)
    assert found.finding.numbers["suspect_nodes"].value == 1
    assert found.finding.numbers["one_user_nodes"].value == 0
    (row,) = found.finding.rows
    assert row["node_id"] == "a"
    assert row["adjusted_p_value"] < row["adjusted_p_value_without_one_user"] <= 0.05


def test_equal_nodes_stay(make_trace: MakeTrace) -> None:
    found = judged(make_trace, failing_nodes(10), "drain-nodes")
    assert found.verdict == "does not hold"
    assert found.finding is not None
    assert found.finding.rows == ()


def burst(on: str, of: int) -> Log:
    """Return ten good nodes, on some of which one user has so many jobs that fail after a second."""
    log = failing_nodes(10)
    for node in on:
        for k in range(of):
            log.job(400_000 + k, 1, status="failed", node=node, user="burst")
    return log


def test_the_instant_failures_of_one_user_make_no_node_suspect(make_trace: MakeTrace) -> None:
    found = judged(make_trace, burst("bcd", 30), "drain-nodes")
    frame = run_query(make_trace(**burst("bcd", 30).tables), "failures/by_node")
    assert frame.filter(pl.col("adjusted_p_value") <= 0.05)["node_id"].sort().to_list() == ["b", "c", "d"]
    assert found.verdict == "does not hold"
    assert found.finding is not None
    assert found.finding.rows == ()
    assert found.finding.numbers["one_user_nodes"].value == 3


def test_a_bad_node_is_named_beside_nodes_that_one_user_makes_look_bad(make_trace: MakeTrace) -> None:
    log = failing_nodes(2)
    for node in "bcd":
        for k in range(30):
            log.job(400_000 + k, 1, status="failed", node=node, user="burst")
    found = judged(make_trace, log, "drain-nodes")
    assert found.verdict == "holds"
    assert found.finding is not None
    assert [row["node_id"] for row in found.finding.rows] == ["a"]
    assert found.finding.numbers["one_user_nodes"].value == 3


def test_the_user_is_left_out_of_both_sides(make_trace: MakeTrace) -> None:
    """The test is Fisher's of what is left: of the others 9 * 10 jobs fail of 900, of node a's 40 of 80."""
    log = Log()
    for node in "abcdefghij":
        for k in range(100):
            # User x has 20 jobs on each node, of which all fail on a, and half elsewhere.
            own = k < 20
            failed = (node == "a" or k % 2 == 0) if own else k % (2 if node == "a" else 10) == 0
            log.job(k * 9000, 600, status="failed" if failed else "completed", node=node, user="x" if own else f"u{k}")
    found = judged(make_trace, log, "drain-nodes")
    assert found.finding is not None
    (row,) = found.finding.rows
    table = np.array([[40, 40], [9 * 8, 9 * 72]])
    p_value = float(fisher_exact(table, alternative="greater").pvalue)
    # Of ten nodes the least p-value counts ten times.
    assert row["adjusted_p_value_without_one_user"] == pytest.approx(10 * p_value, rel=1e-9, abs=0)


def test_of_users_with_as_many_failures_the_one_with_more_attempts_is_left_out(make_trace: MakeTrace) -> None:
    log = Log()
    for node in "abcdefghij":
        for k in range(100):
            # On a x fails 20 times of 40, y 20 times of 20, and others 20 times of 40; elsewhere one job in ten fails.
            user = f"u{k}" if node != "a" or k >= 60 else "x" if k < 40 else "y"
            failed = (k % 2 == 0 or user == "y") if node == "a" else k % 10 == 0
            log.job(k * 9000, 600, status="failed" if failed else "completed", node=node, user=user)
    found = judged(make_trace, log, "drain-nodes")
    assert found.finding is not None
    (row,) = found.finding.rows
    table = np.array([[40, 20], [9 * 10, 9 * 90]])
    p_value = float(fisher_exact(table, alternative="greater").pvalue)
    assert row["adjusted_p_value_without_one_user"] == pytest.approx(10 * p_value, rel=1e-9, abs=0)


def test_users_whom_the_log_does_not_name_may_be_one(make_trace: MakeTrace) -> None:
    log = failing_nodes(2)
    for job in log.tables["jobs"]:
        job["user"] = None
    found = judged(make_trace, log, "drain-nodes")
    assert found.verdict == "cannot tell"
    assert found.why == ("The log names no users, so that a bad node looks like a user whose jobs fail there.",)
    half = failing_nodes(2)
    for k, job in enumerate(half.tables["jobs"]):
        job["user"] = None if k % 100 < 97 else "u"
    assert judged(make_trace, half, "drain-nodes").verdict == "does not hold"


@pytest.mark.parametrize("gpus", [0, 1])
def test_gpus_are_spoken_of_where_there_are_some(make_trace: MakeTrace, gpus: int) -> None:
    log = failing_nodes(2, gpus=gpus)
    (entry,) = guidelines(make_trace(**log.tables), only=["drain-nodes"]).document()["guidelines"]
    assert entry["verdict"] == "holds"
    told = " ".join([entry["advice"], entry["cost"], entry["risk"], *entry["practice"].values()])
    assert ("GPU" in told) is bool(gpus)
    assert entry["advice"].startswith("Drain these nodes, run the vendor's ")


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
