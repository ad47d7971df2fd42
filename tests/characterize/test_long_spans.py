"""Logs that span centuries, and logs that begin in year 1 or end in year 9999: few rows, and times of these years."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tracekit.characterize import answer_query, lacks, list_queries, run_query
from tracekit.characterize.timelines.gpus import wide_step_s
from tracekit.errors import TooManyIntervalsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

YEAR_1 = dt.datetime(1, 1, 1)
SERIES = {"queuing/cluster_timeline": "time", "locality/fragmentation": "time", "overview/through_time": "start_time"}
"""Queries with a row for each interval, and the column of its begin."""


def world(*begins: dt.datetime) -> dict[str, list[dict[str, Any]]]:
    """Return a job of 2 GPUs for each time; it starts a minute later and runs an hour on the one node of 4 GPUs."""
    jobs, attempts, placements = [], [], []
    for i, begin in enumerate(begins):
        start, end = begin + dt.timedelta(minutes=1), begin + dt.timedelta(minutes=61)
        run = {"job_id": f"j{i}", "start_time": start, "end_time": end, "run_s": 3600.0, "gpu_count": 2}
        jobs.append(
            {
                **run,
                "submit_time": begin,
                "queue_s": 60.0,
                "status": "completed",
                "vc": "v",
                "user": "u",
                "cluster": "c",
            }
        )
        attempts.append({**run, "attempt": 0, "wait_s": 60.0, "status": "completed"})
        placements.append({"job_id": f"j{i}", "attempt": 0, "node_id": "n", "gpu_count": 2})
    nodes = [{"node_id": "n", "cluster": "c", "gpu_count": 4}]
    return {"jobs": jobs, "attempts": attempts, "placements": placements, "nodes": nodes}


@pytest.fixture(scope="module")
def centuries(make_trace: Callable[..., Trace]) -> Trace:
    return make_trace(**world(YEAR_1, *(dt.datetime(2020, 1, day) for day in range(1, 29))))


@pytest.mark.parametrize("name", SERIES)
def test_a_series_over_centuries_has_few_rows_and_real_times(centuries: Trace, name: str) -> None:
    found = run_query(centuries, name)
    times = found[SERIES[name]]
    assert 30 < found.height <= 800
    assert times.min() == YEAR_1
    last = times.max()
    assert isinstance(last, dt.datetime)
    assert 2020 - 35 < last.year < 2020 + 3


def test_the_load_over_centuries_is_all_gpu_time(centuries: Trace) -> None:
    found = run_query(centuries, "queuing/cluster_timeline")
    (step,) = found["time"].diff().drop_nulls().unique()
    assert step == dt.timedelta(days=960)
    hours = float(found["running_gpus"].sum()) * step.total_seconds() / 3600
    assert hours == pytest.approx(29 * 2, rel=1e-3)  # the query rounds to a millionth of a GPU


def test_spans_of_days_begin_with_a_log_of_year_1(make_trace: Callable[..., Trace]) -> None:
    """Local midnight would lie in the year before."""
    begins = [YEAR_1 + dt.timedelta(hours=hours) for hours in range(0, 24 * 40, 12)]
    trace = make_trace(manifest_overrides={"timezone": "America/New_York"}, **world(*begins))
    rows = run_query(trace, "overview/through_time").filter(period="span")
    assert rows["start_time"].to_list() == [YEAR_1 + dt.timedelta(days=day) for day in range(40)]
    assert rows["jobs"].to_list() == [2] * 40


def test_a_log_that_ends_in_year_9999_has_real_times(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(**world(dt.datetime(2020, 1, 1), dt.datetime(9999, 12, 31, 20)))
    for name, column in SERIES.items():
        last = run_query(trace, name)[column].max()
        assert isinstance(last, dt.datetime)
        assert last <= dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)


@pytest.mark.parametrize("name", ["queuing/timeline", "utilization/vc", "utilization/cluster_by_hour"])
def test_hours_of_centuries_are_refused_with_a_reason(centuries: Trace, name: str) -> None:
    with pytest.raises(TooManyIntervalsError, match="give a larger step_s") as caught:
        run_query(centuries, name)
    assert caught.value.sentence.startswith("The log is too long: steps of ")


@pytest.mark.parametrize("years", [1, 66, 700, 9999])
@pytest.mark.parametrize("most", [3, 20, 800])
def test_a_wide_step_is_the_shortest_that_fits(years: int, most: int) -> None:
    span_s = years * 365.25 * 86_400
    step = wide_step_s(span_s, most)
    assert step % (30 * 86_400) == 0
    assert span_s / step + 2 <= most or step == 30 * 86_400 or most == 3
    assert step == 30 * 86_400 or span_s / (step / 2) + 2 > most


SECOND = {(1, "America/St_Johns"), (1, "Asia/Shanghai"), (2, "UTC"), (1900, "America/St_Johns")}
"""Begins of the logs of the second tier: in year 1 west and east of Greenwich, in year 2, and in the 20th century."""


@pytest.mark.parametrize(
    ("year", "zone"),
    [
        pytest.param(year, zone, marks=pytest.mark.thorough if (year, zone) in SECOND else pytest.mark.slow)
        for year in (1, 2, 1000, 1900)
        for zone in ("UTC", "America/St_Johns", "Asia/Shanghai")
    ],
)
def test_all_questions_are_answered_over_centuries(make_trace: Callable[..., Trace], year: int, zone: str) -> None:
    begins = (dt.datetime(year, 1, 1), *(dt.datetime(2020, 1, day) for day in range(1, 29)))
    trace = make_trace(manifest_overrides={"timezone": zone}, **world(*begins))
    for query in list_queries():
        if lacks(query, trace):
            continue
        try:
            found = answer_query(trace, query).frame
        except TooManyIntervalsError:
            continue
        assert found.height <= (5_000_000 if query.name == "queuing/timeline" else 800), query.name


@pytest.mark.thorough
def test_a_report_over_centuries_has_every_part(centuries: Trace, tmp_path: Path) -> None:
    done = tracekit.analyze(centuries.path, tmp_path / "out", fit=True, replay_jobs=100)
    assert done.faults == ()
    assert done.unanswered["utilization/cluster_by_hour"][0].startswith("The log is too long: ")
    data = json.loads(done.data.read_text(encoding="utf-8"))
    answers = {answer["name"]: answer for section in data["sections"] for answer in section["answers"]}
    assert any("because the log is long" in note for note in answers["utilization/vc"]["notes"])
    both = tracekit.compare([("a", centuries), ("b", centuries)], tmp_path / "compared", queries=["utilization/vc"])
    assert both.faults == ()
    assert set(both.unanswered["utilization/vc"]) == {"a", "b"}
