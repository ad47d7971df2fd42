"""Curves of run times and waits, and hours of the week, on traces small enough for paper."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import run_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

JOBS: list[dict[str, Any]] = [
    {"job_id": "a", "cluster": "x", "vc": "v", "gpu_count": 2, "run_s": 10, "queue_s": 0},
    {"job_id": "b", "cluster": "x", "vc": "w", "gpu_count": 2, "run_s": 30, "queue_s": 20},
    {"job_id": "c", "cluster": "y", "vc": "v", "gpu_count": 16, "run_s": 60, "queue_s": 100},
    {"job_id": "of the CPU", "cluster": "x", "vc": "v", "gpu_count": 0, "run_s": 9999, "queue_s": 7777},
    {"job_id": "of unknown size", "cluster": "x", "vc": "v", "run_s": 9999, "queue_s": 7777},
    {"job_id": "still running", "cluster": "x", "vc": "v", "gpu_count": 16},
]
COLUMNS = ["measure", "scope", "cluster", "vc", "gpu_class", "number", "mean_s"]


def _distributions(make_trace: MakeTrace, **params: Any) -> list[tuple[Any, ...]]:
    # That its second attempt waited too makes the wait of a job no longer.
    attempts = [{"job_id": "a", "attempt": number, "wait_s": wait} for number, wait in ((0, 0), (1, 500))]
    found = run_query(make_trace(jobs=JOBS, attempts=attempts), "queuing/distributions", **params)
    return found.select(*COLUMNS, "p0_s", "p25_s", "p50_s", "p90_s").rows()


def test_run_times_and_waits_of_all_by_size_cluster_and_tenant(make_trace: MakeTrace) -> None:
    # Of 10, 30, 60: rank of p among 3 is 2p, so p25 is half way from 10 to 30, p90 four fifths from 30 to 60.
    # Waits 0, 20, 100: p25 10, p50 20, p90 84.
    expected = [
        ("run time", "all", None, None, None, 3, 100 / 3, 10, 20, 30, 54),
        ("run time", "size", None, None, "2-4", 2, 20, 10, 15, 20, 28),
        ("run time", "size", None, None, ">8", 1, 60, 60, 60, 60, 60),
        ("run time", "cluster", "x", None, None, 2, 20, 10, 15, 20, 28),
        ("run time", "cluster", "y", None, None, 1, 60, 60, 60, 60, 60),
        ("run time", "tenant", "x", "v", None, 1, 10, 10, 10, 10, 10),
        ("run time", "tenant", "x", "w", None, 1, 30, 30, 30, 30, 30),
        ("run time", "tenant", "y", "v", None, 1, 60, 60, 60, 60, 60),
        ("wait", "all", None, None, None, 3, 40, 0, 10, 20, 84),
        ("wait", "size", None, None, "2-4", 2, 10, 0, 5, 10, 18),
        ("wait", "size", None, None, ">8", 1, 100, 100, 100, 100, 100),
        ("wait", "cluster", "x", None, None, 2, 10, 0, 5, 10, 18),
        ("wait", "cluster", "y", None, None, 1, 100, 100, 100, 100, 100),
        ("wait", "tenant", "x", "v", None, 1, 0, 0, 0, 0, 0),
        ("wait", "tenant", "x", "w", None, 1, 20, 20, 20, 20, 20),
        ("wait", "tenant", "y", "v", None, 1, 100, 100, 100, 100, 100),
    ]
    found = _distributions(make_trace)
    assert [row[:6] for row in found] == [row[:6] for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert row[6:] == pytest.approx(other[6:])


def test_only_the_tenants_with_the_most_values_have_rows(make_trace: MakeTrace) -> None:
    found = [row[:4] for row in _distributions(make_trace, most=1) if row[1] == "tenant"]
    assert found == [("run time", "tenant", "x", "v"), ("wait", "tenant", "x", "v")]


def test_a_trace_of_cpu_jobs_has_no_distribution(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[JOBS[3]], attempts=[{"job_id": "of the CPU", "attempt": 0, "wait_s": 3}])
    assert run_query(trace, "queuing/distributions").is_empty()


LOS_ANGELES = {"timezone": "America/Los_Angeles"}


def _job(name: str, local: str, **more: Any) -> dict[str, Any]:
    """Return a job by the clock of Los Angeles in summer, which is 7 hours behind UTC."""
    when = dt.datetime.fromisoformat(local) + dt.timedelta(hours=7)
    return {"job_id": name, "submit_time": when, "gpu_count": 1, **more}


WEEK = [
    # Friday 29 September 2017 to Saturday 7 October: 9 days, with two Fridays and two Saturdays.
    _job("a", "2017-09-29 23:30", cluster="x", queue_s=60),
    _job("b", "2017-10-06 23:00", cluster="x", queue_s=0),
    _job("c", "2017-10-06 23:59", cluster="y", queue_s=None),
    _job("d", "2017-10-02 00:00", cluster="y", queue_s=30),
    _job("of the CPU", "2017-10-07 12:00", cluster="x", queue_s=999, gpu_count=0),
    {"job_id": "no time", "gpu_count": 1, "cluster": "x", "queue_s": 999},
]


def _week(make_trace: MakeTrace, jobs: list[dict[str, Any]], **params: Any) -> list[tuple[Any, ...]]:
    trace = make_trace(jobs=jobs, manifest_overrides=LOS_ANGELES)
    return run_query(trace, "queuing/week", **params).rows()


def test_hours_of_the_week_are_those_of_the_zone(make_trace: MakeTrace) -> None:
    found = _week(make_trace, WEEK)
    assert len(found) == 3 * 168
    assert [row for row in found if row[3]] == [
        (None, 1, 0, 1, 1.0, 1, 30.0),
        (None, 5, 23, 3, 1.5, 2, 30.0),
        ("x", 5, 23, 2, 1.0, 2, 30.0),
        ("y", 1, 0, 1, 1.0, 1, 30.0),
        ("y", 5, 23, 1, 0.5, 0, None),
    ]
    quiet = [row for row in found if row[0] is None and row[1:3] == (6, 12)]
    assert quiet == [(None, 6, 12, 0, 0.0, 0, None)]


def test_the_busiest_clusters_have_rows_of_their_own(make_trace: MakeTrace) -> None:
    assert {row[0] for row in _week(make_trace, WEEK, most=1)} == {None, "x"}
    alone = [job for job in WEEK if job.get("cluster") == "x"]
    assert {row[0] for row in _week(make_trace, alone)} == {None}


def test_a_weekday_that_does_not_come_has_no_rate(make_trace: MakeTrace) -> None:
    # This log lies before the Monday from which days are counted: 31 December 1969 was a Wednesday. In winter the zone
    # is 8 hours behind UTC.
    found = _week(make_trace, [_job("a", "1969-12-31 06:00"), _job("b", "1970-01-01 07:00")])
    assert {row[1] for row in found if row[4] is not None} == {3, 4}
    assert [row[:5] for row in found if row[3]] == [(None, 3, 5, 1, 1.0), (None, 4, 6, 1, 1.0)]
