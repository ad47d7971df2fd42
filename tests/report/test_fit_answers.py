"""The fitted workload in a report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.report.answering import answered, told, why
from tracekit.analysis import analyze
from tracekit.fit.model import WorkloadModel
from tracekit.report.fit_answers import FITTED, fitted_answers
from tracekit.report.sections.interface import charts, finding, presentations

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.answer import Answer, Unanswered
    from tracekit.trace import Trace


def _entry(**given: Any) -> dict[str, Any]:
    lognormal = {
        "family": "lognorm",
        "parameters": {"s": 1.0, "scale": 100.0},
        "aic": 10.0,
        "bic": 11.0,
        "ks": 0.02,
        "anderson_darling": 0.4,
    }
    entry = {
        "measure": "until_end",
        **dict.fromkeys(("gpu_class", "status", "cluster", "vc")),
        "pooled_to": None,
        "n": 300,
        "right_censored": 30,
        "quantiles_s": [[0, 1.0], [0.5, 90.0], [0.99, 1000.0], [1, 2000.0]],
        "chosen": "lognorm",
        "best_by": {"aic": "burr12", "bic": "lognorm"},
        "families": [{"family": "expon", "failed": "no"}, lognormal],
        "bootstrap": {"jobs": 300, "replicates": 19, "p_ks": 0.4, "p_ad": 0.5},
    }
    return entry | given


def _model(*entries: dict[str, Any], **document: Any) -> WorkloadModel:
    rate = {"kind": "hour_of_week", "per_hour": 10.0, "profile": [2.0] + [1.0] * 167, "trend_per_day": 0.0}
    arrivals = {"process": "poisson", "why": "Poisson is not rejected", "days": 28.0, "rate": rate}
    arrivals |= {"start": 1_507_507_200 - 3600, "timezone": "UTC"}
    return WorkloadModel(
        {
            "source": {"hour_of_day_known": True},
            "effort": {"bootstrap_replicates": 19, "bootstrap_jobs": 500},
            "arrivals": arrivals,
            "run_times": list(entries),
            "notes": [],
            **document,
        }
    )


def _rows(answer: Answer | Unanswered) -> list[dict[str, Any]]:
    return answered(answer).frame.to_dicts()


def test_each_fitted_group_is_a_row_and_pooled_ones_are_counted(golden: Golden) -> None:
    pooled = _entry(gpu_class="1", pooled_to="all", n=40, median_ratio=None, quantiles_s=None)
    tenant = _entry(vc="x")
    family, match, *_ = fitted_answers(_model(_entry(), _entry(gpu_class=">8"), pooled, tenant))
    rows = _rows(family)
    assert [(r["gpu_class"], r["status"], r["family"], r["least_aic"], r["p"]) for r in rows] == [
        ("all", "all", "lognorm", "burr12", 0.4),
        (">8", "all", "lognorm", "burr12", 0.4),
    ]
    assert rows[0]["censored_share"] == 0.1
    assert "remark" not in rows[0]
    (shown,) = answered(match).notes
    (pooling,) = (note for note in answered(family).notes if "group" in note)
    golden(
        [
            told(pooling, "1", "200"),
            told(shown, "1-GPU", "40", "200", "20"),
            told(finding("fit/run_time_family", rows), "300", "2.0 %", "0.4"),
        ]
    )


def test_a_p_value_is_reported_with_the_jobs_that_it_was_made_with(golden: Golden) -> None:
    drawn = {"jobs": 500, "replicates": 19, "p_ks": 0.05, "p_ad": 0.5}
    family, *_ = fitted_answers(_model(_entry(n=7255, bootstrap=drawn)))
    rows = _rows(family)
    assert rows[0]["p_jobs"] == 500
    said = finding("fit/run_time_family", rows)
    assert said is not None
    (note,) = answered(family).notes
    golden([told(said, "500", "0.05"), told(note, "19", "500", "0.05")])
    family, *_ = fitted_answers(_model(_entry(bootstrap=None)))
    rows = _rows(family)
    assert "p_jobs" not in rows[0]
    said = finding("fit/run_time_family", rows)
    assert said is not None
    assert said.endswith("distribution is 2.0 %.")


def test_observed_are_next_to_fitted_quantiles(golden: Golden) -> None:
    _, match, *_ = fitted_answers(_model(_entry(), _entry(gpu_class="1")))
    rows = _rows(match)
    assert [(r["gpu_class"], r["share"], r["observed_s"]) for r in rows] == [
        ("all", 0.5, 90.0),
        ("all", 0.99, 1000.0),
        ("1", 0.5, 90.0),
        ("1", 0.99, 1000.0),
    ]
    # The median of a lognormal is its scale; exp(2.3263) = 10.24 times that is its last hundredth.
    assert rows[0]["fitted_s"] == pytest.approx(100, rel=1e-3)
    assert rows[1]["fitted_s"] == pytest.approx(1024, rel=1e-3)
    assert rows[0]["censored_share"] == 0.1
    _, ended, *_ = fitted_answers(_model(_entry(right_censored=0)))
    said = finding("fit/run_time", _rows(ended))
    assert said is not None
    golden(
        [
            told(finding("fit/run_time", rows), "1.5 min", "1.67 min", "16.7 min", "17.1 min"),
            told(said, "1.5 min"),
        ]
    )
    drawn = charts("fit/run_time", rows)
    assert [p.title for p in drawn] == [
        "All jobs",
        "All jobs: share that runs longer",
        "By size",
        "By size: share that runs longer",
        "Observed against fitted",
    ]
    survival = drawn[1].to_dict()["layer"][0]["encoding"]
    assert survival["y"]["scale"]["type"] == "log"
    assert survival["x"]["scale"]["type"] == "log"


def test_the_rate_is_a_table_of_hours_by_days(golden: Golden) -> None:
    _, _, rate, *_ = fitted_answers(_model(_entry()))
    rows = _rows(rate)
    assert len(rows) == 24
    assert {r["rate"] for r in rows} == {"fitted"}
    assert (rows[0]["monday"], rows[0]["tuesday"], rows[23]["sunday"]) == (20.0, 10.0, 10.0)
    golden(told(finding("fit/arrival_rate", rows), "10.1", "20", "Monday, 00:00", "10", "Monday, 01:00"))
    (chart,) = charts("fit/arrival_rate", rows)
    (values,) = chart.to_dict()["datasets"].values()
    assert [v["batches"] for v in values[:3]] == [20.0, 10.0, 10.0]


def test_observed_rates_are_next_to_the_fitted_ones(golden: Golden) -> None:
    document = _model(_entry()).document
    # Monday 00:00 is 5 off, Monday 01:00 was never seen, all others are met.
    seen = [25.0, None, *[10.0] * 166]
    _, _, rate, *_ = fitted_answers(_model(_entry(), arrivals={**document["arrivals"], "observed_per_hour": seen}))
    rows = _rows(rate)
    assert [(r["hour"], r["rate"], r["monday"], r["tuesday"]) for r in rows[:4]] == [
        (0, "fitted", 20.0, 10.0),
        (0, "observed", 25.0, 10.0),
        (1, "fitted", 10.0, 10.0),
        (1, "observed", None, 10.0),
    ]
    said = finding("fit/arrival_rate", rows)
    assert said is not None
    golden(told(said, "167", "0.0299"))
    (chart,) = charts("fit/arrival_rate", rows)
    assert [words for words, _ in chart.legend] == ["observed", "fitted"]
    points = next(v for v in chart.to_dict()["datasets"].values() if v[0]["what"] == "observed")
    assert [(p["hour_of_week"], p["batches"]) for p in points[:2]] == [(0.5, 25.0), (2.5, 10.0)]
    assert len(points) == 167


def test_a_small_size_class_is_shown_with_the_fit_of_all_at_its_own_median(golden: Golden) -> None:
    quantiles = [[0.01, 20.0], [0.5, 180.0], [0.95, 1500.0], [0.99, 2000.0]]
    small = _entry(gpu_class="1", pooled_to="all", n=40, median_ratio=2.0, quantiles_s=quantiles)
    _, match, *_ = fitted_answers(_model(_entry(), small))
    rows = [r for r in _rows(match) if r["gpu_class"] == "1"]
    # A hundredth of 40 jobs is less than a job.
    assert [r["share"] for r in rows] == [0.5, 0.95]
    assert rows[0]["fitted_s"] == pytest.approx(200, rel=1e-3)
    golden(told(answered(match).notes[0], "200", "1-GPU", "40"))


def test_what_runs_longer_has_log_axes_though_jobs_ran_for_no_time() -> None:
    zero = _entry(quantiles_s=[[0.25, 0.0], [0.5, 90.0], [0.99, 1000.0]])
    _, match, *_ = fitted_answers(_model(zero))
    below, beyond, *_ = charts("fit/run_time", _rows(match))
    encoded = [p.to_dict()["layer"][0]["encoding"] for p in (below, beyond)]
    assert [e["x"]["scale"]["type"] for e in encoded] == ["symlog", "log"]
    assert encoded[1]["y"]["scale"]["type"] == "log"
    assert "left of the axis" in beyond.note


def test_a_log_without_hours_names_no_hour() -> None:
    _, _, rate, *_ = fitted_answers(_model(_entry(), source={"hour_of_day_known": False}))
    # The log begins on a Sunday at 23:00 of its made-up week: Monday 00:00 is its second hour.
    rows = _rows(rate)
    assert [r["day_1"] for r in rows[:3]] == [10.0, 20.0, 10.0]
    assert list(rows[0]) == ["hour", "rate", *(f"day_{d}" for d in range(1, 8))]
    said = finding("fit/arrival_rate", rows)
    assert said is not None
    assert "Monday" not in said
    assert "day 1" in json.dumps(charts("fit/arrival_rate", rows)[0].to_dict())


def test_a_growing_rate_is_reported_as_its_mean(golden: Golden) -> None:
    rate = {"kind": "constant", "per_hour": 10.0, "profile": [1.0], "trend_per_day": 0.1}
    arrivals = {"process": "poisson", "why": "w", "days": 10.0, "rate": rate}
    _, _, answer, *_ = fitted_answers(_model(_entry(), arrivals=arrivals))
    # (e - 1) / 1 times the rate at the beginning.
    assert _rows(answer)[0]["monday"] == pytest.approx(17.18, abs=0.01)
    golden(told(answered(answer).notes[-1], "10", "2.72"))


def test_what_could_not_be_fitted_has_its_reason(golden: Golden) -> None:
    constant = _entry(chosen=None, reason="all durations are the same", bootstrap=None)
    arrivals = {"process": None, "reason": "no two times"}
    family, match, rate, process, _ = fitted_answers(
        _model(constant, arrivals=arrivals, notes=[f"note {i}" for i in range(7)])
    )
    said = finding("fit/run_time_family", _rows(family))
    assert said is not None
    assert charts("fit/run_time_family", _rows(family)) == []
    assert why(match) == (constant["reason"],) == (_rows(family)[0]["remark"],)
    (reason,) = why(rate)
    assert why(process) == (reason,)
    last, more = answered(family).notes[-2:]
    assert last == "note 4"
    family, match, *_ = fitted_answers(_model())
    (nothing,) = why(family)
    assert why(match) == (nothing,)
    golden([said, told(reason, "no two times"), told(more, "2"), nothing])


def test_every_question_of_a_fit_but_two_has_a_chart() -> None:
    # The process and the scores are small tables, which stand open.
    without = [query.name for query in FITTED if not presentations()[query.name].chart]
    assert without == ["fit/arrival_process", "fit/scores"]


def test_a_report_holds_its_fit_in_page_data_tables_and_model(report: dict[str, Any], analysis: Any, page: str) -> None:
    (section,) = [s for s in report["sections"] if s["name"] == "fit"]
    # 140 jobs are too few for scores.
    assert [a["name"] for a in section["answers"]] == [q.name for q in FITTED if q.name != "fit/scores"]
    assert report["workload"] == {"file": "workload.json", "reason": None, "seed": 0, "bootstrap_replicates": 19}
    assert WorkloadModel.read(analysis.folder / "workload.json").document["source"]["jobs"] == 140
    table = pl.read_parquet(analysis.results["fit/run_time"])
    assert table.columns == ["gpu_class", "share", "observed_s", "fitted_s", "censored_share"]
    assert '<section id="fit"' in page
    assert 'href="workload.json"' in page


def test_a_fit_that_breaks_costs_nothing_else(
    make_trace: Callable[..., Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> WorkloadModel:
        raise FloatingPointError("overflow")

    monkeypatch.setattr("tracekit.fit.scored.fit", fail)
    monkeypatch.setattr("tracekit.report.page.vega_bundle", lambda: "/* bundle */")
    done = analyze(make_trace(jobs=[{"job_id": "a"}]).path, tmp_path / "out")
    assert done.unanswered["fit/run_time"] == ("The fit could not be made: FloatingPointError: overflow.",)
    assert not (done.folder / "workload.json").exists()
    data = json.loads(done.data.read_text(encoding="utf-8"))
    assert data["workload"]["reason"] == "The fit could not be made: FloatingPointError: overflow."
    assert "The fit could not be made: FloatingPointError: overflow." in done.report.read_text(encoding="utf-8")
