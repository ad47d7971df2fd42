"""GPU-hours held, used, idle and lost, on traces small enough to check on paper."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tracekit.characterize import run_query
from tracekit.digests.make import digest_of
from tracekit.errors import QueryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

DAY = "2026-11-02 "


def job(name: str, user: str | None, gpus: float | None, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"job_id": name, "user": user, "gpu_count": gpus, "status": status, **more}


def attempt(
    name: str, gpus: float | None, start: int, hours: float | None, status: str = "completed", number: int = 0
) -> dict[str, Any]:
    """Return an attempt from an hour of the day on."""
    ended = {} if hours is None else {"run_s": hours * 3600, "end_time": f"{DAY}{start + int(hours):02}:00"}
    times = {"start_time": f"{DAY}{start:02}:00", **ended}
    return {"job_id": name, "attempt": number, "gpu_count": gpus, "status": status, **times}


def sample(node: str, gpu: int, time: str, pct: float, sm: float | None = None) -> dict[str, Any]:
    return {"time": DAY + time, "node_id": node, "gpu_index": gpu, "utilization_pct": pct, "sm_active_pct": sm}


@pytest.fixture(scope="module")
def small(make_trace: MakeTrace) -> Trace:
    """Return two users: x is watched by samples, y by its own log."""
    return make_trace(
        jobs=[
            job("a", "x", 2, account="p", cpu_count=4, memory_gib=8, time_limit_s=7200),
            job("b", "x", 1, "failed", account="q", cpu_count=2, memory_gib=12),
            job("c", "y", 1, "timeout"),
            job("d", "y", 2),
            job("e", None, 0, cpu_count=1),
            job("f", "y", 1, "running"),
        ],
        attempts=[
            attempt("a", 2, 10, 1),
            attempt("b", 1, 10, 2, "failed"),
            attempt("c", 1, 1, 1, "preempted"),
            attempt("c", 1, 3, 3, "timeout", number=1),
            attempt("d", 2, 10, 1),
            attempt("e", 0, 10, 1),
            attempt("f", 1, 10, None, "running"),
        ],
        placements=[
            {"job_id": "a", "attempt": 0, "node_id": "n", "gpu_index": [0, 1], "gpu_count": 2},
            {"job_id": "b", "attempt": 0, "node_id": "m", "gpu_index": [0], "gpu_count": 1},
        ],
        gpu_utilization=[
            *(sample("n", 0, f"10:{minute:02}", 60) for minute in (0, 20, 40)),
            *(sample("n", 1, f"10:{minute:02}", 0) for minute in (0, 20, 40)),
            sample("m", 0, "10:00", 100, sm=40),
            sample("m", 0, "10:30", 100, sm=60),
        ],
        job_usage=[
            {"job_id": "d", "gpu_util_pct": 25},
            {"job_id": "a", "instance": "batch", "cpu_s": 3600, "memory_gib": 2},
            {"job_id": "a", "instance": "0", "cpu_s": 3600, "memory_gib": 6},
            {"job_id": "b", "node_id": "m", "cpu_s": 1800, "memory_gib": 1},
            {"job_id": "b", "node_id": "k", "cpu_s": 1800, "memory_gib": 2},
        ],
    )


def test_every_gpu_hour_is_used_idle_or_unknown(small: Trace) -> None:
    # a: 2 GPUs * 1 h. A sample of n stands for 20 min: both GPUs are covered, 0 is used to 60 %, 1 not at all.
    # b: 2 h on m, where a sample stands for 30 min: 1 h is covered, and SM activity, 50 %, goes before utilization.
    # d: its log says 25 % on 2 GPUs, 12.5 % each, of all 2 GPU-hours. c was not watched. f runs from
    # 10:00 to 12:00, the last moment of the trace.
    x = {
        "jobs": 2,
        "held_gpu_h": 4.0,
        "used_gpu_h": 0.6 + 0.5,
        "idle_gpu_h": 1.4 + 0.5,
        "failed_gpu_h": 2.0,
        "preempted_gpu_h": 0.0,
        "coverage_share": 3 / 4,
        "timeout_gpu_h": 0.0,
        "wasted_gpu_h": 1.4 + 2,
        "unknown_jobs": 0,
        "running_gpu_h": 0.0,
    }
    y = {
        "jobs": 3,
        "held_gpu_h": 4.0 + 2 + 2,
        "used_gpu_h": 0.25,
        "idle_gpu_h": 1.75,
        "failed_gpu_h": 0.0,
        "preempted_gpu_h": 1.0,
        "coverage_share": 2 / 8,
        "timeout_gpu_h": 3.0,
        "wasted_gpu_h": 1 + 1.75,
        "unknown_jobs": 0,
        "running_gpu_h": 2.0,
    }
    found = run_query(small, "utilization/efficiency").to_dicts()
    assert [row["key"] for row in found] == ["x", "y"]
    for row, expected in zip(found, (x, y), strict=True):
        assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_processors_memory_and_time_as_seff_has_them(small: Trace) -> None:
    (x, _) = run_query(small, "utilization/efficiency").to_dicts()
    # a: 7,200 s of 4 cores * 3,600 s; b: 3,600 s of 2 cores * 7,200 s.
    assert (x["cpu_efficiency_share"], x["cpu_known_jobs"]) == (pytest.approx(10_800 / 28_800), 2)
    # a: steps follow each other, the largest took 6 of 8 GiB for 1 h; b: nodes side by side, 3 of 12 GiB for 2 h.
    assert (x["memory_efficiency_share"], x["memory_known_jobs"]) == (pytest.approx((6 + 3 * 2) / (8 + 12 * 2)), 2)
    assert (x["time_limit_used_share"], x["time_limit_known_jobs"]) == (pytest.approx(0.5), 1)


def test_a_row_is_of_what_is_asked_for(small: Trace) -> None:
    def keys(**params: Any) -> list[tuple[str | None, int]]:
        return run_query(small, "utilization/efficiency", **params).select("key", "jobs").rows()

    # c, d and f, without an account, wasted 2.75 GPU-hours, b 2 and a 1.4.
    assert keys(by="account") == [(None, 3), ("q", 1), ("p", 1)]
    assert keys(jobs="all") == [("x", 2), ("y", 3), (None, 1)]
    assert keys(jobs="cpu") == [(None, 1)]
    with pytest.raises(QueryError, match="by"):
        keys(by="colour")


def test_jobs_to_look_at_say_why_in_words(small: Trace) -> None:
    rows = run_query(small, "utilization/jobs_to_look_at", min_gpu_h=0.5, times=2)
    a = "left 1 of its 2 GPUs idle, for 1.0 GPU-hours; asked for 2.0 h and ran for 1.0 h; used its processors 50.0 %"
    # d is busier than 10 %, and what c wasted in its second attempt nobody knows.
    assert rows.select("job_id", "user", "held_gpu_h", "wasted_gpu_h", "coverage_share", "reason").rows() == [
        ("b", "x", 2.0, 2.0, 0.5, "failed after 2.0 GPU-hours"),
        ("a", "x", 2.0, pytest.approx(1.4), 1.0, f"{a} on average"),
        ("c", "y", 4.0, 1.0, 0.0, "was preempted after 1.0 GPU-hours"),
    ]
    assert run_query(small, "utilization/jobs_to_look_at", n=1)["job_id"].to_list() == ["b"]


def test_a_job_that_never_used_its_gpus_is_distinguished_from_one_that_mostly_idles(
    make_trace: MakeTrace, golden: Golden
) -> None:
    trace = make_trace(
        jobs=[job("never", "x", 1), job("little", "x", 1), job("unwatched", "x", 1)],
        attempts=[attempt(name, 1, 10, 4) for name in ("never", "little", "unwatched")],
        job_usage=[{"job_id": "never", "gpu_util_pct": 0}, {"job_id": "little", "gpu_util_pct": 5}],
    )
    rows = run_query(trace, "utilization/jobs_to_look_at")
    assert rows.select("job_id", "wasted_gpu_h").rows() == [("never", 4.0), ("little", pytest.approx(3.8))]
    golden(rows["reason"].to_list())


def test_samples_cover_no_more_than_was_held_and_of_a_part_of_a_gpu_that_part(make_trace: MakeTrace) -> None:
    trace = make_trace(
        jobs=[job("half", "x", 0.5), job("short", "y", 1)],
        attempts=[
            attempt("half", 0.5, 10, 1),
            {**attempt("short", 1, 12, 1), "run_s": 60, "end_time": f"{DAY}12:01"},
        ],
        placements=[
            {"job_id": "half", "attempt": 0, "node_id": "n", "gpu_index": [0], "gpu_count": 0.5},
            {"job_id": "short", "attempt": 0, "node_id": "n", "gpu_index": [0], "gpu_count": 1},
        ],
        gpu_utilization=[sample("n", 0, f"{hour}:{minute}", 80) for hour in (10, 12) for minute in ("00", "30")],
    )
    # Each sample stands for half an hour: half of a GPU for an hour is 0.5 GPU-hours, a minute stays a minute.
    rows = run_query(trace, "utilization/efficiency").select("key", "held_gpu_h", "used_gpu_h", "coverage_share").rows()
    assert sorted(rows) == [
        ("x", 0.5, pytest.approx(0.4), 1.0),
        ("y", pytest.approx(1 / 60), pytest.approx(0.8 / 60), 1.0),
    ]


def test_a_monitor_that_was_off_covers_nothing_in_between(make_trace: MakeTrace) -> None:
    times = [f"10:{minute:02}" for minute in (0, 10, 20)] + [f"15:{minute:02}" for minute in (0, 10, 20)]
    trace = make_trace(
        jobs=[job("a", "x", 1)],
        attempts=[attempt("a", 1, 10, 10)],
        placements=[{"job_id": "a", "attempt": 0, "node_id": "n", "gpu_index": [0], "gpu_count": 1}],
        gpu_utilization=[sample("n", 0, time, 50) for time in times],
    )
    # Six samples of ten minutes each: 1 of 10 GPU-hours.
    (row,) = run_query(trace, "utilization/efficiency").to_dicts()
    assert (row["coverage_share"], row["used_gpu_h"], row["idle_gpu_h"]) == pytest.approx((0.1, 0.5, 0.5))


def test_a_divided_gpu_tells_its_sm_activity_alone(make_trace: MakeTrace) -> None:
    trace = make_trace(
        jobs=[job("a", "x", 1)],
        attempts=[attempt("a", 1, 10, 1)],
        placements=[{"job_id": "a", "attempt": 0, "node_id": "n", "gpu_index": [0], "gpu_count": 1}],
        gpu_utilization=[
            {"time": f"{DAY}10:{minute}", "node_id": "n", "gpu_index": 0, "sm_active_pct": 25}
            for minute in ("00", "30")
        ],
    )
    (row,) = run_query(trace, "utilization/efficiency").to_dicts()
    assert (row["used_gpu_h"], row["idle_gpu_h"], row["coverage_share"]) == (0.25, 0.75, 1.0)


def test_what_is_not_known_is_null_and_not_nothing(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[job("a", "x", 1)], attempts=[{**attempt("a", 1, 10, 2), "status": None}])
    (row,) = run_query(trace, "utilization/efficiency").to_dicts()
    assert row["held_gpu_h"] == 2.0
    assert row["coverage_share"] == 0.0
    unknown = ("used_gpu_h", "idle_gpu_h", "failed_gpu_h", "preempted_gpu_h", "timeout_gpu_h", "wasted_gpu_h")
    assert {row[name] for name in (*unknown, "cpu_efficiency_share")} == {None}


def test_an_attempt_of_unknown_end_failed_where_it_was_tried_again_by_that_rule(make_trace: MakeTrace) -> None:
    trace = make_trace(
        jobs=[job("a", "x", 1)],
        attempts=[{**attempt("a", 1, 1, 2), "status": None}, attempt("a", 1, 4, 1, number=1)],
    )
    failed = [run_query(trace, "utilization/efficiency", rule=r)["failed_gpu_h"].item() for r in ("stated", "retried")]
    assert failed == [0.0, 2.0]


def test_a_trace_without_gpus_still_tells_of_processors(make_trace: MakeTrace) -> None:
    trace = make_trace(
        jobs=[job("a", "x", 0, cpu_count=2)],
        attempts=[attempt("a", 0, 1, 1)],
        job_usage=[{"job_id": "a", "cpu_s": 1800}],
    )
    (row,) = run_query(trace, "utilization/efficiency").to_dicts()
    assert (row["jobs"], row["cpu_efficiency_share"]) == (1, pytest.approx(0.25))


def test_the_model_of_a_job_can_be_that_of_its_nodes(make_trace: MakeTrace) -> None:
    jobs = [job("told", "x", 1, gpu_model="a100"), job("either", "x", 1, gpu_model="a100|h100"), job("seen", "x", 1)]
    trace = make_trace(
        jobs=jobs,
        attempts=[attempt(j["job_id"], 1, 1, 1) for j in jobs],
        placements=[{"job_id": j["job_id"], "attempt": 0, "node_id": "n", "gpu_count": 1} for j in jobs],
        nodes=[{"node_id": "n", "gpu_model": "h100"}],
    )
    rows = run_query(trace, "utilization/efficiency", by="gpu_model").select("key", "jobs").rows()
    assert sorted(rows) == [("a100", 1), ("h100", 2)]


def test_the_function_names_the_first_column_after_what_the_rows_are_of(small: Trace) -> None:
    found = tracekit.efficiency(small, "account", jobs=2)
    assert found.frame.columns[:3] == ["account", "jobs", "held_gpu_h"]
    assert found.jobs is not None
    assert found.jobs["job_id"].to_list() == ["b", "a"]
    assert found.bill is None
    assert tracekit.efficiency(small).by == "user"
    assert tracekit.efficiency(small, jobs=0).jobs is None


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("colour", "is not a dimension of GPU-hours"),
        ("partition", "does not record the partition of any job; it records user, account"),
    ],
)
def test_a_dimension_that_cannot_be_had_is_refused(small: Trace, by: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        tracekit.efficiency(small, by)
    assert message in f"{error.value}; {error.value.hint}" or message in str(error.value)


def test_efficiency_and_digest_agree_on_who_holds_gpu_hours(make_trace: MakeTrace) -> None:
    # x ran 4 h on 2 GPUs. y still runs on 3, from 02:00 to the last moment, 20:00; z passed its limit of 5 h at 7:00.
    jobs = [job("a", "x", 2), job("b", "y", 3, "running"), job("c", "z", 1, "running", time_limit_s=5 * 3600)]
    jobs = [one | {"submit_time": f"{DAY}00:00"} for one in jobs]
    runs = [attempt("a", 2, 16, 4), attempt("b", 3, 2, None, "running"), attempt("c", 1, 2, None, "running")]
    trace = make_trace(jobs=jobs, attempts=runs)
    found = {row["key"]: row for row in run_query(trace, "utilization/efficiency").iter_rows(named=True)}
    held = {"x": (8, 0), "y": (54, 54), "z": (5, 5)}
    assert {user: (row["held_gpu_h"], row["running_gpu_h"]) for user, row in found.items()} == held
    assert {row["unknown_jobs"] for row in found.values()} == {0}
    week = digest_of(trace, week=f"{dt.date.fromisoformat(DAY[:10]):%G-W%V}")
    parts = [(part["name"], part["figures"]) for part in week["parts"]]
    assert {name: (f["held_gpu_h"], f["running_gpu_h"]) for name, f in parts} == held
    assert week["everyone"]["figures"]["running_gpu_h"] == 59
