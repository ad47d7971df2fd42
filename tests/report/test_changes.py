"""What changed, in a report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest

from tests.characterize.periods import attempts, planted
from tracekit.analysis import analyze
from tracekit.characterize.changes import compare_since
from tracekit.report.change_answers import BY_VC, COMPARED, MEASURES, changed_answers
from tracekit.report.sections.interface import finding, panels, presentations, section_title, sections_in_order
from tracekit.resources import folder
from tracekit.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.answer import Row
    from tracekit.report.structure import Report
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
        "relative_change": 0.5,
        "relative_change_low": 0.25,
        "relative_change_high": 0.751,
        "verdict": "changed",
    }
    return found | more


def test_its_section_comes_after_the_overview() -> None:
    assert sections_in_order(["queuing", "change", "overview"]) == ["overview", "change", "queuing"]
    assert section_title("change") == "What changed"


def test_a_report_has_the_section_its_tables_and_charts(report: Report) -> None:
    assert [s["name"] for s in report["sections"]][:2] == ["overview", "change"]
    answers = report["sections"][1]["answers"]
    assert [a["name"] for a in answers] == ["change/measures", "change/by_vc"]
    for answer in answers:
        assert [c["name"] for c in answer["columns"]] == list(answer["rows"][0])
        assert all(c["meaning"] for c in answer["columns"])
        assert panels(answer["name"], answer["rows"])
        assert answer["files"] == [f"tables/{answer['name']}.parquet", f"tables/{answer['name']}.csv"]
    assert answers[0]["notes"][0] == (
        "before: 2017-10-02 to 2017-10-22, 21 days, 630 jobs; after: 2017-10-23 to 2017-11-12, 21 days, 630 jobs"
    )
    schema = json.loads((folder("schemas") / "report-1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(report)


def test_every_measure_is_defined_once(report: Report) -> None:
    definition = next(a["definition"] for a in report["sections"][1]["answers"])
    for measure in {r["measure"] for r in rows_of(report, "change/measures")}:
        assert definition.lower().count(f"{measure.lower()}: ") == 1, measure
    assert "Benjamini and Hochberg" in definition


def test_what_was_planted_is_told(report: Report) -> None:
    verdicts = {(r["measure"], r["scope"]): r["verdict"] for r in rows_of(report, "change/measures")}
    assert verdicts["median wait", "all jobs"] == "changed"
    assert verdicts["jobs a day", "all jobs"] == "noise"
    assert verdicts["share of all jobs", "jobs of 5-8 GPUs"] == "changed"
    text = report["sections"][1]["answers"][0]["finding"]
    assert text is not None
    assert "measures changed: " in text
    assert "median wait +" in text


def test_without_the_option_there_is_no_trace_of_it(slower: Trace, tmp_path: Path) -> None:
    done = analyze(slower.path, tmp_path / "out", fit=False, replay_jobs=0)
    names = {q.name for q in COMPARED}
    assert not names & (set(done.results) | set(done.unanswered))
    assert "change/" not in done.data.read_text(encoding="utf-8")
    assert not (tmp_path / "out" / "tables" / "change").exists()


def test_a_trace_without_tenants_has_none_to_compare(make_trace: Callable[..., Trace]) -> None:
    jobs = planted(np.random.default_rng(1), "2017-10-02", 12)
    measures, by_vc = changed_answers(compare_since(make_trace(jobs=jobs), "2017-10-08"))
    assert measures.question == MEASURES
    assert by_vc == BY_VC.unanswered("No virtual cluster has 30 jobs in both periods.")


def test_questions_without_answers_have_the_reason() -> None:
    results = [question.unanswered("The periods cannot be compared: x.") for question in COMPARED]
    assert [(u.name, u.reasons) for u in results] == [
        (name, ("The periods cannot be compared: x.",)) for name in ("change/measures", "change/by_vc")
    ]


def test_a_finding_names_the_largest_changes() -> None:
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
    assert finding("change/measures", rows) == (
        "4 of 6 measures changed: median run time from 0 s to 2 min; median wait +50.0 % (+25.0 to +75.1 %);"
        " jobs failed \N{MINUS SIGN}50.0 %; and 1 more. Of the others 1 may be noise and 1 has too little data."
        " By size of job 1 of 2 comparisons changed."
    )


def test_a_finding_without_a_change() -> None:
    noise, few = row(verdict="noise"), row(verdict="too little data")
    assert finding("change/measures", [noise, noise]) == "No measure changed by more than noise."
    assert finding("change/measures", [noise, few]) == ("No measure changed by more than noise. 1 has too little data.")
    assert finding("change/by_vc", [few, few]) == (
        "There is too little data to tell what changed: five days on each side are the least."
    )
    assert finding("change/by_vc", [row(), noise]) == (
        "1 of 2 comparisons changed: median wait of v +50.0 % (+25.0 to +75.1 %). Of the others 1 may be noise."
    )


def test_a_chart_draws_relative_changes_by_verdict() -> None:
    rows = [row(), row("jobs a day", verdict="noise"), row("median run time", relative_change=None)]
    assert presentations()["change/measures"].chart
    (panel,) = panels("change/measures", rows)
    (drawn,) = [d for d in panel.to_dict()["datasets"].values() if len(d) > 1]
    assert [(r["what"], r["change"], r["low"], r["high"], r["verdict"]) for r in drawn] == [
        ("median wait", 0.5, 0.25, 0.751, "changed"),
        ("jobs a day", 0.5, 0.25, 0.751, "may be noise"),
    ]
    assert [words for words, _ in panel.legend] == ["changed", "may be noise"]
    assert panel.note.endswith("Not drawn: what was 0 or unknown before.")


def test_of_parts_only_changes_are_drawn_and_the_rest_is_counted() -> None:
    rows = [row(scope=f"s{k}", relative_change=k / 10) for k in range(20)] + [row(scope="t", verdict="noise")]
    (panel,) = panels("change/measures", rows)
    (drawn,) = [d for d in panel.to_dict()["datasets"].values() if len(d) > 1]
    assert [r["name"] for r in drawn] == [f"median wait, s{k}" for k in range(19, 4, -1)]
    assert panel.note.endswith("5 more in the table.")
    assert panels("change/by_vc", [row(verdict="noise")]) == []


def test_a_long_name_stands_in_several_lines() -> None:
    (panel,) = panels("change/measures", [row("GPU-hours in jobs that did not complete")])
    (drawn,) = [d for d in panel.to_dict()["datasets"].values() if "what" in d[0]]
    assert drawn[0]["what"] == "GPU-hours in jobs that\ndid not complete"


def test_a_large_change_is_drawn_at_the_edge() -> None:
    (panel,) = panels("change/by_vc", [row(relative_change=50.0, relative_change_high=80.0)])
    assert "beyond the right edge" in panel.note


def test_rows_are_plain_values(report: Report) -> None:
    rows = rows_of(report, "change/by_vc")
    assert {r["vc"] for r in rows} == {HOSTILE, "b"}
    assert all(plain(value) == value for r in rows for value in r.values())
