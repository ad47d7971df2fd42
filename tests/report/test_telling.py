"""What carries no information is not drawn, nor shown as a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tracekit.report.axes import Axis, names
from tracekit.report.bars import amounts, bars
from tracekit.report.charts import Chart, line
from tracekit.report.spreads import ranges
from tracekit.report.telling import all_zero, occurring, runs, tells
from tracekit.report.through_time import sparkline


def _bars(*shares: float | None) -> Chart:
    rows: list[dict[str, Any]] = [{"gpu_class": str(i), "share": share} for i, share in enumerate(shares)]
    return bars(rows, measures={"share": "share of jobs"}, axis_title="share")


@pytest.mark.parametrize(
    ("shares", "told"),
    [((0.5,), False), ((0.5, 0.0), False), ((0.5, None), False), ((0.0, 0.0), False), ((0.5, 0.1), True)],
)
def test_a_chart_of_one_bar_is_not_drawn(shares: tuple[float | None, ...], told: bool) -> None:
    assert tells(_bars(*shares)) is told


def _spread(*values: float) -> Chart:
    rows: list[dict[str, Any]] = [
        {"what": str(i), "p10_s": v, "p50_s": v, "p90_s": 2 * v} for i, v in enumerate(values)
    ]
    return ranges(rows, y=names("what", [r["what"] for r in rows], step=20), wide=("p10_s", "p90_s"), title="x")


@pytest.mark.parametrize(("values", "told"), [((5.0,), True), ((0.0,), False), ((0.0, 0.0), False), ((0.0, 5.0), True)])
def test_one_distribution_tells_something_and_zeros_do_not(values: tuple[float, ...], told: bool) -> None:
    assert tells(_spread(*values)) is told


@pytest.mark.parametrize(("shares", "told"), [([0.0, 0.0], False), ([0.0, 0.1], False), ([0.2, 0.1], True)])
def test_a_line_of_zeros_is_not_drawn_although_time_goes_by(shares: list[float], told: bool) -> None:
    rows = [{"hour": hour, "share": share} for hour, share in enumerate(shares, 1)]
    assert tells(Chart(rows, x=Axis("hour"), y=Axis("share"), marks=[line()], height=9)) is told


@pytest.mark.parametrize(("values", "told"), [([0.0, 0.0], False), ([0.0, 5.0], True)])
def test_a_curve_of_nothing_but_zeros_is_not_drawn(values: list[float], told: bool) -> None:
    curve = replace(line(), transform=[{"calculate": "[0,1]", "as": "share"}, {"flatten": ["s", "share"]}])
    rows = [{"s": values, "names": 0}]
    assert tells(Chart(rows, x=Axis("s"), y=Axis("share"), marks=[curve], height=9)) is told


@pytest.mark.parametrize(("most", "told"), [(0.0, False), (5.0, True)])
def test_lines_that_are_all_zero_are_not_drawn(most: float, told: bool) -> None:
    rows = [{"time": day, "log": most, "twin": 0.0} for day in (1, 2)]
    folded = replace(line(), transform=[{"fold": ["log", "twin"], "as": ["measure", "value"]}])
    assert tells(Chart(rows, x=Axis("time"), y=Axis("value"), marks=[folded], height=9)) is told


@pytest.mark.parametrize(
    ("rows", "zero"),
    [
        ([{"cause": "a", "events": 0, "share": 0.0}], True),
        ([{"cause": "a", "events": 0, "share": None}], True),
        ([{"cause": "a", "events": 0}, {"cause": "b", "events": 2}], False),
        ([{"cause": "a", "lemon": False}], False),  # no number at all
        ([], False),
    ],
)
def test_a_table_of_zeros_is_not_seen_at_once(rows: list[dict[str, Any]], zero: bool) -> None:
    assert all_zero(rows) is zero


@pytest.mark.parametrize(
    ("series", "told"),
    [
        ([], False),
        ([5.0], False),  # a dot
        ([5.0, None], False),
        ([5.0, None, 3.0], True),
        ([None, None], False),
        ([0.0, 0.0, 0.0], False),
        ([0.0, None, 5.0, 0.0], True),
        ([1.0, 1.0], True),
        ([0.0, 2.0], True),
    ],
)
def test_a_small_line_has_two_numbers_and_not_zeros_alone(series: list[float | None], told: bool) -> None:
    assert runs(series) is told
    assert bool(sparkline(series)) is told


def test_what_did_not_occur_has_no_bar() -> None:
    rows: list[dict[str, Any]] = [
        {"label": "fan", "events": 3, "hours": 0.0},
        {"label": "nic", "events": 0, "hours": 0.0},
        {"label": "gpu", "events": 1, "hours": None},
        {"label": "disk", "events": 0, "hours": 2.0},
    ]
    assert [r["label"] for r in occurring(rows, "events", "hours")] == ["fan", "gpu", "disk"]
    spec = amounts(rows, value="events", axis_title="events", tips=[]).to_dict()
    assert spec["encoding"]["y"]["scale"]["domain"] == ["fan", "gpu"]
    (drawn,) = spec["datasets"].values()
    assert [r["label"] for r in drawn] == ["fan", "gpu"]


def test_a_measure_of_zeros_is_named_and_not_drawn() -> None:
    rows: list[dict[str, Any]] = [{"gpu_class": c, "quota": 0.0, "scattered": s} for c, s in (("1", 0.5), ("2-4", 0.1))]
    chart = bars(rows, measures={"quota": "quota", "scattered": "scattered GPUs"}, axis_title="share")
    assert chart.note == "Shown: scattered GPUs. Always 0: quota."
    assert chart.key == ()
    (drawn,) = chart.to_dict()["datasets"].values()
    assert {r["measure"] for r in drawn} == {"scattered GPUs"}
    # A size without any keeps its place on the axis, and has no bar.
    spec = bars([*rows, {"gpu_class": "5-8", "scattered": 0.0}], measures={"scattered": "x"}, axis_title="y").to_dict()
    assert spec["encoding"]["y"]["scale"]["domain"] == ["1", "2-4", "5-8"]
    assert [r["key"] for r in next(iter(spec["datasets"].values()))] == ["1", "2-4"]
    # It keeps the colour that it has beside the other.
    assert chart.to_dict()["encoding"]["color"]["scale"]["range"] == ["var(--series-2)"]
    # What is not known is not none.
    unknown = [{**row, "quota": None} for row in rows]
    assert bars(unknown, measures={"quota": "quota", "scattered": "scattered GPUs"}, axis_title="share").note == ""
