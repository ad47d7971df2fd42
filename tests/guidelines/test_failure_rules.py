"""Guidelines about failures: the planted size is recovered, and there is no advice without the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from scipy.stats import hypergeom

from tests.guidelines.failing import Cluster
from tests.guidelines.planted import DAY, Log, when
from tracekit.characterize import run_query
from tracekit.guidelines.run import guidelines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.guidelines.document import Judgement
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
    # One job in ten fails on the nine others: 10 of 100 are expected of a, of which 50 failed.
    assert found.finding.numbers["excess_failures"].value == pytest.approx(40)
    assert found.finding.numbers["suspect_nodes"].value == 1
    assert found.finding.numbers["one_user_nodes"].value == 0
    (row,) = found.finding.rows
    assert row["node_id"] == "a"
    assert row["adjusted_p_value"] < row["adjusted_p_value_without_one_user"] <= 0.05


@pytest.mark.parametrize(("bad_every", "told"), [(2, ["1 of these 1 nodes"]), (10, [])])
def test_suspects_that_go_out_of_service_too_often_are_counted(
    make_trace: MakeTrace, bad_every: int, told: list[str]
) -> None:
    log = failing_nodes(bad_every)
    for k in range(40):
        # Of 40 outages 31 are of a.
        node, begin = "abcdefghij"[k] if k < 10 else "a", k * 20_000
        log.add("node_events", node_id=node, start_time=when(begin), end_time=when(begin + 60), state="down")
    found = judged(make_trace, log, "drain-nodes").finding
    assert found is not None
    lemons = " also go out of service too often (repair-lemons)."
    assert [note.removesuffix(lemons) for note in found.notes if note.endswith(lemons)] == told


def test_equal_nodes_stay(make_trace: MakeTrace) -> None:
    found = judged(make_trace, failing_nodes(10), "drain-nodes")
    assert found.verdict == "does not hold"
    assert found.finding is not None
    assert found.finding.rows == ()


def burst(log: Log, on: str, of: int) -> Log:
    """Add so many jobs of one user on each of these nodes, all within minutes, that fail after a second."""
    for node in on:
        for k in range(of):
            log.job(400_000 + k, 1, status="failed", node=node, user="burst")
    return log


def test_the_instant_failures_of_one_user_make_no_node_suspect(make_trace: MakeTrace) -> None:
    log = burst(failing_nodes(10), "bcd", 30)
    sized = run_query(make_trace(**log.tables), "failures/by_node", exposure="sized_attempts")
    assert sized.filter(pl.col("adjusted_p_value") <= 0.05)["node_id"].sort().to_list() == ["b", "c", "d"]
    found = judged(make_trace, log, "drain-nodes")
    assert found.verdict == "does not hold"
    assert found.finding is not None
    assert found.finding.rows == ()
    assert found.finding.numbers["one_user_nodes"].value == 0


def test_a_bad_node_is_named_beside_nodes_that_one_user_makes_look_bad(make_trace: MakeTrace) -> None:
    found = judged(make_trace, burst(failing_nodes(2), "bcd", 30), "drain-nodes")
    assert found.verdict == "holds"
    assert found.finding is not None
    assert [row["node_id"] for row in found.finding.rows] == ["a"]
    assert found.finding.numbers["excess_failures"].value == pytest.approx(40)


def fails_for_one_user(others: int) -> Log:
    """Return ten nodes where one job in twelve fails, none of x; on 'a' all of x, and of the others one in so many."""
    log = Log()
    for node in "abcdefghij":
        for k in range(120):
            # Ten users have twelve jobs each on a node, 15 hours apart.
            own = k % 10 == 0
            failed = node == "a" if own else k // 10 % (others if node == "a" else 12) == 0
            user = "x" if own else f"u{k % 10}"
            log.job(k * 5400, 600, status="failed" if failed else "completed", node=node, user=user)
    return log


def test_a_node_that_fails_for_one_user_only_is_reported_but_not_named(make_trace: MakeTrace) -> None:
    found = judged(make_trace, fails_for_one_user(12), "drain-nodes")
    assert found.verdict == "does not hold"
    assert found.finding is not None
    assert found.finding.numbers["one_user_nodes"].value == 1


def test_the_user_is_left_out_of_both_sides(make_trace: MakeTrace) -> None:
    found = judged(make_trace, fails_for_one_user(2), "drain-nodes")
    assert found.finding is not None
    (row,) = found.finding.rows
    # Without x: nine users, of each 6 of 12 jobs on a fail, and 1 of 12 on each of the others.
    user = hypergeom(120, 6 + 9 * 1, 12).pmf(np.arange(13))
    chances = np.ones(1)
    for _ in range(9):
        chances = np.convolve(chances, user)
    # Of ten nodes the least p-value counts ten times.
    assert row["adjusted_p_value_without_one_user"] == pytest.approx(10 * chances[54:].sum(), rel=1e-9, abs=0)


def test_of_users_with_as_many_failures_the_one_with_more_attempts_is_left_out(make_trace: MakeTrace) -> None:
    log = Log()
    for node in "abcdefghij":
        for k in range(90):
            # Half of y's and of x's jobs fail, and one in ten of z's; on a all of y's, as many of x's, half of z's.
            user = "yxxz"[k % 4]
            turn = k // 4
            failed = turn % 2 == 0 if user != "z" else turn % 10 == 0
            if node == "a":
                failed = {"y": True, "x": turn < 11 or (turn == 11 and k % 4 == 1), "z": turn % 2 == 0}[user]
            log.job(k * 9000, 600, status="failed" if failed else "completed", node=node, user=user)
    found = judged(make_trace, log, "drain-nodes")
    assert found.finding is not None
    (row,) = found.finding.rows
    # On a, x and y have 23 failures each, of 45 and of 23 jobs; x is left out.
    y = hypergeom(230, 23 + 9 * 12, 23).pmf(np.arange(24))
    z = hypergeom(220, 11 + 9 * 3, 22).pmf(np.arange(23))
    p_value = np.convolve(y, z)[34:].sum()
    assert row["adjusted_p_value_without_one_user"] == pytest.approx(10 * p_value, rel=1e-9, abs=0)


CLEAN = Cluster()
BAD = Cluster(bad=(3, 7, 11), bad_risk=0.6)


def named(make_trace: MakeTrace, log: Log) -> tuple[str, ...]:
    found = judged(make_trace, log, "drain-nodes")
    assert found.finding is not None
    return tuple(sorted(row["node_id"] for row in found.finding.rows))


@pytest.mark.parametrize("with_burst", [False, True])
def test_bad_nodes_are_found_beside_the_burst_of_one_user_too(make_trace: MakeTrace, with_burst: bool) -> None:
    log = BAD.log(0)
    assert named(make_trace, BAD.burst(log) if with_burst else log) == ("n03", "n07", "n11")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_thousand_instant_failures_and_a_job_tried_again_300_times_blame_no_node(
    make_trace: MakeTrace, seed: int
) -> None:
    log = CLEAN.storm(CLEAN.burst(CLEAN.log(seed)))
    sized = run_query(make_trace(**log.tables), "failures/by_node", exposure="sized_attempts")
    assert sized.filter(pl.col("adjusted_p_value") <= 0.05).height >= 3
    assert named(make_trace, log) == ()


@pytest.mark.parametrize(("worlds", "off"), [(1, 0.3), pytest.param(3, 0.2, marks=pytest.mark.thorough)])
def test_what_is_expected_of_bad_nodes_is_what_good_ones_would_have_had(
    make_trace: MakeTrace, worlds: int, off: float
) -> None:
    """The same jobs with the same luck on a cluster without bad nodes say how many failures there would have been."""
    expected, failed = [], []
    for seed in range(worlds):
        log, twin = BAD.log(seed), Cluster(bad=BAD.bad, bad_risk=0.0).log(seed)
        rows = run_query(make_trace(**log.tables), "failures/by_node").filter(pl.col("suspect"))
        same = run_query(make_trace(**twin.tables), "failures/by_node").filter(
            pl.col("node_id").is_in(rows["node_id"].implode())
        )
        assert rows["trials"].sum() == same["trials"].sum()
        expected.append(rows["expected_failed_trials"].sum())
        failed.append(same["failed_trials"].sum())
    # 20 % is two standard deviations of a hundred failures, of which a world has a third or more.
    assert sum(expected) == pytest.approx(sum(failed), rel=off)


@pytest.mark.slow
@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
def test_good_nodes_are_named_in_no_more_worlds_than_stated(make_trace: MakeTrace, alike: float) -> None:
    """In 5 of 100 worlds at most; what is exact and clustered names fewer, so that there is a bound above alone."""
    cluster = Cluster(alike=alike)
    wrong = sum(bool(named(make_trace, cluster.log(seed))) for seed in range(60))
    # P(X > 7) = 0.01 for X binomial(60, 0.05).
    assert wrong <= 7


def test_users_whom_the_log_does_not_name_may_be_one(make_trace: MakeTrace, golden: Golden) -> None:
    log = failing_nodes(2)
    for job in log.tables["jobs"]:
        job["user"] = None
    found = judged(make_trace, log, "drain-nodes")
    assert found.verdict == "cannot tell"
    golden(found.why)
    half = failing_nodes(2)
    for k, job in enumerate(half.tables["jobs"]):
        job["user"] = None if k % 100 < 97 else "u"
    assert judged(make_trace, half, "drain-nodes").verdict == "does not hold"


def test_gpus_are_spoken_of_where_some_suspects_have_some(make_trace: MakeTrace, golden: Golden) -> None:
    log = failing_nodes(2, gpus=0)
    for node in "ab":
        log.add("nodes", node_id=node, gpu_count=8)
    # All jobs that failed had no GPUs, though the node has some.
    found = judged(make_trace, log, "drain-nodes").finding
    assert found is not None
    assert found.advice
    assert "GPU" not in found.advice + found.cost
    log.job(300 * 9000, 600, gpus=1, node="a", status="failed")
    found = judged(make_trace, log, "drain-nodes").finding
    assert found is not None
    assert (found.advice, found.cost) == ("", "")
    for k in range(120):
        log.job(k * 9000, 600, gpus=0, node="k", status="failed" if k % 2 else "completed", user=f"u{k // 10 % 7}")
    found = judged(make_trace, log, "drain-nodes").finding
    assert found is not None
    assert [row["node_id"] for row in found.rows] == ["k", "a"]
    assert "GPU" in found.advice
    golden([found.advice, found.cost])


@pytest.mark.parametrize("gpus", [0, 1])
def test_gpus_are_spoken_of_where_there_are_some(make_trace: MakeTrace, gpus: int, golden: Golden) -> None:
    log = failing_nodes(2, gpus=gpus)
    (entry,) = guidelines(make_trace(**log.tables), only=["drain-nodes"]).document()["guidelines"]
    assert entry["verdict"] == "holds"
    told = " ".join([entry["advice"], entry["cost"], entry["risk"], *entry["practice"].values()])
    assert ("GPU" in told) is bool(gpus)
    golden(entry["advice"])


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
    assert numbers["saved_gpu_hours"].value == pytest.approx(20 * 4 * 30)


@pytest.mark.parametrize(("status", "timeouts"), [("failed", 0), ("timeout", 20)])
def test_attempts_that_ran_out_of_time_are_counted_in_a_note(make_trace: MakeTrace, status: str, timeouts: int) -> None:
    log = long_jobs(status)
    log.job(0, 3600, status=status)  # not long
    found = judged(make_trace, log, "checkpoint-long")
    assert found.finding is not None
    counts = [int(note.split()[0]) for note in found.finding.notes if "(timeout)" in note]
    assert counts == ([timeouts] if timeouts else [])


def test_long_jobs_that_complete_need_no_cap(make_trace: MakeTrace) -> None:
    assert judged(make_trace, long_jobs("completed"), "checkpoint-long").verdict == "does not hold"
