"""The queries about users, gangs and groups on traces small enough to check on paper."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import run_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

Rows = list[tuple[Any, ...]]


def rows(trace: Trace, name: str, **params: Any) -> Rows:
    return run_query(trace, name, **params).rows()


def approx(expected: Rows) -> Rows:
    return [tuple(pytest.approx(v) if isinstance(v, float) else v for v in row) for row in expected]


# u: 6 GPU-hours, of which one attempt of 1 h and one of 2 h on 2 GPUs, an hour apart. v: 2 GPU-hours, and 4 CPUs for
# 1 h in a CPU job. w: 8 CPUs for 1 h in a CPU job, in another cluster. x: a job that never ran. Another has no user.
JOBS: list[dict[str, Any]] = [
    {"job_id": "a", "user": "u", "cluster": "X", "gpu_count": 2, "cpu_count": 10, "run_s": 14400, "status": "failed"},
    {"job_id": "b", "user": "v", "cluster": "X", "gpu_count": 1, "cpu_count": 1, "run_s": 7200, "status": "completed"},
    {"job_id": "c", "user": "v", "cluster": "X", "gpu_count": 0, "cpu_count": 4, "run_s": 3600, "status": "completed"},
    {"job_id": "d", "user": "w", "cluster": "Y", "gpu_count": 0, "cpu_count": 8, "run_s": 3600, "status": "completed"},
    {"job_id": "e", "user": "x", "cluster": "X", "gpu_count": 4, "status": "pending"},
    {"job_id": "f", "cluster": "X", "gpu_count": 8, "cpu_count": 8, "run_s": 3600, "status": "unknown"},
]
ATTEMPTS: list[dict[str, Any]] = [
    {"job_id": "a", "attempt": 0, "run_s": 3600, "gpu_count": 2, "wait_s": 1800},
    {"job_id": "a", "attempt": 1, "run_s": 7200, "gpu_count": 2, "wait_s": 3600},
    {"job_id": "b", "attempt": 0, "run_s": 7200, "gpu_count": 1, "wait_s": 360},
    {"job_id": "c", "attempt": 0, "run_s": 3600, "gpu_count": 0, "wait_s": 99999},
    {"job_id": "d", "attempt": 0, "run_s": 3600, "gpu_count": 0},
    {"job_id": "f", "attempt": 0, "run_s": 3600, "gpu_count": 8},
]


def test_concentration_ranks_the_users_for_each_curve(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=JOBS, attempts=ATTEMPTS)
    # GPU time: u 6, v 2, w 0, x unknown. CPU time of CPU jobs: w 8, v 4; of all: u 10 * 3, w 8, v 1 * 2 + 4.
    assert rows(trace, "users/concentration") == approx(
        [(0.25, 6 / 8, 8 / 12, 30 / 44), (0.5, 1.0, 1.0, 38 / 44), (0.75, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0)]
    )
    assert [row[0] for row in rows(trace, "users/concentration", x="notebook")] == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_concentration_can_count_gaps_all_cpu_time_or_one_cluster(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=JOBS, attempts=ATTEMPTS)
    # With the gap u has 8 of 10 GPU-hours.
    assert rows(trace, "users/concentration", gpu_time="with_gaps")[0] == pytest.approx((0.25, 0.8, 8 / 12, 40 / 54))
    # CPU-hours: u 10 * 3, v 1 * 2 + 4, w 8.
    found = [row[2] for row in rows(trace, "users/concentration", cpu_time="all_jobs")]
    assert found == pytest.approx([30 / 44, 38 / 44, 1, 1])
    # In X: u, v and x; CPU time of CPU jobs of v alone, of all jobs u 30 and v 6.
    expected = [(1 / 3, 6 / 8, 1.0, 30 / 36), (2 / 3, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0)]
    assert rows(trace, "users/concentration", cluster="X") == approx(expected)
    assert rows(trace, "users/concentration", cluster="Z") == []


def test_concentration_of_unknown_time_is_unknown(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[{"job_id": "a", "user": "u"}, {"job_id": "b"}])
    assert rows(trace, "users/concentration") == [(1.0, None, None, None)]
    assert rows(trace, "users/concentration", x="notebook") == [(0.0, None, None, None)]


def test_queueing_sums_the_waits_of_gpu_jobs(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=JOBS, attempts=ATTEMPTS)
    # u waited 0.5 h and 1 h; v 0.1 h, the wait of the CPU job is out; x waits and is not completed.
    assert rows(trace, "users/queueing") == approx(
        [
            ("u", 1, 6.0, 1.5, 0.0),
            ("v", 1, 2.0, 0.1, 1.0),
            ("x", 1, None, None, 0.0),
            (None, 1, 8.0, None, None),
        ]
    )


def test_gangs_share_all_jobs_and_keep_the_unknown(make_trace: MakeTrace) -> None:
    sizes = {"a": 1, "b": 1, "c": 16, "d": 16, "e": 2}
    trace = make_trace(jobs=[{**j, "instance_count": sizes.get(j["job_id"])} for j in JOBS], attempts=ATTEMPTS)
    assert rows(trace, "workload/gangs") == approx(
        [(1, 2, 2 / 6, 8 / 16), (2, 1, 1 / 6, None), (16, 2, 2 / 6, 0.0), (None, 1, 1 / 6, 8 / 16)]
    )
    found = [row[3] for row in rows(trace, "workload/gangs", gpu_time="with_gaps")]
    assert found == [pytest.approx(10 / 18), None, 0.0, pytest.approx(8 / 18)]


def test_recurrence_tells_how_alike_the_runs_of_a_group_are(make_trace: MakeTrace) -> None:
    facts: list[tuple[str | None, str | None, int | None]]
    facts = [("g", "u", 10), ("g", "v", 20), ("g", "v", 60), ("g", None, None), ("h", "u", 0), ("h", "u", 0)]
    facts += [("k", None, 7), (None, "u", 9)]
    jobs = [{"job_id": str(i), "group": g, "user": u, "run_s": r, "gpu_count": 1} for i, (g, u, r) in enumerate(facts)]
    attempts = [{"job_id": str(i), "attempt": 0, "run_s": r, "gpu_count": 1} for i, (_, _, r) in enumerate(facts)]
    trace = make_trace(jobs=jobs, attempts=attempts)
    # g: mean 30, deviations -20, -10, 30, sum of squares 1400, over 3 - 1. h: a mean of 0. k: one run.
    expected = [
        ("g", 4, 2, 20.0, sqrt(700) / 30, 90 / 3600),
        ("h", 2, 1, 0.0, None, 0.0),
        ("k", 1, None, 7.0, None, 7 / 3600),
    ]
    assert rows(trace, "workload/recurrence") == approx(expected)
    assert [row[0] for row in rows(trace, "workload/recurrence", min_jobs=2)] == ["g", "h"]


def test_groups_as_frequent_as_each_other_stand_by_name(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[{"job_id": g, "group": g} for g in ("z", "a", "m")])
    assert rows(trace, "workload/recurrence") == [(g, 1, None, None, None, None) for g in ("a", "m", "z")]
