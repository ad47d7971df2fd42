"""overview/through_time, worked by hand and beside the queries whose numbers it follows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.characterize.asking import Asking
from tracekit.characterize import answer_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace


def _job(name: str, submitted: str, started: str | None, ended: str | None, **more: Any) -> dict[str, Any]:
    day = "2024-01-01 "
    times = {"submit_time": submitted, "start_time": started, "end_time": ended}
    found = {key: None if time is None else day + time for key, time in times.items()}
    lengths = {"queue_s": _seconds(submitted, started), "run_s": _seconds(started, ended)}
    return {"job_id": name, "gpu_count": 1.0, "status": "completed", **found, **lengths, **more}


def _seconds(since: str | None, until: str | None) -> float | None:
    """Return the time between two clock times [s]."""
    if since is None or until is None:
        return None
    (h, m), (hh, mm) = (map(int, clock.split(":")) for clock in (since, until))
    return float((hh - h) * 3600 + (mm - m) * 60)


def _rows(trace: Trace, **params: int) -> list[dict[str, Any]]:
    return answer_query(trace, "overview/through_time", params).frame.to_dicts()


@pytest.fixture
def four_hours(make_trace: Callable[..., Trace]) -> Trace:
    """Return four hours of two GPUs: submissions at 0:30, 1:00, 2:59 and 3:10, and a CPU job that nobody asks for."""
    jobs = [
        _job("a", "00:30", "00:30", "01:30"),
        _job("b", "01:00", "02:00", "04:00", status="failed"),
        _job("c", "02:59", "03:29", "03:59"),
        _job("d", "03:10", None, None, status="pending"),
        _job("cpu", "00:10", "05:00", "05:10", gpu_count=0.0),
    ]
    attempts = [
        {"job_id": j["job_id"], "attempt": 1, "status": j["status"], "gpu_count": j["gpu_count"],
         "start_time": j["start_time"], "end_time": j["end_time"], "run_s": j["run_s"]}
        for j in jobs
        if j["start_time"]
    ]  # fmt: skip
    nodes = [{"node_id": "n", "gpu_count": 2}]
    gpu = [
        {"time": "2024-01-01 00:00", "node_id": "n", "gpu_index": 0, "utilization_pct": 100.0},
        {"time": "2024-01-01 00:59", "node_id": "n", "gpu_index": 1, "utilization_pct": 0.0},
        {"time": "2024-01-01 02:30", "node_id": "n", "gpu_index": 0, "utilization_pct": 30.0},
    ]
    return make_trace(jobs=jobs, attempts=attempts, nodes=nodes, gpu_utilization=gpu)


def test_waits_use_and_outcomes_of_each_period(four_hours: Trace) -> None:
    rows = _rows(four_hours)
    assert [(r["period"], r["number"]) for r in rows] == [
        ("whole", 1),
        ("half", 1),
        ("half", 2),
        *(("span", i) for i in (1, 2, 3, 4)),
    ]
    assert [str(r["start_time"])[11:16] for r in rows] == [
        "00:00",
        "00:00",
        "02:00",
        "00:00",
        "01:00",
        "02:00",
        "03:00",
    ]
    assert [str(r["end_time"])[11:16] for r in rows] == ["03:10", "02:00", "03:10", "01:00", "02:00", "03:00", "03:10"]
    # The CPU job counts nowhere; d never started.
    assert [(r["jobs"], r["started"]) for r in rows] == [(4, 3), (2, 2), (2, 1), (1, 1), (1, 1), (1, 1), (1, 0)]
    assert [r["mean_wait_s"] for r in rows] == [1800.0, 1800.0, 1800.0, 0.0, 3600.0, 1800.0, None]
    assert [r["waited_h"] for r in rows] == [1.5, 1.0, 0.5, 0.0, 1.0, 0.5, None]
    # Of waits 0, 1,800 and 3,600 s, and of 0 and 3,600 s.
    assert [r["p90_wait_s"] for r in rows[:2]] == [3240.0, 3240.0]
    assert [r["used_share"] for r in rows] == [pytest.approx(1.3 / 3), 0.5, 0.3, 0.5, None, 0.3, None]
    # One GPU-hour of a, two of b, half of one of c. By the last submission only a has ended, in the second hour; the
    # last half has what ended later too, so that the halves make the whole.
    assert [r["completed_share"] for r in rows] == [
        pytest.approx(1.5 / 3.5),
        1.0,
        pytest.approx(0.5 / 2.5),
        None,
        1.0,
        None,
        None,
    ]


def test_the_share_held_is_that_of_the_minutes_seen(four_hours: Trace) -> None:
    """From 0:10 to 3:10, by ten minutes: a holds a GPU of two to 1:30, b from 2:00 on."""
    rows = _rows(four_hours, step_s=600)
    expected = [130 / 360, 60 / 220, 70 / 140, 30 / 100, 30 / 120, 60 / 120, 10 / 20]
    assert [r["held_share"] for r in rows] == pytest.approx(expected)


def _us(clock: str) -> int:
    return int(datetime.fromisoformat(f"2024-01-01T{clock}:00+00:00").timestamp() * 1_000_000)


def test_of_a_time_that_is_given_what_lies_in_it_is_reported(four_hours: Trace) -> None:
    """From 1:00 to 3:00: b and c come, a ends; a holds a GPU of two to 1:30, b from 2:00 on; one sample, at 2:30."""
    rows = _rows(four_hours, step_s=600, from_us=_us("01:00"), to_us=_us("03:00"))
    assert [(r["period"], str(r["start_time"])[11:16], str(r["end_time"])[11:16]) for r in rows] == [
        ("whole", "01:00", "03:00"),
        *(("half", "01:00", "02:00"), ("half", "02:00", "03:00")),
        *(("span", "01:00", "02:00"), ("span", "02:00", "03:00")),
    ]
    assert [r["jobs"] for r in rows] == [2, 1, 1, 1, 1]
    assert [r["mean_wait_s"] for r in rows] == [2700.0, 3600.0, 1800.0, 3600.0, 1800.0]
    assert [r["held_share"] for r in rows] == pytest.approx([90 / 240, 30 / 120, 60 / 120, 30 / 120, 60 / 120])
    assert [r["used_share"] for r in rows] == [0.3, None, 0.3, None, 0.3]
    assert [r["completed_share"] for r in rows] == [1.0, 1.0, None, 1.0, None]


def test_a_time_may_cut_spans_and_leave_one_end_open(four_hours: Trace) -> None:
    late = _rows(four_hours, from_us=_us("02:30"))
    assert [(str(r["start_time"])[11:16], str(r["end_time"])[11:16], r["jobs"]) for r in late] == [
        *(("02:30", "03:10", 2), ("02:30", "03:10", 2)),
        *(("02:30", "03:00", 1), ("03:00", "03:10", 1)),
    ]
    # What ended after the last submission counts in the whole, and in its last half, of which there is one in an hour:
    # two hours of b, which failed, and half of one of c.
    assert [r["completed_share"] for r in late] == [pytest.approx(0.5 / 2.5), pytest.approx(0.5 / 2.5), None, None]
    early = _rows(four_hours, to_us=_us("01:00"))
    assert [(r["period"], r["jobs"], r["completed_share"]) for r in early] == [
        (period, 1, None) for period in ("whole", "half", "span")
    ]
    assert _rows(four_hours, from_us=_us("05:00")) == []


def test_few_spans_are_longer_and_the_last_is_shorter(make_trace: Callable[..., Trace]) -> None:
    """Sixty-one hours are thirty spans of two, and one of one."""
    jobs = [{"job_id": str(day), "submit_time": f"2024-01-0{day} 12:30"} for day in (1, 2, 3)]
    jobs += [
        {"job_id": "last", "submit_time": "2024-01-04 00:30"},
        {"job_id": "first", "submit_time": "2024-01-01 12:00"},
    ]
    jobs += [{"job_id": "late", "submit_time": "2024-01-04 00:00"}]
    attempts = [{"job_id": "first", "attempt": 1}]
    spans = [r for r in _rows(make_trace(jobs=jobs, attempts=attempts)) if r["period"] == "span"]
    assert len(spans) == 31
    assert [(str(r["start_time"])[8:16], str(r["end_time"])[8:16], r["jobs"]) for r in (spans[0], spans[-1])] == [
        ("01 12:00", "01 14:00", 2),
        ("04 00:00", "04 00:30", 2),
    ]


@pytest.mark.parametrize(
    ("facts", "first", "begins"),
    [
        # Days of the calendar begin at midnight in Los Angeles, seven hours behind; weeks on a Monday.
        ({"timezone": "America/Los_Angeles"}, "2017-10-09 08:46", ["2017-10-09 07:00", "2017-10-10 07:00"]),
        ({"timezone": "UTC+8"}, "2017-10-09 08:46", ["2017-10-09 00:00", "2017-10-10 00:00"]),
        ({"timezone": "Asia/Kolkata"}, "2017-10-09 20:46", ["2017-10-09 18:30", "2017-10-10 18:30"]),
        ({"timezone": "Asia/Shanghai", "time_base": "shifted"}, "1970-01-18 17:07", ["1970-01-18 16:00"]),
        # Days that count from the start of the trace begin with it.
        ({"time_base": "relative"}, "1970-01-01 00:00", ["1970-01-01 00:00", "1970-01-02 00:00"]),
    ],
)
def test_spans_begin_where_the_clock_of_the_trace_does(
    make_trace: Callable[..., Trace], facts: dict[str, str], first: str, begins: list[str]
) -> None:
    since = datetime.fromisoformat(first)
    jobs = [{"job_id": str(d), "submit_time": str(since + timedelta(days=d))} for d in range(0, 50, 7)]
    attempts = [{"job_id": "0", "attempt": 1}]
    trace = make_trace(jobs=jobs, attempts=attempts, manifest_overrides=facts)
    spans = [str(r["start_time"])[:16] for r in _rows(trace) if r["period"] == "span"]
    assert spans[: len(begins)] == begins
    assert len(spans) <= 60


@pytest.mark.parametrize(("base", "first"), [("relative", "1970-01-01"), ("absolute", "1969-12-29")])
def test_weeks_of_a_trace_without_a_calendar_begin_with_it(
    make_trace: Callable[..., Trace], base: str, first: str
) -> None:
    """Thursday, 1 January 1970, lies in the week of Monday, 29 December."""
    days = [datetime(1970, 1, 1) + timedelta(days=d) for d in (0, 150)]
    jobs = [{"job_id": str(d), "submit_time": str(d)} for d in days]
    attempts = [{"job_id": str(days[0]), "attempt": 1}]
    trace = make_trace(jobs=jobs, attempts=attempts, manifest_overrides={"time_base": base})
    spans = [str(r["start_time"])[:10] for r in _rows(trace) if r["period"] == "span"]
    assert spans[0] == first
    assert len(spans) == 22


def test_without_a_submission_there_is_no_row(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(jobs=[{"job_id": "a"}], attempts=[{"job_id": "a", "attempt": 1}])
    assert _rows(trace) == []


@pytest.mark.parametrize(
    "name", ["philly", "slurm", *(pytest.param(n, marks=pytest.mark.thorough) for n in ("helios", "slurm-outages"))]
)
def test_the_whole_says_what_other_queries_say(sample_trace: Callable[[str], Trace], name: str) -> None:
    ask = Asking(sample_trace(name))
    rows = ask("overview/through_time").to_dicts()
    whole, spans = rows[0], [r for r in rows if r["period"] == "span"]
    value = {r["metric"]: r["value"] for r in ask("overview/summary").to_dicts()}
    held = {r["metric"]: r["value"] for r in ask("queuing/gpu_time_held").to_dicts()}
    status = {r["status"]: r["gpu_hours_share"] for r in ask("overview/status").to_dicts()}
    assert whole["mean_wait_s"] == pytest.approx(value["gpu_mean_queue_s"])
    assert whole["held_share"] == pytest.approx(held["held_share"])
    assert whole["completed_share"] == pytest.approx(status["completed"])
    assert sum(r["jobs"] for r in spans) == whole["jobs"] == value["gpu_jobs"]
    assert sum(r["waited_h"] or 0 for r in spans) == pytest.approx(whole["waited_h"])
    assert 10 < len(spans) <= 60
