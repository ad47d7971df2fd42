"""The figures of a week, worked by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tracekit.characterize.run import answer_query
from tracekit.characterize.session import Session
from tracekit.digests.weeks import COLUMNS, USE_TABLES, week_at, week_of, weekly_figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

MONDAY = "2026-11-16T00:00:00"


def _hours(time: str) -> int:
    return 24 * int(time[:2]) + int(time[3:])


def job(job_id: str, submit: str, start: str | None, end: str | None, **more: Any) -> dict[str, Any]:
    """Return a job of 2 GPUs; times are days and hours of November 2026, like '16T05'."""
    times = {k: None if t is None else f"2026-11-{t}:00:00" for k, t in zip(TIMES, (submit, start, end), strict=True)}
    queue = None if start is None else 3600.0 * (_hours(start) - _hours(submit))
    return {"job_id": job_id, "user": "ann", "gpu_count": 2, "status": "completed", "queue_s": queue, **times, **more}


TIMES = ("submit_time", "start_time", "end_time")


def attempt(of: dict[str, Any]) -> dict[str, Any]:
    return {
        "job_id": of["job_id"],
        "attempt": 0,
        "start_time": of["start_time"],
        "end_time": of["end_time"],
        "run_s": None
        if of["end_time"] is None
        else 3600.0 * (_hours(of["end_time"][8:13]) - _hours(of["start_time"][8:13])),
        "gpu_count": of["gpu_count"],
        "status": of["status"],
    }


@pytest.fixture(scope="module")
def week(make_trace: Callable[..., Trace]) -> Trace:
    jobs = [
        job("before", "15T20", "15T22", "16T03"),  # 2 h of it before the week: 3 h * 2 = 6 GPU-hours
        job("failed", "16T05", "16T06", "16T10", status="failed"),  # 8 GPU-hours, waited 1 h
        job("timeout", "16T05", "16T08", "16T09", status="timeout"),  # 2 GPU-hours, waited 3 h
        job("running", "22T20", "22T22", None, status="running"),  # 2 h in the week, to 24:00: 4 GPU-hours
        job("pending", "22T21", None, None, status="pending"),
        job("cpu", "17T00", "17T00", "17T05", gpu_count=0),
        job("bob", "17T00", "17T02", "17T03", user="bob", gpu_count=1),  # 1 GPU-hour, waited 2 h
        job("nobody", "18T00", "18T00", "18T04", user=None),  # 8 GPU-hours
        job("after", "23T01", "23T02", "23T03"),
    ]
    use = [
        {"job_id": "failed", "gpu_util_pct": 2 * 25.0},  # a quarter of 2 GPUs
        {"job_id": "bob", "gpu_util_pct": 120.0},  # reported above what it has: all of it
    ]
    return make_trace(jobs=jobs, attempts=[attempt(one) for one in jobs if one["start_time"]], job_usage=use)


def figures(trace: Trace, name: str | None, *, everyone: bool = False) -> dict[str, Any]:
    with Session(trace).connect(USE_TABLES) as con:
        found = weekly_figures(con, [week_of("2026-W47", "UTC")], "user", gpu_only=True)
    (row,) = [r for r in found.rows(named=True) if r["everyone"] == everyone and r["name"] == name]
    return {column: row[column] for column in COLUMNS}


def test_figures_of_a_user(week: Trace) -> None:
    assert figures(week, "ann") == {
        "jobs": 4,
        "held_gpu_h": pytest.approx(6 + 8 + 2 + 4),
        "running_gpu_h": pytest.approx(4),
        "used_gpu_h": pytest.approx(2),
        "idle_gpu_h": pytest.approx(6),
        "coverage_share": pytest.approx(8 / 20),
        "used_share": pytest.approx(0.25),
        "failed_gpu_h": pytest.approx(8),
        "timeout_gpu_h": pytest.approx(2),
        "started": 3,
        "wait_p50_s": pytest.approx(2 * 3600),  # 1, 2 and 3 h
        "wait_p90_s": pytest.approx(2.8 * 3600),
        "waiting": 1,
        "ended": 3,
        "failed": 1,
        "timeout": 1,
        "failed_share": pytest.approx(1 / 3),
        "cpu_jobs": 1,
    }


def test_use_is_never_above_what_is_held(week: Trace) -> None:
    bob = figures(week, "bob")
    assert (bob["used_gpu_h"], bob["idle_gpu_h"], bob["used_share"]) == (1, 0, 1)


def test_unknown_use_is_not_idle(week: Trace) -> None:
    nobody = figures(week, None)
    assert nobody["held_gpu_h"] == pytest.approx(8)
    assert (nobody["used_gpu_h"], nobody["idle_gpu_h"], nobody["used_share"]) == (None, None, None)
    assert nobody["coverage_share"] == 0


def test_everyone_is_the_sum(week: Trace) -> None:
    whole = figures(week, None, everyone=True)
    parts = [figures(week, name) for name in ("ann", "bob", None)]
    for column in (
        "jobs",
        "held_gpu_h",
        "failed_gpu_h",
        "started",
        "waiting",
        "ended",
        "failed",
        "timeout",
        "cpu_jobs",
    ):
        assert whole[column] == pytest.approx(sum(part[column] for part in parts)), column


def test_weeks_of_a_history_add_up(sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace("philly")
    weeks = [week_of(f"2017-W{number}", trace.timezone) for number in range(40, 47)]
    with Session(trace).connect(USE_TABLES) as con:
        found = weekly_figures(con, weeks, "user", gpu_only=True)
        sql = "SELECT sum(run_s * gpu_count) / 3600 FROM attempts WHERE start_time < end_time"
        held = con.execute(sql).fetchall()[0][0]
        jobs = con.execute("SELECT count(*) FROM jobs WHERE gpu_count > 0").fetchall()[0][0]
    everyone = found.filter("everyone")
    assert everyone["jobs"].sum() == jobs
    assert everyone["held_gpu_h"].sum() == pytest.approx(held, rel=1e-6)


def test_use_of_a_week_is_that_of_the_efficiency(make_trace: Callable[..., Trace]) -> None:
    """One job over the end of a week, sampled for one of its 4 hours; SM activity goes before utilization."""
    one = job("one", "22T21", "22T22", "23T02", gpu_count=1)  # 4 GPU-hours, 2 of them in the week
    held = [{"job_id": "one", "attempt": 0, "node_id": "n", "gpu_count": 1, "gpu_index": [0]}]
    samples = [
        {"node_id": "n", "gpu_index": 0, "time": f"2026-11-22T23:{minute:02}:00", "utilization_pct": 80.0, **sm}
        for minute, sm in ((0, {"sm_active_pct": 20.0}), (15, {}), (30, {"sm_active_pct": 20.0}), (45, {}))
    ]
    trace = make_trace(
        jobs=[one, job("later", "30T01", "30T02", "30T03")],
        attempts=[attempt(one)],
        placements=held,
        nodes=[{"node_id": "n", "gpu_count": 1}],
        gpu_utilization=samples,
    )
    # 4 samples of 15 min are 1 GPU-hour, of which (20 + 80) / 2 % are used.
    found = figures(trace, "ann")
    assert (found["held_gpu_h"], found["used_gpu_h"], found["idle_gpu_h"]) == pytest.approx((2, 0.25, 0.25))
    assert (found["coverage_share"], found["used_share"]) == pytest.approx((0.25, 0.5))
    (row,) = answer_query(trace, "utilization/efficiency").frame.filter(key="ann").rows(named=True)
    assert (row["used_gpu_h"], row["idle_gpu_h"]) == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize(
    "name", ["philly", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("slurm", "alibaba-pai"))]
)
def test_weeks_add_up_to_the_efficiency(name: str, sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace(name)
    with Session(trace).connect(USE_TABLES) as con:
        first, last = con.execute(
            "SELECT min(submit_time), greatest(max(end_time), max(start_time)) FROM jobs"
        ).fetchall()[0]
        weeks = [week_at(first, trace.timezone)]
        while weeks[-1].until <= last:
            weeks.append(week_at(weeks[-1].until, trace.timezone))
        found = weekly_figures(con, weeks, "user", gpu_only=True).filter(~pl.col("everyone"))
    columns = ("used_gpu_h", "idle_gpu_h", "failed_gpu_h", "timeout_gpu_h")
    expected = answer_query(trace, "utilization/efficiency").frame
    for row in expected.iter_rows(named=True):
        mine = found.filter(pl.col("name").eq_missing(pl.lit(row["key"], pl.String)))
        for column in columns:
            assert mine[column].sum() == pytest.approx(row[column] or 0, rel=1e-6, abs=1e-6), (row["key"], column)
    assert found["used_gpu_h"].sum() > 0
