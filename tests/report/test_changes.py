"""What changed, in a report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import polars as pl
import pytest

from tests.characterize.periods import attempts, planted
from tests.report.answering import told
from tests.report.asking import asking
from tracekit.analysis import analyze
from tracekit.answer import Answer
from tracekit.characterize.changes import compare_since
from tracekit.report.changed import BY_VC, COMPARED, MEASURES, changed_answers, what_changed, what_differs
from tracekit.report.markdown import markdown
from tracekit.report.page import render_report
from tracekit.report.sections.interface import charts, finding, presentations, section_title, sections_in_order
from tracekit.resources import folder
from tracekit.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.answer import Row
    from tracekit.report.structure import Report, WhatChanged
    from tracekit.trace import Trace

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def slower(make_trace: Callable[..., Trace]) -> Trace:
    """Return three weeks, and three with run times twice as long, half an hour of waiting, and jobs of 8 GPUs."""
    rng = np.random.default_rng(1)
    before = planted(rng, "2017-10-02", 21, each=30)
    after = planted(rng, "2017-10-23", 21, each=30, slower=2, later_s=1800)
    jobs = [{**row, "vc": HOSTILE if k % 2 else "b"} for k, row in enumerate([*before, *after])]
    jobs = [{**row, "gpu_count": 8 if k >= len(before) and k % 3 else 1} for k, row in enumerate(jobs)]
    return make_trace(jobs=jobs, attempts=attempts(jobs))


@pytest.fixture(scope="module")
def report(slower: Trace, tmp_path_factory: pytest.TempPathFactory) -> Report:
    out = tmp_path_factory.mktemp("changes") / "out"
    with asking("overview/status", "queuing/queue_delay"):
        done = analyze(slower.path, out, fit=False, replay_jobs=0, compare="2017-10-23")
    loaded: Report = json.loads(done.data.read_text(encoding="utf-8"))
    return loaded


def rows_of(report: Report, name: str) -> list[Row]:
    return next(a["rows"] for s in report["sections"] for a in s["answers"] if a["name"] == name)


def row(measure: str = "median wait", **more: Any) -> Row:
    found: Row = {
        "measure": measure,
        "scope": "all jobs",
        "vc": "v",
        "unit": "s",
        "before": 60.0,
        "after": 90.0,
        "difference": 30.0,
        "difference_low": 15.0,
        "difference_high": 45.0,
        "relative_change": 0.5,
        "relative_change_low": 0.25,
        "relative_change_high": 0.751,
        "n_before": 630,
        "n_after": 640,
        "days_before": 21,
        "days_after": 20,
        "verdict": "changed",
    }
    return found | more


def test_its_section_comes_after_the_overview() -> None:
    assert sections_in_order(["queuing", "change", "overview"]) == ["overview", "change", "queuing"]
    assert section_title("change") == "What changed"


def test_a_report_has_the_section_its_tables_and_charts(golden: Golden, report: Report) -> None:
    assert [s["name"] for s in report["sections"]][:2] == ["overview", "change"]
    answers = report["sections"][1]["answers"]
    assert [a["name"] for a in answers] == ["change/measures", "change/by_vc"]
    for answer in answers:
        assert [c["name"] for c in answer["columns"]] == list(answer["rows"][0])
        assert all(c["meaning"] for c in answer["columns"])
        assert charts(answer["name"], answer["rows"])
        assert answer["files"] == [f"tables/{answer['name']}.parquet", f"tables/{answer['name']}.csv"]
    golden(told(answers[0]["notes"][0], "2017-10-02", "2017-10-22", "21", "630", "2017-10-23", "2017-11-12"))
    schema = json.loads((folder("schemas") / "report-1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(report)


def test_every_measure_is_defined_once(report: Report) -> None:
    definition = next(a["definition"] for a in report["sections"][1]["answers"])
    for measure in {r["measure"] for r in rows_of(report, "change/measures")}:
        assert definition.lower().count(f"{measure.lower()}: ") == 1, measure
    assert "Benjamini and Hochberg" in definition


def test_what_was_planted_is_reported(golden: Golden, report: Report) -> None:
    verdicts = {(r["measure"], r["scope"]): r["verdict"] for r in rows_of(report, "change/measures")}
    assert verdicts["median wait", "all jobs"] == "changed"
    assert verdicts["jobs a day", "all jobs"] == "noise"
    assert verdicts["share of all jobs", "jobs of 5-8 GPUs"] == "changed"
    opening = report["opening"]["changed"]
    assert opening is not None
    assert " measures changed beyond chance: " in opening["text"]
    assert opening["rows"][0]["changed"]
    golden(told(opening["periods"], "2017-10-02", "2017-10-22", "21", "630", "2017-10-23", "2017-11-12"))
    waits = next(r for r in opening["rows"] if r["what"] == "median wait")
    assert (float(waits["before"].split()[0]) < 5, waits["after"].split()[1]) == (True, "min")
    assert waits["certainty"].startswith("sure: +")


def test_the_page_opens_with_what_changed(report: Report) -> None:
    page = render_report(report)
    opening = report["opening"]["changed"]
    assert opening is not None
    start = page.index('<section class="changed"')
    assert page.index("<main") < start < page.index('id="opening-title"') < page.index('id="part-queueing"')
    assert page.count("<tr", start, page.index("</section>", start)) == 1 + len(opening["rows"]) <= 7
    assert "## What changed" in markdown(report)


def test_without_the_option_there_is_no_trace_of_it(slower: Trace, tmp_path: Path) -> None:
    with asking("overview/status"):
        done = analyze(slower.path, tmp_path / "out", fit=False, replay_jobs=0)
    assert set(done.results) == {"overview/status"}
    names = {q.name for q in COMPARED}
    assert not names & (set(done.results) | set(done.unanswered))
    assert "change/" not in done.data.read_text(encoding="utf-8")
    assert not (tmp_path / "out" / "tables" / "change").exists()


def test_a_trace_without_tenants_has_none_to_compare(golden: Golden, make_trace: Callable[..., Trace]) -> None:
    jobs = planted(np.random.default_rng(1), "2017-10-02", 12)
    measures, by_vc = changed_answers(compare_since(make_trace(jobs=jobs), "2017-10-08"))
    assert measures.question == MEASURES
    assert not isinstance(by_vc, Answer)
    assert by_vc == BY_VC.unanswered(*by_vc.reasons)
    golden([told(reason, "30") for reason in by_vc.reasons])


def test_questions_without_answers_have_the_reason() -> None:
    results = [question.unanswered("Because.") for question in COMPARED]
    assert [(u.name, u.reasons) for u in results] == [
        (name, ("Because.",)) for name in ("change/measures", "change/by_vc")
    ]


def test_a_finding_names_the_largest_changes(golden: Golden) -> None:
    rows = [
        row(),
        row("jobs failed", unit="share", before=0.1, after=0.05, relative_change=-0.5, relative_change_low=None),
        row("median run time", before=0.0, after=120.0, relative_change=None),
        row("jobs a day", relative_change=0.1, relative_change_low=0.05, relative_change_high=0.2),
        row("jobs cancelled", verdict="noise"),
        row("mean GPU utilization", verdict="too little data"),
        row("jobs a day", scope="1-GPU jobs", verdict="noise"),
        row(scope="1-GPU jobs"),
    ]
    golden(
        [
            told(
                finding("change/measures", rows),
                "1",
                "2",
                "median wait",
                "1-GPU",
                "1.0 min",
                "1.5 min",
                "+25.0 %",
                "+75.1 %",
            ),
            told(
                opening_of(rows),
                "4",
                "6",
                "0 s",
                "2.0 min",
                "+15.0 s",
                "+45.0 s",
                "1.0 min",
                "1.5 min",
                "+25.0 %",
                "+75.1 %",
                "1",
                "1-GPU",
            ),
        ]
    )


def opening_of(rows: list[Row]) -> str:
    return opened(rows)["text"]


def opened(rows: list[Row]) -> WhatChanged:
    found = what_changed({"change/measures": Answer(MEASURES, pl.DataFrame(rows), notes=("before: a",))})
    assert found is not None
    return found


def test_a_finding_without_a_change(golden: Golden) -> None:
    noise, few = row(verdict="noise"), row(verdict="too little data", n_after=12)
    assert finding("change/measures", [noise, noise]) is None
    unsure, unknown = (r["certainty"] for r in opened([few, noise])["rows"])
    assert unsure.endswith("+25.0 % to +75.1 %")
    golden(
        [
            unsure,
            told(unknown, "12"),
            told(opening_of([noise, noise]), "2"),
            told(opening_of([noise, few]), "1"),
            told(opening_of([few, row(verdict="too little data")]), "630", "21", "12", "20", "30", "5"),
            told(finding("change/by_vc", [few, few])),
            told(finding("change/by_vc", [noise]), "1"),
            told(finding("change/by_vc", [row(), noise]), "1", "2", "1.0 min", "1.5 min", "+25.0 %", "+75.1 %"),
        ]
    )


def test_the_opening_has_six_rows_the_changes_first() -> None:
    rows = [row(f"m{k}", verdict="noise") for k in range(4)]
    rows += [row(f"c{k}", relative_change=k / 10) for k in range(3)]
    rows += [row("c9", scope="1-GPU jobs"), row("few", verdict="too little data")]
    assert [r["what"] for r in opened(rows)["rows"]] == ["c2", "c1", "c0", "c9 of 1-GPU jobs", "m0", "m1"]


@pytest.mark.parametrize(
    ("later_s", "first", "sign"), [((0.0, 1800.0), "wait", "+"), ((1800.0, 0.0), "wait", "\N{MINUS SIGN}")]
)
def test_a_planted_change_is_named_first_in_either_direction(
    make_trace: Callable[..., Trace], later_s: tuple[float, float], first: str, sign: str
) -> None:
    rng = np.random.default_rng(7)
    days = ("2017-10-02", "2017-10-16")
    jobs = [j for day, s in zip(days, later_s, strict=True) for j in planted(rng, day, 14, each=30, later_s=s)]
    found = compare_since(make_trace(jobs=jobs, attempts=attempts(jobs)), days[1])
    answers = {a.name: a for a in changed_answers(found) if isinstance(a, Answer)}
    opening = what_changed(answers)
    assert opening is not None
    named = opening["text"].partition("beyond chance: ")[2]
    assert first in named.partition(" -> ")[0]
    assert opening["rows"][0]["change"].startswith(sign)


def test_where_nothing_was_planted_nothing_is_said_to_have_changed(make_trace: Callable[..., Trace]) -> None:
    rng = np.random.default_rng(8)
    jobs = planted(rng, "2017-10-02", 28, each=30)
    found = compare_since(make_trace(jobs=jobs, attempts=attempts(jobs)), "2017-10-16")
    opening = what_changed({a.name: a for a in changed_answers(found) if isinstance(a, Answer)})
    assert opening is not None
    assert opening["text"].startswith("Nothing changed beyond chance in ")
    assert not any(r["changed"] for r in opening["rows"])


def test_traces_are_set_against_the_first(golden: Golden) -> None:
    two = what_differs("a", {"b": [row(), row("jobs a day", verdict="noise")]})
    assert (two["heads"], [r["what"] for r in two["rows"]]) == (["a", "b"], ["median wait", "jobs a day"])
    three = what_differs("a", {"b": [row()] * 5, "c": "it has no jobs.", "d": [row(verdict="noise")] * 5})
    golden(
        [
            told(two["text"], "b compared with a", "median wait", "1", "2", "1.0 min", "1.5 min", "+25.0 %", "+75.1 %"),
            told(
                three["text"],
                "b compared with a",
                "c cannot be compared with a",
                "d compared with a",
                "5",
                "1.0 min",
                "1.5 min",
                "+25.0 %",
                "+75.1 %",
            ),
        ]
    )
    assert [r["what"] for r in three["rows"]] == ["median wait, b"] * 3 + ["median wait, d"] * 3
    assert three["heads"] == ["a", "the other"]


def test_what_cannot_be_compared_says_why() -> None:
    found = what_changed({}, [q.unanswered("Because.") for q in COMPARED])
    assert found is not None
    assert (found["text"], found["rows"]) == ("Because.", [])
    assert what_changed({}) is None


def test_a_chart_draws_relative_changes_by_verdict(golden: Golden) -> None:
    rows = [row(), row("jobs a day", verdict="noise"), row("median run time", relative_change=None)]
    assert presentations()["change/measures"].chart
    (chart,) = charts("change/measures", rows)
    (drawn,) = [d for d in chart.to_dict()["datasets"].values() if len(d) > 1]
    assert [(r["what"], r["change"], r["low"], r["high"], r["verdict"]) for r in drawn] == [
        ("median wait", 0.5, 0.25, 0.751, "changed"),
        ("jobs a day", 0.5, 0.25, 0.751, "may be noise"),
    ]
    assert [words for words, _ in chart.legend] == ["changed", "may be noise"]
    golden(told(chart.note, "0"))


def test_of_parts_only_changes_are_drawn_and_the_rest_is_counted() -> None:
    rows = [row(scope=f"s{k}", relative_change=k / 10) for k in range(20)] + [row(scope="t", verdict="noise")]
    (chart,) = charts("change/measures", rows)
    (drawn,) = [d for d in chart.to_dict()["datasets"].values() if len(d) > 1]
    assert [r["name"] for r in drawn] == [f"median wait, s{k}" for k in range(19, 4, -1)]
    assert chart.note.endswith("5 more.")
    assert charts("change/by_vc", [row(verdict="noise")]) == []


def test_a_long_name_stands_in_several_lines() -> None:
    (chart,) = charts("change/measures", [row("GPU-hours in jobs that did not complete")])
    (drawn,) = [d for d in chart.to_dict()["datasets"].values() if "what" in d[0]]
    assert drawn[0]["what"].split("\n") == ["GPU-hours in jobs that", "did not complete"]


def test_a_large_change_is_drawn_at_the_edge() -> None:
    (chart,) = charts("change/by_vc", [row(relative_change=50.0, relative_change_high=80.0)])
    assert "beyond the right edge" in chart.note


def test_rows_are_plain_values(report: Report) -> None:
    rows = rows_of(report, "change/by_vc")
    assert {r["vc"] for r in rows} == {HOSTILE, "b"}
    assert all(plain(value) == value for r in rows for value in r.values())
