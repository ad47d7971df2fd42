"""What the report says and draws about GPU-hours, wasted and paid for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from tests.report.answering import told
from tests.report.asking import asking
from tracekit.analysis import analyze
from tracekit.report.sections.interface import TraceFacts, charts, finding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

HOURS = ("held", "used", "idle", "failed", "preempted", "timeout", "wasted")


def row(key: str | None, *hours: float | None, coverage: float = 1.0) -> dict[str, Any]:
    return {"key": key, "coverage_share": coverage} | {f"{n}_gpu_h": h for n, h in zip(HOURS, hours, strict=True)}


def test_the_sentence_tells_what_is_known_and_who_wastes_most(golden: Golden) -> None:
    rows = [row("x", 60.0, 20.0, 20.0, 10.0, 5.0, 2.0, 35.0), row(None, 40.0, None, None, 0.0, 0.0, 0.0, None)]
    few = [{**rows[0], "coverage_share": 0.2}]
    golden(
        [
            told(
                finding("utilization/efficiency", rows),
                "100",
                "40",
                "40.0 %",
                "50.0 %",
                "10",
                "10.0 %",
                "2",
                "2.0 %",
                "5",
                "5.0 %",
                "35",
                "58.3 %",
            ),
            told(finding("utilization/efficiency", few), "User x", "35", "58.3 %"),
        ]
    )


def test_the_sentence_does_not_call_unknown_use_idle(golden: Golden) -> None:
    rows = [row("x", 60.0, None, None, 0.0, 0.0, 0.0, None, coverage=0.0)]
    golden(told(finding("utilization/efficiency", rows), "60"))
    assert finding("utilization/efficiency", [row("x", None, None, None, None, None, None, None)]) is None


def test_the_word_is_that_of_what_the_rows_are_of(golden: Golden) -> None:
    rows = [row(None, 60.0, None, None, 60.0, 0.0, 0.0, 60.0)]
    text = finding("utilization/efficiency", rows, replace(TraceFacts(), efficiency_by="qos"))
    golden(told(text, "60", "100 %"))


def test_parts_that_nobody_has_are_not_in_the_legend() -> None:
    rows = [row("x", 60.0, 20.0, 40.0, 0.0, 0.0, 0.0, 10.0), row("y", 40.0, 30.0, 10.0, 0.0, 0.0, 0.0, None)]
    (chart,) = charts("utilization/efficiency", rows)
    assert [words for words, _ in chart.legend] == ["used", "idle"]
    assert chart.note == ""
    (lone,) = charts("utilization/efficiency", [row(k, 60.0, None, None, 0.0, 0.0, 0.0, None) for k in "xy"])
    assert lone.key == ()
    assert lone.note == "Unknown: not measured."


def test_bars_are_stacked_from_used_idle_and_unknown() -> None:
    rows = [row("<script>x", 60.0, 20.0, 10.0, 0.0, 0.0, 0.0, 10.0), row(None, 40.0, None, None, 0.0, 0.0, 0.0, None)]
    (chart,) = charts("utilization/efficiency", rows)
    spec = chart.to_dict()
    (values,) = spec["datasets"].values()
    assert [(v["label"], v["part"], v["hours"]) for v in values] == [
        ("<script>x", "used", 20.0),
        ("<script>x", "idle", 10.0),
        ("<script>x", "unknown", 30.0),
        ("no user", "unknown", 40.0),
    ]
    assert [words for words, _ in chart.legend] == ["used", "idle", "unknown"]
    assert spec["encoding"]["y"]["scale"]["domain"] == ["<script>x", "no user"]


def test_a_limited_number_of_bars_is_drawn(golden: Golden) -> None:
    rows = [row(f"u{i:02}", 9.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0) for i in range(30)]
    (chart,) = charts("utilization/efficiency", rows)
    golden(told(chart.note, "12", "18"))
    assert charts("utilization/efficiency", [row("x", 0.0, None, None, 0.0, 0.0, 0.0, None)]) == []


def test_the_first_job_to_look_at_is_reported_in_words(golden: Golden) -> None:
    first = {"job_id": "7", "user": "x", "wasted_gpu_h": 30.0, "reason": "failed after 30.0 GPU-hours"}
    name = "utilization/jobs_to_look_at"
    golden(
        [
            told(finding(name, [first]), "Job 7 of x", "7", "30.0"),
            told(finding(name, [first, {**first, "wasted_gpu_h": 10.0}]), "2", "40", "7", "30.0"),
        ]
    )
    assert "No job" in (finding(name, []) or "")


def test_the_bill_says_what_has_no_price(golden: Golden) -> None:
    line = {"account": "p", "currency": "EUR", "gpu_hours": 4.0, "cost": 12.5, "idle_cost": 2.0, "failed_cost": None}
    priced = {**line, "waiting_cost": 3.0}
    without = {**line, "cost": None, "idle_cost": None, "waiting_cost": None, "gpu_hours": 6.0}
    golden(
        [
            told(finding("money/bill", [priced, without]), "4", "12.50", "2.00", "3.00", "6"),
            told(finding("money/bill", [without]), "6"),
        ]
    )
    (chart,) = charts("money/bill", [priced, {**priced, "cost": 1.5}, {**priced, "account": None}, without])
    (values,) = chart.to_dict()["datasets"].values()
    assert [(v["label"], v["cost"]) for v in values] == [("p", 14.0), ("no account", 12.5)]


def test_an_analysis_with_prices_shows_the_bill_and_writes_it(
    sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('currency = "EUR"\n[[price]]\nper_gpu_hour = "2.00"\ngpu_model = "a100"\n')
    with asking("utilization/efficiency", "utilization/jobs_to_look_at"):
        found = analyze(sample_trace("slurm").path, tmp_path / "out", fit=False, replay_jobs=0, prices=prices)
    report = json.loads(found.data.read_text())
    answers = {answer["name"]: answer for section in report["sections"] for answer in section["answers"]}
    bill = pl.read_csv(found.folder / "bill.csv")
    assert answers["money/bill"]["row_count"] == bill.height
    assert answers["money/bill"]["kind"] == "bill"
    cost = bill["cost"].sum()
    assert f"{cost:,.2f} EUR" in answers["money/bill"]["finding"]
    assert "h100" in answers["money/bill"]["notes"][1]
    assert cost == round(2 * bill.filter(pl.col("cost").is_not_null())["gpu_hours"].sum(), 2)
    assert answers["utilization/efficiency"]["finding"].startswith("Jobs took")
    page = found.report.read_text()
    assert "Money" in page
    assert "Jobs to look at" in page
