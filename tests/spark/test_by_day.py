"""Telemetry by day: what a day must know of all days, and how steps that are too large are left to Spark."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.alike import difference
from tests.spark.conftest import LONG
from tests.spark.planted import plant
from tracekit.characterize import answer_query, find_query, list_views
from tracekit.characterize.engines.spark import by_day, tables
from tracekit.characterize.engines.spark.by_day import Part, rows_of_part
from tracekit.characterize.query import Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.characterize.engines import Engine
    from tracekit.trace import Trace

pytestmark = pytest.mark.spark

NAMES = ("utilization/gpu_by_size_status", "overview/summary")
MORE = ("utilization/dedicated", "utilization/efficiency")


@pytest.fixture
def planted(make_trace: Callable[..., Trace]) -> Trace:
    return plant(make_trace)


def _same(trace: Trace, name: str, engine: Engine) -> None:
    expected = answer_query(trace, name).frame
    assert expected.height > 0
    assert difference(expected, answer_query(trace, name, engine=engine).frame) is None


@pytest.mark.parametrize("name", (*NAMES, *MORE) if LONG else NAMES)
def test_what_no_step_may_hand_around_is_left_to_sparks_sql(
    name: str, planted: Trace, spark: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_MERGED_ROWS", 3)
    _same(planted, name, spark)


def test_percentiles_of_many_rows_are_read_off_counts(
    planted: Trace, spark: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "large_rows", 1)
    for name in ("queuing/queue_delay", "overview/summary", "workload/recurrence", "utilization/vc"):
        _same(planted, name, spark)


def test_a_day_alone_would_not_know_the_other_days(make_trace: Callable[..., Trace], spark: Engine) -> None:
    """The planted problem: GPU 3 shows on the second day alone, and only the third has samples beside whole minutes.

    The attempt of the first day holds GPUs 0 to 2 of a node that shows four in all: it is not alone there. It starts 20
    seconds after its first sample, which belongs to it as long as all samples are at whole minutes.
    """
    begin = dt.datetime(2020, 1, 1)
    day = dt.timedelta(days=1)
    work = [("a", begin, (0, 1, 2)), ("b", begin + day, (0, 1, 2, 3)), ("c", begin + 2 * day, (0, 1, 2, 3))]
    jobs: list[dict[str, Any]] = []
    rows: dict[str, list[dict[str, Any]]] = {"attempts": [], "placements": [], "gpu_utilization": []}
    for job, first, gpus in work:
        start, end = first + dt.timedelta(seconds=20), first + dt.timedelta(hours=1)
        facts = {"start_time": start, "end_time": end, "gpu_count": len(gpus), "status": "completed"}
        jobs.append({"job_id": job, "submit_time": first, **facts})
        rows["attempts"].append({"job_id": job, "attempt": 0, "run_s": 3580.0, **facts})
        rows["placements"].append(
            {"job_id": job, "attempt": 0, "node_id": "n", "gpu_index": list(gpus), "gpu_count": len(gpus)}
        )
        for minute in range(10):
            seconds = 7 if job == "c" and minute == 5 else 0
            rows["gpu_utilization"] += [
                {
                    "time": first + dt.timedelta(minutes=minute, seconds=seconds),
                    "node_id": "n",
                    "gpu_index": gpu,
                    "utilization_pct": 10.0 * minute + gpu,
                }
                for gpu in gpus
            ]
    trace = make_trace(jobs=jobs, **rows)
    found = answer_query(trace, "utilization/dedicated", engine=spark).frame
    assert difference(answer_query(trace, "utilization/dedicated").frame, found) is None
    # The first sample of each day lies 20 s before the start, which counts by the second here: 9 samples a GPU.
    assert found.select("gpu_count", "samples").rows() == [(4, 72)]
    assert answer_query(trace, "utilization/held_gpus", engine=spark).frame["value"].to_list()[1] == 99

    # Without what it is handed, a day answers by itself: a GPU fewer on the first.
    part = Part(trace, ("nodes",), "SELECT max(gpu_index) + 1 AS gpus FROM gpu_utilization", {}, {}, {}, ("gpus",))
    alone = [next(rows_of_part(part, (begin + k * day).date()))[0] for k in range(3)]
    assert alone == [3, 4, 4]


def test_days_are_those_of_the_samples(planted: Trace, make_trace: Callable[..., Trace]) -> None:
    assert by_day._days(planted) == [dt.date(2017, 11, k) for k in (4, 5, 6)]
    assert by_day._days(make_trace(jobs=[{"job_id": "a"}])) == []


def test_a_text_with_its_own_merge_is_merged(planted: Trace, spark: Engine) -> None:
    sql = (
        "WITH counted AS (SELECT node_id, count(*) AS n, max(time) AS last FROM attempt_samples GROUP BY node_id)"
        " SELECT node_id, n, last FROM counted ORDER BY node_id"
    )
    query = Query.of_text(sql, planted.path, merge=("counted",))
    expected = answer_query(planted, query, sandbox=False).frame
    assert expected.height > 3
    assert difference(expected, answer_query(planted, query, sandbox=False, engine=spark).frame) is None


def test_views_of_telemetry_are_known() -> None:
    assert {view.name for view in list_views() if view.merge} >= {"attempt_samples", "node_gpus", "sample_intervals"}
    assert find_query("utilization/host").merge == ("bins", "counted")
