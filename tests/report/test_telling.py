"""What carries no information is not drawn, nor shown as a table."""

from __future__ import annotations

from typing import Any

import altair as alt
import pytest

from tracekit.report.charts import Panel, bars, category, data, ranges
from tracekit.report.telling import all_zero, tells


def _bars(*shares: float | None) -> Panel:
    rows: list[dict[str, Any]] = [{"gpu_class": str(i), "share": share} for i, share in enumerate(shares)]
    return bars(rows, measures={"share": "share of jobs"}, axis_title="share")


@pytest.mark.parametrize(
    ("shares", "told"),
    [((0.5,), False), ((0.5, 0.0), False), ((0.5, None), False), ((0.0, 0.0), False), ((0.5, 0.1), True)],
)
def test_a_chart_of_one_bar_is_not_drawn(shares: tuple[float | None, ...], told: bool) -> None:
    assert tells(_bars(*shares)) is told


def _spread(*values: float) -> Panel:
    rows: list[dict[str, Any]] = [
        {"what": str(i), "p10_s": v, "p50_s": v, "p90_s": 2 * v} for i, v in enumerate(values)
    ]
    return Panel(ranges(rows, y=category("what", [r["what"] for r in rows], None), wide=("p10_s", "p90_s"), title="x"))


@pytest.mark.parametrize(("values", "told"), [((5.0,), True), ((0.0,), False), ((0.0, 0.0), False), ((0.0, 5.0), True)])
def test_one_distribution_tells_something_and_zeros_do_not(values: tuple[float, ...], told: bool) -> None:
    assert tells(_spread(*values)) is told


@pytest.mark.parametrize(("shares", "told"), [([0.0, 0.0], False), ([0.0, 0.1], False), ([0.2, 0.1], True)])
def test_a_line_of_zeros_is_not_drawn_although_time_goes_by(shares: list[float], told: bool) -> None:
    rows = [{"hour": hour, "share": share} for hour, share in enumerate(shares, 1)]
    chart = alt.Chart(data(rows)).mark_line().encode(x="hour:Q", y="share:Q")
    assert tells(Panel(chart)) is told


@pytest.mark.parametrize(("values", "told"), [([0.0, 0.0], False), ([0.0, 5.0], True)])
def test_a_curve_of_nothing_but_zeros_is_not_drawn(values: list[float], told: bool) -> None:
    lines = alt.Chart(data([{"s": values, "names": 0}])).transform_calculate(share="[0,1]")
    chart = lines.transform_flatten(["s", "share"]).mark_line().encode(x="s:Q", y="share:Q")
    assert tells(Panel(chart)) is told


@pytest.mark.parametrize(("most", "told"), [(0.0, False), (5.0, True)])
def test_lines_that_are_all_zero_are_not_drawn(most: float, told: bool) -> None:
    rows = [{"time": day, "log": most, "twin": 0.0} for day in (1, 2)]
    folded = alt.Chart(data(rows)).transform_fold(["log", "twin"], as_=["measure", "value"])
    assert tells(Panel(folded.mark_line().encode(x="time:Q", y="value:Q"))) is told


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
