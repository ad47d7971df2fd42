from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.report.answering import told
from tracekit.analysis import analyze
from tracekit.answer import Answer, AnswerColumn, Interval, Param, Unanswered
from tracekit.characterize import Query, list_queries
from tracekit.report.data import build_report
from tracekit.report.fit_answers import FITTED
from tracekit.report.parts import PARTS
from tracekit.report.replay_answers import REPLAY_QUESTIONS
from tracekit.report.sections.interface import section_title, sections_in_order
from tracekit.report.structure import ROW_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.report.structure import CapacityInfo, Report
    from tracekit.trace import Trace

NO_CAPACITY: CapacityInfo = {
    "requested": "listed",
    "used": None,
    "gpus": None,
    "alternatives": {},
    "note": "unknown",
    "word": "",
}


def own_query(name: str = "mine/own") -> Query:
    """Return a query that no section module knows."""
    return Query(
        name=name,
        title="Own table",
        question="What about x?",
        paper="",
        tables=("jobs",),
        needs=(),
        params=(Param("limit", 3, "how many"),),
        columns=(AnswerColumn("x", "s", "a duration"),),
        sql="SELECT 1 AS x",
        path=Path("own.sql"),
        rule="x is counted.",
    )


def _build(trace: Trace, answers: list[Answer | Unanswered], **more: Any) -> Report:
    return build_report(trace, answers, capacity=NO_CAPACITY, source="logs/site", **more)


@pytest.fixture(scope="module")
def plain_trace(make_trace: Callable[..., Trace]) -> Trace:
    jobs = [{"job_id": "a", "submit_time": "2020-01-01 00:00", "end_time": "2020-01-11 00:00", "cluster": "c1"}]
    return make_trace(jobs=jobs)


def test_an_answer_states_question_rule_parameters_columns_and_rows(plain_trace: Trace) -> None:
    answer = Answer(
        replace(own_query(), intervals=(Interval("x", "median", "n"),)),
        pl.DataFrame({"x": [1.5, None]}),
        files=("tables/mine/own.csv",),
        params={"limit": 7},
        notes=("y is a proxy",),
        coverage={"queueing": 0.5},
        intervals=pl.DataFrame({"x_low": [1.0, None], "x_high": [2.0, None]}),
    )
    (section,) = _build(plain_trace, [answer])["sections"]
    assert section == {
        "name": "mine",
        "title": "Mine",
        "lead": "",
        "answers": [
            {
                "name": "mine/own",
                "group": "mine",
                "kind": "query",
                "title": "Own table",
                "question": "What about x?",
                "paper": "",
                "finding": None,
                "columns": [{"name": "x", "unit": "s", "meaning": "a duration"}],
                "rows": [{"x": 1.5}, {"x": None}],
                "row_count": 2,
                "params": [{"name": "limit", "value": 7, "meaning": "how many"}],
                "notes": ["y is a proxy"],
                "coverage": {"queueing": 0.5},
                "intervals": [
                    {"column": "x", "method": "median", "count": "n", "low": [1.0, None], "high": [2.0, None]}
                ],
                "definition": "x is counted.",
                "sql": "SELECT 1 AS x",
                "commands": ["tracekit query trace mine/own --param limit=7"],
                "files": ["tables/mine/own.csv"],
                "published": [],
            }
        ],
    }


def test_a_report_keeps_a_limited_number_of_rows_and_says_how_many_there_are(plain_trace: Trace) -> None:
    frame = pl.DataFrame({"x": range(ROW_LIMIT + 5)})
    (answer,) = _build(plain_trace, [Answer(own_query(), frame)])["sections"][0]["answers"]
    assert (len(answer["rows"]), answer["row_count"]) == (ROW_LIMIT, ROW_LIMIT + 5)


def test_a_question_without_an_answer_has_its_reasons_in_words(plain_trace: Trace) -> None:
    both = ["The trace has no table 'nodes'.", "The trace has no placement: nothing tells it."]
    found = _build(plain_trace, [own_query().unanswered(*both), own_query("mine/other").unanswered(*both[:1])])
    assert found["sections"] == []
    assert [(u["name"], u["reasons"]) for u in found["unanswered"]] == [
        ("mine/own", both[1:]),
        ("mine/other", both[:1]),
    ]


def test_known_sections_come_in_reading_order_and_new_ones_after_them() -> None:
    assert sections_in_order(["zebra", "workload", "apple", "overview"]) == ["overview", "workload", "apple", "zebra"]
    assert (section_title("queuing"), section_title("my_group")) == ("Queueing", "My group")


def test_answers_stand_in_the_order_in_which_they_are_read(report: Report) -> None:
    assert [a["name"] for a in report["sections"][0]["answers"]] == [
        "overview/summary",
        "overview/through_time",
        "overview/status",
        "overview/job_size",
        "overview/arrivals_by_hour",
    ]


@pytest.mark.parametrize(
    ("base", "period"), [("absolute", "1 to 11 January 2020"), ("shifted", "10 days"), ("relative", "10 days")]
)
def test_the_period_is_reported_as_far_as_the_dates_hold(
    golden: Golden, make_trace: Callable[..., Trace], base: str, period: str
) -> None:
    jobs = [{"job_id": "a", "submit_time": "2020-01-01 00:00", "end_time": "2020-01-11 00:00"}]
    trace = make_trace(jobs=jobs, manifest_overrides={"time_base": base})
    golden(told(_build(trace, [])["time"]["text"], period))


def test_a_trace_without_times_or_jobs_has_a_report(make_trace: Callable[..., Trace]) -> None:
    no_times = make_trace(jobs=[{"job_id": "a"}])
    assert _build(no_times, [])["time"]["text"] == "no times"
    empty = make_trace()
    found = _build(empty, [])
    assert (found["headline"], found["source"]["clusters"]) == ([], [])


def test_headline_numbers_are_those_of_other_queries(golden: Golden, report: Report) -> None:
    rows = {a["name"]: a["rows"] for s in report["sections"] for a in s["answers"]}
    value = {r["metric"]: r["value"] for name in ("overview/summary", "queuing/gpu_time_held") for r in rows[name]}
    golden(h["label"] for h in report["headline"])
    wait, waited, held, _, useful = (h["value"] for h in report["headline"])
    completed = next(r["gpu_hours_share"] for r in rows["overview/status"] if r["status"] == "completed")
    (waits,) = (r for r in rows["overview/through_time"] if r["period"] == "whole")
    assert wait == pytest.approx(value["gpu_mean_queue_s"])
    assert waited == pytest.approx(value["gpu_mean_queue_s"] * waits["started"] / 3600)
    assert held == pytest.approx(value["held_share"])
    assert useful == pytest.approx(completed)


def test_a_share_of_completed_jobs_warns_of_unknown_statuses(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    jobs = [{"job_id": str(i), "status": "completed" if i else "unknown"} for i in range(4)]
    done = analyze(make_trace(jobs=jobs).path, tmp_path / "out")
    (card,) = (h for h in json.loads(done.data.read_text())["headline"] if "completed" in h["label"])
    assert card["value"] == 0.75
    assert card["note"].startswith("25.0 % ")


def test_quality_repeats_the_accounting_of_the_manifest(report: Report) -> None:
    quality = report["quality"]
    assert (quality["records"], quality["kept"], quality["rejected"], quality["file_count"]) == (142, 140, 2, 1)
    assert [(r["column"], r["reason"], r["count"]) for r in quality["rejects"]] == [
        (None, "expected 3 fields, found 2", 1),
        ("time", "is no time", 1),
    ]
    assert [(c["name"], c["count"]) for c in quality["checks"]] == [("bad", 3), ("fine", 0)]
    assert quality["capabilities"][-1]["name"] == "retries"


def test_a_megabyte_of_name_does_not_reach_the_report(report: Report) -> None:
    def longest(value: object) -> int:
        if isinstance(value, dict):
            return max(map(longest, value.values()), default=0)
        if isinstance(value, list):
            return max(map(longest, value), default=0)
        return len(value) if isinstance(value, str) else 0

    rows = [s["answers"] for s in report["sections"]]
    assert longest([report["quality"], report["source"], rows]) < 10_000


def test_the_time_of_making_is_written_in_utc(plain_trace: Trace) -> None:
    made = dt.datetime(2020, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
    assert _build(plain_trace, [], created=made)["created"] == "2020-05-06T07:08:09Z"


def test_every_shipped_query_is_answered_or_has_a_reason(report: Report) -> None:
    answered = {a["name"] for s in report["sections"] for a in s["answers"]}
    unanswered = {u["name"] for u in report["unanswered"]}
    # Its rows are the sums by which a page is narrowed.
    assert report["parts"] is not None
    assert answered | unanswered == {q.name for q in (*list_queries(), *FITTED, *REPLAY_QUESTIONS)} - {PARTS}
    assert not answered & unanswered
    assert all(u["reasons"] for u in report["unanswered"])
